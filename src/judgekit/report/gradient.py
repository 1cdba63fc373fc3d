"""What a changed reward does to the gradient: GRPO's advantages of the same groups, before and after."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from judgekit.errors import ConfigError
from judgekit.ledger.schema import Entry, tagged_step
from judgekit.metrics.moments import is_flat
from judgekit.report.table import Table
from judgekit.reward.explain import explain
from judgekit.reward.spec import parse
from judgekit.reward.transforms import zscore
from judgekit.reward.tree import RewardTree

_LISTED = 20
"""Groups that are listed, those first whose advantages change most."""


def gradient(before: Table, after: Table, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Compare the advantages that GRPO makes of two ledgers' rewards. Fits JSON; figures that are not known are null.

    *pairs*: the rows of the rollouts that are in both, see `judgekit.report.comparison`. Advantages are z-scores over a group
    (Shao et al. 2024, arXiv:2402.03300); rollouts without a reward are not in it, and a flat group has none. The cosine is
    that of all rollouts' advantages: 1 where the policy is pushed the same way, 0 where one has nothing to say about the
    other, −1 where it is pushed back. The best member changes where no member is a best one of both.
    """
    groups = _groups(before, after, pairs)
    dots: dict[str, _Cosine] = defaultdict(_Cosine)
    counts = dict.fromkeys(
        ("flat_before", "flat_after", "became_flat", "stopped_being_flat", "best_changed"), 0
    )
    for group in groups:
        was, now = group.flat
        counts["flat_before"] += was
        counts["flat_after"] += now
        counts["became_flat"] += now and not was
        counts["stopped_being_flat"] += was and not now
        counts["best_changed"] += not (was or now) and group.other_best
        for source in {"", group.source}:
            dots[source].add(*group.advantages)
    most = [group for group in sorted(groups, key=lambda g: -g.moved) if group.moved > 1e-9][:_LISTED]
    sources = sorted(dots.keys() - {""})
    return {
        "groups": len(groups),
        "cosine": dots[""].value,
        "cosine_by_source": {source: dots[source].value for source in sources},
        **counts,
        "most": [group.told(before, after) for group in most],
    }


class _Cosine:
    """The cosine of two vectors, part by part."""

    def __init__(self) -> None:
        self._parts: list[tuple[float, float, float]] = []

    def add(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self._parts += ((x * y, x * x, y * y) for x, y in zip(xs, ys, strict=True))

    @property
    def value(self) -> float | None:
        """None where one of the two is nothing but zeros."""
        if not self._parts:
            return None
        dot, xx, yy = (math.fsum(part) for part in zip(*self._parts, strict=True))
        return min(max(dot / math.sqrt(xx * yy), -1.0), 1.0) if xx * yy > 0.0 else None


class _Group:
    """The rollouts of one group that are in both ledgers."""

    def __init__(
        self, source: str, rows: Sequence[tuple[int, int]], rewards: Sequence[Sequence[float]]
    ) -> None:
        self.source = source
        self.rows = rows
        self.rewards = rewards
        """Before and after, a number for each rollout; NaN: it has none."""
        self.advantages = [_advantages(side) for side in rewards]
        self.flat = [not any(side) for side in self.advantages]
        self.moved = math.dist(*self.advantages)

    @property
    def other_best(self) -> bool:
        return _best(self.advantages[0]).isdisjoint(_best(self.advantages[1]))

    def told(self, before: Table, after: Table) -> dict[str, Any]:
        """Return the group as it is printed, with the trees of the member that moves most."""
        cosine = _Cosine()
        cosine.add(*self.advantages)
        moves = [abs(new - old) for old, new in zip(*self.advantages, strict=True)]
        most = max(range(len(moves)), key=moves.__getitem__)
        row, other = self.rows[most]
        return {
            "group": after.names["group"].values[after.codes["group"][other]]["id"],
            "source": self.source,
            "cosine": cosine.value,
            "moved": self.moved,
            "members": [
                {
                    "row": at,
                    "id": after.texts["id"][at],
                    "rewards": [None if math.isnan(side[i]) else side[i] for side in self.rewards],
                    "advantages": [side[i] for side in self.advantages],
                }
                for i, (_, at) in enumerate(self.rows)
            ],
            "explained": {"row": other, "before": _explained(before, row), "after": _explained(after, other)},
        }


def _groups(before: Table, after: Table, pairs: Sequence[tuple[int, int]]) -> list[_Group]:
    """Return the groups that at least two rollouts of *pairs* are in, as the earlier ledger has them."""
    members: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, other in pairs:
        members[before.codes["group"][row]].append((row, other))
    return [
        _Group(
            before.names["source"].values[before.codes["source"][rows[0][0]]],
            rows,
            [
                [before.numbers["reward"][row] for row, _ in rows],
                [after.numbers["reward"][other] for _, other in rows],
            ],
        )
        for rows in members.values()
        if len(rows) > 1
    ]


def _advantages(rewards: Sequence[float]) -> list[float]:
    """Return GRPO's advantages; 0 for a rollout without a reward, and in a group in which nobody is better."""
    known = [i for i, reward in enumerate(rewards) if math.isfinite(reward)]
    found = [0.0] * len(rewards)
    values = [rewards[i] for i in known]
    if len(known) > 1 and not is_flat(values):
        for i, advantage in zip(known, zscore(values), strict=True):
            found[i] = advantage
    return found


def _best(advantages: Sequence[float]) -> set[int]:
    best = max(advantages)
    return {i for i, advantage in enumerate(advantages) if math.isclose(advantage, best, abs_tol=1e-9)}


def _explained(table: Table, row: int) -> str:
    """Return a rollout's reward tree with its numbers."""
    line: Mapping[str, Any] = table.rollout(row)
    entry = msgspec.convert(line, Entry)
    spec = table.specs.get(entry.spec)
    if spec is None:
        return "the ledger does not say how this rollout was graded"
    rollout = entry.to_rollout() if entry.response is not None else None
    try:
        tree = RewardTree(
            parse(spec.reward), {name: one.bounds() for name, one in spec.graders.items()}, spec.graders
        )
    except ConfigError as error:  # of another version: the figures do not need it
        return f"its reward cannot be shown: {error}"
    if tree.fades and (step := tagged_step(entry.tags)) is not None:
        tree = tree.at(step)
    return explain(tree, entry.grades, rollout, reward=entry.raw_reward, numbers=entry.group_numbers)
