"""A rule that runs a response's SQL query, and compares what it finds to what the reference's finds."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from judgekit.errors import ConfigError
from judgekit.graders.protocol import Where
from judgekit.graders.rules.rule import Rule, at_least, code_blocks, one_of, part_of
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

Row = tuple[Any, ...]


class Sql(Rule):
    """Scores 1 if the response's query finds what the reference's finds, else 0.

    The query is the last fenced SQL block, or a response without any fence; it is one SELECT. Both queries run in SQLite,
    read-only. The reference is a query, or a mapping that has one as `query`, `sql` or `SQL`.
    *database*: dotted path of the database: a script of CREATE and INSERT statements, or a name in the folder *databases*,
    which holds `NAME/NAME.sqlite` as Spider and BIRD do. All `.sqlite` files in a database's folder are asked, as in
    Spider's test suites: a query that is right by chance in one is not in the others.

    *compare*: "spider": the same rows as often, in the same order where the reference has an ORDER BY of its own, with
    columns in any order; "bird": the same set of rows. *time_s*: CPU time of a query. A query that is no SQL, changes
    something, takes too long or reads no table where the reference reads one scores 0.

    Abstains without a reference or database, and where the reference fails or finds no row: then every query that finds
    nothing would be right. A database that is not there is the machine's failure. Runs in a thread.

    Source: execution accuracy as in Spider's test suites (arXiv:2010.02840) and BIRD (arXiv:2305.03111).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "ground_truth", "extra")
    abstains = "there is no reference query or database, or the reference finds nothing"
    abstains_by_row = True
    where: Where = "thread"

    def __init__(
        self,
        *,
        databases: str | os.PathLike[str] | None = None,
        database: str = "extra.db_id",
        compare: Literal["spider", "bird"] = "spider",
        time_s: float = 10.0,
        name: str = "sql",
    ) -> None:
        one_of(name, "compare", compare, ("spider", "bird"))
        at_least(name, "time_s", time_s, 0.1)
        if databases is not None and not Path(databases).is_dir():
            raise ConfigError(
                f"{name}: databases is a folder with NAME/NAME.sqlite in it; there is none at {databases}"
            )
        self.name = name
        self.databases = None if databases is None else Path(databases)
        self.database = database
        self.compare = compare
        self.time_s = time_s
        self.timeout_s = 20 * time_s + 60.0

    def grade(self, rollout: Rollout, /) -> Grade:
        wanted = _reference(rollout.ground_truth)
        if wanted is None:
            return Abstained("there is no reference query at ground_truth")
        where = look_up(rollout, self.database, None)
        if not isinstance(where, str) or not where.strip():
            return Abstained(f"there is no database at {self.database}")
        query = query_of(rollout.response)
        if query is None:
            return Graded(0.0, "there is no query")
        asked = 0
        try:
            for connection in self._connections(where):
                with closing(connection):
                    problem = self._problem(connection, query, wanted)
                if problem is not None and problem is not _NOTHING:
                    return Graded(0.0, problem)
                asked += problem is None
        except _Unread as error:
            return Abstained(str(error))
        if not asked:
            return Abstained("the reference finds no row: every query that finds nothing would be right")
        return Graded(1.0, f"the reference's rows in {asked} database{'s' * (asked != 1)}")

    def _problem(self, connection: sqlite3.Connection, query: str, wanted: str) -> str | None:
        """Return why a query is not right in a database; None if it is. Raises _Unread if the reference fails."""
        reference, mine = _Asked(connection, self.time_s), _Asked(connection, self.time_s)
        try:
            rows = reference.rows(wanted)
        except (*_FAILS, _Unread) as error:
            raise _Unread(f"the reference's query fails: {error}") from None
        if not rows:
            return _NOTHING
        try:
            found = mine.rows(query)
        except (*_FAILS, _Unread) as error:
            return f"the query fails: {str(error)[:150]}"
        if reference.tables and not mine.tables:
            return "the query reads no table"
        same = bool(found) and self._same(found, rows, ordered(wanted))
        return None if same else f"{len(found)} rows that are not the reference's {len(rows)}"

    def _connections(self, where: str) -> Iterator[sqlite3.Connection]:
        if re.search(r"\bcreate\s+(?:temp\w*\s+)?table\b", where, re.IGNORECASE):
            connection = sqlite3.connect(":memory:", check_same_thread=False)
            try:
                connection.set_authorizer(lambda action, *_: 1 if action == sqlite3.SQLITE_ATTACH else 0)
                connection.executescript(where)
            except sqlite3.Error as error:
                connection.close()
                raise _Unread(f"the database at {self.database} is no SQL script: {error}") from None
            yield connection
            return
        if self.databases is None:
            raise ConfigError(
                f"{self.name}: {where!r} names a database: give the folder that holds it as databases, or a script "
                f"with CREATE TABLE at {self.database}"
            )
        folder = self.databases / where
        if Path(where).name != where or not (files := sorted(folder.glob("*.sqlite"))):
            raise FileNotFoundError(f"there is no {where}/{where}.sqlite in {self.databases}")
        for file in files:
            # an absolute address, in which only the path is quoted
            yield sqlite3.connect(
                f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )

    def _same(self, found: Sequence[Row], wanted: Sequence[Row], in_order: bool) -> bool:
        if self.compare == "bird":
            return {*found} == {*wanted}
        if len(found) != len(wanted) or len(found[0]) != len(wanted[0]):
            return False
        return any(
            permuted == [*wanted] if in_order else Counter(permuted) == Counter(wanted)
            for permuted in _permuted(found, wanted)
        )


def query_of(response: str) -> str | None:
    """Return the SQL of a response; None if there is none."""
    text = part_of(response, "answer_or_rest")
    if text is None:
        return None
    blocks = code_blocks(text)
    named = [code for language, code in blocks if language in _SQL]
    unnamed = [code for language, code in blocks if not language]
    query = (named or unnamed or [""])[-1] if blocks else text
    return query.strip().rstrip(";").strip() or None


_SQL = frozenset(
    (
        "sql",
        "sqlite",
        "sqlite3",
        "mysql",
        "mariadb",
        "postgresql",
        "postgres",
        "pgsql",
        "plpgsql",
        "tsql",
        "mssql",
        "duckdb",
    )
)
"""Names of fences that hold SQL, whatever server a model thinks of."""


def ordered(query: str) -> bool:
    """Whether a query's own rows have an order: an ORDER BY that is in no bracket and no text."""
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", " ", query, flags=re.DOTALL)
    while (inner := re.sub(r"\([^()]*\)", " ", bare)) != bare:
        bare = inner
    return re.search(r"\border\s+by\b", bare, re.IGNORECASE) is not None


def _reference(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("query", "sql", "SQL") if value.get(key)), None)
    return value.strip().rstrip(";").strip() or None if isinstance(value, str) else None


_FAILS = (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError)
_NOTHING = "the reference finds no row"


class _Unread(Exception):
    """What a query finds is not read to its end."""


_MOST_ROWS, _MOST_BYTES = 200_000, 64 << 20


class _Asked:
    """Asks one query, within limits, and keeps which tables it reads."""

    def __init__(self, connection: sqlite3.Connection, time_s: float) -> None:
        self.connection, self.time_s = connection, time_s
        self.tables: set[str] = set()

    def rows(self, query: str) -> list[Row]:
        connection = self.connection
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 8 << 20)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1 << 18)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        ends = time.thread_time() + self.time_s
        connection.set_progress_handler(lambda: time.thread_time() > ends, 1000)
        connection.set_authorizer(self._may)
        found: list[Row] = []
        size = 0
        try:
            for row in connection.execute(query):
                size += sum(len(value) for value in row if isinstance(value, str | bytes)) + 8 * len(row)
                if len(found) == _MOST_ROWS or size > _MOST_BYTES:
                    raise _Unread(f"more than {_MOST_ROWS} rows, or {_MOST_BYTES >> 20} MiB")
                found.append(row)
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise _Unread(f"no end within {self.time_s:g} s of CPU time") from None
            raise
        finally:
            connection.set_authorizer(None)
            connection.set_progress_handler(None, 0)
        return found

    def _may(self, action: int, first: str | None, second: str | None, *_: Any) -> int:
        if action == sqlite3.SQLITE_READ and first is not None:
            self.tables.add(first)
        fine = action in _ALLOWED and not (action == sqlite3.SQLITE_FUNCTION and second == "load_extension")
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY


_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def _permuted(found: Sequence[Row], wanted: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows with their columns in each order in which every column holds what the wanted one does."""
    mine = [Counter(column) for column in zip(*found, strict=True)]
    theirs = [Counter(column) for column in zip(*wanted, strict=True)]
    if any(mine.count(column) != theirs.count(column) for column in theirs):
        return

    def orders(chosen: list[int]) -> Iterator[list[int]]:
        if len(chosen) == len(theirs):
            yield chosen
            return
        for place, column in enumerate(mine):
            if place not in chosen and column == theirs[len(chosen)]:
                yield from orders([*chosen, place])

    for order in itertools.islice(orders([]), _ORDERS):
        yield [tuple(row[place] for place in order) for row in found]


_ORDERS = 200
"""How many orders of columns are tried at most: many columns that hold the same differ little."""
