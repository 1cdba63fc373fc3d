"""What a query may do, and how long and how much it is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Graded, Rollout
from judgekit.graders import Sql
from judgekit.graders.rules.programs import sql as rules

SCRIPT = "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, x'ff');"
READS = "SELECT a FROM t"


def grade(query: str, reference: Any = READS, database: Any = SCRIPT, **options: Any) -> Any:
    rollout = Rollout(response=f"```sql\n{query}\n```", ground_truth=reference, extra={"db_id": database})
    return Sql(**options).grade(rollout)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (READS, "the reference's rows in 1 database"),
        ("SELECT a FROM t WHERE a < 3", "2 rows that are not the reference's 3"),
        ("SELECT a FROM t WHERE 0", "0 rows that are not the reference's 3"),
        ("SELECT 1", "the query reads no table"),
        ("SELECT c FROM t", "the query fails: no such column: c"),
        ("DELETE FROM t", "the query fails: not authorized"),
        ("SELECT a FROM t; SELECT 1", "the query fails: You can only execute one statement at a time."),
        (f"SELECT {'c' * 200} FROM t", f"the query fails: no such column: {'c' * 134}"),
        ("", "there is no query"),
    ],
)
def test_why_a_query_is_not_right(query: str, reason: str) -> None:
    assert grade(query) == Graded(1.0 if "rows in" in reason else 0.0, reason)


@pytest.mark.parametrize(
    ("reference", "database", "reason"),
    [
        (3, SCRIPT, "there is no reference query at ground_truth"),
        ({"query": "", "other": READS}, SCRIPT, "there is no reference query at ground_truth"),
        (" ; ", SCRIPT, "there is no reference query at ground_truth"),
        (READS, 3, "there is no database at extra.db_id"),
        (READS, " ", "there is no database at extra.db_id"),
        ("SELECT c FROM t", SCRIPT, "the reference's query fails: no such column: c"),
        ("SELECT a FROM t WHERE 0", SCRIPT, "the reference finds no row: every query that finds nothing would be right"),
        (READS, "create  table x (", "the database at extra.db_id is no SQL script: incomplete input"),
        (READS, "CREATE TEMPORARY TABLE t (a); ATTACH 'x' AS y", "the database at extra.db_id is no SQL script: not authorized"),
    ],
)  # fmt: skip
def test_why_a_row_is_not_graded(reference: Any, database: Any, reason: str) -> None:
    assert grade(READS, reference, database) == Abstained(reason)


def test_a_reference_has_several_names() -> None:
    for name in ("query", "sql", "SQL"):
        assert rules._reference({name: f" {READS}; "}) == READS
    assert rules._reference({"sql": "", "SQL": READS}) == READS


def asked(query: str, time_s: float = 60.0) -> Any:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCRIPT)
        one = rules._Asked(connection, time_s)
        try:
            return one.rows(query), one.tables
        finally:  # others may do with it what they may
            connection.execute("CREATE TABLE other (a)")


def test_a_query_is_asked_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(f"{READS} WHERE b <> 'x'") == ([(2,), (3,)], {"t"})
    assert asked("SELECT 1") == ([(1,)], set())
    assert asked("SELECT cast(b AS TEXT) FROM t WHERE a = 3") == ([("\ufffd",)], {"t"})
    monkeypatch.setattr(rules, "_MOST_ROWS", 3)
    assert len(asked(READS)[0]) == 3
    monkeypatch.setattr(rules, "_MOST_ROWS", 2)
    with pytest.raises(rules._Unread, match="^more than 2 rows, or 64 MiB$"):
        asked(READS)
    monkeypatch.setattr(rules, "_MOST_ROWS", 9)
    monkeypatch.setattr(rules, "_MOST_BYTES", 3 * 16 + 3)
    assert len(asked("SELECT a, b FROM t")[0]) == 3
    monkeypatch.setattr(rules, "_MOST_BYTES", 3 * 16 + 2)
    with pytest.raises(rules._Unread):
        asked("SELECT a, b FROM t")


def test_a_query_and_its_values_have_a_size() -> None:
    assert len(asked(f"SELECT 1 {' ' * ((1 << 18) - 20)}")[0]) == 1
    with pytest.raises(sqlite3.DataError, match="query string is too large"):
        asked(f"SELECT 1 {' ' * (1 << 18)}")
    assert asked("SELECT length(zeroblob(8388608))")[0] == [(8388608,)]
    with pytest.raises(sqlite3.DataError, match="string or blob too big"):
        asked("SELECT length(zeroblob(8388609))")


def test_a_query_that_does_not_end_is_interrupted() -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with pytest.raises(rules._Unread, match="^no end within 0.01 s of CPU time$"):
        asked(endless, 0.01)
    with pytest.raises(sqlite3.OperationalError, match="no such table: u"):
        asked("SELECT * FROM u")


@pytest.mark.parametrize(
    ("action", "first", "second", "allowed"),
    [
        *((action, "x", "y", True) for action in rules._ALLOWED),
        (sqlite3.SQLITE_FUNCTION, None, "load_extension", False),
        (sqlite3.SQLITE_INSERT, "x", None, False),
        (sqlite3.SQLITE_PRAGMA, "x", None, False),
    ],
)
def test_what_a_query_may_do(action: int, first: Any, second: Any, allowed: bool) -> None:
    one = rules._Asked(sqlite3.connect(":memory:"), 1.0)
    assert one._may(action, first, second, None, None) == (0 if allowed else 1)
    assert one.tables == ({"x"} if action == sqlite3.SQLITE_READ else set())
    assert one._may(sqlite3.SQLITE_READ, None, None) == 0
    one.connection.close()


@pytest.mark.parametrize(
    ("found", "wanted", "in_order", "spider", "bird"),
    [
        ([(1, 2)], [(2, 1)], False, True, False),
        ([(1, 2), (3, 4)], [(3, 4), (1, 2)], False, True, True),
        ([(1, 2), (3, 4)], [(3, 4), (1, 2)], True, False, True),
        ([(2, 1), (4, 3)], [(1, 2), (3, 4)], True, True, False),
        ([(1, 4), (3, 2)], [(1, 2), (3, 4)], False, False, False),
        ([(1,), (1,)], [(1,)], False, False, True),
        ([(1, 1)], [(1,)], False, False, False),
        ([(1, 1)], [(1, 2)], False, False, False),
    ],
)
def test_rows_that_are_the_same(found: Any, wanted: Any, in_order: bool, spider: bool, bird: bool) -> None:
    for compare, same in (("spider", spider), ("bird", bird)):
        assert Sql(compare=compare)._same(found, wanted, in_order) is same  # type: ignore[arg-type]


def test_orders_of_columns_are_tried_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1, 1, 1)]
    assert len([*rules._permuted(rows, rows)]) == 6
    monkeypatch.setattr(rules, "_ORDERS", 4)
    assert len([*rules._permuted(rows, rows)]) == 4
    assert [*rules._permuted([(1, 2)], [(2, 1)])] == [[(2, 1)]]
    assert [*rules._permuted([(1, 2)], [(1, 1)])] == []


@pytest.mark.parametrize(
    ("query", "has_order"),
    [
        ("SELECT a ORDER\nBY b", True),
        ("SELECT (a) FROM (SELECT (b) ORDER BY c)", False),
        ("SELECT 'it''s' || \"order by\" -- order by\n/* order\nby */", False),
        ("SELECT reorder by_", False),
    ],
)
def test_queries_that_have_an_order(query: str, has_order: bool) -> None:
    assert rules.ordered(query) is has_order


def test_databases_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b#"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "a b#.sqlite")) as made:
        made.executescript(SCRIPT)
    assert grade(READS, READS, "a b#", databases=tmp_path) == Graded(
        1.0, "the reference's rows in 1 database"
    )
    for name in ("none", "a b#/../a b#"):
        with pytest.raises(FileNotFoundError) as raised:
            grade(READS, READS, name, databases=tmp_path)
        assert str(raised.value) == f"there is no {name}/{name}.sqlite in {tmp_path}"
    with pytest.raises(ConfigError) as wrong:
        grade(READS, READS, "a b#")
    assert str(wrong.value) == (
        "sql: 'a b#' names a database: give the folder that holds it as databases, or a script with CREATE TABLE at "
        "extra.db_id"
    )
    with pytest.raises(ConfigError) as wrong:
        Sql(databases=tmp_path / "none")
    assert (
        str(wrong.value)
        == f"sql: databases is a folder with NAME/NAME.sqlite in it; there is none at {tmp_path}/none"
    )


def test_settings_have_bounds() -> None:
    assert Sql(time_s=0.1).timeout_s == 62.0
    with pytest.raises(ConfigError, match="^sql: time_s is a number of at least 0.1"):
        Sql(time_s=0.09)
