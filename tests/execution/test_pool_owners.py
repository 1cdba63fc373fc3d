"""What belongs to one worker and one rollout: proof, refusals, pipes, and what a rollout leaves behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from judgekit import Rollout
from judgekit.errors import GraderRaised
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.pool import ProcessPool
from judgekit.execution.pool_crew import WorkerTimeout

from .hostile_graders import (
    Breaks,
    Echo,
    Lazy,
    LazyTable,
    LoadsAgain,
    Runs,
    Serves,
    Spins,
    Tells,
    Waits,
    Warm,
)
from .test_pool_faults import alive, children, ends, outcome, rollouts, runner, until, until_dead

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who our children are"),
]


# ---- what a worker has proved


async def test_what_a_second_worker_imports_is_not_the_rollouts(two: ProcessPool) -> None:
    """The grader is proven in the first worker; the second has yet to import what it needs."""
    lazy = runner(Lazy(), two, timeout_s=0.7)
    assert outcome(await ends(lazy.run(rollouts("0.01")))) == [0.0]
    assert outcome(await ends(lazy.run(rollouts("0.4", "0.4")))) == [0.0, 1.0]
    assert two.started >= 2


async def test_what_the_first_worker_imports_is_not_the_rollouts(pool: ProcessPool) -> None:
    """Nobody knows yet how long its imports take: it may take longer once."""
    lazy = runner(Lazy(), pool, timeout_s=0.7)
    assert outcome(await ends(lazy.run(rollouts("0.4", "0.4")))) == [0.0, 1.0]
    assert pool.started == 1


async def test_what_a_replaced_worker_imports_is_not_the_rollouts(pool: ProcessPool) -> None:
    before = children()
    lazy = runner(Lazy(), pool, timeout_s=0.7)
    assert outcome(await ends(lazy.run(rollouts("0.01")))) == [0.0]
    (worker,) = children() - before
    os.kill(worker, signal.SIGKILL)
    await until_dead(worker)
    assert outcome(await ends(lazy.run(rollouts("0.4")))) == [0.0]


async def test_one_runaway_after_another_is_the_rollouts_also_in_a_new_worker(pool: ProcessPool) -> None:
    results = await ends(runner(Spins(), pool, timeout_s=0.3).run(rollouts("a", "spin", "spin", "b")))
    assert outcome(results) == [0.0, "rollout", "rollout", 3.0]


async def test_a_runaway_is_nobodys_while_the_grader_has_answered_nowhere(pool: ProcessPool) -> None:
    spins = PickledGrader("spins", Spins())
    with pytest.raises(WorkerTimeout, match="warm_up"):
        await ends(pool.grade(spins, Rollout(response="spin"), timeout_s=0.1))


async def test_memory_that_a_grader_takes_at_first_use_is_its_own(pool: ProcessPool) -> None:
    """It is no rollout's garbage, for which the worker would be replaced."""
    found = outcome(await ends(runner(LazyTable(), pool).run(rollouts(*"abcde"))))
    assert len(set(found)) == 1
    assert pool.started == 1


# ---- loading


async def two_loads_are_killed(two: ProcessPool, folder: Path) -> asyncio.Task[Any]:
    """A worker holds the grader and is busy; two that load it are killed."""
    act = runner(LoadsAgain(folder, "killed"), two)
    assert outcome(await ends(act.run(rollouts("")))) == [0.0]
    run = asyncio.create_task(ends(act.run(rollouts("waits", *"abcdef"))))
    await until(folder / "begun")
    for load in (1, 2):
        os.kill(await until(folder / f"load-{load}"), signal.SIGKILL)
    return run


async def test_workers_killed_while_they_load_bar_no_grader_that_another_holds(
    two: ProcessPool, tmp_path: Path
) -> None:
    run = await two_loads_are_killed(two, tmp_path)
    await asyncio.sleep(0.2)
    (tmp_path / "release").touch()
    assert outcome(await run) == [float(i) for i in range(7)]
    again = runner(LoadsAgain(tmp_path, "killed"), two)
    assert outcome(await ends(again.run(rollouts(*"abc")))) == [0.0, 1.0, 2.0]


async def test_who_waits_for_a_worker_that_dies_is_told_why_none_can_be_loaded(
    two: ProcessPool, tmp_path: Path
) -> None:
    run = await two_loads_are_killed(two, tmp_path)
    await asyncio.sleep(0.2)
    holder = await until(tmp_path / "load-0")
    os.kill(holder, signal.SIGKILL)
    assert outcome(await run) == ["infrastructure"] * 7


async def test_a_grader_that_fails_to_load_is_graded_by_the_worker_that_holds_it(
    two: ProcessPool, tmp_path: Path
) -> None:
    act = runner(LoadsAgain(tmp_path, "fails"), two)
    assert outcome(await ends(act.run(rollouts("")))) == [0.0]
    run = asyncio.create_task(ends(act.run(rollouts("waits", *"abcdef"))))
    await until(tmp_path / "load-1")
    (tmp_path / "release").touch()
    assert outcome(await run) == [float(i) for i in range(7)]
    assert len(list(tmp_path.glob("load-*"))) == 2


async def test_a_worker_killed_once_while_it_loads_costs_nothing(pool: ProcessPool, tmp_path: Path) -> None:
    run = asyncio.create_task(ends(runner(LoadsAgain(tmp_path, "first"), pool).run(rollouts(*"ab"))))
    os.kill(await until(tmp_path / "load-0"), signal.SIGKILL)
    (tmp_path / "go-1").touch()
    assert outcome(await run) == [0.0, 1.0]


async def test_each_refused_rollout_has_an_error_of_its_own(pool: ProcessPool) -> None:
    """One that is raised again keeps the frames of all whom it was raised for."""
    fails = PickledGrader("fails", Warm("fails"))
    errors: list[GraderRaised] = []
    for _ in range(3):
        with pytest.raises(GraderRaised) as info:
            await pool.grade(fails, Rollout(response=""), timeout_s=5)
        errors.append(info.value)
    assert len(set(map(id, errors))) == 3
    assert len({error.args for error in errors}) == 1
    depths = [len(traceback.extract_tb(error.__traceback__)) for error in errors]
    assert depths[1] == depths[2]


# ---- what a rollout leaves behind

SPY = """
import os, stat, sys, time
folder, own = FOLDER, {os.fstat(1).st_ino, os.fstat(2).st_ino}
def look(me):
    said = b""
    places = [f"/proc/self/fd/{n}" for n in range(64)]
    for pid in WORKERS:
        places += [f"/proc/{pid}/fd/{n}" for n in range(64)]
    for place in places:
        try:
            found = os.stat(place)
            if (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)) and found.st_ino not in own:
                with open(place, "rb", 0, opener=lambda *a: os.open(a[0], os.O_RDONLY | os.O_NONBLOCK)) as file:
                    said += file.read(1 << 20) or b""
        except OSError:
            pass
    with open(f"{folder}/said-{me}", "ab") as file:
        file.write(said)
for me in ("child", "daemon"):
    if not os.fork():
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # nobody waits for it
        if me == "daemon":
            os.setsid()
            if os.fork():
                os._exit(0)
        open(f"{folder}/draft-{me}", "w").write(str(os.getpid()))
        os.rename(f"{folder}/draft-{me}", f"{folder}/pid-{me}")
        while any(os.path.exists(f"/proc/{pid}") for pid in WORKERS):
            look(me)
            time.sleep(0.001)
        os._exit(0)
while len([n for n in os.listdir(folder) if n.startswith("said-")]) < 2:
    time.sleep(0.002)
if WAITS:
    while not os.path.exists(f"{folder}/release"):
        time.sleep(0.002)
os.write(1, b"spied")
os._exit(0)
"""
"""Leaves two processes that read from everything that they inherit, and that a worker has open."""


async def spy(pool: ProcessPool, folder: Path, *, waits: bool) -> Rollout:
    """Return the spy's program, which knows the workers of *pool*."""
    before = children()
    await ends(pool.warm_up([PickledGrader("echo", Echo()), PickledGrader("runs", Runs())]))
    workers = sorted(children() - before)
    assert len(workers) == pool.workers
    return Rollout(response=f"FOLDER, WAITS, WORKERS = {str(folder)!r}, {waits}, {workers}\n{SPY}")


def overheard(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("said-*"))


async def test_what_a_rollout_leaves_behind_reads_no_other(pool: ProcessPool, tmp_path: Path) -> None:
    runs = PickledGrader("runs", Runs())
    spying = await spy(pool, tmp_path, waits=False)
    assert await ends(pool.grade(runs, spying, timeout_s=60)) == "spied"
    pids = [int((tmp_path / f"pid-{name}").read_text()) for name in ("child", "daemon")]
    for i in range(5):
        victim = Rollout(response=f"print({i}) # THE TRUTH", ground_truth="THE TRUTH")
        assert await ends(pool.grade(runs, victim, timeout_s=60)) == f"{i}\n"
        assert not any(map(alive, pids))
    assert pool.started == 1
    assert b"TRUTH" not in overheard(tmp_path)


async def test_a_rollout_reads_no_other_that_is_graded_beside_it(two: ProcessPool, tmp_path: Path) -> None:
    """In another worker, whose open files it may open as well, being the same user."""
    runs = PickledGrader("runs", Runs())
    rollout = await spy(two, tmp_path, waits=True)
    spying = asyncio.create_task(ends(two.grade(runs, rollout, timeout_s=60)))
    await until(tmp_path / "pid-daemon")
    echo = PickledGrader("echo", Echo())
    for i in range(50):
        victim = Rollout(response="THE TRUTH" * 1000, ground_truth="THE TRUTH", id=str(i))
        assert await ends(two.grade(echo, victim, timeout_s=60)) == i
    (tmp_path / "release").touch()
    assert await spying == "spied"
    assert b"TRUTH" not in overheard(tmp_path)


async def test_a_program_inherits_three_descriptors_and_none_of_them_can_be_read(pool: ProcessPool) -> None:
    program = """
import os
print(os.readlink("/proc/self/fd/0"), sorted(set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2})[1:])
"""
    said = await ends(pool.grade(PickledGrader("runs", Runs()), Rollout(response=program), timeout_s=60))
    assert said == "/dev/null []\n"


async def test_a_forked_child_of_a_grader_has_no_connection(pool: ProcessPool, tmp_path: Path) -> None:
    tells = PickledGrader("tells", Tells(tmp_path))
    assert await ends(pool.grade(tells, Rollout(response="sockets of a fork"), timeout_s=60)) == 0
    assert await ends(pool.grade(tells, Rollout(response="input"), timeout_s=60)) == ""
    assert pool.started == 1


@pytest.mark.parametrize("what", ["child", "daemon"])
async def test_a_process_that_is_left_is_gone_before_the_next_rollout(
    what: str, pool: ProcessPool, tmp_path: Path
) -> None:
    tells = PickledGrader("tells", Tells(tmp_path))
    for number in range(3):
        rollout = Rollout(response=what, id=str(number))
        await ends(pool.grade(tells, rollout, timeout_s=60))
        assert not alive(await until(tmp_path / f"left-{number}"))
    assert pool.started == 1


async def test_a_worker_with_a_thread_that_is_left_is_replaced(
    pool: ProcessPool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread can be ended, and it might read what comes next, or compute at its expense."""
    tells = PickledGrader("leaves", Tells(tmp_path))
    with caplog.at_level(logging.WARNING, "judgekit"):
        pids = [
            await ends(pool.grade(tells, Rollout(response=what), timeout_s=60))
            for what in ("", "short thread", "thread", "", "thread", "")
        ]
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4] != pids[5]
    said = [record.message for record in caplog.records if "'leaves' leaves threads" in record.message]
    assert len(said) == 1
    assert "warm_up()" in said[0]


async def test_what_a_grader_starts_as_it_is_loaded_stays(pool: ProcessPool, tmp_path: Path) -> None:
    serves = PickledGrader("serves", Serves(tmp_path))
    pids = set()
    for number, what in enumerate(("", "daemon", "", "child", "")):
        pids.add(await ends(pool.grade(serves, Rollout(response=what, id=str(number)), timeout_s=60)))
    server = int((tmp_path / "server").read_text())
    assert len(pids) == 1
    assert alive(server)
    assert not alive(await until(tmp_path / "left-1"))
    assert not alive(await until(tmp_path / "left-3"))
    pool.close()
    await until_dead(server)


async def test_what_a_rollout_started_in_a_session_of_its_own_ends_with_a_worker_that_is_killed(
    pool: ProcessPool, tmp_path: Path
) -> None:
    tells = PickledGrader("tells", Tells(tmp_path))
    with pytest.raises(WorkerTimeout):
        await ends(pool.grade(tells, Rollout(response="daemon, waits", id="0"), timeout_s=0.5))
    await until_dead(await until(tmp_path / "left-0"))


# ---- kill -9 at every stage (while it loads: above; while it grades: test_pool_faults)


async def test_a_worker_killed_while_it_reads_a_rollout_costs_nothing(pool: ProcessPool) -> None:
    before = children()
    echo = runner(Echo(), pool)
    assert outcome(await ends(echo.run(rollouts("a")))) == [0.0]
    (worker,) = children() - before
    os.kill(worker, signal.SIGSTOP)
    run = asyncio.create_task(ends(echo.run(rollouts("a" * 2_000_000, "b"))))
    await asyncio.sleep(0.3)  # in which a part of it is sent
    os.kill(worker, signal.SIGKILL)
    assert outcome(await run) == [0.0, 1.0]


async def test_a_worker_killed_while_it_answers_costs_nothing(pool: ProcessPool, tmp_path: Path) -> None:
    results = await ends(runner(Breaks(tmp_path), pool).run(rollouts("a", "breaks", "b", "breaks")))
    assert outcome(results) == [0.0, 1.0, 2.0, 3.0]


async def test_a_worker_that_is_stopped_and_goes_on_has_done_nothing_wrong(
    pool: ProcessPool, tmp_path: Path
) -> None:
    run = asyncio.create_task(ends(runner(Waits(tmp_path), pool).run(rollouts(*"ab"))))
    worker = await until(tmp_path / "begun-0")
    os.kill(worker, signal.SIGSTOP)
    await asyncio.sleep(0.3)
    (tmp_path / "release").touch()
    os.kill(worker, signal.SIGCONT)
    assert outcome(await run) == [0.0, 1.0]
    assert pool.started == 1
