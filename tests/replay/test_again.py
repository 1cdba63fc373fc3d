"""Asking again for the grades that have failed, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    Abstained,
    ConfigError,
    DataError,
    Failed,
    FailureRateError,
    Gate,
    Graded,
    GradingRunner,
    Ledger,
    Rollout,
    Score,
    grader,
    read_ledger,
)
from judgekit.graders.trust import with_trust
from judgekit.replay import Again, FailedOnce, replay


class Judge:
    """Fails on the responses that are *down*, and notes what it was asked."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, *down: str, version: str = "1") -> None:
        self.down, self.version, self.asked = down, version, list[str]()

    def grade(self, rollout: Rollout, /) -> Any:
        self.asked.append(rollout.response)
        return (
            Failed("Down", "no answer")
            if rollout.response in self.down
            else Graded(len(rollout.response) / 10)
        )


@grader
def rule(response: str) -> float:
    return 1.0 if response else 0.0


def recorded(folder: Path, judge: Any, *, tags: Any = None, texts: bool = True, **settings: Any) -> Path:
    path = folder / "ledger.jsonl"
    runner = GradingRunner(
        [judge, rule], {"judge": 0.5, "rule": 0.5}, ledger=Ledger(path, texts=texts), **settings
    )
    runner.run_sync([Rollout(response="x" * i, id=str(i), group=i // 2) for i in range(4)], tags=tags)
    return path


def again(judge: Any, folder: Path | None = None, **settings: Any) -> GradingRunner:
    ledger = None if folder is None else Ledger(folder / "again.jsonl")
    return GradingRunner([judge, rule], {"judge": 0.5, "rule": 0.5}, ledger=ledger, **settings)


async def ask(path: Path, runner: GradingRunner) -> Again:
    return await FailedOnce(read_ledger(path), runner).ask()


def rewards(found: Again) -> dict[str, float | None]:
    pairs = zip(found.entries, found.results, strict=True)
    return dict(sorted((entry.id, result.reward) for entry, result in pairs))


async def test_only_what_has_failed_is_asked_for_and_counted(tmp_path: Path) -> None:
    path = recorded(tmp_path, Judge("x", "xx"))
    judge = Judge("xx")
    once = FailedOnce(read_ledger(path), again(judge))
    assert (once.failed, once.changed) == (2, [])
    found = await once.ask()
    assert sorted(judge.asked) == ["x", "xx"]
    assert (found.asked, found.still_failed, found.excess) == (2, 1, None)
    assert rewards(found) == {"0": 0.0, "1": pytest.approx(0.55), "2": None, "3": pytest.approx(0.65)}
    assert [result.index for result in found.results] == [0, 1, 2, 3]


async def test_a_ledger_without_failures_asks_nobody(tmp_path: Path) -> None:
    path, judge = recorded(tmp_path, Judge()), Judge("x")
    once = FailedOnce(read_ledger(path), again(judge))
    found = await once.ask()
    assert (once.failed, found.asked, found.still_failed, judge.asked) == (0, 0, 0, [])


@pytest.mark.parametrize("was", [None, (0.15, 0.25)])
@pytest.mark.parametrize("now", [None, (0.15, 0.25), (0.05, 0.15)])
async def test_what_is_known_is_trusted_as_the_grader_is_now(was: Any, now: Any, tmp_path: Path) -> None:
    """As `replay` does without asking."""

    class Trusting(Judge):
        def __init__(self, trusted: Any, *down: str) -> None:
            super().__init__(*down)
            self.trusted = trusted

        def grade(self, rollout: Rollout, /) -> Any:
            return with_trust(super().grade(rollout), self.trusted)

    path = recorded(tmp_path, Trusting(was, "xxx"))
    found = await ask(path, again(Trusting(now)))
    low, high = now or (1.0, 0.0)
    kept = {
        entry.id: result.grades["judge"] for entry, result in zip(found.entries, found.results, strict=True)
    }
    for name, grade in kept.items():
        assert isinstance(grade, Abstained if low < len("x" * int(name)) / 10 < high else Graded), name
    replayed = replay(path, trust={"judge": now})
    pairs = zip(replayed.entries, replayed.results, strict=True)
    there = {entry.id: result.reward for entry, result in pairs}
    assert {k: v for k, v in rewards(found).items() if k != "3"} == {
        k: v for k, v in there.items() if k != "3"
    }


async def test_each_run_keeps_its_tags_but_resumes_nobody(tmp_path: Path) -> None:
    path = recorded(tmp_path, Judge("x"), tags={"step": 3, "resumes": ["an earlier run"]})
    recorded(tmp_path, Judge("x"), tags={"step": 4})
    found = await ask(path, again(Judge(), tmp_path))
    assert len(found.results) == 8
    written = read_ledger(tmp_path / "again.jsonl")
    assert [[written.entries[i].tags for i in run] for run in written.runs()] == [
        [{"step": 3}] * 4,
        [{"step": 4}] * 4,
    ]


async def test_too_many_failures_are_told_with_the_results(tmp_path: Path) -> None:
    path = recorded(tmp_path, Judge("x", "xx"))
    found = await ask(path, again(Judge("x", "xx"), max_failure_rate=0.01))
    assert isinstance(found.excess, FailureRateError)
    assert rewards(found) == {"0": 0.0, "1": None, "2": None, "3": pytest.approx(0.65)}
    assert (found.asked, found.still_failed) == (2, 2)


async def test_a_fill_is_the_mean_of_its_own_run(tmp_path: Path) -> None:
    settings: Any = {"missing_reward": "neutral"}
    path = recorded(tmp_path, Judge("", "x", "xx", "xxx"), **settings)
    found = await ask(path, again(Judge("", "x"), **settings))
    assert list(rewards(found)) == ["0", "1", "2", "3"]
    assert list(rewards(found).values()) == pytest.approx(
        [0.625, 0.625, 0.6, 0.65]
    )  # the second group's mean: it is all that the run has


def test_what_cannot_be_asked_again_is_said(tmp_path: Path) -> None:
    reading = read_ledger(recorded(tmp_path, Judge("x")))
    with pytest.raises(
        ConfigError, match=r"of 'judge' are of version 1 and range \(0.0, 1.0\), and this grader is 2 with"
    ):
        FailedOnce(reading, again(Judge(version="2")))
    other = grader(name="jugde")(lambda response: 0.5)
    runner = GradingRunner([other, rule], {"jugde": 0.5, "rule": 0.5})
    with pytest.raises(
        ConfigError,
        match="holds no grades of 'jugde', and only failed grades are asked again.*'judge'",
    ):
        FailedOnce(reading, runner)
    assert FailedOnce(reading, runner, new=True).changed == []
    reading.entries.clear()
    with pytest.raises(DataError, match="the ledger holds no rollouts"):
        FailedOnce(reading, again(Judge()))


def test_without_its_texts_a_rollout_cannot_be_graded_again(tmp_path: Path) -> None:
    path = recorded(tmp_path, Judge("x"), texts=False)
    with pytest.raises(DataError, match="grading again needs the rollouts' texts"):
        FailedOnce(read_ledger(path), again(Judge()))
    whole = recorded(tmp_path / "whole", Judge(), texts=False)
    assert FailedOnce(read_ledger(whole), again(Judge())).failed == 0


async def test_what_was_skipped_is_asked_for_if_its_gate_passes_now(tmp_path: Path) -> None:
    judge, path = Judge(), tmp_path / "ledger.jsonl"
    gate = Gate("rule < 0.5", Score("judge"), 0.25)
    GradingRunner([judge, rule], gate, ledger=Ledger(path, texts=True)).run_sync([Rollout(response="xx")])
    assert judge.asked == []
    found = await FailedOnce(
        read_ledger(path), GradingRunner([judge, rule], Gate("rule > 0.5", Score("judge"), 0.25))
    ).ask()
    assert (judge.asked, found.asked, found.results[0].reward) == (["xx"], 1, 0.2)
    once = FailedOnce(read_ledger(path), GradingRunner([judge, rule], gate))
    assert (await once.ask()).asked == 0
