"""The `__call__` manager: by itself, and inside the verl versions that call it."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batches import batch
from judgekit import ConfigError
from judgekit_verl import JudgeKitLegacyRewardManager, JudgeKitRewardManager
from other_verl import inside


def manager(tokenizer: Any, runner: str, **more: Any) -> Any:
    return JudgeKitLegacyRewardManager(
        tokenizer, more.pop("num_examine", 0), judgekit_runner=f"graders_for_tests:{runner}", **more
    )


def test_groups_by_uid_wherever_the_rows_stand(tokenizer: Any) -> None:
    data = batch(tokenizer, ["x", "zz", "xxx", "z", "", "xx"], uids=["a", "b", "a", "b", "b", "a"])
    out = manager(tokenizer, "ranked")(data, return_dict=True)
    tensor, extra = out["reward_tensor"], out["reward_extra_info"]
    assert tensor.sum(1).tolist() == [0, 1, 1, 0.5, 0, 0.5]
    assert tensor[2].nonzero().item() == 3  # x x x end
    assert extra["longest_score"] == [0, 1, 1, 0.5, 0, 0.5]
    assert extra["judgekit/missing"] == [0] * 6
    assert json.loads(extra["details"][0])["longest"]["score"] == 0
    assert {len(column) for column in extra.values()} == {6}


def test_without_uid_by_prompt_and_truth(tokenizer: Any) -> None:
    data = batch(
        tokenizer, ["x", "xx", "xxx", "xxxx"], prompts=["p", "p", "q", "p"], truths=["1", "1", "1", "2"]
    )
    tensor = manager(tokenizer, "ranked")(data)
    # two of one prompt and truth; the others stand alone, where ranks say nothing: all alike
    assert tensor.sum(1).tolist()[:2] == [0, 1]
    assert tensor.sum(1).tolist()[2] == tensor.sum(1).tolist()[3]


def test_rollouts_without_a_reward_are_left_out(tokenizer: Any) -> None:
    """Siblings' advantages are those of a group without them, by verl's own GRPO; validation keeps its uids."""
    import numpy as np
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    made = manager(tokenizer, "excluding", judgekit_adv_estimator="grpo")
    responses = ["aaaa", "zzzz", "down", "aazz", "down", "aaaa"]
    data = batch(tokenizer, responses, uids=["a"] * 4 + ["b"] * 2)
    out = made(data, return_dict=True)
    mask = data.batch["attention_mask"][:, 32:]

    def advantages(rewards: Any, rows: list[int], uids: list[str]) -> Any:
        index = np.array(uids, dtype=object)
        return compute_grpo_outcome_advantage(rewards[rows], mask[rows], index)[0][:, 0]

    found = advantages(out["reward_tensor"], list(range(6)), out["reward_extra_info"]["uid"])
    alone = advantages(out["reward_tensor"], [0, 1, 3], ["a"] * 3)
    torch.testing.assert_close(found[[0, 1, 3]], alone)
    assert found[[2, 4, 5]].tolist() == [0, 0, 0]  # of b only one has a reward
    data = batch(tokenizer, responses, uids=["a"] * 4 + ["b"] * 2)
    data.meta_info["validate"] = True
    assert "uid" not in made(data, return_dict=True)["reward_extra_info"]


def test_an_estimator_that_cannot_leave_rollouts_out(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="for grpo, rloo, opo only"):
        manager(tokenizer, "excluding", judgekit_adv_estimator="gae")


def test_validation_can_average_a_column_with_failures(tokenizer: Any) -> None:
    """These versions take np.mean of every column whose first value is no text."""
    import numpy as np

    data = batch(tokenizer, ["down", "aaaa"], uids=["a", "a"])
    out = manager(tokenizer, "down_at_times")(data, return_dict=True)
    assert out["reward_tensor"].sum(1).tolist() == [1, 1]  # neutral: its sibling's
    extra = out["reward_extra_info"]
    assert extra["judgekit/missing"] == [1, 0]
    assert np.isnan(np.mean(extra["flaky_score"]))
    assert all(isinstance(column[0], str) or np.mean(column) is not None for column in extra.values())


def test_a_scored_batch_is_not_graded_again(tokenizer: Any) -> None:
    import torch

    data = batch(tokenizer, ["x", "y"])
    data.batch["rm_scores"] = torch.ones(2, 48)
    data.non_tensor_batch["seen"] = data.non_tensor_batch["data_source"]
    data.meta_info["reward_extra_keys"] = ["seen"]
    out = manager(tokenizer, "ranked")(data, return_dict=True)
    assert out["reward_tensor"] is data.batch["rm_scores"]
    assert list(out["reward_extra_info"]) == ["seen"]


def test_it_survives_pickling(tokenizer: Any) -> None:
    made = pickle.loads(pickle.dumps(manager(tokenizer, "ranked")))
    assert made(batch(tokenizer, ["x", "xx"], uids=["a", "a"])).sum(1).tolist() == [0, 1]


def test_samples_are_shown(tokenizer: Any, capsys: Any) -> None:
    made = manager(tokenizer, "ranked", num_examine=1)
    made(batch(tokenizer, ["x", "xx", "xxx"], uids=["a", "a", "a"], sources=["one", "one", "two"]))
    shown = capsys.readouterr().out
    assert shown.count("[response]") == 2
    assert "[response] x\n" in shown
    assert "[response] xxx\n" in shown


class Theirs:
    """A reward function in the form of the OpenJudge guide, with results in any order."""

    def __init__(self) -> None:
        self.calls = 0
        self.fault = ""

    async def compute_batch_scores(self, prompt_to_samples: dict[str, list[Any]]) -> list[Any]:
        self.calls += 1
        found = [
            SimpleNamespace(
                original_index=s.original_index,
                group_index=s.group_index,
                score=float(len(s.response)),
                reward_info={"length_score": float(len(s.response))},
                details={"group": len(group), "place": s.group_index, "truth": s.extra["ground_truth"]},
            )
            for group in prompt_to_samples.values()
            for s in group
        ]
        if self.fault == "raises":
            raise RuntimeError("judge timeout")
        if self.fault == "lost":
            found.pop()
        if self.fault in ("nan", "inf"):
            found[0].score = float(self.fault)
        return found[::-1]


def test_a_reward_function_object_moves_over(tokenizer: Any) -> None:
    data = batch(tokenizer, ["x", "yy", "xxx"], uids=["a", "b", "a"], truths=["5", "6", "5"])
    out = JudgeKitLegacyRewardManager(tokenizer, 0, Theirs())(data, return_dict=True)
    assert out["reward_tensor"].sum(1).tolist() == [1, 2, 3]
    assert out["reward_extra_info"]["length_score"] == [1, 2, 3]
    details = [json.loads(d) for d in out["reward_extra_info"]["details"]]
    assert details[2] == {"group": 2, "place": 1, "truth": "5"}


def test_a_reward_function_object_sees_the_row(tokenizer: Any) -> None:
    made = JudgeKitLegacyRewardManager(tokenizer, 0, Theirs())
    samples = made._samples(batch(tokenizer, ["x", "yy"], uids=["a", "a"], truths=["5", "6"]))
    told = [(one.extra["ground_truth"], one.extra["data_source"], one.extra["uid"]) for one in samples]
    assert told == [("5", samples[0].rollout.data_source, "a"), ("6", samples[1].rollout.data_source, "a")]
    assert all(source for _, source, _ in told)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("lost", "no result for 1 of 2 rows"),
        ("nan", "nan, not a finite number"),
        ("inf", "inf, not a finite number"),
    ],
)
def test_incomplete_results_are_refused(tokenizer: Any, fault: str, says: str) -> None:
    theirs = Theirs()
    theirs.fault = fault
    with pytest.raises(ConfigError, match=says):
        JudgeKitLegacyRewardManager(tokenizer, 0, theirs)(batch(tokenizer, ["x", "y"]), return_dict=True)


def test_verls_second_call_after_an_error_does_not_grade_again(tokenizer: Any) -> None:
    """verl's compute_reward swallows the error and calls again without return_dict."""
    theirs = Theirs()
    theirs.fault = "raises"
    made, data = JudgeKitLegacyRewardManager(tokenizer, 0, theirs), batch(tokenizer, ["x", "y"])
    with pytest.raises(RuntimeError, match="judge timeout"):
        made(data, return_dict=True)
    with pytest.raises(RuntimeError, match="judge timeout"):
        made(data)
    assert theirs.calls == 1


class ResponseLength:
    """The guide's own example: the length of the last message, and columns by name."""

    async def compute_batch_scores(self, prompt_to_samples: dict[str, list[Any]]) -> list[Any]:
        return [
            SimpleNamespace(
                original_index=s.original_index,
                group_index=s.group_index,
                score=float(len(s.messages[-1]["content"])) + s.extra["chat_date"],
                reward_info={},
                details=None,
            )
            for group in prompt_to_samples.values()
            for s in group
        ]


def test_the_guides_graders_read_the_response_and_the_columns(tokenizer: Any) -> None:
    data = batch(tokenizer, ["x", "yyyy"], extra=[{"chat_date": 10}, {"chat_date": 20}])
    assert JudgeKitLegacyRewardManager(tokenizer, 0, ResponseLength())(data).sum(1).tolist() == [11, 24]


def test_a_reward_function_is_found_through_verls_wrapper(tokenizer: Any) -> None:
    """verl's loaders wrap it in a partial of one of these functions, with the object first."""

    def _call_with_kwargs(raw_fn: Any, extra_kwargs: Any, *args: Any, **kwargs: Any) -> Any: ...

    data = batch(tokenizer, ["x", "yy"])
    wrapped = partial(_call_with_kwargs, Theirs(), {})
    assert JudgeKitLegacyRewardManager(tokenizer, 0, wrapped)(data).sum(1).tolist() == [1, 2]


def test_response_tokens_are_known(tokenizer: Any) -> None:
    data = batch(tokenizer, ["x", "y" * 30], uids=["a", "a"])
    made = manager(tokenizer, "brief")(data, return_dict=True)
    assert made["reward_extra_info"]["judgekit/missing"] == [0, 0]
    assert made["reward_tensor"].sum(1).tolist() == [0, -1]


def test_the_class_path_of_patched_verl(tokenizer: Any) -> None:
    """It constructs judgekit_verl.JudgeKitRewardManager the old way."""
    made = JudgeKitRewardManager(tokenizer, 0, Theirs(), reward_fn_key="data_source")
    assert isinstance(made, JudgeKitLegacyRewardManager)
    made = JudgeKitRewardManager(
        tokenizer=tokenizer, num_examine=0, compute_score=None, judgekit_runner="graders_for_tests:ranked"
    )
    assert made(batch(tokenizer, ["x", "xx"], uids=["a", "a"])).sum(1).tolist() == [0, 1]


def test_the_reward_loop_of_0_7_0_is_refused(tokenizer: Any) -> None:
    """Its configuration has no `reward`, and it constructs by position."""
    config = SimpleNamespace(actor_rollout_ref={}, reward_model={})
    with pytest.raises(ConfigError, match="reward_model.use_reward_loop=False"):
        JudgeKitRewardManager(config, tokenizer, None, None, None)


@pytest.mark.parametrize("version", ["0.5.0", "0.6.1"])
def test_inside_old_verl(version: str, policy: Path) -> None:
    """Its own loader by name, its own compute_reward, in its own package."""
    found = inside(version, "old_verl.py", policy)
    assert found[0].startswith(version)
    assert found[1] == [0, 1, 1, 0]
    assert found[2] == [0, 1, 1, 0]
