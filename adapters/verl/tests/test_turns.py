"""Turns that are paid for themselves, in verl's own containers and with its own estimators."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from batches import LocalWorker, batch, objects
from judgekit import ConfigError, GradingRunner, Turns, Weighted, grader
from judgekit.reward.turns import turn_advantages
from judgekit_verl import estimators
from judgekit_verl.samples import UNPLACED
from judgekit_verl.sessions import GroupWorker, _by_token

N = 4
HOOK = "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager"


def worth(text: str) -> float:
    return (sum(map(ord, text)) % 21 - 10) / 16


@grader(per="turn", score_range=(-1.0, 1.0))
def process(turn: str) -> float | None:
    return None if sum(map(ord, turn)) % 5 == 0 else worth(turn)


@grader
def outcome(response: str) -> float:
    return float(len(response) % 3 == 0)


def turns_runner() -> GradingRunner:
    reward = Weighted({"process": (0.5, Turns("process")), "outcome": 1.0})
    return GradingRunner({"process": process, "outcome": outcome}, reward)


def turns_or_zero() -> GradingRunner:
    return GradingRunner({"process": process}, Turns("process"), missing_reward=0.0)


def paid(texts: list[str]) -> list[float]:
    """What each turn is paid, the outcome with the last."""
    found = [0.5 * (process.function(text) or 0.0) for text in texts]
    found[-1] += outcome.function(texts[-1])
    return found


def talk(tokenizer: Any, rng: random.Random) -> tuple[list[int], list[int], list[str]]:
    """A trajectory's response tokens and mask, and the policy's texts; some end with an observation."""
    ids, mask, texts = [], [], []
    turns = rng.randint(1, 5)
    for turn in range(turns):
        text = "".join(rng.choice("abcdefgh") for _ in range(rng.randint(1, 6)))
        said = tokenizer.encode(text)
        texts.append(text)
        ids += said
        mask += [1] * len(said)
        if turn < turns - 1 or rng.random() < 0.15:
            seen = tokenizer.encode(" seen")
            ids += seen
            mask += [0] * len(seen)
    return ids, mask, texts


def expected(mask: list[int], texts: list[str], width: int) -> list[float]:
    edges = [i for i, (a, b) in enumerate(zip([0, *mask], [*mask, 0], strict=True)) if a != b]
    tokens = [0.0] * width
    for end, earned in zip(edges[1::2], paid(texts), strict=True):
        tokens[end - 1] += earned
    return tokens


def test_which_estimators_see_places() -> None:
    """Those that are refused do not change when rewards move to the end; all others do."""
    rng = random.Random(0)
    count, width = 16, 12
    mask = torch.ones(count, width, dtype=torch.long)
    mask[:, 4:6] = 0
    placed, moved = torch.zeros(count, width), torch.zeros(count, width)
    for row in range(count):
        a, b = rng.random(), rng.random()
        placed[row, 3], placed[row, -1], moved[row, -1] = a, b, a + b
    totals = moved.sum(1).numpy()

    def advantages(name: str, rewards: Any) -> Any:
        noise = torch.Generator().manual_seed(0)
        tensors = {
            "token_level_rewards": rewards.clone(),
            "response_mask": mask,
            "values": torch.rand(count, width, generator=noise),
            "old_log_probs": -torch.rand(count, width, generator=noise),
            "sum_pi_squared": torch.full((count, width), 0.9),
            "prompts": torch.ones(count, 2),
            "attention_mask": torch.ones(count, width + 2, dtype=torch.long),
            "reward_baselines": torch.zeros(count),
        }
        if name != "remax":
            del tensors["reward_baselines"]
        columns = {"uid": objects([f"u{i // N}" for i in range(count)]), "a": totals}
        config = OmegaConf.create(
            {
                "gamma": 1.0,
                "lam": 0.95,
                "norm_adv_by_std_in_grpo": True,
                "use_pf_ppo": False,
                "gdpo_reward_keys": ["a"],
            }
        )
        data = DataProto(batch=TensorDict(tensors, batch_size=count), non_tensor_batch=columns)
        return compute_advantage(
            data, adv_estimator=name, gamma=1.0, lam=0.95, num_repeat=N, config=config
        ).batch["advantages"]

    hosted: Any = type("Hosted", (), {"runner": turns_runner()})
    for name in map(str, ADV_ESTIMATOR_REGISTRY):
        sees = float((advantages(name, placed) - advantages(name, moved)).abs().max()) > 1e-4
        algorithm = OmegaConf.create({"adv_estimator": name})
        if sees:
            estimators.check_sight(algorithm, hosted)
        else:
            with pytest.raises(ConfigError) as told:
                estimators.check_sight(algorithm, hosted)
            assert str(told.value) == (
                f"algorithm.adv_estimator={name} adds up a trajectory's rewards and cannot see which turn earned what: write "
                "algorithm.adv_estimator=judgekit_turn_grpo"
            )


@pytest.mark.parametrize("v1", [False, True], ids=["V0", "V1"])
def test_turns_get_the_advantages_of_turns(v1: bool) -> None:
    rng = random.Random(1)
    rows, earned = [], []
    for _ in range(24):
        mask: list[int] = []
        ends: list[int] = []
        for _ in range(rng.randint(1, 5)):
            mask += [1] * rng.randint(1, 4)
            ends.append(len(mask) - 1)
            mask += [0] * rng.randint(1, 3)
        rows.append((mask, ends))
        earned.append([rng.uniform(-1, 1) for _ in ends])
    width = max(len(mask) for mask, _ in rows)
    masks, rewards = torch.zeros(24, width, dtype=torch.long), torch.zeros(24, width)
    for row, (mask, ends) in enumerate(rows):
        masks[row, : len(mask)] = torch.tensor(mask)
        rewards[row, ends] = torch.tensor(earned[row])
    uids = [f"u{i // N}" for i in range(24)]
    tensors = {"token_level_rewards": rewards, "response_mask": masks}
    data = DataProto(batch=TensorDict(tensors, batch_size=24), non_tensor_batch={"uid": objects(uids)})
    given: Any = {"adv_estimator": "judgekit_turn_grpo", "gamma": 0.9, "lam": 1.0, "num_repeat": N}
    given["config"] = OmegaConf.create({"gamma": 0.9})
    if v1:
        keys = [f"{uid}_{i % N}_0" for i, uid in enumerate(uids)]
        data = compute_advantage_for_multi_trajectories(data, batch_keys=keys, **given)
    else:
        data = compute_advantage(data, **given)
    got = data.batch["advantages"]
    assert not (got * (masks == 0)).any()
    for row, values in enumerate(turn_advantages(earned, uids, 0.9)):
        assert got[row, rows[row][1]].tolist() == pytest.approx(values, abs=1e-6)


def graded(config: Any, tokenizer: Any, talks: list[Any], width: int = 64) -> DataProto:
    """Grade a batch of trajectories by group as V0's hook does."""
    from verl.trainer.ppo.reward import load_reward_manager

    from judgekit_verl.group import _BatchManager

    count = len(talks)
    data = batch(tokenizer, [""] * count, uids=[f"u{i // N}" for i in range(count)], width=width)
    data.batch["response_mask"] = torch.zeros(count, width, dtype=torch.long)
    for row, (ids, mask, _) in enumerate(talks):
        data.batch["responses"][row, : len(ids)] = torch.tensor(ids)
        data.batch["attention_mask"][row, 32 : 32 + len(ids)] = 1
        data.batch["response_mask"][row, : len(ids)] = torch.tensor(mask)
    manager = object.__new__(_BatchManager)
    manager.config = config
    manager.reward_loop_worker_handles = [LocalWorker(load_reward_manager(config, tokenizer))]
    asyncio.run(manager._grade_groups(data, data))
    return data


def config_of(trainer_config: Any, runner: str, *more: str) -> Any:
    return trainer_config(
        "reward.reward_manager.source=importlib",
        "reward.reward_manager.module.path=pkg://judgekit_verl",
        "reward.reward_manager.name=JudgeKitRewardManager",
        f"+reward.reward_kwargs.judgekit_runner={runner}",
        *more,
    )


def test_each_turns_part_lies_on_its_last_token(trainer_config: Any, tokenizer: Any) -> None:
    """V0: the driver writes the rewards of tokens where verl looks for them."""
    rng = random.Random(2)
    talks = [talk(tokenizer, rng) for _ in range(40)]
    data = graded(config_of(trainer_config, "test_turns:turns_runner", HOOK), tokenizer, talks)
    scored = 0
    for row, (_, mask, texts) in enumerate(talks):
        if data.non_tensor_batch["judgekit/missing"][row]:
            continue
        scored += 1
        assert data.batch["rm_scores"][row].tolist() == pytest.approx(expected(mask, texts, 64), abs=1e-6)
    assert scored > 25
    assert sum(mask[-1] == 0 for _, mask, _ in talks) > 2
    assert set(data.non_tensor_batch[UNPLACED]) == {0.0}


def test_a_missing_reward_is_no_turns(trainer_config: Any, tokenizer: Any) -> None:
    """A trajectory without an opinion on any turn is left out, as one whose judge was down."""
    ids = tokenizer.encode("d")  # 100: no opinion
    other = tokenizer.encode("ac")
    talks = [(ids, [1] * len(ids), ["d"]), *[(other, [1] * len(other), ["ac"])] * 3]
    config = config_of(
        trainer_config, "test_turns:turns_runner", HOOK, "algorithm.adv_estimator=judgekit_turn_grpo"
    )
    data = graded(config, tokenizer, talks)
    assert data.non_tensor_batch["judgekit/missing"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert data.batch["response_mask"].sum(1).tolist()[0] == 0


@pytest.mark.parametrize("kind", ["V1", "asynchronous"])
def test_workers_place_rewards_before_verl_makes_tensors(kind: str) -> None:
    output = AgentLoopOutput(
        prompt_ids=[1, 2],
        response_ids=[3, 4, 5, 6],
        response_mask=[1, 0, 1, 0],
        reward_score=1.0,
        num_turns=2,
        metrics=AgentLoopMetrics(),
        extra_fields={"a": 1},
    )
    if kind == "V1":
        made = _by_token(output, [0.25, 0.0, 0.75, 0.0])
        fields = made.as_dict()
        assert fields["rm_scores"].tolist() == [0.25, 0.0, 0.75, 0.0]
        assert fields.keys() == output.as_dict().keys()
        made.response_mask = [0, 0, 0, 0]  # left out, later
        assert made.as_dict()["response_mask"].tolist() == [0, 0, 0, 0]
    else:
        outputs = [output]
        GroupWorker._place(object.__new__(GroupWorker), outputs, [0.25, 0.0, 0.75, 0.0])
        assert len(outputs[0].extra_fields) == 2


def test_what_cannot_place_turns_is_refused(trainer_config: Any, tokenizer: Any) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    from judgekit_verl.legacy import JudgeKitLegacyRewardManager

    with pytest.raises(ConfigError, match="which needs the hook: add .*JudgeKitAgentLoopManager"):
        load_reward_manager(config_of(trainer_config, "test_turns:turns_or_zero"), tokenizer)
    with pytest.raises(ConfigError, match="it needs verl 0.7.1 or later"):
        JudgeKitLegacyRewardManager(tokenizer, judgekit_runner="test_turns:turns_runner")


def test_turns_that_the_mask_does_not_have_are_counted() -> None:
    """The whole reward lies on the last token then."""
    from judgekit_verl.samples import token_rewards

    answer: dict[str, Any] = {"reward_score": 0.75, "turns": (0.25, 0.25), "reward_extra_info": {}}
    assert token_rewards(answer, [1, 0, 1, 0, 1]) == [0.0, 0.0, 0.0, 0.0, 0.75]
    assert answer["reward_extra_info"] == {UNPLACED: 1.0}
    assert token_rewards({"reward_score": 0.75, "reward_extra_info": {}}, [1]) is None
