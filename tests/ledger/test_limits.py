"""How long a ledger waits for its disk, how much it keeps meanwhile, and what it leaves open."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from judgekit import Failed, GradingRunner, Ledger, RewardResult, Rollout, grader, read_ledger
from judgekit.ledger import writer
from judgekit.ledger.schema import Comparison, Entry, Spec
from judgekit.ledger.tail import Tail
from judgekit.types import Usage
from judgekit.version import __version__


@grader
def half(response: str) -> float:
    return 0.5


SPEC = GradingRunner([half]).spec
MB = 1 << 20


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize(("size", "waits"), [(16 * MB - 1, []), (16 * MB, [0.1])])
async def test_whoever_makes_16_mb_that_wait_is_held_back_for_a_tenth_of_a_second(
    size: int, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "l")
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        ledger._size = 0

    monkeypatch.setattr(writer, "asyncio", SimpleNamespace(sleep=sleep))
    ledger._size, ledger._began = size, time.monotonic()
    await ledger.catch_up()
    assert waited == waits


@pytest.mark.parametrize(
    ("failing", "began", "takes"), [(False, 90.5, True), (False, 90.0, False), (True, 99.0, False)]
)
def test_a_disk_that_has_taken_nothing_for_ten_seconds_takes_nothing(
    failing: bool, began: float, takes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: 100.0))
    ledger = Ledger(tmp_path / "l")
    ledger._failing, ledger._began = failing, began
    assert ledger._takes_lines() is takes


@pytest.mark.parametrize(("more", "dropped"), [(0, 0), (1, 1)])
def test_256_mb_wait_for_a_disk_that_takes_nothing_and_no_byte_more(
    more: int, dropped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "l")
    monkeypatch.setattr(ledger, "_started_thread", lambda: True)
    ledger._failing = True
    ledger._size = 256 * MB - len(writer.encoded(SPEC)) + more
    ledger.write(SPEC)
    assert (ledger.dropped, len(ledger._lines)) == (dropped, 1 - dropped)
    if not more:
        assert ledger._size == 256 * MB
    ledger._reset()


def test_a_disk_that_takes_lines_may_have_more_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "l")
    monkeypatch.setattr(ledger, "_started_thread", lambda: True)
    ledger._size, ledger._began = 300 * MB, time.monotonic()
    ledger.write(SPEC)
    assert (ledger.dropped, len(ledger._lines)) == (0, 1)
    ledger._reset()


class Waits:
    """How long a ledger has waited for what; no wait is long."""

    def __init__(self, ledger: Ledger) -> None:
        self.timeouts: list[float | None] = []
        real = ledger._changed.wait_for

        def wait_for(condition: Callable[[], Any], timeout: float | None = None) -> Any:
            self.timeouts.append(timeout)
            return real(condition, None if timeout is None else 0.02)

        ledger._changed.wait_for = wait_for  # type: ignore[method-assign, assignment]


def test_how_long_a_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger(tmp_path / "l")
    waits = Waits(ledger)
    monkeypatch.setattr(os, "fsync", refuse)
    ledger.write(SPEC)
    wait_for(lambda: waits.timeouts.count(1.0) > 1)  # before it is tried again
    waits.timeouts.clear()
    assert ledger.flush() is False
    assert 60.0 in waits.timeouts
    waits.timeouts.clear()
    ledger.wait_for_lines(failing=True)
    assert 10.0 in waits.timeouts
    waits.timeouts.clear()
    ledger.close()
    assert 10.0 in waits.timeouts
    wait_for(lambda: ledger._thread is None)


def test_lines_that_come_together_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    ledger = Ledger(tmp_path / "l")
    ledger.write(SPEC)
    ledger.close()
    wait_for(lambda: slept)
    assert set(slept) == {0.001}


def test_the_thread_that_writes_ends_with_the_process(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    ledger.write(SPEC)
    thread = ledger._thread
    assert thread is not None
    assert (thread.daemon, thread.name) == (True, "judgekit-ledger")
    ledger.write(SPEC)
    assert ledger._thread is thread
    ledger.close()
    thread.join()


def test_a_deleted_file_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    ledger.write(SPEC)
    ledger.flush()
    path.unlink()
    ledger.write(SPEC)
    ledger.flush()
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)]
    assert held.count(str(path)) == 1
    assert f"{path} (deleted)" not in held
    ledger.close()


def _is_link(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_an_error_without_words_of_the_system_is_told_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [OSError("an odd one")]

    def fsync(fd: int) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(writer, "_RETRY_S", 0.01)
    ledger = Ledger(tmp_path / "l")
    ledger.write(SPEC)
    wait_for(lambda: not failures and ledger.flush())
    ledger.close()
    assert caplog.messages == [
        f"the ledger {tmp_path / 'l'} cannot be written (an odd one): 1 lines wait for it, 0 were dropped; grading goes on"
    ]


def test_a_spec_is_written_once_and_again_in_a_new_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    other = msgspec.structs.replace(SPEC, digest="other")
    for spec in (SPEC, other, SPEC, other):
        ledger.begin(spec)
    ledger.flush()
    assert (tmp_path / "l").read_text().count('"type":"spec"') == 2
    (tmp_path / "l").unlink()
    ledger.begin(SPEC)
    ledger.write(other)
    ledger.close()
    assert list(read_ledger(tmp_path / "l").specs) == [SPEC.digest, "other"]


def test_a_thread_waits_until_its_lines_are_written(tmp_path: Path, released: threading.Event) -> None:
    ledger = Ledger(tmp_path / "l")
    ledger.write(SPEC)
    over: list[bool] = []
    waiting = threading.Thread(target=lambda: over.append(ledger.wait_for_lines(failing=False) is None))
    waiting.start()
    waiting.join(0.02)
    assert over == []
    released.set()
    waiting.join()
    assert (over, ledger.lost) == ([True], 0)
    ledger.close()


# ---- what a line says


def test_each_field_of_an_entry_is_that_of_its_result_or_its_rollout() -> None:
    rollout = Rollout(response="said", prompt="q", group="g", id="i")
    result = RewardResult(
        index=3, group="h", reward=None, status="masked", raw_reward=0.25, contributions={"a": 0.5}, grades={"a": Failed("E")},
        group_numbers={"spread(a)": None}, usage=Usage(1, 2, 3, 4), missing=("a",), policies=("b", "c"),
    )  # fmt: skip
    given = {
        "spec": "s", "run": "r", "order": 5, "group_first": 2, "tags": {"step": 1},
        "compared": {"a": Comparison("r 1", 4)},
    }  # fmt: skip
    made = Entry.of(result, rollout, digest="d", **given)
    told = msgspec.structs.asdict(made)
    assert abs(told.pop("time") - time.time()) < 60
    assert told == {
        **given, "index": 3, "group": "h", "id": "i", "reward": None, "status": "masked", "raw_reward": 0.25,
        "contributions": {"a": 0.5}, "turns": (), "grades": {"a": Failed("E")}, "group_numbers": {"spread(a)": None},
        "missing": ("a",), "policies": ("b", "c"), "usage": Usage(1, 2, 3, 4), "wall_s": 0.0, "data_source": "",
        "finish_reason": None, "response_tokens": None, "response_chars": 4, "rollout_digest": "d", "prompt": None,
        "messages": (), "response": None, "ground_truth": None, "extra": {},
    }  # fmt: skip


def test_a_spec_says_how_rollouts_are_graded() -> None:
    made = Spec.of({}, reward={"score": "a"}, transform="center", missing_reward=0.5, drop_if="spread < 1")
    bare = Spec.of({}, reward={"score": "a"}, transform="center", missing_reward=0.5)
    assert (made.graders, made.reward, made.transform) == ({}, {"score": "a"}, "center")
    assert (made.missing_reward, made.drop_if, bare.drop_if) == (0.5, "spread < 1", None)
    assert (made.judgekit, made.format) == (__version__, 1)


# ---- reading


def test_a_line_that_is_not_utf_8_or_too_deep_is_torn_for_whoever_follows(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_bytes(
        b'{"type":"rollout","id":"\xff"}\n'
        + b'{"type":"rollout","ground_truth":'
        + b"[" * 5000
        + b"]" * 5000
        + b"}\n \n"
        + writer.encoded(SPEC)
    )
    tail = Tail(path)
    assert (tail.read(), list(tail.specs)) == ([], [SPEC.digest])
    assert tail.torn == 2


def test_a_ledger_may_begin_with_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_bytes(b'{"type":"ro\n' + writer.encoded(SPEC))
    reading = read_ledger(path)
    assert (reading.torn, list(reading.specs), reading.entries) == ([1], [SPEC.digest], [])
