"""What the service says and reads, function by function, without a server."""

from __future__ import annotations

import errno
import json
import math
import resource
import socket
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError, JudgeUnavailable, RewardResult, Rollout
from judgekit.errors import DataError, JudgekitError
from judgekit.service.forms import OpenRLHF, Verify, _after, _group, _messages, _policy, _slot
from judgekit.service.grader import ServiceGrader, ServiceGroupGrader, _ask, as_grade
from judgekit.service.reading import Refusal, decoded, decoded_object, field, refusal_of, rollout_at
from judgekit.service.server import _refusal, _refused, allow_connections, bound_socket
from judgekit.service.wire import answer, hashable
from judgekit.types import QUERY, Abstained, Failed, Graded, Usage

# ---- refusals


def test_a_refusal_is_an_object_with_an_error_only() -> None:
    one = Refusal(422, "another body")
    assert (one.status, one.message, one.kind, one.retry_after_s) == (
        422,
        "another body",
        "UnprocessableEntity",
        None,
    )
    assert json.loads(one.body) == {
        "error": {"type": "UnprocessableEntity", "message": "another body", "status": 422}
    }
    assert Refusal(404, "m").kind == "NotFound"
    assert Refusal(404, "m", kind="Mine").kind == "Mine"
    assert one.args == (422, "another body")


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (JudgeUnavailable("down"), 503, 1.0),
        (JudgeUnavailable("down", retry_after=7), 503, 7),
        (JudgeUnavailable("down", retry_after=0), 503, 1.0),
        (ConfigError("wrong"), 500, None),
        (JudgekitError("wrong"), 500, None),
    ],
)
def test_an_error_of_grading_is_a_refusal_of_its_name(error: JudgekitError, status: int, wait: Any) -> None:
    one = refusal_of(error)
    assert (one.status, one.message, one.kind, one.retry_after_s) == (
        status,
        str(error),
        type(error).__name__,
        wait,
    )


def test_whatever_ends_a_request_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked: Any = SimpleNamespace(path="/slime")
    given = Refusal(418, "tea")
    assert _refusal(given, asked) is given
    assert caplog.records == []
    assert _refusal(ConfigError("wrong"), asked).kind == "ConfigError"
    unknown = _refusal(ZeroDivisionError("secret"), asked)
    assert (unknown.status, unknown.message, unknown.kind) == (
        500,
        "ZeroDivisionError, see the service's log",
        "InternalServerError",
    )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "/slime: wrong"),
        ("ERROR", "/slime"),
    ]
    assert caplog.records[1].exc_info is not None


@pytest.mark.parametrize(
    ("refusal", "headers"),
    [
        (Refusal(400, "m"), {}),
        (Refusal(503, "m", retry_after_s=1.2), {"Retry-After": "2"}),
        (Refusal(503, "m", retry_after_s=3.0), {"Retry-After": "3"}),
        (Refusal(401, "m"), {"WWW-Authenticate": 'Bearer, Basic realm="judgekit"'}),
    ],
)
def test_a_refusal_s_headers_say_when_and_how_to_come_again(refusal: Refusal, headers: Any) -> None:
    made = _refused(refusal)
    assert (made.status, made.body, made.content_type) == (refusal.status, refusal.body, "application/json")
    assert {name: value for name, value in made.headers.items() if name != "Content-Type"} == headers


# ---- addresses


def failing(number: int, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    closed: list[bool] = []

    class Socket:
        def __init__(self, *_: Any) -> None:
            pass

        def setsockopt(self, *given: int) -> None:
            assert given == (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def bind(self, address: Any) -> None:
            raise OSError(number, "of the system")

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(socket, "socket", Socket)
    return closed


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EADDRNOTAVAIL, "serve-rewards: --host 127.0.0.1 is not an address of this machine"),
        (errno.EADDRINUSE, "serve-rewards: port 81 is taken: choose another --port"),
        (errno.EACCES, "serve-rewards: cannot listen on 127.0.0.1:81: of the system"),
    ],
)
def test_an_address_that_cannot_be_taken_is_said(
    number: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = failing(number, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        bound_socket("127.0.0.1", 81)
    assert (str(caught.value), closed) == (says, [True])


@pytest.mark.parametrize(
    ("soft", "hard", "set_to"),
    [
        (1024, 1 << 20, 2024),
        (2023, 1 << 20, 2024),
        (2024, 1 << 20, None),
        (1024, 1500, 1500),
        (1500, 1500, None),
        (1024, resource.RLIM_INFINITY, 2024),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_connections_are_allowed_as_far_as_the_system_does(
    soft: int, hard: int, set_to: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: given.append(limits))
    allow_connections(1000)
    assert given == ([] if set_to is None else [(resource.RLIMIT_NOFILE, (set_to, hard))])


# ---- reading


@pytest.mark.parametrize(("row", "name"), [([], "list"), (None, "null"), ("a", "str"), (3, "int")])
def test_a_body_that_is_no_object_is_refused_by_name(row: Any, name: str) -> None:
    with pytest.raises(Refusal) as caught:
        decoded_object(json.dumps(row).encode())
    assert (caught.value.status, caught.value.message) == (400, f"the body is a JSON object, not {name}")
    with pytest.raises(Refusal) as caught:
        field({"x": row}, "x", dict, "an object")
    assert (caught.value.status, caught.value.message) == (400, f"'x' is an object, not {name}")
    assert field({"x": row}, "x", (type(row), dict), "anything") == row


def test_what_is_missing_or_no_json_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        field({}, "x", dict, "an object")
    assert (caught.value.status, caught.value.message) == (400, "'x' is missing: an object")
    for body in (b"{", b"[" * 100_000):
        with pytest.raises(Refusal, match="the body is not JSON: ") as caught:
            decoded(body)
        assert caught.value.status == 400
    assert decoded(b'{"a": NaN}')["a"] != decoded(b'{"a": 1}')["a"]


def test_a_row_that_is_no_rollout_is_refused_without_the_command_s_hints() -> None:
    with pytest.raises(Refusal) as caught:
        rollout_at({"completion": "a"}, "the row")
    one = caught.value
    assert (one.status, one.kind) == (400, "DataError")
    assert one.message.startswith("the row: the rollout has no 'response'")
    assert "--map" not in one.message
    assert "send 'completion' under that name" in one.message or "'completion'" not in one.message


# ---- forms


@pytest.mark.parametrize(
    ("row", "slot"),
    [
        ({}, ""),
        ({"_ng_task_index": 3, "_ng_group_id": "g", "_ng_attempt_index": 1}, ""),
        ({"_ng_rollout_index": 0}, ":::0:"),
        ({"_ng_rollout_id": "r"}, "r::::"),
        (
            {
                "_ng_rollout_id": "r",
                "_ng_group_id": "g",
                "_ng_task_index": 3,
                "_ng_rollout_index": 0,
                "_ng_attempt_index": 2,
            },
            "r:g:3:0:2",
        ),
    ],
)
def test_a_slot_is_all_that_names_the_sample(row: Any, slot: str) -> None:
    assert _slot(row) == slot


@pytest.mark.parametrize(
    ("row", "group"),
    [
        ({}, None),
        ({"_ng_group_id": "g", "_ng_task_index": 3}, "g:"),
        ({"_ng_task_index": 0, "_ng_group_attempt": 2}, "0:2"),
        ({"_ng_group_id": None, "_ng_task_index": 4}, "4:"),
    ],
)
def test_a_group_is_its_prompt_in_its_attempt(row: Any, group: str | None) -> None:
    assert _group(row) == group


@pytest.mark.parametrize(
    ("prompt", "text", "rest"),
    [
        ("", "all", "all"),
        ("abc", "abcd", "d"),
        ("abc", "bcd", None),  # shorter than what must stand before a response
        ("0123456789", "23456789x", "x"),
        ("0123456789", "3456789x", None),
        ("0123456789", "x23456789y", None),
        ("ab12345678-12345678", "b12345678-12345678!", "!"),  # the first place is no end of the prompt
        ("ab12345678-12345678", "c12345678-12345678!", None),
        ("q12345678-12345678", "12345678-12345678!", "-12345678!"),
    ],
)
def test_a_response_begins_where_an_end_of_the_prompt_ends(prompt: str, text: str, rest: str | None) -> None:
    assert _after(prompt, text) == rest


def test_turns_of_the_policy_in_a_row_are_one() -> None:
    turns: list[dict[str, Any]] = [{"role": "user", "content": "q"}]
    made = _policy(turns)
    assert turns == [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]
    assert _policy(turns) is made
    assert _messages("text", "p") == [{"role": "user", "content": "text"}]
    assert _messages(
        [{"role": "user", "content": "q"}, {"content": "a"}, {"type": "message", "content": "b"}], "p"
    ) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "ab"},
    ]
    assert _messages(
        [{"type": "function_call"}, {"type": "other"}, {"type": "function_call_output"}], "p"
    ) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": None, "type": "function", "function": {"name": "", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": None, "content": ""},
    ]


@pytest.mark.parametrize(
    ("items", "says"), [(None, "place is text or a list of items"), ([{}, 3], "place[1] is an object")]
)
def test_items_that_are_none_are_refused(items: Any, says: str) -> None:
    with pytest.raises(Refusal) as caught:
        _messages(items, "place")
    assert (caught.value.status, caught.value.message) == (400, says)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query": [], "prompts": []}, "'query', 'prompts' and 'labels' have one entry for each rollout"),
        (
            {"query": ["a"], "prompts": ["a"], "labels": ["1", "2"]},
            "'query', 'prompts' and 'labels' have one entry for each rollout",
        ),
        ({"query": ["a", 3], "prompts": ["a", "a"]}, "query[1]: the texts of prompt and response are text"),
        ({"query": ["a"], "prompts": [3]}, "query[0]: the texts of prompt and response are text"),
        (
            {"query": ["b"], "prompts": ["a"], "labels": []},
            "query[0] does not begin with its prompt, or an end of it: where the response begins is unknown",
        ),
    ],
)
def test_openrlhf_s_rows_are_refused_with_their_place(row: Any, says: str) -> None:
    with pytest.raises(Refusal) as caught:
        OpenRLHF().read(json.dumps(row).encode(), {})
    assert (caught.value.status, caught.value.message) == (400, says)


def test_openrlhf_s_rollouts_have_the_prompt_the_label_and_the_whole_text() -> None:
    row = {"query": ["q<b>a</b>", "qb"], "prompts": ["q", "q"], "labels": ["1", None]}
    first, second = OpenRLHF().read(json.dumps(row).encode(), {"strip": ",<b>,,</b>"}).rollouts
    assert (first.prompt, first.response, first.ground_truth, first.extra) == (
        "q",
        "a",
        "1",
        {QUERY: "q<b>a</b>"},
    )
    assert (second.response, second.ground_truth) == ("b", None)


def result(**more: Any) -> RewardResult:
    made: dict[str, Any] = {
        "index": 0,
        "group": None,
        "reward": 0.5,
        "raw_reward": 0.5,
        "status": "scored",
        "contributions": {},
        "grades": {"a": Graded(0.5)},
    }
    return RewardResult(**{**made, **more})


MISSING = result(reward=None, raw_reward=None, status="masked", grades={"a": Failed("Boom")}, missing=("a",))


def written(form: Any, *results: RewardResult, row: Any = ()) -> Any:
    return json.loads(form.write(SimpleNamespace(row=dict(row)), results))


def test_openrlhf_gets_one_number_for_one_and_lists_for_more() -> None:
    neutral = result(status="neutral", reward=0.25, grades={"a": Failed("Boom")}, missing=("a",))
    assert written(OpenRLHF(), neutral) == {
        "rewards": 0.25,
        "scores": 0.25,
        "extra_logs": {"judgekit_missing": 1.0, "judgekit_a_missing": 1.0},
    }
    assert written(OpenRLHF(), result(), neutral) == {
        "rewards": [0.5, 0.25],
        "scores": [0.5, 0.25],
        "extra_logs": {"judgekit_missing": [0.0, 1.0], "judgekit_a_missing": [0.0, 1.0]},
    }
    with pytest.raises(Refusal, match="no reward: "):
        written(OpenRLHF(), MISSING)


def test_a_row_of_nemo_gym_comes_back_with_its_reward_or_masked() -> None:
    row = {"x": 1, "judgekit_old": 2, "instance_config": {"y": 3}}
    assert written(Verify(), result(), row=row) == {
        "x": 1,
        "judgekit_a": 0.5,
        "reward": 0.5,
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
        "instance_config": {"y": 3, "mask_sample": False},
    }
    told = written(Verify(), MISSING, row={"instance_config": "text"})
    assert (told["reward"], told["mask_sample"], told["failure_kind"]) == (0.0, True, "judge_failed")
    assert told["instance_config"] == {"mask_sample": True}
    assert "Boom" in told["failure_reason"]
    assert not {"judgekit_a", "judgekit_turns"} & told.keys()
    assert written(Verify(strict=True), result(turns=(0.25, 0.5)))["judgekit_turns"] == [0.25, 0.5]
    with pytest.raises(Refusal) as caught:
        written(Verify(strict=True), MISSING)
    assert (caught.value.status, caught.value.kind) == (500, "MissingReward")


# ---- the wire


def test_an_answer_has_the_id_of_its_rollout_also_where_json_cannot_hold_it() -> None:
    plain = answer(result(), Rollout(response="", id='a"b'))
    assert json.loads(plain)["id"] == 'a"b'
    hard = answer(result(grades={"a": Graded(0.5, metadata={"x": "\ud800"})}), Rollout(response="", id="c"))
    assert b"\n" not in plain + hard
    assert (json.loads(hard)["id"], json.loads(hard)["reward"]) == ("c", 0.5)
    assert json.loads(plain)["grades"].keys() == {"a"}


def test_a_group_s_id_is_made_hashable_all_the_way_down() -> None:
    assert hashable(Hashable, ["a", [1, ["b"]]]) == ("a", (1, ("b",)))
    assert hashable(Hashable, "a") == "a"
    with pytest.raises(NotImplementedError):
        hashable(int, [1])


# ---- graders of services


def test_a_service_s_result_is_a_grade_an_abstention_or_a_failure() -> None:
    usage = Usage(calls=2)
    assert as_grade(
        result(turns=(0.25,), usage=usage, grades={"a": Graded(0.5), "b": Abstained("x")})
    ) == Graded(0.5, metadata={"scores": {"a": 0.5}}, usage=usage, turns=(0.25,))
    assert as_grade(result()).turns is None  # type: ignore[union-attr]
    grades = {"a": Failed("Boom", "loud", retryable=True), "b": Failed("Bang"), "c": Failed("Unused")}
    missing = {"reward": None, "raw_reward": None, "status": "masked", "usage": usage}
    assert as_grade(result(**missing, grades=grades, missing=("a", "b"))) == Failed(
        "ServiceRewardMissing", "a: Boom loud; b: Bang", retryable=False, usage=usage
    )
    assert as_grade(result(**missing, grades=grades, missing=("a", "d"))).retryable is True  # type: ignore[union-attr]
    assert as_grade(result(**missing, grades={"a": Abstained("no")}, missing=("a", "b"))) == Abstained(
        "the service has no reward: a, b gave none"
    )


async def test_rollouts_that_cannot_be_sent_are_found_by_halves() -> None:
    asked: list[str] = []

    class Client:
        async def run(self, rollouts: Any) -> Any:
            asked.append("".join(one.response for one in rollouts))
            if "x" in asked[-1]:
                raise DataError("too large")
            return [result(index=i) for i in range(len(rollouts))]

    grades = await _ask(Client(), [Rollout(response=text) for text in "abxcd"])  # type: ignore[arg-type]
    assert asked == ["abxcd", "ab", "xcd", "x", "cd"]
    assert [type(grade) for grade in grades] == [Graded, Graded, Failed, Graded, Graded]


@pytest.mark.parametrize(
    ("bounds", "given", "says"),
    [
        ((0.0, 1.0), (0.0, 1.0), None),
        ((0.25, 0.5), (0.0, 1.0), None),
        ((-0.5, 1.0), (0.0, 1.0), "-0.5..1: give score_range=[-0.5, 1]"),
        ((0.0, 2.0), (0.0, 1.0), "0..2: give score_range=[0, 2]"),
        ((None, 1.0), (0.0, 1.0), "-inf..1: give score_range=[-inf, 1]"),
        ((0.0, None), (0.0, 1.0), "0..inf: give score_range=[0, inf]"),
        ((None, None), (-math.inf, math.inf), None),
    ],
)
async def test_a_service_s_bounds_fit_into_the_grader_s(
    bounds: Any, given: Any, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ServiceGrader("http://h:80", score_range=given)
    waits: list[float] = []

    async def about(*, wait_s: float) -> Any:
        waits.append(wait_s)
        return SimpleNamespace(bounds=bounds, missing_reward="exclude", grouped=False)

    monkeypatch.setattr(one.client, "about", about)
    if says is None:
        await one.warm_up()
    else:
        with pytest.raises(ConfigError) as caught:
            await one.warm_up()
        assert str(caught.value) == f"service: the rewards of http://h:80 are in {says}"
    assert waits == [60.0]


async def test_a_service_that_compares_or_raises_is_refused() -> None:
    def made(kind: type, **more: Any) -> Any:
        async def about(*, wait_s: float) -> Any:
            return SimpleNamespace(**{"bounds": (0.0, 1.0), "missing_reward": 0.0, "grouped": True, **more})

        one = kind("http://h:80", name="n")
        one.client.about = about
        return one

    await made(ServiceGroupGrader).warm_up()
    with pytest.raises(ConfigError) as caught:
        await made(ServiceGrader).warm_up()
    assert str(caught.value) == (
        "n: the reward of http://h:80 compares the rollouts of a prompt: use: service_group"
    )
    with pytest.raises(ConfigError) as caught:
        await made(ServiceGroupGrader, missing_reward="raise").warm_up()
    assert str(caught.value) == (
        "n: one missing reward ends a request to http://h:80, for its reward.yaml says missing_reward: raise; write "
        "exclude there"
    )
    one = ServiceGrader("http://h:80")
    assert (one.name, one.version, one.timeout_s, one.score_range) == ("service", "1", None, (0.0, 1.0))
    assert one.client.deadline_s == math.inf
