"""Two ledgers of the same rollouts: what moved, and what is in one of them only."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgekit import Failed, Graded, GradingRunner, Ledger, Rollout, grader
from judgekit.ledger.jsonl import encoded
from judgekit.report.comparison import comparison
from judgekit.report.page import whole_table
from judgekit.report.warnings import signals

from .test_table import append, entry, unfinished


def test_it_pairs_rollouts_and_says_what_moved(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    append(
        before,
        entry(0, grades={"a": Graded(0.5), "old": Graded(1.0)}),
        entry(1),
        entry(2, grades={"a": Failed("JudgeTimeout", "slow")}, reward=None, raw_reward=None, status="masked"),
        entry(3),
        entry(9),
    )
    append(
        after,
        entry(3, run="later", reward=0.9, raw_reward=0.9, grades={"a": Graded(0.9)}),
        entry(2, run="later"),
        entry(1, run="later"),
        entry(0, run="later", reward=0.4, raw_reward=0.4),
        entry(8, run="later"),
    )
    found = comparison(whole_table(before), whole_table(after))
    assert found["pairs"] == 4
    assert found["rewards_changed"] == 3
    assert [line["id"] for line in found["changed"]] == ["2", "3", "0"]  # missing to given counts most
    assert found["changed"][0]["before"] is None
    assert found["changed"][0]["grades"] == {"a": ["failed", 0.5]}
    assert found["changed"][1]["row"] == 0
    assert found["changed"][2]["grades"] == {"old": [1.0, "absent"]}
    assert found["graders"]["a"] == {
        "both_graded": 3,
        "mean_before": pytest.approx(0.5),
        "mean_after": pytest.approx(1.9 / 3),
        "correlation": None,  # before, all were 0.5
        "scores_moved": 1,
        "kinds_changed": 1,
    }
    assert found["before"]["missing"] == 1
    encoded(found)


def test_another_transform_or_fill_is_a_change_also_where_the_raw_rewards_are_equal(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    missing = {"raw_reward": None, "status": "filled"}
    append(before, entry(0), entry(1, reward=0.5), entry(2, reward=0.0, **missing))
    append(
        after,
        entry(0, run="l", reward=1.0),
        entry(1, run="l", reward=0.5),
        entry(2, run="l", reward=0.25, **missing),
    )
    found = comparison(whole_table(before), whole_table(after))
    assert (found["rewards_changed"], found["raw_rewards_changed"]) == (2, 0)
    assert [(line["before"], line["after"], line["reward"]) for line in found["changed"]] == [
        (0.5, 0.5, [0.5, 1.0]),
        (None, None, [0.0, 0.25]),
    ]


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        (2e-10, 8e-10, True),
        (0.0, 1e-9, True),
        (0.1 + 0.2, 0.3, False),
        (1e12, 1e12 + 1e-4, False),
        (1e-17, 0.0, False),
        (0.3, 0.3 + 1e-8, True),
    ],
)
def test_small_scores_move_too_and_rounding_does_not(
    old: float, new: float, moved: bool, tmp_path: Path
) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    for path, value in ((before, old), (after, new)):
        append(path, entry(0, run=path.stem, reward=value, raw_reward=value, grades={"a": Graded(value)}))
    found = comparison(whole_table(before), whole_table(after))
    assert (found["rewards_changed"], found["graders"]["a"]["scores_moved"]) == (moved, moved)


def test_unfinished_rollouts_are_neither_missing_nor_changed(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    append(before, entry(0), entry(1), entry(2, status="masked", reward=None, raw_reward=None))
    append(after, entry(0, run="l"), unfinished(1, run="l"))
    found = comparison(whole_table(before), whole_table(after))
    assert (found["pairs"], found["rewards_changed"]) == (1, 0)
    assert (found["before"]["missing"], found["before"]["unfinished"]) == (1, 0)
    assert (found["after"]["missing"], found["after"]["unfinished"]) == (0, 1)


def test_different_rollouts_have_no_pairs(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    append(before, entry(0, rollout_digest="x"))
    append(after, entry(0, rollout_digest="y"))
    found = comparison(whole_table(before), whole_table(after))
    assert (found["pairs"], found["changed"], found["rewards_changed"]) == (0, [], 0)


def test_copies_of_a_rollout_are_paired_one_by_one(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    append(before, *(entry(i, id="", group=0, reward=i / 10, raw_reward=i / 10) for i in range(3)))
    append(after, *(entry(i, id="", group=0, reward=i / 10, raw_reward=i / 10) for i in range(4)))
    found = comparison(whole_table(before), whole_table(after))
    assert (found["pairs"], found["rewards_changed"]) == (3, 0)


def test_what_was_dropped_is_in_no_mean(tmp_path: Path) -> None:
    """As in a trainer's own figures: 36 groups of 56 are all right, and left out."""
    path = tmp_path / "l.jsonl"
    runner = GradingRunner(
        {"right": grader(lambda extra: extra["right"])}, drop_if="flat(reward)", ledger=Ledger(path)
    )
    rollouts = [
        Rollout(prompt=str(group), response="x", extra={"right": float(group < 36 or member < 2)})
        for group in range(56)
        for member in range(4)
    ]
    runner.run_sync(rollouts)
    table = whole_table(path)
    summary = runner.metrics.summary()
    assert summary["judgekit/reward_mean"] == 0.5
    side = comparison(table, table)["before"]
    assert (side["reward_mean"], side["missing"], side["unfinished"], side["rollouts"]) == (0.5, 0, 0, 224)
    (saturation,) = [one.text for one in signals(table) if one.name == "saturation" and "highest" in one.text]
    assert "50.0% of 80 rewards" in saturation
    assert saturation in [one.text for one in runner.metrics.counts.signals()]
