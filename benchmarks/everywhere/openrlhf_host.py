"""OpenRLHF's own executor, with a reward function in a file, or the address of the service."""

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from openrlhf.utils.agent import SingleTurnAgentExecutor
from samples import Sample, each, write
from tests.bridges.test_openrlhf import Engine, Tokenizer

SERVED = sys.argv[1].startswith("http")


async def grade(remote: str) -> list[tuple[Sample, float | None, str]]:
    """Execute each rollout. *remote*: OpenRLHF's --reward.remote_url."""
    executor = SingleTurnAgentExecutor(remote)
    params = SimpleNamespace(max_tokens=256, logprobs=None)

    async def execute(one: Sample) -> tuple[Sample, float | None, str]:
        made = await executor.execute(one.prompt, one.truth, params, 512, Tokenizer(), Engine(one.text))
        if made["reward"] is None:
            return one, None, "reward: None, where its driver ends"
        missing = made["extra_logs"]["judgekit_missing"]
        return one, made["reward"], "judgekit_missing: 1, which it logs" if missing else ""

    return await each(execute, groups=SERVED)


def main() -> None:
    remote = sys.argv[1]
    if not SERVED:
        os.environ["JUDGEKIT_REWARD"] = remote
        remote = "reward_func.py"
        Path(remote).write_text("from judgekit.bridges.openrlhf import reward_func\n")
    name = "served" if SERVED else "function"
    write(f"OpenRLHF, {name}", asyncio.run(grade(remote)), package="openrlhf")


main()
