"""At temperature 0 the same rollouts get the same verdicts, whatever else is judged with them."""

from __future__ import annotations

import random
from pathlib import Path

from judgekit import GradingRunner
from judgekit.data import read_rollouts
from judgekit.execution.background import run_blocking
from judgekit.graders import JudgeGrader
from judgekit.judges import VLLMJudge

ROLLOUTS = Path(__file__).parents[2] / "examples" / "data" / "rollouts.jsonl"


def test_order_and_batch_do_not_move_a_verdict() -> None:
    rollouts = read_rollouts(ROLLOUTS)[:64]
    order = random.Random(1).sample(range(64), 64)
    judge = VLLMJudge(prefix_caching=False)

    async def scores(at_once: int, indices: list[int]) -> dict[int, float | None]:
        runner = GradingRunner({"judge": JudgeGrader(judge)}, max_concurrency=at_once, timeout_s=300)
        results = await runner.run([rollouts[i] for i in indices])
        return {i: r.score("judge") for i, r in zip(indices, results, strict=True)}

    async def both() -> list[dict[int, float | None]]:
        try:
            return [await scores(64, list(range(64))), await scores(5, order)]
        finally:
            await judge.close()

    together, apart = run_blocking(both())
    for index, score in together.items():
        other = apart[index]
        assert score is not None
        assert other is not None
        assert (score >= 0.5) == (other >= 0.5)
        assert abs(score - other) < 1e-3
