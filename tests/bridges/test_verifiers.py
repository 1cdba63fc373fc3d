"""verifiers' own tasks, traces and loaders, with a reward of judgekit plugged in by settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, MissingRewardError

from .conftest import imported, missing

vf: Any = imported("verifiers.v1")


class Data(vf.TaskData):  # type: ignore[misc]
    answer: str | None = None


class QA(vf.Task[Data, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    pass


def plugged() -> Any:
    return vf.TaskConfig(rewards={"judgekit": {"fn": "judgekit.bridges.verifiers:reward"}})


def trace_of(data: Data, reply: str) -> Any:
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import AssistantMessage, UserMessage

    return vf.Trace(
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        task=vf.TraceTask(type="Task", data=data),
        nodes=[
            MessageNode(parent=None, message=UserMessage(content="2+2?"), sampled=False),
            MessageNode(parent=0, message=AssistantMessage(content=reply), sampled=True),
        ],
    )


async def test_it_pays_what_the_tree_says(reward: Path) -> None:
    for reply, paid in (("#### 4", 1.0), ("#### 5", 0.25)):
        data = Data(idx=1, prompt="2+2?", answer="4")
        trace = trace_of(data, reply)
        await QA(data, plugged()).score(trace)
        assert trace.reward == paid
        assert trace.metrics["judgekit/flaky"] == 1.0
        assert trace.metrics["judgekit/missing"] == 0.0


async def test_a_missing_reward_is_an_error_and_not_a_number(reward: Path) -> None:
    data = Data(idx=1, prompt="2+2?", answer="4")
    trace = trace_of(data, "broken #### 4")
    with pytest.raises(Exception, match="no reward: flaky") as caught:
        await QA(data, plugged()).score(trace)
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, MissingRewardError):
        error = error.__cause__ or error.__context__
    assert error is not None
    assert trace.rewards.get("judgekit") is None


async def test_graders_of_groups_are_refused(reward: Path) -> None:
    from judgekit.bridges.verifiers import reward as graded

    reward.write_text(
        "graders: {ranked: {use: listwise, judge: j}}\njudges: {j: {engine: openai, url: 'http://127.0.0.1:9/v1'}}\nreward: ranked\n"
    )
    data = Data(idx=1, prompt="2+2?", answer="4")
    with pytest.raises(ConfigError, match="one at a time"):
        await graded(data, trace_of(data, "#### 4"))


async def test_a_written_number_is_paid(reward: Path) -> None:
    from judgekit.bridges.verifiers import reward as graded

    missing(reward, "-1.0")
    data = Data(idx=1, prompt="2+2?", answer="4")
    assert await graded(data, trace_of(data, "broken")) == {"judgekit": -1.0}
