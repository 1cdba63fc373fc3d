"""What is known of other processes, and the process that ends them once their owner has died."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

import pytest

from judgekit.execution import watchdog
from judgekit.execution.watchdog import Pulse, Watchdog, descendants, shared_memory, start_time

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")


class Proc:
    """A /proc of its own: by process id its parent, its state, its ticks, and when it was started."""

    def __init__(self) -> None:
        self.stats: dict[int, str] = {}
        self.maps: dict[int, str] = {}
        self.now = 0.0

    def has(self, pid: int, *, parent: int = 1, state: str = "S", user: int = 0, system: int = 0) -> None:
        rest = ["0"] * 9 + [str(user), str(system)] + ["0"] * 6 + [str(100 + pid)] + ["0"] * 30
        self.stats[pid] = f"{pid} (a) name (with) R parts) {state} {parent} {' '.join(rest)}\n"

    def open(self, path: str, mode: str = "r") -> Any:
        _, _, pid, name = path.split("/")
        of = self.stats if name == "stat" else self.maps
        if int(pid) not in of:
            raise FileNotFoundError(path)
        return io.BytesIO(of[int(pid)].encode()) if "b" in mode else io.StringIO(of[int(pid)])

    def listdir(self, path: str) -> list[str]:
        return ["self", "sys", *map(str, self.stats)]

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch) -> Proc:
    made = Proc()
    monkeypatch.setattr(watchdog, "open", made.open, raising=False)
    monkeypatch.setattr(watchdog.os, "listdir", made.listdir)
    monkeypatch.setattr(watchdog.os, "sysconf", lambda name: {"SC_CLK_TCK": 100}[name])
    monkeypatch.setattr(watchdog, "time", made)
    return made


def test_descendants_are_children_of_children_and_nobody_else(proc: Proc) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 10), (13, 11), (14, 13), (20, 1), (21, 20)):
        proc.has(pid, parent=parent)
    proc.stats[99] = "99"
    assert descendants(10) == {11, 12, 13, 14}
    assert descendants(11) == {13, 14}
    assert descendants(13, 20) == {14, 21}
    assert descendants(14) == descendants() == descendants(77) == set()


def test_a_start_time_names_a_process_that_runs(proc: Proc) -> None:
    for pid, state in ((10, "S"), (11, "R"), (12, "Z"), (13, "X"), (14, "D"), (15, "T")):
        proc.has(pid, state=state)
    assert [start_time(pid) for pid in range(9, 16)] == [None, 110, 111, None, None, 114, 115]
    proc.stats[16] = "16 (short) S 1"
    assert start_time(16) is None


def test_this_process_has_a_start_time_and_a_child_that_has_ended_has_none() -> None:
    mine = start_time(os.getpid())
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    its = start_time(child.pid)
    assert mine is not None
    assert its is not None
    assert its >= mine
    assert child.pid in descendants(os.getpid())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert start_time(child.pid) is None
    child.communicate()


@pytest.mark.parametrize(
    ("change", "still"),
    [
        ({}, True),
        ({"user": 10}, True),  # 0.1 s of 5 s are no work
        ({"system": 10}, True),
        ({"user": 11}, False),
        ({"user": 6, "system": 5}, False),
        ({"state": "R"}, False),
        ({"state": "D"}, False),
        ({"state": "T"}, True),
    ],
)
def test_who_takes_hardly_any_cpu_stands_still(change: dict[str, Any], still: bool, proc: Proc) -> None:
    proc.has(10)
    proc.has(11, parent=10)
    pulse = Pulse([10])
    proc.now = 5.0
    proc.has(11, parent=10, **change)
    assert pulse.stood_still() is still


def test_who_worked_as_the_look_began_did_not_stand_still(proc: Proc) -> None:
    proc.has(10, state="R", user=100)
    pulse = Pulse([10])
    proc.now = 5.0
    proc.has(10, user=100)
    assert not pulse.stood_still()
    assert Pulse([10]).stood_still()


def test_who_has_come_meanwhile_does_not_stand_still_and_nobody_is_no_process(proc: Proc) -> None:
    proc.has(10)
    pulse = Pulse([10, 50])
    assert pulse.stood_still()  # one that is gone says nothing
    proc.has(11, parent=10)
    assert not pulse.stood_still()
    del proc.stats[10], proc.stats[11]
    assert not pulse.stood_still()
    assert not Pulse([]).stood_still()
    proc.stats[10] = "10 (short) S 1 0"
    assert not Pulse([10]).stood_still()


def test_segments_of_shared_memory_are_those_that_python_makes(proc: Proc) -> None:
    proc.maps[10] = (
        "7f00-7f01 rw-s 00000000 00:1a 42  /dev/shm/psm_abc\n7f02-7f03 rw-s 00000000 00:1a 42  /dev/shm/psm_abc\n"
        "7f04-7f05 rw-s 00000000 00:1a 43  /dev/shm/psm_def (deleted)\n7f06-7f07 rw-s 00 00:1a 44  /dev/shm/other\n"
        "7f08-7f09 rw-p 00000000 00:00 0\n"
    )
    assert shared_memory(10) == {"/psm_abc", "/psm_def"}
    assert shared_memory(11) == set()


def test_segments_that_nobody_has_mapped_are_forgotten(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    untracked: list[tuple[str, str]] = []

    def unlink(path: str) -> None:
        if path.endswith("gone"):
            raise FileNotFoundError(path)
        removed.append(path)

    monkeypatch.setattr(watchdog.os, "unlink", unlink)
    monkeypatch.setattr(resource_tracker, "unregister", lambda *given: untracked.append(given))
    proc.has(10)
    proc.maps[10] = "7f00-7f01 rw-s 00000000 00:1a 42  /dev/shm/psm_used\n"
    watchdog.forget_shared_memory({"/psm_left", "/psm_used", "/psm_gone"})
    assert (removed, untracked) == (["/dev/shm/psm_left"], [("/psm_left", "shared_memory")])
    watchdog.forget_shared_memory(set())
    assert len(removed) == 1


# ---- the process that watches


@pytest.fixture
def sleeper() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


def test_what_is_watched_ends_with_the_watchdog_and_nothing_else_does(
    sleeper: Callable[[], subprocess.Popen[bytes]],
) -> None:
    watched, other, late = sleeper(), sleeper(), sleeper()
    dog = Watchdog()
    assert os.getsid(dog._process.pid) == dog._process.pid  # signals to our group do not reach it
    dog.watch({watched.pid})
    dog.watch({watched.pid, late.pid})
    assert dog.watched == {watched.pid, late.pid}
    assert watched.poll() is None
    dog.close()
    assert [process.wait(20) for process in (watched, late)] == [-signal.SIGTERM] * 2
    assert other.poll() is None
    assert dog._process.poll() == 0
    dog.close()


def test_a_watchdog_that_has_ended_disturbs_nobody(sleeper: Callable[[], subprocess.Popen[bytes]]) -> None:
    dog = Watchdog()
    dog._process.kill()
    dog._process.wait()
    dog.watch({sleeper().pid})
    dog.close()


def test_a_watchdog_that_does_not_end_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = Watchdog()
    asked: list[float] = []

    def wait(seconds: float) -> int:
        asked.append(seconds)
        raise subprocess.TimeoutExpired("watchdog", seconds)

    with monkeypatch.context() as patch:
        patch.setattr(dog._process, "wait", wait)
        dog.close()
    assert asked == [10]
    dog._process.wait(30)


OWNER = """
import sys
from judgekit.execution.watchdog import Watchdog
dog = Watchdog()
dog.watch({int(sys.argv[1])})
print("watched", flush=True)
input()
"""


def test_what_is_watched_ends_when_its_owner_is_killed(
    sleeper: Callable[[], subprocess.Popen[bytes]],
) -> None:
    watched = sleeper()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(watched.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"watched\n"
    owner.kill()
    owner.communicate()
    assert watched.wait(30) == -signal.SIGTERM
