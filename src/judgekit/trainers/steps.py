"""Counts a training step's results, over all the calls in which a trainer hands rollouts over."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping

from judgekit.errors import FailureRateError
from judgekit.metrics import Counts
from judgekit.types import RewardResult

logger = logging.getLogger("judgekit")


STEPLESS = 64
"""Rollouts over which failures are counted where a trainer names no step."""


class StepCounts:
    """Counts by training step. Reports a step, and checks its failure rate, when the next one begins.

    A step may come in one call (synchronous trainers), or in hundreds (a call for each prompt): one failed
    verdict of a prompt's four is no failure rate. *max_failure_rate*: share (0..1) of a grader's evaluations of one
    step that may fail for infrastructure, see `Counts.excess_failures`; None: any.
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
        """Say that rollouts of *step* are handed over from now on; returns the figures of the step that has ended.

        Raises FailureRateError if too many evaluations of that one failed.
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
        """Count results of a trainer that names no step: as many rollouts as `STEPLESS` are one. As `begin`."""
        self.add(counts)
        if self.rollouts >= STEPLESS:
            self.end()

    def end(self) -> Mapping[str, float]:
        """Report the current step; as `begin`."""
        try:
            return self.report()
        finally:
            self._counts, self._told = Counts(), 0

    def report(self) -> Mapping[str, float]:
        """Report the current step so far, which may go on; as `begin`. Nothing is logged twice."""
        counts = self._counts
        if not counts.rollouts:
            return {}
        if counts.rollouts > self._told:
            self._told = counts.rollouts
            logger.log(logging.WARNING if counts.unusual else logging.INFO, "%s", counts.line())
        check_failure_rate(counts, self.max_failure_rate)
        return counts.figures()


def check_failure_rate(counts: Counts, allowed: float | None) -> None:
    """Raise FailureRateError where more of a grader's evaluations failed than *allowed*, a share from 0 to 1."""
    if allowed is not None and (excess := counts.excess_failures(allowed)):
        raise FailureRateError(
            f"more grades failed in a step than max_failure_rate={allowed:g} allows: {excess}"
        )
