"""verl's own V1 agent loop with its reward loop, on a Ray of its own; a script stands in for the policy."""

import sys
from pathlib import Path
from typing import Any

import conftest  # noqa: F401 - settings of verl's tests, before it is imported

# isort: split
import ray
import verl
from hydra import compose, initialize_config_dir
from samples import SIZE, Script, by_prompt, write
from transformers import AutoTokenizer

from batches import FakePolicy
from test_groups import HOOK, MANAGER, V1
from tiny_policy import make_policy


def main() -> None:
    policy = make_policy(Path("policy").absolute())
    settings = [
        f"actor_rollout_ref.model.path={policy}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.prompt_length=64",
        "actor_rollout_ref.rollout.response_length=256",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        f"actor_rollout_ref.rollout.n={SIZE}",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        "algorithm.adv_estimator=grpo",
        "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "reward.num_workers=2",
        f"+reward.reward_kwargs.judgekit_config={sys.argv[1]}",
        HOOK,
        MANAGER,
    ]
    with initialize_config_dir(
        str(Path(str(verl.__file__)).parent / "trainer" / "config"), version_base=None
    ):
        config = compose("ppo_trainer", settings)
    ray.init("local", num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    made = V1(config, FakePolicy(AutoTokenizer.from_pretrained(policy), Script()))
    try:
        rows = made.step([prompt for prompt, _ in by_prompt()], wait_s=300)
    finally:
        made.close()
        ray.shutdown()
    # a trajectory says its group; of a group's texts each has its own length, and an end
    by_length = {(one.group, len(one.text) + 1): one for _, group in by_prompt() for one in group}
    found = ((by_length[row["group"], row["length"]], row["score"], told(row)) for row in rows)
    write("verl, V1", found, package="verl")


def told(row: dict[str, Any]) -> str:
    if row["own_uid"]:
        return "a uid of its own, no sibling's mean"
    return "judgekit/missing" if row["info"]["judgekit/missing"] else ""


main()
