"""NeMo-Gym's own HTTP client and models, against the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from judgekit import GradingRunner, JudgeUnavailable, Rollout, grader
from judgekit.graders import FinalAnswer
from tests.service.serving import serving

from .conftest import imported

pytestmark = pytest.mark.filterwarnings("ignore")  # of its dependencies
utils: Any = imported("nemo_gym.server_utils")
BaseVerifyResponse: Any = imported("nemo_gym.base_resources_server").BaseVerifyResponse


@pytest.fixture(autouse=True)
async def client() -> AsyncIterator[None]:
    """Its client of the process, which its agents use."""
    made = utils.set_global_aiohttp_client(utils.GlobalAIOHTTPAsyncClientConfig())
    yield
    await made.close()
    utils._GLOBAL_AIOHTTP_CLIENT = None  # its own way out of it starts an event loop


def body(text: str, number: int, **more: Any) -> dict[str, Any]:
    """What its agent sends for a row and a response."""
    said = {"type": "output_text", "text": text, "annotations": []}
    output = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "2+2?"}]},
        "response": {
            "id": "r1",
            "created_at": 0.0,
            "model": "policy",
            "object": "response",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": [output],
        },
        "expected_answer": "4",
        "_ng_task_index": 3,
        "_ng_rollout_index": number,
        **more,
    }


async def verified(url: str, text: str, number: int) -> Any:
    answer = await utils.request("POST", f"{url}/verify", json=body(text, number))
    await utils.raise_for_status(answer)
    return BaseVerifyResponse.model_validate(await utils.get_response_json(answer))


async def test_rewards_and_a_missing_one() -> None:
    @grader
    def flaky(rollout: Rollout) -> float:
        if "broken" in rollout.response:
            raise JudgeUnavailable("planted")
        return 1.0

    tree = {"correct": 0.75, "flaky": 0.25}
    async with serving(GradingRunner({"correct": FinalAnswer(), "flaky": flaky}, tree)) as at:
        right = await verified(at.url, "#### 4", 0)
        wrong = await verified(at.url, "#### 5", 1)
        assert [(one.reward, one.mask_sample) for one in (right, wrong)] == [(1.0, False), (0.25, False)]
        missing = await verified(at.url, "broken #### 4", 2)
        assert (missing.reward, missing.mask_sample) == (0.0, True)  # its form wants a number beside the mask
        assert str(missing.failure_kind).endswith("judge_failed")
        assert "planted" in missing.failure_reason


async def test_a_group_that_comes_together_is_graded_together() -> None:
    runner = GradingRunner({"correct": FinalAnswer()}, transform="center")
    async with serving(runner, group=3) as at:
        answers = await asyncio.gather(
            *(verified(at.url, text, i) for i, text in enumerate(("#### 4", "#### 5", "#### 4")))
        )
    assert [round(one.reward, 6) for one in answers] == [0.333333, -0.666667, 0.333333]
