"""Tables of what functions make of what they are given: a row for each line of a file, written by the functions themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Readers = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Functions by name, by the name of the file that has their rows."""
PART = 100
"""Rows of one test."""


class Readings:
    """Rows of a folder: the reader, what it is given, and what it makes of it, as Python writes that."""

    def __init__(self, folder: Path, readers: Readers) -> None:
        self.folder = folder
        self.readers = readers
        self.files = sorted(path.stem for path in folder.glob("*.jsonl"))

    def parts(self) -> list[tuple[str, int]]:
        """Return what each test compares: a file, and the number of its first row."""
        return [(file, start) for file in self.files for start in range(0, len(self.rows(file)), PART)]

    def rows(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / f"{file}.jsonl").read_text().splitlines()]

    def read(self, file: str, row: Mapping[str, Any]) -> str:
        """What the row's reader says; or how it refuses."""
        try:
            return repr(self.readers[file][row["reader"]](*row["given"]))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def changed(self, file: str, start: int) -> Iterator[str]:
        for row in self.rows(file)[start : start + PART]:
            if (found := self.read(file, row)) != row["read"]:
                given = json.dumps(row["given"], ensure_ascii=False)
                yield f"{row['reader']} of {given}: {row['read']} has become {found}"

    def write(self, files: list[str]) -> None:
        for file in files or self.files:
            rows = [{**row, "read": self.read(file, row)} for row in self.rows(file)]
            lines = "".join(f"{_line(row)}\n" for row in rows)
            (self.folder / f"{file}.jsonl").write_text(lines)

    def named(self) -> dict[str, set[str]]:
        return {file: {row["reader"] for row in self.rows(file)} for file in self.files}


def _line(row: Mapping[str, Any]) -> str:
    """Write a row as JSON; characters that nobody sees are written out."""
    text = json.dumps(row, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(row)
