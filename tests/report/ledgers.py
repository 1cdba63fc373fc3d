"""Ledgers to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judgekit import (
    Failed,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Rollout,
    Score,
    Usage,
    Weighted,
    grader,
)

EVIL = (
    "</pre></script><script>document.title = 'hacked'</script><img src=x onerror=\"document.title = 'hacked'\">"
    "<!--<script> \u202eright to left\u202c zero\u200bwidth \U000e0041tag"
)


@grader
def length(rollout: Rollout) -> Any:
    return Graded(min(1.0, len(rollout.response) / 100), reason=f"because {EVIL}")


@grader
async def judge(rollout: Rollout) -> Any:
    what = rollout.extra.get("judge")
    if what == "down":
        raise JudgeUnavailable("the server is down")
    if what == "mumbles":
        return Failed("VerdictError", "no line", metadata={"raw": f"maybe {EVIL}"}, usage=Usage(calls=1))
    if what == "abstains":
        return None
    return Graded(
        rollout.extra.get("score", 0.5),
        reason="fine",
        metadata={"prompt": [{"role": "user", "content": "Is it fine?"}], "raw": "Score: 5", "model": "m"},
        usage=Usage(calls=2, prompt_tokens=3000, cached_tokens=1500, completion_tokens=20),
    )


TREE = Weighted(
    {"length": 0.5, "judged": (0.5, Gate(if_=Score("length") >= 0.01, then="judge", otherwise=0.0))}
)


def write(path: Path, rollouts: list[Rollout], *, texts: bool = True, **tags: Any) -> Path:
    """Grade *rollouts* into a ledger, as one run."""
    kept = Ledger(path, texts=texts)
    runner = GradingRunner({"length": length, "judge": judge}, TREE, missing_reward="mask", ledger=kept)
    runner.run_sync(rollouts, tags=tags)
    kept.flush()
    return path


def some(count: int, *, size: int = 4, step: int = 0, response: str = "Some words. ") -> list[Rollout]:
    """Rollouts in groups of *size*; the second of each group fails, its third abstains."""
    return [
        Rollout(
            response=response * (1 + i % 9),
            id=f"{step}-{i}",
            group=f"group {step}-{i // size}",
            prompt=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"Question {i // size}"},
            ],
            ground_truth="truth",
            data_source=("math", "code")[i // size % 2],
            extra={
                "score": (i * 7 % 11) / 11,
                **({1: {"judge": "down"}, 2: {"judge": "abstains"}}.get(i % size, {})),
            },
        )
        for i in range(count)
    ]
