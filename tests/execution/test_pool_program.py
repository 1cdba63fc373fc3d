"""A worker's program in the test's own process: what it asks of the system, and when."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys
from typing import Any

import cloudpickle
import pytest

from judgekit import Rollout
from judgekit.execution import pool_worker
from judgekit.execution.pool_worker import FULL, HEADER, PROCESSES, THREADS

PARENT, MEMORY_MB = 4321, 64


class Grader:
    def grade(self, rollout: Rollout) -> Any:
        if rollout.response == "raises":
            raise MemoryError
        if rollout.response == "cannot be sent":
            return lambda: None
        return len(rollout.response)


class Warm(Grader):
    def warm_up(self) -> None:
        pass


class Program:
    """Runs `main` on requests; `said` is what it asked of the system, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.said: list[Any] = []
        self.memory = self.why = 0
        self.standard_error = True
        self.number = -1

    def _say(self, name: str, value: Any = None) -> Any:
        def called(*args: Any, **_: Any) -> Any:
            self.said.append((name, *args))
            return value

        return called

    def __call__(self, *requests: tuple[Any, ...]) -> list[tuple[int, int, Any]]:
        ours, theirs = socket.socketpair()
        self.number = theirs.detach()
        with ours:
            for serial, request in enumerate(requests, 5):
                data = pickle.dumps(request)
                ours.sendall(HEADER.pack(len(data), serial, 0) + data)
            ours.shutdown(socket.SHUT_WR)
            with self.patch.context() as patch:
                self._replace(patch)
                pool_worker.main()
            stream = ours.makefile("rb")
            replies = []
            while head := stream.read(HEADER.size):
                size, serial, why = HEADER.unpack(head)
                replies.append((serial, why, pickle.loads(stream.read(size))))
            return replies

    def _replace(self, patch: pytest.MonkeyPatch) -> None:
        program = self

        class Residents:
            def __init__(self) -> None:
                program.said.append("residents")

            def end_others(self) -> int:
                program.said.append("others end")
                return program.why

        def stat(number: int) -> None:
            if not program.standard_error:
                raise OSError

        patch.setattr(sys, "argv", ["-c", str(PARENT), str(MEMORY_MB), str(self.number)])
        patch.setattr(os, "set_inheritable", self._say("inheritable"))
        patch.setattr(os, "register_at_fork", lambda after_in_child: self.said.append("at fork"))
        patch.setattr(os, "dup2", self._say("dup2"))
        patch.setattr(os, "nice", self._say("nice"))
        patch.setattr(os, "fstat", stat)
        patch.setattr(signal, "signal", self._say("signal"))
        patch.setattr(pool_worker, "die_with_parent", self._say("die with"))
        patch.setattr(pool_worker, "cap_memory", self._say("cap", 1 << 20))
        patch.setattr(pool_worker, "memory", lambda: self.memory)
        patch.setattr(pool_worker, "Residents", Residents)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def load(grader: Any, key: bytes = b"g", drop: tuple[bytes, ...] = ()) -> tuple[Any, ...]:
    return "load", key, cloudpickle.dumps(grader), drop


def grade(response: str = "abc", key: bytes = b"g") -> tuple[Any, ...]:
    return "grade", key, pickle.dumps(Rollout(response=response))


def test_a_program_prepares_its_process_before_it_reads(program: Program) -> None:
    assert program() == []
    assert program.said == [
        ("inheritable", program.number, False),
        "at fork",
        ("signal", signal.SIGINT, signal.SIG_IGN),
        ("die with", PARENT),
        ("dup2", 2, 1),
        ("nice", 10),
        "residents",
    ]


def test_a_program_without_standard_error_writes_to_nobody(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.standard_error = False
    opened: list[Any] = []

    def open_(path: str, flags: int) -> int:
        opened.append((path, flags))
        return 77

    monkeypatch.setattr(os, "open", open_)
    program()
    assert opened == [("/dev/null", os.O_WRONLY)]
    assert program.said[4:6] == [("inheritable", 77, True), ("dup2", 2, 1)]


def test_loading_has_no_limit_and_what_it_took_is_the_base_of_the_next(program: Program) -> None:
    assert program(load(Grader()), load(Warm(), b"w", (b"g", b"unknown"))) == [
        (5, 0, ("ok", False)),
        (6, 0, ("ok", True)),
    ]
    assert program.said[6:] == ["residents"] + [("cap", None), "residents", ("cap", MEMORY_MB)] * 2


def test_a_first_answer_may_load_and_later_ones_may_not(program: Program) -> None:
    replies = program(load(Grader()), grade("raises"), grade(), grade("four"))
    assert [reply[2][:2] for reply in replies] == [
        ("ok", False),
        ("error", "MemoryError"),
        ("ok", 3),
        ("ok", 4),
    ]
    assert replies[1][2][2:] == (
        "more than 64 MiB for one rollout (set by ProcessPool(memory_mb=…))",
        False,
        True,
    )
    caps = [("cap", MEMORY_MB), "others end"]
    assert program.said[8:] == ["residents", *caps, "others end", ("cap", MEMORY_MB), "others end"]


def test_a_grader_that_was_warmed_up_has_nothing_to_load_in_its_first_answer(program: Program) -> None:
    program(load(Warm()), grade())
    assert program.said[-2:] == [("cap", MEMORY_MB), "others end"]


@pytest.mark.parametrize("taken", [0, 1])
def test_graders_that_hold_more_than_half_of_the_memory_fill_their_worker(
    taken: int, program: Program
) -> None:
    program.memory = (1 << 20) + (MEMORY_MB << 19) + taken
    assert [reply[1] for reply in program(load(Warm()), grade(), grade("raises"))] == [0] + [FULL * taken] * 2


@pytest.mark.parametrize("why", [THREADS, PROCESSES])
def test_what_is_left_is_told_before_memory_is(why: int, program: Program) -> None:
    program.why, program.memory = why, 1 << 40
    assert [reply[1] for reply in program(load(Warm()), grade())] == [0, why]


def test_what_fails_outside_of_a_grade_is_no_rollout_s(program: Program) -> None:
    unknown, broken, unsent = program(
        grade(key=b"?"), ("load", b"g", b"no pickle", ()), grade("cannot be sent")
    )
    assert unknown[2][:2] == ("error", "KeyError")
    assert broken[2][:2] == ("error", "UnpicklingError")
    assert {reply[2][4] for reply in (unknown, broken, unsent)} == {False}
    assert program.said.count("others end") == 3


def test_a_child_of_a_worker_has_no_way_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[Any] = []
    program = Program(monkeypatch)
    replace = program._replace

    def keep(patch: pytest.MonkeyPatch) -> None:
        replace(patch)
        patch.setattr(os, "register_at_fork", lambda after_in_child: hooks.append(after_in_child))

    monkeypatch.setattr(program, "_replace", keep)
    program()
    monkeypatch.setattr(os, "open", lambda path, flags: (path, flags))
    monkeypatch.setattr(os, "dup2", lambda old, new: (old, new))
    assert hooks[0]() == (("/dev/null", os.O_RDWR), program.number)


@pytest.mark.parametrize(("platform", "asked"), [("linux", [(1, signal.SIGKILL), (36, 1)]), ("darwin", [])])
def test_the_system_ends_a_worker_with_its_parent(
    platform: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    class Library:
        def __init__(self, name: None) -> None:
            pass

        def prctl(self, *args: int) -> None:
            said.append(args)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    monkeypatch.setattr(sys, "platform", platform)
    pool_worker.die_with_parent(os.getppid())
    assert said == asked
    with pytest.raises(SystemExit) as caught:
        pool_worker.die_with_parent(os.getppid() + 1)
    assert caught.value.code is None


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_a_system_that_cannot_do_it_is_no_error(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def library(name: None) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", library)
    pool_worker.die_with_parent(os.getppid())
