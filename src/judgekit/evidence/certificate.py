"""A certificate: how far a grader can be trusted, from its grades in a ledger and labels of the same rollouts.

Everything is by prompt: rollouts of one prompt are alike. What cannot be known from so few labels is null, with the reason.
The same ledger and labels give the same certificate, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from scipy.special import ndtri

from judgekit.errors import DataError
from judgekit.evidence.shares import Share, clusters_of, design_effect, most, share
from judgekit.graders.trust import untrusted
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import Entry, GraderSpec
from judgekit.types import Abstained, Failed, Graded

ERRORS = (0.01, 0.02, 0.05, 0.1)
"""The shares of wrong verdicts for which thresholds are looked for."""
FEW_LABELS, FEW_PROMPTS = 10, 10
"""Below so many labels of a class, or prompts, nothing is certified."""
_STEPS = 100
"""Thresholds that are tried, at most."""
_PASSED = 2
"""Errors that the first test can bear: with less, one unlucky label would end the search."""
_WITHOUT: Mapping[Any, str] = {Abstained: "abstained", Failed: "failed"}
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Threshold(Struct, frozen=True):
    """Two scores between which a grader is not trusted."""

    error: float
    """Of the verdicts that are kept, this share is wrong at most, with a probability of 95 %."""
    low: float | None
    """Scores up to this are kept; None if no threshold reaches the error."""
    high: float | None
    """Scores from this on are kept."""
    kept: float | None
    """Share (0..1) of the labelled scores that are kept."""
    wrong: float | None
    """Share of these that are wrong."""
    labels: int | None
    """How many labels it would take, of scores as far from the middle as the farthest half and without an error, where these do not suffice."""


class Certificate(Struct, frozen=True, kw_only=True):
    """What labels say of a grader. Shares are from 0 to 1, with intervals of 95 %."""

    certificate: int = 1
    """Version of the format."""
    grader: str
    version: str
    fingerprint: str
    """Digest of the settings that its grades depend on, its judge's included."""
    score_range: tuple[float, float]
    cut: float
    """Scores from this on call a rollout right: the middle of the range."""
    counts: Mapping[str, int]
    missing: Mapping[str, Mapping[str, int]]
    """Labelled rollouts without a score: abstentions, failures and others, by label."""
    refused: str = ""
    """Why nothing is certified; "" if it is."""
    right: Share | None = None
    """Of the right rollouts, those that it calls right."""
    wrong: Share | None = None
    """Of the wrong rollouts, those that it calls wrong."""
    agreement: Share | None = None
    thresholds: Sequence[Threshold] = ()
    next_labels: Sequence[str] = ()
    """Rollouts to label next, as run and index: one of a prompt that has no label, drawn at random."""
    population: Mapping[str, Any] = {}
    """What the labelled rollouts are of: data sources, time, quantiles of score and length."""
    seed: int = 0

    def shares(self) -> Iterator[tuple[str, Share]]:
        """Yield what was measured, in words, with its share; nothing if it is refused."""
        for what, found in (
            ("right ones that it calls right", self.right),
            ("wrong ones that it calls wrong", self.wrong),
            ("agreement", self.agreement),
        ):
            if found is not None:
                yield what, found


def certify(reading: Reading, labels: Mapping[int, bool], grader: str, *, seed: int = 0) -> Certificate:
    """Certify a grader. *labels*: whether rollouts are right, by their place in the ledger's entries.

    Raises DataError if the ledger has no such grader, grades of several settings, or scores without a middle.
    """
    entries = reading.entries
    spec = _spec(reading, labels, grader)
    low, high = spec.bounds()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError(
            f"the scores of {grader} have no bounds ({low:g} to {high:g}): there is no middle that tells right from wrong"
        )
    cut = (low + high) / 2
    scored = sorted(place for place in labels if _score(entries[place], grader) is not None)
    right = np.array([labels[place] for place in scored], dtype=bool)
    prompts = (
        clusters_of([_prompt(entries[place]) for place in scored]) if scored else np.array([], dtype=int)
    )
    scores = np.array([_score(entries[place], grader) for place in scored], dtype=float)
    facts: dict[str, Any] = {
        "grader": grader,
        "version": spec.version,
        "fingerprint": spec.fingerprint,
        "score_range": (low, high),
        "cut": cut,
        "counts": {
            "rollouts": len(entries),
            "labels": len(labels),
            "scored": len(scored),
            "right": int(right.sum()),
            "wrong": int((~right).sum()),
            "prompts": len(set(prompts.tolist())),
        },
        "missing": _missing(entries, labels, grader),
        "population": _population([entries[place] for place in scored], scores),
        "next_labels": _next(entries, labels, grader, seed),
        "seed": seed,
    }
    if refused := _refusal(facts["counts"]):
        return Certificate(refused=refused, **facts)
    calls_right = scores >= cut
    return Certificate(
        right=share(calls_right[right], prompts[right]),
        wrong=share(~calls_right[~right], prompts[~right]),
        agreement=share(calls_right == right, prompts),
        thresholds=[_threshold(scores, right, prompts, cut, error) for error in ERRORS],
        **facts,
    )


def thresholds(
    scores: Any, labels: Any, prompts: Any, error: float, *, score_range: tuple[float, float] = (0.0, 1.0)
) -> Threshold:
    """Find the two scores between which a grader cannot be trusted.

        thresholds([0.9, 0.2, …], [1, 0, …], ["q1", "q1", …], error=0.05)

    *scores*: (n,), inside *score_range*. *labels*: (n,), whether each rollout is right. *prompts*: (n,), the prompt of each.
    *error*: the share (0..1) of the verdicts kept, right and wrong ones together, that may be wrong; it holds with a
    probability of 95 %. Raises DataError.
    """
    given, right = np.asarray(scores, dtype=float), np.asarray(labels)
    names = np.asarray(prompts)
    low, high = map(float, score_range)
    if not given.shape == right.shape == names.shape or given.ndim != 1:
        raise DataError(
            "scores, labels and prompts are three lists of one length, not of the shapes "
            f"{given.shape}, {right.shape} and {names.shape}"
        )
    if not 0 < error < 1:
        raise DataError(f"the error is a share between 0 and 1, not {error!r}")
    if not ((given >= low) & (given <= high)).all():
        raise DataError(f"scores are in {low:g}..{high:g}: give score_range")
    if not np.isin(right, (0, 1)).all():
        raise DataError("labels are 1 or 0, true or false")
    if not len(given):
        raise DataError("there are no labels")
    return _threshold(given, right.astype(bool), clusters_of(names), (low + high) / 2, error)


def _spec(reading: Reading, labels: Mapping[int, bool], grader: str) -> GraderSpec:
    """Return how the labelled rollouts were graded, which is one way."""
    names = {name for spec in reading.specs.values() for name in spec.graders}
    if grader not in names:
        raise DataError(f"the ledger has no grader {grader!r}: it has {', '.join(sorted(names)) or 'none'}")
    specs = (reading.specs.get(digest) for digest in {reading.entries[place].spec for place in labels})
    found = {
        encoded(bare): bare
        for spec in specs
        if spec and (one := spec.graders.get(grader)) and (bare := replace(one, trust=None, price=None))
    }
    if not found:
        raise DataError(f"the ledger does not tell how {grader} graded the labelled rollouts")
    if len(found) > 1:
        raise DataError(
            f"the labelled rollouts were graded with {len(found)} settings of {grader} (template, judge or sampling): "
            "a certificate is about one: keep a ledger for each"
        )
    return next(iter(found.values()))


def _prompt(entry: Entry) -> str:
    """Name a rollout's prompt: its group, where the ledger holds no prompt."""
    return repr(entry.prompt or entry.group)


def _score(entry: Entry, grader: str) -> float | None:
    """Return the score that a grader gave, whether it was trusted or not; None if there is none."""
    grade = entry.grades.get(grader)
    known = None if grade is None else untrusted(grade)
    return float(known.score) if isinstance(known, Graded) else None


def _missing(entries: Sequence[Entry], labels: Mapping[int, bool], grader: str) -> dict[str, dict[str, int]]:
    found = {label: {"abstained": 0, "failed": 0, "not asked": 0} for label in ("right", "wrong")}
    for place, right in labels.items():
        if _score(entries[place], grader) is None:
            kind = _WITHOUT.get(type(entries[place].grades.get(grader)), "not asked")
            found["right" if right else "wrong"][kind] += 1
    return found


def _refusal(counts: Mapping[str, int]) -> str:
    for label in ("right", "wrong"):
        if counts[label] < FEW_LABELS:
            return (
                f"{counts[label]} scored rollouts are labelled {label}: it takes {FEW_LABELS} of each class"
            )
    if counts["prompts"] < FEW_PROMPTS:
        return f"the labels are of {counts['prompts']} prompts: it takes {FEW_PROMPTS}"
    return ""


def _threshold(scores: Any, right: Any, prompts: Any, cut: float, error: float) -> Threshold:
    """Find the scores nearest to the middle that can be trusted, by tests in a fixed order: from the surest scores inwards.

    The first test is the first that two errors would pass, which does not depend on the labels. The first that fails ends
    it, so that the probability of a threshold that does not hold is at most 5 %.
    """
    away = np.abs(scores - cut)
    wrong = (scores >= cut) != right
    tried = np.unique(np.quantile(away, np.linspace(0, 1, _STEPS + 1), method="lower"))[::-1]
    best: float | None = None
    begun = False
    for distance in tried:
        kept = away >= distance
        if not begun and most(np.arange(int(kept.sum())) < _PASSED, prompts[kept]) > error:
            continue
        begun = True
        if most(wrong[kept], prompts[kept]) > error:
            break
        best = float(distance)
    if best is None:
        return Threshold(error, None, None, None, None, _labels_for(right, prompts, error))
    kept = away >= best
    # cut - best may round to just below the score that it was made of
    low = max([cut - best, *scores[kept & (scores < cut)].tolist()])
    high = min([cut + best, *scores[kept & (scores >= cut)].tolist()])
    return Threshold(error, low, high, float(kept.mean()), float(wrong[kept].mean()), None)


def _labels_for(right: Any, prompts: Any, error: float) -> int:
    """Return how many labels of such prompts show an error that low, if none is wrong."""
    z = float(ndtri(0.95))
    effect = design_effect(np.zeros(len(right)), prompts, 1.0)
    return math.ceil(z * z * (1 / error - 1) * effect)


def _next(
    entries: Sequence[Entry], labels: Mapping[int, bool], grader: str, seed: int, most_: int = 20
) -> list[str]:
    """Draw rollouts to label: of other prompts, since another rollout of a labelled one tells less."""
    seen = {_prompt(entries[place]) for place in labels}
    others: dict[str, list[Entry]] = {}
    for entry in entries:
        if _score(entry, grader) is not None and (prompt := _prompt(entry)) not in seen:
            others.setdefault(prompt, []).append(entry)
    draw = np.random.default_rng(seed)
    chosen = draw.permutation(len(others))[:most_]
    groups = list(others.values())
    return [
        f"{entry.run} {entry.index}" for i in chosen for entry in [groups[i][draw.integers(len(groups[i]))]]
    ]


def _population(entries: Sequence[Entry], scores: Any) -> dict[str, Any]:
    if not entries:
        return {}
    chars = np.array([entry.response_chars for entry in entries])
    return {
        "data_sources": sorted({entry.data_source for entry in entries}),
        "policies": sorted(
            {
                str(entry.tags[name])
                for entry in entries
                for name in ("policy", "policy_version")
                if name in entry.tags
            }
        ),
        "from": min(entry.time for entry in entries),
        "to": max(entry.time for entry in entries),
        "score_quantiles": [float(x) for x in np.quantile(scores, _QUANTILES)],
        "chars_quantiles": [float(x) for x in np.quantile(chars, _QUANTILES)],
    }
