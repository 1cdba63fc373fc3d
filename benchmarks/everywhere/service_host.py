"""The reward service, asked by its own client."""

import sys

from samples import samples, write

from judgekit import Rollout
from judgekit.service import RewardClient

rows = samples()
results = RewardClient(sys.argv[1]).run_sync(
    Rollout(prompt=one.prompt, response=one.text, ground_truth=one.truth, group=one.prompt, id=one.id)
    for one in rows
)
told = ("" if result.status == "scored" else f"status: {result.status}" for result in results)
write("the service's client", zip(rows, (result.reward for result in results), told, strict=True))
