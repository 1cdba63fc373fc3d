"""What judgekit's manager costs beside verl's own, and whether groups starve.

    make bench-verl

verl's RewardLoopWorker, in this process, with verl's naive manager and with ours, both with the same trivial
score (the length of the response): CPU time of this process per sample, for a batch in one call and for
samples one by one. Rounds alternate; the median of the rounds' ratios counts, with the middle half.

Then 2,000 groups of 2 on one worker as a Ray actor, in the worst order: all first members, all second members,
then every group's end. An actor runs 1,000 calls at once; a group that waited inside one would starve here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}
TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(Path(__file__).parents[3] / "benchmarks")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import ray
import verl
from common import finish, machine, reported
from hydra import compose, initialize_config_dir
from transformers import AutoTokenizer
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

from batches import batch
from judgekit import Rollout
from judgekit_verl.manager import Arrived, Complete
from tiny_policy import make_policy

ROWS = 512
GROUPS = 2_000


def config_of(policy: Path, *overrides: str) -> Any:
    folder = str(Path(str(verl.__file__)).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        return compose(
            config_name="ppo_trainer",
            overrides=[f"actor_rollout_ref.model.path={policy}", "reward.num_workers=1", *overrides],
        )


async def cpu_batch(worker: RewardLoopWorker, data: Any) -> float:
    start = time.process_time()
    await worker.compute_score_batch(data)
    return time.process_time() - start


async def cpu_stream(worker: RewardLoopWorker, data: Any) -> float:
    rows = [data[i : i + 1] for i in range(len(data))]
    start = time.process_time()
    for row in rows:
        await worker.compute_score(row)
    return time.process_time() - start


async def ratios(policy: Path, rounds: int) -> dict[str, float]:
    tokenizer = AutoTokenizer.from_pretrained(policy)
    naive = RewardLoopWorker(
        config_of(
            policy,
            "reward.reward_manager.name=naive",
            f"reward.custom_reward_function.path={TESTS / 'trivial_score.py'}",
        )
    )
    ours = RewardLoopWorker(
        config_of(
            policy,
            "reward.reward_manager.name=judgekit",
            "+reward.reward_kwargs.judgekit_runner=graders_for_tests:trivial",
        )
    )
    data = batch(tokenizer, ["some words and a number 42"] * ROWS, uids=[str(i // 8) for i in range(ROWS)])
    figures: dict[str, float] = {}
    for name, way in (("batch", cpu_batch), ("stream", cpu_stream)):
        pairs = []
        for number in range(-2, rounds):
            pair = {}
            order = (("naive", naive), ("ours", ours))
            for which, worker in order if number % 2 else order[::-1]:
                pair[which] = await way(worker, data)
            if number >= 0:
                pairs.append(pair)
        found = sorted(p["ours"] / p["naive"] for p in pairs)
        low, high = found[len(found) // 4], found[-1 - len(found) // 4]
        for which in ("naive", "ours"):
            cost = statistics.median(p[which] for p in pairs) / ROWS * 1e6
            print(f"  {name}: {which} {cost:.0f} µs of CPU per sample", flush=True)
        figures[f"ratio_{name}"] = statistics.median(found)
        print(f"  {name}: ratio {figures[f'ratio_{name}']:.2f} (middle half {low:.2f} … {high:.2f})")
    return figures


def starving(policy: Path) -> int:
    """Groups of 2,000 whose rewards do not come."""
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    hook = "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager"
    config = config_of(
        policy,
        hook,
        "reward.reward_manager.name=judgekit",
        "+reward.reward_kwargs.judgekit_runner=graders_for_tests:ranked",
    )
    worker = ray.remote(RewardLoopWorker).remote(config)
    for member in range(2):
        for group in range(GROUPS):
            rollout = Rollout(response="x" * (member + 1), group=group)
            worker.compute_score.remote(
                Arrived(
                    group=str(group),
                    session=member,
                    size=2,
                    rollout=rollout,
                    tags={},
                    training=True,
                    own_uid=True,
                )
            )
    calls = [
        worker.compute_score.remote(
            Complete(group=str(group), sessions=(0, 1), size=2, training=True, own_uid=True)
        )
        for group in range(GROUPS)
    ]
    ready, _ = ray.wait(calls, num_returns=GROUPS, timeout=240)
    right = sum([a["reward_score"] for a in answer["group"]] == [0.0, 1.0] for answer in ray.get(ready))
    ray.shutdown()
    return GROUPS - right


def main() -> None:
    print(machine())
    policy = make_policy(Path(tempfile.mkdtemp()))
    figures: dict[str, Any] = asyncio.run(ratios(policy, 15))
    figures["groups_incomplete"] = starving(policy)
    goals = {"groups_incomplete": ("==", 0), "ratio_batch": ("<=", 1.10), "ratio_stream": ("<=", 1.10)}
    finish(figures, goals)


if __name__ == "__main__":
    reported(main)
