"""Functions as graders, mapped fields, and what a grader may return."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, Mapped, Rollout, grader
from judgekit.graders.protocol import as_grade

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
    ],
)
def test_as_grade(value: Any, expected: Any) -> None:
    assert as_grade(value, (0.0, 1.0)) == expected


def test_infinite_bounds_are_allowed_infinite_scores_are_not() -> None:
    wide = (float("-inf"), float("inf"))
    assert as_grade(-1e300, wide) == Graded(-1e300)
    assert isinstance(as_grade(float("inf"), wide), Failed)
