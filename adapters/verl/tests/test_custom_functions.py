"""A `custom_reward_function` beside judgekit's settings: a grader of reward.yaml, or an error at the start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, GradingRunner, from_function
from judgekit_verl.openjudge import check_unused
from judgekit_verl.samples import rollout_of, rollout_of_row

REWARDS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, scale=1.0):
    return {"score": scale * len(solution_str) / 3, "acc": ground_truth in solution_str}
"""


def _call_with_kwargs(raw_fn: Any, extra_kwargs: Any, *args: Any, **kwargs: Any) -> Any:
    return raw_fn(*args, **kwargs, **extra_kwargs)


def mine(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    return len(solution_str) / 3


class Mine:
    def __call__(self, solution_str: str, **_: Any) -> float:
        return 1.0


def wrapped(raw_fn: Any) -> Any:
    """As verl 0.4 wraps it."""

    def wrapped_fn(*args: Any, **kwargs: Any) -> Any:
        return raw_fn(*args, **kwargs)

    return wrapped_fn


@pytest.mark.parametrize(
    "given",
    [
        mine,
        partial(_call_with_kwargs, mine, {}),
        wrapped(mine),
        Mine(),
        partial(_call_with_kwargs, Mine(), {}),
    ],
)
def test_a_function_that_nobody_would_call_is_an_error(given: Any) -> None:
    with pytest.raises(ConfigError, match=r'use: "[\\w.]*test_custom_functions:[mM]ine"'):
        check_unused(given)


def test_what_verl_and_judgekit_have_is_none() -> None:
    from verl.utils.reward_score import default_compute_score
    from verl.utils.reward_score.gsm8k import compute_score

    from judgekit_verl.legacy import compute_score as placeholder

    for given in (
        None,
        default_compute_score,
        partial(default_compute_score, sandbox_fusion_url="x"),
        placeholder,
    ):
        check_unused(given)
    with pytest.raises(ConfigError, match='use: "verl.utils.reward_score.gsm8k:compute_score"'):
        check_unused(partial(_call_with_kwargs, compute_score, {}))


def test_verls_own_loader_beside_a_configuration(
    trainer_config: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    (tmp_path / "their_rewards.py").write_text(REWARDS)
    (tmp_path / "reward.yaml").write_text("graders: {correct: final_answer}\nrunner: {missing_reward: 0.0}\n")
    lines = (
        "reward.reward_manager.name=judgekit",
        f"+reward.reward_kwargs.judgekit_config={tmp_path / 'reward.yaml'}",
        f"reward.custom_reward_function.path={tmp_path / 'their_rewards.py'}",
        "reward.custom_reward_function.name=compute_score",
    )
    with pytest.raises(ConfigError, match='use: "their_rewards:compute_score"'):
        load_reward_manager(trainer_config(*lines), tokenizer)
    from judgekit_verl.group import _Driver

    with pytest.raises(ConfigError, match='use: "their_rewards:compute_score"'):
        _Driver(trainer_config(*lines), [object()])


def test_the_text_of_several_turns_is_the_one_that_verl_hands_over(tokenizer: Any) -> None:
    ids = tokenizer.encode("It is 4. no", add_special_tokens=False)
    mask = [1] * (len(ids) - 4) + [0] * 2 + [1] * 2
    columns = {"raw_prompt": [{"role": "user", "content": "x"}], "extra_info": {"level": 3}}
    made = rollout_of(columns, ids, tokenizer, mask=mask)
    grader: Any = from_function(mine)
    assert made.response != tokenizer.decode(ids)
    assert grader.grade(made) == len(tokenizer.decode(ids, skip_special_tokens=True)) / 3


async def test_the_number_is_that_of_verls_own_manager(
    trainer_config: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """verl's naive manager and judgekit's, with one function and one row."""
    from verl.trainer.ppo.reward import load_reward_manager

    from batches import batch

    (tmp_path / "their_rewards.py").write_text(REWARDS)
    (tmp_path / "reward.yaml").write_text(
        "graders: {mine: {use: 'their_rewards:compute_score', scale: 0.7}}\nrunner: {missing_reward: 0.0}\n"
    )
    theirs = load_reward_manager(
        trainer_config(
            "reward.reward_manager.name=naive",
            f"reward.custom_reward_function.path={tmp_path / 'their_rewards.py'}",
            "reward.custom_reward_function.name=compute_score",
            "+reward.custom_reward_function.reward_kwargs.scale=0.7",
        ),
        tokenizer,
    )
    ours = load_reward_manager(
        trainer_config(
            "reward.reward_manager.name=judgekit",
            f"+reward.reward_kwargs.judgekit_config={tmp_path / 'reward.yaml'}",
        ),
        tokenizer,
    )
    for text in ("x", "xxxx zz", "It is 4."):
        expected = (await theirs.run_single(batch(tokenizer, [text])))["reward_score"]
        assert (await ours.run_single(batch(tokenizer, [text])))["reward_score"] == expected
        item = batch(tokenizer, [text])[0]
        runner = GradingRunner({"mine": from_function(mine)})
        (result,) = await runner.run([rollout_of_row(item, tokenizer)])
        assert result.reward == pytest.approx(expected / 0.7)
