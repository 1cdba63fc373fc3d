"""What the runner itself costs, beside OpenJudge's: CPU per evaluation, growth, memory, schedule, overlap.

    make bench-runner

Every figure is the median of interleaved rounds. CPU is of the whole process, so threads count too. `hosted_…`:
as trainers' adapters use a runner, one run per rollout or per group of 8 with limits shared between the runs,
512 rollouts at a time. `bytes_with_results` counts the results that are kept, too. `neighbours`: rollouts whose grader
sees anything of another's context. `late_cancels_felt`: rollouts that a cancellation meant for an earlier one hits.
Goals in microseconds are those of a machine on which OpenJudge's runner takes OPENJUDGE_US; on a faster or slower one they
are as much lower or higher as OpenJudge, measured in turns with ours, says.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import FIGURES, finish, interleaved, machine, median, reported, spread

from judgekit import GradingRunner, Ledger, RewardResult, Rollout, group_by_prompt
from judgekit.execution.pool import ProcessPool
from judgekit.trainers import GroupCollector
from stand_ins import (
    Awaits,
    Burns,
    CancelsLate,
    MemoAsync,
    MemoGroup,
    MemoInline,
    MemoLater,
    MemoProcess,
    MemoThread,
    NoOp,
    NoOpAsync,
    Sleeps,
    Suspends,
)

GRADERS = 3
OPENJUDGE_US = 17.0
GOALS = {
    "cpu_us_sync": ("<=", 10),
    "cpu_us_async": ("<=", 15),
    "cpu_us_suspends": ("<=", 15),
    "hosted_sync_us": ("<=", 15),
    "hosted_async_us": ("<=", 30),
    "hosted_suspends_us": ("<=", 60),
    "hosted_group_sync_us": ("<=", 8),
    "hosted_group_async_us": ("<=", 18),
    "growth": ("<=", 1.2),
    "bytes_per_eval": ("<=", 500),
    "bytes_with_results": ("<=", 300),
    "sched_async": ("<=", 1.02),
    "sched_sync": ("<=", 1.02),
    "overlap": ("<=", 1.15),
    "neighbours": ("==", 0),
    "late_cancels_felt": ("==", 0),
}


def rollouts(n: int, per_group: int = 8) -> list[Rollout]:
    return [
        Rollout(prompt=f"prompt {i // per_group}", group=i // per_group, response="x" * 60, id=str(i))
        for i in range(n)
    ]


def runner(make: Callable[[], Any], **options: Any) -> GradingRunner:
    return GradingRunner(
        {f"g{i}": make() for i in range(GRADERS)}, {f"g{i}": 1.0 for i in range(GRADERS)}, **options
    )


def cpu_us(grading: GradingRunner, n: int) -> Callable[[], float]:
    """CPU microseconds per evaluation of *n* rollouts."""
    batch = rollouts(n)

    def measure() -> float:
        gc.collect()
        start = time.process_time()
        results = asyncio.run(grading.run(batch))
        used = time.process_time() - start
        assert len(results) == n
        return used / (n * GRADERS) * 1e6

    return measure


def hosted_cpu_us(make: Callable[[], Any], per_run: int, n: int = 4096) -> Callable[[], float]:
    """CPU microseconds per evaluation with one run per *per_run* rollouts, 512 rollouts at a time."""
    grading = runner(make).with_settings(shared=True, deadline_s=600)
    batch = rollouts(n)

    async def one_run(start: int) -> None:
        results = await grading.run_groups([batch[start : start + per_run]])
        assert len(results[0]) == per_run

    async def step() -> None:
        for start in range(0, n, 512):
            await asyncio.gather(*(one_run(i) for i in range(start, start + 512, per_run)))

    def measure() -> float:
        gc.collect()
        start = time.process_time()
        asyncio.run(step())
        return (time.process_time() - start) / (n * GRADERS) * 1e6

    return measure


def openjudge_cpu_us(n: int) -> Callable[[], float]:
    from stand_ins import openjudge_runner

    batch = [{"response": "x" * 60} for _ in range(n)]

    def measure() -> float:
        grading = openjudge_runner("noop", GRADERS)  # a fresh one: its semaphore belongs to a loop
        gc.collect()
        start = time.process_time()
        asyncio.run(grading.arun(batch))
        return (time.process_time() - start) / (n * GRADERS) * 1e6

    return measure


def wall_s(run: Callable[[], Any]) -> Callable[[], float]:
    def measure() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return measure


def bytes_per_evaluation(n: int = 100_000) -> tuple[float, float, float]:
    """Peak memory per evaluation: ours beyond the results and with them, and OpenJudge's beyond its own."""
    from stand_ins import openjudge_runner

    def peak(run: Callable[[], Any]) -> tuple[float, float]:
        gc.collect()
        tracemalloc.start()
        kept = run()
        gc.collect()
        left, top = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del kept
        return (top - left) / n, top / n

    grading = runner(NoOpAsync)
    batch = rollouts(n // GRADERS)
    dicts = [{"response": "x" * 60} for _ in range(n // GRADERS)]
    other = openjudge_runner("noop", GRADERS)
    beyond, whole = peak(lambda: asyncio.run(grading.run(batch)))
    return beyond, whole, peak(lambda: asyncio.run(other.arun(dicts)))[0]


WAYS = ("batch", "stream", "iterator", "hosted", "collected")


async def graded(grading: GradingRunner, way: str, batch: list[Rollout]) -> list[RewardResult]:
    """Grade groups of 8 in one of the ways in which a runner is called."""
    match way:
        case "batch":
            return await grading.run(batch)
        case "stream":
            return [result async for result in grading.stream(batch)]
        case "iterator":
            return [result async for result in grading.stream(iter(batch))]
        case "hosted":
            shared = grading.with_settings(shared=True)
            groups = [batch[i : i + 8] for i in range(0, len(batch), 8)]
            return [r for results in await asyncio.gather(*map(shared.run, groups)) for r in results]
    collector = GroupCollector(grading)
    return await asyncio.gather(*(collector.arrive(r.group, r, size=8) for r in batch))


def neighbours(n: int = 4096) -> tuple[int, int]:
    """Rollouts whose grader finds another's memo in its context, and rollouts tried: every place, every way."""
    met = tried = 0
    for make in (MemoInline, MemoLater, MemoAsync, MemoThread, MemoProcess, MemoGroup):
        for way in WAYS:
            grading = GradingRunner({"memo": make()}, max_concurrency=16)
            found = asyncio.run(graded(grading, way, rollouts(n if make is not MemoProcess else n // 8)))
            met += sum(result.reward != 1.0 for result in found)
            tried += len(found)
    return met, tried


def late_cancels_felt(n: int = 4096) -> tuple[int, int]:
    """Rollouts without their grade where every 16th leaves a timer that cancels its task too late, and timers."""
    felt = timers = 0
    for way in WAYS:
        grading = GradingRunner({"judge": CancelsLate()}, max_concurrency=16)
        found = asyncio.run(graded(grading, way, rollouts(n)))
        felt += sum(result.reward != 0.5 for result in found)
        timers += n // 16
    return felt, timers


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    print(machine())
    figures = FIGURES

    folder = tempfile.TemporaryDirectory()
    ledger = Ledger(Path(folder.name) / "ledger.jsonl", fsync="never")
    n = 5000
    found = interleaved(
        7,
        {
            "cpu_us_sync": cpu_us(runner(NoOp), n),
            "cpu_us_async": cpu_us(runner(NoOpAsync), n),
            "cpu_us_suspends": cpu_us(runner(Suspends), n),
            "hosted_sync_us": hosted_cpu_us(NoOp, 1),
            "hosted_async_us": hosted_cpu_us(NoOpAsync, 1),
            "hosted_suspends_us": hosted_cpu_us(Suspends, 1),
            "hosted_group_sync_us": hosted_cpu_us(NoOp, 8),
            "hosted_group_async_us": hosted_cpu_us(NoOpAsync, 8),
            "cpu_us_ledger": cpu_us(runner(NoOp, ledger=ledger), n),
            "openjudge_us": openjudge_cpu_us(n),
        },
    )
    for name, values in found.items():
        figures[name] = median(values)
        print(f"{name:21} {spread(values)} µs per evaluation, {GRADERS} graders")

    found = interleaved(
        5,
        {
            "small": cpu_us(runner(NoOpAsync), 1000),
            "large": cpu_us(runner(NoOpAsync), 100_000 // GRADERS),
            "small_sync": cpu_us(runner(NoOp), 1000),
            "large_sync": cpu_us(runner(NoOp), 100_000 // GRADERS),
        },
    )
    other = interleaved(2, {"small": openjudge_cpu_us(1000), "large": openjudge_cpu_us(100_000 // GRADERS)})
    growth = {
        "async": median(found["large"]) / median(found["small"]),
        "sync": median(found["large_sync"]) / median(found["small_sync"]),
        "openjudge": median(other["large"]) / median(other["small"]),
    }
    figures["growth"] = max(growth["async"], growth["sync"])
    figures["growth_openjudge"] = growth["openjudge"]
    print(
        "growth             " + ", ".join(f"{k} {v:.2f}" for k, v in growth.items()) + " (100,000 over 3,000)"
    )

    ours, whole, theirs = bytes_per_evaluation()
    figures["bytes_per_eval"], figures["bytes_with_results"] = ours, whole
    figures["bytes_per_eval_openjudge"] = theirs
    print(f"bytes_per_eval     {ours:.0f} beyond the results, {whole:.0f} with them (OpenJudge {theirs:.0f})")

    from stand_ins import openjudge_runner

    batch = rollouts(64)
    dicts = [{"response": "x"}] * 64
    ideal = GRADERS * 64 * 0.2 / 32
    awaits, sleeps = runner(Awaits), runner(Sleeps)
    found = interleaved(
        3,
        {
            "sched_async": wall_s(lambda: asyncio.run(awaits.run(batch))),
            "sched_sync": wall_s(lambda: asyncio.run(sleeps.run(batch))),
            "sched_async_openjudge": wall_s(
                lambda: asyncio.run(openjudge_runner("awaits", GRADERS).arun(dicts))
            ),
        },
    )
    for name, values in found.items():
        figures[name] = median(values) / ideal
        print(f"{name:18} {figures[name]:.3f} of the ideal {ideal:.1f} s")

    pool = ProcessPool(os.cpu_count())
    overlap = GradingRunner({"rule": Burns(), "judge": Awaits()}, {"rule": 1, "judge": 1}, pool=pool)
    asyncio.run(overlap.run(rollouts(8)))  # start-up is paid once
    best = max(64 * 0.020 / pool.workers, 2 * 0.2) + 0.02
    values = [wall_s(lambda: asyncio.run(overlap.run(batch)))() for _ in range(5)]
    pool.close()
    figures["overlap"] = median(values) / best
    print(
        f"overlap            {figures['overlap']:.3f} of the ideal {best:.2f} s with {pool.workers} workers"
    )

    figures["neighbours"], tried = neighbours()
    print(f"neighbours         {figures['neighbours']} of {tried} rollouts, in 6 places × {len(WAYS)} ways")
    figures["late_cancels_felt"], tried = late_cancels_felt()
    print(f"late_cancels_felt  {figures['late_cancels_felt']} after {tried} late cancellations")

    many = rollouts(4096)
    values = [wall_s(lambda: group_by_prompt(many))() * 1000 for _ in range(20)]
    anonymous = [
        Rollout(prompt="a long prompt " * 40 + str(i // 8), response="", ground_truth=str(i // 8))
        for i in range(4096)
    ]
    unnamed = [wall_s(lambda: group_by_prompt(anonymous))() * 1000 for _ in range(20)]
    figures["group_ms"] = max(median(values), median(unnamed))
    print(
        f"group_ms           {spread(values)} with ids, {spread(unnamed)} by prompt and truth; 4,096 rollouts"
    )
    folder.cleanup()
    speed = figures["openjudge_us"] / OPENJUDGE_US
    print(
        f"goals in µs × {speed:.2f}: OpenJudge takes {figures['openjudge_us']:.1f} µs, {OPENJUDGE_US:g} where they were set"
    )
    finish(
        figures, {name: (op, goal * speed if "_us" in name else goal) for name, (op, goal) in GOALS.items()}
    )


if __name__ == "__main__":
    reported(main)
