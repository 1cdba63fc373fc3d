"""What a runner has done since its start, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.metrics import Counts

if TYPE_CHECKING:
    from judgekit.run.runner import GradingRunner


class Family(NamedTuple):
    """Samples of one metric. A counter's name ends with _total."""

    name: str
    kind: str
    """counter or gauge."""
    about: str
    samples: Iterable[tuple[Mapping[str, str], float]]
    """Labels and value of each."""


def families(counts: Counts) -> Iterator[Family]:
    """The metrics of *counts*."""
    yield Family(
        "judgekit_rollouts_total",
        "counter",
        "Rollouts by what their reward is.",
        [({"status": status}, count) for status, count in sorted(counts.statuses.items())],
    )
    graders = sorted(counts.graders.items())
    yield Family(
        "judgekit_grades_total",
        "counter",
        "Grades by grader and outcome.",
        [
            ({"grader": name, "outcome": outcome}, count)
            for name, grader in graders
            for outcome, count in (
                ("graded", grader.graded),
                ("abstained", grader.abstained),
                ("skipped", grader.skipped),
                ("failed", grader.failed),
            )
        ],
    )
    yield Family(
        "judgekit_failures_total",
        "counter",
        "Failed grades by grader and error.",
        [
            ({"grader": name, "error": error}, count)
            for name, grader in graders
            for error, count in sorted(grader.errors.items())
        ],
    )
    yield Family(
        "judgekit_score_mean",
        "gauge",
        "Mean score of a grader since the start.",
        [({"grader": name}, grader.mean) for name, grader in graders if grader.graded],
    )
    yield Family(
        "judgekit_signal_raised",
        "gauge",
        "Whether a signal of a hacked or exhausted reward is beyond its limit, over all rollouts since the start.",
        [
            ({"signal": found.name, "subject": found.subject}, float(found.raised))
            for found in counts.signals()
        ],
    )
    usage = counts.usage
    yield Family("judgekit_judge_calls_total", "counter", "Calls of judges.", [({}, usage.calls)])
    yield Family(
        "judgekit_judge_tokens_total",
        "counter",
        "Tokens of judges.",
        [
            ({"kind": "prompt"}, usage.prompt_tokens),
            ({"kind": "cached"}, usage.cached_tokens),
            ({"kind": "completion"}, usage.completion_tokens),
        ],
    )


class MetricsCollector:
    """A collector for prometheus_client: `REGISTRY.register(MetricsCollector(runner))`.

    Counters only grow while nobody resets `runner.metrics`: use it beside no tracker of steps, which does.
    """

    def __init__(self, runner: GradingRunner) -> None:
        self.runner = runner

    def collect(self) -> Iterator[Any]:
        """Yield prometheus_client's metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family in families(self.runner.metrics.counts):
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            samples = list(family.samples)
            labels = list(samples[0][0]) if samples else []
            made = make(family.name.removesuffix("_total"), family.about, labels=labels)
            for given, value in samples:
                made.add_metric(list(given.values()), value)
            yield made
