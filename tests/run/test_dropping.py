"""Groups that teach nothing leave the batch: exactly, counted, and in a replay, too."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    Abstained,
    ConfigError,
    GradingRunner,
    Ledger,
    MissingRewardError,
    RewardResult,
    Rollout,
    flat,
    grader,
    read_ledger,
    share,
    spread,
)
from judgekit.ledger.schema import Spec
from judgekit.metrics import Counts
from judgekit.replay import replay
from judgekit.reward.dropping import DropIf
from judgekit.trainers import hosted_runner

NO = Abstained("no")


class Given:
    name = "a"
    version = "1"
    score_range = (-1.0, 1.0)

    def grade(self, rollout: Rollout, /) -> Any:
        return rollout.extra["a"]


def runner(**settings: Any) -> GradingRunner:
    return GradingRunner({"a": Given()}, "a", **{"drop_if": "spread(reward) < 0.02", **settings})


def rollouts(*groups: Sequence[Any]) -> list[Rollout]:
    return [
        Rollout(response="r", group=f"g{number}", id=f"{number}-{i}", extra={"a": score})
        for number, scores in enumerate(groups)
        for i, score in enumerate(scores)
    ]


def told(results: Sequence[RewardResult]) -> list[tuple[float | None, str]]:
    return [(result.reward, result.status) for result in results]


FLAT, MIXED = [1, 1, 0.99], [1, 0, 1]


def test_a_group_that_meets_it_is_left_out_with_its_number() -> None:
    results = runner().run_sync(rollouts(FLAT, MIXED))
    assert told(results) == [(None, "dropped")] * 3 + [(1, "scored"), (0, "scored"), (1, "scored")]
    assert results[0].raw_reward == 1
    assert results[0].group_numbers == {"spread(reward)": pytest.approx(0.01)}
    assert results[0].policies == ("dropped by drop_if: spread(reward) < 0.02",)
    assert results[3].group_numbers == {}
    assert runner().explain(results[2]).split("\n")[:2] == [
        "a = 0.99",
        "dropped with its group: spread(reward) = 0.01",
    ]


@pytest.mark.parametrize("missing_reward", ["exclude", "mask", "neutral", 0.5])
def test_nothing_else_moves(missing_reward: Any) -> None:
    """Rewards of other groups are those of a batch in which the dropped group never was."""
    others = rollouts([], MIXED, [NO, 1, 0], [0.5, NO, NO], [NO, NO])
    for transform in ("none", "zscore", "loo", "rank"):
        made = runner(missing_reward=missing_reward, transform=transform)
        alone = made.run_sync(others)
        beside = runner(missing_reward=missing_reward, transform=transform).run_sync(rollouts(FLAT) + others)
        assert told(beside)[3:] == told(alone)
        assert {status for _, status in told(beside)[:3]} == {"dropped"}


def test_missing_members_of_a_dropped_group_stay_excluded() -> None:
    assert told(runner().run_sync(rollouts([1, 1, NO]))) == [(None, "dropped")] * 2 + [(None, "excluded")]
    paid = runner(missing_reward=0.25)
    assert told(paid.run_sync(rollouts([1, 1, NO]))) == [(None, "dropped")] * 2 + [(None, "excluded")]
    assert told(paid.run_sync(rollouts([1, 0, NO])))[2] == (0.25, "constant")
    assert told(runner(missing_reward="mask").run_sync(rollouts([1, 1, NO])))[2] == (None, "masked")
    with pytest.raises(MissingRewardError):
        runner(missing_reward="raise").run_sync(rollouts([1, 1, NO]))


def test_hosts_that_need_numbers_get_one_for_all_members() -> None:
    neutral = runner(missing_reward="neutral")
    results = neutral.run_sync(rollouts([0.5, 0.51, NO]))
    assert [status for _, status in told(results)] == ["dropped", "dropped", "neutral"]
    assert {reward for reward, _ in told(results)} == {0.505}


@pytest.mark.parametrize("scores", [[1], [1, NO], [NO, NO]])
def test_an_undecided_group_stays(scores: list[Any]) -> None:
    """A validation's only rollout is paid."""
    assert "dropped" not in {status for _, status in told(runner().run_sync(rollouts(scores)))}


def test_it_looks_at_raw_rewards() -> None:
    flat_after = runner(transform="zscore", drop_if="share(reward >= 1) > 0.5")
    assert {status for _, status in told(flat_after.run_sync(rollouts(MIXED)))} == {"dropped"}
    assert {status for _, status in told(flat_after.run_sync(rollouts([1, 0, 0.5])))} == {"scored"}


@pytest.mark.parametrize(
    "condition",
    [
        flat("reward"),
        "flat(reward) and share(reward >= 1) > 0.9",
        spread("reward") < 0.5,
        share("reward < 0") <= 0.5,
    ],
)
def test_it_is_written_in_text_or_python(condition: Any) -> None:
    made = runner(drop_if=condition)
    assert made.settings.drop_if == str(condition)
    assert told(made.run_sync(rollouts([1, 1])))[0] == (None, "dropped")
    assert told(pickle.loads(pickle.dumps(made)).run_sync(rollouts([1, 1])))[0] == (None, "dropped")


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("spread(correct) < 0.1", "looks at the rewards of a group"),
        ("reward < 0.5", "looks at the rewards of a group"),
        ("flat(reward) and reward > 0.5", "looks at the rewards of a group"),
        ("spread(reward)", "drop_if: spread\\(reward\\) is a number"),
        ("flat(", "drop_if: 'flat\\(' is not a condition"),
        (True, "is not a condition"),
        (0.02, "is not a condition"),
    ],
)
def test_what_it_cannot_be_is_said(condition: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        runner(drop_if=condition)
    with pytest.raises(ConfigError, match=why):
        DropIf(condition)


def test_it_is_counted_and_gives_nothing_to_any_mean() -> None:
    made = runner()
    results = made.run_sync(rollouts(FLAT, [0.5, 0]))
    figures = made.metrics.summary("")
    assert figures["dropped_rate"] == 0.6
    assert figures["reward_mean"] == 0.25
    assert figures["flat_group_rate"] == 0
    counts = Counts()
    for result in results:
        counts.add(result)
    assert counts.missing == 0
    assert not list(counts.trouble())


def test_a_validation_drops_nothing(tmp_path: Path) -> None:
    made = runner(ledger=Ledger(tmp_path / "ledger.jsonl"))
    results = made.run_sync(rollouts(FLAT), tags={"phase": "eval"})
    asyncio.run(made.close())
    assert {status for _, status in told(results)} == {"scored"}
    assert {status for _, status in told(replay(tmp_path / "ledger.jsonl").results)} == {"scored"}


def test_streams_wait_for_the_group() -> None:
    async def streamed() -> list[RewardResult]:
        return [result async for result in runner().stream(rollouts(FLAT, MIXED))]

    results = sorted(asyncio.run(streamed()), key=lambda result: result.index)
    assert told(results) == told(runner().run_sync(rollouts(FLAT, MIXED)))
    assert runner().needs_group


def test_a_ledger_is_replayed_with_it_and_with_another(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    made = runner(ledger=Ledger(path))
    before = told(made.run_sync(rollouts(FLAT, MIXED)))
    asyncio.run(made.close())
    (spec,) = read_ledger(path).specs.values()
    assert spec.drop_if == "spread(reward) < 0.02"
    assert sorted(told(replay(path).results), key=str) == sorted(before, key=str)
    assert {status for _, status in told(replay(path, drop_if="").results)} == {"scored"}
    assert {status for _, status in told(replay(path, drop_if="share(reward >= 0) > 0.5").results)} == {
        "dropped"
    }
    replay(path).write(other := Ledger(tmp_path / "other.jsonl"))
    other.close()
    assert [entry.status for entry in read_ledger(tmp_path / "other.jsonl").entries].count("dropped") == 3


def test_ledgers_without_it_have_the_digests_that_they_had() -> None:
    plain: dict[str, Any] = {"reward": "a", "transform": "none", "missing_reward": "exclude"}
    assert Spec.of({}, **plain).digest == Spec.of({}, **plain, drop_if=None).digest
    assert Spec.of({}, **plain).digest != Spec.of({}, **plain, drop_if="flat(reward)").digest


def test_hosts_that_cannot_exclude_refuse_it() -> None:
    def hosted(grouped: bool = True, can_exclude: bool = True, **settings: Any) -> Any:
        return hosted_runner(
            runner=runner(**settings),
            grouped=grouped,
            can_mask=True,
            can_exclude=can_exclude,
            grouping_hint="add the hook",
        )

    assert hosted().exclude
    # the adapter leaves out whatever is not scored, and writes one number for all where the trainer needs one
    made = hosted()
    results = made.runner.run_sync(rollouts(FLAT))
    assert set(told(results)) == {(None, "dropped")}
    assert len(set(made.numbers(results))) == 1
    with pytest.raises(
        ConfigError,
        match="drop_if leaves whole groups out of the training; this trainer cannot leave one out",
    ):
        hosted(can_exclude=False)
    with pytest.raises(ConfigError, match="hands over rollouts one at a time: add the hook"):
        hosted(grouped=False)
    with pytest.raises(ConfigError, match="write missing_reward: exclude, not 0.5"):
        hosted(missing_reward=0.5)


@pytest.mark.parametrize("transform", ["center", "zscore", "rank", "loo", "gdpo"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_validation_has_no_transform(tmp_path: Path, transform: Any, size: int) -> None:
    """verl validates with one response a prompt, of which nothing is left when it is compared with itself."""

    @grader
    def right(response: str) -> float:
        return float(response == "4")

    ledger = Ledger(tmp_path / "l.jsonl", texts=True)
    made = GradingRunner({"right": right}, {"right": 2.0}, transform=transform, ledger=ledger)
    batch = [Rollout(prompt=str(p), response="4" if p else "5") for p in range(2) for _ in range(size)]
    results = made.run_sync(batch, tags={"phase": "eval"})
    assert [(r.reward, r.status) for r in results] == [
        (2.0 * bool(i // size), "scored") for i in range(2 * size)
    ]
    assert transform not in made.explain(results[-1])
    ledger.close()
    again = replay(tmp_path / "l.jsonl")
    pairs = zip(again.entries, again.results, strict=True)
    assert {entry.index: r.reward for entry, r in pairs} == {r.index: r.reward for r in results}
    trained = made.run_sync(batch)
    assert [r.reward for r in trained] != [r.reward for r in results]
