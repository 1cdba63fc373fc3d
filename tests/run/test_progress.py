"""What is told of a run's progress: in a terminal by a bar, elsewhere by a line in the log now and then."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import tqdm.auto

from judgekit import Failed, GradingRunner, RewardResult, Rollout, grader
from judgekit.run import progress
from judgekit.run.progress import Progress


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


class Bar:
    """A bar that notes what it is told; its terminal may be gone."""

    made: list[Bar]

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.updates, self.closed, self.said = 0, False, ""
        self.gone: type[Exception] | None = None
        self.made.append(self)

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        assert not refresh
        self.said = text

    def update(self) -> None:
        if self.gone:
            raise self.gone
        self.updates += 1

    def close(self) -> None:
        if self.gone:
            raise self.gone
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    Bar.made = []
    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    return Bar.made


def results() -> tuple[RewardResult, RewardResult]:
    """One of two grades, and one of which one has failed."""

    @grader
    def one(response: str) -> Any:
        return 0.5

    @grader
    def other(response: str) -> Any:
        return Failed("Down") if response == "bad" else 0.5

    runner = GradingRunner([one, other], {"one": 0.5, "other": 0.5}, missing_reward="mask")
    good, bad = runner.run_sync([Rollout(response=text) for text in ("good", "bad")])
    return good, bad


def test_a_line_is_logged_after_half_a_minute_and_every_sixteenth_result(
    clock: Clock, bars: list[Bar], caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = results()
    caplog.set_level(logging.INFO, "judgekit")
    caplog.clear()
    told = Progress(64)
    for _ in range(31):
        told.add(good)
    clock.now += 29.9
    told.add(good)  # the 32nd, too early
    clock.now += 0.1
    told.add(bad)
    assert caplog.messages == []
    for _ in range(31):
        told.add(good)
    (line,) = caplog.text.splitlines()
    assert line.endswith("graded 48 of 64 (75%) rollouts, 1.6 per second, 1.0% of grades failed")
    clock.now += 30
    for _ in range(16):
        told.add(good)
    assert len(caplog.messages) == 2
    told.close()
    assert bars == []


def test_a_stream_s_total_is_not_known(clock: Clock, bars: list[Bar]) -> None:
    told = Progress(None)
    assert str(told).startswith("graded 0 rollouts, 0 per second")
    good, _ = results()
    clock.now += 2
    told.add(good)
    assert str(told) == "graded 1 rollouts, 0.5 per second"
    assert str(Progress(0)).startswith("graded 0 of 0 (0%) rollouts")


@pytest.mark.parametrize("where", ["terminal", "notebook"])
def test_a_bar_counts_results_and_says_which_share_of_grades_failed(
    where: str, bars: list[Bar], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = results()
    if where == "terminal":
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    else:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    told = Progress(9)
    (bar,) = bars
    assert (bar.given["total"], bar.given["unit"], bar.given["desc"]) == (9, "rollout", "grading")
    told.add(good)
    assert (bar.updates, bar.said) == (1, "")
    told.add(bad)
    assert (bar.updates, bar.said) == (2, "25.0% of grades failed")
    told.close()
    assert bar.closed


@pytest.mark.parametrize("gone", [OSError, ValueError])
def test_a_terminal_that_is_gone_costs_no_reward(
    gone: type[Exception], bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, _ = results()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    told, other = Progress(2), Progress(2)
    for bar in bars:
        bar.gone = gone
    for _ in range(2):
        told.add(good)
    told.close()
    other.close()
    assert told.done == 2


def test_without_standard_error_there_is_no_terminal(
    bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    for stderr in (None, closed, io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stderr)
        Progress(1).close()
    assert bars == []
