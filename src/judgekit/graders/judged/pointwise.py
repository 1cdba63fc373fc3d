"""The pointwise grader that asks a judge."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from judgekit.errors import (
    ConfigError,
    VerdictError,
)
from judgekit.graders.judged.asking import Asking, Harmless, Prepared, Unreadable
from judgekit.graders.judged.voting import Combine, ask_all, combined
from judgekit.judges.base import Judge, JudgeReply, Sampling
from judgekit.judges.layers.routes import JudgeRoutes, start_judges
from judgekit.judges.prompts.images import images_of
from judgekit.judges.prompts.template import Template
from judgekit.judges.verdicts.formats import ChoiceVerdict, Verdict, VerdictFormat
from judgekit.types import (
    Abstained,
    Grade,
    Graded,
    Rollout,
    Usage,
)


class JudgeGrader:
    """Asks a judge about one rollout, and reads its verdict.

    *judge*: an engine, a stack of layers, or `JudgeRoutes` that choose a judge per rollout. *template*: a `Template`,
    or the name, the path or the text of one. *verdict*: how the judge answers, a format or its name (choice, line or json); by
    default as the template says, or one token, 0 or 1. *fields*: dotted
    paths of further template fields in the rollout. *rubric*: text for the template's {RUBRIC}. *max_tokens*: longer
    responses and trajectories are cut in the middle to this many tokens; None: only if the prompt does not fit.

    *votes*: the number of times to ask (with a temperature above 0, so that they differ). The verdicts are combined
    by `voting.combined`, with *combine*, *quorum* and *max_spread*.

    The grader abstains if the rollout lacks a field of the template. If a reply contains no verdict, the judge is
    asked once more; then the grade fails. *unreadable* says whose failure that is: "failure", the judge's, so that the
    rollout gets what the reward says for a missing grade; or "low", the rollout's own, so that it gets the low end, if the judge
    has a verdict on a harmless text in its place. Whose failure a refusal is, that comparison says in any case (`judges/blame.py`). If
    there are several references, `extra.target_gt` and
    `extra.filter_gt_by_prompt_token` (with `extra.prompt`) select among them, see `material.select_references`.
    """

    inputs = ("prompt", "response", "ground_truth", "messages")
    gives_turns = False
    abstains = "a field of the template is missing"
    source = "judgekit's templates; LLM as a judge (Zheng et al. 2023, arXiv:2306.05685)"

    def __init__(
        self,
        judge: Judge | JudgeRoutes,
        *,
        template: Template | str = "default",
        verdict: VerdictFormat | str | None = None,
        sampling: Sampling | None = None,
        fields: Mapping[str, str] | None = None,
        rubric: str = "",
        max_tokens: int | None = 4096,
        votes: int = 1,
        combine: Combine = "mean",
        quorum: int | None = None,
        max_spread: float | None = None,
        unreadable: Unreadable = "failure",
        name: str = "judge",
        version: str = "1",
    ) -> None:
        if not (callable(getattr(judge, "complete", None)) or isinstance(judge, JudgeRoutes)):
            raise ConfigError(f"{name}: {judge!r} is not a judge: it has no complete()")
        self.judge = judge
        self.name = name
        self.version = version
        self.asking = Asking(
            template=Template.load(template) if isinstance(template, str) else template,
            verdict=verdict,
            sampling=sampling or Sampling(),
            fields=fields or {},
            rubric=rubric,
            max_tokens=max_tokens,
            asker=f"{name}@{version}",
            unreadable=unreadable,
        )
        self.verdict = self.asking.verdict
        self.score_range = self.verdict.score_range
        self.outputs = self.verdict.outputs
        if votes < 1:
            raise ConfigError(f"{name}: votes is at least 1, not {votes}")
        sampling = self.asking.sampling
        alike = sampling.temperature <= 0 or (self.verdict.choices and not sampling.thinking)
        if votes > 1 and (alike or self.outputs):
            raise ConfigError(
                f"{name}: {votes} votes at temperature 0, or with one-token verdicts without thinking, would all be equal: set a "
                "sampling temperature and a written verdict with one score, or thinking"
            )
        self.votes = votes
        self._combine = combined(
            combine,
            votes,
            score_range=self.score_range,
            quorum=quorum,
            max_spread=max_spread,
            name=name,
            labels=self.verdict.all_labels if isinstance(self.verdict, ChoiceVerdict) else None,
        )

    async def warm_up(self) -> None:
        """Start the judge and check its labels, outside any rollout's time."""
        await start_judges(self.judge)
        await self.asking.check(self.judge)

    async def grade(self, rollout: Rollout, /) -> Grade | Mapping[str, Grade]:
        judge = self.judge.choose(rollout) if isinstance(self.judge, JudgeRoutes) else self.judge
        if isinstance(judge, Abstained):
            return judge
        prepared = self.asking.prepare(rollout, images_of(judge))
        if isinstance(prepared, Abstained):
            return prepared
        harmless = partial(self.asking.harmless, rollout, images_of(judge))
        if self.votes > 1:
            return self._combine(
                await ask_all([partial(self._ask, judge, prepared, harmless, v) for v in range(self.votes)])
            )
        verdict, reply, usage = await self.asking.ask(judge, prepared, harmless=harmless)
        if verdict.scores is None:
            return _graded(verdict, reply, usage, self.verdict)
        grades: dict[str, Grade] = {}
        for part, score in verdict.scores.items():  # usage is counted with the first of them
            grades[part] = Graded(score, verdict.reason, _metadata(verdict, reply, self.verdict), usage)
            usage = Usage()
        return grades

    async def ask_about(self, judge: Judge, rollout: Rollout, fence: int = 0) -> Grade:
        """Ask one judge once. *fence*: backticks of the fences at least, so that prompts that begin alike stay alike."""
        prepared = self.asking.prepare(rollout, images_of(judge))
        if isinstance(prepared, Abstained):
            return prepared
        harmless = partial(self.asking.harmless, rollout, images_of(judge))
        return await self._ask(judge, msgspec.structs.replace(prepared, fence=fence), harmless, 0)

    async def silenced(self, rollout: Rollout, error: VerdictError) -> bool:
        """Whether it is this rollout on which the judge has no verdict, and not any: *error* is how it failed."""
        if self.asking.unreadable == "low":  # it was compared
            return error.from_rollout
        judge = self.judge.choose(rollout) if isinstance(self.judge, JudgeRoutes) else self.judge
        assert not isinstance(judge, Abstained)
        return await self.asking.answers(
            judge, partial(self.asking.harmless, rollout, images_of(judge)), error
        )

    async def _ask(self, judge: Judge, prepared: Prepared, harmless: Harmless, vote: int) -> Grade:
        return _graded(*await self.asking.ask(judge, prepared, vote, harmless), self.verdict)


def _graded(verdict: Verdict, reply: JudgeReply, usage: Usage, form: VerdictFormat) -> Graded:
    return Graded(verdict.score, verdict.reason, _metadata(verdict, reply, form), usage)


def _metadata(verdict: Verdict, reply: JudgeReply, form: VerdictFormat) -> dict[str, Any]:
    metadata: dict[str, Any] = {**verdict.metadata, "model": reply.model}
    if not form.choices:
        metadata["raw"] = reply.text
        if reply.thinking:
            metadata["thinking"] = reply.thinking
    if reply.thinking_cut:
        metadata["thinking_cut"] = True
    return metadata
