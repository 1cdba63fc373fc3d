"""One of two ranks: trains on groups that are spread over both, and on whole ones. Rank 0 prints what came of it."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch

torch.set_num_threads(1)

from graders_for_tests import fussy, longest
from judgekit import ConfigError, GradingRunner, Ledger
from judgekit_trl import judgekit_reward
from toy_training import Steps, rows, trainer

folder = Path(sys.argv[1])


def trained(name: str, rows_per_rank: int, runner: GradingRunner) -> dict[str, Any]:
    steps = Steps()
    made = trainer(
        folder / name,
        judgekit_reward(runner),
        callbacks=[steps],
        data=rows(16),
        per_device_train_batch_size=rows_per_rank,
        max_completion_length=3,
    )
    steps.trainer = made
    try:
        made.train()
    except ConfigError as error:
        return {"error": str(error)}
    figures = next((row for row in made.state.log_history if "judgekit/rollouts" in row), {})
    kept = steps.kept[0]
    return {
        "figures": {key: value for key, value in figures.items() if "judgekit" in key},
        "rewards": [None if math.isnan(reward) else reward for reward in kept["rewards"]],
        "advantages": kept["advantages"],
        "scores": kept["extra"],
    }


spread, whole = Ledger(folder / "spread.jsonl"), Ledger(folder / "whole.jsonl")
found = {
    "spread": trained("spread", 4, GradingRunner({"fussy": fussy}, ledger=spread)),
    "ranked": trained("ranked", 4, GradingRunner({"longest": longest})),
    "whole": trained("whole", 8, GradingRunner({"longest": longest}, ledger=whole)),
}
if os.environ["RANK"] == "0":
    print(json.dumps(found))
torch.distributed.destroy_process_group()
