"""Writes results: JSON lines with everything, CSV and Parquet as a flat table."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from judgekit.data.files import kind_of, need_pyarrow
from judgekit.data.rollout_files import FIELDS
from judgekit.errors import ConfigError
from judgekit.ledger.jsonl import json_line
from judgekit.ledger.output_files import STDOUT, whole_file
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
    if result.missing:
        row["missing"] = result.missing
    if result.policies:
        row["policies"] = result.policies
    return row


def flat_row(rollout: Rollout, result: RewardResult) -> dict[str, Any]:
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
    return {key: _utf8(value) if isinstance(value, str) else value for key, value in row.items()}


_KINDS = {Graded: "graded", Abstained: "abstained", Skipped: "skipped", Failed: "failed"}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else json_line(value)[:-1]


def _utf8(text: str) -> str:
    """The text with half a surrogate pair written out: Parquet takes none."""
    return text.encode("utf-8", "backslashreplace").decode()


def flat_rows(
    rollouts: Sequence[Rollout], results: Sequence[RewardResult], grades: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """`flat_row` of all, each with the columns of all and of *grades*, in their order."""
    rows = [flat_row(rollout, result) for rollout, result in zip(rollouts, results, strict=True)]
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
    arrow = need_pyarrow("a table of results")
    rows = flat_rows(rollouts, results, grades)
    numbers = {"reward", "raw_reward"}
    schema = [
        (
            key,
            arrow.int64()
            if key == "index"
            else arrow.float64()
            if key in numbers or (key.startswith("grade.") and not key.endswith((".is", ".why")))
            else arrow.string(),
        )
        for key in (rows[0] if rows else {})
    ]
    table = arrow.Table.from_pylist(rows, schema=arrow.schema(schema))
    if kind == "arrow":
        return table
    try:
        library = importlib.import_module(kind)
    except ImportError:
        raise ConfigError(f"results_frame: {kind} is not installed: pip install {kind}") from None
    return table.to_pandas() if kind == "pandas" else library.from_arrow(table)


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
        yield lambda rollouts, results: _write(file, kind, packed, rollouts, results)


def _write(
    file: Any, kind: str, packed: str | None, rollouts: Sequence[Rollout], results: Sequence[RewardResult]
) -> None:
    if kind == "parquet":
        from pyarrow.parquet import write_table

        write_table(results_frame(rollouts, results, "arrow"), file.buffer)
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
            rows = flat_rows(rollouts, results)
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        elif kind == "json":
            rows = [json.loads(json_line(result_row(r, o))) for r, o in zip(rollouts, results, strict=True)]
            json.dump(rows, file, ensure_ascii=False, indent=1)
            file.write("\n")
        else:
            file.writelines(json_line(result_row(r, o)) for r, o in zip(rollouts, results, strict=True))


def _zstd(file: Any) -> Any:
    """A stream that compresses what is written to it."""
    arrow = need_pyarrow("writing Zstandard")
    return arrow.CompressedOutputStream(arrow.PythonFile(file, mode="w"), "zstd")
