"""A training of SkyRL's trainers: repeat the last digit of the prompt. Arguments: reward.yaml, seed, steps; every other seed is fully asynchronous."""

import json
import sys
from pathlib import Path

import conftest  # noqa: F401 - the shim for Python 3.11, before skyrl

# isort: split
from judgekit import AuditAlarm
from toy_training import train

config, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done: set[int] = set()
said = ""
try:
    train(
        Path("run"),
        steps=steps,
        seed=seed,
        fully_async=seed % 2 == 1,
        per_prompt=8,
        truth=lambda i: str(i % 10),
        on_step=done.add,
        config=Path(config),
    )
except AuditAlarm as error:
    said = str(error)
print(json.dumps({"steps": len(done), "stopped": bool(said), "said": said}))
