"""How lines reach the file: buffered, forced, by several processes, and in a form that reads back."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from judgekit import ConfigError, DataError, Graded, GradingRunner, Ledger, Rollout, grader, read_ledger
from judgekit.ledger import writer
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import Entry
from judgekit.service.once import Recall


@grader
def half(response: str) -> float:
    return 0.5


def entry(ledger: Ledger, text: str = "x", **fields: Any) -> Entry:
    rollout = Rollout(response=text, **fields)
    (result,) = GradingRunner([half]).run_sync([rollout])
    return Entry.of(result, rollout, texts=ledger.texts, spec="s", run="r", tags={"step": 1})


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_ledger_is_sent_to_other_processes_as_its_settings(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", texts=True, fsync="batch")
    ledger.write(entry(ledger))
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.path, again.texts, again.fsync) == (tmp_path / "l", True, "batch")
    again.write(entry(again))
    again.close()
    ledger.close()
    assert lines(tmp_path / "l") == 2


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_lines_reach_the_file_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    one = entry(ledger)
    ledger.write(one)
    wait_for(lambda: lines(path) == 1)
    for _ in range(2000):
        ledger.write(one)
    assert ledger.flush()
    assert lines(path) == 2001
    ledger.close()


@pytest.mark.parametrize("fsync", ["never", "batch"])
def test_what_is_forced_to_the_disk_is_what_fsync_says(
    fsync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    ledger = Ledger(tmp_path / "l", fsync=fsync)
    one = entry(ledger)
    for _ in range(3):
        ledger.write(one)
        ledger.flush()
    assert len(calls) == (3 if fsync == "batch" else 0)
    ledger.close()


KILLED = """
    import os, signal, sys, time
    from judgekit import GradingRunner, Ledger, Rollout, grader

    @grader
    async def slow(response: str) -> float:
        import asyncio
        await asyncio.sleep(3600 if response == "never" else 0)
        return 1.0

    runner = GradingRunner([slow], ledger=Ledger(sys.argv[1]))
    import threading
    batch = [Rollout(response=str(i), group=i) for i in range(60)] + [Rollout(response="never", group=99)] * 4
    threading.Thread(target=runner.run_sync, args=(batch,), daemon=True).start()
    while runner.metrics.counts.rollouts < 60:
        time.sleep(0.01)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_it_has_graded(tmp_path: Path) -> None:
    path = tmp_path / "l"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(read_ledger(path).entries) == 60


async def test_a_cancelled_run_leaves_the_grades_of_rollouts_that_wait_for_their_group(
    tmp_path: Path,
) -> None:
    @grader
    async def judge(response: str) -> float:
        await asyncio.sleep(0 if response else 3600)
        return 0.5

    path = tmp_path / "l"
    runner = GradingRunner([judge], transform="center", ledger=Ledger(path))
    task = asyncio.create_task(runner.run([Rollout(response="x" * i, group=0) for i in range(8)]))
    while sum(map(len, runner.metrics.timings("judge"))) < 15:  # eight have begun, seven have ended
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    found = await asyncio.to_thread(read_ledger, path)
    assert sorted(e.response_chars for e in found.entries) == list(range(1, 8))
    assert {e.status for e in found.entries} == {"unfinished"}
    assert all(e.reward is None and e.grades["judge"] == Graded(0.5) for e in found.entries)


async def test_grades_that_wait_for_their_group_are_in_the_file_meanwhile(tmp_path: Path) -> None:
    """A host that is killed then loses none that was paid for; what is written again at the end counts."""
    release = asyncio.Event()

    @grader
    async def judge(response: str) -> float:
        if not response:
            await release.wait()
        return 0.5

    path = tmp_path / "l"
    ledger = Ledger(path)
    runner = GradingRunner([judge], transform="center", ledger=ledger)
    task = asyncio.create_task(runner.run([Rollout(response="x" * i, group=0) for i in range(4)]))
    while lines(path) < 4:  # how it is graded, and the three members that wait
        await asyncio.sleep(0.01)
    waiting = [e for e in read_ledger(path).entries]
    assert sorted(e.response_chars for e in waiting) == [1, 2, 3]
    assert {(e.status, e.reward) for e in waiting} == {("unfinished", None)}
    release.set()
    await task
    found = await asyncio.to_thread(read_ledger, path)
    assert [(e.response_chars, e.status, e.reward) for e in found.entries] == [
        (i, "scored", 0.0) for i in range(4)
    ]
    ledger.close()


@pytest.mark.parametrize("transform", ["none", "center"])
@pytest.mark.parametrize("judges", [1, 2, 3])
async def test_a_line_is_written_for_each_grade_with_which_a_rollout_does_not_finish(
    judges: int, transform: Any, tmp_path: Path
) -> None:
    """Rules alone get none: computing them again costs nothing. The texts stand in the rollout's own line."""

    def made(name: str, turns: int) -> Any:
        @grader(name=name)
        async def judge(response: str) -> float:
            for _ in range(turns):
                await asyncio.sleep(0)
            return 0.5

        return judge

    path = tmp_path / "l"
    graders = [half, *(made(f"judge{i}", 10 * i) for i in range(judges))]
    ledger = Ledger(path, texts=True)
    await GradingRunner(graders, ledger=ledger, transform=transform).run(
        [Rollout(response="x" * 500 + str(i), group=i // 4) for i in range(8)]
    )
    await asyncio.to_thread(ledger.close)
    rows = [json.loads(line) for line in path.read_text().splitlines()][1:]
    assert [row["order"] for row in rows] == list(range(1, len(rows) + 1))
    for i in range(8):
        *before, own = [row for row in rows if row["index"] == i]
        assert [list(row["grades"]) for row in before] == [
            ["half", *(f"judge{i}" for i in range(count))] for count in range(1, len(before) + 1)
        ]
        assert not any(row.get("response") or row["status"] != "unfinished" for row in before)
        assert (own["status"], len(own["grades"]), len(own["response"])) == ("scored", judges + 1, 501)
    finals = [row["order"] for row in rows if row["status"] == "scored"]
    assert len(rows) - len(finals) == 8 * (judges - 1) + (6 if transform == "center" else 0)


class Disk:
    """Takes a few bytes, then nothing, then all again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.real = os.write
        self.path = path
        self.room: float = math.inf
        self.refused = 0
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(writer, "_RETRY_S", 0.02)

    def write(self, fd: int, data: Any) -> int:
        if os.readlink(f"/proc/self/fd/{fd}") != str(self.path):
            return self.real(fd, data)
        if self.room <= 0:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        part = bytes(data)[: int(min(self.room, len(data)))]
        self.room -= len(part)
        return self.real(fd, part)


def test_a_full_disk_costs_no_reward_and_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "l"
    disk = Disk(monkeypatch, path)
    ledger = Ledger(path)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="before")])
    disk.room = 200  # less than a line
    results = runner.run_sync([Rollout(response="x" * i, group=i) for i in range(10)])
    assert [r.reward for r in results] == [0.5] * 10
    wait_for(lambda: disk.refused > 1)
    assert not ledger.flush(5)
    assert "cannot be written (No space left on device): " in caplog.text
    disk.room = 1500
    wait_for(lambda: disk.refused > 5 and disk.room <= 0)
    disk.room = math.inf
    runner.run_sync([Rollout(response="after" * 9)])
    wait_for(ledger.flush)
    reading = read_ledger(path)
    assert sorted(e.response_chars for e in reading.entries) == sorted([6, *range(10), 45])
    assert reading.torn  # the halves of lines that were written again
    assert (ledger.dropped, ledger.lost) == (0, 0)
    assert caplog.text.count("cannot be written") == 1  # however often it was tried
    for _ in range(20):  # that it has failed once is no reason not to wait
        ledger.write(entry(ledger))
        assert ledger.flush()
    ledger.close()


def test_a_file_that_its_server_has_forgotten_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of an NFS server: every call on the open file fails for ever, and the path is well."""
    path = tmp_path / "l"
    monkeypatch.setattr(writer, "_RETRY_S", 0.02)
    ledger = Ledger(path)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="before")])
    wait_for(ledger.flush)
    forgotten, real = os.fstat(ledger._fd).st_ino, os.fstat  # type: ignore[arg-type]
    path.rename(tmp_path / "old")  # what stands under the path now is another file

    def fstat(fd: int) -> os.stat_result:
        found = real(fd)
        if found.st_ino == forgotten:
            raise OSError(errno.ESTALE, "Stale file handle")
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    runner.run_sync([Rollout(response="meanwhile")])
    wait_for(ledger.flush)
    (entry,) = read_ledger(path).entries
    assert (entry.response_chars, entry.reward, ledger.dropped) == (9, 0.5, 0)
    ledger.close()


class SlowDisk:
    """Takes every line, in its own time, while all limits are small. Counts the bytes that wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self.takes: Callable[[], bool] = lambda: True
        """Whether it takes anything now; it waits until then."""
        real, add = os.write, Ledger.add
        monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 100_000)
        monkeypatch.setattr(writer, "_MANY_BYTES", 50_000)
        monkeypatch.setattr(writer, "_HELD_BACK_S", 0.01)

        def slow(fd: int, data: Any) -> int:
            time.sleep(0.03)
            wait_for(self.takes)
            return real(fd, data)

        def counted(ledger: Ledger, make: Any) -> None:
            add(ledger, make)
            self.most = max(self.most, ledger._size)

        monkeypatch.setattr(os, "write", slow)
        monkeypatch.setattr(Ledger, "add", counted)


@grader
async def quick_judge(response: str) -> float:
    await asyncio.sleep(0)
    return 0.5


@grader
def slow_rule(response: str) -> float:
    time.sleep(0.0002)
    return 0.5


@pytest.mark.parametrize("rule", [quick_judge, slow_rule])
def test_a_disk_slower_than_the_graders_gets_every_line(
    rule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    ledger = Ledger(tmp_path / "l")
    GradingRunner([rule], ledger=ledger, max_concurrency=8).run_sync(
        [Rollout(response="x", group=i) for i in range(2000)]
    )
    ledger.close()
    assert (lines(tmp_path / "l"), ledger.dropped) == (2001, 0)
    assert disk.most < 500_000  # whoever makes lines is held back


async def test_many_short_runs_are_held_back_by_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([half], ledger=ledger).with_settings(shared=True)

    async def ask() -> None:
        for _ in range(100):
            await runner.run([Rollout(response="x")])

    await asyncio.gather(*(ask() for _ in range(10)))
    await runner.close()
    assert (lines(tmp_path / "l"), ledger.dropped) == (1001, 0)
    assert disk.most < 200_000


async def test_a_slow_disk_does_not_delay_the_start_of_a_run_with_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = False

    async def catch_up(self: Ledger) -> None:
        nonlocal asked
        asked = True

    monkeypatch.setattr(Ledger, "catch_up", catch_up)
    for deadline_s in (60, None):
        ledger = Ledger(tmp_path / f"{deadline_s}")
        await GradingRunner([slow_rule], ledger=ledger, deadline_s=deadline_s).run([Rollout(response="x")])
        ledger.close()
        assert asked is (deadline_s is None)


def test_a_slow_disk_costs_no_grade_under_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes nothing until everything is graded: so nobody was held back."""
    disk = SlowDisk(monkeypatch)
    monkeypatch.setattr(writer, "_EXIT_S", 3600)
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([half], ledger=ledger, deadline_s=3600)
    disk.takes = lambda: runner.metrics.counts.rollouts == 1000
    results = runner.run_sync([Rollout(response="x", group=i) for i in range(1000)])
    ledger.close()
    assert {r.reward for r in results} == {0.5}
    assert disk.most > 100_000
    assert (lines(tmp_path / "l"), ledger.dropped) == (1001, 0)


def test_a_run_that_is_held_back_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    monkeypatch.setattr(writer, "_HELD_BACK_S", 3600)
    over = threading.Event()
    disk.takes = over.is_set
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([slow_rule], ledger=ledger)

    async def work() -> None:
        task = asyncio.create_task(runner.run([Rollout(response="x", group=i) for i in range(2000)]))
        while disk.most < 50_000:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(work())
    over.set()
    ledger.close()
    assert ledger.dropped == 0


def test_closing_waits_for_a_disk_that_takes_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowDisk(monkeypatch)
    monkeypatch.setattr(writer, "_EXIT_S", 0.2)
    ledger = Ledger(tmp_path / "l")
    one = entry(ledger)
    for _ in range(2000):
        ledger.write(one)
    ledger.close()
    assert (lines(tmp_path / "l"), ledger.dropped) == (2000, 0)


def test_lines_that_a_hanging_disk_costs_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = threading.Event()
    real = os.write

    def write(fd: int, data: Any) -> int:
        hanging.wait()
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(writer, "_EXIT_S", 0.05)
    ledger = Ledger(tmp_path / "l")
    one = entry(ledger)
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 10 * len(encoded(one)))
    ledger.write(one)
    wait_for(lambda: not ledger._takes_lines())
    for _ in range(49):
        ledger.write(one)
    assert ledger.lost == 50
    hanging.set()
    wait_for(ledger.flush)
    assert (ledger.dropped, ledger.lost) == (40, 40)
    assert caplog.text.count("takes no lines, and 10 wait") == 1
    assert caplog.text.count("40 lines are lost, 40 in all") == 1
    hanging.clear()
    ledger.write(one)
    wait_for(lambda: not ledger._takes_lines())
    for _ in range(12):
        ledger.write(one)
    hanging.set()
    wait_for(ledger.flush)
    assert caplog.text.count("takes no lines, and 10 wait") == 2
    assert caplog.text.count("3 lines are lost, 43 in all") == 1
    ledger.write(one)
    wait_for(ledger.flush)
    ledger.close()
    assert caplog.text.count("lines are lost,") == 2
    assert lines(tmp_path / "l") == 21


def test_lines_that_a_closing_ledger_gives_up_are_lost_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They were counted as lost: none of them is in the file later, when the disk takes lines again."""
    path = tmp_path / "l"
    disk = Disk(monkeypatch, path)
    monkeypatch.setattr(writer, "_RETRY_S", 60)
    monkeypatch.setattr(writer, "_EXIT_S", 0.05)
    ledger = Ledger(path)
    disk.room = 0
    ledger.write(entry(ledger, id="tried"))
    wait_for(lambda: ledger._failing)
    ledger.write(entry(ledger, id="untried"))
    disk.room = math.inf
    ledger.close()
    wait_for(lambda: ledger._thread is None)
    assert (lines(path), ledger.dropped, ledger.lost) == (0, 2, 2)
    assert caplog.text.count("2 lines are lost, 2 in all") == 1
    ledger.write(entry(ledger, id="later"))
    wait_for(ledger.flush)
    ledger.close()
    assert [e.id for e in read_ledger(path).entries] == ["later"]
    assert (ledger.dropped, ledger.lost) == (2, 2)


def test_a_full_disk_is_told_also_right_after_the_machine_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clock begins at 0 then. It is told again a minute later."""
    now = 5.0
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    disk = Disk(monkeypatch, tmp_path / "l")
    disk.room = 0
    ledger = Ledger(tmp_path / "l")
    ledger.write(entry(ledger))
    wait_for(lambda: disk.refused > 2)
    now += 60.0
    wait_for(lambda before=disk.refused: disk.refused > before + 2)  # type: ignore[misc]
    assert caplog.text.count("cannot be written (No space left on device): 1 lines wait for it") == 1
    now += 0.1
    wait_for(lambda before=disk.refused: disk.refused > before + 2)  # type: ignore[misc]
    assert caplog.text.count("cannot be written (No space left on device): 1 lines wait for it") == 2
    disk.room = math.inf
    ledger.close()


def test_a_flush_that_takes_too_long_says_so(tmp_path: Path, released: threading.Event) -> None:
    ledger = Ledger(tmp_path / "l")
    assert ledger.flush(0)  # nothing waits
    ledger.write(entry(ledger))
    assert (ledger.flush(0.01), ledger.lost) == (False, 1)
    released.set()
    assert (ledger.flush(None), ledger.lost) == (True, 0)
    ledger.close()


async def test_nobody_is_held_back_for_a_disk_that_takes_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path / "l")
    monkeypatch.setattr(writer, "_HELD_BACK_S", 3600)
    monkeypatch.setattr(writer, "_EXIT_S", 0.05)
    ledger = Ledger(tmp_path / "l")
    one = entry(ledger)
    disk.room = 0
    ledger.write(one)
    wait_for(lambda: ledger._failing)
    monkeypatch.setattr(writer, "_MANY_BYTES", len(encoded(one)))
    await asyncio.wait_for(ledger.catch_up(), 30)
    ledger.close()


@pytest.mark.parametrize("many", [True, False])
async def test_whoever_makes_exactly_as_many_bytes_as_may_wait_is_held_back(
    many: bool, tmp_path: Path, released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_HELD_BACK_S", 0.001)
    monkeypatch.setattr(writer, "_EXIT_S", 3600)
    ledger = Ledger(tmp_path / "l")
    one = entry(ledger)
    monkeypatch.setattr(writer, "_MANY_BYTES", 2 * len(encoded(one)) + (not many))
    ledger.write(one)
    ledger.write(one)
    waiting = asyncio.create_task(ledger.catch_up())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done() is not many
    released.set()
    await waiting
    ledger.close()


def test_a_path_of_a_ledger_is_a_file_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the path of a ledger is empty: give a file or a folder"):
        Ledger("")
    assert Ledger(tmp_path / "l").file == tmp_path / "l"
    folders = [
        Ledger(tmp_path),
        Ledger(f"{tmp_path}/new/"),
        pickle.loads(pickle.dumps(Ledger(f"{tmp_path}/new/"))),
    ]
    assert [ledger.file.parent for ledger in folders] == [tmp_path, tmp_path / "new", tmp_path / "new"]
    names = [ledger.file.name for ledger in folders]
    assert all(f"-{os.getpid()}-" in name and name.endswith(".jsonl") for name in names)
    assert len(set(names)) == 3
    default = Ledger(tmp_path / "l")
    assert (default.texts, default.fsync, default.lost, default.dropped) == (False, "batch", 0, 0)


def test_a_ledger_that_cannot_be_opened_is_said_before_anything_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([half], ledger=ledger)

    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    real = os.open
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match="ledger .*/l: Permission denied"):
        ledger.begin(runner.spec)
    monkeypatch.setattr(os, "open", real)
    ledger.begin(runner.spec)
    ledger.begin(runner.spec)
    ledger.close()
    assert list(read_ledger(tmp_path / "l").specs) == [runner.spec.digest]
    assert lines(tmp_path / "l") == 1


def test_a_file_that_others_may_read_and_children_do_not_inherit(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        ledger = Ledger(tmp_path / "l")
        ledger.write(entry(ledger))
        ledger.flush()
    finally:
        os.umask(before)
    assert (tmp_path / "l").stat().st_mode & 0o777 == 0o644
    assert ledger._fd is not None
    assert not os.get_inheritable(ledger._fd)
    ledger.close()


def test_reading_waits_for_the_lines_of_its_own_ledger_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its path is written, and for a folder as for one of its files. A disk that has failed is not waited for."""
    waited: list[tuple[Path, bool]] = []

    def wait_for_lines(ledger: Ledger, *, failing: bool) -> None:
        waited.append((ledger.path, failing))

    monkeypatch.setattr(Ledger, "wait_for_lines", wait_for_lines)
    monkeypatch.chdir(tmp_path)
    file, folder = Ledger("l"), Ledger("runs/")
    for path, asked in (
        ("l", file),
        (tmp_path / "l", file),
        ("runs", folder),
        (folder.file, folder),
        ("x", None),
    ):
        waited.clear()
        writer.flush_ledgers(Path(path))
        assert waited == ([(asked.path, False)] if asked else [])


def test_reading_does_not_wait_for_a_disk_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path / "l")
    monkeypatch.setattr(writer, "_EXIT_S", 3600)
    ledger = Ledger(tmp_path / "l")
    ledger.write(entry(ledger, id="before"))
    ledger.flush()
    disk.room = 0
    ledger.write(entry(ledger, id="lost"))
    wait_for(lambda: ledger._failing)
    assert [e.id for e in read_ledger(tmp_path / "l").entries] == ["before"]
    disk.room = math.inf
    ledger.close()


def test_what_waits_for_a_disk_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "l"
    disk = Disk(monkeypatch, path)
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 10_000)
    ledger = Ledger(path)
    one = entry(ledger)
    disk.room = 0
    ledger.write(one)
    wait_for(lambda: not ledger._takes_lines())
    for _ in range(200):
        ledger.write(one)
    assert ledger.dropped == 201 - 10_000 // len(encoded(one))
    disk.room = math.inf
    wait_for(ledger.flush)
    ledger.write(one)
    wait_for(ledger.flush)
    assert lines(path) + ledger.dropped == 202
    ledger.close()


def test_a_disk_that_never_takes_anything_does_not_hold_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_EXIT_S", 0.3)
    ledger = Ledger("/dev/full")
    results = GradingRunner([half], ledger=ledger).run_sync([Rollout(response="x")])
    assert results[0].reward == 0.5
    assert not ledger.flush()
    ledger.close()
    assert ledger.dropped == 2  # the spec and the rollout


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_a_line_that_cannot_be_made_costs_itself_alone(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that writes lives on, whatever the values of a row do to it."""
    real = writer.encoded

    def failing(line: Any) -> bytes:
        if getattr(line, "id", "") == "odd":
            raise error
        return real(line)

    monkeypatch.setattr(writer, "encoded", failing)
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([half], ledger=ledger)
    for name in ("a", "odd", "b"):
        assert runner.run_sync([Rollout(response="x", id=name)])[0].reward == 0.5
    ledger.close()
    assert [e.id for e in read_ledger(tmp_path / "l").entries] == ["a", "b"]
    assert ledger.dropped == 1
    assert f"a line is lost ({error.__name__}), 1 in all" in caplog.text


def test_a_rollout_that_holds_itself_does_not_end_the_ledger(tmp_path: Path) -> None:
    extra: dict[str, Any] = {}
    extra["extra"] = extra
    ledger = Ledger(tmp_path / "l", texts=True)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="x", id="a", extra=extra, group=1)])
    runner.run_sync([Rollout(response="x", id="b", group=1)])
    ledger.close()
    assert [e.id for e in read_ledger(tmp_path / "l").entries] == ["a", "b"]


DIGEST = """
    import datetime
    from collections import UserDict
    from judgekit import Rollout
    from judgekit.ledger.schema import rollout_digest

    names = {"seven", "7", "VII", "sept"}
    for value in (
        names, {"b": [frozenset(names)], "a": 1}, {1, "a", (2, 3)}, {"x": [names, "\\ud800"]},
        UserDict(a=names), datetime.date(2020, 1, 1), {"x": [{"b": names}]},
    ):
        print(rollout_digest(Rollout(response="x", prompt="p", ground_truth=value)))
"""


def test_a_digest_is_the_same_in_every_process() -> None:
    """A ground truth that is a set had another one after a restart, and was paid for again."""

    def digests(seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DIGEST)],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.split()

    one = digests("1")
    assert one == digests("2") == digests("3")
    assert len(set(one)) == 7


def test_a_line_that_is_nested_too_deeply_costs_itself_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The writer's stack is shallow: it writes what a reader with a deeper one cannot read."""
    path = tmp_path / "l"
    ledger = Ledger(path, texts=True)
    ledger.write(entry(ledger, id="a"))
    ledger.write(entry(ledger, id="deep", ground_truth=0))
    ledger.write(entry(ledger, id="b"))
    ledger.close()
    deep = b"[" * 5000 + b"]" * 5000
    path.write_bytes(path.read_bytes().replace(b'"ground_truth":0', b'"ground_truth":' + deep))
    reading = read_ledger(path)
    assert ([e.id for e in reading.entries], reading.torn) == (["a", "b"], [2])
    assert "skipped 1 line(s), the first is line 2" in caplog.text
    recall = Recall(b"")
    assert recall.read(path) == 0


def test_a_ledger_that_was_deleted_begins_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a notebook one deletes the file and runs the cell again, with the same runner; its specs are in the new file, too."""
    path = tmp_path / "folder" / "l"
    ledger = Ledger(path)
    for runner in (GradingRunner([half], ledger=ledger), GradingRunner([half], ledger=ledger)):
        runner.run_sync([Rollout(response="x", id="before")])
        path.unlink()
        path.parent.rmdir()
        runner.run_sync([Rollout(response="x", id="after")])
        reading = read_ledger(path)
        assert [e.id for e in reading.entries] == ["after"]
        assert reading.entries[0].spec in reading.specs
    ledger.close()
    assert caplog.text.count("was deleted or emptied: it is begun again") == 2


def test_a_ledger_that_was_emptied_says_again_how_it_grades(tmp_path: Path) -> None:
    """As logrotate's copytruncate does."""
    path = tmp_path / "l"
    ledger = Ledger(path)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="x", id="before")])
    path.write_bytes(b"")
    runner.run_sync([Rollout(response="x", id="after")])
    reading = read_ledger(path)
    assert [e.id for e in reading.entries] == ["after"]
    assert reading.entries[0].spec in reading.specs
    ledger.close()


@pytest.mark.parametrize("later", [True, False])
def test_a_system_without_threads_costs_no_reward_and_no_line(
    later: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*later*: there are some again. Else the line is written when the ledger is closed."""
    real = threading.Thread.start
    ledger = Ledger(tmp_path / "l")
    first, second = entry(ledger), entry(ledger, "y")

    def start(self: threading.Thread) -> None:
        if self.name == "judgekit-ledger":
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    ledger.write(first)
    if later:
        monkeypatch.setattr(threading.Thread, "start", real)
    ledger.write(second)
    ledger.close()
    assert lines(tmp_path / "l") == 2


def test_closing_while_others_write_loses_nothing(tmp_path: Path) -> None:
    """A thread that is told to end and its successor never write at the same time."""
    ledger = Ledger(tmp_path / "l", fsync="never")
    made = [entry(ledger, id=str(i)) for i in range(4)]
    over = threading.Event()

    def close_all_the_time() -> None:
        while not over.is_set():
            ledger.close()

    closing = [threading.Thread(target=close_all_the_time) for _ in range(2)]
    for thread in closing:
        thread.start()
    for i in range(500):
        for one in made:
            ledger.write(msgspec.structs.replace(one, index=i))
    over.set()
    for thread in closing:
        thread.join()
    ledger.close()
    reading = read_ledger(tmp_path / "l")
    assert Counter(e.id for e in reading.entries) == dict.fromkeys("0123", 500)
    assert (reading.torn, ledger.dropped) == ([], 0)


def test_a_disk_that_has_space_again_while_the_ledger_closes_gets_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l"
    disk = Disk(monkeypatch, path)
    ledger = Ledger(path)
    one = entry(ledger)
    disk.room = 0
    ledger.write(one)
    wait_for(lambda: disk.refused > 1)
    threading.Timer(0.2, setattr, (disk, "room", math.inf)).start()
    ledger.close()
    assert (lines(path), ledger.dropped) == (1, 0)


def test_a_disk_that_cannot_force_lines_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EIO, "Input/output error")] * 2

    def fsync(fd: int) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(writer, "_RETRY_S", 0.02)
    ledger = Ledger(tmp_path / "l")
    ledger.write(entry(ledger))
    wait_for(lambda: not failures and ledger.flush())
    assert lines(tmp_path / "l") == 1
    ledger.close()


@pytest.mark.parametrize("how", ["read", "exit"])
def test_reading_and_the_end_of_the_process_wait_for_lines(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def slow(fd: int, data: Any) -> int:
        time.sleep(0.1)
        return real(fd, data)

    monkeypatch.setattr(os, "write", slow)
    ledger = Ledger(tmp_path / "l")
    ledger.write(entry(ledger))
    if how == "read":
        assert len(read_ledger(tmp_path / "l").entries) == 1
    else:
        writer._close_ledgers()
        assert lines(tmp_path / "l") == 1
    ledger.close()


def test_each_process_writes_a_file_of_its_own_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    with pytest.raises(DataError, match="cannot read"):
        read_ledger(folder)
    ledger = Ledger(f"{folder}/")
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="parent")])
    pid = os.fork()
    if pid == 0:
        ledger.begin(runner.spec)
        ledger.write(entry(ledger, "a child"))
        ledger.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    again = pickle.loads(pickle.dumps(ledger))
    GradingRunner([half], ledger=again).run_sync([Rollout(response="x")])
    assert len(list(folder.glob("*.jsonl"))) == 3
    assert sorted(e.response_chars for e in read_ledger(folder).entries) == [1, 6, 7]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no file"):
        read_ledger(empty)


def test_foreign_lines_are_skipped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "l"
    GradingRunner([half], ledger=Ledger(path)).run_sync([Rollout(response="x")])
    with path.open("a") as file:
        file.write('{"type": "rollout"}\n[1]\nnonsense\n')
    with pytest.raises(DataError, match="line 3"):
        read_ledger(path)
    reading = read_ledger(path, strict=False)
    assert (len(reading.entries), reading.torn) == (1, [3, 4, 5])


@pytest.mark.parametrize(
    "odd",
    [10**400, -(10**25), {1: 2}, {(1, 2): 3}, float("nan"), object(), b"bytes", {"k": {1, "a"}}, [{3: 4}]],
)
def test_whatever_a_data_set_holds_can_be_read_back(tmp_path: Path, odd: Any) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path, texts=True)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync(
        [Rollout(response="x", extra={"odd": odd}, ground_truth=odd, messages=[{"role": "user", "x": odd}])]
    )
    (read,) = read_ledger(path).entries
    assert (read.reward, read.response) == (0.5, "x")


def test_closing_gives_the_file_back_and_writing_opens_it_again(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    one = entry(ledger)
    before = len(os.listdir("/proc/self/fd"))
    for n in (1, 2, 3):
        ledger.write(one)
        ledger.flush()
        assert len(os.listdir("/proc/self/fd")) == before + 1
        ledger.close()
        ledger.close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert lines(path) == n


def test_an_entry_says_all_that_is_known_of_its_rollout(tmp_path: Path) -> None:
    path = tmp_path / "very" / "deep" / "l"
    ledger = Ledger(path, texts=True)
    given: dict[str, Any] = dict(
        text="four",
        id="7",
        group=3,
        prompt="p",
        ground_truth={"a": [1]},
        data_source="math",
        finish_reason="stop",
        response_tokens=2,
        extra={"k": "v"},
    )
    made = entry(ledger, **given)
    began = time.time()
    ledger.write(made)
    ledger.close()
    (read,) = read_ledger(path).entries
    assert read == made
    assert (read.spec, read.run, read.index, read.group, read.id, read.tags) == (
        "s",
        "r",
        0,
        3,
        "7",
        {"step": 1},
    )
    assert (read.reward, read.status, read.raw_reward) == (0.5, "scored", 0.5)
    assert read.contributions == {"half": 0.5, "residual": 0.0}
    assert read.grades == {"half": Graded(0.5)}
    assert (read.data_source, read.finish_reason, read.response_tokens, read.response_chars) == (
        "math",
        "stop",
        2,
        4,
    )
    assert (read.prompt, read.response, read.ground_truth, read.extra) == (
        "p",
        "four",
        {"a": [1]},
        {"k": "v"},
    )
    assert abs(read.time - began) < 60
    bare = entry(Ledger(path), **given)
    assert (bare.prompt, bare.response, bare.ground_truth, bare.extra) == (None, None, None, {})
    assert bare.rollout_digest == made.rollout_digest == read.rollout_digest


class Array:
    """Like a numpy array."""

    def tolist(self) -> list[int]:
        return [1, 2]


def test_what_json_does_not_know_is_written_as_what_it_is_most_like(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path, texts=True)
    truth = {"set": {3, 1, 2}, "array": Array(), "path": Path("x"), "mapping": os.environ.__class__}
    ledger.write(entry(ledger, "a\ud800b", ground_truth=truth, extra={"k\ud800": ("v\udfff", 1)}))
    ledger.write(entry(ledger, "plain", ground_truth=truth))
    ledger.close()
    strange, plain = read_ledger(path).entries
    assert strange.response == "a\\ud800b"
    assert strange.extra == {"k\\ud800": ["v\\udfff", 1]}
    for read in (strange, plain):
        assert read.ground_truth["set"] == [1, 2, 3]
        assert read.ground_truth["array"] == [1, 2]
        assert "Path" in read.ground_truth["path"] or read.ground_truth["path"] == "x"


def test_a_whole_last_line_gets_no_empty_one_after_it(tmp_path: Path) -> None:
    path = tmp_path / "l"
    for whole in (True, False):
        ledger = Ledger(path)
        ledger.write(entry(ledger, str(whole)))
        ledger.close()
        text = path.read_text()
        assert "\n\n" not in text
        assert text.endswith("\n")
        if whole:
            path.write_text(text[:-1])  # a process that was killed before the line's end
    assert len(read_ledger(path).entries) == 2


def test_the_line_after_another_process_s_torn_one_is_whole(tmp_path: Path) -> None:
    """A ledger looked at the end of its file only when it opened it."""
    path = tmp_path / "l"
    ledger = Ledger(path)
    ledger.write(entry(ledger, id="before"))
    ledger.flush()
    for name in ("a", "b"):
        with path.open("ab") as other:
            other.write(b'{"type":"rollout","spec":"s","ti')
        ledger.write(entry(ledger, id=name))
        ledger.flush()
    ledger.close()
    reading = read_ledger(path)
    assert [e.id for e in reading.entries] == ["before", "a", "b"]
    assert len(reading.torn) == 2
    assert b"\n\n" not in path.read_bytes()


def test_a_line_that_lands_behind_one_of_a_process_that_is_killed_just_then_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the end of the file, and then the other one died in the middle of its line."""
    path, real = tmp_path / "l", os.write
    ledger = Ledger(path)
    ledger.write(entry(ledger, id="before"))
    ledger.flush()
    torn = [b'{"type":"rollout","spec":"s","ti'] * 3

    def write(fd: int, data: Any) -> int:
        if torn:
            with path.open("ab", buffering=0) as other:
                real(other.fileno(), torn.pop())
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    made = [entry(ledger, id=name) for name in "abcd"]
    for one in made:
        ledger.write(one)
    ledger.close()
    reading = read_ledger(path)
    assert sorted(e.id for e in reading.entries) == ["a", "b", "before", "c", "d"]
    assert len(reading.torn) == 3
    assert b"\n\n" not in path.read_bytes()


def test_a_forked_child_says_how_it_grades_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path)
    runner = GradingRunner([half], ledger=ledger)
    runner.run_sync([Rollout(response="")])
    pid = os.fork()
    if pid == 0:
        try:
            ledger.begin(runner.spec)
            ledger.begin(runner.spec)
            ledger.flush()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    kinds = [json.loads(line)["type"] for line in path.read_text().splitlines()]
    assert kinds == ["spec", "rollout", "spec"]
