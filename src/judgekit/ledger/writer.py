"""Writes a ledger.

A line is encoded when it is handed over, before its owner can change anything that it says. A thread writes the bytes: a
killed process loses milliseconds, and the event loop never waits for a disk. A disk that is full or gone costs no reward:
lines wait in memory, up to a bound, until there is space again. A disk that takes lines, but more slowly than they are
made, holds back whoever makes them, and loses none.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from judgekit.errors import ConfigError, describe
from judgekit.fork import in_child
from judgekit.ledger.jsonl import encoded, ends_torn
from judgekit.ledger.schema import Entry, Spec

logger = logging.getLogger("judgekit")

Fsync = Literal["never", "batch"]
"""Whether lines are forced to the disk after every batch, or never. It only matters if the whole machine goes down: the
lines of a killed process are in the file either way."""

MAX_WAITING_BYTES = 256 << 20
"""Lines that wait in memory for a disk that does not take them; more are dropped and counted."""
_MANY_BYTES = 16 << 20
"""So many waiting bytes hold back whoever makes more."""
_PAUSE_S = 0.001
"""Pause after each batch: lines that come meanwhile are written together, at a fraction of the cost."""
_HELD_BACK_S = 0.1
"""Pause before those who are held back look again."""
_RETRY_S = 1.0
"""Pause before the disk is tried again."""
_TELL_S = 60.0
"""Least seconds between two log lines about a disk."""
_EXIT_S = 10.0
"""How long the end of the process waits for a disk that takes no line; nobody is held back for one any longer, either."""


class Ledger:
    """Writes graded rollouts to *path*.

    *path*: a file, which processes of one machine may share; or a folder (one that exists, or a path that ends with
    "/"), in which each process writes its own file, for file systems that several machines share. `read_ledger` reads
    both. *texts*: also keep prompts, messages, responses and ground truths, for reports and regrading; they make a
    training run's ledger large. *fsync*: see `Fsync`. Safe to use from several threads and event loops.
    """

    def __init__(self, path: str | os.PathLike[str], *, texts: bool = False, fsync: Fsync = "batch") -> None:
        if not os.fspath(path):
            raise ConfigError("the path of a ledger is empty: give a file or a folder, such as ledger.jsonl")
        self.path = Path(path)
        self.texts = texts
        if fsync not in ("never", "batch"):
            raise ConfigError(f"ledger: fsync is 'never' or 'batch', not {fsync!r}")
        self.fsync: Fsync = fsync
        self._in_folder = os.fspath(path).endswith(os.sep) or self.path.is_dir()
        self.dropped = 0
        """Lines that were lost: they could not be encoded, or the disk took none for too long."""
        self._reset()
        in_child(self._forked)
        _open_ledgers.add(self)

    @property
    def lost(self) -> int:
        """Lines that are not in the file: dropped ones, and those that still wait."""
        return self.dropped + self._handed - self._done

    def _forked(self) -> None:
        """A parent writes its own waiting lines."""
        self._reset()

    def _reset(self) -> None:
        """Start with no thread, lines or file, in a new process. A parent writes its own waiting lines."""
        self.file = self.path
        """The file that this process writes."""
        if self._in_folder:
            self.file = self.path / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        # reentrant: a run that is collected while we hold it may write. So no counter below is changed by an
        # expression that makes an object or calls something.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._lines: list[bytes] = []
        """Lines that the thread has not taken yet."""
        self._size = 0
        """Bytes of all lines that are not in the file."""
        self._handed = self._done = 0
        """Lines handed over, and lines written or dropped."""
        self._thread: threading.Thread | None = None
        """Writes and closes the file. Only one thread at a time does."""
        self._closing = False
        """Whether it ends once no line waits."""
        self._fd: int | None = None
        self._specs: dict[str, Spec] = {}
        self._bytes = bytearray()
        """What the thread has taken, and the disk has not; touched by the thread alone, as the next."""
        self._taken = self._taken_size = 0
        """Lines that the thread has taken and not yet counted as done, and their bytes."""
        self._failing = False
        self._refused = 0
        """Lines that were dropped since the disk took the last ones."""
        self._told = -math.inf
        self._began = 0.0
        """When the thread began its last batch, or was handed the first line of the next."""

    def begin(self, spec: Spec) -> None:
        """Write how the next rollouts are graded, once per spec and process.

        Raises ConfigError, before anything is graded, if the file cannot be opened.
        """
        with self._lock:
            if self._fd is None:
                try:
                    self._fd = self._opened()
                except OSError as error:
                    raise ConfigError(f"cannot write the ledger {self.file}: {error.strerror}") from None
            known = spec.digest in self._specs
            self._specs[spec.digest] = spec
        if not known:
            self.write(spec)

    def write(self, line: Spec | Entry) -> None:
        """Write a line as it is now. It is in the file some milliseconds later.

        Whoever writes many lines waits now and then, with `catch_up` or `flush`.
        """
        self.add(lambda: line)

    def add(self, make: Callable[[], Spec | Entry]) -> None:
        """Write the line that *make* returns. One that cannot be made is lost, and costs nothing else."""
        try:
            line = encoded(make())
        except Exception as error:
            name, _ = describe(error)
            with self._lock:
                self.dropped += 1
            logger.error("the ledger %s: a line is lost (%s), %d in all", self.file, name, self.dropped)
            return
        size = len(line)
        with self._lock:
            if self._size + size > MAX_WAITING_BYTES and not self._takes_lines():
                self._refuse()
                return
            first = not self._size
            self._lines.append(line)
            self._size += size
            self._handed += 1
            if first:
                self._began = time.monotonic()
            if not self._started_thread() and first:
                self._changed.notify_all()

    async def catch_up(self) -> None:
        """Wait while many lines wait for a disk that takes them."""
        while self._size >= _MANY_BYTES and self._takes_lines():
            await asyncio.sleep(_HELD_BACK_S)

    def _takes_lines(self) -> bool:
        return not self._failing and time.monotonic() - self._began < _EXIT_S

    def _refuse(self) -> None:
        """Drop a line that is handed over, with the lock held."""
        if not self._refused:
            logger.error(
                "the ledger %s takes no lines, and %d wait: those that follow are lost until it does",
                self.file,
                self._handed - self._done,
            )
        self._refused += 1
        self.dropped += 1

    def _started_thread(self) -> bool:
        if self._thread is not None:
            return False
        thread = threading.Thread(target=self._work, name="judgekit-ledger", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left: the next line tries again
            return False
        self._thread = thread
        return True

    def flush(self, timeout_s: float | None = 60.0) -> bool:
        """Wait until everything handed over is in the file. Returns False if the disk does not take it.

        Blocks: do not call it on an event loop.
        """
        with self._lock:
            target = self._handed
            self._changed.wait_for(lambda: self._done >= target or self._failing, timeout_s)
            return self._done >= target

    def wait_for_lines(self, *, failing: bool) -> None:
        """Wait until everything handed over is in the file, or the disk has taken nothing for 10 s. Blocks.

        *failing*: wait for a disk that has just failed, too.
        """
        with self._lock:
            target, done = self._handed, -1
            while done < self._done < target:
                done = self._done
                self._changed.wait_for(
                    lambda before=done: self._done > before or (self._failing and not failing),  # type: ignore[misc]
                    _EXIT_S,
                )

    def close(self) -> None:
        """Flush and close the file. The next line opens it again.

        Waits at most 10 s for a disk that takes no lines; the lines left over are dropped and counted.
        """
        with self._lock:
            alone = self._thread is None
            if alone:  # nothing was written, or no thread could be started, as when the interpreter ends
                self._thread, self._closing = threading.current_thread(), True
        if alone:
            self._work()
            return
        self.wait_for_lines(failing=True)
        with self._lock:
            thread = self._thread
            self._closing = thread is not None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is not thread, _EXIT_S)

    # ---- the thread

    def _work(self) -> None:
        """Write lines until the ledger closes and none is left."""
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._lines or self._taken or self._closing)
                if not (self._lines or self._taken):
                    if self._fd is not None:
                        os.close(self._fd)
                    self._fd = self._thread = None
                    self._closing = False
                    self._changed.notify_all()
                    return
                self._began = time.monotonic()
                lines, self._lines = self._lines, []
            self._bytes += b"".join(lines)
            self._taken += len(lines)
            self._taken_size += sum(map(len, lines))
            try:
                self._drain()
            except OSError as error:
                if error.errno == errno.ESTALE:  # an NFS server has forgotten that the file is open
                    self._let_go()
                self._wait_for_the_disk(error)
            else:
                self._count_as_done()
                time.sleep(_PAUSE_S)

    def _drain(self) -> None:
        """Write what was taken. A line written in part, or behind another's part, is written again on a line of its own."""
        with self._lock:
            if self._fd is not None:
                stat = os.fstat(self._fd)
                if not stat.st_nlink or (self._done and not stat.st_size):
                    logger.warning("the ledger %s was deleted or emptied: it is begun again", self.file)
                    self._let_go()
            if self._fd is None:
                self._fd = self._opened()
        while self._bytes:
            # a newline ends a torn line, ours or that of another process that appends to the file
            if self._bytes[0] != 10 and ends_torn(self._fd):
                self._bytes[:0] = b"\n"
            count = os.write(self._fd, self._bytes)
            written = self._bytes.rfind(b"\n", 0, count) + 1
            # a process that was killed in its line since then took our first one with it
            torn = ends_torn(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - count)
            kept = self._bytes.find(b"\n", 1, written) + 1 if torn and self._bytes[0] != 10 else 0
            del self._bytes[kept:written]
        if self.fsync == "batch":
            os.fsync(self._fd)

    def _let_go(self) -> None:
        """Close the file, for what stands under its path now may be another one, which needs the specs, too."""
        with self._lock:
            if self._fd is None:
                return
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None
            specs = b"".join(map(encoded, self._specs.values()))
            if not self._bytes.startswith(specs):  # else the last one that was opened took nothing
                self._bytes[:0] = specs

    def _count_as_done(self) -> None:
        """Count what was taken as done: it is in the file, or dropped."""
        with self._lock:
            self._done += self._taken
            self._size -= self._taken_size
            self._taken = self._taken_size = 0
            self._failing = False
            if self._refused:
                logger.error(
                    "the ledger %s: %d lines are lost, %d in all", self.file, self._refused, self.dropped
                )
                self._refused = 0
            self._changed.notify_all()

    def _wait_for_the_disk(self, error: OSError) -> None:
        """Keep the lines, and wait; drop them if the ledger closes."""
        now = time.monotonic()
        if now - self._told > _TELL_S:
            self._told = now
            logger.error(
                "the ledger %s cannot be written (%s): %d lines wait for it, %d were dropped; grading goes on",
                self.file,
                error.strerror or error,
                self._handed - self._done,
                self.dropped,
            )
        with self._lock:
            self._failing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing, _RETRY_S)
            if self._closing:  # do not wait for a disk forever
                self._drop()

    def _drop(self) -> None:
        """Drop all lines that wait for the disk, with the lock held."""
        self._taken, self._taken_size = self._handed - self._done, self._size
        self._lines.clear()
        self._bytes.clear()
        self.dropped += self._taken
        logger.error("the ledger %s: %d lines are lost, %d in all", self.file, self._taken, self.dropped)
        self._count_as_done()

    def _opened(self) -> int:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __reduce__(self) -> Any:
        return _ledger, (os.fspath(self.path) + (os.sep if self._in_folder else ""), self.texts, self.fsync)


_open_ledgers: WeakSet[Ledger] = WeakSet()


def flush_ledgers(path: Path) -> None:
    """Wait for this process's ledgers at *path*."""
    for ledger in list(_open_ledgers):
        if path.absolute() in (ledger.path.absolute(), ledger.file.absolute()):
            ledger.wait_for_lines(failing=False)


@atexit.register
def _close_ledgers() -> None:
    for ledger in list(_open_ledgers):
        ledger.close()


def _ledger(path: str, texts: bool, fsync: Fsync) -> Ledger:
    return Ledger(path, texts=texts, fsync=fsync)
