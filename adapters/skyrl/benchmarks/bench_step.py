"""What judging costs a training step, through SkyRL's real generator.

    make bench-step

A step at a scale of 1:5 of the reference run (SkyRL PR 1208, rules, synchronous, 16 prompts × 4): generation
10.7 s, training 4.7 s, weight sync 1.2 s, the rest of its 21.9 s, all of which a GPU would do and nothing here does. The
judge is the embedded one, from a reward.yaml that leaves all settings out, on a vLLM server that shares this machine's
processors with the generator. Three ways of asking it: after generation, in the environment's step, and in the generator while
the rest is generated. (At 1:20 this judge's own work would take longer than the generation, and nothing could hide it.) Each
round measures all in turn, with responses that no other has; medians over the rounds of each way's
step over that of a step without a judge.

Then 4,096 rollouts with a judge of 0.2 s and 256 slots, against generation alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import typing
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
if sys.version_info < (3, 12):
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[3] / "benchmarks")]

from common import WORDS, finish, machine, reported
from demo_training import embedded_judge
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from judgekit import GradingRunner, Rollout
from judgekit.config import load_runner
from judgekit.graders import JudgeGrader
from judgekit.judges import LayerOptions, stacked
from judgekit.testing import ScriptedJudge
from judgekit_skyrl import make_generator, register
from stand_ins import ScriptedPolicy, generator, input_of, make_tokenizer

SCALE = 5
GENERATE, TRAIN, SYNC, STEP = (s / SCALE for s in (10.7, 4.7, 1.2, 21.9))
PROMPTS, PER_PROMPT = 16, 4
RULE = "graders: {correct: final_answer}\nreward: correct\n"
JUDGED = """graders: {{correct: final_answer, judge: {{use: judge, judge: local}}}}
judges: {{local: {{engine: openai, url: "{url}"}}}}
"""


ALONE = "runner: {missing_reward: 0}\n"
"""What SkyRL's own generator needs, which cannot leave a rollout out."""


def solution(seed: object) -> str:
    """Some 150 words that no other seed has made."""
    rng = random.Random(str(seed))
    return " ".join(rng.choices(WORDS, k=150)) + "\n#### 1"


def runner(text: str) -> GradingRunner:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return load_runner(file.name)


def policy(tokenizer: Any, seed: int, longest: float) -> ScriptedPolicy:
    """Lengths as they are sampled: some short, some as long as generation lasts."""
    rng = random.Random(seed)
    shares = [min(1.0, rng.betavariate(2, 2)) for _ in range(PROMPTS * PER_PROMPT)]
    shares[rng.randrange(len(shares))] = 1.0
    return ScriptedPolicy(
        tokenizer,
        lambda prompt, call: solution(f"{seed} {prompt} {call} {time.time_ns()}"),
        delay_s=lambda call: longest * shares[call - 1],
    )


async def step(grade_and_generate: Callable[[], Awaitable[None]]) -> float:
    """Seconds of one step: generation (with or without judging), and the rest as it is."""
    start = time.perf_counter()
    await grade_and_generate()
    await asyncio.sleep(STEP - GENERATE)  # train, sync and what else a step has
    return time.perf_counter() - start


async def overheads(tokenizer: Any, url: str, rounds: int) -> dict[str, float]:
    rules, judged = runner(RULE + ALONE), runner(JUDGED.format(url=url) + ALONE)
    grouped = runner(JUDGED.format(url=url))
    ratios: dict[str, list[float]] = {"after": [], "env": [], "mixin": []}
    for number in range(-1, rounds):

        async def plain(number: int = number) -> None:
            register(runner=rules, grouped=False)
            made = generator(SkyRLGymGenerator, tokenizer, policy(tokenizer, number, GENERATE), workers=64)
            await made.generate(input_of(PROMPTS, PER_PROMPT), disable_tqdm=True)

        async def after(number: int = number) -> None:
            await plain(number)
            rollouts = [
                Rollout(
                    prompt=f"q{i // 4}",
                    group=i // 4,
                    ground_truth="1",
                    response=solution(f"after {number} {i}"),
                )
                for i in range(PROMPTS * PER_PROMPT)
            ]
            await judged.run(rollouts)

        async def in_env(number: int = number) -> None:
            register(runner=judged, grouped=False)
            made = generator(SkyRLGymGenerator, tokenizer, policy(tokenizer, number, GENERATE), workers=64)
            await made.generate(input_of(PROMPTS, PER_PROMPT), disable_tqdm=True)

        async def mixin(number: int = number) -> None:
            register(runner=grouped)
            made = generator(make_generator(), tokenizer, policy(tokenizer, number, GENERATE), workers=64)
            await made.generate(input_of(PROMPTS, PER_PROMPT), disable_tqdm=True)

        base = await step(plain)
        for name, way in (("after", after), ("env", in_env), ("mixin", mixin)):
            seconds = await step(way)
            if number >= 0:  # the first round warms up
                ratios[name].append(seconds / base - 1)
    for name, values in ratios.items():
        print(
            f"  {name:6} {statistics.median(values):6.1%} ({min(values):.1%} … {max(values):.1%})", flush=True
        )
    return {f"overhead_{name}": statistics.median(values) for name, values in ratios.items()}


async def many(tokenizer: Any) -> dict[str, float]:
    """4,096 rollouts, a judge of 0.2 s behind 256 slots."""
    rng = random.Random(0)
    delays = [rng.uniform(0.1, 1.0) for _ in range(4096)]

    def made_policy() -> ScriptedPolicy:
        return ScriptedPolicy(
            tokenizer, lambda prompt, call: f"#### {call}", delay_s=lambda call: delays[call - 1]
        )

    register(runner=runner(RULE + ALONE), grouped=False)
    start = time.perf_counter()
    made = generator(SkyRLGymGenerator, tokenizer, made_policy())
    await made.generate(input_of(512, 8), disable_tqdm=True)
    alone = time.perf_counter() - start
    slow = stacked(ScriptedJudge("1", latency_s=0.2), LayerOptions(max_concurrency=256))
    register(runner=GradingRunner({"judge": JudgeGrader(slow)}))
    before = threading.active_count()
    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, threading.active_count())
            await asyncio.sleep(0.02)

    watcher = asyncio.create_task(watch())
    start = time.perf_counter()
    made = generator(make_generator(), tokenizer, made_policy(), workers=0)
    await made.generate(input_of(512, 8), disable_tqdm=True)
    wall = time.perf_counter() - start
    watcher.cancel()
    bound = alone + 4096 * 0.2 / 256
    print(f"  4,096 rollouts: {wall:.2f} s, generation alone {alone:.2f} s, threads {peak} (before {before})")
    return {"wall_over_bound": wall / bound, "threads": peak}


def main() -> None:
    print(machine())
    tokenizer = make_tokenizer(Path(tempfile.mkdtemp()))
    with embedded_judge() as url:
        figures = asyncio.run(overheads(tokenizer, url, 7))
    figures |= asyncio.run(many(tokenizer))
    finish(figures, {"overhead_mixin": ("<=", 0.05), "wall_over_bound": ("<=", 1.3)})


if __name__ == "__main__":
    reported(main)
