"""The audits of a ledger: a file beside it, so that each is paid once and an interrupted command goes on where it was.

    ledger.jsonl  →  ledger.audits.jsonl    {"type": "draw", "step": 7, "watch": "judge", "random": [["run", 3], …], "paid": […]}
                                            {"type": "audit", "grader": "careful", "settings": …, "run": …, "index": 3, "grade": {…}}

Which rollouts of a step are audited is written before the first of them is: more lines of the step change nothing afterwards. The file
is only ever appended to; of several draws of a step, or audits of a rollout, the last one counts. Torn lines are skipped: what they said is asked again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, DataError
from judgekit.ledger.jsonl import encoded, ends_torn, numbered_lines
from judgekit.ledger.reader import beside
from judgekit.types import Grade

Place = tuple[str, int]
"""A rollout: its run, and its index there."""


class Draw(Struct, frozen=True, tag_field="type", tag="draw"):
    """Which rollouts of a step are audited."""

    step: Any
    watch: str
    share: float
    random: Sequence[Place]
    """Drawn at random: what figures and the alarm are of."""
    paid: Sequence[Place]
    """The best paid of the others, for the examples."""


class Audit(Struct, frozen=True, tag_field="type", tag="audit"):
    """What the audit grader says of a rollout."""

    grader: str
    settings: str
    """Identifies the version and settings of the grader."""
    run: str
    index: int
    grade: Grade
    time: float = 0.0
    """Seconds since the epoch."""


class AuditFile:
    """The audits of a ledger, as a context manager: one command at a time may write them. Raises ConfigError if another does."""

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self.path = beside(ledger, "audits")
        self.draws: dict[tuple[str, float, bytes], Draw] = {}
        self.audits: dict[tuple[str, str, str, int], Grade] = {}
        self._fd = -1

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigError(f"cannot write the audits {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise ConfigError(
                f"another judgekit audit of this ledger is running: it writes {self.path}"
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            self._load()
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def _load(self) -> None:
        for number, line in numbered_lines(self.path):
            try:
                made = _decoder.decode(line)
            except msgspec.ValidationError as error:
                raise DataError(f"{self.path}, line {number}: not an audit ({error})") from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._keep(made)

    def _keep(self, line: Draw | Audit) -> None:
        if isinstance(line, Draw):
            self.draws[line.watch, line.share, encoded(line.step)] = line
        else:
            self.audits[line.grader, line.settings, line.run, line.index] = line.grade

    def draw(self, watch: str, share: float, step: Any) -> Draw | None:
        """Return what was drawn of a step, if it was."""
        return self.draws.get((watch, share, encoded(step)))

    def write(self, line: Draw | Audit) -> None:
        """Append a line. Raises OSError where the disk takes no more."""
        if isinstance(line, Audit):
            line = msgspec.structs.replace(line, time=time.time())
        text = encoded(line)
        if ends_torn(self._fd):
            text = b"\n" + text
        if os.write(self._fd, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._keep(line)


def audits_path(ledger: str | os.PathLike[str]) -> Path:
    """Where the audits of a ledger are."""
    return beside(ledger, "audits")


_decoder: msgspec.json.Decoder[Draw | Audit] = msgspec.json.Decoder(Draw | Audit)
