"""Whose failure it is that there is no verdict: each row of the table, and what a rollout gains by it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judgekit import Failed, Graded, GradingRunner, JudgeTimeout, JudgeUnavailable, Retry, Rollout
from judgekit.errors import JudgeBudgetSpent, JudgeLoading, JudgeRejected, RolloutError, VerdictError
from judgekit.graders import JudgeGrader, Listwise, Pairwise, Panel, RewardModelGrader
from judgekit.graders.judged.comparing import HARMLESS
from judgekit.judges import JudgeReply, JudgeRequest, LayerOptions, LineVerdict, OpenAIJudge, Turn, stacked
from judgekit.judges.blame import TABLE, whose
from judgekit.testing import ScriptedJudge, prompt_text
from judgekit.types import Grade, Usage
from tests.judges.fake_server import FakeServer

USED = Usage(calls=1, prompt_tokens=10, completion_tokens=1)
ENDINGS = {row.happened.split(",")[0].split(";")[0]: row for row in TABLE}


def group(hostile: str = "HOSTILE") -> list[Rollout]:
    texts = (hostile, "wrong a", "wrong b", "right a", "right b")
    return [Rollout(prompt="PROMPT", ground_truth="1", response=text, group=0) for text in texts]


def chat(
    said: str | None = "", end: str | None = "stop", *, top: Mapping[str, float] | None = None, **message: Any
) -> dict[str, Any]:
    logprobs = None
    if top is not None:
        entries = [{"token": token, "logprob": value} for token, value in top.items()]
        logprobs = {"content": [{**entries[0], "top_logprobs": entries}]}
    choice = {"index": 0, "message": {"content": said, **message}, "finish_reason": end, "logprobs": logprobs}
    return {"choices": [choice]}


def refuses(status: int, **error: Any) -> Callable[[], tuple[int, Any]]:
    return lambda: (status, {"error": error})


HOSTILE: dict[str, tuple[str, Callable[[], tuple[int, Any]]]] = {
    "HTTP 500": ("no connection", refuses(500, message="oops")),
    "HTTP 424": ("no connection", refuses(424, message="a dependency failed")),
    "a rate limit as 413": ("HTTP 429 or 503", refuses(413, message="TPM", code="rate_limit_exceeded")),
    "an overload as 422": ("HTTP 429 or 503", refuses(422, message="Model is overloaded", type="overloaded")),
    "out of memory": ("an engine that is out of memory", refuses(400, message="CUDA out of memory.")),
    "no JSON": ("an answer that is no JSON", lambda: (200, "<html>")),
    "no choice": ("an answer that is no JSON", lambda: (200, {"error": {"message": "quota", "code": 1}})),
    "a reply broken off": ("a reply broken off (`abort`", lambda: (200, chat("### Final Score: 1", "abort"))),
    "all of it thoughts": (
        "a reply broken off (`abort`",
        lambda: (200, chat(None, reasoning_content="### Final Score: 1")),
    ),
    "a bill": ("HTTP 401", refuses(400, message="good standing", code="Arrearage")),
    "a quota": ("HTTP 401", refuses(429, message="spent", code="insufficient_quota")),
    "a key": ("HTTP 401", refuses(401, message="no key")),
    "a model": ("HTTP 401", refuses(404, message="no such model")),
    "HTTP 400": ("HTTP 400", refuses(400, message="flagged")),
    "HTTP 413": ("HTTP 400", refuses(413, message="no")),
    "HTTP 422": ("HTTP 400", refuses(422, message="cannot be processed")),
    "a content filter": (
        "a content filter that removes the reply",
        lambda: (200, chat("", "content_filter")),
    ),
    "Gemini's filter": ("a content filter that removes the reply", lambda: (200, chat("", "SAFETY"))),
    "a refusal": ("a refusal (`message.refusal`)", lambda: (200, chat(None, refusal="I cannot"))),
    "no verdict": ("a reply without a verdict in the agreed form", lambda: (200, chat("Hm."))),
    "a cut reply": (
        "a reply without a verdict in the agreed form",
        lambda: (200, chat("### Final Sc", "length")),
    ),
}
"""What a server answers to a hostile text, and the row that it is."""


class Server(FakeServer):
    """Refuses what has one of *words* in it."""

    def __init__(self, answer: Callable[[], tuple[int, Any]], words: tuple[str, ...] = ("HOSTILE",)) -> None:
        super().__init__("provider")
        self.answer = answer
        self.words = words

    async def _chat(self, request: web.Request, *, faulty: bool = True) -> web.StreamResponse:
        text = json.dumps(await request.json())
        if any(word in text for word in self.words):
            status, body = self.answer()
            if isinstance(body, str):
                return web.Response(text=body)
            return web.json_response(body, status=status)
        score = 1 if "right" in text else 0
        return web.json_response(chat(f"So.\n### Final Score: {score}"))


async def graded(server: Server, members: list[Rollout], **options: Any) -> tuple[list[Any], list[Grade]]:
    async with server:
        judge = OpenAIJudge(server.url, model="judge")
        quick = LayerOptions(retry=Retry(attempts=2, wait_initial_s=0.0), restart_wait_s=0)
        grader = JudgeGrader(stacked(judge, quick), verdict=LineVerdict(nonce=False), **options)
        runner = GradingRunner({"judge": grader}, missing_reward="neutral")
        results = list(await runner.run(members))
        await judge.close()
    return [r.reward for r in results], [r.grades["judge"] for r in results]


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("unreadable", ["failure", "low"])
async def test_each_ending_has_one_whose_failure_it_is(what: str, unreadable: Any) -> None:
    ending, answer = HOSTILE[what]
    row = ENDINGS[ending]
    rewards, grades = await graded(Server(answer), group(), unreadable=unreadable)
    assert rewards[1:] == [0.0, 0.0, 1.0, 1.0]
    grade = grades[0]
    assert isinstance(grade, Failed)
    own = row.whose == "compared" or (row.whose == "compared if low" and unreadable == "low")
    assert grade.cause == ("rollout" if own else "infrastructure")
    assert grade.error == ("RolloutError" if row.whose == "compared" else row.raised)
    if own:
        assert rewards[0] == 0.0


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("unreadable", ["failure", "low"])
async def test_a_judge_that_fails_for_a_harmless_text_too_is_at_fault_itself(
    what: str, unreadable: Any
) -> None:
    _, grades = await graded(Server(HOSTILE[what][1], ("PROMPT",)), group(), unreadable=unreadable)
    assert isinstance(grades[0], Failed)
    assert grades[0].cause == "infrastructure"


def test_the_table_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "judges.md").read_text()
    for row in TABLE:
        assert f"| {row.happened} | `{row.raised}` | {row.whose} | {row.again} |\n" in page


def test_every_row_is_tried() -> None:
    in_errors = {"JudgeTimeout", "JudgeLoading", "JudgeBudgetSpent", "RolloutError"}
    by_name = {row.happened for row in TABLE if row.raised in in_errors}
    # label probabilities: test_verdict.py and test_openai_faults.py; images: test_images.py
    by_name |= {row.happened for row in TABLE if "label" in row.happened}
    tried = {ENDINGS[ending].happened for ending, _ in HOSTILE.values()}
    assert tried | by_name == {row.happened for row in TABLE}
    for error, expected in (
        (JudgeTimeout("late"), "judge"),
        (JudgeLoading("soon"), "judge"),
        (JudgeUnavailable("gone"), "judge"),
        (JudgeBudgetSpent("spent"), "judge"),
        (JudgeRejected("no", 401), "judge"),
        (JudgeRejected("no", 400), "compared"),
        (VerdictError("no"), "compared if low"),
        (RolloutError("own"), "rollout"),
    ):
        assert whose(error) == expected
        assert expected in {row.whose for row in TABLE if row.raised == type(error).__name__}


@pytest.mark.parametrize("refusals", [1, 2, 3])
async def test_a_server_of_many_that_refuses_is_not_the_rollouts_fault(
    refusals: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a router, some servers refuse what others accept: from then on no refusal is blamed on a rollout."""
    left = refusals

    def answer() -> tuple[int, Any]:
        nonlocal left
        left -= 1
        return (
            (200, chat("### Final Score: 1")) if left < 0 else (400, {"error": {"message": "unknown field"}})
        )

    caplog.set_level(logging.WARNING)
    async with Server(answer) as server:
        judge = OpenAIJudge(server.url, model="judge")
        grader = JudgeGrader(judge, verdict=LineVerdict(nonce=False))
        found = await grader.grade(group()[0])
        assert isinstance(found, Graded)
        assert found.score == 1.0
        assert "do all servers behind it have the same settings" in caplog.text
        left = 10**6
        with pytest.raises(JudgeRejected):
            await grader.grade(group()[0])
        await judge.close()


async def test_what_comparisons_cost_is_counted_and_not_cached() -> None:
    def script(request: JudgeRequest) -> JudgeReply:
        if "HOSTILE" in prompt_text(request):
            raise refusal
        return JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, usage=USED)

    # the same error every time
    refusal = JudgeRejected("no")
    judge = ScriptedJudge(script)
    runner = GradingRunner({"judge": JudgeGrader(stacked(judge))})
    for times in (1, 2):
        (result,) = await runner.run(group()[:1])
        grade = result.grades["judge"]
        assert isinstance(grade, Failed)
        assert grade.cause == "rollout"
        assert grade.usage is not None
        assert grade.usage.prompt_tokens == 30
        assert sum(HARMLESS in prompt_text(request) for request in judge.requests) == 3 * times


async def test_a_panel_is_not_graded_by_those_whom_the_rollout_left() -> None:
    def strict(request: JudgeRequest) -> Any:
        if "refused" in prompt_text(request):
            raise JudgeRejected("no")
        return "hm" if "silent" in prompt_text(request) else f"### Final Score [{request.nonce}]: 0"

    def lax(request: JudgeRequest) -> str:
        return f"### Final Score [{request.nonce}]: 1"

    for unreadable in ("failure", "low"):
        judges = {"strict": ScriptedJudge(strict), "lax": ScriptedJudge(lax), "other": ScriptedJudge(lax)}
        panel = Panel(judges, verdict=LineVerdict(), unreadable=unreadable)  # type: ignore[arg-type]
        found = [await panel.grade(rollout) for rollout in group("refused") + group("silent")]
        for number, cause in ((0, "rollout"), (5, "rollout" if unreadable == "low" else "infrastructure")):
            grade = found[number]
            assert isinstance(grade, Failed)
            assert grade.cause == cause
        assert [g.score for g in found if isinstance(g, Graded)] == [2 / 3] * 8
    down = {
        "strict": ScriptedJudge(JudgeUnavailable("down")),
        "lax": ScriptedJudge(lax),
        "other": ScriptedJudge(lax),
    }
    found = [await Panel(down, verdict=LineVerdict()).grade(group()[0])]
    assert isinstance(found[0], Graded)  # a judge that fails by itself is left to the quorum
    mute = {"strict": ScriptedJudge("hm"), "lax": ScriptedJudge(lax), "other": ScriptedJudge(lax)}
    assert isinstance(await Panel(mute, verdict=LineVerdict()).grade(group()[0]), Graded)


@pytest.mark.parametrize("unreadable", ["failure", "low"])
async def test_who_keeps_a_judge_from_ranking_or_comparing(unreadable: Any) -> None:
    def ranks(request: JudgeRequest) -> str:
        text = prompt_text(request)
        if "HOSTILE" in text and "RESPONSE M2" in text:
            return "I will not rank these."
        names = [f"M{number}" for number in range(1, text.count("RESPONSE M") + 1)]
        return json.dumps({"code": request.nonce, "reason": "", "ranking": names})

    def compares(request: JudgeRequest) -> Any:
        text = prompt_text(request)
        both = "HOSTILE" in text and ("wrong" in text or "right" in text)
        return {"A": 0.5, "B": 0.5, "C": 0.0} if not both else "hm"

    for grader in (
        Listwise(ScriptedJudge(ranks), unreadable=unreadable),
        Pairwise(ScriptedJudge(compares), unreadable=unreadable),
    ):
        runner = GradingRunner({"g": grader}, missing_reward="neutral")
        grades = [r.grades["g"] for r in await runner.run(group())]
        assert all(isinstance(grade, Graded) for grade in grades[1:])
        grade = grades[0]
        assert isinstance(grade, Failed)
        assert grade.cause == ("rollout" if unreadable == "low" else "infrastructure")


@pytest.mark.parametrize("everybody", [False, True])
async def test_a_reward_models_refusals_are_compared_too(everybody: bool) -> None:
    class Model:
        async def reward(self, turns: Sequence[Turn]) -> tuple[float, Usage]:
            if everybody or "HOSTILE" in turns[-1].text:
                raise JudgeRejected("HTTP 400: flagged", 400)
            return 1.0, USED

    runner = GradingRunner({"rm": RewardModelGrader(Model(), squash=True)})
    grade = (await runner.run(group()))[0].grades["rm"]
    assert isinstance(grade, Failed)
    assert grade.cause == ("infrastructure" if everybody else "rollout")
    assert everybody or grade.usage == USED + USED + USED


async def test_what_comparisons_take_is_not_the_rollouts_time() -> None:
    """Else a rollout that is refused slowly ends as a time-out, and gets what its group gets."""

    async def slow(request: JudgeRequest) -> JudgeReply:
        await asyncio.sleep(0.3)
        if "HOSTILE" in prompt_text(request):
            raise JudgeRejected("no")
        return JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0})

    class Slow:
        complete = staticmethod(slow)

    runner = GradingRunner({"judge": JudgeGrader(Slow())}, timeout_s=1.2, missing_reward="neutral")
    result = (await runner.run(group()))[0]
    grade = result.grades["judge"]
    assert isinstance(grade, Failed)
    assert (grade.error, grade.cause, result.reward) == ("RolloutError", "rollout", 0.0)


@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_a_limit_that_is_no_context_cuts_no_text(status: int) -> None:
    said = {"error": {"message": "the maximum of tokens in a minute is reached"}}
    _, grades = await graded(Server(lambda: (status, said)), group())
    grade = grades[0]
    assert isinstance(grade, Failed)
    assert grade.cause == "infrastructure"
    assert (grade.error == "JudgeUnavailable") == (status != 500)
