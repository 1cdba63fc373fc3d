"""Functions that OpenRLHF and slime call, with what they hand over.

OpenRLHF's own executor calls ours in test_openrlhf.py, where its package is installed; the others have none that installs
without a GPU, so that what they do is written here from their source.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import stdev
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError, DataError, MissingRewardError, Rollout
from judgekit.bridges import bridge, openrlhf, slime

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


@pytest.mark.parametrize(
    "end",
    [
        "",
        "<|im_end|>\n",
        "<|im_end|><|endoftext|>",
        "<|eom_id|>",
        "<|return|>",
        "<｜end▁of▁sentence｜>",
        "<turn|>",
    ],
)
def test_every_end_of_a_turn_is_an_end(end: str) -> None:
    assert openrlhf.response_of(f"q#### 4{end}", "q") == "#### 4"


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
    with pytest.raises(DataError, match="one sample a call, not 2"):
        openrlhf.reward_func(["q", "q"], ["q"], ["4"])


def test_openrlhf_s_conversation_counts_the_policy_s_tokens() -> None:
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "".join(map(chr, ids)))
    told = {"observation_tokens": [*b"q:ab>cd<."], "action_ranges": [(2, 4), (5, 7)]}
    made = openrlhf._conversation(told, "q:", "4", tokenizer)
    assert (made.response_tokens, made.ground_truth, made.prompt) == (4, "4", "q:")
    assert [turn["content"] for turn in made.messages] == ["q:", "ab", ">", "cd"]
    assert openrlhf._conversation({**told, "action_ranges": []}, "q:", "4", tokenizer).response_tokens is None


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


def trained(samples: list[Any], estimator: str = "grpo") -> tuple[list[float], list[float]]:
    for one in samples:
        one.get_reward_value = lambda args, one=one: one.reward
    args = SimpleNamespace(
        advantage_estimator=estimator, rewards_normalization=True, grpo_std_normalization=True
    )
    return slime.normalise(args, samples)


@pytest.mark.parametrize("lost", range(9))
async def test_slime_s_advantages_are_exact_with_normalise(lost: int, reward: Path) -> None:
    """Whatever is missing, the others' are those of a group of the others."""
    said = ["broken" if i < lost else f"#### {4 + i % 2}" for i in range(8)]
    samples = [sample(i, text, rollout_id=None) for i, text in enumerate(said)]
    paid = await slime.reward(SimpleNamespace(custom_reward_post_process_path=NORMALISE), samples)
    assert [one.reward for one in samples] == paid
    raw, found = trained(samples)
    assert raw == paid
    valid = [0.25 if i % 2 else 1.0 for i in range(lost, 8)]
    mean = sum(valid) / len(valid) if valid else 0.0
    deviation = stdev(valid) if len(valid) > 1 else 0.0
    exact = [(one - mean) / (deviation + 1e-6) for one in valid]
    assert found == pytest.approx([0.0] * lost + exact, abs=1e-12)
    assert trained(samples, "ppo") == (paid, paid)
    assert trained(samples, "gspo") == trained(samples, "cispo") == (raw, found)
    assert trained(samples, "reinforce_plus_plus_baseline")[1] == pytest.approx(
        [0.0] * lost + ([one - mean for one in valid] if len(valid) > 1 else [0.0] * len(valid)), abs=1e-12
    )


def test_slime_says_how_a_response_ended() -> None:
    for status, reason in (("completed", "stop"), ("truncated", "length"), ("aborted", None)):
        one = sample(0, "4")
        one.status.value = status
        made = slime._rollout(SimpleNamespace(), [one])
        assert (made.finish_reason, made.response_tokens, made.ground_truth) == (reason, 1, "4")


NORMALISE = "judgekit.bridges.slime.normalise"


async def test_slime_s_parts_of_a_rollout_are_graded_once(reward: Path) -> None:
    """What fans out is a list in the group; without --group-rm such a list comes alone, and is no group."""

    def parts(index: int, text: str) -> list[Any]:
        return [sample(index, said, rollout_id=index) for said in ("I begin", text)]

    group = [parts(0, "#### 4"), parts(1, "broken"), parts(2, "#### 5")]
    args = SimpleNamespace(group_rm=True, custom_reward_post_process_path=NORMALISE)
    assert await slime.reward(args, group) == []  # slime would write the rewards to the lists
    flat = [part for rollout in group for part in rollout]
    assert [part.reward for part in flat] == [1.0, 1.0, 0.625, 0.625, 0.25, 0.25]
    assert [part.remove_sample for part in flat] == [False, False, True, True, False, False]
    _, found = trained(flat)
    assert found == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0, -(0.5**0.5), -(0.5**0.5)], abs=1e-5)
    missing(reward, "-0.5")
    alone = SimpleNamespace(group_rm=False)
    assert await slime.reward(alone, parts(0, "#### 4")) == [1.0, 1.0]
    assert await slime.reward(alone, parts(0, "broken")) == [-0.5, -0.5]
    assert await slime.reward(alone, []) == []


async def test_slime_s_tools_do_not_speak_for_the_policy(
    reward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(reward, "raise")
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(chr, ids)))
    monkeypatch.setattr(slime, "_tokenizer", lambda checkpoint: tokenizer)
    said = [("<search>2+2</search>", 1), ("the answer is #### 4", 0), ("I think #### 5", 1)]
    text = "".join(part for part, _ in said)
    mask = [flag for part, flag in said for _ in part]
    args = SimpleNamespace(hf_checkpoint="x")
    made = sample(0, text, tokens=[1, *map(ord, text)], loss_mask=mask)
    assert await slime.reward(args, made) == 0.25
    made.tokens = [1]
    with pytest.raises(DataError, match="cannot be told"):
        await slime.reward(args, made)
    # an earlier policy's words, which slime masks as well
    args.mask_offpolicy_in_partial_rollout = True
    begun = sample(0, "#### 4", tokens=list(map(ord, "#### 4")), loss_mask=[0, 0, 0, 0, 0, 1])
    assert await slime.reward(args, begun) == 1.0


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
