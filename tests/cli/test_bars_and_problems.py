"""The summary's bar chart, durations and long messages."""

from __future__ import annotations

import math
from typing import Any

import pytest

from judgekit import Failed, GradingRunner, Rollout, grader
from judgekit.cli.summary import _duration, histogram, print_summary, problems
from judgekit.graders import FinalAnswer
from judgekit.metrics import Metrics
from judgekit.run.results import RewardResult


def test_a_bar_chart_has_ten_bars_from_the_lowest_to_the_highest() -> None:
    lines = histogram([0.0, 0.05, 0.1, 1.0], width=4)
    assert len(lines) == 10
    assert lines[0] == "   0.000 … 0.100  ████ 2"
    assert lines[1] == "   0.100 … 0.200  ██ 1"
    assert lines[-1] == "   0.900 … 1.000  ██ 1"
    assert all(line.endswith("  0") or line.endswith(" 0") for line in lines[2:-1])
    assert histogram([1.0, 3.0], bins=2, width=1) == ["   1.000 … 2.000  █ 1", "   2.000 … 3.000  █ 1"]
    assert histogram([2.0, 2.0], width=3) == ["   2.000           ███ 2"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (math.nan, "–"),
        (1234.5, "1234 s"),
        (1000.0, "1000 s"),
        (12.345, "12.3 s"),
        (1.0, "1 s"),
        (0.9999, "1000 ms"),
        (0.0123, "12.3 ms"),
        (0.001, "1 ms"),
        (0.0001234, "123 µs"),
        (0.0, "0 µs"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert _duration(seconds).replace("1e+03", "1000") == shown


def failed(*messages: str) -> list[Any]:
    @grader
    def fails(response: str) -> Any:
        return Failed("Bad", response)

    results: list[RewardResult] = GradingRunner({"fails": fails}).run_sync(
        [Rollout(response=message) for message in messages]
    )
    return results


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("", "(no message)"),
        ("a\n\x1b b", "a b"),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 298 + " …"),
    ],
)
def test_a_problem_is_one_line_with_its_first_message(message: str, shown: str) -> None:
    assert list(problems(failed(message, "other"))) == [
        f"fails failed with Bad on 2 rollouts, the first time with: {shown}"
    ]


def test_an_engine_with_too_few_requests_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    class Starved(Metrics):
        share = 0.11

        def starved(self, name: str) -> float:
            return self.share

    rollouts = [Rollout(response="#### 1", ground_truth="1")]
    results = GradingRunner({"correct": FinalAnswer()}).run_sync(rollouts)
    metrics = Starved()
    metrics.add(results[0], rollouts[0])
    print_summary(metrics, results, [], 1.0)
    assert "rollouts waited, 11 % of the time: a number for max_concurrency" in capsys.readouterr().out
    metrics.share = 0.1
    print_summary(metrics, results, ["look out"], 1.0)
    told = capsys.readouterr().out
    assert "max_concurrency" not in told
    assert "warning: look out\n" in told
