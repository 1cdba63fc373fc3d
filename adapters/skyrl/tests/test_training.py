"""SkyRL's own trainers, synchronous and fully asynchronous, on CPU."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from envs_for_tests import digits, longest, set_judge
from judgekit import FailureRateError, GradingRunner, Ledger, read_ledger
from toy_training import train

REWARD = "reward/avg_raw_reward"


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_it_learns(tmp_path: Path, fully_async: bool) -> None:
    runner = GradingRunner({"digits": digits, "longest": longest}, {"digits": 0.9, "longest": 0.1})
    rows = train(tmp_path, steps=30, seed=0, fully_async=fully_async, runner=runner)
    share = rows.series("environment/judgekit/digits_mean")
    assert len(share) == 30
    assert fmean(share[-10:]) > fmean(share[:10]) + 0.05, share
    assert set(rows.series("environment/judgekit/missing_mean")) == {0.0}


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_it_outlives_its_judge(tmp_path: Path, fully_async: bool) -> None:
    """Down from the 4th step to the 8th: no number is made up, and the training goes on."""
    ledger = tmp_path / "ledger.jsonl"
    runner = GradingRunner({"digits": digits}, missing_reward="neutral", ledger=Ledger(ledger))
    try:
        rows = train(
            tmp_path / "run",
            steps=12,
            seed=0,
            fully_async=fully_async,
            runner=runner,
            on_step=lambda step: set_judge(4 <= step < 8),
        )
    finally:
        set_judge(False)
    missing = rows.series("environment/judgekit/missing_mean")
    assert missing[0] == 0
    assert max(missing) > 0
    assert missing[-1] == 0
    for entry in read_ledger(ledger).entries:
        assert (entry.status == "scored") == (type(entry.grades["digits"]).__name__ == "Graded")


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_too_many_failures_end_it(tmp_path: Path, fully_async: bool) -> None:
    """In the driver, with the reason: an error in a generator of the fully asynchronous trainer ends the process."""
    runner = GradingRunner({"digits": digits}, missing_reward="neutral", max_failure_rate=0.3)
    set_judge(True)
    try:
        with pytest.raises(FailureRateError, match="digits 100.0 % "):
            train(tmp_path, steps=3, seed=0, fully_async=fully_async, runner=runner)
    finally:
        set_judge(False)
