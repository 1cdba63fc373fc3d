"""Rollouts from JSONL, results to it, and files that are there whole or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, DataError, Graded, RewardResult, Rollout
from judgekit.ledger.files import whole_file
from judgekit.ledger.jsonl import json_line, read_rollouts, result_row, rollout_from


def test_every_field_is_read_and_the_rest_is_extra(tmp_path: Path) -> None:
    row = {
        "id": 7,
        "group": ["a", 1],
        "data_source": "math",
        "prompt": [{"role": "user", "content": "2+2?"}],
        "response": "4",
        "ground_truth": {"answer": 4},
        "messages": [{"role": "assistant", "content": "4"}],
        "finish_reason": "stop",
        "response_tokens": 3,
        "level": "easy",
        "kind": "column",
        "extra": {"kind": "extra"},
    }
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (rollout,) = read_rollouts(path)
    assert rollout == Rollout(
        id="7",
        group=("a", 1),
        data_source="math",
        prompt=[{"role": "user", "content": "2+2?"}],
        response="4",
        ground_truth={"answer": 4},
        messages=[{"role": "assistant", "content": "4"}],
        finish_reason="stop",
        response_tokens=3,
        extra={"level": "easy", "kind": "extra"},
    )


def test_a_limit_stops_the_reading_and_blank_lines_count_as_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('\n{"response": "a"}\n  \n{"response": "b"}\n{"response": "c"}\nnot json\n')
    assert [r.response for r in read_rollouts(path, limit=1)] == ["a"]
    assert [r.response for r in read_rollouts(path, limit=3)] == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"r\.jsonl, line 6: not JSON"):
        read_rollouts(path)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1], "a rollout is an object with at least a 'response', not list"),
        ({"prompt": "x"}, "has no 'response'"),
        ({"respons": "x"}, "did you mean 'respons'"),
        ({"response": 3}, "'response' is text, not int"),
        ({"response": "x", "prompt": 3}, "'prompt' is text or a list of messages, not int"),
        ({"response": "x", "messages": "hi"}, "'messages' is a list of messages, not str"),
        ({"response": "x", "data_source": 1}, "'data_source' is text, not int"),
        ({"response": "x", "finish_reason": 1}, "'finish_reason' is text, not int"),
        ({"response": "x", "response_tokens": "9"}, "'response_tokens' is a whole number, not str"),
        ({"response": "x", "id": 1.5}, "'id' is text, not float"),
        ({"response": "x", "extra": [1]}, "'extra' is an object"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(row: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        rollout_from(row)


def test_null_is_no_value() -> None:
    row = {"response": "x", "extra": None, "finish_reason": None, "response_tokens": None}
    assert rollout_from(row) == Rollout(response="x")


def test_a_file_without_rollouts_and_no_file_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(DataError, match="empty holds no rollouts"):
        read_rollouts(tmp_path / "empty")
    with pytest.raises(DataError, match="cannot read .*none: No such file"):
        read_rollouts(tmp_path / "none")


def result(**changes: Any) -> RewardResult:
    fields: dict[str, Any] = {
        "index": 0,
        "group": 3,
        "reward": None,
        "status": "masked",
        "raw_reward": None,
        "contributions": {},
        "grades": {"a": Graded(0.5), "b": Abstained("no")},
    }
    return RewardResult(**{**fields, **changes})


def test_a_results_row_has_what_the_rollout_has_and_what_it_was_paid() -> None:
    rollout = Rollout(response="", prompt="p", id="x", extra={"k": 1})
    row = result_row(rollout, result())
    assert list(row)[:4] == ["id", "prompt", "extra", "group"]
    assert row == {
        "id": "x",
        "prompt": "p",
        "extra": {"k": 1},
        "group": 3,
        "response": "",
        "reward": None,
        "status": "masked",
        "raw_reward": None,
        "contributions": {},
        "grades": {"a": Graded(0.5), "b": Abstained("no")},
    }
    told = result_row(rollout, result(missing=("b",), policies=("b: missing",)))
    assert (told["missing"], told["policies"]) == (("b",), ("b: missing",))


def test_a_line_of_json_takes_any_value() -> None:
    line = json_line({"a": 1, "b": {1, 2}.__class__, "c": Graded(0.5)})
    assert line.endswith("}\n")
    assert json.loads(line) == {"a": 1, "b": "<class 'set'>", "c": {"kind": "graded", "score": 0.5}}


def test_a_file_appears_whole_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "very" / "deep" / "out.txt"
    with whole_file(path) as file:
        file.write("é\ud800")
        assert not path.exists()
    assert path.read_text() == "é\\ud800"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with whole_file(path) as file:
            file.write("new")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ConfigError, match="cannot write .*out.txt/x: "), whole_file(path / "x"):
        pass
