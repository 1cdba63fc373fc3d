"""Graders and runners that the workers load by path."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from judgekit import GradingRunner, JudgeUnavailable, Rollout, Turns, Weighted, grader, group_grader
from judgekit.graders import FinalAnswer, SoftOverlong


@grader
def letters(response: str) -> float:
    """Share of letters a to m."""
    return sum(c in "abcdefghijklm" for c in response) / max(1, len(response))


@grader
async def flaky(rollout: Rollout) -> float:
    """A judge that is down for what mentions it."""
    await asyncio.sleep(0.001)
    if "down" in rollout.response:
        raise JudgeUnavailable("the judge is down")
    return 1.0


@grader
async def always_down(rollout: Rollout) -> float:
    raise JudgeUnavailable("the judge is down")


@grader
async def half_down(rollout: Rollout) -> float:
    """A judge that is down for about half of the rollouts, whatever they say."""
    text = f"{rollout.id} {rollout.response}"  # under V0 all of a group have one id
    if int(hashlib.sha256(text.encode()).hexdigest(), 16) % 2:
        raise JudgeUnavailable("the judge is down")
    return 1.0


@group_grader
async def longest(rollouts: Sequence[Rollout]) -> list[float]:
    """Rank by length among the group's members, 0 to 1."""
    lengths = [len(r.response) for r in rollouts]
    return [sum(x > y for y in lengths) / max(1, len(lengths) - 1) for x in lengths]


def pointwise() -> GradingRunner:
    return GradingRunner(
        {"correct": FinalAnswer(), "letters": letters}, {"correct": 1.0, "letters": 0.0}, missing_reward=-1.0
    )


def ranked() -> GradingRunner:
    return GradingRunner({"longest": longest}, missing_reward="neutral")


def down_at_times() -> GradingRunner:
    return GradingRunner(
        {"flaky": flaky, "letters": letters}, {"flaky": 0.5, "letters": 0.5}, missing_reward="neutral"
    )


def excluding() -> GradingRunner:
    """The default: who has no reward is left out."""
    return GradingRunner({"flaky": flaky, "letters": letters}, {"flaky": 0.5, "letters": 0.5})


@grader
def first_letter(response: str) -> float:
    return 1.0 if response.startswith("a") else 0.0


def dropping() -> GradingRunner:
    """Groups of one first letter are dropped, whatever else they say."""
    return GradingRunner(
        {"first": first_letter, "letters": letters},
        {"first": 1.0, "letters": 0.0},
        drop_if="spread(reward) < 0.02",
    )


def fading() -> GradingRunner:
    """The letters' weight falls from 1 to 0 over 200 steps."""
    return GradingRunner(
        {"first": first_letter, "letters": letters},
        Weighted({"first": 1.0, "letters": [[0, 1.0], [200, 0.0]]}),
    )


def brief() -> GradingRunner:
    return GradingRunner({"brief": SoftOverlong(max_length=24, cache=8)}, missing_reward="neutral")


def strict() -> GradingRunner:
    return GradingRunner({"flaky": flaky}, missing_reward="raise")


def down() -> GradingRunner:
    return GradingRunner({"always_down": always_down}, missing_reward="neutral", max_failure_rate=0.25)


@grader(score_range=(0.0, float("inf")))
def length(response: str) -> float:
    return float(len(response))


def trivial() -> GradingRunner:
    """The score of trivial_score.py."""
    return GradingRunner({"length": length}, missing_reward=0.0)


class RanksByLength:
    """A reward function object as in the OpenJudge guide: it sees whole groups."""

    async def compute_batch_scores(self, prompt_to_samples: dict[str, list[Any]]) -> list[Any]:
        return [
            SimpleNamespace(
                original_index=sample.original_index,
                group_index=sample.group_index,
                score=sum(len(sample.response) > len(other.response) for other in group),
                reward_info={"length_score": len(sample.messages[-1]["content"])},
                details={"members": len(group), "index": sample.extra["index"]},
            )
            for group in prompt_to_samples.values()
            for sample in group
        ]


ranks_by_length = RanksByLength()


class BatchManager:
    """A manager for verl before 0.7.1, as in that guide."""

    def __init__(
        self, tokenizer: Any, num_examine: int, compute_score: Any = None, **kwargs: Any
    ) -> None: ...

    def __call__(self, data: Any, return_dict: bool = False) -> Any: ...


class LoopManager:
    """A manager for verl's reward loop that is not judgekit's."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    async def run_single(self, data: Any) -> Any: ...


def by_turn() -> GradingRunner:
    @grader(per="turn")
    def share(turn: str) -> float:
        return min(len(turn), 10) / 10

    return GradingRunner({"share": share}, Weighted({"share": (0.5, Turns("share"))}))
