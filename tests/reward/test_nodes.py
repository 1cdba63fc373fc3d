"""What nodes say of themselves: bounds that are reached and never left, labels, and the account at the top."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from judgekit import (
    Clip,
    ConfigError,
    Const,
    Fallback,
    Gate,
    Graded,
    GradingRunner,
    Max,
    Min,
    Product,
    Rollout,
    Score,
    Switch,
    Weighted,
    grader,
)
from judgekit.reward.conditions import is_finite
from judgekit.reward.explain import explain
from judgekit.reward.nodes import Node, as_node, equal_weights, score_names, walk
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree

RANGES = {"a": (0.0, 1.0), "b": (-1.0, 2.0)}


def bound(root: Node) -> RewardTree:
    return RewardTree(root, {name: RANGES[name] for name in score_names(root)})


def value(root: Node, a: float | None, b: float | None, source: str = "") -> float | None:
    from judgekit import Failed

    grades = {
        name: Failed("Down") if x is None else Graded(x)
        for name, x in (("a", a), ("b", b))
        if name in score_names(root)
    }
    return bound(root).evaluate(grades, Rollout(response="", data_source=source)).value


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (Score("b"), (-1.0, 2.0)),
        (Score("a", if_missing=-3.0), (-3.0, 1.0)),
        (Score("a", if_missing=4), (0.0, 4.0)),
        (Score("a", if_broken=-2.0, if_missing=0.5), (-2.0, 1.0)),
        (Const(0.25), (0.25, 0.25)),
        (Weighted({"a": 2, "b": -1}), (-2.0, 3.0)),
        (Weighted({"a": 2, "b": -1}, normalize=True), (-2 / 3, 1.0)),
        (Weighted({"a": 2, "b": 0}), (0.0, 2.0)),
        (Weighted({"a": 1, "b": (1, Score("b", if_missing="renormalise"))}), (-2.0, 4.0)),
        (Weighted({"a": 1, "b": (1, Score("b", if_missing="renormalise"))}, normalize=True), (-1.0, 2.0)),
        (Product("a", "b"), (-1.0, 2.0)),
        (Product("b", "b"), (-2.0, 4.0)),
        (Min("a", "b"), (-1.0, 1.0)),
        (Max("a", "b"), (0.0, 2.0)),
        (Max(Score("a", if_missing="renormalise"), "b"), (-1.0, 2.0)),
        (Min("a", Score("b", if_missing="renormalise")), (-1.0, 1.0)),
        (Min(Score("a", if_missing="renormalise"), Score("b", if_missing="renormalise")), (-1.0, 2.0)),
        (Product(Clip(Score("a", if_missing="renormalise"), 0, 0.5), Clip("b", 0.5, 2)), (0.0, 2.0)),
        (Clip("b", 0, 0.5), (0.0, 0.5)),
        (Clip("b", -9, 9), (-1.0, 2.0)),
        (Clip("a", 3, 4), (3.0, 3.0)),
        (Gate(if_=Score("a") >= 0.5, then="b", otherwise=5.0), (-1.0, 5.0)),
        (Switch({"x": "a", "y": "b"}), (-1.0, 2.0)),
        (Switch({"x": "a"}, otherwise="b"), (-1.0, 2.0)),
        (Fallback("a", "b"), (-1.0, 2.0)),
    ],
    ids=str,
)
def test_bounds_are_those_of_the_values(root: Node, expected: tuple[float, float]) -> None:
    """No value leaves them, whatever is missing; and they are as written."""
    assert bound(root).bounds() == pytest.approx(expected)
    corners = {name: [low, (low + high) / 2, high, None] for name, (low, high) in RANGES.items()}
    for a, b, source in itertools.product(corners["a"], corners["b"], ("x", "y")):
        found = value(root, a, b, source)
        assert found is None or expected[0] - 1e-9 <= found <= expected[1] + 1e-9


def test_a_range_without_end_has_bounds_without_end() -> None:
    tree = RewardTree(Product("a", Score("b", if_broken=0.0)), {"a": (0.0, 1.0), "b": (-math.inf, math.inf)})
    assert tree.bounds() == (-math.inf, math.inf)
    assert RewardTree(Const(1.0), {}).bounds() == (1.0, 1.0)


@pytest.mark.parametrize(
    ("root", "label"),
    [
        (Score("a"), "a"),
        (Const(0.25), "0.25"),
        (Weighted({"a": 1}), "weighted"),
        (Clip("a", -0.5, 2), "clip -0.5..2"),
        (Gate(if_=Score("a") >= 0.5, then="b", otherwise=0), "gate a >= 0.5"),
        (Switch({"x": "a"}, by="extra.kind"), "switch by extra.kind"),
        (Product("a", "b"), "product"),
        (Fallback("a", "b"), "fallback"),
    ],
)
def test_a_label_is_a_line_of_explain(root: Node, label: str) -> None:
    assert root.label() == label
    grades = {name: Graded(1.0) for name in score_names(root)}
    assert explain(bound(root), grades).splitlines()[0].startswith(label)


@pytest.mark.parametrize(
    ("root", "spec"),
    [
        (Score("a"), "a"),
        (Score("a", if_missing=0.5), {"score": "a", "if_missing": 0.5}),
        (Score("a", if_broken=0.25), {"score": "a", "if_missing": "propagate", "if_broken": 0.25}),
        (Weighted({"a": 1, "x": (2, Const(1))}), {"weighted": {"a": 1.0, "x": {"weight": 2.0, "of": 1}}}),
        (Weighted({"a": 1}, normalize=True), {"weighted": {"a": 1.0}, "normalize": True}),
        (Clip("a", 0, 1), {"clip": {"of": "a", "low": 0.0, "high": 1.0}}),
        (Min("a", "b"), {"min": ["a", "b"]}),
        (Fallback("a", 0), {"fallback": ["a", 0]}),
        (
            Switch({"x": "a"}, otherwise=0),
            {"switch": {"by": "data_source", "cases": {"x": "a"}, "otherwise": 0}},
        ),
    ],
)
def test_yaml_form_is_short_and_reads_back(root: Node, spec: Any) -> None:
    assert root.spec() == spec
    assert parse(spec).spec() == spec


@pytest.mark.parametrize(
    ("root", "contributions"),
    [
        (Weighted({"a": 0.5, "b": 2}), {"a": 0.25, "b": 2.0, "residual": 0.0}),
        (Score("a"), {"a": 0.5, "residual": 0.0}),
        (Gate(if_=Score("a") > 0, then=Weighted({"b": 2}), otherwise=0), {"b": 2.0, "residual": 0.0}),
        (Clip(Weighted({"b": 2}), 0, 1), {"b": 2.0, "residual": -1.0}),
        (Fallback("a", "b"), {"a": 0.5, "residual": 0.0}),
        (Const(3), {"residual": 3.0}),
        # what stands below a product, a minimum or another sum is no term of the reward
        (Product(Gate(if_=Score("a") > 0, then="b", otherwise=0), 0.5), {"residual": 0.5}),
        (Min(Weighted({"b": 2}), Score("a")), {"residual": 0.5}),
        (Max(Const(3), Switch({"*": "a"}), Clip("b", 0, 1), Fallback("a", "b")), {"residual": 3.0}),
        (Weighted({"x": (2.0, Weighted({"a": 1, "b": 1}))}), {"x": 3.0, "residual": 0.0}),
    ],
    ids=str,
)
def test_contributions_are_of_the_top_level_terms(root: Node, contributions: dict[str, float]) -> None:
    grades = {name: Graded(x) for name, x in (("a", 0.5), ("b", 1.0)) if name in score_names(root)}
    ev = bound(root).evaluate(grades, Rollout(response=""))
    assert ev.contributions == pytest.approx(contributions)
    assert math.fsum(ev.contributions.values()) == pytest.approx(ev.value)


def test_a_switch_without_its_rollout_takes_the_case_that_most_grades_speak_for() -> None:
    """As replay does where a ledger keeps no texts: several cases could be told from the grades."""
    both, one = Weighted({"a": 1, "b": 1}), Weighted({"a": 3})
    for root in (Switch({"x": both, "y": one}), Switch({"y": one, "x": both})):
        grades = {"a": Graded(0.5), "b": Graded(1.0)}
        assert bound(root).evaluate(grades).value == 1.5
    tie = Switch({"x": Weighted({"a": 1}), "y": Weighted({"a": 2})})
    assert bound(tie).evaluate({"a": Graded(0.5)}).value is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "made of nodes, grader names and numbers, not None"),
        ([1], "made of nodes, grader names and numbers, not"),
        (True, "made of nodes, grader names and numbers, not True"),
        (math.nan, "const is a finite number"),
        (10**400, "const is a finite number"),
    ],
)
def test_what_is_no_node_is_said(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        as_node(given)
    with pytest.raises(ConfigError, match="const is a finite number"):
        Const(math.inf)


def test_a_condition_of_names_that_no_text_can_hold_is_written_out() -> None:
    spaced = (Score("a b") >= 1) & (Score("c") > 0.5)
    assert spaced.spec() == {"and": [{"of": "a b", "op": ">=", "than": 1}, "c > 0.5"]}
    assert ((Score("a") >= 1) & (Score("c") > 0.5)).spec() == "a >= 1 and c > 0.5"


def test_a_grade_that_is_not_there_is_said() -> None:
    assert "not graded" in explain(bound(Weighted({"a": 1})), {})


def test_names_come_once_and_in_order() -> None:
    root = Weighted({"b": 1, "x": (1, Product("a", "b")), "a": 1})
    assert score_names(root) == ("b", "a")
    assert [type(node).__name__ for node in walk(root)] == [
        "Weighted",
        "Score",
        "Product",
        "Score",
        "Score",
        "Score",
    ]
    mean = equal_weights(("a", "b"))
    assert value(mean, 0.5, 1.0) == 0.75


def test_a_clipped_score_drops_out_as_the_score_does() -> None:
    given = grader(lambda response: 0.5)
    nothing = grader(lambda response: None)
    clipped = Clip(Score("nothing", if_missing="renormalise"), 0.0, 1.0)
    runner = GradingRunner(
        {"given": given, "nothing": nothing}, Weighted({"given": 0.4, "clipped": (0.6, clipped)})
    )
    (result,) = runner.run_sync([Rollout(response="x")])
    assert (result.reward, result.status) == (pytest.approx(0.5), "scored")
    (kept,) = GradingRunner(
        {"given": given, "nothing": nothing},
        Weighted({"given": 0.4, "clipped": (0.6, Clip("nothing", 0.0, 1.0))}),
    ).run_sync([Rollout(response="x")])
    assert kept.reward is None


@pytest.mark.parametrize("normalize", ["yes", 1, None, []])
def test_whether_weights_are_shares_is_true_or_false(normalize: Any) -> None:
    with pytest.raises(ConfigError, match="normalize is true or false"):
        parse({"weighted": {"a": 1}, "normalize": normalize})


def test_a_number_beyond_the_floats_is_not_finite() -> None:
    assert [is_finite(number) for number in (1, 0.5, True, 10**400, math.inf, math.nan, "1", None)] == [
        *(True, True), *[False] * 6
    ]  # fmt: skip
