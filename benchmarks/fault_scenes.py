"""Faults of a whole host, each in a process of its own: forks, stops, closed outputs, limits of the system, callers that leave.

    python fault_scenes.py NAME

Prints a JSON line per cell: its path (what happens, where), what came of it, and what is not as it should be. What should be is
written here and in fault_table.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fault_cells import COUNTS, _compare, _verdict, build, children, in_place, outcome_of
from fault_graders import Cell, judge, rollouts, rule_score, true_score
from fault_table import TABLE, Expected, expected

from judgekit import (
    Failed,
    Graded,
    GradingRunner,
    Ledger,
    Retry,
    RewardResult,
    Rollout,
    Weighted,
    grader,
    read_ledger,
)
from judgekit.execution.pool import ProcessPool
from judgekit.replay import known_grades

Found = tuple[str, dict[str, Any], str]
"""A cell's path, what is wrong by kind, and its outcome."""
LIMIT_S = 20.0
HERE = Path(__file__)


def found(path: str, batches: Sequence[Sequence[Any]], should: list[Expected], **more: int) -> Found:
    """Compare batches of results with what should be."""
    counts: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), **more}
    why = ""
    for batch in batches:
        why = _compare(counts, list(batch), should) or why
    return path, {**counts, "why": why}, outcome_of(batches[0] if batches else [])


def wrong(path: str, kind: str, why: str) -> Found:
    return path, {**dict.fromkeys(COUNTS, 0), kind: 1, "why": why}, why


def all_right() -> list[Expected]:
    return expected("no_fault", "async", "exclude")


def no_grade(errors: tuple[str, ...] = ("*",)) -> list[Expected]:
    """Every rollout without the judge's grade, for no fault of its own: none is paid."""
    return [Expected(True, errors, "infrastructure", False, 0.0, None, "excluded", False) for _ in rollouts()]


def right_or_unpaid(path: str, results: Sequence[Any]) -> Found:
    """Each rollout has the right reward, or none, and then for no fault of its own."""
    counts = dict.fromkeys(COUNTS, 0)
    why = ""
    for result, right, none in zip(results, all_right(), no_grade(), strict=True):
        if not isinstance(result, RewardResult):
            counts["lost"] += 1
            why = why or f"{type(result).__name__}: {result}"[:100]
            continue
        graded = isinstance(result.grades.get("judge"), Graded)
        kind, what = _verdict(result, right if graded else none)
        if kind:
            counts[kind] += 1
            why = why or f"rollout {result.index}: {what}"
    return path, {**counts, "why": why}, outcome_of(results)


# ---- two graders at once


PAIRED = (
    "raises",
    "rollout_error",
    "system_exit",
    "cancelled_error",
    "nan",
    "none",
    "times_out",
    "fails_for_half",
)


def two_graders() -> Iterator[Found]:
    """Two graders fail in one run, in two places; each of both has to be told, and one missing grade is enough."""
    places = [
        ("thread", "async"),
        ("async", "group"),
        ("process", "inline"),
        ("collected", "collected group"),
    ]
    for (a, b), (at, bt) in itertools.product(itertools.permutations(PAIRED, 2), places):
        if at not in TABLE[a].places or bt not in TABLE[b].places:
            continue
        first, second = expected(a, at, "exclude"), expected(b, bt, "exclude")
        runner = GradingRunner(
            {"rule": rule, "judge": judge(a, at), "other": judge(b, bt)},
            Weighted({"rule": 0.4, "judge": 0.4, "other": 0.2}),
            timeout_s=0.3,
            max_concurrency=8,
        )
        results = _run(in_place(at, runner))
        path = f"two graders: {a}, {b} | {at}, {bt}"
        counts, why = dict.fromkeys(COUNTS, 0), ""
        for result, one, two, rollout in zip(results, first, second, rollouts(), strict=True):
            if not isinstance(result, RewardResult):
                counts["lost"] += 1
                continue
            paid = [_paid(one), _paid(two)]
            should = None
            if None not in paid:
                should = 0.4 * rule_score(rollout) + 0.4 * paid[0] + 0.2 * paid[1]  # type: ignore[operator]
            for name, each in (("judge", one), ("other", two)):
                kind, what = _grade_only(result.grades[name], each)
                if kind:
                    counts[kind] += 1
                    why = why or f"rollout {result.index}: {name} {what}"
            if (result.reward is None) != (should is None):
                counts["silent_numbers" if should is None else "wrong_values"] += 1
                why = why or f"rollout {result.index}: paid {result.reward}, not {should}"
            elif should is not None and abs(should - (result.reward or 0.0)) > 1e-9:
                counts["wrong_values"] += 1
                why = why or f"rollout {result.index}: paid {result.reward}, not {should}"
        yield path, {**counts, "why": why}, outcome_of(results)


def _paid(one: Expected) -> float | None:
    """What a grade counts: nothing if it is missing, the low end if the rollout broke the grader."""
    if not one.struck:
        return one.score
    return 0.0 if one.cause == "rollout" and not one.abstains else None


def _grade_only(grade: Any, should: Expected) -> tuple[str, str]:
    if should.struck and isinstance(grade, Graded):
        return "silent_numbers", f"score {grade.score} where there is none"
    if should.struck and not should.abstains:
        fine = isinstance(grade, Failed) and grade.cause == should.cause
        named = fine and (should.errors == ("*",) or grade.error in should.errors)
        return ("", "") if named else ("wrong_values", f"{grade!r:.80}, not {should.errors}")
    if not should.struck and not (isinstance(grade, Graded) and grade.score == should.score):
        return "wrong_values", f"{grade!r:.80}, not {should.score}"
    return "", ""


@grader
def rule(rollout: Any) -> float:
    return rule_score(rollout)


def _run(coroutine: Any) -> Any:
    """Run it with a time limit, and a new release for its graders."""
    Cell.release = threading.Event()

    async def limited() -> Any:
        async with asyncio.timeout(LIMIT_S):
            return await coroutine

    try:
        return asyncio.run(limited())
    finally:
        Cell.release.set()


# ---- callers that leave


class Waits:
    """The true score, after a moment; where it is asked counts what is asked."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, where: str) -> None:
        self.asked = 0
        if where != "async":
            self.where = where

    def grade(self, rollout: Rollout, /) -> Any:
        self.asked += 1
        time.sleep(0.005)
        return true_score(rollout)


class WaitsAsync(Waits):
    async def grade(self, rollout: Rollout, /) -> float:  # type: ignore[override]
        self.asked += 1
        await asyncio.sleep(0.005)
        return true_score(rollout)


def slow(where: str) -> Any:
    return WaitsAsync(where) if where == "async" else Waits(where)


def _slow_runner(where: str, **options: Any) -> GradingRunner:
    return GradingRunner(
        {"rule": rule, "judge": slow(where)}, {"rule": 0.5, "judge": 0.5}, max_concurrency=2, **options
    )


def left_by_its_caller() -> Iterator[Found]:
    """A caller's own time limit cancels a run; what it graded is in the ledger, and a resumed run pays the same."""
    for where, ms in itertools.product(("async", "thread", "process"), (0, 2, 7, 15, 30)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ledger.jsonl")
            runner = _slow_runner(where, ledger=Ledger(path), pool=_pool())
            asyncio.run(runner.run(rollouts()[:1]))  # what a place needs to start is not of this scene

            async def leave(runner: GradingRunner = runner, ms: int = ms) -> int:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ms / 1000):
                        await runner.run(rollouts())
                return len(asyncio.all_tasks()) - 1

            left = asyncio.run(leave())
            runner.ledger.close()  # type: ignore[union-attr]
            again = _slow_runner(where, ledger=Ledger(path), pool=_pool())
            known = known_grades(read_ledger(path), again, rollouts())
            results = _run(again.run(rollouts(), known=known.grades))
            again.ledger.close()  # type: ignore[union-attr]
            at = "begun" if known.rollouts < 2 else "half" if known.rollouts < 15 else "nearly done"
            yield found(f"the caller leaves: {at} | {where}", [results], all_right(), leaked_tasks=left)


# ---- other loops


def uvloop() -> Iterator[Found]:
    """The faults of a judge on the event loop, on uvloop."""
    import uvloop as other

    for fault, row in TABLE.items():
        for place in ("async", "group", "collected"):
            if place not in row.places:
                continue
            Cell.release = threading.Event()

            async def limited(fault: str = fault, place: str = place) -> Any:
                async with asyncio.timeout(LIMIT_S):
                    found = await in_place(place, build(fault, place, "exclude", ""))
                Cell.release.set()
                await asyncio.sleep(0.05)
                return found, len(asyncio.all_tasks()) - 1

            results, left = other.run(limited())
            should = expected(fault, place, "exclude")
            yield found(f"uvloop: {fault} | {place}", [results], should, leaked_tasks=left)


# ---- forks


def fork() -> Iterator[Found]:
    """A host forks while its other threads grade; parent and child grade with the same runner."""
    for where in ("async", "thread", "process"):
        runner = _slow_runner(where, pool=_pool()).with_settings(shared=True)
        asyncio.run(runner.run(rollouts()))
        end = threading.Event()
        ours: list[Any] = []

        def grade(runner: GradingRunner = runner, end: threading.Event = end, ours: list[Any] = ours) -> None:
            while not end.is_set():
                ours.extend(asyncio.run(runner.run(rollouts())))

        threads = [threading.Thread(target=grade, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        context = multiprocessing.get_context("fork")
        batches: list[list[Any]] = []
        hangs = 0
        for _ in range(8):
            ask, answer = context.Pipe(False)

            def work(answer: Any = answer, runner: GradingRunner = runner) -> None:
                answer.send(asyncio.run(runner.run(rollouts())))
                answer.close()
                os._exit(0)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                child = context.Process(target=work)
                child.start()
            if ask.poll(LIMIT_S):
                batches.append(ask.recv())
            else:
                hangs += 1
            child.kill()
            child.join()
            ask.close()
            answer.close()
        end.set()
        for thread in threads:
            thread.join(LIMIT_S)
        batches += [ours[i : i + 16] for i in range(0, len(ours), 16)]
        yield found(f"a fork beside grading threads | {where}", batches, all_right(), hangs=hangs)


def spawn() -> Iterator[Found]:
    """Children that a host starts anew grade by themselves."""
    context = multiprocessing.get_context("spawn")
    for where in ("async", "process"):
        with context.Pool(2) as pool:
            batches = pool.map_async(_spawned, [where] * 4).get(6 * LIMIT_S)
        yield found(f"spawned children | {where}", batches, all_right())


def _spawned(where: str) -> list[Any]:
    logging.disable(logging.CRITICAL)
    return _slow_runner(where, pool=_pool()).run_sync(rollouts())


# ---- stops


def stopped_worker() -> Iterator[Found]:
    """A worker that is stopped and continued in its middle: nobody is blamed."""
    pool = ProcessPool(1)
    runner = GradingRunner(
        {"rule": rule, "judge": slow("process")}, {"rule": 0.5, "judge": 0.5}, pool=pool, timeout_s=0.5
    )
    asyncio.run(runner.run(rollouts()))
    for pause_s in (0.1, 1.5):

        async def stop(pause_s: float = pause_s) -> Any:
            run = asyncio.create_task(runner.run(rollouts()))
            await asyncio.sleep(0.02)
            pids = children()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(pause_s)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            return await run

        results = _run(stop())
        long = pause_s > 0.5
        yield right_or_unpaid(
            f"a worker stopped {'beyond' if long else 'within'} its limit | process", results
        )
        yield found("the run after it | process", [_run(runner.run(rollouts()))], all_right())
    pool.close()


def stopped_host() -> Iterator[Found]:
    """A host that is stopped and continued: time passes, and is nobody's fault."""
    for where in ("async", "thread", "process"):
        host = subprocess.Popen(
            [sys.executable, HERE, "host", where],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        assert host.stdout is not None
        host.stdout.readline()
        time.sleep(0.05)
        os.killpg(host.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.killpg(host.pid, signal.SIGCONT)
        try:
            lines = host.communicate(timeout=LIMIT_S)[0].splitlines()
            rows = json.loads(lines[-1]) if lines else []
        except subprocess.TimeoutExpired:
            os.killpg(host.pid, signal.SIGKILL)
            yield wrong(f"a host stopped and continued | {where}", "hangs", "it does not go on")
            continue
        yield right_or_unpaid(f"a host stopped and continued | {where}", [_result(row) for row in rows])


def host(where: str) -> None:
    """The host of `stopped_host`: says when it grades, and then its results."""
    runner = GradingRunner(
        {"rule": rule, "judge": slow(where)},
        {"rule": 0.5, "judge": 0.5},
        max_concurrency=1,
        timeout_s=0.5,
        pool=_pool(),
    )
    asyncio.run(runner.run(rollouts()[:1]))
    print("grading", flush=True)
    results = asyncio.run(runner.run(rollouts()))
    print(json.dumps([_row(result) for result in results]), flush=True)


def _row(result: RewardResult) -> list[Any]:
    grade = result.grades["judge"]
    said = [grade.error, grade.cause] if isinstance(grade, Failed) else [result.score("judge")]
    return [result.index, result.reward, result.status, said]


def _result(row: list[Any]) -> RewardResult:
    index, reward, status, said = row
    grade: Any = Graded(said[0]) if len(said) == 1 else Failed(said[0], cause=said[1])
    return RewardResult(
        index=index, group=index // 4, reward=reward, status=status, raw_reward=reward, contributions={},
        grades={"judge": grade},
    )  # fmt: skip


# ---- limits of the system


def no_descriptors() -> Iterator[Found]:
    """No file can be opened, as where a trainer's data loader has taken all descriptors; and then again."""
    for where in ("async", "thread", "process"):
        with tempfile.TemporaryDirectory() as folder:
            ledger = Ledger(os.path.join(folder, "ledger.jsonl"))
            pool = ProcessPool(2)
            runner = _slow_runner(where, ledger=ledger, pool=pool)

            async def starved(runner: GradingRunner = runner) -> tuple[list[Any], list[Any]]:
                soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
                try:
                    results: list[Any] = await _outcome(runner)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                return results, await runner.run(rollouts())

            results, after = _run(starved())
            if all(isinstance(one, RewardResult) for one in results):
                yield right_or_unpaid(f"no descriptors | {where}", results)
            else:  # the ledger cannot be opened: said before anything is graded
                named = all(type(one).__name__ == "ConfigError" for one in results)
                yield (
                    f"no descriptors | {where}",
                    {**dict.fromkeys(COUNTS, 0), "lost": 0 if named else 16, "why": str(results[0])[:100]},
                    type(results[0]).__name__,
                )
            ledger.close()
            yield found(f"descriptors again | {where}", [after], all_right())
            pool.close()


async def _outcome(runner: GradingRunner) -> list[Any]:
    try:
        async with asyncio.timeout(LIMIT_S / 2):
            return list(await runner.run(rollouts()))
    except Exception as error:
        return [error] * 16


def no_threads() -> Iterator[Found]:
    """The system gives no thread, as under a limit of processes; and then again."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    for where in ("async", "thread", "process"):
        with tempfile.TemporaryDirectory() as folder:
            ledger = Ledger(os.path.join(folder, "ledger.jsonl"))
            runner = _slow_runner(where, ledger=ledger, pool=_pool())
            asyncio.run(runner.run(rollouts()[:1]))
            threading.Thread.start = refuse  # type: ignore[method-assign]
            try:
                results = _run(_outcome(runner))
            finally:
                threading.Thread.start = start  # type: ignore[method-assign]
            yield right_or_unpaid(f"no thread | {where}", results)
            yield found(f"threads again | {where}", [_run(runner.run(rollouts()))], all_right())
            ledger.close()
            rows = len(read_ledger(ledger.path).entries)
            if rows != 1 + 16 + 16:
                yield wrong(f"no thread, its ledger | {where}", "lost", f"{rows} rows of 33")


# ---- clocks


def clock_that_jumps() -> Iterator[Found]:
    """The wall clock is set back and forth by a day during a run that is left, and one that goes on from its ledger."""
    real = time.time
    for jumps in ((-86400.0,), (86400.0,), (-86400.0, 86400.0)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ledger.jsonl")
            shift = itertools.cycle((0.0, *jumps))
            time.time = lambda: real() + next(shift)  # noqa: B023
            try:
                for half in (rollouts()[:8], rollouts()):
                    runner = _slow_runner("async", ledger=Ledger(path))
                    reading = read_ledger(path) if os.path.exists(path) else None
                    known = known_grades(reading, runner, half).grades if reading else ()
                    results = _run(runner.run(half, known=known))
                    runner.ledger.close()  # type: ignore[union-attr]
                entries = read_ledger(path, replaced=True).entries
            finally:
                time.time = real
            path_ = f"the clock jumps by {', '.join(f'{jump / 86400:+.0f} d' for jump in jumps)} | async"
            unfinished = sum(entry.status == "unfinished" for entry in entries)
            yield found(
                path_, [results], all_right(), lost=max(0, 16 - len({e.id for e in entries})) + unfinished
            )


# ---- the interpreter


_SHUTDOWN = """
import atexit, sys, threading
sys.path[:0] = {path!r}
from fault_scenes import _slow_runner, rollouts, _pool, _row
import json
def grade():
    try:
        rows = [_row(r) for r in _slow_runner({where!r}, pool=_pool()).run_sync(rollouts())]
    except BaseException as error:
        rows = f"{{type(error).__name__}}: {{error}}"
    print(json.dumps(rows), flush=True)
if {way!r} == "atexit":
    atexit.register(grade)
elif {way!r} == "thread":
    threading.Thread(target=grade).start()
else:
    class Late:
        def __del__(self): grade()
    late = Late()
"""


def _in_a_process(code: str) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None if it has none."""
    try:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None


def interpreter_shutdown() -> Iterator[Found]:
    """`run_sync` while the interpreter ends: results, or an error that says so, and an end."""
    for way, where in itertools.product(
        ("atexit", "thread", "finalizer"), ("inline", "async", "thread", "process")
    ):
        code = _SHUTDOWN.format(path=sys.path[:2], where=where, way=way)
        path = f"run_sync at the interpreter's end: {way} | {where}"
        ended = _in_a_process(code)
        if ended is None:
            yield wrong(path, "hangs", "it does not end")
            continue
        lines = ended.stdout.splitlines()
        said = json.loads(lines[-1]) if lines else ended.stderr[-200:]
        if isinstance(said, list):
            yield right_or_unpaid(path, [_result(row) for row in said])
        else:  # an error is fine, silence is not
            yield (
                path,
                {**dict.fromkeys(COUNTS, 0), "lost": 0 if said else 16, "why": str(said)},
                str(said)[:40],
            )


_CLOSED = """
import os, sys
sys.path[:0] = {path!r}
import json, asyncio
from fault_scenes import _slow_runner, rollouts, _pool, _row
out = os.dup(1)
for number in {numbers!r}:
    os.close(number)
runner = _slow_runner({where!r}, pool=_pool(), progress=True)
rows = [_row(r) for r in asyncio.run(runner.run(rollouts()))]
os.write(out, json.dumps(rows).encode())
os._exit(0)
"""


def closed_outputs() -> Iterator[Found]:
    """A host whose standard output, error or input is closed, as a daemon's."""
    for numbers, where in itertools.product(
        ((1,), (2,), (0,), (0, 1, 2)), ("inline", "async", "thread", "process")
    ):
        code = _CLOSED.format(path=sys.path[:2], numbers=numbers, where=where)
        path = f"closed: {', '.join(map(str, numbers))} | {where}"
        ended = _in_a_process(code)
        if ended is None:
            yield wrong(path, "hangs", "it does not end")
            continue
        if not ended.stdout:
            yield wrong(path, "lost", f"it ends with {ended.returncode} {ended.stderr[-100:]}")
            continue
        yield found(path, [[_result(row) for row in json.loads(ended.stdout)]], all_right())


def retried() -> Iterator[Found]:
    """A grader that is unavailable at first, in every place, with retries: paid right, or unpaid."""
    for where, times, attempts in itertools.product(("inline", "thread", "async"), (1, 2, 3), (2, 4)):
        runner = GradingRunner(
            {"rule": rule, "judge": AtFirst(where, times)},
            {"rule": 0.5, "judge": 0.5},
            retry=Retry(attempts=attempts, wait_initial_s=0, wait_max_s=0.001, budget=100),
        )
        results = _run(runner.run(rollouts()))
        should = all_right() if attempts > times else no_grade(("JudgeUnavailable",))
        yield found(
            f"unavailable {'for good' if attempts <= times else 'at first'} | {where}", [results], should
        )


class AtFirst:
    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, where: str, times: int) -> None:
        self.calls: dict[str, int] = {}
        self.times = times
        self.where = "inline" if where == "async" else where
        if where == "async":
            self.grade = self._later  # type: ignore[method-assign]

    def grade(self, rollout: Rollout, /) -> Any:
        from judgekit import JudgeUnavailable

        self.calls[rollout.id] = calls = self.calls.get(rollout.id, 0) + 1
        if calls <= self.times:
            raise JudgeUnavailable("starting")
        return true_score(rollout)

    async def _later(self, rollout: Rollout, /) -> Any:
        await asyncio.sleep(0)
        return AtFirst.grade(self, rollout)


_pools: list[ProcessPool] = []


def _pool() -> ProcessPool:
    if not _pools:
        _pools.append(ProcessPool(2))
    return _pools[0]


SCENES: dict[str, Callable[[], Iterator[Found]]] = {
    scene.__name__: scene
    for scene in (
        two_graders,
        left_by_its_caller,
        uvloop,
        fork,
        spawn,
        stopped_worker,
        stopped_host,
        no_descriptors,
        no_threads,
        clock_that_jumps,
        interpreter_shutdown,
        closed_outputs,
        retried,
    )
}


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if sys.argv[1] == "host":
        return host(sys.argv[2])
    for path, counts, outcome in SCENES[sys.argv[1]]():
        print(json.dumps([path, counts, outcome]), flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main()
