"""Caches replies under the identity of what made them, and shares equal requests in flight.

Only replies whose verdict could be parsed are stored, never failures, and none whose maker is not known for certain. At a
temperature above 0 replies are random, and behind an image's address may be another image tomorrow: these are stored only for
the run that asked, and not on disk.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeError, JudgekitError, JudgeTimeout
from judgekit.execution.flight import Flights
from judgekit.execution.kept import Kept
from judgekit.execution.stopwatch import off_the_clock
from judgekit.execution.within import OutOfTime, within
from judgekit.fork import in_child, leave_to_parent
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Sampling
from judgekit.judges.layers.retrying import Retrying, beside
from judgekit.types import Usage

logger = logging.getLogger("judgekit")

_SAYS_S = 5.0
"""An engine that does not say within this time what it is, is away, if it has ever said it."""
_AWAY_S = 2.0
_MOST_BYTES = 256 << 20
"""Replies in memory take at most so many bytes."""


class Cached:
    """Answers repeated requests from memory or *disk*, and joins those in flight.

    *entries*: replies in memory, least recently used dropped first; 0 keeps none and only joins. *identify*: the
    engine whose `identity()` names what makes its replies: weights, template, tokenizer. It is part of the key, and a reply is
    stored under the identity that it carries, if the engine says the same after it. While the engine does not
    answer, replies are found under the last identity that is known, also from the file. *retrying*: asks that engine again
    after what may pass. The key also has the rendered prompt (without its nonce), sampling, stops, labels or schema, the
    grader's name and version, and the vote.
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
        self._memory: Kept[bytes, bytes] = Kept(entries, _MOST_BYTES)
        self._flights: Flights[_Shared] = Flights()
        self._last = ""
        """The last identity that the engine said."""
        self._away_until = 0.0
        """Monotonic time until which what is stored is found without asking the engine, for it did not say."""
        shows: Any = type(self._engine).__repr__
        self._unnamed = repr(self._engine) + (secrets.token_hex(8) if shows is object.__repr__ else "")
        """What an engine is called that has no identity: an address in memory is only this process's."""

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        identity = await self._identity(request) if self._keeps else ""
        key = request_key(request, identity)
        if identity and (found := self._look_up(request, key)) is not None:
            self.hits += 1
            return found
        shared = await self._flights.join(key, partial(self._fetch, request, identity, key))
        if not shared.taken:
            shared.taken = True
            return shared.reply
        self.joins += 1
        return msgspec.structs.replace(shared.reply, usage=Usage())

    async def check(self, request: JudgeRequest, check: Callable[[], Awaitable[None]]) -> None:
        """Await *check*, which asks the engine whether it can answer *request*; what it said last while it is away."""
        if self.disk is None:
            return await check()
        wrong: ConfigError | None = None
        try:
            await check()
        except ConfigError as error:
            wrong = error
        except JudgeError:
            said = self.disk.get(_check_key(request, self._last_known()))
            if said is None:
                raise
            if said:
                raise ConfigError(said.decode()) from None
            return
        if identity := await self._now():
            self.disk.put(_check_key(request, identity), str(wrong or "").encode())
        if wrong is not None:
            raise wrong

    @property
    def _keeps(self) -> bool:
        return self.entries > 0 or self.disk is not None

    async def _identity(self, request: JudgeRequest) -> str:
        """Return what the engine is; while it is away, what it was last, if a reply is stored under that."""
        last = self._last_known()
        if last and time.monotonic() >= self._away_until:
            try:
                # another engine may take its time to read its weights, which are others by now
                return await self._ask(_SAYS_S if hasattr(self._engine, "known_as") else None)
            except JudgeError:
                self._away_until = time.monotonic() + _AWAY_S
        if last and self._look_up(request, request_key(request, last)) is not None:
            return last
        return await beside(self._retrying, self._ask)

    async def _ask(self, wait_s: float | None = None) -> str:
        """Ask the engine what it is; "" where that is nothing certain. Raises JudgeError if it does not say."""
        ask = getattr(self._engine, "identity", None)
        if ask is None:
            return self._unnamed
        try:
            identity = str(await within(wait_s, ask()))
        except OutOfTime:
            raise JudgeTimeout(f"{self._engine!r} did not say within {wait_s:g} s what it is") from None
        self._away_until = 0.0
        if identity != self._last:
            self._last = identity
            if self.disk is not None and identity:
                self._note(self.disk, identity)
        return identity

    def _note(self, disk: DiskCache, identity: str) -> None:
        """Note the identity, for a process that finds the engine away."""
        name, certain = _name(self._engine)
        before = disk.get(name)
        if before != identity.encode():
            disk.put(name, identity.encode() if certain or before is None else b"")

    def _last_known(self) -> str:
        if not self._last and self.disk is not None:
            return (self.disk.get(_name(self._engine)[0]) or b"").decode()
        return self._last

    async def _fetch(self, request: JudgeRequest, before: str, key: bytes) -> _Shared:
        reply = await self.inner.complete(request)
        if request.nonce and not reply.nonce:
            reply = msgspec.structs.replace(reply, nonce=request.nonce)
        if request.accept is not None and self._keeps:
            with contextlib.suppress(JudgekitError):  # what is no verdict, or has wrong numbers, is not kept
                request.accept(reply)
                made_by = before if reply.identity is None else reply.identity
                if made_by and made_by == await self._now():
                    self._keep(request, key if made_by == before else request_key(request, made_by), reply)
        return _Shared(reply)

    async def _now(self) -> str:
        """Return what the engine is, now that it has replied; "" if it does not say so at once."""
        try:
            with off_the_clock():
                return await self._ask(_SAYS_S)
        except Exception:  # whatever it is, the reply is there
            return ""

    def _look_up(self, request: JudgeRequest, key: bytes) -> JudgeReply | None:
        data = self._memory.get(key)
        if data is None and self.disk is not None and _lasts(request):
            data = self.disk.get(key)
            if data is not None:
                self._memory.put(key, data, len(data))
        if data is None:
            return None
        try:
            reply = _decoder.decode(data)
        except (msgspec.MsgspecError, ValueError):  # a row of another version
            return None
        return msgspec.structs.replace(reply, usage=Usage(), latency_s=0.0)

    def _keep(self, request: JudgeRequest, key: bytes, reply: JudgeReply) -> None:
        data = _encoder.encode(msgspec.structs.replace(reply, identity=None))
        self._memory.put(key, data, len(data))
        if self.disk is not None and _lasts(request):
            self.disk.put(key, data)


def _check_key(request: JudgeRequest, identity: str) -> bytes:
    return hashlib.blake2b(request_key(request, identity), key=b"check", digest_size=16).digest()


class _Shared:
    """A reply for several callers, one of whom pays for it."""

    __slots__ = ("reply", "taken")

    def __init__(self, reply: JudgeReply) -> None:
        self.reply = reply
        self.taken = False


def _name(engine: Any) -> tuple[bytes, bool]:
    """Return the key of an engine's last identity, and whether no other engine has it.

    An engine's `known_as` is its address and settings. Others are known by what they show, or by their class, and then only if
    all that were known by it were the same.
    """
    known = getattr(engine, "known_as", None)
    shows: Any = type(engine).__repr__
    name = known or (
        f"{type(engine).__module__}.{type(engine).__qualname__}" if shows is object.__repr__ else repr(engine)
    )
    return hashlib.blake2b(f"identity of {name}".encode(), digest_size=16).digest(), known is not None


def request_key(request: JudgeRequest, identity: str) -> bytes:
    """Return a key that equal requests to the same weights share."""
    sampling = request.sampling
    parts: list[Any] = [
        identity,
        request.turns,
        request.choices,
        request.json_schema,
        request.max_tokens,
        [sampling.temperature, sampling.top_p, sampling.seed, sampling.max_tokens, _thinking(sampling)],
        request.vote,
        request.asker,
        "" if _lasts(request) else request.run,
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
    nor for another process's lock. Each row has a checksum of its key and content: a damaged one is none, and is
    deleted. A file that cannot be read or written, for a while or for good, costs a line in the log.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._reader: _Opened | None = None
        self._rests_until = 0.0
        """Monotonic time until which the file is not read, for that failed."""
        self._queue: SimpleQueue[_Change | None] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._said: set[str] = set()
        in_child(self._forked)

    def open(self) -> None:
        """Open the file, or make it. Raises ConfigError if it is no cache; one that is locked, full or read-only is logged."""
        try:
            with self._lock:
                self._read("SELECT count(*) FROM replies", ())
        except _ERRORS as error:
            if not _may_pass(error):
                raise ConfigError(f"cache: cannot use {self.path}: {error}") from None
            self._unusable(error)

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            if time.monotonic() < self._rests_until:
                return None
            try:
                row = self._read("SELECT reply FROM replies WHERE key = ?", (key,))
            except _ERRORS as error:
                self._unusable(error)
                self._end_reading()
                self._rests_until = time.monotonic() + _REST_S
                return None
        if row is None:
            return None
        stored = row[0]
        if isinstance(stored, bytes) and stored[:_SUM_BYTES] == _checksum(key, stored[_SUM_BYTES:]):
            return stored[_SUM_BYTES:]
        # another process may have replaced it meanwhile
        self._change("DELETE FROM replies WHERE key = ? AND reply IS ?", (key, stored))
        return None

    def put(self, key: bytes, data: bytes) -> None:
        self._change("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, _checksum(key, data) + data))

    def close(self) -> None:
        """Write pending replies and close the file; the next use opens it again."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._end_reading()
        if writer is not None:
            atexit.unregister(self.close)
            self._queue.put(None)
            writer.join(15.0)

    def _change(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._lock:
            if self._queue.qsize() >= _MOST_PENDING:  # what cannot be written must not pile up
                return
            if self._writer is None:
                writer = threading.Thread(target=self._write, name="judgekit-cache", daemon=True)
                try:
                    writer.start()
                except RuntimeError as error:  # the system has no thread left
                    self._unusable(error)
                    return
                self._writer = writer
                atexit.register(self.close)
            self._queue.put((statement, values))

    def _read(self, statement: str, values: tuple[Any, ...]) -> Any:
        if self._reader is None:
            self._reader = _Opened(self.path, _READ_WAIT_S)
        return self._reader.connection.execute(statement, values).fetchone()

    def _end_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _write(self) -> None:
        opened: _Opened | None = None
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while not self._queue.empty() and len(batch) < 500:
                batch.append(self._queue.get())
            ended = None in batch
            try:
                opened = opened or self._open_patiently()
                with opened.connection as connection:
                    for change in batch:
                        if change is not None:
                            connection.execute(*change)
            except _ERRORS as error:
                self._unusable(error)
                if opened is not None:
                    opened.close()
                    opened = None

    def _open_patiently(self) -> _Opened:
        """Open the writer's connection. SQLite's own timeout does not cover the moment in which a new file gets its mode."""
        until = time.monotonic() + _WRITE_WAIT_S
        while True:
            try:
                return _Opened(self.path, _WRITE_WAIT_S)
            except sqlite3.OperationalError as error:
                if _code(error) not in _PASSING[:2] or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _unusable(self, error: Exception) -> None:
        if str(error) not in self._said:
            self._said.add(str(error))
            logger.warning("cache: %s cannot be used, and verdicts are asked for again: %s", self.path, error)

    def _forked(self) -> None:
        """Leave the parent its connections and its thread."""
        leave_to_parent(self._lock, self._reader, self._queue)
        self._lock, self._reader, self._queue = threading.Lock(), None, SimpleQueue()
        self._writer = None

    def __reduce__(self) -> Any:
        return DiskCache, (self.path,)


class _Opened:
    """A connection, which is closed when nobody holds it any more."""

    def __init__(self, path: str, wait_s: float) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        try:
            self._open(path, wait_s, "PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", _TABLE)
        except sqlite3.Error as error:
            if _code(error) not in _UNWRITABLE or not os.path.isfile(path):
                raise
            # a disk that is full or read-only can be read without the files that SQLite makes beside it
            try:
                self._open(
                    f"{Path(path).absolute().as_uri()}?immutable=1", wait_s, "SELECT 1 FROM replies LIMIT 1"
                )
            except sqlite3.Error:
                raise error from None

    def _open(self, path: str, wait_s: float, *statements: str) -> None:
        uri = path.startswith("file:")
        # another thread may be the last that holds it, and closes it
        self.connection = sqlite3.connect(path, timeout=wait_s, check_same_thread=False, uri=uri)
        try:
            for statement in statements:
                self.connection.execute(statement)
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    __del__ = close


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=_SUM_BYTES).digest()


def _code(error: Exception) -> int:
    """SQLite's primary code of an error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _may_pass(error: Exception) -> bool:
    """Whether a file is unusable through no fault of who named it: it is locked, or the disk is full or read-only."""
    if isinstance(error, OSError):
        return error.errno in (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
    return _code(error) in _PASSING


_Change = tuple[str, tuple[Any, ...]]
_SUM_BYTES = 16
_ERRORS = (OSError, sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)
"""What reading and writing a file raises, a damaged one too."""
_UNWRITABLE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, *_UNWRITABLE[:3])
_TABLE = "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL)"
_READ_WAIT_S, _WRITE_WAIT_S = 0.05, 10.0
"""How long a lock is waited for: the event loop waits with who reads."""
_REST_S = 1.0
_MOST_PENDING = 10_000
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JudgeReply)
