"""Functions of a group in conditions: how they are written, what is refused, and what lint says."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import (
    ConfigError,
    Gate,
    Graded,
    GradingRunner,
    Score,
    Turns,
    Weighted,
    flat,
    share,
    spread,
)
from judgekit.graders import FinalAnswer, Length
from judgekit.reward.gates import Share, Spread
from judgekit.reward.nodes import Evaluation
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree
from judgekit.run.findings import findings

RANGES = {"a": (0.0, 1.0), "b": (-1.0, 1.0)}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (flat("a"), "flat(a)"),
        (~flat("a"), "not flat(a)"),
        (flat(Score("judge.clear")), "flat(judge.clear)"),
        (spread("math:hard") < 0.1, "spread(math:hard) < 0.1"),
        (share(Score("a") >= 1) > 0.5, "share(a >= 1) > 0.5"),
        (share("a >= 1 and b < 0.5") <= 0.5, "share(a >= 1 and b < 0.5) <= 0.5"),
        (flat("a") & (spread("b") > 0.25), "flat(a) and spread(b) > 0.25"),
        ((flat("a") | (Score("b") > 0.5)) & (Score("a") >= 1), "(flat(a) or b > 0.5) and a >= 1"),
    ],
)
def test_text_and_python_say_the_same(made: Any, text: str) -> None:
    assert str(made) == text
    gate = Gate(text, "a", "b")
    assert str(gate.if_) == text
    assert parse(gate.spec()).spec() == gate.spec() == Gate(made, "a", "b").spec()


def test_flat_is_a_spread_of_at_most_a_billionth() -> None:
    assert str(spread("a") <= 1e-9) == "flat(a)"
    assert str(Gate("0.1 < spread(a) <= 0.5", 1, 0).if_) == "spread(a) > 0.1 and spread(a) <= 0.5"
    function = Spread("a")
    assert function.number([0.25, 0.25 + 1e-9]) == pytest.approx(1e-9)
    assert function.number([1.0]) is None
    assert function.number([]) is None
    assert function.number([-1.7e308, 1.7e308]) == 1.7976931348623157e308  # no infinity
    assert Share("a > 0").number([]) is None
    assert Share("a > 0").number([1.0]) == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("flat(1)", "flat takes a grader's name"),
        ("flat(a >= 1)", "flat takes a grader's name"),
        ("spread(flat(a)) > 1", "spread takes a grader's name"),
        ("spread(spread(a)) > 1", "spread takes a grader's name"),
        ("share(a) > 0.5", "share takes a condition"),
        ("share(flat(a)) > 0.5", "share takes a condition"),
        ("share(spread(a) > 1) > 0.5", "share takes a condition"),
        ("flat(a) >= 1", "is true or false"),
        ("spread(a)", "is a number: compare it"),
        ("share(a >= 1)", "is a number: compare it"),
        ("spread(a) > spread(b)", "is not a condition"),
        ("median(a) > 1", "is not a condition"),
        ("flat(a, b)", "is not a condition"),
        ("flat()", "is not a condition"),
        ("flat(name=a)", "is not a condition"),
        ("flat(a", "is not a condition"),
    ],
)
def test_what_is_no_condition_is_said(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Gate(text, 1, 0)


@pytest.mark.parametrize(
    "of", [1, None, Weighted({"a": 1}), Turns("a"), Score("a", if_missing=0), Score("a b"), ["a"]]
)
def test_python_takes_names_alone(of: Any) -> None:
    for function in (flat, spread):
        with pytest.raises(ConfigError, match="takes a grader's name"):
            function(of)
    for condition in (of, of >= 1) if isinstance(of, Weighted | Score) else (of,):
        with pytest.raises(ConfigError, match="share takes a condition"):
            share(condition)


def test_it_stands_in_a_condition_and_nowhere_else() -> None:
    for root in (
        spread("a"),
        Weighted({"a": 1, "s": (1, spread("a"))}),
        Gate(Weighted({"s": (1, spread("a"))}) > 0.5, 1, 0),
    ):
        with pytest.raises(ConfigError, match="only the condition of a gate may read"):
            RewardTree(root, {"a": (0.0, 1.0)})


def test_lint_knows_what_they_can_be() -> None:
    for text in ("spread(a) > 1", "share(a >= 1) > 1", "share(a > 2) > 0.1", "spread(b) < 0"):
        with pytest.raises(ConfigError, match="can never pass"):
            RewardTree(Gate(text, "a", "b"), RANGES)
    (warning,) = RewardTree(Gate("spread(a) >= 0", "a", "b"), RANGES).warnings
    assert warning == "the gate spread(a) >= 0 always passes: spread(a) lies in 0..1"
    with pytest.raises(ConfigError, match="the reward names 'aa', which no grader gives; did you mean 'a'"):
        RewardTree(Gate("flat(aa)", "a", "b"), RANGES)


def test_no_grader_hides_a_group_function() -> None:
    tree = RewardTree(Gate("flat(a)", "b", "spread(a)"), {**RANGES, "spread(a)": (0.0, 1.0)})
    assert list(tree.functions) == ["spread(a) #2"]
    assert tree.value({"a": 1, "spread(a) #2": 0.0, "b": 0.5}) == 0.5


def test_a_value_takes_the_groups_number_by_its_name() -> None:
    node = Gate("flat(a)", {"a": 1, "b": 0.5}, "a")
    assert node.value({"spread(a)": 0, "a": 1, "b": 1}) == 1.5
    assert node.value({"spread(a)": 1, "a": 1}) == 1
    assert node.value({"spread(a)": None, "a": 1}) is None
    with pytest.raises(ConfigError, match=r"depends on 'spread\(a\)'"):
        node.value(a=1, b=1)


def test_what_depends_on_them() -> None:
    tree = RewardTree(Gate("flat(a)", "b", 0), RANGES)
    assert tree.deciders == {"a": frozenset(), "b": {"a", "spread(a)"}}
    assert tree.function_deciders == {"spread(a)": {"a"}}
    assert tree.gate_of == {"b": "flat(a)"}
    two = RewardTree(Gate("b >= 1", Gate("flat(a)", 1, 0), 0), RANGES)
    assert two.function_deciders == {"spread(a)": {"a", "b"}}


@pytest.mark.parametrize(
    ("condition", "warns"),
    [
        ("share(correct >= 1) > 0.5", True),
        ("share(correct >= 1) >= 1", False),
        ("share(correct >= 0) >= 1", True),
        ("flat(correct)", True),
        ("spread(correct) > 0.5", True),
    ],
)
def test_a_wrong_rollout_passes_a_gate_of_its_group(condition: str, warns: bool) -> None:
    """What a gate on the group lets through need not be right: lint still warns of a form behind it."""
    graders = {"correct": FinalAnswer(), "brief": Length(soft_max=5, hard_max=9)}
    runner = GradingRunner(graders, Gate(condition, {"correct": 1, "brief": 0.5}, 0))
    told = [text for text in findings(runner) if "form alone" in text]
    assert bool(told) is warns


def test_unknown_numbers_are_missing() -> None:
    function = Spread("a")
    assert function.wanted(Evaluation({}, {})) == ["a"]
    assert function.wanted(Evaluation({"a": Graded(1)}, {})) == ["spread(a)"]
    assert Evaluation({"a": Graded(1)}, {}).of(function) is None
