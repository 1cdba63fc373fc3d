"""Are advantages exact when rewards are missing? SkyRL's own functions, with judgekit's treatment.

    make bench-advantages

Batches of random rewards in which 0 to 7 of each prompt's 8 are missing go through the trainer's conversion, KL
penalty, advantages and normalisation, and are compared with a batch that never had those rollouts. A cell is
(estimator, trainer, number missing); its error is relative to the largest advantage.

Each cell's batch is also graded by judgekit, whose judge is down for what is missing: `recorded_wrong` counts
rollouts and figures of which ledger, shares of statuses or `judgekit/live_share` say another thing than what
the trainer did, `curve_error` is the largest error of judgekit's and of SkyRL's curves of rewards against
numpy over what was graded.
"""

from __future__ import annotations

import os
import sys
import typing
import warnings
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}
if sys.version_info < (3, 12):
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]
warnings.simplefilter("ignore")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parents[2] / "benchmarks")]

from loguru import logger

logger.remove()
import logging

logging.disable(logging.WARNING)

from common import EXACT, finish, machine, reported
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

# skyrl_train was written for a Ray whose module had this name too
sys.modules["ray.util.placement_group"].PlacementGroupSchedulingStrategy = PlacementGroupSchedulingStrategy  # type: ignore[attr-defined]

from advantages import GROUP, errors, recorded
from under_test import TRAIN, VERSION

NO_STD = {"trainer.algorithm.grpo_norm_by_std": False}
ESTIMATORS = {
    "grpo": ("grpo", {}),
    "grpo without std": ("grpo", NO_STD),
    "rloo": ("rloo", {}),
    "maxrl": ("maxrl", {}),
    "reinforce++": ("reinforce++", {}),
    "gae": ("gae", {}),
}
WAYS = {
    "sync": {},
    "step-wise": {"step_wise": True},
    "fully async": {"fully_async": True},
    "fully async, step-wise": {"fully_async": True, "step_wise": True},
}
OUTCOME_ONLY = {"reinforce++", "gae"}
"""SkyRL refuses them for step-wise trajectories: there is no advantage to be exact."""
SETTINGS = {
    "KL in the reward": {"trainer.algorithm.use_kl_in_reward": True},
    "advantage_batch_normalize": {"trainer.algorithm.advantage_batch_normalize": True},
    "sequence_mean": {"trainer.algorithm.loss_reduction": "sequence_mean"},
    "seq_mean_token_sum_norm": {"trainer.algorithm.loss_reduction": "seq_mean_token_sum_norm"},
    "prompt_mean": {"trainer.algorithm.loss_reduction": "prompt_mean"},
}
if TRAIN:  # it has no maxrl, its own conversion fails on steps, and its workers divide the loss
    del ESTIMATORS["maxrl"], WAYS["fully async, step-wise"]
    SETTINGS = {
        title: how for title, how in SETTINGS.items() if "trainer.algorithm.loss_reduction" not in how
    }
CELLS = 8 * (13 + 2 if TRAIN else 20 + 5)
NOT_EXACT = [
    "skyrl: loss_reduction=token_mean_legacy divides by the tokens of micro-batches, which hold the rows as they lie: "
    "a missing row takes up a place there",
    "skyrl: the terms use_kl_loss and use_entropy_loss are means over micro-batches, likewise",
]
if TRAIN:
    NOT_EXACT = [
        "skyrl-train: loss_reduction=token_mean with more than one row in a micro-batch, use_kl_loss and "
        "use_entropy_loss are means over micro-batches, in which a missing row takes up a place",
        "skyrl-train: loss_reduction=sequence_mean and seq_mean_token_sum_norm divide by all rows: judgekit/live_share",
    ]
SEEDS = 3


def batch(missing: int) -> list[int]:
    """Every prompt misses so many; one misses none, so that the batch as a whole has something left."""
    return [missing, 0, missing, missing]


def main() -> None:
    print(f"{'skyrl-train' if TRAIN else 'skyrl'} {VERSION}; {machine()}")
    cells, nonzero, worst, wrong, curves = 0, 0, 0.0, 0, 0.0
    for way, how in WAYS.items():
        for name, (estimator, more) in ESTIMATORS.items():
            if estimator in OUTCOME_ONLY and how.get("step_wise"):
                continue
            found = []
            for missing in range(GROUP):
                tried = [errors(estimator, batch(missing), seed, **how, **more) for seed in range(SEEDS)]
                found.append(max(error for error, _ in tried))
                nonzero += sum(count for _, count in tried)
                told = recorded(estimator, batch(missing), 0, **how, **more)
                wrong, curves = wrong + told[0], max(curves, told[1])
                cells += 1
            worst = max(worst, *found)
            print(f"{way:24} {name:18}", " ".join(f"{error:.0e}" for error in found), flush=True)
    for title, more in SETTINGS.items():
        found = []
        for missing in range(GROUP):
            error, count = errors("grpo", batch(missing), 0, **more)
            found.append(error)
            nonzero += count
            told = recorded("grpo", batch(missing), 0, **more)
            wrong, curves = wrong + told[0], max(curves, told[1])
            cells += 1
        worst = max(worst, *found)
        print(f"{'sync, ' + title:43}", " ".join(f"{error:.0e}" for error in found), flush=True)
    neutral = [errors("grpo", batch(k), 0, mixin=False)[0] for k in range(GROUP - 1)]
    print(f"{'SkyRLs own trainer, masked and filled':43}", " ".join(f"{error:.0e}" for error in neutral))
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
            "cells": ("==", CELLS),
            **EXACT,
        },
    )


if __name__ == "__main__":
    reported(main)
