"""Are advantages exact when rewards are missing? TRL's own trainers, with judgekit's reward function.

    make bench-advantages

A cell is a step of a real training in which 0 to 7 of the 8 completions of every other prompt have no reward,
because their judge is down: the largest error of an advantage, relative to the largest one, against TRL's
formula over the valid members alone in single precision, and how many completions without a reward have an
advantage. `recorded_wrong` counts completions and figures of which the ledger or the shares of statuses say
another thing than what TRL did; `curve_error` is the largest error of judgekit's and TRL's curves against
numpy over what was graded.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.simplefilter("ignore")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parents[2] / "benchmarks")]

import numpy as np
import torch
from common import EXACT, finish, machine, reported
from transformers import TrainerCallback

from judgekit import GradingRunner, JudgeUnavailable, Ledger, Rollout, grader, read_ledger
from judgekit_trl import judgekit_reward, judgekit_terms
from toy_training import GROUP, trainer

ROWS = 64
WEIGHTS = {"a": 0.7, "b": 0.3}
WAYS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo, scale_rewards=none": {"scale_rewards": "none"},
    "grpo, scale_rewards=batch": {"scale_rewards": "batch"},
    "rloo": {"rloo": True},
    "gdpo by terms": {
        "multi_objective_aggregation": "normalize_then_sum",
        "reward_weights": list(WEIGHTS.values()),
    },
}
NOT_EXACT = [
    "trl: the losses divide by all completions, or their tokens: about judgekit/scored_rate of the learning rate",
    "trl: beta above 0 keeps the KL term of a completion without a reward",
]


class _Kept(TrainerCallback):
    trainer: Any = None
    advantages: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.advantages = torch.tensor(list(self.trainer._logs["advantages"]))


def cell(way: str, missing: int) -> tuple[float, int, int, float]:
    """Train a step; returns error, advantages of missing rewards, records that are wrong, error of curves."""
    terms, gone = _rewards(missing)

    def term(name: str, rollout: Rollout) -> float:
        row = int(rollout.id.rpartition("_")[2])
        if gone[row]:
            raise JudgeUnavailable("down")
        return float(terms[name][row])

    @grader
    async def a(rollout: Rollout) -> float:
        return term("a", rollout)

    @grader
    async def b(rollout: Rollout) -> float:
        return term("b", rollout)

    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        runner = GradingRunner([a, b], WEIGHTS, ledger=Ledger(path))
        by_terms = way == "gdpo by terms"
        kept = _Kept()
        made = trainer(
            Path(folder),
            judgekit_terms(runner) if by_terms else judgekit_reward(runner),
            callbacks=[kept],
            **WAYS[way],
        )
        kept.trainer = made
        with contextlib.redirect_stdout(io.StringIO()):
            made.train()
        entries = {int(entry.id.rpartition("_")[2]): entry for entry in read_ledger(path).entries}
    expected = _expected(way, terms, gone)
    error = float((kept.advantages - expected).abs()[~gone].max() / expected.abs().max())
    wrong = sum(
        (entry.status != ("excluded" if gone[row] else "scored")) + ((entry.reward is None) != gone[row])
        for row, entry in entries.items()
    )
    told = made.state.log_history[0]
    share = float(gone.mean())
    wrong += len(entries) != ROWS
    wrong += (
        abs(told["judgekit/excluded_rate"] - share) + abs(told["judgekit/scored_rate"] + share - 1) > 1e-9
    )
    values = {name: float(terms[name][~gone].double().mean()) for name in WEIGHTS}
    reward = sum(WEIGHTS[name] * value for name, value in values.items())
    curves = {"judgekit/reward_mean": reward, "reward": reward}
    curves |= {f"judgekit/{name}/mean": value for name, value in values.items()}
    curves |= {
        f"rewards/{name}/mean": value
        for name, value in (values if by_terms else {"judgekit": reward}).items()
    }
    return (
        error,
        int((kept.advantages[gone] != 0).sum()),
        int(wrong),
        max(abs(told[name] - value) for name, value in curves.items()),
    )


def _rewards(missing: int) -> tuple[dict[str, Any], Any]:
    """Make each completion's terms, and say which completions have no reward."""
    rng = random.Random(missing)
    terms = {name: torch.tensor([rng.random() for _ in range(ROWS)]) for name in WEIGHTS}
    gone = np.zeros(ROWS, bool)
    for group in range(1, ROWS // GROUP, 2):
        gone[[group * GROUP + member for member in rng.sample(range(GROUP), missing)]] = True
    return terms, gone


def _expected(way: str, terms: dict[str, Any], gone: Any) -> Any:
    """TRL's advantages over the members with a reward, as if the others were not there."""
    valid = torch.tensor(~gone)
    totals = sum(weight * terms[name] for name, weight in WEIGHTS.items())
    assert isinstance(totals, torch.Tensor)
    advantages = torch.zeros(ROWS)
    for start in range(0, ROWS, GROUP):
        rows = torch.arange(start, start + GROUP)[valid[start : start + GROUP]]
        if way == "gdpo by terms":
            for name, weight in WEIGHTS.items():
                advantages[rows] += weight * _scaled(terms[name][rows])
        elif way == "rloo":
            others = (totals[rows].sum() - totals[rows]) / max(len(rows) - 1, 1)
            advantages[rows] = totals[rows] - others if len(rows) > 1 else 0.0
        elif way == "grpo":
            advantages[rows] = _scaled(totals[rows])
        else:
            advantages[rows] = totals[rows] - totals[rows].mean()
    if way == "grpo, scale_rewards=batch":
        advantages = advantages / (totals[valid].std() + 1e-4)
    if way == "gdpo by terms":
        advantages[valid] = _scaled(advantages[valid])
    return torch.where(valid, advantages, 0.0)


def _scaled(values: Any) -> Any:
    return (values - values.mean()) / ((values.std() if len(values) > 1 else 0.0) + 1e-4)


def main() -> None:
    logging.disable(logging.WARNING)
    print(machine())
    cells, nonzero, worst, wrong, curves = 0, 0, 0.0, 0, 0.0
    for way in WAYS:
        found = [cell(way, missing) for missing in range(GROUP)]
        print(f"{way:28}", " ".join(f"{error:.0e}" for error, *_ in found), flush=True)
        cells += len(found)
        worst = max(worst, *(error for error, *_ in found))
        nonzero += sum(count for _, count, _, _ in found)
        wrong += sum(count for _, _, count, _ in found)
        curves = max(curves, *(curve for *_, curve in found))
    finish(
        {
            "cells": cells,
            "max_error": worst,
            "nonzero_for_missing": nonzero,
            "recorded_wrong": wrong,
            "curve_error": curves,
            "not_exact": NOT_EXACT,
        },
        {
            "cells": ("==", 8 * 5),
            **EXACT,
        },
    )


if __name__ == "__main__":
    reported(main)
