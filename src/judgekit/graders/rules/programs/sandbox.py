"""Runs untrusted Python in a separate process, with limits.

Wall time, CPU time, memory, processes and output are limited for all processes of a program together, and the size of each
file; the number of files is not. A program sees a file system of its own: the system and its interpreter, read-only, its
folder, and an empty /tmp, /dev/shm and /dev. It has no network, and no way to the sockets, processes and folders of the
machine or of another program. This is done with `bwrap` (bubblewrap) where it is installed, else with `unshare`, `mount`
and `setpriv`, where the system allows namespaces. Elsewhere there is an error, unless the user asks for plain processes.

If the user is root, each program runs as a user of its own, or else as `nobody`, provided that such a user can run the
interpreter: it cannot stop, read or change another program, or count among its processes. This contains the bugs of honest
programs. It does not contain programs that attack the kernel or this harness: for those, run the
trainer in a container or a virtual machine.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import operator
import os
import secrets
import selectors
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from judgekit.errors import JudgekitError

NOBODY = 65534
OWN = -1
"""As the user of a `Way`: each program has a user of its own, so that none can kill or read another rollout's."""
_FIRST_USER, _USERS = 0x7000_0000, 1 << 28
"""User ids that no system gives to anybody, above those of containers."""
_HARNESS = resources.files("judgekit.graders.rules.programs").joinpath("code_harness.py")


class SandboxError(JudgekitError):
    """The sandbox could not start: the machine's fault, not the program's."""


class MachineBusy(SandboxError):
    """The program waited so long for a processor that its wall time says nothing of it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program run."""

    time_s: float = 10.0
    """CPU time, rounded up to whole seconds; waiting on a busy machine does not count."""
    wall_s: float = 30.0
    """Wall time. Waiting for a processor that others hold does not count (on Linux), up to three times this."""
    memory_mb: int = 1024
    output_kb: int = 1024
    file_mb: int = 16
    answer_kb: int = 16 << 10
    """How much a job's answer may have as JSON: reading a large one stops every other thread."""
    processes: int = 32
    """Enforced if the program has its own user or user namespace."""


How = Literal["ended", "time", "output", "memory", "processes"]
"""How a program ended, or which of its limits it broke."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended."""

    how: How
    code: int
    output: str
    errors: str
    answer: Any = None
    """Its answer, if it was asked for one and gave one."""
    answered: bool = False
    held_up_s: float = 0.0
    """Seconds in which it waited for a busy machine's processors."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start a program."""

    name: str
    command: tuple[str, ...]
    """The command; {work} is replaced by the program's folder."""
    network: bool
    """Whether the network can be reached."""
    user: int | None = None
    """Run as this user; OWN: as one of its own; None: as this process's user."""
    counts_processes: bool = False
    read_only: bool = False
    """Whether it can write only to its own folder."""

    def isolation(self) -> dict[str, str]:
        return {
            "by": self.name,
            "network": "open" if self.network else "none",
            "files": "read-only but its own folder" if self.read_only else "what the user may reach",
            "user": {OWN: "its own", None: "yours"}.get(self.user, "nobody"),
            "processes": "limited" if self.counts_processes else "not limited",
        }


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc")
"""What a program sees of the machine, read-only, besides its interpreter."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_TMP_MB = 64
"""Size of a program's own /tmp, and of its /dev/shm."""
_SPACES = ("--mount", "--ipc", "--pid", "--uts", "--fork", "--kill-child")
_KILLED = "unshare: sigprocmask unblock failed: Invalid argument\n"


@functools.cache
def _kept(python: str) -> tuple[str, ...]:
    """Return the folders that a program needs to see: the system's, and those of its interpreter."""
    asked = [python, "-I", "-c", "import sys; print(sys.prefix, sys.base_prefix, sys.exec_prefix, sep='\\n')"]
    try:
        folders = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.split(
            "\n"
        )
    except (OSError, subprocess.SubprocessError):
        folders = []
    link = shutil.which(python) or python
    while link not in folders:  # each link on the way to it
        folders += [link, os.path.dirname(os.path.dirname(os.path.abspath(link)))]
        if os.path.islink(link):
            link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    own = {os.path.abspath(folder) for folder in folders if os.path.isdir(folder)} - {"/"}
    inside = [
        folder for folder in sorted(own) if not any(folder.startswith(f"{o}/") for o in (*own, *_SYSTEM))
    ]
    return (*(folder for folder in _SYSTEM if os.path.lexists(folder)), *inside)


def _bubblewrap(python: str, network: bool) -> tuple[str, ...]:
    shown: list[str] = []
    for folder in _kept(python):
        shown += (
            ("--symlink", os.readlink(folder), folder)
            if folder in _SYSTEM and os.path.islink(folder)
            else ("--ro-bind", folder, folder)
        )
    return (
        "bwrap", "--unshare-all", *(("--share-net",) if network else ()), "--die-with-parent", "--new-session",
        "--tmpfs", "/tmp", *shown,  # in this order: an interpreter may stand in /tmp
        "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys",
        "--bind", "{work}", "{work}", "--chdir", "{work}", "--remount-ro", "/", "--cap-drop", "ALL", "--",
    )  # fmt: skip


def _namespaces(python: str, network: bool, own_user: bool) -> tuple[str, ...]:
    """Return a command that builds a file system of its own for a program, with `unshare` and `mount`."""
    root = next(
        (folder for folder in ("/mnt", "/media", "/srv", "/dev/shm") if os.path.isdir(folder)), "/mnt"
    )
    lines = [
        "set -e; umask 022; PATH=$PATH:/usr/sbin:/sbin; mount --make-rprivate /",
        f"mount -t tmpfs -o size=1m,mode=755 none {root}; mkdir -p {root}/dev/shm {root}/proc {root}/tmp {root}/.old",
        # before the interpreter, which may stand in one of them
        *(f"mount -t tmpfs -o size={_TMP_MB}m,mode=1777 none {root}/{name}" for name in ("tmp", "dev/shm")),
    ]
    for folder in _kept(python):
        here, there = shlex.quote(folder), shlex.quote(root + folder)
        if folder in _SYSTEM and os.path.islink(folder):
            lines.append(f"ln -s {shlex.quote(os.readlink(folder))} {there}")
        else:
            lines.append(f"mkdir -p {there}; mount --rbind {here} {there}")
    lines += [f"touch {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}" for name in _DEVICES]
    lines += [
        f"ln -s /proc/self/fd {root}/dev/fd; mount -t proc none {root}/proc",
        f"for name in sys sysrq-trigger irq bus fs; do at={root}/proc/$name; test ! -e $at ||"
        " { mount --bind $at $at; mount -o remount,bind,ro $at; }; done",
        'while read -r _ _ _ _ at _; do case "$at" in'
        f' {root}|{root}/proc|{root}/tmp|{root}/dev/*) ;; {root}/*) test ! -e "$at" || mount -o remount,bind,ro "$at" ;; esac; done < /proc/self/mountinfo',
        f'mkdir -p {root}"$0"; mount --bind "$0" {root}"$0"; mount -o remount,bind,ro {root}',
        f"cd {root}; pivot_root . .old; umount -l .old; cd \"$0\"",
        "exec setpriv" + (" --reuid {user} --regid {user} --clear-groups" if own_user else "")
        + ' --bounding-set=-all --inh-caps=-all --no-new-privs "$@"',
    ]  # fmt: skip
    user = () if own_user else ("--user", "--map-root-user")
    net = () if network else ("--net",)
    return ("unshare", *user, *net, *_SPACES, "--", "sh", "-c", "\n".join(lines), "{work}")


@functools.cache
def best_way(python: str, network: bool, isolated: bool = True) -> Way:
    """Find the best isolation that works here, by trying each with an empty program.

    *isolated*: raise SandboxError where there is none, instead of starting a plain process.
    """
    root = os.geteuid() == 0
    if isolated:
        users = [OWN, None] if root else [None]
        ways = [
            Way("bwrap", _bubblewrap(python, network), network, user, user is not None or not root, True)
            for user in users
        ]
        if root:
            ways.append(Way("namespaces", _namespaces(python, network, True), network, OWN, True, True))
        ways.append(Way("namespaces", _namespaces(python, network, False), network, None, not root, True))
        ways.sort(key=lambda way: way.user is None)
    else:
        users = [OWN, NOBODY, None] if root else [None]
        ways = [Way("a plain process", (), True, user, user is not None or not root) for user in users]
    for way in ways:
        if way.command and shutil.which(way.command[0]) is None:
            continue
        with contextlib.suppress(SandboxError, OSError, subprocess.SubprocessError):
            if run_program("print('up')", way=way, python=python, limits=Limits()).output == "up\n":
                return way
    if isolated and _starts(python):
        raise SandboxError(NO_ISOLATION)
    raise SandboxError(f"{python} cannot be started")


NO_ISOLATION = (
    "this system lets no program be isolated, as most containers do not: install bubblewrap and allow user namespaces, "
    "or give sandbox: the URL of a sandbox service, or write isolation: none to run the policy's code as plain processes, "
    "which can read and stop what their user can"
)


def _starts(python: str) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run([python, "-I", "-c", ""], timeout=60, capture_output=True).returncode == 0
    return False


def isolation(python: str = sys.executable, *, network: bool = False) -> dict[str, str]:
    """Describe the isolation on this machine."""
    return best_way(python, network).isolation()


def run_program(
    code: str,
    *,
    way: Way,
    python: str = sys.executable,
    limits: Limits,
    stdin: str = "",
    job: Mapping[str, Any] | None = None,
) -> Finished:
    """Run *code* as a program that reads *stdin*, or answers a *job*. Raises SandboxError."""
    work = Path(tempfile.mkdtemp(prefix="judgekit-"))
    # what comes after the program goes by this descriptor: the program can rename its folder, or take its rights
    folder = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    # a socket, since the other end of a pipe can be opened by way of /proc
    ours, its = socket.socketpair()
    try:
        secret = secrets.token_hex(16)
        what = {
            "kind": "program",
            **(job or {}),
            "limits": rlimits(limits, way.counts_processes),
            "answer_bytes": limits.answer_kb << 10,
            "begun": its.fileno(),
        }
        (work / "harness.py").write_text(harness())
        (work / "code.py").write_text(code, "utf-8", "surrogatepass")
        (work / "job.json").write_text(json.dumps(what))
        (work / "stdin").write_text(secret if answers(job) else stdin, "utf-8", "surrogatepass")
        user = way.user
        if user == OWN:
            user = _FIRST_USER + (os.getpid() << 12 | next(_programs) & 0xFFF) % _USERS
            for path in (*work.iterdir(), work):
                os.chown(path, user, user)
        os.chmod(work, 0o777 if user == NOBODY else 0o700)
        finished = _run(
            [
                *(part.replace("{work}", str(work)).replace("{user}", str(user)) for part in way.command),
                python,
                "-I",
                "harness.py",
            ],
            work,
            # namespaces are made by root, and their last command becomes the user
            None if any("{user}" in part for part in way.command) else user,
            limits,
            (ours, its),
        )
        if not _has_begun(ours):
            raise SandboxError(f"the sandbox ({way.name}) did not start: {finished.errors.strip()[-300:]}")
        if not answers(job):
            return finished
        answer, answered = _answer(folder, secret, limits)
        return replace(finished, answer=answer, answered=answered)
    finally:
        ours.close()
        its.close()
        _delete(work, folder)
        os.close(folder)


def answers(job: Mapping[str, Any] | None) -> bool:
    """Whether a job has an answer: a program and a compiled one have their output."""
    return bool(job) and job is not None and job["kind"] not in ("program", "compiled")


_START_S = 30.0
"""How long a sandbox may take to start, which is no program's time."""


def _has_begun(ours: socket.socket, flags: int = 0) -> bool:
    """Whether the harness has said so, before any of the rollout's code ran."""
    ours.setblocking(False)
    try:
        return ours.recv(1, flags) != b""
    except OSError:  # nothing has been said
        return False


DELETING_S = 20.0
"""How long deleting may take: a process that is left may create files as fast as they go."""


def _delete(work: Path, folder: int) -> None:
    """Delete a program's folder as far as possible, whatever it has made of it."""
    deadline = time.monotonic() + DELETING_S
    with contextlib.suppress(OSError):
        _let_in(folder)
        while (names := os.listdir(folder)) and time.monotonic() < deadline:
            if not sum([_delete_entry(name, folder, deadline) for name in names]):
                break
    with contextlib.suppress(OSError):
        work.rmdir()
        return
    with contextlib.suppress(OSError):  # the program may have renamed it
        os.rmdir(os.readlink(f"/proc/self/fd/{folder}"))


def _delete_entry(name: str, folder: int, deadline: float) -> bool:
    """Delete a file, or a folder once its own folders have been moved up.

    Moving them up instead of going down needs neither deep recursion nor many open files. Returns whether there was progress.
    """
    if time.monotonic() > deadline:
        return False
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
        return True
    moved = False
    try:
        _let_in_entry(name, folder)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):
            _let_in(inner)
            for child in os.listdir(inner):
                if time.monotonic() > deadline:
                    return False
                with contextlib.suppress(OSError):
                    os.unlink(child, dir_fd=inner)
                    moved = True
                    continue
                with contextlib.suppress(OSError):
                    _let_in_entry(child, inner)  # a folder can be moved only by who may write to it
                    # a name that the program cannot have foreseen and taken
                    os.rename(child, f".{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=folder)
                    moved = True
    finally:
        os.close(inner)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=folder)
        return True
    return moved


def _let_in(folder: int) -> None:
    """Give the user every right to a folder, if it is the user's."""
    with contextlib.suppress(OSError):
        os.fchmod(folder, 0o700)


def _let_in_entry(name: str, folder: int) -> None:
    """Give the user every right to a folder in a folder.

    Not as root, who needs no right: a process that is left may put a link to somebody's file in its place.
    """
    if os.geteuid() != 0 and stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
        os.chmod(name, 0o700, dir_fd=folder)


_programs = itertools.count()


@functools.cache
def harness() -> str:
    """Return the source of the program that runs a rollout's code."""
    return _HARNESS.read_text("utf-8")


def rlimits(limits: Limits, counts_processes: bool = False) -> dict[str, int]:
    """Return the resource limits that the harness sets for itself, by name."""
    seconds = max(1, int(limits.time_s + 0.999))
    found = {
        "RLIMIT_CPU": seconds,
        "RLIMIT_AS": limits.memory_mb << 20,
        "RLIMIT_FSIZE": limits.file_mb << 20,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 256,
    }
    if counts_processes:
        found["RLIMIT_NPROC"] = limits.processes
    return found


def _run(
    command: Sequence[str],
    work: Path,
    user: int | None,
    limits: Limits,
    ends: tuple[socket.socket, socket.socket],
) -> Finished:
    ours, its = ends
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(work),
        "TMPDIR": str(work),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    who: dict[str, Any] = {}
    if user is not None:
        who = {"user": user, "group": user, "extra_groups": []}
    try:
        with open(work / "stdin", "rb") as stdin:
            os.unlink(work / "stdin")  # the secret that may be in it is not for the program to read
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=work,
                env=env,
                start_new_session=True,
                pass_fds=(its.fileno(),),
                **who,
            )
    except OSError as error:
        raise SandboxError(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        how, output, errors, held_up_s = _read(process, limits, ours)
    finally:
        for child in _children(process.pid):  # the first process of a namespace, without which no other is
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    said = errors.decode("utf-8", "replace")
    if code == 1 and said.endswith(_KILLED):  # unshare prints this if its program was killed
        code, said = -signal.SIGKILL, said.removesuffix(_KILLED)
    return Finished(how, code, output.decode("utf-8", "replace"), said, held_up_s=held_up_s)


def _read(
    process: subprocess.Popen[bytes], limits: Limits, ours: socket.socket
) -> tuple[How, bytes, bytes, float]:
    """Collect the program's output until it ends, times out, writes too much, or its processes use too much.

    Its time begins when the harness has, on a machine that is busy as on another. Raises MachineBusy if the
    program had less than its time even so.
    """
    watch = Watch(process.pid, limits)
    how, output, errors = _collect(process, limits, ours, watch)
    if how == "time" and not watch.used_up and watch.held_up_s > _HELD_UP * limits.wall_s:
        raise MachineBusy(
            f"the machine is too busy: of {(1 + _HELD_UP) * limits.wall_s:g} s, a program waited "
            f"{watch.held_up_s:.0f} s for a processor"
        )
    return how, output, errors, watch.held_up_s


def _collect(
    process: subprocess.Popen[bytes], limits: Limits, ours: socket.socket, watch: Watch
) -> tuple[How, bytes, bytes]:
    begun, deadline = False, time.monotonic() + max(_START_S, limits.wall_s)
    most = limits.output_kb << 10
    parts: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for number, pipe in enumerate((process.stdout, process.stderr)):
            assert pipe is not None
            parts[number] = bytearray()
            selector.register(pipe, selectors.EVENT_READ, number)
        while selector.get_map():
            if not begun and (begun := _has_begun(ours, socket.MSG_PEEK)):
                deadline = time.monotonic() + limits.wall_s
                watch.held_up_s = 0.0
            left = deadline + watch.leeway() - time.monotonic()
            if left <= 0:
                return "time", bytes(parts[0]), bytes(parts[1])
            if (broken := watch.look()) is not None:
                return broken, bytes(parts[0]), bytes(parts[1])
            ready = selector.select(min(left, 0.1 if begun else 0.01))
            for key, _ in ready:
                chunk = os.read(key.fd, 65_536)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data == 0 or len(parts[1]) < 100_000:  # keep only the beginning of stderr
                    parts[key.data] += chunk
            if len(parts[0]) > most:
                return "output", bytes(parts[0][:most]), bytes(parts[1])
            if not ready and process.poll() is not None:
                break  # a process that it left behind keeps the pipes open
    while process.poll() is None:
        if time.monotonic() > deadline + watch.leeway():
            return "time", bytes(parts[0]), bytes(parts[1])
        if (broken := watch.look()) is not None:
            return broken, bytes(parts[0]), bytes(parts[1])
        time.sleep(0.005)
    return "ended", bytes(parts[0]), bytes(parts[1])


class Watch:
    """Sums up what a program's processes use together: each one has its own limits, but may start others."""

    def __init__(self, pid: int, limits: Limits) -> None:
        self.pid, self.limits = pid, limits
        self.held_up_s = 0.0
        """Seconds in which one of them could have run, but others had the processors."""
        self.used_up = False
        """Whether they had all their CPU time: then their time is over, however busy the machine is."""
        self._waited: dict[str, float] = {}
        self._computed = time.thread_time()
        self._rank = _rank_of(os.getpid())
        self._looked = time.monotonic()
        self._next = self._looked + WATCH_S

    def leeway(self) -> float:
        """Return how many seconds more they have than their wall time."""
        return min(self.held_up_s, _HELD_UP * self.limits.wall_s)

    def look(self) -> How | None:
        """Return the limit that they have broken together, if it is time to look again."""
        now = time.monotonic()
        if now < self._next:
            return None
        found = self._broken(now)
        # looking takes a tenth of the time, at most
        self._next = time.monotonic() + max(WATCH_S, 10 * (time.monotonic() - now))
        return found

    def _broken(self, now: float) -> How | None:
        pids = _family(self.pid)
        if len(pids) > self.limits.processes + len(_LAUNCHERS):
            return "processes"
        seconds = 0.0
        resident = 0
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                seconds += sum(map(int, fields[11:15])) / _TICKS
                resident += int(fields[21]) * _PAGE
        self._wait(pids, seconds, now)
        if seconds > max(1, int(self.limits.time_s + 0.999)) + 0.5:
            self.used_up = True
            return "time"
        most = self.limits.memory_mb << 20
        memory = _memory_files(pids)
        # what processes share counts once, which takes longer to find out
        if resident + memory > most and sum(map(_own_memory, pids)) + memory > most:
            return "memory"
        return None

    def _wait(self, pids: Sequence[int], computed: float, now: float) -> None:
        """Add the longest that one of their threads has waited for a processor since the last look.

        *computed*: seconds of processor time that they have had. While they, and who looks at them, computed on all
        processors, they waited for each other.
        """
        own = time.thread_time()
        waited, ran = {}, 0.0
        for pid in pids:
            for thread, run_s, seconds in _waits(pid, self._rank):
                ran += run_s
                if seconds is not None:
                    waited[thread] = seconds
        # ticks miss a hundredth of a second for each process, threads those that have ended
        computed = max(computed + own, ran + own, self._computed)
        others = now - self._looked - (computed - self._computed) / _PROCESSORS
        new = max(
            (seconds - self._waited.get(thread, 0.0) for thread, seconds in waited.items()), default=0.0
        )
        self.held_up_s += max(0.0, min(new, others))
        self._waited, self._computed, self._looked = waited, computed, now


_HELD_UP = 3.0
"""How many times its wall time a program may be held up."""
WATCH_S = 0.2
"""Seconds between two looks at a program's processes."""
_LAUNCHERS = ("unshare", "bwrap")
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat_ = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                parents.setdefault(int(stat_[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found.extend(parents.get(one, ()))
    return found


def _waits(pid: int, rank: tuple[int, int, int]) -> Iterator[tuple[str, float, float | None]]:
    """Yield a process's threads, and the seconds for which each has run and has waited for a processor; nothing where the system does
    not tell.

    *rank*: that with which programs begin. A thread that gives way of its own accord does not wait: a program could so get
    out of its time.
    """
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            at = f"/proc/{pid}/task/{thread}"
            with contextlib.suppress(OSError, ValueError, IndexError):
                ran, waited = (int(ns) / 1e9 for ns in Path(f"{at}/schedstat").read_text().split()[:2])
                yield thread, ran, waited if all(map(operator.le, _rank_of(pid, thread), rank)) else None


def _rank_of(pid: int, thread: str | None = None) -> tuple[int, int, int]:
    """Return how far a thread steps back behind others: policy, niceness, and that of its session; zeros without /proc."""
    nice = policy = session = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = (
            Path(f"/proc/{pid}/task/{thread or pid}/stat")
            .read_text("utf-8", "replace")
            .rpartition(")")[2]
            .split()
        )
        nice, policy = int(fields[16]), int(fields[38])
        session = int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])
    return policy, nice, session


def _own_memory(pid: int) -> int:
    """Return a process's share of what it and others hold in memory, in bytes."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) << 10
    return 0


def _memory_files(pids: Sequence[int]) -> int:
    """Return the bytes of the memory files that processes have open, each file once."""
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                        found = os.stat(f"/proc/{pid}/fd/{name}")
                        files[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(files.values())


def _answer(folder: int, secret: str, limits: Limits) -> tuple[Any, bool]:
    """Read the answer file, and check its secret. The program wrote it, so it may contain anything."""
    try:
        file = os.open("answer.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None, False
    try:
        # before it is made a stream, which would refuse a folder with an error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None, False
        with open(file, "rb", closefd=False) as stream:
            return read_answer(stream.read((limits.answer_kb << 10) + ENVELOPE), secret)
    except OSError:
        return None, False
    finally:
        os.close(file)


ENVELOPE = 100
"""How many bytes of an answer's file, at most, are the secret and the names."""


def read_answer(data: bytes, secret: str) -> tuple[Any, bool]:
    """Return the answer in a file's bytes, and whether there is one that has the secret."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None, False
    if not isinstance(found, dict) or found.get("secret") != secret:
        return None, False
    return found.get("answer"), True
