"""Do the intervals and thresholds of `judgekit certify` hold, how long does it take, and is a grader noticed that is another one?

    make bench-evidence

Draws labels of a world that is known: prompts differ in how often a judge errs (normal effects on the log-odds), rollouts
of a prompt are alike. Coverage is the share of draws in which the interval holds the true value. A threshold for an error
holds if of all verdicts that it keeps, no larger share is wrong. The command is timed from a ledger of 13,000 rollouts on disk.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import finish, machine, reported

from judgekit import GradingRunner, Ledger, Rollout, grader
from judgekit.evidence.certificate import _threshold
from judgekit.evidence.shares import share
from judgekit.ledger.jsonl import json_line

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.evidence.test_trust import unnoticed

DRAWS = 2000
PROMPTS = (10, 25, 100, 250)
EFFECTS = (0.0, 1.0, 2.0)
RATES = (0.85, 0.98)
ROLLOUTS = 13_000


def coverage(draw: Any, rate: float, effect: float, prompts: int, *, equal: bool, draws: int) -> float:
    """The share of draws in which the interval holds the true rate. *equal*: 8 rollouts a prompt, else 1 to 15."""
    middle = math.log(rate / (1 - rate))
    true = float((1 / (1 + np.exp(-middle - effect * draw.standard_normal(500_000)))).mean())
    held = 0
    for _ in range(draws):
        sizes = np.full(prompts, 8) if equal else draw.integers(1, 16, prompts)
        of = np.repeat(np.arange(prompts), sizes)
        chance = 1 / (1 + np.exp(-middle - effect * draw.standard_normal(prompts)))
        found = share(draw.random(len(of)) < chance[of], of)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true <= found.high
    return held / draws


def kept_as_asked(draw: Any, error: float, prompts: int, draws: int) -> tuple[float, float]:
    """The share of draws in which a found threshold holds, of those with one; and the share of draws with one."""
    held = found = 0
    for _ in range(draws):
        of = np.repeat(np.arange(prompts), 8)
        right = draw.random(len(of)) < 0.5
        away = draw.random(len(of)) / 2
        calls = right == (draw.random(len(of)) < away + 0.6)
        one = _threshold(np.where(calls, 0.5 + away, 0.5 - away), right, of, 0.5, error)
        if one.high is not None:
            found += 1
            kept = np.linspace(one.high - 0.5, 0.5, 2000)
            held += float(np.maximum(0.4 - kept, 0.0).mean()) <= error
    return held / max(found, 1), found / draws


def command(folder: Path) -> tuple[float, bool]:
    """Seconds of `judgekit certify` beyond those of `judgekit --version`, and whether two certificates are the same."""

    @grader
    def judge(extra: dict[str, Any]) -> float:
        return float(extra["score"])

    draw = np.random.default_rng(1)
    rollouts, labels = [], []
    for i in range(ROLLOUTS):
        right = bool(draw.random() < 0.5)
        score = min(1.0, max(0.0, float(draw.normal(0.75 if right else 0.25, 0.2))))
        rollouts.append(
            Rollout(
                prompt=f"question {i // 8}",
                response=f"answer {i}",
                id=str(i),
                group=i // 8,
                extra={"score": score},
            )
        )
        labels.append({"id": str(i), "label": right})
    kept = Ledger(folder / "ledger.jsonl", texts=True)
    GradingRunner({"judge": judge}, ledger=kept).run_sync(rollouts)
    kept.flush()
    (folder / "labels.jsonl").write_text("".join(map(json_line, labels)))
    judgekit = [sys.executable, "-m", "judgekit"]
    asked = ["certify", "ledger.jsonl", "--labels", "labels.jsonl", "--grader", "judge", "--out"]
    took: dict[str, list[float]] = {"": [], "certify": []}
    for round_ in range(3):
        for name, args in (("", ["--version"]), ("certify", [*asked, f"{round_}.json"])):
            start = time.perf_counter()
            subprocess.run([*judgekit, *args], cwd=folder, check=True, capture_output=True)
            took[name].append(time.perf_counter() - start)
    same = len({(folder / f"{i}.json").read_bytes() for i in range(3)}) == 1
    return statistics.median(took["certify"]) - statistics.median(took[""]), same


def main() -> None:
    print(machine())
    draw = np.random.default_rng(40)
    covered: dict[str, float] = {}
    for rate in RATES:
        for effect in EFFECTS:
            for prompts in PROMPTS:
                for equal in (True, False):
                    name = f"{rate:g}, effect {effect:g}, {prompts} prompts, {'8 rollouts' if equal else '1 to 15'}"
                    held = coverage(draw, rate, effect, prompts, equal=equal, draws=DRAWS)
                    if held < 0.94:  # chance, or not?
                        held = coverage(draw, rate, effect, prompts, equal=equal, draws=10 * DRAWS)
                    covered[name] = held
                    print(f"{name:48} {held:.3f}", flush=True)
    kept = {
        f"{error:g}, {prompts} prompts": kept_as_asked(draw, error, prompts, DRAWS // 4)
        for error in (0.05, 0.1)
        for prompts in (60, 250)
    }
    for name, (held, found) in kept.items():
        print(
            f"error {name:24} holds in {held:.3f} of the draws with a threshold, which are {found:.2f} of all"
        )
    with tempfile.TemporaryDirectory() as folder:
        seconds, same = command(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        changes, unseen = unnoticed(Path(folder))
    print(f"{changes} changes of a grader with a certificate; unnoticed: {unseen}")
    finish(
        {
            "coverage": {name: round(held, 4) for name, held in covered.items()},
            "least_coverage": round(min(covered.values()), 4),
            "kept_as_asked": {name: round(held, 4) for name, (held, _) in kept.items()},
            "least_kept_as_asked": round(min(held for held, _ in kept.values()), 4),
            "certify_s": round(seconds, 2),
            "recomputed": same,
            "changes": changes,
            "changes_unnoticed": len(unseen),
        },
        {
            "least_coverage": (">=", 0.93),
            "least_kept_as_asked": (">=", 0.94),
            "certify_s": ("<=", 1.0),
            "recomputed": ("==", True),
            "changes": (">=", 24),
            "changes_unnoticed": ("==", 0),
        },
    )


if __name__ == "__main__":
    reported(main)
