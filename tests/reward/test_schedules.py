"""Weights by training step: how they are written, what they are, and which step counts."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Gate, GradingRunner, Ledger, Max, Rollout, Score, Weighted
from judgekit.replay import replay
from judgekit.reward.schedules import Schedule
from judgekit.reward.spec import parse
from judgekit.reward.tree import RewardTree
from judgekit.trainers import GroupCollector, hosted_runner

FADING = {"weighted": {"a": 1.0, "b": [[0, 0.5], [200, 0.0]]}}
RANGES = {"a": (0.0, 1.0), "b": (0.0, 1.0)}


class Given:
    version = "1"
    score_range = (0.0, 1.0)

    def __init__(self, name: str) -> None:
        self.name = name

    def grade(self, rollout: Rollout, /) -> Any:
        return rollout.extra[self.name]


def runner(reward: Any = FADING, **settings: Any) -> GradingRunner:
    return GradingRunner({"a": Given("a"), "b": Given("b")}, parse(reward), **settings)


def rollouts(*pairs: tuple[Any, Any]) -> list[Rollout]:
    return [
        Rollout(response="r", group="g", id=str(i), extra={"a": a, "b": b}) for i, (a, b) in enumerate(pairs)
    ]


def test_it_is_linear_between_and_constant_outside() -> None:
    schedule = Schedule([[0, 0.5], [200, 0.0], [300, 1]])
    told = [(step, schedule.at(step)) for step in (-5, 0, 50, 200, 250, 300, 1e9)]
    assert told == [(-5, 0.5), (0, 0.5), (50, 0.375), (200, 0.0), (250, 0.5), (300, 1.0), (1e9, 1.0)]
    assert Schedule([[7, 2]]).at(-1) == Schedule([[7, 2]]).at(8) == 2


def test_it_never_leaves_the_weights_that_are_written() -> None:
    rng = random.Random(0)
    for _ in range(200):
        steps = sorted(rng.sample(range(1000), rng.randint(1, 5)))
        schedule = Schedule([[step, rng.uniform(-2, 2)] for step in steps])
        for step in (rng.uniform(-10, 1010) for _ in range(20)):
            assert min(schedule.weights) - 1e-12 <= schedule.at(step) <= max(schedule.weights) + 1e-12


@pytest.mark.parametrize(
    ("weight", "why"),
    [
        ([], "is a number, or a list of \\[step, weight\\]"),
        ([[0]], "is a number, or a list"),
        ([0, 0.5], "is a number, or a list"),
        ([[0, 0.5, 1]], "is a number, or a list"),
        ([[0, 0.5], [0, 1]], "its steps rise"),
        ([[5, 0.5], [1, 1]], "its steps rise"),
        ([[0, "x"]], "the weight of 'b' at step 0 is a finite number"),
        ([[0, math.nan]], "is a finite number"),
        ([[True, 1]], "a step of the weight of 'b' is a finite number"),
        ([[0, math.inf]], "is a finite number"),
        ("0.5", "the weight of 'b' is a finite number"),
    ],
)
def test_what_is_no_schedule_is_said(weight: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Weighted({"a": 1.0, "b": weight})
    with pytest.raises(ConfigError, match=why):
        parse({"weighted": {"a": 1.0, "b": {"weight": weight, "of": "a"}}})


def test_it_stands_in_weights_and_nowhere_else() -> None:
    for make in (
        lambda: parse({"const": [[0, 1]]}),
        lambda: Score("a", if_missing=[[0, 1]]),
        lambda: [[0, 1]] * Score("a"),
    ):  # type: ignore[arg-type, operator]
        with pytest.raises((ConfigError, TypeError)):
            make()
    with pytest.raises(ConfigError, match="at step 10 all weights are 0"):
        Weighted({"a": [[0, 1], [10, 0]], "b": [[0, -1], [10, 0]]})


def test_yaml_and_python_say_the_same() -> None:
    made = Weighted({"a": 1.0, "b": [[0, 0.5], [200, 0.0]]})
    assert made.spec() == FADING == parse(FADING).spec()
    other = Weighted({"a": 1.0, "fade": ([[0, 0.5], [200, 0.0]], Max("a", "b"))}, normalize=True)
    assert parse(other.spec()).spec() == other.spec()
    assert (0.5 * made + 0.1 * Score("a")).spec() == (0.5 * parse(FADING) + 0.1 * Score("a")).spec()


def test_rewards_at_a_step() -> None:
    made = runner()
    assert [r.reward for r in made.run_sync(rollouts((1, 1), (0, 1)), step=0)] == [1.5, 0.5]
    assert [r.reward for r in made.run_sync(rollouts((1, 1), (0, 1)), step=100)] == [1.25, 0.25]
    results = made.run_sync(rollouts((1, 1), (0, 1)), tags={"global_step": 400})
    assert [(r.reward, r.step) for r in results] == [(1, 400), (0, 400)]
    assert "0 × b = 1" in made.explain(results[0])
    assert made.reward.bounds() == (0, 1.5)
    half = runner({**FADING, "normalize": True}).run_sync(rollouts((1, 0)), step=100)
    assert half[0].reward == 0.8
    assert half[0].contributions == {"a": 0.8, "b": 0.0, "residual": 0.0}


def test_a_weight_that_has_faded_keeps_its_rule_for_missing_grades() -> None:
    no = Abstained("no")
    assert runner().run_sync(rollouts((1, no)), step=500)[0].status == "excluded"
    lenient = {
        "weighted": {
            "a": 1.0,
            "b": {"weight": [[0, 0.5], [200, 0]], "of": {"score": "b", "if_missing": "renormalise"}},
        }
    }
    assert runner(lenient).run_sync(rollouts((1, no), (1, 1)), step=500)[0].reward == 1
    alone = {
        "weighted": {
            "a": {"weight": 1.0, "of": {"score": "a", "if_missing": "renormalise"}},
            "b": [[0, 0.5], [200, 0]],
        }
    }
    assert runner(alone).run_sync(rollouts((no, 1)), step=500)[0].status == "excluded"  # no weight is left
    assert runner(alone).run_sync(rollouts((no, 1)), step=100)[0].reward == 1.25


def test_a_weight_that_crosses_0_is_0_for_one_step() -> None:
    for normalize in (False, True):
        crossing = runner(
            {"weighted": {"b": [[0, -1], [10, 1]], "a": [[0, 1], [10, -1]]}, "normalize": normalize}
        )
        assert crossing.run_sync(rollouts((1, 0.5)), step=5)[0].reward == 0
        assert crossing.run_sync(rollouts((1, 0.5)), step=0)[0].reward == 0.5 / (1 + normalize)


def test_without_a_step_it_is_refused_in_one_sentence() -> None:
    for tags in (None, {}, {"step": None}, {"phase": "train"}, {"step": "7"}):
        with pytest.raises(ConfigError, match="depends on the training step, and this run has no step"):
            runner().run_sync(rollouts((1, 1)), tags=tags)
    with pytest.raises(ConfigError, match="step is a finite number"):
        runner().run_sync(rollouts((1, 1)), step=math.nan)
    assert runner({"weighted": {"a": 1.0, "b": 0.5}}).run_sync(rollouts((1, 1)))[0].step is None
    with pytest.raises(ConfigError, match="has no step"):
        RewardTree(parse(FADING), RANGES).value(a=1, b=1)
    assert RewardTree(parse(FADING), RANGES).at(100).value(a=1, b=1) == 1.25


def test_a_group_that_spans_steps_has_its_first_members() -> None:
    hosted = hosted_runner(runner=runner(), grouped=True, can_mask=True, can_exclude=True, grouping_hint="")
    collector = GroupCollector(hosted.runner)

    async def arrived() -> list[float | None]:
        members = [
            collector.arrive("g", one, size=2, tags={"global_step": step})
            for step, one in zip((100, 300), rollouts((1, 1), (0, 1)), strict=True)
        ]
        return [result.reward for result in await asyncio.gather(*members)]

    assert asyncio.run(arrived()) == [1.25, 0.25]


def test_streams_and_groups_take_a_step() -> None:
    async def one_by_one() -> AsyncIterator[Rollout]:
        for rollout in rollouts((1, 1)):
            yield rollout

    async def made() -> list[float | None]:
        (grouped,) = await runner().run_groups([rollouts((1, 1))], step=100)
        return [r.reward for r in grouped] + [r.reward async for r in runner().stream(one_by_one(), step=100)]

    assert asyncio.run(made()) == [1.25, 1.25]


@pytest.mark.parametrize("transform", ["none", "gdpo"])
def test_a_ledger_has_the_step_and_is_replayed_with_it(tmp_path: Path, transform: Any) -> None:
    path = tmp_path / "ledger.jsonl"
    made = runner(ledger=Ledger(path), transform=transform)
    before = {}
    for step in (0, 100, 150, 900):
        for i, result in enumerate(made.run_sync(rollouts((1, 0.25), (0, 1), (1, 0)), step=step)):
            before[step, i] = result.reward
    asyncio.run(made.close())
    found = replay(path)
    after = {(e.tags["step"], e.index): r.reward for e, r in zip(found.entries, found.results, strict=True)}
    assert after == before
    other = replay(path, Gate("a >= 1", Weighted({"b": [[0, 1], [100, 2]]}), 0), transform="none")
    rewards = {(e.tags["step"], e.index): r.reward for e, r in zip(other.entries, other.results, strict=True)}
    assert [rewards[step, 0] for step in (0, 100, 150)] == [0.25, 0.5, 0.5]
    stepless = tmp_path / "stepless.jsonl"
    plain = runner({"weighted": {"a": 1, "b": 0}}, ledger=Ledger(stepless))
    plain.run_sync(rollouts((1, 1)))
    asyncio.run(plain.close())
    with pytest.raises(ConfigError, match="has no step"):
        replay(stepless, parse(FADING))
