"""Trees written with + and *, positional gates, numpy's numbers, values without graders, and reprs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from judgekit import Clip, ConfigError, Const, Gate, GradingRunner, Max, Product, Score, Switch, Weighted
from judgekit.graders import FinalAnswer, Length
from judgekit.reward.nodes import Node
from judgekit.reward.spec import parse

A, B = Score("a"), Score("b")


@pytest.mark.parametrize(
    ("tree", "spec"),
    [
        (0.8 * A + 0.2 * B, {"weighted": {"a": 0.8, "b": 0.2}}),
        (A * 0.8 + B, {"weighted": {"a": 0.8, "b": 1.0}}),
        (A + "b", {"weighted": {"a": 1.0, "b": 1.0}}),
        ("b" + A, {"weighted": {"b": 1.0, "a": 1.0}}),
        (A - 0.5 * B, {"weighted": {"a": 1.0, "b": -0.5}}),
        (-A + B, {"weighted": {"a": -1.0, "b": 1.0}}),
        (A + A, {"weighted": {"a": 2.0}}),
        (A + 0 * B, {"weighted": {"a": 1.0, "b": 0.0}}),
        (A * B, {"product": ["a", "b"]}),
        (A * B * "c", {"product": ["a", "b", "c"]}),
        (2 * (0.5 * A + B), {"weighted": {"a": 1.0, "b": 2.0}}),
        (0.5 * (A * B) + A, {"weighted": {"product": {"weight": 0.5, "of": {"product": ["a", "b"]}}, "a": 1.0}}),
        (A + 1, {"weighted": {"a": 1.0, "constant": {"weight": 1.0, "of": 1}}}),
        (A * (0.9 + 0.1 * B), {"product": ["a", {"weighted": {"constant": {"weight": 1.0, "of": 0.9}, "b": 0.1}}]}),
        (Clip(A, 0, 1) + Clip(A, 0, 1) + Clip(B, 0, 1), {"weighted": {
            "clip 0..1": {"weight": 2.0, "of": {"clip": {"of": "a", "low": 0.0, "high": 1.0}}},
            "clip 0..1 2": {"weight": 1.0, "of": {"clip": {"of": "b", "low": 0.0, "high": 1.0}}},
        }}),
        (Gate(A >= 1, {"a": 0.5, "b": 0.5}, 0), {"gate": {"if": "a >= 1", "then": {"weighted": {"a": 0.5, "b": 0.5}}, "otherwise": 0}}),
        (Gate(np.float32(0.5) <= A, "b", np.int64(0)), {"gate": {"if": "a >= 0.5", "then": "b", "otherwise": 0.0}}),
        (np.float64(0.5) * A + B * np.float32(2), {"weighted": {"a": 0.5, "b": 2.0}}),
        (Gate(np.float64(0.5) <= A, A, 0), {"gate": {"if": "a >= 0.5", "then": "a", "otherwise": 0}}),
        (Const(np.float32(0.5)), 0.5),
        (Score("a", np.float64(0.25), np.int32(1)), {"score": "a", "if_missing": 0.25, "if_broken": 1.0}),
        (Weighted({"a": np.float32(0.5)}), {"weighted": {"a": 0.5}}),
        (Max(A, {"a": 1.0}), {"max": ["a", {"weighted": {"a": 1.0}}]}),
    ],
)  # fmt: skip
def test_a_tree_is_what_its_formula_says(tree: Node, spec: Any) -> None:
    assert tree.spec() == spec
    assert parse(tree.spec()).spec() == spec


@pytest.mark.parametrize("wrong", [True, None, [1], b"x", float("nan"), np.True_, 1j])
def test_what_is_no_number_and_no_node_is_refused(wrong: Any) -> None:
    for make in (lambda: A + wrong, lambda: A * wrong, lambda: wrong * A):
        with pytest.raises(ConfigError):
            make()


def test_what_a_weighted_refuses_a_formula_does_too() -> None:
    with pytest.raises(ConfigError, match="'residual' is a reserved name"):
        Score("residual") + A
    with pytest.raises(ConfigError, match="the weight of 'a' is a finite number"):
        1e308 * (10 * A)


def test_a_sum_without_weight_is_refused_by_the_runner() -> None:
    with pytest.raises(ConfigError, match="at least one term with a weight other than 0"):
        GradingRunner({"a": FinalAnswer()}, 0 * A)


def test_a_trees_value_is_computed_without_graders() -> None:
    tree = Gate(Score("correct") >= 1, {"correct": 0.5, "judge": 0.5}, 0)
    assert tree.value(correct=1, judge=0.5) == 0.75
    assert tree.value(correct=0) == 0
    assert tree.value(correct=1, judge=None) is None
    assert tree.value({"correct": np.float32(1)}, judge=1) == 1
    assert Product(A, B).value(a=0.5, b=0.5) == 0.25
    assert Switch({"x": A}, otherwise=B).value(b=1) == 1
    with pytest.raises(ConfigError, match="depends on 'judge', too"):
        tree.value(correct=1)
    with pytest.raises(ConfigError, match="no grade 'jugde'; did you mean 'judge'"):
        tree.value(correct=1, jugde=1)
    with pytest.raises(ConfigError, match="correct is a finite number"):
        tree.value(correct="1")  # type: ignore[arg-type]


def test_reprs_read_like_the_file() -> None:
    graders = {"correct": FinalAnswer(), "brief": Length(soft_max=10, hard_max=20)}
    tree = Gate(Score("correct") >= 1, {"correct": 0.9, "brief": 0.1}, 0)
    runner = GradingRunner(graders, tree)
    text = "{gate: {if: correct >= 1, then: {weighted: {correct: 0.9, brief: 0.1}}, otherwise: 0}}"
    assert repr(tree) == repr(runner.reward) == text
    assert repr(runner) == f"<GradingRunner graders: {{correct: FinalAnswer, brief: Length}}, reward: {text}>"
    assert repr(Score("a")) == "a"
    assert repr(Score("correct") >= 1) == "correct >= 1"
    assert repr(Const(2)) == "2"
    assert runner.reward.value(correct=0) == 0
