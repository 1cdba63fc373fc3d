"""Run by tests inside an old verl: its own loader and compute_reward with our manager, or our function.

old_verl.py POLICY_FOLDER                      prints the version and the rewards as JSON
old_verl.py POLICY_FOLDER scores KEY=VALUE…    the same with custom_reward_function's options, and verl's naive manager
"""

from __future__ import annotations

import json
import sys
from typing import Any

import verl
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import compute_reward, load_reward_manager

import judgekit_verl
from batches import batch

# 0.5 and earlier know a manager only once it is imported; by its class path, too, it is the batch manager
assert judgekit_verl.JudgeKitRewardManager is judgekit_verl.JudgeKitLegacyRewardManager


def config_of(manager: str, function: dict[str, str]) -> Any:
    return OmegaConf.create(
        {
            "data": {"reward_fn_key": "data_source"},
            "custom_reward_function": {"path": None, "name": None, **function},
            "reward_model": {
                "reward_manager": manager,
                "sandbox_fusion": {"url": None},
                "launch_reward_fn_async": False,
            },
        }
    )


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    if "scores" in sys.argv:
        given = dict(one.split("=", 1) for one in sys.argv[3:])
        path, name = given.pop("path"), given.pop("name")
        config = config_of("naive", {"path": path, "name": name, "reward_kwargs": given})
        manager = load_reward_manager(config, tokenizer, 0)
        sources = ["llm_judge_remote_math", "openai/gsm8k"]
        data = batch(
            tokenizer,
            ["It is 4.", "#### 4"],
            truths=["4", "4"],
            sources=sources,
            extra=[{"problem": "2 + 2?"}] * 2,
        )
        tensor, _ = compute_reward(data, manager)
        print(json.dumps([verl.__version__, tensor.sum(1).tolist()]))
        return
    config = config_of("judgekit", {})
    manager = load_reward_manager(config, tokenizer, 0, judgekit_runner="graders_for_tests:ranked")
    data = batch(tokenizer, ["x", "zz", "xxx", "z"], uids=["a", "b", "a", "b"])
    tensor, extra = compute_reward(data, manager)
    print(json.dumps([verl.__version__, tensor.sum(1).tolist(), extra["longest_score"]]))


if __name__ == "__main__":
    main()
