"""Counts, means and latencies of what was graded: for logs, for trackers, and per training step."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from threading import Lock
from typing import Any

from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult, Rollout, Skipped, Usage

logger = logging.getLogger("judgekit")

_KEPT = 4096
"""Latest durations kept per grader for percentiles."""
_GROUPS = 10_000
"""Groups whose unreadable verdicts are counted one by one."""
_TELL_S = 10.0
"""Least seconds between two reports of small runs: hosts make one run per rollout, thousands a minute."""
_TELL_ROLLOUTS = 64
"""A run with so many rollouts reports for itself."""


class GraderCounts:
    """What one grader did."""

    def __init__(self) -> None:
        self.graded = 0
        self.abstained = 0
        self.skipped = 0
        self.errors: Counter[str] = Counter()
        """Failures by the name of their error."""
        self.infrastructure = 0
        """Failures whose cause is not the rollout."""
        self.unreadable: Counter[Hashable] = Counter()
        """Verdicts that could not be read, by group: a policy that learns to provoke them shows here."""
        self.mean = 0.0
        self.squares = 0.0
        """Sum of squared deviations from the mean (Welford 1962: sums of squares lose their digits)."""

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def asked(self) -> int:
        """Evaluations that should have had an opinion or said why not."""
        return self.graded + self.abstained + self.failed

    @property
    def std(self) -> float:
        """Population standard deviation of the scores, NaN without one."""
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
            self.errors[grade.error] += 1
            self.infrastructure += grade.cause == "infrastructure"
            if grade.error == "VerdictError":
                self._count_unreadable(group, 1)
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
        self.errors.update(other.errors)
        for group, count in other.unreadable.items():
            self._count_unreadable(group, count)

    def _count_unreadable(self, group: Hashable, count: int) -> None:
        if group not in self.unreadable and len(self.unreadable) >= _GROUPS:
            group = None  # all others together
        self.unreadable[group] += count

    def top_errors(self) -> str:
        """The three most frequent errors with their counts."""
        return ", ".join(f"{error} × {count}" for error, count in self.errors.most_common(3))


class Counts:
    """What became of some rollouts. Can be pickled and merged, so that processes can add theirs up."""

    def __init__(self) -> None:
        self.graders: dict[str, GraderCounts] = {}
        self.statuses: Counter[str] = Counter()
        self.policies: Counter[str] = Counter()
        """How often each setting for a missing grade was applied."""
        self.groups = 0
        self.flat_groups = 0
        """Groups of two or more valid members whose rewards are all equal."""
        self.empty_groups = 0
        """Groups with too few valid members for a reward of their own."""
        self.usage = Usage()
        self.rewards = Moments()
        """Of (response length, raw reward) of scored rollouts."""
        self.at_low = 0
        self.at_high = 0

    def add(
        self, result: RewardResult, *, length: int = 0, bounds: tuple[float, float] = (-math.inf, math.inf)
    ) -> None:
        """Count a result. *length*: of its response; *bounds*: lowest and highest reward that there is."""
        self.statuses[result.status] += 1
        for name, grade in result.grades.items():
            counts = self.graders.get(name)
            if counts is None:
                self.graders[name] = counts = GraderCounts()
            counts.add(grade, result.group)
        for policy in result.policies:
            self.policies[policy] += 1
        if result.usage.calls:
            self.usage += result.usage
        raw = result.raw_reward
        if raw is not None:
            self.rewards.add(length, raw)
            if raw <= bounds[0]:
                self.at_low += 1
            elif raw >= bounds[1]:
                self.at_high += 1

    def add_group(self, results: Iterable[RewardResult]) -> None:
        """Count a group, by the rewards of its valid members; its results are counted by `add`."""
        valid = [result.raw_reward for result in results if result.raw_reward is not None]
        self.groups += 1
        self.flat_groups += len(valid) >= 2 and max(valid) == min(valid)
        self.empty_groups += not valid

    def merge(self, other: Counts) -> None:
        for name, theirs in other.graders.items():
            self.graders.setdefault(name, GraderCounts()).merge(theirs)
        self.statuses.update(other.statuses)
        self.policies.update(other.policies)
        self.groups += other.groups
        self.flat_groups += other.flat_groups
        self.empty_groups += other.empty_groups
        self.usage += other.usage
        self.rewards.merge(other.rewards)
        self.at_low += other.at_low
        self.at_high += other.at_high

    @property
    def rollouts(self) -> int:
        return self.statuses.total()

    @property
    def missing(self) -> int:
        """Rollouts whose reward does not come from grades."""
        return self.rollouts - self.statuses["scored"]

    @property
    def unusual(self) -> bool:
        """Whether a reward is missing or a grader failed."""
        return self.missing > 0 or any(counts.errors for counts in self.graders.values())

    def line(self) -> str:
        """One line for a trainer's log."""
        return "; ".join([f"{self.rollouts} rollouts graded", *self._trouble()])

    def figures(self, prefix: str = "judgekit/") -> dict[str, float]:
        """A flat dict for a tracker (wandb, TensorBoard): finite floats only, keys under *prefix*."""
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
                out[f"{name}/unreadable_in_worst_group"] = max(g.unreadable.values())
        if total := self.rollouts:
            out["rollouts"] = total
            for status in ("scored", "neutral", "excluded", "masked", "constant"):
                out[f"{status}_rate"] = self.statuses[status] / total
            out["flat_group_rate"] = self.flat_groups / max(1, self.groups)
            out["empty_group_rate"] = self.empty_groups / max(1, self.groups)
        if n := self.rewards.n:
            out["reward_mean"] = self.rewards.mean_y
            out["reward_std"] = self.rewards.std_y
            out["reward_length_correlation"] = self.rewards.correlation
            out["reward_at_low_rate"] = self.at_low / n
            out["reward_at_high_rate"] = self.at_high / n
        if self.usage.calls:
            out["judge_calls"] = self.usage.calls
            out["judge_prompt_tokens"] = self.usage.prompt_tokens
            out["judge_cached_tokens"] = self.usage.cached_tokens
            out["judge_completion_tokens"] = self.usage.completion_tokens
        return _finite(out, prefix)

    def excess_failures(self, allowed: float) -> str:
        """Graders that failed for infrastructure causes on more than *allowed* (a share) of their evaluations,
        as text; empty where none did. At least 16 evaluations are assumed, so that one of four is no alarm."""
        return ", ".join(
            f"{name} {100 * counts.infrastructure / counts.asked:.1f} % ({counts.top_errors()})"
            for name, counts in self.graders.items()
            if counts.infrastructure > allowed * max(counts.asked, 16)
        )

    def warnings(self) -> Iterator[str]:
        """What looks wrong, a sentence each. Statistics need 64 rewards or 16 groups."""
        n = self.rewards.n
        if n >= 64:
            for share, which in ((self.at_low / n, "lowest"), (self.at_high / n, "highest")):
                if share >= 0.95:
                    yield f"{100 * share:.0f} % of {n} rewards are the {which} possible: there is nothing left to learn from them"
            if abs(correlation := self.rewards.correlation) >= 0.8:
                yield f"reward and response length correlate by {correlation:.2f} over {n} rollouts: the reward may be a length in disguise"
        if self.groups >= 16 and self.flat_groups >= 0.9 * self.groups:
            yield f"{self.flat_groups} of {self.groups} groups have equal rewards throughout: they give a group-relative trainer no gradient"
        yield from self._trouble()

    def _trouble(self) -> Iterator[str]:
        for name, counts in self.graders.items():
            if counts.errors:
                yield f"grader {name!r} failed on {counts.failed} of {counts.asked} rollouts ({counts.top_errors()})"
        if self.missing:
            shown = ", ".join(f"{n} {status}" for status, n in self.statuses.items() if status != "scored")
            yield f"{self.missing} of {self.rollouts} rewards are missing ({shown})"


class Metrics:
    """What a runner did since its start or the last reset; safe to use from any thread."""

    def __init__(self, bounds: tuple[float, float] = (-math.inf, math.inf)) -> None:
        self._lock = Lock()
        self._bounds = bounds
        self._told = Counts()
        """What the log has heard of, since the last reset."""
        self._news = Counts()
        """What it has not."""
        self._tell_at = 0.0
        self._timings: dict[str, tuple[deque[float], deque[float]]] = {}

    def timings(self, name: str) -> tuple[deque[float], deque[float]]:
        """Latest durations of a grader's evaluations, and of their waits for a place, in seconds."""
        found = self._timings.get(name)
        return found or self._timings.setdefault(name, (deque(maxlen=_KEPT), deque(maxlen=_KEPT)))

    def add(self, result: RewardResult, rollout: Rollout) -> None:
        """Count a result."""
        length = rollout.response_tokens or len(rollout.response)
        with self._lock:
            self._news.add(result, length=length, bounds=self._bounds)

    def add_group(self, *, flat: bool, empty: bool) -> None:
        with self._lock:
            self._news.groups += 1
            self._news.flat_groups += flat
            self._news.empty_groups += empty

    def tell(self, rollouts: int, *, now: bool = False) -> None:
        """Log what looks wrong, at the end of a run of *rollouts*: at once where it was a large one (or *now*),
        else for all small ones together every 10 s."""
        clock = time.monotonic()
        with self._lock:
            if rollouts < _TELL_ROLLOUTS and clock < self._tell_at and not now:
                return
            self._tell_at = clock + _TELL_S
            lines = list(self._news.warnings())
            self._told.merge(self._news)
            self._news = Counts()
        for line in lines:
            logger.warning("%s", line)

    @property
    def counts(self) -> Counts:
        """Everything since the last reset."""
        with self._lock:
            return self._all()

    def _all(self) -> Counts:
        total = Counts()
        total.merge(self._told)
        total.merge(self._news)
        return total

    def percentile(self, name: str, share: float) -> float:
        """Seconds below which *share* (0..1) of a grader's latest evaluations were, NaN without any."""
        return _percentile(self.timings(name)[0], share)

    def summary(self, prefix: str = "judgekit/", *, reset: bool = False) -> dict[str, float]:
        """A flat dict for a tracker (wandb, TensorBoard): finite floats only, keys under *prefix*.

        *reset*: start from zero afterwards, for figures per step; nothing is lost between the two.
        """
        with self._lock:
            counts, timings = self._all(), {name: tuple(map(list, t)) for name, t in self._timings.items()}
            if reset:
                self._told = Counts()
                self._news = Counts()
                for pair in self._timings.values():
                    for values in pair:
                        values.clear()
        return {**counts.figures(prefix), **_finite(_latencies(timings), prefix)}


def _finite(figures: dict[str, float], prefix: str) -> dict[str, float]:
    return {prefix + key: float(value) for key, value in figures.items() if math.isfinite(value)}


def _latencies(timings: dict[str, Any]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, (seconds, waits) in timings.items():
        out[f"{name}/p50_s"] = _percentile(seconds, 0.5)
        out[f"{name}/p95_s"] = _percentile(seconds, 0.95)
        out[f"{name}/queue_wait_p95_s"] = _percentile(waits, 0.95)
    return out


class Moments:
    """Mean, spread and correlation of pairs (x, y), in one pass and mergeable (Chan et al. 1979)."""

    __slots__ = ("mean_x", "mean_y", "n", "xx", "xy", "yy")

    def __init__(self) -> None:
        self.n = 0
        self.mean_x = self.mean_y = self.xx = self.yy = self.xy = 0.0

    def add(self, x: float, y: float) -> None:
        self.n += 1
        dx, dy = x - self.mean_x, y - self.mean_y
        self.mean_x += dx / self.n
        self.mean_y += dy / self.n
        self.xx += dx * (x - self.mean_x)
        self.yy += dy * (y - self.mean_y)
        self.xy += dx * (y - self.mean_y)

    def merge(self, other: Moments) -> None:
        if not other.n:
            return
        n = self.n + other.n
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        share = self.n * other.n / n
        self.xx += other.xx + dx * dx * share
        self.yy += other.yy + dy * dy * share
        self.xy += other.xy + dx * dy * share
        self.mean_x += dx * other.n / n
        self.mean_y += dy * other.n / n
        self.n = n

    @property
    def std_y(self) -> float:
        """Population standard deviation of y."""
        return math.sqrt(self.yy / self.n) if self.n else math.nan

    @property
    def correlation(self) -> float:
        """Pearson's, 0 where either side does not vary."""
        if self.n < 2 or not (self.xx > 1e-12 * self.mean_x**2 and self.yy > 1e-12 * self.mean_y**2):
            return 0.0
        return min(max(self.xy / math.sqrt(self.xx * self.yy), -1.0), 1.0)


def _percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
