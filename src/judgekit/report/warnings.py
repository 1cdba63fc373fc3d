"""The signals of a ledger; see `judgekit.metrics.signals`.

    for signal in signals(Table("ledger.jsonl"), SignalLimits(length=0.4)): ...

The highest and lowest rewards are those that the ledger has; a running trainer's signals go by those that are possible.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from judgekit.metrics import SIGNAL_LIMITS, Moments, Signal, SignalLimits
from judgekit.metrics.moments import is_flat
from judgekit.metrics.signals import Evidence, flat, formatting, missing, repetition, saturated
from judgekit.report.table import STATES, Table

_SAMPLE = 2000
"""Rollouts whose texts are read for the signals that need them."""


def signals(table: Table, limits: SignalLimits | None = None) -> list[Signal]:
    """Compute all signals of a ledger; the raised ones come first."""
    limits = limits or SIGNAL_LIMITS
    given = [row for row in table.shown() if not math.isnan(table.numbers["raw"][row])]
    rows = [row for row in given if table.status(row) != "dropped"]  # as a trainer's own figures
    groups = _groups(table, rows)
    compared = _groups(table, given)  # that a group is dropped does not make it less flat
    reward = table.numbers["raw"]
    evidence = Evidence(length=f"length in {table.length}")
    for members in groups:
        evidence.add_group([table.lengths[row] for row in members], [reward[row] for row in members])
    _read_texts(table, rows, evidence)
    _pair(table, rows, evidence)
    found = [
        *evidence.signals(limits),
        *flat(sum(is_flat([reward[row] for row in m]) for m in compared), len(compared), limits),
    ]
    if values := Counter(reward[row] for row in rows):
        ends = {max(values): "highest", min(values): "lowest"} if len(values) > 1 else {max(values): "same"}
        for value, which in ends.items():
            found += saturated(which, values[value], len(rows), limits)
    found += _missing(table, limits)
    return sorted(found, key=lambda signal: not signal.raised)


def _groups(table: Table, rows: Sequence[int]) -> list[list[int]]:
    """The groups of two or more rewards."""
    members: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        members[table.codes["group"][row]].append(row)
    return [found for found in members.values() if len(found) > 1]


def _read_texts(table: Table, rows: Sequence[int], evidence: Evidence) -> None:
    """Look at a sample that is spread evenly over the run."""
    for row in rows[:: max(1, len(rows) // _SAMPLE)]:
        response = table.rollout(row).get("response")
        if isinstance(response, str):
            evidence.repetition.add(repetition(response), table.numbers["raw"][row])
            evidence.formatting.add(formatting(response), table.numbers["raw"][row])


def _pair(table: Table, rows: Sequence[int], evidence: Evidence) -> None:
    """Compare each judge with each rule: where they rise and fall against each other, one of the two is wrong or fooled."""
    judges = {name: column for name, column in table.graders.items() if column.judged}
    rules = {name: column for name, column in table.graders.items() if not column.judged}
    evidence.judges.update(judges)
    for judge, judged in judges.items():
        for rule, ruled in rules.items():
            moments = evidence.pairs[judge, rule] = Moments()
            for row in rows:
                if not (math.isnan(judged.score[row]) or math.isnan(ruled.score[row])):
                    moments.add(ruled.score[row], judged.score[row])


def _missing(table: Table, limits: SignalLimits) -> Iterator[Signal]:
    shown = list(table.shown())
    failed = STATES.index("failed")
    asked = {STATES.index("graded"), STATES.index("abstained"), failed}
    for name, column in table.graders.items():
        errors = Counter(column.error[row] for row in shown if column.state[row] == failed)
        told = ", ".join(
            f"{table.names['error'].values[code][0]} × {count}" for code, count in errors.most_common(3)
        )
        total = sum(column.state[row] in asked for row in shown)
        yield from missing(name, errors.total(), total, told, limits)


def to_json(found: Iterable[Signal]) -> list[dict[str, Any]]:
    return [{key: getattr(signal, key) for key in signal.__struct_fields__} for signal in found]
