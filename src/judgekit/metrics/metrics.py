"""A runner's counts and latencies, and the warnings that it logs about them."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

from judgekit.fork import in_child
from judgekit.metrics.counts import Counts, finite
from judgekit.metrics.signals import SignalLimits
from judgekit.types import RewardResult, Rollout

logger = logging.getLogger("judgekit")

_KEPT = 4096
"""Latest durations that are kept per grader, for percentiles."""
_TELL_S = 10.0
"""Minimum seconds between two reports of small runs: hosts may start one run per rollout, thousands a minute."""
_TELL_ROLLOUTS = 64
"""Rollouts from which on a run is reported by itself."""


class Metrics:
    """A runner's counts since its start or the last reset. Thread-safe."""

    def __init__(
        self, bounds: tuple[float, float] = (-math.inf, math.inf), limits: SignalLimits | None = None
    ) -> None:
        self._bounds = bounds
        self.limits = limits
        """Limits of signals."""
        self._tell_at = 0.0
        self._timings: dict[str, tuple[deque[float], deque[float]]] = {}
        self._forked()
        in_child(self._forked)

    def _forked(self) -> None:
        self._lock = Lock()
        self._reset()

    def _reset(self) -> None:
        self._told = self._counts()
        """Counts since the last reset that have been logged."""
        self._news = self._counts()
        """Counts that have not been logged yet."""
        for pair in self._timings.values():
            for values in pair:
                values.clear()

    def _counts(self) -> Counts:
        return Counts(self.limits, self._bounds)

    def timings(self, name: str) -> tuple[deque[float], deque[float]]:
        """Return the latest durations and queue waits of a grader's evaluations, in seconds."""
        found = self._timings.get(name)
        return found or self._timings.setdefault(name, (deque(maxlen=_KEPT), deque(maxlen=_KEPT)))

    def add(self, result: RewardResult, rollout: Rollout) -> None:
        """Count a result."""
        with self._lock:
            self._news.add(result, rollout)

    def add_rewards(self, rollouts: Sequence[Rollout], rewards: Sequence[float], *, least: int) -> None:
        """Count a group, see `Counts.add_rewards`."""
        with self._lock:
            self._news.add_rewards(rollouts, rewards, least=least)

    def tell(self, rollouts: int, *, now: bool = False) -> None:
        """Log what looks wrong after a run of *rollouts*: at once if it was large (or *now*).

        Small runs are logged together, every 10 s.
        """
        clock = time.monotonic()
        with self._lock:
            if rollouts < _TELL_ROLLOUTS and clock < self._tell_at and not now:
                return
            self._tell_at = clock + _TELL_S
            self._news.limits = self.limits
            lines = list(self._news.warnings())
            self._told.merge(self._news)
            self._news = self._counts()
        for line in lines:
            logger.warning("%s", line)

    @property
    def counts(self) -> Counts:
        """All counts since the last reset."""
        with self._lock:
            return self._all()

    def _all(self) -> Counts:
        total = self._counts()
        total.merge(self._told)
        total.merge(self._news)
        return total

    def percentile(self, name: str, share: float) -> float:
        """Return the percentile *share* (0..1) of a grader's latest durations, in seconds; NaN without any."""
        return _percentile(self.timings(name)[0], share)

    def summary(self, prefix: str = "judgekit/", *, reset: bool = False) -> dict[str, float]:
        """Return a flat dict for a tracker (wandb, TensorBoard): finite floats only, keys under *prefix*.

        *reset*: also start from zero, atomically, for figures per step.
        """
        with self._lock:
            counts, timings = self._all(), {name: tuple(map(list, t)) for name, t in self._timings.items()}
            if reset:
                self._reset()
        return {**counts.figures(prefix), **finite(_latencies(timings), prefix)}


def _latencies(timings: dict[str, Any]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, (seconds, waits) in timings.items():
        out[f"{name}/p50_s"] = _percentile(seconds, 0.5)
        out[f"{name}/p95_s"] = _percentile(seconds, 0.95)
        out[f"{name}/queue_wait_p95_s"] = _percentile(waits, 0.95)
    return out


def _percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
