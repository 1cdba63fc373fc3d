"""The judge under SkyRL's example's own name: found by name, asked with messages, and a failure is an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from judgekit import JudgeUnavailable
from judgekit.judges.engines.ray.judge import start_ray_judge
from judgekit.testing import ScriptedJudge
from judgekit_skyrl.service import NAME, RewardInferenceService, start_reward_service

MESSAGES = [{"role": "system", "content": "You grade."}, {"role": "user", "content": "2+2=4"}]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def service(cluster: None) -> Iterator[Any]:
    judge = start_ray_judge(
        name="scripted",
        factory="judgekit.testing:ScriptedJudge",
        cpus=0.1,
        options={"script": {"2+2=4": "### Final Score: 1", "2+2=5": "### Final Score: 0"}},
    )
    handle = start_reward_service("scripted")
    yield handle
    ray.kill(handle)
    del judge


def test_an_environment_finds_it_by_name_and_reads_the_reply(service: Any) -> None:
    found = ray.get_actor(NAME)
    assert ray.get(found.score.remote(MESSAGES)) == "### Final Score: 1"
    wrong = [MESSAGES[0], {"role": "user", "content": "2+2=5"}]
    assert ray.get(found.score.remote(wrong, temperature=0.7, max_tokens=16)) == "### Final Score: 0"
    assert ray.get(found.score_batch.remote([MESSAGES, wrong])) == [
        "### Final Score: 1",
        "### Final Score: 0",
    ]
    assert ray.get(found.health_check.remote()) is True


def test_what_the_judge_is_asked() -> None:
    made = object.__new__(RewardInferenceService)
    made._judge = judge = ScriptedJudge("Fine.")
    assert asyncio.run(made.score(MESSAGES, temperature=0.7, max_tokens=16)) == "Fine."
    assert asyncio.run(made.score_batch([MESSAGES[1:]])) == ["Fine."]
    asked, batched = judge.requests
    assert (asked.sampling.temperature, asked.max_tokens) == (0.7, 16)
    assert (batched.sampling.temperature, batched.max_tokens) == (0.0, 512)
    assert [(turn.role, turn.text) for turn in asked.turns] == [("system", "You grade."), ("user", "2+2=4")]
    assert [turn.role for turn in batched.turns] == ["user"]
    assert not any(piece.trusted for turn in asked.turns for piece in turn.pieces)


def test_starting_it_twice_takes_the_one_that_runs(service: Any) -> None:
    assert start_reward_service("scripted")._actor_id == service._actor_id


@pytest.mark.parametrize(
    "messages", [[{"role": "tool", "content": "x"}], [{"role": "user", "content": [{"text": "x"}]}], [{}]]
)
def test_messages_of_another_form_are_refused(service: Any, messages: Any) -> None:
    with pytest.raises(Exception, match="a message has a role"):
        ray.get(service.score.remote(messages))


def test_a_failure_is_an_exception_and_no_text(service: Any) -> None:
    unknown = [{"role": "user", "content": "what the script does not know"}]
    with pytest.raises(Exception, match="the script has no answer"):
        ray.get(service.score.remote(unknown))


def test_without_a_judge_it_does_not_start(cluster: None) -> None:
    with pytest.raises(JudgeUnavailable, match="no judge named 'nobody' runs"):
        start_reward_service("nobody", name="another")
    with pytest.raises(ValueError, match="another"):
        ray.get_actor("another")
