"""The lanes of a service: sizes, failures of the latest rollouts, groups that wait, and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from judgekit import ConfigError, FailureRateError, GradingRunner, JudgeUnavailable, Rollout
from judgekit.service import lanes, roll
from judgekit.service.lanes import MAX_SIZE, Lane, Lanes
from judgekit.service.once import Answers, Job
from judgekit.service.service import RewardService

from .serving import Gate, serving, until
from .test_forms import roll as roll_task


@pytest.mark.parametrize("size", [0, -1, MAX_SIZE + 1])
def test_a_size_that_no_group_has_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"a group has 1 to 1024 rollouts, not {size}"):
        Lanes(GradingRunner([Gate()]), wait_s=1.0).lane("masks", size)


def test_clients_of_one_kind_share_a_lane() -> None:
    made = Lanes(GradingRunner([Gate()], missing_reward=0.0), wait_s=1.0)
    assert made.lane("masks", MAX_SIZE).size == MAX_SIZE
    assert made.lane("masks", 1) is made.lane("masks", 1)
    assert len({id(made.lane(knows, size)) for knows in ("masks", "numbers") for size in (1, 2)}) == 4  # type: ignore[arg-type]


def test_without_a_word_rollouts_come_alone() -> None:
    assert RewardService(GradingRunner([Gate()])).lane("masks", None).size == 1


@pytest.mark.parametrize(
    ("setting", "knows", "size", "becomes"),
    [
        ("exclude", "masks", 1, "exclude"),
        ("mask", "masks", 1, "exclude"),
        ("neutral", "masks", 1, "exclude"),
        ("raise", "masks", 1, "raise"),
        (0.25, "masks", 1, 0.25),
        (0.25, "numbers", 1, 0.25),
        ("neutral", "masks", 2, "neutral"),
        ("mask", "masks", 2, "neutral"),
    ],
)
def test_what_becomes_of_a_missing_reward(setting: Any, knows: Any, size: int, becomes: Any) -> None:
    lane = Lane(GradingRunner([Gate()], missing_reward=setting), knows, size, wait_s=1.0)
    assert lane.runner.settings.missing_reward == becomes
    assert lane.runner.settings.max_failure_rate is None


async def test_failures_count_among_the_latest_rollouts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_LATEST", 64)
    gate = Gate()
    lane = Lane(GradingRunner([gate], missing_reward=0.0, max_failure_rate=0.5), "numbers", 1, wait_s=1.0)

    async def grade(count: int) -> None:
        await lane.grade([Rollout(response="x")] * count, tags={})

    await grade(60)
    gate.error = JudgeUnavailable("down")
    with pytest.raises(FailureRateError):
        await grade(64)  # counted from zero after the first four


async def test_of_a_group_the_only_one_that_came_is_paid_no_mean_of_others() -> None:
    gate = Gate()
    lane = Lane(GradingRunner([gate], missing_reward="neutral"), "numbers", 2, wait_s=0.2)
    pair = [Rollout(response="x", group="g"), Rollout(response="y", group="g")]
    assert [result.status for result in await lane.grade(pair, tags={})] == ["scored", "scored"]
    gate.error = JudgeUnavailable("down")
    (alone,) = await lane.grade([Rollout(response="x", group="h")], tags={})
    assert (alone.reward, alone.status) == (None, "masked")
    both = await lane.grade([Rollout(response="x", group="i"), Rollout(response="y", group="i")], tags={})
    assert [result.status for result in both] == ["neutral", "neutral"]
    assert both[0].reward == both[1].reward


async def test_a_group_that_waits_ends_with_its_service() -> None:
    service = RewardService(GradingRunner([Gate()], missing_reward=0.0, transform="center"), group_wait_s=600)
    lane = service.lane("numbers", "2")
    waiting = asyncio.create_task(lane.grade([Rollout(response="x", group="g")], tags={}))
    await until(lambda: service.lanes.waiting == 1)
    assert (lane.waiting, service.lane("numbers", "3").waiting) == (1, 0)
    await service.close()
    done, _ = await asyncio.wait([waiting], timeout=5)
    assert done
    assert waiting.cancelled() or waiting.exception() is not None
    assert service.lanes.waiting == 0


async def test_of_many_tasks_of_roll_s_the_latest_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll, "_FAILURES", 2)
    gate = Gate()
    gate.error = JudgeUnavailable("the judge is down")
    async with serving(GradingRunner([gate], missing_reward=0.25, max_failure_rate=0.25)) as address:
        for i in range(4):  # then a failure is an error, not the written number
            await address.post("/slime", {"response": f"before {i}", "prompt": "p", "label": ""})
        keys = []
        for i in range(3):
            told = (await address.post("/roll/submit_task", roll_task("x", rollout_id=f"r{i}"))).json
            keys.append(told["reward_request_id"])
            await until(lambda: not address.service.answers.running)
        said = [(await address.get("/roll/task_result", {"reward_request_id": key})).json for key in keys]
    assert [one["errcode"] for one in said] == [2, 2, 2]
    assert said[0]["errmsg"] == "there is no such task (any more): submit it again"
    assert all("JudgeUnavailable" in one["errmsg"] for one in said[1:])


async def test_followers_leave_no_task_behind() -> None:
    found, steps = Answers(), [asyncio.Event() for _ in range(3)]

    async def work(job: Job) -> None:
        for place, step in enumerate(steps):
            await step.wait()
            job.add(place, b"x")

    before = asyncio.all_tasks()
    with found.job("k", "", work, unique=True) as job:
        got = job.follow()
        for step in steps:
            asyncio.get_running_loop().call_soon(step.set)
            assert await anext(got) == b"x"
        assert [part async for part in got] == []
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
