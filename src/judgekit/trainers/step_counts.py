"""Counts the results of a training step over all calls of a trainer."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping

from judgekit.errors import FailureRateError
from judgekit.metrics import Counts
from judgekit.types import RewardResult

logger = logging.getLogger("judgekit")


STEPLESS = 64
"""Rollouts over which failures are counted if a trainer gives no step."""


class StepCounts:
    """Counts by training step. Reports a step, and checks its failure rate, when the next one begins.

    A step may be one call (synchronous trainers) or hundreds, one per prompt: one failed verdict of a prompt's four
    is no failure rate. *max_failure_rate*: share (0..1) of a grader's evaluations of one step that may fail for
    infrastructure causes, see `Counts.excess_failures`; None: any.
    """

    def __init__(self, max_failure_rate: float | None = None) -> None:
        self.max_failure_rate = max_failure_rate
        self.step: Hashable = None
        self._counts = Counts()
        self._told = 0

    @property
    def rollouts(self) -> int:
        """Rollouts of the current step that have been counted."""
        return self._counts.rollouts

    def begin(self, step: Hashable) -> Mapping[str, float]:
        """Begin *step*, and return the figures of the step that has ended.

        Raises FailureRateError if too many evaluations of that step failed.
        """
        if step == self.step:
            return {}
        self.step = step
        return self.end()

    def add(self, counts: Counts | RewardResult) -> None:
        """Count a result of the current step, or another process's counts of it."""
        if isinstance(counts, Counts):
            self._counts.merge(counts)
        else:
            self._counts.add(counts)

    def add_stepless(self, counts: Counts) -> None:
        """Count results of a trainer that gives no step: `STEPLESS` rollouts are one. Raises as `begin`."""
        self.add(counts)
        if self.rollouts >= STEPLESS:
            self.end()

    def end(self) -> Mapping[str, float]:
        """End the current step, and return its figures. Raises as `begin`."""
        try:
            return self.report()
        finally:
            self._counts, self._told = Counts(), 0

    def report(self) -> Mapping[str, float]:
        """Return the figures of the current step so far. Raises as `begin`. Nothing is logged twice."""
        counts = self._counts
        if not counts.rollouts:
            return {}
        if counts.rollouts > self._told:
            self._told = counts.rollouts
            logger.log(logging.WARNING if counts.unusual else logging.INFO, "%s", counts.line())
        check_failure_rate(counts, self.max_failure_rate)
        return counts.figures()


def check_failure_rate(counts: Counts, allowed: float | None, *, so_far: bool = False) -> None:
    """Raise FailureRateError if more than *allowed* (a share, 0 to 1) of a grader's evaluations failed."""
    if allowed is not None and (excess := counts.excess_failures(allowed, so_far=so_far)):
        raise FailureRateError(
            f"more grades failed in a step than max_failure_rate={allowed:g} allows: {excess}"
        )
