"""Reward function objects and class paths of the OpenJudge guide, through verl's own loader of 0.7.1 and later."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from verl.trainer.ppo.reward import load_reward_manager

import graders_for_tests
from batches import batch, grade_groups
from judgekit import ConfigError
from judgekit_verl import JudgeKitRewardManager
from judgekit_verl.manager import GROUP
from test_groups import HOOK, MANAGER, V1, of_group, v1  # noqa: F401, a fixture

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


class Uneven:
    """A reward function with figures of numpy's, and not the same ones for every sample."""

    async def compute_batch_scores(self, prompt_to_samples: dict[str, list[Any]]) -> list[Any]:
        return [
            SimpleNamespace(
                original_index=np.int64(sample.original_index),
                score=np.float32(0.5),
                reward_info={"format": np.float32(1.0), "text": "left out"}
                if "good" in sample.response
                else {},
                details={"tokens": np.array([1, 2])},
            )
            for group in prompt_to_samples.values()
            for sample in group
        ]


@pytest.mark.parametrize("uids", ["aa", "ab"], ids=["one group", "two"])
@pytest.mark.parametrize("texts", [["good", "bad"], ["bad", "good"]])
def test_figures_that_not_every_sample_has(
    trainer_config: Callable[..., Any],
    tokenizer: Any,
    texts: list[str],
    uids: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graders_for_tests, "ranks_by_length", Uneven())
    config = trainer_config(MANAGER, *FUNCTION, HOOK, "trainer.use_v1=False")
    out = grade_groups(config, tokenizer, batch(tokenizer, texts, uids=[*uids]))
    assert out.batch["rm_scores"].sum(1).tolist() == [0.5, 0.5]
    assert sorted(out.meta_info["reward_extra_keys"]) == ["details", "format"]
    assert out.non_tensor_batch["format"].tolist() == [1.0 if text == "good" else None for text in texts]
    assert json.loads(out.non_tensor_batch["details"][0]) == {"tokens": [1, 2]}


def test_v1_a_reward_function_object_sees_whole_groups(v1: Callable[..., V1]) -> None:  # noqa: F811
    trainer = v1(None, lambda prompt, call: "x" * call, *FUNCTION)
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


async def test_a_function_and_a_configuration_are_not_both_taken(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    runner = "+reward.reward_kwargs.judgekit_runner=graders_for_tests:pointwise"
    with pytest.raises(ConfigError, match="judgekit_runner says how to grade, too: take one of the two out"):
        load_reward_manager(trainer_config(MANAGER, *FUNCTION, runner), tokenizer)
