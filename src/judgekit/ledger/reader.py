"""Reads a ledger."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import numbered_lines
from judgekit.ledger.schema import Entry, Line, Spec, logger


class Reading(Struct):
    """The contents of a ledger."""

    specs: dict[str, Spec]
    entries: list[Entry]
    torn: list[int]
    """Numbers (from 1) of incomplete lines, left by a process that was killed while it wrote."""


def read_ledger(path: str | os.PathLike[str]) -> Reading:
    """Read a whole ledger; torn lines are skipped, listed in `torn` and logged.

    Raises DataError if the file cannot be read, or a line is JSON but not a ledger's.
    """
    reading = Reading({}, [], [])
    for number, line in numbered_lines(path):
        try:
            made = _decoder.decode(line)
        except msgspec.ValidationError as error:
            raise DataError(f"{path}, line {number}: not a line of a judgekit ledger ({error})") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            reading.torn.append(number)
            continue
        if isinstance(made, Spec):
            reading.specs[made.digest] = made
        else:
            reading.entries.append(made)
    if reading.torn:
        logger.warning(
            "%s: skipped %d torn line(s), the first is line %d", path, len(reading.torn), reading.torn[0]
        )
    return reading


_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
