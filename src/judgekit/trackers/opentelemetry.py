"""Spans and events for OpenTelemetry, with the names of its conventions for generative AI.

    runner = traced(load_runner("reward.yaml"))   # a span for each evaluation, and in it one for each call of a judge
    with trace_results() as told:                 # a span for the run
        told(await runner.run(rollouts))          # a span for each group, an event for each grade in it

Spans go to the tracer provider that the program has set (`opentelemetry.trace.set_tracer_provider`), or to *provider*.
Texts are in none of them: prompts and responses may be large and private; the ledger keeps them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from judgekit.graders.protocol import as_grade
from judgekit.judges.base import WRAPPER, Judge, JudgeReply, JudgeRequest
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.runner import GradingRunner
from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult
from judgekit.version import __version__


def traced(runner: GradingRunner, *, provider: Any = None) -> GradingRunner:
    """Return a runner that grades as *runner* does, with a span for each evaluation and each call of a judge.

    An evaluation in a worker process (`where="process"`) has no span.
    """
    tracer = _tracer(provider)
    return runner.with_calls(lambda grader: _evaluations(tracer, grader))


def _evaluations(tracer: Any, grader: BoundGrader) -> Callable[[Any], Any]:
    """Return the grader's call, within a span named `evaluate NAME`."""
    call = grader.call

    @contextmanager
    def span_of(group: Any) -> Iterator[Any]:
        given = {"gen_ai.evaluation.name": grader.name, "judgekit.group": str(group)[:200]}
        with _span(tracer, f"evaluate {grader.name}", given) as span:
            token = WRAPPER.set(lambda judge: TracedJudge(judge, tracer=tracer))
            try:
                yield span
            finally:
                WRAPPER.reset(token)

    def told(span: Any, value: Any) -> Any:
        if not (grader.outputs or grader.compares):
            _describe(span, as_grade(value, grader.score_range))
        return value

    def group_of(subject: Any) -> Any:
        return (subject[0] if grader.compares else subject).group

    async def later(subject: Any) -> Any:
        with span_of(group_of(subject)) as span:
            return told(span, await call(subject))

    def in_place(subject: Any) -> Any:
        with span_of(group_of(subject)) as span:
            value = call(subject)
            return value if inspect.isawaitable(value) else told(span, value)

    return later if grader.where == "async" else in_place


def _describe(span: Any, grade: Grade) -> None:
    if isinstance(grade, Graded):
        span.set_attribute("gen_ai.evaluation.score.value", float(grade.score))
    elif isinstance(grade, Failed):
        span.set_attribute("error.type", grade.error)


@contextmanager
def _span(tracer: Any, name: str, attributes: Mapping[str, Any], **options: Any) -> Iterator[Any]:
    """A span that tells an exception's type, and nothing of the texts that it may quote."""
    from opentelemetry.trace import Status, StatusCode

    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False, **options
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


class TracedJudge:
    """A judge whose calls are spans named `chat MODEL`, with sampling, tokens and errors as attributes.

    Put it around the judge that a grader asks: the span then has the call's waits, retries and cache, too.
    """

    def __init__(self, inner: Judge, *, provider: Any = None, tracer: Any = None) -> None:
        self.inner = inner
        self._tracer = tracer or _tracer(provider)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        from opentelemetry.trace import SpanKind

        sampling = request.sampling
        given = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "judgekit",
            "gen_ai.request.temperature": float(sampling.temperature),
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.output.type": "json" if request.json_schema is not None else "text",
            "judgekit.asker": request.asker,
            "judgekit.vote": request.vote,
        }
        with _span(self._tracer, "chat", given, kind=SpanKind.CLIENT) as span:
            reply = await self.inner.complete(request)
            span.update_name(f"chat {reply.model}")
            span.set_attributes(
                {
                    "gen_ai.response.model": reply.model,
                    "gen_ai.response.finish_reasons": (reply.finish_reason,),
                    "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": reply.usage.completion_tokens,
                    "judgekit.usage.cached_tokens": reply.usage.cached_tokens,
                }
            )
            return reply


@contextmanager
def trace_results(
    *, name: str = "judgekit.run", provider: Any = None
) -> Iterator[Callable[[Sequence[RewardResult]], None]]:
    """A span for a run; gives a function that adds its results: a span per group, and in it an event per grade.

    The events are named `gen_ai.evaluation.result`. A failed grade's has `error.type` and no score.
    """
    tracer = _tracer(provider)
    with tracer.start_as_current_span(name) as span:

        def told(results: Sequence[RewardResult]) -> None:
            groups: dict[str, list[RewardResult]] = {}
            for result in results:
                groups.setdefault(repr(result.group), []).append(result)  # 1, 1.0 and True are three
            span.set_attributes({"judgekit.rollouts": len(results), "judgekit.groups": len(groups)})
            for members in groups.values():
                with tracer.start_as_current_span(
                    "judgekit.group", attributes={"judgekit.group": str(members[0].group)[:200]}
                ) as inner:
                    for result in members:
                        _add(inner, result)

        yield told


def _add(span: Any, result: RewardResult) -> None:
    shared = {"judgekit.index": result.index, "judgekit.status": result.status}
    for name, grade in result.grades.items():
        given: dict[str, Any] = {"gen_ai.evaluation.name": name, **shared}
        if isinstance(grade, Graded):
            given["gen_ai.evaluation.score.value"] = float(grade.score)
            given["gen_ai.evaluation.score.label"] = "graded"
        elif isinstance(grade, Failed):
            given |= {"error.type": grade.error, "judgekit.cause": grade.cause}
        else:
            label = "abstained" if isinstance(grade, Abstained) else "skipped"
            given["gen_ai.evaluation.score.label"] = label
        span.add_event("gen_ai.evaluation.result", given)
    reward: dict[str, Any] = {"gen_ai.evaluation.name": "reward", **shared}
    if (
        result.status == "scored" and result.reward is not None
    ):  # what a missing one was filled with is no score
        reward["gen_ai.evaluation.score.value"] = float(result.reward)
    span.add_event("gen_ai.evaluation.result", reward)


def _tracer(provider: Any) -> Any:
    from opentelemetry import trace

    return trace.get_tracer("judgekit", __version__, tracer_provider=provider)
