"""Counts over all reward workers, in one named Ray actor, for the driver: verl logs none of them itself.

A worker's failures are invisible to the driver: with V1 an exception of one rollout only makes the batch
smaller. So workers send what happened here, and the hook in the driver reads it once a step.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import ray

from judgekit.trainers.hosted import Tally

logger = logging.getLogger("judgekit")
NAME = "judgekit-verl-tally"


class _Counts:
    """The actor's inside: counts since the driver last asked."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._fatal = ""

    def add(self, counts: Mapping[str, int]) -> None:
        self._counts.update(counts)

    def fatal(self, reason: str) -> None:
        self._fatal = self._fatal or reason

    def take(self) -> tuple[dict[str, int], str]:
        counts, self._counts = self._counts, Counter()
        return dict(counts), self._fatal


def tally_actor() -> Any:
    """The actor of this cluster, made by whoever comes first."""
    return ray.remote(_Counts).options(name=NAME, get_if_exists=True, num_cpus=0, max_restarts=-1).remote()


def report(counts: Mapping[str, int], fatal: str, max_failure_rate: float | None) -> None:
    """Log the driver's line and raise what has to end the training: FailureRateError, RuntimeError."""
    if fatal:
        raise RuntimeError(f"judgekit: a reward worker cannot go on: {fatal}")
    tally = Tally(counts)
    if tally.counts["rollouts"]:
        logger.log(logging.WARNING if tally.unusual else logging.INFO, "%s", tally.line())
        tally.check(max_failure_rate)
