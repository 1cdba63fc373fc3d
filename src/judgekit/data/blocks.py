"""Cuts Parquet files into blocks of whole groups, and reads them one block after another.

A plan needs the files' group columns only. Blocks are the same for the same files, whoever cuts them.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

from judgekit.data.files import need_pyarrow
from judgekit.data.rollout_files import PAIR, each_rollout, responses_of
from judgekit.errors import ConfigError, DataError
from judgekit.ledger.jsonl import encoded
from judgekit.run.grouping import group_id
from judgekit.types import Rollout

BLOCK_ROWS = 1024
"""Rows of a block, where its groups end there."""
BLOCK_BYTES = 64 << 20
"""Bytes of a block in memory, about."""
KEY, ROW = "judgekit.group", "judgekit.row"
"""Columns of a sorted copy: the digest of a row's group, and the row's number in the input."""
_BATCH = 4096


class Piece(Struct, frozen=True):
    """Rows of one file that stand together."""

    path: str
    first: int
    """Number of the first of them in the file, from 0."""
    rows: int
    start: int
    """Number of the first of them over all files."""


class Block(Struct, frozen=True):
    """Whole groups that are graded together, and whose results make one file."""

    name: str
    """Names the result's file; made of the block's number and a digest of its pieces."""
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


class Scan(Struct, frozen=True):
    """What a plan knows of a file."""

    path: str
    rows: int
    bytes: int
    """Of all columns, uncompressed."""
    keys: array[int] | None
    """A digest of the group of each run of rows; None where every row may be cut off from the next."""
    lengths: array[int] | None
    """Rows of each run."""


def parquet_files(patterns: str | Sequence[str]) -> list[str]:
    """Return the Parquet files of paths, globs, folders and URIs (s3://…), sorted. Raises DataError if there is none."""
    found: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        here = _remote(pattern) if "://" in pattern else _local(pattern)
        if not here:
            raise DataError(f"{pattern}: there is no Parquet file")
        found += here
    return list(dict.fromkeys(found))


def _local(pattern: str) -> list[str]:
    paths = (
        [Path(pattern)] if os.path.exists(pattern) else [Path(p) for p in glob.glob(pattern, recursive=True)]
    )
    found: list[Path] = []
    for path in paths:
        found += path.rglob("*.parquet") if path.is_dir() else [path]
    return sorted(os.path.abspath(p) for p in found if not p.name.startswith((".", "_")))


def _remote(pattern: str) -> list[str]:
    need_pyarrow(f"reading {pattern}")
    from pyarrow import fs

    scheme = pattern.partition("://")[0]
    fixed = pattern[: min((pattern.find(c) for c in "*?[" if c in pattern), default=len(pattern))]
    system, base = _system(fixed)
    info = system.get_file_info(base)
    if info.type == fs.FileType.File:
        return [pattern]
    folder = base if info.type == fs.FileType.Directory else base.rpartition("/")[0]
    listed = system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    want = "*.parquet" if fixed == pattern else _system(pattern)[1]
    return sorted(
        f"{scheme}://{f.path}" for f in listed if f.type == fs.FileType.File and fnmatch.fnmatch(f.path, want)
    )


def _system(path: str) -> tuple[Any, str]:
    from pyarrow import ArrowException, fs

    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)  # type: ignore[no-any-return]
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: {' '.join(str(error).split())[:300]}") from None


def opened(path: str) -> Any:
    """Open a pyarrow ParquetFile. Raises DataError if it is none."""
    arrow = need_pyarrow(f"reading {path}")
    from pyarrow.parquet import ParquetFile

    system, inner = _system(path)
    try:
        return ParquetFile(inner, filesystem=system)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: not a Parquet file that can be read ({' '.join(str(error).split())[:300]})"
        ) from None


def scan(path: str, columns: Mapping[str, str] | None = None, *, by_prompt: bool = True) -> Scan:
    """Read of a file what `plan` needs: where groups end.

    Where the file has a column of groups, that column is read; else all of it, for a group is then a prompt with its
    ground truth. *by_prompt* False: do not look at prompts, and let every row be cut off from the next.
    """
    with opened(path) as file:
        meta = file.metadata
        size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        names = set(file.schema_arrow.names)
        # a row is a whole group
        several = ("responses" in names or names.issuperset(PAIR)) and "response" not in names
        if not (_group_column(names, columns) or (by_prompt and not several)):
            return Scan(path, meta.num_rows, size, None, None)
        keys, lengths = array("Q"), array("Q")
        for _, found in _keyed(file, path, columns, whole=False):
            for key in found:
                if keys and keys[-1] == key:
                    lengths[-1] += 1
                else:
                    keys.append(key)
                    lengths.append(1)
        return Scan(path, meta.num_rows, size, keys, lengths)


def keyed_tables(path: str, start: int, columns: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Yield a file's rows as tables with the columns KEY and ROW. *start*: number of its first row over all files."""
    import pyarrow as pa

    with opened(path) as file:
        for batch, keys in _keyed(file, path, columns, whole=True):
            table = pa.Table.from_batches([batch]).append_column(KEY, pa.array(keys, pa.int64()))
            yield table.append_column(ROW, pa.array(range(start, start + batch.num_rows), pa.int64()))
            start += batch.num_rows


def _group_column(names: Container[str], columns: Mapping[str, str] | None) -> str | None:
    """The column that holds the groups, or the one that a dotted path leads into."""
    if KEY in names:
        return KEY
    column = (columns or {}).get("group", "group")
    root = column if column in names else column.partition(".")[0]
    return root if root in names else None


def _keyed(
    file: Any, path: str, columns: Mapping[str, str] | None, *, whole: bool
) -> Iterator[tuple[Any, list[int]]]:
    """Yield batches of rows with a digest of each row's group. *whole*: with all columns."""
    root = _group_column(file.schema_arrow.names, columns)
    column = (columns or {}).get("group", "group")
    at = 0
    for batch in file.iter_batches(_BATCH, columns=None if whole or root is None else [root]):
        if root == KEY:
            yield batch, batch.column(KEY).to_pylist()
        elif root is None:
            numbers = range(at, at + batch.num_rows)
            made = _rollouts_of_rows(batch.to_pylist(), path, columns, numbers)
            yield batch, [_digest(group_id(rollout)) for rollout in made]
        else:
            inner = [] if root == column else column.split(".")[1:]
            yield (
                batch,
                _digests(batch.column(root).to_pylist(), inner, f"{path}: some rows have no {column!r}"),
            )
        at += batch.num_rows


def _digests(values: Sequence[Any], inner: Sequence[str], missing: str) -> list[int]:
    found: list[int] = []
    last: Any = None
    for value in values:
        for part in inner:
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            raise DataError(f"{missing}: give every row one, or leave the column out")
        same = found and type(value) is type(last) and value == last
        found.append(found[-1] if same else _digest(value))
        last = value
    return found


def _digest(value: Any) -> int:
    """63 bits of a group's id: 1, 1.0, True and "1" differ."""
    return int.from_bytes(blake2b(encoded(value), digest_size=8).digest(), "little") >> 1


def group_digest(rollout: Rollout) -> int:
    """A number for a rollout's group, the same on every machine."""
    return _digest(group_id(rollout))


def _rollouts_of_rows(
    rows: Sequence[Mapping[str, Any]],
    path: str,
    columns: Mapping[str, str] | None,
    numbers: Sequence[int],
    first: int = 0,
) -> Iterator[Rollout]:
    """*numbers*: of the rows in their file, for messages. *first*: number of the first one over all files."""
    places = ((f"row {number + 1}", row) for number, row in zip(numbers, rows, strict=True))
    return each_rollout(places, path, columns, first=first)


def stand_together(scans: Sequence[Scan]) -> bool:
    """Whether the rows of every group stand together over all files, in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    last: int | None = None
    for one in scans:
        if one.keys is None or not one.keys:
            continue
        keys = one.keys[1:] if one.keys[0] == last else one.keys  # goes on from the file before
        last = one.keys[-1]
        parts.append(pa.array(memoryview(keys), pa.uint64()) if len(keys) else pa.array([], pa.uint64()))
    if not parts:
        return True
    every = pa.chunked_array(parts)
    return int(pc.count_distinct(every).as_py()) == len(every)


def plan(
    scans: Sequence[Scan], *, rows: int = BLOCK_ROWS, limit: int | None = None, salt: str = ""
) -> list[Block]:
    """Cut files into blocks of at least *rows* rows (or BLOCK_BYTES), ending where a group ends.

    *limit*: take only the groups that begin within the first *limit* rows. *salt*: makes the names differ where
    the same rows are graded otherwise.
    """
    total = sum(one.rows for one in scans)
    per_row = sum(one.bytes for one in scans) / max(1, total)
    rows = max(1, min(rows, int(BLOCK_BYTES / max(1.0, per_row))))
    blocks: list[Block] = []
    pieces: list[Piece] = []
    held = start = 0
    last: int | None = None

    def cut() -> None:
        nonlocal held
        if pieces:
            digest = blake2b(encoded([salt, pieces]), digest_size=6).hexdigest()
            blocks.append(Block(f"block-{len(blocks):07d}-{digest}", tuple(pieces)))
            pieces.clear()
            held = 0

    for one in scans:
        at = 0
        for key, length in _runs(one, rows):
            if held >= rows and (key is None or key != last):
                cut()
            if limit is not None and start + at >= limit and (key is None or key != last):
                cut()
                return blocks
            last = key
            previous = pieces[-1] if pieces else None
            if previous is not None and previous.path == one.path:
                pieces[-1] = Piece(one.path, previous.first, previous.rows + length, previous.start)
            else:
                pieces.append(Piece(one.path, at, length, start + at))
            held += length
            at += length
        start += one.rows
    cut()
    return blocks


def _runs(one: Scan, rows: int) -> Iterator[tuple[int | None, int]]:
    if one.keys is not None and one.lengths is not None:
        yield from zip(one.keys, one.lengths, strict=True)
        return
    for first in range(0, one.rows, rows):
        yield None, min(rows, one.rows - first)


class BlockReader:
    """Reads blocks; those that follow one another in a file are read in one pass over it."""

    def __init__(self) -> None:
        self._path = ""
        self._file: Any = None
        self._batches: Iterator[Any] = iter(())
        self._at = 0
        """Number of the next row that the batches give."""
        self._left: Any = None
        """Rows of a batch that were not asked for yet."""

    def read(self, block: Block) -> list[tuple[Piece, Any]]:
        """Return a pyarrow.Table for each piece."""
        return [(piece, self._rows(piece)) for piece in block.pieces]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._path, self._file, self._left = "", None, None

    def _rows(self, piece: Piece) -> Any:
        import pyarrow as pa

        if piece.path != self._path:
            self.close()
            self._file, self._path, self._at = opened(piece.path), piece.path, -1
        starts = _starts(self._file.metadata)
        group = max(i for i, start in enumerate(starts) if start <= piece.first)
        if not starts[group] <= self._at <= piece.first:
            self._at, self._left = starts[group], None
            every = range(group, len(starts))
            self._batches = self._file.iter_batches(min(_BATCH, BLOCK_ROWS), row_groups=list(every))
        taken: list[Any] = []
        missing = piece.rows
        while missing:
            batch = self._left if self._left is not None else next(self._batches, None)
            if batch is None:
                raise DataError(f"{piece.path} has fewer rows than when the blocks were planned")
            skipped = min(piece.first - self._at, batch.num_rows) if self._at < piece.first else 0
            part = batch.slice(skipped, missing)
            if part.num_rows:
                taken.append(part)
            used = skipped + part.num_rows
            missing -= part.num_rows
            self._at += used
            self._left = batch.slice(used) if used < batch.num_rows else None
        return pa.Table.from_batches(taken)


def _starts(meta: Any) -> list[int]:
    """Number of each row group's first row."""
    starts = [0]
    for i in range(meta.num_row_groups - 1):
        starts.append(starts[-1] + meta.row_group(i).num_rows)
    return starts


def rows_and_places(
    parts: Iterable[tuple[Piece, Any]], columns: Mapping[str, str] | None
) -> tuple[list[Rollout], list[int]]:
    """Make a block's rollouts, and the number of each one's row over all files."""
    rollouts: list[Rollout] = []
    places: list[int] = []
    for piece, table in parts:
        if ROW in table.column_names:
            numbers: Sequence[int] = table.column(ROW).to_pylist()
            table = table.drop_columns([KEY, ROW])
        else:
            numbers = range(piece.start, piece.start + piece.rows)
        rows = table.to_pylist()
        in_file = range(piece.first, piece.first + piece.rows)
        # a row of several responses is a group, which its number over all files names
        made = list(_rollouts_of_rows(rows, piece.path, columns, in_file, first=piece.start))
        if len(made) == len(rows):
            places += numbers
        else:
            widths = [len(responses_of(row) or ()) for row in rows]
            if sum(widths) != len(made):
                raise ConfigError(f"{piece.path}: some rows have several responses and others do not")
            places += [n for n, width in zip(numbers, widths, strict=True) for _ in range(width)]
        rollouts += made
    return rollouts, places
