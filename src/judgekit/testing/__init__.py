"""Helpers for tests of rewards and graders, ours and yours: a scripted judge, and rollouts.

judge = ScriptedJudge(lambda request: "### Final Score: 1")
judge = ScriptedJudge({"good answer": "### Final Score: 1"}, default=JudgeUnavailable("down"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from judgekit.judges.base import JudgeReply, JudgeRequest
from judgekit.types import Rollout, Usage

Answer = str | Mapping[str, float] | JudgeReply | BaseException
"""What a scripted judge answers: a text; probabilities of labels, for a choice; a whole reply; or an error
to raise."""


class ScriptedJudge:
    """A judge that answers from a script and keeps its requests.

    *script*: one answer to everything; a sequence, one answer per call; a mapping from a piece of the prompt's
    text to the answer; or a function of the request. *default*: the answer if a mapping has no match. *latency_s*:
    seconds that each answer takes. *label_mass*: for answers that are probabilities. In texts, `{nonce}` becomes
    the code that the verdict must carry: `"### Final Score [{nonce}]: 1"`.
    """

    def __init__(
        self,
        script: Answer | Sequence[Answer] | Mapping[str, Answer] | Callable[[JudgeRequest], Answer],
        *,
        default: Answer | None = None,
        latency_s: float = 0.0,
        label_mass: float = 1.0,
    ) -> None:
        self._script = script
        self._default = default
        self._latency_s = latency_s
        self._label_mass = label_mass
        self.requests: list[JudgeRequest] = []
        """Every request so far, in order."""
        self.in_flight = 0
        self.peak_in_flight = 0
        """The most requests that were in flight at once."""

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.requests.append(request)
        number = len(self.requests) - 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            if self._latency_s:
                await asyncio.sleep(self._latency_s)
            return self._reply(self._answer(request, number), request)
        finally:
            self.in_flight -= 1

    def _answer(self, request: JudgeRequest, number: int) -> Answer:
        script: Any = self._script
        if callable(script) and not isinstance(script, BaseException):
            return script(request)  # type: ignore[no-any-return]
        if isinstance(script, Mapping) and not all(isinstance(v, float | int) for v in script.values()):
            text = prompt_text(request)
            for piece, answer in script.items():
                if piece in text:
                    return answer  # type: ignore[no-any-return]
            if self._default is None:
                raise AssertionError(f"the script has no answer for this prompt:\n{text}")
            return self._default
        if isinstance(script, Sequence) and not isinstance(script, str):
            return script[min(number, len(script) - 1)]  # type: ignore[no-any-return]
        return script  # type: ignore[no-any-return]

    def _reply(self, answer: Answer, request: JudgeRequest) -> JudgeReply:
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, JudgeReply):
            return answer
        usage = Usage(calls=1, prompt_tokens=len(prompt_text(request)) // 4, completion_tokens=1)
        if (
            isinstance(answer, Mapping)
            and len(answer) == len(request.choices)
            and set(answer) != set(request.choices)
        ):
            # for a rollout that begins with a label, the labels are replaced by others, worst first like digits
            answer = {
                label: answer[given] for label, given in zip(request.choices, sorted(answer), strict=True)
            }
        elif (
            isinstance(answer, str)
            and answer in ("0", "1")
            and len(request.choices) == 2
            and answer not in request.choices
        ):
            answer = request.choices[int(answer)]
        if isinstance(answer, str) and answer in request.choices:
            answer = {label: float(label == answer) for label in request.choices}
        if isinstance(answer, Mapping):
            best = max(answer, key=lambda label: answer[label])
            return JudgeReply(
                best, choice_probs=dict(answer), label_mass=self._label_mass, usage=usage, model="scripted"
            )
        return JudgeReply(answer.replace("{nonce}", request.nonce), usage=usage, model="scripted")


def prompt_text(request: JudgeRequest) -> str:
    """Return a request's prompt as one text, roles in brackets."""
    return "\n".join(f"[{turn.role}]\n{turn.text}" for turn in request.turns)


def make_groups(
    prompts: int, per_prompt: int, *, response: Callable[[int, int], str] | None = None
) -> list[Rollout]:
    """Make rollouts of *prompts* groups with *per_prompt* members each, one group after another."""
    say = response or (lambda p, g: f"response {g} to prompt {p}")
    return [
        Rollout(prompt=f"prompt {p}", response=say(p, g), group=p, ground_truth=str(p), id=f"{p}-{g}")
        for p in range(prompts)
        for g in range(per_prompt)
    ]
