"""Run by tests inside an earlier verl with a reward loop: earlier_verl.py POLICY_FOLDER OVERRIDE…

Its own configuration with the README's overrides, its own loader, and one rollout at a time, as its reward loop's workers
ask; prints the version, the manager's class, the rewards, and whether its driver finds the hook's workers, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import verl
from hydra import compose, initialize_config_dir
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import load_reward_manager
from verl.utils.import_utils import load_class_from_fqn

from batches import batch


async def main() -> None:
    policy, *overrides = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(policy)
    folder = str(Path(str(verl.__file__)).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose("ppo_trainer", [f"actor_rollout_ref.model.path={policy}", *overrides])
    hook = load_class_from_fqn(config.actor_rollout_ref.rollout.agent.agent_loop_manager_class)
    without_hook = config.copy()
    without_hook.actor_rollout_ref.rollout.agent.agent_loop_manager_class = None
    manager = load_reward_manager(without_hook, tokenizer)
    data = batch(tokenizer, ["It is 4.", "It is 5."], truths=["4", "4"])
    paid = [(await manager.run_single(data[i : i + 1]))["reward_score"] for i in range(2)]
    print(json.dumps([verl.__version__, type(manager).__name__, paid, hook.__name__]))


if __name__ == "__main__":
    asyncio.run(main())
