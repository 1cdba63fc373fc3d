"""Whether a missing reward leaves its siblings' advantages as they are, by the trainers' own estimators.

    make bench-advantages

Runs adapters/verl/benchmarks/bench_advantages.py and adapters/skyrl/benchmarks/bench_advantages.py, each in its own
environment, and adds up: `cells` (an estimator, a trainer's mode and 0 to 7 missing of 8), the largest error of a
sibling's advantage against the estimator over the valid members alone, how many missing rollouts have an advantage that
reaches the loss, and what cannot be exact, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import finish, reported

ROOT = Path(__file__).resolve().parents[1]


def figures(host: str) -> dict[str, Any]:
    """Run one adapter's benchmark; returns its JSON line."""
    command = [
        ROOT / ".venv" / host / "bin" / "python",
        ROOT / "adapters" / host / "benchmarks" / "bench_advantages.py",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        sys.exit(f"{host}: no figures (exit code {done.returncode})")
    return found


def main() -> None:
    by_host = {host: figures(host) for host in ("verl", "skyrl")}
    total = {
        "cells": sum(found["cells"] for found in by_host.values()),
        "max_error": max(found["max_error"] for found in by_host.values()),
        "nonzero_for_missing": sum(found["nonzero_for_missing"] for found in by_host.values()),
        "not_exact": [reason for found in by_host.values() for reason in found["not_exact"]],
    }
    finish(total, {"max_error": ("<=", 1e-6), "nonzero_for_missing": ("==", 0)})


if __name__ == "__main__":
    reported(main)
