"""What each rule grader costs, and whether hostile rollouts hold up the event loop.

    make bench-graders

Costs are the wall time of one call where the runner would make it: on the event loop, in a thread, or in a worker
process (then with the way there and back). Stalls are the longest time that the event loop did not turn while one
hostile rollout was graded by every rule; `idle_stall_ms` is that of a loop with nothing to do. All are the best of
several rounds, as timeit has it: what is the code's recurs in each, what is a busy machine's does not.
`max_stall_cpu_ms` is the most that the loop's own thread computed without a pause. The stalls are those of a process with as
many objects as a trainer's: the garbage collector's pauses count. `--save` keeps the costs in docs/grader_costs.json, which the table of docs/graders.md shows.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import finish, machine, reported, trainer_heap
from grader_shapes import SHAPES, exponents
from grader_shapes import stalls as shaped_stalls
from rule_graders import GROUP_RULES, RULES, sample, trajectory

from judgekit import Failed, GradingRunner, Rollout
from judgekit.execution.pool import ProcessPool
from judgekit.graders import ActionLoop, MathEquivalence, RegexFormat, TextMatch
from judgekit.types import text_size

START_UP_S = 3.0
"""What a fresh worker process may need before a grader's time begins."""
SIZES = (100, 1000, 10_000)
COSTS = Path(__file__).parents[1] / "docs" / "grader_costs.json"


def us_per_call(call: Callable[[], Any], budget_s: float = 0.2) -> float:
    """Wall time in µs: the best of at least five calls after a warm-up, as timeit takes it."""
    call()
    found: list[float] = []
    end = time.perf_counter() + budget_s
    while len(found) < 5 or (time.perf_counter() < end and len(found) < 2000):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found) * 1e6


def costs(pool: ProcessPool) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with asyncio.Runner() as loop:
        for name, make in RULES.items():
            grader = make()
            found[name] = {}
            for size in SIZES:
                rollout = sample(name, size)
                large = text_size(rollout.response, rollout.messages) > (
                    getattr(grader, "inline_limit", None) or 1e18
                )
                if large or getattr(grader, "where", "inline") == "process":
                    # asked from the loop, as a runner does
                    call = lambda g=grader, r=rollout: loop.run(pool.grade(g, r, timeout_s=60))  # noqa: E731
                else:
                    call = lambda g=grader, r=rollout: g.grade(r)  # noqa: E731
                found[name][str(size)] = us_per_call(call)
        for name, make in GROUP_RULES.items():
            grader = make()
            found[name] = {}
            for size in SIZES:
                members = [sample(name, size) for _ in range(8)]
                call = lambda g=grader, m=members: loop.run(g.grade_group(m))  # noqa: E731
                found[name][str(size)] = us_per_call(call) / len(members)
    return found


HOSTILE: dict[str, tuple[Callable[[], Rollout], list[Any]]] = {
    "9**9**9**9": (
        lambda: Rollout(response="The answer is 9**9**9**9", ground_truth="7"),
        [lambda: MathEquivalence(timeout_s=3)],
    ),
    "(a+)+$": (
        lambda: Rollout(response="a" * 40 + "!", ground_truth="(a+)+$"),
        [lambda: RegexFormat(r"(a+)+$", timeout_s=1), lambda: TextMatch(how="regex", timeout_s=1)],
    ),
    "10 MB": (
        lambda: Rollout(
            response="time year " * 1_000_000, ground_truth="#### 72", extra={"options": ["a", "b"]}
        ),
        [],
    ),
    "10,000-deep JSON": (lambda: Rollout(response="[" * 10_000 + "]" * 10_000, ground_truth="[]"), []),
}
"""What is to be graded by every rule grader, and which others besides."""


class Ticker:
    """Wakes up every millisecond and keeps how late it was."""

    def __init__(self) -> None:
        self.cpu_ms = 0.0
        """The most that the event loop's own thread computed between two turns: its part of a stall."""
        self._late: list[float] = []
        self._running = True
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        last, used = time.perf_counter(), time.thread_time()
        while self._running:
            await asyncio.sleep(0.001)
            now, before, used = time.perf_counter(), used, time.thread_time()
            self.cpu_ms = max(self.cpu_ms, 1000 * (used - before))
            self._late.append(now - last - 0.001)
            last = now

    async def stop(self) -> float:
        """The longest delay, in ms."""
        self._running = False
        await self._task
        return max(self._late) * 1000


async def idle_stall() -> float:
    """What the machine alone does to an event loop: the longest delay of one that has nothing to do for 3 s."""
    ticker = Ticker()
    await asyncio.sleep(3)
    return await ticker.stop()


async def stall(name: str, pool: ProcessPool) -> dict[str, Any]:
    """Grade one hostile rollout by every rule grader; the longest that the event loop did not turn."""
    make, others = HOSTILE[name]
    graders = [g() for g in RULES.values()] + [g() for g in others]
    for number, grader in enumerate(graders):
        grader.name = f"{grader.name}_{number}"
    runner = GradingRunner(graders, pool=pool, missing_reward="mask")
    rollout = make()
    ticker = Ticker()
    start = time.perf_counter()
    (result,) = await runner.run([rollout])
    wall_s = time.perf_counter() - start
    stall_ms = await ticker.stop()
    failed = [grade for grade in result.grades.values() if isinstance(grade, Failed)]
    allowed = {g.name: getattr(g, "timeout_s", None) or 60.0 for g in graders}  # 60 s is the runner's default
    seconds = {g.name: max(runner.metrics.timings(g.name)[0], default=0.0) for g in graders}
    late = [name for name, used in seconds.items() if used > allowed[name] + START_UP_S]
    return {
        "stall_ms": stall_ms,
        "wall_s": wall_s,
        "failed": len(failed),
        "for_the_rollout": sum(grade.cause == "rollout" for grade in failed),
        "graders": len(graders),
        "late": late,
        "failures": sorted(
            f"{n.rpartition('_')[0]}: {g.error}" for n, g in result.grades.items() if isinstance(g, Failed)
        ),
    }


def main() -> None:
    print(machine())
    pool = ProcessPool()
    found = costs(pool)
    for name, by_size in sorted(found.items()):
        print(
            f"{name:18} "
            + "  ".join(f"{by_size[str(size)]:10.0f}" for size in SIZES)
            + " µs at 100, 1,000, 10,000 tokens"
        )
    rollout = trajectory(400)
    loops = {
        "action_loop_400_ms": us_per_call(lambda: ActionLoop().grade(rollout), 2.0) / 1000,
        "action_loop_near_400_ms": us_per_call(lambda: ActionLoop(near=True).grade(rollout), 2.0) / 1000,
    }
    for name, value in loops.items():
        print(f"{name:24} {value:.2f}")
    logging.disable(logging.WARNING)
    heap = trainer_heap()
    idle = min(asyncio.run(idle_stall()) for _ in range(3))
    print(f"idle               stall {idle:.1f} ms: an event loop with nothing to do, on this machine, now")
    stalls: dict[str, float] = {}
    cpu: dict[str, float] = {}
    in_time = True
    for name in HOSTILE:
        rounds = [asyncio.run(stall(name, pool)) for _ in range(3)]
        measured = sorted(rounds, key=lambda m: float(m["stall_ms"]))[0]
        stalls[name] = round(measured["stall_ms"], 1)
        in_time &= not any(m["late"] for m in rounds)
        print(
            f"{name:18} stall {measured['stall_ms']:.1f} ms; {measured['graders']} graders in {measured['wall_s']:.1f} s, "
            f"{measured['failed']} failed, {measured['for_the_rollout']} of them for the rollout: {', '.join(measured['failures'])}"
        )
    worst = 0.0
    for what, exponent, seconds in exponents():
        worst = max(worst, exponent)
        if exponent > 1.3 or seconds > 0.05:
            print(f"{what}: time grows by the power {exponent:.2f}, {1000 * seconds:.1f} ms")
    totals = dict.fromkeys(("raised", "out_of_range", "blamed_wrongly"), 0)
    for shape, measured in shaped_stalls(pool, Ticker, 50):
        stalls[shape] = round(measured["stall_ms"], 1)
        cpu[shape] = round(measured["cpu_ms"], 1)
        totals = {key: totals[key] + measured[key] for key in totals}
        print(
            f"{shape:22} stall {measured['stall_ms']:5.1f} ms; {', '.join(sorted(measured['failed'])) or 'none failed'}"
        )
    pool.close()
    del heap
    if "--save" in sys.argv:
        COSTS.parent.mkdir(exist_ok=True)
        rounded = {
            name: {size: round(us) for size, us in by_size.items()} for name, by_size in sorted(found.items())
        }
        COSTS.write_text(
            json.dumps({"machine": machine().split(", load")[0], "us": rounded}, indent=1) + "\n"
        )
    finish(
        {
            "us_per_call": {n: {s: round(us, 1) for s, us in by.items()} for n, by in sorted(found.items())},
            **loops,
            "stall_ms": stalls,
            "idle_stall_ms": round(idle, 1),
            "max_stall_ms": max(stalls.values()),
            "max_stall_cpu_ms": max(cpu.values()),
            "all_end_in_time": in_time,
            "worst_exponent": round(worst, 2),
            "rules": len(RULES) + len(GROUP_RULES),
            "families": len(SHAPES),
            **totals,
        },
        {
            "max_stall_ms": ("<=", 50),
            "all_end_in_time": ("==", True),
            "worst_exponent": ("<=", 1.3),
            "families": (">=", 25),
            "raised": ("==", 0),
            "out_of_range": ("==", 0),
            "blamed_wrongly": ("==", 0),
        },
    )


if __name__ == "__main__":
    reported(main)
