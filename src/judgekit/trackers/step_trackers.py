"""Trackers of training steps: a step's figures as scalars, and some of its rollouts as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from judgekit.types import Failed, Graded, RewardResult, Rollout, Skipped

if TYPE_CHECKING:
    from judgekit.run.runner import GradingRunner

_LONGEST = 4000
"""Characters of a text in a table."""


class WandbTracker:
    """Logs to a wandb run: the figures of `runner.metrics`, and a table of sampled rollouts.

    *run*: what `wandb.init` returned. *rows*: rollouts in the table of a step, spread over its rewards; 0: no table.
    *every*: only each so many logged steps have one.
    """

    def __init__(self, run: Any, *, rows: int = 32, every: int = 1) -> None:
        self.run = run
        self.rows = rows
        self.every = max(1, every)
        self._logged = 0

    def log(
        self,
        runner: GradingRunner,
        rollouts: Sequence[Rollout],
        results: Sequence[RewardResult],
        *,
        step: int,
    ) -> None:
        """Log what the runner did since the last call, as training step *step*."""
        figures: dict[str, Any] = dict(runner.metrics.summary(reset=True))
        if self.rows and self._logged % self.every == 0:
            figures["judgekit/samples"] = self._table(rollouts, sample(results, self.rows))
        self._logged += 1
        self.run.log(figures, step=step)

    def _table(self, rollouts: Sequence[Rollout], results: Sequence[RewardResult]) -> Any:
        import wandb

        names = list(dict.fromkeys(name for result in results for name in result.grades))
        columns: list[str | int] = [
            "group",
            "prompt",
            "response",
            "reference",
            "reward",
            "status",
            *names,
            "why",
        ]
        table = wandb.Table(columns=columns)
        for result in results:
            rollout = rollouts[result.index]
            table.add_data(
                str(result.group),
                rollout.prompt_text[:_LONGEST],
                rollout.response[:_LONGEST],
                str(rollout.ground_truth)[:_LONGEST],
                result.reward,
                result.status,
                *(result.score(name) for name in names),
                _why(result),
            )
        return table


class TensorBoardTracker:
    """Logs to TensorBoard. *writer*: has `add_scalar(tag, value, step)`, as torch's and tensorboardX's SummaryWriter."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def log(
        self,
        runner: GradingRunner,
        rollouts: Sequence[Rollout],
        results: Sequence[RewardResult],
        *,
        step: int,
    ) -> None:
        """Log what the runner did since the last call, as training step *step*."""
        for name, value in runner.metrics.summary(reset=True).items():
            self.writer.add_scalar(name, value, step)


class MLflowTracker:
    """Logs to MLflow's active run, or to *run_id*."""

    def __init__(self, run_id: str | None = None) -> None:
        self.run_id = run_id

    def log(
        self,
        runner: GradingRunner,
        rollouts: Sequence[Rollout],
        results: Sequence[RewardResult],
        *,
        step: int,
    ) -> None:
        """Log what the runner did since the last call, as training step *step*."""
        import mlflow

        mlflow.log_metrics(runner.metrics.summary(reset=True), step=step, run_id=self.run_id)


def sample(results: Sequence[RewardResult], count: int) -> list[RewardResult]:
    """Choose *count* results evenly over the range of rewards; up to a quarter of them have no reward."""
    missing = [result for result in results if result.status != "scored"]
    scored = sorted(
        (result for result in results if result.status == "scored"), key=lambda result: result.reward or 0.0
    )
    few = missing[: max(count // 4, count - len(scored))]
    return _spaced(scored, count - len(few)) + few


def _spaced(items: Sequence[RewardResult], count: int) -> list[RewardResult]:
    if count <= 0 or not items:
        return []
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(1, count - 1))] for i in range(count)]


def _why(result: RewardResult) -> str:
    """The grades' reasons, a line each."""
    lines = []
    for name, grade in result.grades.items():
        if isinstance(grade, Failed):
            lines.append(f"{name}: {grade.error}: {grade.detail}")
        elif isinstance(grade, Skipped):
            lines.append(f"{name}: behind {grade.gate}")
        elif grade.reason:
            lines.append(f"{name}{'' if isinstance(grade, Graded) else ' abstained'}: {grade.reason}")
    return "\n".join(lines)[:_LONGEST]
