"""What adapters tell of a result, by the same words for all trainers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from judgekit import Abstained, Failed, GradingRunner, RewardResult, Rollout, grader
from judgekit.trainers import figures_of, why_missing
from judgekit.trainers.figures import RESERVED


def result_of(*answers: Any, **settings: Any) -> RewardResult:
    """The result of graders `g0`, `g1`, … with these answers."""
    graders = {f"g{i}": grader(lambda response, a=a: a) for i, a in enumerate(answers)}
    runner = GradingRunner(graders, dict.fromkeys(graders, 0.5), **settings)
    return runner.run_sync([Rollout(response="")])[0]


def test_the_figures_of_a_result() -> None:
    assert figures_of(result_of(1.0, 0.5)) == {"g0": 1.0, "g1": 0.5, "raw": 0.75, "missing": 0.0}
    assert figures_of(result_of(1.0, Failed("Down"))) == {"g0": 1.0, "missing": 1.0}
    assert figures_of(result_of(1.0, Failed("Down"), missing_reward=0.5)) == {"g0": 1.0, "missing": 1.0}
    assert {"raw", "missing"} <= RESERVED


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((1.0, 0.5), ""),
        ((Failed("Down", "at noon"), 0.5), "g0: Down: at noon"),
        ((Failed("Down"), Abstained("no reference")), "g0: Down; g1: no reference"),
        ((0.5, Abstained("")), "g1"),
    ],
)
def test_why_a_reward_is_missing(answers: Any, why: str) -> None:
    assert why_missing(result_of(*answers)) == why


def test_a_dropped_reward_says_why_by_its_group_s_words() -> None:
    result = result_of(1.0, 0.5)
    for policies, why in ((("group: dropped", "flat"), "group: dropped; flat"), ((), "no grade says why")):
        dropped = msgspec.structs.replace(result, status="dropped", reward=None, policies=policies)
        assert why_missing(dropped) == why
        assert figures_of(dropped) == {"g0": 1.0, "g1": 0.5, "raw": 0.75, "missing": 0.0}
    assert why_missing(msgspec.structs.replace(result, status="missing", missing=("gone",))) == "gone"
