"""Reward functions written for TRL, as graders: the tensor is the one that TRL makes of the function itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from trl.rewards import get_soft_overlong_punishment, think_format_reward

from judgekit import GradingRunner, from_function
from judgekit_trl import judgekit_reward
from toy_training import trainer

GROUP = 2


def counted(
    prompts: list[Any], completions: list[Any], answer: list[str], **kwargs: Any
) -> list[float | None]:
    kwargs["log_extra"]("answer_length", [len(one) for one in answer])
    kwargs["log_metric"]("answers", float(len(answer)))
    return [None if a == "?" else len(str(c)) / 7 for c, a in zip(completions, answer, strict=True)]


async def later(completions: list[Any], **kwargs: Any) -> list[float]:
    return [len(str(one)) / 13 for one in completions]


overlong = get_soft_overlong_punishment(max_completion_len=4, soft_punish_cache=3)
TEXTS = ["<think>a</think> b", "no", "<think>c</think>", "never"]


def rewards(made: Any, *, chat: bool) -> list[float]:
    prompts: list[Any] = ["1?a"] * 2 + ["2?b"] * 2
    said: list[Any] = list(TEXTS)
    if chat:
        prompts = [[{"role": "user", "content": text}] for text in prompts]
        said = [[{"role": "assistant", "content": text}] for text in said]
    batch = [{"prompt": p, "answer": a} for p, a in zip(prompts, ["a", "a", "b", "?"], strict=True)]
    ids = [[1] * n for n in (1, 2, 3, 4)]
    return made._calculate_rewards(batch, prompts, said, ids)[:, 0].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("chat", [False, True], ids=["texts", "messages"])
@pytest.mark.parametrize(
    "function", [counted, later, overlong, think_format_reward], ids=lambda f: f.__name__
)
def test_the_tensor_is_that_of_the_function_itself(tmp_path: Path, function: Any, chat: bool) -> None:
    if function is think_format_reward and not chat:
        pytest.skip("it reads messages only")
    theirs = rewards(trainer(tmp_path / "theirs", function, num_generations=GROUP), chat=chat)
    runner = GradingRunner({"f": from_function(function, name="f")})
    ours = rewards(trainer(tmp_path / "ours", judgekit_reward(runner), num_generations=GROUP), chat=chat)
    assert [None if math.isnan(x) else x for x in ours] == [None if math.isnan(x) else x for x in theirs]
    assert len(set(theirs)) > 1
