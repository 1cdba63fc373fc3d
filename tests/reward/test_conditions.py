"""Conditions: spelling, missing values, laziness, text and YAML forms, lint."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from judgekit import ConfigError, Failed, Gate, Grade, Graded, Min, Score, Skipped
from judgekit.reward.conditions import Compare, Condition, condition
from judgekit.reward.nodes import score_names
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree

A, B, C = Score("a"), Score("b"), Score("c")
UNIT = (0.0, 1.0)
DOWN = Failed("JudgeUnavailable", "down")


def bound(if_: Any) -> RewardTree:
    gate = Gate(if_=if_, then="yes", otherwise="no")
    names = {"yes", "no", *(node.name for node in gate.if_.nodes())}
    return RewardTree(gate, dict.fromkeys(names, UNIT))


def grades(**scores: float | Grade | None) -> dict[str, Grade]:
    given = {k: Graded(float(v)) if isinstance(v, int | float) else v for k, v in scores.items()}
    return {k: v for k, v in given.items() if v is not None}


@pytest.mark.parametrize(
    "build",
    [
        lambda: Gate(if_=0.2 <= A <= 0.8, then=1, otherwise=0),  # type: ignore[operator]
        lambda: Gate(if_=(A >= 1) and (B >= 1), then=1, otherwise=0),
        lambda: Gate(if_=(A >= 1) or (B >= 1), then=1, otherwise=0),
        lambda: Gate(if_=not (A >= 1), then=1, otherwise=0),
        lambda: 1 if A >= 1 else 0,
    ],
)
def test_python_that_would_lose_a_part_raises_with_the_right_spelling(build: Any) -> None:
    """core.md A8: 0.0 passed `0.2 <= a <= 0.8`, for only `a <= 0.8` was left."""
    with pytest.raises(ConfigError, match=r'\(0.2 <= Score\("a"\)\) & \(Score\("a"\) <= 0.8\)'):
        build()


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("a >= 1", A >= 1),
        ("0.2 <= a <= 0.8", (0.2 <= A) & (A <= 0.8)),  # noqa: SIM300
        ("a >= 1 and (b > 0.5 or not c < 0.2)", (A >= 1) & ((B > 0.5) | ~(C < 0.2))),
        ("a < 0.5 or b > 0.5 and c > 0", (A < 0.5) | ((B > 0.5) & (C > 0))),
        ("not (a < 0.5 and b >= 0.5)", ~((A < 0.5) & (B >= 0.5))),
        ("not a == 1", Compare(A, "!=", 1)),
        ("a>=-1e-1", A >= -0.1),
        ("a >= 0.123456789", A >= 0.123456789),
    ],
)
def test_text_and_python_say_the_same(text: str, python: Condition) -> None:
    assert condition(text, Score).spec() == python.spec()
    assert condition(str(python), Score).spec() == python.spec()


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "1", "a >= b", "1 >= 2", "a >= nan", "a >= 1e999", "a = 1", "a >= 1 and", "(a >= 1", "a >= 1)",
        "a >= 1, b >= 1", "a >= (b >= 1)", "f(a) >= 1", "a is b", "not", "a >= 1 b", "(a >= 1) >= 1", "a >= 1\nb < 1",
    ],
)  # fmt: skip
def test_text_that_is_no_condition_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a condition such as 'correct >= 1'"):
        condition(text, Score)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: A >= "much", "threshold of a condition is a finite number, not 'much'"),  # type: ignore[operator]
        (lambda: math.nan <= A, "finite number, not nan"),
        (lambda: A < True, "finite number, not True"),
        (lambda: A > 10**400, "finite number"),
        (lambda: (A >= 1) & True, "True is not a condition"),  # type: ignore[operator]
        (lambda: Gate(if_=A == 1, then=1, otherwise=0), "write == and != as text"),  # type: ignore[arg-type]
        (lambda: Compare(A, "=>", 1), "one of >= > <= < == !=, not '=>'"),
    ],
)
def test_what_is_no_threshold_or_condition_is_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


@pytest.mark.parametrize(
    ("text", "a", "b", "expected"),
    [
        ("a >= 1 and b >= 1", 0, DOWN, False),
        ("a >= 1 and b >= 1", DOWN, 0, False),
        ("a >= 1 and b >= 1", 1, DOWN, None),
        ("a >= 1 or b >= 1", 1, DOWN, True),
        ("a >= 1 or b >= 1", DOWN, 1, True),
        ("a >= 1 or b >= 1", DOWN, 0, None),
        ("not (a >= 1 and b >= 1)", DOWN, 0, True),
        ("not a >= 1 or b >= 1", DOWN, DOWN, None),
    ],
)
def test_a_missing_value_counts_only_where_it_matters(
    text: str, a: float | Grade, b: float | Grade, expected: bool | None
) -> None:
    ev = bound(text).evaluate(grades(a=a, b=b, yes=1, no=0))
    assert ev.value == (None if expected is None else float(expected))
    assert bool(ev.missing) is (expected is None)


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("a >= 1 and b >= 1", {}, ["a"]),
        ("a >= 1 and b >= 1", {"a": 0}, ["no"]),
        ("a >= 1 and b >= 1", {"a": 1}, ["b"]),
        ("a >= 1 and b >= 1", {"a": DOWN}, ["b"]),
        ("a >= 1 and b >= 1", {"a": DOWN, "b": 0}, ["no"]),
        ("a >= 1 and b >= 1", {"a": DOWN, "b": 1}, []),
        ("a >= 1 and b >= 1", {"b": 0}, ["no"]),
        ("a >= 1 or b >= 1", {"a": 1}, ["yes"]),
        ("a >= 1 or (b >= 1 and c >= 1)", {"a": 0, "b": 0}, ["no"]),
        ("a >= 1 or (b >= 1 and c >= 1)", {"a": 0, "b": 1}, ["c"]),
    ],
)
def test_only_what_can_still_decide_is_asked(text: str, known: dict[str, Any], expected: list[str]) -> None:
    assert bound(text).wanted(grades(**known)) == expected


def test_a_grade_that_was_not_needed_is_neither_missing_nor_replaced() -> None:
    tree = RewardTree(
        Gate(if_=(A >= 1) & (Score("b", if_missing=0.5) > 0), then=1, otherwise=0), {"a": UNIT, "b": UNIT}
    )
    assert tree.gate_of == {"b": "(a >= 1 and b > 0) depends on it"}
    ev = tree.evaluate(grades(a=0, b=Skipped("")))
    assert (ev.value, ev.missing, ev.policies) == (0.0, (), [])


@pytest.mark.parametrize(
    "if_",
    [
        "0.2 <= a <= 0.8",
        (A >= 1) & ((B > 0.5) | ~(C < 0.2)),
        (Min("a", "b") > 0.5) & (C > 0.123456789),
        ~((Score("a", if_missing=0.5) > 0.5) | (B <= 0)),
        Score("with space") >= 1,
        Score("and") >= 1,
        Score("7") >= 1,
    ],
)
def test_yaml_form_reads_back(if_: Any) -> None:
    gate = Gate(if_=if_, then=1, otherwise=0)
    assert parse(yaml.safe_load(yaml.safe_dump(gate.spec()))).spec() == gate.spec()


names = st.sampled_from("abc")
texts = st.recursive(
    st.builds("{} {} {}".format, names, st.sampled_from([">=", "<", "=="]), st.sampled_from([0, 0.5, 1])),
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=5,
)


@given(texts, st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([0.0, 0.5, 1.0]))))
def test_conditions_mean_what_python_means(text: str, values: dict[str, float]) -> None:
    read = condition(text, Score)
    expected = eval(text, {}, values)
    assert read.holds(lambda node: values[node.name]) is expected
    assert condition(str(read), Score).holds(lambda node: values[node.name]) is expected


@given(texts, st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([0.0, 0.5, 1.0, None]))))
def test_asking_one_by_one_leads_to_what_all_grades_say(text: str, values: dict[str, float | None]) -> None:
    node = Gate(if_=text, then=1, otherwise=0)
    try:
        tree = RewardTree(node, dict.fromkeys(score_names(node), (-9.0, 9.0)))
    except ConfigError:  # it can never pass
        return
    known: dict[str, Grade] = {}
    while wanted := tree.wanted(known):
        for name in wanted:
            value = values[name]
            known[name] = DOWN if value is None else Graded(value)
    lazy = tree.evaluate({name: known.get(name, Skipped("")) for name in tree.names})
    eager = tree.evaluate({n: DOWN if values[n] is None else Graded(values[n] or 0.0) for n in tree.names})
    assert lazy.value == eager.value


@pytest.mark.parametrize(
    ("if_", "says"),
    [
        ("a > 0.8 and a < 0.2", "can never pass: a lies in 0..1"),
        ("a >= 2 and b > 0.5", "can never pass: a lies in 0..1, b lies in 0..1"),
        ("a > 1 or b > 1", "can never pass"),
        ("a != 0 and a == 0", "can never pass"),
    ],
)
def test_a_gate_that_cannot_pass_is_an_error(if_: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        bound(if_)


@pytest.mark.parametrize(
    ("if_", "warnings"),
    [
        ("a > 0.2 and a < 0.8", ()),
        ("a >= 1 and b <= 0", ()),
        ("0 < a < 1", ()),
        ("a <= 0.5 or a > 0.5", ("the gate a <= 0.5 or a > 0.5 always passes: a lies in 0..1",)),
        (
            "a >= 0 or b > 0.5",
            ("the gate a >= 0 or b > 0.5 always passes: a lies in 0..1, b lies in 0..1",),
        ),
        (
            "a >= 2 or b > 0.5",
            ("in the gate a >= 2 or b > 0.5, a >= 2 is always false: a lies in 0..1",),
        ),
    ],
)
def test_a_part_that_decides_nothing_is_a_warning(if_: str, warnings: tuple[str, ...]) -> None:
    assert bound(if_).warnings == warnings


def test_so_many_graders_are_not_searched_through() -> None:
    names = [f"g{i}" for i in range(40)]
    bound(" and ".join(f"{name} > 0.5" for name in names))
