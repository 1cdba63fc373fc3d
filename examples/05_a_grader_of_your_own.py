"""A grader of your own: a class with a name, a version, a range, and grade()."""

import asyncio
from typing import Any

from judgekit import Abstained, Graded, GradingRunner, Rollout, RolloutError


class CitesSources:
    """The share of the prompt's sources that the response cites as [1], [2], …"""

    name = "cites"
    version = "1"  # change it when the rule changes: the ledger records it
    score_range = (0.0, 1.0)

    def grade(self, rollout: Rollout, /) -> Any:
        sources = rollout.extra.get("sources", 0)
        if not sources:
            return Abstained("the prompt gave no sources")  # no opinion, with the reason
        if len(rollout.response) > 100_000:
            raise RolloutError("too long to read")  # the rollout's fault: it scores the low end of the range
        cited = [n for n in range(1, sources + 1) if f"[{n}]" in rollout.response]
        return Graded(len(cited) / sources, f"cites {cited}")


class AsksAService(CitesSources):
    """An async grader: grade() is a coroutine, with its own timeout and concurrency limit."""

    name = "service"
    timeout_s = 5.0
    max_concurrency = 8

    async def grade(self, rollout: Rollout, /) -> Any:
        await asyncio.sleep(0.01)
        return super().grade(rollout)


runner = GradingRunner([CitesSources(), AsksAService()], missing_reward="neutral")
rollouts = [
    Rollout(prompt="p", response="As [1] says, and [2].", extra={"sources": 2}),
    Rollout(prompt="p", response="Nobody knows.", extra={"sources": 2}),
    Rollout(prompt="p", response="No sources here."),
    Rollout(prompt="p", response="[1]" * 50_000, extra={"sources": 2}),
]
for result in runner.run_sync(rollouts):
    print(result.reward, result.status, result.grades["cites"])
