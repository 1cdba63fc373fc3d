"""The alarm: rarely false, however long the run is and whatever is true of the rest; raised by pay that is not earned."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from judgekit.errors import ConfigError, DataError
from judgekit.evidence import Alarm

Step = Callable[[random.Random, int], list[tuple[float, bool, int]]]
"""Draws the audits of a step: score, what the audit says, prompt."""


def audited(draw: random.Random, score: float, right: bool, error: float = 0.02) -> bool:
    return right if draw.random() >= error else not right


def at_the_bound(draw: random.Random, t: int) -> list[tuple[float, bool, int]]:
    """Wrong rollouts are paid 0.3 on average, all or nothing; ever fewer are right."""
    found = []
    for i in range(4):
        right = draw.random() < max(0.1, 0.9 - t / 100)
        score = float(draw.random() < (0.95 if right else 0.3))
        found.append((score, audited(draw, score, right), i))
    return found


def alike(draw: random.Random, t: int) -> list[tuple[float, bool, int]]:
    """Two prompts; on one of them every wrong rollout is paid, or none."""
    found = []
    for prompt in range(2):
        score = float(draw.random() < 0.3)
        found += [(score, False, prompt)] * 4
    return found


def erring_where_it_hurts(draw: random.Random, t: int) -> list[tuple[float, bool, int]]:
    """The audit errs only to the watched grader's disadvantage: right ones that are paid, wrong ones that are not."""
    found = []
    for i in range(4):
        right = draw.random() < 0.7
        score = float(draw.random() < (0.95 if right else 0.3))
        errs = right == (score == 1.0) and draw.random() < 0.02
        found.append((score, right != errs, i))
    return found


@pytest.mark.parametrize("step", [at_the_bound, alike, erring_where_it_hurts])
def test_false_alarms_are_as_rare_as_promised(step: Step) -> None:
    """Of 300 runs of 120 steps at the very edge of the claim, no more than the promised 20 % alarm."""
    alarms = 0
    for seed in range(300):
        draw, alarm = random.Random(seed), Alarm(0.3, 0.2, 0.02)
        for t in range(120):
            rows = step(draw, t)
            alarm.add([(score, says) for score, says, _ in rows], [prompt for *_, prompt in rows])
            if alarm.raised:
                break
        alarms += alarm.raised is not None
    assert alarms <= 0.2 * 300


@pytest.mark.parametrize("right", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("flips", [(0.0, 0.0), (0.02, 0.0), (0.0, 0.02), (0.02, 0.02)])
@pytest.mark.parametrize("scores", [(0.3, 0.3), (0.0, 1.0), (0.1, 0.9)])
def test_no_step_is_worth_more_than_its_stake(
    right: float, flips: tuple[float, float], scores: tuple[float, float]
) -> None:
    """The exact expectation of the factor: wrong ones are paid 0.3 on average, right ones fully; the audit errs as is worst."""
    low, high = scores
    chance = 1.0 if low == high else (0.3 - low) / (high - low)
    cases = [(1.0, True, right)]
    cases += [(low, False, (1 - right) * (1 - chance)), (high, False, (1 - right) * chance)]
    grown = 0.0
    for score, is_right, share in cases:
        false, missed = flips
        errs = false if is_right else missed * (score <= 0.3)
        for says, odds in ((is_right, 1 - errs), (not is_right, errs)):
            alarm = Alarm(0.3, 0.05, 0.02)
            grown += share * odds * math.exp(alarm.add([(score, says)]))
    assert grown <= 1 + 1e-12


def test_correlated_rollouts_of_a_prompt_would_alarm_if_they_counted_one_by_one() -> None:
    """What naming the prompts is for: without them, the same healthy runs alarm far too often."""
    alarms = 0
    for seed in range(100):
        draw, alarm = random.Random(seed), Alarm(0.3, 0.2, 0.02)
        for t in range(120):
            alarm.add([(score, says) for score, says, _ in alike(draw, t)])
        alarms += alarm.raised is not None
    assert alarms > 30


def test_pay_that_is_not_earned_raises_it_and_it_stays() -> None:
    draw, alarm = random.Random(1), Alarm()
    for _ in range(100):
        alarm.add([(float(draw.random() < 0.06), False) for _ in range(5)])
    assert alarm.raised is None
    assert alarm.log_e < 0.1
    for _ in range(40):
        alarm.add([(1.0, draw.random() < 0.4) for _ in range(5)])
    assert alarm.raised is not None
    assert 101 <= alarm.raised <= 115
    raised = alarm.raised
    for _ in range(3000):  # long after, all is well again
        alarm.add([(0.0, False)] * 5)
    assert alarm.raised == raised
    assert math.isfinite(alarm.log_e)


def test_right_rollouts_and_steps_without_audits_are_no_evidence() -> None:
    alarm = Alarm()
    for _ in range(500):
        assert alarm.add([(1.0, True)] * 4) <= 0
    quiet = Alarm()
    for _ in range(500):
        quiet.add([])
    assert quiet.log_e == pytest.approx(0.0, abs=1e-9)
    assert quiet.steps == 500


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ((0.0, 0.05, 0.02), "pays_at_most is above 0 and below 1"),
        ((1.0, 0.05, 0.02), "pays_at_most is above 0 and below 1"),
        ((0.3, 0.0, 0.02), "false_alarms is a probability"),
        ((0.3, 1.0, 0.02), "false_alarms is a probability"),
        ((0.3, 0.05, 0.5), "audit_error is from 0 to below 0.5"),
        ((0.3, 0.05, -0.1), "audit_error is from 0 to below 0.5"),
        ((math.nan, 0.05, 0.02), "pays_at_most"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(bounds: tuple[float, float, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Alarm(*bounds)


@pytest.mark.parametrize("score", [-0.1, 1.1, math.nan, math.inf])
def test_a_score_outside_its_range_is_refused_and_changes_nothing(score: float) -> None:
    alarm = Alarm()
    with pytest.raises(DataError, match="from 0 to 1"):
        alarm.add([(1.0, False), (score, False)])
    assert (alarm.steps, alarm.log_e) == (0, 0.0)


@pytest.mark.parametrize("right", [0.5, 2, -1, math.nan])
def test_a_verdict_in_between_is_refused_and_changes_nothing(right: float) -> None:
    alarm = Alarm()
    with pytest.raises(DataError, match="right or wrong"):
        alarm.add([(1.0, False), (1.0, right)])  # type: ignore[list-item]
    assert (alarm.steps, alarm.log_e) == (0, 0.0)


def test_it_needs_neither_numpy_nor_scipy() -> None:
    code = "import sys; from judgekit.evidence import Alarm; Alarm().add([(1.0, False)]); print({'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
