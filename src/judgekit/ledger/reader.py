"""Reads a ledger."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import numbered_lines
from judgekit.ledger.schema import FORMAT, Entry, Line, Spec, foreign, logger
from judgekit.ledger.standing import Standing
from judgekit.ledger.writer import flush_ledgers


class Reading(Struct):
    """The contents of a ledger."""

    specs: dict[str, Spec]
    entries: list[Entry]
    torn: list[int]
    """Numbers (from 1) of skipped lines in their files: incomplete ones of processes that were killed while writing,
    foreign ones, and those nested too deeply."""
    replaced: int = 0
    """Entries that were left out, because a run that resumes theirs has replaced them."""

    def runs(self) -> list[list[int]]:
        """Return the entries' indices by run, each run's in input order."""
        found: dict[str, list[int]] = {}
        for i in sorted(range(len(self.entries)), key=lambda i: self.entries[i].index):
            found.setdefault(self.entries[i].run, []).append(i)
        return list(found.values())


def read_ledger(path: str | os.PathLike[str], *, strict: bool = True, replaced: bool = False) -> Reading:
    """Read a whole ledger: a file, or all files of a folder. Skipped lines are listed in `torn` and logged.

    Of several lines of one rollout, the latest finished one counts (`Standing`). Waits for lines that this process has
    not written yet. *strict*: a JSON line that is not a ledger's is an error; else it is skipped. *replaced*: include
    entries of runs that another one resumed. Raises DataError if the file cannot be read.
    """
    folder = Path(path)
    flush_ledgers(folder)
    warn_of_packed(folder)
    reading = Reading({}, [], [])
    for file in ledger_files(folder):
        _read(file, reading, strict)
    standing = Standing.of(reading.entries)
    left_out = standing.repeated if replaced else standing.repeated | standing.replaced
    if left_out:
        reading.entries = [entry for at, entry in enumerate(reading.entries) if at not in left_out]
        reading.replaced = len(left_out - standing.repeated)
    return reading


def ledger_files(path: Path) -> list[Path]:
    """Return a ledger's files: itself, or all of a folder except what stands beside one, marks and audits.

    Raises DataError if there is none, or if the file is compressed.
    """
    if not path.is_dir():
        if path.suffix in _PACKED and _starts_with(path, _PACKED[path.suffix]):
            raise DataError(f"{path} is compressed: unpack it first ({_UNPACK})")
        if path.suffix in (".yaml", ".yml") and path.is_file() and not _starts_with(path, b"{"):
            raise DataError(
                f"{path} is not a ledger: give the file that --ledger or the section ledger names"
            )
        return [path]
    files = files_in(path)
    if not files:
        raise DataError(f"{path} holds no ledger: there is no file *.jsonl in it")
    return files


def files_in(folder: Path, *, below: bool = False) -> list[Path]:
    """Return the ledger files in a folder, and *below* also those in its folders; not what stands beside a ledger."""
    found = (folder.rglob if below else folder.glob)("[!.]*.jsonl")
    return sorted(file for file in found if not file.name.endswith(_BESIDE))


def beside(ledger: str | os.PathLike[str], kind: Literal["marks", "audits", "curve"]) -> Path:
    """Where a ledger's marks, audits or their curve are: beside a file; beside a folder, too, whose files are all ledgers."""
    ledger = Path(ledger).resolve()
    end = "json" if kind == "curve" else "jsonl"
    return ledger.parent / f"{ledger.name if ledger.is_dir() else ledger.stem}.{kind}.{end}"


def warn_of_packed(path: Path) -> None:
    """Log which compressed files of a folder are left out."""
    packed = sorted(file.name for end in _PACKED for file in path.glob(f"[!.]*.jsonl{end}"))
    if packed:
        logger.warning(
            "%s: %d compressed file(s) are left out, the first is %s: unpack them first (%s)",
            path,
            len(packed),
            packed[0],
            _UNPACK,
        )


def _starts_with(path: Path, start: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except OSError:  # said where it is read
        return False


def _read(path: Path, reading: Reading, strict: bool) -> None:
    torn: list[int] = []
    for number, line in numbered_lines(path):
        try:
            made = _decoder.decode(line)
        except msgspec.ValidationError as error:
            if strict:
                raise foreign(path, number, error) from None
            torn.append(number)
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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


_PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
"""Endings of compressed files, and how these begin."""
_UNPACK = "gunzip or unzstd"
_BESIDE = (".marks.jsonl", ".audits.jsonl")
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
