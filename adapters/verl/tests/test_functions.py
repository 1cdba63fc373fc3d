"""Reward function objects and class paths of the OpenJudge guide, through verl's own loader of 0.7.1 and later."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from verl.trainer.ppo.reward import load_reward_manager

from batches import batch
from judgekit import ConfigError
from judgekit_verl import JudgeKitRewardManager
from judgekit_verl.manager import GROUP
from test_groups import MANAGER, V1, of_group, v1  # noqa: F401, a fixture

FUNCTION = (
    "reward.custom_reward_function.path=pkg://graders_for_tests",
    "reward.custom_reward_function.name=ranks_by_length",
)
PATH = "+reward.reward_kwargs.reward_manager_class_path=graders_for_tests."


class Subclass(JudgeKitRewardManager):
    """Counts how often it is made."""

    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        type(self).made += 1
        super().__init__(*args, **kwargs)


async def test_a_reward_function_object(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    manager = load_reward_manager(trainer_config(MANAGER, *FUNCTION), tokenizer)
    data = batch(tokenizer, ["x", "xxx", "xx"], uids=["a"] * 3)
    data.meta_info[GROUP] = True
    found = (await manager.run_single(data))["group"]
    assert [one["reward_score"] for one in found] == [0, 2, 1]
    assert [one["reward_extra_info"]["length_score"] for one in found] == [1, 3, 2]
    assert json.loads(found[2]["reward_extra_info"]["details"]) == {"members": 3, "index": 2}
    alone = await manager.run_single(batch(tokenizer, ["x"]))
    assert alone["reward_score"] == 0


def test_v1_a_reward_function_object_sees_whole_groups(v1: Callable[..., V1]) -> None:  # noqa: F811
    trainer = v1("ranked", lambda prompt, call: "x" * call, *FUNCTION)
    rows = trainer.step(["a", "b"])
    for group in range(2):
        assert [row["score"] for row in of_group(rows, group)] == [0, 1, 2]


async def test_a_class_path(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    runner = "+reward.reward_kwargs.judgekit_runner=graders_for_tests:pointwise"
    path = "+reward.reward_kwargs.reward_manager_class_path=test_functions.Subclass"
    Subclass.made = 0
    manager = load_reward_manager(trainer_config(MANAGER, runner, path), tokenizer)
    assert isinstance(manager, Subclass)
    assert Subclass.made == 1
    other = load_reward_manager(trainer_config(MANAGER, PATH + "LoopManager"), tokenizer)
    assert type(other).__name__ == "LoopManager"
    with pytest.raises(ConfigError, match="custom_reward_function.path=pkg://package.module"):
        load_reward_manager(trainer_config(MANAGER, PATH + "BatchManager"), tokenizer)
