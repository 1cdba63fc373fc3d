"""A host process for bench_faults to interrupt, end or kill in the middle of a run.

    python fault_host.py WAY PLACES FOLDER LEDGER

The first eight rollouts are graded at once, the others never: in a thread, in a worker that computes and one
that waits, on the event loop. Each grader that hangs says so by a file in FOLDER.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import Any

from judgekit import GradingRunner, Ledger, Rollout
from judgekit.execution.pool import ProcessPool

QUICK = 8


class Hangs:
    """Grades the first eight rollouts only, in a thread or a worker process."""

    version, score_range = "1", (0.0, 1.0)

    def __init__(self, where: str, folder: str) -> None:
        self.name = where
        self.where = where
        self.folder = folder

    def say(self) -> None:
        Path(self.folder, self.name).touch()

    def grade(self, rollout: Rollout, /) -> float:
        if int(rollout.id) >= QUICK:
            self.say()
            while self.where == "process" and int(rollout.id) % 2:
                pass
            time.sleep(3600)
        return 1.0


class HangsAsync(Hangs):
    """The same on the event loop."""

    def __init__(self, folder: str) -> None:
        super().__init__("async", folder)
        del self.where

    async def grade(self, rollout: Rollout, /) -> float:  # type: ignore[override]
        if int(rollout.id) >= QUICK:
            self.say()
            await asyncio.sleep(3600)
        return 1.0


def main() -> None:
    logging.disable(logging.CRITICAL)
    way, places, folder, ledger = sys.argv[1:]
    graders: dict[str, Any] = {
        place: HangsAsync(folder) if place == "async" else Hangs(place, folder) for place in places.split("+")
    }
    runner = GradingRunner(
        graders,
        pool=ProcessPool(2),
        timeout_s=600,
        max_concurrency=8,
        missing_reward="mask",
        ledger=Ledger(ledger) if ledger != "-" else None,
    )
    rollouts = [Rollout(id=str(i), group=i, response="") for i in range(QUICK + 8)]
    if way == "run":
        asyncio.run(runner.run(rollouts))
    else:
        runner.run_sync(rollouts)


if __name__ == "__main__":
    main()
