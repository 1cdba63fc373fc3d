"""Whether a ledger keeps what was graded, and what that costs.

    make bench-ledger

* `lost_after_kill`: hosts are killed with SIGKILL, 50 times at random moments: one run per rollout with 64 in flight, a
  batch, and a batch whose rollouts wait for their group. Counted are grades that their grader had returned more than a
  second before, and that are not in the ledger.
* `lost_on_full_disk`: rewards that are missing, and lines that are missing once the disk has space again, of a run whose
  ledger reaches a limit of the kernel (RLIMIT_FSIZE) in its middle.
* `unreadable`: of 10,000 rows with odd values, those that do not come back.
* `replay_changed`: of 10,000 rewards under random trees, transforms and policies, those that a replay changes.
* `write_us`: CPU time of the event loop's thread per graded rollout, with a ledger less without.
* `stall_ms`: the longest time that the loop did not turn while 4,000 rollouts were graded by a judge that takes 20 ms, 64 at
  once, with fsync on, in a process with as many objects as a trainer's; the median of five, and `worst_stall_ms` the worst of
  them. `stall_without_ms` is the same without a ledger, `idle_stall_ms` that of a loop with nothing to do: what the machine adds.
* `hosted_ratio`: wall time of 1,024 runs of one rollout each, 64 at once, with a ledger over without; medians of pairs.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import math
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_graders import Ticker, idle_stall
from common import FIGURES, finish, machine, median, reported, spread, trainer_heap

from judgekit import (
    Abstained,
    Clip,
    Fallback,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Max,
    Min,
    Product,
    Rollout,
    RolloutError,
    Score,
    Weighted,
    read_ledger,
)
from judgekit.replay import replay
from stand_ins import NoOpAsync

HOST = Path(__file__).with_name("ledger_host.py")
KILLS, BOUND_S = 50, 1.0
SHAPES = ("hosted", "batch", "groups")
GOALS = {
    "kills": ("==", KILLS),
    "witnessed": (">=", 10_000),
    "lost_after_kill": ("==", 0),
    "lost_on_full_disk": ("==", 0),
    "unreadable": ("==", 0),
    "replayed": (">=", 10_000),
    "replay_changed": ("==", 0),
    "write_us": ("<=", 10),
    "stall_ms": ("<=", 5),
    "hosted_ratio": ("<=", 1.1),
}


# ---- kills


def kill_one(number: int, folder: Path) -> tuple[int, int]:
    """Kill a host at a random moment; returns the grades that should be in its ledger, and those that are not."""
    ledger, witness = folder / f"{number}.jsonl", folder / f"{number}.txt"
    shape = SHAPES[number % len(SHAPES)]
    with (folder / f"{number}.log").open("w") as log:
        process = subprocess.Popen([sys.executable, HOST, shape, ledger, witness], stdout=log, stderr=log)
    while not witness.exists() or not witness.stat().st_size:
        if process.poll() is not None:
            raise SystemExit(f"the host ended: {(folder / f'{number}.log').read_text()[-2000:]}")
        time.sleep(0.01)
    time.sleep(random.Random(number).uniform(1.0, 4.0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = time.time()
    given = [line.split() for line in witness.read_text().splitlines()]
    old = Counter((id_, name) for at, id_, name in given if float(at) < killed - BOUND_S)
    logging.disable(logging.WARNING)  # a torn last line is expected
    kept = Counter((e.id, name) for e in read_ledger(ledger).entries for name in e.grades)
    return sum(old.values()), sum((old - kept).values())


# ---- a full disk


def full_disk(folder: Path) -> int:
    """Rewards and lines that are missing of a run whose ledger meets a full disk."""
    path = folder / "full.jsonl"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ledger = Ledger(path)
    runner = GradingRunner({"judge": NoOpAsync()}, ledger=ledger)
    batch = [Rollout(prompt=f"p{i // 8}", response=f"text {i}", id=str(i)) for i in range(5_000)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        results = asyncio.run(runner.run(batch))
        before = path.stat().st_size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if before > 200_000:
        raise SystemExit("the limit of the ledger's size was not kept: nothing was tried")
    ledger.close()
    ids = {entry.id for entry in read_ledger(path).entries}
    return sum(r.reward is None for r in results) + sum(r.id not in ids for r in batch)


# ---- odd rows


def odd(rng: random.Random, depth: int = 0) -> Any:
    """A value that a data set or a grader may hold."""
    kinds: list[Any] = [
        lambda: "".join(
            chr(rng.choice((rng.randrange(0x20), rng.randrange(0x110000)))) for _ in range(rng.randrange(9))
        ),
        lambda: rng.choice((10**400, -(2**70), 2**64, 0, -1, True, None)),
        lambda: rng.choice((math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324)),
        lambda: bytes(rng.randrange(256) for _ in range(4)),
        lambda: rng.choice(("\ud800", "\u2028", "\x00", "\x1b[31m", '"}\n{"type":"rollout"', "\udfff\ud800")),
        lambda: {1, "a", (2, 3)},
        lambda: object(),
        lambda: ValueError("odd"),
    ]
    if depth < 3:
        kinds += [
            lambda: [odd(rng, depth + 1) for _ in range(rng.randrange(4))],
            lambda: {odd_key(rng): odd(rng, depth + 1) for _ in range(rng.randrange(4))},
            lambda: tuple(odd(rng, depth + 1) for _ in range(rng.randrange(3))),
        ]
    return rng.choice(kinds)()


def odd_key(rng: random.Random) -> Any:
    return rng.choice(("", "kind", "type", 1, None, 2.5, (1, 2), "\ud800", b"b", "\n"))


def unreadable(folder: Path, count: int = 10_000) -> int:
    """Rows with odd values that do not come back, or not as themselves."""
    rng = random.Random(3)

    class Odd:
        name, version, score_range = "odd", "1", (0.0, 1.0)

        def grade(self, rollout: Rollout, /) -> Any:
            kind = rng.randrange(4)
            if kind == 0:
                return Abstained(str(odd(rng)), {"odd": odd(rng)})
            if kind == 1:
                raise RolloutError(str(odd(rng)))
            return Graded(rng.random(), str(odd(rng)), {str(odd_key(rng)): odd(rng)})

    path = folder / "odd.jsonl"
    ledger = Ledger(path, texts=True)
    runner = GradingRunner({"odd": Odd()}, ledger=ledger)
    batch = [
        Rollout(
            prompt=[{"role": "user", "content": odd(rng)}],
            response=str(odd(rng)),
            group=rng.choice((i // 8, str(i // 8), (i // 8, "a"), i / 8)),
            ground_truth=odd(rng),
            extra={"odd": odd(rng)},
            messages=[{"role": "tool", "content": odd(rng)}],
            id=str(i),
        )
        for i in range(count)
    ]
    results = asyncio.run(runner.run(batch, tags={"odd": odd(rng)}))
    ledger.close()
    found = read_ledger(path)
    rewards = {entry.id: entry.reward for entry in found.entries}
    return len(found.torn) + sum(
        rewards.get(r.id, "missing") != o.reward for r, o in zip(batch, results, strict=True)
    )


# ---- replay


def trees(rng: random.Random) -> Any:
    """A random reward over the grades a, b and c."""

    def leaf() -> Any:
        return Score(
            rng.choice("abc"),
            if_missing=rng.choice(("propagate", "propagate", 0.25)),
            if_broken=rng.choice((0.0, -1.0)),
        )

    def node(depth: int) -> Any:
        if depth == 0:
            return leaf()
        parts = [node(depth - 1) for _ in range(rng.randrange(2, 4))]
        match rng.randrange(6):
            case 0:
                return Weighted({f"t{i}": (rng.choice((0.5, 1.0, -0.25)), p) for i, p in enumerate(parts)})
            case 1:
                return Product(*parts)
            case 2:
                return rng.choice((Min, Max))(*parts)
            case 3:
                return Clip(parts[0], 0.0, 0.8)
            case 4:
                return Fallback(parts[0], parts[1])
            case _:
                return Gate(
                    if_=f"{rng.choice('abc')} >= {rng.choice((0.3, 0.5, 1))}",
                    then=parts[0],
                    otherwise=parts[1],
                )

    return node(rng.randrange(1, 4))


def replay_changed(folder: Path, count: int = 10_000, per_ledger: int = 200) -> tuple[int, int]:
    rng = random.Random(5)

    def made(name: str) -> Any:
        class Some:
            version, score_range = "1", (0.0, 1.0)

            async def grade(self, rollout: Rollout, /) -> Any:
                match rng.randrange(9):
                    case 0:
                        raise JudgeUnavailable("down")
                    case 1:
                        raise RolloutError("a bomb")
                    case 2:
                        return Abstained("no opinion")
                return Graded(rng.choice((0.0, 0.25, 0.5, 1 / 3, 1.0)))

        Some.name = name  # type: ignore[attr-defined]
        return Some()

    changed = total = 0
    for number in range(count // per_ledger):
        path = folder / f"replay-{number}.jsonl"
        tree = trees(rng)
        ledger = Ledger(path)
        runner = GradingRunner(
            {name: made(name) for name in "abc"},
            Weighted({"all": (1.0, tree), **dict.fromkeys("abc", 0.0)}),
            transform=rng.choice(("none", "center", "zscore", "rank", "loo", "gdpo")),
            missing_reward=rng.choice(("exclude", "mask", "neutral", 0.5)),
            ledger=ledger,
        )
        for run in range(2):
            asyncio.run(
                runner.run(
                    [
                        Rollout(prompt=str(i // 8), response=f"{run} {i}", id=f"{run} {i}")
                        for i in range(per_ledger // 2)
                    ]
                )
            )
        ledger.close()
        again = replay(path)
        for entry, result in zip(again.entries, again.results, strict=True):
            total += 1
            same = (entry.reward is None) == (result.reward is None) and entry.status == result.status
            changed += not (
                same
                and (
                    entry.reward is None
                    or math.isclose(entry.reward, result.reward or 0.0, rel_tol=1e-12, abs_tol=1e-12)
                )
            )
    return total, changed


# ---- costs


def loop_us(folder: Path | None, n: int = 20_000) -> float:
    """CPU microseconds of the event loop's thread per rollout."""
    ledger = None if folder is None else Ledger(folder / "costs.jsonl")
    runner = GradingRunner({"judge": NoOpAsync()}, ledger=ledger)
    batch = [Rollout(prompt=f"p{i // 8}", group=i // 8, response="x" * 60) for i in range(n)]
    gc.collect()

    async def measured() -> float:
        start = time.thread_time()
        await runner.run(batch)
        return time.thread_time() - start

    used = asyncio.run(measured())
    if ledger is not None:
        ledger.close()
    return used / n * 1e6


class Quick(NoOpAsync):
    """A judge that takes 20 ms."""

    async def grade(self, rollout: Rollout, /) -> float:
        await asyncio.sleep(0.02)
        return 0.5


async def stall(folder: Path | None, n: int = 4_000) -> float:
    ledger = None if folder is None else Ledger(folder / "stall.jsonl", fsync="batch")
    runner = GradingRunner({"judge": Quick()}, ledger=ledger, max_concurrency=64)
    batch = [Rollout(prompt=f"p{i // 8}", group=i // 8, response="x" * 60) for i in range(n)]
    await runner.run(batch[:64])
    heap = trainer_heap()
    gc.collect()
    ticker = Ticker()
    await runner.run(batch)
    found = await ticker.stop()
    del heap
    if ledger is not None:
        ledger.close()
    return found


def hosted_s(folder: Path | None, runs: int = 1024, at_once: int = 64) -> float:
    """Seconds for single-rollout runs against a judge that takes 20 ms."""
    ledger = None if folder is None else Ledger(folder / "hosted.jsonl")
    runner = GradingRunner({"judge": Quick()}, ledger=ledger, max_concurrency=at_once).with_settings(
        shared=True
    )
    batch = iter([Rollout(prompt=f"p{i}", response="x" * 60) for i in range(runs)])

    async def work() -> None:
        for rollout in batch:
            await runner.run([rollout])

    async def measured() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(at_once)))
        return time.perf_counter() - start

    gc.collect()
    seconds = asyncio.run(measured())
    if ledger is not None:
        ledger.close()
    return seconds


def main() -> None:
    print(machine(), flush=True)
    figures = FIGURES
    figures["kills"] = KILLS
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(kill_one, range(KILLS), itertools.repeat(folder)))
        logging.disable(logging.ERROR)
        figures["witnessed"] = sum(old for old, _ in found)
        figures["lost_after_kill"] = sum(lost for _, lost in found)
        print(
            f"{KILLS} kills: {figures['witnessed']} grades older than {BOUND_S} s, {figures['lost_after_kill']} lost",
            flush=True,
        )
        figures["lost_on_full_disk"] = full_disk(folder)
        figures["unreadable"] = unreadable(folder)
        figures["replayed"], figures["replay_changed"] = replay_changed(folder)
        print(
            {
                name: figures[name]
                for name in ("lost_on_full_disk", "unreadable", "replayed", "replay_changed")
            },
            flush=True,
        )
        pairs = [(loop_us(folder), loop_us(None)) for _ in range(7)]
        costs = [with_it - without for with_it, without in pairs]
        figures["write_us"] = median(costs)
        print(
            f"write_us     {spread(costs)}, a rollout without takes {median([w for _, w in pairs]):.3g}",
            flush=True,
        )
        figures["idle_stall_ms"] = min(asyncio.run(idle_stall()) for _ in range(3))
        stalls = [(asyncio.run(stall(folder)), asyncio.run(stall(None))) for _ in range(5)]
        figures["stall_ms"], figures["stall_without_ms"] = (
            median(column) for column in zip(*stalls, strict=True)
        )
        figures["worst_stall_ms"], figures["worst_stall_without_ms"] = (
            max(column) for column in zip(*stalls, strict=True)
        )
        print(
            f"stall_ms     {spread([w for w, _ in stalls])}, without {spread([o for _, o in stalls])}, idle {figures['idle_stall_ms']:.3g}",
            flush=True,
        )
        ratios = [hosted_s(folder) / hosted_s(None) for _ in range(9)]
        figures["hosted_ratio"] = median(ratios)
        print(f"hosted_ratio {spread(ratios)}", flush=True)
    finish(figures, GOALS)


if __name__ == "__main__":
    reported(main)
