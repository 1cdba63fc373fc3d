"""The service's figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from judgekit.service.service import RewardService

Sample = tuple[Mapping[str, str], float]


def exposition(service: RewardService) -> str:
    """What was graded and asked since the start, and what is in flight now."""
    return "\n".join(line for family in _families(service) for line in family) + "\n"


def _families(service: RewardService) -> Iterator[Iterator[str]]:
    counts = service.runner.metrics.counts
    yield _family(
        "judgekit_requests_total",
        "counter",
        "Answers by route and HTTP status; 499 means that the client had gone.",
        [
            ({"route": route, "status": str(status)}, count)
            for (route, status), count in sorted(service.requests.items())
        ],
    )
    yield _family(
        "judgekit_requests_in_flight", "gauge", "Requests being answered.", [({}, service.in_flight)]
    )
    yield _family(
        "judgekit_abandoned_jobs",
        "gauge",
        "Gradings whose client has gone.",
        [({}, service.answers.abandoned)],
    )
    yield _family(
        "judgekit_groups_waiting", "gauge", "Groups with missing members.", [({}, service.lanes.waiting)]
    )
    yield _family(
        "judgekit_rollouts_total",
        "counter",
        "Rollouts by what their reward is.",
        [({"status": status}, count) for status, count in sorted(counts.statuses.items())],
    )
    graders = sorted(counts.graders.items())
    yield _family(
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
    yield _family(
        "judgekit_failures_total",
        "counter",
        "Failed grades by grader and error.",
        [
            ({"grader": name, "error": error}, count)
            for name, grader in graders
            for error, count in sorted(grader.errors.items())
        ],
    )
    yield _family(
        "judgekit_score_mean",
        "gauge",
        "Mean score of a grader since the start.",
        [({"grader": name}, grader.mean) for name, grader in graders if grader.graded],
    )
    usage = counts.usage
    yield _family("judgekit_judge_calls_total", "counter", "Calls of judges.", [({}, usage.calls)])
    yield _family(
        "judgekit_judge_tokens_total",
        "counter",
        "Tokens of judges.",
        [
            ({"kind": "prompt"}, usage.prompt_tokens),
            ({"kind": "cached"}, usage.cached_tokens),
            ({"kind": "completion"}, usage.completion_tokens),
        ],
    )


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
