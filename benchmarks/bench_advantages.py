"""Whether a missing reward leaves its siblings' advantages as they are, by the trainers' own estimators.

    make bench-advantages

Runs the adapters' benchmarks of this name, SkyRL's with 0.3, 0.4 and skyrl-train 0.3.1, each in its own
environment, and adds up: `cells` (an estimator, a trainer's mode and 0 to 7 missing of 8), the largest error
of a sibling's advantage against the estimator over the valid members alone, how many missing rollouts have an
advantage that reaches the loss, and what cannot be exact, with the reason.

`recorded_wrong`: rollouts and figures of which judgekit's ledger and figures say another thing than what the
trainer did. `curve_error`: of judgekit's curves (in SkyRL and TRL also the trainer's) against numpy over what
was graded. `rate_error`: of the gradient of verl's losses with masked rows; `rates` are the losses that train
at the share `judgekit/live_share` of their rate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import EXACT, finish, reported

ROOT = Path(__file__).resolve().parents[1]


HOSTS = {
    "verl 0.9.1": ("verl", "", ""),
    "skyrl 0.3.0": ("skyrl", "", ""),
    "skyrl 0.4.0": ("skyrl", "0.4.0", "import skyrl; assert '0.4.0' in skyrl.__file__"),
    "skyrl-train 0.3.1": ("skyrl", "train-0.3.1", "sys.modules['skyrl'] = None; import skyrl_train"),
    "trl 1.16.0": ("trl", "", ""),
}
"""An environment, the release beside it that takes the place of its own, and what makes sure of that."""


def figures(host: str) -> dict[str, Any]:
    """Run one host's benchmark; returns its JSON line."""
    adapter, beside, start = HOSTS[host]
    env = ROOT / ".venv" / adapter
    script = ROOT / "adapters" / adapter / "benchmarks" / "bench_advantages.py"
    path = os.pathsep.join(
        filter(None, [beside and str(env / "beside" / beside), os.environ.get("PYTHONPATH")])
    )
    program = f"import runpy, sys; {start or 'pass'}; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run(
        [env / "bin" / "python", "-c", program, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    print(done.stdout, flush=True)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        sys.exit(f"{host}: no figures (exit code {done.returncode})")
    return found


def main() -> None:
    by_host = {host: figures(host) for host in HOSTS}
    total = {
        "cells": sum(found["cells"] for found in by_host.values()),
        "max_error": max(found["max_error"] for found in by_host.values()),
        "nonzero_for_missing": sum(found["nonzero_for_missing"] for found in by_host.values()),
        "recorded_wrong": sum(found["recorded_wrong"] for found in by_host.values()),
        "curve_error": max(found["curve_error"] for found in by_host.values()),
        "rate_error": by_host["verl 0.9.1"]["rate_error"],
        "rates": by_host["verl 0.9.1"]["rates"],
        "not_exact": list(
            dict.fromkeys(reason for found in by_host.values() for reason in found["not_exact"])
        ),
        "cells_by_host": {host: found["cells"] for host, found in by_host.items()},
    }
    finish(total, {**EXACT, "rate_error": ("<=", 1e-6)})


if __name__ == "__main__":
    reported(main)
