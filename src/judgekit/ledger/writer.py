"""Writes a ledger.

A thread writes graded rollouts as they come: a killed process loses milliseconds, and the event loop never waits for a
disk. A disk that is full or gone costs no reward: lines wait in memory, up to a bound, until there is space again. A disk
that takes lines, but more slowly than they are made, holds back whoever makes them, and loses none.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol
from weakref import WeakSet

from judgekit.errors import ConfigError, describe
from judgekit.fork import in_child, leave_to_parent
from judgekit.ledger.jsonl import encoded, ends_torn, stable
from judgekit.ledger.schema import Entry, Spec
from judgekit.types import RewardResult, Rollout

logger = logging.getLogger("judgekit")

Fsync = Literal["never", "batch"]
"""Whether lines are forced to the disk after every batch, or never. It only matters if the whole machine goes down: the
lines of a killed process are in the file either way."""

MAX_WAITING_BYTES = 256 << 20
"""Lines that wait in memory for a disk that does not take them; more are dropped and counted."""
MAX_WAITING_LINES = 500_000
_MANY = 10_000
"""So many waiting lines hold back whoever makes more."""
_BATCH, _BREATH_S = 64, 0.001
"""Lines that are encoded at once, and the pause after them: an event loop that wants to go on waits no longer than that."""
_LARGE_BATCH = 1024
"""Lines that are encoded at once, without a pause, where many wait."""
_HELD_BACK_S = 0.1
"""Pause before those who are held back look again."""
_RETRY_S = 1.0
"""Pause before the disk is tried again."""
_TICK_S = 0.3
"""Runs are told so often to hand over what waits; what has waited for two ticks is handed over."""
_TELL_S = 60.0
"""Least seconds between two log lines about a disk."""
_EXIT_S = 10.0
"""How long the end of the process waits for a disk that takes no line; nobody is held back for one any longer, either."""


_Graded = tuple[RewardResult, Rollout, str, str, Mapping[str, Any], float, int]
"""A result with its rollout, the digest of its spec, its run, the run's tags, the time, and its group's first index."""


class Run(Protocol):
    """A run that the ledger asks, now and then, for grades of unfinished rollouts."""

    def checkpoint(self) -> None: ...


class Ledger:
    """Writes graded rollouts to *path*.

    *path*: a file, which processes of one machine may share; or a folder (one that exists, or a path that ends with
    "/"), in which each process writes its own file, for file systems that several machines share. `read_ledger` reads
    both. *texts*: also keep prompts, messages, responses and ground truths, for reports and regrading; they make a
    training run's ledger large. *fsync*: see `Fsync`. Safe to use from several threads and event loops.
    """

    def __init__(self, path: str | os.PathLike[str], *, texts: bool = False, fsync: Fsync = "batch") -> None:
        self.path = Path(path)
        self.texts = texts
        if fsync not in ("never", "batch"):
            raise ConfigError(f"ledger: fsync is 'never' or 'batch', not {fsync!r}")
        self.fsync: Fsync = fsync
        self._in_folder = os.fspath(path).endswith(os.sep) or self.path.is_dir()
        self.dropped = 0
        """Lines that were lost because the disk took none for too long."""
        self._reset()
        in_child(self._forked)
        _open_ledgers.add(self)

    @property
    def lost(self) -> int:
        """Lines that are not in the file: dropped ones, and those that still wait."""
        return self.dropped + self._handed - self._done

    def _forked(self) -> None:
        """A parent writes its own waiting lines."""
        leave_to_parent(self._runs, self._waiting)
        self._reset()

    def _reset(self) -> None:
        """Start with no thread, lines or file."""
        self.file = self.path
        """The file that this process writes."""
        if self._in_folder:
            self.file = self.path / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        self._lock = threading.RLock()  # reentrant: a run that is collected while we hold it may write
        self._waiting: deque[Spec | Entry | _Graded] = deque()
        self._handed = self._done = 0
        """Lines handed over, and lines written or dropped."""
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._fd: int | None = None
        self._specs: dict[str, Spec] = {}
        self._runs: dict[asyncio.AbstractEventLoop, set[Run]] = {}
        self._bytes = bytearray()
        """Encoded lines that the disk has not taken yet; touched by the thread alone."""
        self._lines = 0
        self._writing = threading.Lock()
        """Held by the thread that writes: its successor waits for it."""
        self._failing = False
        self._refused = 0
        """Lines that were dropped since the disk took the last ones."""
        self._told = self._ticked = 0.0
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

    def add(
        self,
        result: RewardResult,
        rollout: Rollout,
        *,
        spec: str,
        run: str,
        tags: Mapping[str, Any],
        group_first: int = 0,
    ) -> None:
        """Hand over a result, which must not change afterwards: the thread encodes it."""
        self.write((result, rollout, spec, run, tags, time.time(), group_first))

    def write(self, line: Spec | Entry | _Graded) -> None:
        """Hand over a line. It is in the file some milliseconds later.

        Whoever writes many lines waits now and then, with `catch_up` or `flush`.
        """
        with self._lock:
            if len(self._waiting) >= MAX_WAITING_LINES and not self._takes_lines():
                self._refuse()
                return
            first = not self._waiting
            self._waiting.append(line)
            self._handed += 1
            if first:
                self._began = time.monotonic()
            if not self._started_thread() and first:
                self._changed.notify_all()

    async def catch_up(self) -> None:
        """Wait while many lines wait for a disk that takes them."""
        while len(self._waiting) >= _MANY and self._takes_lines():
            await asyncio.sleep(_HELD_BACK_S)

    def _takes_lines(self) -> bool:
        return not self._failing and time.monotonic() - self._began < _EXIT_S

    def _refuse(self) -> None:
        """Drop a line that is handed over, with the lock held."""
        if not self._refused:
            logger.error(
                "the ledger %s takes no lines, and %d wait: those that follow are lost until it does",
                self.file,
                len(self._waiting),
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

    def watch(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        """Call `run.checkpoint` on its loop now and then, until `unwatch`."""
        with self._lock:
            first = not self._runs
            self._runs.setdefault(loop, set()).add(run)
            if not self._started_thread() and first:
                self._changed.notify_all()  # it waits without a timeout

    def unwatch(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        """Stop calling a run that has ended."""
        with self._lock:
            runs = self._runs.get(loop, set())
            runs.discard(run)
            if not runs:
                self._runs.pop(loop, None)

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
        if self._thread is None and self._waiting:  # none could be started, as when the interpreter ends
            self._work()
        self.wait_for_lines(failing=True)
        with self._lock:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None:
            thread.join(_EXIT_S)
        # a thread may still be writing: ours, held up by the disk, or a new one
        if not self._writing.acquire(timeout=_EXIT_S):
            return
        try:
            with self._lock:
                if self._fd is not None and self._thread is None:
                    os.close(self._fd)
                    self._fd = None
        finally:
            self._writing.release()

    def _entry(
        self,
        result: RewardResult,
        rollout: Rollout,
        spec: str,
        run: str,
        tags: Mapping[str, Any],
        at: float,
        group_first: int = 0,
    ) -> Entry:
        texts: dict[str, Any] = {}
        if self.texts:
            texts = {
                "prompt": rollout.prompt,
                "messages": rollout.messages,
                "response": rollout.response,
                "ground_truth": rollout.ground_truth,
                "extra": rollout.extra,
            }
        return Entry(
            spec=spec,
            time=at,
            run=run,
            index=result.index,
            group=result.group,
            group_first=group_first,
            id=rollout.id,
            tags=tags,
            reward=result.reward,
            status=result.status,
            raw_reward=result.raw_reward,
            contributions=result.contributions,
            missing=result.missing,
            policies=result.policies,
            grades=result.grades,
            usage=result.usage,
            wall_s=result.wall_s,
            data_source=rollout.data_source,
            finish_reason=rollout.finish_reason,
            response_tokens=rollout.response_tokens,
            response_chars=len(rollout.response),
            response_digest=_digest(rollout.response.encode("utf-8", "surrogatepass")),
            rollout_digest=rollout_digest(rollout),
            **texts,
        )

    # ---- the thread

    def _work(self) -> None:
        """Write lines until the ledger is closed or has another thread. Without another, write all that are left."""
        me = threading.current_thread()
        with self._writing:
            while True:
                with self._lock:
                    self._tick()
                    while self._thread is me and not self._waiting and not self._lines:
                        self._changed.wait(_TICK_S if self._runs else None)
                        self._tick()
                    succeeded = self._thread not in (me, None)
                    if succeeded or not (self._waiting or self._lines):
                        return
                    self._began = time.monotonic()
                    count = len(self._waiting)
                    if not self._failing:  # else all become bytes, which have a bound
                        count = min(count, _BATCH if count < _MANY else _LARGE_BATCH)
                    taken = [self._waiting.popleft() for _ in range(count)]
                for line in taken:
                    self._encode(line)
                self._lines += len(taken)
                del taken  # do not keep results of finished runs alive
                try:
                    self._drain()
                except OSError as error:
                    self._wait_for_the_disk(error)
                else:
                    self._settle()
                if _BATCH <= len(self._waiting) < _MANY:
                    time.sleep(_BREATH_S)

    def _encode(self, line: Spec | Entry | _Graded) -> None:
        """Encode one line, or drop it if that fails: the thread must not die."""
        try:
            self._bytes += encoded(self._entry(*line) if isinstance(line, tuple) else line)
        except Exception as error:
            self.dropped += 1
            error_name, _ = describe(error)
            logger.error("the ledger %s: a line is lost (%s), %d in all", self.file, error_name, self.dropped)

    def _tick(self) -> None:
        """Call all runs if it is time, with the lock held. They answer later, on their loops."""
        now = time.monotonic()
        if now - self._ticked < _TICK_S:
            return
        self._ticked = now
        for loop, runs in list(self._runs.items()):
            try:
                loop.call_soon_threadsafe(_checkpoint, runs)
            except RuntimeError:  # it was closed under its runs
                del self._runs[loop]

    def _drain(self) -> None:
        """Write the encoded lines. A line written in part is written again, whole, on a new line."""
        with self._lock:
            if self._fd is not None:
                stat = os.fstat(self._fd)
                if not stat.st_nlink or (self._done and not stat.st_size):
                    logger.warning("the ledger %s was deleted or emptied: it is begun again", self.file)
                    os.close(self._fd)
                    self._fd = None
                    self._bytes[:0] = b"".join(map(encoded, self._specs.values()))
            if self._fd is None:
                self._fd = self._opened()
        while self._bytes:
            # a newline ends a torn line, ours or that of another process that appends to the file
            if self._bytes[0] != 10 and ends_torn(self._fd):
                self._bytes[:0] = b"\n"
            count = os.write(self._fd, self._bytes)
            del self._bytes[: self._bytes.rfind(b"\n", 0, count) + 1]
        if self.fsync == "batch":
            os.fsync(self._fd)

    def _settle(self) -> None:
        with self._lock:
            self._done += self._lines
            self._lines = 0
            self._failing = False
            if self._refused:
                logger.error(
                    "the ledger %s: %d lines are lost, %d in all", self.file, self._refused, self.dropped
                )
                self._refused = 0
            self._changed.notify_all()

    def _wait_for_the_disk(self, error: OSError) -> None:
        """Keep unwritten lines, or drop them if they are too many; then wait."""
        now = time.monotonic()
        if now - self._told > _TELL_S:
            self._told = now
            logger.error(
                "the ledger %s cannot be written (%s): %d lines wait for it, %d were dropped; grading goes on",
                self.file,
                error.strerror or error,
                self._lines + len(self._waiting),
                self.dropped,
            )
        if len(self._bytes) > MAX_WAITING_BYTES:
            self._drop()
        me = threading.current_thread()
        with self._lock:
            self._failing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is not me, _RETRY_S)
            closed = self._thread is None
        if closed:  # do not wait for a disk forever
            self._drop()

    def _drop(self) -> None:
        """Drop the lines that wait for the disk."""
        with self._lock:
            self._lines += len(self._waiting)
            self._waiting.clear()
        self._bytes.clear()
        self.dropped += self._lines
        logger.error("the ledger %s: %d lines are lost, %d in all", self.file, self._lines, self.dropped)
        self._settle()

    def _opened(self) -> int:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __reduce__(self) -> Any:
        return _ledger, (os.fspath(self.path) + (os.sep if self._in_folder else ""), self.texts, self.fsync)


def _checkpoint(runs: set[Run]) -> None:
    for run in list(runs):
        run.checkpoint()


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


def rollout_digest(rollout: Rollout) -> str:
    """Return a digest of everything that a grader can read of a rollout, except its id and group."""
    fields = [getattr(rollout, field) for field in _GRADED]
    return _digest(stable(fields))


_GRADED = tuple(field for field in Rollout.__struct_fields__ if field not in ("id", "group"))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
