"""Leaves rollouts without a reward out of verl's advantages.

A missing reward must not move a sibling's advantage, and its rollout must get no gradient. Its response mask becomes 0
and its reward the mean of its group. That is exact for estimators that do not divide by a group's deviation. For the
others, the rollout also gets a uid of its own (V1), or the estimator's name is one of ours,
`algorithm.adv_estimator=judgekit_grpo`: verl's own function, called with the rows that are not masked.

`judgekit_turn_grpo` is an estimator of its own: it compares turns (`judgekit.reward.turns`).
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from judgekit import ConfigError
from judgekit.trainers import TURN_ESTIMATOR, HostedRunner, turn_advantages, turn_runs

logger = logging.getLogger("judgekit")

PREFIX = "judgekit_"
REGISTERED = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "opo",
    "gpg",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
)
"""Estimators of verl that exist once more as `judgekit_<name>`."""
_BY_MASK = frozenset({"reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae", "remax"})
"""Exact with a mask of 0 and the group's mean."""
_BY_UID = frozenset(
    {
        "grpo",
        "grpo_vectorized",
        "gdpo",
        "rloo",
        "rloo_vectorized",
        "opo",
        "optimal_token_baseline",
        "tir_optimal_token_baseline",
    }
)
"""Exact if the row has a uid of its own as well."""
_UNGROUPED = frozenset({"reinforce_plus_plus", "gae", "remax"})
"""Compare a rollout with others than its group, so that one valid member is enough."""
_BLIND = frozenset(
    {
        "grpo",
        "grpo_vectorized",
        "grpo_passk",
        "gdpo",
        "rloo",
        "rloo_vectorized",
        "opo",
        "gpg",
        "reinforce_plus_plus_baseline",
    }
)
"""Estimators of verl that add up a trajectory's rewards, on whichever tokens they lie."""
_MARK = ":judgekit-left-out"
LIVE_SHARE = "judgekit/live_share"
"""Figure of a step: the share of its rows that are trained on.

verl's `seq-mean-*` losses divide by all rows, so that it is also the factor of their learning rate."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A rollout that is kept out of the training."""

    own_uid: bool
    keeps: bool
    """Whether it keeps one token in the response mask."""

    def uid(self, uid: str, session: Any) -> str:
        """Its uid, for V1."""
        if self.keeps:
            return f"{uid}{_MARK}"
        return f"{uid}:{session}{_MARK}" if self.own_uid else uid

    def mask(self, mask: Sequence[int]) -> list[int]:
        """Its response mask."""
        return [0] * (len(mask) - 1) + [int(self.keeps)] if mask else []


class Treatment(Struct, frozen=True, kw_only=True):
    """How rollouts without a reward are kept out of the training."""

    own_uid: bool
    least: int
    """Valid members below which nobody of a group is compared."""

    def of_group(self, missing: Sequence[bool]) -> list[LeftOut | None]:
        """What becomes of each member; None for those that are trained on.

        verl stops at a step without a token to train on. Of a group that is left out altogether, two members keep one
        each: the rewards of such a group are equal, so these tokens earn nothing. One that is alone keeps none, for its
        advantage would be the reward that stands in for the missing one.
        """
        nobody = len(missing) - sum(missing) < min(self.least, len(missing))
        keep = 2 if nobody and len(missing) > 1 else 0
        return [
            LeftOut(own_uid=self.own_uid, keeps=i < keep) if nobody or gone else None
            for i, gone in enumerate(missing)
        ]


def treatment(algorithm: Any, hosted: HostedRunner, *, v1: bool) -> Treatment | None:
    """How this estimator leaves rows out; None where a missing reward is its group's mean and no more.

    *algorithm*: verl's section of that name. *v1*: whether the uid of a trajectory can be changed.
    """
    if not hosted.mask:
        return None
    name = str(algorithm.adv_estimator)
    own = name.removeprefix(PREFIX)
    least = 1 if own in _UNGROUPED or not hosted.exclude else 2
    if (
        not hosted.exclude
        or name == TURN_ESTIMATOR
        or (name != own and own in REGISTERED)
        or own in _BY_MASK
        or _centred(name, algorithm)
    ):
        return Treatment(own_uid=v1 and hosted.exclude and name in _BY_UID, least=least)
    return Treatment(own_uid=True, least=least) if v1 and name in _BY_UID else None


def ignores_left_out(algorithm: Any) -> bool:
    """Whether the estimator never looks at the rewards of rows whose mask is 0, so that any number may stand
    there."""
    name = str(algorithm.adv_estimator)
    return name == TURN_ESTIMATOR or (name.removeprefix(PREFIX) in REGISTERED and name.startswith(PREFIX))


def check_sight(algorithm: Any, hosted: HostedRunner) -> None:
    """Raise ConfigError where turns are paid for themselves, and the estimator cannot see it."""
    name = str(algorithm.adv_estimator)
    if hosted.runner.reward.has_turns and name.removeprefix(PREFIX) in _BLIND:
        raise ConfigError(
            f"algorithm.adv_estimator={name} adds up a trajectory's rewards and cannot see which turn earned what: write "
            f"algorithm.adv_estimator={TURN_ESTIMATOR}"
        )


def check_terms(algorithm: Any, hosted: HostedRunner, *, v1: bool) -> None:
    """Raise ConfigError for verl's GDPO where it does not get the terms, or could not do without one that is missing.

    *v1*: whether the trainer is V1's, which hands over rewards alone: verl 0.9.1 stops there with KeyError 'prompts'.
    """
    if str(algorithm.adv_estimator) != "gdpo" or (
        not v1 and hosted.runner.settings.missing_reward == "raise"
    ):
        return
    why = (
        "verl's V1 trainer does not hand it the terms"
        if v1
        else "a term that is missing makes every advantage NaN (write missing_reward: raise to have none)"
    )
    raise ConfigError(
        f"algorithm.adv_estimator=gdpo: {why}; write transform: gdpo in reward.yaml, which normalises each term of "
        "the top weighted within its group and leaves out what is missing, and "
        "algorithm.adv_estimator=judgekit_reinforce_plus_plus_baseline, which whitens the batch as verl's GDPO does"
    )


def advice(algorithm: Any) -> str:
    """What to say where `missing_reward: exclude` cannot be exact."""
    name = str(algorithm.adv_estimator)
    way = (
        f"write algorithm.adv_estimator={PREFIX}{name}"
        if name in REGISTERED
        else "it cannot be changed for this estimator"
    )
    return (
        f"missing_reward: exclude is not exact with algorithm.adv_estimator={name} in this trainer: a missing reward is "
        f"the mean of its group, which changes its siblings' advantages (by a factor of 1.08 if one of eight is "
        f"missing, 1.53 if four are); {way}"
    )


def _centred(name: str, algorithm: Any) -> bool:
    """Whether this is GRPO without the deviation, which the group's mean does not move."""
    return name == "grpo" and not algorithm.get("norm_adv_by_std_in_grpo", True)


def register() -> None:
    """Add `judgekit_<name>` to verl's registry."""
    from verl.trainer.ppo import core_algos

    for name in REGISTERED:
        if PREFIX + name not in core_algos.ADV_ESTIMATOR_REGISTRY:
            core_algos.register_adv_est(PREFIX + name)(_leaving_out(name))
    if TURN_ESTIMATOR not in core_algos.ADV_ESTIMATOR_REGISTRY:
        core_algos.register_adv_est(TURN_ESTIMATOR)(turn_grpo)


def turn_grpo(
    token_level_rewards: Any, response_mask: Any, index: Any = None, config: Any = None, **_: Any
) -> tuple[Any, Any]:
    """Give each turn its return minus that of the same turn in its group's other members; turns are runs of the mask.

    What lies behind a turn, up to the next one, is the turn's. Returns advantages and returns of each token.
    """
    import torch

    rewards, flags = token_level_rewards.double().cpu(), (response_mask > 0).byte().cpu()
    uids = [""] * len(rewards) if index is None else [str(uid) for uid in index]
    turns = [
        [] if uid.endswith(_MARK) else turn_runs(flags[row].numpy().tobytes()) for row, uid in enumerate(uids)
    ]
    earned = []
    for row, runs in enumerate(turns):
        bounds = [0, *(start for start, _ in runs[1:]), rewards.shape[1]]
        earned.append(
            [float(rewards[row, a:b].sum()) for a, b in itertools.pairwise(bounds)] if runs else None
        )
    gamma = 1.0 if config is None else float(config.get("gamma", 1.0))
    advantages = torch.zeros_like(rewards, dtype=token_level_rewards.dtype)
    alone = Counter(uid for uid, runs in zip(uids, turns, strict=True) if runs)
    if count := sum(members == 1 for members in alone.values()):
        logger.info(
            "%d rollout(s) have no other of their group to be compared with: their advantage is 0", count
        )
    for row, values in enumerate(turn_advantages(earned, uids, gamma)):
        for (start, end), value in zip(turns[row], values, strict=True):
            advantages[row, start:end] = value
    advantages = advantages.to(token_level_rewards.device)
    return advantages, advantages.clone()


def _leaving_out(name: str) -> Any:
    """verl's estimator, called with the rows that are trained on; the others get advantages of 0."""
    import numpy as np
    import torch
    from verl.trainer.ppo import core_algos

    inner = core_algos.get_adv_estimator_fn(name)
    takes_norm = "norm_adv_by_std_in_grpo" in inspect.signature(inner).parameters

    def estimator(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: Any = None,
        config: Any = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        live = response_mask.sum(-1) > 0
        if index is not None:
            live &= torch.tensor([not str(uid).endswith(_MARK) for uid in index], device=live.device)
        rows = live.nonzero().squeeze(-1)
        advantages, returns = (torch.zeros_like(token_level_rewards) for _ in range(2))
        if not len(rows):
            return advantages, returns
        if index is not None:
            kwargs["index"] = np.asarray(index, dtype=object)[rows.cpu().numpy()]
        if takes_norm and config is not None:  # verl's trainer passes it to its own GRPO alone
            kwargs["norm_adv_by_std_in_grpo"] = config.get("norm_adv_by_std_in_grpo", True)
        found = inner(
            token_level_rewards=token_level_rewards[rows],
            response_mask=response_mask[rows],
            config=config,
            **kwargs,
        )
        advantages[rows], returns[rows] = (part.to(advantages.dtype) for part in found)
        return advantages, returns

    estimator.__name__ = estimator.__qualname__ = PREFIX + name
    return estimator
