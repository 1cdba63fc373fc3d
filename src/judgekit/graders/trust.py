"""Verdicts that labels have not shown to be trustworthy: a score between two certified thresholds is an abstention.

    judge: {use: judge, judge: small, trust: {certificate: judge.cert.json, error: 0.05}}

What an abstention does to the reward is the tree's decision: `fallback`, `renormalise`, exclusion. The raw score is kept
in the grade's metadata.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError
from judgekit.graders.function import Wrapper
from judgekit.graders.protocol import AnyGrader, as_grade, is_group_grader, per_member
from judgekit.types import Abstained, Grade, Graded, Rollout

logger = logging.getLogger("judgekit")

UNTRUSTED = "untrusted_score"
"""Where an abstention's metadata has the score that was not trusted."""
_REASON, _TURNS = "untrusted_reason", "untrusted_turns"
Thresholds = tuple[float, float]
"""Scores up to the first and from the second on are trusted."""


class Trust(Struct, frozen=True):
    """How far a grader is trusted: the key `trust` of a grader in reward.yaml."""

    certificate: os.PathLike[str]
    """A file of `judgekit certify`."""
    error: float = 0.05
    """Of the verdicts that are kept, this share (0..1) is wrong at most, with a probability of 95 %: a level of the certificate."""
    on_change: Literal["refuse", "warn"] = "refuse"
    """What happens if the certificate is about other settings of the grader, such as another template, judge or sampling."""

    def thresholds(
        self, *, version: str, score_range: tuple[float, float], fingerprint: str = ""
    ) -> Thresholds:
        """Return the thresholds of the certificate, checked against a grader's version, range and settings.

        *fingerprint*: see `RewardConfig.fingerprints`; "" if it is not known. Raises ConfigError.
        """
        certified = _read(self.certificate)
        changed = [
            f"{what} is {now}, and was {then}"
            for what, now, then in (
                ("its version", version, certified.version),
                ("its range", score_range, certified.score_range),
            )
            if now != then
        ]
        if not changed and fingerprint and fingerprint != certified.fingerprint:
            changed = [
                "its template, judge, scale or sampling is another"
                if certified.fingerprint
                else "the ledger that it was made of, of a runner made in Python, does not tell its settings"
            ]
        if changed:
            text = f"{self.certificate} is not about this grader as it is now: {'; '.join(changed)}"
            if self.on_change == "refuse":
                raise ConfigError(f"{text}: certify it again, or write on_change: warn")
            logger.warning("%s", text)
        return self._found(certified)

    def _found(self, certified: _Certified) -> Thresholds:
        if certified.refused:
            raise ConfigError(f"{self.certificate} certifies nothing: {certified.refused}")
        levels = {one.error: one for one in certified.thresholds}
        if self.error not in levels:
            raise ConfigError(
                f"{self.certificate} has thresholds for an error of {_listed(levels)}, not of {self.error!r}"
            )
        found = levels[self.error]
        if found.low is None or found.high is None:
            reached = [level for level, one in levels.items() if one.low is not None]
            hint = f"error: {min(reached):g} is reached" if reached else "no error is: it takes more labels"
            raise ConfigError(f"{self.certificate}: no threshold reaches an error of {self.error:g}; {hint}")
        return found.low, found.high


class _Threshold(Struct, frozen=True):
    error: float
    low: float | None
    high: float | None


class _Certified(Struct, frozen=True):
    """What a certificate has of `judgekit.evidence.certificate.Certificate` that matters here."""

    certificate: Literal[1]
    grader: str
    version: str
    fingerprint: str
    score_range: tuple[float, float]
    thresholds: Sequence[_Threshold] = ()
    refused: str = ""


def _read(path: os.PathLike[str]) -> _Certified:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Certified)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is no certificate of `judgekit certify … --out {Path(path).stem}.json` ({error})"
        ) from None


def _listed(levels: Mapping[float, Any]) -> str:
    return ", ".join(f"{level:g}" for level in levels) or "no level"


class Trusted(Wrapper):
    """Wraps a grader so that it abstains where its certificate does not trust it.

        Trusted(JudgeGrader(judge), Trust(Path("judge.cert.json"), error=0.05))

    *fingerprint*: digest of the grader's settings, as reward.yaml has them. Raises ConfigError if the certificate is about
    another grader, reaches no such error, or cannot be read; and for a grader with several scores or without a finite range.
    """

    def __init__(self, inner: AnyGrader, trust: Trust, *, fingerprint: str = "") -> None:
        super().__init__(inner)
        if getattr(inner, "outputs", None):
            raise ConfigError("a grader with several outputs has no one score to trust")
        low, high = map(float, inner.score_range)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ConfigError(f"its scores have no bounds ({low:g} to {high:g})")
        self.trusted = trust.thresholds(
            version=inner.version, score_range=(low, high), fingerprint=fingerprint
        )
        if is_group_grader(inner):
            self.grade_group = self._grade_group
        elif inspect.iscoroutinefunction(getattr(inner, "grade", None)):
            self.grade = self._grade_async  # type: ignore[method-assign]

    def grade(self, rollout: Rollout, /) -> Any:
        value = self.inner.grade(rollout)
        return self._later(value) if hasattr(value, "__await__") else self._kept(value)

    async def _grade_async(self, rollout: Rollout, /) -> Any:
        return self._kept(await self.inner.grade(rollout))

    async def _later(self, value: Any) -> Any:
        return self._kept(await value)

    async def _grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Any]:
        value = self.inner.grade_group(rollouts)
        grades = per_member(await value if hasattr(value, "__await__") else value, len(rollouts))
        return [self._kept(grade) for grade in grades]

    def _kept(self, value: Any) -> Grade:
        return with_trust(as_grade(value, self.score_range), self.trusted)


def with_trust(grade: Grade, thresholds: Thresholds | None) -> Grade:
    """Return the grade of a grader that is trusted up to the first threshold and from the second on; None: everywhere.

    Takes grades to which other thresholds were applied.
    """
    grade = untrusted(grade)
    if thresholds is None or not isinstance(grade, Graded):
        return grade
    low, high = thresholds
    if grade.score <= low or grade.score >= high:
        return grade
    kept = {**(grade.metadata or {}), UNTRUSTED: grade.score}
    if grade.reason:
        kept[_REASON] = grade.reason
    if grade.turns is not None:
        kept[_TURNS] = grade.turns
    return Abstained(f"not trusted between {low:.4g} and {high:.4g}", kept, grade.usage)


def untrusted(grade: Grade) -> Grade:
    """Return a grade as it was before `trust`: of an abstention that has the score which was not trusted, this score."""
    if not isinstance(grade, Abstained) or not grade.metadata or UNTRUSTED not in grade.metadata:
        return grade
    rest = {key: value for key, value in grade.metadata.items() if key not in (UNTRUSTED, _REASON, _TURNS)}
    turns = grade.metadata.get(_TURNS)
    return Graded(
        float(grade.metadata[UNTRUSTED]),
        str(grade.metadata.get(_REASON, "")),
        rest or None,
        grade.usage,
        None if turns is None else tuple(turns),
    )
