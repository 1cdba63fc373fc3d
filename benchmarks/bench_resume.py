"""Whether a run that was interrupted pays what it would have paid, and pays for nothing twice.

    make bench-resume

2,000 runs of random rewards (rules, judges, and graders that compare a group's members, behind conditions and in them) are
interrupted: cancelled at a random moment, with failing judges, by a deadline with hanging ones, and 200 processes by
SIGKILL. Some are interrupted again while they are resumed. In the end:

* `different`: rewards that are not those of the same run without an interruption.
* `undecided`: rollouts of runs whose rewards depend on which judge is quicker, so that nothing is right.
* `paid_twice`: calls of judges that were made though the ledger held their grades.
* `killed_late`: processes that had ended before they were killed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import finish, machine, reported
from resume_cases import KILLED_GROUPS, Case, Outcome, compared, tried

INTERRUPTED, KILLED = 1_800, 200
HOST = Path(__file__).with_name("resume_cases.py")
GOALS = {
    "interrupted": (">=", INTERRUPTED),
    "killed": ("==", KILLED),
    "rollouts": (">=", 10_000),
    "different": ("==", 0),
    "undecided": ("==", 0),
    "paid_twice": ("==", 0),
    "killed_late": ("<=", KILLED // 2),
}


async def killed(number: int, folder: Path) -> tuple[Outcome, bool]:
    """Kill a process that grades a case, and resume what it has left. Also returns whether it had ended by itself."""
    case = Case(number, KILLED_GROUPS)
    ledger = folder / f"{number}.jsonl"
    process = await asyncio.create_subprocess_exec(
        sys.executable, HOST, str(number), ledger, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise SystemExit("a process to be killed has not begun")
    await asyncio.sleep(random.Random(number).uniform(0.0, 0.3))
    if process.returncode is None:
        process.kill()
    late = b"end" in await process.stdout.read()
    await process.wait()
    expected = await case.expected()
    results, twice = await case.resume(case.world(3), ledger)
    return Outcome(1, *compared(results, expected), twice), late


async def all_of(folder: Path, figures: dict[str, Any]) -> None:
    outcomes: list[Outcome] = []
    numbers = itertools.count()
    while sum(one.interruptions for one in outcomes) < INTERRUPTED:
        outcomes += await asyncio.gather(
            *(tried(Case(number), folder) for number in itertools.islice(numbers, 8))
        )
    figures["interrupted"] = sum(one.interruptions for one in outcomes)
    print(f"{figures['interrupted']} interruptions of {len(outcomes)} runs", flush=True)
    late = 0
    for first in range(0, KILLED, 4):
        for outcome, ended in await asyncio.gather(
            *(killed(1_000_000 + number, folder) for number in range(first, min(first + 4, KILLED)))
        ):
            outcomes.append(outcome)
            late += ended
    figures["killed"], figures["killed_late"] = KILLED, late
    for name in ("rollouts", "different", "undecided", "paid_twice"):
        figures[name] = sum(getattr(one, name) for one in outcomes)


def main() -> None:
    print(machine(), flush=True)
    logging.disable(logging.CRITICAL)
    figures: dict[str, Any] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(all_of(Path(made), figures))
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    finish(figures, GOALS)


if __name__ == "__main__":
    reported(main)
