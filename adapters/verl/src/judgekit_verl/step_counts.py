"""Counts over all reward workers, in one named Ray actor, for the driver: verl logs none of them itself.

A worker's failures are invisible to the driver: with V1 an exception of one rollout only makes the batch
smaller. So workers send what happened here, and the hook in the driver reads it once a step.
"""

from __future__ import annotations

import logging
from typing import Any

import ray

from judgekit.trainers import Counts, check_failure_rate

logger = logging.getLogger("judgekit")
NAME = "judgekit-verl-counts"


class _StepCounts:
    """The actor's state: counts since the driver last asked."""

    def __init__(self) -> None:
        self._counts = Counts()
        self._fatal = ""

    def add(self, counts: Counts) -> None:
        self._counts.merge(counts)

    def fatal(self, reason: str) -> None:
        self._fatal = self._fatal or reason

    def take(self) -> tuple[Counts, str]:
        counts, self._counts = self._counts, Counts()
        return counts, self._fatal


def counts_actor() -> Any:
    """The actor of this cluster, made by whoever comes first."""
    return (
        ray.remote(_StepCounts).options(name=NAME, get_if_exists=True, num_cpus=0, max_restarts=-1).remote()
    )


def report(counts: Counts, fatal: str, max_failure_rate: float | None) -> None:
    """Log the driver's line and raise what has to end the training: FailureRateError, RuntimeError."""
    if fatal:
        raise RuntimeError(f"judgekit: a reward worker cannot go on: {fatal}")
    if counts.rollouts:
        logger.log(logging.WARNING if counts.unusual else logging.INFO, "%s", counts.line())
        check_failure_rate(counts, max_failure_rate)
