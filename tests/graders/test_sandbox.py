"""What a program's processes use, what its folder becomes, and what its answer is read as."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.graders.rules.programs import sandbox
from judgekit.graders.rules.programs.sandbox import Finished, Limits, MachineBusy, SandboxError, Watch, Way
from judgekit.graders.rules.programs.sandboxes import LocalSandbox, RemoteSandbox

# ---- what the system says of processes


class Proc:
    """Files of /proc, in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        real = {name: getattr(os, name) for name in ("listdir", "readlink", "stat")}
        monkeypatch.setattr(sandbox, "Path", lambda path: Path(self.of(path)))
        for name, function in real.items():
            monkeypatch.setattr(
                os, name, lambda path=".", *a, function=function, **k: function(self.of(path), *a, **k)
            )

    def of(self, path: Any) -> Any:
        return f"{self.folder}{path}" if isinstance(path, str) and path.startswith("/proc") else path

    def write(self, path: str, text: str) -> None:
        file = Path(f"{self.folder}/proc/{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def stat(self, path: str, parent: int = 1, **fields: int) -> None:
        """Write a stat file: its fields count from what follows the name."""
        values = ["S", str(parent), *["0"] * 48]
        for at, value in fields.items():
            values[int(at[1:])] = str(value)
        self.write(f"{path}/stat", f"7 (a ) name) {' '.join(values)}\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    return Proc(tmp_path, monkeypatch)


def test_children_of_a_process(proc: Proc) -> None:
    proc.write("7/task/7/children", "8 9 \n")
    proc.write("8/task/8/children", "odd")
    assert [sandbox._children(pid) for pid in (7, 8, 9)] == [[8, 9], [], []]


def test_all_that_descend_from_a_process(proc: Proc) -> None:
    for pid, parent in ((7, 1), (8, 7), (9, 7), (10, 8), (11, 1), (12, 11)):
        proc.stat(str(pid), parent)
    proc.write("13/stat", "13 (odd)")
    proc.write("14/status", "")
    proc.write("self/stat", "7 (x) S 7")
    assert sorted(sandbox._family(7)) == [7, 8, 9, 10]
    assert sandbox._family(7)[0] == 7
    assert sandbox._family(99) == [99]


def test_how_far_a_thread_steps_back(proc: Proc) -> None:
    proc.stat("7/task/7", f16=5, f38=3)
    proc.stat("7/task/8", f16=-4, f38=0)
    proc.write("7/autogroup", "/autogroup-3 nice 2\n")
    assert sandbox._rank_of(7) == (3, 5, 2)
    assert sandbox._rank_of(7, "8") == (0, -4, 2)
    assert sandbox._rank_of(9) == (0, 0, 0)
    proc.stat("9/task/9", f16=1, f38=2)
    assert sandbox._rank_of(9) == (2, 1, 0)


def test_how_long_threads_have_waited(proc: Proc) -> None:
    proc.stat("7/task/7")
    proc.stat("7/task/8", f16=5)
    proc.stat("7/task/9")
    proc.write("7/task/7/schedstat", "1500000000 250000000 12\n")
    proc.write("7/task/8/schedstat", "1000000000 3000000000 12\n")
    proc.write("7/task/9/schedstat", "")
    assert sorted(sandbox._waits(7, (0, 0, 0))) == [("7", 1.5, 0.25), ("8", 1.0, None)]
    assert sorted(sandbox._waits(7, (0, 5, 0))) == [("7", 1.5, 0.25), ("8", 1.0, 3.0)]
    assert [*sandbox._waits(99, (0, 0, 0))] == []


def test_a_process_s_share_of_memory(proc: Proc) -> None:
    proc.write("7/smaps_rollup", "00-ff ---p\nPss:  99 kB\nPss_Anon:  12 kB\nPss_File: 5 kB\n")
    proc.write("8/smaps_rollup", "Pss: 99 kB\n")
    proc.write("9/smaps_rollup", "Pss_Anon: odd\n")
    assert [sandbox._own_memory(pid) for pid in (7, 8, 9, 10)] == [12 << 10, 0, 0, 0]


def test_memory_files_count_once(proc: Proc) -> None:
    (proc.folder / "memfd").write_bytes(b"x" * 50_000)
    (proc.folder / "plain").write_bytes(b"x" * 9_000)
    blocks = (proc.folder / "memfd").stat().st_blocks * 512
    for pid, names in ((7, ("1", "2")), (8, ("3",))):
        for name in names:
            proc.write(f"{pid}/fd/{name}", "")
    links = {f"/proc/{pid}/fd/{name}": "/memfd:a (deleted)" for pid, name in ((7, "1"), (7, "2"), (8, "3"))}
    files = dict.fromkeys(links, proc.folder / "memfd")
    proc.write("8/fd/4", "")
    links["/proc/8/fd/4"] = "/tmp/plain"
    files["/proc/8/fd/4"] = proc.folder / "plain"
    real = os.stat
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "readlink", links.__getitem__)
        patch.setattr(os, "stat", lambda path, *a, **k: real(files.get(path, path), *a, **k))
        assert sandbox._memory_files([7, 8, 9]) == blocks
        assert sandbox._memory_files([7]) == blocks
        assert sandbox._memory_files([]) == 0


# ---- watching


class Clock:
    """Time that stands still, and what the processes of a watch use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, proc: Proc) -> None:
        self.now, self.thread, self.proc = 100.0, 0.0, proc
        self.waits: dict[int, list[tuple[str, float, float | None]]] = {}
        self.pids, self.memory, self.shares = [7], 0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: self.thread)
        monkeypatch.setattr(sandbox, "time", clock)
        monkeypatch.setattr(sandbox, "_family", lambda pid: [*self.pids])
        monkeypatch.setattr(sandbox, "_memory_files", lambda pids: self.memory)
        monkeypatch.setattr(sandbox, "_own_memory", lambda pid: self.shares)
        monkeypatch.setattr(sandbox, "_waits", lambda pid, rank: iter(self.waits.get(pid, ())))
        monkeypatch.setattr(sandbox, "_rank_of", lambda pid, thread=None: (0, 0, 0))
        monkeypatch.setattr(sandbox, "_PROCESSORS", 2)
        monkeypatch.setattr(sandbox, "_TICKS", 100)
        monkeypatch.setattr(sandbox, "_PAGE", 4096)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, proc: Proc) -> Clock:
    return Clock(monkeypatch, proc)


LIMITS = Limits(time_s=2.0, wall_s=10.0, memory_mb=1, processes=3)


def test_processes_are_looked_at_now_and_then(clock: Clock) -> None:
    watch = Watch(7, LIMITS)
    looked: list[float] = []

    def broken(now: float) -> Any:
        looked.append(now)
        clock.now += 0.05
        return "memory"

    watch._broken = broken  # type: ignore[method-assign]
    said = []
    for now in (100.0, 100.19, 100.21, 100.4, 100.7, 100.77, 100.8):
        clock.now = now
        said.append(watch.look())
    assert said == [None, None, "memory", None, None, "memory", None]
    assert looked == [100.21, 100.77]


def test_no_more_processes_than_a_limit(clock: Clock) -> None:
    watch = Watch(7, LIMITS)
    clock.pids = [7, 8, 9, 10, 11]
    assert watch._broken(101.0) is None
    clock.pids.append(12)
    assert watch._broken(101.0) == "processes"


def test_no_more_cpu_time_than_a_limit(clock: Clock) -> None:
    watch = Watch(7, LIMITS)
    clock.pids = [7, 8, 9]
    clock.proc.stat("7", f11=100, f12=20, f13=30, f14=50)
    clock.proc.stat("8", f10=900, f15=900, f11=50)
    assert watch._broken(101.0) is None
    assert not watch.used_up
    clock.proc.stat("8", f11=51)
    assert watch._broken(101.0) == "time"
    assert watch.used_up
    short = Watch(7, Limits(time_s=0.1))
    clock.proc.stat("7", f11=99)
    assert short._broken(101.0) is None
    clock.proc.stat("7", f11=100)
    assert short._broken(101.0) == "time"


def test_no_more_memory_than_a_limit(clock: Clock) -> None:
    watch = Watch(7, LIMITS)
    clock.pids = [7, 8]
    clock.proc.stat("7", f21=128)
    clock.proc.stat("8", f21=129)
    clock.shares = 512 << 10
    assert watch._broken(101.0) is None
    clock.shares += 1
    assert watch._broken(101.0) == "memory"
    clock.proc.stat("8", f21=128)
    assert watch._broken(101.0) is None
    clock.memory = 4096
    assert watch._broken(101.0) == "memory"
    clock.shares = (512 << 10) - 2048
    assert watch._broken(101.0) is None


def test_waiting_for_a_processor_is_summed_up(clock: Clock) -> None:
    watch = Watch(7, LIMITS)
    clock.waits = {7: [("7", 0.0, 0.3)], 8: [("8", 0.0, 0.5), ("9", 9.0, None)]}
    watch._wait([7], 0.0, 101.0)
    assert watch.held_up_s == pytest.approx(0.3)
    clock.waits = {7: [("7", 0.0, 0.5)], 8: [("8", 0.0, 0.25)]}
    watch._wait([7, 8], 0.0, 102.0)
    assert watch.held_up_s == pytest.approx(0.55)
    watch._wait([7, 8], 0.0, 103.0)
    assert watch.held_up_s == pytest.approx(0.55)
    watch._wait([], 0.0, 104.0)
    assert watch.held_up_s == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("computed", "ran", "own", "held_up"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (1.0, 0.0, 0.0, 0.5),
        (0.0, 1.0, 0.0, 0.5),
        (1.0, 0.0, 0.5, 0.25),
        (0.0, 1.0, 0.5, 0.25),
        (2.0, 1.0, 0.0, 0.0),
        (9.0, 0.0, 0.0, 0.0),
    ],
)
def test_waiting_for_each_other_is_not_waiting_for_the_machine(
    clock: Clock, computed: float, ran: float, own: float, held_up: float
) -> None:
    watch = Watch(7, LIMITS)
    clock.waits, clock.thread = {7: [("7", ran, 5.0)]}, own
    watch._wait([7], computed, 101.0)
    assert watch.held_up_s == pytest.approx(held_up)
    clock.waits = {7: [("7", 0.0, 10.0)]}
    watch._wait([7], 0.0, 102.0)
    assert watch.held_up_s == pytest.approx(held_up + 1.0)


def test_leeway_is_bounded(clock: Clock) -> None:
    watch = Watch(7, LIMITS)
    assert watch.leeway() == 0.0
    watch.held_up_s = 12.0
    assert watch.leeway() == 12.0
    watch.held_up_s = 31.0
    assert watch.leeway() == 30.0


@pytest.mark.parametrize(
    ("how", "used_up", "held_up_s", "busy"),
    [
        ("time", False, 30.5, True),
        ("time", False, 30.0, False),
        ("time", True, 30.5, False),
        ("memory", False, 30.5, False),
    ],
)
def test_a_machine_that_is_too_busy_is_said(
    monkeypatch: pytest.MonkeyPatch, how: Any, used_up: bool, held_up_s: float, busy: bool
) -> None:
    def collect(process: Any, limits: Any, ours: Any, watch: Watch) -> Any:
        assert (process.pid, watch.pid, ours) == (7, 7, "ours")
        watch.used_up, watch.held_up_s = used_up, held_up_s
        return how, b"out", b"err"

    monkeypatch.setattr(sandbox, "_collect", collect)
    process: Any = SimpleNamespace(pid=7)
    if not busy:
        assert sandbox._read(process, LIMITS, "ours") == (how, b"out", b"err", held_up_s)  # type: ignore[arg-type]
        return
    with pytest.raises(MachineBusy) as raised:
        sandbox._read(process, LIMITS, "ours")  # type: ignore[arg-type]
    assert str(raised.value) == "the machine is too busy: of 40 s, a program waited 30 s for a processor"


# ---- collecting


class Watching:
    """A watch that says what it is told."""

    def __init__(self, *says: Any, leeway: float = 0.0) -> None:
        self.says, self.held_up_s, self.left = list(says), 5.0, leeway

    def leeway(self) -> float:
        return self.left

    def look(self) -> Any:
        return self.says.pop(0) if self.says else None


def collected(code: str, watch: Any = None, begun: bool = True, **limits: Any) -> Any:
    ours, its = socket.socketpair()
    if begun:
        its.send(b"1")
    process = subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        return sandbox._collect(process, Limits(**limits), ours, watch or Watching())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for one in (process.stdout, process.stderr, ours, its):
            one.close()  # type: ignore[union-attr]


def test_what_a_program_says_is_collected() -> None:
    watch = Watching()
    assert collected("printf out; printf err >&2", watch) == ("ended", b"out", b"err")
    assert watch.held_up_s == 0.0
    watch = Watching()
    assert collected("printf out", watch, begun=False) == ("ended", b"out", b"")
    assert watch.held_up_s == 5.0


def test_output_has_a_size() -> None:
    assert collected("head -c 1024 /dev/zero", output_kb=1) == ("ended", bytes(1024), b"")
    assert collected("head -c 1025 /dev/zero; sleep 60", output_kb=1) == ("output", bytes(1024), b"")


def test_only_the_beginning_of_errors_is_kept() -> None:
    how, output, errors = collected("head -c 900000 /dev/zero >&2; printf out", output_kb=1)
    assert (how, output) == ("ended", b"out")
    assert 100_000 <= len(errors) < 100_000 + 65_536


def test_a_program_that_does_not_end_is_out_of_time() -> None:
    assert collected("printf out; sleep 60", wall_s=0.1)[0] == "time"
    assert collected("exec >&- 2>&-; sleep 60", wall_s=0.1) == ("time", b"", b"")


def test_what_a_watch_says_ends_a_program() -> None:
    for code in ("sleep 60", "exec >&- 2>&-; sleep 60"):
        says = [None] * 20 + ["memory"]
        assert collected(code, Watching(*says), begun=False) == ("memory", b"", b"")


def test_a_process_that_is_left_behind_is_not_waited_for() -> None:
    assert collected("sleep 60 & printf out", wall_s=50.0) == ("ended", b"out", b"")


# ---- folders


def folder_of(work: Path) -> int:
    return os.open(work, os.O_RDONLY | os.O_DIRECTORY)


def test_a_folder_is_deleted_with_all_that_is_in_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    deep = work.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    for path in (work / "file", deep / "file", deep.parent / "other"):
        path.write_text("x")
    (work / "link").symlink_to(tmp_path)
    (work / "a" / "link").symlink_to("/etc")
    deep.chmod(0o000)
    (work / "a").chmod(0o500)
    work.chmod(0o500)
    folder = folder_of(work)
    sandbox._delete(work, folder)
    os.close(folder)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_was_renamed_is_deleted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "a").mkdir(parents=True)
    folder = folder_of(work)
    work.rename(tmp_path / "other")
    sandbox._delete(work, folder)
    os.close(folder)
    assert os.listdir(tmp_path) == []


def test_deleting_ends_without_progress_and_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("x")
    folder = folder_of(tmp_path / "work")
    asked: list[Any] = []

    def stuck(name: str, *args: Any) -> bool:
        asked.append((name, args[0]))
        return False

    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "_delete_entry", stuck)
        sandbox._delete(tmp_path / "work", folder)
        assert asked == [("file", folder)]
        patch.setattr(sandbox, "DELETING_S", -1.0)
        sandbox._delete(tmp_path / "work", folder)
        assert asked == [("file", folder)]
    later = time.monotonic() + 60
    assert sandbox._delete_entry("file", folder, later - 120) is False
    assert (tmp_path / "work" / "file").exists()
    assert sandbox._delete_entry("none", folder, later) is False
    assert sandbox._delete_entry("file", folder, later) is True
    os.mkdir(tmp_path / "work" / "empty")
    assert sandbox._delete_entry("empty", folder, later) is True
    (tmp_path / "work" / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "work" / "outer" / "file").write_text("x")
    assert sandbox._delete_entry("outer", folder, later) is True
    (left,) = os.listdir(tmp_path / "work")
    assert left.startswith(".")
    assert len(left) == 17
    os.close(folder)


def test_an_entry_whose_folders_cannot_be_moved_says_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    folder = folder_of(tmp_path)
    later = time.monotonic() + 60

    def refuses(*args: Any, **named: Any) -> None:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuses)
        assert sandbox._delete_entry("outer", folder, later) is False
        (tmp_path / "outer" / "file").write_text("x")
        assert sandbox._delete_entry("outer", folder, later) is True
    assert os.listdir(tmp_path / "outer") == ["inner"]
    os.close(folder)


@pytest.mark.parametrize("user", [0, 1000])
def test_rights_are_given_to_folders_by_who_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    (tmp_path / "folder").mkdir(mode=0o500)
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o400)
    (tmp_path / "link").symlink_to("folder")
    folder = folder_of(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    for name in ("file", "link"):
        sandbox._let_in_entry(name, folder)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o500
    sandbox._let_in_entry("folder", folder)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == (0o500 if user == 0 else 0o700)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o400
    inner = folder_of(tmp_path / "folder")
    os.chmod(tmp_path / "folder", 0o500)
    sandbox._let_in(inner)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    os.close(inner)
    os.close(folder)
    sandbox._let_in(folder)


# ---- answers


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"secret": "s", "answer": [1]}', ([1], True)),
        (b'{"secret": "s"}', (None, True)),
        (b'{"secret": "t", "answer": 1}', (None, False)),
        (b'{"answer": 1}', (None, False)),
        (b"[1]", (None, False)),
        (b"{", (None, False)),
        (b"\xff", (None, False)),
        (b"[" * 100_000, (None, False)),
    ],
)
def test_an_answer_has_the_secret(data: bytes, found: Any, tmp_path: Path) -> None:
    assert sandbox.read_answer(data, "s") == found
    (tmp_path / "answer.json").write_bytes(data)
    folder = folder_of(tmp_path)
    assert sandbox._answer(folder, "s", Limits()) == found
    os.close(folder)


@pytest.mark.parametrize("make", ["folder", "link", "fifo", "nothing"])
def test_an_answer_is_a_plain_file(tmp_path: Path, make: str) -> None:
    path = tmp_path / "answer.json"
    (tmp_path / "other").write_text('{"secret": "s", "answer": 1}')
    if make == "folder":
        path.mkdir()
    elif make == "link":
        path.symlink_to("other")
    elif make == "fifo":
        os.mkfifo(path)
    folder = folder_of(tmp_path)
    opened = len(os.listdir("/proc/self/fd"))
    assert sandbox._answer(folder, "s", Limits()) == (None, False)
    assert len(os.listdir("/proc/self/fd")) == opened
    os.close(folder)


def test_an_answer_that_cannot_be_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer.json").write_text('{"secret": "s", "answer": 1}')
    folder = folder_of(tmp_path)

    def broken(*args: Any) -> None:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", broken)
        found = sandbox._answer(folder, "s", Limits())
    os.close(folder)
    assert found == (None, False)


@pytest.mark.parametrize("url", ["http://[::1", "ftp://host/run_code", "http:///run_code", "host:8080", ""])
def test_an_address_of_a_service_is_a_url(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RemoteSandbox(url)
    assert (
        str(raised.value)
        == f"sandbox: {url!r} is not the URL of a sandbox, such as http://host:8080/run_code"
    )


def test_programs_are_isolated_unless_that_is_asked_for() -> None:
    assert LocalSandbox("py") == LocalSandbox("py", network=False, isolated=True)


@pytest.mark.parametrize(("more", "answered"), [(0, True), (1, False)])
def test_an_answer_is_read_up_to_a_size(tmp_path: Path, more: int, answered: bool) -> None:
    text = '{"secret": "s", "answer": 1'
    (tmp_path / "answer.json").write_text(text.ljust(1024 + sandbox.ENVELOPE - 1 + more) + "}")
    folder = folder_of(tmp_path)
    assert sandbox._answer(folder, "s", Limits(answer_kb=1))[1] is answered
    os.close(folder)


# ---- settings


def test_limits_of_the_harness() -> None:
    limits = Limits(time_s=1.2, memory_mb=3, file_mb=2, processes=5)
    most = {
        "RLIMIT_CPU": 2,
        "RLIMIT_AS": 3 << 20,
        "RLIMIT_FSIZE": 2 << 20,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 256,
    }
    assert sandbox.rlimits(limits) == most
    assert sandbox.rlimits(limits, True) == {**most, "RLIMIT_NPROC": 5}
    for time_s, seconds in ((0.0, 1), (2.0, 2), (2.5, 3)):
        assert sandbox.rlimits(Limits(time_s=time_s))["RLIMIT_CPU"] == seconds
    assert Limits() == Limits(10.0, 30.0, 1024, 1024, 16, 16 << 10, 32)


@pytest.mark.parametrize(
    ("job", "has_answer"),
    [
        (None, False),
        ({}, False),
        ({"kind": "program"}, False),
        ({"kind": "compiled"}, False),
        ({"kind": "call"}, True),
    ],
)
def test_jobs_that_have_an_answer(job: Any, has_answer: bool) -> None:
    assert sandbox.answers(job) is has_answer


def test_what_a_way_isolates() -> None:
    assert Way("a", (), True).isolation() == {
        "by": "a",
        "network": "open",
        "files": "what the user may reach",
        "user": "yours",
        "processes": "not limited",
    }
    assert Way("b", (), False, sandbox.OWN, True, True).isolation() == {
        "by": "b",
        "network": "none",
        "files": "read-only but its own folder",
        "user": "its own",
        "processes": "limited",
    }
    assert Way("c", (), False, sandbox.NOBODY).isolation()["user"] == "nobody"


def test_whether_a_harness_has_begun() -> None:
    ours, its = socket.socketpair()
    assert not sandbox._has_begun(ours)
    its.send(b"1")
    assert sandbox._has_begun(ours, socket.MSG_PEEK)
    assert sandbox._has_begun(ours)
    assert not sandbox._has_begun(ours)
    its.close()
    assert not sandbox._has_begun(ours)
    ours.close()


def ways_tried(
    monkeypatch: pytest.MonkeyPatch, user: int, works: Any, isolated: bool = True, has: Any = True
) -> Any:
    tried: list[Any] = []

    def run(code: str, *, way: Way, python: str, limits: Limits) -> Finished:
        assert (code, python, limits) == ("print('up')", "py", Limits())
        tried.append(way)
        if works is None or not works(way):
            raise SandboxError("no")
        return Finished("ended", 0, "up\n", "")

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sandbox, "run_program", run)
    monkeypatch.setattr(sandbox, "_kept", lambda python: ())
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: name if has is True or name in has else None)
    sandbox.best_way.cache_clear()
    try:
        return sandbox.best_way("py", False, isolated), tried
    except SandboxError as error:
        return str(error), tried
    finally:
        sandbox.best_way.cache_clear()


def about(ways: Any) -> Any:
    return [(way.name, way.network, way.user, way.counts_processes, way.read_only) for way in ways]


def test_ways_are_tried_in_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_starts", lambda python: python == "py")
    says, tried = ways_tried(monkeypatch, 0, None)
    assert says == sandbox.NO_ISOLATION
    assert about(tried) == [
        ("bwrap", False, sandbox.OWN, True, True),
        ("namespaces", False, sandbox.OWN, True, True),
        ("bwrap", False, None, False, True),
        ("namespaces", False, None, False, True),
    ]
    assert [way.command[0] for way in tried] == ["bwrap", "unshare", "bwrap", "unshare"]
    assert ["--map-root-user" in way.command for way in tried] == [False, False, False, True]
    found, tried = ways_tried(monkeypatch, 0, lambda way: way.user is None)
    assert (found, len(tried)) == (tried[-1], 3)
    _, tried = ways_tried(monkeypatch, 1000, None)
    assert about(tried) == [("bwrap", False, None, True, True), ("namespaces", False, None, True, True)]
    _, tried = ways_tried(monkeypatch, 1000, None, has=["unshare"])
    assert about(tried) == [("namespaces", False, None, True, True)]


def test_a_plain_process_is_a_way_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_starts", lambda python: True)
    says, tried = ways_tried(monkeypatch, 0, None, isolated=False, has=())
    assert says == "py cannot be started"
    assert about(tried) == [
        ("a plain process", True, sandbox.OWN, True, False),
        ("a plain process", True, sandbox.NOBODY, True, False),
        ("a plain process", True, None, False, False),
    ]
    _, tried = ways_tried(monkeypatch, 1000, None, isolated=False)
    assert about(tried) == [("a plain process", True, None, True, False)]


def test_a_python_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_starts", lambda python: False)
    assert ways_tried(monkeypatch, 1000, None)[0] == "py cannot be started"


def test_whether_a_python_starts(tmp_path: Path) -> None:
    assert sandbox._starts(sys.executable)
    assert not sandbox._starts(str(tmp_path / "python"))
    assert not sandbox._starts("/bin/false")


def test_what_bubblewrap_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_kept", lambda python: ("/lib", "/usr", f"/{python}"))
    monkeypatch.setattr(os.path, "islink", lambda path: path in ("/lib", "/py"))
    monkeypatch.setattr(os, "readlink", lambda path: f"to {path}")
    command = " ".join(sandbox._bubblewrap("py", False))
    assert command == (
        "bwrap --unshare-all --die-with-parent --new-session --tmpfs /tmp --symlink to /lib /lib --ro-bind /usr /usr "
        "--ro-bind /py /py --dev /dev --proc /proc --ro-bind /proc/sys /proc/sys --bind {work} {work} --chdir {work} "
        "--remount-ro / --cap-drop ALL --"
    )
    assert " ".join(sandbox._bubblewrap("py", True)) == command.replace("all --die", "all --share-net --die")
    *start, script, work = sandbox._namespaces("py", False, True)
    assert start == [
        *[
            "unshare",
            "--net",
            "--mount",
            "--ipc",
            "--pid",
            "--uts",
            "--fork",
            "--kill-child",
            "--",
            "sh",
            "-c",
        ]
    ]
    assert work == "{work}"
    assert "exec setpriv --reuid {user} --regid {user} --clear-groups --bounding-set=-all" in script
    assert "ln -s 'to /lib' " in script
    assert "mount --rbind /py " in script
    *start, script, work = sandbox._namespaces("py", True, False)
    assert start[1:3] == ["--user", "--map-root-user"]
    assert "--net" not in start
    assert "exec setpriv --bounding-set=-all" in script


# ---- running


PLAIN = Way("a plain process", (), True)


def test_a_program_runs_in_an_environment_of_its_own() -> None:
    code = "import os\nprint({k: v for k, v in os.environ.items() if k != 'LC_CTYPE'}, os.getcwd(), os.getpid() == os.getsid(0))"
    found = sandbox.run_program(code, way=PLAIN, limits=Limits())
    assert (found.how, found.code, found.errors) == ("ended", 0, "")
    work = found.output.split("} ")[1].split()[0]
    assert found.output.endswith(" True\n")
    assert found.output.startswith(
        str(
            {
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": work,
                "TMPDIR": work,
                "LANG": "C.UTF-8",
                "PYTHONHASHSEED": "0",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
        )
    )
    assert not os.path.exists(work)


def test_a_program_reads_and_answers() -> None:
    found = sandbox.run_program("print(input())\nraise SystemExit(3)", way=PLAIN, limits=Limits(), stdin="é")
    assert (found.output, found.code, found.answered) == ("é\n", 3, False)
    job = {"kind": "call", "function": "f", "arguments": [2]}
    found = sandbox.run_program(
        "def f(x):\n    print('said')\n    return x", way=PLAIN, limits=Limits(), job=job
    )
    assert (found.output, found.answer, found.answered) == ("said\n", 2, True)


def test_a_sandbox_that_does_not_start_says_why() -> None:
    way = Way("odd", ("sh", "-c", "echo why >&2; exit 3"), True)
    with pytest.raises(SandboxError) as raised:
        sandbox.run_program("", way=way, limits=Limits())
    assert str(raised.value) == "the sandbox (odd) did not start: why"
    with pytest.raises(SandboxError) as raised:
        sandbox.run_program("", way=Way("odd", ("/no/such",), True), limits=Limits())
    assert str(raised.value) == "/no/such cannot be started: No such file or directory"


def test_a_program_that_was_killed_in_its_namespace_was_killed() -> None:
    said = sandbox._KILLED.replace("\n", "\\n")
    code = f"import os, sys\nsys.stderr.write('its own\\n{said}')\nsys.stderr.flush()\nos._exit(1)"
    found = sandbox.run_program(code, way=PLAIN, limits=Limits())
    assert (found.code, found.errors) == (-9, "its own\n")
    found = sandbox.run_program(code.replace("_exit(1)", "_exit(2)"), way=PLAIN, limits=Limits())
    assert found.code == 2
