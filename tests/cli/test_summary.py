"""The end of `judgekit grade`, figure by figure: the table, the histogram, durations, the engines' load, problems."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import pytest

from judgekit import Abstained, Failed, Grade, Graded, GradingRunner, RewardResult, Rollout, Usage, grader
from judgekit.cli import console, summary
from judgekit.cli.load import LoadWatch, watched
from judgekit.cli.summary import as_json, histogram, print_summary, problems, scored
from judgekit.errors import JudgeUnavailable
from judgekit.judges.engines.engine_load import EngineLoad


@grader
def quarter(response: str) -> Any:
    if response == "down":
        return Failed("JudgeUnavailable", "it is down")
    return Graded(len(response) / 4, usage=Usage(1, 20, 3, 4))


@grader
def mute(response: str) -> Any:
    return Abstained("no reference")


def graded(*responses: str) -> tuple[GradingRunner, Sequence[RewardResult]]:
    runner = GradingRunner(
        {"quarter": quarter, "mute": mute}, {"quarter": 1.0, "mute": 0}, missing_reward="mask"
    )
    return runner, runner.run_sync([Rollout(prompt="p", response=one, group="p") for one in responses])


def printed(monkeypatch: pytest.MonkeyPatch, *args: Any, width: int = 100) -> list[str]:
    told = io.StringIO()
    monkeypatch.setattr(console.out, "_file", told)
    monkeypatch.setattr(console.out, "_width", width)
    print_summary(*args)
    return told.getvalue().splitlines()


def test_the_table_and_what_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, results = graded("x", "xxx", "down")
    monkeypatch.setattr(
        runner.metrics, "percentile", lambda name, share: share if name == "quarter" else float("nan")
    )
    lines = printed(monkeypatch, runner.metrics, results, ["odd", *runner.metrics.counts.trouble()], 1.25)
    assert [line.split() for line in lines[1:4]] == [
        ["grader", "graded", "mean", "std", "abstained", "skipped", "failed", "p50", "p95"],
        ["quarter", "2", "0.500", "0.250", "0", "0", "1", "500", "ms", "950", "ms"],
        ["mute", "0", "–", "–", "3", "0", "0", "–", "–"],
    ]
    assert lines[5] == "3 rollouts in 1 group, 1.2 s: 2 scored, 1 masked"
    assert lines[6] == "reward of the scored: mean 0.500, 0 zero-variance groups"
    bars = lines[7:17]
    assert [bars[0].split()[-1], bars[4].split()[-1], bars[9].split()[-1]] == ["1", "0", "1"]
    assert bars[0] == f"   0.250 … 0.300  {'█' * 40} 1"
    assert lines[17:] == [
        "mute abstained on 3 rollouts, the first time with: no reference",
        "quarter failed with JudgeUnavailable on 1 rollouts, the first time with: it is down",
        "warning: odd",  # and what stands above is no warning
    ]


def test_a_narrow_terminal_has_fewer_columns_and_shorter_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, results = graded("x", "xxx")
    dropped = ["p95", "p50", "std", "skipped", "abstained"]
    seen = set()
    for width in range(30, 90):
        lines = printed(monkeypatch, runner.metrics, results, [], 1.0, width=width)
        head = lines[1].split()
        gone = [name for name in dropped if name not in head]
        assert gone == dropped[: len(gone)]
        assert [name for name in head if name not in dropped] == ["grader", "graded", "mean", "failed"]
        assert max(map(len, lines[1:4])) <= width
        seen.add(len(gone))
    assert seen == {0, 1, 2, 3, 4, 5}
    for width, bar in ((50, 22), (68, 40), (28, 1)):
        lines = printed(monkeypatch, runner.metrics, results, [], 1.0, width=width)
        assert max(line.count("█") for line in lines) == bar


def test_without_a_scored_rollout_there_is_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, results = graded("down")
    lines = printed(monkeypatch, runner.metrics, results, [], 1.0)
    assert not any("reward of the scored" in line or "█" in line for line in lines)
    assert as_json(runner.metrics, results, [], 1.0)["reward_mean"] is None
    assert scored(results) == []


def test_the_summary_for_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, results = graded("x", "xxx", "down", "xxx")
    monkeypatch.setattr(
        runner.metrics, "percentile", lambda name, share: share if name == "quarter" else float("nan")
    )
    monkeypatch.setattr(runner.metrics, "starved", lambda name: 0.25 if name == "quarter" else float("nan"))
    told = as_json(runner.metrics, results, ["odd", *runner.metrics.counts.trouble()], 1.23456)
    assert told == {
        "rollouts": 4, "groups": 1, "seconds": 1.235, "statuses": {"scored": 3, "masked": 1},
        "reward_mean": pytest.approx(7 / 12), "zero_variance_groups": 0,
        "graders": {
            "quarter": {
                "graded": 3, "mean": pytest.approx(7 / 12), "std": pytest.approx(0.2357, abs=1e-4), "abstained": 0,
                "skipped": 0, "failed": 1, "p50_s": 0.5, "p95_s": 0.95, "starved": 0.25,
            },
            "mute": {
                "graded": 0, "mean": None, "std": None, "abstained": 4, "skipped": 0, "failed": 0, "p50_s": None,
                "p95_s": None, "starved": None,
            },
        },
        "usage": {"calls": 3, "prompt_tokens": 60, "cached_tokens": 9, "completion_tokens": 12},
        "engines": [], "problems": list(problems(results)), "warnings": ["odd"],
    }  # fmt: skip


def test_an_engine_with_too_few_requests_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, results = graded("x")
    for share, seconds, lines in ((0.1, 10.0, 0), (0.11, 9.9, 0), (0.11, 10.0, 1)):
        monkeypatch.setattr(
            runner.metrics, "starved", lambda name, share=share: share if name == "quarter" else 0.0
        )
        found = [
            line for line in printed(monkeypatch, runner.metrics, results, [], seconds) if "too low" in line
        ]
        assert len(found) == lines
    assert found[0].startswith(
        "quarter: its engine would have run more requests while rollouts waited, 11 % of the time"
    )


def result(**grades: Grade) -> RewardResult:
    return RewardResult(
        index=0, group=0, reward=None, status="masked", raw_reward=None, contributions={}, grades=grades
    )


def test_a_line_for_each_kind_of_problem() -> None:
    found = list(
        problems(
            [
                result(a=Failed("E", "first\nline \x1b[31m"), b=Abstained("sometimes"), c=Abstained("never")),
                result(a=Failed("E", "second"), b=Graded(1.0), c=Abstained("again")),
                result(a=Failed("F", ""), b=Failed("G", "x" * 301), c=Failed("H", "y" * 300)),
            ]
        )
    )
    assert found == [
        "a failed with E on 2 rollouts, the first time with: first line [31m",
        "c abstained on 2 rollouts, the first time with: never",
        "a failed with F on 1 rollouts, the first time with: (no message)",
        f"b failed with G on 1 rollouts, the first time with: {'x' * 298} …",
        f"c failed with H on 1 rollouts, the first time with: {'y' * 300}",
    ]


def test_a_histogram() -> None:
    assert histogram([0.5, 0.5], width=4) == ["   0.500           ████ 2"]
    assert histogram([0.0, 0.1, 0.5, 1.0, 1.0], bins=2, width=3) == [
        "   0.000 … 0.500  ██ 2",
        "   0.500 … 1.000  ███ 3",
    ]
    assert len(histogram([0.0, 1.0])) == 10
    assert [line.split()[-1] for line in histogram([0.0, 0.25, 0.25, 0.5, 1.0], bins=4)] == [
        "1",
        "2",
        "1",
        "1",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (float("nan"), "–"), (1234.5, "1234 s"), (1000.0, "1000 s"), (999.0, "999 s"), (1.0, "1 s"), (0.9994, "999 ms"),
        (0.25, "250 ms"), (0.001, "1 ms"), (0.000999, "999 µs"), (0.0, "0 µs"),
    ],
)  # fmt: skip
def test_durations(seconds: float, shown: str) -> None:
    assert summary._duration(seconds) == shown


# ---- the engines' load


class Engine:
    """Tells a load after another; the last one stays. None: it tells nothing now; an error: it is away."""

    def __init__(self, *loads: EngineLoad | BaseException | None) -> None:
        self.loads = list(loads)
        self.asked = 0

    def __str__(self) -> str:
        return "the engine"

    async def load(self) -> EngineLoad | None:
        self.asked += 1
        found = self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        if isinstance(found, BaseException):
            raise found
        return found


class Layered:
    def __init__(self, engine: Any) -> None:
        self.engine = engine


async def test_the_load_of_an_engine_at_several_times() -> None:
    engine = Engine(
        EngineLoad(1, 9, 100.0, 50.0), None, JudgeUnavailable("away"), EngineLoad(7, 2, 150.0, 60.0), EngineLoad(3, 3, 200.0, 75.0)
    )  # fmt: skip
    watch = LoadWatch(Layered(engine))
    assert (watch.as_json(), str(watch)) == (None, "")
    assert [await watch.look() for _ in range(5)] == [True, False, False, True, True]
    assert watch.as_json() == {
        "engine": "the engine",
        "running_peak": 7,
        "waiting_peak": 9,
        "prefix_hit_rate": 0.25,
    }
    assert str(watch) == "at most 7 requests running and 9 waiting; prefix cache hits in it: 25 %"


async def test_what_is_said_of_prefixes() -> None:
    for loads, says in (
        ([EngineLoad(1, 2)], ""),
        ([EngineLoad(1, 2, 100.0, 50.0)], "; prefix cache hits since its start: 50 %"),
        ([EngineLoad(1, 2, 100.0, 50.0), EngineLoad(1, 2, 110.0, 50.0)], "; prefix cache hits in it: 0 %"),
    ):
        watch = LoadWatch(Engine(*loads))
        for _ in loads:
            await watch.look()
        assert str(watch) == f"at most 1 requests running and 2 waiting{says}"


async def test_engines_are_watched_within_the_block_where_they_tell_something() -> None:
    telling, silent = Engine(EngineLoad(1, 0), EngineLoad(5, 0), EngineLoad(2, 0)), Engine(None)
    async with watched([telling, Layered(silent), object()], every_s=0.0) as found:
        assert (telling.asked, silent.asked) == (1, 1)
        while telling.asked < 3:
            await asyncio.sleep(0)
        before = asyncio.all_tasks()
    assert len(before - asyncio.all_tasks()) == 1  # the watch has ended
    assert silent.asked == 1
    asked = telling.asked
    await asyncio.sleep(0)
    assert telling.asked == asked
    told = [one.as_json() for one in found]
    assert told[0] is not None
    assert told[0]["running_peak"] == 5
    assert told[1:] == [None, None]


async def test_a_last_look_is_taken_after_the_block() -> None:
    engine = Engine(EngineLoad(1, 0), EngineLoad(4, 0))
    async with watched([engine], every_s=60.0) as found:
        pass
    assert engine.asked == 2
    assert str(found[0]) == "at most 4 requests running and 0 waiting"
