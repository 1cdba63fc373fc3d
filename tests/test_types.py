"""The values that flow through judgekit: what they refuse, how they are shown, what is read from messages."""

from __future__ import annotations

import pickle
from collections import UserDict, UserList
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from judgekit import Abstained, ConfigError, DataError, Failed, Graded, RewardResult, Rollout, Skipped, Usage
from judgekit.types import (
    NO_NUMBERS,
    OTHER_NAMES,
    Price,
    content_text,
    field_meant,
    field_text,
    first_match,
    html_table,
    look_up,
    plain,
    policy_turns,
    shown_grade,
    shown_number,
    text_size,
    turn_texts,
    why_of,
)


def say(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


# ---- what a rollout is made of


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"respons": "x"}, "a rollout has no field 'respons'; did you mean 'response'?"),
        ({"completion": "x"}, "a rollout has no field 'completion'; did you mean 'response'?"),
        ({"response": "x", "answer": 4}, "a rollout has no field 'answer'; did you mean 'ground_truth'?"),
        ({"response": "x", "groundtruth": 4}, "a rollout has no field 'groundtruth'; did you mean 'ground_truth'?"),
        ({"response": "x", "output": "y"}, "a rollout has no field 'output': give it as extra={'output': …}"),
        ({"response": "x", "colour": 1}, "a rollout has no field 'colour': give it as extra={'colour': …}"),
        ({}, 'a rollout needs its response, the text to be graded; "" if the policy wrote none'),
        ({"prompt": "x"}, 'a rollout needs its response, the text to be graded; "" if the policy wrote none'),
        ({"response": None}, "a rollout's response is text, not NoneType"),
        ({"response": "x", "prompt": 3}, "a rollout's prompt is text or a list of messages, not int"),
        ({"response": "x", "messages": "hi"}, "a rollout's messages is a list of messages, not str"),
        ({"response": "x", "data_source": None}, "a rollout's data_source is text, not NoneType"),
        ({"response": "x", "finish_reason": 3}, "a rollout's finish_reason is text or None, not int"),
        ({"response": "x", "response_tokens": 1.5}, "a rollout's response_tokens is a whole number or None, not float"),
        ({"response": "x", "extra": [1]}, "a rollout's extra is a mapping, not list"),
        ({"response": "x", "id": 7}, "a rollout's id is text, not int"),
    ],
)  # fmt: skip
def test_what_is_no_rollout_is_one_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError) as raised:
        Rollout(**fields)
    assert str(raised.value) == says


def test_fields_are_given_by_name() -> None:
    with pytest.raises(DataError, match="fields are given by name: Rollout"):
        Rollout("x", "y")  # type: ignore[misc]


def test_values_of_kindred_types_are_taken() -> None:
    class Text(str):
        __slots__ = ()

    rollout = Rollout(
        response=Text("x"), prompt=(say("user", "q"),), extra=UserDict(a=1), response_tokens=np.int64(3)
    )
    assert (rollout.response, rollout.extra["a"], rollout.response_tokens) == ("x", 1, 3)


def test_a_reference_of_numpy_is_pythons() -> None:
    for given, kept in ((np.array([1, 2]), [1, 2]), (np.float64(0.5), 0.5), (np.array(["a"]), ["a"])):
        found = Rollout(response="x", ground_truth=given).ground_truth
        assert (found, type(found)) == (kept, type(kept))


def test_names_of_other_data_sets() -> None:
    names = (
        "completion",
        "prediction",
        "question",
        "input_query",
        "answer",
        "expected",
        "uid",
        "group_id",
        "trajectory",
    )
    assert [field_meant(name) for name in names] == [
        "response", "response", "prompt", None, "ground_truth", "ground_truth", "group", "group", "messages",
    ]  # fmt: skip
    assert [field_meant(name) for name in ("query", "input_prompt", "completion_tokens", "stop_reason", "dataset", "source")] == [
        "prompt", "prompt", "response_tokens", "finish_reason", "data_source", "data_source",
    ]  # fmt: skip


@pytest.mark.parametrize("field", list(OTHER_NAMES))
def test_every_other_name_is_meant_for_its_field(field: str) -> None:
    for name in OTHER_NAMES[field]:
        assert field_meant(name) == field_meant(name.upper()) == field


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("Response", "response"),
        ("promt", "prompt"),
        ("datasource", "data_source"),
        ("finishreason", "finish_reason"),
        ("mesages", "messages"),
        ("grup", "group"),
        ("prompt_length", None),  # of a prompt, and no prompt
        ("response_mask", None),
        ("ids", None),
        ("di", None),
        ("score", None),
        ("re", None),
    ],
)
def test_the_field_that_a_name_seems_to_mean(name: str, field: str | None) -> None:
    assert field_meant(name) == field


def test_the_prompt_as_text() -> None:
    assert Rollout(response="x").prompt_text == ""
    assert Rollout(response="x", prompt="q").prompt_text == "q"
    asked = [
        say("system", "s"),
        say("user", "first"),
        say("assistant", "a"),
        say("user", "last"),
        say("tool", "t"),
    ]
    assert Rollout(response="x", prompt=asked).prompt_text == "last"
    blocks = say("user", [{"type": "text", "text": "look: "}, {"type": "image_url"}, "here", {"text": 3}, 4])
    assert Rollout(response="x", prompt=[blocks]).prompt_text == "look: here"
    assert Rollout(response="x", prompt=[say("system", "s")]).prompt_text == ""


# ---- tokens and their price


def test_usage_adds_each_count() -> None:
    assert Usage(1, 20, 3, 4) + Usage(10, 200, 30, 40) == Usage(11, 220, 33, 44)
    assert Usage() + Usage() == Usage(0, 0, 0, 0)


def test_what_tokens_cost() -> None:
    used = Usage(calls=1, prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=100_000)
    assert Price(2.0, 10.0).usd(used) == pytest.approx(2.0 + 1.0)
    assert Price(2.0, 10.0, 0.5).usd(used) == pytest.approx(1.2 + 0.2 + 1.0)
    assert Price(2.0, 10.0, 0.0).usd(used) == pytest.approx(1.2 + 1.0)
    assert Price(0, 0).usd(used) == 0
    assert Price(1.0, 0.0, 0.0).usd(Usage(prompt_tokens=5, cached_tokens=9)) == 0.0  # never less than nothing


@pytest.mark.parametrize("name", ["input", "output", "cached_input"])
@pytest.mark.parametrize("value", [-0.01, float("inf"), float("nan")])
def test_a_price_is_a_number_from_0(name: str, value: float) -> None:
    with pytest.raises(
        ConfigError, match=f"price: {name} is US dollars per million tokens, at least 0, not {value!r}"
    ):
        Price(**{"input": 1.0, "output": 1.0, name: value})


# ---- a result, for people


def result(**fields: Any) -> RewardResult:
    given: dict[str, Any] = {
        "index": 0, "group": "g", "reward": 0.5, "status": "scored", "raw_reward": 0.75, "contributions": {}, "grades": {},
    }  # fmt: skip
    return RewardResult(**(given | fields))


def test_the_outcome_is_what_belongs_to_no_turn() -> None:
    assert result(turns=(0.25, 0.125)).outcome == 0.375
    assert result().outcome == 0.75
    assert result(raw_reward=None).outcome is None


def test_scores_by_name() -> None:
    grades = {"a": Graded(0.25), "b": Failed("E"), "c": Abstained("no"), "d": Skipped("a")}
    assert [result(grades=grades).score(name) for name in "abcde"] == [0.25, None, None, None, None]


def test_a_result_in_a_notebook() -> None:
    shown = result(
        reward=None,
        status="excluded",
        grades={
            "ok": Graded(0.123456, "<b>fine</b>"),
            "mute": Abstained("no reference"),
            "gated": Skipped("ok >= 1"),
            "down": Failed("JudgeTimeout", "10 s", cause="infrastructure"),
            "long": Graded(1.0, "x" * 201),
            "whole": Graded(1.0, "y" * 200),
        },
        contributions={"ok": 0.5, "residual": -0.25, "nothing": 0.0},
        policies=("excluded: a", "b"),
    )._repr_html_()
    rows = [row.split("</td>") for row in shown.replace('<td style="text-align:left">', "").split("<tr>")[2:]]
    assert [row[:4] for row in rows] == [
        ["ok", "0.1235", "0.5", "&lt;b&gt;fine&lt;/b&gt;"],
        ["mute", "abstained", "", "no reference"],
        ["gated", "skipped", "", "ok &gt;= 1"],
        ["down", "failed", "", "JudgeTimeout: 10 s (infrastructure)"],
        ["long", "1", "", "x" * 199 + "…"],
        ["whole", "1", "", "y" * 200],
        ["residual", "", "-0.25", ""],
        ["reward (excluded)", "", "0.75", "excluded: a; b"],
    ]
    assert [cell.rpartition(">")[2] for cell in shown.split("</th>")[:4]] == [
        "",
        "score",
        "contributes",
        "why",
    ]


def test_numbers_and_grades_for_people() -> None:
    assert (shown_number(None), shown_number(0.0), shown_number(1234567.0)) == ("", "0", "1.235e+06")
    assert (shown_grade(None), shown_grade(Graded(0.5)), shown_grade(Failed("E"))) == ("", "0.5", "failed")
    assert [why_of(grade) for grade in (Graded(1, "r"), Abstained("a"), Skipped("g"))] == ["r", "a", "g"]
    assert why_of(Failed("E", "d", cause="rollout")) == "E: d (rollout)"
    assert html_table(["a"], [], "<below>").endswith("</table>&lt;below&gt;")


def test_what_many_results_share_cannot_be_changed() -> None:
    numbers: Any = NO_NUMBERS
    for change in (
        lambda: numbers.__setitem__("a", 1), lambda: numbers.update(a=1), lambda: numbers.setdefault("a", 1),
        lambda: numbers.pop("a", None), lambda: numbers.clear(), lambda: numbers.popitem(),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="no numbers of a group to change"):
            change()
    assert pickle.loads(pickle.dumps(numbers)) is numbers
    assert result().group_numbers is numbers


# ---- texts in messages


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        (7, "7"),
        ([], ""),
        (["a", {"text": "b"}, {"type": "image"}, {"text": None}, 3, {"text": "c"}], "abc"),
        (({"type": "text", "text": "t"},), "t"),
    ],
)
def test_the_text_of_a_content(content: Any, text: str) -> None:
    assert content_text(content) == text


Turns = list[list[int]]


@pytest.mark.parametrize(
    ("prompt", "messages", "turns", "texts"),
    [
        ("q", [], [[]], ["response"]),
        ("q", [say("user", "q")], [[]], ["response"]),
        ("q", [say("user", "q"), say("assistant", "a")], [[1]], ["a"]),
        ("q", [say("assistant", "a"), say("assistant", "b"), say("tool", "t"), say("ai", "c")], [[0, 1], [3]], ["a\nb", "c"]),
        ("q", [say(role, role) for role in ("model", "user", "gpt", "user", "ai")], [[0], [2], [4]], ["model", "gpt", "ai"]),
        ([say("assistant", "shot")], [say("assistant", "shot"), say("user", "u"), say("assistant", "a")], [[2]], ["a"]),
        ([say("assistant", "shot")], [say("assistant", "other"), say("user", "u"), say("assistant", "a")], [[0], [2]], ["other", "a"]),
        ("q", [{"message": say("assistant", "in")}, {"message": say("user", "u")}, "text", {"message": "x"}], [[0]], ["in"]),
        ("q", [{"type": "function_call_output"}, {"type": "function_call"}, {"type": "reasoning"}], [[1, 2]], ["\n"]),
        ("q", [{"type": "tool_use", "content": "u"}, say("user", "q"), {"type": "custom_tool_call", "content": "c"}], [[0], [2]], ["u", "c"]),
    ],
)  # fmt: skip
def test_the_policy_s_turns(prompt: Any, messages: list[Any], turns: Turns, texts: list[str]) -> None:
    rollout = Rollout(response="response", prompt=prompt, messages=messages)
    assert policy_turns(rollout) == turns
    assert turn_texts(rollout) == texts


def test_the_size_of_texts() -> None:
    class Text(str):
        __slots__ = ()

    assert text_size() == text_size(None) == text_size("") == 0
    assert text_size("abc", Text("de")) == 5
    assert text_size(["abc", None], ("d",)) == 8 + 3 + 8 + 1
    assert text_size({"key": "abc"}) == text_size(UserDict(key="abc")) == text_size(UserList(["abc"])) == 11
    assert text_size(1, b"bytes", bytearray(b"b"), 2.5) == 4 * 8
    assert text_size({"a": {"b": ["c"]}}) == 3 * 8 + 1


def test_counting_ends_for_what_holds_itself_and_what_is_very_long() -> None:
    endless: list[Any] = ["x"]
    endless += [endless, endless]
    assert text_size(endless) == 10_000_000
    half = "x" * 5_000_000
    assert text_size(half, half) == 10_000_000
    assert text_size(half, half, "more") == 10_000_000
    assert text_size(half, "x") == 5_000_001
    assert text_size([None] * 2_000_000) == 10_000_000


def test_values_of_numpy_become_pythons_at_any_depth() -> None:
    given = {
        "a": np.array([[1, 2]]),
        "b": [np.float64(0.5), "x"],
        "c": (np.bool_(True),),
        "d": UserDict(e=np.int64(3)),
    }
    found = plain(given)
    assert found == {"a": [[1, 2]], "b": [0.5, "x"], "c": (True,), "d": {"e": 3}}
    assert [type(found["b"][0]), type(found["c"]), type(found["c"][0]), type(found["d"])] == [
        float,
        tuple,
        bool,
        dict,
    ]
    mixed = plain(np.array([{"k": np.int64(1)}, None], dtype=object))
    assert (mixed, type(mixed[0]["k"])) == ([{"k": 1}, None], int)
    tokens, other = list(range(10)), object()
    assert plain(tokens) is tokens
    assert plain(other) is other
    assert plain(None) is None


# ---- values at a path


ROLLOUT = Rollout(
    response="r",
    prompt=[say("user", "q"), say("assistant", "a")],
    extra={"deep": {"list": [1, 2, 3]}, "none": None, "-1": "key", "text": "abc"},
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("response", "r"),
        ("prompt.0.content", "q"),
        ("prompt.-1.role", "assistant"),
        ("prompt.-2.role", "user"),
        ("prompt.-3.role", "default"),
        ("prompt.1.content", "a"),
        ("prompt.2", "default"),
        ("extra.deep.list.2", 3),
        ("extra.deep.list.3", "default"),
        ("extra.deep.list.-3", 1),
        ("extra.deep.list.-4", "default"),
        ("extra.deep.list.x", "default"),
        ("extra.none", None),
        ("extra.-1", "key"),
        ("extra.nothing", "default"),
        ("extra.text.0", "default"),  # no letters of a text
        ("nothing", "default"),
        ("response.upper", "default"),
        ("prompt_text", "default"),  # no field
    ],
)
def test_values_at_a_path(path: str, value: Any) -> None:
    assert look_up(ROLLOUT, path, "default") == value


def test_a_field_as_text() -> None:
    assert field_text(ROLLOUT, "extra.deep.list.0") == "1"
    assert field_text(ROLLOUT, "extra.none") == field_text(ROLLOUT, "extra.nothing") == ""


def test_the_first_pattern_that_matches() -> None:
    cases: Mapping[str, int] = {"gsm8k": 1, "math/*": 2, "*": 3}
    assert [first_match(cases, text) for text in ("gsm8k", "math/algebra", "GSM8K")] == [1, 2, 3]
    assert first_match({"a": 1}, "b") is None


def test_rollouts_are_told_apart_by_every_field() -> None:
    fields: Sequence[tuple[str, Any]] = (
        ("response", "y"), ("prompt", "p"), ("group", 1), ("ground_truth", 1), ("messages", [say("user", "q")]),
        ("data_source", "d"), ("finish_reason", "stop"), ("response_tokens", 1), ("extra", {"a": 1}), ("id", "i"),
    )  # fmt: skip
    for name, value in fields:
        assert Rollout(**({"response": "x"} | {name: value})) != Rollout(response="x")
        assert getattr(Rollout(**({"response": "x"} | {name: value})), name) == value
