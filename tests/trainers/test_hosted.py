"""What the trainers' adapters share."""

from __future__ import annotations

from judgekit import GradingRunner, grader
from judgekit.trainers.hosted import hosted_runner


@grader
def one(response: str) -> float:
    return 1.0


def test_a_runner_that_is_named_twice_says_the_same_twice() -> None:
    """As where an environment is registered again: mask and the failure rate are not lost the second time."""
    runner = GradingRunner([one], missing_reward="mask", max_failure_rate=0.2)
    for _ in range(2):
        made = hosted_runner(runner=runner, grouped=True, can_mask=True, grouping_hint="")
        assert (made.mask, made.max_failure_rate) == (True, 0.2)
        assert (made.runner.settings.missing_reward, made.runner.settings.max_failure_rate) == (
            "neutral",
            None,
        )
        assert made.runner.metrics is runner.metrics
    assert (runner.settings.missing_reward, runner.settings.max_failure_rate, runner.settings.deadline_s) == (
        "mask",
        0.2,
        None,
    )
