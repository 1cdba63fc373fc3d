"""Counts, means and latencies of what a runner graded, as a flat dict for trackers."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Mapping
from threading import Lock

from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult, Rollout, Skipped, Usage

logger = logging.getLogger("judgekit")

_KEPT = 4096
"""Latest durations kept per grader for percentiles."""


class GraderMetrics:
    """What one grader did."""

    def __init__(self) -> None:
        self.graded = 0
        self.abstained = 0
        self.skipped = 0
        self.errors: Counter[str] = Counter()
        """Failures by error name."""
        self.causes: Counter[str] = Counter()
        """Failures by cause: "infrastructure", "rollout"."""
        self.sum = 0.0
        self.sum_squares = 0.0
        self.seconds: deque[float] = deque(maxlen=_KEPT)
        """Latest durations of one evaluation."""
        self.waits: deque[float] = deque(maxlen=_KEPT)
        """Latest times that an evaluation waited for its slot."""

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def asked(self) -> int:
        """Evaluations that should have had an opinion or said why not."""
        return self.graded + self.abstained + self.failed

    @property
    def mean(self) -> float:
        """Mean score, NaN without one."""
        return self.sum / self.graded if self.graded else math.nan

    @property
    def std(self) -> float:
        """Population standard deviation of the scores."""
        return math.sqrt(max(0.0, self.sum_squares / self.graded - self.mean**2)) if self.graded else math.nan

    def add(self, grade: Grade) -> None:
        kind = type(grade)
        if kind is Graded:
            score: float = grade.score  # type: ignore[union-attr]
            self.graded += 1
            self.sum += score
            self.sum_squares += score * score
        elif kind is Skipped:
            self.skipped += 1
        elif isinstance(grade, Failed):
            self.errors[grade.error] += 1
            self.causes[grade.cause] += 1
        elif isinstance(grade, Abstained):
            self.abstained += 1

    def merge(self, other: GraderMetrics) -> None:
        self.graded += other.graded
        self.abstained += other.abstained
        self.skipped += other.skipped
        self.errors += other.errors
        self.causes += other.causes
        self.sum += other.sum
        self.sum_squares += other.sum_squares
        self.seconds.extend(other.seconds)
        self.waits.extend(other.waits)

    def percentile(self, share: float) -> float:
        """Duration in seconds below which *share* (0..1) of the latest evaluations were, NaN without any."""
        return _percentile(self.seconds, share)


class Metrics:
    """What a runner did since its start or the last `reset`; safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        with self._lock:
            self.graders: dict[str, GraderMetrics] = {}
            self.statuses: Counter[str] = Counter()
            self.policies: Counter[str] = Counter()
            """How often each written policy for a missing grade was applied."""
            self.groups = 0
            self.flat_groups = 0
            """Groups of two or more valid members whose rewards are all equal."""
            self.empty_groups = 0
            """Groups with too few valid members for a reward of their own."""
            self.usage = Usage()
            self._rewards = _Moments()
            self._at_low = 0
            self._at_high = 0

    def add_run(self, run: RunMetrics) -> None:
        with self._lock:
            for name, theirs in run.graders.items():
                self.graders.setdefault(name, GraderMetrics()).merge(theirs)
            self.statuses += run.statuses
            self.policies += run.policies
            self.groups += run.groups
            self.flat_groups += run.flat_groups
            self.empty_groups += run.empty_groups
            self.usage += run.usage
            self._rewards.merge(run.rewards)
            self._at_low += run.at_low
            self._at_high += run.at_high

    @property
    def mean_reward(self) -> float | None:
        """Mean of the raw rewards of scored rollouts; None before the first."""
        return self._rewards.mean_y if self._rewards.n else None

    def summary(self, prefix: str = "judgekit/", *, reset: bool = False) -> dict[str, float]:
        """A flat dict for a tracker (wandb, TensorBoard): finite floats only, keys under *prefix*.

        *reset*: begin anew afterwards, for figures per step.
        """
        with self._lock:
            out: dict[str, float] = {}
            for name, g in self.graders.items():
                asked = max(1, g.asked)
                out[f"{name}/mean"] = g.mean
                out[f"{name}/std"] = g.std
                out[f"{name}/count"] = g.graded
                out[f"{name}/abstain_rate"] = g.abstained / asked
                out[f"{name}/failure_rate"] = g.failed / asked
                for cause, count in g.causes.items():
                    out[f"{name}/failure_rate_{cause}"] = count / asked
                out[f"{name}/p50_s"] = _percentile(g.seconds, 0.5)
                out[f"{name}/p95_s"] = _percentile(g.seconds, 0.95)
                out[f"{name}/queue_wait_p95_s"] = _percentile(g.waits, 0.95)
            total = self.statuses.total()
            if total:
                out["rollouts"] = total
                for status in ("scored", "neutral", "masked", "constant"):
                    out[f"{status}_rate"] = self.statuses[status] / total
                out["flat_group_rate"] = self.flat_groups / max(1, self.groups)
                out["empty_group_rate"] = self.empty_groups / max(1, self.groups)
            if self._rewards.n:
                out["reward_mean"] = self._rewards.mean_y
                out["reward_std"] = self._rewards.std_y
                out["reward_length_correlation"] = self._rewards.correlation
                out["reward_at_low_rate"] = self._at_low / self._rewards.n
                out["reward_at_high_rate"] = self._at_high / self._rewards.n
            if self.usage.calls:
                out["judge_calls"] = self.usage.calls
                out["judge_prompt_tokens"] = self.usage.prompt_tokens
                out["judge_cached_tokens"] = self.usage.cached_tokens
                out["judge_completion_tokens"] = self.usage.completion_tokens
        if reset:
            self.reset()
        return {prefix + key: float(value) for key, value in out.items() if math.isfinite(value)}


class RunMetrics:
    """The same counts for one run, kept by it alone and merged into the runner's at its end."""

    def __init__(self, names: Mapping[str, object], bounds: tuple[float, float]) -> None:
        self.graders = {name: GraderMetrics() for name in names}
        self.statuses: Counter[str] = Counter()
        self.policies: Counter[str] = Counter()
        self.groups = 0
        self.flat_groups = 0
        self.empty_groups = 0
        self.usage = Usage()
        self.rewards = _Moments()
        self.at_low = 0
        self.at_high = 0
        self._bounds = bounds

    def add_result(self, result: RewardResult, rollout: Rollout) -> None:
        self.statuses[result.status] += 1
        for policy in result.policies:
            self.policies[policy] += 1
        if result.usage.calls:
            self.usage += result.usage
        raw = result.raw_reward
        if raw is not None:
            self.rewards.add(float(rollout.response_tokens or len(rollout.response)), raw)
            low, high = self._bounds
            if raw <= low:
                self.at_low += 1
            elif raw >= high:
                self.at_high += 1

    def failure_rates(self) -> dict[str, float]:
        """Share of each grader's evaluations that failed for an infrastructure cause."""
        return {name: g.causes["infrastructure"] / g.asked for name, g in self.graders.items() if g.asked}

    def warn(self) -> None:
        """Log what looks wrong with this batch. Thresholds: 64 rewards for statistics, 16 groups."""
        n = self.rewards.n
        if n >= 64:
            for share, which in ((self.at_low / n, "lowest"), (self.at_high / n, "highest")):
                if share >= 0.95:
                    logger.warning(
                        "%.0f %% of %d rewards are the %s there is: nothing is left to learn from them",
                        100 * share,
                        n,
                        which,
                    )
            correlation = self.rewards.correlation
            if abs(correlation) >= 0.8:
                logger.warning(
                    "reward and response length correlate by %.2f over %d rollouts: the reward may be a length in disguise",
                    correlation,
                    n,
                )
        if self.groups >= 16 and self.flat_groups >= 0.9 * self.groups:
            logger.warning(
                "%d of %d groups have equal rewards throughout: they give a group-relative trainer no gradient",
                self.flat_groups,
                self.groups,
            )
        for name, rate in self.failure_rates().items():
            if rate:
                errors = ", ".join(
                    f"{error} × {count}" for error, count in self.graders[name].errors.most_common(3)
                )
                level = logging.WARNING if rate >= 0.01 else logging.INFO
                logger.log(
                    level, "grader %r failed on %.1f %% of its rollouts (%s)", name, 100 * rate, errors
                )
        if missing := self.statuses.total() - self.statuses["scored"]:
            counts = ", ".join(
                f"{count} {status}" for status, count in self.statuses.items() if status != "scored"
            )
            logger.warning("%d of %d rewards are missing: %s", missing, self.statuses.total(), counts)


class _Moments:
    """Running sums of pairs (x: length, y: reward)."""

    __slots__ = ("n", "sx", "sxx", "sxy", "sy", "syy")

    def __init__(self) -> None:
        self.n = 0
        self.sx = self.sy = self.sxx = self.syy = self.sxy = 0.0

    def add(self, x: float, y: float) -> None:
        self.n += 1
        self.sx += x
        self.sy += y
        self.sxx += x * x
        self.syy += y * y
        self.sxy += x * y

    def merge(self, other: _Moments) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def mean_y(self) -> float:
        return self.sy / self.n

    @property
    def std_y(self) -> float:
        return math.sqrt(max(0.0, self.syy / self.n - self.mean_y**2))

    @property
    def correlation(self) -> float:
        """Pearson's, 0 where either side does not vary."""
        if self.n < 2:
            return 0.0
        vx = self.sxx - self.sx * self.sx / self.n
        vy = self.syy - self.sy * self.sy / self.n
        if not (vx > 1e-12 * self.sxx and vy > 1e-12 * self.syy):
            return 0.0
        return min(max((self.sxy - self.sx * self.sy / self.n) / math.sqrt(vx * vy), -1.0), 1.0)


def _percentile(values: deque[float], share: float) -> float:
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
