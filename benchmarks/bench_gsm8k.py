"""How often the rule and the embedded judge agree with labelled solutions, and how fast the judge is.

    make bench-gsm8k [DATA=…/gsm8k_solutions_dev.jsonl]

The data: one JSON object a line with `question`, `ground_truth`, and under other keys a model's `solution`
with its label `is_correct` (the example solutions of openai/grade-school-math, MIT). The hard sets are made
by the embedded judge's own generator with a seed that no training used. The rate is that of a GradingRunner
with the judge on vLLM in this process, over that of offline `LLM.generate` on the same prompts as token ids that are ready, in the
same run: both take each quarter of the data in turn; the median of the four ratios counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from common import finish, machine, reported

from judgekit import GradingRunner, Rollout
from judgekit.graders import FinalAnswer, JudgeGrader
from judgekit.judges import VLLMJudge

GOALS = {
    "rule_agreement": (">=", 1.0),
    "judge_agreement": (">=", 0.97),
    "judge_hard_min": (">=", 0.95),
    "judge_vs_offline": (">=", 0.9),
    "verdicts_moved": ("==", 0),
}

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

SEED = 20_260_000
"""Of the hard sets; no lesson was made with it."""
QUARTERS = 4


def labelled(path: Path) -> list[tuple[Rollout, bool]]:
    """Rollouts with their labels, a group per problem."""
    found = []
    for line in path.read_text("utf-8").strip().split("\n"):
        row = json.loads(line)
        for model, given in row.items():
            if isinstance(given, dict):
                rollout = Rollout(
                    prompt=row["question"],
                    ground_truth=row["ground_truth"],
                    response=given["solution"],
                    id=model,
                )
                found.append((rollout, bool(given["is_correct"])))
    return found


async def agreement(runner: GradingRunner, name: str, cases: list[tuple[Rollout, bool]]) -> tuple[float, int]:
    """Share of *cases* on whose side of one half the score stands, and how many got no score."""
    results = await runner.run([rollout for rollout, _ in cases])
    scores = [result.score(name) for result in results]
    right = sum(
        score is not None and (score >= 0.5) == label for score, (_, label) in zip(scores, cases, strict=True)
    )
    return right / len(cases), scores.count(None)


async def other_order(grader: JudgeGrader, rollouts: list[Rollout]) -> tuple[int, float]:
    """How many verdicts differ, and the largest difference of a score, when the same rollouts are judged 17 at
    a time in a random order and all at once."""
    order = random.Random(0).sample(range(len(rollouts)), len(rollouts))
    together = await GradingRunner({"judge": grader}, max_concurrency=256, timeout_s=600).run(rollouts)
    apart = await GradingRunner({"judge": grader}, max_concurrency=17, timeout_s=600).run(
        [rollouts[i] for i in order]
    )
    pairs = [(together[i].score("judge"), apart[n].score("judge")) for n, i in enumerate(order)]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    moved = len(pairs) - len(known) + sum((a >= 0.5) != (b >= 0.5) for a, b in known)
    return moved, max(abs(a - b) for a, b in known)


async def main_(data: list[tuple[Rollout, bool]]) -> dict[str, Any]:
    from embedded_judge.hard import hard_sets
    from vllm import LLM, SamplingParams

    judge = VLLMJudge()
    grader = JudgeGrader(judge)
    rule = GradingRunner({"rule": FinalAnswer()})
    runner = GradingRunner({"judge": grader})
    offline = LLM(
        model=judge.path, dtype="float32", enforce_eager=True, disable_log_stats=True, max_model_len=4096
    )
    await judge.start()

    def ids(rollout: Rollout) -> Any:
        request, _ = grader.asking.request(grader.asking.prepare(rollout))  # type: ignore[arg-type]
        assert judge._engine is not None
        return {
            "prompt_token_ids": list(judge._engine.encoder.encode(request.turns, reply_tokens=1).ids),
        }

    one = SamplingParams(max_tokens=1, temperature=0)
    warm = [Rollout(prompt=f"warm {i}", ground_truth="1", response="A: 1") for i in range(32)]
    await runner.run(warm)
    offline.generate([ids(r) for r in warm], one, use_tqdm=False)

    rule_share, _ = await agreement(rule, "rule", data)
    print(f"final_answer agrees with the labels on {rule_share:.2%} of {len(data)} solutions", flush=True)

    size = -(-len(data) // QUARTERS)
    right = unscored = 0.0
    rates, ratios = [], []
    for quarter in range(QUARTERS):
        part = data[quarter * size : (quarter + 1) * size]
        start = time.perf_counter()
        share, none = await agreement(runner, "judge", part)
        ours = len(part) / (time.perf_counter() - start)
        prompts = [ids(rollout) for rollout, _ in part]
        start = time.perf_counter()
        offline.generate(prompts, one, use_tqdm=False)
        theirs = len(part) / (time.perf_counter() - start)
        right, unscored = right + share * len(part), unscored + none
        rates.append(ours)
        ratios.append(ours / theirs)
        print(
            f"  quarter {quarter + 1}: {ours:.1f} judgements per s, LLM.generate {theirs:.1f} per s",
            flush=True,
        )
    judge_share = right / len(data)
    print(f"the embedded judge agrees on {judge_share:.2%}, without a verdict on {unscored:.0f}", flush=True)

    hard: dict[str, float] = {}
    for name, cases in hard_sets(SEED).items():
        hard[name], none = await agreement(runner, "judge", [(c.rollout(), bool(c.label)) for c in cases])
        print(f"  {name:24} {hard[name]:.2%} of {len(cases)}, without a verdict {none}", flush=True)
    moved, shift = await other_order(grader, [rollout for rollout, _ in data[:512]])
    print(
        f"in another order and batch: {moved} of 512 verdicts differ, by at most {shift:.2g} of probability"
    )
    await judge.close()
    offline.llm_engine.engine_core.shutdown()
    return {
        "rule_agreement": rule_share,
        "judge_agreement": judge_share,
        "judge_hard_min": min(hard.values()),
        "judge_vs_offline": statistics.median(ratios),
        "judgements_per_s": statistics.median(rates),
        "verdicts_moved": moved,
        "largest_shift": shift,
        "hard": {name: round(share, 4) for name, share in hard.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    if not data.is_file():
        sys.exit(f"there is no labelled data at {data}: give its path with DATA=…")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    print(machine())
    finish(asyncio.run(main_(labelled(data))), GOALS)


if __name__ == "__main__":
    reported(main)
