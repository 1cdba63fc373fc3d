"""Counts and metrics: any name, any process, no count lost, one log line per step and cause."""

from __future__ import annotations

import logging
import math
import pickle
import random
import statistics
import threading
import time

import pytest

from judgekit import Failed, GradingRunner, Rollout, grader
from judgekit.metrics import Counts, GraderCounts, Metrics, Moments


def failing(name: str, error: str) -> GradingRunner:
    broken = grader(name="broken")(lambda response: Failed(error))
    return GradingRunner({name: broken})


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(response="", group=i) for i in range(n)]


@pytest.mark.parametrize("name", ["judge", "math:hard", "math:hard:1", ":", "a|b", "failed:a", "line\nend"])
@pytest.mark.parametrize("error", ["JudgeTimeout", "HTTP 500: bad gateway", "a:b:c", ""])
def test_any_name_and_any_error_can_be_counted_and_sent(name: str, error: str) -> None:
    counts = Counts()
    for result in failing(name, error).run_sync(rollouts(3)):
        counts.add(result)
    counts = pickle.loads(pickle.dumps(counts))
    assert f"{name!r} failed on 3 of 3 rollouts ({error} × 3)" in counts.line()
    assert "3 rollouts graded" in counts.line()
    assert (counts.missing, counts.unusual) == (3, True)


def test_an_alarm_needs_more_than_one_of_four() -> None:
    """At least 16 evaluations are assumed, so a share of 0.2 takes 4 failures; 0 takes one."""
    counts = Counts()
    for result in failing("judge", "Down").run_sync(rollouts(3)):
        counts.add(result)
    assert counts.excess_failures(0.2) == ""
    assert counts.excess_failures(0.0) == "judge 100.0 % (Down × 3)"
    for result in failing("judge", "Down").run_sync(rollouts(1)):
        counts.add(result)
    assert counts.excess_failures(0.2) == "judge 100.0 % (Down × 4)"


def test_merged_parts_are_the_whole() -> None:
    """Mean, deviation and correlation of two halves merged are those of all, also far from zero."""
    rng = random.Random(7)
    pairs = [(rng.random() * 5, 1e3 + rng.random()) for _ in range(200)]
    halves = [Moments(), Moments()]
    scores = [GraderCounts(), GraderCounts()]
    for i, (x, y) in enumerate(pairs):
        halves[i % 3 == 0].add(x, y)
        scores[i % 3 == 0].add(graded(y))
    halves[0].merge(halves[1])
    scores[0].merge(scores[1])
    ys = [y for _, y in pairs]
    assert halves[0].mean_y == pytest.approx(statistics.fmean(ys))
    assert halves[0].std_y == pytest.approx(statistics.pstdev(ys), rel=1e-6)
    assert scores[0].std == pytest.approx(statistics.pstdev(ys), rel=1e-6)
    assert halves[0].correlation == pytest.approx(statistics.correlation([x for x, _ in pairs], ys), abs=1e-6)


def graded(score: float) -> object:
    from judgekit import Graded

    return Graded(score)


def test_nothing_is_lost_between_two_resets() -> None:
    """Four threads count while a fifth resets: every count is in exactly one summary."""
    metrics = Metrics()
    (result,) = failing("judge", "Down").run_sync(rollouts(1))
    done = threading.Event()
    seen: list[float] = []

    def reset() -> None:
        while not done.is_set():
            seen.append(metrics.summary(reset=True).get("judgekit/rollouts", 0.0))

    def count() -> None:
        for _ in range(2000):
            metrics.add(result, Rollout(response=""))

    resetting = threading.Thread(target=reset)
    counting = [threading.Thread(target=count) for _ in range(4)]
    for thread in (resetting, *counting):
        thread.start()
    for thread in counting:
        thread.join()
    done.set()
    resetting.join()
    assert sum(seen) + metrics.summary().get("judgekit/rollouts", 0.0) == 8000
    metrics.summary(reset=True)
    assert metrics.summary() == {}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the metrics said; on a busy machine a rule may be reported as slow, too."""
    return [record.getMessage() for record in caplog.records if record.module == "metrics"]


def test_a_host_with_one_run_per_rollout_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,024 failing runs of one rollout: the first is told, the others together, not a line for each."""
    now = time.monotonic()
    monkeypatch.setattr("judgekit.metrics.time.monotonic", lambda: now)
    runner = failing("judge", "Down").with_settings(shared=True)
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        for rollout in rollouts(100):
            runner.run_sync([rollout])
        assert len(told(caplog)) == 2
        caplog.clear()
        now += 11
        runner.run_sync(rollouts(1))
    assert told(caplog) == [
        "grader 'judge' failed on 100 of 100 rollouts (Down × 100)",
        "100 of 100 rewards are missing (100 excluded)",
    ]


def test_a_large_run_is_told_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    runner = failing("judge", "Down")
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        for _ in range(2):
            runner.run_sync(rollouts(64))
    assert [m for m in caplog.messages if "missing" in m] == [
        "64 of 64 rewards are missing (64 excluded)"
    ] * 2


def test_figures_without_a_score_are_left_out() -> None:
    runner = failing("judge", "Down")
    runner.run_sync(rollouts(2))
    summary = runner.metrics.summary()
    assert summary["judgekit/judge/failure_rate"] == 1.0
    assert "judgekit/judge/mean" not in summary
    assert all(math.isfinite(value) for value in summary.values())


def test_unreadable_verdicts_are_counted_by_group() -> None:
    """So that a policy that learns to provoke them shows, whoever's failure they are."""
    metrics = Metrics()
    broken = grader(name="judge")(lambda response: Failed("VerdictError") if "x" in response else 1.0)
    members = [Rollout(response=r, group=g) for g, r in ((1, "x"), (1, "x"), (1, ""), (2, ""), (3, "x"))]
    for result in GradingRunner({"judge": broken}).run_sync(members):
        metrics.add(result, members[result.index])
    found = pickle.loads(pickle.dumps(metrics.counts)).graders["judge"]
    assert found.unreadable == {1: 2, 3: 1}
    summary = metrics.summary()
    assert summary["judgekit/judge/unreadable_rate"] == 3 / 5
    assert summary["judgekit/judge/unreadable_groups"] == 2
    assert summary["judgekit/judge/unreadable_in_worst_group"] == 2


def test_the_groups_of_unreadable_verdicts_are_bounded() -> None:
    counts, more = GraderCounts(), GraderCounts()
    for i in range(10_100):
        counts.add(Failed("VerdictError"), i)
        more.add(Failed("VerdictError"), -i)
    counts.merge(more)
    assert len(counts.unreadable) == 10_001
    assert sum(counts.unreadable.values()) == 20_200
