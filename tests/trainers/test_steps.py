"""A step's failures are counted over all its calls, and told when the next one begins."""

from __future__ import annotations

import asyncio
import logging

import pytest

from judgekit import FailureRateError, GradingRunner, RewardResult, Rollout, grader
from judgekit.trainers import Counts, StepCounts, check_failure_rate
from judgekit.trainers.step_counts import STEPLESS


@grader
def flaky(response: str) -> float:
    if response == "bad":
        raise ConnectionError("gone")
    return 1.0


def results(responses: list[str]) -> list[RewardResult]:
    runner = GradingRunner({"flaky": flaky})
    return asyncio.run(runner.run([Rollout(prompt="p", response=r, group=0) for r in responses]))


def test_one_failure_of_a_prompt_s_four_is_no_failure_rate() -> None:
    counts = StepCounts(0.2)
    assert counts.begin(1) == {}
    for _ in range(16):
        for result in results(["good", "good", "good", "good"]):
            counts.add(result)
    for result in results(["good", "good", "good", "bad"]):
        counts.add(result)
    assert counts.begin(1) == {}  # the same step: nothing is told yet
    figures = counts.begin(2)
    assert figures["judgekit/rollouts"] == 68
    assert figures["judgekit/flaky/failure_rate"] == pytest.approx(1 / 68)


def test_a_step_with_too_many_failures_ends_the_training() -> None:
    counts = StepCounts(0.2)
    counts.begin(1)
    for result in results(["good"] * 3 + ["bad"]):
        counts.add(result)
    counts.begin(2)  # 4 evaluations are no rate
    for _ in range(5):
        for result in results(["good"] * 3 + ["bad"]):
            counts.add(result)
    with pytest.raises(FailureRateError, match="flaky 25.0 %"):
        counts.begin(3)
    assert counts.begin(4) == {}  # told once


def test_the_last_step_is_told_too_and_processes_add_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "judgekit")
    other = Counts()
    for result in results(["bad"] * 16):
        other.add(result)
    counts = StepCounts(0.5)
    counts.begin(1)
    counts.add(other)
    with pytest.raises(FailureRateError):
        counts.end()
    assert "16 of 16 rewards are missing" in caplog.text
    assert counts.end() == {}


def test_without_a_limit_failures_are_only_told() -> None:
    counts = StepCounts()
    counts.begin(1)
    for result in results(["bad"] * 32):
        counts.add(result)
    assert counts.end()["judgekit/excluded_rate"] == 1.0


def test_a_step_that_goes_on_is_reported_once_for_what_there_is(caplog: pytest.LogCaptureFixture) -> None:
    steps = StepCounts()
    steps.begin(1)
    steps.add(Counts())
    assert steps.report() == {}
    counts = Counts()
    counts.statuses["scored"] = 4
    with caplog.at_level("INFO", logger="judgekit"):
        steps.add(counts)
        steps.report()
        steps.report()
        steps.begin(2)
    assert caplog.text.count("4 rollouts graded") == 1
    assert steps.rollouts == 0


def test_a_trainer_without_steps_is_told_every_so_many_rollouts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "judgekit")
    counts = StepCounts(None)
    some = Counts()
    for result in results(["good"] * (STEPLESS - 1)):
        some.add(result)
    counts.add_stepless(some)
    assert counts.rollouts == STEPLESS - 1
    assert caplog.messages == []
    one = Counts()
    one.add(results(["good"])[0])
    counts.add_stepless(one)
    assert counts.rollouts == 0
    assert caplog.messages == [f"{STEPLESS} rollouts graded"]


def test_a_step_begins_once_and_its_figures_come_with_the_next() -> None:
    steps = StepCounts()
    assert (steps.step, steps.rollouts, steps.max_failure_rate) == (None, 0, None)
    assert steps.begin(None) == {}
    steps.add(results(["good"])[0])
    assert steps.begin(None) == {}
    assert steps.rollouts == 1
    assert steps.begin("a")["judgekit/rollouts"] == 1
    assert (steps.step, steps.rollouts) == ("a", 0)
    assert steps.report() == {}


def test_a_step_of_which_more_has_come_is_logged_again_and_what_is_unusual_as_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = (results([response])[0] for response in ("good", "bad"))
    caplog.clear()
    caplog.set_level(logging.INFO, "judgekit")
    steps = StepCounts()
    for result, level in ((good, logging.INFO), (bad, logging.WARNING)):
        steps.add(result)
        for _ in range(2):
            steps.report()
        assert [record.levelno for record in caplog.records][-1] == level
    assert len(caplog.records) == 2
    caplog.clear()
    steps.end()  # nothing is new
    for _ in range(2):  # of the next steps, as many each
        steps.add(good)
        steps.end()
    assert len(caplog.records) == 2


def test_two_failures_of_two_are_too_many_unless_more_is_to_come() -> None:
    counts = Counts()
    for result in results(["bad", "bad"]):
        counts.add(result)
    with pytest.raises(
        FailureRateError, match=r"more grades failed in a step than max_failure_rate=0.5 allows: flaky 100"
    ):
        check_failure_rate(counts, 0.5)
    check_failure_rate(counts, 0.5, so_far=True)
    check_failure_rate(counts, None)


@pytest.mark.parametrize("bad", [8, 9])
def test_as_many_failures_as_are_allowed_are_allowed(bad: int) -> None:
    counts = Counts()
    for result in results(["bad"] * bad + ["good"] * (16 - bad)):
        counts.add(result)
    if bad == 8:
        check_failure_rate(counts, 0.5)
    else:
        with pytest.raises(FailureRateError, match="max_failure_rate=0.5 allows"):
            check_failure_rate(counts, 0.5)
    with pytest.raises(FailureRateError, match="max_failure_rate=0 allows"):
        check_failure_rate(counts, 0.0)


def test_a_trainer_without_steps_has_its_failures_counted_too() -> None:
    steps = StepCounts(0.5)
    some = Counts()
    for result in results(["bad"] * STEPLESS):
        some.add(result)
    with pytest.raises(FailureRateError):
        steps.add_stepless(some)
    assert steps.rollouts == 0
