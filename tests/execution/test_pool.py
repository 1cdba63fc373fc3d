"""Killable workers: what hangs is killed, what dies is replaced, start-up is paid once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, Failed, Graded, GradingRunner, Rollout, grader
from judgekit.errors import GraderRaised
from judgekit.execution import pool_worker, watchdog
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.pool import ProcessPool

sys.path.insert(0, str(Path(__file__).parent))  # the workers inherit it
from pool_graders import Act


@pytest.fixture
def pool(two: ProcessPool) -> ProcessPool:
    return two


def acts(*names: str) -> list[Rollout]:
    return [Rollout(response=name) for name in names]


async def test_each_fault_costs_its_own_grade_and_says_whose_fault(pool: ProcessPool) -> None:
    runner = GradingRunner({"act": Act()}, pool=pool, timeout_s=1.0)
    names = ("fine", "spin", "memory", "die", "raise", "bomb", "recurse", "print", "fine")
    results = dict(zip(names, await runner.run(acts(*names)), strict=False))
    found = {n: r.grades["act"] for n, r in results.items()}
    assert found["fine"] == found["print"] == Graded(0.5)
    faults = {n: (g.error, g.cause) for n, g in found.items() if isinstance(g, Failed)}
    assert faults == {
        "spin": ("WorkerRanAway", "rollout"),
        "memory": ("MemoryError", "rollout"),
        "die": ("WorkerDied", "rollout"),
        "raise": ("ValueError", "infrastructure"),
        "bomb": ("RolloutError", "rollout"),
        "recurse": ("RecursionError", "rollout"),
    }
    assert (
        pool.started <= 6
    )  # two, a second try for each of two that lost theirs, and one for each that was lost


async def test_a_worker_that_waits_is_not_the_rollouts_fault(pool: ProcessPool) -> None:
    (result,) = await GradingRunner({"act": Act()}, pool=pool, timeout_s=0.5).run(acts("sleep"))
    grade = result.grades["act"]
    assert isinstance(grade, Failed)
    assert grade.cause == "infrastructure"


async def test_workers_stay_for_many_runs(pool: ProcessPool) -> None:
    for _ in range(3):
        await GradingRunner({"act": Act()}, pool=pool).run(acts(*["fine"] * 20))
    assert pool.started == 2


async def test_cancelling_kills_what_runs(pool: ProcessPool) -> None:
    runner = GradingRunner({"act": Act()}, pool=pool, timeout_s=60, deadline_s=0.7)
    results = await runner.run(acts("spin", "spin", "spin"))
    assert {r.grades["act"].error for r in results} == {"DeadlineExceeded"}  # type: ignore[union-attr]
    assert (await GradingRunner({"act": Act()}, pool=pool).run(acts("fine")))[0].reward == 0.5


def test_several_loops_and_threads_share_a_pool(pool: ProcessPool) -> None:
    runner = GradingRunner({"act": Act()}, pool=pool)
    found: list[float | None] = []

    def work() -> None:
        found.extend(r.reward for r in asyncio.run(runner.run(acts(*["fine"] * 10))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0.5] * 40


def test_closing_ends_the_processes(pool: ProcessPool) -> None:
    before = set(_children())  # of other tests' pools
    asyncio.run(GradingRunner({"act": Act()}, pool=pool).run(acts("fine", "fine")))
    assert set(_children()) - before
    pool.close()
    assert not set(_children()) - before


def test_what_cannot_be_sent_is_said_at_construction() -> None:
    lock = threading.Lock()

    @grader(where="process")
    def locked(response: str) -> float:
        with lock:
            return 1.0

    with pytest.raises(
        ConfigError, match=r"'locked' runs in a worker .*lock' object.* in the worker: in the"
    ):
        GradingRunner({"locked": locked})


def test_a_function_within_a_function_is_sent_by_value(pool: ProcessPool) -> None:
    pays = 0.25
    local = grader(where="process", name="local")(lambda response: pays)
    assert GradingRunner({"local": local}, pool=pool).run_sync(acts("fine"))[0].reward == 0.25


def test_a_function_with_a_cache_is_sent_with_a_cache_of_its_own() -> None:
    calls: list[int] = []

    def tenth(value: int) -> float:
        calls.append(value)
        return value / 10

    tenth.__module__ = "__main__"
    cached = functools.lru_cache(maxsize=3)(tenth)
    cached(7)
    again = pickle.loads(PickledGrader("cached", cached).payload)
    assert [again(7), again(7)] == [0.7, 0.7]
    assert again.cache_parameters() == {"maxsize": 3, "typed": False}
    assert (again.cache_info().misses, calls) == (1, [7])


SCRIPT = """
    import sys
    from dataclasses import dataclass
    from functools import cache
    from judgekit import GradingRunner, Rollout, grader
    from judgekit.execution.pool import ProcessPool

    @grader(where="process")
    def size(response: str) -> float:
        while response == "spin":
            pass
        return len(response) / SCALE

    SCALE = 10

    @dataclass
    class Truth:
        value: float

    class Ours:
        name, version, score_range, where = "ours", "1", (0.0, 1.0), "process"

        def grade(self, rollout):
            return scaled(rollout.ground_truth.value)

    @cache
    def scaled(value):
        return value / SCALE

    runner = GradingRunner({"size": size, "ours": Ours()}, pool=ProcessPool(1), timeout_s=60)
    print(runner.run_sync([Rollout(response="abc", ground_truth=Truth(5.0))])[0].reward, flush=True)
    if len(sys.argv) > 1:
        runner.run_sync([Rollout(response="spin", ground_truth=Truth(5.0))])
"""
"""A training script as people write them: nothing keeps it from training again where it is run again."""


@pytest.mark.parametrize("interactive", [False, True])
def test_graders_of_the_main_script_work(interactive: bool, tmp_path: Path) -> None:
    """In a script, and in an interactive session, which has no file."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, "-" if interactive else script],
        input=script.read_text() if interactive else "",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "0.4\n"
    assert done.stderr == ""


def test_a_daemon_without_standard_error_has_workers_too(tmp_path: Path) -> None:
    """What a grader prints then goes nowhere, least of all between its replies."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("while response ==", "print(1)\n    while response =="))
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, str(script)]
    done = subprocess.run(closed, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0.4\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the system must kill children with their parent")
def test_a_spinning_worker_does_not_outlive_its_owner(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    owner = subprocess.Popen([sys.executable, script, "spin"], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    owner.stdout.readline()
    time.sleep(0.3)
    (worker,) = _children(owner.pid)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 5
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(worker)


def _children(pid: int | None = None) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            found += map(int, (task / "children").read_text().split())
    return [child for child in found if _alive(child)]


def _alive(pid: int) -> bool:
    try:
        return b"judgekit.execution.pool_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


SPAWNING = """
import multiprocessing
from judgekit import GradingRunner, Rollout

class Own:
    "A grader of the script itself, in a worker process."
    name, version, score_range, where = "own", "1", (0.0, 1.0), "process"
    def grade(self, rollout):
        return float(rollout.response) / 10

def work(start):
    batch = [Rollout(response=str(start + i), group=i) for i in range(3)]
    return [result.reward for result in GradingRunner([Own()]).run_sync(batch)]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, [0, 3]))
"""


def test_a_spawned_child_of_a_script_sends_the_scripts_graders(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNING)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == "[[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]]\n", ended.stderr


def test_a_system_without_proc_tells_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_worker.memory() > 1 << 20
    monkeypatch.setattr("builtins.open", lambda *args: (_ for _ in ()).throw(FileNotFoundError(args[0])))
    assert pool_worker.memory() == 0


def test_memory_that_killed_processes_shared_is_removed_and_what_others_use_is_not() -> None:
    segments = [shared_memory.SharedMemory(create=True, size=100) for _ in range(2)]
    left, used = ("/" + segment.name.lstrip("/") for segment in segments)
    try:
        segments[0].close()  # as of a process that was killed: nobody has it open, and its file is there
        watchdog.forget_shared_memory({left, used})
        assert [os.path.exists(f"/dev/shm{name}") for name in (left, used)] == [False, True]
    finally:
        segments[1].close()
        segments[1].unlink()


async def test_a_grader_is_pickled_where_it_has_not_been(pool: ProcessPool) -> None:
    assert await pool.grade(Act(), Rollout(response="x"), timeout_s=30) == 0.5
    with pytest.raises(GraderRaised, match="boom"):
        await pool.grade(Act(), Rollout(response="raise"), timeout_s=30)


class Unloadable:
    """Cannot be unpickled in a worker."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


async def test_warming_up_raises_what_loading_raises(pool: ProcessPool) -> None:
    with pytest.raises(GraderRaised, match="no number"):
        await pool.warm_up([PickledGrader("broken", Unloadable())])
    with pytest.raises(GraderRaised, match="no number"):
        await pool.warm_up([PickledGrader("act", Act()), PickledGrader("broken", Unloadable())])
    assert await pool.grade(Act(), Rollout(response="x"), timeout_s=30) == 0.5
