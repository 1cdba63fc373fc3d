"""Grades a few rollouts with rules only, and prints how each reward was computed."""

from judgekit import Gate, GradingRunner, Rollout, Score, grader
from judgekit.graders import FinalAnswer, Length


@grader
def polite(response: str) -> float:
    """Parameters are rollout fields, by name. Return a number, a bool, or None for no opinion."""
    return 1.0 if "please" in response.lower() else 0.0


runner = GradingRunner(
    {"correct": FinalAnswer(), "brief": Length(soft_max=80, hard_max=160), "polite": polite},
    Gate(Score("correct") >= 1, {"correct": 0.8, "brief": 0.15, "polite": 0.05}, 0),
)

rollouts = [
    Rollout(prompt="What is 6 * 7?", ground_truth="42", response="6 * 7 = 42, so the answer is 42."),
    Rollout(prompt="What is 6 * 7?", ground_truth="42", response="I think that it is 48, please believe me."),
    Rollout(prompt="What is 6 * 7?", ground_truth="42", response="Let me see. " * 20 + "#### 42"),
]

for rollout, result in zip(rollouts, runner.run_sync(rollouts), strict=True):
    print(f"{result.reward:.3f}  {rollout.response[:40]!r}")
    print(runner.explain(result))
