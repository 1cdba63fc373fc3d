"""Whether a judge's verdict depends on what it is judged beside.

    make bench-determinism

The embedded judge at temperature 0, from reward.yaml: the same rollouts, in groups of four, are judged by vLLM in this process
in their order and at once; in other orders; 17 at a time and 1 at a time; by one server, and by two replicas among which a
router of ours chooses. `verdicts_moved`: how many scores end on the other side of one half, or are missing; `compared`: of how
many; `largest_shift`: the largest difference of a probability.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench_fleet import process
from common import finish, machine, reported

from judgekit import Rollout
from judgekit.config import load_runner
from judgekit.judges.engines.vllm.judge import EMBEDDED, model_path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

SEED, PROBLEMS, MEMBERS = 20_260_002, 600, 4
ALONE = 200
"""Rollouts that are judged 1 at a time."""
PORT = 18_350
GOALS = {"compared": (">=", 2000.0), "verdicts_moved": ("==", 0.0)}


def rollouts() -> list[Rollout]:
    """Groups whose members answer one problem: with its own case's response, and with those of others."""
    from embedded_judge.hard import hard_sets

    cases = [case for each in zip(*hard_sets(SEED).values(), strict=True) for case in each][:PROBLEMS]
    return [
        Rollout(
            prompt=case.prompt,
            ground_truth=case.ground_truth,
            response=cases[(i + 7 * member) % len(cases)].response,
            group=i,
        )
        for i, case in enumerate(cases)
        for member in range(MEMBERS)
    ]


@contextlib.contextmanager
def served(folder: Path, replicas: int) -> Iterator[list[str]]:
    """Servers of the embedded judge; yields their addresses."""
    ports = range(PORT, PORT + replicas)
    command = [sys.executable, "-m", "judgekit", "serve", "--port", str(PORT), "--replicas", str(replicas)]
    with process(folder, "serve", command, ports):
        yield [f"http://127.0.0.1:{port}/v1" for port in ports]


async def judged(
    folder: Path, judge: dict[str, Any], given: Sequence[Rollout], order: Sequence[int], at_once: int
) -> dict[int, float | None]:
    """The scores of the rollouts of these numbers, judged in this order."""
    path = folder / "reward.yaml"
    config = {
        "graders": {"right": {"use": "judge", "judge": "local"}},
        "judges": {"local": judge},
        "runner": {"max_concurrency": at_once, "timeout_s": 600},
    }
    path.write_text(json.dumps(config))
    async with load_runner(path) as runner:
        results = await runner.run([given[i] for i in order])
    return {i: result.score("right") for i, result in zip(order, results, strict=True)}


async def main_(folder: Path) -> dict[str, Any]:
    given = rollouts()
    numbers = list(range(len(given)))
    rng = random.Random(0)
    local: dict[str, Any] = {"engine": "vllm"}
    first = await judged(folder, local, given, numbers, 512)
    figures: dict[str, Any] = {"rollouts": len(given), "missing": sum(s is None for s in first.values())}
    ways: dict[str, dict[int, float | None]] = {
        "another order": await judged(folder, local, given, rng.sample(numbers, len(numbers)), 512),
        "backwards, 17 at a time": await judged(folder, local, given, numbers[::-1], 17),
        "1 at a time": await judged(folder, local, given, rng.sample(numbers, ALONE), 1),
    }
    with served(folder, 2) as urls:
        http = {"engine": "openai", "model": "judge", "tokenizer": model_path(EMBEDDED), "timeout_s": 600}
        one, two = {**http, "url": urls[0]}, {**http, "url": urls}
        ways["one server"] = await judged(folder, one, given, numbers, 512)
        ways["two replicas, another order"] = await judged(
            folder, two, given, rng.sample(numbers, len(numbers)), 256
        )
    moved, compared, shift = 0, 0, 0.0
    for name, scores in ways.items():
        pairs = [(first[i], score) for i, score in scores.items()]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        own = len(pairs) - len(known) + sum((a >= 0.5) != (b >= 0.5) for a, b in known)
        largest = max(abs(a - b) for a, b in known)
        print(f"{name:30} {own} of {len(pairs)} moved, by at most {largest:.2g}", flush=True)
        moved, compared, shift = moved + own, compared + len(pairs), max(shift, largest)
    return {**figures, "compared": compared, "verdicts_moved": moved, "largest_shift": shift}


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        finish(asyncio.run(main_(Path(name))), GOALS)


if __name__ == "__main__":
    reported(main)
