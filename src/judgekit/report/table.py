"""A ledger as columns: what the report's page filters, sorts and draws; whole rollouts are read when they are opened.

A ledger of any size is read once, front to back, and read on where a run still writes to it. A row keeps some hundred
bytes; the texts stay in the file, found by their offset.
"""

from __future__ import annotations

import codecs
import math
import os
import sys
from array import array
from collections import defaultdict
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
from judgekit.ledger.standing import Standing, group_key
from judgekit.ledger.writer import flush_ledgers
from judgekit.types import Usage, content_text

BLOCK = 5000
"""Rows of a block: the unit in which columns travel to the page."""
_BATCH = 500
"""Rows that are added to the columns at once: lists of values take half the time of one by one."""
_BUFFER = 1 << 20
"""Bytes that are read from a file at once."""
STATES = ("graded", "abstained", "skipped", "failed", "absent")
_ABSENT = STATES.index("absent")
_PREVIEW = 90
"""Characters of a response and of a prompt that a row shows."""
_NONE = -1
_NO_SCORE, _NO_STATE, _NO_ERROR = array("d", [math.nan]), array("b", [_ABSENT]), array("l", [_NONE])
_STATE_OF = {state: code for code, state in enumerate(STATES)}


_NO_PROMPT = msgspec.Raw(b"null")


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
    prompt: msgspec.Raw = _NO_PROMPT
    response: str | None = None


class _Codes(dict[Any, int]):
    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, key: Any) -> int:
        self[key] = code = len(self._values)
        self._values.append(key)
        return code


class Names:
    """The different values of a column, in the order of their first row."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        """What the page shows."""
        self.codes: dict[Any, int] = _Codes(self.values)
        """The number of each key; one that is asked for and not there gets the next number, and is what the page shows."""

    def add(self, key: Any, value: Any) -> int:
        """Number a new key, for which the page shows *value*."""
        code = self.codes[key]
        self.values[code] = value
        return code


class GraderColumn:
    """One grader's grades: a score or NaN, what kind of grade, and for a failure the number of its error."""

    def __init__(self, rows: int) -> None:
        self.score = _NO_SCORE * rows
        self.state = _NO_STATE * rows
        self.error = _NO_ERROR * rows
        self.judged = False
        """Whether a judge was asked for a grade."""

    def extend(self, rows: int) -> None:
        """Add rows without a grade."""
        self.score.extend(_NO_SCORE * rows)
        self.state.extend(_NO_STATE * rows)
        self.error.extend(_NO_ERROR * rows)


class _Sum:
    """A sum of usages."""

    def __init__(self) -> None:
        self.calls = self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0

    def add(self, used: Usage, times: int) -> None:
        self.calls += times * used.calls
        self.prompt_tokens += times * used.prompt_tokens
        self.cached_tokens += times * used.cached_tokens
        self.completion_tokens += times * used.completion_tokens

    @property
    def usage(self) -> Usage:
        return Usage(self.calls, self.prompt_tokens, self.cached_tokens, self.completion_tokens)


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


class _Read(NamedTuple):
    """A line that was read, and where."""

    row: _Row
    file: int
    begin: int
    end: int


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
        self._places: tuple[array[int], array[int], array[int]] = (array("l"), array("q"), array("q"))
        """For each row its file, and the offsets at which its line begins and ends."""
        self._files: dict[Path, _File] = {}
        self._paths: list[Path] = []
        self._pass: Iterator[_Read] | None = None
        """The way through all files that is under way: each is opened once in it, however few rows are read at once."""
        self._end = False
        self._standing = Standing()
        self._followed: tuple[int, dict[tuple[str, int], tuple[str, int]]] = (0, {})
        """What `successors` found, at how many rows."""
        self._used = _Sum()
        self._spent: dict[tuple[float | None, str, str, bool], _Sum] = defaultdict(_Sum)
        self._unfinished: dict[int, tuple[float | None, _Row]] = {}
        """Rows that a later line may take the place of, which has what was used for them as well: steps and rows."""
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
        begin, through = self.rows, self._pass
        wanted = sys.maxsize if rows is None else begin + rows
        self._pass = None  # over, unless all that was wanted is there
        while self.rows < wanted:
            size = min(_BATCH, wanted - self.rows, BLOCK - self.rows % BLOCK)  # no batch lies in two blocks
            if self._take(through, size) < size:
                return self.rows - begin
        self._pass = through
        return self.rows - begin

    def _take(self, through: Iterator[_Read], size: int) -> int:
        """Add *size* rows, or as many as there are; also those before a line that is an error."""
        batch: list[_Read] = []
        try:
            batch.extend(islice(through, size))
        finally:
            if batch:
                self._add(batch)
        return len(batch)

    def _through(self) -> Iterator[_Read]:
        """Read the rows that are new, file by file."""
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

    def _follow(self, path: Path, file: _File) -> Iterator[_Read]:
        """Read the rows of a file behind what was read of it."""
        status = os.stat(path)
        seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, self._end)
        if seen == file.seen:
            return
        last = b""
        with open(path, "rb", _BUFFER) as opened:
            _to_where_it_was(path, file, opened)
            try:
                for line in opened:
                    if not (self._end or line.endswith(b"\n")):
                        break
                    begin = file.offset
                    text = line if begin else line.removeprefix(codecs.BOM_UTF8)
                    begin += len(line) - len(text)
                    row = None if text.isspace() else self._decoded(text, path, file)
                    file.offset += len(line)
                    file.lines += 1
                    self.read_bytes += len(line)
                    last = line
                    if row is not None:
                        yield _Read(row, file.number, begin, file.offset)
            finally:
                if last:
                    file.last = len(last), _digest(last)
        file.seen = seen

    def _decoded(self, line: bytes, path: Path, file: _File) -> _Row | None:
        """Return the row of a line; None for one of another kind, which is kept, and for a torn one."""
        try:
            row = _decoder.decode(line)
        except msgspec.ValidationError as error:
            raise foreign(path, file.lines + 1, error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.torn.append(file.lines + 1)
            return None
        if not isinstance(row, Spec):
            return row
        if row.format > FORMAT:
            raise DataError(
                f"{path}: the ledger has format {row.format}, of judgekit {row.judgekit}: this version reads up to {FORMAT}"
            )
        self.specs[row.digest] = row
        return None

    def _add(self, batch: Sequence[_Read]) -> None:
        """Add rows to the columns, and let them take their places among the lines of their rollouts."""
        at, rows = self.rows, [read.row for read in batch]
        if at % BLOCK == 0:
            self._starts.append(
                {key: len(names.values) for key, names in self.names.items()} | {"graders": len(self.graders)}
            )
        steps = [_step(row.tags) for row in rows]
        self._add_numbers(rows, steps)
        self._add_names(rows)
        self.texts["id"].extend([row.id for row in rows])
        self.texts["preview"].extend([_shortened(row.response or "") for row in rows])
        self._add_grades(rows, at)
        for numbers, found in zip(self._places, zip(*(read[1:] for read in batch), strict=True), strict=True):
            numbers.extend(found)
        for row, step in zip(rows, steps, strict=True):
            self._count(row, step)
        self.rows += len(rows)  # last: what reads the table meanwhile sees whole rows

    def _add_numbers(self, rows: Sequence[_Row], steps: Sequence[float | None]) -> None:
        for key, figures in (
            ("index", [row.index for row in rows]),
            ("reward", [row.reward for row in rows]),
            ("raw", [row.raw_reward for row in rows]),
            ("time", [row.time for row in rows]),
            ("step", steps),
            ("response_tokens", tokens := [row.response_tokens for row in rows]),
            ("response_chars", [row.response_chars for row in rows]),
            ("seconds", [row.wall_s for row in rows]),
            ("tokens", [row.usage.prompt_tokens + row.usage.completion_tokens for row in rows]),
            ("calls", [row.usage.calls for row in rows]),
        ):
            self.numbers[key].extend([math.nan if figure is None else figure for figure in figures])
        if None in tokens:
            self.length = "characters"

    def _add_names(self, rows: Sequence[_Row]) -> None:
        for key, values in (
            ("source", [row.data_source for row in rows]),
            ("status", [row.status for row in rows]),
            ("finish", [row.finish_reason or "" for row in rows]),
            ("run", [row.run for row in rows]),
            ("phase", [str(row.tags.get("phase", "")) for row in rows]),
        ):
            codes = self.names[key].codes
            self.codes[key].extend([codes[value] for value in values])
        names, found = self.names["group"], self.codes["group"]
        for row in rows:
            group = row.run, row.group_first, group_key(row.group)  # two groups of a run may have one id
            code = names.codes.get(group)
            if code is None:
                label = {"id": _label(row.group), "prompt": _shortened(_prompt(row.prompt))}
                code = names.add(group, label)
            found.append(code)

    def _add_grades(self, rows: Sequence[_Row], first: int) -> None:
        graders, errors = self.graders, self.names["error"].codes
        for known in graders.values():
            known.extend(len(rows))
        for at, row in enumerate(rows, first):
            for name, grade in row.grades.items():
                column = graders.get(name)
                if column is None:
                    column = graders[name] = GraderColumn(first + len(rows))
                column.score[at] = grade.score
                column.state[at] = _STATE_OF[grade.kind]
                if grade.kind == "failed":
                    column.error[at] = errors[grade.error, grade.cause]
                if grade.usage is not None and grade.usage.calls > 0:
                    column.judged = True

    def _count(self, row: _Row, step: float | None) -> None:
        """Let the next row take its place among the lines of its rollout; what was used for them is counted once."""
        standing = self._standing
        at = len(standing.rollouts)
        other = standing.add(row)
        if other is not None:
            if at in standing.repeated or other not in self._unfinished:
                return
            self._use(*self._unfinished.pop(other), -1)
        self._use(step, row, 1)
        if row.status == "unfinished":
            row.response, row.prompt = None, _NO_PROMPT  # long, and not needed any more
            self._unfinished[at] = step, row

    def _use(self, step: float | None, row: _Row, times: int) -> None:
        self._used.add(row.usage, times)
        for name, grade in row.grades.items():
            used = grade.usage
            if used is not None and used.calls:
                told = (used.prompt_tokens or used.completion_tokens) > 0
                self._spent[step, name, row.spec, told].add(used, times)

    @property
    def usage(self) -> Usage:
        """What judges used in all."""
        return self._used.usage

    @property
    def spent(self) -> dict[Spent, Usage]:
        """What judges used, by what it is counted by."""
        return {Spent(*key): used.usage for key, used in self._spent.items()}

    @property
    def identities(self) -> Sequence[int]:
        """For each row a hash of what tells its rollout from others, also in another ledger."""
        return self._standing.rollouts

    @property
    def hidden(self) -> set[int]:
        """Rows that do not count, as `read_ledger` leaves them out."""
        return self._standing.repeated | self._standing.replaced

    @property
    def replaced(self) -> set[int]:
        """Rows in whose place another run's count."""
        return self._standing.replaced

    def successors(self) -> Mapping[tuple[str, int], tuple[str, int]]:
        """Return for each replaced row's run and index those of the row that counts in its place."""
        if self._followed[0] != self.rows:
            pairs = self._standing.successors().items()
            self._followed = self.rows, {self._name(row): self._name(other) for row, other in pairs}
        return self._followed[1]

    def _name(self, row: int) -> tuple[str, int]:
        return self.names["run"].values[self.codes["run"][row]], int(self.numbers["index"][row])

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
        files, starts, ends = self._places
        return Place(self._paths[files[row]], starts[row], ends[row] - starts[row])

    def lines(self, first: int = 0) -> Iterator[tuple[Path, Sequence[int], Sequence[int], Sequence[int]]]:
        """For each file: its path, its rows from *first*, and the offsets at which their lines begin and end."""
        files, starts, ends = self._places
        last = self.rows
        if len(self._paths) == 1 and first < last:
            yield self._paths[0], range(first, last), starts[first:last], ends[first:last]
            return
        by_file: dict[int, array[int]] = {}
        for row in range(first, last):
            by_file.setdefault(files[row], array("q")).append(row)
        for number, rows in by_file.items():
            yield (
                self._paths[number],
                rows,
                array("q", [starts[row] for row in rows]),
                array("q", [ends[row] for row in rows]),
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


def _step(tags: Mapping[str, Any]) -> float | None:
    step = tagged_step(tags)
    return step if isinstance(step, int | float) and abs(step) < 1e15 else None


def _label(group: Any) -> str:
    return group if isinstance(group, str) else encoded(group).decode().strip()


def _shortened(text: str) -> str:
    begin = text[:_PREVIEW]
    if len(begin) == _PREVIEW and " ".join(begin.split()) == begin:  # which is most of them
        return begin
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
