"""What the judges of a run used, and what that cost where their prices are known: in all, by grader and by training step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from judgekit.report.table import Table
from judgekit.types import Price, Usage


class _Part(Struct):
    """What a grader's judge used in one step, under one spec."""

    step: float | None
    grader: str
    usage: Usage
    usd: float | None


def costs(table: Table, price: Price | None = None) -> dict[str, Any]:
    """Add up what was used and what it cost, in US dollars; fits JSON.

    A ledger holds the prices that its judges had; *price* is that of the others. `usd` is None where a price, or how many
    tokens it were, is not known for all of a sum.
    """
    parts = []
    for (step, grader, digest, told), usage in table.spent.items():
        spec = table.specs.get(digest)
        own = spec.graders[grader].price if spec is not None and grader in spec.graders else None
        paid = own or price
        if usage.calls:
            parts.append(_Part(step, grader, usage, paid.usd(usage) if paid is not None and told else None))
    by_step: dict[float, list[_Part]] = defaultdict(list)
    for part in parts:
        if part.step is not None:
            by_step[part.step].append(part)
    return {
        **_sum(parts),
        "graders": _by_grader(parts),
        "steps": [
            {"step": step, **_sum(members), "graders": _by_grader(members)}
            for step, members in sorted(by_step.items())
        ],
    }


def _by_grader(parts: Sequence[_Part]) -> dict[str, dict[str, Any]]:
    graders = dict.fromkeys(part.grader for part in parts)
    return {grader: _sum([part for part in parts if part.grader == grader]) for grader in graders}


def _sum(parts: Sequence[_Part]) -> dict[str, Any]:
    usage = sum((part.usage for part in parts), Usage())
    known = [part.usd for part in parts if part.usd is not None]
    return {
        **{field: getattr(usage, field) for field in Usage.__struct_fields__},
        "usd": sum(known) if known and len(known) == len(parts) else None,
    }
