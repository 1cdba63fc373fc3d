"""Whether rollouts without a reward are left out of verl's advantages exactly.

    PYTHONPATH=... python adapters/verl/benchmarks/bench_advantages.py

verl's own estimators, as its V1 and V0 trainers call them, on batches of 12 prompts × 8 with random rewards, of which
0 to 7 of 8 are missing, treated as our hook treats them. A cell is an estimator, a trainer, a number of missing
rewards and a kind of rewards (real-valued, binary), over several seeds: the largest error of a valid member's
advantage against the estimator over the valid members alone, and whether a row without a reward has an advantage where
its mask is not 0. Prints a line per estimator and a JSON object.
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

from common import finish, machine, reported

from advantages import CASES, NOT_EXACT, compare

SEEDS = 5


def main() -> None:
    print(machine())
    cells, worst, nonzero = 0, 0.0, 0
    for case in CASES:
        found = 0.0
        for missing in range(case.most + 1):
            for binary in (False, True):
                results = [compare(case, missing, seed=seed, binary=binary) for seed in range(SEEDS)]
                found = max(found, *(error for error, _ in results))
                nonzero += any(of_missing > 1e-6 for _, of_missing in results)
                cells += 1
        print(f"{case!s:45} 0 to {case.most} of 8 missing: {found:.1e}", end="")
        neutral = max(compare(case, 4, seed=seed, neutral=True)[0] for seed in range(SEEDS))
        print(f"; 4 of 8 and a neutral fill: {neutral:.1e}", flush=True)
        worst = max(worst, found)
    finish(
        {
            "cells": cells,
            "max_error": worst,
            "nonzero_for_missing": nonzero,
            "not_exact": [f"{what}: {why}" for what, why in NOT_EXACT.items()],
        },
        {"cells": (">=", 400), "max_error": ("<=", 1e-6), "nonzero_for_missing": ("==", 0)},
    )


if __name__ == "__main__":
    reported(main)
