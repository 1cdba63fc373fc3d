"""What many threads with event loops of their own share: does any of them stall, raise, or lose something?

    make bench-threads

A limiter, a judge's layers, its cache, equal requests in flight, a runner and its ledger are used by 1 to 32 threads at a time,
each with a loop of its own, at three of Python's switch intervals. `stalled`: rounds that do not end. `raised`: calls that end
with an error. `lost`: results, replies and ledger lines that are missing or another's. `old_limiter_stalled`: rounds that a
limiter stalls which does not look again after it has queued (this benchmark would be worthless if it were 0).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from common import FIGURES, finish, machine, reported

from judgekit import GradingRunner, Ledger, Rollout, read_ledger
from judgekit.execution.limits import Limiter, _Waiter
from judgekit.judges import JudgeReply, JudgeRequest, LayerOptions, Piece, Turn, stacked
from judgekit.judges.layers.stack import CacheOptions

THREADS = (1, 2, 4, 8, 16, 32)
INTERVALS = (0.005, 1e-5, 1e-6)
ROUNDS = 10_000
STALL_S = 10.0
"""A round that has not ended by then never will: its work takes milliseconds."""
GOALS = {
    "rounds": (">=", ROUNDS),
    "stalled": ("==", 0),
    "raised": ("==", 0),
    "lost": ("==", 0),
    "old_limiter_stalled": (">", 0),
    "seconds": ("<=", 900),
}

Work = Callable[[int], Coroutine[Any, Any, int]]
"""What one thread does in a round, from its number to how many results are missing or another's."""


class Echo:
    """A judge that answers with what it was asked, after a turn of the loop or none."""

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.calls += 1
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)
        return JudgeReply(request.turns[0].text)


class Quick:
    name, version, score_range = "quick", "1", (0.0, 1.0)

    async def grade(self, rollout: Rollout, /) -> float:
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)
        return int(rollout.response) / 100


def request(text: str) -> JudgeRequest:
    return JudgeRequest((Turn("user", (Piece(text),)),), accept=lambda reply: None)


def limiter(made: Limiter) -> Work:
    async def hold() -> None:
        for _ in range(8):
            async with made:
                for _ in range(random.randrange(2)):
                    await asyncio.sleep(0)

    async def work(number: int) -> int:
        await asyncio.gather(*(hold() for _ in range(2)))
        return 0

    return work


def layers(options: LayerOptions, texts: Callable[[int, int], str]) -> Work:
    stack = stacked(Echo(), options)

    async def work(number: int) -> int:
        asked = [texts(number, i) for i in range(4)]
        replies = await asyncio.gather(*(stack.complete(request(text)) for text in asked))
        return sum(reply.text != text for reply, text in zip(replies, asked, strict=True))

    return work


def runner(grading: GradingRunner) -> Work:
    async def work(number: int) -> int:
        batch = [Rollout(response=str((number + i) % 100), group=i) for i in range(4)]
        results = await grading.run(batch)
        return sum(r.reward != int(b.response) / 100 for r, b in zip(results, batch, strict=True))

    return work


def kinds(folder: Path) -> dict[str, Callable[[], Work]]:
    """What is shared, made anew for each cell."""
    numbers = itertools.count()

    def shared(**options: Any) -> GradingRunner:
        return GradingRunner({"quick": Quick()}, **options).with_settings(shared=True, max_concurrency=2)

    def cached() -> Work:
        disk = folder / f"cache-{next(numbers)}.sqlite"
        return layers(LayerOptions(cache=CacheOptions(path=disk)), lambda n, i: f"{(n + i) % 6}")

    return {
        "limiter": lambda: limiter(Limiter(2)),
        "stack": lambda: layers(LayerOptions(max_concurrency=1), lambda n, i: f"{n} {i}"),
        "cache": cached,
        "flights": lambda: layers(LayerOptions(max_concurrency=2), lambda n, i: "the same"),
        "runner": lambda: runner(shared()),
        "ledger": lambda: runner(shared(ledger=Ledger(folder / "ledger.jsonl", fsync="never"))),
    }


def one_round(work: Work, threads: int, stall_s: float = STALL_S) -> tuple[bool, int, int]:
    """Have so many threads work at once. Returns whether it stalled, errors, and results that are missing or another's."""
    begin = threading.Barrier(threads)
    raised: list[BaseException] = []
    lost: list[int] = []

    def act(number: int) -> None:
        try:
            begin.wait()
            lost.append(asyncio.run(work(number)))
        except BaseException as error:
            raised.append(error)

    started = [threading.Thread(target=act, args=(n,), daemon=True) for n in range(threads)]
    for thread in started:
        thread.start()
    end = time.monotonic() + stall_s
    for thread in started:
        thread.join(max(0.0, end - time.monotonic()))
    stalled = any(thread.is_alive() for thread in started)
    return stalled, len(raised), sum(lost)


class OldLimiter(Limiter):
    """As it was before: a place that is freed while the caller queues goes to nobody."""

    async def acquire(self) -> None:
        if self.try_acquire():
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            self._waiters.append(waiter)
        await waiter.future


def old_limiter(rounds: int) -> int:
    """1 if one of so many rounds stalls the old limiter: four threads that take and give back its place all the time."""
    made = OldLimiter(1)

    async def work(number: int) -> int:
        for _ in range(500):
            async with made:
                pass
        return 0

    return int(any(one_round(work, 4, stall_s=3.0)[0] for _ in range(rounds)))


def main() -> None:
    logging.disable(logging.CRITICAL)
    print(machine(), flush=True)
    figures = FIGURES
    began = time.monotonic()
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cells = [(kind, n, s) for kind in kinds(folder) for n in THREADS for s in INTERVALS]
        each = -(-ROUNDS // len(cells))
        written = 0
        for kind, threads, interval in cells:
            work = kinds(folder)[kind]()
            sys.setswitchinterval(interval)
            bad: Counter[str] = Counter()
            for _ in range(each):
                stalled, raised, lost = one_round(work, threads)
                bad += Counter(stalled=stalled, raised=raised, lost=lost)
                totals["rounds"] += 1
                written += 4 * threads if kind == "ledger" else 0
                if stalled:  # what is shared is dead, and so would all its other rounds be
                    break
            sys.setswitchinterval(0.005)
            totals += bad
            if +bad:
                print(f"  {kind}, {threads} threads, {interval:g} s: {dict(+bad)}", flush=True)
        rows = len(read_ledger(folder / "ledger.jsonl").entries)
        if rows != written:
            print(f"  the ledger has {rows} lines of {written}")
            totals["lost"] += abs(written - rows)
    figures |= {name: totals[name] for name in ("rounds", "stalled", "raised", "lost")}
    figures["seconds"] = time.monotonic() - began
    sys.setswitchinterval(1e-6)
    figures["old_limiter_stalled"] = old_limiter(300)
    finish(figures, GOALS)


if __name__ == "__main__":
    reported(main)
