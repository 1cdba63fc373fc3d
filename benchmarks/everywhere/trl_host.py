"""TRL's own GRPOTrainer, up to the rewards that it computes advantages from."""

import math
import sys
from pathlib import Path

import conftest  # noqa: F401 - settings of TRL's tests, before it is imported

# isort: split
from samples import SIZE, samples, write

from judgekit_trl import judgekit_reward
from toy_training import trainer

made = trainer(Path("run"), judgekit_reward(sys.argv[1]), num_generations=SIZE)
rows = samples()
batch = [{"prompt": [{"role": "user", "content": one.prompt}], "solution": one.truth} for one in rows]
completions = [[{"role": "assistant", "content": one.text}] for one in rows]
prompts = [row["prompt"] for row in batch]
found = made._calculate_rewards(batch, prompts, completions, [[1] * 3 for _ in rows])[:, 0].tolist()
write(
    "TRL, GRPOTrainer",
    (
        (one, None, "NaN, which its means leave out") if math.isnan(reward) else (one, reward, "")
        for one, reward in zip(rows, found, strict=True)
    ),
    package="trl",
)
