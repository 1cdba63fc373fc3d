"""Signals: each is raised by a run that has what it looks for, and by no run that has not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judgekit import Failed, Graded, GradingRunner, Ledger, Rollout, Usage, grader
from judgekit.metrics import Signal, SignalLimits
from judgekit.metrics.signals import formatting, repetition
from judgekit.report.table import Table
from judgekit.report.warnings import signals

from .test_table import append, entry

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def found(
    path: Path, row: Callable[[int, random.Random], dict[str, Any]], *, rows: int = 160, **limits: float
) -> dict[str, Signal]:
    """The signals of a ledger with groups of four, by name and subject."""
    rng = random.Random(7)
    made = []
    for i in range(rows):
        given = {
            "reward": rng.random(),
            "response": " ".join(rng.choices(WORDS, k=40)),
            "response_tokens": rng.randint(10, 90),
            **row(i, rng),
        }
        made.append(entry(i, group=i // 4, raw_reward=given["reward"], **given))
    append(path, *made)
    table = Table(path)
    table.read()
    told = signals(table, SignalLimits(**limits))
    assert [s.raised for s in told] == sorted((s.raised for s in told), reverse=True)
    return {f"{s.name} {s.subject}".strip(): s for s in told}


def raised(told: dict[str, Signal]) -> set[str]:
    return {name for name, signal in told.items() if signal.raised}


def test_a_plain_run_raises_none(tmp_path: Path) -> None:
    told = found(tmp_path / "l", lambda i, rng: {"grades": {"a": Graded(rng.random())}})
    assert raised(told) == set()
    assert set(told) == {
        "length",
        "flat_groups",
        "saturation highest",
        "saturation lowest",
        "repetition",
        "formatting",
        "missing a",
    }


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("length", lambda i, rng: {"reward": (n := rng.randint(10, 90)) / 90, "response_tokens": n}),
        ("repetition", lambda i, rng: {"reward": (n := rng.randint(0, 20)) / 20, "response": " ".join(["a b c d e f"] * n + rng.choices(WORDS, k=60))}),
        ("formatting", lambda i, rng: {"reward": (n := rng.randint(0, 20)) / 20, "response": "- a point\n" * n + "word " * 90}),
        ("flat_groups", lambda i, rng: {"reward": float(i // 4 % 2)}),
        ("saturation highest", lambda i, rng: {"reward": 1.0 if i % 16 else 0.5}),
        ("saturation lowest", lambda i, rng: {"reward": 0.0 if i % 16 else 0.5}),
        ("missing a", lambda i, rng: {"grades": {"a": Failed("JudgeTimeout", "slow") if i % 8 == 0 else Graded(0.5)}}),
        ("disagreement judge / rule", lambda i, rng: {"grades": {"judge": Graded(x := rng.random(), usage=Usage(calls=1)), "rule": Graded(1 - x)}}),
    ],
)  # fmt: skip
def test_a_run_that_has_it_raises_it(
    tmp_path: Path, name: str, row: Callable[[int, random.Random], dict[str, Any]]
) -> None:
    told = found(tmp_path / "l", row)
    assert name in raised(told)
    field = name.split()[0]
    assert told[name].limit == getattr(SignalLimits(), field)
    beyond = {"disagreement": -1.0}.get(field, 1.0)
    assert name not in raised(found(tmp_path / "m", row, **{field: beyond}))


def test_length_is_compared_within_groups(tmp_path: Path) -> None:
    """Hard prompts have long answers and low rewards: that is no length in disguise."""

    def row(i: int, rng: random.Random) -> dict[str, Any]:
        hard = i // 4 % 2
        return {
            "reward": 1.0 - hard + 0.1 * rng.random(),
            "response_tokens": 1000 * (hard + 1) + rng.randint(0, 50),
        }

    assert "length" not in raised(found(tmp_path / "l", row))


def test_lengths_of_two_units_are_not_mixed(tmp_path: Path) -> None:
    """Rewards grow with the characters; every second rollout tells its tokens as well, a tenth as many."""

    def row(i: int, rng: random.Random) -> dict[str, Any]:
        chars = rng.randint(100, 900)
        tokens = chars // 10 if i % 2 else None
        return {"reward": chars / 900, "response_chars": chars, "response_tokens": tokens}

    length = found(tmp_path / "l", row)["length"]
    assert length.value > 0.99
    assert "length in characters" in length.text
    assert "length in tokens" in found(tmp_path / "m", lambda i, rng: {})["length"].text


def test_few_rollouts_say_nothing(tmp_path: Path) -> None:
    assert set(found(tmp_path / "l", lambda i, rng: {"reward": 1.0}, rows=20)) == {"missing a"}


def test_rewards_that_are_all_the_same_are_neither_the_highest_nor_the_lowest(tmp_path: Path) -> None:
    told = found(tmp_path / "ledger.jsonl", lambda i, rng: {"reward": 1.0})
    assert [(one.subject, one.raised) for one in told.values() if one.name == "saturation"] == [
        ("same", True)
    ]


def test_missing_rewards_are_in_no_correlation(tmp_path: Path) -> None:
    def row(i: int, rng: random.Random) -> dict[str, Any]:
        if i % 2:
            return {"reward": None, "status": "masked", "response_tokens": 10**6}
        return {}

    assert found(tmp_path / "l", row)["length"].count == 80


def test_what_repetition_and_formatting_measure() -> None:
    assert repetition("a b c d e f g h") == 0
    assert repetition("x " * 100) == pytest.approx(1 - 1 / 96)
    assert repetition("") == repetition("few words") == 0
    assert formatting("") == formatting("plain text - with a dash * and stars") == 0
    marked = "# Title\n- a\n1. b\n| c |\n**d**"
    assert formatting(marked) == pytest.approx(100 * 6 / len(marked))


async def test_flat_groups_are_the_trainers(tmp_path: Path) -> None:
    """Of groups with two rewards or more: a judge that is down must not hide that nothing is left to learn."""

    @grader
    def late(rollout: Rollout) -> float:
        if rollout.extra["i"] >= 4 * 20:
            raise ConnectionError
        return 0.1 + 0.2 if rollout.extra["i"] % 2 else 0.3  # equal up to rounding

    runner = GradingRunner([late], ledger=Ledger(tmp_path / "l"))
    made = [Rollout(response="", group=i // 8, extra={"i": i}) for i in range(160)]  # each id is two groups'
    await runner.run_groups([made[i : i + 4] for i in range(0, 160, 4)])
    table = Table(tmp_path / "l")
    table.read(end=True)
    for told in (signals(table), runner.metrics.counts.signals()):
        (found,) = [signal for signal in told if signal.name == "flat_groups"]
        assert (found.value, found.count, found.raised) == (1.0, 20, True)
    assert runner.metrics.summary()["judgekit/flat_group_rate"] == 1.0
