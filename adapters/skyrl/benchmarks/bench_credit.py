"""Does each turn's reward lie on its own tokens in SkyRL, do missing members move nobody, and does a policy learn faster by it?

    make bench-credit

Places: 1,000 trajectories of SkyRL's own generator for each way in which it writes them (whole, step-wise, merged), in an
environment that pays some turns itself and that ends some conversations with an observation. Rewards are compared token by token
with those that follow from the texts. Missing: what multiplies the loss, by SkyRL's own functions. Training: SkyRL's
trainer on CPU, a tiny policy over bytes and four turns that are each paid for their own characters; once with a trajectory's
credit (GRPO), once with that of turns, with the same rewards and seeds. A run reaches 90 % at the first step at which the mean score
of the last five is 0.9 or more.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
import typing
import warnings
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}
if sys.version_info < (3, 12):
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]
warnings.simplefilter("ignore")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests"), str(HERE.parents[2] / "benchmarks")]

from loguru import logger

logger.remove()
import logging

logging.disable(logging.WARNING)

from common import finish, machine, reported
from skyrl.train.generators.utils import merge_stepwise_output
from skyrl_gym.envs.base_text_env import BaseTextEnv

from advantages import errors
from judgekit import GradingRunner, Rollout, Turns, Weighted, grader
from judgekit_skyrl import make_generator, register
from stand_ins import ScriptedPolicy, generator, input_of, make_tokenizer
from test_turns import REWARD, outcome, process, said_by_turn, talkative, trajectories
from toy_training import train

PROMPTS, EACH = 250, 4
SEEDS, STEPS, TURNS = 8, 45, 4


def placed(way: str, settings: dict[str, Any], tokenizer: Any) -> tuple[int, float, int, int]:
    """Trajectories with a reward; the largest error of a sum; tokens whose reward is wrong; conversations that end with an observation."""
    runner = GradingRunner({"process": process, "outcome": outcome}, REWARD)
    register(runner=runner, wraps="test_turns:Talk")
    policy = ScriptedPolicy(tokenizer, talkative(7), delay_s=lambda call: 0.0)
    made = generator(
        make_generator(), tokenizer, policy, workers=8, max_turns=9, max_input_length=4096, **settings
    )
    out = asyncio.run(made.generate(input_of(PROMPTS, EACH), disable_tqdm=True))
    if way == "merged":
        out = merge_stepwise_output({**out, "rollout_metrics": {}})
    wrong = found = observed = 0
    worst = 0.0
    for rows in trajectories(out):
        spots, texts = said_by_turn(out, rows, tokenizer)
        if not spots:  # left out: no turn has an opinion
            continue
        found += 1
        want = {row: [0.0] * len(out["rewards"][row]) for row in rows}
        for number, ((row, at), text) in enumerate(zip(spots, texts, strict=True)):
            want[row][at] += 0.5 * (process.function(text) or 0.0) + (0.25 if number % 2 else 0.0)
        row, at = spots[-1]
        want[row][at] += float(len(texts[-1]) % 3 == 0)
        observed += at < len(out["rewards"][row]) - 1
        for row in rows:
            wrong += sum(abs(a - b) > 1e-6 for a, b in zip(out["rewards"][row], want[row], strict=True))
        total = sum(sum(out["rewards"][row]) for row in rows) - sum(map(sum, want.values()))
        worst = max(worst, abs(total))
    return found, worst, wrong, observed


def missing_error() -> float:
    """The largest error of a sibling where 300 of 1,000 are missing, relative to the largest advantage."""
    rng = random.Random(3)
    lost = [0] * 125
    while sum(lost) < 300:
        at = rng.randrange(125)
        lost[at] = min(lost[at] + 1, 6)
    return max(errors("judgekit_turn_grpo", lost, 3, step_wise=step_wise)[0] for step_wise in (False, True))


class Letters(BaseTextEnv):  # type: ignore[misc]
    """Four turns; before each the environment says its number."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.max_turns = TURNS

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        done = self.turns >= TURNS
        said = [] if done else [{"role": "user", "content": f"{self.turns}" * 4}]
        return {"observations": said, "reward": 0.0, "done": done, "metadata": {}}


@grader
def letters(rollout: Rollout) -> Any:
    """The share of the characters that count, a quarter of ASCII, in each turn."""
    from judgekit import Graded

    said = [str(m["content"]) for m in rollout.messages if m["role"] == "assistant"]
    turns = tuple(sum(c.isascii() and ord(c) % 4 == 0 for c in text) / max(1, len(text)) for text in said)
    return Graded(sum(turns) / len(turns), turns=turns)


def reaches(seed: int, *, by_turn: bool) -> int:
    """The step at which a training reaches 90 %; one more than there are if it never does."""
    reward = Weighted({"letters": (1.0, Turns("letters", how="mean"))}) if by_turn else "letters"
    with tempfile.TemporaryDirectory() as folder:
        rows = train(
            Path(folder),
            steps=STEPS,
            seed=seed,
            fully_async=False,
            estimator="judgekit_turn_grpo" if by_turn else "grpo",
            turns=TURNS,
            tokens=1,
            prompts=8,
            per_prompt=8,
            runner=GradingRunner({"letters": letters}, reward),
            wraps="bench_credit:Letters",
        )
    got = rows.series("environment/judgekit/letters_mean")
    print(f"seed {seed} {'turns' if by_turn else 'whole'}: {[round(x, 2) for x in got[::10]]}", flush=True)
    at = (i + 1 for i in range(4, len(got)) if sum(got[i - 4 : i + 1]) / 5 >= 0.9)
    return next(at, STEPS + 1)


def main() -> None:
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_tokenizer(Path(folder))
        ways = {
            "skyrl plain": placed("plain", {}, tokenizer),
            "skyrl step-wise": placed("step_wise", {"step_wise_trajectories": True}, tokenizer),
            "skyrl merged": placed("merged", {"step_wise_trajectories": True}, tokenizer),
        }
    print(ways, flush=True)
    figures: dict[str, Any] = {
        "trajectories": {way: PROMPTS * EACH for way in ways},
        "with_a_reward": {way: found[0] for way, found in ways.items()},
        "token_sum_error": max(found[1] for found in ways.values()),
        "wrong_tokens": sum(found[2] for found in ways.values()),
        "ended_with_observation": {way: found[3] for way, found in ways.items()},
        "missing_error": missing_error(),
    }
    print(figures, flush=True)
    seeds = []
    for seed in range(SEEDS):
        start = time.monotonic()
        seeds.append([reaches(seed, by_turn=True), reaches(seed, by_turn=False)])
        print(f"seed {seed}: {seeds[-1]} ({time.monotonic() - start:.0f} s)", flush=True)
    figures["seeds"] = seeds
    figures["turns_reach_90_first"] = sum(turns < whole for turns, whole in seeds)
    finish(figures)


if __name__ == "__main__":
    reported(main)
