"""Work that is done once, however often it is asked for.

A client whose connection breaks, or whose patience ends, sends its request again. What was begun for it goes on, and its
answer waits for the same request:

* with a key of the client's (`Idempotency-Key`), all requests with that key are one;
* without one, a request is known by a digest of its body, but two samples of a policy may be the same text. So an equal
  body takes over only from a request whose client has gone without its answer.

After a restart, grades come from the ledger: `Recall`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from judgekit.errors import ServiceUnavailable
from judgekit.ledger.schema import Entry, Line
from judgekit.ledger.standing import latest

REQUEST = "request"
"""Tag of a run: the request that it belongs to, see `Recall`."""
KEEP_S = 900.0
"""How long an answer waits for a client that has gone, and grades in the ledger are taken for its request."""
WAITING_BYTES = 64 << 20
"""Of answers that nobody has taken; the oldest are dropped."""
DELIVERED_BYTES = 2 << 20
"""Of answers that were sent, for clients that they did not reach."""
RECALL_BYTES = 64 << 20
"""Of the end of a ledger's file that is read after a restart."""


def digest(*parts: bytes) -> str:
    """A short digest of *parts*."""
    made = blake2b(b"".join([len(part).to_bytes(8, "little") for part in parts]), digest_size=12)
    for part in parts:
        made.update(part)
    return made.hexdigest()


class Job:
    """Work that requests wait for. It has an answer in parts, or ends with an error."""

    def __init__(self, key: str, body: str) -> None:
        self.key = key
        self.body = body
        """Digest of the request's body."""
        self.parts: list[tuple[int, bytes]] = []
        """What there is of the answer: JSON texts with their places."""
        self.waiting = 0
        """Requests that wait for it."""
        self.delivered = False
        self.at = 0.0
        """When it was shelved."""
        self.task: asyncio.Task[None]
        self._changed = asyncio.Event()

    @property
    def size(self) -> int:
        return sum(len(part) for _, part in self.parts)

    def add(self, place: int, part: bytes) -> None:
        """Add a part to the answer."""
        self.parts.append((place, part))
        self._changed.set()

    async def whole(self) -> list[bytes]:
        """Wait for the answer; all parts in their places. Raises what the work raised."""
        await self._end()
        return [part for _, part in sorted(self.parts)]

    async def _end(self) -> None:
        try:
            await asyncio.shield(self.task)
        except asyncio.CancelledError:
            asked = asyncio.current_task()
            if not self.task.cancelled() or (asked is not None and asked.cancelling()):
                raise
            raise ServiceUnavailable("the service stopped before this was graded") from None

    async def follow(self) -> AsyncGenerator[bytes, None]:
        """Give each part as soon as it is there. Raises what the work raised."""
        given = 0
        while True:
            changed = self._changed
            while given < len(self.parts):
                yield self.parts[given][1]
                given += 1
            if self.task.done():
                break
            if changed.is_set():
                self._changed = changed = asyncio.Event()
                if given < len(self.parts):
                    continue
            waiter = asyncio.ensure_future(changed.wait())
            try:
                await asyncio.wait([waiter, self.task], return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
        await self._end()


class Answers:
    """The work of one service, by request."""

    def __init__(self) -> None:
        self._jobs: dict[str, list[Job]] = {}
        self._waiting = _Shelf(WAITING_BYTES, self._forget)
        self._delivered = _Shelf(DELIVERED_BYTES, self._forget)
        self._running: set[Job] = set()
        self._abandoned: set[Job] = set()

    @property
    def running(self) -> int:
        """Jobs that have not ended."""
        return len(self._running)

    @property
    def abandoned(self) -> int:
        """Jobs that run though nobody waits for them."""
        return len(self._abandoned)

    @contextlib.contextmanager
    def job(
        self, key: str, body: str, work: Callable[[Job], Awaitable[None]], *, unique: bool
    ) -> Iterator[Job]:
        """Find or begin the work of a request, which waits for it inside the block and sets `delivered` at its end.

        *body*: a digest of the request's. *unique*: the key is the client's own name for the request. Raises KeyError where it came with another body.
        """
        found = self._find(key, body, unique)
        if found is None:
            found = Job(key, body)
            self._jobs.setdefault(key, []).append(found)
            found.task = asyncio.ensure_future(work(found))
            self._running.add(found)
            found.task.add_done_callback(functools.partial(self._ended, found))
        with self.waiting(found, unique=unique):
            yield found

    @contextlib.contextmanager
    def waiting(self, job: Job, *, unique: bool) -> Iterator[None]:
        """Keep a job for a request that waits for it inside the block."""
        job.waiting += 1
        self._abandoned.discard(job)
        self._waiting.take(job)
        try:
            yield
        finally:
            job.waiting -= 1
            if not job.waiting and not job.task.done():
                self._abandoned.add(job)
            self._shelve(job, unique)

    def named(self, key: str) -> Job | None:
        """Return the job of a unique key, if there is one."""
        return next(iter(self._jobs.get(key, ())), None)

    def _find(self, key: str, body: str, unique: bool) -> Job | None:
        for job in list(self._jobs.get(key, ())):
            if job.at and time.monotonic() - job.at > KEEP_S and not job.waiting:
                self._forget(job)
                continue
            if job.body != body:
                raise KeyError(key)
            if unique or not (job.waiting or job.delivered):
                return job
        return None

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        self._running.discard(job)
        self._abandoned.discard(job)
        if task.cancelled() or task.exception() is not None:
            self._forget(job)  # an error is no answer: the next request tries again
        elif not job.waiting and not job.delivered:
            self._waiting.put(job)

    def _shelve(self, job: Job, unique: bool) -> None:
        if job.waiting or job not in self._jobs.get(job.key, ()) or not job.task.done():
            return
        if not job.delivered:
            self._waiting.put(job)
        elif unique:
            self._delivered.put(job)
        else:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        self._waiting.take(job)
        self._delivered.take(job)
        jobs = self._jobs.get(job.key, [])
        if job in jobs:
            jobs.remove(job)
        if not jobs:
            self._jobs.pop(job.key, None)

    async def finish(self, timeout_s: float) -> None:
        """Wait for what runs; cancels what has not ended in time."""
        running = [job.task for job in self._running]
        if running:
            _, late = await asyncio.wait(running, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


class _Shelf:
    """Jobs that have ended, up to a size and for a time."""

    def __init__(self, limit: int, forget: Callable[[Job], None]) -> None:
        self._limit = limit
        self._forget = forget
        self._jobs: OrderedDict[Job, int] = OrderedDict()
        self._bytes = 0

    def put(self, job: Job) -> None:
        self.take(job)
        job.at = time.monotonic()
        self._jobs[job] = size = job.size
        self._bytes += size
        while self._jobs:
            oldest = next(iter(self._jobs))
            if self._bytes <= self._limit and job.at - oldest.at <= KEEP_S:
                break
            self.take(oldest)
            self._forget(oldest)

    def take(self, job: Job) -> None:
        self._bytes -= self._jobs.pop(job, 0)


class Recall:
    """What a ledger holds of requests that a service before this one had begun.

    *salt*: of all that grades depend on. A request's tag in the ledger is a digest of both, so that grades of other
    settings or versions are never found.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._entries: dict[str, dict[str, list[Entry]]] = {}
        """By tag and run."""
        self._until = 0.0

    def tag(self, key: str) -> str:
        """What marks a request's runs in the ledger."""
        return digest(self._salt, key.encode("utf-8", "surrogatepass"))

    def read(self, path: Path) -> int:
        """Read the latest part of a ledger, a file or a folder; returns the number of rollouts found."""
        since = time.time() - KEEP_S
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        found = 0
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_mtime >= since:
                    found += self._read(file, since)
        self._until = time.monotonic() + KEEP_S
        return found

    def _read(self, file: Path, since: float) -> int:
        found = 0
        with open(file, "rb") as lines:
            lines.seek(max(0, file.stat().st_size - RECALL_BYTES))
            for line in lines:
                try:
                    entry = _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # cut off, torn, or foreign
                    continue
                if isinstance(entry, Entry) and entry.time >= since and REQUEST in entry.tags:
                    runs = self._entries.setdefault(str(entry.tags[REQUEST]), {})
                    runs.setdefault(entry.run, []).append(entry)
                    found += 1
        return found

    def take(self, key: str, *, unique: bool) -> list[Entry]:
        """Take out what is known of a request: all of it, or, where it is known by its text only, one run of it."""
        if not self._entries:
            return []
        if time.monotonic() > self._until:
            self._entries.clear()
            return []
        tag = self.tag(key)
        runs = self._entries.pop(tag, {})
        if unique:
            return latest([entry for entries in runs.values() for entry in entries])
        taken = runs.pop(next(iter(runs)), []) if runs else []
        if runs:
            self._entries[tag] = runs
        return latest(taken)


_decode = msgspec.json.Decoder(Line).decode
