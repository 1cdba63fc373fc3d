"""Whether rollouts without a reward are left out of verl's advantages exactly.

    PYTHONPATH=... python adapters/verl/benchmarks/bench_advantages.py

verl's own estimators, as its V1 and V0 trainers call them, on batches of 12 prompts × 8 with random rewards,
of which 0 to 7 of 8 are missing, treated as our hook treats them. A cell is an estimator, a trainer, a number
of missing rewards and a kind of rewards (real-valued, binary), over several seeds: the largest error of a
valid member's advantage against the estimator over the valid members alone, and whether a row without a
reward has an advantage where its mask is not 0. Every batch is graded by judgekit, whose judge is down for
what is missing: `recorded_wrong` counts rows and figures of which the ledger, the shares of statuses or
`judgekit/live_share` say another thing than what the trainer did, and `curve_error` is the largest error of
judgekit's curves against numpy over what was graded.

Losses: verl's own, in every aggregation, with 4 of 16 rows left out. `rate_error` is the error of the
gradient's length against the one without these rows, where it is not the share of rows that are trained on:
these are in `rates`. Prints a line per estimator and loss, and a JSON object.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[3] / "benchmarks")]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

from common import EXACT, finish, machine, reported

from advantages import CASES, NOT_EXACT, compare
from losses import AGGREGATIONS, LOSSES, rate

SEEDS = 5


def main() -> None:
    print(machine())
    cells, worst, nonzero, wrong, curves = 0, 0.0, 0, 0, 0.0
    for case in CASES:
        found = 0.0
        for missing in range(case.most + 1):
            for binary in (False, True):
                results = [compare(case, missing, seed=seed, binary=binary) for seed in range(SEEDS)]
                found = max(found, *(one.error for one in results))
                nonzero += any(one.of_missing > 1e-6 for one in results)
                wrong += sum(one.recorded_wrong for one in results)
                curves = max(curves, *(one.curve_error for one in results))
                cells += 1
        print(f"{case!s:45} 0 to {case.most} of 8 missing: {found:.1e}", end="")
        neutral = max(compare(case, 4, seed=seed, neutral=True).error for seed in range(SEEDS))
        print(f"; 4 of 8 and a neutral fill: {neutral:.1e}", flush=True)
        worst = max(worst, found)
    rates, rate_error = losses()
    finish(
        {
            "cells": cells,
            "max_error": worst,
            "nonzero_for_missing": nonzero,
            "recorded_wrong": wrong,
            "curve_error": curves,
            "rate_error": rate_error,
            "rates": rates,
            "not_exact": [f"{what}: {why}" for what, why in NOT_EXACT.items()],
        },
        {
            "cells": (">=", 400),
            **EXACT,
            "rate_error": ("<=", 1e-6),
        },
    )


def losses() -> tuple[list[str], float]:
    """Try each of verl's losses; returns those whose rate is the live share, and the largest error."""
    listed, worst = [], 0.0
    for mode in LOSSES:
        found = {how: rate(mode, how) for how in AGGREGATIONS}
        scaled = [how for how in AGGREGATIONS if abs(found[how].rate - 1) > 1e-6]
        for how, (measured, live, shape) in found.items():
            worst = max(worst, shape, abs(measured - (live if how in scaled else 1.0)))
        told = ", ".join(f"{how} × {found[how].rate:.4f}" for how in AGGREGATIONS)
        print(f"{mode:12} {told}", flush=True)
        if scaled:
            which = "every aggregation" if len(scaled) == len(AGGREGATIONS) else ", ".join(scaled)
            listed.append(f"verl {mode}, {which}: judgekit/live_share")
    return listed, worst


if __name__ == "__main__":
    reported(main)
