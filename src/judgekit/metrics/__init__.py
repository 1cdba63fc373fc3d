"""Counts, means, latencies and signals of what was graded: for logs, for trackers, and per training step."""

from judgekit.metrics.counts import Counts, GraderCounts
from judgekit.metrics.metrics import Metrics
from judgekit.metrics.moments import Moments
from judgekit.metrics.signals import SIGNAL_LIMITS, Signal, SignalLimits

__all__ = ["SIGNAL_LIMITS", "Counts", "GraderCounts", "Metrics", "Moments", "Signal", "SignalLimits"]
