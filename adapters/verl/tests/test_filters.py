"""DAPO's filter metric, through verl's own configuration and its own sampler's reading of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from verl.trainer.ppo.reward import load_reward_manager

from batches import Nowhere, batch
from judgekit import ConfigError
from judgekit_verl.filters import add_metric
from judgekit_verl.manager import GROUP
from test_groups import HOOK, MANAGER

RUNNER = "+reward.reward_kwargs.judgekit_runner=graders_for_tests:down_at_times"


def test_the_mean_of_equal_scores_is_that_score() -> None:
    """By rounding it would be another one, and verl would not see that the group is flat."""
    for count in range(2, 8):
        for score in (i / 100 for i in range(1, 100)):
            infos = [{"judgekit/g": score} for _ in range(count)] + [{"judgekit/g": None}]
            answers = [{"reward_score": score, "reward_extra_info": dict(info)} for info in infos]
            add_metric(answers, "judgekit/g")
            assert len({answer["reward_extra_info"]["judgekit/g"] for answer in answers}) == 1


def filtered_by(metric: str) -> tuple[str, ...]:
    return (
        MANAGER,
        RUNNER,
        HOOK,
        "algorithm.filter_groups.enable=True",
        f"algorithm.filter_groups.metric={metric}",
    )


async def values(config: Any, tokenizer: Any, metric: str, *responses: str) -> list[float]:
    manager = load_reward_manager(config, tokenizer)
    data = batch(tokenizer, responses, uids=["a"] * len(responses))
    data.meta_info[GROUP] = True
    manager._step_counts = lambda: Nowhere()
    return [float(one["reward_extra_info"][metric]) for one in (await manager.run_single(data))["group"]]


@pytest.mark.parametrize(
    "metric", ["acc", "seq_final_reward", "judgekit/letters", "judgekit/flaky", "judgekit/raw"]
)
async def test_it_is_a_float_for_every_rollout(
    metric: str, trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    """A missing score makes no group look as if its members differed, and hides no difference."""
    config = trainer_config(*filtered_by(metric))
    alike = await values(config, tokenizer, metric, "aaaa", "aaaa", "down")
    if metric != "judgekit/letters":  # of which the third has one of its own
        assert np.std(alike) == 0
    different = await values(config, tokenizer, metric, "aaaa", "zzzz", "down")
    assert all(map(math.isfinite, different))
    if metric != "judgekit/flaky":
        assert np.std(different) > 0
    nobody = await values(config, tokenizer, metric, "down", "down")
    assert np.std(nobody) == 0


@pytest.mark.parametrize("metric", ["acc", "seq_final_reward", "judgekit/letters"])
async def test_a_dropped_group_is_alike_to_the_filter(
    metric: str, trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    """verl discards it and samples another; a group that stays keeps its difference."""
    config = trainer_config(*(line.replace("down_at_times", "dropping") for line in filtered_by(metric)))
    assert np.std(await values(config, tokenizer, metric, "aaaa", "azaz", "aaac")) == 0
    assert np.std(await values(config, tokenizer, metric, "aaaa", "zzzz", "aaab")) > 0


async def test_a_dropped_group_is_left_out_as_missing_rewards_are(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    manager = load_reward_manager(
        trainer_config(MANAGER, RUNNER.replace("down_at_times", "dropping"), HOOK), tokenizer
    )
    manager._step_counts = lambda: Nowhere()
    for responses, left in (("aaaa", "azaz", "aaac"), True), (("aaaa", "zzzz", "aaab"), False):
        data = batch(tokenizer, responses, uids=["a"] * 3)
        data.meta_info[GROUP] = True
        group = (await manager.run_single(data))["group"]
        assert [one.get("left_out") is not None for one in group] == [left] * 3
        assert (len({one["reward_score"] for one in group}) == 1) is left


async def test_the_trainers_step_moves_weights(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    manager = load_reward_manager(
        trainer_config(MANAGER, RUNNER.replace("down_at_times", "fading"), HOOK), tokenizer
    )
    manager._step_counts = lambda: Nowhere()
    for step, paid in ((0, [2.0, 0.0]), (100, [1.5, 0.0]), (400, [1.0, 0.0])):
        data = batch(tokenizer, ["aaaa", "zzzz"], uids=["a"] * 2)
        data.meta_info |= {GROUP: True, "global_steps": step}
        assert [one["reward_score"] for one in (await manager.run_single(data))["group"]] == paid


async def test_an_unknown_metric_is_told(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="no 'judgekit/leters'; did you mean 'judgekit/letters'"):
        load_reward_manager(trainer_config(*filtered_by("judgekit/leters")), tokenizer)
