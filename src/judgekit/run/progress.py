"""Progress of a run: a bar in a terminal or notebook, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from typing import Any

from judgekit.types import Failed, RewardResult

logger = logging.getLogger("judgekit")

LOG_S = 30.0
"""Seconds between two log lines."""


def _in_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


class Progress:
    """Counts results and failed grades. *total*: rollouts of the run, None if unknown."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.done = 0
        self.grades = 0
        self.failed = 0
        self._start = self._told = time.monotonic()
        self._bar: Any = None
        if "ipykernel" in sys.modules or _in_terminal():
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, unit="rollout", desc="grading", smoothing=0.05)

    def add(self, result: RewardResult) -> None:
        """Count a result, and show or log the progress."""
        self.done += 1
        self.grades += len(result.grades)
        failed = sum(isinstance(grade, Failed) for grade in result.grades.values())
        self.failed += failed
        if self._bar is not None:
            try:
                if failed:
                    self._bar.set_postfix_str(self._failures(), refresh=False)
                self._bar.update()
            except (OSError, ValueError):  # the terminal is gone, which is no reason to lose a reward
                self._bar = None
        elif self.done % 16 == 0 and time.monotonic() - self._told >= LOG_S:
            self._told = time.monotonic()
            logger.info("%s", self)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            with suppress(OSError, ValueError):
                self._bar.close()

    def _failures(self) -> str:
        return f"{self.failed / max(1, self.grades):.1%} of grades failed"

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total} ({self.done / max(1, self.total):.0%})"
        rate = self.done / max(1e-9, time.monotonic() - self._start)
        failures = f", {self._failures()}" if self.failed else ""
        return f"graded {self.done}{of} rollouts, {rate:.3g} per second{failures}"
