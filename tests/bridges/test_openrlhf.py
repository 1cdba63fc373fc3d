"""OpenRLHF's own executor, which loads the reward function from a file; a stand-in generates."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import MissingRewardError

from .conftest import imported, missing

agent: Any = imported("openrlhf.utils.agent")
torch: Any = imported("torch")


class Tokenizer:
    """A token for each character; 0 ends a reply."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[ord(c) for c in text]])}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(chr(i) if i else "" if skip_special_tokens else "<eos>" for i in ids)


class Engine:
    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, ids: Any, params: Any, **_: Any) -> Any:
        tokens = [ord(c) for c in self.text] + [0]
        made = SimpleNamespace(token_ids=tokens, text=self.text, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[made])


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


AGENT = """
import torch
from openrlhf.utils.agent import AgentInstanceBase

from judgekit.bridges.openrlhf import judged


class AgentInstance(AgentInstanceBase):
    def __init__(self, *args, **kwargs):
        self.turns = 0

    async def step(self, states, **kwargs):
        self.turns += 1
        return {
            "rewards": torch.tensor(0.5 * (self.turns == 2)),
            "environment_feedback": "<tool>the answer is #### 4<bot>",
            "done": self.turns == 2,
            "extra_logs": {"turns": torch.tensor(self.turns)},
        }


AgentExecutor = judged(AgentInstance)
"""


def test_an_agent_s_conversation_is_graded_at_its_end(reward: Path, tmp_path: Path) -> None:
    """OpenRLHF's own loop of turns; what the tool says is not the policy's answer."""
    loader = imported("openrlhf.utils.agent")
    missing(reward, "raise")
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    spec = importlib.util.spec_from_file_location("agent_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert issubclass(module.AgentExecutor, loader.AgentExecutorBase)  # what --train.agent_func_path asks for

    def converse(text: str) -> Any:
        params = SimpleNamespace(max_tokens=64, logprobs=None)
        executor = module.AgentExecutor()
        return asyncio.run(executor.execute("<user>2+2?<bot>", "4", params, 512, Tokenizer(), Engine(text)))

    for text, paid in (("#### 4", 1.0), ("#### 5", 0.25)):
        made = converse(text)
        assert (made["reward"], made["scores"]) == (0.5 + paid, 0.5 + paid)
        assert made["extra_logs"]["judgekit_missing"] == 0.0
        assert len(made["action_ranges"]) == 2
    with pytest.raises(MissingRewardError, match="flaky"):
        converse("broken")
