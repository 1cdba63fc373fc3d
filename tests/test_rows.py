"""Rows of data sets: which columns hold a reference, and JSON as Python writes it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from judgekit.rollouts.rows import TRUTHS, as_messages, decoded, given, last_said, references_in


@pytest.mark.parametrize("value", [None, float("nan"), "", [], (), {}])
def test_what_is_no_value(value: Any) -> None:
    assert given(value) is False
    # an empty list or object is no reference beside another, and one where there is no other: no calls, no fields
    found = [("ground_truth", value)] if isinstance(value, list | tuple | dict) else []
    assert list(references_in(dict.fromkeys(TRUTHS, value))) == found
    assert list(references_in({"ground_truth": value, "label": 0})) == [("label", 0)]


@pytest.mark.parametrize("value", [0, 0.0, False, " ", [None], (0,), {"a": None}, math.inf])
def test_what_is_a_value(value: Any) -> None:
    assert given(value) is True
    assert list(references_in({"answer": value})) == [("answer", value)]


def test_references_in_their_order() -> None:
    row: dict[str, Any] = {name: name for name in reversed(TRUTHS)}
    row |= {"reward_model": {"ground_truth": 1, "style": "rule"}, "reward_spec": {"ground_truth": 2}}
    assert list(references_in(row)) == [
        ("reward_model", 1), ("reward_spec", 2), ("ground_truth", "ground_truth"), ("expected_answer", "expected_answer"),
        ("answer", "answer"), ("solution", "solution"), ("label", "label"),
    ]  # fmt: skip
    assert list(references_in(row, ("label", "answer", "other"))) == [
        ("label", "label"),
        ("answer", "answer"),
    ]
    assert list(references_in({"reward_model": "text", "reward_spec": {"style": "rule"}})) == []


def test_the_policy_s_last_words() -> None:
    for role in ("assistant", "model", "gpt"):
        turns = [{"role": role, "content": "first"}, {"role": role, "content": ["la", {"text": "st"}]}]
        assert last_said([*turns, {"role": "user", "content": "u"}]) == "last"
    assert last_said([{"role": "user", "content": "u"}]) == last_said([]) == ""


@pytest.mark.parametrize("who", ["gpt", "GPT", "Assistant", "chatgpt"])
def test_sharegpt_s_turns_are_the_policy_s_in_any_case(who: str) -> None:
    turns = as_messages([{"from": "Human", "value": "?"}, {"from": who, "value": "42"}])
    assert (turns[0]["role"], last_said(turns)) == ("user", "42")


def test_langchain_s_messages_have_roles() -> None:
    call = {"name": "f", "args": {"x": 1}, "id": "c"}
    dumped = [
        {"type": "human", "content": "?"},
        {"type": "ai", "content": "", "tool_calls": [call]},
        {"type": "tool", "content": "42", "tool_call_id": "c"},
        {"type": "ai", "content": "It is 42."},
    ]
    turns = as_messages(dumped)
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert (turns[1]["tool_calls"], last_said(turns)) == ([call], "It is 42.")
    nested = [{"type": turn["type"], "data": {**turn}} for turn in dumped]
    assert last_said(as_messages(nested)) == "It is 42."
    for other in ([{"type": "text", "text": "x"}], [{"type": "ai"}], [{"type": [], "content": "x"}]):
        assert as_messages(other) == other


def test_json_as_python_writes_it() -> None:
    assert decoded(b'{"a": [1, "x", null]}') == {"a": [1, "x", None]}
    assert decoded(b"[Infinity, -Infinity]") == [math.inf, -math.inf]
    assert math.isnan(decoded(b"NaN"))
    assert decoded(b'"\\ud800"') == "\ud800"
    for wrong, says in ((b"{", "truncated"), (b"[1,]", "malformed"), (b'"\xff"', "(?i)utf-?8")):
        with pytest.raises(ValueError, match=says):
            decoded(wrong)
