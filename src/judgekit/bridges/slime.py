"""slime: a custom reward model.

    --custom-rm-path judgekit.bridges.slime.reward [--group-rm]      # and JUDGEKIT_REWARD=reward.yaml

With `--group-rm` slime hands over a prompt's samples together: graders of groups work, and a missing reward becomes the mean
of its group with `remove_sample`, which takes it out of the loss. Without, write `missing_reward: <number>` or `raise`.

Source: slime 0.3.1, slime/rollout/rm_hub/__init__.py (`async_rm`, `batched_async_rm`), slime/utils/types.py (`Sample`).
"""

from __future__ import annotations

from typing import Any

from judgekit.bridges.bridge import bridge, figures, reward_file, value
from judgekit.trainers import TRUTHS, rollout_of
from judgekit.types import RewardResult, Rollout


async def reward(args: Any, sample: Any, **kwargs: Any) -> Any:
    """Grade a sample, or a list of one prompt's samples. Raises MissingRewardError.

    *args*: slime's own; `judgekit_reward`, a path, counts before JUDGEKIT_REWARD. Each grader's score stands in the sample's
    `metadata` afterwards, under `judgekit/…`.
    """
    file = reward_file(getattr(args, "judgekit_reward", None))
    if not isinstance(sample, list | tuple):
        (result,) = await bridge(file, grouped=False).grade([_rollout(sample)])
        _note(sample, result)
        return value(result)
    graded = bridge(file, grouped=True, can_mask=True)
    results = await graded.grade([_rollout(one) for one in sample])
    for one, result in zip(sample, results, strict=True):
        if result.status in ("neutral", "masked", "excluded"):
            one.remove_sample = True
        _note(one, result)
    return graded.numbers(results) if len(results) > 1 else [value(one) for one in results]


def _note(sample: Any, result: RewardResult) -> None:
    turns = {"judgekit/turns": list(result.turns)} if result.turns else {}
    sample.metadata = {**(sample.metadata or {}), **figures(result), **turns}


def _rollout(sample: Any) -> Rollout:
    status = getattr(getattr(sample, "status", None), "value", None)
    label = {} if sample.label is None else {"label": sample.label}
    return rollout_of(
        {**(sample.metadata or {}), **label},
        prompt=sample.prompt,
        turns=[{"role": "assistant", "content": sample.response}],
        group=str(sample.group_index),
        id=str(sample.index),
        response_tokens=getattr(sample, "response_length", None) or None,
        finish_reason={"completed": "stop", "truncated": "length"}.get(str(status)),
        truths=(*label, *TRUTHS),  # what `--label-key` names counts first
    )
