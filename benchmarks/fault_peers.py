"""OpenJudge and TRL under those faults that their interfaces can express, as their users would meet them.

    python fault_peers.py openjudge|trl|trl_one_function

Prints one line per fault and a JSON object at the end. What stands around them, and why:
- OpenJudge has no timeout of its own, so its batch stands in a wait_for; a batch that is cut off is lost.
- TRL has none either, but its reward functions are the user's: the judge's has a wait_for around each call,
  catches `Exception`, and returns None, TRL's contract for a missing reward. "trl" weighs a rule and a judge
  as two reward functions, "trl_one_function" weighs them in one that returns None where the judge failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import math
import sys
import threading
import warnings
from types import SimpleNamespace
from typing import Any
from unittest import mock

from fault_graders import BENIGN, Cell, judge, rollouts, rule_score, strikes
from fault_table import TABLE

LIMIT_S = 0.5
"""Of one call of TRL's judge function; OpenJudge's whole batch has six times that."""
OURS = ("beyond_the_deadline", "rollout_error", "wrong_usage")
"""These need judgekit's deadline, error and usage, as those below need its Graded."""
FAULTS = [
    fault
    for fault, row in TABLE.items()
    if "async" in row.places and fault not in OURS and "graded" not in fault
]
"""A pointwise judge on the event loop can have them."""


def grade(fault: str) -> Any:
    """The judge's coroutine function, from a rollout to what it returns."""
    return judge(fault, "async").grade


class OpenJudge:
    """Its runner with a rule and the judge, and its weighted sum of both."""

    def __init__(self) -> None:
        from loguru import logger as loud

        loud.remove()

    def rewards(self, fault: str) -> list[float | None]:
        from openjudge.graders.base_grader import BaseGrader
        from openjudge.graders.schema import GraderScore
        from openjudge.runner.aggregator.weighted_sum_aggregator import WeightedSumAggregator
        from openjudge.runner.grading_runner import GradingRunner

        class Judge(BaseGrader):  # type: ignore[misc]
            async def _aevaluate(self, rollout: Any, **_: Any) -> GraderScore:
                return GraderScore(name="judge", score=await grade(fault)(rollout), reason="")

        class Rule(BaseGrader):  # type: ignore[misc]
            async def _aevaluate(self, rollout: Any, **_: Any) -> GraderScore:
                return GraderScore(name="rule", score=rule_score(rollout), reason="")

        total = WeightedSumAggregator(name="reward", weights={"rule": 0.5, "judge": 0.5})
        graders = {"rule": Rule(name="rule"), "judge": Judge(name="judge")}
        runner = GradingRunner(graders, 8, [total], show_progress=False)

        async def run() -> Any:
            batch = [{"rollout": r} for r in rollouts()]
            return await asyncio.wait_for(runner.arun(batch), 6 * LIMIT_S)

        return [getattr(r, "score", None) for r in asyncio.run(run())["reward"]]


class Trl:
    """GRPOTrainer._calculate_rewards with async reward functions, then the sum that its trainer takes."""

    def __init__(self, one_function: bool) -> None:
        from accelerate import PartialState

        importlib.import_module("trl.trainer.grpo_trainer")
        PartialState(cpu=True)  # its loggers need it
        self.one_function = one_function
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def rewards(self, fault: str) -> list[float | None]:
        import torch
        from trl import GRPOTrainer

        batch = rollouts()

        async def one(rollout: Any) -> Any:
            try:
                return await asyncio.wait_for(grade(fault)(rollout), LIMIT_S)
            except Exception:
                return None

        async def judge_reward(prompts: Any, completions: Any, **_: Any) -> list[Any]:
            return list(await asyncio.gather(*(one(r) for r in batch)))

        def rule_reward(prompts: Any, completions: Any, **_: Any) -> list[float]:
            return [rule_score(r) for r in batch]

        async def both(prompts: Any, completions: Any, **_: Any) -> list[Any]:
            scores = await judge_reward(prompts, completions)
            return [
                None if score is None else 0.5 * rule_score(r) + 0.5 * score
                for r, score in zip(batch, scores, strict=True)
            ]

        functions: list[Any] = [both] if self.one_function else [rule_reward, judge_reward]
        weights = [1.0] if self.one_function else [0.5, 0.5]
        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(device="cpu", is_main_process=False),
            reward_funcs=functions,
            reward_func_names=[f.__name__ for f in functions],
            reward_processing_classes=[None] * len(functions),
            environments=None,
            state=SimpleNamespace(global_step=0),
            args=SimpleNamespace(report_to=[]),
            async_loop=self.loop,
            _log_completion_extra=None,
            _log_metric=None,
        )
        module = "trl.trainer.grpo_trainer"
        with (
            mock.patch(f"{module}.profiling_context", return_value=contextlib.nullcontext()),
            mock.patch(f"{module}.gather", lambda x: x),
            mock.patch(f"{module}.asyncio.run_coroutine_threadsafe", self._bounded),
        ):
            inputs = [{"prompt": r.prompt} for r in batch]
            texts = [r.response for r in batch]
            per_function = GRPOTrainer._calculate_rewards(
                trainer, inputs, [r.prompt for r in batch], texts, [[0]] * len(batch)
            )
        total = (per_function * torch.tensor(weights)).nansum(dim=1)
        total[torch.isnan(per_function).all(dim=1)] = torch.nan  # as the trainer does
        return [None if math.isnan(x) else float(x) for x in total]

    def _bounded(self, coroutine: Any, loop: Any) -> Any:
        """The step's wait for its functions, which TRL does not bound, ends here too."""
        future = _threadsafe(asyncio.wait_for(coroutine, 6 * LIMIT_S), loop)
        return SimpleNamespace(result=lambda: future.result(12 * LIMIT_S))


_threadsafe = asyncio.run_coroutine_threadsafe


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    name = sys.argv[1]
    counts = {"cells": 0, "silent_numbers": 0, "lost": 0}
    for fault in FAULTS:
        counts["cells"] += 1
        # one for each fault, which may end its loop
        peer: Any = OpenJudge() if name == "openjudge" else Trl(name == "trl_one_function")
        Cell.release = threading.Event()
        end = threading.Timer(10 * LIMIT_S, Cell.release.set)
        end.start()
        rewards: list[float | None] = []
        why = "it waits for a judge that only this benchmark ends"
        try:
            rewards = peer.rewards(fault)
        except BaseException as error:
            why = type(error).__name__
        end.cancel()
        if not rewards or Cell.release.is_set():
            counts["lost"] += 16
            print(f"  {name:16} {fault:24} all 16 are lost ({why})", flush=True)
            continue
        struck = [
            r is not None for b, r in zip(rollouts(), rewards, strict=True) if b.id in strikes(fault, "async")
        ]
        counts["silent_numbers"] += sum(struck)
        if fault not in BENIGN:
            print(
                f"  {name:16} {fault:24} {sum(struck)} of {len(struck)} are paid without a grade of their judge",
                flush=True,
            )
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
