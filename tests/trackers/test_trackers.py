"""Trackers, with the real packages and without a network: what they keep is what the runner counted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    Failed,
    Grade,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    RewardResult,
    Rollout,
    Usage,
    grader,
)
from judgekit.graders import JudgeGrader
from judgekit.judges import JudgeRequest, Piece, Turn, stacked
from judgekit.metrics import Counts
from judgekit.testing import ScriptedJudge
from judgekit.trackers import (
    MetricsCollector,
    MLflowTracker,
    TensorBoardTracker,
    TracedJudge,
    WandbTracker,
    sample,
    trace_results,
    traced,
)

from ..report.ledgers import TREE, judge, length, some

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def graded() -> tuple[GradingRunner, list[Rollout], list[Any]]:
    runner = GradingRunner({"length": length, "judge": judge}, TREE, missing_reward="neutral")
    rollouts = some(40)
    return runner, rollouts, runner.run_sync(rollouts)


def test_tensorboard(graded: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary import Writer

    runner, rollouts, results = graded
    expected = runner.metrics.summary()
    writer = Writer(str(tmp_path))
    TensorBoardTracker(writer).log(runner, rollouts, results, step=7)
    writer.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    found = {tag: read.Tensors(tag)[0] for tag in read.Tags()["tensors"]}
    assert {event.step for event in found.values()} == {7}
    assert set(found) == set(expected)
    assert found["judgekit/judge/failure_rate"].tensor_proto.float_val[0] == 0.25
    assert runner.metrics.counts.rollouts == 0  # the next step begins from zero


def test_mlflow(graded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    mlflow.set_tracking_uri(tmp_path.as_uri())
    runner, rollouts, results = graded
    expected = runner.metrics.summary()
    mlflow.set_experiment("rewards")
    with mlflow.start_run() as run:
        MLflowTracker().log(runner, rollouts, results, step=3)
    kept = mlflow.get_run(run.info.run_id).data.metrics
    assert kept == {name: pytest.approx(value) for name, value in expected.items()}


class Recording:
    """Passes what is logged on to a real run, and keeps it: a run offline shows no summary."""

    def __init__(self, run: Any, logged: dict[int, Any]) -> None:
        self.run = run
        self.logged = logged

    def log(self, data: dict[str, Any], step: int) -> None:
        self.logged[step] = dict(data)
        self.run.log(data, step=step)


def test_wandb(graded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    runner, rollouts, results = graded
    expected = runner.metrics.summary()
    logged: dict[int, Any] = {}
    with wandb.init(mode="offline", dir=tmp_path, project="p") as run:
        tracker = WandbTracker(Recording(run, logged), rows=8, every=2)
        for step in (1, 2):
            tracker.log(runner, rollouts, results, step=step)
    table = logged[1].pop("judgekit/samples")
    assert logged[1] == expected
    assert logged[2] == {}  # nothing new since, and no table: every second step has one
    (kept,) = tmp_path.glob("wandb/offline-run-*/files/media/table/judgekit/*.json")
    assert len(json.loads(kept.read_text())["data"]) == 8
    assert table.columns[:6] == ["group", "prompt", "response", "reference", "reward", "status"]
    by_status = {row[5]: row for row in table.data}
    assert set(by_status) == {"scored", "neutral"}
    assert "judge: JudgeUnavailable: the server is down" in {
        line for row in table.data for line in row[-1].splitlines()
    }
    scored = by_status["scored"]
    assert scored[1].startswith("Question")
    assert scored[3] == "truth"


def test_a_sample_spans_the_rewards(graded: Any) -> None:
    _, _, results = graded
    scored = sorted(r.reward for r in results if r.status == "scored")
    chosen = sample(results, 8)
    assert len(chosen) == len({r.index for r in chosen}) == 8
    rewards = [r.reward for r in chosen if r.status == "scored"]
    assert (len(rewards), rewards[0], rewards[-1]) == (6, scored[0], scored[-1])
    assert len(sample(results, 100)) == 40
    assert sample(results, 0) == []
    assert len(sample([r for r in results if r.status == "neutral"], 8)) == 8
    assert sample([], 3) == []


def test_prometheus(graded: Any) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    runner, _, results = graded
    registry = CollectorRegistry()
    registry.register(MetricsCollector(runner))
    page = generate_latest(registry).decode()
    assert registry.get_sample_value("judgekit_rollouts_total", {"status": "scored"}) == 20
    assert registry.get_sample_value("judgekit_grades_total", {"grader": "judge", "outcome": "failed"}) == 10
    assert (
        registry.get_sample_value("judgekit_failures_total", {"grader": "judge", "error": "JudgeUnavailable"})
        == 10
    )
    assert registry.get_sample_value("judgekit_judge_tokens_total", {"kind": "cached"}) == sum(
        r.usage.cached_tokens for r in results
    )
    assert "# TYPE judgekit_score_mean gauge" in page
    raised = {
        grader: registry.get_sample_value("judgekit_signal_raised", {"signal": "missing", "subject": grader})
        for grader in ("judge", "length")
    }
    assert raised == {"judge": 1.0, "length": 0.0}


def test_prometheus_before_anything_was_graded() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(MetricsCollector(GradingRunner({"length": length})))
    assert b"judgekit_judge_calls_total 0.0" in generate_latest(registry)


class Spans:
    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def finished(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())


def test_results_are_spans_and_events(graded: Any) -> None:
    _, _, results = graded
    spans = Spans()
    with trace_results(provider=spans.provider) as told:
        told(results)
    *groups, run = spans.finished()
    assert run.attributes == {"judgekit.rollouts": 40, "judgekit.groups": 10}
    assert len(groups) == 10
    assert all(group.parent.span_id == run.context.span_id for group in groups)
    events = [event for group in groups for event in group.events]
    assert {event.name for event in events} == {"gen_ai.evaluation.result"}
    failed = [
        e.attributes
        for e in events
        if e.attributes["gen_ai.evaluation.name"] == "judge" and "error.type" in e.attributes
    ]
    assert len(failed) == 10
    assert all("gen_ai.evaluation.score.value" not in given for given in failed)
    assert {given["error.type"] for given in failed} == {"JudgeUnavailable"}
    rewards = [e.attributes for e in events if e.attributes["gen_ai.evaluation.name"] == "reward"]
    assert len(rewards) == 40
    assert sum("gen_ai.evaluation.score.value" in given for given in rewards) == 20  # fills are no scores


def test_groups_whose_ids_are_equal_numbers_have_a_span_each() -> None:
    spans = Spans()
    rollouts = [Rollout(response="x", group=group) for group in (1, True, 1.0, "1", (1,), (True,))]
    with trace_results(provider=spans.provider) as told:
        told(GradingRunner([length]).run_sync(rollouts))
    *groups, run = spans.finished()
    assert [group.attributes["judgekit.group"] for group in groups] == [
        "1",
        "True",
        "1.0",
        "1",
        "(1,)",
        "(True,)",
    ]
    assert run.attributes["judgekit.groups"] == 6


async def test_judge_calls_are_spans() -> None:
    spans = Spans()
    judge = TracedJudge(ScriptedJudge("### Score: 1"), provider=spans.provider)
    request = JudgeRequest(turns=(Turn("user", (Piece("secret"),)),), asker="judge@1")
    reply = await judge.complete(request)
    (span,) = spans.finished()
    assert span.name == f"chat {reply.model}"
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["gen_ai.usage.input_tokens"] == reply.usage.prompt_tokens
    assert "secret" not in str(span.attributes)

    def down(request: JudgeRequest) -> str:
        raise JudgeUnavailable("down")

    with pytest.raises(JudgeUnavailable):
        await TracedJudge(ScriptedJudge(down), provider=spans.provider).complete(request)
    failed = spans.finished()[-1]
    assert failed.attributes["error.type"] == "JudgeUnavailable"
    assert not failed.status.is_ok


@grader
def brief(response: str) -> float:
    return float(len(response) < 10)


@grader(name="broken", where="thread")
def broken(response: str) -> float:
    raise ValueError(response)


class Best:
    """Grades a group."""

    name, version, score_range = "best", "1", (0.0, 1.0)

    async def grade_group(self, rollouts: Sequence[Rollout]) -> list[float]:
        return [0.5 for _ in rollouts]


async def test_evaluations_and_the_calls_in_them_are_spans() -> None:
    """Of every kind of grader, below the run; a failure has its error's name, and nobody's text is told."""
    spans = Spans()
    runner = GradingRunner(
        {
            "judge": JudgeGrader(stacked(ScriptedJudge("1"))),
            "brief": brief,
            "broken": broken,
            "best": Best(),
        },
        {"judge": 1.0, "brief": 0, "broken": 0, "best": 0},
    )
    rollouts = [
        Rollout(prompt="p", response="secret", ground_truth="4", group="g", id=str(i)) for i in range(2)
    ]
    watched = traced(runner, provider=spans.provider)
    with trace_results(provider=spans.provider) as told:
        told(results := await watched.run(rollouts))
    assert [r.reward for r in results] == [r.reward for r in await runner.run(rollouts)] == [1.0, 1.0]
    found = {
        name: [s for s in spans.finished() if s.name == name] for name in {s.name for s in spans.finished()}
    }
    (run,), calls = (
        found["judgekit.run"],
        [s for name, of in found.items() if name.startswith("chat") for s in of],
    )
    assert {name: len(of) for name, of in found.items() if name.startswith("evaluate")} == {
        "evaluate judge": 2,
        "evaluate brief": 2,
        "evaluate broken": 2,
        "evaluate best": 1,
    }
    for span in (span for name, of in found.items() if name.startswith("evaluate") for span in of):
        assert span.parent.span_id == run.context.span_id
        assert span.attributes["judgekit.group"] == "g"
    assert {span.parent.span_id for span in calls} == {s.context.span_id for s in found["evaluate judge"]}
    assert [s.attributes["gen_ai.evaluation.score.value"] for s in found["evaluate judge"]] == [1.0, 1.0]
    assert {s.attributes["error.type"] for s in found["evaluate broken"]} == {"ValueError"}
    assert "secret" not in "".join(span.to_json() for span in spans.finished())


def test_the_documentation_has_every_name() -> None:
    counts = Counts(bounds=(0.0, 1.0))
    made = []
    for i in range(64):
        grades: dict[str, Grade] = {
            "g": Failed("VerdictError"),
            "h": Graded(i / 64, usage=Usage(1, 1, 1, 1)),
            "r": Graded(i / 64),
        }
        made.append(
            RewardResult(
                index=0, group=0, reward=i / 64, status="scored", raw_reward=i / 64, contributions={}, grades=grades, usage=Usage(1, 1, 1, 1)
            )
        )  # fmt: skip
    rollouts = [Rollout(response="x" * i) for i in range(64)]
    for result, rollout in zip(made, rollouts, strict=True):
        counts.add(result, rollout)
    counts.add_group(made, rollouts)
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall("`([^`]+)`", row)}
    latencies = {"GRADER/p50_s", "GRADER/p95_s", "GRADER/queue_wait_p95_s", "GRADER/starved"}
    pairs = {"h/correlation_with/r": "JUDGE/correlation_with/RULE"}
    figures = {pairs.get(name) or re.sub("^[ghr]/", "GRADER/", name) for name in counts.figures("")}
    assert documented == figures | latencies | {"live_share"}  # of the trainers' adapters
