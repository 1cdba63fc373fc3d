"""From a graded rollout to its result: the group's transform, the policy for missing rewards, the account of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from judgekit.errors import MissingRewardError
from judgekit.reward.explain import why_missing
from judgekit.reward.nodes import Weighted
from judgekit.reward.transforms import NEUTRAL, TRANSFORMS, gdpo, is_flat, mean
from judgekit.run.metrics import RunMetrics
from judgekit.run.state import Group, Item
from judgekit.types import RewardResult, Status, Usage

if TYPE_CHECKING:
    from judgekit.ledger.schema import Entry
    from judgekit.run.runner import GradingRunner


class Payout:
    """Gives out the results of one run, each as soon as nothing else can change it.

    *emit* takes a result; *wake* tells the run that there is one. *run* and *tags* are for the ledger.
    """

    def __init__(
        self,
        runner: GradingRunner,
        metrics: RunMetrics,
        *,
        run: str,
        tags: Mapping[str, Any],
        wake: Callable[[], None],
    ) -> None:
        self.runner = runner
        self.tree = runner.reward
        self.metrics = metrics
        self.run = run
        self.tags = tags
        self.wake = wake
        self.emit: Callable[[RewardResult], None] = lambda result: None
        self.relative = runner.transform != "none"
        """Whether every result waits for its group."""
        self.fills = self.relative or runner.missing_reward == "neutral"
        """Whether a result without a reward waits for its group."""
        self.emitted = 0
        self.deferred: list[Item] = []
        """Members of groups without one valid reward: their neutral fill is the batch's mean, known at its end."""
        self.entries: list[Entry] = []
        self.bar: Any = None

    def open(self, rollouts: int) -> None:
        """Before the first result of so many."""
        if self.runner.ledger is not None:
            self.runner.ledger.begin(self.runner.spec())
        if self.runner.progress:
            from tqdm import tqdm

            self.bar = tqdm(total=rollouts, unit="rollout", desc="grading", smoothing=0.05)

    @property
    def done(self) -> int:
        """Rollouts whose result is out, or waits for nothing but the end of the batch."""
        return self.emitted + len(self.deferred)

    def graded(self, item: Item) -> None:
        """The item's tree is evaluated."""
        group = item.group
        group.finished += 1
        value = item.ev.value
        if value is None:
            if not self.fills:
                self._emit_missing(item, None)
        elif not self.relative:
            self._emit(item, value, "scored")
        if group.finished == group.size:
            self.settle(group)

    def settle(self, group: Group) -> None:
        """All members are graded; those that waited for each other get their results."""
        self._settle(group)
        group.items = []  # members and group refer to each other: do not leave them to the collector

    def rest(self) -> None:
        """The batch is at its end."""
        if self.deferred:
            fill = self._typical_reward()
            for item in self.deferred:
                self._emit_missing(item, fill)

    def close(self) -> None:
        """Write what the ledger has not got yet."""
        if self.bar is not None:
            self.bar.close()
        if self.runner.ledger is not None:
            if self.entries:
                self.runner.ledger.write(self.entries)
                self.entries = []
            self.runner.ledger.flush()

    def _settle(self, group: Group) -> None:
        """Transform, fill, and emit those that waited."""
        valid = [item for item in group.items if item.ev.value is not None]
        raw = [item.ev.value for item in valid if item.ev.value is not None]
        lone = len(raw) < 2 and self.relative
        self.metrics.groups += 1
        self.metrics.flat_groups += len(raw) >= 2 and is_flat(raw)
        self.metrics.empty_groups += lone or not raw
        if not self.fills:
            return
        values = self._transformed(valid, raw)
        fill = NEUTRAL.get(self.runner.transform)
        if fill is None and len(valid) < group.size:
            if not values:
                self.deferred += group.items
                self.wake()
                return
            fill = mean(values)
        if self.relative:
            for item, value in zip(valid, values, strict=True):
                if not lone:
                    self._emit(item, value, "scored")
                elif self.runner.missing_reward == "mask":  # one member has no rank and no deviation
                    self._emit(item, None, "masked")
                else:
                    self._emit(item, fill, "neutral")
        for item in group.items:
            if item.ev.value is None:
                self._emit_missing(item, fill)

    def _transformed(self, valid: list[Item], raw: list[float]) -> list[float]:
        if not raw:
            return []
        if self.runner.transform != "gdpo":
            return TRANSFORMS[self.runner.transform](raw)
        root = self.tree.root
        assert isinstance(root, Weighted)
        scale = 1.0 / sum(abs(t.weight) for t in root.terms) if root.normalize else 1.0
        weights = {t.label: t.weight * scale for t in root.terms if t.weight}
        return gdpo([item.ev.terms for item in valid], weights)

    def _typical_reward(self) -> float:
        """For a group without one valid reward: a number like the others', the same for all its members, so
        that group-relative advantages are zero and batch statistics stay where they are."""
        if self.metrics.rewards.n:
            return self.metrics.rewards.mean_y
        known = self.runner.metrics.mean_reward
        if known is not None:
            return known
        low, high = self.tree.bounds()
        return (low + high) / 2 if math.isfinite(low + high) else 0.0

    def _emit_missing(self, item: Item, fill: float | None) -> None:
        policy = self.runner.missing_reward
        if policy == "raise":
            raise MissingRewardError(
                f"rollout {item.index} of group {item.group.id!r} has no reward ({why_missing(item.ev)})"
            )
        if policy == "mask":
            self._emit(item, None, "masked")
        elif policy == "neutral":
            self._emit(item, fill, "neutral")
        else:
            self._emit(item, float(policy), "constant")

    def _emit(self, item: Item, reward: float | None, status: Status) -> None:
        ev = item.ev
        usage = _NO_USAGE
        for grade in item.grades.values():
            spent = getattr(grade, "usage", None)
            if spent is not None:
                usage = usage + spent
        result = RewardResult(
            index=item.index,
            group=item.group.id,
            reward=reward,
            status=status,
            raw_reward=ev.value,
            contributions=ev.contributions,
            grades=item.grades,
            missing=tuple(dict.fromkeys(ev.missing)) if ev.missing else (),
            policies=tuple(ev.policies) if ev.policies else (),
            usage=usage,
            wall_s=item.ended - item.started,
        )
        self.emitted += 1
        self.metrics.add_result(result, item.rollout)
        ledger = self.runner.ledger
        if ledger is not None:
            spec = self.runner.spec().digest
            self.entries.append(ledger.entry(result, item.rollout, spec=spec, run=self.run, tags=self.tags))
            if len(self.entries) >= 64:
                ledger.write(self.entries)
                self.entries = []
        if self.bar is not None:
            self.bar.update()
        self.emit(result)
        self.wake()


_NO_USAGE = Usage()
