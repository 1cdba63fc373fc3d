"""A person's marks of rollouts: good or bad, or a score, with a note; a file beside the ledger, and labels for judging the judge.

    ledger.jsonl  →  ledger.marks.jsonl    {"run": …, "index": …, "mark": "good", "note": "…", "time": …}

The last line of a rollout counts; a mark of "" takes one back. Where another run replaces the rollout's line, its mark follows. The file is only ever appended to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded, ends_torn, numbered_lines
from judgekit.ledger.reader import beside


class Mark(Struct, frozen=True, omit_defaults=True):
    """What a person says of one rollout of a ledger."""

    run: str
    index: int
    mark: Literal["good", "bad", ""]
    note: str = ""
    id: str = ""
    time: float = 0.0
    """Seconds since the epoch."""
    score: float | None = None
    """From 0 to 1, where the person gave one; above the middle the mark is good, below it bad."""


def marks_path(ledger: str | os.PathLike[str]) -> Path:
    """Where the marks of a ledger are."""
    return beside(ledger, "marks")


def read_marks(
    ledger: str | os.PathLike[str], places: Mapping[tuple[str, int], tuple[str, int]] = {}
) -> dict[tuple[str, int], Mark]:
    """Read a ledger's marks by run and index; none where there is no file. Torn lines are skipped.

    *places*: for lines that another run has replaced, the one in their place, which has their mark if it has none of its own.
    Raises DataError for another line that is no mark.
    """
    path = marks_path(ledger)
    found: dict[tuple[str, int], Mark] = {}
    if not path.exists():
        return found
    for number, line in numbered_lines(path):
        try:
            mark = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not isinstance(error, msgspec.ValidationError) and _BEGINS.startswith(
                line[: len(_BEGINS)].strip()
            ):
                continue  # torn: whoever made the mark was told that it could not be written
            raise DataError(f"{path}, line {number}: not a mark ({error})") from None
        found[mark.run, mark.index] = mark
    own = {key: mark for key, mark in found.items() if key not in places}  # one that was taken back, too
    moved = {places[key]: mark for key, mark in found.items() if key in places}
    return {
        key: mark for key, mark in (moved | own).items() if mark.mark or mark.note or mark.score is not None
    }


def write_mark(ledger: str | os.PathLike[str], mark: Mark) -> None:
    """Append a mark, stamped with the time. Raises OSError where the file cannot be written."""
    line = encoded(msgspec.structs.replace(mark, time=time.time()))
    with open(marks_path(ledger), "a+b") as file:
        file.write(b"\n" + line if ends_torn(file.fileno()) else line)


_BEGINS = b'{"run":'
"""How a mark begins."""
_decoder = msgspec.json.Decoder(Mark)
