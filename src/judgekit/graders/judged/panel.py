"""A grader that asks several judges the same question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from judgekit.errors import ConfigError, VerdictError
from judgekit.graders.judged.asking import Unreadable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.graders.judged.voting import Combine, ask_all, combined
from judgekit.graders.protocol import failure
from judgekit.judges.base import Judge, Sampling
from judgekit.judges.layers.routes import start_judges
from judgekit.judges.prompts.template import Template
from judgekit.judges.verdicts.formats import ChoiceVerdict, VerdictFormat
from judgekit.types import Abstained, Failed, Grade, Rollout, Usage


class Panel:
    """Asks several judges the same question and combines their verdicts.

    *judges*: a mapping of names, or a list. *combine*, *quorum* and *max_spread* as in `voting.combined` (a majority
    of one-token verdicts counts each judge's most likely label); the other
    options as in `JudgeGrader`. Judges that fail by themselves are left to *quorum*; but if the rollout silences one of them, which
    has a verdict on others, the grade fails: it is not for the rollout to choose who grades it. The metadata has each judge's score by name. Panels of smaller judges:
    PoLL (Verga et al. 2024, arXiv:2404.18796).
    """

    inputs = ("prompt", "response", "ground_truth", "messages")
    gives_turns = False
    abstains = "a field of the template is missing, or all judges abstain"
    source = "PoLL (Verga et al. 2024, arXiv:2404.18796)"

    def __init__(
        self,
        judges: Mapping[str, Judge] | Sequence[Judge],
        *,
        template: Template | str = "default",
        verdict: VerdictFormat | str | None = None,
        sampling: Sampling | None = None,
        fields: Mapping[str, str] | None = None,
        rubric: str = "",
        max_tokens: int | None = 4096,
        combine: Combine = "mean",
        quorum: int | None = None,
        max_spread: float | None = None,
        unreadable: Unreadable = "failure",
        name: str = "panel",
        version: str = "1",
    ) -> None:
        named = (
            judges
            if isinstance(judges, Mapping)
            else {f"judge {i}": judge for i, judge in enumerate(judges, 1)}
        )
        if len(named) < 2:
            raise ConfigError(f"{name}: a panel needs at least two judges")
        self.name = name
        self.version = version
        options: dict[str, Any] = {
            "template": template,
            "verdict": verdict,
            "sampling": sampling,
            "fields": fields,
            "rubric": rubric,
            "max_tokens": max_tokens,
            "unreadable": unreadable,
            "version": version,
        }
        self.members = {label: JudgeGrader(judge, name=name, **options) for label, judge in named.items()}
        first = next(iter(self.members.values()))
        if first.outputs:
            raise ConfigError(f"{name}: a panel's verdict has one score")
        self.score_range = first.score_range
        self._combine = combined(
            combine,
            len(named),
            score_range=self.score_range,
            quorum=quorum,
            max_spread=max_spread,
            name=name,
            labels=first.verdict.all_labels if isinstance(first.verdict, ChoiceVerdict) else None,
        )

    async def warm_up(self) -> None:
        """Start the judges and check their labels, outside any rollout's time."""
        await start_judges(*(member.judge for member in self.members.values()))
        for member in self.members.values():
            await member.asking.check(member.judge)

    async def grade(self, rollout: Rollout, /) -> Grade:
        silenced: list[Failed] = []

        async def one(member: JudgeGrader) -> Grade:
            try:
                grade = await member.grade(rollout)
            except VerdictError as error:
                if not await member.silenced(rollout, error):
                    raise
                silenced.append(failure(error))
                return silenced[-1]
            assert not isinstance(grade, Mapping)
            return grade

        grades = await ask_all([partial(one, member) for member in self.members.values()])
        if silenced:
            detail = f"a judge has no verdict on this text, and has one on others: {silenced[0].detail}"
            spent = sum((used for g in grades if (used := getattr(g, "usage", None)) is not None), Usage())
            return msgspec.structs.replace(silenced[0], detail=detail, usage=spent)
        if all(isinstance(grade, Abstained) for grade in grades):
            return grades[0]
        found = self._combine(grades)
        scores = {
            label: getattr(grade, "score", None) for label, grade in zip(self.members, grades, strict=True)
        }
        return _with(found, {"judges": scores})


def _with(grade: Grade, metadata: Mapping[str, Any]) -> Grade:
    known = getattr(grade, "metadata", None) or {}
    return msgspec.structs.replace(grade, metadata={**known, **metadata})
