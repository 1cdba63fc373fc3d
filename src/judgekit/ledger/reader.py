"""Reads a ledger."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import numbered_lines
from judgekit.ledger.schema import FORMAT, RESUMES, Entry, Line, Spec, logger
from judgekit.ledger.writer import flush_ledgers


class Reading(Struct):
    """The contents of a ledger."""

    specs: dict[str, Spec]
    entries: list[Entry]
    torn: list[int]
    """Numbers (from 1) of lines that were skipped, each in its file: incomplete ones, left by a process that was
    killed while it wrote, and foreign ones."""
    replaced: int = 0
    """Entries that were left out, because a later run took the place of theirs."""

    def runs(self) -> list[list[int]]:
        """Return the indices of the entries run by run, each run's in the order of its input."""
        found: dict[str, list[int]] = {}
        for i in sorted(range(len(self.entries)), key=lambda i: self.entries[i].index):
            found.setdefault(self.entries[i].run, []).append(i)
        return list(found.values())


def read_ledger(path: str | os.PathLike[str], *, strict: bool = True, replaced: bool = False) -> Reading:
    """Read a whole ledger: a file, or all files of a folder; skipped lines are listed in `torn` and logged.

    Of a rollout that was written down before it was finished, only the last line counts.

    Lines that a ledger of this process has not written yet are waited for. *strict*: a line that is JSON but not a
    ledger's is an error; else it is skipped. *replaced*: also give the entries of runs that a later one resumed. Raises
    DataError if the file cannot be read.
    """
    folder = Path(path)
    flush_ledgers(folder)
    reading = Reading({}, [], [])
    for file in ledger_files(folder):
        _read(file, reading, strict)
    if any(entry.status == "unfinished" for entry in reading.entries):
        last = {(entry.run, entry.index): entry for entry in reading.entries}
        reading.entries = [entry for entry in reading.entries if last[entry.run, entry.index] is entry]
    if not replaced and any(RESUMES in entry.tags for entry in reading.entries):
        # rollout by rollout: the later run may have been of some of them only, or have ended early as well
        later = {(run, entry.rollout) for entry in reading.entries for run in entry.tags.get(RESUMES, ())}
        kept = [entry for entry in reading.entries if (entry.run, entry.rollout) not in later]
        reading.replaced = len(reading.entries) - len(kept)
        reading.entries = kept
    return reading


def ledger_files(path: Path) -> list[Path]:
    """Return the files of a ledger: itself, or all of a folder but those with marks. Raises DataError if there is none."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.glob("[!.]*.jsonl")) if not file.name.endswith(".marks.jsonl")]
    if not files:
        raise DataError(f"{path} holds no ledger: there is no file *.jsonl in it")
    return files


def _read(path: Path, reading: Reading, strict: bool) -> None:
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
            if made.format > FORMAT:
                raise DataError(
                    f"{path}, line {number}: the ledger has format {made.format}, of judgekit {made.judgekit}: this version "
                    f"reads up to {FORMAT}"
                )
            reading.specs[made.digest] = made
        else:
            reading.entries.append(made)
    if torn:
        logger.warning("%s: skipped %d line(s), the first is line %d", path, len(torn), torn[0])
        reading.torn.extend(torn)


_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
