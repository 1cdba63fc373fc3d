"""What `judgekit init` sees in a user's rows, and what it asks on a terminal."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from judgekit.cli import init
from judgekit.cli.look import LOOKED_AT, look
from judgekit.errors import DataError

CHAT = [{"role": "user", "content": "q"}]


def looked(folder: Path, *rows: Any) -> Any:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return look(path)


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"completion": "x", "question": "q", "answer": "4"}, {"response": "completion", "prompt": "question", "ground_truth": "answer"}),
        ({"response": "x", "completion": "y", "prompt": "q"}, {}),
        ({"output": "x", "conversation": CHAT, "uid": 3}, {"response": "output", "group": "uid", "messages": "conversation"}),
        ({"output": 3, "text": "x"}, {"response": "text"}),
        ({"response": "x", "conversation": ["no", "messages"]}, {}),
        ({"response": "x", "conversation": [{"content": "no role"}]}, {}),
        ({"response": "x", "problem": CHAT}, {"prompt": "problem"}),
        ({"response": "x", "stop_reason": "stop", "source": "web", "num_tokens": 3}, {"response_tokens": "num_tokens", "finish_reason": "stop_reason", "data_source": "source"}),
        ({"response": "x", "stop_reason": 3, "source": ["web"], "num_tokens": "3"}, {}),
        ({"response": "x", "reward_model": {"ground_truth": "4"}, "answer": "5"}, {}),
        ({"response": "x", "answer": ""}, {}),
        ({"question": "q", "solution": "4"}, {"prompt": "question", "ground_truth": "solution"}),
    ],
)  # fmt: skip
def test_columns_under_other_names(tmp_path: Path, row: dict[str, Any], columns: dict[str, str]) -> None:
    found = looked(tmp_path, row)
    assert dict(found.columns) == columns
    assert found.answered == ("question" not in row or "completion" in row)
    assert found.column("prompt") == columns.get("prompt", "prompt")
    named = ",".join(f"{field}={column}" for field, column in found.columns.items())
    assert found.mapping == (f" --map {named}" if named else "")


def test_a_conversation_under_another_name_is_an_answer(tmp_path: Path) -> None:
    said = [*CHAT, {"role": "assistant", "content": "a"}]
    found = looked(tmp_path, {"prompt": "q", "conversation": said, "answer": "4"})
    assert (found.answered, found.mapping, found.task) == (
        True, " --map ground_truth=answer,response=conversation", "answer",
    )  # fmt: skip
    assert [rollout.response for rollout in found.rollouts] == ["a"]
    assert not looked(tmp_path, {"prompt": "q", "conversation": []}).answered
    assert not looked(tmp_path, {"prompt": "q", "conversation": CHAT}).answered


@pytest.mark.parametrize(
    ("rows", "task", "why"),
    [
        ([{"response": "x"}], "open", "there are no references"),
        ([{"response": "x", "ground_truth": "4"}], "answer", "the references hold numbers"),
        ([{"response": "x", "ground_truth": "4"}, {"response": "x", "ground_truth": "Oslo"}], "words", "the references are words"),
        ([{"response": "x", "ground_truth": "$4"}], "maths", "the references are formulas"),
        ([{"response": "x", "ground_truth": "x^2"}], "maths", "the references are formulas"),
        ([{"response": "x", "ground_truth": "\\pi"}], "maths", "the references are formulas"),
        ([{"response": "x", "ground_truth": "Oslo", "rubric": ["It is polite."]}], "rubric", "the rows bring criteria, in extra.rubric"),
        ([{"response": "x", "criteria": ["It is polite."]}], "rubric", "the rows bring criteria, in extra.criteria"),
        ([{"response": "x", "rubric": 3}], "open", "there are no references; 'rubric' holds no criteria that are read: texts, or objects with text and weight"),
        ([{"response": "x", "instruction_id_list": ["a"]}], "instructions", "there are IFEval's instruction_id_list"),
        ([{"response": "x", "ground_truth": "assert f(1) == 2"}], "code", "the references are test cases"),
    ],
)  # fmt: skip
def test_the_kind_of_task(tmp_path: Path, rows: list[dict[str, Any]], task: str, why: str) -> None:
    found = looked(tmp_path, *rows)
    assert (found.task, found.why, found.rows) == (task, why, len(rows))


def test_only_the_first_rows_are_looked_at(tmp_path: Path) -> None:
    assert looked(tmp_path, *({"response": "x"} for _ in range(LOOKED_AT + 1))).rows == LOOKED_AT
    path = tmp_path / "rows.jsonl"
    path.write_text('{"response": "x"}\nnonsense\n{"response": "y"}\n')
    assert look(path).rows == 2
    path.write_text("")
    with pytest.raises(DataError, match="holds no rows"):
        look(path)


def test_what_is_told_of_the_rows(tmp_path: Path) -> None:
    found = looked(
        tmp_path, {"question": "q", "answer": "4", "uid": 3}, {"question": "p", "answer": 5}
    )  # fmt: skip
    assert list(init._told(found, Path("rows.jsonl"), found.task)) == [
        "rows.jsonl: 2 rows looked at", "  prompt       question: text", "  ground_truth answer: text",
        "  group        uid: a number", "  there are no responses: these are prompts, for a trainer",
        "  task         answer: the references hold numbers",
    ]  # fmt: skip
    assert list(init._told(looked(tmp_path, {"response": "x"}), None, "")) == [
        "None: 1 row looked at", "  response     response: text",
    ]  # fmt: skip


# ---- questions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_asked_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str]] = []

    def prompt(question: str, *, default: str) -> str:
        asked.append((question, default))
        return " b \n"

    said: list[str] = []
    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(init, "say", said.append)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert init._asked("The model?", "m") == "b"
    assert init._chosen("--x", "Which?", None, {"a": "first", "b": ""}, "a") == "b"
    assert init._chosen("--x", "Which?", "a", {"a": "first", "b": ""}, "b") == "a"
    assert asked == [("The model?", "m"), ("Choose", "a")]
    assert said == ["Which?", "  a       first", "  b"]
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert init._asked("The model?", "m") == "m"
    assert init._chosen("--x", "Which?", None, {"a": "first"}, "a") == "a"
    monkeypatch.setattr(sys, "stdin", None)
    assert init._chosen("--x", "Which?", None, {"a": "first"}, "a") == "a"
    assert len(asked) == 2


def test_kinds_of_values() -> None:
    assert init._kind([1, 2.5, "x", [1], (1,), {"a": 1}]) == "a list or a number or an object or text"
    assert init._kind(["x", "y"]) == "text"
