"""Writes results: JSON lines with everything, CSV and Parquet as a flat table."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from judgekit.data.files import kind_of, need_pyarrow
from judgekit.data.rollout_files import FIELDS
from judgekit.errors import ConfigError
from judgekit.ledger.jsonl import json_line
from judgekit.ledger.output_files import STDOUT, whole_file
from judgekit.ledger.schema import Entry
from judgekit.rollouts.rows import given
from judgekit.types import Abstained, Failed, Graded, RewardResult, Rollout, Skipped, why_of

_OTHER_FORMATS = {
    *(
        ".xlsx",
        ".xls",
        ".ods",
        ".arrow",
        ".feather",
        ".avro",
        ".orc",
        ".html",
        ".yaml",
        ".yml",
        ".zip",
        ".bz2",
        ".xz",
    ),
    *(".tar", ".db", ".sqlite", ".pkl", ".npy", ".md"),
}
"""Endings that promise a format which is not written."""
_FIRST = ("id", "group", "data_source", "prompt", "response")
_ROW_ORDER = (*_FIRST, *(field for field in FIELDS if field not in _FIRST))


def result_row(rollout: Rollout, result: RewardResult) -> dict[str, Any]:
    """A rollout and its result, as one row of JSON."""
    row = {key: value for key in _ROW_ORDER if given(value := getattr(rollout, key))}
    row |= {"group": result.group, "response": rollout.response}
    row |= {
        "reward": result.reward,
        "status": result.status,
        "raw_reward": result.raw_reward,
        "contributions": result.contributions,
        "grades": result.grades,
    }
    if result.turns:
        row["turns"] = result.turns
    if result.missing:
        row["missing"] = result.missing
    if result.policies:
        row["policies"] = result.policies
    return row


def flat_row(rollout: Rollout, result: RewardResult | Entry) -> dict[str, Any]:
    """A rollout and its result, as one row of a table: what is no text or number becomes JSON.

    Each grade has three columns: `grade.NAME` is its score or nothing, `grade.NAME.is` what it is ("graded",
    "abstained", "skipped" or "failed"), and `grade.NAME.why` its reason.
    """
    row: dict[str, Any] = {
        "index": result.index,
        "id": rollout.id,
        "group": _text(result.group),
        "data_source": rollout.data_source,
        "prompt": _text(rollout.prompt),
        "response": rollout.response,
        "ground_truth": _text(rollout.ground_truth),
        "reward": result.reward,
        "status": result.status,
        "raw_reward": result.raw_reward,
    }
    for name, grade in result.grades.items():
        row[f"grade.{name}"] = grade.score if isinstance(grade, Graded) else None
        row[f"grade.{name}.is"] = _KINDS[type(grade)]
        row[f"grade.{name}.why"] = why_of(grade)
    return {key: _utf8(value) for key, value in row.items()}


_KINDS = {Graded: "graded", Abstained: "abstained", Skipped: "skipped", Failed: "failed"}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value
    written = json_line(value)[:-1]
    return json.loads(written) if written.startswith('"') else written  # a decimal or a date is text there


def _utf8(value: Any) -> Any:
    """The text with half a surrogate pair written out: Parquet takes none. Anything else as it is."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def flat_rows(
    rollouts: Sequence[Rollout], results: Sequence[RewardResult], grades: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """`flat_row` of all, each with the columns of all and of *grades*, in their order."""
    return _aligned([flat_row(r, result) for r, result in zip(rollouts, results, strict=True)], grades)


def _aligned(rows: Sequence[Mapping[str, Any]], grades: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Give each row the columns of all and of *grades*, in their order."""
    own = (key for row in rows[:1] for key in row if not key.startswith("grade."))
    named = (f"grade.{name}{end}" for name in grades for end in ("", ".is", ".why"))
    columns = dict.fromkeys((*own, *named, *(key for row in rows for key in row)))
    return [{key: row.get(key) for key in columns} for row in rows]


def results_frame(
    rollouts: Sequence[Rollout],
    results: Sequence[RewardResult],
    kind: Literal["pandas", "polars", "arrow"] = "pandas",
    *,
    grades: Sequence[str] = (),
) -> Any:
    """Return the results as a data frame of pandas or polars, or as a pyarrow.Table; see `flat_row` for the columns.

    *grades*: names that have columns whether or not one of these rollouts was asked for them, so that tables of several
    runs have the same columns.
    """
    if kind not in ("pandas", "polars", "arrow"):
        raise ConfigError(f"results_frame: kind is pandas, polars or arrow, not {kind!r}")
    table = _typed(flat_rows(rollouts, results, grades))
    if kind == "arrow":
        return table
    try:
        library = importlib.import_module(kind)
    except ImportError:
        raise ConfigError(f"results_frame: {kind} is not installed: pip install {kind}") from None
    return table.to_pandas() if kind == "pandas" else library.from_arrow(table)


def ledger_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The rollouts of a ledger as rows of a table: `run`, each tag as `tag.NAME`, then the columns of `flat_row`.

    A tag that is a number wherever it is given stays one. Texts that the ledger does not hold are None.
    """
    names = dict.fromkeys(name for entry in entries for name in entry.tags)
    numbers = {n for n in names if all(_is_number(e.tags.get(n)) for e in entries)}
    rows = []
    for entry in entries:
        tags = {name: entry.tags.get(name) for name in names}
        told = {f"tag.{n}": tag if n in numbers else _utf8(_text(tag)) for n, tag in tags.items()}
        row = {"run": entry.run, **told, **flat_row(entry.to_rollout(), entry)}
        if entry.response is None:
            row |= dict.fromkeys(("prompt", "response", "ground_truth"))
        rows.append(row)
    return _aligned(rows)


def _is_number(tag: Any) -> bool:
    return type(tag) in (float, type(None)) or (type(tag) is int and -(2**63) <= tag < 2**63)


def _typed(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Make a pyarrow.Table of flat rows, with the same types whatever the rows hold."""
    arrow = need_pyarrow("a table of results")

    def type_of(column: str) -> Any:
        if column == "index":
            return arrow.int64()
        if column.startswith("tag."):
            kinds = {type(row[column]) for row in rows}
            return arrow.string() if str in kinds else arrow.float64() if float in kinds else arrow.int64()
        score = column.startswith("grade.") and not column.endswith((".is", ".why"))
        return arrow.float64() if score or column in ("reward", "raw_reward") else arrow.string()

    schema = arrow.schema([(column, type_of(column)) for column in (rows[0] if rows else {})])
    return arrow.Table.from_pylist(rows, schema=schema)


Write = Callable[[Sequence[Rollout], Sequence[RewardResult]], None]


def write_results(
    path: str | os.PathLike[str], rollouts: Sequence[Rollout], results: Sequence[RewardResult]
) -> None:
    """Write the results whole or not at all, in the format of the file's name; "-" gets JSON lines.

    Names end with .jsonl, .json, .csv, .tsv (with .gz or .zst behind it for compression) or .parquet.
    """
    with results_file(Path(path)) as write:
        write(rollouts, results)


@contextmanager
def results_file(path: Path | None) -> Iterator[Write]:
    """Open the file, and yield what writes the results; None writes nothing.

    So a file that cannot be written is found before anything is graded. Raises ConfigError.
    """
    if path is None:
        yield lambda rollouts, results: None
        return
    with _opened(path) as (file, kind, packed):
        yield lambda rollouts, results: _write(
            file,
            kind,
            packed,
            lambda: flat_rows(rollouts, results),
            (result_row(rollout, result) for rollout, result in zip(rollouts, results, strict=True)),
        )


def write_ledger_table(path: Path, entries: Sequence[Entry]) -> None:
    """Write the rollouts of a ledger as a table, see `ledger_rows`, whole or not at all, in the format of the file's name.

    Raises ConfigError.
    """
    with _opened(path) as (file, kind, packed):
        rows = ledger_rows(entries)
        _write(file, kind, packed, lambda: rows, rows)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, str, str | None]]:
    """Open a file of results, and yield it with its format and compression. Raises ConfigError."""
    kind, packed = ("jsonl", None) if path == STDOUT else kind_of(path)
    if path.suffix.lower() in _OTHER_FORMATS:
        raise ConfigError(
            f"{path}: {path.suffix} is not written: end the name with .jsonl, .json, .csv, .tsv or .parquet"
        )
    if kind == "parquet" and packed:
        raise ConfigError(f"{path}: Parquet compresses by itself: leave the ending {path.suffix} out")
    if kind == "parquet" or packed == "zstd":
        need_pyarrow(f"writing {path}")
    with whole_file(path) as file:
        yield file, kind, packed


def _write(
    file: Any,
    kind: str,
    packed: str | None,
    flat: Callable[[], Sequence[dict[str, Any]]],
    full: Iterable[dict[str, Any]],
) -> None:
    """*flat*: makes the rows of a table; *full*: the rows of JSON."""
    if kind == "parquet":
        from pyarrow.parquet import write_table

        write_table(_typed(flat()), file.buffer)
        return
    with ExitStack() as stack:
        if packed is not None:
            raw: Any = (
                gzip.GzipFile(fileobj=file.buffer, mode="wb", filename="", mtime=0)
                if packed == "gzip"
                else _zstd(file.buffer)
            )
            stack.enter_context(raw)
            file = stack.enter_context(
                io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="")
            )
        if kind in ("csv", "tsv"):
            rows = flat()
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        elif kind == "json":
            json.dump([json.loads(json_line(row)) for row in full], file, ensure_ascii=False, indent=1)
            file.write("\n")
        else:
            file.writelines(map(json_line, full))


def _zstd(file: Any) -> Any:
    """A stream that compresses what is written to it."""
    arrow = need_pyarrow("writing Zstandard")
    return arrow.CompressedOutputStream(arrow.PythonFile(file, mode="w"), "zstd")
