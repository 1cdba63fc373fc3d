"""A host that is killed: it grades rollouts into a ledger until somebody ends it. `bench_ledger.py` starts it.

    python ledger_host.py SHAPE LEDGER WITNESS

Each grade is written to WITNESS, a line with the time and the rollout, in the instant in which its grader returns it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import time

from judgekit import Graded, GradingRunner, Ledger, Rollout

IN_FLIGHT = 64


class Judge:
    """Answers after some time; every tenth answer takes for ever, as where a replica hangs."""

    version, score_range = "1", (0.0, 1.0)

    def __init__(self, name: str, witness: int) -> None:
        self.name = name
        self._witness = witness
        self._random = random.Random(name)

    async def grade(self, rollout: Rollout, /) -> Graded:
        hangs = self.name == "slow" and self._random.random() < 0.1
        await asyncio.sleep(3600 if hangs else self._random.uniform(0.001, 0.1))
        os.write(self._witness, f"{time.time()} {rollout.id} {self.name}\n".encode())
        return Graded(0.5)


def rollouts() -> list[Rollout]:
    return [
        Rollout(prompt=f"p{i // 8}", group=i // 8, response=f"text {i}", id=str(i)) for i in range(20_000)
    ]


async def host(runner: GradingRunner) -> None:
    """One run per rollout, many at once, as hosts do that hand over one sample at a time."""
    shared = runner.with_settings(shared=True)
    numbers = itertools.count()
    batch = rollouts()

    async def work() -> None:
        while True:
            await shared.run([batch[next(numbers)]])

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


async def main() -> None:
    shape, ledger, path = sys.argv[1:]
    witness = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    judges = {name: Judge(name, witness) for name in ("quick", "slow")}
    transform = "center" if shape == "groups" else "none"
    runner = GradingRunner(
        judges,
        dict.fromkeys(judges, 0.5),
        ledger=Ledger(ledger),
        transform=transform,
        max_concurrency=IN_FLIGHT if shape == "hosted" else 512,
        timeout_s=3600,
    )
    await (host(runner) if shape == "hosted" else runner.run(rollouts()))


if __name__ == "__main__":
    asyncio.run(main())
