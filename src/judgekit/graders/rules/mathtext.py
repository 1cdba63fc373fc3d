"""Prepares answers of mathematics for math-verify: what the field writes and its parser does not read."""

from __future__ import annotations

import math
import re
from typing import Any

_MIXED = re.compile(r"(?<![\w.,/\\}^])(\d{1,9})\s+(\d{1,9})/(\d{1,9})(?![\w/]|\.\d)")
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\\[,;: ]|~|[\u2009\u202f\u00a0])\d{3})+(?!\d)")
_SPACED_WHOLE = re.compile(r"\s*[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?\s*")
_MONEY = re.compile(r"\\text\{\s*\\?\$\s*\}|\\\$(?=\s?[\d.])|[€£¥₹](?=\s?\d)|(?<=\d)\s?[€£¥₹]")
_CURRENCY = re.compile(r"(?<=\d)\s*(?:(?:US )?dollars?|euros?|yuan|rupees|USD|EUR)\b(?!\s+and\b)")
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?!\w)")
_UNIT = r"(?:[kcmdn]?m|in|ft|yd|mi|k?g|mg|lb|oz|m?s|min|hr?|m?L|k?J|k?W|N|k?Pa|V|A|[kM]?Hz|K|inches|feet|miles|units?)"
_UNIT_IN_MATHS = re.compile(
    rf"(-?[\d.,]+)\s*\$\s*(?:\\(?:text|mathrm|rm)\s*)?\{{?\s*{_UNIT}\s*\}}?\s*(?:\^\s*\{{?\s*-?\d\s*\}}?)?\s*\$\.?"
)
_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|mbox|hbox)\s*\{([^{}]*)\}")
_MONTHS = "january february march april may june july august september october november december"
_FUNCTIONS = frozenset(
    ("sinh", "cosh", "tanh", "sqrt", "frac", "asin", "acos", "atan", "arcsin", "arccos", "arctan")
)
_TIME = re.compile(r"\d:\d\d\s*[ap]\.?\s?m", re.IGNORECASE)
_BARE = re.compile(r"[^\W\d_]{2,}")
MAX_DIGITS = 100_000
"""A reference whose value may have more digits is not evaluated."""
MAX_WHOLE_CHARS = 200


def readable(text: str, *, answer: bool) -> str:
    """Rewrite mixed numbers, spaced thousands, money and, in an *answer* alone, more, for the parser."""
    text = _MONEY.sub("", text)
    text = _CURRENCY.sub("", text)
    text = _SPACED.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    text = _MIXED.sub(_improper, text)
    if not answer:
        return text
    if _SPACED_WHOLE.fullmatch(text):
        text = text.strip().replace(" ", "")
    if unit := _UNIT_IN_MATHS.fullmatch(text.strip()):
        text = unit[1]
    return _SCIENTIFIC.sub(r"\1 \\cdot 10^{\2}", text)


def _improper(found: re.Match[str]) -> str:
    whole, part, of = map(int, found.groups())
    return f"{whole * of + part}/{of}" if 0 < part < of else found[0]


def wordy(text: str) -> bool:
    """Return whether an answer is words, such as a name or a date, where letters are no variables."""
    bare = _unwrapped(text)
    if re.search(r"[\\=^_{}<>|+*]", bare):
        return False
    if _TIME.search(bare):
        return True
    dated = any(month in bare.lower() for month in _MONTHS.split())
    if re.match(r"\s*[+-]?\d[\d.,/ ]*\D*$", bare) and not dated:  # a number with its unit
        return False
    return any(
        (len(run) >= 4 or (len(run) == 3 and run[0].isupper() and run[1:].islower()))
        and run.lower() not in _FUNCTIONS
        for run in re.findall(r"[^\W\d_]+", bare)
    )


def same_words(a: str, b: str) -> bool:
    """Compare two answers of words without case, punctuation and order of their parts or of a date."""
    return _parts(a) == _parts(b)


def _parts(text: str) -> list[list[str]]:
    text = _unwrapped(text).casefold()
    text = re.sub(r"\b([ap])\.?\s?m\b\.?", r"\1m", text)
    text = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", text)
    if any(month in text for month in _MONTHS.split()):
        return [sorted(re.findall(r"\w+", text))]
    return sorted(words for part in re.split(r"\band\b|[,;]", text) if (words := re.findall(r"\w+", part)))


def _unwrapped(text: str) -> str:
    for _ in range(3):
        text = _WRAPPER.sub(r" \1 ", text)
    return re.sub(r"\\[,;:! ]|[$~]", " ", text).strip()


def words_of_answer(text: str) -> str | None:
    """Return what a response without a box calls its answer, in its last line; None if it does not."""
    last = text.strip().rpartition("\n")[2]
    found = re.search(r"\banswer(?:\s+is\s*:?|:)\s*([^\n]{1,200})$", last, re.IGNORECASE)
    return found[1].strip(" .*") if found else None


def whole_answer(text: str) -> str | None:
    """Return a response that is only an expression, whole; None if it has marks, words or several lines."""
    text = text.strip().rstrip(".")
    if not text or len(text) > MAX_WHOLE_CHARS or "\n" in text or "$" in text or r"\boxed" in text:
        return None
    letters = _BARE.findall(re.sub(r"\\[A-Za-z]+", " ", _WRAPPER.sub(" ", text)))
    return None if any(len(run) > 3 and run not in _FUNCTIONS for run in letters) else text


def too_large(expression: Any) -> bool:
    """Return whether an expression's value may have more than `MAX_DIGITS` digits, without evaluating it."""
    return _digits(expression, 0) > MAX_DIGITS


def _digits(part: Any, depth: int) -> float:
    """An upper estimate of the digits of the largest number on the way to a value."""
    if getattr(part, "is_Integer", False):
        return float(abs(int(part)).bit_length()) * 0.302
    arguments = getattr(part, "args", ())
    if not arguments or depth > 60:
        return math.inf if arguments else 0.0
    sizes = [_digits(argument, depth + 1) for argument in arguments]
    kind = type(part).__name__
    if kind == "Pow":
        exponent = arguments[1]
        if sizes[1] > 12:
            return math.inf
        times = abs(float(exponent)) if getattr(exponent, "is_Number", False) else 10 ** sizes[1]
        return sizes[0] * max(times, 1.0)
    if kind in ("factorial", "factorial2", "binomial", "Sum", "Product", "subfactorial", "gamma"):
        return math.inf if max(sizes) > 12 else max(sizes) * 10 ** max(sizes)
    return sum(sizes)
