"""Writes a ledger."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from judgekit.errors import ConfigError
from judgekit.ledger.schema import Entry, Spec
from judgekit.types import RewardResult, Rollout

Fsync = Literal["never", "run", "batch"]
"""When lines are forced to the disk: never, at the end of every run, or with every batch of lines.

A killed process loses at most the lines that still wait in memory; a power failure, what was not forced.
"""


_BATCH_BYTES = 1 << 18


_BATCH_S = 1.0
"""Lines are written once this many bytes wait, or with the next line after this many seconds."""


class Ledger:
    """Writes graded rollouts to *path*.

    *texts*: also keep prompts, responses and ground truths, for reports and regrading; they make a training run's
    ledger large. *fsync*: see `Fsync`. Safe to use from several threads and event loops at once.
    """

    def __init__(self, path: str | os.PathLike[str], *, texts: bool = False, fsync: Fsync = "run") -> None:
        self.path = Path(path)
        self.texts = texts
        if fsync not in ("never", "run", "batch"):
            raise ConfigError(f"ledger: fsync is 'never', 'run' or 'batch', not {fsync!r}")
        self.fsync: Fsync = fsync
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._drained = 0.0
        self._fd: int | None = None
        self._pid = os.getpid()
        self._specs: set[str] = set()

    def begin(self, spec: Spec) -> None:
        """Write how the next rollouts are graded, once per spec and process."""
        with self._lock:
            self._check_process()
            if spec.digest not in self._specs:
                self._specs.add(spec.digest)
                self._append(_encode(spec))
            self._open()  # so that a path that cannot be written is an error before the grading

    def write(self, entries: Sequence[Entry]) -> None:
        """Append *entries*; they reach the file in batches and at `flush`."""
        data = b"".join([_encode(entry) for entry in entries])
        with self._lock:
            self._check_process()
            self._append(data)

    def flush(self) -> None:
        """Write all buffered lines; called at the end of a run."""
        with self._lock:
            self._drain()
            if self.fsync == "run" and self._fd is not None:
                os.fsync(self._fd)

    def close(self) -> None:
        """Flush and close the file; the next write reopens it."""
        self.flush()
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def entry(
        self, result: RewardResult, rollout: Rollout, *, spec: str, run: str, tags: Mapping[str, Any]
    ) -> Entry:
        """Make the line for one result."""
        texts: dict[str, Any] = {}
        if self.texts:
            texts = {
                "prompt": rollout.prompt,
                "response": rollout.response,
                "ground_truth": rollout.ground_truth,
                "extra": rollout.extra,
            }
        return Entry(
            spec=spec,
            time=time.time(),
            run=run,
            index=result.index,
            group=result.group,
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
            response_digest=_digest(rollout.response),
            **texts,
        )

    def _append(self, data: bytes) -> None:
        self._buffer += data
        if (
            len(self._buffer) >= _BATCH_BYTES
            or self.fsync == "batch"
            or time.monotonic() - self._drained >= _BATCH_S
        ):
            self._drain()

    def _drain(self) -> None:
        self._drained = time.monotonic()
        if not self._buffer:
            return
        fd = self._open()
        data, self._buffer = self._buffer, bytearray()
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if self.fsync == "batch":
            os.fsync(fd)

    def _open(self) -> int:
        if self._fd is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise ConfigError(f"cannot write the ledger {self.path}: {error.strerror}") from None
            size = os.fstat(self._fd).st_size
            if size and not _ends_with_newline(self.path, size):
                os.write(self._fd, b"\n")  # the end of a torn line, so that ours begins a new one
        return self._fd

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # a forked child: the buffer is the parent's to write
            self._pid = os.getpid()
            self._buffer = bytearray()
            self._specs = set()

    def __reduce__(self) -> Any:
        return _ledger, (self.path, self.texts, self.fsync)


def _ledger(path: Path, texts: bool, fsync: Fsync) -> Ledger:
    return Ledger(path, texts=texts, fsync=fsync)


def _ends_with_newline(path: Path, size: int) -> bool:
    with open(path, "rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _encode(line: Spec | Entry) -> bytes:
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:  # lone surrogates in a response
        return _encoder.encode(_clean(msgspec.to_builtins(line, enc_hook=_plain))) + b"\n"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_clean(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    return value


def _plain(value: Any) -> Any:
    """Convert what msgspec cannot encode: numpy values, mappings, sets; anything else by repr."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return repr(value)


def _digest(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_encoder = msgspec.json.Encoder(enc_hook=_plain)
