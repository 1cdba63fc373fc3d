"""Requests of the service's own form: read quickly where they are plain, and alike where they are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from judgekit import Rollout
from judgekit.data.rollout_files import rollout_from
from judgekit.service import reading
from judgekit.service.reading import Refusal, batch

ROWS: list[dict[str, Any]] = [
    {"response": "a"},
    {"response": "a", "group": 3, "ground_truth": ["x", 1], "id": "i", "extra": {"k": [1, {"z": None}]}},
    {"response": "a", "group": ["q", 1]},
    {"response": "a", "group": True},
    {"response": "a", "group": 1.5},
    {"response": "a", "prompt": [{"role": "user", "content": "q"}], "messages": [{"role": "user"}]},
    {"response": "a", "finish_reason": None, "response_tokens": 7, "data_source": "gsm8k"},
    {"response": "a", "response_tokens": 7.0},
    {"response": "a", "prompt": None, "id": None, "group": None},
    {"response": "a", "id": 5, "split": "train", "reward_model": {"ground_truth": "4"}},
    {"response": "a", "extra": {"split": "x"}, "extra_info": {"index": 4}},
    {"response": "\ud800", "ground_truth": float("nan")},
    {"response": "a", "ground_truth": 10**400},
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_a_rollout_is_what_the_command_makes_of_its_row(row: dict[str, Any]) -> None:
    found = batch(json.dumps({"rollouts": [row], "tags": {"step": 7}}).encode())
    assert repr(found.rollouts) == repr([rollout_from(row)])
    assert found.tags == {"step": 7}


def test_plain_rows_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "decoded_object", None)
    body = json.dumps({"rollouts": ROWS[:2]}).encode()
    assert batch(body).rollouts == [Rollout(**row) for row in ROWS[:2]]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rollouts": [{"response": "a", "response_tokens": -1}]}, "from 0, not -1"),
        ({"rollouts": [{"response": "a", "group": {"q": 1}}]}, "'group' is text, a number or a list"),
        ({"rollouts": [{"completion": "a"}]}, "rollouts\\[0\\]: the rollout has no 'response'"),
        ({"rollouts": [{"response": "a"}], "tag": {}}, "there is no field 'tag'"),
        ({"rollouts": [{"response": "a"}], "tags": []}, "'tags' is an object, not list"),
        ({"rollouts": {}}, "a list of rollouts"),
        ({}, "'rollouts' is missing"),
        ([], "the body is a JSON object, not list"),
    ],
)
def test_what_is_no_request_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        batch(json.dumps(asked).encode())


def test_bytes_that_are_no_text_are_no_request() -> None:
    """A trainer would send them again after a 500."""
    with pytest.raises(Refusal, match="the body is not JSON") as caught:
        batch('{"rollouts": [{"response": "é"}]}'.encode("latin-1"))
    assert caught.value.status == 400
