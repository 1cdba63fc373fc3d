"""A rule for multiple choice."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.errors import ConfigError
from judgekit.graders.rules.text import Rule, after_think, last_boxed, normalised
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

TAIL_CHARS = 65_536
"""Characters at the end of a response that are searched."""


class MultipleChoice(Rule):
    """Scores 1 if the response chose the right option, else 0.

    The reference is the option's letter ("B", "(b)"), its text, or its number (0 is the first; `first=1` if
    the data counts from 1); a list accepts any of them. *options*: the options' texts, or their dotted path in the
    rollout: a list, a mapping of letters to texts, or ARC's `{"text": […], "label": […]}`. Without texts only
    letters are read, the first *letters* of the alphabet.

    What counts as chosen, in this order: the last explicit marker (`Answer: B`, `the answer is (B)`,
    `\\boxed{B}`, `<answer>B</answer>`, `#### B`); a response that is only a letter or an option's text, or
    begins with "B." or "(B)"; the last letter in parentheses or brackets, or after "option" or "choice"; the
    only option whose text occurs in the response (options contained in a longer one there do not count); a single
    isolated capital letter on the last line. A response that chooses nothing scores 0, as does one whose last
    marker names two options. Abstains if the reference is not an option.

    Source: the `Answer: $LETTER` convention of simple-evals (`MULTICHOICE` pattern) and MMLU (arXiv:2009.03300);
    the fall-backs follow MMMU's `parse_multi_choice_response`, without its random guess.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "ground_truth", "extra.options")
    abstains = "the reference is not an option"
    inline_limit = 40_000
    timeout_s = 5.0

    def __init__(
        self,
        *,
        options: str | Sequence[str] = "extra.options",
        letters: int = 26,
        first: int = 0,
        name: str = "multiple_choice",
    ) -> None:
        if not isinstance(letters, int) or not 2 <= letters <= 26:
            raise ConfigError(f"{name}: letters is the largest number of options, 2 to 26, not {letters!r}")
        if first not in (0, 1):
            raise ConfigError(f"{name}: first is the number of the first option, 0 or 1, not {first!r}")
        if not isinstance(options, str) and not 2 <= len(options) <= 26:
            raise ConfigError(f"{name}: give 2 to 26 options, or their path in the rollout")
        self.name = name
        self.options = options if isinstance(options, str) else tuple(options)
        self.letters = letters
        self.first = first

    def grade(self, rollout: Rollout, /) -> Grade:
        texts = self._texts(rollout)
        count = len(texts) or self.letters
        known = string.ascii_uppercase[:count]
        truth = rollout.ground_truth
        right = {
            letter
            for value in (truth if isinstance(truth, list | tuple | set) else [truth])
            if (letter := self._reference(value, known, texts)) is not None
        }
        if not right:
            return Abstained(f"the reference is not an option: {truth!r:.80}")
        chosen = chosen_letter(rollout.response, known, texts)
        if chosen is None:
            return Graded(0.0, "no option is chosen")
        wanted = " or ".join(sorted(right))
        return Graded(
            float(chosen in right), f"{chosen}" if chosen in right else f"{chosen} instead of {wanted}"
        )

    def _texts(self, rollout: Rollout) -> dict[str, str]:
        found: Any = (
            look_up(rollout, self.options, None) if isinstance(self.options, str) else list(self.options)
        )
        if isinstance(found, Mapping):
            if isinstance(found.get("text"), Sequence) and not isinstance(found["text"], str):
                found = list(found["text"])
            else:
                pairs = {str(k).strip().strip("().").upper(): str(v) for k, v in found.items()}
                letters = string.ascii_uppercase[: len(pairs)]
                return pairs if set(pairs) == set(letters) else {}
        if not isinstance(found, Sequence) or isinstance(found, str) or not 2 <= len(found) <= 26:
            return {}
        texts = [
            re.sub(rf"^\s*\(?{letter}[.):]\s+", "", str(text))
            for letter, text in zip(string.ascii_uppercase, found, strict=False)
        ]
        return dict(zip(string.ascii_uppercase, (text.strip() for text in texts), strict=False))

    def _reference(self, value: Any, known: str, texts: Mapping[str, str]) -> str | None:
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int):
            place = value - self.first
            return known[place] if 0 <= place < len(known) else None
        if not isinstance(value, str):
            return None
        for letter, text in texts.items():
            if text and text == value.strip():
                return letter
        if (alone := _letter_alone(value, known)) is not None:
            return alone
        same = [letter for letter, text in texts.items() if text and _same(text, value)]
        if len(same) == 1:
            return same[0]
        if re.fullmatch(r"\s*\d{1,2}\s*", value):
            return self._reference(int(value), known, texts)
        return chosen_letter(value, known, texts)


def chosen_letter(response: str, known: str, texts: Mapping[str, str]) -> str | None:
    """Return the letter in *known* that *response* chose; None if it chose none or two."""
    rest = after_think(response)
    if rest is None:
        return None
    rest = rest[-TAIL_CHARS:].strip()
    marked = _after_marker(rest)
    if marked is not None:
        return _named(marked, known, texts)
    mentioned = [found for m in _MENTION.finditer(rest) if (found := str(m[1] or m[2]).upper()) in known]
    if (letter := _option(rest, known, texts)) is not None and set(mentioned) <= {letter}:
        return letter
    if mentioned:
        return mentioned[-1]
    if (letter := _by_text(rest, texts)) is not None:
        return letter
    last = rest.rpartition("\n")[2]
    alone = {m[0] for m in _ALONE.finditer(last) if m[0] in known}
    return alone.pop() if len(alone) == 1 else None


_MARKER = re.compile(
    r"""
    (?:\b(?:answer|choice|option|solution)(?:[ \t]+(?:choice|option|letter))?(?:\*\*)?[ \t]*
       (?:is|would[ ]be|should[ ]be|:|=)[ \t*]{0,6}:?)
  | (?P<tag><answer>) | (?P<hash>\#{4})
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MENTION = re.compile(r"[(\[]([A-Za-z])[)\]]|\b(?:option|choice|answer)[ \t]+\**([A-Z])\b", 0)

_ALONE = re.compile(r"(?<![\w'’])(?:(A)(?!\s+(?!and\b|or\b|is\b)[a-z])|([B-HJ-Z]))(?![\w'’])")
"""An isolated capital letter that is not an English word."""


def _after_marker(text: str) -> str | None:
    """Return the text after the last explicit marker of an answer; None without a marker."""
    last = None
    for last in _MARKER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    boxed_at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if boxed_at >= 0 and (last is None or boxed_at > last.start()):
        boxed = last_boxed(text)
        return (
            None if boxed is None else re.sub(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}", r"\1", boxed)
        )
    if last is None:
        return None
    rest = text[last.end() :]
    if last["tag"]:
        return rest.partition("</answer>")[0].strip()
    return rest.lstrip(" \t*_:\n").partition("\n")[0]


_LEAD = re.compile(
    r"""[\s$*_"'`]*(?:(?:the\s+)?(?:option|choice|answer|letter)\s+)?[\s*_$"'`(\[{]*([A-Za-z])(?![\w'’])""",
    re.IGNORECASE,
)


def _letter_alone(text: str, known: str) -> str | None:
    bare = text.strip().strip("()[]{}.:,*_$\"'` ")
    return bare.upper() if len(bare) == 1 and bare.upper() in known else None


def _option(text: str, known: str, texts: Mapping[str, str]) -> str | None:
    """Return the option of *text*: a letter, a letter with a dot and more, or an option's text."""
    if (letter := _letter_alone(text, known)) is not None:
        return letter
    same = [letter for letter, option in texts.items() if option and _same(option, text)]
    if len(same) == 1:
        return same[0]
    begins = re.match(r"[\s*_]*(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Z])[.):])(?=[\s*_]|$)", text)
    if begins:
        first = str(next(group for group in begins.groups() if group)).upper()
        return first if first in known else None
    return None


def _named(text: str, known: str, texts: Mapping[str, str]) -> str | None:
    """Return the option named after a marker; None if there is none, or two."""
    line = text.strip()
    if (letter := _option(line, known, texts)) is not None:
        return None if _second(line, letter, known) else letter
    lead = _LEAD.match(line)
    if lead and lead[1].upper() in known:
        letter = lead[1].upper()
        is_word = lead[1] in "aAI" and re.match(r"\s+[a-z]", line[lead.end() :])
        if not is_word:
            return None if _second(line[lead.end() :], letter, known) else letter
    if (by_text := _by_text(line, texts)) is not None:
        return by_text
    mentioned = {(m[1] or m[2]).upper() for m in _MENTION.finditer(line)} & set(known)
    return mentioned.pop() if len(mentioned) == 1 else None


def _second(text: str, letter: str, known: str) -> bool:
    """Return whether more letters follow the first: "B or C", "A, B"."""
    more = re.match(
        r"\s*[)\]]?\s*(?:,|/|&|\bor\b|\band\b)\s*[(\[]?([A-Z])(?![\w'’])", text.lstrip("(" + letter) or text
    )
    return bool(more and more[1] in known and more[1] != letter)


def _by_text(text: str, texts: Mapping[str, str]) -> str | None:
    """Return the only option whose text occurs in *text*, ignoring options contained in a longer one."""
    haystack = f" {normalised(text)} "
    found = {
        letter: words
        for letter, option in texts.items()
        if (words := normalised(option)) and f" {words} " in haystack
    }
    longest = [
        letter
        for letter, words in found.items()
        if not any(words != other and f" {words} " in f" {other} " for other in found.values())
    ]
    return longest[0] if len(longest) == 1 else None


def _same(option: str, text: str) -> bool:
    a, b = normalised(option), normalised(text)
    return a == b if a or b else option.strip() == text.strip()
