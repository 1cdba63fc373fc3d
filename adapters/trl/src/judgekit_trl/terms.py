"""The terms of a reward as TRL's reward functions, for its GDPO."""

from __future__ import annotations

import asyncio
import functools
import os
from typing import Any

from judgekit import GradingRunner, RewardResult
from judgekit.trainers import in_background
from judgekit_trl.reward import Reward, RewardFunction


def judgekit_terms(
    reward: str | os.PathLike[str] | GradingRunner, *, ground_truth: str | None = None
) -> list[Reward]:
    """Make a TRL reward function of each term of the reward's top `weighted`, called by its name.

        terms = judgekit_terms("reward.yaml")
        config = GRPOConfig(
            multi_objective_aggregation="normalize_then_sum", reward_weights=[term.weight for term in terms], ...
        )
        GRPOTrainer(args=config, reward_funcs=terms, ...)

    TRL then normalises each term within its group, and weights and adds up (GDPO, arXiv:2601.05242). A batch
    is graded once. A term that is missing where its leaf says `if_missing: renormalise` adds nothing; a
    completion without a reward has no term. *ground_truth*: as in `judgekit_reward`. The functions cannot be
    pickled. Raises ConfigError where TRL cannot weight the terms itself.

    Source: TRL 1.16.0, trl/trainer/grpo_trainer.py (`_calculate_rewards` calls each function once a batch).
    """
    shared = _Terms(reward, ground_truth)
    made = []
    for name, weight in shared.function.terms.items():
        made.append(_function(shared, name, weight))
    return made


def _function(terms: _Terms, name: str, weight: float) -> Reward:
    """A function of the term's own, for TRL logs a partial under the name of what it calls."""

    async def term(**given: Any) -> list[float | None]:
        return await in_background(functools.partial(terms.values, name, **given))

    term.__name__ = term.__qualname__ = name
    term.weight = weight  # type: ignore[attr-defined]
    return term


class _Terms:
    """What the functions of one reward share: each batch is graded by whichever is called first."""

    def __init__(self, reward: Any, ground_truth: str | None) -> None:
        self.function = RewardFunction(reward, ground_truth)
        self.function.terms = self.function.weights()
        self._calls = dict.fromkeys(self.function.terms, 0)
        """Calls of each function: their n-th ones are of one batch."""
        self._batches: dict[int, asyncio.Future[list[RewardResult]]] = {}

    async def values(self, name: str, /, **given: Any) -> list[float | None]:
        number = self._calls[name]
        self._calls[name] += 1
        if number not in self._batches:
            self._batches[number] = asyncio.ensure_future(self.function.graded(**given))
        grading = self._batches[number]
        if min(self._calls.values()) > number:  # the last to ask
            del self._batches[number]
        results = await asyncio.shield(grading)
        return [self.function.value_of(result, name) for result in results]
