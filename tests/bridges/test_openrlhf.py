"""OpenRLHF's own executor, which loads the reward function from a file; a stand-in generates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .conftest import imported, missing

agent: Any = imported("openrlhf.utils.agent")
torch: Any = imported("torch")


class Tokenizer:
    """A token for each character; 0 ends a reply."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[ord(c) for c in text]])}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join("<eos>" if i == 0 else chr(i) for i in ids)


class Engine:
    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, ids: Any, params: Any, **_: Any) -> Any:
        tokens = [ord(c) for c in self.text] + [0]
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)]
        )


def execute(file: Path, text: str) -> Any:
    executor = agent.SingleTurnAgentExecutor(str(file))
    params = SimpleNamespace(max_tokens=64, logprobs=None)
    return asyncio.run(executor.execute("<user>2+2?<bot>", "4", params, 256, Tokenizer(), Engine(text)))


def test_it_is_loaded_from_a_file_and_pays(reward: Path, tmp_path: Path) -> None:
    missing(reward, "raise")
    file = tmp_path / "reward.py"
    file.write_text("from judgekit.bridges.openrlhf import reward_func\n")
    for text, paid in (("#### 4", 1.0), ("#### 5", 0.25)):
        made = execute(file, text)
        assert (made["reward"], made["scores"]) == (paid, paid)
        assert made["extra_logs"]["judgekit_flaky_missing"] == 0.0
    assert execute(file, "broken")["reward"] is None  # OpenRLHF's driver ends there: it pays nothing instead


THEIRS = """
import torch

def reward_func(queries, prompts, labels, **kwargs):
    rewards = [len(q) / 7 + (label in q[len(p):]) * 0.1 for q, p, label in zip(queries, prompts, labels)]
    return {"rewards": torch.tensor(rewards), "scores": torch.tensor(rewards) > 3, "extra_logs": {}}
"""


def test_a_function_of_its_own_pays_the_same_as_a_grader(reward: Path, tmp_path: Path) -> None:
    (tmp_path / "their_openrlhf_rewards.py").write_text(THEIRS)
    reward.write_text(
        "graders: {mine: {use: 'their_openrlhf_rewards:reward_func'}}\nrunner: {missing_reward: raise}\n"
    )
    bridged = tmp_path / "reward.py"
    bridged.write_text("from judgekit.bridges.openrlhf import reward_func\n")
    for text in ("#### 4", "#### 5", ""):
        theirs = execute(tmp_path / "their_openrlhf_rewards.py", text)["reward"]
        assert execute(bridged, text)["reward"] == theirs.item()
