"""Every attribute of spans and events, every sample for Prometheus, every cell of a table of rollouts."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import (
    Abstained,
    Failed,
    Grade,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    RewardResult,
    Rollout,
    Skipped,
    Usage,
    grader,
)
from judgekit.judges import JudgeReply, JudgeRequest, Piece, Sampling, Turn
from judgekit.metrics import Counts
from judgekit.testing import ScriptedJudge
from judgekit.trackers import (
    MLflowTracker,
    TensorBoardTracker,
    TracedJudge,
    WandbTracker,
    sample,
    trace_results,
    traced,
)
from judgekit.trackers.prometheus import families

from .test_trackers import Spans


def result(index: int, reward: float | None, status: Any = "scored", **fields: Any) -> RewardResult:
    given: dict[str, Any] = {"group": "g", "raw_reward": reward, "contributions": {}, "grades": {}}
    return RewardResult(index=index, reward=reward, status=status, **(given | fields))


GRADES: dict[str, Grade] = {
    "ok": Graded(0.25, "because"),
    "plain": Graded(1),
    "mute": Abstained("no reference"),
    "gated": Skipped("ok >= 1"),
    "down": Failed("JudgeTimeout", "10 s", cause="rollout"),
}


# ---- OpenTelemetry


def test_every_attribute_of_a_result() -> None:
    spans = Spans()
    members = [result(3, 0.5, grades=GRADES, group="g" * 300), result(4, None, "masked", group="g" * 300)]
    filled = result(5, 0.75, "neutral", group=7)
    with trace_results(provider=spans.provider, name="mine") as told:
        told([*members, filled])
    first, second, run = spans.finished()
    assert (run.name, dict(run.attributes)) == ("mine", {"judgekit.rollouts": 3, "judgekit.groups": 2})
    assert [span.name for span in (first, second)] == ["judgekit.group"] * 2
    assert dict(first.attributes) == {"judgekit.group": "g" * 200}
    assert dict(second.attributes) == {"judgekit.group": "7"}
    name, value, label = (
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.value",
        "gen_ai.evaluation.score.label",
    )
    shared = {"judgekit.index": 3, "judgekit.status": "scored"}
    assert [dict(event.attributes) for event in first.events] == [
        {name: "ok", value: 0.25, label: "graded", **shared},
        {name: "plain", value: 1.0, label: "graded", **shared},
        {name: "mute", label: "abstained", **shared},
        {name: "gated", label: "skipped", **shared},
        {name: "down", "error.type": "JudgeTimeout", "judgekit.cause": "rollout", **shared},
        {name: "reward", value: 0.5, **shared},
        {name: "reward", "judgekit.index": 4, "judgekit.status": "masked"},
    ]
    assert [dict(event.attributes) for event in second.events] == [
        {name: "reward", "judgekit.index": 5, "judgekit.status": "neutral"}
    ]


async def test_every_attribute_of_a_judge_s_call() -> None:
    from opentelemetry.trace import SpanKind

    spans = Spans()
    reply = JudgeReply("x", usage=Usage(1, 20, 3, 4), model="qwen", finish_reason="length")
    judge = TracedJudge(ScriptedJudge(reply), provider=spans.provider)
    turns = (Turn("user", (Piece("q"),)),)
    asked = JudgeRequest(
        turns=turns, asker="judge@1", vote=2, max_tokens=77, sampling=Sampling(temperature=0.5)
    )
    assert await judge.complete(asked) is reply
    await judge.complete(JudgeRequest(turns=turns, json_schema={"type": "object"}))
    first, second = spans.finished()
    assert (first.name, first.kind) == ("chat qwen", SpanKind.CLIENT)
    assert dict(first.attributes) == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "judgekit", "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 77, "gen_ai.output.type": "text", "judgekit.asker": "judge@1", "judgekit.vote": 2,
        "gen_ai.response.model": "qwen", "gen_ai.response.finish_reasons": ("length",), "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 4, "judgekit.usage.cached_tokens": 3,
    }  # fmt: skip
    assert second.attributes["gen_ai.output.type"] == "json"
    assert judge.requests == [asked, judge.inner.requests[1]]  # its own attributes are still there


async def test_a_call_that_raises_names_the_error_and_quotes_nothing() -> None:
    spans = Spans()
    with pytest.raises(JudgeUnavailable):
        await TracedJudge(ScriptedJudge(JudgeUnavailable("secret")), provider=spans.provider).complete(
            JudgeRequest(turns=(Turn("user", (Piece("q"),)),))
        )
    (span,) = spans.finished()
    assert (span.name, span.attributes["error.type"], span.status.description) == (
        "chat",
        *["JudgeUnavailable"] * 2,
    )
    assert span.events == ()
    assert "secret" not in span.to_json()


@pytest.mark.parametrize("where", ["inline", "async"])
async def test_the_span_of_an_evaluation(where: str) -> None:
    def score(response: str) -> Any:
        return {"a": 0.75, "fail": Failed("E", "secret"), "none": Abstained("no")}.get(response, 0.0)

    async def later(response: str) -> Any:
        return score(response)

    made: Any = grader(name="own")(later if where == "async" else score)
    spans = Spans()
    runner = traced(GradingRunner({"own": made}), provider=spans.provider)
    await runner.run([Rollout(response=text, group="g" * 300) for text in ("a", "fail", "none")])
    shared = {"gen_ai.evaluation.name": "own", "judgekit.group": "g" * 200}
    found = sorted((dict(span.attributes) for span in spans.finished()), key=len)
    assert {span.name for span in spans.finished()} == {"evaluate own"}
    assert found[0] == shared
    assert shared | {"gen_ai.evaluation.score.value": 0.75} in found
    assert shared | {"error.type": "E"} in found


# ---- Prometheus


def test_every_sample() -> None:
    counts = Counts()
    counts.add(result(0, 0.5, grades=GRADES, usage=Usage(2, 20, 3, 4)))
    counts.add(result(1, None, "masked", grades={"down": Failed("E")}))
    made = {family.name: family for family in families(counts)}
    samples = {
        name: [(tuple(labels.values()), value) for labels, value in family.samples]
        for name, family in made.items()
    }
    assert samples["judgekit_rollouts_total"] == [(("masked",), 1), (("scored",), 1)]
    assert dict(samples["judgekit_grades_total"]) == {
        (name, outcome): count
        for name, counted in {
            "ok": (1, 0, 0, 0), "plain": (1, 0, 0, 0), "mute": (0, 1, 0, 0), "gated": (0, 0, 1, 0), "down": (0, 0, 0, 2),
        }.items()
        for outcome, count in zip(("graded", "abstained", "skipped", "failed"), counted, strict=True)
    }  # fmt: skip
    assert samples["judgekit_failures_total"] == [(("down", "E"), 1), (("down", "JudgeTimeout"), 1)]
    assert samples["judgekit_score_mean"] == [(("ok",), 0.25), (("plain",), 1.0)]
    assert samples["judgekit_judge_calls_total"] == [((), 2)]
    assert samples["judgekit_judge_tokens_total"] == [
        (("prompt",), 20),
        (("cached",), 3),
        (("completion",), 4),
    ]
    assert {name: family.kind for name, family in made.items()} == {
        name: "counter" if name.endswith("_total") else "gauge" for name in made
    }
    assert all(family.about.endswith(".") for family in made.values())
    labels = {name: list(next(iter(family.samples), ({}, 0))[0]) for name, family in made.items()}
    assert labels["judgekit_grades_total"] == ["grader", "outcome"]
    assert labels["judgekit_failures_total"] == ["grader", "error"]


# ---- trackers of steps


class Run:
    """What a tracker writes to."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.scalars: list[tuple[str, float, int]] = []

    def log(self, data: dict[str, Any], step: int) -> None:
        self.logged.append((step, data))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table:
        def __init__(self, columns: list[str]) -> None:
            self.columns, self.data = columns, []

        def add_data(self, *row: Any) -> None:
            self.data.append(row)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Table=Table))


def step_of() -> tuple[GradingRunner, list[Rollout], list[RewardResult]]:
    @grader
    def half(response: str) -> float:
        return 0.5

    runner = GradingRunner({"half": half})
    runner.run_sync([Rollout(response="x")])
    rollouts = [
        Rollout(response="r" * 4001, prompt="p" * 4001, ground_truth="t" * 4001, group="g"),
        Rollout(response="r", prompt=[{"role": "user", "content": "q"}], group=7),
    ]
    return (
        runner,
        rollouts,
        [
            result(0, 0.5, grades=GRADES),
            result(1, None, "masked", group=7, grades={"late": Graded(1.0, "w" * 4001)}),
        ],
    )


@pytest.mark.usefixtures("tables")
def test_every_cell_of_a_table() -> None:
    runner, rollouts, results = step_of()
    run = Run()
    WandbTracker(run).log(runner, rollouts, results, step=3)
    ((step, figures),) = run.logged
    assert step == 3
    table = figures.pop("judgekit/samples")
    assert figures["judgekit/half/mean"] == 0.5
    assert table.columns == [
        "group", "prompt", "response", "reference", "reward", "status", "ok", "plain", "mute", "gated", "down", "late", "why",
    ]  # fmt: skip
    why = "ok: because\nmute abstained: no reference\ngated: behind ok >= 1\ndown: JudgeTimeout: 10 s"
    assert table.data == [
        ("g", "p" * 4000, "r" * 4000, "t" * 4000, 0.5, "scored", 0.25, 1, None, None, None, None, why),
        (
            "7",
            "q",
            "r",
            "None",
            None,
            "masked",
            None,
            None,
            None,
            None,
            None,
            1.0,
            ("late: " + "w" * 4001)[:4000],
        ),
    ]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("options", "with_table"),
    [
        ({}, [1, 2, 3, 4]),
        ({"every": 2}, [1, 3]),
        ({"every": 3}, [1, 4]),
        ({"every": 0}, [1, 2, 3, 4]),
        ({"rows": 0}, []),
    ],
)
def test_which_steps_have_a_table(options: dict[str, Any], with_table: list[int]) -> None:
    runner, rollouts, results = step_of()
    run = Run()
    tracker = WandbTracker(run, **options)
    for step in (1, 2, 3, 4):
        tracker.log(runner, rollouts, results, step=step)
    assert [step for step, data in run.logged if "judgekit/samples" in data] == with_table
    assert "judgekit/half/mean" in run.logged[0][1]
    assert "judgekit/half/mean" not in run.logged[1][1]  # each step's own


def test_scalars_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, rollouts, results = step_of()
    expected = runner.metrics.summary()
    run = Run()
    TensorBoardTracker(run).log(runner, rollouts, results, step=9)
    assert run.scalars == [(name, value, 9) for name, value in expected.items()]
    assert runner.metrics.counts.rollouts == 0
    logged: list[Any] = []
    mlflow = SimpleNamespace(log_metrics=lambda figures, step, run_id: logged.append((figures, step, run_id)))
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    runner.run_sync(rollouts)
    expected = runner.metrics.summary()
    MLflowTracker("id").log(runner, rollouts, results, step=4)
    assert logged == [(expected, 4, "id")]
    assert runner.metrics.counts.rollouts == 0


@pytest.mark.parametrize(
    ("count", "places"),
    [
        (0, []),
        (1, [0]),
        (2, [0, 9]),
        (3, [0, 4, 9]),
        (4, [0, 4, 9, 20]),
        (8, [0, 2, 4, 5, 7, 9, 20, 21]),
        (12, [0, 1, 2, 3, 4, 6, 7, 8, 9, 20, 21, 22]),
        (14, [*range(10), 20, 21, 22, 23]),
        (20, [*range(10), 20, 21, 22, 23]),
    ],
)
def test_which_rollouts_are_sampled(count: int, places: list[int]) -> None:
    results = [result(i, i / 10) for i in reversed(range(10))] + [
        result(20 + i, None, "masked") for i in range(4)
    ]
    found = [one.index for one in sample(results, count)]
    assert found == places
