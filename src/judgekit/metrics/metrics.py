"""A runner's counts and latencies, and the warnings that it logs about them."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from judgekit.fork import in_child
from judgekit.metrics.counts import Counts, finite
from judgekit.metrics.signals import SignalLimits
from judgekit.types import RewardResult, Rollout, html_table, shown_number

logger = logging.getLogger("judgekit")

_KEPT = 4096
"""Latest durations that are kept per grader, for percentiles."""
_TELL_S = 10.0
"""Minimum seconds between two reports of small runs: hosts may start one run per rollout, thousands a minute."""
_TELL_ROLLOUTS = 64
"""Rollouts from which on a run is reported by itself."""


class _Since:
    """What was counted since the last reset, by all runners that share it."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        self.bounds = bounds
        self.tell_at = 0.0
        self.timings: dict[str, Timings] = {}
        self._forked()
        in_child(self._forked)

    def _forked(self) -> None:
        self.lock = Lock()
        self.reset()

    def reset(self) -> None:
        self.told, self.news = Counts(None, self.bounds), Counts(None, self.bounds)
        """Counts that have been logged, and those that have not."""
        self.begun = 0
        """Rollouts of all runs that have begun."""
        for timings in self.timings.values():
            for values in timings:
                values.clear()


class Timings(NamedTuple):
    """What was measured of a grader's latest evaluations."""

    seconds: deque[float]
    waits: deque[float]
    """Seconds in the queue."""
    starved: deque[bool]
    """Whether the judge's engine would have run more requests while evaluations waited, as far as it tells."""


class Metrics:
    """A runner's counts since its start or the last reset. Thread-safe."""

    def __init__(
        self, bounds: tuple[float, float] = (-math.inf, math.inf), limits: SignalLimits | None = None
    ) -> None:
        self._since = _Since(bounds)
        self.limits = limits
        """Limits of signals."""

    def with_limits(self, limits: SignalLimits) -> Metrics:
        """Return the same counts, seen with other limits of signals."""
        made = self if limits is self.limits else copy.copy(self)
        made.limits = limits
        return made

    def begin(self, rollouts: int) -> int:
        """Return how many rollouts have begun before these: their numbers decide which texts are analysed."""
        first = self._since.begun  # without the lock, which a run that is collected must not wait for
        self._since.begun = first + rollouts
        return first

    def timings(self, name: str) -> Timings:
        """Return what was measured of a grader's latest evaluations."""
        timings = self._since.timings
        return timings.get(name) or timings.setdefault(
            name, Timings(deque(maxlen=_KEPT), deque(maxlen=_KEPT), deque(maxlen=_KEPT))
        )

    def add(self, result: RewardResult, rollout: Rollout, number: int | None = None) -> None:
        """Count a result. *number*: its rollout's, see `begin`."""
        with self._since.lock:
            self._since.news.add(result, rollout, number)

    def add_rewards(self, rollouts: Sequence[Rollout], rewards: Sequence[float], *, least: int) -> None:
        """Count a group, see `Counts.add_rewards`."""
        with self._since.lock:
            self._since.news.add_rewards(rollouts, rewards, least=least)

    def tell(self, rollouts: int, *, now: bool = False) -> None:
        """Log what looks wrong after a run of *rollouts*: at once if it was large (or *now*).

        Small runs are logged together, every 10 s.
        """
        clock = time.monotonic()
        since = self._since
        with since.lock:
            if rollouts < _TELL_ROLLOUTS and clock < since.tell_at and not now:
                return
            since.tell_at = clock + _TELL_S
            news, since.news = since.news, Counts(None, since.bounds)
            news.limits = self.limits
            lines = list(news.warnings())
            since.told.merge(news)
        for line in lines:
            logger.warning("%s", line)

    @property
    def counts(self) -> Counts:
        """All counts since the last reset."""
        with self._since.lock:
            return self._all()

    def _all(self) -> Counts:
        total = Counts(self.limits, self._since.bounds)
        total.merge(self._since.told)
        total.merge(self._since.news)
        return total

    def percentile(self, name: str, share: float) -> float:
        """Return the percentile *share* (0..1) of a grader's latest durations, in seconds; NaN without any."""
        return _percentile(self.timings(name).seconds, share)

    def starved(self, name: str) -> float:
        """Return the share (0..1) of a grader's latest evaluations at whose end its judge's engine would have run more requests
        while others waited: too few were in flight. NaN where the engine does not tell."""
        return _mean(self.timings(name).starved)

    def summary(self, prefix: str = "judgekit/", *, reset: bool = False) -> dict[str, float]:
        """Return a flat dict for a tracker (wandb, TensorBoard): finite floats only, keys under *prefix*.

        *reset*: also start from zero, atomically, for figures per step.
        """
        since = self._since
        with since.lock:
            counts = self._all()
            timings = {name: [list(values) for values in t] for name, t in since.timings.items()}
            if reset:
                since.reset()
        return {**counts.figures(prefix), **finite(_latencies(timings), prefix)}

    def __repr__(self) -> str:
        counts = self.counts
        statuses = ", ".join(f"{count} {status}" for status, count in counts.statuses.items())
        return f"<Metrics of {sum(counts.statuses.values())} rollouts{f': {statuses}' if statuses else ''}>"

    def _repr_html_(self) -> str:
        figures = self.summary(prefix="")
        return html_table(
            ("figure", ""), [(name, shown_number(value)) for name, value in figures.items()], repr(self)
        )


def _latencies(timings: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, (seconds, waits, starved) in timings.items():
        out[f"{name}/p50_s"] = _percentile(seconds, 0.5)
        out[f"{name}/p95_s"] = _percentile(seconds, 0.95)
        out[f"{name}/queue_wait_p95_s"] = _percentile(waits, 0.95)
        out[f"{name}/starved"] = _mean(starved)
    return out


def _mean(values: Collection[bool]) -> float:
    return sum(values) / len(values) if values else math.nan


def _percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
