"""Groups that teach: are conditions on groups what they say, and what is a comparison worth?

    make bench-groups

Trees: 10,000 random trees with group conditions, over groups with missing, broken and skipped members, against an evaluation of
their own (`tests/run/test_group_conditions.py`), and against their replay. Comparisons: judges by arithmetic of members whose
quality is known (`group_games.py`), 120 groups a setting. Training: a policy that chooses among six texts a prompt learns from
`flat(correct)` and from a judge behind it. Nothing here needs a model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from common import FIGURES, finish, machine, reported
from group_games import Referee, chances, closeness, strengths_of_same, win_rates

from judgekit import Gate, Graded, GradingRunner, RewardResult, Rollout, Weighted, flat, grader
from judgekit.graders import Pairwise
from judgekit.graders.judged.pairwise import Tournament, usual_rounds
from judgekit.graders.judged.strengths import UNKNOWN
from judgekit.judges import JudgeRequest
from judgekit.reward.transforms import zscore
from judgekit.testing import ScriptedJudge, prompt_text
from judgekit.trainers import GroupCollector, hosted_runner

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.run.test_group_conditions import off, random_tree  # noqa: E402

TREES = 10_000
GROUPS = 120
SIZES = (8, 16, 32)
AT_ONCE = 16
"""Trees tried at once: each waits for its ledger's disk."""


async def trees() -> dict[str, Any]:
    """Compare the rewards of random trees with what an independent evaluation says, and with their replay."""
    wrong = differs = tried = 0
    seeds = iter(range(10 * TREES))

    async def one_by_one(folder: Path) -> None:
        nonlocal wrong, differs, tried
        while tried < TREES:
            rng = random.Random(next(seeds))
            own = folder / f"{rng.random()}"
            own.mkdir()
            found = await off(random_tree(rng), rng, own)
            wrong, differs, tried = wrong + found[0], differs + found[1], tried + found[2]

    with tempfile.TemporaryDirectory() as folder:
        await asyncio.gather(*(one_by_one(Path(folder)) for _ in range(AT_ONCE)))
    return {"trees": tried, "wrong_rewards": wrong, "replays_differ": differs}


async def played(size: int, **judge: Any) -> tuple[float, int, list[Tournament]]:
    """Return how close scores come to the truth, the most calls of a group, and the tournaments, one group after another."""
    place, close, calls, all_of_them = UNKNOWN, [], 0, []
    for seed in range(GROUPS):
        referee = Referee(random.Random(seed), size, **judge)
        match = Tournament(size, usual_rounds(size), 0, place, referee.ask)
        await match.play()
        place = place.learnt(place, match.place)
        scores = [grade.score if isinstance(grade, Graded) else None for grade in match.grades(range(size))]
        known = [(score, q) for score, q in zip(scores, referee.quality, strict=True) if score is not None]
        close.append(closeness(*zip(*known, strict=True)) if len(known) > 1 else 0.0)
        calls = max(calls, referee.calls)
        all_of_them.append(match)
    return fmean(close), calls, all_of_them


async def comparisons() -> dict[str, Any]:
    found: dict[str, Any] = {}
    losses = []
    for size in SIZES:
        fair, found[f"calls_{size}"], _ = await played(size)
        biased, *_ = await played(size, place=0.7)
        found[f"fidelity_{size}"], found[f"fidelity_{size}_first_place"] = fair, biased
        losses.append(fair - biased)
    found["first_place_loss"] = max(losses)
    scoreless = 0
    for size, odd in product((2, 3, 8, 16), ({"circular": True}, {"labels": True}, {})):
        *_, matches = await played(size, fails=0.1, **odd)
        for match in matches:
            there = {player for game in match.games for player in game[:2]}
            grades = match.grades(range(size))
            scoreless += sum(not isinstance(grades[player], Graded) for player in there)
    return found | {"scoreless_members_that_played": scoreless}


def same_games() -> dict[str, Any]:
    """Compare win rates and strengths of the very same comparisons, in 18 settings."""
    judges: list[dict[str, Any]] = [{}, {"place": 0.7}, {"sharp": 0.7, "place": 0.7, "noise": 1.0}]
    worse, gains = 0, {}
    for size, judge, labels in product(SIZES, judges, (False, True)):
        both = []
        for seed in range(GROUPS):
            referee = Referee(random.Random(seed), size, labels=labels, **judge)
            both.append(
                (
                    closeness(win_rates(referee, 8), referee.quality),
                    closeness(chances(strengths_of_same(referee, 8)), referee.quality),
                )
            )
        rates, strong = (fmean(values) for values in zip(*both, strict=True))
        worse += strong < rates - 0.003
        if not judge and not labels:
            gains |= {f"win_rate_{size}": rates, f"strength_{size}": strong}
    return {"settings_worse": worse, **gains}


# ---- a toy training

TEXTS = 6


def quality(text: str) -> int:
    """A text is p<prompt>-t<number>: of six, the last three are right, and a higher number is better."""
    return int(text.rpartition("t")[2])


@grader
def correct(response: str) -> float:
    return float(quality(response) >= TEXTS // 2)


def prefers(request: JudgeRequest) -> Any:
    asked.append(request)
    a, b = map(quality, re.findall(r"RESPONSE [AB]:\n```\n(.*?)\n```", prompt_text(request)))
    share = 1 / (1 + math.exp(b - a))
    return {"A": share, "C": 0.0, "B": 1 - share}


asked: list[JudgeRequest] = []


def paid(result: RewardResult) -> float:
    assert result.reward is not None, result.policies
    return result.reward


async def training(*, steps: int = 60, prompts: int = 8, size: int = 8) -> dict[str, Any]:
    """Train a policy by GRPO on the gate; at each step, look at what dropping groups does to the others."""
    graders = {"correct": correct, "best": Pairwise(ScriptedJudge(prefers))}
    reward = Gate(flat("correct"), {"correct": 1.0, "best": 0.2}, "correct")
    gated = GradingRunner(graders, reward)
    plain = GradingRunner({"correct": correct})
    dropping = GradingRunner({"correct": correct}, drop_if="spread(reward) < 0.02")
    rng = random.Random(0)
    logits = [[0.0] * TEXTS for _ in range(prompts)]
    counts: Counter[str] = Counter()
    moved = 0
    for _ in range(steps):
        weights = [[math.exp(x) for x in row] for row in logits]
        drawn = [rng.choices(range(TEXTS), row, k=size) for row in weights]
        groups = [
            [Rollout(response=f"p{p}-t{text}", prompt=f"p{p}", group=p) for text in texts]
            for p, texts in enumerate(drawn)
        ]
        for p, rollouts in enumerate(groups):
            asked.clear()
            (results,) = await gated.run_groups([rollouts])
            rewards = [paid(result) for result in results]
            right = {result.score("correct") for result in results}
            counts["calls_elsewhere"] += len(asked) if len(right) > 1 else 0
            advantages = zscore(rewards)
            if len(set(drawn[p])) > 1:
                counts["groups"] += 1
                counts["dead"] += not any(advantages)
                counts["dead_without"] += len(right) == 1
            total = sum(weights[p])
            for text, advantage in zip(drawn[p], advantages, strict=True):
                for other in range(TEXTS):
                    logits[p][other] += 0.1 * advantage * ((other == text) - weights[p][other] / total)
        kept, less = await plain.run_groups(groups), await dropping.run_groups(groups)
        for before, after in zip(kept, less, strict=True):
            if any(result.status == "dropped" for result in after):
                counts["dropped"] += 1
            else:
                there = [[paid(result) for result in results] for results in (before, after)]
                moved += sum(x != y for x, y in zip(*map(zscore, there), strict=True))
    best = fmean(row.index(max(row)) == TEXTS - 1 for row in logits)
    return {
        "judge_calls_for_groups_that_are_not_flat": counts["calls_elsewhere"],
        "dead_groups": counts["dead"] / counts["groups"],
        "dead_groups_without_the_gate": counts["dead_without"] / counts["groups"],
        "prompts_whose_best_text_is_learnt": best,
        "groups_dropped": counts["dropped"],
        "advantages_moved": moved,
    }


async def fading() -> dict[str, Any]:
    """Compare a fading weight with numpy, and look for two weights inside a group."""

    @grader
    def one(response: str) -> float:
        return 1.0

    reward = Weighted({"one": 1.0, "fades": ([[10, 0.5], [60, 0.8], [170, 0.0]], "two")})
    runner = GradingRunner({"one": one, "two": one}, reward)
    rollouts = [Rollout(response="r", prompt="p")] * 2
    error = 0.0
    for step in range(200):
        (result, _) = await runner.run(rollouts, step=step)
        error = max(
            error, abs(result.contributions["fades"] - np.interp(step, [10, 60, 170], [0.5, 0.8, 0.0]))
        )
    hosted = hosted_runner(runner=runner, grouped=True, can_mask=True, can_exclude=True, grouping_hint="")
    collector = GroupCollector(hosted.runner)
    mixed = 0
    for step in range(60):
        members = [
            collector.arrive(
                step, Rollout(response="r", group=step), size=4, tags={"global_step": step + i // 2}
            )
            for i in range(4)
        ]
        mixed += len({result.contributions["fades"] for result in await asyncio.gather(*members)}) - 1
    return {"weight_error": float(error), "weights_mixed_in_a_group": mixed}


async def cpu() -> dict[str, Any]:
    """Measure what a group of 16 costs this process, all rounds together, without the judge."""
    found = []
    for seed in range(50):
        referee = Referee(random.Random(seed), 16, place=0.3)
        match = Tournament(16, usual_rounds(16), 0, UNKNOWN, referee.ask)
        start = time.process_time()
        await match.play()
        match.grades(range(16))
        found.append(1000 * (time.process_time() - start))
    return {"rounds_cpu_ms": median(found)}


def main() -> None:
    print(machine(), flush=True)
    logging.getLogger("judgekit").setLevel(logging.ERROR)
    for part in (cpu, comparisons, training, fading, trees):
        found = asyncio.run(part()) | (same_games() if part is comparisons else {})
        FIGURES.update(found)
        print(found, flush=True)
    finish(
        FIGURES,
        {
            "trees": (">=", TREES),
            "wrong_rewards": ("==", 0),
            "replays_differ": ("==", 0),
            "fidelity_8": (">=", 0.97),
            "fidelity_16": (">=", 0.975),
            "fidelity_32": (">=", 0.975),
            "calls_8": ("<=", 28),
            "calls_16": ("<=", 64),
            "calls_32": ("<=", 160),
            "settings_worse": ("==", 0),
            "first_place_loss": ("<=", 0.01),
            "scoreless_members_that_played": ("==", 0),
            "judge_calls_for_groups_that_are_not_flat": ("==", 0),
            "dead_groups": ("<=", 0.02),
            "groups_dropped": (">=", 1),
            "advantages_moved": ("==", 0),
            "weight_error": ("<=", 1e-12),
            "weights_mixed_in_a_group": ("==", 0),
            "rounds_cpu_ms": ("<=", 10),
        },
    )


if __name__ == "__main__":
    reported(main)
