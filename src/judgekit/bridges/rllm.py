"""rLLM: an evaluator.

    evaluator = JudgeKitEvaluator("reward.yaml")

A missing reward is an error of the rollout, which rLLM runs again or ends the run with (`raise_on_error`).

Source: rLLM 0.3, rllm/types.py, rllm/eval/types.py.
"""

from __future__ import annotations

from typing import Any

from rllm.eval.types import EvalOutput, Signal

from judgekit.bridges.bridge import bridge, reward_file, value
from judgekit.trainers import fields_of_row, figures_of
from judgekit.types import Rollout


class JudgeKitEvaluator:
    """Grades an episode by its last step. *correct_from*: the reward from which it counts as correct."""

    def __init__(self, reward: str | None = None, *, correct_from: float = 0.5) -> None:
        self._file = reward_file(reward)
        self.correct_from = correct_from

    def evaluate(self, task: Any, episode: Any) -> EvalOutput:
        """Grade an episode. Raises MissingRewardError."""
        steps = [step for trajectory in episode.trajectories for step in trajectory.steps]
        last = steps[-1] if steps else None
        rollout = Rollout(
            prompt=task.instruction,
            response=str(getattr(last, "output", None) or ""),
            messages=list(getattr(last, "chat_completions", None) or ()),
            group=str(task.id),
            **fields_of_row(task.metadata or {}),
        )
        (result,) = bridge(self._file, grouped=False, can_exclude=True).grade_sync([rollout])
        paid = value(result)
        return EvalOutput(
            reward=paid,
            is_correct=paid >= self.correct_from,
            signals=[Signal(name, figure) for name, figure in figures_of(result).items()],
        )
