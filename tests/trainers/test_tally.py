"""Counts of a step: sent between processes as a flat dict, whatever graders and errors are called."""

from __future__ import annotations

import pytest

from judgekit import Failed, FailureRateError, GradingRunner, Rollout, grader
from judgekit.trainers.hosted import Tally


def tally(name: str, error: str) -> Tally:
    """Three rollouts whose grader fails, as a worker counts them and another process reads them."""
    broken = grader(name="broken")(lambda response: Failed(error))
    results = GradingRunner({name: broken}).run_sync([Rollout(response="", group=i) for i in range(3)])
    counted = Tally()
    counted.add(results)
    return Tally(counted.counts)


@pytest.mark.parametrize("name", ["judge", "math:hard", "math:hard:1", ":", "a|b", "failed:a", "line\nend"])
@pytest.mark.parametrize("error", ["JudgeTimeout", "HTTP 500: bad gateway", "a:b:c", ""])
def test_any_name_and_any_error_can_be_counted(name: str, error: str) -> None:
    counted = tally(name, error)
    assert f"{name}: 3 {error}" in counted.line()
    assert "3 rollouts graded" in counted.line()
    assert counted.missing == 3
    assert counted.unusual
    counted.check(None)
    with pytest.raises(FailureRateError, match="failed on 3 of 3 rollouts") as info:
        counted.check(0.5)
    assert repr(name) in str(info.value)
