"""Helpers of rule graders: response parts, references, words, settings, optional libraries."""

from __future__ import annotations

import importlib
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from judgekit.errors import ConfigError, did_you_mean
from judgekit.graders.rules.committed import after_think, claims, last_box, last_boxed
from judgekit.graders.rules.stored import as_python
from judgekit.types import Abstained, Grade, Graded, Rollout

Part = Literal["after_think", "whole", "answer", "boxed", "last_line"]
"""The part of a response to use as its answer: the text after the last `</think>` (all of it if there is none), all
of it, the last `<answer>…</answer>`, the last `\\boxed{…}`, or the last non-empty line."""
Several = Literal["any", "best", "all"]
"""Which of several references decides: the best match ("any" and "best" mean the same for a score), or the worst
("all")."""

PARTS = ("after_think", "whole", "answer", "boxed", "last_line")
SEVERAL = ("any", "best", "all")


def one_of(grader: str, setting: str, value: Any, known: Iterable[str]) -> None:
    """Raise ConfigError if *value* is not one of the setting's values."""
    names = list(known)
    if value not in names:
        raise ConfigError(
            f"{grader}: {setting} is one of {', '.join(names)}, not {value!r}{did_you_mean(str(value), names)}"
        )


def at_least(grader: str, setting: str, value: Any, low: float, *, whole: bool = False) -> None:
    """Raise ConfigError if *value* is not a finite number of at least *low*."""
    kinds: Any = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value) or value < low:
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{grader}: {setting} is {kind} of at least {low:g}, not {value!r}")


def share(grader: str, setting: str, value: Any) -> None:
    """Raise ConfigError if *value* is not from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{grader}: {setting} is a number from 0 to 1, not {value!r}")


class Rule:
    """Base of the shipped rules. After `warm_up`, only a rollout can make one slow or large."""

    libraries: tuple[str, ...] = ()
    """Modules that it imports while grading."""

    def warm_up(self) -> None:
        """Import them now, outside any rollout's time."""
        for module in self.libraries:
            importlib.import_module(module)


def needs(grader: str, module: str, extra: str) -> str:
    """Check an extra's module and return its name. Raises ConfigError if it is not installed."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{grader} needs {module.partition('.')[0]} ({error}): pip install 'judgekit-rl[{extra}]'"
        ) from None
    return module


def part_of(text: str, part: Part) -> str | None:
    """Return the answer part of a response, stripped; None if it has none."""
    if part == "whole":
        return text
    rest = after_think(text)
    if rest is None:
        return None
    if part == "answer":
        _, opened, found = rest.rpartition("</answer>")[0].rpartition("<answer>")
        return found.partition("</answer>")[0].strip() if opened else None
    if part == "boxed":
        boxed = last_boxed(rest)
        return None if boxed is None else boxed.strip()
    if part == "last_line":
        return rest.rstrip().rpartition("\n")[2].strip()
    return rest.strip()


def truths(rollout: Rollout) -> list[Any]:
    """Return the reference's accepted answers as Python's values, numpy's converted.

    A list accepts each of its values. `{"target": …}`, as in Search-R1's data, is its target.
    """
    truth = as_python(rollout.ground_truth)
    while isinstance(truth, Mapping) and "target" in truth:
        truth = truth["target"]
    return list(truth) if isinstance(truth, list | tuple | set | frozenset) else [truth]


def references(truth: Any) -> list[str]:
    """Return the references as texts, from texts, numbers, truth values or a list; other values are ignored.

    `{"target": …}`, as in Search-R1's data, is its target.
    """
    if isinstance(truth, Mapping) and "target" in truth:
        return references(truth["target"])
    found: list[str] = []
    for value in truth if isinstance(truth, list | tuple | set | frozenset) else [truth]:
        if isinstance(value, str):
            if value.strip():
                found.append(value)
        elif isinstance(value, int | float | Fraction | Decimal) and math.isfinite(value):
            found.append(str(value))
    return found


NO_REFERENCE = Abstained("there is no reference text")


class Compared(Rule):
    """Base of rules that score a response against each reference, 0 to 1."""

    score_range = (0.0, 1.0)
    version = "1"
    inputs: tuple[str, ...] = ("response", "ground_truth")
    abstains = "there is no reference text"
    inline_limit = 20_000
    timeout_s = 10.0

    def __init__(self, name: str, part: Part, several: Several) -> None:
        one_of(name, "part", part, PARTS)
        one_of(name, "several", several, SEVERAL)
        self.name = name
        self.part: Part = part
        self.several: Several = several

    def grade(self, rollout: Rollout, /) -> Grade:
        accepted = references(rollout.ground_truth)
        if not accepted:
            return NO_REFERENCE
        answer = part_of(rollout.response, self.part)
        if answer is None:
            return Graded(0.0, f"the response has no answer ({self.part})")
        return self.against(answer, accepted)

    def against(self, answer: str, accepted: Sequence[str]) -> Grade:
        return Graded(decided([self.compare(answer, reference) for reference in accepted], self.several))

    def compare(self, answer: str, reference: str) -> float:
        raise NotImplementedError


def decided(scores: Sequence[float], several: Several) -> float:
    """Combine the scores of several references, clipping rounding errors outside 0..1."""
    score = min(scores) if several == "all" else max(scores)
    return min(max(score, 0.0), 1.0)


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """Apply `normalize_answer` of the official SQuAD script (Rajpurkar et al. 2016, arXiv:1606.05250).

    Lower case, without ASCII punctuation, English articles and extra space.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


# possessive quantifiers: where a line is no fence, no shorter run of its characters makes it one
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}+|~{3,}+)[ \t]*+([^\n`]*+)$", re.MULTILINE)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Return fenced blocks as (language in lower case, content); an unclosed one ends with the text."""
    blocks: list[tuple[str, str]] = []
    at = 0
    while opening := _FENCE.search(text, at):
        fence = opening[1]
        closing = re.compile(
            rf"^[ \t]{{0,3}}{re.escape(fence[0])}{{{len(fence)},}}+[ \t]*+$", re.MULTILINE
        ).search(text, opening.end())
        end = closing.start() if closing else len(text)
        words = opening[2].split()
        language = words[0].lower() if words else ""
        blocks.append((language, text[opening.end() + 1 : end].removesuffix("\n")))
        if closing is None:
            break
        at = closing.end()
    return blocks


def memo(function: Callable[[], Any]) -> Callable[[], Any]:
    """Cache the result of *function*."""
    kept: list[Any] = []

    def call() -> Any:
        if not kept:
            kept.append(function())
        return kept[0]

    return call
