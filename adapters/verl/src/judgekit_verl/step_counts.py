"""Collects the counts of all reward workers in a named Ray actor, for the driver.

verl does not show a worker's failures to the driver: with V1 an exception in one rollout only makes the batch
smaller. So workers send their counts here, and the hook in the driver reads them once per step.
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
    """Return this cluster's actor; the first caller creates it."""
    return (
        ray.remote(_StepCounts).options(name=NAME, get_if_exists=True, num_cpus=0, max_restarts=-1).remote()
    )


def report(counts: Counts, fatal: str, max_failure_rate: float | None) -> None:
    """Log the driver's line. Raises FailureRateError or RuntimeError if the training must end."""
    if fatal:
        raise RuntimeError(f"judgekit: a reward worker cannot go on: {fatal}")
    if counts.rollouts:
        logger.log(logging.WARNING if counts.unusual else logging.INFO, "%s", counts.line())
        check_failure_rate(counts, max_failure_rate)
