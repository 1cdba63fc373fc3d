"""What `make bench-everywhere` takes for a difference, and for a missing reward that was paid."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit import RewardResult

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from bench_everywhere import Compared, Host, bits, compare

EXPECTED = {"0_0": 0.1, "0_1": 0.7, "0_2": None, "1_0": None, "1_1": None}
"""A group with a missing reward, and one of which all are."""


def compared(rewards: dict[str, Any], told: str = "0_2 1_0 1_1", *, single: bool = False) -> Compared:
    made = {id_: None if value is None else float(value).hex() for id_, value in rewards.items()}
    graded = {"host": "toy", "rewards": made, "missing": dict.fromkeys(told.split(), "said")}
    results = {
        id_: RewardResult(
            index=index,
            group=id_[0],
            reward=reward,
            status="excluded" if reward is None else "scored",
            raw_reward=reward,
            contributions={},
            grades={},
        )
        for index, (id_, reward) in enumerate(EXPECTED.items())
    }
    return compare(graded, results, Host("toy", "core", "reward.yaml", single=single))


def figures(*given: Any, **options: Any) -> tuple[int, int]:
    found = compared(*given, **options)
    return found.different, found.paid


def test_the_same() -> None:
    assert figures(EXPECTED) == (0, 0)
    assert figures({**EXPECTED, "0_2": 0.4, "1_0": 0.25, "1_1": 0.25}) == (0, 0)
    assert compared(EXPECTED).seen == "3 × no number (said)"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"0_1": math.nextafter(0.7, 1)}, "0_2 1_0 1_1"),
        ({"0_1": None}, "0_2 1_0 1_1"),
        ({}, "0_1 0_2 1_0 1_1"),
    ],
    ids=["a bit", "no reward", "said to be missing"],
)
def test_a_difference(change: dict[str, Any], told: str) -> None:
    assert figures({**EXPECTED, **change}, told) == (1, 0)


def test_a_rollout_that_the_host_lost() -> None:
    assert figures({id_: value for id_, value in EXPECTED.items() if id_ != "0_0"}) == (1, 0)


def test_single_precision() -> None:
    single = {id_: None if x is None else float.fromhex(bits(x, True)) for id_, x in EXPECTED.items()}
    assert figures(single, single=True) == (0, 0)
    assert figures(single) == (2, 0)
    assert figures(EXPECTED, single=True) == (2, 0)


@pytest.mark.parametrize(
    ("change", "told", "paid"),
    [
        ({}, "1_0 1_1", 1),
        ({"0_2": 0.4}, "", 3),
        ({"0_2": 0.0}, "0_2 1_0 1_1", 1),
        ({"1_0": 0.0, "1_1": 0.5}, "0_2 1_0 1_1", 2),
    ],
    ids=[
        "nothing said",
        "a mean that nobody was told of",
        "a zero",
        "an advantage in a group without rewards",
    ],
)
def test_a_missing_reward_that_was_paid(change: dict[str, Any], told: str, paid: int) -> None:
    assert figures({**EXPECTED, **change}, told) == (0, paid)
