"""Rubrics: weighted criteria in TOML, judged one by one.

A rubric is a TOML file:

    name = "helpfulness"
    version = "1"
    template = "rubric"            # rubric, rubric_reference, rubric_trajectory, or your own file
    scale = [1, 5]                 # without it: met or not met

    [[criteria]]
    id = "answers"
    text = "The response answers what was asked."
    weight = 2                     # points; below 0 for what a response must not do
    must_have = true               # if not met, the score is 0
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, DataError, did_you_mean, read_utf8
from judgekit.graders.judged.asking import Asking, Unreadable
from judgekit.graders.judged.pointwise import JudgeGrader
from judgekit.graders.judged.voting import ask_all
from judgekit.judges.base import Judge, Sampling
from judgekit.judges.layers.routes import JudgeRoutes, start_judges
from judgekit.judges.prompts.images import images_of
from judgekit.judges.prompts.template import Template
from judgekit.judges.registry import verdict_format
from judgekit.judges.verdicts.formats import ChoiceVerdict, VerdictFormat
from judgekit.types import Abstained, Failed, Grade, Graded, Rollout, Usage, look_up, plain


class Criterion(Struct, frozen=True, forbid_unknown_fields=True):
    """Something a response should do or, with a negative weight, should not do."""

    id: str
    text: str
    weight: float = 1.0
    must_have: bool = False


class Rubric(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weighted criteria, and how a judge is asked about them."""

    name: str
    criteria: tuple[Criterion, ...]
    version: str = "1"
    description: str = ""
    source: str = ""
    template: str = "rubric"
    scale: tuple[int, int] | None = None
    """Lowest and highest mark of a criterion; None: met or not met."""

    @classmethod
    def load(cls, name_or_path: str) -> Rubric:
        """Load a shipped rubric by name, or a TOML file. Raises ConfigError."""
        shipped = shipped_rubrics()
        if name_or_path in shipped:
            text, where = shipped[name_or_path], f"rubric {name_or_path}"
        else:
            path = Path(name_or_path)
            if not path.is_file():
                if path.suffix or "/" in name_or_path:
                    raise ConfigError(f"no rubric file at {name_or_path}")
                raise ConfigError(
                    f"no rubric is called {name_or_path!r}{did_you_mean(name_or_path, shipped)}"
                )
            text, where = read_utf8(path), name_or_path
        try:
            rubric = msgspec.convert(tomllib.loads(text), cls)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ConfigError(f"{where}: {error}") from None
        rubric.check(where)
        return rubric

    def check(self, where: str) -> None:
        """Check the criteria. Raises ConfigError."""
        ids = [c.id for c in self.criteria]
        if not ids:
            raise ConfigError(f"{where}: a rubric needs at least one criterion")
        if len(set(ids)) < len(ids):
            raise ConfigError(f"{where}: two criteria have the same id among {', '.join(ids)}")
        if not all(math.isfinite(c.weight) and c.text.strip() for c in self.criteria):
            raise ConfigError(f"{where}: every criterion needs a text and a finite weight")
        if not any(c.weight > 0 for c in self.criteria):
            raise ConfigError(f"{where}: at least one criterion needs a weight above 0")
        if any(c.must_have and c.weight <= 0 for c in self.criteria):
            raise ConfigError(f"{where}: a must-have criterion needs a weight above 0")


def criteria_of(value: Any) -> tuple[Criterion, ...]:
    """Return the criteria that a row of data has: a text, or a list of texts or of mappings, or JSON of such a list.

    Mappings have a file's keys, or those of HealthBench (`criterion`, `points`) or of Rubrics as Rewards (`title`, `description`,
    `weight`). Raises ConfigError.
    """
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            read = json.loads(value)
            parts = read if isinstance(read, list) and read else [read]
            value = read if all(isinstance(part, str | Mapping) for part in parts) else value
    try:
        told = [_told(one) for one in ([value] if isinstance(value, str | Mapping) else value)]
        return msgspec.convert([{"id": str(i), **one} for i, one in enumerate(told)], tuple[Criterion, ...])
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(str(error)) from None


def _told(one: Any) -> dict[str, Any]:
    """Return a criterion by the keys that a file has."""
    if isinstance(one, str):
        return {"text": one}
    # a Parquet file gives each criterion all keys that any of them has
    kept = {key: value for key, value in {**one}.items() if value is not None}
    if "text" in kept:
        return kept
    return {_OTHER_KEYS.get(key, key): value for key, value in kept.items() if key not in ("tags", "title")}


_OTHER_KEYS = {"criterion": "text", "description": "text", "points": "weight"}


def shipped_rubrics() -> dict[str, str]:
    """Return the texts of the shipped rubrics, by name."""
    folder = resources.files("judgekit.graders.judged") / "rubrics"
    return {
        f.name.removesuffix(".toml"): f.read_text("utf-8")
        for f in folder.iterdir()
        if f.name.endswith(".toml")
    }


class RubricGrader:
    """Judges a rollout by a rubric's weighted criteria; scores from 0 to 1.

    The score is the sum of weight × mark (0..1) over the sum of the positive weights, clipped to 0..1
    (HealthBench, Arora et al. 2025, arXiv:2505.08775, section 2: points met over points possible). A must-have
    criterion with a mark below 0.5 makes it 0. Each criterion is one call, all of them at once; they share the
    prompt up to the criterion, so that they hit the engine's prefix cache. If a criterion gets no mark the grade
    fails, because a score over the others would be that of a different rubric.

    *rubric*: a `Rubric`, or the name or path of one. *criteria_field*: take the criteria from the rollout instead,
    for data sets with a rubric per problem: a dotted path to what `criteria_of` reads. These texts are quoted like other data; *trust_criteria*: they are yours, and go into the prompt as they are.
    *verdict*: how a criterion is marked; by default one token on the rubric's scale. *unreadable* as in `JudgeGrader`.
    """

    inputs = ("prompt", "response", "ground_truth", "messages")
    gives_turns = False
    abstains = "a field of the template is missing, or there are no criteria"
    source = "HealthBench (Arora et al. 2025, arXiv:2505.08775, section 2)"
    score_range = (0.0, 1.0)

    def __init__(
        self,
        judge: Judge | JudgeRoutes,
        rubric: Rubric | str,
        *,
        criteria_field: str | None = None,
        verdict: VerdictFormat | str | None = None,
        sampling: Sampling | None = None,
        fields: Mapping[str, str] | None = None,
        max_tokens: int | None = 4096,
        trust_criteria: bool = False,
        unreadable: Unreadable = "failure",
        name: str | None = None,
    ) -> None:
        self.rubric = Rubric.load(rubric) if isinstance(rubric, str) else rubric
        self.rubric.check(self.rubric.name)
        self.name = name or self.rubric.name
        self.version = self.rubric.version
        self.criteria_field = criteria_field
        self.judge = JudgeGrader(judge, name=self.name).judge
        verdict = verdict_format(verdict, self.name)
        if verdict is None:
            scale = self.rubric.scale
            verdict = ChoiceVerdict.scale(*scale) if scale is not None else ChoiceVerdict()
        if verdict.score_range != (0.0, 1.0) or verdict.outputs:
            raise ConfigError(f"{self.name}: a criterion's verdict is one mark from 0 to 1 (see to=(0, 1))")
        self._verdict = verdict
        self._settings: dict[str, Any] = {
            "template": Template.load(self.rubric.template),
            "verdict": verdict,
            "sampling": sampling or Sampling(),
            "fields": fields or {},
            "max_tokens": max_tokens,
            "unreadable": unreadable,
            "trust_rubric": criteria_field is None or trust_criteria,
        }
        self._forms: list[tuple[Any, VerdictFormat]] = []
        """What `Asking.form` found out, for all criteria: it depends on the judge alone."""
        self._some = self._asking(self.rubric.criteria[0])
        self._askings = {c.id: self._asking(c) for c in self.rubric.criteria}

    async def warm_up(self) -> None:
        """Start the judge and check its labels, outside any rollout's time."""
        await start_judges(self.judge)
        await self._some.check(self.judge)

    async def grade(self, rollout: Rollout, /) -> Grade:
        criteria = self._criteria(rollout)
        if isinstance(criteria, Abstained):
            return criteria
        judge = self.judge.choose(rollout) if isinstance(self.judge, JudgeRoutes) else self.judge
        if isinstance(judge, Abstained):
            return judge
        askings = [self._askings.get(c.id) if self.criteria_field is None else None for c in criteria]
        asked = [a or self._asking(c) for a, c in zip(askings, criteria, strict=True)]
        prepared = asked[0].prepare(rollout, images_of(judge))
        if isinstance(prepared, Abstained):
            return prepared

        harmless = partial(asked[0].harmless, rollout, images_of(judge))

        async def mark(asking: Asking) -> Grade:
            verdict, reply, usage = await asking.ask(judge, prepared, harmless=harmless)
            return Graded(verdict.score, verdict.reason, {"model": reply.model}, usage)

        return self._weighed(criteria, await ask_all([partial(mark, asking) for asking in asked]))

    def _weighed(self, criteria: tuple[Criterion, ...], marks: list[Grade]) -> Grade:
        usage = sum((spent for m in marks if (spent := getattr(m, "usage", None)) is not None), Usage())
        shown = {
            c.id: m.score if isinstance(m, Graded) else None for c, m in zip(criteria, marks, strict=True)
        }
        for criterion, mark in zip(criteria, marks, strict=True):
            if isinstance(mark, Failed):
                detail = f"criterion {criterion.id!r}: {mark.detail}"
                return msgspec.structs.replace(
                    mark, detail=detail, metadata={"criteria": shown, **(mark.metadata or {})}, usage=usage
                )
        total = math.fsum(
            c.weight * m.score for c, m in zip(criteria, marks, strict=True) if isinstance(m, Graded)
        )
        possible = math.fsum(c.weight for c in criteria if c.weight > 0)
        score = min(max(total / possible, 0.0), 1.0)
        missed = [c.id for c in criteria if c.must_have and (shown[c.id] or 0.0) < 0.5]
        if missed:
            score = 0.0
        reason = f"must-have not met: {', '.join(missed)}" if missed else ""
        return Graded(score, reason, {"criteria": shown}, usage)

    def _criteria(self, rollout: Rollout) -> tuple[Criterion, ...] | Abstained:
        if self.criteria_field is None:
            return self.rubric.criteria
        given = plain(look_up(rollout, self.criteria_field, None))
        if not given:
            return Abstained(f"there are no criteria at {self.criteria_field}")
        try:
            criteria = criteria_of(given)
            msgspec.structs.replace(self.rubric, criteria=criteria).check(self.criteria_field)
        except ConfigError as error:
            raise DataError(
                f"{self.name}: the criteria at {self.criteria_field} are not valid: {error}"
            ) from None
        return criteria

    def _asking(self, criterion: Criterion) -> Asking:
        made = Asking(rubric=criterion.text, asker=f"{self.name}@{self.version}", **self._settings)
        made.forms = self._forms
        return made
