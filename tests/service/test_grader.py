"""The reward of a service as a grader: the same numbers, the same gaps, one request for what is graded together."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from judgekit import ConfigError, Failed, GradingRunner, JudgeUnavailable, Rollout, Weighted
from judgekit.errors import ServiceUnavailable
from judgekit.graders import FinalAnswer, Length, MajorityAgreement, SoftOverlong
from judgekit.service import grader as module
from judgekit.service.grader import ServiceGrader, ServiceGroupGrader
from judgekit.types import Graded

from .serving import Gate, serving, until

TREE = Weighted({"correct": 0.75, "brief": 0.25})


def rollouts() -> list[Rollout]:
    return [
        Rollout(response=f"{'so ' * 40 * i}#### {i % 3}", ground_truth="1", group=f"g{i // 4}", id=f"r{i}")
        for i in range(12)
    ]


def graders() -> dict[str, Any]:
    return {"correct": FinalAnswer(), "brief": Length(soft_max=200, hard_max=1000)}


async def test_a_service_s_reward_is_the_score() -> None:
    async with serving(GradingRunner(graders(), TREE, transform="center")) as at:
        async with GradingRunner({"remote": ServiceGrader(at.url)}) as runner:
            results = await runner.run(rollouts())
        here = await GradingRunner(graders(), TREE).run(rollouts())
        assert [result.reward for result in results] == [result.reward for result in here]
        assert results[1].grades["remote"].metadata["scores"] == {  # type: ignore[union-attr,index]
            "correct": 1.0,
            "brief": here[1].score("brief"),
        }
        assert at.service.requests["/v1/rewards", 200] == 1


async def test_rollouts_of_one_turn_go_in_few_requests() -> None:
    many = [Rollout(response=f"#### {i % 2}", ground_truth="1") for i in range(600)]
    async with serving(GradingRunner({"correct": FinalAnswer()})) as at:
        remote = ServiceGrader(at.url)
        grades = await asyncio.gather(*map(remote.grade, many))
        assert [grade.score if isinstance(grade, Graded) else grade for grade in grades] == [
            float(i % 2) for i in range(600)
        ]
        assert at.service.requests["/v1/rewards", 200] == 3

        async with GradingRunner({"remote": remote}, max_concurrency=1000) as runner:
            results = await runner.run(many)
        assert [result.reward for result in results] == [float(i % 2) for i in range(600)]
        asked = at.service.requests["/v1/rewards", 200] - 3
        assert (
            asked < 200
        )  # 3 on an idle machine; a runner that starts them slowly spreads them over more turns


async def test_a_reward_that_compares_goes_by_groups() -> None:
    remote = GradingRunner({"agrees": MajorityAgreement()})
    ours = [Rollout(response=f"#### {i in (3, 7)}", group=f"g{i // 4}") for i in range(8)]
    async with serving(remote) as at:
        async with GradingRunner({"remote": ServiceGroupGrader(at.url)}) as runner:
            results = await runner.run(ours)
        here = await GradingRunner({"agrees": MajorityAgreement()}).run(ours)
        assert [result.reward for result in results] == [result.reward for result in here]
        with pytest.raises(ConfigError, match="compares the rollouts of a prompt: use: service_group"):
            await ServiceGrader(at.url).warm_up()


async def test_what_is_missing_there_is_missing_here() -> None:
    gate = Gate()
    gate.error = JudgeUnavailable("the judge is down")
    async with (
        serving(GradingRunner({"gate": gate})) as at,
        GradingRunner({"remote": ServiceGrader(at.url)}) as runner,
    ):
        (result,) = await runner.run([Rollout(response="x")])
        grade = result.grades["remote"]
        assert (result.reward, result.status) == (None, "excluded")
        assert isinstance(grade, Failed)
        assert (grade.error, grade.cause) == ("ServiceRewardMissing", "infrastructure")
        assert "gate: JudgeUnavailable the judge is down" in grade.detail
        assert grade.retryable


async def test_what_abstains_there_abstains_here() -> None:
    async with (
        serving(GradingRunner({"correct": FinalAnswer()})) as at,
        GradingRunner({"remote": ServiceGrader(at.url)}) as runner,
    ):
        (result,) = await runner.run([Rollout(response="#### 1")])  # no ground truth
        assert "correct gave none" in result.grades["remote"].reason  # type: ignore[union-attr]
        assert result.reward is None


async def test_a_service_that_dies_pays_nobody() -> None:
    async with serving(GradingRunner({"correct": FinalAnswer()})) as at:
        runner = GradingRunner({"remote": ServiceGrader(at.url)}, timeout_s=0.5)
        await runner.start()
    (result,) = await runner.run([Rollout(response="#### 1", ground_truth="1")])
    assert result.reward is None
    assert isinstance(result.grades["remote"], Failed)
    assert result.grades["remote"].cause == "infrastructure"
    await runner.close()


async def test_a_caller_that_gives_up_costs_the_others_nothing() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner({"gate": gate})) as at:
        remote = ServiceGrader(at.url)
        first, second = (asyncio.ensure_future(remote.grade(Rollout(response=text))) for text in "ab")
        await until(lambda: len(gate.asked) == 2)
        first.cancel()
        gate.opened.set()
        grade = await second
        assert isinstance(grade, Graded)
        assert grade.score == 1.0
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_request_that_nobody_waits_for_is_given_up() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner({"gate": gate})) as at:
        remote = ServiceGrader(at.url)
        asked = asyncio.ensure_future(remote.grade(Rollout(response="a")))
        await until(lambda: gate.asked)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: len(asyncio.all_tasks()) < 50 and not _asking())
        gate.opened.set()


def _asking() -> bool:
    return any("_ask" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_what_cannot_be_a_score_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = GradingRunner({"brief": SoftOverlong(max_length=4, cache=2)})
    async with serving(wide) as at:
        with pytest.raises(ConfigError, match=r"in -1\.\.0: give score_range=\[-1, 0\]"):
            await ServiceGrader(at.url).warm_up()
        async with GradingRunner({"remote": ServiceGrader(at.url, score_range=(-1, 0))}) as runner:
            (result,) = await runner.run([Rollout(response="x" * 9, response_tokens=9)])
            assert result.reward == -1.0
    async with serving(GradingRunner({"correct": FinalAnswer()}, missing_reward="raise")) as at:
        with pytest.raises(ConfigError, match="missing_reward: raise; write exclude there"):
            await ServiceGrader(at.url).warm_up()
    monkeypatch.setattr(module, "START_WAIT_S", 0.2)
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        await ServiceGrader("http://127.0.0.1:9").warm_up()


async def test_whoever_joins_a_request_that_is_given_up_gets_an_answer() -> None:
    async with serving(GradingRunner({"correct": FinalAnswer()})) as at:
        remote = ServiceGrader(at.url)
        first = asyncio.ensure_future(remote.grade(Rollout(response="#### 2", ground_truth="1")))
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.ensure_future(remote.grade(Rollout(response="#### 1", ground_truth="1")))
        found = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert isinstance(found[1], Graded)
        assert found[1].score == 1.0


@pytest.mark.parametrize("bad", [{"image": object()}, {"text": "x" * 3000}])
async def test_a_rollout_that_cannot_be_sent_costs_the_others_nothing(bad: dict[str, Any]) -> None:
    ours = [
        Rollout(response=f"#### {i % 2}", ground_truth="1", extra=bad if i == 5 else {}) for i in range(9)
    ]
    async with (
        serving(GradingRunner({"correct": FinalAnswer()}), body_bytes=2000) as at,
        GradingRunner({"remote": ServiceGrader(at.url)}) as runner,
    ):
        results = await runner.run(ours)
    assert [result.reward for result in results] == [float(i % 2) if i != 5 else None for i in range(9)]
    assert results[5].grades["remote"].error == "DataError"  # type: ignore[union-attr]


async def test_it_can_be_pickled_also_after_it_was_used() -> None:
    async with serving(GradingRunner({"correct": FinalAnswer()})) as at:
        for cls in (ServiceGrader, ServiceGroupGrader):
            runner = GradingRunner({"remote": cls(at.url)})
            await runner.run([Rollout(response="#### 1", ground_truth="1", group="g")] * 2)
            (one, two) = await pickle.loads(pickle.dumps(runner)).run(
                [Rollout(response=f"#### {i}", ground_truth="1", group="g") for i in range(2)]
            )
            assert (one.reward, two.reward) == (0.0, 1.0)
