"""Tinker cookbook's own loop of a group's rollouts; a script stands in for the policy."""

import asyncio
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from samples import Sample, by_prompt, each, write

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.bridges import test_tinker as theirs

from judgekit import Rollout
from judgekit.bridges.tinker import Judged

PROMPTS = {prompt: rows for prompt, rows in by_prompt()}


class Env(theirs.Env):
    def __init__(self, one: Sample) -> None:
        self.one = one

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        made = await super().step(action, extra=extra)
        made.reward = 0.0
        return made

    def rollout(self, trajectory: Any) -> Rollout:
        return Rollout(
            prompt=self.one.prompt, response=self.one.text, ground_truth=self.one.truth, group=self.one.prompt
        )


@dataclass(frozen=True)
class Builder(theirs.Builder):
    prompt: str = ""

    async def make_envs(self) -> Sequence[Env]:
        return [Env(one) for one in PROMPTS[self.prompt]]


async def main() -> None:
    groups: dict[str, asyncio.Task[Any]] = {}

    async def one(sample: Sample) -> tuple[Sample, float, str]:
        if sample.prompt not in groups:
            judged = Judged(Builder(prompt=sample.prompt), sys.argv[1])
            groups[sample.prompt] = asyncio.ensure_future(
                theirs.rollouts.do_group_rollout(judged, theirs.Policy())
            )
        group = await groups[sample.prompt]
        told = "judgekit/missing" if group.metrics_G[sample.member]["judgekit/missing"] else ""
        return sample, group.get_total_rewards()[sample.member], told

    write("Tinker cookbook", await each(one, groups=True), package="tinker-cookbook")


asyncio.run(main())
