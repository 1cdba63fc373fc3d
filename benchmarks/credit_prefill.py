"""How many tokens does a judge read for 8 verdicts on one trajectory, against the last of them alone?

Part of make bench-credit. vLLM on CPU with its prefix cache on and a random model; trajectories of 8 turns whose messages are some 60 words
long. A token that the cache has is not read again. A trajectory is asked about once by `judge_turns`, and, on texts of the same
lengths that the cache has not seen, once about the last turn alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.simplefilter("ignore")

from common import WORDS, finish, machine, reported
from tiny_models import make_model

from judgekit import Graded, GradingRunner, Rollout, Turns
from judgekit.graders import JudgeTurns
from judgekit.judges import ChoiceVerdict, VLLMJudge, stacked

TURNS, TRAJECTORIES = 8, 12


def trajectory(rng: random.Random, number: int) -> Rollout:
    """A task, and 8 turns, each with a tool's answer."""

    def said(words: int) -> str:
        return f"{number} " + " ".join(rng.choice(WORDS) for _ in range(words))

    messages: list[Any] = [{"role": "user", "content": said(40)}]
    for _ in range(TURNS):
        messages += [{"role": "assistant", "content": said(60)}, {"role": "tool", "content": said(60)}]
    return Rollout(prompt=messages[0]["content"], response=messages[-2]["content"], messages=messages)


def read(grade: Any) -> int:
    """Tokens of a grade's prompts that were not in the cache."""
    assert isinstance(grade, Graded), grade
    assert grade.usage is not None
    return grade.usage.prompt_tokens - grade.usage.cached_tokens


async def measured(judge: Any) -> tuple[int, int]:
    rng = random.Random(0)
    all_of_them = last_alone = 0
    grader = JudgeTurns(judge, verdict=ChoiceVerdict(min_mass=0.0))  # a random model prefers other tokens
    async with GradingRunner({"progress": grader}, Turns("progress")) as runner:
        await runner.run([trajectory(rng, 9999)])  # the template is in the cache for both
        for number in range(TRAJECTORIES):
            (result,) = await runner.run([trajectory(rng, number)])
            all_of_them += read(result.grades["progress"])
            one = trajectory(rng, 1000 + number)
            last_alone += read(await grader._one.ask_about(judge, one))
    return all_of_them, last_alone


def main() -> None:
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        judge = stacked(VLLMJudge(str(model), max_model_len=4096))
        all_of_them, last_alone = asyncio.run(measured(judge))
    finish({"prefilled": all_of_them, "last_alone": last_alone, "prefill_ratio": all_of_them / last_alone})


if __name__ == "__main__":
    reported(main)
