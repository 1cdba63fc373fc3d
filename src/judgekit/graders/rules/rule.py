"""Helpers of rule graders: response parts, references, words, settings, optional libraries."""

from __future__ import annotations

import importlib
import json
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from judgekit.errors import ConfigError, MissingExtra, closest
from judgekit.graders.rules.asserted import asserted, sentence
from judgekit.graders.rules.committed import Commitment, claims, commitment
from judgekit.graders.rules.stored import as_python
from judgekit.graders.rules.thoughts import last_turn
from judgekit.graders.rules.values import undecorated
from judgekit.types import Abstained, Grade, Graded, Rollout

Part = Literal["after_think", "whole", "answer", "answer_or_rest", "boxed", "last_line", "committed"]
"""The part of a response to use as its answer: the text after the thinking (all of it if there is none), all
of it, the last `<answer>…</answer>`, that one or else the text after the thinking, the last `\\boxed{…}`, the last
non-empty line, or what the response commits to: its marked answer ("The answer is …", `####`, a box, `<answer>`), or a response of
one line without a marker. Different answers or boxes side by side are none, nor is a box that does not end; and nobody commits to
what is denied, left open or taken back."""
Several = Literal["any", "best", "all"]
"""Which of several references decides: the best match ("any" and "best" mean the same for a score), or the worst
("all")."""

PARTS = ("after_think", "whole", "answer", "answer_or_rest", "boxed", "last_line", "committed")
SEVERAL = ("any", "best", "all")


def one_of(grader: str, setting: str, value: Any, known: Iterable[str]) -> None:
    """Raise ConfigError if *value* is not one of the setting's values."""
    names = list(known)
    if value not in names:
        raise ConfigError(
            f"{grader}: {setting} is one of {', '.join(names)}, not {value!r}{closest(str(value), names)}"
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
    only_form: bool = False
    """Whether it scores how a response is written, so that a wrong one, or an empty one, may score high. For `judgekit lint`."""
    gives_turns: bool = False
    """Whether its grades say something of each of the policy's turns."""
    dodge: str = ""
    """What a rollout does to make it abstain; empty: no rollout can choose that. For `judgekit lint`."""
    abstains_by_row: bool = False
    """Whether it abstains for what the row is, before it looks at the response: `judgekit lint` asks it about rows."""

    def warm_up(self) -> None:
        """Import them now, outside any rollout's time."""
        for module in self.libraries:
            importlib.import_module(module)


def needs(grader: str, module: str, extra: str) -> str:
    """Check an extra's module and return its name. Raises MissingExtra if it is not installed."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{grader} needs {module.partition('.')[0]} ({error})", extra) from None
    return module


def part_of(text: str, part: Part, stated: Sequence[str] = ()) -> str | None:
    """Return the answer part of a response, stripped; None if it has none.

    *stated*: references, which are answers even if their words leave an answer open ("maybe", "not enough info").
    """
    if part == "whole":
        return text
    rest = last_turn(text)
    if rest is None:
        return None
    if part in ("answer", "answer_or_rest"):
        if "</answer>" in rest and "<answer>" in rest.partition("</answer>")[0]:
            return _marked(rest, "tag")
        return rest.strip() if part == "answer_or_rest" and "<answer>" not in rest else None
    if part == "boxed":
        return _marked(rest, "boxed")
    if part == "committed":
        return _committed(rest.strip(), stated)
    if part == "last_line":
        return rest.rstrip().rpartition("\n")[2].strip()
    return rest.strip()


def _committed(text: str, stated: Sequence[str]) -> str | None:
    """Return what a response commits to; None if that is nothing, or several things."""
    held = [words for words in stated if not _is_plain(words)]
    found = [claim._replace(text=_held(claim.text, held)) for claim in claims(text)]
    marked = commitment(text, lambda part: " ".join(undecorated(part).split()).rstrip("."), found=found)
    if marked is None:
        marked = None if "\n" in text else Commitment(*asserted(_held(undecorated(text), held)))
    if marked is None or marked.text is None:
        return None
    words = marked.claim is not None and marked.claim.kind == "words"
    if marked.claim is not None and words and _list_goes_on(text[marked.claim.end :]):
        return None
    # "The answer is Lisbon. It lies on the Tagus.": a sentence's end
    ended = sentence(marked.text) if words else marked.text
    if known := _HELD.match(ended):
        ended = held[int(known[1])] + ended[known.end() :]
    return _without_end(undecorated(ended))


def _without_end(text: str) -> str:
    """Leave out the full stop at a text's end, and the quotes around it."""
    text = text.strip().rstrip(".!").strip()
    found = _IN_QUOTES.fullmatch(text)
    return found[1].rstrip(".!").strip() if found else text


_IN_QUOTES = re.compile('["“”„‘’\'«»「『]([^"“”„«»「」『』]+)["“”‘’\'«»」』]')
_HELD = re.compile(r"Held(\d+)")


def _is_plain(words: str) -> bool:
    """Whether a reference says what it says in one sentence, and leaves nothing open."""
    bare = words.rstrip(" .!?")
    return asserted(bare).text is not None and sentence(bare) == bare and "?" not in words


def _held(text: str, held: Sequence[str]) -> str:
    """Put a name in the place of a reference with which a text begins, so that nothing in its words is read as doubt."""
    for number, words in enumerate(held):
        inner = r"\s+".join(map(re.escape, words.strip(" .!?").split()))
        if found := re.match(rf"[\W_]*{inner}(?=[\W_]*$|[.,;:!?\n])([?!](?=\s))?", text, re.IGNORECASE):
            return f"Held{number}{'.' if found[1] else ''}{text[found.end() :].removeprefix('?')}"
    return text


def _list_goes_on(below: str) -> bool:
    """Whether an answer is the first of a list: short lines follow, without a line between that is empty."""
    listed = [line.split() for line in below.strip("\n").partition("\n\n")[0].split("\n")]
    if below.startswith("\n\n") or len(listed) < 2:
        return False
    return all(0 < len(words) <= 3 and not words[0].endswith(":") for words in listed)


def _marked(text: str, kind: Literal["tag", "boxed"]) -> str | None:
    """Return what the last tag or box holds; None if it is not closed, or others stand beside it."""
    found = [claim for claim in claims(text, only=kind) if claim.complete or kind == "boxed"]
    marked = commitment(text, lambda part: " ".join(part.split()), found=found)
    if (
        marked is None
        or marked.claim is None
        or marked.claim.kind != kind
        or (marked.text is None and marked.why not in STATED)
    ):
        return None
    return marked.claim.text.strip()


STATED = ("the answer is denied", "the answer is only possible")
"""What an answer may say in its own words, where it is compared as a text."""


def truths(rollout: Rollout) -> list[Any]:
    """Return the reference's accepted answers as Python's values, numpy's converted.

    A list accepts each of its values. `{"target": …}`, as in Search-R1's data, is its target.
    """
    truth = as_python(rollout.ground_truth)
    while isinstance(truth, Mapping) and "target" in truth:
        truth = truth["target"]
    return list(truth) if isinstance(truth, list | tuple | set | frozenset) else [truth]


def references(truth: Any, *, whole: bool = True) -> list[str]:
    """Return the references as texts, from texts, numbers, truth values or a list; other values are ignored.

    `{"target": …}`, as in Search-R1's data, is its target. A list of texts may be JSON, as PopQA and CSV have it: *whole*: then
    the JSON itself is one of them.
    """
    if isinstance(truth, Mapping) and "target" in truth:
        return references(truth["target"], whole=whole)
    if isinstance(truth, str) and (listed := _listed(truth)):
        return references([truth] * whole + listed)
    found: list[str] = []
    for value in truth if isinstance(truth, list | tuple | set | frozenset) else [truth]:
        if isinstance(value, str):
            if value.strip():
                found.append(value)
        elif isinstance(value, int | float | Fraction | Decimal) and math.isfinite(value):
            found.append(str(value))
    return found


def _listed(text: str) -> list[str]:
    """Return the texts of a JSON list of texts; empty if it is something else."""
    if not text.lstrip().startswith("["):
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else []


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
        accepted = references(rollout.ground_truth, whole=self.several != "all")
        if not accepted:
            return NO_REFERENCE
        usable = [self.written(reference) for reference in accepted if self.has_tokens(reference)]
        if not usable:
            return Abstained("the reference has nothing to compare")
        answer = part_of(rollout.response, self.part, usable)
        if answer is None:
            return Graded(0.0, f"the response has no answer ({self.part})")
        return self.against(answer, usable)

    def written(self, reference: str) -> str:
        """Return a reference as it is compared: what a response commits to has lost its full stop and its quotes."""
        return (_without_end(reference) or reference) if self.part == "committed" else reference

    def has_tokens(self, reference: str) -> bool:
        """Return whether the reference has anything that this rule compares."""
        return True

    def against(self, answer: str, accepted: Sequence[str]) -> Grade:
        return Graded(decided([self.compare(answer, reference) for reference in accepted], self.several))

    def compare(self, answer: str, reference: str) -> float:
        raise NotImplementedError


def decided(scores: Sequence[float], several: Several) -> float:
    """Combine the scores of several references, clipping rounding errors outside 0..1."""
    score = min(scores) if several == "all" else max(scores)
    return min(max(score, 0.0), 1.0)


_OTHER_SCRIPTS = "、。，．：；！？（）［］｛｝【】「」『』《》〈〉〔〕～…·・¿¡‹›„‚、।॥،؛؟۔"
_PUNCTUATION = str.maketrans("", "", string.punctuation + "“”‘’«»–—−‐‑" + _OTHER_SCRIPTS)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """Apply `normalize_answer` of the official SQuAD script (Rajpurkar et al. 2016, arXiv:1606.05250).

    Lower case, without ASCII punctuation, English articles and extra space; also without typographic quotes and dashes,
    and the punctuation of other scripts.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normaliser(reference: str) -> Callable[[str], str]:
    """Return SQuAD's normalisation, or a weaker one for a reference that it leaves nothing of ("A", "The", "+")."""
    return next(way for way in (normalised, _with_articles, _as_is) if way(reference) or way is _as_is)


def _with_articles(text: str) -> str:
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def _as_is(text: str) -> str:
    return " ".join(text.casefold().split())


# possessive quantifiers: where a line is no fence, no shorter run of its characters makes it one
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*+(?:(?:[-*+]|\d{1,3}[.)])[ \t]++)?)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^\n`]*+)$"
    r"|^[^\n`]*+(?<=[ \t])(?P<behind>`{3,}+)(?P<language>[A-Za-z][\w+#.-]*+)[ \t]*+$",
    re.MULTILINE,
)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Return fenced blocks as (language in lower case, content); an unclosed one ends with the text.

    A fence may stand in a list, whose indentation its lines share, or behind words if it names its language.
    """
    blocks: list[tuple[str, str]] = []
    at = 0
    while opening := _FENCE.search(text, at):
        fence = opening["fence"] or opening["behind"]
        indent = len((opening["indent"] or "").expandtabs(4))
        closing = re.compile(
            rf"^[ \t]{{0,{indent + 3}}}{re.escape(fence[0])}{{{len(fence)},}}+[ \t]*+$", re.MULTILINE
        ).search(text, opening.end())
        end = closing.start() if closing else len(text)
        words = (opening["info"] or opening["language"] or "").strip().strip("{}").split()
        language = words[0].lower().lstrip(".") if words else ""
        content = text[opening.end() + 1 : end].removesuffix("\n")
        blocks.append((language, _dedented(content, indent) if indent else content))
        if closing is None:
            break
        at = closing.end()
    return blocks


def _dedented(content: str, indent: int) -> str:
    """Remove a fence's indentation from the lines of its block, as far as they have it."""
    return re.sub(rf"^[ ]{{1,{indent}}}|^\t", "", content, flags=re.MULTILINE)


def memo(function: Callable[[], Any]) -> Callable[[], Any]:
    """Cache the result of *function*."""
    kept: list[Any] = []

    def call() -> Any:
        if not kept:
            kept.append(function())
        return kept[0]

    return call
