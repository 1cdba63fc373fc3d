"""Checks a running judge: what it is, whether it judges, how fast, and whether it shares prefixes."""

from __future__ import annotations

import time
from typing import Any

import anyio
import msgspec

from judgekit.cli.load import watched
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.judges.base import Judge
from judgekit.types import Graded, Rollout, Usage


class CheckUp(msgspec.Struct):
    """What `check` found."""

    model: str
    verdict: str
    """The judge's scores for a right and a wrong answer."""
    per_second: float
    """Verdicts a second in a burst."""
    cached: float
    """Share of the burst's prompt tokens that came from the prefix cache."""
    failures: list[str]
    unverified: str = ""
    """Why it is not known that rollouts' texts reach the model as they were written; empty: they do."""
    engine: str = ""
    """What its server's metrics say of the burst; empty where it tells none."""


SHORT = "A shelf holds 3 rows of 8 jars. How many jars does it hold?"
PADDING = (
    "The shelf stands in the cellar, to the left of the stairs, and nobody has counted the jars before. "
)


async def check_up(judge: Judge, *, burst: int = 64, per_group: int = 8) -> CheckUp:
    """Ask a judge about a right and a wrong answer, then for *burst* verdicts at once, in groups."""
    grader = JudgeGrader(judge)
    identity = getattr(judge, "identity", None)
    model = str(await identity()) if identity is not None else repr(judge)
    failures: list[str] = []

    async def grade(response: str, problem: str = SHORT) -> Any:
        rollout = Rollout(prompt=problem, ground_truth="3 * 8 = 24\n#### 24", response=response)
        try:
            return await grader.grade(rollout)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
            return None

    right, wrong = await grade("3 rows of 8 are 24.\n#### 24"), await grade("3 and 8 are 11.\n#### 11")
    shown = [f"{g.score:.3f}" if isinstance(g, Graded) else "no verdict" for g in (right, wrong)]
    grades: list[Any] = []

    async def one(i: int) -> None:
        problem = f"{PADDING * 3}Shelf {i // per_group}. {SHORT}"
        grades.append(await grade(f"3 * 8 = {i}\n#### {i}", problem))

    async with watched([judge]) as (seen,):
        start = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for i in range(burst):
                tasks.start_soon(one, i)
        seconds = time.perf_counter() - start
    usage = sum((g.usage for g in grades if isinstance(g, Graded) and g.usage is not None), Usage())
    return CheckUp(
        model,
        f"right answer {shown[0]}, wrong answer {shown[1]}",
        sum(isinstance(g, Graded) for g in grades) / seconds,
        usage.cached_tokens / max(1, usage.prompt_tokens),
        list(dict.fromkeys(failures)),
        getattr(judge, "unverified", ""),
        str(seen),
    )
