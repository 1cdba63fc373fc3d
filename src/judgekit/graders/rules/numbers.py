"""Reads the final answer of a worked solution as a number.

What counts as the answer, in this order:

1. Thinking is ignored (`judgekit.graders.rules.thoughts`); if it never ends there is no answer.
2. The last explicit marker decides, of any kind: `#### 72`, `\\boxed{72}`, `A: 72`, `Answer: 72`,
   `the answer is 72`, `<answer>72</answer>`. After it, up to the end of its line (sentence, brace or tag),
   the number after the last `=` counts, else the first number. A marker without a number gives no answer.
3. Without a marker the last number of the text counts (unless a marker is required).

A denied, a possible, a listed or a scattered answer is none: see `committed`. Nor is a part of an expression: `2\\sqrt{3}`
is not 2, `2x` is not 2, `10:45` is not 10, `E8` is not 8, `x > 5`, "half of 5" and "5 or more" are not 5.

How a number may be written is told in `notation`; when two are the same in `units`.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from numbers import Rational
from typing import Any, Literal, NamedTuple

from judgekit.graders.rules.asserted import doubt, sentence
from judgekit.graders.rules.committed import Claim, claims, commitment
from judgekit.graders.rules.notation import (
    MAX_DIGITS,
    NUMBER,
    bare,
    counted_in_words,
    in_ascii,
    number_in_words,
    value_of,
    whole_quantity,
    with_unit,
)
from judgekit.graders.rules.thoughts import after_think, last_turn
from judgekit.graders.rules.units import PRODUCT, UNITS, Quantity, may_be_glued

TAIL_CHARS = 65_536
"""Characters at the end of a text that are searched."""
_OPERATORS = re.compile(
    r"\s*(?:(?:squared(?!\s+(?:feet|met|inch|cent|kilo|mil|unit|yard|cm))|cubed|factorial|divided\s+by|multiplied\s+by)\b|\\(?:sqrt|pi|cdot|times|div|pm|ln|log|sin|cos|tan|frac|dfrac|alpha|beta|theta|infty|phi|lambda|mu|sigma|le|ge|lt|gt|neq|binom)(?![A-Za-z])|[√πϕθλ∞×·÷*^<>≤≥≠±]|[-+−/](?=\s*(?:\d|\\|\(|√|[A-Za-z](?![A-Za-z'’])))|(?:pi|sqrt|ln|log|sin|cos|tan|exp)\b|=(?=\s*[\w\\(-]))|\((?=[\w\s+\-*^\\]*\))"
)
_JOINED = re.compile(r"\s?:\s?\d|[-–−]\s*$|-\d|–\d|[-–−]\s?\\?[$€£¥₹]\s?\d|\.\d|/\s?\d|,\d")
_LIST = re.compile(
    r"""(?:\s*(?:\\text\s*\{)?\s*(?:[A-Za-z%°$€£]{1,12}\s*){0,2}?\s*\}?)
        (?:[.…]{0,4}\s*[,;/|?–—-]?\s*\b(?:or|and/or)\s+|\s*[,;/|]\s*(?:(?:or|and|and/or|maybe|perhaps|possibly|else|even)\s+)*|\s*(?:,\s*)?\b(?:or|and|and/or|versus|vs\.?|to|through|but\ (?:maybe|possibly)\ (?:also\ )?)\b\s*(?:(?:maybe|perhaps|possibly|even|else|it\ (?:could|might)\ be|the\ answer\ is)\s+)*|\s*&\s*|\s*(?:或|和|oder|ou|или)\s*)
        (?:about\s+)?[-−+]?\s?(?:\\?[$€£¥₹]\s?)?(?=[\d\\.(])(?:\\(?:frac|dfrac|sqrt|boxed)|[\d.(])""",
    re.VERBOSE | re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\s+(?:(?!(?:for|in(?!\s\d+\W*$)|after|over|during|per|at|by|from|on|with|before|within|because|when|since)\s)[A-Za-z]+,?\s+)?[-−+]?\d"
)
_OR_MORE = re.compile(
    r"\+(?![\w(])|\s?(?:[A-Za-z%]+\s){0,2}?or\s+(?:more|fewer|less|higher|lower|greater|larger|smaller|above|below|over|under|later|earlier)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\s*[(\[]\s*(?:or|and/or)\s[^\d)\]]{0,20}\d"
    # behind a unit, a number of this unit or of none: "3 cm (or 4)" leaves it open, and "5 dozen (or 60 eggs)" does not
    r"|(?:\s*(?P<unit>[A-Za-z%°]{1,12})){1,2}\s*[(\[]\s*(?:or|and/or)\s+[-−+]?\d[\d.,]*\s*(?P=unit)?\s*[)\]]",
    re.IGNORECASE,
)
_OR_BEFORE = re.compile(
    r"(?:\d[\d.,/]*\s*(?:[A-Za-z%$]+\s+){0,2}?(?:[-–—,;?.…(]+\s*)?(?:or|and/or|或|/|versus|vs\.?)\s*(?:(?:maybe|perhaps|even|possibly|else)\s+)?(?:[A-Za-z]\s*=\s*)?[$€£]?)$"
    r"|\d\s+and\s+[$€£]?$|\bif\s+not\s+[^.,;\n]{1,20},?\s*(?:then\s+)?[$€£]?$",
    re.IGNORECASE,
)
_LIST_BEFORE = re.compile(r"\d\s*,\s+[-−]?[$€£]?$")
"""For a number that ends a sentence: "61, 50." but not "In 2020, 50 of them"."""


class Final(NamedTuple):
    """The number that a response gives as its answer, or why it gives none."""

    quantity: Quantity | None
    why: str = "no number is given as the answer"


NO_NUMBER = Final(None)


def final_answer(text: str, *, need_marker: bool | Literal["####"] = False) -> Fraction | None:
    """Return the number that *text* gives as its answer, or None; see the module's docstring."""
    found = final_quantity(text, need_marker=need_marker).quantity
    return None if found is None else found.value


def final_quantity(text: str, *, need_marker: bool | Literal["####"] = False) -> Final:
    """Return the number that *text* gives as its answer, or why it gives none.

    *need_marker*: without a marker there is no answer; "####": and no other marker is one.
    """
    rest = last_turn(text)
    if rest is None:
        return Final(None, "the thinking never ends")
    text = in_ascii(rest[-TAIL_CHARS:]).replace("__", "")
    marked = claims(text, only="hash" if need_marker == "####" else None)
    found = commitment(text, _claimed, found=marked)
    if found is None:
        return NO_NUMBER if need_marker else _last(text)
    if found.text is None:
        return Final(None, found.why)
    assert found.claim is not None
    return marked_quantity(found.text, found.claim)


def read_quantity(value: Any) -> Quantity | None:
    """Return a reference's number, from a number, its text, or a worked solution."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):  # int and Fraction, and numpy's integers
        return Quantity(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, float):
        return Quantity(Fraction(str(value))) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return Quantity(Fraction(value)) if value.is_finite() and abs(value.adjusted()) < 10_000 else None
    if not isinstance(value, str):
        return None
    text = in_ascii(after_think(value) or "")
    if marked := claims(text):
        found = commitment(text, _claimed, found=marked)
        if found is None or found.text is None or found.claim is None:
            return None
        return marked_quantity(found.text, found.claim).quantity
    return _only(text)


_SEVERAL = "several numbers are given as the answer"
_VALUE_AGAIN = re.compile(
    r"(?<![\w\\])(?P<name>[A-Za-z])\s*=\s*(?P<one>[^=,;\n]{1,20}?)(?P<sign>\s*[,;]?\s*\b(?:or|and/or|and)\s+|\s*[,;]\s*)"
    r"(?P=name)\s*=\s*(?P<other>[^=,;\n]*?)(?=\s*(?:[,;}<\n]|\.?\s*$|\bor\b))"
)
_ASIDES = re.compile(r"\b(?:because|since|where)\b")
"""What begins a reason, or says what letters mean."""


def marked_quantity(text: str, claim: Claim) -> Final:
    """Return the number of what a marker marks."""
    part = bare(text)
    # in boxes alone, a factorial is one
    if claim.kind == "boxed" and re.search(r"\d!", part):
        factorial = re.fullmatch(r"\s*(\d{1,2})!\s*", part)
        return Final(Quantity(Fraction(math.factorial(int(factorial[1]))))) if factorial else NO_NUMBER
    if claim.kind != "boxed" and "\\boxed" in part and (inner := claims(text, only="boxed")):
        return marked_quantity(inner[-1].text, inner[-1])
    if claim.kind in ("words", "hash"):
        part = sentence(part)
    if (whole := whole_quantity(part)) is not None:
        return Final(whole)
    part = part[:2000]
    if any(map(_other_value, _VALUE_AGAIN.finditer(part))):
        return Final(None, _SEVERAL)
    pieces = part.split("=")
    said = _ASIDES.split(part)[0].split("=")  # "5, where x = 6"
    for piece in (*reversed(said), *reversed(pieces)):
        if (whole := _whole_piece(re.split(r"\b(?:because|since|as|where|when|if)\b", piece)[0])) is not None:
            return Final(whole)
    for piece in reversed(pieces):
        for match in NUMBER.finditer(piece):
            if (value := value_of(match)) is None:
                return NO_NUMBER
            return _judged(piece, match, value)
    words = counted_in_words(re.split(r"[,;(]|\b(?:because|since)\b", part)[0])
    return NO_NUMBER if words is None else Final(words)


def _whole_piece(text: str) -> Quantity | None:
    """Return the number that one side of an equation is; words there count nothing ("Two years have passed, so 46 + 2 = 48")."""
    if re.search(r"\d", text):
        return whole_quantity(text)
    words = number_in_words(text)
    return None if words is None else Quantity(words)


def _judged(text: str, match: re.Match[str], value: Fraction) -> Final:
    """Return a number in a text, unless it is a part of something else, or one of several."""
    if why := _partial(text, match):
        return Final(None, why)
    value, unit, _ = with_unit(text, match, value)
    before = text[max(0, match.start() - 80) : match.start()]
    if re.search(
        r"(?:n['’]t|\b(?:not|never|except|without|other\s+than|rather\s+than|less\s+than|more\s+than|greater\s+than|at\s+least|at\s+most|under|over|below|above))\s*[$*(]*$",
        before,
        re.IGNORECASE,
    ):
        return Final(None, "the answer is denied, or a bound")
    if re.search(
        r"\b(?:maybe|perhaps|possibly|might\s+be|may\s+be|could\s+be|either|between|if|unless|false|wrong)\b[^,;]{0,30}$",
        before,
        re.IGNORECASE,
    ):
        return Final(None, "the answer is only possible")
    rest = re.sub(r"\s+", " ", text[match.end() : match.end() + 100])
    if _OR_MORE.match(rest):
        return Final(None, "the answer is denied, or a bound")
    found = Quantity(value, unit)
    if (_LIST.match(rest) or _BESIDE.match(rest) or _ASIDE.match(rest)) and not _same_again(rest, found):
        return Final(None, _SEVERAL)
    return Final(found)


def _other_value(again: re.Match[str]) -> bool:
    """Whether a letter gets two values: "x = 3 or x = 4", but not "x = 6/2, x = 3" and not a step, "x = 2 + 1, x = 3"."""
    one, other = whole_quantity(again["one"]), whole_quantity(again["other"])
    if one is None or other is None:
        return again["sign"].strip().endswith("or")
    return not one.same(other)


def _same_again(rest: str, found: Quantity) -> bool:
    """Whether the next number is the same: "5, or 5.0", "90 minutes, or 1.5 hours"."""
    following = NUMBER.search(rest)
    if following is None or (value := value_of(following)) is None:
        return False
    return value == found.value or Quantity(*with_unit(rest, following, value)[:2]).same(found)


def _partial(text: str, match: re.Match[str]) -> str | None:
    """Return why a number is only a part of something, or None."""
    before, after = text[max(0, match.start() - 40) : match.start()], text[match.end() : match.end() + 80]
    if (
        _after_operand(before, match["sign"])
        or _FACTOR.search(before)
        or _before_operand(after)
        or (re.search(r"[(\[{]\s*$", before) and re.match(r"\s*,", after))
    ):
        return "the number is a part of an expression"
    return None


def _after_operand(before: str, sign: str | None) -> bool:
    """Whether what stands before a number makes it a part of an expression."""
    if re.search(
        r"[A-Za-z][({]\s*$|\b(?:log|ln|lg|exp|sqrt|(?:arc)?(?:sin|cos|tan|cot|sec|csc))\s+$", before
    ):
        return True
    if re.search(r"[A-Za-z_\\](?<!US)(?<!\\)$|[A-Za-z_]$", before) and not re.search(
        r"(?:\\[,;: ]|Rs|USD|EUR|RM)$", before
    ):
        return True
    if re.search(
        r"(?:[\w)}\]]\s*[*×·^/÷+]|\w\s+[-−–]|\\(?:times|cdot|pm|div|leq?|geq?|lt|gt)|[√±^_<>≤≥]|\\(?:sqrt|frac|log|ln|sin|cos|tan|binom|log_)\s*\{?|[\w)]\s?/|(?:[\d)]|(?<![A-Za-z])[A-Za-z])\s?:)\s*[({]*$",
        before,
    ):
        return True
    if re.search(r"\d[-–:.,/]$", before):
        return True
    if sign and re.search(
        r"(?:(?<![A-Za-z])[A-Za-z]|[\d}])\s*$"
        if not sign.endswith(" ")
        else r"(?:(?<![A-Za-z])[A-Za-z]|[\d})\]])\s*$",
        before,
    ):
        return True  # "x + 42"
    return before.count("{") > before.count("}")


def _before_operand(after: str) -> bool:
    """Whether what stands after a number makes it a part of an expression."""
    if _JOINED.match(after) or (after[:1] == "!" and after[1:2] not in ("", " ", "\n")):
        return True
    unit = re.match(r"([A-Za-z]+)", after)
    if unit and not may_be_glued(unit[1]):
        return True
    if _OPERATORS.match(after):
        return True
    return _before_a_variable(after)


def _before_a_variable(after: str) -> bool:
    """Whether a number is a variable's factor: "5 x", "5 xy"."""
    if (name := re.match(r"\s*([a-z]{2,4})(?![A-Za-z'’])", after)) and PRODUCT.fullmatch(name[1]):
        return True
    letter = re.match(r"\s*\\?[a-z](?![A-Za-z'’])(?!\s+[a-z]{2,})(?:\s*[-+^*=)·×]|\s*$)", after)
    return letter is not None and not re.match(r"\s*[mghslaA](?![A-Za-z])", after)


def _last(text: str) -> Final:
    """Return the last number of a text without a marker."""
    last = _last_match(text)
    if last is None:
        words = counted_in_words(sentence(text.strip())) if len(text) < 200 else None
        return NO_NUMBER if words is None else Final(words)
    if (
        len(text) < 200
        and last.start()
        and (whole := whole_quantity(text)) is not None
        and whole.unit in UNITS
    ):
        return Final(whole)  # "2 hours 30 minutes"
    if (value := value_of(last)) is None:
        return NO_NUMBER
    if len(text) < 200 and _only_numbers(text):
        return Final(None, _SEVERAL)
    start = text.rfind("\n", 0, last.start()) + 1
    if (last["sign"] or "").endswith((" ", "\n")):
        if not text[start : last.start()].strip():  # a list's dash
            value = abs(value)
        elif not re.search(
            r"[=:(,]\s*$|\b(?:is|equals|of|be)\s*$", text[max(start, last.start() - 20) : last.start()]
        ):
            return Final(None, "the number is a part of an expression")
    if why := doubt(text, last.start(), last.end()):
        return Final(None, why)
    before = text[max(start, last.start() - 60) : last.start()]
    after = text[last.end() : last.end() + 60]
    if _OR_BEFORE.search(before) or (_LIST_BEFORE.search(before) and not re.match(r"[^.!?\n]*\w", after)):
        return Final(None, _SEVERAL)
    if _glued(before, after):
        return Final(None, "the number is a part of an expression")
    value, unit, _ = with_unit(text[: last.end() + 60], last, value)
    return Final(Quantity(value, unit))


def _only_numbers(text: str) -> bool:
    """Whether a text is a list of different numbers, with their units, and nothing else."""
    words = re.findall(r"[^\s,;|&•-]+", NUMBER.sub("", text))
    if not all(word.lower() in UNITS for word in words):
        return False
    listed = [
        Quantity(*with_unit(text, found, value)[:2])
        for found in NUMBER.finditer(text)
        if (value := value_of(found)) is not None
    ]
    return not all(one.same(listed[-1]) for one in listed)


def _last_match(text: str) -> re.Match[str] | None:
    """Return where a text's last number is, looked for from its end."""
    last = None
    digits = max(text.rfind(digit) for digit in "0123456789")
    window = 2_000
    while digits >= 0 and last is None:
        start = max(0, digits - window)
        for match in NUMBER.finditer(text, start, digits + MAX_DIGITS):
            whole = start == 0 or match.start() > start + MAX_DIGITS  # or it may begin before the window
            before = text[max(0, match.start() - 1) : match.start()]
            in_a_word = before.isascii() and (before.isalpha() or before == "_")
            if whole and (match["dec"] is None or not in_a_word):
                last = match
        if start == 0:
            break
        window *= 4
    return last


_FACTOR = re.compile(
    r"(?:[-\d)]|(?<![A-Za-z\\])[a-z]|\b(?:log|ln|lg|exp|sqrt|sin|cos|tan))(?:\\left)?\($"
    r"|(?:[\d)}\]]|(?<![A-Za-z\\])[A-Za-z])[ \t]*(?:[*×·÷+]|\\(?:times|cdot|div))[ \t]*[({]*$"
    r"|(?:(?<![\w</\\])[A-Za-z][ \t]*|^[ \t]*)[<>≤≥][ \t]*$|\\(?:leq?|geq?|lt|gt)[ \t]*$"
    r"|\b(?:(?:half|third|quarter|(?:square|cube)[ \t]+root)[ \t]+of|double|twice|triple|thrice)[ \t]+$"
)
"""What makes a number a part of an expression: -(5), 2(5), f(5), 3 * 5, x > 5, half of 5."""


def _glued(before: str, after: str) -> bool:
    """Whether a text's last number is a part of a word or an expression."""
    if _FACTOR.search(before):
        return True
    if re.search(
        r"(?:[A-Za-z_]|\d[:]|\d[-–](?=$)\s?|\\(?:sqrt|frac|log|ln)\s*\{?|[√^_])$", before
    ) and not re.search(r"(?:USD|EUR|Rs|RM|US\$)$", before):
        return True
    unit = re.match(r"([A-Za-z]+)", after)
    if unit and not may_be_glued(unit[1]):
        return True
    if _before_a_variable(after):
        return True
    return bool(re.match(r"\s*(?:\\(?:sqrt|pi|ln|log|sin|cos|tan)(?![A-Za-z])|[√π]|pi\b)", after))


def _only(text: str) -> Quantity | None:
    """Return a reference's only number; None if it has several, or none of its own."""
    if (whole := whole_quantity(text)) is not None:
        return whole
    if (result := _on_its_own_line(text)) is not None:
        return result
    if len(set(_NAMED.findall(text))) > 1:
        return None
    part = bare(text).rpartition("=")[2] if re.search(r"=\s*[-$\d.\\(]", text) else text
    if (whole := whole_quantity(part)) is not None and not re.search(
        r"\b(?:or|and)\b|[,;]", text.rpartition("=")[0]
    ):
        return whole
    if part is not text and re.search(r"\b(?:or|and)\b|[,;]", text.rpartition("=")[0]):
        return None
    plain = bare(part)
    found = list(islice(NUMBER.finditer(plain), 2))
    if len(found) != 1 or (value := value_of(found[0])) is None:
        return None
    return _judged(plain, found[0], value).quantity


_NAMED = re.compile(r"^[ \t$]*+([A-Za-z])[ \t]*+=[ \t]*+[-−]?[\d.,/]++[ \t$]*+$", re.MULTILINE)
"""A line that gives a variable its value."""


def _on_its_own_line(text: str) -> Quantity | None:
    """Return the number on the last line of a worked solution; None if the line before is a number, too: a list."""
    above, _, last = text.strip().rpartition("\n")
    before = above.rstrip().rpartition("\n")[2]
    if not before or whole_quantity(before) is not None:
        return None
    return whole_quantity(last)


def _claimed(text: str) -> Fraction | None:
    """For comparing two marked texts: their number."""
    found = whole_quantity(sentence(text))
    if found is not None:
        return found.value
    for match in NUMBER.finditer(text[:200]):
        return value_of(match)
    return None
