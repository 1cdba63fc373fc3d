"""A group grader that ranks several rollouts in one call."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from judgekit.errors import ConfigError, VerdictError
from judgekit.graders.judged.asking import Asking, Prepared, Unreadable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.graders.judged.voting import ask_about, blocking, failing_alone, suspicious
from judgekit.judges.base import Judge, JudgeReply, Sampling
from judgekit.judges.layers.routes import JudgeRoutes, start_judges
from judgekit.judges.prompts.images import images_of
from judgekit.judges.prompts.template import Template
from judgekit.judges.verdicts.formats import JsonVerdict, Verdict
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, Usage


class Listwise:
    """Asks a judge to rank a group in one call.

    Scores go from 1 (best) to 0 (worst). The reply must name every member once; equal texts are shown once and get the same rank. Members are shown in
    seeded random order, and *rounds* rankings in different orders are averaged, to cancel the judge's preference
    for positions. A group larger than *chunk* is ranked in chunks, divided differently in every round; such groups
    need at least two rounds, to compare across chunks. If one ranking fails, the others still count. A member whose
    text the judge refuses or gives no verdict on, also alone, fails by itself (a refusal with cause "rollout"), and the
    others are ranked without it. So are they without a member that only keeps the judge from ranking the others. *unreadable* as in `JudgeGrader`. RULER (OpenPipe ART) also ranks groups in one call.
    """

    inputs = ("prompt", "response of all members")
    gives_turns = False
    abstains = "there is no other member to compare with, or a field of the template is missing"
    source = "RULER (OpenPipe ART)"
    score_range = (0.0, 1.0)

    def __init__(
        self,
        judge: Judge | JudgeRoutes,
        *,
        template: Template | str = "listwise",
        sampling: Sampling | None = None,
        rounds: int = 1,
        chunk: int = 8,
        nonce: bool = True,
        max_tokens: int | None = 2048,
        reply_tokens: int = 512,
        unreadable: Unreadable = "failure",
        seed: int = 0,
        name: str = "listwise",
        version: str = "1",
    ) -> None:
        if rounds < 1 or chunk < 2:
            raise ConfigError(f"{name}: rounds is at least 1 and chunk at least 2")
        self.judge = JudgeGrader(judge, name=name).judge
        self.name = name
        self.version = version
        self.rounds = rounds
        self.chunk = chunk
        self.seed = seed
        self._settings: dict[str, Any] = {
            "template": Template.load(template) if isinstance(template, str) else template,
            "sampling": sampling or Sampling(),
            "fields": {},
            "rubric": "",
            "max_tokens": max_tokens,
            "asker": f"{name}@{version}",
            "given": ("RESPONSES",),
            "unreadable": unreadable,
        }
        self._nonce = nonce
        self._reply_tokens = reply_tokens
        self._askings: dict[int, Asking] = {}
        self._asking(2)  # so that what does not fit is said now

    async def warm_up(self) -> None:
        """Start the judge, outside any rollout's time."""
        await start_judges(self.judge)
        await self._asking(2).check(self.judge)

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        size = len(rollouts)
        judge = self.judge.choose(rollouts[0]) if isinstance(self.judge, JudgeRoutes) else self.judge
        if isinstance(judge, Abstained):
            return [judge] * size
        base = self._asking(2).prepare(rollouts[0], images_of(judge))
        if isinstance(base, Abstained):
            return [base] * size
        if size > self.chunk and self.rounds < 2:
            raise ConfigError(
                f"{self.name}: a group of {size} is ranked in chunks of {self.chunk}, and one round cannot compare across "
                "chunks: set rounds=2 or more, or a larger chunk"
            )
        place_of = {text: place for place, text in enumerate(dict.fromkeys(r.response for r in rollouts))}
        texts = list(place_of)
        if len(texts) == 1:
            return [Graded(0.5, "all responses are equal")] * size
        order = random.Random(f"{self.seed} {len(texts)}")
        chunks = [members for _ in range(self.rounds) for members in _cut(len(texts), self.chunk, order)]

        async def rank(members: Sequence[int]) -> Grade:
            shown = [
                (f"RESPONSE {name}:\n", texts[m])
                for name, m in zip(_names(len(members)), members, strict=True)
            ]
            prepared = Prepared({**base.data, "RESPONSES": shown})
            verdict, reply, usage = await self._asking(len(members)).ask(judge, prepared)
            return Graded(
                0.0, verdict.reason, {"ranking": verdict.metadata["ranking"], "model": reply.model}, usage
            )

        usage = [Usage()] * len(texts)
        standings = await _ranked(chunks, rank, usage, low=self._settings["unreadable"] == "low")
        return _per_member([place_of[r.response] for r in rollouts], standings)

    def _asking(self, members: int) -> Asking:
        if members not in self._askings:
            verdict = _Ranking(members, nonce=self._nonce, max_tokens=self._reply_tokens)
            self._askings[members] = Asking(verdict=verdict, **self._settings)
        return self._askings[members]


async def _ranked(
    chunks: list[list[int]],
    rank: Callable[[Sequence[int]], Awaitable[Grade]],
    usage: list[Usage],
    *,
    low: bool,
) -> list[Grade]:
    """Have the chunks ranked, and ranked again without the members that no ranking can be had of."""
    rankings = await ask_about(chunks, rank, usage)
    out = await failing_alone(chunks, rankings, rank, usage)
    broken = [
        (chunk, ranking) for chunk, ranking in zip(chunks, rankings, strict=True) if suspicious(ranking)
    ]
    if broken and not out:  # one chunk, so that a judge which fails for everybody is asked little more
        out = await blocking(*broken[0], rank, usage, low=low)
    if out:  # rank the others without them
        rest = [[member for member in chunk if member not in out] for chunk, _ in broken]
        rest = [chunk for chunk in rest if len(chunk) > 1]
        chunks += rest
        rankings += await ask_about(rest, rank, usage)
    return _standings(chunks, rankings, out, usage)


def _names(count: int) -> list[str]:
    return [f"M{number}" for number in range(1, count + 1)]


def _cut(size: int, chunk: int, order: random.Random) -> list[list[int]]:
    """Shuffle the members into chunks of almost equal size, at least two each."""
    members = list(range(size))
    order.shuffle(members)
    parts = min(math.ceil(size / chunk), size // 2)  # a chunk of one ranks nothing
    bounds = [round(part * size / parts) for part in range(parts + 1)]
    return [members[a:b] for a, b in pairwise(bounds)]


def _per_member(places: Sequence[int], standings: Sequence[Grade]) -> list[Grade]:
    """Return each member's grade; usage is counted with the first member that has the text."""
    seen: set[int] = set()
    grades: list[Grade] = []
    for place in places:
        grade = standings[place]
        grades.append(msgspec.structs.replace(grade, usage=None) if place in seen else grade)
        seen.add(place)
    return grades


def _standings(
    chunks: Sequence[Sequence[int]],
    rankings: Sequence[Grade],
    out: Mapping[int, Failed],
    usage: Sequence[Usage],
) -> list[Grade]:
    """Compute each member's mean rank. *out*: those that are not ranked; what failed with one of them says nothing."""
    ranks: list[list[float]] = [[] for _ in usage]
    failures: list[Failed | None] = [None] * len(usage)
    reasons: list[str] = [""] * len(usage)
    for members, ranking in zip(chunks, rankings, strict=True):
        if isinstance(ranking, Graded) and ranking.metadata is not None:
            for place, member in enumerate(ranking.metadata["ranking"]):
                ranks[members[member]].append(1.0 - place / (len(members) - 1))
                reasons[members[member]] = ranking.reason
        elif isinstance(ranking, Failed) and out.keys().isdisjoint(members):
            for member in members:
                failures[member] = failures[member] or ranking
    grades: list[Grade] = []
    for member, spent in enumerate(usage):
        if (failed := out.get(member)) is not None:
            grades.append(msgspec.structs.replace(failed, usage=spent))
        elif ranks[member]:
            score = math.fsum(ranks[member]) / len(ranks[member])
            grades.append(Graded(score, reasons[member], {"ranks": ranks[member]}, spent))
        elif (failed := failures[member]) is not None:
            grades.append(msgspec.structs.replace(failed, usage=spent))
        else:
            grades.append(Abstained("there is no other response to compare with", usage=spent))
    return grades


class _Ranking(JsonVerdict):
    """A JSON verdict whose answer is a list of all members, best first."""

    def __init__(self, members: int, *, nonce: bool, max_tokens: int) -> None:
        super().__init__(nonce=nonce, max_tokens=max_tokens)
        self._names = _names(members)
        properties: dict[str, Any] = {"code": {"type": "string", "maxLength": 16}} if nonce else {}
        properties["reason"] = {"type": "string", "maxLength": 600}
        properties["ranking"] = {
            "type": "array",
            "items": {"enum": self._names},
            "minItems": members,
            "maxItems": members,
        }
        self.json_schema: Mapping[str, Any] | None = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def words(self, nonce: str = "", /) -> dict[str, str]:
        how = f"Answer with one JSON object and nothing else:\n{self._object('CODE')}\nwith the names of all responses, the best first"
        if self.uses_nonce:
            how += ", where CODE is the code that you are given at the end"
        reminder = (
            f"Answer with the JSON object {self._object(nonce)}"
            if self.uses_nonce
            else "Answer with the JSON object."
        )
        return {"HOW_TO_ANSWER": how + ".", "REMINDER": reminder}

    def read(self, reply: JudgeReply, nonce: str = "", /) -> Verdict:
        found = self.read_object(reply, nonce, ("ranking",))
        ranking = found["ranking"]
        if not isinstance(ranking, list) or sorted(map(str, ranking)) != sorted(self._names):
            raise VerdictError(f"the ranking does not name each of {', '.join(self._names)} once", reply.text)
        places = [self._names.index(str(name)) for name in ranking]
        return Verdict(0.0, found["reason"], {"ranking": places})

    def _object(self, code: str) -> str:
        example = {"reason": "<why, briefly>", "ranking": ["<name>", "…"]}
        return json.dumps({"code": code, **example} if self.uses_nonce else example, ensure_ascii=False)
