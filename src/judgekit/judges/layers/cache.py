"""Caches replies, and shares equal requests in flight.

Only replies whose verdict could be parsed are stored, never failures. At a temperature above 0 replies are random, and behind
an image's address may be another image tomorrow: these are stored only for the run that asked, and not on disk.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from queue import SimpleQueue
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeUnavailable, VerdictError
from judgekit.execution.stopwatch import STOPWATCH
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Sampling
from judgekit.judges.layers.retrying import Retrying, beside
from judgekit.types import CURRENT_RUN, Usage

logger = logging.getLogger("judgekit")


class Cached:
    """Answers repeated requests from memory or *disk*, and joins those in flight.

    *entries*: replies in memory, least recently used dropped first; 0 keeps none and only joins. *identify*: the
    engine whose `identity()` names its weights; it is part of the key, so that replies of another model under
    the same name are not mixed up. *retrying*: asks that engine again after what may pass. The key also has the rendered prompt (without its nonce), sampling, stops, labels or
    schema, the grader's name and version, and the vote.

    If the caller that sent a request is cancelled, one of those that joined it sends it again.
    """

    def __init__(
        self,
        inner: Judge,
        *,
        entries: int = 50_000,
        disk: DiskCache | None = None,
        identify: Any = None,
        retrying: Retrying | None = None,
    ) -> None:
        if entries < 0:
            raise ConfigError(f"cache: entries is at least 0, not {entries}")
        self.inner = inner
        self.entries = entries
        self.disk = disk
        self.hits = 0
        self.joins = 0
        self._engine = identify if identify is not None else inner
        self._retrying = retrying
        self._memory: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._flying: dict[tuple[int, bytes], _Flight] = {}

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        # only a reply that is kept can outlive the weights that gave it
        key = request_key(request, await self._identity() if self._keeps else "")
        found = self._look_up(key, request)
        if found is not None:
            self.hits += 1
            return found
        place = (id(asyncio.get_running_loop()), key)
        while (flight := self._flying.get(place)) is not None:
            shared = await flight.join()
            if shared is not None:
                self.joins += 1
                return msgspec.structs.replace(shared, usage=Usage(), nonce=shared.nonce or flight.nonce)
        flight = self._flying[place] = _Flight(request.nonce)
        try:
            reply = await self._fetch(key, request)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise JudgeUnavailable("the call was cancelled") from cancelled
        except Exception as error:
            flight.failed(error)
            raise
        else:
            flight.landed(reply)
            return reply
        finally:
            del self._flying[place]
            flight.given_up()  # if it did not end

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()

    @property
    def _keeps(self) -> bool:
        return self.entries > 0 or self.disk is not None

    async def _identity(self) -> str:
        identity = getattr(self._engine, "identity", None)
        return str(await beside(self._retrying, identity)) if identity is not None else repr(self._engine)

    async def _fetch(self, key: bytes, request: JudgeRequest) -> JudgeReply:
        reply = await self.inner.complete(request)
        if request.accept is not None and self._keeps:
            with contextlib.suppress(VerdictError):
                request.accept(reply)
                self._keep(key, request, reply)
        return reply

    def _look_up(self, key: bytes, request: JudgeRequest) -> JudgeReply | None:
        data: bytes | None = None
        if self.entries:
            with self._lock:
                data = self._memory.get(key)
                if data is not None:
                    self._memory.move_to_end(key)
        if data is None and self.disk is not None and _lasts(request):
            data = self.disk.get(key)
            if data is not None:
                self._remember(key, data)
        if data is None:
            return None
        try:
            reply = _decoder.decode(data)
        except msgspec.MsgspecError:  # a row of another version, or a damaged one
            return None
        return msgspec.structs.replace(reply, usage=Usage(), latency_s=0.0)

    def _keep(self, key: bytes, request: JudgeRequest, reply: JudgeReply) -> None:
        data = _encoder.encode(msgspec.structs.replace(reply, nonce=reply.nonce or request.nonce))
        self._remember(key, data)
        if self.disk is not None and _lasts(request):
            self.disk.put(key, data)

    def _remember(self, key: bytes, data: bytes) -> None:
        if self.entries:
            with self._lock:
                self._memory[key] = data
                if len(self._memory) > self.entries:
                    self._memory.popitem(last=False)


class _Flight:
    """A call in flight, made by its first caller, and those that wait for its reply."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self._stopwatch = STOPWATCH.get()
        self._waiting: list[asyncio.Future[JudgeReply | None]] = []

    async def join(self) -> JudgeReply | None:
        """Wait for the reply; None if whoever made the call has given up: it is to be made again."""
        future: asyncio.Future[JudgeReply | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._stopwatch is None:
            return await future
        with self._stopwatch.shared_by(STOPWATCH.get()):  # a restart holds up all who wait for it
            return await future

    def landed(self, reply: JudgeReply) -> None:
        for future in self._left():
            future.set_result(reply)

    def failed(self, error: Exception) -> None:
        for future in self._left():
            future.set_exception(error)

    def given_up(self) -> None:
        for future in self._left():
            future.set_result(None)

    def _left(self) -> list[asyncio.Future[JudgeReply | None]]:
        """Those that still wait; they do so no longer."""
        waiting, self._waiting = self._waiting, []
        return [future for future in waiting if not future.done()]


def request_key(request: JudgeRequest, identity: str) -> bytes:
    """Return a key that equal requests to the same weights share."""
    sampling = request.sampling
    parts: list[Any] = [
        identity,
        [
            (turn.role, [(p.text, p.trusted, p.max_tokens, p.pool, *p.image.split()) for p in turn.pieces])
            for turn in request.turns
        ],
        request.choices,
        request.json_schema,
        request.max_tokens,
        [sampling.temperature, sampling.top_p, sampling.seed, sampling.max_tokens, _thinking(sampling)],
        request.vote,
        request.asker,
        "" if _lasts(request) else CURRENT_RUN.get(),
        *request.stop,
    ]
    data = msgspec.json.encode(parts)
    if request.nonce:
        data = data.replace(request.nonce.encode(), b"")
    return hashlib.blake2b(data, digest_size=16).digest()


def _lasts(request: JudgeRequest) -> bool:
    """Whether a later run would get the same reply."""
    return request.sampling.temperature <= 0 and not any(
        piece.image and not piece.image.startswith("data:") for turn in request.turns for piece in turn.pieces
    )


def _thinking(sampling: Sampling) -> bool | int:
    """What verdicts depend on: without thinking, not its budget."""
    return sampling.thinking_tokens if sampling.thinking else False


class DiskCache:
    """Stores replies in an SQLite file that several processes can share.

    The file is opened on first use. Reads never wait for a writer. A thread writes in batches, so that the event loop waits neither for the disk
    nor for another process's lock.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[bytes, bytes] | None] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._pid = os.getpid()

    def open(self) -> None:
        """Open the file, or make it. Raises ConfigError if it is no cache or cannot be written."""
        try:
            self._connection().execute("SELECT count(*) FROM replies").fetchone()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"cache: cannot use {self.path}: {error}") from None

    def get(self, key: bytes) -> bytes | None:
        try:
            row = self._connection().execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        except (OSError, sqlite3.Error):
            return None  # treat an unreadable cache as empty
        return row[0] if row else None

    def put(self, key: bytes, data: bytes) -> None:
        with self._lock:
            self._check_process()
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="judgekit-cache", daemon=True)
                self._writer.start()
                atexit.register(self.close)
            self._queue.put((key, data))

    def close(self) -> None:
        """Write pending replies and close this thread's connection; the next use opens another."""
        with self._lock:
            self._check_process()
            writer, self._writer = self._writer, None
        if writer is not None:
            atexit.unregister(self.close)
            self._queue.put(None)
            writer.join(15.0)
        self._local.opened = None

    def _write(self) -> None:
        connection = self._open_patiently()
        try:
            ended = False
            while not ended:
                batch = [self._queue.get()]
                while not self._queue.empty() and len(batch) < 500:
                    batch.append(self._queue.get())
                ended = None in batch
                if connection is None:  # what is not kept must not pile up either
                    continue
                rows = [row for row in batch if row is not None]
                with contextlib.suppress(sqlite3.Error), connection:
                    connection.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?)", rows)
        finally:
            if connection is not None:
                connection.close()

    def _open_patiently(self) -> sqlite3.Connection | None:
        """Open the writer's connection. SQLite's own timeout does not cover the moment in which a new file gets its mode."""
        for last in (*([False] * 20), True):
            try:
                return self._connection()
            except (OSError, sqlite3.Error) as error:
                if last or "locked" not in str(error):
                    logger.warning("cache: cannot use %s, so nothing is kept there: %s", self.path, error)
                    break
                time.sleep(0.05)
        return None

    def _connection(self) -> sqlite3.Connection:
        self._check_process()
        opened: _Opened | None = getattr(self._local, "opened", None)
        if opened is None:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            opened = _Opened(self.path)
            self._local.opened = opened
        return opened.connection

    def _check_process(self) -> None:
        """Drop the parent's connections and thread in a forked child."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._local, self._queue, self._writer = threading.local(), SimpleQueue(), None

    def __reduce__(self) -> Any:
        return DiskCache, (self.path,)


class _Opened:
    """A thread's connection, which is closed when the thread ends."""

    def __init__(self, path: str) -> None:
        # the thread's end, and so the close, may be noticed in another
        self.connection = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL)",
        ):
            self.connection.execute(statement)

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JudgeReply)
