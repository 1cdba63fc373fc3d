"""Does each turn's reward lie on its own tokens in verl, and do missing members move nobody?

    make bench-credit

Places: 1,000 random trajectories of several turns for V0, where the driver writes the rewards of a batch, and for V1, where a worker
hands verl each trajectory as the TransferQueue gets it. Rewards are compared token by token with those that follow from the
texts; 15 % end with an observation, and a fifth of the turns has no opinion. Missing: advantages by verl's own functions, of batches in which 300 of
1,000 rewards are missing, against the valid members alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parents[2] / "benchmarks")]
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import torch
from common import finish, machine, reported
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from batches import Nowhere, objects
from judgekit_verl.manager import JudgeKitRewardManager
from judgekit_verl.sessions import group_worker_v1
from test_turns import HOOK, config_of, expected, graded, talk
from tiny_policy import make_policy

COUNT, WIDTH, N = 1000, 64, 8


def composed(folder: Path) -> Any:
    """Return a function that composes verl's configuration with overrides, as its tests do."""
    import verl
    from hydra import compose, initialize_config_dir

    def make(*overrides: str) -> Any:
        config = str(Path(str(verl.__file__)).parent / "trainer" / "config")
        with initialize_config_dir(config_dir=config, version_base=None):
            given = [
                f"actor_rollout_ref.model.path={folder}",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.response_length={WIDTH}",
            ]
            return compose(config_name="ppo_trainer", overrides=[*given, *overrides])

    return make


class Count:
    """Of trajectories with a reward: wrong tokens, the largest error of a sum, and those that end with an observation."""

    def __init__(self) -> None:
        self.found = self.wrong = self.observed = 0
        self.worst = 0.0

    def add(self, got: list[float], mask: list[int], texts: list[str]) -> None:
        want = expected(mask, texts, len(got))
        self.found += 1
        self.wrong += sum(abs(a - b) > 1e-6 for a, b in zip(got, want, strict=True))
        self.worst = max(self.worst, abs(sum(got) - sum(want)))
        self.observed += mask[-1] == 0


def by_driver(config: Any, tokenizer: Any, talks: list[Any]) -> Count:
    """V0."""
    count = Count()
    data = graded(config, tokenizer, talks, WIDTH)
    for row, (_, mask, texts) in enumerate(talks):
        if not data.non_tensor_batch["judgekit/missing"][row]:
            count.add(data.batch["rm_scores"][row].tolist(), mask, texts)
    return count


def by_worker(config: Any, tokenizer: Any, talks: list[Any]) -> Count:
    """V1: a worker of ours, whose trajectories go where verl's TransferQueue would take them."""
    count = Count()
    manager = JudgeKitRewardManager(config, tokenizer)
    manager._step_counts = lambda: Nowhere()

    class Handle:
        """A reward worker in this process."""

        compute_score = property(lambda self: self)

        def remote(self, data: Any) -> Any:
            return asyncio.ensure_future(manager.run_single(data))

    made = group_worker_v1()
    worker = object.__new__(made)
    worker.tokenizer, worker.config = tokenizer, config
    worker.reward_loop_worker_handles, worker.background_tasks = [Handle()], set()

    async def session(prompt: int, number: int) -> None:
        ids, mask, texts = talks[prompt * N + number]
        output = AgentLoopOutput(
            prompt_ids=[5, 6],
            response_ids=ids,
            response_mask=mask,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={},
        )
        outputs = [output]
        columns = {
            "uid": f"u{prompt}",
            "session_id": number,
            "raw_prompt": [{"role": "user", "content": "q"}],
        }
        await worker._take_part(f"u{prompt}", number, worker._compute_score(outputs, columns))
        fields = outputs[-1].as_dict()  # what verl puts into the queue
        if not fields["extra_fields"]["reward_extra_info"]["judgekit/missing"]:
            count.add(fields["rm_scores"].tolist(), mask, texts)

    async def prompt(at: int) -> None:
        worker._meet({f"u{at}": N}, training=True)
        await asyncio.gather(*(asyncio.create_task(session(at, number)) for number in range(N)))

    async def everything() -> None:
        await asyncio.gather(*(asyncio.create_task(prompt(at)) for at in range(COUNT // N)))

    asyncio.run(everything())
    return count


def missing_error() -> float:
    """The largest error of a sibling's advantage where 300 of 1,000 are missing."""
    rng = random.Random(3)
    width = 40
    rewards, mask = torch.zeros(COUNT, width), torch.zeros(COUNT, width, dtype=torch.long)
    for row in range(COUNT):
        at = 0
        for _ in range(rng.randint(1, 5)):
            length = rng.randint(1, 4)
            mask[row, at : at + length] = 1
            rewards[row, at + length - 1] = rng.uniform(-1, 1)
            at += length + rng.randint(1, 3)
    uids = [f"u{row // N}" for row in range(COUNT)]
    missing = sorted(rng.sample(range(COUNT), 300))
    kept = [row for row in range(COUNT) if row not in set(missing)]
    left_out = mask.clone()
    left_out[missing] = 0
    config = OmegaConf.create({"gamma": 1.0})

    def advantages(rows: list[int], mask: Any, *, v1: bool) -> Any:
        tensors = {"token_level_rewards": rewards[rows], "response_mask": mask[rows]}
        names = objects([uids[row] for row in rows])
        data = DataProto(batch=TensorDict(tensors, batch_size=len(rows)), non_tensor_batch={"uid": names})
        given: Any = {"adv_estimator": "judgekit_turn_grpo", "num_repeat": N, "config": config}
        if v1:
            keys = [f"{uids[row]}_{row % N}_0" for row in rows]
            return compute_advantage_for_multi_trajectories(data, batch_keys=keys, **given).batch[
                "advantages"
            ]
        return compute_advantage(data, **given).batch["advantages"]

    worst = 0.0
    for v1 in (False, True):
        whole = advantages(list(range(COUNT)), left_out, v1=v1)
        assert not whole[missing].any()
        worst = max(worst, float((whole[kept] - advantages(kept, mask, v1=v1)).abs().max()))
    return worst


def main() -> None:
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = AutoTokenizer.from_pretrained(make_policy(Path(folder)))
        config = config_of(composed(Path(folder)), "test_turns:turns_runner", HOOK)
        rng = random.Random(11)
        talks = [talk(tokenizer, rng) for _ in range(COUNT)]
        ways = {
            "verl V0": by_driver(config, tokenizer, talks),
            "verl V1": by_worker(config, tokenizer, talks),
        }
    finish(
        {
            "trajectories": dict.fromkeys(ways, COUNT),
            "with_a_reward": {way: count.found for way, count in ways.items()},
            "token_sum_error": max(count.worst for count in ways.values()),
            "wrong_tokens": sum(count.wrong for count in ways.values()),
            "ended_with_observation": {way: count.observed for way, count in ways.items()},
            "missing_error": missing_error(),
        }
    )


if __name__ == "__main__":
    reported(main)
