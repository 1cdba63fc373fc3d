"""Reads the final answer of a worked solution as a number.

What counts as the answer, in this order:

1. Text up to the last `</think>` is ignored; if a `<think>` is still open there is no answer.
2. The last explicit marker decides, of any kind: `#### 72`, `\\boxed{72}`, `A: 72`, `Answer: 72`,
   `the answer is 72`, `<answer>72</answer>`. After it, up to the end of its line (sentence, brace or tag),
   the number after the last `=` counts, else the first number. A marker without a number gives no answer.
3. Without a marker the last number of the text counts (unless a marker is required).

Numbers may have a sign, a currency, a unit, thousands separators (comma, apostrophe, no-break or thin
space, LaTeX `{,}` and `\\,`), decimals, and be fractions (`3/4`, `1 1/2`, `3½`, `\\frac{3}{4}`), powers (`10^2`, `10²`)
or in scientific notation. Other exponents (`42 m²`, `x^2`) and subscripts are no numbers. Numbers are compared by value: 1,234.50 = 1234.5, 18.00 = 18, 0.5 = 1/2. A percent sign is a unit.
Number words and magnitudes ("two", "3 million") are not read.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import Any, Literal

TAIL_CHARS = 65_536
"""Characters at the end of a text that are searched."""
_MAX_DIGITS = 100
"""Most digits of a number. Parsing takes time quadratic in its length, so longer ones are ignored."""
_MAX_POWER = 200
"""Largest power of ten; and of another base, over its length."""

_INTEGER = r"(?:\d{1,3}(?:(?:,|'|\{,\}|\\,|[\u00a0\u2009\u202f])\d{3})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?|\.\d+)"
_CURRENCY = r"(?:\\?[$€£¥₹₽₩]|US\$)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![\w.)\]}}%])[-−–+](?=[\d.$€£¥₹₽₩\\]))?
    (?:{_CURRENCY}\s?)?
    (?P<sign2>(?<=[$€£¥₹₽₩])-)?
    (?:
        \\[dt]?frac\s?\{{\s?(?P<num>-?{_INTEGER})\s?\}}\s?\{{\s?(?P<den>{_INTEGER})\s?\}}
      | (?P<whole>\d+)(?:\s|\s?\+\s?|-)(?P<mnum>\d+)\s?[/⁄∕]\s?(?P<mden>\d+)(?![\d/.])
      | (?P<fnum>{_DECIMAL})\s?[/⁄∕]\s?(?P<fden>{_DECIMAL})(?![\d/]|\.\d)
      | (?P<dec>{_DECIMAL})(?:
            (?:e|E)(?P<exp>[-+]?\d+)
          | \s?(?:\\times|×|x|\*)\s?10\s?\^\s?\{{?(?P<pow>-?\d+)\}}?
          | \s?\^\s?\{{?(?P<to>-?\d+)\}}?
        )?
    )
    """,
    re.VERBOSE,
)
_MARKER = re.compile(
    r"""
    (?P<hash>\#{4})(?!\#)
  | (?P<boxed>\\(?:boxed|fbox)\s{0,4}\{)
  | (?P<tag><answer>)
  | (?<![a-z])answers?[ \t]{0,4}(?:\*\*)?\s{0,4}(?:is|are|=|:|would\ be|comes?\ (?:out\ )?to|equals)[ \t]{0,4}:?
  | ^[ \t>*_]{0,8}a[ \t]{0,4}(?:\*\*)?:
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_SEPARATORS = re.compile(r"\{,\}|\\,|[,'\u00a0\u2009\u202f]")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)(?!\s*\d)")


_KEPT = frozenset("\u00a0\u2009\u202f")
_SUPERSCRIPT = re.compile("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FROM_SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SUBSCRIPT = re.compile("[₀-₉]+")
_FRACTION_AFTER_DIGIT = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅟↉])")
_OTHER_EXPONENT = re.compile(r"(?<![\d\s^])\s?\^\s?(?:\{\s?[-+]?\d+\s?\}|[-+]?\d+)")
"""One that follows no number: a unit's, a variable's."""


def final_answer(text: str, *, need_marker: bool | Literal["####"] = False) -> Fraction | None:
    """Return the number that *text* gives as its answer, or None; see the module's docstring.

    *need_marker*: without a marker there is no answer; "####": and no other marker is one.
    """
    text = text[-TAIL_CHARS:]
    _, closed, after = text.rpartition("</think>")
    if closed:
        text = after
    elif re.match(r"\s*<think>", text):
        return None
    if not text.isascii():
        text = _in_ascii(text)
    if "^" in text:
        text = _OTHER_EXPONENT.sub("", text)
    marker = None
    for found in _MARKER.finditer(text):
        if need_marker != "####" or found["hash"]:
            marker = found
    if marker is None:
        return None if need_marker else _last_number(text)
    return _number_in(_answer_part(text, marker))


def _in_ascii(text: str) -> str:
    """Write full-width and other digits, fractions and exponents in ASCII.

    No-break spaces stay apart from spaces, and characters that stand for whole sentences stay as they are.
    """
    text = _SUPERSCRIPT.sub(lambda found: f"^{{{found[0].translate(_FROM_SUPERSCRIPT)}}}", text)
    text = _FRACTION_AFTER_DIGIT.sub(" ", _SUBSCRIPT.sub("", text))
    forms = {ord(c): unicodedata.normalize("NFKC", c) for c in set(text) - _KEPT}
    return text.translate({c: form for c, form in forms.items() if len(form) <= 4})


def read_number(value: Any) -> Fraction | None:
    """Return a reference's number, from a number, its text, or a worked solution."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float):
        return Fraction(str(value)) if value == value and abs(value) != float("inf") else None
    return final_answer(value) if isinstance(value, str) else None


def shown(number: Fraction) -> str:
    """Format a number for people: 1234.5, 3/7."""
    if number.denominator == 1:
        return str(number.numerator)
    digits = number.denominator
    for prime in (2, 5):
        while digits % prime == 0:
            digits //= prime
    if digits != 1:
        return f"{number.numerator}/{number.denominator}"
    return f"{float(number):.12g}"


def _answer_part(text: str, marker: re.Match[str]) -> str:
    """Return a marker's content: its braces, its tag, or the rest of its line or sentence."""
    rest = text[marker.end() :]
    if marker["boxed"]:
        depth = 1
        for i, char in enumerate(rest):
            depth += (char == "{") - (char == "}")
            if depth == 0:
                return rest[:i]
        return rest.split("\n", 1)[0]
    if marker["tag"]:
        return rest.split("</answer>", 1)[0]
    line = rest.lstrip(" \t*_:").lstrip("\n" if not marker["hash"] else "").split("\n", 1)[0]
    end = _SENTENCE_END.search(line)
    return line[: end.start()] if end else line


def _number_in(part: str) -> Fraction | None:
    """Return the number after the last `=` of *part*, else its first."""
    for piece in reversed(part.split("=")) if "=" in part else [part]:
        for match in _NUMBER.finditer(piece):
            if (value := _value(match)) is not None:
                return value
    return None


def _last_number(text: str) -> Fraction | None:
    last = None
    for match in _NUMBER.finditer(text):
        last = match
    return None if last is None else _value(last)


def _value(match: re.Match[str]) -> Fraction | None:
    if match.end() - match.start() > _MAX_DIGITS:
        return None
    try:
        if match["num"]:
            value = _plain(match["num"]) / _plain(match["den"])
        elif match["whole"]:
            value = int(match["whole"]) + Fraction(int(match["mnum"]), int(match["mden"]))
        elif match["fnum"]:
            value = _plain(match["fnum"]) / _plain(match["fden"])
        else:
            value = _plain(match["dec"])
            if power := match["exp"] or match["pow"]:
                if abs(int(power)) > _MAX_POWER:
                    return None
                value *= Fraction(10) ** int(power)
            elif match["to"]:
                if abs(int(match["to"])) * len(match["dec"]) > _MAX_POWER:
                    return None
                value **= int(match["to"])
    except (ZeroDivisionError, ValueError):
        return None
    negative = (match["sign"] or match["sign2"] or "+").strip() != "+"
    return -value if negative else value


def _plain(text: str) -> Fraction:
    return Fraction(_SEPARATORS.sub("", text))
