"""Reads a ledger while it grows."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import msgspec

from judgekit.errors import DataError
from judgekit.ledger.reader import files_in, ledger_files
from judgekit.ledger.schema import FORMAT, Entry, Line, Spec, foreign


class Tail:
    """A ledger that is being written, a file or a folder: `read` returns what came since the last time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.specs: dict[str, Spec] = {}
        self.torn = 0
        """Lines that were skipped: their process was killed while it wrote them."""
        self._read: dict[Path, tuple[int, int, int]] = {}
        """Of each file, its inode, how many of its bytes were read, and how many lines."""

    def read(self) -> list[Entry]:
        """Return the entries of the lines that are complete since. None while there is no file yet.

        Raises DataError for a line of another file, and if a file was replaced or emptied.
        """
        if not self.path.exists() or (self.path.is_dir() and not files_in(self.path)):
            return []
        found: list[Entry] = []
        for file in ledger_files(self.path):
            self._follow(file, found)
        return found

    def _follow(self, path: Path, found: list[Entry]) -> None:
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                inode, offset, number = self._read.get(path, (status.st_ino, 0, 0))
                if inode != status.st_ino or status.st_size < offset:
                    raise DataError(
                        f"{path} was replaced or emptied while it was read: audit the new file from its start"
                    )
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n"):  # the rest is still to come
                        break
                    offset, number = offset + len(line), number + 1
                    self._take(path, number, line, found)
                self._read[path] = inode, offset, number
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None

    def _take(self, path: Path, number: int, line: bytes, found: list[Entry]) -> None:
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not line.strip():
            return
        try:
            made = _decoder.decode(line)
        except msgspec.ValidationError as error:
            raise foreign(path, number, error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.torn += 1
            return
        if isinstance(made, Entry):
            found.append(made)
        elif made.format > FORMAT:
            raise DataError(
                f"{path}, line {number}: the ledger has format {made.format}, of judgekit {made.judgekit}: this version reads up to {FORMAT}"
            )
        else:
            self.specs[made.digest] = made


_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
