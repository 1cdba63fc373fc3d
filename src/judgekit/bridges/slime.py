"""slime: a custom reward model, and a normalisation that leaves out missing rewards.

    --custom-rm-path judgekit.bridges.slime.reward --group-rm                # and JUDGEKIT_REWARD=reward.yaml
    --custom-reward-post-process-path judgekit.bridges.slime.normalise

With `--group-rm` slime hands over a prompt's samples together: graders of groups work, and a missing reward becomes the mean
of its group with `remove_sample`, which takes it out of the loss; `normalise` takes it out of the group's mean and deviation
as well. Without, write `missing_reward: <number>` or `raise`. A rollout that became several samples (fan-out) is graded once.

Source: slime 624b824, slime/rollout/rm_hub/__init__.py (`async_rm`, `batched_async_rm`), slime/rollout/sglang_rollout.py,
slime/ray/rollout.py (`_post_process_rewards`), slime/utils/types.py (`Sample`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any

from judgekit.bridges.bridge import bridge, figures, reward_file, value
from judgekit.errors import DataError
from judgekit.trainers import TRUTHS, rollout_of, turns_of_tokens
from judgekit.types import PAID, Message, RewardResult, Rollout

_BY_DEVIATION = ("grpo", "gspo", "cispo")
_BY_GROUP = (*_BY_DEVIATION, "reinforce_plus_plus_baseline")
"""Estimators for which slime normalises rewards by group."""


async def reward(args: Any, sample: Any, **kwargs: Any) -> Any:
    """Grade a sample, a list of one prompt's samples, or without --group-rm of one rollout's. Raises MissingRewardError, DataError.

    *args*: slime's own; `judgekit_reward`, a path, counts before JUDGEKIT_REWARD. Each grader's score stands in the sample's
    `metadata` afterwards, under `judgekit/…`.
    """
    file = reward_file(getattr(args, "judgekit_reward", None))
    if not isinstance(sample, list | tuple):
        (result,) = await bridge(file, grouped=False).grade([_rollout(args, [sample])])
        _note([sample], result)
        return value(result)
    if not getattr(args, "group_rm", True):
        if not sample:
            return []
        (result,) = await bridge(file, grouped=False).grade([_rollout(args, sample)])
        _note(sample, result)
        return [value(result)] * len(sample)
    members = [one if isinstance(one, list | tuple) else [one] for one in sample]
    exact = getattr(args, "custom_reward_post_process_path", None) == f"{__name__}.normalise"
    graded = bridge(file, grouped=True, can_mask=True, can_exclude=exact)
    results = await graded.grade([_rollout(args, parts) for parts in members])
    paid = graded.numbers(results) if len(results) > 1 else [value(one) for one in results]
    for parts, result, number in zip(members, results, paid, strict=True):
        _note(parts, result)
        for part in parts:
            part.remove_sample = part.remove_sample or result.status not in PAID
            part.reward = number
    # to a rollout's list of samples slime could write no reward: they have theirs
    return [] if any(isinstance(one, list | tuple) for one in sample) else paid


def normalise(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Normalise as slime does, over the rollouts of a group that have a reward. Returns raw rewards and normalised ones.

    A sample that is removed gets 0, as does one without a sibling that has a reward. A rollout counts once, whatever the number
    of its samples.
    """
    raw = [sample.get_reward_value(args) for sample in samples]
    if args.advantage_estimator not in _BY_GROUP or not args.rewards_normalization:
        return raw, raw
    divides = args.advantage_estimator in _BY_DEVIATION and args.grpo_std_normalization
    groups: dict[Any, dict[Any, float]] = {}
    for place, (sample, paid) in enumerate(zip(samples, raw, strict=True)):
        if not sample.remove_sample:
            rollout = next(
                (id for id in (sample.rollout_id, sample.index) if id is not None), ("sample", place)
            )
            groups.setdefault(sample.group_index, {})[rollout] = paid
    scales = {
        group: (fmean(paid.values()), stdev(paid.values()) + 1e-6 if divides else 1.0)
        for group, paid in groups.items()
        if len(paid) > 1
    }
    found = []
    for sample, paid in zip(samples, raw, strict=True):
        mean, deviation = scales.get(sample.group_index, (paid, 1.0))
        found.append(0.0 if sample.remove_sample else (paid - mean) / deviation)
    return raw, found


def _note(parts: Sequence[Any], result: RewardResult) -> None:
    turns = {"judgekit/turns": list(result.turns)} if result.turns else {}
    for part in parts:
        part.metadata = {**(part.metadata or {}), **figures(result), **turns}


def _rollout(args: Any, parts: Sequence[Any]) -> Rollout:
    first, last = parts[0], parts[-1]
    status = getattr(getattr(last, "status", None), "value", None)
    label = {} if first.label is None else {"label": first.label}
    return rollout_of(
        {**(first.metadata or {}), **label},
        prompt=first.prompt,
        turns=[turn for part in parts for turn in _turns(args, part)],
        group=str(first.group_index),
        id=str(first.index),
        response_tokens=sum(map(_trained, parts)) or None,
        finish_reason={"completed": "stop", "truncated": "length"}.get(str(status)),
        truths=(*label, *TRUTHS),  # what `--label-key` names counts first
    )


def _trained(sample: Any) -> int:
    """Return how many tokens are the policy's."""
    mask = getattr(sample, "loss_mask", None)
    return sum(mask) if mask else getattr(sample, "response_length", 0) or 0


def _turns(args: Any, sample: Any) -> list[Message]:
    """Return the turns of a sample: its loss mask tells the policy's words from those of tools."""
    mask = list(getattr(sample, "loss_mask", None) or ())
    if getattr(args, "mask_offpolicy_in_partial_rollout", False):  # an earlier policy's words are masked, too
        first = next((i for i, one in enumerate(mask) if one), 0)
        mask[:first] = [1] * first
    if all(mask) or not any(mask):
        return [{"role": "assistant", "content": sample.response}]
    if len(sample.tokens) < len(mask):
        raise DataError(
            f"sample {sample.index}: its loss mask has {len(mask)} tokens, and the sample {len(sample.tokens)}: which words are "
            "the policy's cannot be told"
        )
    tokenizer = _tokenizer(args.hf_checkpoint)
    ids = list(sample.tokens[-len(mask) :])
    return turns_of_tokens(ids, mask, lambda some: tokenizer.decode(some, skip_special_tokens=True))


@lru_cache(maxsize=1)
def _tokenizer(checkpoint: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=True)  # as slime loads it
