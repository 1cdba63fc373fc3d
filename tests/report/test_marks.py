"""Marks of a ledger, and what becomes of them when its rollouts are graded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgekit.ledger.reader import read_ledger
from judgekit.ledger.standing import Standing
from judgekit.report.marks import Mark, read_marks, write_mark
from judgekit.report.page import marks_of, whole_table

from .test_table import append, entry


def graded(path: Path, run: str, *replaces: str, copies: int = 1) -> None:
    tags: dict[str, Any] = {"resumes": list(replaces)} if replaces else {}
    append(path, *(entry(i, run=run, id=str(i // copies), group="g", tags=tags) for i in range(4)))


def test_a_mark_follows_its_rollout_to_the_run_that_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    graded(path, "one")
    for index, mark in ((0, "good"), (1, "bad"), (3, "good")):
        write_mark(path, Mark("one", index, mark))  # type: ignore[arg-type]
    graded(path, "two", "one")
    graded(path, "three", "two", "one")
    write_mark(path, Mark("three", 3, "bad"))
    found = {(one["run"], one["index"]): one["mark"] for one in marks_of(whole_table(path))}
    assert found == {("three", 0): "good", ("three", 1): "bad", ("three", 3): "bad"}


def test_marks_of_equal_rollouts_stay_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    graded(path, "one", copies=2)
    graded(path, "two", "one", copies=2)
    lines = read_ledger(path, replaced=True).entries
    names = [(line.run, line.index) for line in lines]
    places = {names[at]: names[other] for at, other in Standing.of(lines).successors().items()}
    assert places == {("one", i): ("two", i) for i in range(4)}
    write_mark(path, Mark("one", 1, "good"))
    write_mark(path, Mark("one", 2, "good"))
    write_mark(path, Mark("two", 2, "", note="unsure"))  # one that followed is taken back
    write_mark(path, Mark("one", 3, "good"))
    write_mark(path, Mark("two", 3, ""))
    found = {key: (mark.mark, mark.note) for key, mark in read_marks(path, places).items()}
    assert found == {("two", 1): ("good", ""), ("two", 2): ("", "unsure")}


@pytest.mark.parametrize("order", [("other", "one", "two"), ("one", "other", "two"), ("one", "two", "other")])
def test_a_mark_follows_to_no_run_that_replaces_nothing(tmp_path: Path, order: tuple[str, ...]) -> None:
    path = tmp_path / "l.jsonl"
    for run in order:
        graded(path, run, *(("one",) if run == "two" else ()))
    write_mark(path, Mark("one", 0, "good"))
    assert [(mark["run"], mark["index"]) for mark in marks_of(whole_table(path))] == [("two", 0)]


def test_a_ledger_in_which_nothing_was_replaced_keeps_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    graded(path, "one")
    write_mark(path, Mark("one", 2, "good", note="n"))
    (mark,) = marks_of(whole_table(path))
    assert (mark["run"], mark["index"], mark["note"]) == ("one", 2, "n")
