"""Counts of graded rollouts, which processes can add up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, get_args

from judgekit.metrics.moments import FLAT, Moments, is_flat
from judgekit.metrics.signals import (
    EVERY,
    LEAST,
    WHOLE,
    Evidence,
    Signal,
    SignalLimits,
    correlated,
    flat,
    length_of,
    missing,
    saturated,
)
from judgekit.types import (
    GRADED,
    Abstained,
    Failed,
    Grade,
    Graded,
    RewardResult,
    Rollout,
    Skipped,
    Status,
    Usage,
)

_NAMES = 10_000
"""Names of groups, errors and settings that are counted separately; all further names are counted together."""
OTHERS = "(others)"


def _count(counts: Counter[Any], name: Any, times: int = 1) -> None:
    if name not in counts and len(counts) >= _NAMES:
        name = OTHERS
    counts[name] += times


class GraderCounts:
    """Counts of one grader."""

    def __init__(self) -> None:
        self.graded = 0
        self.abstained = 0
        self.skipped = 0
        self.errors: Counter[str] = Counter()
        """Failures by name of the error."""
        self.infrastructure = 0
        """Failures that the rollout did not cause."""
        self.unreadable: Counter[Hashable] = Counter()
        """Unreadable verdicts by group: shows a policy that learns to provoke them."""
        self.mean = 0.0
        self.squares = 0.0
        """Sum of squared deviations from the mean (Welford 1962: sums of squares lose their digits)."""

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def asked(self) -> int:
        """Evaluations that gave a score, abstained or failed."""
        return self.graded + self.abstained + self.failed

    @property
    def std(self) -> float:
        """Population standard deviation of the scores; NaN without scores."""
        return math.sqrt(self.squares / self.graded) if self.graded else math.nan

    def add(self, grade: Grade, group: Hashable = None) -> None:
        kind = type(grade)
        if kind is Graded:
            score: float = grade.score  # type: ignore[union-attr]
            self.graded += 1
            delta = score - self.mean
            self.mean += delta / self.graded
            self.squares += delta * (score - self.mean)
        elif kind is Skipped:
            self.skipped += 1
        elif isinstance(grade, Failed):
            _count(self.errors, grade.error)
            self.infrastructure += grade.cause == "infrastructure"
            if grade.error == "VerdictError":
                _count(self.unreadable, group)
        elif isinstance(grade, Abstained):
            self.abstained += 1

    def merge(self, other: GraderCounts) -> None:
        graded = self.graded + other.graded
        if other.graded:
            delta = other.mean - self.mean
            self.squares += other.squares + delta * delta * self.graded * other.graded / graded
            self.mean += delta * other.graded / graded
        self.graded = graded
        self.abstained += other.abstained
        self.skipped += other.skipped
        self.infrastructure += other.infrastructure
        for error, count in other.errors.items():
            _count(self.errors, error, count)
        for group, count in other.unreadable.items():
            _count(self.unreadable, group, count)

    def top_errors(self) -> str:
        """Return the three most frequent errors with their counts."""
        return ", ".join(f"{error} × {count}" for error, count in self.errors.most_common(3))


class Counts:
    """Counts of graded rollouts. Can be pickled and merged, so that processes can add theirs up.

    *limits*: those of `signals`. *bounds*: the lowest and highest possible reward. Merging passes both on. *first*: how
    many rollouts of the same step were counted before; of many, the texts of every 32nd are analysed.
    """

    def __init__(
        self,
        limits: SignalLimits | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        *,
        first: int = 0,
    ) -> None:
        self.limits = limits
        self._first = first
        low, high = bounds
        # other terms of a sum may make the same reward, and round it differently
        self.low = low * (1 + math.copysign(FLAT, low))
        self.high = high * (1 - math.copysign(FLAT, high))
        self.graders: dict[str, GraderCounts] = {}
        self.statuses: Counter[str] = Counter()
        self.policies: Counter[str] = Counter()
        """Number of times that each setting for a missing grade was applied."""
        self.groups = 0
        self.compared_groups = 0
        """Groups of two or more valid members."""
        self.flat_groups = 0
        """Those of them whose rewards are all equal."""
        self.empty_groups = 0
        """Groups with too few valid members for a reward."""
        self.usage = Usage()
        self.rewards = Moments()
        """Moments of (response length, raw reward) of scored rollouts."""
        self.at_low = 0
        self.at_high = 0
        self.evidence = Evidence()

    def add(self, result: RewardResult, rollout: Rollout | None = None, number: int | None = None) -> None:
        """Count a result. *rollout*: for counts that need its text. *number*: its place, by default that of this call."""
        if number is None:
            number = self._first + self.rollouts
        self.statuses[result.status] += 1
        for name, grade in result.grades.items():
            counts = self.graders.get(name)
            if counts is None:
                self.graders[name] = counts = GraderCounts()
            counts.add(grade, result.group)
        for policy in result.policies:
            _count(self.policies, policy)
        if result.usage.calls:
            self.usage += result.usage
        raw = result.raw_reward
        if raw is not None and result.status != "dropped":
            self.rewards.add(0 if rollout is None else length_of(rollout), raw)
            if raw <= self.low:
                self.at_low += 1
            elif raw >= self.high:
                self.at_high += 1
        if rollout is not None and (number < WHOLE or number % EVERY == 0):
            self.evidence.add(result, rollout.response)

    def add_group(self, results: Sequence[RewardResult], rollouts: Sequence[Rollout]) -> None:
        """Count a group by the rewards of its valid members. `add` counts its results."""
        valid = [
            (rollout, result.raw_reward)
            for rollout, result in zip(rollouts, results, strict=True)
            if result.raw_reward is not None
        ]
        self.add_rewards([rollout for rollout, _ in valid], [reward for _, reward in valid])

    def add_rewards(self, rollouts: Sequence[Rollout], rewards: Sequence[float], *, least: int = 1) -> None:
        """Count a group by its valid members. *least*: how many of them a reward needs."""
        self.groups += 1
        if len(rewards) >= 2:
            self.compared_groups += 1
            self.flat_groups += is_flat(rewards)
        self.empty_groups += len(rewards) < least
        self.evidence.add_group([length_of(rollout) for rollout in rollouts], rewards)

    def merge(self, other: Counts) -> None:
        for name, theirs in other.graders.items():
            self.graders.setdefault(name, GraderCounts()).merge(theirs)
        self.statuses.update(other.statuses)
        for policy, count in other.policies.items():
            _count(self.policies, policy, count)
        self.groups += other.groups
        self.compared_groups += other.compared_groups
        self.flat_groups += other.flat_groups
        self.empty_groups += other.empty_groups
        self.usage += other.usage
        self.rewards.merge(other.rewards)
        self.at_low += other.at_low
        self.at_high += other.at_high
        self.evidence.merge(other.evidence)
        self.limits = self.limits or other.limits
        if not self._bounded:
            self.low, self.high = other.low, other.high

    @property
    def _bounded(self) -> bool:
        """Whether the lowest and highest possible rewards are known."""
        return self.low > -math.inf

    @property
    def rollouts(self) -> int:
        return self.statuses.total()

    @property
    def missing(self) -> int:
        """Rollouts whose reward was not computed from grades."""
        return self.rollouts - sum(self.statuses[status] for status in GRADED)

    @property
    def unusual(self) -> bool:
        """Whether a reward is missing, a grader failed or a signal is raised."""
        return (
            self.missing > 0 or any(counts.errors for counts in self.graders.values()) or bool(self._raised())
        )

    def line(self) -> str:
        """Return one line for a trainer's log."""
        return "; ".join([f"{self.rollouts} rollouts graded", *self.warnings()])

    def signals(self) -> Iterator[Signal]:
        """Compute all signals for which there are enough rollouts."""
        limits, n = self.limits or SignalLimits(), self.rewards.n
        yield from self.evidence.signals(limits)
        if self.evidence.length.n < LEAST <= n and self.rewards.xx:
            yield correlated("length_overall", self.rewards, limits.length_overall, what="length")
        yield from flat(self.flat_groups, self.compared_groups, limits)
        if self._bounded:
            yield from saturated("highest", self.at_high, n, limits)
            yield from saturated("lowest", self.at_low, n, limits)
        for name, counts in self.graders.items():
            yield from missing(name, counts.failed, counts.asked, counts.top_errors(), limits)

    def _raised(self) -> list[str]:
        """Return the texts of raised signals, except of missing grades, which `trouble` describes."""
        return [signal.text for signal in self.signals() if signal.raised and signal.name != "missing"]

    def figures(self, prefix: str = "judgekit/") -> dict[str, float]:
        """Return a flat dict for a tracker (wandb, TensorBoard): finite floats only, keys under *prefix*."""
        out: dict[str, float] = {}
        for name, g in self.graders.items():
            asked = max(1, g.asked)
            out[f"{name}/mean"] = g.mean if g.graded else math.nan
            out[f"{name}/std"] = g.std
            out[f"{name}/count"] = g.graded
            out[f"{name}/abstain_rate"] = g.abstained / asked
            out[f"{name}/failure_rate"] = g.failed / asked
            if g.errors:
                out[f"{name}/failure_rate_infrastructure"] = g.infrastructure / asked
                out[f"{name}/failure_rate_rollout"] = (g.failed - g.infrastructure) / asked
            if g.unreadable:
                out[f"{name}/unreadable_rate"] = sum(g.unreadable.values()) / asked
                out[f"{name}/unreadable_groups"] = len(g.unreadable)
                out[f"{name}/unreadable_in_worst_group"] = max(
                    (count for group, count in g.unreadable.items() if group != OTHERS), default=0
                )
        if total := self.rollouts:
            out["rollouts"] = total
            for status in get_args(Status):
                out[f"{status}_rate"] = self.statuses[status] / total
            out["flat_group_rate"] = self.flat_groups / max(1, self.compared_groups)
            out["empty_group_rate"] = self.empty_groups / max(1, self.groups)
        if n := self.rewards.n:
            out["reward_mean"] = self.rewards.mean_y
            out["reward_std"] = self.rewards.std_y
            if self.rewards.xx:
                out["reward_length_correlation"] = self.rewards.correlation
            if self._bounded:
                out["reward_at_low_rate"] = self.at_low / n
                out["reward_at_high_rate"] = self.at_high / n
        evidence = self.evidence
        if evidence.length.n:
            out["reward_length_correlation_in_groups"] = evidence.length.correlation
        if evidence.repetition.n > 1:
            out["reward_repetition_correlation"] = evidence.repetition.correlation
            out["reward_formatting_correlation"] = evidence.formatting.correlation
        for judge, rule, moments in evidence.disagreements():
            out[f"{judge}/correlation_with/{rule}"] = moments.correlation
        if self.rollouts >= LEAST:
            out["signals_raised"] = sum(signal.raised for signal in self.signals())
        if self.usage.calls:
            out["judge_calls"] = self.usage.calls
            out["judge_prompt_tokens"] = self.usage.prompt_tokens
            out["judge_cached_tokens"] = self.usage.cached_tokens
            out["judge_completion_tokens"] = self.usage.completion_tokens
        return finite(out, prefix)

    def excess_failures(self, allowed: float, *, so_far: bool = False) -> str:
        """Return, as text, the graders with more than the share *allowed* of infrastructure failures; "" if none.

        At least 16 evaluations are assumed, so that one failure in four raises no alarm; but where all of two or more
        failed, there is nothing to wait for. *so_far*: there is, since more evaluations are to come.
        """
        return ", ".join(
            f"{name} {100 * counts.infrastructure / counts.asked:.1f} % ({counts.top_errors()})"
            for name, counts in self.graders.items()
            if counts.infrastructure > allowed * max(counts.asked, 16)
            or (not so_far and 1 < counts.infrastructure == counts.asked)
        )

    def warnings(self) -> Iterator[str]:
        """Yield what looks wrong: a sentence with all raised signals, then those of `trouble`."""
        if raised := self._raised():
            yield f"signals: {', '.join(raised)}"
        yield from self.trouble()

    def trouble(self) -> Iterator[str]:
        """Yield a sentence for each grader that failed, and one for missing rewards."""
        for name, counts in self.graders.items():
            if counts.errors:
                yield f"grader {name!r} failed on {counts.failed} of {counts.asked} rollouts ({counts.top_errors()})"
        if self.missing:
            shown = ", ".join(f"{n} {status}" for status, n in self.statuses.items() if status not in GRADED)
            yield f"{self.missing} of {self.rollouts} rewards are missing ({shown})"


def finite(figures: dict[str, float], prefix: str) -> dict[str, float]:
    return {prefix + key: float(value) for key, value in figures.items() if math.isfinite(value)}
