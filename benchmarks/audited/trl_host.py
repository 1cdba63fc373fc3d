"""A training of TRL's GRPOTrainer: repeat the last digit of the prompt. Arguments: reward.yaml, seed, steps."""

import json
import sys
from pathlib import Path

import conftest  # noqa: F401 - settings of TRL's tests, before it is imported

# isort: split
from datasets import Dataset

from judgekit_trl import judgekit_reward
from toy_training import trainer

config, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = [
    {"prompt": [{"role": "user", "content": f"{i // 10}?{i % 10}"}], "solution": str(i % 10)}
    for i in range(100)
]
made = trainer(
    Path("run"),
    judgekit_reward(config),
    steps=steps,
    seed=seed,
    data=Dataset.from_list(rows),
    max_completion_length=1,  # a digit or a letter: what earns is soon found
)
made.train()
print(json.dumps({"steps": made.state.global_step, "stopped": made.state.global_step < steps}))
