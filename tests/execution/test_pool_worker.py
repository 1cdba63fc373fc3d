"""The program of a worker: what it answers, to whom, and what it says of itself."""

from __future__ import annotations

import io
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from judgekit import Rollout, RolloutError
from judgekit.execution import pool_worker
from judgekit.execution.pool_worker import (
    FULL,
    HEADER,
    PROCESSES,
    THREADS,
    Residents,
    cap_memory,
    children,
    failure,
    has_children,
    load,
    memory,
    read,
)

pytestmark = pytest.mark.timeout(60)
PROGRAM = "from judgekit.execution.pool_worker import main; main()"


class Odd(Exception):
    retryable = True


class Host:
    """Asks a worker by hand."""

    def __init__(self, memory_mb: int = 1024, parent: int | None = None) -> None:
        ours, theirs = socket.socketpair()
        program = [
            sys.executable,
            "-c",
            PROGRAM,
            str(parent or os.getpid()),
            str(memory_mb),
            str(theirs.fileno()),
        ]
        self.process = subprocess.Popen(program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.stream = ours.makefile("rwb")
        ours.close()

    def ask(self, number: int, *request: Any) -> tuple[int, Any]:
        """Return why the worker is to be replaced, and its reply."""
        data = pickle.dumps(request)
        self.stream.write(HEADER.pack(len(data), number, 0) + data)
        self.stream.flush()
        size, answered, why = HEADER.unpack(self.stream.read(HEADER.size))
        assert answered == number
        return why, pickle.loads(self.stream.read(size))

    def load(self, grader: Any, key: bytes = b"g", drop: tuple[bytes, ...] = ()) -> tuple[int, Any]:
        return self.ask(1, "load", key, cloudpickle.dumps(grader), drop)

    def grade(self, response: str = "x", key: bytes = b"g", number: int = 2) -> tuple[int, Any]:
        return self.ask(number, "grade", key, pickle.dumps(Rollout(response=response)))

    def close(self) -> None:
        self.stream.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def host() -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def start(**options: Any) -> Host:
        made.append(Host(**options))
        return made[-1]

    yield start
    for one in made:
        one.close()


def graded_by(function: Callable[[str], Any], **more: Any) -> Any:
    """A grader that is sent by value."""

    def grade(self: Any, rollout: Any) -> Any:
        return function(rollout.response)

    return type("Made", (), {"grade": grade, **more, "__module__": "__main__"})()


def test_each_request_has_the_reply_of_its_number(host: Callable[..., Host]) -> None:
    one = host()
    assert one.load(graded_by(len)) == (0, ("ok", False))
    one.process.send_signal(signal.SIGINT)  # an interrupt is the host's to handle
    for number in (7, 3, 2**63):
        assert one.grade("x" * (number % 5), number=number) == (0, ("ok", number % 5))
    assert one.load(graded_by(len, warm_up=lambda self: None), b"warm") == (0, ("ok", True))
    assert one.grade("abc", b"warm") == (0, ("ok", 3))
    assert one.load(graded_by(str.upper), b"third", drop=(b"g", b"unknown")) == (0, ("ok", False))
    assert one.grade("abc", b"third") == (0, ("ok", "ABC"))
    assert one.grade("abc", b"g")[1][:2] == ("error", "KeyError")  # it was dropped


def test_an_error_is_a_reply_and_the_worker_goes_on(host: Callable[..., Host]) -> None:
    def answer(response: str) -> Any:
        if response == "exits":
            sys.exit(3)
        if response == "cannot be sent":
            return lambda: None
        if response == "memory":
            return len(bytearray(1 << 45))
        return {"value": ValueError("of the grader"), "code": response}

    one = host(memory_mb=64)
    assert one.load(graded_by(answer))[1] == ("ok", False)
    assert one.grade("exits")[1] == ("error", "SystemExit", "3", False, False)
    assert one.grade("cannot be sent")[1][0] == "error"
    assert one.grade("memory")[1][:3] == (
        "error",
        "MemoryError",
        "more than 64 MiB for one rollout (set by ProcessPool(memory_mb=…))",
    )
    assert one.grade("fine")[1][0] == "ok"
    assert one.load(graded_by(len, warm_up=lambda self: 1 / 0), b"broken")[1][:2] == (
        "error",
        "ZeroDivisionError",
    )
    assert (
        one.grade("x", b"broken")[1][:2] == ("error", "KeyError")
        or one.grade("x", b"broken")[1][0] == "error"
    )


def test_a_worker_whose_graders_hold_half_of_its_memory_is_full(host: Callable[..., Host]) -> None:
    """What it took to load them, and to answer for the first time, does not count."""

    def keeps(response: str) -> int:
        kept = keeps.__dict__.setdefault("kept", [])
        kept.append(b"x" * (int(response) << 20))
        return len(kept)

    one = host(memory_mb=40)
    one.load(graded_by(keeps))
    assert one.grade("30") == (0, ("ok", 1))
    assert one.grade("10") == (0, ("ok", 2))
    assert one.grade("15") == (FULL, ("ok", 3))


def test_threads_and_processes_that_a_rollout_leaves_are_told_and_those_of_loading_are_not(
    host: Callable[..., Host],
) -> None:
    def leaves(response: str) -> int:
        import subprocess
        import threading

        if response == "thread":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        if response == "process":
            return subprocess.Popen(["sleep", "600"]).pid
        if response == "short thread":
            threading.Thread(target=int).start()
        return threading.active_count()

    def warm_up(self: Any) -> None:
        import threading

        threading.Thread(target=threading.Event().wait, daemon=True).start()

    one = host()
    one.load(graded_by(leaves, warm_up=warm_up))
    assert one.grade("nothing") == (0, ("ok", 2))
    why, (_, pid) = one.grade("process")
    assert (why, os.path.exists(f"/proc/{pid}")) == (0, False)
    assert one.grade("short thread")[0] == 0
    assert one.grade("thread") == (THREADS, ("ok", 3))


def test_a_worker_ends_with_its_host_and_one_that_comes_too_late_does_not_begin(
    host: Callable[..., Host],
) -> None:
    one, orphan = host(), host(parent=1)
    assert orphan.process.wait(30) == 0  # who it was started by has ended: it is another's child now
    assert one.load(graded_by(len))[0] == 0
    one.stream.close()
    assert one.process.wait(30) == 0


# ---- its parts


@pytest.mark.parametrize(
    ("error", "grading", "reply"),
    [
        (ValueError("v"), True, ("ValueError", "v", False, False)),
        (Odd("o"), True, ("Odd", "o", True, False)),
        (RolloutError("r"), True, ("RolloutError", "r", False, True)),
        (RolloutError("r"), False, ("RolloutError", "r", False, False)),
        (RecursionError("deep"), True, ("RecursionError", "deep", False, True)),
        (MemoryError("m"), True, ("MemoryError", "m", False, True)),
        (MemoryError(), False, ("MemoryError", "", False, False)),
        (MemoryError(), True, ("MemoryError", "more than 7 MiB for one rollout (set by ProcessPool(memory_mb=…))", False, True)),
        (SystemExit(3), True, ("SystemExit", "3", False, False)),
    ],
)  # fmt: skip
def test_an_error_says_what_who_and_whether_to_try_again(
    error: BaseException, grading: bool, reply: Any
) -> None:
    assert failure(error, grading=grading, memory_mb=7) == ("error", *reply)


def test_a_request_is_read_whole_or_not_at_all() -> None:
    whole = HEADER.pack(3, 7, 0) + b"abc"
    assert read(io.BytesIO(whole + b"more")) == (7, b"abc")
    assert read(io.BytesIO(HEADER.pack(0, 8, 0))) == (8, b"")
    for size in range(len(whole)):
        assert read(io.BytesIO(whole[:size])) is None

    class Gone(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError

    assert read(Gone()) is None


def test_a_grader_is_warmed_up_if_it_can_be() -> None:
    warmed = load(cloudpickle.dumps(graded_by(len, warm_up=lambda self: setattr(self, "warm", True))))
    assert warmed.warm
    one = graded_by(len, warm_up=None)
    assert load(cloudpickle.dumps(one)).warm_up is None
    assert load(pickle.dumps(3)) == 3


@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, 1 << 60, 1 << 20])
def test_memory_is_limited_by_what_may_come_on_top_and_never_above_the_system_s_limit(
    hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(pool_worker, "memory", lambda: 5_000_000)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: given.append((which, limits)))
    assert cap_memory(10) == cap_memory(None) == 5_000_000
    limit = 5_000_000 + 10 * 2**20
    assert given == [
        (resource.RLIMIT_DATA, (min(limit, hard) if hard == 1 << 20 else limit, hard)),
        (resource.RLIMIT_DATA, (hard, hard)),
    ]

    def refuse(*_: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    for error in (ValueError, OSError):
        monkeypatch.setattr(resource, "setrlimit", lambda *_, error=error: (_ for _ in ()).throw(error("no")))
        assert cap_memory(10) == 5_000_000
    monkeypatch.setitem(sys.modules, "resource", None)  # a system without it
    assert cap_memory(10) == 5_000_000


def test_memory_is_what_the_process_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    before = memory()
    block = bytearray(os.urandom(1)) * (64 << 20)
    assert 60 << 20 < memory() - before < 80 << 20
    del block


def in_child(work: Callable[[], bool]) -> bool:
    """Whether *work* is true in a process without children."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_process_has_children_until_they_are_waited_for() -> None:
    def work() -> bool:
        alone = not has_children() and children(os.getpid()) == set()
        pid = os.fork()
        if pid == 0:
            signal.pause()
        both = has_children() and children(os.getpid()) == {pid}
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        zombie = has_children()
        os.waitpid(pid, 0)
        return alone and both and zombie and not has_children()

    assert in_child(work)
    assert children(2**22 + 1) == set()


def test_who_was_there_before_a_rollout_stays_and_whoever_came_with_it_ends() -> None:
    def sleeper() -> int:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        return pid

    def work() -> bool:
        nobody = Residents()
        fine = nobody.processes == set() and nobody.end_others() == 0
        resident = sleeper()
        residents = Residents()
        fine &= residents.processes == {resident} and residents.end_others() == 0
        sleeper()
        sleeper()
        fine &= residents.end_others() == 0 and children(os.getpid()) == {resident}
        fine &= nobody.end_others() == 0 and not has_children()
        return fine

    assert in_child(work)


def test_a_process_that_cannot_be_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    residents = Residents()
    monkeypatch.setattr(pool_worker, "has_children", lambda: True)
    monkeypatch.setattr(pool_worker, "children", lambda pid: residents.processes | {2**22 + 1})

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert residents.end_others() == PROCESSES
    tried: list[int] = []

    def gone(pid: int, number: int) -> None:
        tried.append(pid)
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    assert residents.end_others() == PROCESSES  # they never end
    assert set(tried) == {2**22 + 1}


def test_a_thread_that_ends_soon_is_waited_for_and_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    residents, over = Residents(), threading.Event()
    residents.processes = set()
    monkeypatch.setattr(pool_worker, "has_children", lambda: False)
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert residents.end_others() == THREADS
    monkeypatch.setattr(pool_worker, "_ENDING_S", 30)
    threading.Timer(0.01, over.set).start()
    assert residents.end_others() == 0
    thread.join()
