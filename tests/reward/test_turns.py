"""Turns in the tree: what each earned, and that it adds up to the reward with the outcome."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import judgekit.graders.protocol
import judgekit.reward.tree
from judgekit import (
    Abstained,
    Clip,
    ConfigError,
    Failed,
    Fallback,
    Gate,
    Grade,
    Graded,
    GradingRunner,
    Max,
    Min,
    Product,
    Rollout,
    Score,
    Switch,
    Turns,
    Weighted,
    grader,
)
from judgekit.reward.explain import explain, why_missing
from judgekit.reward.nodes import Evaluation, Node, score_names, walk
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree

RANGES = {"a": (0.0, 1.0), "b": (-1.0, 1.0), "p": (-1.0, 1.0), "q": (-1.0, 1.0)}
DOWN = Failed("JudgeUnavailable", "down")
BROKE = Failed("WorkerRanAway", "ran away", cause="rollout")


def evaluate(root: Node, **grades: Any) -> Evaluation:
    tree = RewardTree(root, {name: RANGES[name] for name in score_names(root)})
    made: dict[str, Grade] = {
        name: Graded(0.0, turns=given) if isinstance(given, tuple) else given
        for name, given in grades.items()
    }
    return tree.evaluate({k: Graded(v) if isinstance(v, float) else v for k, v in made.items()})


@pytest.mark.parametrize(
    ("how", "value", "turns"),
    [
        ("sum", 0.5, (0.25, 0.0, -0.5, 0.75)),
        ("mean", 0.5 / 3, (0.25 / 3, 0.0, -0.5 / 3, 0.25)),
        ("change", 0.75, (0.25, 0.0, -0.75, 1.25)),
    ],
)
def test_a_turn_earns_its_number_its_share_or_its_change(
    how: Any, value: float, turns: tuple[float, ...]
) -> None:
    """A turn without an opinion earns nothing, and passes its change on."""
    ev = evaluate(Turns("p", how=how), p=(0.25, None, -0.5, 0.75))
    assert ev.value == pytest.approx(value, abs=1e-15)
    assert ev.turns == pytest.approx(turns, abs=1e-15)
    assert ev.contributions["p"] == ev.value


def test_the_last_opinion_is_the_state_that_counts() -> None:
    ev = evaluate(Turns("p", how="change"), p=(0.5, 0.75, None))
    assert (ev.value, ev.turns) == (0.75, (0.5, 0.25, 0.0))


P = Turns("p")
T = (0.25, 0.5)


@pytest.mark.parametrize(
    ("root", "turns"),
    [
        (Weighted({"p": (0.5, P), "a": 1.0}), (0.125, 0.25)),
        (Weighted({"p": (-3.0, P), "a": 1.0}, normalize=True), (-0.1875, -0.375)),
        (Weighted({"p": (0.5, P), "a": (0.5, Score("b", if_missing="renormalise"))}), (0.25, 0.5)),
        (Weighted({"p": (0.0, P), "a": 1.0}), (0.0, 0.0)),
        (Gate("a >= 1", P, 0), T),
        (Gate("a < 1", P, "a"), (0.0, 0.0)),
        (Gate(P >= 0.5, 0.5, 0.0), (0.0, 0.0)),
        (Gate(P >= 0.5, P, 0.0), T),
        (Switch({"*": P}), T),
        (Fallback(Score("b"), P), T),
        (Fallback(P, Score("a")), T),
        (Fallback(Score("a"), P), (0.0, 0.0)),
        (Product(0.5, P, "a"), (0.125, 0.25)),
        (Product(P, Score("b", if_missing="renormalise")), T),
        (Clip(P, 0.0, 0.75), T),
        (Clip(P, 0.0, 0.7), (0.0, 0.0)),
        (Min(P, "a"), T),
        (Min(0.75, P), (0.0, 0.0)),
        (Min(P, 0.75), T),
        (Max(P, "a"), (0.0, 0.0)),
        (Max(0.1, P), T),
        (Weighted({"p": (1.0, P), "again": (1.0, Turns("p", how="mean"))}), (0.375, 0.75)),
    ],
)
def test_turns_follow_the_derivative(root: Node, turns: tuple[float, ...]) -> None:
    ev = evaluate(root, a=1.0, b=DOWN, p=T)
    assert ev.value is not None
    assert ev.turns == turns


@pytest.mark.parametrize("grade", [Abstained("no"), DOWN, Graded(0.5), Graded(0.5, turns=(None, None))])
def test_without_an_opinion_on_any_turn_the_leaf_is_missing(grade: Grade) -> None:
    ev = evaluate(Weighted({"a": 1.0, "p": (1.0, P)}), a=1.0, p=grade)
    assert (ev.value, ev.turns, ev.missing) == (None, (), ("p",))
    assert why_missing(ev).startswith("p: ")


@pytest.mark.parametrize(
    ("leaf", "grade", "value"),
    [
        (Turns("p", if_missing=0.5), DOWN, 0.5),
        (Turns("p", if_missing=0.5), Graded(1.0, turns=(None,)), 0.5),
        (Turns("p"), BROKE, -1.0),
        (Turns("p", if_broken=-0.25, how="mean"), BROKE, -0.25),
    ],
)
def test_a_stand_in_is_all_the_outcomes(leaf: Node, grade: Grade, value: float) -> None:
    ev = evaluate(Weighted({"p": (1.0, leaf), "q": (1.0, Turns("q"))}), p=grade, q=(0.5, 0.25))
    assert ev.value == value + 0.75
    assert ev.turns == (0.5, 0.25)


def test_a_turn_that_earns_no_finite_number_makes_the_reward_missing() -> None:
    tree = RewardTree(Turns("p", how="change", if_broken=0.0), {"p": (-math.inf, math.inf)})
    ev = tree.evaluate({"p": Graded(0.0, turns=(-1.7e308, 1.7e308))})
    assert (ev.value, ev.turns, ev.contributions) == (None, (), {})
    assert why_missing(ev) == "what a turn earned is too large for a float"


def test_two_placed_factors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^a product has \{turns: …\} in one of its factors at most"):
        evaluate(Product(P, Weighted({"q": (1.0, Turns("q"))})))
    evaluate(Product(P, Gate(Turns("q") >= 0, 1, 0)), p=T, q=T)  # a condition places nothing


@pytest.mark.parametrize("how", ["sum", "mean", "change"])
def test_yaml_means_the_same(how: Any) -> None:
    leaf = Turns("p", if_missing=0.5, if_broken=-1, how=how)
    again = parse(leaf.spec())
    assert isinstance(again, Turns)
    assert (again.spec(), again.how) == (leaf.spec(), how)
    assert parse({"turns": "p"}).spec() == {"turns": "p", "how": "sum"}
    with pytest.raises(ConfigError, match="did you mean 'change'"):
        parse({"turns": "p", "how": "chnage"})


def test_bounds_hold_whatever_the_number_of_turns() -> None:
    ranges = {"p": (-1.0, 1.0), "u": (0.25, 1.0)}
    assert Turns("p").bounds(ranges) == (-math.inf, math.inf)
    assert Turns("u").bounds(ranges) == (0.25, math.inf)
    assert Turns("p", how="mean").bounds(ranges) == Turns("p", how="change").bounds(ranges) == (-1.0, 1.0)


def test_a_reward_is_tried_without_a_grader() -> None:
    root = Weighted({"a": 1.0, "p": (0.5, Turns("p", how="change"))})
    assert root.value(a=1, p=(0.25, None, 0.5)) == 1.25
    assert root.value(a=1, p=(None,)) is None


def test_explain_shows_the_turns() -> None:
    tree = RewardTree(Weighted({"p": (0.5, Turns("p", how="change"))}), {"p": (0.0, 1.0)})
    shown = explain(tree, {"p": Graded(0.5, turns=(0.25, None, 0.5))})
    assert "p (change of turns) = 0.5 of 0.25, –, 0.5" in shown
    assert "missing (its grade has an opinion on no turn)" in explain(tree, {"p": Graded(0.5)})


# ---- random trees


def leaf(rng: random.Random, placed: bool) -> Node:
    if placed and rng.random() < 0.6:
        name = rng.choice("pq")
        how: Any = "change" if name == "p" else rng.choice(["sum", "mean"])
        return Turns(name, rng.choice(["propagate", 0.5]), how=how)
    return Score(rng.choice("ab"), if_missing=rng.choice(["propagate", 0.25]))


def node(rng: random.Random, depth: int, placed: bool) -> Node:
    if depth == 0:
        return leaf(rng, placed)

    def below() -> Node:
        return node(rng, depth - 1, placed)

    match rng.choice(["weighted", "weighted", "gate", "product", "clip", "min", "max", "fallback", "leaf"]):
        case "weighted":
            weights = {f"t{i}": (rng.uniform(-2, 2), below()) for i in range(rng.randint(1, 3))}
            return Weighted(weights, normalize=rng.random() < 0.3)
        case "gate":
            return Gate(Score("a") >= rng.random(), below(), below())
        case "product":
            return Product(below(), node(rng, depth - 1, False))
        case "clip":
            return Clip(below(), -0.6, 0.8)
        case "min":
            return Min(below(), below())
        case "max":
            return Max(below(), below())
        case "fallback":
            return Fallback(below(), below())
    return leaf(rng, placed)


def test_random_trees_agree_with_finite_differences() -> None:
    """What a turn earned is how the reward changes with it, times what it was."""
    rng = random.Random(0)
    placed = 0
    for _ in range(1500):
        root = node(rng, 3, True)
        turns = rng.randint(1, 5)

        def grade() -> Graded:
            known = tuple(rng.uniform(-1, 1) if rng.random() > 0.15 else None for _ in range(turns))  # noqa: B023
            return Graded(0.0, turns=known)

        grades: dict[str, Any] = {"a": rng.random(), "b": rng.uniform(-1, 1), "p": grade(), "q": grade()}
        if rng.random() < 0.1:
            grades[rng.choice("abpq")] = DOWN
        grades = {name: one for name, one in grades.items() if name in score_names(root)}
        ev = evaluate(root, **grades)
        if ev.value is None:
            assert ev.turns == ()
            continue
        if not ev.turns:
            assert not any(isinstance(one, Turns) for one in walk(root))
            continue
        placed += any(ev.turns)
        assert ev.value - sum(ev.turns) + sum(ev.turns) == pytest.approx(ev.value, abs=1e-12)
        for at in range(len(ev.turns)):
            assert slope(root, grades, at) == pytest.approx(ev.turns[at], abs=1e-6)
    assert placed > 500


def slope(root: Node, grades: dict[str, Any], at: int, step: float = 1e-6) -> float:
    """By how much the reward changes if what turn *at* earned is scaled."""

    def scaled(by: float) -> float:
        found = evaluate(root, **{name: earning(grade, at, by, name) for name, grade in grades.items()}).value
        assert found is not None
        return found

    return (scaled(1 + step) - scaled(1 - step)) / (2 * step)


def earning(grade: Any, at: int, by: float, name: str) -> Any:
    """Return a grade in which turn *at* earned *by* times as much: of p the change, of q the number."""
    if not isinstance(grade, Graded) or grade.turns is None or grade.turns[at] is None:
        return grade
    turns = list(grade.turns)
    before = next((x for x in reversed(turns[:at]) if x is not None), 0.0) if name == "p" else 0.0
    more = (by - 1) * (turns[at] - before)
    for i in range(at, len(turns) if name == "p" else at + 1):
        if turns[i] is not None:
            turns[i] += more
    return Graded(0.0, turns=tuple(turns))


def test_trees_without_turns_never_enter_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost nothing: no node is asked, and no turn is counted."""

    def entered(*_: Any) -> None:
        raise AssertionError("entered")

    kinds = [Node, *all_kinds(Node)]
    for kind in kinds:
        for name in ("place", "places"):
            if name in vars(kind):
                monkeypatch.setattr(kind, name, entered)
    monkeypatch.setattr(judgekit.reward.tree, "policy_turns", entered)
    monkeypatch.setattr(judgekit.graders.protocol, "policy_turns", entered)
    tried = 0
    rng = random.Random(1)
    for _ in range(200):
        root = node(rng, 3, False)
        if not any(isinstance(one, Product) for one in walk(root)):  # of which lint asks once, before the run
            assert evaluate(root, **{name: 0.5 for name in score_names(root)}).turns == ()
            tried += 1
    assert tried > 100

    @grader
    def constant(response: str) -> float:
        return 0.5

    runner = GradingRunner({"a": constant, "b": constant}, {"a": 0.5, "b": 0.5})
    assert [result.turns for result in runner.run_sync([Rollout(response="x")] * 3)] == [()] * 3
    with pytest.raises(AssertionError, match="entered"):
        evaluate(P, p=T)


def all_kinds(kind: type) -> list[type]:
    return [one for below in kind.__subclasses__() for one in (below, *all_kinds(below))]


# ---- the whole way


def rollout(*turns: str) -> Rollout:
    messages: list[Any] = [{"role": "user", "content": "q"}]
    for turn in turns:
        messages += [{"role": "assistant", "content": turn}, {"role": "tool", "content": "seen"}]
    return Rollout(response=turns[-1], prompt="q", messages=messages)


def test_a_run_says_what_each_turn_earned() -> None:
    @grader(per="turn")
    def short(turn: str) -> float:
        return 1.0 if len(turn) < 4 else 0.0

    runner = GradingRunner({"short": short}, Weighted({"short": (0.5, Turns("short", how="mean"))}))
    (result,) = runner.run_sync([rollout("a", "a long one")])
    assert (result.raw_reward, result.turns, result.outcome) == (0.25, (0.25, 0.0), 0.0)
    assert result.score("short") == 0.5
    assert "turns earned 0.25, 0; the outcome 0" in runner.explain(result)


def test_a_branch_that_places_nothing_has_a_zero_for_each_turn() -> None:
    runner = GradingRunner(
        {"a": lambda_grader(), "short": lambda_grader("turn")}, Gate("a >= 1", Turns("short"), 0.25)
    )
    (result,) = runner.run_sync([rollout("one", "two", "three")])
    assert (result.raw_reward, result.turns, result.outcome) == (0.25, (0.0, 0.0, 0.0), 0.25)


def lambda_grader(per: Any = "rollout") -> Any:
    if per == "turn":
        return grader(lambda turn: 0.5, name="short", per="turn")
    return grader(lambda response: 0.5, name="a")


def test_a_grader_that_says_nothing_of_turns_is_refused_where_that_is_known() -> None:
    from judgekit.graders import TextMatch

    with pytest.raises(ConfigError) as told:
        GradingRunner({"match": TextMatch()}, Turns("match"))
    assert str(told.value) == (
        "{turns: match}: grader 'match' says nothing of turns: take one that does (per: turn), or write match alone"
    )
    own = GradingRunner({"a": lambda_grader()}, Turns("a"))
    (result,) = own.run_sync([rollout("x")])
    assert (result.reward, result.status, result.missing) == (None, "excluded", ("a",))
