"""Graders that worker processes load for test_pool_faults."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
import time
import weakref
from pathlib import Path
from typing import Any, ClassVar

from judgekit import JudgeUnavailable, Rollout, RolloutError

PARENT = int(os.environ.setdefault("JUDGEKIT_TEST_PARENT", str(os.getpid())))
"""The process of the tests; workers inherit the variable."""


def in_worker() -> bool:
    return os.getpid() != PARENT


def wait_for(path: Path) -> None:
    """Wait until the test makes this file."""
    while not path.exists():
        time.sleep(0.002)


def say(path: Path) -> None:
    """Tell the test who is there: the file appears with this process's id in it."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(str(os.getpid()))
    draft.rename(path)


class Pooled:
    name, version, score_range, where = "act", "1", (0.0, 100.0), "process"


class Echo(Pooled):
    """Grades a rollout with its own number, so that nobody else's grade can pass for it."""

    def grade(self, rollout: Rollout, /) -> Any:
        return float(rollout.id)


class Reads(Pooled):
    """Gives the score that the data set holds."""

    def grade(self, rollout: Rollout, /) -> Any:
        return float(rollout.extra["score"])


class Waits(Pooled):
    """Says that it has begun, then waits for its release; every worker that takes a rollout says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grade(self, rollout: Rollout, /) -> Any:
        begun = len(list(self.folder.glob("begun-*")))
        say(self.folder / f"begun-{begun}")
        wait_for(self.folder / "release")
        return float(rollout.id)


class Loads(Echo):
    """What happens to it where a worker loads it, which is when a grader's module is imported."""

    def __init__(self, how: str, folder: Path | None = None) -> None:
        self.how = how
        self.folder = folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not in_worker():
            return
        if self.how == "not there":
            import no_such_module  # type: ignore[import-not-found]  # noqa: F401
        elif self.how == "too large":
            bytearray(1 << 40)
        elif self.how == "too deep":
            self.__setstate__(state)
        elif self.how == "rollout's":
            raise RolloutError("no rollout has been seen yet")
        elif self.how == "exits":
            os._exit(3)
        elif self.how == "slow":
            assert self.folder is not None
            say(self.folder / "loading")
            wait_for(self.folder / "release")


class Warm(Echo):
    """Warms up, slowly or in vain, before its first rollout."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.warm = False

    def warm_up(self) -> None:
        if self.how == "slow":
            time.sleep(0.8)
        elif self.how == "fails":
            raise OSError("the model is not there")
        self.warm = True

    def grade(self, rollout: Rollout, /) -> Any:
        return float(rollout.id) if self.warm else None


class Starts(Echo):
    """Starts a program beside the second rollout, as graders of code do; it says who it is and holds the worker's pipes."""

    def __init__(self, folder: Path, *, dies: bool) -> None:
        self.folder = folder
        self.dies = dies

    def warm_up(self) -> None:
        """Nothing to do."""

    def grade(self, rollout: Rollout, /) -> Any:
        if rollout.response == "starts":
            child = self.folder / f"child-{len(list(self.folder.glob('child-*')))}"
            if not os.fork():
                say(child)
                signal.pause()
            wait_for(child)
            if self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        return float(rollout.id)


class Cold(Pooled):
    """Does what the response says, and has no `warm_up`."""

    def grade(self, rollout: Rollout, /) -> Any:
        match rollout.response:
            case "memory":
                return float(len(bytearray(1 << 40)))
            case "recursion":
                return self.grade(rollout)
        return float(rollout.id)


class Large(Cold):
    """Takes two GiB when it is loaded, as a large table does, and reserves more when it grades, as threads and CUDA do."""

    def warm_up(self) -> None:
        self.taken = bytearray(2 << 30)

    def grade(self, rollout: Rollout, /) -> Any:
        with mmap.mmap(-1, 8 << 30, prot=mmap.PROT_READ):
            return super().grade(rollout)


class Leaks(Pooled):
    """Keeps 300 MiB of every rollout, as a cache without a bound does."""

    kept: ClassVar[list[bytearray]] = []

    def warm_up(self) -> None:
        """Nothing to do."""

    def grade(self, rollout: Rollout, /) -> Any:
        self.kept.append(bytearray(300 << 20))
        return float(rollout.id)


class Dies(Pooled):
    """Crashes the worker, on every rollout that says so or only the first time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def warm_up(self) -> None:
        """Nothing to do."""

    def grade(self, rollout: Rollout, /) -> Any:
        how, _, once = rollout.response.partition(" ")
        if once and (self.folder / rollout.id).exists():
            how = ""
        (self.folder / rollout.id).touch()
        match how:
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(9)
            case "abort":
                os.abort()
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        return float(rollout.id)


class Slow(Pooled):
    """Uses a part of its time on the CPU, then waits."""

    def __init__(self, cpu_s: float) -> None:
        self.cpu_s = cpu_s

    def grade(self, rollout: Rollout, /) -> Any:
        if rollout.id == "1":
            end = time.process_time() + self.cpu_s
            while time.process_time() < end:
                pass
            time.sleep(3600)
        return float(rollout.id)


class Talks(Pooled):
    """Writes where replies are written, or returns what cannot be sent or read."""

    def grade(self, rollout: Rollout, /) -> Any:
        match rollout.response:
            case "print":
                print("x" * 100_000)  # noqa: T201
            case "write":
                os.write(1, b"\x08\x00\x00\x00garbage!" * 1000)
            case "close":
                sys.stdout.close()
            case "no more input":
                with contextlib.suppress(OSError):
                    os.close(0)
            case "mute":
                os.closerange(
                    3, os.sysconf("SC_OPEN_MAX")
                )  # a busy parent may have given its socket any number
                os.close(1)
                time.sleep(3600)
            case "nice":
                return float(os.nice(0))
            case "unsendable":
                return lambda: 1.0
            case "unreadable":
                return Unreadable()
            case "large":
                return "x" * (8 << 20)
        return float(rollout.id)


class Unreadable:
    """Travels well, and cannot be put together again at the other end."""

    def __reduce__(self) -> Any:
        return float, ("no number",)


class Holds(Pooled):
    """A grader with a configuration of a megabyte; its grade is the number of such graders that live."""

    alive: ClassVar[weakref.WeakSet[Holds]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.table = os.urandom(1 << 20)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Holds.alive.add(self)

    def grade(self, rollout: Rollout, /) -> Any:
        return float(len(Holds.alive)) / 1000


class Counted(Echo):
    """Leaves a file for each time that a worker loads it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if in_worker():
            loaded = len(list(self.folder.glob(f"{self.name}-{os.getpid()}-*")))
            (self.folder / f"{self.name}-{os.getpid()}-{loaded}").touch()
            if self.name == "fails":
                raise OSError("the model is not there")


class CountedWarm(Counted):
    """Is loaded where its runner is started."""

    def warm_up(self) -> None:
        """Nothing more to do."""


class Busy(Pooled):
    """Fails the first time, worth another try or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grade(self, rollout: Rollout, /) -> Any:
        mark = self.folder / rollout.id
        if not mark.exists():
            mark.touch()
            raise (JudgeUnavailable if rollout.response == "busy" else ValueError)(rollout.response)
        return float(rollout.id)


def burn(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


class Lazy(Pooled):
    """Imports what it needs where it grades first, as many graders do: half a second of CPU time, in each process."""

    ready: ClassVar[bool] = False

    def grade(self, rollout: Rollout, /) -> Any:
        if not Lazy.ready:
            burn(0.5)
            Lazy.ready = True
        burn(float(rollout.response))
        return float(rollout.id)


class LazyTable(Pooled):
    """Makes a table of 700 MiB where it grades first; its grade is the process."""

    table: ClassVar[bytearray | None] = None
    score_range = (0.0, 1e9)

    def grade(self, rollout: Rollout, /) -> Any:
        LazyTable.table = LazyTable.table or bytearray(700 << 20)
        return float(os.getpid())


class Spins(Pooled):
    """Computes for ever if the response says so."""

    def grade(self, rollout: Rollout, /) -> Any:
        while rollout.response == "spin":
            pass
        return float(rollout.id)


class LoadsAgain(Echo):
    """Is loaded well once; every further load says that it has begun, and waits to be killed, or fails."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder = folder
        self.how = how

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if in_worker():
            load = len(list(self.folder.glob("load-*")))
            say(self.folder / f"load-{load}")
            if load or self.how == "first":
                if self.how == "fails":
                    raise OSError("the model is gone")
                wait_for(self.folder / f"go-{load}")

    def grade(self, rollout: Rollout, /) -> Any:
        if rollout.response == "waits":
            say(self.folder / "begun")
            wait_for(self.folder / "release")
        return super().grade(rollout)


class Runs(Pooled):
    """Runs the response as a program, as graders of code do; its grade is what the program has written."""

    def grade(self, rollout: Rollout, /) -> Any:
        import subprocess

        program = [sys.executable, "-c", rollout.response]
        return subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False).stdout


class Tells(Pooled):
    """What the response asks of its worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grade(self, rollout: Rollout, /) -> Any:
        match rollout.response:
            case "input":
                return sys.stdin.read()
            case "thread":
                import threading

                threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
            case "short thread":
                import threading

                threading.Thread(target=time.sleep, args=(0.01,)).start()
            case "child" | "daemon":
                if not os.fork():
                    if rollout.response == "daemon":
                        os.setsid()
                        if os.fork():
                            os._exit(0)
                    say(self.folder / f"left-{rollout.id}")
                    signal.pause()
                wait_for(self.folder / f"left-{rollout.id}")
            case "daemon, waits":
                if not os.fork():
                    os.setsid()
                    say(self.folder / f"left-{rollout.id}")
                    signal.pause()
                wait_for(self.folder / f"left-{rollout.id}")
                time.sleep(3600)
            case "sockets of a fork":
                return self.sockets_of_a_fork()
        return os.getpid()

    def sockets_of_a_fork(self) -> int:
        """Count the sockets that a forked child has."""
        import stat

        child = os.fork()
        if not child:
            found = 0
            for number in range(256):
                with contextlib.suppress(OSError):
                    found += stat.S_ISSOCK(os.fstat(number).st_mode)
            os._exit(found)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Serves(Tells):
    """Has a thread and a process that serve all its rollouts."""

    def warm_up(self) -> None:
        import subprocess
        import threading

        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        self.server = subprocess.Popen(["sleep", "3600"])
        (self.folder / "server").write_text(str(self.server.pid))


class Breaks(Pooled):
    """Is killed in the middle of its first reply."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grade(self, rollout: Rollout, /) -> Any:
        mark = self.folder / f"broken-{rollout.id}"
        if rollout.response == "breaks" and not mark.exists():
            mark.touch()
            os.write(int(sys.argv[3]), b"\x08\x00\x00\x00")
            os.kill(os.getpid(), signal.SIGKILL)
        return float(rollout.id)
