"""What a client makes of refusals and of silence, attempt by attempt."""

from __future__ import annotations

import asyncio
import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError, FailureRateError, MissingRewardError, RewardResult, Rollout
from judgekit.errors import DataError, JudgekitError, ServiceUnavailable
from judgekit.service import client as client_module
from judgekit.service.client import RewardClient, _Attempts, _body, _lines, _with_groups

URL = "http://h:80"


class Clock:
    """Time passes where somebody sleeps; every draw is *drawn* of its range."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.drawn = 1.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.drawn


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(client_module, "time", made)
    monkeypatch.setattr(client_module, "random", made)
    monkeypatch.setattr(client_module, "asyncio", made)
    return made


def attempts(deadline_s: float | None = None) -> _Attempts:
    return _Attempts(RewardClient(URL, deadline_s=50.0), "k", deadline_s)


def said(kind: str, message: str) -> bytes:
    return json.dumps({"error": {"type": kind, "message": message}}).encode()


async def test_pauses_double_from_a_tenth_of_a_second_to_five(clock: Clock) -> None:
    one = attempts()
    for drawn in (1.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0):
        clock.drawn = drawn
        await one.pause()
    assert clock.slept == pytest.approx([0.1, 0.1, 0.3, 0.8, 1.6, 3.2, 5.0, 5.0])


async def test_a_pause_that_the_service_asks_for_is_made_once(clock: Clock) -> None:
    one = attempts()
    one.refused(503, {"Retry-After": "7"}, said("Overloaded", "full"))
    await one.pause()
    one.failed(ConnectionError("gone"))
    await one.pause()
    assert clock.slept == [7.0, 0.2]


@pytest.mark.parametrize("deadline_s", [None, 0.0, 7.0])
async def test_a_pause_beyond_the_deadline_is_the_last_error(deadline_s: float | None, clock: Clock) -> None:
    one = attempts(deadline_s)
    assert one.left() == (50.0 if deadline_s is None else max(deadline_s, 0.001))
    clock.now += 44.0 if deadline_s is None else 0.0
    one.refused(503, {"Retry-After": "7"}, said("Overloaded", "full"))
    with pytest.raises(ServiceUnavailable, match=r"^http://h:80 answered HTTP 503: full$"):
        await one.pause()
    assert clock.slept == []
    clock.now += 100
    assert one.left() == 0.001


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
async def test_what_may_be_sent_again_is_no_error_yet(status: int) -> None:
    one = attempts()
    one.refused(status, {}, b"<html>" + b"x" * 300)
    assert one._error == f"{URL} answered HTTP {status}: <html>{'x' * 194}"
    assert one._wait is None


@pytest.mark.parametrize(
    ("status", "raw", "kind", "message"),
    [
        (400, said("BadRequest", "no text"), DataError, f"{URL}: no text"),
        (413, b"large \xff", DataError, f"{URL}: large \ufffd"),
        (403, said("Forbidden", "no"), ConfigError, f"{URL} answered HTTP 403: no"),
        (404, said("NotFound", "nothing"), ConfigError, f"{URL} answered HTTP 404: nothing"),
        (422, b"", ConfigError, f"{URL} answered HTTP 422: "),
        (499, b"[]", ConfigError, f"{URL} answered HTTP 499: []"),
        (500, said("MissingRewardError", "m"), MissingRewardError, "m"),
        (500, said("FailureRateError", "f"), FailureRateError, "f"),
        (500, said("Other", "o"), JudgekitError, "o"),
        (500, b'{"error": 3}', JudgekitError, f"{URL} answered HTTP 500"),
        (501, b'{"error": {"type": "MissingRewardError"}}', JudgekitError, f"{URL} answered HTTP 501"),
    ],
)
def test_a_final_refusal_is_the_error_of_its_kind(status: int, raw: bytes, kind: type, message: str) -> None:
    with pytest.raises(JudgekitError) as caught:
        attempts().refused(status, {}, raw)
    assert (type(caught.value), str(caught.value)) == (kind, message)


def test_a_refused_key_says_where_it_comes_from() -> None:
    with pytest.raises(ConfigError) as caught:
        attempts().refused(401, {}, said("Unauthorized", "no"))
    assert str(caught.value) == f"{URL} refuses the key: check api_key or JUDGEKIT_SERVICE_KEY"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionError("it broke"), "ConnectionError: it broke"),
        (TimeoutError(), "TimeoutError"),
        (
            ConnectionRefusedError(111),
            "nothing listens there: start it with judgekit serve-rewards, or correct the url",
        ),
    ],
)
def test_silence_is_told_with_its_reason(error: Exception, why: str) -> None:
    one = attempts()
    one.failed(error)
    assert one._error == f"{URL} cannot be reached: {why}"


def test_a_call_without_a_key_has_one_of_its_own() -> None:
    client = RewardClient(URL)
    assert _Attempts(client, "k").key == "k"
    made = {_Attempts(client, key).key for key in (None, "", None)}
    assert {len(key) for key in made} == {32}
    assert len(made) == 3


# ---- bodies and answers


async def test_lines_are_whole_however_they_come() -> None:
    async def chunks() -> Any:
        for chunk in (b"a", b"b\nc\n\nd", b"", b"e\nf"):
            yield chunk

    response = SimpleNamespace(content=SimpleNamespace(iter_any=chunks))
    assert [line async for line in _lines(response)] == [b"ab", b"c", b"", b"de"]  # type: ignore[arg-type]


def result(index: int, group: Any) -> RewardResult:
    return RewardResult(
        index=index, group=group, reward=1.0, raw_reward=1.0, status="scored", contributions={}, grades={}
    )


def test_results_have_their_groups_as_the_caller_has_them() -> None:
    rollouts = [
        Rollout(response="a", group=("p", 1)),
        Rollout(response="b"),
        Rollout(response="c", group="g"),
    ]
    found = _with_groups([result(2, "other"), result(0, ["p", 1]), result(1, 7)], rollouts)
    assert [(one.index, one.group) for one in found] == [(2, "g"), (0, ("p", 1)), (1, 7)]
    with pytest.raises(JudgekitError, match="^the service gave 1 results for 3 rollouts$"):
        _with_groups([result(0, None)], rollouts)


def test_a_body_is_json_also_where_it_is_hard() -> None:
    class Array:
        def tolist(self) -> list[int]:
            return [1, 2]

    def sent(tags: Any, response: str = "a") -> Any:
        return json.loads(_body([Rollout(response=response)], tags))

    assert sent(None)["tags"] == {}
    assert sent({"step": Array()})["tags"] == {"step": [1, 2]}
    assert sent({"big": 10**30, "array": Array()}, "\ud800")["tags"] == {"big": 10**30, "array": [1, 2]}
    assert sent(None, "\ud800")["rollouts"][0]["response"] == "\ud800"
    with pytest.raises(DataError, match="^a rollout cannot be sent as JSON: object is no JSON$"):
        _body([], {"x": object()})


def test_a_client_is_sent_with_its_settings() -> None:
    client = RewardClient(URL, api_key="secret", timeout_s=3.0, deadline_s=4.0, max_connections=5)
    again = pickle.loads(pickle.dumps(client))
    assert (again.url, again.timeout_s, again.deadline_s) == (URL, 3.0, 4.0)
    assert (again._key.reveal(), again._sessions.max_connections) == ("secret", 5)
    assert repr(again) == "RewardClient('http://h:80')"
    plain = RewardClient(URL, api_key="")
    assert (plain.timeout_s, plain.deadline_s, plain._sessions.max_connections) == (600.0, 1800.0, 64)
    assert plain._key.reveal() == ""


@pytest.mark.parametrize("name", ["timeout_s", "deadline_s"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_time_is_above_zero(name: str, value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        RewardClient(URL, **{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == f"{name} is a number of seconds above 0, not {value!r}"


async def test_a_call_that_is_cancelled_while_it_pauses_ends() -> None:
    one = attempts()
    one.refused(503, {"Retry-After": "7"}, b"")
    pause = asyncio.create_task(one.pause())
    await asyncio.sleep(0)
    pause.cancel()
    await asyncio.wait([pause])
    assert pause.cancelled()
