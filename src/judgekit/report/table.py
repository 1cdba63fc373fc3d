"""A ledger as columns: what the report's page filters, sorts and draws; whole rollouts are read when they are opened.

A ledger of any size is read once, front to back, and read on where a run still writes to it. A row keeps some hundred
bytes; the texts stay in the file, found by their offset.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.reader import ledger_files, warn_of_packed
from judgekit.ledger.schema import FORMAT, Spec, foreign, tagged_step
from judgekit.ledger.standing import Standing
from judgekit.ledger.writer import flush_ledgers
from judgekit.types import Usage, content_text

BLOCK = 5000
"""Rows of a block: the unit in which columns travel to the page."""
STATES = ("graded", "abstained", "skipped", "failed", "absent")
_ABSENT = STATES.index("absent")
_PREVIEW = 90
"""Characters of a response and of a prompt that a row shows."""
_NONE = -1


class _Grade(Struct):
    kind: Literal["graded", "abstained", "skipped", "failed"]
    score: float = math.nan
    error: str = ""
    cause: str = "infrastructure"
    usage: Usage | None = None


class _Row(Struct, tag_field="type", tag="rollout"):
    """Of a ledger's line, what its row shows."""

    run: str
    index: int
    group: Any
    time: float
    reward: float | None
    raw_reward: float | None
    status: str
    grades: dict[str, _Grade]
    group_first: int = 0
    spec: str = ""
    order: int = 0
    id: str = ""
    tags: dict[str, Any] = {}
    usage: Usage = Usage()
    wall_s: float = 0.0
    data_source: str = ""
    finish_reason: str | None = None
    response_tokens: int | None = None
    response_chars: int = 0
    rollout_digest: str = ""
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    response: str | None = None


class Names:
    """The different values of a column, in the order of their first row."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._codes: dict[Any, int] = {}

    def code(self, key: Any, value: Any = None) -> int:
        """Return the number of *key*; *value*: what the page shows for it, by default itself."""
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = len(self.values)
            self.values.append(key if value is None else value)
        return found

    def __contains__(self, key: Any) -> bool:
        return key in self._codes


class GraderColumn:
    """One grader's grades: a score or NaN, what kind of grade, and for a failure the number of its error."""

    def __init__(self, rows: int) -> None:
        self.score = array("d", [math.nan]) * rows
        self.state = array("b", [_ABSENT]) * rows
        self.error = array("l", [_NONE]) * rows
        self.judged = False
        """Whether a judge was asked for a grade."""


class Place(NamedTuple):
    """Where a row's line is."""

    path: Path
    offset: int
    length: int


class Spent(NamedTuple):
    """What a judge's usage is counted by."""

    step: float | None
    grader: str
    spec: str
    told: bool
    """Whether the judge told how many tokens it used."""


class LedgerChanged(DataError):
    """What was read of a ledger is not in it any more: it was cut, replaced or rewritten."""


class _File:
    """A file of a ledger, and how far it was read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.identity = (0, 0)
        """Device and inode."""
        self.offset = self.lines = 0
        self.last = (0, b"")
        """Length and digest of the last line that was read: a file that was rewritten has another one there."""
        self.seen: tuple[Any, ...] = ()
        """What the file was when it was last read to its end."""


class Table:
    """The columns of one ledger, a file or a folder of files. Rows are only ever added; not safe for threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        warn_of_packed(self.path)
        self.specs: dict[str, Spec] = {}
        self.torn: list[int] = []
        """Numbers (from 1) of lines that were skipped, each in its file."""
        self.rows = 0
        self.read_bytes = 0
        self.numbers: dict[str, array[float]] = {
            key: array("d")
            for key in (
                "index", "reward", "raw", "time", "step", "response_tokens", "response_chars", "seconds", "tokens", "calls",
            )
        }  # fmt: skip
        """NaN where a row has no such number."""
        self.length: Literal["tokens", "characters"] = "tokens"
        """In what responses are measured: characters, all of them, where one does not tell its tokens."""
        self.codes: dict[str, array[int]] = {
            key: array("l") for key in ("group", "source", "status", "finish", "run", "phase")
        }
        self.names: dict[str, Names] = {key: Names() for key in (*self.codes, "error")}
        self.texts: dict[str, list[str]] = {"id": [], "preview": []}
        self.graders: dict[str, GraderColumn] = {}
        self.usage = Usage()
        self._places: tuple[array[int], array[int], array[int]] = (array("l"), array("q"), array("q"))
        self._files: dict[Path, _File] = {}
        self._paths: list[Path] = []
        self._pass: Iterator[None] | None = None
        """The way through all files that is under way: each is opened once in it, however few rows are read at once."""
        self._end = False
        self._standing = Standing()
        self.spent: dict[Spent, Usage] = {}
        """What judges used."""
        self._unfinished: dict[int, tuple[Usage, list[tuple[Spent, Usage]]]] = {}
        """What was used for rows that a later line may take the place of, which has it as well."""
        self._starts: list[dict[str, int]] = []
        """Sizes of `names` and `graders` at each block's first row."""

    @property
    def size(self) -> int:
        """Bytes of the ledger on disk."""
        return sum(file.stat().st_size for file in ledger_files(self.path))

    def read(self, rows: int | None = None, *, end: bool = False) -> int:
        """Read on, *rows* rows at most; returns how many were added.

        *end*: nobody writes to the ledger; else a last line without its end waits for the rest. Raises DataError if the
        ledger cannot be read, or has a line that is JSON but not a ledger's; LedgerChanged if it is not what was read.
        """
        self._end = end
        if self._pass is None:
            flush_ledgers(self.path)
            self._pass = self._through()
        added = -1
        try:
            added = sum(1 for _ in islice(self._pass, rows))
        finally:
            if added != rows:
                self._pass = None
        return added

    def _through(self) -> Iterator[None]:
        """Add the rows that are new, file by file."""
        files = ledger_files(self.path)
        if gone := self._files.keys() - set(files):
            raise LedgerChanged(f"{min(gone)} is not there any more")
        for path in files:
            if path not in self._files:
                self._files[path] = _File(len(self._paths))
                self._paths.append(path)
            try:
                yield from self._follow(path, self._files[path])
            except OSError as error:
                raise DataError(f"cannot read {path}: {error.strerror}") from None

    def _follow(self, path: Path, file: _File) -> Iterator[None]:
        """Add the rows of a file behind what was read of it."""
        status = os.stat(path)
        seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, self._end)
        if seen == file.seen:
            return
        last = b""
        with open(path, "rb") as opened:
            _to_where_it_was(path, file, opened)
            try:
                for line in opened:
                    if not (self._end or line.endswith(b"\n")):
                        break
                    added = bool(line.strip()) and self._add(line, path, file)
                    file.offset += len(line)
                    file.lines += 1
                    self.read_bytes += len(line)
                    last = line
                    if added:
                        yield
            finally:
                if last:
                    file.last = len(last), _digest(last)
        file.seen = seen

    def _add(self, line: bytes, path: Path, file: _File) -> bool:
        try:
            row = _decoder.decode(line)
        except msgspec.ValidationError as error:
            raise foreign(path, file.lines + 1, error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.torn.append(file.lines + 1)
            return False
        if isinstance(row, Spec):
            if row.format > FORMAT:
                raise DataError(
                    f"{path}: the ledger has format {row.format}, of judgekit {row.judgekit}: this version reads up to {FORMAT}"
                )
            self.specs[row.digest] = row
            return False
        at = self.rows
        if at % BLOCK == 0:
            self._starts.append(
                {key: len(names.values) for key, names in self.names.items()} | {"graders": len(self.graders)}
            )
        step = tagged_step(row.tags)
        if not isinstance(step, int | float) or abs(step) >= 1e15:
            step = None
        self._add_columns(row, step)
        self._add_grades(row, at)
        for numbers, number in zip(self._places, (file.number, file.offset, len(line)), strict=True):
            numbers.append(number)
        self._count(row, at, step)
        self.rows += 1  # last: what reads the table meanwhile sees whole rows
        return True

    def _add_columns(self, row: _Row, step: float | None) -> None:
        group = row.run, row.group_first, encoded(row.group)  # two groups of a run may have one id
        if group not in self.names["group"]:
            self.names["group"].code(
                group, {"id": _label(row.group), "prompt": _shortened(_prompt(row.prompt))}
            )
        for key, figure in (
            ("index", row.index),
            ("reward", row.reward),
            ("raw", row.raw_reward),
            ("time", row.time),
            ("step", step),
            ("response_tokens", row.response_tokens),
            ("response_chars", row.response_chars),
            ("seconds", row.wall_s),
            ("tokens", row.usage.prompt_tokens + row.usage.completion_tokens),
            ("calls", row.usage.calls),
        ):
            self.numbers[key].append(math.nan if figure is None else figure)
        if row.response_tokens is None:
            self.length = "characters"
        for key, value in (
            ("group", group),
            ("source", row.data_source),
            ("status", row.status),
            ("finish", row.finish_reason or ""),
            ("run", row.run),
            ("phase", str(row.tags.get("phase", ""))),
        ):
            self.codes[key].append(self.names[key].code(value))
        self.texts["id"].append(row.id)
        self.texts["preview"].append(_shortened(row.response or ""))

    def _add_grades(self, row: _Row, at: int) -> None:
        for column in self.graders.values():
            column.score.append(math.nan)
            column.state.append(_ABSENT)
            column.error.append(_NONE)
        for name, grade in row.grades.items():
            if name not in self.graders:
                self.graders[name] = GraderColumn(at + 1)
            column = self.graders[name]
            column.score[at] = grade.score
            column.state[at] = STATES.index(grade.kind)
            column.judged = column.judged or (grade.usage is not None and grade.usage.calls > 0)
            if grade.kind == "failed":
                column.error[at] = self.names["error"].code((grade.error, grade.cause))

    def _count(self, row: _Row, at: int, step: float | None) -> None:
        """Let the row take its place among the lines of its rollout; what was used for them is counted once."""
        other = self._standing.add(row)
        if other is not None:
            if at in self._standing.repeated or other not in self._unfinished:
                return
            usage, spent = self._unfinished.pop(other)
            self.usage = _less(self.usage, usage)
            for key, part in spent:
                self.spent[key] = _less(self.spent[key], part)
        spent = [
            (Spent(step, name, row.spec, (used.prompt_tokens or used.completion_tokens) > 0), used)
            for name, grade in row.grades.items()
            if (used := grade.usage) is not None and used.calls
        ]
        self.usage += row.usage
        for key, part in spent:
            self.spent[key] = self.spent.get(key, Usage()) + part
        if row.status == "unfinished":
            self._unfinished[at] = row.usage, spent

    @property
    def identities(self) -> Sequence[int]:
        """For each row a hash of what tells its rollout from others, also in another ledger."""
        return self._standing.rollouts

    @property
    def hidden(self) -> set[int]:
        """Rows that do not count, as `read_ledger` leaves them out."""
        return self._standing.repeated | self._standing.replaced

    def status(self, row: int) -> str:
        status: str = self.names["status"].values[self.codes["status"][row]]
        return status

    @property
    def lengths(self) -> Sequence[float]:
        """The length of each row's response, in one unit (`length`)."""
        return self.numbers["response_tokens" if self.length == "tokens" else "response_chars"]

    def shown(self) -> Iterator[int]:
        """Rows that count."""
        hidden = self.hidden
        return (at for at in range(self.rows) if at not in hidden)

    def place(self, row: int) -> Place:
        files, offsets, lengths = self._places
        return Place(self._paths[files[row]], offsets[row], lengths[row])

    def lines(self, first: int = 0) -> Iterator[tuple[Path, list[int], list[int], list[int]]]:
        """For each file: its path, its rows from *first*, and the offsets at which their lines begin and end."""
        files, offsets, lengths = self._places
        by_file: dict[int, list[int]] = {}
        for row in range(first, self.rows):
            by_file.setdefault(files[row], []).append(row)
        for number, rows in by_file.items():
            yield (
                self._paths[number],
                rows,
                [offsets[r] for r in rows],
                [offsets[r] + lengths[r] for r in rows],
            )

    def rollout(self, row: int) -> dict[str, Any]:
        """Read a row's whole line. Raises LedgerChanged where another one stands there now."""
        place = self.place(row)
        with open(place.path, "rb") as file:
            file.seek(place.offset)
            line = file.read(place.length)
        known = self.names["run"].values[self.codes["run"][row]], self.numbers["index"][row]
        try:
            found: dict[str, Any] = msgspec.json.decode(line)
            if (found["run"], found["index"]) == known:
                return found
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
            pass
        raise LedgerChanged(f"{place.path} has another line there")

    @property
    def blocks(self) -> int:
        return len(self._starts)

    def block(self, number: int) -> dict[str, Any]:
        """Columns of the rows from *number* × `BLOCK`, and the names that appear in them first. Fits JSON: NaN is null."""
        begin = self._starts[number]
        end = self._starts[number + 1] if number + 1 < len(self._starts) else None
        rows = slice(number * BLOCK, min(self.rows, (number + 1) * BLOCK))

        def fresh(key: str, values: Sequence[Any]) -> Sequence[Any]:
            return values[begin[key] : None if end is None else end[key]]

        return {
            "start": rows.start,
            "rows": rows.stop - rows.start,
            "known": begin,
            "names": {key: fresh(key, names.values) for key, names in self.names.items()},
            "new_graders": fresh("graders", list(self.graders)),
            "numbers": {key: _exact(column[rows]) for key, column in self.numbers.items()},
            "codes": {key: list(column[rows]) for key, column in self.codes.items()},
            "id": self.texts["id"][rows],
            "preview": self.texts["preview"][rows],
            "graders": {
                name: [_exact(column.score[rows]), list(column.state[rows]), list(column.error[rows])]
                for name, column in self.graders.items()
            },
        }

    def facts(self) -> dict[str, Any]:
        """What the page says of the ledger as a whole."""
        return {
            "title": self.path.name,
            "rows": self.rows,
            "hidden": sorted(self.hidden),
            "skipped": len(self.torn),
            "length": self.length,
            "usage": msgspec.to_builtins(self.usage),
            "judges": [name for name, column in self.graders.items() if column.judged],
            "specs": [_spec(spec) for spec in self.specs.values()],
        }


def _spec(spec: Spec) -> dict[str, Any]:
    return {
        "reward": spec.reward,
        "transform": spec.transform,
        "missing_reward": spec.missing_reward,
        "graders": {
            name: {"version": grader.version, "range": grader.score_range}
            for name, grader in spec.graders.items()
        },
    }


def _to_where_it_was(path: Path, file: _File, opened: BinaryIO) -> None:
    """Go on behind what was read of a file. Raises LedgerChanged where that is not what stands there."""
    status = os.fstat(opened.fileno())
    identity = status.st_dev, status.st_ino
    if file.offset:
        length, digest = file.last
        opened.seek(file.offset - length)
        if identity != file.identity or _digest(opened.read(length)) != digest:
            raise LedgerChanged(f"{path} was cut, replaced or rewritten")
    file.identity = identity


def _digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


def _exact(column: array[float]) -> list[Any]:
    """The numbers with nine significant digits; None for NaN and infinities, which JSON has not."""
    return [(int(x) if x.is_integer() else float(f"{x:.9g}")) if math.isfinite(x) else None for x in column]


def _less(usage: Usage, part: Usage) -> Usage:
    return Usage(
        usage.calls - part.calls,
        usage.prompt_tokens - part.prompt_tokens,
        usage.cached_tokens - part.cached_tokens,
        usage.completion_tokens - part.completion_tokens,
    )


def _label(group: Any) -> str:
    return group if isinstance(group, str) else encoded(group).decode().strip()


def _shortened(text: str) -> str:
    return " ".join(text[: 4 * _PREVIEW].split())[:_PREVIEW]


def _prompt(raw: msgspec.Raw) -> str:
    """The prompt as text: itself, or the content of its last user message."""
    prompt: Any = msgspec.json.decode(raw)
    if isinstance(prompt, list):
        for message in reversed(prompt):
            if isinstance(message, Mapping) and message.get("role") == "user":
                return content_text(message.get("content"))
        return ""
    return prompt if isinstance(prompt, str) else ""


_decoder: msgspec.json.Decoder[Spec | _Row] = msgspec.json.Decoder(Spec | _Row)
