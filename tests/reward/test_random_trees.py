"""Random trees over random grades: what is asked for suffices, bounds hold, and the YAML form means the same."""

from __future__ import annotations

import itertools
import math
import operator
import random
from typing import Any

import pytest

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
    Rollout,
    Score,
    Skipped,
    Switch,
    Weighted,
)
from judgekit.reward.conditions import Condition
from judgekit.reward.explain import explain
from judgekit.reward.nodes import Node, score_names
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree

RANGES = {"a": (0.0, 1.0), "b": (-1.0, 1.0), "c": (0.0, 10.0), "d": (0.0, 1.0), "math:hard": (0.0, 1.0)}
NAMES = list(RANGES)


def condition(rng: random.Random, depth: int = 0) -> Condition:
    kind = rng.choice("ccc&|~") if depth < 3 else "c"
    if kind == "c":
        compare = rng.choice([operator.ge, operator.gt, operator.le, operator.lt])
        of: Any = node(rng, 3) if rng.random() < 0.2 else Score(rng.choice(NAMES))
        made: Condition = compare(of, rng.choice([0.0, 0.25, 0.5, 1.0]))
        return made
    if kind == "~":
        return ~condition(rng, depth + 1)
    first, second = condition(rng, depth + 1), condition(rng, depth + 1)
    return first & second if kind == "&" else first | second


def node(rng: random.Random, depth: int = 0) -> Node:
    def below() -> Node:
        return node(rng, depth + 1)

    def term() -> Node:
        return Score(rng.choice(NAMES), if_missing="renormalise") if rng.random() < 0.2 else below()

    def several() -> list[Node]:
        return [term() for _ in range(rng.randint(1, 3))]

    kinds = ["leaf"] if depth > 2 else ["leaf", "weighted", "gate", "several", "clip", "fallback", "switch"]
    match rng.choice(kinds):
        case "weighted":
            weights = {f"t{i}": (rng.choice([0.1, 0.5, 1, 2, -1]), term) for i, term in enumerate(several())}
            return Weighted(weights, normalize=rng.random() < 0.5)
        case "gate":
            return Gate(if_=condition(rng), then=below(), otherwise=below())
        case "several":
            return rng.choice([Product, Min, Max])(*several())
        case "clip":
            return Clip(below(), -0.5, 0.7)
        case "fallback":
            return Fallback(below(), below())
        case "switch":
            return Switch({"m*": below(), "code": below()}, otherwise=rng.choice([None, below()]))
    if rng.random() < 0.1:
        return Const(rng.choice([0, 0.5, 1, -1]))
    missing: Any = rng.choice(["propagate", "propagate", 0.3])
    return Score(rng.choice(NAMES), if_missing=missing, if_broken=rng.choice([None, None, -2]))


def grade(rng: random.Random, name: str) -> Grade:
    low, high = RANGES[name]
    score = rng.choice([low, high, rng.uniform(low, high)])
    broken = Failed("RolloutError", cause="rollout")
    return rng.choice([Graded(score)] * 5 + [Abstained("no"), Failed("Down"), broken])


@pytest.mark.parametrize("first", range(0, 4000, 1000))
def test_random_trees(first: int) -> None:
    made = 0
    for seed in range(first, first + 1000):
        rng = random.Random(seed)
        root = node(rng)
        names = score_names(root)
        try:
            tree = RewardTree(root, {name: RANGES[name] for name in names})
        except ConfigError:  # a gate that never passes, say
            continue
        made += 1
        try:
            check(rng, tree, names)
        except BaseException as error:
            error.add_note(f"seed {seed}: {root.spec()}")
            raise
    assert made > 700


def check(rng: random.Random, tree: RewardTree, names: tuple[str, ...]) -> None:
    rollout = Rollout(response="", data_source=rng.choice(["math", "code", "prose", ""]))
    full = {name: grade(rng, name) for name in names}
    asked: dict[str, Grade] = {}
    while wanted := tree.wanted(asked, rollout):
        assert not asked.keys() & set(wanted)
        asked |= {name: full[name] for name in wanted}
    skipped = {name: asked.get(name, Skipped("gate")) for name in names}
    found = tree.evaluate(skipped, rollout)
    assert found.value == tree.evaluate(full, rollout).value  # what was not asked for changes nothing
    again = RewardTree(parse(tree.root.spec()), tree.ranges)
    assert again.root.spec() == tree.root.spec()
    assert again.evaluate(skipped, rollout).value == found.value
    if found.value is None:
        assert found.missing or found.policies
    else:
        low, high = tree.bounds()
        assert low - 1e-9 <= found.value <= high + 1e-9
        assert math.fsum(found.contributions.values()) == pytest.approx(found.value)
    assert explain(tree, skipped, rollout)


def distinct(rng: random.Random, names: list[str], depth: int = 0) -> Node:
    """A tree in which no name stands twice, so that its grades can all be at their best at once."""

    def below() -> Node:
        return distinct(rng, names, depth + 1)

    kinds = (
        ["leaf"]
        if depth > 2 or len(names) < 4
        else ["weighted", "weighted", "several", "clip", "gate", "fallback"]
    )
    match rng.choice(kinds):
        case "weighted":
            weights = [rng.randint(-5, 20) / 20 or 0.3 for _ in range(rng.randint(1, 3))]
            return Weighted(
                {f"t{i}": (w, below()) for i, w in enumerate(weights)}, normalize=rng.random() < 0.5
            )
        case "several":
            return rng.choice([Product, Min, Max])(below(), below())
        case "clip":
            return Clip(below(), -0.55, 0.7)
        case "gate":
            return Gate(if_=Score(names.pop()) >= 0.5, then=below(), otherwise=below())
        case "fallback":
            return Fallback(below(), below())
    return Score(names.pop()) if names else Const(rng.choice([0.1, 0.7, -1]))


def test_the_best_and_the_worst_grades_give_the_bounds_to_the_last_bit() -> None:
    """By them the rewards are counted that are the highest possible."""
    for seed in range(250):
        rng = random.Random(seed)
        low, high = rng.choice([(0.0, 1.0), (-1.0, 1.0), (0.1, 0.7)])
        root = distinct(rng, list("abcdef"))
        tree = RewardTree(root, dict.fromkeys(score_names(root), (low, high)))
        ends: list[Grade] = [Graded(low), Graded(high), Abstained("no")]
        values = [
            tree.evaluate(dict(zip(tree.names, grades, strict=True))).value
            for grades in itertools.product(ends, repeat=len(tree.names))
        ]
        found = [value for value in values if value is not None]
        assert (min(found), max(found)) == tree.bounds(), f"seed {seed}: {root.spec()}"
