"""What is read from a server's answers: texts, ends, refusals, token counts, load."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import JudgeUnavailable, Usage
from judgekit.errors import JudgeRejected
from judgekit.judges.engines.engine_load import EngineLoad, read_load
from judgekit.judges.engines.replies import check_refusal, checked_end, text_of_choice, usage_shares


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"text": "a"}, "a"),
        ({"message": {"content": "b"}, "text": "a"}, "b"),
        ({"message": {"content": [{"type": "text", "text": "x"}, "y", {"type": "thinking", "text": "no"}]}}, "xy"),
        ({"message": {"content": [{"text": "x"}, {"type": "output_text", "text": "z"}, {"text": 5}, 7]}}, "xz"),
        ({"message": {"content": ""}}, ""),
        ({"message": {"content": None}, "finish_reason": "length"}, ""),
        ({"message": {"content": None}, "finish_reason": "MAX_TOKENS"}, ""),
        ({"message": {"content": []}, "finish_reason": "length"}, ""),
    ],
)  # fmt: skip
def test_the_text_of_a_reply(choice: dict[str, Any], text: str) -> None:
    assert text_of_choice(choice, "it") == text


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({}, "it sent a reply without a text"),
        ({"message": {"content": None}, "finish_reason": "stop"}, "without a text"),
        ({"message": {"content": [{"type": "thinking", "text": "x"}]}, "finish_reason": "stop"}, "without a text"),
        ({"message": {"content": None, "reasoning": "hm"}, "finish_reason": "stop"}, "in the field reasoning_content"),
        ({"message": {"content": None, "reasoning_content": "hm"}}, "in the field reasoning_content"),
    ],
)  # fmt: skip
def test_a_reply_without_a_text_is_no_reply(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(JudgeUnavailable, match=said) as told:
        text_of_choice(choice, "it")
    assert ("reasoning" in str(told.value)) == ("reasoning" in said)


def test_ends() -> None:
    assert checked_end("stop", "it") == "stop"
    assert checked_end("LENGTH", "it") == "length"
    assert checked_end("MAX_TOKENS", "it") == "length"
    assert checked_end("something new", "it", written=False) == "something new"
    for reason in ("something new", "", 5, "abort"):
        with pytest.raises(JudgeUnavailable, match="it broke off its reply"):
            checked_end(reason, "it")
    with pytest.raises(JudgeUnavailable, match="broke off"):
        checked_end("abort", "it", written=False)
    with pytest.raises(JudgeUnavailable, match="finish_reason is missing"):
        checked_end(None, "it")
    with pytest.raises(JudgeRejected, match="content filter removed"):
        checked_end("content_filter", "it")


def test_a_refusal_is_said_in_the_models_words() -> None:
    with pytest.raises(JudgeRejected) as told:
        check_refusal({"message": {"refusal": "I will not " + "x" * 300}}, "it")
    assert str(told.value).startswith("it refused to answer: I will not")
    assert len(str(told.value)) < 250
    for choice in ({}, {"message": None}, {"message": {"refusal": None}}, {"message": {"refusal": "  "}}):
        check_refusal(choice, "it")


def test_token_counts_are_shared_out_and_none_is_lost() -> None:
    told = {"prompt_tokens": 11, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 7}}
    shares = usage_shares(told, 3)
    assert [share.prompt_tokens for share in shares] == [4, 4, 3]
    assert [share.completion_tokens for share in shares] == [2, 1, 1]
    assert [share.cached_tokens for share in shares] == [3, 2, 2]
    assert sum(share.calls for share in shares) == 3
    assert usage_shares(None, 1) == [Usage(calls=1)]
    assert usage_shares({"prompt_tokens": -3, "completion_tokens": "9"}, 1) == [Usage(calls=1)]
    more_than_all = {"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
    assert usage_shares(more_than_all, 1)[0].cached_tokens == 2


def test_the_load_of_an_engine() -> None:
    page = """# HELP vllm:num_requests_running
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 2.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:prefix_cache_queries_total{engine="0"} 100.0
vllm:prefix_cache_hits_total{engine="0"} NaN
"""
    assert read_load(page) == EngineLoad(5, 4)
    hits = page.replace("NaN", "50.0")
    assert read_load(hits) == EngineLoad(5, 4, 100.0, 50.0)
    assert read_load(hits.replace("queries", "other")) == EngineLoad(5, 4)
    for name in ("running", "waiting"):
        assert read_load(page.replace(f"num_requests_{name}", "x")) is None
    assert read_load("") is None
