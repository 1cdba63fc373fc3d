"""Grades the cells of bench_faults: started by it as a child, which is replaced where a cell hangs.

Reads one job per line from its standard input, answers with one line per cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fault_graders import TIMEOUT_S, Cell, judge, rollouts, rule_score
from fault_table import SETTINGS, TABLE, Expected, expected

from judgekit import (
    Abstained,
    Failed,
    Graded,
    GradingRunner,
    Ledger,
    MissingRewardError,
    RewardResult,
    Score,
    Weighted,
    grader,
    read_ledger,
)
from judgekit.execution import background
from judgekit.execution.pool import ProcessPool
from judgekit.trainers import collector

Collector: Any = getattr(collector, "GroupCollector", None) or vars(collector)["Rendezvous"]
CELL_S = 5.0
"""How long the grading of one cell may take before it counts as hung; 2 s of timeouts at most are meant to."""
COUNTS = ("silent_numbers", "wrong_values", "lost", "hangs", "leaked_tasks")


@grader
def rule(rollout: Any) -> float:
    return rule_score(rollout)


def build(fault: str, place: str, setting: str, folder: str, **options: Any) -> GradingRunner:
    said = dict(SETTINGS[setting])
    leaf = {name: said.pop(name) for name in ("if_missing", "if_broken") if name in said}
    if fault == "beyond_the_deadline":
        options["deadline_s"] = 1.0 if place == "process" else 0.3
    row = TABLE[fault]
    return GradingRunner(
        {"rule": rule, "judge": judge(fault, place, folder)},
        Weighted({"rule": 0.5, "judge": (0.5, Score("judge", **leaf))}),
        timeout_s=TIMEOUT_S if row.timed else 60.0,
        max_concurrency=8,
        **said,
        **options,
    )


# ---- ways to call it: a list of batches, each with a result or an error per rollout


async def in_place(place: str, runner: GradingRunner) -> list[Any]:
    """One run; in the collected places, members that arrive one by one."""
    if not place.startswith("collected"):
        return list(await runner.run(rollouts()))
    meeting = Collector(runner)
    try:
        members = [asyncio.ensure_future(meeting.arrive(r.group, r, size=4)) for r in rollouts()]
        found = await asyncio.gather(*members, return_exceptions=True)
    finally:
        await meeting.close()
    for i, (member, rollout) in enumerate(zip(found, rollouts(), strict=True)):
        if isinstance(member, RewardResult) and member.index != int(rollout.id) % 4:
            raise AssertionError(f"member {i} has the result of {member.index}")
    return found


class Turns:
    """Awaits gradings and counts the tasks that they leave."""

    def __init__(self) -> None:
        self.leaked = 0
        self.hung = 0

    def run(self, coroutine: Any) -> Any:
        return asyncio.run(self._watched(coroutine))

    async def _watched(self, coroutine: Any) -> Any:
        Cell.release = release = threading.Event()
        task = asyncio.ensure_future(coroutine)
        await asyncio.wait([task], timeout=CELL_S)
        if not task.done():
            self.hung += 1
            task.cancel()
            await asyncio.wait([task], timeout=CELL_S)
        release.set()
        await self._patience()
        self.leaked += len(asyncio.all_tasks()) - 1
        if not task.done():
            raise TimeoutError
        return task.result()

    async def _patience(self) -> None:
        """What ignores its cancellation is left behind by design; it ends now that it is released."""
        end = time.monotonic() + 2
        while len(asyncio.all_tasks()) > 1 and time.monotonic() < end:
            await asyncio.sleep(0.005)


def by_stream(turns: Turns, runner: GradingRunner) -> list[list[Any]]:
    async def collect() -> list[RewardResult]:
        return sorted([r async for r in runner.stream(rollouts())], key=lambda r: r.index)

    return [turns.run(collect())]


def by_run_sync(turns: Turns, runner: GradingRunner) -> list[list[Any]]:
    Cell.release = threading.Event()
    found: list[Any] = []
    thread = threading.Thread(target=_kept, args=(found, lambda: runner.run_sync(rollouts())), daemon=True)
    thread.start()
    thread.join(CELL_S)
    turns.hung += thread.is_alive()
    return _raised([found[0] if found else TimeoutError()])


def by_second_loop(turns: Turns, runner: GradingRunner) -> list[list[Any]]:
    return [turns.run(in_place("async", runner)) for _ in range(2)]


def by_two_threads(turns: Turns, runner: GradingRunner) -> list[list[Any]]:
    found: list[Any] = []
    threads = [
        threading.Thread(
            target=_kept, args=(found, lambda: turns.run(in_place("async", runner))), daemon=True
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * CELL_S)
    return _raised(found)


def by_ray(turns: Turns, fault: str, setting: str) -> list[list[Any]]:
    """A Ray actor that makes and keeps a runner, as a reward worker does."""
    import ray

    actor = _actor()
    try:
        results, leaked, hung = ray.get(actor.grade.remote(fault, setting), timeout=3 * CELL_S)
    except ray.exceptions.GetTimeoutError:
        turns.hung += 1
        ray.kill(_actors.pop())
        raise
    turns.leaked += leaked
    turns.hung += hung
    return [results]


_actors: list[Any] = []


def _actor() -> Any:
    import ray

    if not _actors:
        if not ray.is_initialized():
            ray.init("local", num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        _actors.append(ray.remote(Actor).remote())
    return _actors[0]


class Actor:
    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)

    def grade(self, fault: str, setting: str) -> tuple[Any, int, int]:
        turns = Turns()
        results = turns.run(in_place("async", build(fault, "async", setting, "")))
        return results, turns.leaked, turns.hung


WAYS: dict[str, Callable[[Turns, GradingRunner], list[list[Any]]]] = {
    "stream": by_stream,
    "run_sync": by_run_sync,
    "second loop": by_second_loop,
    "two threads": by_two_threads,
}


def _kept(found: list[Any], work: Callable[[], Any]) -> None:
    try:
        found.append(work())
    except BaseException as error:
        found.append(error)


def _raised(found: list[Any]) -> list[list[Any]]:
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


# ---- one cell


def grade_cell(
    pool: ProcessPool, fault: str, place: str, setting: str, ledger: bool, way: str
) -> dict[str, Any]:
    """Grade it and count what is not as the table says."""
    turns = Turns()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger.jsonl")
        options: dict[str, Any] = {"pool": pool} if place == "process" else {}
        if ledger:
            options["ledger"] = Ledger(path)
        batches: list[list[Any]]
        why = ""
        try:
            if way == "ray actor":
                batches = by_ray(turns, fault, setting)
            else:
                runner = build(fault, place, setting, folder, **options)
                if place == "process":
                    _prepare(pool, fault)
                batches = WAYS[way](turns, runner) if way != "run" else [turns.run(in_place(place, runner))]
        except MissingRewardError as error:
            batches = [[error] * 16]
        except BaseException as error:  # the run died
            batches = [[error] * 16]
        Cell.release.set()
        counts = dict.fromkeys(COUNTS, 0)
        for batch in batches:
            why = _compare(counts, batch, expected(fault, place, setting)) or why
        if ledger:
            why = _check_ledger(counts, options["ledger"], path, batches[0]) or why
    counts["hangs"] = int(turns.hung > 0)
    counts["leaked_tasks"] = turns.leaked
    return {**counts, "why": why, "outcome": outcome_of(batches[0])}


def _prepare(pool: ProcessPool, fault: str) -> None:
    """Have both workers there, so that no cell pays for what the last one did to them."""
    runner = GradingRunner({"judge": judge("no_fault", "process")}, pool=pool)
    asyncio.run(asyncio.wait_for(runner.run(rollouts()), 10))
    if fault == "idle_workers_killed":
        for pid in children():
            os.kill(pid, signal.SIGKILL)
            _until_dead(pid)


def _compare(counts: dict[str, int], found: list[Any], table: list[Expected]) -> str:
    """Count what differs from the table; the first of it in words."""
    why = ""
    fills: dict[Any, set[float | None]] = defaultdict(set)
    for i, (one, should) in enumerate(zip(found, table, strict=True)):
        raises = should.raises or any(other.raises for other in table)
        if isinstance(one, MissingRewardError) and raises:
            continue  # the run's error; of a collected group, its members' (the others have their results)
        if not isinstance(one, RewardResult):
            counts["lost"] += 1
            why = why or f"rollout {i}: {type(one).__name__}"
            continue
        kind, what = _verdict(one, should)
        if should.reward is not None and math.isnan(should.reward):
            fills[one.group].add(one.reward)
        if len(fills[one.group]) > 1:
            kind, what = "wrong_values", "the members of a group without a reward are paid differently"
        if kind:
            counts[kind] += 1
            why = why or f"rollout {i}: {what}"
    return why


def outcome_of(batch: Sequence[Any]) -> str:
    """What came of a batch, in a form that is equal for equal outcomes: each rollout's grade, reward and status."""
    said = []
    for one in batch:
        if not isinstance(one, RewardResult):
            said.append(type(one).__name__)
            continue
        grade = one.grades.get("judge")
        what = f"{grade.error} {grade.cause}" if isinstance(grade, Failed) else type(grade).__name__
        paid = "none" if one.reward is None else "paid" if one.status == "scored" else f"{one.reward:.4g}"
        said.append(f"{what} {one.status} {paid}")
    return "; ".join(said)


def _verdict(result: RewardResult, should: Expected) -> tuple[str, str]:
    grade = result.grades.get("judge")
    paid = f"{result.reward} {result.status}, not {should.reward} {should.status}"
    if should.raises:
        return "silent_numbers", f"{result.reward} {result.status}, not MissingRewardError"
    if should.struck:
        if isinstance(grade, Graded):
            return "silent_numbers", f"score {grade.score} where there is none"
        if should.reward is None and result.reward is not None:
            return "silent_numbers", paid
        if result.status == "scored" != should.status:
            return "silent_numbers", paid
        if should.abstains:
            if not isinstance(grade, Abstained):
                return "wrong_values", f"{grade!r:.80}, not Abstained"
        elif not isinstance(grade, Failed):
            return "wrong_values", f"{grade!r:.80}, not Failed"
        elif should.errors != ("*",) and grade.error not in should.errors:
            return "wrong_values", f"{grade.error}, not {'|'.join(should.errors)}"
        elif grade.cause != should.cause:
            return "wrong_values", f"{grade.error}: cause {grade.cause}, not {should.cause}"
    elif not isinstance(grade, Graded):
        return "wrong_values", f"{grade!r:.80}, not {should.score}"
    elif type(grade.score) is not float or grade.score != should.score:
        return "wrong_values", f"score {grade.score!r}, not {should.score}"
    if not _same(result.reward, should.reward) or result.status != should.status:
        return "wrong_values", paid
    return "", ""


def _same(paid: float | None, should: float | None) -> bool:
    if paid is None or should is None:
        return paid is should
    return 0.0 <= paid <= 1.0 if math.isnan(should) else math.isclose(paid, should, abs_tol=1e-12)


def _check_ledger(counts: dict[str, int], ledger: Ledger, path: str, found: list[Any]) -> str:
    """Every result has its row, and says there what it says here."""
    ledger.close()
    results = [r for r in found if isinstance(r, RewardResult)]
    try:
        entries = list(read_ledger(path).entries) if os.path.exists(path) else []
    except Exception as error:
        counts["lost"] += len(results)
        return f"the ledger cannot be read: {error}"[:120]
    rows = {(e.group, e.index): e for e in entries}
    for result in results:
        row = rows.pop((result.group, result.index), None)
        if row is None:
            counts["lost"] += 1
            return "a result without a row in the ledger"
        if (row.reward, row.status, row.raw_reward) != (result.reward, result.status, result.raw_reward):
            counts["wrong_values"] += 1
            return "the ledger's row says something else than the result"
        if dict(row.grades) != dict(result.grades):
            counts["wrong_values"] += 1
            return "the ledger's row has other grades than the result"
    return ""


# ---- the process around them


def children() -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            found |= set(map(int, (task / "children").read_text().split()))
    return found


def _until_dead(pid: int) -> None:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                return
        except OSError:
            return
        time.sleep(0.002)


def settled(pool: ProcessPool) -> tuple[int, set[int]]:
    """Threads and children once everything that can end has ended."""
    pool.close()
    background.close_background_loop()
    gc.collect()
    end = time.monotonic() + 5
    last = (threading.active_count(), children())
    while time.monotonic() < end:
        time.sleep(0.1)
        now = (threading.active_count(), children())
        if now == last and now[0] == 1 and not now[1]:
            break
        last = now
    return last


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a grader prints must not stand between answers
    pool = ProcessPool(2, memory_mb=1024)
    for line in sys.stdin:
        job = json.loads(line)
        if job == "end":
            for actor in _actors:
                import ray

                ray.kill(actor)
                ray.shutdown()
            threads, processes = settled(pool)
            over = [] if _actors else [*range(threads - 1)]  # Ray keeps threads of its own
            answer = {"leaked_threads": len(over), "leaked_processes": 0 if _actors else len(processes)}
            print(json.dumps(answer), file=out, flush=True)
            return
        answer = grade_cell(pool, **job)
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
