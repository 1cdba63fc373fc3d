"""Every fault of a judge × every way to call the runner × every policy: is one wrong number paid?

    make bench-faults

A cell is bad when a grade that failed has a score, when the valid siblings' rewards are not those of a run
without the fault (or of the documented neutral fill), when a rollout is lost, or when a task, a thread or a
child process is left. The same faults against OpenJudge's runner and TRL's reward handling stand beside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from common import finish, machine
from fault_graders import (
    BENIGN,
    FAULTS,
    TIMEOUT_S,
    FaultyGroupJudge,
    FaultyJudge,
    rollouts,
    strike,
    strikes,
    true_score,
)

from judgekit import Graded, GradingRunner, MissingRewardError, RewardResult, Score, Weighted, grader
from judgekit.execution.background import background_loop, close_background_loop

POLICIES: dict[str, tuple[Any, Any]] = {
    "mask": ("propagate", "mask"),
    "neutral": ("propagate", "neutral"),
    "raise": ("propagate", "raise"),
    "written": ("propagate", -1.0),
    "renormalise": ("renormalise", "raise"),
    "leaf number": (0.125, "raise"),
}
"""Name → (what the missing grade does in the tree, what the missing reward becomes)."""
WEIGHTS = {"rule": 0.5, "judge": 0.5}


@grader
def rule(rollout: Any) -> float:
    return (len(rollout.response) % 5) / 5


def build(fault: str | None, policy: str) -> GradingRunner:
    leaf, missing_reward = POLICIES[policy]
    judge: Any = FaultyGroupJudge(fault) if fault == "wrong_number_of_group_grades" else FaultyJudge(fault)
    tree = Weighted({"rule": WEIGHTS["rule"], "judge": (WEIGHTS["judge"], Score("judge", if_missing=leaf))})
    return GradingRunner(
        {"rule": rule, "judge": judge},
        tree,
        timeout_s=TIMEOUT_S,
        missing_reward=missing_reward,
        max_concurrency=8,
    )


# ---- ways to call it; each returns a list of batches


def by_run(runner: GradingRunner) -> list[list[RewardResult]]:
    return [asyncio.run(_clean(runner.run(rollouts())))]


def by_stream(runner: GradingRunner) -> list[list[RewardResult]]:
    async def collect() -> list[RewardResult]:
        return sorted([r async for r in runner.stream(rollouts())], key=lambda r: r.index)

    return [asyncio.run(_clean(collect()))]


def by_run_sync(runner: GradingRunner) -> list[list[RewardResult]]:
    return [runner.run_sync(rollouts())]


def by_second_loop(runner: GradingRunner) -> list[list[RewardResult]]:
    first = asyncio.run(_clean(runner.run(rollouts())))
    return [first, asyncio.run(_clean(runner.run(rollouts())))]


def by_two_threads(runner: GradingRunner) -> list[list[RewardResult]]:
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(asyncio.run(_clean(runner.run(rollouts()))))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found


class Actor:
    """A Ray actor that keeps its runners, as a reward worker does."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)

    async def grade(self, fault: str, policy: str) -> tuple[Any, int]:
        before = len(asyncio.all_tasks())
        try:
            results: Any = await build(fault, policy).run(rollouts())
        except MissingRewardError as error:
            results = error
        await _patience()
        return results, len(asyncio.all_tasks()) - before


leaked = 0


async def _clean(coroutine: Any) -> Any:
    """Await it, then count the tasks that it left."""
    global leaked
    try:
        return await coroutine
    finally:
        await _patience()
        leaked += len(asyncio.all_tasks()) - 1


async def _patience() -> None:
    """A task that ignores its cancellation is left behind by design; its own two seconds must end it."""
    deadline = time.monotonic() + 3
    while len(asyncio.all_tasks()) > 1 and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


# ---- what must hold


def expected(fault: str, policy: str) -> list[tuple[float | None, str]]:
    """Reward and status of each rollout, from the documented semantics alone."""
    batch = rollouts()
    bad = [strikes(fault, r) for r in batch]
    rules = [(len(r.response) % 5) / 5 for r in batch]
    whole = [0.5 * a + 0.5 * true_score(r) for a, r in zip(rules, batch, strict=True)]
    out: list[tuple[float | None, str]] = []
    for i, rollout in enumerate(batch):
        if not bad[i]:
            out.append((whole[i], "scored"))
        elif policy == "mask":
            out.append((None, "masked"))
        elif policy == "written":
            out.append((-1.0, "constant"))
        elif policy == "renormalise":
            out.append((rules[i], "scored"))
        elif policy == "leaf number":
            out.append((0.5 * rules[i] + 0.5 * 0.125, "scored"))
        else:
            siblings = [whole[j] for j, r in enumerate(batch) if r.group == rollout.group and not bad[j]]
            everybody = [whole[j] for j in range(len(batch)) if not bad[j]]
            out.append((math.fsum(siblings or everybody) / len(siblings or everybody), "neutral"))
    return out


def check(fault: str, policy: str, batches: list[list[RewardResult]]) -> tuple[int, int]:
    """(silent numbers, lost rollouts) of one cell."""
    silent = lost = 0
    batch = rollouts()
    for results in batches:
        lost += len(batch) - len([r for i, r in enumerate(results) if r is not None and r.index == i])
        for rollout, result, (reward, status) in zip(batch, results, expected(fault, policy), strict=True):
            grade = result.grades["judge"]
            faulty = strikes(fault, rollout)
            wrong_grade = isinstance(grade, Graded) if faulty else grade != Graded(true_score(rollout))
            same = (result.reward is None) == (reward is None) and (
                reward is None or math.isclose(result.reward or 0.0, reward, abs_tol=1e-12)
            )
            silent += wrong_grade or not same or result.status != status
    return silent, lost


def children() -> set[int]:
    found: set[int] = set()
    for task in os.listdir(f"/proc/{os.getpid()}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{os.getpid()}/task/{task}/children") as file:
            found |= set(map(int, file.read().split()))
    return found


def our_cells() -> dict[str, int]:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    actor = ray.remote(Actor).remote()
    ray.get(actor.grade.remote("slow", "mask"))

    def by_ray(fault: str, policy: str) -> list[list[RewardResult]]:
        global leaked
        results, left = ray.get(actor.grade.remote(fault, policy))
        leaked += left
        if isinstance(results, MissingRewardError):
            raise results
        return [results]

    modes: dict[str, Callable[[GradingRunner], list[list[RewardResult]]]] = {
        "run": by_run,
        "stream": by_stream,
        "run_sync": by_run_sync,
        "second asyncio.run": by_second_loop,
        "two threads": by_two_threads,
    }
    background_loop()
    threads, processes = threading.active_count(), children()
    totals = {"cells": 0, "silent_numbers": 0, "lost": 0}
    for fault in FAULTS:
        row = []
        for mode in (*modes, "ray actor"):
            for policy in POLICIES:
                harmful = fault not in BENIGN
                try:
                    batches = (
                        by_ray(fault, policy) if mode == "ray actor" else modes[mode](build(fault, policy))
                    )
                except MissingRewardError:
                    silent, lost = int(not (policy == "raise" and harmful)), 0
                else:
                    silent, lost = check(fault, policy, batches)
                    silent += policy == "raise" and harmful
                totals["cells"] += 1
                totals["silent_numbers"] += silent
                totals["lost"] += lost
                row.append(silent + lost)
        print(f"  {fault:30} {len(row)} cells, {sum(map(bool, row))} bad", flush=True)
    close_background_loop()
    deadline = time.monotonic() + 3
    while threading.active_count() > threads - 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    totals["leaked_tasks"] = (
        leaked + max(0, threading.active_count() - (threads - 1)) + len(children() - processes)
    )
    ray.shutdown()
    return totals


# ---- peers


def openjudge() -> dict[str, int]:
    """OpenJudge's runner with a rule and the same judge, and its weighted sum of both."""
    from loguru import logger as loud
    from openjudge.graders.base_grader import BaseGrader
    from openjudge.graders.schema import GraderScore
    from openjudge.runner.aggregator.weighted_sum_aggregator import WeightedSumAggregator
    from openjudge.runner.grading_runner import GradingRunner as OpenJudgeRunner

    loud.remove()

    class Judge(BaseGrader):  # type: ignore[misc]
        def __init__(self, fault: str) -> None:
            super().__init__(name="judge")
            self.fault = fault

        async def _aevaluate(self, rollout: Any, **_: Any) -> GraderScore:
            score = await FaultyJudge(self.fault).grade(rollout)
            return GraderScore(name="judge", score=score, reason="")

    class Rule(BaseGrader):  # type: ignore[misc]
        async def _aevaluate(self, rollout: Any, **_: Any) -> GraderScore:
            return GraderScore(name="rule", score=(len(rollout.response) % 5) / 5, reason="")

    silent = lost = 0
    for fault in FAULTS:
        if fault == "wrong_number_of_group_grades":
            continue
        batch = rollouts()
        total = WeightedSumAggregator(name="reward", weights=WEIGHTS)
        runner = OpenJudgeRunner(
            {"rule": Rule(name="rule"), "judge": Judge(fault)}, 8, [total], show_progress=False
        )

        async def run(runner: Any = runner, batch: Any = batch) -> Any:
            return await asyncio.wait_for(runner.arun([{"rollout": r} for r in batch]), 3)

        try:
            rewards = asyncio.run(run())["reward"]
        except (Exception, asyncio.CancelledError) as error:
            lost += len(batch)
            print(f"  OpenJudge  {fault:28} the whole batch is lost ({type(error).__name__})", flush=True)
            continue
        numbers = sum(r.score is not None for b, r in zip(batch, rewards, strict=True) if strikes(fault, b))
        silent += numbers
        print(
            f"  OpenJudge  {fault:28} {numbers} rollouts are paid without a grade of their judge", flush=True
        )
    return {"silent_numbers": silent, "lost": lost}


def trl() -> dict[str, int]:
    """TRL's GRPOTrainer._calculate_rewards with a rule and the same judge, then its nansum over both."""
    import torch
    from trl import GRPOTrainer

    silent = lost = 0
    for fault in FAULTS:
        if fault == "wrong_number_of_group_grades":
            continue
        batch = rollouts()

        def rule_reward(prompts: Any, completions: Any, batch: Any = batch, **_: Any) -> list[float]:
            return [(len(r.response) % 5) / 5 for r in batch]

        async def one(fault: str, rollout: Any) -> Any:
            if strikes(fault, rollout):
                return await strike(fault)
            return true_score(rollout)

        def judge_reward(
            prompts: Any, completions: Any, fault: str = fault, batch: Any = batch, **_: Any
        ) -> list[Any]:
            async def all_of_them() -> list[Any]:
                return [await asyncio.wait_for(one(fault, r), 3) for r in batch]

            return asyncio.run(all_of_them())

        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(device="cpu", is_main_process=False),
            reward_funcs=[rule_reward, judge_reward],
            reward_func_names=["rule", "judge"],
            reward_processing_classes=[None, None],
            environments=None,
            state=SimpleNamespace(global_step=0),
            args=SimpleNamespace(report_to=[]),
            _log_completion_extra=None,
            _log_metric=None,
        )
        inputs = [{"prompt": r.prompt} for r in batch]
        try:
            with (
                mock.patch(
                    "trl.trainer.grpo_trainer.profiling_context", return_value=contextlib.nullcontext()
                ),
                mock.patch("trl.trainer.grpo_trainer.gather", lambda x: x),
            ):
                per_func = GRPOTrainer._calculate_rewards(
                    trainer,
                    inputs,
                    [r.prompt for r in batch],
                    [r.response for r in batch],
                    [[0]] * len(batch),
                )
            rewards = (per_func * torch.tensor([0.5, 0.5])).nansum(dim=1)
        except (Exception, asyncio.CancelledError) as error:
            lost += len(batch)
            print(
                f"  TRL        {fault:28} the step is lost ({type(error).__name__}: {error})"[:140],
                flush=True,
            )
            continue
        numbers = sum(not torch.isnan(x) for b, x in zip(batch, rewards, strict=True) if strikes(fault, b))
        silent += numbers
        print(
            f"  TRL        {fault:28} {numbers} rollouts are paid without a grade of their judge", flush=True
        )
    return {"silent_numbers": silent, "lost": lost}


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    print(machine())
    figures: dict[str, Any] = our_cells()
    figures["peers"] = {"openjudge": openjudge(), "trl": trl()}
    finish(figures)


if __name__ == "__main__":
    main()
