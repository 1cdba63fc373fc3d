"""Search in the texts of a ledger: words, or a regular expression, in one kind of text or in all.

    texts = Texts()
    rows = texts.rows(table, Wanted("the verdict"))

Its index is a copy of the ledger in lower case, in a temporary folder: bytes are found in it as fast as memory is read.
What was not copied yet, or has no room there, is read from the ledger.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # which knows what an expression is made of
from typing import Any, NamedTuple

import msgspec

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded
from judgekit.report.table import LedgerChanged, Place, Table

_PIECE = 4_000_000
"""Bytes that are searched at once."""
FIELDS = {
    "text": (),
    "prompt": ("prompt",),
    "response": ("response", "messages"),
    "reason": ("grades",),
}
"""What can be searched in, and which fields of a line that is; (): all of it."""


class Wanted(NamedTuple):
    """What is searched for: words, in upper or lower case, or a regular expression."""

    text: str
    field: str = "text"
    regex: bool = False

    def check(self) -> None:
        """Raises DataError if it cannot be searched for."""
        if self.field not in FIELDS:
            raise DataError(f"there is no text called {self.field!r}; there are {', '.join(FIELDS)}")
        if self.regex:
            try:
                re.compile(self.text)
            except (re.error, OverflowError, RecursionError) as error:
                raise DataError(f"/{self.text}/ is no regular expression: {error}") from None


class Texts:
    """The index of one ledger, for one thread at a time; another may close it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._using = 0
        self._closed = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._copied: dict[Path, int] = {}
        self._rows = 0
        """Rows of the table that are in the copies, or had no room there."""

    def close(self) -> None:
        """Remove the index, at once or when the thread that is at work on it has ended; what is searched for later is read from the ledger."""
        with self._guard:
            self._closed = True
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None and not self._using:
            self._copied = {}
            self._folder.cleanup()

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        with self._guard:
            self._using += 1
        try:
            yield
        finally:
            with self._guard:
                self._using -= 1
                if self._closed:
                    self._remove()

    def follow(self, table: Table) -> None:
        """Copy what the table has read and the index has not."""
        with self._used():
            if not self._closed:
                self._copy_more(table)

    def _copy_more(self, table: Table) -> None:
        if self._folder is None:  # only its owner can read it
            self._folder = tempfile.TemporaryDirectory(prefix="judgekit-", ignore_cleanup_errors=True)
        first_row, self._rows = self._rows, table.rows
        for path, _, _, ends in table.lines(first_row):
            begin, end = self._copied.get(path, 0), ends[-1]
            if end - begin > shutil.disk_usage(self._folder.name).free // 4:
                continue
            self._copied.setdefault(path, 0)
            with open(path, "rb") as file, open(self._copy(path), "r+b" if begin else "wb") as copy:
                file.seek(begin)
                copy.seek(begin)
                while begin < end and not self._closed and (data := file.read(min(_PIECE, end - begin))):
                    copy.write(data.lower())
                    begin += len(data)
            self._copied[path] = begin

    def _copy(self, path: Path) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, str(list(self._copied).index(path)))

    def rows(self, table: Table, wanted: Wanted, first_row: int = 0) -> list[int]:
        """Return the rows from *first_row* in which it is found; for an expression, those in which it may be."""
        with self._used():
            return self._rows_with(table, wanted, first_row)

    def _rows_with(self, table: Table, wanted: Wanted, first_row: int) -> list[int]:
        text = literal_of(wanted.text) if wanted.regex else wanted.text
        if not text:
            return list(range(first_row, table.rows))
        needles, names = _needles(text), FIELDS[wanted.field]
        unsure = any(needle in _STRUCTURE or _NUMERIC.fullmatch(needle) for needle in needles)
        exact = not wanted.regex and (names or unsure)  # else any place in the line will do
        found: set[int] = set()
        for path, rows, starts, ends in table.lines(first_row):
            for data, first in self._pieces(path, starts, ends):
                places = {at for needle in needles for at in _matching(data, needle, starts, ends, first)}
                if exact:
                    base = starts[first]
                    places = {
                        at
                        for at in places
                        if _holds(data[starts[at] - base : ends[at] - base], names, needles, path)
                    }
                found.update(rows[at] for at in places)
        return sorted(found)

    def _pieces(self, path: Path, starts: Sequence[int], ends: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        """Yield a file's lines in lower case, some at once, with the place of the first."""
        copied = self._copied.get(path, 0)
        first = 0
        while first < len(starts):
            indexed = ends[first] <= copied
            after = max(first + 1, bisect_right(ends, starts[first] + _PIECE))
            after = min(after, bisect_right(ends, copied)) if indexed else after
            with open(self._copy(path) if indexed else path, "rb") as file:
                file.seek(starts[first])
                data = file.read(ends[after - 1] - starts[first])
            yield (data if indexed else data.lower()), first
            first = after


def matching(places: Iterable[tuple[int, Place]], wanted: Wanted) -> list[int]:
    """Return those rows whose texts match an expression; in a process of its own, for that may take forever."""
    expression, found = re.compile(wanted.text), []
    for path, members in itertools.groupby(places, key=lambda one: one[1].path):
        with open(path, "rb") as file:
            for row, place in members:
                file.seek(place.offset)
                line = msgspec.json.decode(file.read(place.length))
                if any(map(expression.search, _strings(texts_of(line, wanted.field)))):
                    found.append(row)
    return found


def literal_of(expression: str) -> str:
    """Return the longest piece of plain text that stands in whatever the expression matches; "" without one."""
    found, piece = "", ""
    for kind, value in [*_parser.parse(expression), (None, None)]:
        plain = kind is _parser.LITERAL and value < 128
        piece = piece + chr(value) if plain else ""
        found = max(found, piece, key=len)
    return found


def texts_of(line: dict[str, Any], field: str) -> Any:
    """Return what of a rollout's line is searched."""
    names = FIELDS[field]
    return {name: line[name] for name in names if name in line} if names else line


def _matching(
    data: bytes, needle: bytes, starts: Sequence[int], ends: Sequence[int], first: int
) -> Iterator[int]:
    """Places of the lines in *data* that hold the needle; it begins with the line at place *first*."""
    base = starts[first]
    at = data.find(needle)
    while at >= 0:
        place = bisect_right(starts, base + at, first) - 1
        inside = base + at < ends[place]  # else in a line of another kind
        if inside:
            yield place
        at = data.find(needle, max(at + 1, ends[place] - base) if inside else at + 1)


def _needles(text: str) -> list[bytes]:
    # the index has lower case of ASCII only: of other letters, what was typed and both cases of all of it are looked for
    return list(
        dict.fromkeys(encoded(form).strip()[1:-1].lower() for form in (text, text.lower(), text.upper()))
    )


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts in a value: keys and kinds of the format do not count."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _OWN:
                yield from _strings(item)


def _holds(line: bytes, names: Sequence[str], needles: Sequence[bytes], path: Path) -> bool:
    """Whether a text of these fields of a line, which is in lower case, holds one of the needles."""
    try:
        fields = _fields.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise LedgerChanged(f"{path} has another line there") from None
    values = [bytes(fields[name]) for name in names or fields.keys() - _OWN if name in fields]
    hits = [value for needle in needles for value in values if needle in value]
    return any(value.startswith(b'"') for value in hits) or any(_within(value, needles) for value in hits)


def _within(value: bytes, needles: Sequence[bytes]) -> bool:
    """Whether a text within JSON holds one of the needles: without decoding it, as two keys may be one in lower case."""
    own = False
    for match in _QUOTED.finditer(value):
        if match["key"]:
            own = match["text"].decode("utf-8", "replace") in _OWN
        elif own:
            own = False
        elif any(needle in match["text"] for needle in needles):
            return True
    return False


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_QUOTED = re.compile(rb'"(?P<text>[^"\\]*(?:\\.[^"\\]*)*)"(?P<key>\s*:)?', re.DOTALL)
_NUMERIC = re.compile(rb"[0-9a-f.+-]+")
"""What may stand in a time, a score or a digest."""
_OWN = frozenset(("type", "kind", "status", "spec", "run", "rollout_digest"))
"""Fields whose texts are the ledger's own."""
_STRUCTURE = encoded(
    {
        "type rollout kind graded abstained skipped failed infrastructure scored neutral excluded masked constant dropped": 0,
        "spec time run index group id tags reward status raw_reward contributions residual grades missing policies": 0,
        "usage calls prompt_tokens cached_tokens completion_tokens wall_s data_source finish_reason response_tokens": 0,
        "response_chars rollout_digest prompt messages response ground_truth extra role content": 0,
        "score reason metadata error detail retryable cause raw thinking model user assistant system tool": 0,
    }
)
"""Words of the format itself: a text that is part of them stands in every line."""
