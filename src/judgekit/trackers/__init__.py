"""Where a run's figures are looked at: wandb, TensorBoard, MLflow, Prometheus, OpenTelemetry.

For loops of your own. verl, SkyRL and TRL log the same figures through their trackers already (the adapters do that), and
`judgekit serve-rewards` has a page for Prometheus.

    tracker = WandbTracker(wandb.init(project="rewards"))
    results = await runner.run(rollouts)
    tracker.log(runner, rollouts, results, step=step)

No module here imports the package it writes to before it is used: `pip install 'judgekit-rl[trackers]'` has them all.
"""

from judgekit.trackers.opentelemetry import TracedJudge, trace_results, traced
from judgekit.trackers.prometheus import MetricsCollector
from judgekit.trackers.step_trackers import MLflowTracker, TensorBoardTracker, WandbTracker, sample

__all__ = [
    "MLflowTracker",
    "MetricsCollector",
    "TensorBoardTracker",
    "TracedJudge",
    "WandbTracker",
    "sample",
    "trace_results",
    "traced",
]
