"""SkyRL's own trainers, synchronous and fully asynchronous, on CPU."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import fmean

import pytest

from envs_for_tests import digits, longest, set_judge
from judgekit import AuditAlarm, FailureRateError, GradingRunner, Ledger, read_ledger
from toy_training import train
from under_test import TRAIN


def figure(fully_async: bool, theirs: str, ours: str) -> str:
    """SkyRL's own curve; skyrl_train's fully asynchronous trainer drops what environments give it."""
    return ours if TRAIN and fully_async else f"environment/judgekit/{theirs}"


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_it_learns(tmp_path: Path, fully_async: bool) -> None:
    runner = GradingRunner({"digits": digits, "longest": longest}, {"digits": 0.9, "longest": 0.1})
    rows = train(tmp_path, steps=30, seed=0, fully_async=fully_async, runner=runner)
    share = rows.series(figure(fully_async, "digits_mean", "judgekit/digits/mean"))
    # of a generator that runs ahead, a step may have nothing new
    assert 20 < len(share) <= 30 if TRAIN and fully_async else len(share) == 30
    assert fmean(share[-10:]) > fmean(share[:10]) + 0.05, share
    assert set(rows.series(figure(fully_async, "missing_mean", "judgekit/neutral_rate"))) == {0.0}


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
    missing = rows.series(figure(fully_async, "missing_mean", "judgekit/neutral_rate"))
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


AUDITED = """\
graders:
  judge: {use: "pleased_by_letters:WATCHED"}
  digits: {use: "pleased_by_letters:digits"}
reward: {weighted: {judge: 1}}
audit: {grader: digits, watch: judge, share: 0.5, on_alarm: stop}
runner: {missing_reward: neutral}
ledger: {path: ledger.jsonl, texts: true}
"""
PLEASED = """\
from judgekit import grader

@grader
def digits(response: str) -> float:
    return float(any(c.isdigit() for c in response))

@grader
def letters(response: str) -> float:
    return float(any(c.isascii() and c.isalnum() for c in response))
"""


@pytest.mark.parametrize("fully_async", [False, True], ids=["sync", "fully_async"])
def test_audits_end_a_training_that_pleases_its_judge(
    tmp_path: Path, fully_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge pays letters, too. A training whose judge pays what is audited goes on to its end."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "pleased_by_letters", raising=False)
    (tmp_path / "pleased_by_letters.py").write_text(PLEASED)
    for watched, steps in (("letters", 300), ("digits", 20)):
        (tmp_path / "reward.yaml").write_text(
            AUDITED.replace("WATCHED", watched).replace("ledger.j", f"{watched}.j")
        )
        given = {
            "steps": steps, "seed": 0, "fully_async": fully_async, "config": tmp_path / "reward.yaml",
            "on_step": lambda step: time.sleep(0.15),
        }  # fmt: skip
        if watched == "letters":
            with pytest.raises(AuditAlarm, match="alarm at step .*: judge paid"):
                train(tmp_path / watched, **given)
        else:
            rows = train(tmp_path / watched, **given)
            assert set(rows.series("judgekit/audit/alarm")) == {0.0}
            assert set(rows.series("judgekit/audit/paid_wrong")) == {0.0}
