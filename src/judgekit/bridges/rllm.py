"""rLLM: an evaluator.

    evaluator = JudgeKitEvaluator("reward.yaml")

A missing reward is an error of the rollout, which rLLM runs again, and then ends the run with, or leaves out
(`rllm.workflow.raise_on_error=false`). In a validation it counts as wrong.

Source: rLLM 9beb6e0, rllm/types.py, rllm/eval/types.py, rllm/eval/reward_fns/_helpers.py (`extract_answer_text`).
"""

from __future__ import annotations

from typing import Any

from rllm.eval.types import EvalOutput, Signal

from judgekit.bridges.bridge import bridge, reward_file, value
from judgekit.errors import DataError
from judgekit.trainers import fields_of_row, figures_of
from judgekit.types import Rollout


class JudgeKitEvaluator:
    """Grades an episode by the answer that rLLM's own reward functions read.

    *reward*: path of a reward.yaml. *correct_from*: the reward from which an episode counts as correct. Raises ConfigError.
    """

    def __init__(self, reward: str | None = None, *, correct_from: float = 0.5) -> None:
        self._file = reward_file(reward)
        self.correct_from = correct_from

    def evaluate(self, task: Any, episode: Any) -> EvalOutput:
        """Grade an episode. Raises MissingRewardError, DataError."""
        own = next((one.name for one in episode.trajectories if one.reward is not None), None)
        if own is not None:
            raise DataError(
                f"the flow sets the reward of its trajectory {own!r} itself, and rLLM trains on that: leave it None, or take the "
                "evaluator out"
            )
        steps = [step for trajectory in episode.trajectories for step in trajectory.steps]
        rollout = Rollout(
            prompt=task.instruction,
            response=answer_of(episode),
            messages=list(getattr(steps[-1], "chat_completions", None) or ()) if steps else [],
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


def answer_of(episode: Any) -> str:
    """Return an episode's answer: the artifact `answer`, else of the last trajectory its output, last step or last reply."""
    if "answer" in episode.artifacts:
        return str(episode.artifacts["answer"])
    if not episode.trajectories:
        return ""
    last = episode.trajectories[-1]
    outputs = [last.output, *(step.output for step in last.steps[-1:])]
    replies = [step.model_response for step in reversed(last.steps)]
    return str(next(filter(None, [*outputs, *replies]), ""))
