"""Compares texts as values: signs, points and operators count, case and punctuation of sentences do not."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from judgekit.graders.rules.notation import whole_quantity

MAX_VALUE_CHARS = 300
"""A longer text is no number."""
_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+|[^\W\d_]+(?:['’][^\W\d_]+)?|[^\w\s]|_")
_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|bb|cal)|mbox|hbox|operatorname|boldsymbol|bm)\s*\{([^{}]*)\}"
)
_DROPPED = frozenset(".,;:!?\"'`()[]{}*_$\\~’‘“”„«»…、。，；：！？（）「」【】")
_ARTICLES = frozenset(("an", "the"))
_ENDS = frozenset(".!?:;()[]{}\"'`*。！？：")
_OPERATORS = frozenset("+-^/#×·±√<>≤≥=*÷")
_DASHES = str.maketrans({"−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-"})
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})|(?<=\s)-(?=\s+[^\W\d_]{2})|(?<=[^\W\d_])-\s|—")
_NOT = re.compile(r"n['’]t\b", re.IGNORECASE)
_POWER = re.compile(r"(?<=[A-Za-z0-9)])\*\*(?=[\d({A-Za-z-])")
_DENY = frozenset(("not", "never", "neither", "nor", "cannot", "than", "without", "except", "unlike"))
_WRONG = frozenset(("wrong", "incorrect", "false", "not", "impossible", "too", "neither", "never"))


def undecorated(text: str) -> str:
    """Remove bold, LaTeX's text wrappers and math marks; full-width characters become ASCII."""
    if not text.isascii():
        text = "".join(unicodedata.normalize("NFKC", c) if "\uff01" <= c <= "\uff5e" else c for c in text)
    if "\\" in text:
        for _ in range(2):
            text = _WRAPPER.sub(r"\1", text)
        text = re.sub(r"\\[()\[\]]|\\(?:left|right|displaystyle)(?![A-Za-z])", "", text)
    if "**" in text:
        text = re.sub(r"\*{2,3}", "", _POWER.sub("^", text))
    return text.replace("`", "").replace("__", "")


def tokens(text: str) -> list[str]:
    """Split a text into words, numbers and operators, in lower case; articles and punctuation are left out."""
    text = _NOT.sub(" not", _BETWEEN_WORDS.sub(" ", undecorated(text).translate(_DASHES)))
    found = _TOKEN.findall(text)
    kept = [at for at, token in enumerate(found) if token not in _DROPPED]
    without = [at for at in kept if not _is_article(found, at)]
    return [_canonical(found[at]) for at in without or kept]


def _is_article(found: Sequence[str], at: int) -> bool:
    """Whether a token is an article; an A is a letter if no word follows, or if it is a capital within a sentence."""
    token = found[at]
    if token not in ("a", "A"):
        return token.casefold() in _ARTICLES
    if at + 1 == len(found) or not found[at + 1][0].isalnum():
        return False
    return token == "a" or at == 0 or found[at - 1] in _ENDS


def _canonical(token: str) -> str:
    if token[0].isdigit() or (token[0] == "." and len(token) > 1):
        digits = token.replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", token) else token
        try:
            return str(Fraction(digits)) if len(digits) < 100 else digits
        except ValueError:
            return digits
    return token.casefold()


def same_value(a: str, b: str) -> bool:
    """Return whether two texts are the same value: equal as numbers with their units, or by their tokens."""
    left, right = tokens(a), tokens(b)
    if left == right:
        return bool(left) or a.strip() == b.strip()
    if len(a) > MAX_VALUE_CHARS or len(b) > MAX_VALUE_CHARS or not (_digits(a) and _digits(b)):
        return False
    first, second = whole_quantity(a), whole_quantity(b)
    return first is not None and second is not None and first.same(second)


def _digits(text: str) -> bool:
    return any(c.isdigit() or c in "½⅓¼¾⅔" for c in text)


def occurs(value: list[str], text: list[str]) -> bool:
    """Return whether *value* stands in *text*, not denied, and not as a part of a longer value."""
    if not value:
        return False
    start, size = 0, len(value)
    while (at := _find(value, text, start)) >= 0:
        before = text[at - 1] if at else ""
        after = text[at + size] if at + size < len(text) else ""
        if before == "=" and value[0] != "=":
            before = ""
        apart = before not in _OPERATORS and after not in _OPERATORS
        denied = bool(_DENY & set(text[max(0, at - 2) : at])) and "but" not in text[max(0, at - 1) : at]
        rejected = after == "cannot" or (
            after in ("is", "was", "are") and bool(_WRONG & set(text[at + size + 1 : at + size + 3]))
        )
        if apart and not denied and not rejected:
            return True
        start = at + 1
    return False


def _find(value: list[str], text: list[str], start: int) -> int:
    first, size = value[0], len(value)
    while True:
        try:
            at = text.index(first, start)
        except ValueError:
            return -1
        if text[at : at + size] == value:
            return at
        start = at + 1


_SIGNS = re.compile(
    r"(?<![\w.)])[-−–]\s?(?=[.\d])|(?<=\d)[-−–/:^*](?=\s?[-\d(])|(?<=\d)\.(?=\d)|(?<![\w.])\.(?=\d)|[<>≤≥=±^]|(?<=\w)[+#](?![\w])|(?<=\w)\s?\+\s?(?=\w)|(?<=\b\w)\s?[-−*/]\s?(?=\w\b)|(?<=\w)-(?=\s|$)"
)


_GROUPED = re.compile(
    r"(?<=\d)(?:[,'’_，٬]|\{,\}|\\[,;!])(?=(?:\d{2}[,，])*\d{3}(?!\d)|\d{4}(?:,\d{4})*(?!\d))|(?<=\d)[)'’_]+(?=\d)"
)
"""What stands between digits of one number: marks of thousands, as several habits and LaTeX write them; brackets of a telephone's."""


def signs(text: str) -> list[str]:
    """Return what makes another value of the same words: signs, points and operators, with the digits between."""
    text = _GROUPED.sub("", text)
    found = [match[0].strip().translate(_DASHES) for match in _SIGNS.finditer(text)]
    numbers = re.findall(r"[-−–]?\d+(?:\.\d+)?", text)
    if not found and len(numbers) < 2:
        return []
    return [sign for sign in found if sign != "."] + [
        _canonical(number.translate(_DASHES).lstrip("-")) for number in numbers
    ]
