"""OpenReward's own server and client, over HTTP."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit import Rollout

from .conftest import imported

os.environ |= {"OPENREWARD_API_KEY": "none", "OPENREWARD_DISABLE_UPDATE_CHECK": "1"}
openreward = imported("openreward")
environments = imported("openreward.environments")

from judgekit.bridges.openreward import JudgeKitRewards  # noqa: E402

ToolOutput = environments.ToolOutput
pytestmark = pytest.mark.filterwarnings("ignore")  # of its client and server


class Answer(imported("pydantic").BaseModel):  # type: ignore[misc]
    text: str


class Sums(JudgeKitRewards, environments.Environment):  # type: ignore[misc]
    def rollout(self, text: str) -> Rollout:
        return Rollout(prompt="2+2?", response=text, ground_truth=self.task_spec["answer"], group="sum")

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return [{"answer": "4"}]

    async def get_prompt(self) -> list[Any]:
        return [environments.TextBlock(text="2+2?")]

    @environments.terminal
    @environments.tool
    async def answer(self, args: Answer) -> ToolOutput:  # type: ignore[valid-type]
        return await self.graded(args.text)


@pytest.fixture
def url(reward: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server of OpenReward with this environment."""
    uvicorn = imported("uvicorn")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(environments.Server([Sums]).app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    for variable in ("OPENREWARD_SESSION_URL", "OPENREWARD_API_URL"):  # else it asks subdomains
        monkeypatch.setenv(variable, address)
    yield address
    server.should_exit = True
    thread.join()
    listener.close()


async def test_its_client_gets_rewards_and_says_what_is_missing(url: str) -> None:
    blocks = imported("openreward.api.environments.types")
    environment = openreward.AsyncOpenReward(base_url=url).environments.get("sums")
    (task,) = await environment.list_tasks(split="train")
    for text, paid, status in (
        ("#### 4", 1.0, "scored"),
        ("#### 5", 0.25, "scored"),
        ("broken", None, "excluded"),
    ):
        async with environment.session(task=task) as session:
            out = await session.call_tool("answer", {"text": text})
            assert (out.reward, out.finished, out.metadata["status"]) == (paid, True, status)

    def candidate(text: str) -> Any:
        message = openreward.Message(role="assistant", blocks=[blocks.TextBlock(text=text)])
        return openreward.GroupCandidate(messages=[message])

    async with environment.session(task=task) as session:
        assert await session.supports_score_group()
        scored = await session.score_group([candidate(text) for text in ("#### 4", "broken", "#### 5")])
    assert [one.reward for one in scored] == [1.0, 0.625, 0.25]
    assert [one.metadata["status"] for one in scored] == ["scored", "neutral", "scored"]
