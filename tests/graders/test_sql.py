"""SQL by what it finds: the reference's rows are paid, nothing else is, and nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.config import load_runner
from judgekit.graders import Sql
from judgekit.graders.rules.programs.sql import ordered, query_of

SCRIPT = """
CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT, people INTEGER, area REAL);
INSERT INTO town VALUES (1, 'Ash', 100, 2.0), (2, 'Birch', 250, 5.0), (3, 'Cedar', 250, 4.5), (4, 'Dale', NULL, 1.0);
"""
NAMES = "SELECT name FROM town WHERE people > 150"


def grade(query: str, reference: Any = NAMES, database: Any = SCRIPT, **options: Any) -> Any:
    rollout = Rollout(response=f"```sql\n{query}\n```", ground_truth=reference, extra={"db_id": database})
    return Sql(**options).grade(rollout)


@pytest.mark.parametrize(
    ("query", "reference", "spider", "bird"),
    [
        (NAMES, NAMES, 1, 1),
        ("select NAME from TOWN where people >= 151;", NAMES, 1, 1),
        ("SELECT name FROM town WHERE people > 150 ORDER BY name DESC", NAMES, 1, 1),
        (NAMES + " ORDER BY name DESC", NAMES + " ORDER BY name", 0, 1),
        (NAMES + " ORDER BY name", NAMES + " ORDER BY name", 1, 1),
        ("SELECT people, name FROM town", "SELECT name, people FROM town", 1, 0),
        ("SELECT people FROM town", "SELECT DISTINCT people FROM town", 0, 1),
        ("SELECT name FROM town", NAMES, 0, 0),
        ("SELECT name, id FROM town WHERE people > 150", NAMES, 0, 0),
        ("SELECT 1.0 * count(*) FROM town", "SELECT count(*) FROM town", 1, 1),
        ("SELECT name FROM town WHERE people IS NULL", "SELECT name FROM town WHERE id = 4", 1, 1),
        ("WITH t AS (SELECT * FROM town) SELECT name FROM t WHERE people > 150", NAMES, 1, 1),
        # what is no answer
        ("x = 1", NAMES, 0, 0),
        ("SELECT name FROM village", NAMES, 0, 0),
        ("SELECT 'Birch' UNION ALL SELECT 'Cedar'", NAMES, 0, 0),
        ("DROP TABLE town", NAMES, 0, 0),
        ("DELETE FROM town; " + NAMES, NAMES, 0, 0),
        ("PRAGMA writable_schema = 1", NAMES, 0, 0),
        ("ATTACH 'x.sqlite' AS x", NAMES, 0, 0),
        ("SELECT load_extension('x')", NAMES, 0, 0),
        ("SELECT name FROM town WHERE 0", NAMES, 0, 0),
        ("SELECT length(zeroblob(1000000000)) FROM town", NAMES, 0, 0),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n, town", NAMES, 0, 0),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n, town", NAMES, 0, 0),
    ],
)  # fmt: skip
def test_what_is_found_decides(query: str, reference: str, spider: float, bird: float) -> None:
    for compare, score in (("spider", spider), ("bird", bird)):
        found = grade(query, reference, compare=compare, time_s=0.5)
        assert isinstance(found, Graded), found
        assert found.score == score, found.reason


@pytest.mark.parametrize(
    ("reference", "database", "says"),
    [
        (None, SCRIPT, "there is no reference query at ground_truth"),
        ("", SCRIPT, "there is no reference query at ground_truth"),
        (NAMES, None, "there is no database at extra.db_id"),
        ("SELECT height FROM town", SCRIPT, "the reference's query fails: no such column: height"),
        ("SELECT name FROM town WHERE 0", SCRIPT, "every query that finds nothing would be right"),
    ],
)
def test_what_cannot_be_graded_is_an_abstention(reference: Any, database: Any, says: str) -> None:
    found = grade(NAMES, reference, database)
    assert isinstance(found, Abstained)
    assert says in found.reason


def test_databases_in_a_folder_are_all_asked_and_none_is_changed(tmp_path: Path) -> None:
    (tmp_path / "towns").mkdir()
    for number, more in enumerate(("", "INSERT INTO town VALUES (5, 'Elm', 900, 9.0);")):
        with closing(sqlite3.connect(tmp_path / "towns" / f"towns{number or ''}.sqlite")) as made:
            made.executescript(SCRIPT + more)
    before = {file.name: file.read_bytes() for file in (tmp_path / "towns").iterdir()}
    options: dict[str, Any] = {"databases": str(tmp_path)}
    assert grade(NAMES, {"SQL": NAMES, "db_id": "towns"}, "towns", **options) == Graded(
        1.0, "the reference's rows in 2 databases"
    )
    assert grade("SELECT name FROM town WHERE name < 'D' AND id > 1", NAMES, "towns", **options).score == 0
    assert grade("UPDATE town SET people = 1", NAMES, "towns", **options).score == 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "towns").iterdir()} == before
    for name in ("villages", "../towns", "towns/../towns"):
        (result,) = GradingRunner([Sql(**options)], missing_reward="mask").run_sync(
            [Rollout(response=NAMES, ground_truth=NAMES, extra={"db_id": name})]
        )
        failed = result.grades["sql"]
        assert isinstance(failed, Failed)
        assert f"there is no {name}" in failed.detail


def test_a_name_without_a_folder_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="give the folder that holds it as databases"):
        grade(NAMES, NAMES, "towns")
    with pytest.raises(ConfigError, match="databases is a folder"):
        Sql(databases="no-such-folder")
    with pytest.raises(ConfigError, match="compare is one of"):
        Sql(compare="beaver")  # type: ignore[arg-type]


def test_the_query_of_a_response() -> None:
    assert query_of("<think>SELECT 1</think>SELECT 2;") == "SELECT 2"
    assert query_of("```sql\nSELECT 1\n```\n```python\nx\n```") == "SELECT 1"
    assert query_of("```python\nx\n```") is None
    for language in ("mysql", "postgresql", "sqlite3", "SQL"):
        assert query_of(f"```python\nx\n```\n```{language}\nSELECT 1;\n```") == "SELECT 1"
    assert query_of("So it is:\n<answer>SELECT 1</answer>") == "SELECT 1"
    assert query_of("<answer>\n```sql\nSELECT 1\n```\n</answer>") == "SELECT 1"
    assert query_of("<think>SELECT 1") is None
    assert grade("").score == 0


def test_an_order_is_the_query_s_own() -> None:
    assert ordered("SELECT a FROM t ORDER  BY a LIMIT 1")
    assert not ordered("SELECT a FROM (SELECT * FROM t ORDER BY f(a)) WHERE b = 'order by'")
    assert not ordered("SELECT row_number() OVER (ORDER BY a) FROM t -- order by")


def test_databases_are_looked_for_beside_the_reward_yaml(tmp_path: Path) -> None:
    (tmp_path / "databases").mkdir()
    path = tmp_path / "reward.yaml"
    path.write_text("graders:\n  sql: {use: sql, databases: databases}\n")
    grader: Any = load_runner(path).graders["sql"]
    assert grader.databases == tmp_path / "databases"
