"""Candidates that are no solutions: random bytes, one character over and over, text of other scripts.

A policy that has broken down writes such things, and they fill a context as no solution does. Where a solution's last line
stands behind them, it counts as it does behind a solution: what comes before it is no reason to pay or not to pay.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .generator import CANDIDATE_ENDS, REFERENCE_ENDS, Case, Sample, any_number, label_of, near_miss, story

LONGEST = 12_000
"""Characters of a candidate, at most."""

SCRIPTS = (
    (0x00C0, 0x024F), (0x0370, 0x03FF), (0x0400, 0x04FF), (0x0531, 0x0586), (0x05D0, 0x05EA), (0x0621, 0x064A), (0x0904, 0x0939),
    (0x0985, 0x09B9), (0x0E01, 0x0E3A), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2190, 0x22FF), (0x2500, 0x25FF),
    (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB50, 0xFDFB), (0xFF01, 0xFF5E), (0x12000, 0x12399),
    (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
)  # fmt: skip
HELD_OUT = (
    (0x0B85, 0x0BB9),
    (0x1200, 0x135A),
    (0x13A0, 0x13F4),
    (0x1780, 0x17B3),
    (0xA000, 0xA48C),
    (0x13000, 0x1342E),
)
"""Scripts that training never uses: Tamil, Ethiopic, Cherokee, Khmer, Yi, hieroglyphs."""


def _length(rng: random.Random, longest: int) -> int:
    return int(8 * (longest / 8) ** rng.random())


def _letter(rng: random.Random, scripts: tuple[tuple[int, int], ...]) -> str:
    if rng.random() < 0.35:
        return chr(rng.randint(0x20, 0x7E))
    return chr(rng.randint(*rng.choice(scripts)))


def _bytes(rng: random.Random, n: int, scripts: tuple[tuple[int, int], ...]) -> str:
    raw = bytes(rng.choices(range(256), k=n))
    how = rng.randrange(4)
    if how == 0:
        return raw.decode("latin-1")
    if how == 1:
        return raw.decode("utf-8", "replace")
    if how == 2:
        return raw.hex()
    return "".join(chr(0x21 + b % 94) for b in raw)


def _one(rng: random.Random, n: int, scripts: tuple[tuple[int, int], ...]) -> str:
    return _letter(rng, scripts) * n


def _few(rng: random.Random, n: int, scripts: tuple[tuple[int, int], ...]) -> str:
    unit = "".join(_letter(rng, scripts) for _ in range(rng.randint(2, 6)))
    return (unit * (n // len(unit) + 1))[:n]


def _script(rng: random.Random, n: int, scripts: tuple[tuple[int, int], ...]) -> str:
    one = rng.choice(scripts)
    letters = "".join(
        chr(rng.randint(*one)) if rng.random() < 0.85 else rng.choice("  \n.,") for _ in range(n)
    )
    return letters or "?"


def _points(rng: random.Random, n: int, scripts: tuple[tuple[int, int], ...]) -> str:
    return "".join(chr(rng.randint(*rng.choice(scripts))) for _ in range(n))


KINDS: dict[str, Callable[[random.Random, int, tuple[tuple[int, int], ...]], str]] = {
    "random_bytes": _bytes,
    "one_character": _one,
    "few_characters": _few,
    "other_scripts": _script,
    "any_characters": _points,
}


def garbage(
    rng: random.Random,
    *,
    kind: str | None = None,
    answered: float = 0.3,
    scripts: tuple[tuple[int, int], ...] = SCRIPTS,
    longest: int = LONGEST,
) -> Sample:
    """A sample whose candidate is of one kind. *answered*: share with an answer behind it, half of them right."""
    told = story(rng, 1)
    while True:
        gold = any_number(rng)
        before, _, after = rng.choice([end for end, _ in REFERENCE_ENDS]).partition("{}")
        filled = {"unit": told.unit, "name": told.name}
        head, tail = (part.format(**filled) for part in (before, after))
        truth = head + gold + tail
        text = KINDS[kind or rng.choice(list(KINDS))](rng, _length(rng, longest), scripts)
        label = 0
        if rng.random() < answered:
            label = rng.randint(0, 1)
            said = gold if label else near_miss(rng, gold, [])
            form = rng.choice([end for end, _ in CANDIDATE_ENDS if end.endswith("{}")])
            text += "\n" + form.format(said, unit=told.unit, name=told.name)
        if label_of(truth, text) == label:
            case = Case("garbage", told.problem(""), truth, text, label)
            return Sample(case, (len(head), len(head) + len(gold)), None)


def garbage_sets(seed: int = 0, size: int = 60) -> dict[str, list[Case]]:
    """*size* cases of each kind in scripts and from seeds that training never uses; none has an answer."""
    sets = {}
    for kind in KINDS:
        rng = random.Random(f"garbage {kind} {seed}")
        sets[kind] = [garbage(rng, kind=kind, answered=0.0, scripts=HELD_OUT).case for _ in range(size)]
    told = story(random.Random(f"garbage {seed}"), 1)
    sets["one_character"] += [
        Case("garbage", told.problem(""), "#### 24", c * 9_000, 0) for c in "\ufdfa\u07f7\u1fef🙂的0a\u0301"
    ]
    return sets
