"""The reward tree: values, laziness, missing grades, the account, lint, YAML."""

from __future__ import annotations

import math
import pickle

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from judgekit import (
    Abstained,
    Clip,
    ConfigError,
    Const,
    Failed,
    Fallback,
    Gate,
    Grade,
    Graded,
    Max,
    Min,
    Product,
    RewardResult,
    Score,
    Switch,
    Weighted,
)
from judgekit.reward.explain import explain, explain_result, why_missing
from judgekit.reward.nodes import Node
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree

UNIT = (0.0, 1.0)
DOWN = Failed("JudgeUnavailable", "down")
BROKE = Failed("WorkerRanAway", "ran away", cause="rollout")


def tree(root: Node, *names: str, **ranges: tuple[float, float]) -> RewardTree:
    return RewardTree(root, {**dict.fromkeys(names, UNIT), **ranges})


def grades(**scores: float | Grade) -> dict[str, Grade]:
    return {k: Graded(float(v)) if isinstance(v, int | float) else v for k, v in scores.items()}


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (Weighted({"a": 0.8, "b": 0.2}), 0.8 * 0.5 + 0.2 * 1.0),
        (Weighted({"a": 3, "b": 1}, normalize=True), (3 * 0.5 + 1) / 4),
        (Weighted({"a": 1, "b": -0.5}), 0.0),
        (Weighted({"a": 1, "b": -1}, normalize=True), -0.25),
        (Score("a"), 0.5),
        (Product("a", "b"), 0.5),
        (Min("a", "b"), 0.5),
        (Max("a", "b"), 1.0),
        (Clip(Weighted({"a": 4, "b": 0}), -1, 1), 1.0),
        (Weighted({"a": 1, "bonus": (0.5, Const(1))}), 1.0),
        (Gate(if_=Score("b") >= 1, then="a", otherwise=-1), 0.5),
        (Gate(if_="b < 1", then="a", otherwise=-1), -1.0),
        (Fallback("a", "b"), 0.5),
    ],
)
def test_value(root: Node, expected: float) -> None:
    bound = RewardTree(root, dict.fromkeys(_names(root), UNIT))
    assert bound.evaluate(grades(a=0.5, b=1.0)).value == pytest.approx(expected)


def _names(root: Node) -> set[str]:
    found = {root.name} if isinstance(root, Score) else set()
    return found.union(*(_names(branch.node) for branch in root.branches()))


def test_a_missing_grade_makes_the_reward_missing() -> None:
    for gone in (DOWN, Abstained("no reference")):
        ev = tree(Weighted({"a": 0.8, "b": 0.2}), "a", "b").evaluate(grades(a=gone, b=1.0))
        assert ev.value is None
        assert ev.missing == ("a",)
        assert ev.contributions == {}


def test_renormalise_gives_the_weight_to_the_others_and_says_so() -> None:
    root = Weighted({"a": (0.6, Score("a", if_missing="renormalise")), "b": 0.2, "c": 0.2})
    ev = tree(root, "a", "b", "c").evaluate(grades(a=DOWN, b=1.0, c=0.0))
    assert ev.value == pytest.approx(0.5)
    assert ev.policies == ["a: missing, its weight goes to the others"]
    assert ev.missing == ()


def test_renormalise_with_nothing_left_is_missing() -> None:
    root = Weighted({"a": (1, Score("a", if_missing="renormalise"))})
    ev = tree(root, "a").evaluate(grades(a=DOWN))
    assert ev.value is None
    assert ev.missing == ("a",)


@pytest.mark.parametrize(
    "root",
    [
        Weighted({"quality": (1, Score("a", if_missing="renormalise"))}),
        Weighted({"x": (1, Score("a", if_missing="renormalise")), "y": (1, Min("b", 1))}),
        Min(Clip(Score("a", if_missing="renormalise"), 0, 1)),
        Product(Score("a", if_missing="renormalise"), "b"),
    ],
)
def test_missing_names_graders_not_terms_and_nothing_is_said_to_be_left_out(root: Node) -> None:
    ev = RewardTree(root, dict.fromkeys(_names(root), UNIT)).evaluate(grades(a=DOWN, b=DOWN))
    assert (set(ev.missing), ev.policies) == (_names(root), [])
    assert "a: JudgeUnavailable: down" in why_missing(ev)


def test_a_written_number_counts_and_says_so() -> None:
    ev = tree(Weighted({"a": (1, Score("a", if_missing=0.25)), "b": 1}), "a", "b").evaluate(
        grades(a=DOWN, b=0.5)
    )
    assert ev.value == pytest.approx(0.75)
    assert ev.policies == ["a: missing, counts as 0.25"]


def test_a_rollout_that_breaks_its_grader_gets_the_low_end_not_neutral() -> None:
    bound = tree(Weighted({"a": 1, "b": 1}), "b", a=(-1.0, 1.0))
    ev = bound.evaluate(grades(a=BROKE, b=0.5))
    assert ev.value == pytest.approx(-0.5)
    assert ev.policies == ["a: broken by the rollout, counts as -1"]
    written = tree(Weighted({"a": (1, Score("a", if_broken=-3)), "b": 1}), "a", "b")
    assert written.evaluate(grades(a=BROKE, b=0.5)).value == pytest.approx(-2.5)


def test_a_weight_of_zero_observes_and_cannot_make_the_reward_missing() -> None:
    bound = tree(Weighted({"a": 1, "watch": 0}), "a", "watch")
    assert bound.evaluate(grades(a=0.5, watch=DOWN)).value == 0.5
    assert "watch" in bound.wanted({})


def test_gate_asks_only_what_it_needs() -> None:
    bound = tree(
        Gate(if_=Score("ok") >= 1, then=Weighted({"judge": 1}), otherwise="cheap"), "ok", "judge", "cheap"
    )
    assert bound.wanted({}) == ["ok"]
    assert bound.wanted(grades(ok=1)) == ["judge"]
    assert bound.wanted(grades(ok=0)) == ["cheap"]
    assert bound.wanted(grades(ok=DOWN)) == []
    assert bound.evaluate(grades(ok=DOWN)).missing == ("ok",)
    assert bound.gate_of == {"judge": "ok >= 1", "cheap": "ok < 1"}


def test_fallback_is_asked_only_where_the_first_is_missing_and_is_counted() -> None:
    bound = tree(Fallback("judge", "lexical"), "judge", "lexical")
    assert bound.wanted({}) == ["judge"]
    assert bound.wanted(grades(judge=0.5)) == []
    assert bound.wanted(grades(judge=DOWN)) == ["lexical"]
    ev = bound.evaluate(grades(judge=DOWN, lexical=0.75))
    assert ev.value == 0.75
    assert ev.missing == ()
    assert ev.policies == ["judge: missing, fallback to lexical"]
    assert bound.evaluate(grades(judge=DOWN, lexical=DOWN)).missing == ("judge", "lexical")


def test_contributions_and_residual_account_for_gates_and_clips() -> None:
    root = Clip(Gate(if_=Score("ok") >= 1, then=Weighted({"a": 2, "b": 1}), otherwise=0), 0, 1)
    ev = tree(root, "ok", "a", "b").evaluate(grades(ok=1, a=0.5, b=0.5))
    assert ev.contributions == {"a": 1.0, "b": 0.5, "residual": -0.5}


score = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(st.floats(-10, 10), score), min_size=1, max_size=6), st.booleans())
def test_contributions_and_residual_sum_to_the_reward(
    terms: list[tuple[float, float]], normalize: bool
) -> None:
    weights = {f"t{i}": w for i, (w, _) in enumerate(terms)}
    if not any(weights.values()):
        return
    bound = RewardTree(
        Clip(Weighted(weights, normalize=normalize), -100, 100), dict.fromkeys(weights, (-1e6, 1e6))
    )
    ev = bound.evaluate({f"t{i}": Graded(s) for i, (_, s) in enumerate(terms)})
    assert ev.value is not None
    assert math.fsum(ev.contributions.values()) == pytest.approx(ev.value, rel=1e-9, abs=1e-6)
    low, high = bound.bounds()
    assert low - 1e-9 <= ev.value <= high + 1e-9


def test_a_sum_that_leaves_the_floats_is_missing_not_infinite() -> None:
    huge = (-1.7e308, 1.7e308)
    ev = tree(Weighted({"a": 1, "b": 1}), a=huge, b=huge).evaluate(grades(a=1.7e308, b=1.7e308))
    assert ev.value is None
    assert ev.missing == ()
    assert ev.policies == ["the reward is too large for a float"]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: tree(Weighted({"corect": 1}), "correct"), "did you mean 'correct'"),
        (lambda: tree(Weighted({"a": 1}), "a", "b"), "grader 'b' is in no part of the reward"),
        (lambda: Weighted({"a": 0}), "a weight other than 0"),
        (lambda: Weighted({}), "a weight other than 0"),
        (lambda: Weighted({"a": math.nan}), "finite number"),
        (lambda: Weighted({"residual": 1}), "reserved"),
        (
            lambda: tree(Gate(if_="a >= 2", then="b", otherwise=0), "a", "b"),
            "can never pass: a lies in 0..1",
        ),
        (lambda: Gate(if_="a is big", then="b", otherwise=0), "not a condition such as 'correct >= 1'"),
        (lambda: tree(Score("a"), a=(-math.inf, math.inf)), "if_broken"),
        (lambda: tree(Score("a", if_missing="renormalise"), "a"), "only has a meaning inside weighted"),
        (lambda: Score("a", if_missing="ignore"), "'propagate', 'renormalise' or a number"),  # type: ignore[arg-type]
        (lambda: Clip("a", 1, 0), "must be below"),
        (lambda: Product(), "at least one node"),
        (lambda: Product(None), "not None"),
    ],
)
def test_what_is_wrong_is_said_at_construction(build: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()  # type: ignore[operator]


def test_a_gate_that_always_passes_is_a_warning() -> None:
    assert tree(Gate(if_="a >= 0", then="b", otherwise=0), "a", "b").warnings == (
        "the gate a >= 0 always passes: a lies in 0..1",
    )


ROOTS = [
    Weighted({"a": 0.8, "b": 0.2}, normalize=True),
    Weighted({"a": (0.5, Clip("a", 0, 0.5)), "b": (1, Score("b", if_missing=0.5, if_broken=-1))}),
    Gate(if_="a >= 0.5", then=Product("a", "b"), otherwise=Max("a", Const(0.25))),
    Gate(if_=Min("a", "b") > 0.5, then="a", otherwise="b"),
    Fallback(Score("a"), Min("b", 1)),
]


@pytest.mark.parametrize("root", ROOTS)
def test_yaml_form_reads_back_and_trees_pickle(root: Node) -> None:
    again = parse(yaml.safe_load(yaml.safe_dump(root.spec())))
    assert again.spec() == root.spec()
    for a in (0.0, 0.5, 1.0, DOWN, BROKE):
        given = grades(a=a, b=0.25)
        value = tree(root, "a", "b").evaluate(given).value
        assert tree(again, "a", "b").evaluate(given).value == value
        assert tree(pickle.loads(pickle.dumps(root)), "a", "b").evaluate(given).value == value


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"wieghted": {"a": 1}}, "did you mean 'weighted'"),
        ({"weighted": {"a": 1}, "normalise": True}, "did you mean 'normalize'"),
        ({"gate": {"if": "a >= 1", "then": "b"}}, "all three written"),
        ({"weighted": {"a": {"wait": 1}}}, "is a weight, or"),
        ({"weighted": {"a": "much"}}, "finite number"),
        ({"fallback": ["a"]}, "list of 2"),
        (["a"], "expected a mapping"),
    ],
)
def test_yaml_faults_are_named(spec: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(spec)


def test_explain_shows_the_numbers() -> None:
    root = Weighted({"correct": 0.8, "judged": (0.2, Gate(if_="correct >= 1", then="judge", otherwise=0))})
    bound = tree(root, "correct", "judge")
    assert explain(bound, grades(correct=1, judge=DOWN)) == (
        "weighted = missing\n"
        "  0.8 × correct = 1\n"
        "  0.2 × gate correct >= 1 = missing\n"
        "    if correct = 1\n"
        "    then judge = missing (failed: JudgeUnavailable)"
    )
    assert "otherwise 0 = 0" in explain(bound, grades(correct=0))


def result(reward: float | None, status: str, raw: float | None, **given: Grade) -> RewardResult:
    return RewardResult(
        index=0,
        group="g",
        reward=reward,
        status=status,  # type: ignore[arg-type]
        raw_reward=raw,
        contributions={},
        grades=given,
    )


@pytest.mark.parametrize(
    ("made", "transform", "last"),
    [
        (result(0.5, "scored", 0.5, a=Graded(0.5)), "none", "a = 0.5"),
        (result(1.2, "scored", 0.5, a=Graded(0.5)), "zscore", "zscore over its group: 0.5 → 1.2"),
        (result(0.75, "neutral", None, a=DOWN), "none", "missing: filled with the mean of its group, 0.75"),
        (result(0.0, "neutral", None, a=DOWN), "zscore", "missing: the neutral value of zscore, 0"),
        (
            result(0.5, "neutral", 0.5, a=Graded(0.5)),
            "rank",
            "alone in its group: the neutral value of rank, 0.5",
        ),
        (result(None, "masked", None, a=DOWN), "none", "missing: masked, without a number"),
        (result(-1.0, "constant", None, a=DOWN), "none", "missing: paid what missing_reward says, -1"),
    ],
)
def test_explain_shows_the_transform_and_the_fill(made: RewardResult, transform: str, last: str) -> None:
    assert explain_result(tree(Score("a"), "a"), made, transform).splitlines()[-1] == last


def test_a_fallback_keeps_no_notes_of_what_did_not_count() -> None:
    root = Fallback(Weighted({"a": (1.0, Score("a", if_missing=0.25)), "b": 1.0}), "c")
    ev = tree(root, "a", "b", "c").evaluate({"a": DOWN, "b": DOWN, "c": Graded(0.5)})
    assert (ev.value, ev.missing, ev.policies) == (0.5, (), ["b: missing, fallback to c"])


def test_explain_shows_the_reward_where_several_cases_share_their_graders() -> None:
    """A result does not hold its rollout: which case was taken cannot be told from grades alone."""
    bound = tree(Switch({"x": Weighted({"a": 2.0})}, otherwise="a"), "a")
    result = RewardResult(
        index=0,
        group=0,
        reward=1.0,
        status="scored",
        raw_reward=1.0,
        contributions={},
        grades={"a": Graded(0.5)},
    )
    assert explain_result(bound, result, "none").splitlines()[0] == "switch by data_source = 1"
