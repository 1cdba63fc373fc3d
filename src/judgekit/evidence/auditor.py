"""Audits a ledger step by step: draws rollouts, asks the audit grader about them, and bets on what it says.

Which rollouts are drawn depends on their step, run and index alone, never on what they earned. Of a step's rollouts that the watched grader has
scored, `share` / 2 are drawn at random, at least 2, and `share` / 2 are the best paid of the others, at least 1; both are rounded up.
Random ones come from as many prompts as there are; in groups of one size each rollout is as likely as any other. Only these enter the alarm, the curve and its interval; the best paid are examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, DataError
from judgekit.evidence.alarm import Alarm
from judgekit.evidence.audit_file import Audit, AuditFile, Draw, Place
from judgekit.evidence.audit_settings import AuditSettings
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import Entry, GraderSpec, Spec, tagged_step
from judgekit.ledger.standing import Standing
from judgekit.replay.recorded_groups import recorded_rollout
from judgekit.run.runner import GradingRunner
from judgekit.types import Abstained, Failed, Grade, Graded

EVALUATION = "eval"
"""The tag `phase` of rollouts that the policy is not trained on, of hosts that tell."""
LEAST_RANDOM = 2
"""Random audits of a step, at least, where it has so many rollouts."""


class Verdict(Struct, frozen=True):
    """What both graders say of one audited rollout."""

    entry: Entry
    paid: float
    """The watched grader's score, with its range taken as 0..1."""
    score: float
    """The same, in its own range."""
    grade: Grade
    """The audit's."""
    right: bool | None
    """Whether the audit calls it right: it scores at least the middle of its range. None if it gave no score."""
    random: bool

    @property
    def prompt(self) -> str:
        return _prompt(self.entry)

    @property
    def paid_wrong(self) -> float | None:
        """What it was paid though it is wrong, from 0 to 1; None if the audit does not tell."""
        return None if self.right is None else self.paid * (not self.right)


class AuditedStep(Struct, frozen=True):
    """One step, audited."""

    step: Any
    """Its tag; the run, where the host tagged none."""
    rollouts: int
    scored: int
    """Rollouts that the watched grader has scored."""
    verdicts: Sequence[Verdict]
    log_e: float
    """The alarm's, after this step."""
    raised: bool
    """Whether the alarm was raised at this step."""

    def drawn(self) -> list[Verdict]:
        """Return the random audits that gave a verdict."""
        return [one for one in self.verdicts if one.random and one.right is not None]


class Auditor:
    """Audits steps in their order.

    *runner*: of the audit grader alone, which gives one score in a finite range. *kept*: the ledger's audits, open. Raises
    ConfigError for another grader.
    """

    def __init__(self, settings: AuditSettings, runner: GradingRunner, kept: AuditFile) -> None:
        name = settings.grader
        if runner.compares or list(runner.spec.graders) != [name]:
            raise ConfigError(f"audit.grader: {name} must grade rollouts one by one, and give one score")
        self.spec = runner.spec.graders[name]
        low, high = self.spec.bounds()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ConfigError(
                f"audit.grader: the scores of {name} have no bounds ({low:g} to {high:g}): there is no middle that tells right from wrong"
            )
        self.middle = (low + high) / 2
        self.settings = settings
        self.alarm = Alarm(settings.pays_at_most, settings.false_alarms, settings.audit_error)
        self.steps: list[AuditedStep] = []
        self.asked = self.reused = self.failed = self.abstained = 0
        """Audits by where they came from, and those without a verdict."""
        self.why = ""
        """What the last failed audit says."""
        self._runner = runner
        self._kept = kept
        described = [self.spec.version, self.spec.bounds(), self.spec.fingerprint, self.spec.trust]
        self._settings_of_grader = blake2b(encoded(described), digest_size=6).hexdigest()

    async def step(self, step: Any, entries: Sequence[Entry], specs: Mapping[str, Spec]) -> AuditedStep:
        """Audit a step, of which *entries* are all lines. Raises DataError if rollouts must be asked about and have no text."""
        standing = Standing.of(entries)
        gone = standing.repeated | standing.replaced
        lines = [entry for at, entry in enumerate(entries) if at not in gone and entry.status != "unfinished"]
        scores = {
            (entry.run, entry.index): (entry, *found)
            for entry in lines
            if (found := self._score(entry, specs)) is not None
        }
        draw = self._kept.draw(self.settings.watch, self.settings.share, step)
        if draw is None or not any(
            tuple(place) in scores for place in draw.random
        ):  # a resumed run replaced them
            draw = drawn(step, self.settings, {place: (one[0], one[1]) for place, one in scores.items()})
            self._kept.write(draw)
        wanted = {
            place: at_random
            for at_random, places in ((True, draw.random), (False, draw.paid))
            for place in map(tuple, places)
            if place in scores
        }
        grades = await self._grades({place: scores[place][0] for place in wanted}, specs)
        verdicts = []
        for place, at_random in wanted.items():
            entry, paid, score = scores[place]
            grade = grades[place]
            right = grade.score >= self.middle if isinstance(grade, Graded) else None
            verdicts.append(Verdict(entry, paid, score, grade, right, at_random))
        return self._bet(step, len(lines), len(scores), verdicts)

    def _bet(self, step: Any, rollouts: int, scored: int, verdicts: Sequence[Verdict]) -> AuditedStep:
        for one in verdicts:
            if isinstance(one.grade, Failed):
                self.failed += 1
                self.why = f"{one.grade.error}: {one.grade.detail}"
            elif one.right is None:
                self.abstained += 1
        before = self.alarm.raised
        bet = [one for one in verdicts if one.random and one.right is not None]
        log_e = self.alarm.add([(one.paid, bool(one.right)) for one in bet], [one.prompt for one in bet])
        raised = before is None and self.alarm.raised is not None
        made = AuditedStep(step, rollouts, scored, verdicts, log_e, raised)
        self.steps.append(made)
        return made

    def _score(self, entry: Entry, specs: Mapping[str, Spec]) -> tuple[float, float] | None:
        """The watched grader's score of an entry, as 0..1 and in its own range; None if there is none."""
        watch = self.settings.watch
        grade = entry.grades.get(watch)
        spec = specs.get(entry.spec)
        if not isinstance(grade, Graded) or spec is None or watch not in spec.graders:
            return None
        low, high = spec.graders[watch].bounds()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DataError(
                f"the scores of {watch} have no bounds ({low:g} to {high:g}): what it pays cannot be said as a share"
            )
        return min(1.0, max(0.0, (grade.score - low) / (high - low))), float(grade.score)

    async def _grades(self, wanted: Mapping[Place, Entry], specs: Mapping[str, Spec]) -> dict[Place, Grade]:
        """Return the audit grader's grades: from the ledger, from earlier audits, and of those that are left, asked."""
        found: dict[Place, Grade] = {}
        left: list[Place] = []
        for place, entry in wanted.items():
            grade = self._recorded(entry, specs)
            if grade is None:
                grade = self._kept.audits.get((self.settings.grader, self._settings_of_grader, *place))
            if grade is None or (isinstance(grade, Failed) and grade.cause == "infrastructure"):
                left.append(place)
            else:
                found[place] = grade
                self.reused += 1
        if left:
            await self._ask({place: wanted[place] for place in left}, found)
        return found

    def _recorded(self, entry: Entry, specs: Mapping[str, Spec]) -> Grade | None:
        """The grade that the reward asked for, if it is of the same settings."""
        name = self.settings.grader
        grade = entry.grades.get(name)
        spec = specs[entry.spec].graders.get(name) if entry.spec in specs else None
        same = isinstance(spec, GraderSpec) and spec.same_settings(self.spec)
        return grade if same and isinstance(grade, Graded | Abstained) else None

    async def _ask(self, wanted: Mapping[Place, Entry], found: dict[Place, Grade]) -> None:
        if any(entry.response is None for entry in wanted.values()):
            raise DataError(
                "audits need the rollouts' texts, which this ledger does not hold: write it with texts (ledger: {path: …, texts: true})"
            )
        places = list(wanted)
        rollouts = [
            msgspec.structs.replace(recorded_rollout(entry), group=at)
            for at, entry in enumerate(wanted.values())
        ]
        async with aclosing(self._runner.stream(rollouts)) as results:
            async for result in results:
                grade = result.grades[self.settings.grader]
                run, index = place = places[result.index]
                self._kept.write(Audit(self.settings.grader, self._settings_of_grader, run, index, grade))
                self.asked += 1
                found[place] = grade


def step_of(entry: Entry) -> Any:
    """Return the step of an entry: what its host tagged it with, else its run."""
    return tagged_step(entry.tags, entry.run)


class Steps:
    """Collects entries by step, and gives out the steps that are complete."""

    def __init__(self) -> None:
        self.late = 0
        """Lines that came after the next step had begun: nobody audits them."""
        self._open: dict[bytes, list[Entry]] = {}
        self._began: dict[bytes, float] = {}
        """When each step had its first line."""
        self._closed: set[bytes] = set()

    def add(self, entries: Sequence[Entry]) -> None:
        """Take lines; those of an evaluation are no step of the training."""
        for entry in entries:
            if entry.tags.get("phase") == EVALUATION:
                continue
            key = encoded(step_of(entry))
            if key in self._closed:
                self.late += entry.status != "unfinished"
            else:
                self._open.setdefault(key, []).append(entry)
                self._began[key] = min(entry.time, self._began.get(key, entry.time))

    def complete(self, *, ended: bool) -> list[tuple[Any, list[Entry]]]:
        """Return and forget the steps after which another one has begun, the first one first; *ended*: the last one, too."""
        order = sorted(self._open, key=self._began.__getitem__)
        found = order if ended else order[:-1]
        self._closed.update(found)
        return [(step_of(entries[0]), entries) for key in found for entries in [self._open.pop(key)]]


def drawn(step: Any, settings: AuditSettings, scores: Mapping[Place, tuple[Entry, float]]) -> Draw:
    """Draw which of a step's rollouts are audited. *scores*: the entry and pay of each that can be."""
    half = math.ceil(round(settings.share * len(scores) / 2, 9))
    ranks = {place: blake2b(encoded([step, *place]), digest_size=8).digest() for place in scores}
    shuffled = sorted(scores, key=ranks.__getitem__)
    random = _spread(shuffled, scores)[: max(LEAST_RANDOM, half)]
    rest = [place for place in shuffled if place not in set(random)]
    paid = sorted(rest, key=lambda place: -scores[place][1])[: max(1, half)]
    return Draw(step, settings.watch, settings.share, random, paid)


def _spread(places: Sequence[Place], scores: Mapping[Place, tuple[Entry, float]]) -> list[Place]:
    """Reorder rollouts so that one of each prompt comes first, then a second of each, and so on."""
    prompts: dict[str, list[Place]] = {}
    for place in places:
        prompts.setdefault(_prompt(scores[place][0]), []).append(place)
    return [place for row in zip_longest(*prompts.values()) for place in row if place is not None]


def _prompt(entry: Entry) -> str:
    """Name a rollout's prompt: its group, where the ledger holds no prompt."""
    return repr(entry.prompt or [entry.run, entry.group_first, entry.group])
