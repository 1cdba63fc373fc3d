"""Rollouts from files, tables and data sets, and results to them; on one machine, or on a Ray cluster."""

from typing import TYPE_CHECKING, Any

from judgekit.data.result_files import results_frame, write_results
from judgekit.data.rollout_files import read_rollouts, rollout_from, rollouts_from

if TYPE_CHECKING:
    from judgekit.data.distributed import grade_dataset, grade_job, plan_job

__all__ = [
    "grade_dataset",
    "grade_job",
    "plan_job",
    "read_rollouts",
    "results_frame",
    "rollout_from",
    "rollouts_from",
    "write_results",
]


def __getattr__(name: str) -> Any:
    if name in (
        "grade_dataset",
        "grade_job",
        "plan_job",
    ):  # the runner and its graders are imported for these alone
        from judgekit.data import distributed

        return getattr(distributed, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
