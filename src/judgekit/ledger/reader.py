"""Reads a ledger."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import numbered_lines
from judgekit.ledger.schema import Entry, Line, Spec, logger
from judgekit.ledger.writer import flush_ledgers


class Reading(Struct):
    """The contents of a ledger."""

    specs: dict[str, Spec]
    entries: list[Entry]
    torn: list[int]
    """Numbers (from 1) of lines that were skipped, each in its file: incomplete ones, left by a process that was
    killed while it wrote, and foreign ones."""


def read_ledger(path: str | os.PathLike[str], *, strict: bool = True) -> Reading:
    """Read a whole ledger: a file, or all files of a folder; skipped lines are listed in `torn` and logged.

    Lines that a ledger of this process has not written yet are waited for. *strict*: a line that is JSON but not a
    ledger's is an error; else it is skipped. Raises DataError if the file cannot be read.
    """
    folder = Path(path)
    flush_ledgers(folder)
    if not folder.is_dir():
        return _read(path, Reading({}, [], []), strict)
    reading = Reading({}, [], [])
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise DataError(f"{path} holds no ledger: there is no file *.jsonl in it")
    for file in files:
        _read(file, reading, strict)
    return reading


def _read(path: str | os.PathLike[str], reading: Reading, strict: bool) -> Reading:
    torn: list[int] = []
    for number, line in numbered_lines(path):
        try:
            made = _decoder.decode(line)
        except msgspec.ValidationError as error:
            if strict:
                raise DataError(f"{path}, line {number}: not a line of a judgekit ledger ({error})") from None
            torn.append(number)
            continue
        except (msgspec.DecodeError, UnicodeDecodeError):
            torn.append(number)
            continue
        if isinstance(made, Spec):
            reading.specs[made.digest] = made
        else:
            reading.entries.append(made)
    if torn:
        logger.warning("%s: skipped %d line(s), the first is line %d", path, len(torn), torn[0])
        reading.torn.extend(torn)
    return reading


_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
