"""Replay: other weights without a call; and only failures are judged again."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judgekit import (
    ConfigError,
    DataError,
    Gate,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Rollout,
    RolloutError,
    Score,
    Switch,
    Weighted,
    from_function,
    grader,
    read_ledger,
)
from judgekit.ledger import writer
from judgekit.ledger.schema import RESUMES
from judgekit.replay import FailedOnce, known_grades, recompute, replay

calls: list[str] = []


@grader
def size(response: str) -> float:
    calls.append(response)
    return len(response) / 10


@grader
async def judge(response: str) -> float:
    calls.append(response)
    if response == "xx":
        raise JudgeUnavailable("down")
    return 1 - len(response) / 10


class Quality:
    name, version, score_range, outputs = "quality", "1", (0.0, 1.0), ("clear", "kind")

    def grade(self, rollout: Rollout) -> dict[str, float]:
        return {"clear": 0.25, "kind": 0.75}


ROLLOUTS = [Rollout(group=i // 2, response="x" * i, prompt="p") for i in range(4)]


def in_order(found: Any) -> list[float | None]:
    pairs = zip(found.entries, found.results, strict=True)
    return [result.reward for _, result in sorted(pairs, key=lambda pair: pair[0].index)]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "l.jsonl"
    reward = Weighted({"size": 0.5, "judge": 0.5, "quality.clear": 0, "quality.kind": 0})
    runner = GradingRunner(
        {"size": size, "judge": judge, "quality": Quality()}, reward, ledger=Ledger(path, texts=True)
    )
    runner.run_sync(ROLLOUTS)
    calls.clear()
    return path


def rewards(ledger: Path, *args: object, **options: object) -> list[float | None]:
    found = replay(ledger, *args, **options)  # type: ignore[arg-type]
    by_response = {e.response: r.reward for e, r in zip(found.entries, found.results, strict=True)}
    return [by_response[r.response] for r in ROLLOUTS]


def test_the_same_reward_comes_out_without_a_call(ledger: Path) -> None:
    assert rewards(ledger) == [0.5, pytest.approx(0.5), None, pytest.approx(0.5)]
    assert calls == []


def test_other_weights_transforms_and_policies(ledger: Path) -> None:
    assert rewards(ledger, {"size": 1.0}) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert rewards(ledger, {"quality.kind": 1, "quality.clear": 1}) == [1.0] * 4
    assert rewards(ledger, missing_reward="neutral") == pytest.approx([0.5, 0.5, 0.5, 0.5])
    assert rewards(ledger, {"size": 1.0}, transform="rank") == [0.0, 1.0, 0.0, 1.0]
    assert rewards(ledger, Gate(if_=Score("size") >= 0.2, then=0.5, otherwise="judge")) == pytest.approx(
        [1.0, 0.9, 0.5, 0.5]
    )
    assert calls == []


def test_a_grade_that_was_skipped_then_is_missing_now(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    reward = Gate(if_=Score("size") >= 0.2, then="judge", otherwise=0)
    GradingRunner({"size": size, "judge": judge}, reward, ledger=Ledger(path)).run_sync(ROLLOUTS)
    found = replay(path, {"judge": 1.0})
    errors = {
        e.index: getattr(r.grades["judge"], "error", None)
        for e, r in zip(found.entries, found.results, strict=True)
    }
    assert errors == {0: "NotRecorded", 1: "NotRecorded", 2: "JudgeUnavailable", 3: None}


def test_a_ledger_of_a_replay_keeps_every_grade(ledger: Path, tmp_path: Path) -> None:
    """Also of graders that the new reward does not read, and of those behind a gate that is not passed now."""
    before = {entry.response: entry.grades for entry in read_ledger(ledger).entries}
    for i, reward in enumerate([{"size": 1.0}, Gate(if_=Score("size") >= 1, then="judge", otherwise=0)]):
        kept = Ledger(tmp_path / f"{i}")
        replay(ledger, reward).write(kept)
        again = read_ledger(kept.path)
        assert {entry.response: entry.grades for entry in again.entries} == before
        assert rewards(kept.path, {"judge": 1.0}) == rewards(ledger, {"judge": 1.0})


async def test_what_a_gate_had_kept_from_a_grader_can_be_asked_of_a_replays_ledger(tmp_path: Path) -> None:
    rollouts = [Rollout(response="x" * n, group=n % 2, id=str(n)) for n in (1, 2, 3, 4, 5, 6)]

    @grader
    def half(response: str) -> float:
        return 0.5

    def made(path: Path, reward: Any) -> GradingRunner:
        return GradingRunner({"size": size, "judge": half}, reward, ledger=Ledger(path, texts=True))

    gate = Gate(if_=Score("size") >= 0.4, then="judge", otherwise=0)
    await made(tmp_path / "l", gate).run(rollouts)
    kept = Ledger(tmp_path / "flat", texts=True)
    flat = {"judge": 1.0, "size": 0.0}
    replay(tmp_path / "l", flat).write(kept)
    kept.close()
    once = FailedOnce(read_ledger(kept.path), made(tmp_path / "again", flat))
    assert once.failed == 3
    assert [r.reward for r in (await once.ask()).results] == [0.5] * 6
    places = {(entry.index, entry.id) for entry in read_ledger(tmp_path / "again").entries}
    assert places == set(enumerate("123456"))  # groups that are mixed keep their order


async def test_only_failures_are_judged_again(ledger: Path, tmp_path: Path) -> None:
    @grader
    async def better(response: str) -> float:
        calls.append(response)
        return 0.0

    better.name = "judge"
    runner = GradingRunner(
        {"size": size, "judge": better}, {"size": 0.5, "judge": 0.5}, ledger=Ledger(tmp_path / "again.jsonl")
    )
    again = await FailedOnce(read_ledger(ledger), runner).ask()
    found = {
        entry.response: result.reward for entry, result in zip(again.entries, again.results, strict=True)
    }
    assert [found[r.response] for r in ROLLOUTS] == pytest.approx([0.5, 0.5, 0.1, 0.5])
    assert (calls, again.asked, again.still_failed) == (["xx"], 1, 0)
    assert len(read_ledger(tmp_path / "again.jsonl").entries) == 4


def test_faults_are_said(ledger: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no grades of; did you mean 'judge'"):
        replay(ledger, {"jugde": 1.0})
    with pytest.raises(DataError, match="cannot read"):
        replay(tmp_path / "none")


async def test_whole_trajectories_are_graded_again(tmp_path: Path) -> None:
    """What a grader reads is in the ledger: the messages, too."""
    failing = [True]

    @grader
    def turns(rollout: Rollout) -> float:
        if failing[0]:
            raise ConnectionError("gone")
        return len(rollout.messages) / 10

    path = tmp_path / "l"
    rollout = Rollout(
        response="b", messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    )
    await GradingRunner([turns], ledger=Ledger(path, texts=True)).run([rollout])
    failing[0] = False
    (again,) = (await FailedOnce(read_ledger(path), GradingRunner([turns])).ask()).results
    assert again.reward == 0.2


@given(
    runs=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 1.0, None, "broken"])), max_size=9),
        min_size=1,
        max_size=3,
    ).filter(any),
    transform=st.sampled_from(["none", "center", "zscore", "rank", "loo"]),
    missing=st.sampled_from(["exclude", "mask", "neutral", 0.5]),
    tree=st.sampled_from(["a", {"a": 1.0, "b": 0.5}, {"a": 0.7, "size": 0.3}]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_replay_with_nothing_new_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, runs: Any, transform: Any, missing: Any, tree: Any
) -> None:
    @grader
    def a(rollout: Rollout) -> float | None:
        value = rollout.extra["a"]
        if value == "broken":
            raise ConnectionError
        return None if value is None else float(value)

    @grader
    def b(rollout: Rollout) -> float:
        return 1.0 if rollout.extra["a"] == 1.0 else 0.0

    path = tmp_path_factory.mktemp("replay") / "l"
    names = [tree] if isinstance(tree, str) else list(tree)
    runner = GradingRunner(
        {name: found for name, found in {"a": a, "b": b, "size": size}.items() if name in names},
        tree,
        transform=transform,
        missing_reward=missing,
        ledger=Ledger(path, fsync="never"),
    )
    for run in runs:
        runner.run_sync([Rollout(response="x" * g, group=g, extra={"a": v}) for g, v in run])
    again = replay(path)
    assert len(again.entries) == sum(map(len, runs))
    for entry, result in zip(again.entries, again.results, strict=True):
        assert (result.status, result.reward) == (entry.status, entry.reward)


async def test_two_groups_of_one_id_stay_two_groups(tmp_path: Path) -> None:
    """As where a stream comes back to a prompt, or `run_groups` has one prompt twice."""
    down = [True]

    @grader
    def a(response: str) -> float:
        if down[0] and len(response) == 7:
            raise ConnectionError
        return len(response) / 10

    def made(path: Path) -> GradingRunner:
        return GradingRunner([a], transform="center", ledger=Ledger(path, texts=True))

    path = tmp_path / "l"
    pairs = [[Rollout(response="x" * n, prompt="p") for n in sizes] for sizes in ((1, 3), (5, 8, 7))]
    first = [r.reward for group in await made(path).run_groups(pairs) for r in group]
    assert first == pytest.approx([-0.1, 0.1, -0.15, 0.15, None])

    assert in_order(replay(path)) == first
    down[0] = False
    again = in_order(await FailedOnce(read_ledger(path), made(tmp_path / "again")).ask())
    assert again == [r.reward for group in await made(tmp_path / "new").run_groups(pairs) for r in group]


def test_each_score_is_checked_against_the_range_of_its_own_run(tmp_path: Path) -> None:
    """Else grades of another version of a grader would have failed."""

    class Ranged:
        name, version = "g", "1"

        def __init__(self, low: float) -> None:
            self.score_range = (low, 1.0)

        def grade(self, rollout: Rollout) -> float:
            if not rollout.response:
                raise RolloutError("empty")
            return self.score_range[0] / 2

    path, kept = tmp_path / "l", Ledger(tmp_path / "kept")
    for low in (-1.0, 0.0):
        runner = GradingRunner([Ranged(low)], ledger=Ledger(path))
        runner.run_sync([Rollout(response="x"), Rollout(response="")])
    first = [entry.reward for entry in read_ledger(path).entries]
    assert first == [-0.5, -1.0, 0.0, 0.0]
    replay(path).write(kept)
    for ledger in (path, kept.path):
        assert [result.reward for result in replay(ledger).results] == first


def test_a_penalty_without_a_lowest_score_is_replayed_under_other_weights(tmp_path: Path) -> None:
    """What a rollout that breaks it is paid need not be said again: it has broken it or not."""
    penalty = from_function(
        lambda response: -float(len(response)), name="penalty", score_range=(-math.inf, 0)
    )
    ledger = Ledger(tmp_path / "l")
    GradingRunner([penalty], Score("penalty", if_broken=-9.0), ledger=ledger).run_sync(ROLLOUTS)
    ledger.flush()
    assert in_order(replay(ledger.path, {"penalty": 0.5})) == [0, -0.5, -1, -1.5]


async def test_a_rollout_without_all_its_grades_gets_no_reward(tmp_path: Path) -> None:
    """It waited when the run ended: `if_missing` is for grades that failed."""

    @grader
    async def slow(response: str) -> float:
        await asyncio.sleep(0 if response == "xx" else 3600)
        return 1.0

    path, kept = tmp_path / "l", Ledger(tmp_path / "kept")
    tree = Weighted({"size": 0.5, "slow": (0.5, Score("slow", if_missing=0.0))})
    ledger = Ledger(path)
    running = asyncio.create_task(GradingRunner([size, slow], tree, ledger=ledger).run(ROLLOUTS))
    while ledger.flush() and (not path.exists() or len(read_ledger(path).entries) < 1):
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    found = replay(path)
    found.write(kept)
    for again in (found, replay(kept.path)):
        told = {
            e.response_chars: (r.status, r.reward) for e, r in zip(again.entries, again.results, strict=True)
        }
        assert told == {2: ("scored", pytest.approx(0.6)), **{n: ("unfinished", None) for n in (0, 1, 3)}}
    assert [r.reward for r in replay(path, {"size": 1.0}).results].count(None) == 3


async def test_a_group_of_which_a_part_was_graded_again_is_still_compared_as_a_whole(tmp_path: Path) -> None:
    runner = GradingRunner([size], transform="center", ledger=Ledger(tmp_path / "l", texts=True))
    await runner.run(ROLLOUTS[::2] + ROLLOUTS[1::2])
    some = ROLLOUTS[:1]
    known = known_grades(read_ledger(tmp_path / "l", replaced=True), runner, some)
    await runner.run(some, known=known.grades, tags={RESUMES: known.runs})
    entries = read_ledger(tmp_path / "l").entries
    found = replay(tmp_path / "l")
    assert found.entries == entries
    assert [r.reward for r in found.results] == [e.reward for e in entries]
    assert [r.index for r in found.results] == [0, 1, 2, 3]


async def test_what_a_run_filled_stays_filled(tmp_path: Path) -> None:
    """By the mean of its run, whichever rollouts came first, or of the runs before."""

    @grader(score_range=(-1e100, 1e100))
    async def late(rollout: Rollout) -> float:
        for _ in range(rollout.extra["waits"]):
            await asyncio.sleep(0)
        if rollout.group == "down":
            raise ConnectionError
        return float(rollout.response)

    path = tmp_path / "l"
    runner = GradingRunner([late], missing_reward="neutral", ledger=Ledger(path))
    fills = []
    for order in (1, -1):
        values = [("x", "1e100"), ("y", "0.1"), ("z", "-1e100"), ("w", "0.3"), ("down", "0")]
        fills.append((await runner.run([
            Rollout(response=text, group=group, extra={"waits": order * i % 7})
            for i, (group, text) in enumerate(values)
        ]))[-1].reward)  # fmt: skip
    assert fills == [0.1, 0.1]
    await runner.run([Rollout(response="0", group="down", extra={"waits": 0})])
    found = replay(path)
    assert [r.reward for r in found.results] == [e.reward for e in found.entries]
    assert replay(path, {"late": 2.0}).results[4].reward == 0.2
    # without the groups that are dropped now, another mean
    assert replay(path, drop_if="share(reward > 1) >= 1").results[4].reward == pytest.approx(-1e100 / 3)


@pytest.mark.parametrize("given", [None, "prompt"])
def test_a_switch_by_group_reads_the_id_that_the_host_gave(given: str | None, tmp_path: Path) -> None:
    tree = Switch({"p*": "size"}, by="group", otherwise=0.5)
    runner = GradingRunner([size], tree, ledger=Ledger(tmp_path / "l", texts=True))
    (first,) = runner.run_sync([Rollout(response="xx", prompt="p", group=given)])
    found = replay(tmp_path / "l")
    assert (found.results[0].reward, found.results[0].group) == (first.reward, first.group)


@pytest.mark.parametrize("texts", [True, False])
def test_a_switch_is_replayed_by_what_the_ledger_holds(texts: bool, tmp_path: Path) -> None:
    """Without texts every rollout took `otherwise`, without a word."""
    kinds = Switch({"hard": Weighted({"size": 10.0})}, by="extra.kind", otherwise="size")
    runner = GradingRunner([size], kinds, ledger=Ledger(tmp_path / "l", texts=texts))
    rollouts = [Rollout(response="xx", extra={"kind": kind}, group=kind) for kind in ("hard", "easy")]
    rewards = [r.reward for r in runner.run_sync(rollouts)]
    assert rewards == [2.0, 0.2]
    if texts:
        assert [r.reward for r in replay(tmp_path / "l").results] == rewards
    else:
        with pytest.raises(DataError, match=r"switches by extra.*Ledger\(texts=True\)"):
            replay(tmp_path / "l")


def test_a_switch_by_data_source_needs_no_texts(tmp_path: Path) -> None:
    kinds = Switch({"hard": Weighted({"size": 10.0})}, otherwise="size")
    runner = GradingRunner([size], kinds, ledger=Ledger(tmp_path / "l"))
    rewards = [r.reward for r in runner.run_sync([Rollout(response="xx", data_source="hard")])]
    assert [r.reward for r in replay(tmp_path / "l").results] == rewards == [2.0]


def test_a_large_replay_waits_for_the_disk(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It handed its lines over faster than they were written, and what was beyond the limit was lost."""
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 50_000)
    monkeypatch.setattr(recompute, "_LINES", 50, raising=False)
    one = replay(ledger)
    kept = Ledger(tmp_path / "new.jsonl")
    msgspec.structs.replace(one, entries=list(one.entries) * 100, results=list(one.results) * 100).write(kept)
    kept.close()
    written = (tmp_path / "new.jsonl").read_bytes().splitlines()
    assert (len(written), kept.dropped) == (1 + 100 * len(one.entries), 0)
