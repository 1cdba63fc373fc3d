"""The real RewardLoopManager with Ray workers: one trajectory at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from batches import batch

POINTWISE = "+reward.reward_kwargs.judgekit_runner=graders_for_tests:pointwise"
BY_PATH = (
    "reward.reward_manager.source=importlib",
    "reward.reward_manager.module.path=pkg://judgekit_verl",
    "reward.reward_manager.name=JudgeKitRewardManager",
)
BY_NAME = ("reward.reward_manager.name=judgekit",)
BY_CLASS_PATH = (
    "reward.reward_manager.name=judgekit",
    "+reward.reward_kwargs.reward_manager_class_path=judgekit_verl.JudgeKitRewardManager",
)
RESPONSES = ["#### 0", "#### 7", "no number", "", "#### 4", "abc #### 5"]


@pytest.mark.parametrize("way", [BY_PATH, BY_NAME, BY_CLASS_PATH], ids=["path", "name", "class_path"])
def test_rewards_stand_on_the_last_token(
    cluster: None, trainer_config: Callable[..., Any], tokenizer: Any, way: tuple[str, ...]
) -> None:
    from verl.experimental.reward_loop import RewardLoopManager

    loop = RewardLoopManager(trainer_config("reward.num_workers=2", POINTWISE, *way))
    data = batch(tokenizer, RESPONSES, uids=["a", "a", "a", "b", "b", "b"])
    try:
        out = loop.compute_rm_score(data)
    finally:
        import ray

        for worker in loop.reward_loop_workers:
            ray.kill(worker)
    assert out.batch["rm_scores"].sum(1).tolist() == [1, 0, 0, 0, 1, 1]
    for row, response in zip(out.batch["rm_scores"], RESPONSES, strict=True):
        if row.any():
            assert row.nonzero().item() == len(tokenizer.encode(response))  # where the end token stands
    assert sorted(out.meta_info["reward_extra_keys"]) == [
        "judgekit/correct",
        "judgekit/letters",
        "judgekit/missing",
        "judgekit/raw",
    ]
    assert out.non_tensor_batch["judgekit/correct"].tolist() == [1, 0, 0, 0, 1, 1]


def manager(trainer_config: Callable[..., Any], tokenizer: Any, runner: str, *more: str) -> Any:
    from judgekit_verl import JudgeKitRewardManager

    return JudgeKitRewardManager(
        config=trainer_config(f"+reward.reward_kwargs.judgekit_runner=graders_for_tests:{runner}", *more),
        tokenizer=tokenizer,
        compute_score=None,
    )


def test_what_verl_passes_is_not_changed(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    """Four rollouts share one extra_info; verl's own manager writes into it."""
    shared = {"index": 3}
    data = batch(tokenizer, ["#### 1"] * 4, truths=["1"] * 4, extra=[shared] * 4)
    made = manager(trainer_config, tokenizer, "pointwise")
    answers = [asyncio.run(made.run_single(data[i : i + 1])) for i in range(4)]
    assert [a["reward_score"] for a in answers] == [1.0] * 4
    assert shared == {"index": 3}


def test_only_the_last_output_of_a_trajectory_is_graded(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    data = batch(tokenizer, ["#### 0", "#### 9"], truths=["9", "9"])
    made = manager(trainer_config, tokenizer, "pointwise")
    assert asyncio.run(made.run_single(data))["reward_score"] == 1.0


def test_control_tokens_are_no_part_of_the_response(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    from judgekit_verl.samples import rollout_of_row

    data = batch(tokenizer, ["#### 1"], uids=["u"])
    rollout = rollout_of_row(data[0], tokenizer)
    assert rollout.response == "#### 1"
    assert rollout.response_tokens == len(tokenizer.encode("#### 1")) + 1
    assert rollout.group == "u"
    assert rollout.messages[-1] == {"role": "assistant", "content": "#### 1"}


def test_two_data_sources_and_a_missing_truth(trainer_config: Callable[..., Any], tokenizer: Any) -> None:
    """The written number pays for what cannot be graded, and it is counted."""
    data = batch(tokenizer, ["#### 1", "#### 1"], truths=["1", None], sources=["gsm8k", "other"])
    made = manager(trainer_config, tokenizer, "pointwise")
    first, second = (asyncio.run(made.run_single(data[i : i + 1])) for i in range(2))
    assert (first["reward_score"], second["reward_score"]) == (1.0, -1.0)
    assert first["reward_extra_info"].keys() == second["reward_extra_info"].keys()
    assert (
        first["reward_extra_info"]["judgekit/missing"],
        second["reward_extra_info"]["judgekit/missing"],
    ) == (0, 1)
    assert second["reward_extra_info"]["judgekit/correct"] is None


def test_a_group_grader_without_the_hook_is_an_error_at_the_start(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    from judgekit import ConfigError

    with pytest.raises(ConfigError, match="agent_loop_manager_class=judgekit_verl"):
        manager(trainer_config, tokenizer, "ranked")


HOOK = "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager"


def test_a_trainer_that_passes_the_hook_by_is_told(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    """As verl's fully async trainer does where our plug-in is not loaded: no groups of one, without a word."""
    from types import SimpleNamespace

    from judgekit import ConfigError

    told: list[str] = []

    async def grade() -> None:
        made = manager(trainer_config, tokenizer, "excluding", HOOK)
        made._steps = SimpleNamespace(fatal=SimpleNamespace(remote=told.append))
        await made.run_single(batch(tokenizer, ["x"], uids=["u"]))

    with pytest.raises(ConfigError, match="VERL_USE_EXTERNAL_MODULES=judgekit_verl.plugin"):
        asyncio.run(grade())
    assert "ignores agent_loop_manager_class" in told[0]  # in the driver as well


def test_a_reward_model_in_the_managers_place_is_an_error_at_the_start(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    from judgekit import ConfigError

    with pytest.raises(ConfigError, match="set the path"):
        manager(trainer_config, tokenizer, "pointwise", "reward.reward_model.enable=True")


def test_rollouts_that_are_dropped_are_counted_for_the_driver(
    trainer_config: Callable[..., Any], tokenizer: Any
) -> None:
    from types import SimpleNamespace

    from judgekit import MissingRewardError
    from judgekit.trainers import Counts
    from judgekit_verl.manager import GROUP

    sent: list[Counts] = []
    data = batch(tokenizer, ["down", "x"], uids=["u", "u"])
    data.meta_info[GROUP] = True

    async def grade() -> None:
        made = manager(trainer_config, tokenizer, "strict", HOOK)
        made._steps = SimpleNamespace(
            add=SimpleNamespace(remote=lambda counts, training: sent.append(counts))
        )
        await made.run_single(data)

    with pytest.raises(MissingRewardError):
        asyncio.run(grade())
    (counts,) = sent
    assert counts.line() == "2 rollouts graded; 2 of 2 rewards are missing (2 raised)"


def test_the_name_is_known_where_our_package_is_what_imports_verl() -> None:
    """verl imports its plug-ins while it is imported, and so in the middle of our own import."""
    import subprocess
    import sys

    code = (
        "from judgekit_verl import JudgeKitRewardManager as ours\n"
        "from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls as of\n"
        "assert of('judgekit') is ours"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("first", ["sessions", "group", "manager"])
def test_whatever_of_ours_is_imported_first(first: str) -> None:
    """A worker's process begins with the class that Ray unpickles; verl, which that imports, imports our plug-in."""
    program = f"import judgekit_verl.{first}, judgekit_verl.group, judgekit_verl.manager"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "could not load" not in done.stderr
