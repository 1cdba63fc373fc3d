"""Counts of a step: sent between processes as a flat dict, whatever graders and errors are called."""

from __future__ import annotations

import pickle

import pytest

from judgekit import Failed, GradingRunner, Rollout, grader
from judgekit.trainers import Counts


def counts(name: str, error: str) -> Counts:
    """Three rollouts whose grader fails, as a worker counts them and another process reads them."""
    broken = grader(name="broken")(lambda response: Failed(error))
    results = GradingRunner({name: broken}).run_sync([Rollout(response="", group=i) for i in range(3)])
    counted = Counts()
    for result in results:
        counted.add(result)
    return pickle.loads(pickle.dumps(counted))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["judge", "math:hard", "math:hard:1", ":", "a|b", "line\nend"])
@pytest.mark.parametrize("error", ["JudgeTimeout", "HTTP 500: bad gateway", "a:b:c", ""])
def test_any_name_and_any_error_can_be_counted(name: str, error: str) -> None:
    total = Counts()
    for _ in range(2):
        total.merge(counts(name, error))
    assert f"grader {name!r} failed on 6 of 6 rollouts ({error} × 6)" in total.line()
    assert "6 rollouts graded" in total.line()
    assert total.missing == 6
    assert total.unusual
    assert name in total.excess_failures(0.0)
    assert not total.excess_failures(0.5)  # six of six are no alarm yet
