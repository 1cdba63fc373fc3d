"""The grader that asks a judge about each of the policy's turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from judgekit.errors import ConfigError
from judgekit.graders.judged.asking import Unreadable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.graders.judged.voting import ask_all
from judgekit.graders.protocol import of_turns
from judgekit.judges.base import Judge, Sampling
from judgekit.judges.layers.routes import JudgeRoutes
from judgekit.judges.prompts.template import Template, fence_around
from judgekit.judges.verdicts.formats import VerdictFormat
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, policy_turns, turn_texts


class JudgeTurns:
    """Asks a judge about a trajectory as it was after each of the policy's turns: one verdict a turn.

    With `{turns: progress, how: change}` in the reward, a turn earns by how much it has brought the solution nearer. The score is
    the mean of the verdicts. The prompt about a turn shows what came up to it, with the answers of the tools that it called, and
    begins as the prompt about the next turn does: an engine with a prefix cache reads a trajectory once. The last turn is asked about first,
    then all others at once. A trajectory that is cut, because it is longer than *max_tokens*, is cut for each turn, and shares less.

    *judge*, *template*, *verdict*, *sampling*, *fields*, *rubric* and *unreadable* are those of `JudgeGrader`; `response` is the
    turn's text. If a turn gets no verdict, the grade has failed: a missing verdict is no number.
    """

    inputs = ("prompt", "response", "ground_truth", "messages")
    gives_turns = True
    abstains = "a field of the template is missing"
    source = "judgekit's template `turn_state`"

    def __init__(
        self,
        judge: Judge | JudgeRoutes,
        *,
        template: Template | str = "turn_state",
        verdict: VerdictFormat | str | None = None,
        sampling: Sampling | None = None,
        fields: Mapping[str, str] | None = None,
        rubric: str = "",
        max_tokens: int | None = 16_384,
        unreadable: Unreadable = "failure",
        name: str = "judge_turns",
        version: str = "1",
    ) -> None:
        self._one = JudgeGrader(
            judge,
            template=template,
            verdict=verdict,
            sampling=sampling,
            fields=fields,
            rubric=rubric,
            max_tokens=max_tokens,
            unreadable=unreadable,
            name=name,
            version=version,
        )
        if self._one.outputs:
            raise ConfigError(
                f"{name}: a turn has one score: take a verdict with one, not {', '.join(self._one.outputs)}"
            )
        self.judge = judge
        self.asking = self._one.asking
        self.name = name
        self.version = version
        self.score_range = self._one.score_range

    async def warm_up(self) -> None:
        """Start the judge and check its labels, outside any rollout's time."""
        await self._one.warm_up()

    async def grade(self, rollout: Rollout, /) -> Grade:
        judge = self.judge.choose(rollout) if isinstance(self.judge, JudgeRoutes) else self.judge
        if isinstance(judge, Abstained):
            return judge
        fence = fence_around(_texts(rollout.messages) or [rollout.response])
        calls = [partial(self._one.ask_about, judge, state, fence) for state in _states(rollout)]
        (last,) = await ask_all(calls[-1:])  # the beginning of its prompt is all of the others'
        if isinstance(last, Failed):
            return msgspec.structs.replace(last, detail=f"turn {len(calls)}: {last.detail}")
        grades = [*await ask_all(calls[:-1]), last]
        grade = of_turns(grades, self.score_range)
        if not isinstance(grade, Graded):
            return grade
        said = [dict(getattr(one, "metadata", None) or {}) for one in grades]
        for earlier in said[:-1]:
            earlier.pop("prompt", None)  # the last one's has all of it
        return msgspec.structs.replace(grade, metadata={"turns": said})


def _states(rollout: Rollout) -> list[Rollout]:
    """Return the rollout as it was after each of the policy's turns, with what the environment answered."""
    turns, texts = policy_turns(rollout), turn_texts(rollout)
    if turns == [[]]:
        said = {"role": "assistant", "content": rollout.response}
        return [msgspec.structs.replace(rollout, messages=[*rollout.messages, said])]
    ends = [*(turn[0] for turn in turns[1:]), len(rollout.messages)]
    return [
        msgspec.structs.replace(rollout, messages=rollout.messages[:end], response=text)
        for end, text in zip(ends, texts, strict=True)
    ]


def _texts(value: Any) -> Sequence[str]:
    """Return all texts in messages, at any depth."""
    found: list[str] = []
    level = [value]
    while level:
        deeper: list[Any] = []
        for one in level:
            if isinstance(one, str):
                found.append(one)
            elif isinstance(one, Mapping):
                deeper += [*one.keys(), *one.values()]
            elif isinstance(one, list | tuple):
                deeper += one
        level = deeper
    return found
