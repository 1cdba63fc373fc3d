"""What a changed reward does to GRPO's advantages."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from judgekit import GradingRunner, Ledger, Rollout, Weighted, from_function
from judgekit.report.comparison import comparison
from judgekit.report.page import whole_table

from .test_table import append, entry


def pair(tmp_path: Path, before: list[Any], after: list[Any]) -> dict[str, Any]:
    """Compare two ledgers of the same rollouts. A reward is (group, reward) or (group, reward, source)."""
    for name, rows in (("before", before), ("after", after)):
        firsts: dict[int, int] = {}
        entries = []
        for i, (group, reward, *source) in enumerate(rows):
            first = firsts.setdefault(group, i)
            given = {
                "reward": reward,
                "raw_reward": reward,
                "status": "excluded" if reward is None else "scored",
            }
            entries.append(
                entry(i, group=group, group_first=first, run=name, data_source="".join(source), **given)
            )
        append(tmp_path / f"{name}.jsonl", *entries)
    found: dict[str, Any] = comparison(
        whole_table(tmp_path / "before.jsonl"), whole_table(tmp_path / "after.jsonl")
    )["gradient"]
    return found


def grpo(rewards: list[float | None]) -> list[float]:
    """An independent GRPO: over the members with a reward, with the sample's standard deviation."""
    known = [r for r in rewards if r is not None]
    if len(known) < 2 or max(known) - min(known) < 1e-9:
        return [0.0] * len(rewards)
    mean, std = statistics.fmean(known), statistics.stdev(known)
    return [0.0 if r is None else (r - mean) / std for r in rewards]


def test_the_cosine_is_that_of_grpos_advantages(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [(g, rng.choice("ab")) for g in range(40)]
    groups = [(g, source) for g, source in rows for _ in range(6)]
    sides = [
        [(g, rng.choice([None, 0.0, 1.0, rng.random()]), source) for g, source in groups] for _ in range(2)
    ]
    found = pair(tmp_path, *sides)
    advantages = []
    for side in sides:
        by_group: dict[int, list[float | None]] = defaultdict(list)
        for g, reward, _ in side:
            by_group[g].append(reward)
        advantages.append([a for rewards in by_group.values() for a in grpo(rewards)])

    def cosine(kept: str) -> float:
        pairs = [(x, y) for x, y, (_, s) in zip(*advantages, groups, strict=True) if s in kept]
        dot, xx, yy = (sum(p) for p in zip(*((x * y, x * x, y * y) for x, y in pairs), strict=True))
        return dot / math.sqrt(xx * yy)

    assert found["cosine"] == pytest.approx(cosine("ab"), abs=1e-12)
    assert found["cosine_by_source"] == {s: pytest.approx(cosine(s), abs=1e-12) for s in "ab"}
    assert found["groups"] == 40


def test_it_counts_what_becomes_of_groups(tmp_path: Path) -> None:
    before = [(0, 0.0), (0, 1.0), (1, 0.5), (1, 0.5), (2, 0.0), (2, 1.0), (3, 0.2), (3, 0.7), (4, 1.0)]
    after = [(0, 1.0), (0, 0.0), (1, 0.5), (1, 0.9), (2, 0.3), (2, 0.3), (3, 0.4), (3, 0.9), (4, 0.0)]
    found = pair(tmp_path, before, after)
    counts = {
        k: found[k] for k in ("groups", "flat_before", "flat_after", "became_flat", "stopped_being_flat")
    }
    assert counts == {
        "groups": 4,
        "flat_before": 1,
        "flat_after": 1,
        "became_flat": 1,
        "stopped_being_flat": 1,
    }
    assert found["best_changed"] == 1
    # the group that is turned round moves most; the one that is only shifted does not move
    assert [group["group"] for group in found["most"]] == ["0", "1", "2"]
    assert found["most"][0]["cosine"] == pytest.approx(-1.0)
    assert found["most"][1]["cosine"] is None


def test_a_missing_reward_is_in_no_group(tmp_path: Path) -> None:
    found = pair(tmp_path, [(0, 0.0), (0, 1.0), (0, None)], [(0, 0.0), (0, 1.0), (0, 0.5)])
    (group,) = found["most"]
    assert group["members"][2]["rewards"] == [None, 0.5]
    assert group["members"][2]["advantages"] == [0.0, 0.0]
    assert [m["advantages"][0] for m in group["members"]] == pytest.approx(
        [-math.sqrt(0.5), math.sqrt(0.5), 0.0]
    )


def test_nothing_in_common_has_no_gradient(tmp_path: Path) -> None:
    found = pair(tmp_path, [(0, 0.0), (1, 1.0)], [(0, 0.0), (1, 1.0)])
    assert (found["groups"], found["cosine"], found["most"]) == (0, None, [])


def test_of_a_group_the_rollout_that_moves_most_is_explained(tmp_path: Path) -> None:
    before: list[Any] = [(0, 1.0), (0, 0.0), (0, 0.0), (0, 0.0)]
    after: list[Any] = [(0, 0.0), (0, 0.5), (0, 0.5), (0, 0.0)]
    for name, rows in (("before", before), ("after", after)):
        # the later ledger has them in another order
        entries = [
            entry(i, group=group, group_first=0, run=name, reward=reward, raw_reward=reward)
            for i, (group, reward) in enumerate(rows)
        ]
        append(tmp_path / f"{name}.jsonl", *(entries if name == "before" else reversed(entries)))
    tables = [whole_table(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    (group,) = comparison(*tables)["gradient"]["most"]
    rewards = {member["id"]: member["rewards"] for member in group["members"]}
    assert rewards == {"0": [1, 0], "1": [0, 0.5], "2": [0, 0.5], "3": [0, 0]}
    row = group["explained"]["row"]
    assert tables[1].texts["id"][row] == "0"


def words(response: str, ground_truth: str) -> float:
    return float(len(response.split()))


def test_a_reward_with_a_function_without_a_range_is_explained(tmp_path: Path) -> None:
    rollouts = [Rollout(response="a " * n, prompt="p", ground_truth="g", id=str(n)) for n in range(1, 4)]
    for name, weight in (("before", 1.0), ("after", -1.0)):
        runner = GradingRunner(
            {"words": from_function(words)},
            Weighted({"words": weight}),
            ledger=Ledger(tmp_path / f"{name}.jsonl", texts=True),
        )
        runner.run_sync(rollouts)
    tables = [whole_table(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    (group,) = comparison(*tables)["gradient"]["most"]
    for said in (group["explained"]["before"], group["explained"]["after"]):
        assert said.startswith("weighted = ")
        assert "words" in said


def test_runs_that_lie_mixed_in_a_ledger_are_told_apart(tmp_path: Path) -> None:
    """Two commands graded the same rollouts at the same time."""
    lines = [(run, group, member) for group in range(6) for member in range(4) for run in ("one", "two")]
    random.Random(2).shuffle(lines)
    for name, kept in (("both", ("one", "two")), ("alone", ("one",))):
        entries = [
            entry(
                4 * group + member,
                group=group,
                group_first=4 * group,
                run=run,
                reward=float(member % 2),
                raw_reward=float(member % 2),
            )
            for run, group, member in (lines if name == "both" else sorted(lines))
            if run in kept
        ]
        append(tmp_path / f"{name}.jsonl", *entries)
    both, alone = (whole_table(tmp_path / f"{name}.jsonl") for name in ("both", "alone"))
    for sides in ((both, alone), (alone, both)):
        found = comparison(*sides)["gradient"]
        assert (found["groups"], found["flat_before"], found["flat_after"]) == (6, 0, 0)
