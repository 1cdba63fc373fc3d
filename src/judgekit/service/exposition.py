"""The service's figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from judgekit.service.service import RewardService
from judgekit.trackers.prometheus import families

Sample = tuple[Mapping[str, str], float]


def exposition(service: RewardService) -> str:
    """What was graded and asked since the start, and what is in flight now."""
    return "\n".join(line for family in _families(service) for line in family) + "\n"


def _families(service: RewardService) -> Iterator[Iterator[str]]:
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
    for name, value in service.audits.latest.items() if service.audits is not None else ():
        yield _family(
            name.replace("/", "_"), "gauge", "Of the last audited step, see docs/audits.md.", [({}, value)]
        )
    for family in families(service.runner.metrics.counts):
        yield _family(*family)


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
