"""Run by test_legacy.py inside an old verl: its own loader and compute_reward with our manager.

old_verl.py POLICY_FOLDER    prints the version and the rewards as JSON
"""

from __future__ import annotations

import json
import sys

import verl
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import compute_reward, load_reward_manager

import judgekit_verl
from batches import batch

# 0.5 and earlier know a manager only once it is imported; by its class path, too, it is the batch manager
assert judgekit_verl.JudgeKitRewardManager is judgekit_verl.JudgeKitLegacyRewardManager


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    config = OmegaConf.create(
        {
            "data": {"reward_fn_key": "data_source"},
            "custom_reward_function": {"path": None, "name": None},
            "reward_model": {
                "reward_manager": "judgekit",
                "sandbox_fusion": {"url": None},
                "launch_reward_fn_async": False,
            },
        }
    )
    manager = load_reward_manager(config, tokenizer, 0, judgekit_runner="graders_for_tests:ranked")
    data = batch(tokenizer, ["x", "zz", "xxx", "z"], uids=["a", "b", "a", "b"])
    tensor, extra = compute_reward(data, manager)
    print(json.dumps([verl.__version__, tensor.sum(1).tolist(), extra["longest_score"]]))


if __name__ == "__main__":
    main()
