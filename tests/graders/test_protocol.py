"""Functions as graders, mapped fields, and what a grader may return."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from judgekit import (
    Abstained,
    ConfigError,
    Failed,
    Grade,
    Graded,
    GradingRunner,
    Mapped,
    Rollout,
    RolloutError,
    Skipped,
    Usage,
    VerdictError,
    grader,
    group_grader,
)
from judgekit.errors import GraderRaised, JudgeUnavailable
from judgekit.graders import FinalAnswer
from judgekit.graders.protocol import as_grade, check_grader, failure, of_turns
from judgekit.types import turn_texts

ROLLOUT = Rollout(
    prompt="2+2?",
    response="4",
    ground_truth={"final": "4"},
    messages=[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4"}],
    extra={"answer": "four", "hard": True},
)


@grader(fields={"answer": "extra.answer"}, score_range=(0, 10), version="3")
def words(answer: str, response: str, scale: float = 2.0) -> float:
    return len(answer) * scale


def test_parameters_are_filled_by_name_and_path() -> None:
    assert words.grade(ROLLOUT) == 8.0
    assert (words.name, words.version, words.score_range) == ("words", "3", (0, 10))
    assert words("abc", "x", 1.0) == 3.0


def test_a_path_that_leads_nowhere_abstains() -> None:
    assert words.grade(Rollout(response="")) == Abstained("extra.answer is not there")


def test_a_parameter_with_a_default_may_have_no_path() -> None:
    @grader(fields={"hard": "extra.hard"})
    def easy(response: str, hard: bool = False) -> bool:
        return not hard

    assert easy.grade(ROLLOUT) is False
    assert easy.grade(Rollout(response="")) is True


def test_mapped_renames_fields_for_any_grader() -> None:
    @grader
    def same(response: str, ground_truth: Any) -> bool:
        return bool(response.endswith(ground_truth))

    mapped = Mapped(same, {"response": "messages.-1.content", "ground_truth": "ground_truth.final"})
    assert mapped.grade(ROLLOUT) is True
    assert mapped.grade(Rollout(response="4")) == Abstained("messages.-1.content is not there")
    swapped = Mapped(same, lambda r: Rollout(response="x", ground_truth="x"))
    assert swapped.grade(ROLLOUT) is True
    with pytest.raises(ConfigError, match="did you mean 'response'"):
        Mapped(same, {"respnse": "extra.x"})


def test_a_decorated_function_pickles_as_itself() -> None:
    assert pickle.loads(pickle.dumps(words)) is words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, Graded(1.0)),
        (True, Graded(1.0)),
        (0.5, Graded(0.5)),
        (Graded(1), Graded(1.0)),
        (None, Abstained("returned None")),
        (Failed("X"), Failed("X")),
        (float("nan"), Failed("ScoreNotFinite", "the score is nan")),
        (1.0000001, Failed("ScoreOutOfRange", "1 is outside 0..1")),
        (10**400, Failed("ScoreOutOfRange", "the score is an integer beyond the floats")),
        (Graded(10**400), Failed("ScoreOutOfRange", "the score is an integer beyond the floats")),
        (np.float32(0.5), Graded(0.5)),
        (np.array(0.5), Graded(0.5)),
        (Graded(np.float32(0.5), "why", {"a": 1}), Graded(0.5, "why", {"a": 1})),
        (Graded(np.bool_(True)), Graded(1.0)),
        (Graded(0.5, "why", {"a": 1}, Usage(calls=1)), Graded(0.5, "why", {"a": 1}, Usage(calls=1))),
        (Graded(float("nan")), Failed("ScoreNotFinite", "the score is nan")),
        (Graded("0.5"), Failed("TypeError", "a score is a number, not '0.5'")),  # type: ignore[arg-type]
        (Graded(1.0, None), Failed("TypeError", "a grade's reason is text, not NoneType")),  # type: ignore[arg-type]
        (Graded(1.0, "", []), Failed("TypeError", "a grade's metadata is a mapping, not list")),  # type: ignore[arg-type]
        (
            Graded(1.0, usage={"n": 1}),  # type: ignore[arg-type]
            Failed("TypeError", "a grade's usage is a Usage of whole numbers, not {'n': 1}"),
        ),
        (
            Abstained("", usage=Usage(calls=1, prompt_tokens=None)),  # type: ignore[arg-type]
            Failed(
                "TypeError",
                "a grade's usage is a Usage of whole numbers, not Usage(calls=1, prompt_tokens=None, cached_tokens=0, completion_tokens=0)",
            ),
        ),
        (
            Graded(1.0, usage=Usage(completion_tokens=1.5)),  # type: ignore[arg-type]
            Failed(
                "TypeError",
                "a grade's usage is a Usage of whole numbers, not Usage(calls=0, prompt_tokens=0, cached_tokens=0, completion_tokens=1.5)",
            ),
        ),
        (
            Failed("X", retryable=None),  # type: ignore[arg-type]
            Failed("TypeError", "a failure's retryable is True or False, not None"),
        ),
        (Abstained(None), Failed("TypeError", "a grade's reason is text, not NoneType")),  # type: ignore[arg-type]
        (Failed("X", b""), Failed("TypeError", "a grade's detail is text, not bytes")),  # type: ignore[arg-type]
        (
            Failed("X", cause="me"),
            Failed("TypeError", "a failure's cause is 'infrastructure' or 'rollout', not 'me'"),
        ),  # type: ignore[arg-type]
        (Skipped("x"), Failed("TypeError", "a grader returns a number, None or a Grade, not Skipped")),
        ("1", Failed("TypeError", "a grader returns a number, None or a Grade, not str")),
    ],
)
def test_as_grade(value: Any, expected: Any) -> None:
    assert as_grade(value, (0.0, 1.0)) == expected


def test_infinite_bounds_are_allowed_infinite_scores_are_not() -> None:
    wide = (float("-inf"), float("inf"))
    assert as_grade(-1e300, wide) == Graded(-1e300)
    assert isinstance(as_grade(float("inf"), wide), Failed)


class Odd:
    """Whatever is asked of it raises."""

    ndim = 0

    def item(self) -> float:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


class Sly(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    @property
    def usage(self) -> Usage:
        raise RuntimeError

    @property
    def retryable(self) -> bool:
        raise RuntimeError


class SlyVerdict(VerdictError):
    raw = 7  # type: ignore[assignment]

    def __init__(self) -> None:
        Exception.__init__(self, "x")


def test_values_that_raise_cost_their_own_grade() -> None:
    for value in (Odd(), Graded(Odd()), Graded(0.5, Odd())):  # type: ignore[arg-type]
        assert isinstance(as_grade(value, (0.0, 1.0)), Failed)
    runner = GradingRunner(
        {
            "odd": grader(lambda response: Odd()),
            "huge": grader(lambda response: 10**400),
            "fine": grader(lambda response: 1),
        },
        {"fine": 1, "odd": 0, "huge": 0},
    )
    (result,) = runner.run_sync([Rollout(response="")])
    assert result.reward == 1.0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), Failed("ValueError", "x")),
        (JudgeUnavailable("down"), Failed("JudgeUnavailable", "down", retryable=True)),
        (RolloutError("bomb"), Failed("RolloutError", "bomb", cause="rollout")),
        (GraderRaised("E", "d", False, True), Failed("E", "d", cause="rollout")),
        (GraderRaised("E", "d", False, False), Failed("E", "d")),
        (VerdictError("none", "raw"), Failed("VerdictError", "none", metadata={"raw": "raw"})),
        (Sly(), Failed("Sly", "(its text cannot be had: str() raised RuntimeError)")),
        (SlyVerdict(), Failed("SlyVerdict", "x")),
    ],
)
def test_failure(error: BaseException, expected: Failed) -> None:
    assert failure(error) == expected


@pytest.mark.parametrize("kind", [UnicodeDecodeError, UnicodeError, MemoryError, RecursionError, OSError])
def test_a_class_of_exception_does_not_blame_the_rollout(kind: type[Exception]) -> None:
    """core.md A4: a proxy's page that is no UTF-8 was paid as a score."""
    error = kind("utf-8", b"", 0, 1, "x") if kind is UnicodeDecodeError else kind("x")
    assert failure(error).cause == "infrastructure"


def test_only_a_usage_is_a_usage() -> None:
    error = VerdictError("x")
    error.usage = Usage(calls=2)
    assert failure(error).usage == Usage(calls=2)
    error.usage = {"calls": 2}
    assert failure(error).usage is None


class Plain:
    name, version, score_range = "plain", "1", (0.0, 1.0)

    def grade(self, rollout: Rollout) -> float:
        return 1.0


def with_(**changes: Any) -> Any:
    made = Plain()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (FinalAnswer, r"FinalAnswer is a class; call it: FinalAnswer\(\)"),
        (lambda response: 1, "decorate the function with @judgekit.grader"),
        (with_(version=None), "version is text such as '1', not None"),
        (with_(version=2), "version is text such as '1', not 2"),
        (with_(score_range=(0, 10**400)), "score_range is"),
        (with_(score_range=("a", "b")), "score_range is"),
        (with_(timeout_s="3"), "timeout_s is a number of seconds"),
        (with_(timeout_s=True), "timeout_s is a number of seconds"),
        (with_(where="elsewhere"), "where is 'inline'"),
    ],
)
def test_what_is_no_grader_is_said_at_construction(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_grader("mine", given)
    with pytest.raises(ConfigError, match=says):
        GradingRunner({"mine": given})


def test_options_of_the_call_form_are_applied() -> None:
    def polite(answer: str) -> float:
        return 5.0

    made = grader(
        polite, name="p", where="thread", score_range=(0, 10), fields={"answer": "extra.answer"}, version="2"
    )
    assert (made.name, made.where, made.score_range, made.version) == ("p", "thread", (0, 10), "2")
    assert made.grade(ROLLOUT) == 5.0
    assert group_grader(lambda rollouts: [1], name="g", score_range=(0, 2)).name == "g"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: grader(lambda response, ground_thruth="": 1), "did you mean 'ground_truth'"),
        (lambda: grader(lambda response, *, promts="": 1), "did you mean 'prompt'"),
        (
            lambda: grader(lambda prompts, completions, **kwargs: 1),
            r"\*\*kwargs does not show .*from_function",
        ),
        (lambda: grader(lambda response, **kwargs: 1), "def f\\(response, ground_truth\\)"),
        (lambda: grader(lambda *args: 1), r"\*args does not show"),
        (lambda: grader(FinalAnswer), "a class is not a function; call it: FinalAnswer"),
        (lambda: grader(lambda answer: 1), "or set its path: fields="),
    ],
)
def test_a_function_whose_parameters_would_never_be_filled_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_a_parameter_that_keeps_its_default_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def mine(response: str, answer: str = "") -> float:
        return 1.0

    def setting(response: str, *, limit: int = 3) -> float:
        return 1.0

    with caplog.at_level(logging.WARNING, "judgekit"):
        for _ in range(3):
            grader(mine)
            grader(setting)
            grader(fields={"answer": "extra.answer"})(mine)
    assert len(caplog.messages) == 1
    assert "no field of a rollout is called 'answer', so it keeps its default" in caplog.messages[0]


async def test_a_mapped_group_grader_maps_each_member() -> None:
    @group_grader
    def longest(rollouts: Sequence[Rollout]) -> list[float]:
        most = max(len(r.response) for r in rollouts)
        return [float(len(r.response) == most) for r in rollouts]

    mapped = Mapped(longest, {"response": "extra.text"})
    rollouts = [Rollout(response="", group="g", extra={"text": t} if t else {}) for t in ("a", "abc", "")]
    grades = [r.grades["longest"] for r in await GradingRunner([mapped]).run(rollouts)]
    assert grades == [Graded(0.0), Graded(1.0), Abstained("extra.text is not there")]
    alone = [r.grades["longest"] for r in await GradingRunner([mapped]).run(rollouts[1:])]
    assert alone == [Abstained("no other member is left"), Abstained("extra.text is not there")]


def test_mapped_around_what_is_no_grader_is_refused() -> None:
    with pytest.raises(ConfigError, match="call it"):
        Mapped(FinalAnswer, {"response": "extra.x"})  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(Mapped(FinalAnswer(), {"response": "extra.x"}))).name == "final_answer"


class Judge:
    """Has what only some graders have."""

    name, version, score_range = "judge", "1", (0.0, 1.0)
    timeout_s, max_concurrency, outputs, judge = 5.0, 3, ("clear", "kind"), "a judge"

    def __init__(self) -> None:
        self.warm = 0

    def warm_up(self) -> None:
        self.warm += 1

    async def grade(self, rollout: Rollout, /) -> dict[str, float]:
        return {"clear": float(rollout.response), "kind": 1.0}


def test_a_mapped_grader_is_what_the_grader_is_besides() -> None:
    judge = Judge()
    mapped: Any = pickle.loads(pickle.dumps(Mapped(judge, {"response": "extra.score"})))
    assert inspect.iscoroutinefunction(mapped.grade)
    assert (mapped.timeout_s, mapped.max_concurrency, mapped.judge) == (5.0, 3, "a judge")
    runner = GradingRunner({"judge": mapped})
    asyncio.run(runner.start())
    assert mapped.warm == mapped.inner.warm == 1
    (result,) = runner.run_sync([Rollout(response="", extra={"score": "0.25"})])
    assert result.score("judge.clear") == 0.25
    assert not hasattr(mapped, "grade_group")


class Ranks:
    """A group grader that is not asynchronous, and gives its grades one by one."""

    name, version, score_range = "ranks", "1", (0.0, 1.0)

    def grade_group(self, rollouts: Sequence[Rollout], /) -> Iterator[float]:
        return (float(rollout.response) for rollout in rollouts)


@pytest.mark.parametrize("given", [Ranks(), Mapped(Ranks(), {"response": "response"})])  # type: ignore[arg-type]
def test_a_group_grader_need_be_neither_asynchronous_nor_a_list(given: Any) -> None:
    results = GradingRunner({"ranks": given}).run_sync(
        [Rollout(response="0.25", group=0), Rollout(response="0.5", group=0)]
    )
    assert [result.reward for result in results] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("max_concurrency", "4", "max_concurrency is a whole number from 1, not '4'"),
        ("max_concurrency", True, "max_concurrency is a whole number from 1, not True"),
        ("max_concurrency", 0, "max_concurrency is a whole number from 1, not 0"),
        ("outputs", "ab", "outputs are different names without dots, not 'ab'"),
        ("outputs", ("a", "a"), "outputs are different names"),
        ("outputs", ("a.b",), "outputs are different names"),
    ],
)
def test_a_wrong_option_of_a_grader_is_said_at_construction(option: str, value: Any, says: str) -> None:
    made = type("Made", (Judge,), {option: value})()
    with pytest.raises(ConfigError, match=says):
        GradingRunner({"made": made})


@pytest.mark.parametrize("annotation", [str, "str", int, "list[str]", list[str]])
def test_a_function_that_wants_a_reference_abstains_without_one(annotation: Any) -> None:
    def exact(response: str, ground_truth: Any) -> float:
        return float(response == ground_truth)

    exact.__annotations__["ground_truth"] = annotation
    assert grader(exact).grade(Rollout(response="x")) == Abstained("there is no reference")
    for nothing in ([], {}):  # no calls, no fields: not what a function of texts reads
        found = grader(exact).grade(Rollout(response="x", ground_truth=nothing))
        assert found == (0.0 if "list" in str(annotation) else Abstained("there is no reference"))
    assert grader(exact).grade(Rollout(response="x", ground_truth="x")) == 1.0


@pytest.mark.parametrize("annotation", [Any, "str | None", Any | None])
def test_a_function_that_can_do_without_a_reference_is_asked(annotation: Any) -> None:
    def exact(response: str, ground_truth: Any) -> float:
        return float(ground_truth is None)

    exact.__annotations__["ground_truth"] = annotation
    assert grader(exact).grade(Rollout(response="x")) == 1.0


def test_a_group_grader_that_wants_references_leaves_out_members_without() -> None:
    @group_grader
    def equal(ground_truth: list[str]) -> list[float]:
        return [float(one == ground_truth[0]) for one in ground_truth]

    members = [Rollout(response="x", ground_truth=given) for given in ("a", None, "b")]
    assert list(equal.grade_group(members)) == [1.0, Abstained("there is no reference"), 0.0]


TWO_TURNS = Rollout(
    response="b",
    messages=[
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "seen"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "b"},
    ],
)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((0.25, None), Graded(0.5, turns=(0.25, None))),
        ([1, True], Graded(0.5, turns=(1.0, 1.0))),
        (np.array([0.25, 1.0]).tolist(), Graded(0.5, turns=(0.25, 1.0))),
        ((np.float32(0.25), np.int64(1)), Graded(0.5, turns=(0.25, 1.0))),
        ((0.5, math.nan), Failed("ScoreNotFinite", "turn 2 is nan")),
        ((0.5, 1.5), Failed("ScoreOutOfRange", "turn 2: 1.5 is outside 0..1")),
        (("high", 1.0), Failed("TypeError", "turn 1 is a number or None, not 'high'")),
        ((0.5,), Failed("WrongTurns", "the grade has 1 turn(s), the rollout 2")),
        ((0.5,) * 3, Failed("WrongTurns", "the grade has 3 turn(s), the rollout 2")),
        ((), Failed("WrongTurns", "the grade has 0 turn(s), the rollout 2")),
        ("ab", Failed("TypeError", "a grade's turns are a tuple of numbers and None, not str")),
    ],
)
def test_turns_are_checked_as_scores_are(turns: Any, expected: Grade) -> None:
    """One for each turn; messages of the policy side by side are one turn."""
    assert as_grade(Graded(0.5, turns=turns), (0.0, 1.0), TWO_TURNS) == expected


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, ["r"]),
        ({"messages": [{"role": "user", "content": "q"}]}, ["r"]),
        ({"messages": TWO_TURNS.messages}, ["a", "\nb"]),
        ({"messages": TWO_TURNS.messages, "prompt": TWO_TURNS.messages[:3]}, ["\nb"]),
        ({"messages": TWO_TURNS.messages, "prompt": [{"role": "user", "content": "other"}]}, ["a", "\nb"]),
        (
            {
                "messages": [
                    {"message": {"role": "ai", "content": "a"}},
                    {"type": "function_call", "name": "f"},
                    {"type": "function_call_output", "output": "1"},
                    {"type": "function_call", "name": "g"},
                ]
            },
            ["a\n", ""],
        ),
    ],
)
def test_turns_are_what_the_policy_wrote_after_the_prompt(fields: Any, texts: list[str]) -> None:
    assert turn_texts(Rollout(response="r", **fields)) == texts


@pytest.mark.parametrize("is_async", [False, True])
def test_a_grader_per_turn_gets_each_turn(is_async: bool) -> None:
    def short(turn: str, ground_truth: str | None, *, limit: int = 1) -> Any:
        return None if turn == "a" else float(len(turn) <= limit)

    async def later(turn: str, ground_truth: str | None, *, limit: int = 1) -> Any:
        return short(turn, ground_truth, limit=limit)

    made = grader(later if is_async else short, per="turn").with_settings({"limit": 2})
    for one in (made, pickle.loads(pickle.dumps(grader(length_of_turn)))):
        assert one.gives_turns in (True, None)
    value = made.grade(TWO_TURNS)
    grade = asyncio.run(_awaited(value)) if is_async else value
    assert grade == Graded(1.0, turns=(None, 1.0))
    assert made.reads == {"prompt", "messages", "response", "ground_truth"}


async def _awaited(value: Any) -> Any:
    return await value


def length_of_turn(turn: str = "") -> float:
    return float(len(turn) > 3)


def test_a_turn_that_fails_is_a_failure_of_the_whole() -> None:
    values = [0.5, Failed("JudgeTimeout", "late", retryable=True, usage=Usage(calls=2))]
    assert of_turns(values, (0.0, 1.0)) == Failed(
        "JudgeTimeout", "turn 2: late", retryable=True, usage=Usage(calls=2)
    )
    assert of_turns([2.0], (0.0, 1.0)) == Failed("ScoreOutOfRange", "turn 1: 2 is outside 0..1")
    assert of_turns([None, Abstained("no")], (0.0, 1.0)) == Abstained("no turn has an opinion")
    mixed = of_turns([Graded(0.25, "good", usage=Usage(calls=1)), None, 0.75], (0.0, 1.0))
    assert mixed == Graded(0.5, "turn 1: good", usage=Usage(calls=1), turns=(0.25, None, 0.75))


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda response: 1.0, {"per": "turn"}, "take it as def f\\(turn\\)"),
        (lambda turn: 1.0, {"per": "turn", "fields": {"turn": "extra.turn"}}, "take it as def f\\(turn\\)"),
        (lambda turn: 1.0, {"per": "turns"}, "per is 'rollout' or 'turn'"),
        (lambda turn: 1.0, {}, "no field 'turn'"),
    ],
)
def test_a_grader_per_turn_takes_the_turn(function: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        grader(function, **options)
