"""Functions that OpenRLHF, slime and AReaL call, with what they hand over.

OpenRLHF's own executor calls ours in test_openrlhf.py, where its package is installed; the others have none that installs
without a GPU, so that what they do is written here from their source.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError, DataError, MissingRewardError, Rollout
from judgekit.bridges import areal, bridge, openrlhf, slime

from .conftest import missing


def test_openrlhf_gets_the_response_without_its_prompt(reward: Path) -> None:
    missing(reward, "raise")
    answered = openrlhf.reward_func(["<user>2+2?<bot>#### 4<eos>"], ["<user>2+2?<bot>"], ["4"])
    assert answered == {
        "rewards": 1.0,
        "scores": 1.0,
        "extra_logs": {
            "judgekit_correct_missing": 0.0,
            "judgekit_flaky_missing": 0.0,
            "judgekit_missing": 0.0,
        },
    }


def test_threads_share_one_runner(reward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = bridge.Bridge.__init__

    def slow(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        time.sleep(0.05)
        original(self, *args, **kwargs)

    monkeypatch.setattr(bridge.Bridge, "__init__", slow)
    missing(reward, "raise")
    with ThreadPoolExecutor(16) as pool:
        paid = list(
            pool.map(lambda i: openrlhf.reward_func([f"q{i}#### 4"], [f"q{i}"], ["4"])["rewards"], range(64))
        )
    assert paid == [1.0] * 64
    assert len(made) == 1


def test_openrlhf_is_told_what_it_cannot_do(reward: Path) -> None:
    with pytest.raises(ConfigError, match="missing_reward: exclude needs the rollout's group"):
        openrlhf.reward_func(["q#### 4"], ["q"], ["4"])
    missing(reward, "-0.5")
    paid = openrlhf.reward_func(["q broken #### 4"], ["q"], ["4"])
    assert paid["rewards"] == -0.5
    assert paid["extra_logs"] == {  # the same keys for every sample, as OpenRLHF needs them
        "judgekit_correct_missing": 0.0,
        "judgekit_flaky_missing": 1.0,
        "judgekit_missing": 1.0,
    }
    with pytest.raises(DataError, match="max_len"):
        openrlhf.reward_func(["cut #### 4"], ["a prompt that was cut"], ["4"])
    with pytest.raises(DataError, match="one sample"):
        openrlhf.reward_func(["q", "q"], ["q", "q"], ["4", "4"])


def sample(index: int, response: str, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(
        group_index=3,
        index=index,
        prompt="2+2?",
        response=response,
        label="4",
        metadata={},
        response_length=len(response),
        status=SimpleNamespace(value="completed"),
        remove_sample=False,
        **fields,
    )


async def test_slime_takes_a_missing_sample_out_of_its_group(reward: Path) -> None:
    group = [sample(0, "#### 4"), sample(1, "broken #### 4"), sample(2, "#### 5"), sample(3, "#### 4")]
    paid = await slime.reward(SimpleNamespace(), group)
    assert paid == [1.0, 0.75, 0.25, 1.0]  # the mean of the others
    assert [one.remove_sample for one in group] == [False, True, False, False]
    assert group[0].metadata == {
        "judgekit/correct": 1.0,
        "judgekit/flaky": 1.0,
        "judgekit/raw": 1.0,
        "judgekit/missing": 0.0,
    }
    assert group[1].metadata == {"judgekit/correct": 1.0, "judgekit/missing": 1.0}


async def test_slime_masks_what_is_to_be_masked(reward: Path) -> None:
    missing(reward, "mask")
    group = [sample(0, "#### 4"), sample(1, "broken #### 4"), sample(2, "#### 5")]
    assert await slime.reward(SimpleNamespace(), group) == [1.0, 0.625, 0.25]  # slime's form wants a number
    assert [one.remove_sample for one in group] == [False, True, False]
    with pytest.raises(MissingRewardError):
        await slime.reward(SimpleNamespace(), [sample(0, "broken")])


async def test_slime_one_by_one(reward: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing_reward: exclude"):
        await slime.reward(SimpleNamespace(), sample(0, "#### 4"))
    missing(reward, "0.5")
    other = tmp_path / "other.yaml"
    reward.rename(other)
    args = SimpleNamespace(judgekit_reward=str(other))
    assert await slime.reward(args, sample(0, "#### 5")) == 0.25
    assert await slime.reward(args, sample(0, "broken")) == 0.5


@pytest.mark.parametrize("setting", ["exclude", "neutral"])
def test_a_lone_rollout_has_no_group_s_mean(reward: Path, setting: str) -> None:
    """The runner's fill would be the mean of whatever was graded before: a number that nobody gave."""
    missing(reward, setting)
    graded = bridge.bridge(str(reward), grouped=True)
    lone = [Rollout(prompt="q", response="broken #### 4", ground_truth="4", group="g")]
    graded.grade_sync([Rollout(prompt="p", response="#### 4", ground_truth="4", group="f") for _ in range(2)])
    (result,) = graded.grade_sync(lone)
    assert (result.reward, result.status) == (None, "masked")
    with pytest.raises(MissingRewardError, match="flaky"):
        bridge.value(result)


def test_slime_from_a_loop_for_each_call(reward: Path) -> None:
    for _ in range(3):
        assert asyncio.run(slime.reward(SimpleNamespace(), [sample(0, "#### 4"), sample(1, "#### 5")])) == [
            1.0,
            0.25,
        ]


def test_areal_calls_it_in_a_process_of_its_own(reward: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        call = pickle.loads(pickle.dumps(areal.reward))
        assert pool.submit(call, "2+2?", "#### 4", [1], [2, 3], answer="4").result(60) == 1.0
        with pytest.raises(MissingRewardError, match="flaky"):
            pool.submit(call, "2+2?", "broken", [1], [2, 3], answer="4").result(60)


def test_areal_s_reward_is_missing_before_areal_pays_0(reward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AReaL's 15 s are no deadline of ours, and what takes longer is a 0 there."""
    (reward.parent / "slow_judge.py").write_text(
        "import asyncio\nfrom judgekit import grader\n\n@grader\nasync def slow(rollout):\n    await asyncio.sleep(50)\n"
    )
    monkeypatch.syspath_prepend(str(reward.parent))
    monkeypatch.setattr(areal, "DEADLINE_S", 0.1)
    reward.write_text('graders: {slow: {use: "slow_judge:slow"}}\n')
    with pytest.raises(MissingRewardError, match="slow: DeadlineExceeded"):
        areal.reward("2+2?", "#### 4", [1], [2, 3], answer="4")


def test_a_forked_process_has_bridges_of_its_own(reward: Path) -> None:
    """Also where another thread was making one while the process forked."""
    here = bridge.bridge(str(reward), grouped=True)
    with bridge._lock:
        child = os.fork()
        if child == 0:
            free = bridge._lock.acquire(timeout=0)
            os._exit(0 if free and not bridge._bridges else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bridge.bridge(str(reward), grouped=True) is here


async def test_areal_rejects_an_episode_without_a_reward(reward: Path) -> None:
    class Workflow:
        """Calls the reward function and returns tensors of the episode."""

        async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
            return {"rewards": areal.reward("2+2?", data["text"], [1], [2], answer="4")}

    workflow = areal.rejecting(Workflow)()
    assert await asyncio.to_thread(asyncio.run, workflow.arun_episode(None, {"text": "#### 5"})) == {
        "rewards": 0.25
    }
    assert await asyncio.to_thread(asyncio.run, workflow.arun_episode(None, {"text": "broken"})) is None


def test_a_run_with_too_many_failures_ends(reward: Path) -> None:
    from judgekit import FailureRateError

    reward.write_text(reward.read_text() + "runner: {missing_reward: 0.0, max_failure_rate: 0.1}\n")
    for _ in range(63):
        openrlhf.reward_func(["q broken"], ["q"], ["4"])
    with pytest.raises(FailureRateError, match="flaky"):
        openrlhf.reward_func(["q broken"], ["q"], ["4"])


def test_without_a_file_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGEKIT_REWARD", raising=False)
    with pytest.raises(ConfigError, match="set JUDGEKIT_REWARD"):
        openrlhf.reward_func(["q"], ["q"], ["4"])
