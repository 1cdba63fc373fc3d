"""Going on where a run ended early: nothing is asked twice, and nothing stale is taken."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import (
    Abstained,
    ConfigError,
    DataError,
    Failed,
    Gate,
    Grade,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Rollout,
    RolloutError,
    Weighted,
    grader,
    group_grader,
    read_ledger,
)
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import RESUMES
from judgekit.replay import FailedOnce, known_grades


class Judge:
    """Counts what it is asked; fails or breaks where the response says so."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.down = False
        self.after = 10**9

    async def grade(self, rollout: Rollout, /) -> Grade:
        await asyncio.sleep(0)
        if sum(self.asked.values()) >= self.after:
            await asyncio.sleep(3600)
        self.asked[rollout.response] += 1
        if self.down:
            raise JudgeUnavailable("down")
        if "bomb" in rollout.response:
            raise RolloutError("a bomb")
        if "pass" in rollout.response:
            return Abstained("no opinion")
        return Graded(len(rollout.response) % 10 / 10)


def batch(count: int = 24) -> list[Rollout]:
    texts = [
        f"response {i}" + (" bomb" if i % 7 == 3 else " pass" if i % 7 == 5 else "") for i in range(count)
    ]
    return [Rollout(prompt=f"p{i // 4}", ground_truth="1", response=text) for i, text in enumerate(texts)]


async def resumed(runner: GradingRunner, path: Path, rollouts: Sequence[Rollout], **tags: Any) -> list[Any]:
    known = known_grades(read_ledger(path, replaced=True), runner, rollouts)
    return await runner.run(rollouts, known=known.grades, tags={**tags, RESUMES: known.runs})


async def test_a_run_that_was_stopped_goes_on_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    expected = [r.reward for r in await GradingRunner({"judge": Judge()}, {"judge": 1.0}).run(batch())]
    judge = Judge()
    runner = GradingRunner(
        {"judge": judge}, {"judge": 1.0}, ledger=Ledger(tmp_path / "l.jsonl"), transform="center"
    )
    rewards = []
    for stop in (5, 11, 17, 10**9):
        judge.after = stop
        running = asyncio.create_task(resumed(runner, tmp_path / "l.jsonl", batch())) if stop > 5 else None
        running = running or asyncio.create_task(runner.run(batch()))
        done, _ = await asyncio.wait([running], timeout=1.0 if stop < 100 else 30)
        if done:
            rewards = [r.raw_reward for r in await running]
        running.cancel()
        await asyncio.wait([running])
    assert rewards == expected
    assert set(judge.asked.values()) == {1}
    assert sum(judge.asked.values()) == 24
    reading = read_ledger(tmp_path / "l.jsonl")
    assert len(reading.entries) == 24  # those of the runs before are replaced
    assert reading.replaced > 0
    assert len(read_ledger(tmp_path / "l.jsonl", replaced=True).entries) == 24 + reading.replaced
    finished = {e.run for e in reading.entries}
    again = await resumed(runner, tmp_path / "l.jsonl", batch())
    assert [r.raw_reward for r in again] == expected
    reading = read_ledger(tmp_path / "l.jsonl")
    assert (
        len({e.run for e in reading.entries} - finished) == 1
    )  # the last run's lines, not the first's, count
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", e.run) for e in reading.entries)


async def test_failures_of_the_judge_are_asked_again_and_the_rollouts_own_are_not(tmp_path: Path) -> None:
    judge = Judge()
    judge.down = True
    runner = GradingRunner({"judge": judge}, ledger=Ledger(tmp_path / "l.jsonl"))
    assert {r.status for r in await runner.run(batch())} == {"excluded"}
    judge.down = False
    await resumed(runner, tmp_path / "l.jsonl", batch())
    assert set(judge.asked.values()) == {2}
    results = await resumed(runner, tmp_path / "l.jsonl", batch())
    assert set(judge.asked.values()) == {2}
    kinds = Counter(type(r.grades["judge"]).__name__ for r in results)
    assert kinds == {"Graded": 18, "Failed": 3, "Abstained": 3}
    assert all(r.grades["judge"].cause == "rollout" for r in results if isinstance(r.grades["judge"], Failed))
    assert sum(r.usage.calls for r in results) == 0


async def test_a_rollout_with_some_of_its_grades_is_asked_for_the_others(tmp_path: Path) -> None:
    """A reward without a gate asks all graders at once; what is known of one must not stand for the others."""
    judge, rule, group = Judge(), Counter[str](), Counter[str]()

    @grader
    def length(response: str) -> float:
        rule[response] += 1
        return 1.0

    @group_grader
    async def among(rollouts: Sequence[Rollout]) -> list[float]:
        group.update(rollout.response for rollout in rollouts)
        return [0.5] * len(rollouts)

    path = tmp_path / "l.jsonl"
    runner = GradingRunner(
        {"length": length, "judge": judge, "among": among},
        {"length": 1.0, "judge": 1.0, "among": 1.0},
        ledger=Ledger(path),
    )
    texts = [Rollout(prompt=f"p{i // 4}", ground_truth="1", response=f"response {i}") for i in range(16)]
    judge.down = True
    assert {r.reward for r in await runner.run(texts)} == {None}
    judge.down = False
    results = await resumed(runner, path, texts)
    assert [r.status for r in results] == ["scored"] * 16
    assert set(judge.asked.values()) == {2}
    assert set(rule.values()) == set(group.values()) == {1}
    again = await resumed(runner, path, texts)
    assert [r.reward for r in again] == [r.reward for r in results]
    assert set(judge.asked.values()) == {2}


async def test_what_a_gate_skipped_is_asked_if_the_gate_opens(tmp_path: Path) -> None:
    judge = Judge()

    def made(limit: int) -> GradingRunner:
        @grader
        def short(response: str) -> float:
            return float(len(response) < limit)

        tree = Gate(if_="short >= 1", then=Weighted({"judge": 1.0}), otherwise=0.0)
        return GradingRunner({"short": short, "judge": judge}, tree, ledger=Ledger(tmp_path / "l.jsonl"))

    await made(11).run(batch())
    first = sum(judge.asked.values())
    assert 0 < first < 24
    runner = made(100)
    known = known_grades(read_ledger(tmp_path / "l.jsonl"), runner, batch())
    fresh = [{key: grade for key, grade in grades.items() if key == "judge"} for grades in known.grades]
    await runner.run(batch(), known=fresh)
    assert set(judge.asked.values()) == {1}
    assert sum(judge.asked.values()) == 24


async def test_a_group_grader_is_asked_for_whole_groups(tmp_path: Path) -> None:
    asked: list[int] = []

    def made(*, fails: bool) -> GradingRunner:
        @group_grader
        async def rank(rollouts: Sequence[Rollout]) -> list[Grade]:
            asked.append(len(rollouts))
            return [
                Failed("JudgeTimeout", "late", retryable=True)
                if fails and r.prompt == "p1" and i == 2
                else Graded(i / 10)
                for i, r in enumerate(rollouts)
            ]

        return GradingRunner({"rank": rank}, ledger=Ledger(tmp_path / "l.jsonl"))

    await made(fails=True).run(batch())
    assert asked == [4] * 6
    results = await resumed(made(fails=False), tmp_path / "l.jsonl", batch())
    assert asked == [4] * 7
    assert all(isinstance(r.grades["rank"], Graded) for r in results)


class Rank:
    """Ranks a group's members, without ties, and keeps how many it was asked about; fails for the group `down`."""

    name, version, score_range = "rank", "1", (0.0, 1.0)

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.down = ""

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[float]:
        self.asked.append(len(rollouts))
        if rollouts[0].group == self.down:
            raise JudgeUnavailable("down")
        order = sorted(range(len(rollouts)), key=lambda i: rollouts[i].response)
        return [order.index(i) / len(order) for i in range(len(order))]


async def test_members_that_a_gate_kept_from_a_comparison_are_not_missing_in_it(tmp_path: Path) -> None:
    """All groups were asked about again, since nobody had compared those that the gate stops."""
    rank = Rank()
    path = tmp_path / "l"

    def made(passing: str, path: Path | None = None) -> GradingRunner:
        @grader
        def passes(response: str) -> float:
            return float(response in passing)

        tree = Gate(if_="passes >= 1", then="rank", otherwise=0.0)
        ledger = None if path is None else Ledger(path, texts=True)
        fingerprints = {"passes": passing}
        return GradingRunner({"passes": passes, "rank": rank}, tree, ledger=ledger, fingerprints=fingerprints)

    rollouts = [Rollout(response=text, group=g) for g in "xyz" for text in ("a", "b", "c", "d")]
    rank.down = "y"
    await made("ab", path).run(rollouts)
    rank.down = ""
    expected = [r.reward for r in await made("ab").run(rollouts)]
    rank.asked.clear()
    assert [r.reward for r in await resumed(made("ab"), path, rollouts)] == expected
    again = await FailedOnce(read_ledger(path), made("ab")).ask()
    assert Counter(r.reward for r in again.results) == Counter(expected)
    assert rank.asked == [2, 2]  # of y alone
    rank.asked.clear()
    opened = await resumed(made("abc"), path, rollouts)
    assert [r.reward for r in opened] == [r.reward for r in await made("abc").run(rollouts)]
    assert rank.asked == [3] * 6


async def test_a_comparison_of_other_members_is_not_taken(tmp_path: Path) -> None:
    rank = Rank()
    rollouts = [Rollout(response=text, group="g") for text in "abcd"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = [r.reward for r in await GradingRunner([rank], ledger=Ledger(whole)).run(rollouts)]
    for shard in (rollouts[:2], rollouts[2:]):
        await GradingRunner([rank], ledger=Ledger(parts)).run(shard)
    rank.asked.clear()
    runner = GradingRunner([rank], ledger=Ledger(parts))
    assert [r.reward for r in await resumed(runner, parts, rollouts)] == expected
    assert [r.reward for r in await resumed(runner, parts, rollouts[::-1])] == expected[::-1]
    assert rank.asked == [4]
    alone = await resumed(GradingRunner([rank]), whole, rollouts[2:])
    assert [r.reward for r in alone] == [0.0, 0.5]


async def test_equal_rollouts_have_a_grade_each(tmp_path: Path) -> None:
    rank, votes = Rank(), iter(range(100))

    @grader
    async def judge(response: str) -> float:
        return next(votes) / 100

    path = tmp_path / "l"
    runner = GradingRunner({"rank": rank, "judge": judge}, ledger=Ledger(path))
    rollouts = [Rollout(response=text, prompt="p") for text in ("b", "a", "b", "b")]
    first = [r.reward for r in await runner.run(rollouts)]
    assert len(set(first)) == 4
    for _ in range(2):
        assert [r.reward for r in await resumed(runner, path, rollouts)] == first
    assert (rank.asked, next(votes)) == ([4], 4)
    one_more = await resumed(runner, path, [*rollouts, rollouts[0]])
    assert [r.score("judge") for r in one_more] == [0.0, 0.01, 0.02, 0.03, 0.05]


async def test_grades_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    judge = Judge()
    path = tmp_path / "l.jsonl"

    def made(settings: str) -> GradingRunner:
        return GradingRunner({"judge": judge}, ledger=Ledger(path), fingerprints={"judge": settings})

    runner = made("one")
    await runner.run(batch())
    for one in (runner, pickle.loads(pickle.dumps(runner)), runner.with_settings(transform="center")):
        known = known_grades(read_ledger(path), one, batch())
        assert (known.rollouts, known.others, known.changed) == (24, 0, [])
    other = known_grades(read_ledger(path), made("two"), batch())
    assert (other.rollouts, other.others, other.runs, other.changed) == (0, 24, [], ["judge"])
    judge.version = "2"  # type: ignore[misc]
    assert known_grades(read_ledger(path), made("one"), batch()).rollouts == 0
    changed = [Rollout(prompt=r.prompt, ground_truth="2", response=r.response) for r in batch()]
    assert known_grades(read_ledger(path), runner, changed).rollouts == 0
    with pytest.raises(DataError, match="2 mappings of known grades for 24 rollouts"):
        await runner.run(batch(), known=[{}, {}])


async def test_a_grader_that_was_set_differently_is_the_only_one_that_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    judge = Judge()
    graded: list[str] = []

    @grader
    def rule(response: str) -> float:
        graded.append(response)
        return 1.0

    def made(settings: str) -> GradingRunner:
        fingerprints = {"judge": "j", "rule": settings}
        return GradingRunner({"judge": judge, "rule": rule}, ledger=Ledger(path), fingerprints=fingerprints)

    await made("one").run(batch())
    for _ in range(2):  # and once only, though the first grades stay in the file
        runner = made("two")
        known = known_grades(read_ledger(path, replaced=True), runner, batch())
        await runner.run(batch(), known=known.grades, tags={RESUMES: known.runs})
    assert (set(judge.asked.values()), len(graded)) == ({1}, 48)
    reading = read_ledger(path)
    assert (len(reading.entries), len(reading.specs)) == (24, 2)
    assert {reading.specs[entry.spec].graders["rule"].fingerprint for entry in reading.entries} == {"two"}


async def test_rollouts_are_made_again_from_a_ledger_with_texts(tmp_path: Path) -> None:
    runner = GradingRunner({"judge": Judge()}, ledger=Ledger(tmp_path / "l.jsonl", texts=True))
    await runner.run(batch())
    entries = sorted(read_ledger(tmp_path / "l.jsonl").entries, key=lambda e: e.index)
    again = [entry.to_rollout() for entry in entries]
    assert [(r.prompt, r.response, r.ground_truth) for r in again] == [
        (r.prompt, r.response, r.ground_truth) for r in batch()
    ]
    assert known_grades(read_ledger(tmp_path / "l.jsonl"), runner, again).rollouts == 24
    judge = Judge()
    judge.down = True
    bare = GradingRunner({"judge": judge}, ledger=Ledger(tmp_path / "bare.jsonl"))
    await bare.run(batch())
    with pytest.raises(DataError, match="needs the rollouts' texts"):
        FailedOnce(read_ledger(tmp_path / "bare.jsonl"), bare)


async def test_rollouts_that_differ_in_anything_a_grader_reads_share_no_grade(tmp_path: Path) -> None:
    """The same last turn at the end of two trajectories, and a reference that was mended meanwhile."""

    class Reads:
        name, version, score_range = "reads", "1", (0.0, 1.0)

        async def grade(self, rollout: Rollout, /) -> Grade:
            return Graded((len(rollout.messages) + len(str(rollout.ground_truth)) + len(rollout.extra)) / 100)

    runner = GradingRunner({"reads": Reads()}, ledger=Ledger(tmp_path / "l.jsonl"))
    turn = {"role": "assistant", "content": "done"}
    first = [
        Rollout(prompt="p", group="g", response="done", messages=[turn] * n, ground_truth="4") for n in (2, 7)
    ]
    expected = [r.reward for r in await runner.run(first)]
    assert [r.reward for r in await resumed(runner, tmp_path / "l.jsonl", first)] == expected
    changed = [
        Rollout(prompt="p", group="g", response="done", messages=[turn] * 2, **fields)
        for fields in ({"ground_truth": "forty"}, {"ground_truth": "4", "extra": {"rubric": "strict"}})
    ]
    known = known_grades(read_ledger(tmp_path / "l.jsonl"), runner, [*first, *changed])
    assert [bool(grades) for grades in known.grades] == [True, True, False, False]


async def test_rollouts_of_a_killed_process_are_not_graded_again_without_their_texts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its unfinished lines hold grades alone: asking a judge again about an empty response would pay for nothing."""
    path = tmp_path / "l.jsonl"
    judge = Judge()
    judge.down = True
    rank = Rank()
    runner = GradingRunner({"judge": judge, "rank": rank}, ledger=Ledger(path, texts=True))
    await runner.run(batch(8))
    judge.down = False
    assert (await FailedOnce(read_ledger(path), runner.separate(None)).ask()).asked == 8
    entries = [
        msgspec.structs.replace(
            entry,
            **({"status": "unfinished", "prompt": None, "response": None} if entry.index == 1 else {}),
        )
        for entry in read_ledger(path).entries
    ]
    judge.asked.clear(), rank.asked.clear()
    again = await FailedOnce(Reading(read_ledger(path).specs, entries, []), runner.separate(None)).ask()
    assert [entry.index for entry in again.entries] == [
        4,
        5,
        6,
        7,
    ]  # its group is compared as a whole, or not at all
    assert (again.asked, set(judge.asked), rank.asked) == (4, {r.response for r in batch(8)[4:]}, [])
    assert "4 rollouts are left out: their process was killed before they were finished" in caplog.text


async def test_rollouts_without_texts_are_not_compared_with_others_than_before(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    rank, judge = Rank(), Judge()
    rollouts = [Rollout(response=text, group="g") for text in ("a", "bb", "ccc")]

    def made(least: float) -> GradingRunner:
        tree = Gate(if_=f"judge >= {least}", then="rank", otherwise=0.0)
        return GradingRunner({"judge": judge, "rank": rank}, tree, ledger=Ledger(path))

    await made(0.05).run(rollouts)
    assert rank.asked == [3]
    again = await FailedOnce(read_ledger(path), made(0.05).separate(None)).ask()
    assert (again.asked, [result.reward for result in again.results]) == (0, [0.0, 1 / 3, 2 / 3])
    with pytest.raises(ConfigError, match="needs the rollouts' texts"):
        await FailedOnce(read_ledger(path), made(0.15).separate(None)).ask()
    assert rank.asked == [3]


async def test_a_resumed_run_hides_no_rollout_that_it_did_not_grade(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    runner = GradingRunner({"judge": Judge()}, ledger=Ledger(path))
    await runner.run(batch())
    await resumed(runner, path, batch()[:4])
    reading = read_ledger(path)
    assert (len(reading.entries), reading.replaced) == (24, 4)


async def test_grades_of_another_version_are_not_mixed(tmp_path: Path) -> None:
    judge = Judge()
    judge.down = True
    await GradingRunner({"judge": judge}, ledger=Ledger(tmp_path / "l.jsonl", texts=True)).run(batch())
    newer = Judge()
    newer.version = "2"
    with pytest.raises(ConfigError, match="are of version 1 .* this grader is 2 .*: they cannot be mixed"):
        FailedOnce(read_ledger(tmp_path / "l.jsonl"), GradingRunner({"judge": newer}))
    FailedOnce(read_ledger(tmp_path / "l.jsonl"), GradingRunner({"judge": Judge()}))


async def test_a_separate_runner_has_a_ledger_and_metrics_of_its_own(tmp_path: Path) -> None:
    whole = GradingRunner({"judge": Judge()}, ledger=Ledger(tmp_path / "whole.jsonl"))
    part = whole.separate(Ledger(tmp_path / "part.jsonl"))
    await part.run(batch())
    assert part.ledger is not None
    assert part.ledger.flush() is True
    assert len(read_ledger(tmp_path / "part.jsonl").entries) == len(batch())
    assert read_ledger(tmp_path / "part.jsonl").replaced == 0
    assert not (tmp_path / "whole.jsonl").exists()
    assert (whole.metrics.counts.rollouts, part.metrics.counts.rollouts) == (0, len(batch()))
