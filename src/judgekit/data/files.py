"""Rows of files: JSON lines, JSON, CSV, Parquet and Hugging Face data sets, compressed or not.

The format is told by the file's name, or else by its first bytes. Parquet, Zstandard and data sets need extras.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from judgekit.errors import ConfigError, DataError
from judgekit.rollouts.rows import decoded

HUB = "hf:"
"""Begins the name of a Hugging Face data set: hf:NAME or hf:NAME:SPLIT."""
_KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PACKED = {".gz": "gzip", ".zst": "zstd"}
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ROWS = 2048
"""Rows of a Parquet file that are in memory at once."""

_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or an Excel file",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"ARROW1": "an Arrow file",
    b"\x93NUMPY": "a NumPy file",
    b"SQLite": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
"""Beginnings of files that are not read, for messages."""


class Cells(dict[str, Any]):
    """A row of a CSV file. An empty cell is None: it is no value, except as a response."""


class Broken:
    """A row that cannot be read, in the place of its values."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        """The file and the line."""
        self.problem = problem


Place = str
"""Where a row stands, for messages: "line 3", "row 3"."""


def read_rows(path: str | os.PathLike[str]) -> Iterator[tuple[Place, Any]]:
    """Yield each row of a file with its place in it, a few at a time.

    *path*: a file, "-" for JSON lines from standard input, a folder (of a saved data set, or of files of one format), or
    hf:NAME[:SPLIT]. A line that is not JSON is `Broken`. Raises DataError, with the place, for all else that cannot be
    read.
    """
    name = os.fspath(path)
    if not name:
        raise DataError("the name of the rollouts' file is empty")
    if "://" in name:
        raise DataError(f"{name} is an address: give a file, a folder, or hf:NAME")
    if name.startswith(HUB):
        yield from _hub(name)
        return
    if name == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed")
        yield from _json_lines(sys.stdin.buffer, "standard input")
        return
    try:
        if os.path.isdir(name):
            yield from _folder(Path(name))
        else:
            yield from _file(Path(name))
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or ' '.join(str(error).split())}") from None


def kind_of(path: Path) -> tuple[str, str | None]:
    """Return a file's format ("jsonl", "json", "csv", "tsv" or "parquet") and its compression, by its name."""
    suffixes = [s.lower() for s in path.suffixes]
    packed = _PACKED.get(suffixes[-1]) if suffixes else None
    last = suffixes[:-1][-1:] if packed else suffixes[-1:]
    return _KINDS.get(last[0] if last else "", "jsonl"), packed


def _file(path: Path) -> Iterator[tuple[Place, Any]]:
    kind, packed = kind_of(path)
    if path.is_file():  # not a pipe, whose beginning can be read only once
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"PAR1":
            kind, packed = "parquet", None
        elif packed is None:
            packed = next((way for magic, way in _MAGIC.items() if start.startswith(magic)), None)
        foreign = next((what for magic, what in _FOREIGN.items() if start.startswith(magic[:4])), None)
        if foreign is not None and packed is None:
            raise DataError(f"{path} is {foreign}: give JSON lines, JSON, CSV or Parquet, plain, .gz or .zst")
        if kind == "jsonl" and packed is None and not path.name.endswith((".jsonl", ".ndjson")):
            kind = "json" if start.lstrip().startswith(b"[") else kind
    if kind == "parquet":
        yield from _parquet(path)
        return
    with _opened(path, packed) as file:
        try:
            if kind == "jsonl":
                yield from _json_lines(file, path)
            elif kind == "json":
                yield from _json_array(file, path)
            else:
                yield from _csv(file, path, "\t" if kind == "tsv" else ",")
        except (EOFError, gzip.BadGzipFile) as error:
            raise DataError(f"{path}: the compressed file is damaged ({error})") from None


@contextmanager
def _opened(path: Path, packed: str | None) -> Iterator[IO[bytes]]:
    if packed == "gzip":
        with gzip.open(path, "rb") as file:
            yield file  # type: ignore[misc]
    elif packed == "zstd":
        arrow = need_pyarrow(f"reading {path}")
        with arrow.input_stream(os.fspath(path), compression="zstd") as file:
            yield io.BufferedReader(file)
    else:
        with path.open("rb") as file:
            yield file


def _json_lines(file: IO[bytes], name: object) -> Iterator[tuple[Place, Any]]:
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        row: Any
        try:
            row = decoded(line)
        except ValueError as error:
            row = Broken(f"{name}, line {number}", f"not JSON ({error})")
        except RecursionError:
            row = Broken(f"{name}, line {number}", "nested too deeply")
        if number == 1 and isinstance(row, list):
            raise DataError(
                f"{name}, line 1: a list, where each line is one object; a file with a list of rollouts ends with .json"
            )
        yield f"line {number}", row


def _json_array(file: IO[bytes], name: object) -> Iterator[tuple[Place, Any]]:
    data = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        rows = decoded(data)
    except ValueError as error:
        if data.lstrip().startswith(b"{"):  # JSON lines under the name of JSON
            yield from _json_lines(io.BytesIO(data), name)
            return
        raise DataError(f"{name}: not JSON ({error})") from None
    except RecursionError:
        raise DataError(f"{name}: nested too deeply") from None
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, list):
        raise DataError(f"{name}: expected a list of objects, not {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row


def _csv(file: IO[bytes], name: object, delimiter: str) -> Iterator[tuple[Place, Any]]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    limit = csv.field_size_limit(sys.maxsize)  # of the process: rollouts are longer than 128 KiB
    try:
        rows = csv.DictReader(text, delimiter=delimiter, strict=True)
        header = rows.fieldnames or ()
        twice = next((column for i, column in enumerate(header) if column in header[:i]), None)
        if twice is not None:
            raise DataError(f"{name}: the header has the column {twice!r} twice")
        for row in rows:
            if None in row or None in row.values():
                raise DataError(
                    f"{name}, line {rows.line_num}: the row has more or fewer cells than the header"
                )
            yield f"line {rows.line_num}", Cells((k, v or None) for k, v in row.items())
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{name}: not CSV in UTF-8 ({error})") from None
    finally:
        csv.field_size_limit(limit)
        text.detach()  # the file is its opener's to close


def _parquet(path: Path) -> Iterator[tuple[Place, Any]]:
    path.open("rb").close()  # the system's own words where there is no such file
    arrow = need_pyarrow(f"reading {path}")
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except arrow.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file that can be read ({error})") from None


def _folder(path: Path) -> Iterator[tuple[Place, Any]]:
    if (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
        datasets = _datasets(f"reading {path}")
        yield from _splits(datasets.load_from_disk(os.fspath(path)), os.fspath(path), "/")
        return
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    files = [p for p in files if set(p.suffixes) & {*_KINDS, *_PACKED}]
    if not files:
        raise DataError(f"{path} holds no data set and no file such as *.jsonl or *.parquet")
    for file in files:
        for place, row in _file(file):
            yield f"{file.name}, {place}", row


def _hub(name: str) -> Iterator[tuple[Place, Any]]:
    datasets = _datasets(f"reading {name}")
    dataset, _, split = name.removeprefix(HUB).partition(":")
    try:
        loaded = datasets.load_dataset(dataset, split=split or None)
    except Exception as error:  # of the hub, the network, or a data set's own script
        raise DataError(
            f"cannot read {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        ) from None
    yield from _splits(loaded, name, ":")


def _splits(loaded: Any, name: str, between: str) -> Iterator[tuple[Place, Any]]:
    """Yield a data set's rows. *between*: what parts its name from a split's."""
    if isinstance(loaded, Mapping):
        if len(loaded) > 1:
            first = next(iter(loaded))
            raise DataError(
                f"{name} has the splits {', '.join(loaded)}: choose one, such as {name}{between}{first}"
            )
        (loaded,) = loaded.values()
    number = 0
    # as Arrow has them, and Parquet: an image that were decoded would be another object in each process
    for batch in loaded.with_format("arrow").iter(_ROWS):
        for number, row in enumerate(batch.to_pylist(), number + 1):  # noqa: B020 - it counts on
            yield f"row {number}", row


_ROWS = 1_000


def need_pyarrow(what: str) -> Any:
    """Import pyarrow. Raises ConfigError that says for what it is needed."""
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(f"{what} needs pyarrow: pip install 'judgekit-rl[data]'") from None
    return pyarrow


def _datasets(what: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError(f"{what} needs datasets: pip install 'judgekit-rl[datasets]'") from None
    return datasets
