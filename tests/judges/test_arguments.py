"""Which arguments of judges and verdicts are refused, by which sentence, and which are just allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.judges import ChoiceVerdict, JsonVerdict, LineVerdict, OpenAIJudge, Sampling
from judgekit.judges.engines.http import Secret, Sessions, base_url, server_address
from judgekit.judges.engines.openai.http_reward_model import HTTPRewardModel
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.layers.pressure import Breaker, RateLimit
from judgekit.judges.layers.spending import Budget

URL = "http://127.0.0.1:1/v1"

REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (Sampling, {"temperature": -0.1}, "temperature is a number from 0, not -0.1"),
    (Sampling, {"temperature": math.inf}, "temperature is a number from 0, not inf"),
    (Sampling, {"temperature": math.nan}, "temperature is a number from 0, not nan"),
    (Sampling, {"top_p": 0.0}, "top_p is a share above 0 and up to 1, not 0"),
    (Sampling, {"top_p": 1.01}, "top_p is a share above 0 and up to 1, not 1.01"),
    (Sampling, {"max_tokens": 0}, "max_tokens is at least 1, not 0"),
    (Sampling, {"thinking_tokens": 0}, "thinking_tokens is at least 1, not 0"),
    (ChoiceVerdict, {"labels": {"1": 1.0}}, "give at least two labels"),
    (ChoiceVerdict, {"labels": {"0": 0.0, "1": math.inf}}, "every label's score must be finite"),
    (ChoiceVerdict, {"labels": {"0": 1.0, "1": 1.0}}, "must not all have the same score"),
    (ChoiceVerdict, {"min_mass": -0.1}, "min_mass is a probability from 0 to 1, not -0.1"),
    (ChoiceVerdict, {"min_mass": 1.1}, "min_mass is a probability from 0 to 1, not 1.1"),
    (LineVerdict, {"low": 1.0, "high": 1.0}, "line: the scale needs finite low < high, not 1.0..1.0"),
    (LineVerdict, {"low": -math.inf}, "line: the scale needs finite low < high"),
    (LineVerdict, {"high": math.inf}, "line: the scale needs finite low < high"),
    (LineVerdict, {"to": (1.0, 1.0)}, "line: to is the range that scores are mapped to"),
    (LineVerdict, {"to": (0.0, math.inf)}, "line: to is the range that scores are mapped to"),
    (LineVerdict, {"max_tokens": 0}, "line: max_tokens is a whole number of tokens, at least 1, not 0"),
    (LineVerdict, {"max_tokens": 1.5}, "line: max_tokens is a whole number of tokens, at least 1, not 1.5"),
    (LineVerdict, {"line": "Score"}, "line"),
    (LineVerdict, {"line": "{score} {score}"}, "line"),
    (LineVerdict, {"line": "a\n{score}"}, "line"),
    (LineVerdict, {"line": "{score} points"}, "line"),
    (LineVerdict, {"line": ": {score}", "nonce": False}, "line"),
    (LineVerdict, {"line": "A {a} B {b}", "to": (0.0, 1.0)}, "leave to= out"),
    (LineVerdict, {"values": {"yes": 1.0}}, "two or more different words"),
    (LineVerdict, {"values": {"yes": 1.0, "YES ": 0.0}}, "two or more different words"),
    (LineVerdict, {"values": {"yes": 1.0, "": 0.0}}, "two or more different words"),
    (LineVerdict, {"values": {"yes": 1.0, "no": 1.0}}, "finite scores that are not all the same"),
    (LineVerdict, {"values": {"yes": 1.0, "no": math.nan}}, "finite scores that are not all the same"),
    (JsonVerdict, {"low": 2.0}, "json: the scale needs finite low < high"),
    (JsonVerdict, {"scores": "clarity"}, "json: scores is a list of distinct names, not 'clarity'"),
    (JsonVerdict, {"scores": ["a", "a"]}, "json: scores is a list of distinct names"),
    (JsonVerdict, {"scores": ["1a"]}, "'1a' cannot be the name of a score"),
    (JsonVerdict, {"scores": ["code"]}, "'code' cannot be the name of a score"),
    (JsonVerdict, {"scores": ["reason"]}, "'reason' cannot be the name of a score"),
    (JsonVerdict, {"max_tokens": 0}, "json: max_tokens is a whole number of tokens, at least 1, not 0"),
    (RateLimit, {"per_minute": 0}, "a rate limit is a number of requests per minute above 0"),
    (Breaker, {"failures": 0}, "a breaker needs failures of 1 or more and open_s above 0"),
    (Breaker, {"open_s": 0}, "a breaker needs failures of 1 or more and open_s above 0"),
    (Budget, {}, "budget: give usd, tokens or requests"),
    (Budget, {"usd": 0}, "budget: usd is a number above 0, not 0"),
    (Budget, {"tokens": -1}, "budget: tokens is a number above 0, not -1"),
    (Budget, {"requests": math.inf}, "budget: requests is a number above 0, not inf"),
    (Routed, {"replicas": []}, "routed: give at least one replica"),
    (Routed, {"replicas": [object()], "spill": 0}, "spill is a number of calls, at least 1"),
    (Routed, {"replicas": [object()], "probe_s": 0}, "probe_s a number of seconds above 0"),
    (Sessions, {"max_connections": 0}, "max_connections is at least 1, not 0"),
    (HTTPRewardModel, {"url": URL, "endpoint": "/rank"}, "endpoint is /classify, /pooling or /score, not '/rank'"),
    (OpenAIJudge, {"url": URL, "timeout_s": 0}, "timeout_s is a number of seconds above 0, not 0"),
    (OpenAIJudge, {"url": URL, "logprobs": "all"}, "logprobs is labels, constrained or top, not 'all'"),
    (OpenAIJudge, {"url": URL, "images": "some"}, "images is none, data or any, not 'some'"),
    (OpenAIJudge, {"url": URL, "images": "any", "tokenizer": "x"}, "leave tokenizer out"),
    (OpenAIJudge, {"url": URL, "max_tokens_field": "limit"}, "max_tokens_field is"),
    (OpenAIJudge, {"url": URL, "omit": ["model"]}, "omit: 'model' is not one of"),
    (OpenAIJudge, {"url": URL, "provider": "grok"}, "no provider is called 'grok'"),
    (OpenAIJudge, {"url": URL, "router": "nginx"}, "no router is called 'nginx'"),
    (OpenAIJudge, {"url": URL, "extra_body": {"messages": []}}, "messages"),
    (OpenAIJudge, {"url": "ftp://127.0.0.1/v1"}, "is not a server address such as"),
    (OpenAIJudge, {"url": "http://"}, "is not a server address such as"),
    (OpenAIJudge, {"url": "127.0.0.1:99999"}, "is not a server address such as"),
    (OpenAIJudge, {"url": "127.0.0.1:0"}, "is not a server address such as"),
    (OpenAIJudge, {"url": ""}, "give the server's url=, or set LLM_JUDGE_SERVER_URL"),
    (OpenAIJudge, {"url": "http://me:secret@127.0.0.1/v1"}, "must not contain a password"),
]  # fmt: skip

ALLOWED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (Sampling, {"temperature": 0.0, "top_p": 1.0, "max_tokens": 1, "thinking_tokens": 1}),
    (ChoiceVerdict, {"min_mass": 0.0}),
    (ChoiceVerdict, {"min_mass": 1.0, "labels": {"x": -1, "y": 1}}),
    (LineVerdict, {"low": -1.0, "high": 1.0, "to": (-2.0, 2.0), "max_tokens": 1}),
    (LineVerdict, {"line": "A: {a}, B: {b}"}),
    (LineVerdict, {"line": "x: {score}", "nonce": False}),
    (LineVerdict, {"values": {"yes": 1.0, "no": 0.0}}),
    (JsonVerdict, {"scores": ["_a", "b1"], "max_tokens": 1}),
    (RateLimit, {"per_minute": 0.5}),
    (Breaker, {"failures": 1, "open_s": 0.001}),
    (Budget, {"requests": 1}),
    (Routed, {"replicas": [object()], "spill": 1, "probe_s": 0.001}),
    (Sessions, {"max_connections": 1}),
]


def made(what: Callable[..., Any], given: dict[str, Any]) -> Any:
    if what is Sessions:
        given = {"key": Secret("k"), "timeout_s": 1.0, **given}
    return what(**given)


@pytest.mark.parametrize(
    ("what", "given", "sentence"), REFUSED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_wrong_argument_is_refused_with_a_sentence(
    what: Callable[..., Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as told:
        made(what, given)
    assert sentence in str(told.value)


@pytest.mark.parametrize(("what", "given"), ALLOWED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_just_allowed(what: Callable[..., Any], given: dict[str, Any]) -> None:
    made(what, given)


def test_addresses() -> None:
    assert server_address("http://127.0.0.1:8000/v1/", "http://x/v1") == "http://127.0.0.1:8000/v1"
    assert server_address("https://x.y/a?k=v", "http://x/v1") == "https://x.y/a"
    assert base_url("x.y:1") == ("http://x.y:1/v1", "")
    assert base_url("http://x/v1beta/openai?key=1") == ("http://x/v1beta/openai", "?key=1")
    assert base_url("http://x/openai/deployments/d?v=2") == ("http://x/openai/deployments/d", "?v=2")
