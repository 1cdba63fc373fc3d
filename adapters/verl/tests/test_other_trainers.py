"""The hook in verl's fully asynchronous and one-step-off trainers: their own classes, with a policy that is not there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from omegaconf import open_dict

from batches import FakePolicy, objects
from test_groups import HOOK, MANAGER, columns


class Given:
    """A configuration with verl's own keys for the fully asynchronous trainer, and its reward workers."""

    def __init__(self, config: Any) -> None:
        from verl.experimental.reward_loop import RewardLoopManager

        self.config = config
        with open_dict(config):
            config.async_training = {"require_batches": 1, "trigger_parameter_sync_step": 1}
        self.loop = RewardLoopManager(config)
        self.managers: list[Any] = []

    def close(self) -> None:
        for worker in self.loop.reward_loop_workers:
            ray.kill(worker)
        for manager in self.managers:
            for worker in manager.agent_loop_workers:
                ray.kill(worker)


@pytest.fixture
def given(cluster: None, trainer_config: Callable[..., Any]) -> Iterator[Callable[..., Given]]:
    made: list[Given] = []

    def make(runner: str, *overrides: str) -> Given:
        config = trainer_config(
            HOOK,
            MANAGER,
            f"+reward.reward_kwargs.judgekit_runner=graders_for_tests:{runner}",
            "reward.num_workers=2",
            "actor_rollout_ref.rollout.agent.num_workers=2",
            "actor_rollout_ref.rollout.n=3",
            "actor_rollout_ref.actor.ppo_mini_batch_size=2",
            *overrides,
        )
        made.append(Given(config))
        return made[-1]

    yield make
    for one in made:
        one.close()


class FullyAsync:
    """The rollouter's half of the fully asynchronous trainer: verl's manager and batches, a prompt at a time."""

    def __init__(self, given: Given, tokenizer: Any, script: Any) -> None:
        from verl.experimental.fully_async_policy.fully_async_rollouter import FullyAsyncAgentLoopManager

        self.config = given.config
        self.manager = FullyAsyncAgentLoopManager.create(
            config=given.config,
            llm_client=FakePolicy(tokenizer, script),
            teacher_client=None,
            reward_loop_worker_handles=given.loop.reward_loop_workers,
        )
        given.managers.append(self.manager)
        self.number = 0

    def generate(self, *prompts: str) -> list[Any]:
        """Generate and grade these prompts at once, each by itself; verl's batches."""
        from verl.experimental.fully_async_policy.detach_utils import prepare_single_generation_data

        async def one(prompt: str, number: int) -> Any:
            batch = prepare_single_generation_data(columns([prompt]), self.config)
            batch.non_tensor_batch["uid"] = objects([f"uid_{number}"] * len(batch))
            return await self.manager.generate_sequences_single(batch)

        async def all_of_them() -> list[Any]:
            numbers = range(self.number, self.number + len(prompts))
            self.number += len(prompts)
            return await asyncio.gather(*map(one, prompts, numbers))

        return asyncio.run(all_of_them())


def ranks_by_length(out: Any) -> list[float]:
    width = out.batch["prompts"].shape[1]
    lengths = out.batch["attention_mask"][:, width:].sum(1).tolist()
    scores = out.batch["rm_scores"].sum(1).tolist()
    return [score for _, score in sorted(zip(lengths, scores, strict=True))]


def test_fully_async_groups_come_whole(given: Callable[..., Given], tokenizer: Any) -> None:
    trainer = FullyAsync(given("ranked"), tokenizer, lambda prompt, call: "x" * call)
    for out in trainer.generate("a", "b", "c"):
        assert ranks_by_length(out) == [0, 0.5, 1]
        assert out.non_tensor_batch["judgekit/missing"].tolist() == [0, 0, 0]


def test_fully_async_rollouts_without_a_reward_are_left_out(
    given: Callable[..., Given], tokenizer: Any
) -> None:
    """One of three is masked and has the others' mean; where nobody has a reward, two tokens are left, as equals."""
    trainer = FullyAsync(
        given("excluding", "algorithm.adv_estimator=judgekit_grpo"),
        tokenizer,
        lambda prompt, call: "down" if "lost" in prompt or call % 3 == 0 else ["aaaa", "zzzz"][call % 3 - 1],
    )
    (out,) = trainer.generate("one")
    missing = out.non_tensor_batch["judgekit/missing"] == 1
    assert missing.sum() == 1
    assert out.batch["response_mask"].sum(1)[missing].item() == 0
    assert (out.batch["response_mask"].sum(1)[~missing] > 0).all()
    scores = out.batch["rm_scores"].sum(1)
    assert scores[missing].item() == pytest.approx(scores[~missing].mean().item())
    (lost,) = trainer.generate("lost")
    assert sorted(lost.batch["response_mask"].sum(1).tolist()) == [0, 1, 1]
    assert len(set(lost.batch["rm_scores"].sum(1).tolist())) == 1


def test_fully_async_a_step_is_counted_over_its_prompts(
    given: Callable[..., Given], tokenizer: Any, caplog: Any
) -> None:
    """A step is ppo_mini_batch_size prompts here: the driver says once what became of their six rollouts."""
    trainer = FullyAsync(
        given("down_at_times"), tokenizer, lambda prompt, call: ["down", "aaaa", "zzzz"][call % 3]
    )
    caplog.clear()  # of what an earlier test's driver said
    with caplog.at_level(logging.INFO, "judgekit"):
        trainer.generate("a", "b")
        until(lambda: "6 rollouts graded" in caplog.text)
    assert "failed on 2 of 6 rollouts" in caplog.text


def test_fully_async_the_trainer_logs_each_graders_curves(
    given: Callable[..., Given], tokenizer: Any
) -> None:
    """What verl's trainer takes into its metrics from a batch that verl makes of several prompts."""
    from verl.experimental.fully_async_policy.detach_utils import (
        MetricsAggregator,
        RolloutSample,
        assemble_batch_from_rollout_samples,
    )
    from verl.experimental.fully_async_policy.fully_async_trainer import FullyAsyncTrainer

    trainer = FullyAsync(
        given("down_at_times"), tokenizer, lambda prompt, call: ["down", "aaaa", "zzzz"][call % 3]
    )
    trainer.generate("a", "b")

    def metrics() -> dict[str, Any]:
        outs = trainer.generate("c", "d", "e")
        for number, out in enumerate(outs):
            out.non_tensor_batch["uid"] = objects([f"uid_{number}"] * len(out))
        fields = RolloutSample.__dataclass_fields__
        samples = []
        for number, out in enumerate(outs):
            known = {
                "full_batch": out,
                "sample_id": str(number),
                "epoch": 0,
                "rollout_status": {"count/x": 1},
            }
            samples.append(RolloutSample(**{k: v for k, v in known.items() if k in fields}))
        batch = assemble_batch_from_rollout_samples(samples, tokenizer, trainer.config)
        actor = getattr(FullyAsyncTrainer, "__ray_metadata__", None)
        plain = actor.modified_class if actor is not None else FullyAsyncTrainer
        its = object.__new__(plain)
        its.current_param_version = its.stale_trajectory_processed = 0
        found: dict[str, Any] = {}
        its._collect_metrics_from_samples(batch, found)
        return found

    until(lambda: any("judgekit" in name for name in metrics()))
    found = metrics()
    ours = {name: value for name, value in found.items() if name.startswith("fully_async/judgekit")}
    assert any(name.endswith("mean") for name in ours), found
    assert any(name.endswith("failure_rate") for name in ours)
    aggregator = MetricsAggregator(total_gpus=1)
    aggregator.add_step_metrics(found, sample_count=3)
    assert ours.keys() <= aggregator.get_aggregated_metrics().keys()


def test_fully_async_too_many_failures_end_the_training(given: Callable[..., Given], tokenizer: Any) -> None:
    trainer = FullyAsync(given("down"), tokenizer, lambda prompt, call: "x")

    def train() -> None:
        trainer.generate("a", "b")  # its workers may take a minute to start
        end = time.time() + 60
        while time.time() < end:
            trainer.generate("a", "b")
            time.sleep(0.5)

    with pytest.raises(Exception, match="always_down 100.0 %"):
        train()


def test_a_manager_without_our_hook_keeps_verls_workers(given: Callable[..., Given], tokenizer: Any) -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager

    from judgekit_verl import group

    one = given("pointwise")
    with open_dict(one.config):
        one.config.actor_rollout_ref.rollout.agent.agent_loop_manager_class = None
    plain = AgentLoopManager(config=one.config, llm_client=None, reward_loop_worker_handles=[])
    worker = plain.agent_loop_workers_class.__ray_metadata__.modified_class
    assert not issubclass(worker, group.GroupWorker)


def test_one_step_off(given: Callable[..., Given], tokenizer: Any) -> None:
    """Its configuration says trainer.use_v1=True; it hands over a DataProto from its loop, and gets one."""
    from verl.experimental.one_step_off_policy.ray_trainer import OneStepOffRayTrainer
    from verl.utils.import_utils import load_class_from_fqn

    one = given("ranked", "trainer.balance_batch=False")
    assert one.config.trainer.get("use_v1", True)  # 0.8.0 has no such key
    trainer = object.__new__(OneStepOffRayTrainer)
    trainer.config = one.config
    trainer.global_steps = 3
    fqn = one.config.actor_rollout_ref.rollout.agent.agent_loop_manager_class
    trainer.async_rollout_manager = load_class_from_fqn(fqn, "AgentLoopManager").create(
        config=one.config,
        llm_client=FakePolicy(tokenizer, lambda prompt, call: "x" * call),
        reward_loop_worker_handles=one.loop.reward_loop_workers,
    )
    batches = iter([(0, {k: v for k, v in columns(["a", "b"]).items() if k != "uid"})])
    _, _, _, batch, _ = asyncio.run(trainer._async_gen_next_batch(batches))
    one.managers.append(trainer.async_rollout_manager)
    for rows in (slice(0, 3), slice(3, 6)):
        assert ranks_by_length(batch[rows]) == [0, 0.5, 1]
    assert batch.meta_info["timing"]["judgekit/longest/mean"] == 0.5


def until(true: Callable[[], bool], wait_s: float = 60) -> None:
    end = time.time() + wait_s
    while not true():
        assert time.time() < end, "it did not happen"
        time.sleep(0.2)
