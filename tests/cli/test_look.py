"""What `judgekit init` takes a user's columns and rows for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judgekit import DataError
from judgekit.cli.look import LOOKED_AT, look


def rows(folder: Path, *given: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"prompt": "p", "response": "r", "ground_truth": "1"}, {}),
        ({"question": "p", "completion": "r", "answer": "1"}, {"prompt": "question", "response": "completion", "ground_truth": "answer"}),
        ({"question": 3, "response": "r"}, {}),
        ({"prompt": "p", "completion": [{"role": "assistant", "content": "r"}]}, {"response": "completion"}),
        ({"prompt": "p", "completion": [{"content": "r"}]}, {}),
        ({"prompt": "p", "response": "r", "answer": ""}, {}),
    ],
)  # fmt: skip
def test_columns_are_known_by_other_names_where_their_values_fit(
    tmp_path: Path, row: dict[str, Any], columns: dict[str, str]
) -> None:
    assert look(rows(tmp_path, row)).columns == columns


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ({"ground_truth": r"\frac{1}{2}"}, "maths"),
        ({"ground_truth": "$3"}, "maths"),
        ({"ground_truth": "x^2"}, "maths"),
        ({"ground_truth": 72}, "answer"),
        ({"ground_truth": "Jane Austen"}, "words"),
        ({"ground_truth": "Jane Austen", "options": ["Jane Austen", "Mary Shelley"]}, "choice"),
        ({"ground_truth": "Jane Austen", "options": ["Mary Shelley", "Ann Radcliffe"]}, "words"),
        ({"ground_truth": 72, "choices": [3, 4]}, "answer"),
        ({}, "open"),
        ({"ground_truth": [{"input": "1", "output": "2"}]}, "code"),
        ({"extra": {"instruction_id_list": ["punctuation:no_comma"]}}, "instructions"),
        ({"rubric": ["is polite"]}, "rubric"),
        ({"chosen": "a", "rejected": "b", "response": None}, "preference"),
    ],
)
def test_the_kind_of_task_is_seen(tmp_path: Path, row: dict[str, Any], task: str) -> None:
    found = look(rows(tmp_path, {"prompt": "p", "response": "r", **row}))
    assert (found.task, bool(found.why)) == (task, True)


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ([0, 1, 2], "options: extra.choices"),
        ([1, 2, 3], "options: extra.choices, first: 1"),
        ([0, 3], ""),
        (["a", "c"], "options: extra.choices"),
    ],
)
def test_numbers_of_options_are_counted_from_where_they_fit(
    tmp_path: Path, labels: list[Any], options: str
) -> None:
    given = ({"prompt": "p", "choices": ["x", "y", "z"], "answer": label} for label in labels)
    assert look(rows(tmp_path, *given)).options == options


def test_so_many_rows_are_looked_at_and_broken_ones_are_passed_over(tmp_path: Path) -> None:
    path = rows(tmp_path, *({"prompt": "p", "response": str(i)} for i in range(LOOKED_AT + 5)))
    assert (look(path).rows, LOOKED_AT) == (64, 64)
    path.write_text('{"torn\n[1]\n{"prompt": "p", "response": "r"}\n')
    assert look(path).rows == 1
    path.write_text("\n")
    with pytest.raises(DataError, match="rows.jsonl holds no rows"):
        look(path)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b'{"prompt": "caf\xe9", "response": "r"}', "line 1: not JSON"),
        (b'{"prompt": "p", "response": 5}', "line 1: 'response' is text, not int"),
    ],
)
def test_where_no_row_can_be_read_it_says_why(tmp_path: Path, row: bytes, problem: str) -> None:
    (tmp_path / "rows.jsonl").write_bytes(row + b"\n")
    with pytest.raises(DataError, match=f"rows.jsonl, {problem}"):
        look(tmp_path / "rows.jsonl")


def test_rows_of_several_sources_are_told(tmp_path: Path) -> None:
    """One rule may not fit them all."""
    rows = [
        {"prompt": "q", "response": "4", "ground_truth": "4", "data_source": source}
        for source in ("gsm8k", "nq", "nq")
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "but the rows are of 2 data sources (gsm8k, nq): where these need rules" in look(path).why
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    assert "data sources" not in look(path).why
