"""How functions are told apart, what they are given, and how what they give is read."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from judgekit import (
    Abstained,
    ConfigError,
    Failed,
    Graded,
    Mapped,
    Rollout,
    Usage,
    from_function,
    grader,
    group_grader,
)
from judgekit.graders import FinalAnswer, reward_functions
from judgekit.graders.function import FIELDS, lifetimes
from judgekit.graders.protocol import as_grade, check_grader, output, per_member
from judgekit.graders.reward_functions import signature_of
from judgekit.graders.trust import UNTRUSTED, untrusted, with_trust
from judgekit.types import QUERY, SOLUTION_STR

SYSTEM, USER, REPLY = ({"role": role, "content": role} for role in ("system", "user", "assistant"))
SAID = {"role": "assistant", "content": "said"}


@pytest.mark.parametrize(
    ("function", "fields", "signature"),
    [
        (lambda solution_str: 1, {}, "verl"),
        (lambda solution_strs: 1, {}, "verl"),
        (lambda queries, completions: 1, {}, "openrlhf"),
        (lambda solution_str, queries: 1, {}, "verl"),
        *((eval(f"lambda {name}: 1"), {}, "verifiers") for name in ("completion", "state", "states", "answers", "infos", "tasks")),
        *(
            (eval(f"lambda {name}: 1"), {}, "trl")
            for name in ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
        ),
        (lambda prompt, completions: 1, {}, None),
        (lambda prompt_ids, completions: 1, {}, None),
        (lambda response: 1, {}, "plain"),
        (lambda rollout: 1, {}, "plain"),
        (lambda rollouts: 1, {}, "plain"),
        (lambda prompt_text, ground_truth, other=1: 1, {}, "plain"),
        (lambda response, *rest, **more: 1, {}, "plain"),
        (lambda response, other: 1, {}, None),
        (lambda response, other: 1, {"other": "extra.x"}, "plain"),
        (lambda other=1: 1, {}, None),
        (lambda: 1, {}, None),
    ],
)  # fmt: skip
def test_the_trainer_is_told_by_the_parameters(
    function: Callable[..., Any], fields: dict[str, str], signature: str | None
) -> None:
    assert signature_of(function, fields) == signature


@pytest.mark.parametrize(
    ("prompt", "messages", "completion"),
    [
        ("q", [USER, REPLY], "said"),
        ([SYSTEM, USER], [SYSTEM, USER, SAID, USER], [SAID, USER]),
        ([SYSTEM, USER], [SYSTEM, USER], [SAID]),
        ([SYSTEM, USER], [SYSTEM, USER, REPLY], [SAID]),
        ([SYSTEM, USER], [USER, SYSTEM, REPLY], [SAID]),
        ([SYSTEM, USER], [SYSTEM], [SAID]),
    ],
)
def test_a_completion_is_what_follows_the_prompt(prompt: Any, messages: Any, completion: Any) -> None:
    made = Rollout(response="said", prompt=prompt, messages=messages)
    seen: list[Any] = []
    from_function(lambda prompt, completion: seen.append((prompt, completion))).grade(made)
    assert seen == [(prompt, completion)]


SEEN: list[dict[str, Any]] = []


def everything(completions: list[Any], **columns: Any) -> list[float]:
    SEEN.append(columns)
    return [1.0] * len(completions)


def test_columns_are_the_data_sets_and_the_references_where_they_are_not_among_them() -> None:
    SEEN.clear()
    extra = {"level": 3, "prompt": "p", "completion": "c", "log_extra": "l", "log_metric": "m"}
    made = from_function(everything)
    made.grade_group(
        [
            Rollout(response="a", ground_truth="42", extra=extra),
            Rollout(response="b", data_source="d", ground_truth=""),
        ]
    )
    given = SEEN[0]
    assert given["level"] == [3, None]
    assert given["ground_truth"] == ["42", None]
    assert given["data_source"] == [None, "d"]
    assert not {"prompt", "completion"} & {*given}
    assert callable(given["log_extra"])
    assert callable(given["log_metric"])
    assert {*given} == {"level", "ground_truth", "data_source", "prompts", "log_extra", "log_metric"}
    made.grade_group(
        [
            Rollout(
                response="a",
                ground_truth="42",
                data_source="d",
                extra={"ground_truth": "41", "data_source": "e"},
            )
        ]
    )
    assert (SEEN[1]["ground_truth"], SEEN[1]["data_source"]) == (["41"], ["e"])


@pytest.mark.parametrize(
    ("name", "rollout", "value"),
    [
        ("extra_info", Rollout(response="a", extra={"x": 1}), {"x": 1}),
        ("extra_info", Rollout(response="a", extra={"extra_info": 5}), 5),
        *((name, Rollout(response="a", ground_truth="t"), "t") for name in ("answer", "solution", "expected_answer", "label")),
        ("solution", Rollout(response="a", ground_truth="t", extra={"solution": "s"}), "s"),
        ("level", Rollout(response="a", ground_truth="t"), Abstained("the column 'level' is not there")),
        ("solution", Rollout(response="a"), Abstained("the column 'solution' is not there")),
    ],
)  # fmt: skip
def test_a_column_is_found(name: str, rollout: Rollout, value: Any) -> None:
    found: list[Any] = []

    def take(completions: list[Any], **given: Any) -> list[float]:
        found.extend(given[name])
        return [1.0] * len(completions)

    namespace: dict[str, Any] = {"take": take}
    exec(
        f"def f(completions, {name}): return take(completions, {name}={name})", namespace
    )  # a parameter by that name
    (grade,) = from_function(namespace["f"]).grade_group([rollout])
    assert (grade if isinstance(value, Abstained) else found[0]) == value


def test_verls_extra_info_has_what_verl_adds() -> None:
    seen: list[Any] = []

    def score(solution_str: str, extra_info: Any) -> float:
        seen.append((solution_str, extra_info))
        return 1.0

    made = from_function(score)
    made.grade(Rollout(response="a"))
    made.grade(
        Rollout(response="a", extra={SOLUTION_STR: "all", "__num_turns__": 2, "reward_scores": {"x": 1}})
    )
    made.grade(Rollout(response="a", extra={"num_turns": 3, "rollout_reward_scores": {"y": 1}}))
    assert seen == [
        ("a", {"num_turns": None, "rollout_reward_scores": {}}),
        (
            "all",
            {
                "__num_turns__": 2,
                "reward_scores": {"x": 1},
                "num_turns": 2,
                "rollout_reward_scores": {"x": 1},
            },
        ),
        ("a", {"num_turns": 3, "rollout_reward_scores": {"y": 1}}),
    ]


def test_verifiers_state_has_the_columns_and_its_own() -> None:
    seen: list[Any] = []

    def score(state: dict[str, Any], answer: str) -> float:
        seen.append((state, answer))
        return 1.0

    from_function(score).grade(
        Rollout(
            response="a", prompt="q", ground_truth="t", extra={"level": 1, "info": {"x": 1}, "task": "mul"}
        )
    )
    from_function(score).grade(Rollout(response="a", prompt="q"))
    own = {"prompt": "q", "completion": "a", "trajectory": []}
    assert seen == [
        ({"level": 1, "ground_truth": "t", **own, "answer": "t", "info": {"x": 1}, "task": "mul"}, "t"),
        ({**own, "answer": "", "info": {}, "task": None}, ""),
    ]


def test_openrlhf_gets_the_question_with_its_answer() -> None:
    seen: list[Any] = []

    def score(queries: Any, prompts: Any, labels: Any) -> Any:
        seen.append((queries, prompts, labels))
        return [1.0]

    from_function(score).grade(Rollout(response="a", prompt="q", ground_truth="t"))
    from_function(score).grade(Rollout(response="a", prompt="q", extra={QUERY: "own"}))
    assert seen == [(["qa"], ["q"], ["t"]), (["own"], ["q"], [None])]


@pytest.mark.parametrize(
    ("value", "grade"),
    [
        ({"rewards": [0.5]}, 0.5),
        ({"rewards": 0.5, "n": [3], "m": [1, 2]}, Graded(0.5, metadata={"n": 3, "m": [1, 2]})),
        ({"rewards": 0.5, "extra_logs": {"n": np.array([3])}}, Graded(0.5, metadata={"n": 3})),
        ({"rewards": 0.5, "n": 1, "extra_logs": {"n": 2}}, Graded(0.5, metadata={"n": 2})),
        ({"rewards": 0.5, "extra_logs": "none"}, 0.5),
        ({"rewards": np.array(0.5)}, np.array(0.5)),
        ((0.5,), 0.5),
        ({"score": 0.5}, Failed("KeyError", "the function returned a dict without 'rewards'")),
        ("x", "x"),
        (b"x", b"x"),
        (0.5, 0.5),
    ],
)
def test_openrlhfs_batch_of_one_is_read(value: Any, grade: Any) -> None:
    assert from_function(lambda queries, prompts, labels: value).grade(Rollout(response="a")) == grade


@pytest.mark.parametrize(
    ("value", "grade"),
    [
        ({"score": 0.5}, 0.5),
        ({"score": 0.5, 3: np.int64(4)}, Graded(0.5, metadata={"3": 4})),
        ({"score": Graded(0.5, "why", {"a": 1, "b": 1}, Usage(calls=2), (0.5,)), "b": 2}, Graded(0.5, "why", {"a": 1, "b": 2}, Usage(calls=2), (0.5,))),
        ({"score": Abstained("no"), "b": 2}, Abstained("no", metadata={"b": 2})),
        ({"score": Failed("X"), "b": 2}, Failed("X")),
        ({"score": np.float64(math.nan), "b": 2}, Graded(np.float64(math.nan), metadata={"b": 2})),
    ],
)  # fmt: skip
def test_verls_dicts_are_read(value: Any, grade: Any) -> None:
    found = from_function(lambda solution_str: value).grade(Rollout(response="a"))
    assert repr(found) == repr(grade) or found == grade


def test_what_a_batch_logs_goes_to_its_members() -> None:
    def score(completions: list[str], log_extra: Any, log_metric: Any) -> list[float]:
        log_extra("mine", [1, np.int64(2)])
        log_extra("odd", [1, 2, 3])
        log_extra("text", "ab")
        log_extra("pair", ("x", "y"))
        log_metric("all", 7)
        return [0.5, 0.25]

    assert from_function(score).grade_group([Rollout(response="a"), Rollout(response="b")]) == [
        Graded(0.5, metadata={"all": 7, "mine": 1, "pair": "x"}),
        Graded(0.25, metadata={"all": 7, "mine": 2, "pair": "y"}),
    ]


async def test_members_that_lack_a_column_are_left_out_of_an_async_batch() -> None:
    async def score(completions: list[str], level: list[int]) -> list[float]:
        return [float(one) for one in level]

    made = from_function(score)
    given = [
        Rollout(response="a", extra={"level": 1}),
        Rollout(response="b"),
        Rollout(response="c", extra={"level": 0}),
    ]
    lacks = Abstained("the column 'level' is not there")
    assert await made.grade_group(given) == [1.0, lacks, 0.0]
    assert await made.grade_group([Rollout(response="b"), Rollout(response="c")]) == [lacks, lacks]
    assert from_function(lambda completions, level: level).grade_group([Rollout(response="b")]) == [lacks]


async def test_a_plain_function_may_return_something_to_await() -> None:
    async def later(value: Any) -> Any:
        return value

    assert await from_function(lambda solution_str: later({"score": 0.5, "n": 1})).grade(
        Rollout(response="a")
    ) == Graded(0.5, metadata={"n": 1})
    assert await from_function(lambda completions: later([0.5])).grade_group([Rollout(response="a")]) == [0.5]

    async def lacking(solution_str: str, ground_truth: Any) -> float:
        return 1.0

    made = from_function(lacking, fields={"ground_truth": "extra.t"})
    assert await made.grade(Rollout(response="a")) == Abstained("extra.t is not there")
    assert await made.grade(Rollout(response="a", extra={"t": 1})) == 1.0


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda: 1, "<lambda>()"),
        (lambda a, b: 1, "<lambda>(a, b)"),
        (lambda a, b=1: 1, "<lambda>(a, …)"),
        (functools.partial(functools.partial(everything, 1), x=1), "everything(**columns)"),
    ],
)
def test_a_function_is_named_with_what_it_needs(function: Callable[..., Any], shown: str) -> None:
    assert reward_functions.described(function) == shown


class _Unsigned:
    __name__ = "unsigned"
    __signature__ = 5

    def __call__(self) -> float:
        return 1.0


def test_what_has_no_signature_is_said() -> None:
    for make in (from_function, grader):
        with pytest.raises(ConfigError, match="cannot read the signature of .*; wrap it in a def"):
            make(_Unsigned())


@pytest.mark.parametrize(
    ("function", "reads"),
    [
        (lambda solution_str: 1, {"response"}),
        *(
            (eval(f"lambda solution_str, {name}: 1"), {"response", "ground_truth"})
            for name in ("ground_truth",)
        ),
        *(
            (eval(f"lambda completions, {name}: [1]"), {"response", "ground_truth"})
            for name in (
                "answer",
                "solution",
                "expected_answer",
                "label",
                "answers",
                "labels",
                "ground_truths",
            )
        ),
    ],
)
def test_a_trainers_function_reads_a_response_and_perhaps_a_reference(function: Any, reads: set[str]) -> None:
    assert from_function(function).reads == reads
    assert from_function(function).grades_alone is True


def test_token_ids_are_read_by_trls_functions_that_take_them() -> None:
    assert from_function(everything).reads_tokens is True
    assert from_function(lambda completions, completion_ids: [1]).reads_tokens is True
    assert from_function(lambda completions: [1]).reads_tokens is False
    assert from_function(lambda solution_str, completion_ids=None: 1).reads_tokens is False


@pytest.mark.parametrize(
    ("function", "fields", "reads"),
    [
        (lambda response, prompt_text: 1, {}, {"response", "prompt_text"}),
        (lambda rollout: 1, {}, set()),
        (lambda rollout, response: 1, {}, set()),
        (lambda a, response: 1, {"a": "extra.x.y"}, {"extra", "response"}),
        (lambda response: 1, {"response": "messages.0.content"}, {"messages"}),
    ],
)
def test_what_a_function_reads_is_known(function: Any, fields: dict[str, str], reads: set[str]) -> None:
    assert grader(function, fields=fields).reads == reads


def test_the_only_parameter_of_a_group_function_is_its_members() -> None:
    members = [Rollout(response="a"), Rollout(response="b")]
    assert group_grader(lambda team: [len(team)] * 2).grade_group(members) == [2, 2]
    assert group_grader(lambda response: response).grade_group(members) == ["a", "b"]
    assert group_grader(lambda rollouts, response: [rollouts[0].response, response[1]]).grade_group(
        members
    ) == [
        "a",
        "b",
    ]
    with pytest.raises(ConfigError, match="a rollout has no field 'team'"):
        group_grader(lambda team, response: response)


@pytest.mark.parametrize("is_async", [False, True])
async def test_members_that_lack_a_field_abstain_and_the_last_one_too(is_async: bool) -> None:
    async def later(x: list[int]) -> list[int]:
        return x

    function: Any = later if is_async else lambda x: x
    made = group_grader(function, fields={"x": "extra.x"})
    lacks = Abstained("extra.x is not there")

    async def asked(members: Sequence[Rollout]) -> Any:
        found = made.grade_group(members)
        return list(await found if is_async else found)

    one, two, none = (
        Rollout(response="a", extra={"x": 1}),
        Rollout(response="b", extra={"x": 2}),
        Rollout(response="c"),
    )
    assert await asked([one, two]) == [1, 2]
    assert await asked([one, none, two]) == [1, lacks, 2]
    assert await asked([none, one]) == [lacks, Abstained("no other member is left")]
    assert await asked([none, none]) == [lacks, lacks]


async def test_an_async_function_that_lacks_a_field_abstains() -> None:
    async def of_turn(turn: str, x: int) -> float:
        return float(x)

    async def of_all(x: int) -> float:
        return float(x)

    for function, per, grade in ((of_turn, "turn", Graded(1.0, turns=(1.0,))), (of_all, "rollout", 1.0)):
        made = grader(function, fields={"x": "extra.x"}, per=per)  # type: ignore[call-overload]
        assert await made.grade(Rollout(response="a")) == Abstained("extra.x is not there")
        assert await made.grade(Rollout(response="a", extra={"x": 1})) == grade


async def test_the_first_error_of_a_turn_is_the_error() -> None:
    async def fails(turn: str) -> float:
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        await grader(fails, per="turn").grade(Rollout(response="a"))


class House:
    def __init__(self, floor: int) -> None:
        self.floor = floor

    @grader(name="high", version="7")
    def tall(self, response: str) -> float:
        """How tall it is."""
        return float(self.floor)

    @group_grader
    def taller(self, response: list[str]) -> list[float]:
        return [float(self.floor)] * len(response)

    def start(self) -> None: ...


def test_methods_are_plain_functions_of_their_class_and_graders_of_an_object() -> None:
    assert House.tall(House(3), "x") == 3.0
    assert House.tall.__name__ == "tall"
    assert House.tall.__doc__ == "How tall it is."
    made = House(3).tall
    assert (made.name, made.version, made.grade(Rollout(response="x"))) == ("high", "7", 3.0)
    assert House(2).taller.grade_group([Rollout(response="x"), Rollout(response="y")]) == [2.0, 2.0]
    with pytest.raises(ConfigError, match="there is no option 'nam'; did you mean 'name'"):
        grader(lambda response: 1, nam="x")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="there is no option 'per'"):
        group_grader(lambda response: 1, per="turn")


def test_what_is_started_is_the_grader_or_what_its_method_is_of() -> None:
    house = House(1)
    assert lifetimes(house.tall) == [house]
    assert lifetimes(Mapped(house.tall, {"response": "response"})) == [house]
    assert lifetimes(grader(functools.partial(house.tall.function), name="p")) == [house]
    assert lifetimes(FinalAnswer()) == []
    closing = type("Closing", (), {"close": lambda self: None, "correct": house.tall})()
    assert lifetimes(closing) == [closing, house]


def settled(response: str, *, limit: int = 3) -> float:
    return float(len(response) > limit)


def test_settings_are_other_values_of_what_no_field_fills() -> None:
    made = grader(settled, version="4", name="mine").with_settings({"limit": 0})
    assert (made.name, made.version, made.grade(Rollout(response="a"))) == ("mine", "4", 1.0)
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.name, copy.version, copy.grade(Rollout(response="a"))) == ("mine", "4", 1.0)
    assert grader(settled, where="process").breakable is True
    assert grader(settled).breakable is False
    assert "prompt_text" in FIELDS
    assert "response" in FIELDS


def test_a_field_that_is_no_parameter_is_said() -> None:
    with pytest.raises(ConfigError, match="fields names 'x', which is not a parameter of the function"):
        grader(settled, fields={"x": "extra.x"})
    with pytest.raises(ConfigError, match="the parameter 'response' must be passable by name"):
        grader(lambda response, /: 1)


async def test_mapped_graders_abstain_for_what_is_not_there() -> None:
    class Later:
        name, version, score_range = "later", "1", (0.0, 1.0)

        async def grade(self, rollout: Rollout, /) -> float:
            return float(rollout.response)

    mapped = Mapped(Later(), {"response": "extra.x"})
    assert await mapped.grade(Rollout(response="a")) == Abstained("extra.x is not there")
    assert await mapped.grade(Rollout(response="a", extra={"x": "0.5"})) == 0.5
    alone: Any = Mapped(from_function(everything), {"response": "extra.x"})
    assert await alone.grade_group([Rollout(response="a", extra={"x": "b"})]) == [1.0]
    assert await alone.grade_group([Rollout(response="a")]) == [Abstained("extra.x is not there")]


# ---- what a grader may return


class RaisingNumber:
    @property
    def ndim(self) -> int:
        raise ZeroDivisionError


def test_a_value_that_raises_is_named_with_its_error() -> None:
    assert as_grade(RaisingNumber(), (0.0, 1.0)) == Failed(
        "TypeError", "a grader returned a RaisingNumber that raised ZeroDivisionError"
    )

    class Interrupting:
        @property
        def ndim(self) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        as_grade(Interrupting(), (0.0, 1.0))


@pytest.mark.parametrize(
    ("value", "score_range", "grade"),
    [
        (0, (0.0, 1.0), Graded(0.0)),
        (1.0, (0.0, 1.0), Graded(1.0)),
        (0.0, (0.0, 1.0), Graded(0.0)),
        (-0.5, (0.0, 1.0), Failed("ScoreOutOfRange", "-0.5 is outside 0..1")),
        (math.inf, (0.0, math.inf), Failed("ScoreNotFinite", "the score is inf")),
        (-math.inf, (-math.inf, 0.0), Failed("ScoreNotFinite", "the score is -inf")),
        (Graded(math.inf), (0.0, math.inf), Failed("ScoreNotFinite", "the score is inf")),
        (Graded(-math.inf), (-math.inf, 0.0), Failed("ScoreNotFinite", "the score is -inf")),
        (Graded(2.0), (0.0, 1.0), Failed("ScoreOutOfRange", "2 is outside 0..1")),
        (Graded(0.5, turns=(0.5, None)), (0.0, 1.0), Graded(0.5, turns=(0.5, None))),
        (Graded(0.5, usage=Usage(calls=-1)), (0.0, 1.0), Failed("TypeError", "a grade's usage is a Usage of whole numbers, not Usage(calls=-1, prompt_tokens=0, cached_tokens=0, completion_tokens=0)")),
        (Graded(0.5, usage=Usage(calls=(1 << 53) - 1)), (0.0, 1.0), Graded(0.5, usage=Usage(calls=(1 << 53) - 1))),
        (Graded(0.5, usage=Usage(cached_tokens=1 << 53)), (0.0, 1.0), Failed("TypeError", f"a grade's usage is a Usage of whole numbers, not Usage(calls=0, prompt_tokens=0, cached_tokens={1 << 53}, completion_token")),
    ],
)  # fmt: skip
def test_numbers_are_checked_against_the_range(value: Any, score_range: Any, grade: Any) -> None:
    assert as_grade(value, score_range) == grade


@pytest.mark.parametrize(
    ("value", "count", "grades"),
    [
        ([1, 2], 2, [1, 2]),
        ((1,), 1, (1,)),
        (iter([1, 2]), 2, [1, 2]),
        ([1], 2, [Failed("WrongGroupGrades", "1 grades for 2 members")] * 2),
        ({1, 2}, 2, [Failed("WrongGroupGrades", "set for 2 members")] * 2),
        (b"ab", 2, [Failed("WrongGroupGrades", "bytes for 2 members")] * 2),
        ("ab", 2, [Failed("WrongGroupGrades", "str for 2 members")] * 2),
        (5, 1, [Failed("WrongGroupGrades", "int for 1 members")]),
        (Abstained("no"), 2, [Abstained("no")] * 2),
        (Failed("X"), 2, [Failed("X")] * 2),
    ],
)
def test_a_group_grader_gives_one_grade_for_each_member(value: Any, count: int, grades: Any) -> None:
    assert list(per_member(value, count)) == list(grades)


@pytest.mark.parametrize(
    ("value", "grade"),
    [
        ({"a": 1}, 1),
        ({"b": 1}, Failed("KeyError", "no score 'a'")),
        (None, None),
        (Abstained("x"), Abstained("x")),
        (Failed("x"), Failed("x")),
        ([1], Failed("TypeError", "expected scores for a, b, not list")),
        (type("Odd", (dict,), {"__getitem__": lambda self, key: 1 // 0})(), Failed("ZeroDivisionError", "integer division or modulo by zero")),
    ],
)  # fmt: skip
def test_one_of_several_scores_is_taken(value: Any, grade: Any) -> None:
    assert output(value, "a", ("a", "b")) == grade


class Plain:
    name, version, score_range = "plain", "1", (0.0, 1.0)

    def grade(self, rollout: Rollout) -> float:
        return 1.0

    def itself(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Plain.itself, "Plain.itself is a method: give that of an object, Plain(…).itself"),
        (Plain().itself, "method has neither grade() nor grade_group(); decorate the function"),
        (3, "int has neither grade() nor grade_group()"),
        (type("Nan", (Plain,), {"score_range": (math.nan, 1.0)})(), "score_range is (lowest, highest), not (nan, 1.0)"),
        (type("Nan", (Plain,), {"score_range": (0.0, math.nan)})(), "score_range is (lowest, highest), not (0.0, nan)"),
        (type("One", (Plain,), {"score_range": (1.0, 1.0)})(), "score_range is (lowest, highest), not (1.0, 1.0)"),
        (type("Few", (Plain,), {"score_range": (1.0,)})(), "score_range is (lowest, highest), not (1.0,)"),
        (type("None_", (Plain,), {"score_range": None})(), "score_range is (lowest, highest), not None"),
        (type("Zero", (Plain,), {"timeout_s": 0})(), "timeout_s is a number of seconds above 0, not 0"),
        (type("Empty", (Plain,), {"outputs": ("",)})(), "outputs are different names without dots, not ('',)"),
        (type("Odd", (Plain,), {"outputs": (5,)})(), "outputs are different names without dots, not (5,)"),
    ],
)  # fmt: skip
def test_what_is_no_grader_is_said_in_these_words(given: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_grader("mine", given)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "attributes",
    [
        {"timeout_s": 0.5},
        {"timeout_s": None},
        {"max_concurrency": 1},
        {"max_concurrency": None},
        {"outputs": ["a", "b"]},
        {"outputs": None},
        {"where": "thread"},
        {"score_range": (-math.inf, math.inf)},
    ],
)
def test_a_grader_may_say_more_of_itself(attributes: dict[str, Any]) -> None:
    check_grader("mine", type("Mine", (Plain,), attributes)())


# ---- trust


@pytest.mark.parametrize(
    ("grade", "kept"),
    [
        (Graded(0.3), Graded(0.3)),
        (Graded(0.7), Graded(0.7)),
        (Graded(0.5), Abstained("not trusted between 0.3 and 0.7", {UNTRUSTED: 0.5})),
        (
            Graded(0.5, "why", {"a": 1}, Usage(calls=1), (0.5, None)),
            Abstained(
                "not trusted between 0.3 and 0.7",
                {"a": 1, UNTRUSTED: 0.5, "untrusted_reason": "why", "untrusted_turns": (0.5, None)},
                Usage(calls=1),
            ),
        ),
        (
            Graded(0.5, "", {"turns": 3, "reason": "mine"}),
            Abstained("not trusted between 0.3 and 0.7", {"turns": 3, "reason": "mine", UNTRUSTED: 0.5}),
        ),
        (Failed("X"), Failed("X")),
        (Abstained("x", {"a": 1}), Abstained("x", {"a": 1})),
    ],
)
def test_what_is_not_trusted_abstains_and_can_be_had_back(grade: Any, kept: Any) -> None:
    assert with_trust(grade, (0.3, 0.7)) == kept
    assert untrusted(kept) == grade
    assert with_trust(kept, None) == grade
    assert with_trust(kept, (0.3, 0.7)) == kept


def test_only_where_a_trainer_hands_columns_over_a_function_gets_them() -> None:
    seen: list[dict[str, Any]] = []

    def score(solution_str: str, **more: Any) -> float:
        seen.append(more)
        return 1.0

    from_function(score).grade(Rollout(response="a", ground_truth="t", data_source="d", extra={"level": 3}))
    info = {"level": 3, "num_turns": None, "rollout_reward_scores": {}}
    assert seen == [{"data_source": "d", "ground_truth": "t", "extra_info": info}]
