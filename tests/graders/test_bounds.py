"""How much of a text the rules look at: each bound, and one more."""

from __future__ import annotations

from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]

from judgekit import Graded, Rollout, graders, judges
from judgekit.graders import FinalAnswer, MathEquivalence
from judgekit.graders.rules import calls, committed, notation, numbers, thoughts
from judgekit.graders.rules.answers import mathtext
from judgekit.graders.rules.rule import memo


def value(text: str, **how: Any) -> Any:
    return numbers.final_answer(text, **how)


def test_the_end_of_a_long_text_is_searched() -> None:
    assert value("#### 5".ljust(65_536)) == 5
    assert value("#### 5".ljust(65_537)) == 5  # without its marker's first mark it is still the last number
    assert value("#### 5".ljust(65_537), need_marker="####") is None
    assert value("#### 5".ljust(65_542)) is None
    grade = FinalAnswer().grade(Rollout(response="#### 5 ".ljust(65_536), ground_truth="5"))
    assert isinstance(grade, Graded)
    assert grade.score == 1.0


@pytest.mark.parametrize(("digits", "read"), [(100, True), (101, False)])
def test_a_number_has_at_most_100_digits(digits: int, read: bool) -> None:
    assert (notation.whole_quantity("9" * digits) is not None) is read
    assert (value(f"#### {'9' * digits}") is not None) is read


def test_a_quantity_has_at_most_1000_characters() -> None:
    assert notation.whole_quantity("5".ljust(1000)) is not None
    assert notation.whole_quantity("5".ljust(1001)) is None


def test_the_last_number_is_looked_for_from_the_end() -> None:
    for distance in (1, 1_999, 2_000, 2_001, 8_000, 40_000):
        assert value(f"It is 12345{' word' * (distance // 5)}") == 12345
    assert value("7 " + "x" * 5_000 + "8 it is") == 7
    assert value("a" * 5_000 + "8") is None
    assert value(f"12,345 {'word ' * 10_000}") == 12345


@pytest.mark.parametrize(("between", "several"), [(74, True), (75, False)])
def test_answers_stand_side_by_side_within_80_characters(between: int, several: bool) -> None:
    text = "\\boxed{4}" + "or".center(between + 6) + "\\boxed{5}"
    found = committed.commitment(text, str)
    assert found is not None
    assert (found.text is None) is several


def test_the_last_64_markers_are_compared() -> None:
    for same, text in ((63, None), (64, "5")):
        found = committed.commitment("\\boxed{4}" + "\\boxed{5}" * same, str)
        assert found is not None
        assert found.text == text
    assert len(committed.claims("\\boxed{5} so " * 70)) == 64


def test_texts_that_are_longer_than_what_is_remembered_are_read_alike() -> None:
    for count in (99_994, 100_000, 200_000):
        assert thoughts.after_think(f"{'x' * count}</think>y") == "y"
        assert thoughts.without_thinking(f"{'x' * count}</think>y") == "y"
        assert committed.claims(f"{'x' * count}\\boxed{{5}}")[0].text == "5"


def test_a_reference_has_at_most_20000_characters() -> None:
    for count, score in ((20_000, True), (20_001, False)):
        grade = MathEquivalence().grade(
            Rollout(response="\\boxed{5}", ground_truth=f"#### {'5'.rjust(count - 5)}")
        )
        assert isinstance(grade, Graded) is score
    for count, abstains in ((1000, False), (1001, True)):
        grade = MathEquivalence().grade(Rollout(response="\\boxed{5}", ground_truth=10**count + abstains))
        assert isinstance(grade, Graded) is not abstains


X = sympy.Symbol("x")


@pytest.mark.parametrize(
    ("expression", "large"),
    [
        (sympy.Integer(10), False),
        (sympy.Integer(10) ** 99_000, False),
        (sympy.Integer(10) ** 101_000, True),
        (sympy.Pow(10, 80_000, evaluate=False), False),
        (sympy.Pow(10, 101_000, evaluate=False), True),
        (sympy.Pow(10, -101_000, evaluate=False), True),
        (sympy.Pow(10, sympy.Pow(10, 13, evaluate=False), evaluate=False), True),
        (sympy.Pow(2, sympy.Rational(1, 2), evaluate=False), False),
        (sympy.Pow(2, X, evaluate=False), False),
        (sympy.Pow(X, 5, evaluate=False), False),
        (
            sympy.Mul(
                sympy.Pow(10, 40_000, evaluate=False), sympy.Pow(3, 60_000, evaluate=False), evaluate=False
            ),
            False,
        ),
        (
            sympy.Mul(
                sympy.Pow(10, 60_000, evaluate=False), sympy.Pow(10, 60_000, evaluate=False), evaluate=False
            ),
            True,
        ),
        (sympy.factorial(sympy.Integer(5), evaluate=False), False),
        (sympy.factorial(sympy.Integer(99_999), evaluate=False), True),
        (sympy.factorial(sympy.Integer(9_999), evaluate=False), False),
        (sympy.binomial(sympy.Integer(10), 5, evaluate=False), False),
        (X, False),
        ("text", False),
    ],
)
def test_values_with_too_many_digits_are_not_worked_out(expression: Any, large: bool) -> None:
    assert mathtext.too_large(expression) is large


def test_where_an_answer_tells_an_error() -> None:
    trace = "\nTraceback (most recent call last):"
    assert calls.looks_like_an_error("x" * 100_000 + trace)  # by its end
    assert not calls.looks_like_an_error("x" * 100_000 + trace + "\nis what it wrote")
    gone = "\ncat: x: No such file or directory"
    assert calls.looks_like_an_error("x" * (2000 - len(gone)) + gone)
    assert not calls.looks_like_an_error("x" * (2001 - len(gone)) + gone)
    for count, error in ((100_000, True), (100_001, False)):
        assert calls.looks_like_an_error('{"error": "x"}'.ljust(count)) is error


def test_what_is_known_is_computed_once() -> None:
    made: list[int] = []
    ask = memo(lambda: made.append(1) or len(made))
    assert (ask(), ask(), made) == (1, 1, [1])


@pytest.mark.parametrize("package", [graders, judges])
def test_packages_know_their_names(package: Any) -> None:
    found = {name: getattr(package, name) for name in package.__all__}
    assert {name for name, one in found.items() if isinstance(one, type) and one.__name__ != name} == set()
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Nothing'"):
        _ = package.Nothing
