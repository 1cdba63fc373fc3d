"""How a number is written: in digits, with separators, as a fraction, root or power, and in English words.

A number may have a sign, a currency, a unit, thousands separators (comma, apostrophe, underscore, no-break or thin space,
LaTeX `{,}` and `\\,`; dots and spaces between several groups, and India's groups), decimals, and be a fraction (`3/4`,
`\\frac34`), mixed (`1 1/2`, `3½`, `3\\frac12`), the root of a square (`\\sqrt{16}`), a power (`10^2`, `10²`), in scientific
notation, with a magnitude ("3 million"), in two units ("2 hours 30 minutes"), or in words, with what it counts ("forty-two",
"two thirds", "five apples"). Other exponents (`x^2`) and subscripts are no numbers. The value counts, not how it is written:
1,234.50 = 1234.5, 18.00 = 18, 0.5 = 1/2.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction

from judgekit.graders.rules.units import MAGNITUDE, MAGNITUDES, RATE, UNITS, Quantity, unit_at

MAX_DIGITS = 100
"""Most digits of a number. Parsing takes time quadratic in its length, so longer ones are ignored."""
_MAX_CHARS = 1_000
"""A longer text is more than a number."""
_MAX_POWER = 200
"""Largest power of ten; and of another base, over its length."""

_INTEGER = (
    r"(?:\d{1,3}(?:(?:,|'|’|_|\{,\}|\\,|[\u00a0\u2009\u202f])\d{3})+(?!\d)"
    r"|\d{1,2}(?:,\d\d)+,\d{3}(?!\d)"  # India's
    r"|\d{1,3}(?:(?:\\[;:! ]|~|,\\!|\\!,)\d{3})+(?!\d)"
    r"|\d{1,3}(?:[ ]\d{3}){2,}(?!\d)"
    r"|\d{1,3}(?:\.\d{3}){2,}(?![\d.]*\d)|\d+)"
)
_DECIMAL = rf"(?:\d{{1,3}}(?:\.\d{{3}})+,\d{{1,2}}(?!\d)|\d+,\d{{1,2}}(?![\d,])|0,\d+(?!\d|,\d)|{_INTEGER}(?:\.\d+)?|\.\d+)"
_CURRENCY = r"(?:\\?[$€£¥₹₽₩]|US\$|USD|EUR|GBP|Rs\.?)"
_BRACED = r"(?:\{\s?(?P<%s>-?%s)\s?\}|(?P<%s>\d))"
_FRAC = rf"\\[dtc]?frac\s?{_BRACED % ('num', _INTEGER, 'num1')}\s?{_BRACED % ('den', _INTEGER, 'den1')}"
NUMBER = re.compile(
    rf"""
    (?=[-−–+.\d$€£¥₹₽₩UERG\\√]|\s\\|\s√)  # where none begins, no alternative is tried
    (?P<sign>(?<![\w.)\]}}%])[-−–+]\s?(?=[\d.$€£¥₹₽₩\\(]|US|USD|EUR|Rs))?
    (?P<money>{_CURRENCY}\s?)?
    (?P<sign2>(?<=[$€£¥₹₽₩])[-−])?
    (?:
        (?P<mwhole>\d{{1,9}})?(?:\s|\\[,;:!\ ]){{0,3}}{_FRAC}
      | (?P<whole>\d+)(?:\s|\s?\+\s?)(?P<mnum>\d+)\s?[/⁄∕]\s?(?P<mden>\d+)(?![\d/.])
      | (?P<fnum>{_DECIMAL})\s?[/⁄∕÷]\s?(?P<fden>{_DECIMAL})(?![\d/]|\.\d)
      | (?P<times>\d{{1,9}})?\s?(?:\\sqrt\s?(?:\{{\s?(?P<root>{_INTEGER})\s?\}}|(?P<root1>\d))|√\s?\(?(?P<root2>\d+)\)?)
      | (?P<dec>{_DECIMAL})(?:
            (?:e|E)(?P<exp>[-+]?\d+)
          | \s?(?:\\times|\\cdot|×|x|\*|·)\s?10\s?(?:\^|\*\*)\s?\{{?\s?(?P<pow>[-−]?\d+)(?:\s?\}})?
          | \s?(?:\^|\*\*)\s?\{{?\s?(?P<to>[-−]?\d+)(?:\s?\}})?
        )?
    )
    """,
    re.VERBOSE,
)
_SEPARATORS = re.compile(r"\{,\}|\\[,;:! ]|[,'’_~ \u00a0\u2009\u202f]")

_KEPT = frozenset("\u00a0\u2009\u202f")
_SUPERSCRIPT = re.compile("[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FROM_SUPERSCRIPT = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹", "-+0123456789")
_SUBSCRIPT = re.compile("[₀-₉]+")
_FRACTION_AFTER_DIGIT = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅟↉])")
_OTHER_EXPONENT = re.compile(r"(?<![\d\s^)}\]!*])\s?\^\s?(?:\{\s?[-+]?\d+\s?\}|[-+]?\d+)")
"""One that follows no number: a unit's, a variable's."""

_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it)|mbox|hbox|operatorname|boldsymbol)\s*\{([^{}]*)\}"
)
_SQUARED = re.compile(r"\^\s?(?:\{\s?([23])\s?\}|([23])(?!\d))")
_BEFORE_POWER = re.compile(r"(?:^|(?<=[\d\s}])|(/\s?))([A-Za-z]{1,11})\s?$")
_POWER = {"2": "²", "3": "³"}
_GLUED_POWER = re.compile(r"(\d\s?(?:[ckm]?m|ft|yd|in))([23])(?!\w)")
_THIN_SPACE = re.compile(r"(?<=\d)(?:\\[,;:! ]|~)\s*(?=[A-Za-z°])")
_RATIO = re.compile(r"\\[dt]?frac\s*\{\s*([a-z]+)\s*\}\s*\{\s*([a-z]+)\s*\}")
_HALF = re.compile(
    r"\s+and\s+(?:an?|one)[\s-]+(half|third|quarter|fourth|fifth|eighth|tenth)\b", re.IGNORECASE
)
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "eighth": 8, "tenth": 10}
_MINUS = re.compile(r"(?<![\w)}]\s)\b(?:minus|negative)\s+(?=[$\d.\\])", re.IGNORECASE)


def in_ascii(text: str) -> str:
    """Write full-width and other digits, fractions and exponents in ASCII.

    No-break spaces stay apart from spaces, and characters that stand for whole sentences stay as they are.
    """
    if not text.isascii():
        text = _SUPERSCRIPT.sub(lambda found: f"^{{{found[0].translate(_FROM_SUPERSCRIPT)}}}", text)
        text = _FRACTION_AFTER_DIGIT.sub(" ", _SUBSCRIPT.sub("", text))
        forms = {ord(c): _form(c) for c in set(text) - _KEPT}
        text = text.translate({c: form for c, form in forms.items() if len(form) <= 4})
    text = _MINUS.sub("-", text)
    if "\\" in text:
        text = _WRAPPER.sub(r" \1", _WRAPPER.sub(r" \1", text))
        text = _RATIO.sub(lambda m: f" {m[1]}/{m[2]}" if m[1] in UNITS and m[2] in UNITS else m[0], text)
        text = _THIN_SPACE.sub(" ", text)
    text = _GLUED_POWER.sub(lambda m: m[1] + _POWER[m[2]], text)
    if "^" not in text:
        return text
    return _OTHER_EXPONENT.sub("", _SQUARED.sub(_squared, text))


def _squared(power: re.Match[str]) -> str:
    """Write a length's exponent as one character, which is no number, and "m/s^2" as "m/s/s"."""
    before = _BEFORE_POWER.search(power.string[max(0, power.start() - 14) : power.start()])
    if before is None or (known := UNITS.get(before[2].lower())) is None:
        return power[0]
    if before[1]:
        return f"/{before[2]}" if known[0] == "time" and "2" in power[0] else power[0]
    return _POWER[power[1] or power[2]] if known[0] == "length" else power[0]


def _form(char: str) -> str:
    if char in "。？！；：":  # sentences' own marks stay
        return char
    if char == "٬":
        return ","
    if char == "٫":
        return "."
    if unicodedata.category(char) == "Nd":
        return str(unicodedata.decimal(char))
    return unicodedata.normalize("NFKC", char)


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


_IN_BRACKETS = re.compile(r"(?<=\d)\s?\(([A-Za-z]{2}[A-Za-z ]{0,18})\)$")
"""A unit in brackets: "42 (cm)"."""


def whole_quantity(text: str) -> Quantity | None:
    """Return the number that *text* is, with its unit; None if it is more or less than one."""
    if len(text) > _MAX_CHARS:
        return None
    text = bare(in_ascii(text)).strip()
    text = re.sub(r"(?<=[\d}%)])[.!?,;:]+$", "", text).strip()
    text = _IN_BRACKETS.sub(r" \1", text)
    for opens, closes in ("()", "{}", "<>"):
        if text.startswith(opens) and text.endswith(closes) and opens not in text[1:]:
            text = text[1:-1].strip()
    if text.endswith("!"):
        return None
    match = NUMBER.match(text)
    if match is None:
        return counted_in_words(text)
    if re.fullmatch(r"\d{1,3} \d{3}", text):
        return Quantity(Fraction(int(text.replace(" ", ""))))
    value = value_of(match)
    if value is None:
        return None
    value, unit, end = with_unit(text, match, value)
    return Quantity(value, unit) if not text[end:].strip(" .!") else None


def number_in_words(text: str) -> Fraction | None:
    """Read an English number such as "forty-two" or "two thirds"; None if the text is something else."""
    words = re.sub(r"[-\s]+", " ", text.strip(" .!*\"'`$").lower()).split()
    if not words or len(words) > 20:
        return None
    if words == ["a", "dozen"]:
        return Fraction(12)
    if (parts := _PARTS.get(words[-1].removesuffix("s").replace("halve", "half"))) is not None:
        return _share_in_words(words[:-1], parts)
    if words[0] in ("a", "an") and len(words) > 1 and words[1] in ("hundred", *_LARGE):
        words = words[1:]
    negative = words[0] in ("minus", "negative")
    number = _whole_in_words(words[negative:])
    return None if number is None else Fraction(-number if negative else number)


def _whole_in_words(words: list[str]) -> int | None:
    total = group = 0
    seen = False
    for word in words:
        if word == "and" and seen:
            continue
        if word in _SMALL:
            if seen and group % 100 and not (group % 10 == 0 and _SMALL[word] < 10 and group % 100 >= 20):
                return None
            group += _SMALL[word]
        elif word == "hundred":
            group = (group or 1) * 100
        elif word in _LARGE:
            total += (group or 1) * _LARGE[word]
            group = 0
        else:
            return None
        seen = True
    return total + group if seen else None


def _share_in_words(words: list[str], parts: int) -> Fraction | None:
    """Read what stands before "half", "thirds", …: nothing before a half, a count, or a number and "a"."""
    if words in (["a"], ["one"]) or (not words and parts == 2):
        return Fraction(1, parts)
    if words[-2:] in (["and", "a"], ["and", "one"]):
        whole = number_in_words(" ".join(words[:-2]))
        return None if whole is None else whole + Fraction(1, parts)
    count = number_in_words(" ".join(words)) if len(words) == 1 else None
    return None if count is None else count / parts


def counted_in_words(text: str) -> Quantity | None:
    """Read an English number and what is counted ("five apples"); None if the text is something else."""
    words = re.sub(r"[-\s]+", " ", _ABOUT.sub("", text.strip(" .!*\"'`$"))).split()
    for size in range(min(len(words), _MOST_WORDS), 0, -1):
        number = number_in_words(" ".join(words[:size]))
        if number is not None:
            break
    else:
        return None
    counted = [word.lower() for word in words[size:]]
    if counted[:1] == ["of"] and number.denominator > 1:  # "three quarters of an hour"
        return Quantity(number) if len(counted) <= _MOST_COUNTED and all(map(str.isalpha, counted)) else None
    if len(counted) > _MOST_COUNTED or any(
        word in _NOT_COUNTED or not word.isalpha() or number_in_words(word) is not None for word in counted
    ):
        return None
    return Quantity(number, counted[0] if counted and counted[0] in UNITS else "")


_ABOUT = re.compile(r"^(?:about|around|roughly|approximately|exactly|just|only)\s+", re.IGNORECASE)
_MOST_WORDS = 10
_MOST_COUNTED = 4
"""Words of what is counted, at most."""
_OTHERWISE = (
    "a an the of or and to than more less fewer times in out per by plus minus over under at from as is are was has have had do does did will can could "
    "should must would may might who that which another thing point not but if way third quarter fifth tenth"
)
_NOT_COUNTED = frozenset(_OTHERWISE.split())
"""Words that make another number of it, or no number."""
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_SMALL = {word: i for i, word in enumerate(_ONES.split())} | {
    word: 10 * i
    for i, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2
    )
}
_LARGE = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def bare(text: str) -> str:
    """Remove what decorates a number: bold, dollars of LaTeX, wrappers of text."""
    text = re.sub(r"(?<=[\d)])\*\*(?=[-\d(])", "^", text)
    text = text.replace("\\%", "%").replace("^\\circ", "°").replace("^{\\circ}", "°").replace("\\degree", "°")
    text = re.sub(r"\\\$(?=\s?\d)", "US$", text)
    if text.count("$") >= 2 or "\\" in text:
        text = (
            re.sub(r"\$(?=\s*[-\\(\d.]*[^\d\s.,])|\$(?=\s*$)|(?<=\d)\$", "", text)
            if text.count("$") % 2 == 0
            else text
        )
    return re.sub(r"\*\*|__|`|\\(?:left|right|displaystyle)(?![A-Za-z])|\\[()\[\]]", "", text)


def with_unit(text: str, match: re.Match[str], value: Fraction) -> tuple[Fraction, str, int]:
    """Return the value with its magnitude, the known unit, and where they end."""
    end = match.end()
    if half := _HALF.match(text, end):
        return value + Fraction(1, _PARTS[half[1].lower()]), "", half.end()
    if magnitude := MAGNITUDE.match(text, end):
        value *= MAGNITUDES[(magnitude[1] or magnitude[2]).lower()]
        end = magnitude.end()
    money = (match["money"] or "").strip().lower().lstrip("\\")
    if money:
        rate = RATE.match(text, end)
        if money in UNITS and rate and rate[2].lower() in UNITS:
            return value, f"{money}/{rate[2].lower()}", rate.end()
        unit = money if money in UNITS else ""
    else:
        unit, end = unit_at(text, end)
    return _with_rest(text, value, unit, end)


_REST = re.compile(r"\s*(?:,\s*)?(?:and\b)?\s*(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)")


def _with_rest(text: str, value: Fraction, unit: str, end: int) -> tuple[Fraction, str, int]:
    """Add what is given in a smaller unit: "2 hours and 30 minutes"."""
    mine, rest = UNITS.get(unit), _REST.match(text, end)
    theirs = UNITS.get(rest[2].lower()) if rest else None
    if rest is None or mine is None or theirs is None or mine[0] != theirs[0] or value.denominator != 1:
        return value, unit, end
    more = Fraction(rest[1]) * theirs[1]
    if not 0 < more < mine[1]:
        return value, unit, end
    return value + (more if value >= 0 else -more) / mine[1], unit, rest.end()


def value_of(match: re.Match[str]) -> Fraction | None:
    """Return the value of what NUMBER matched; None if it is not rational, or too large."""
    if match.end() - match.start() > MAX_DIGITS:
        return None
    try:
        value = _size(match)
    except (ZeroDivisionError, ValueError):
        return None
    if value is None:
        return None
    negative = (match["sign"] or match["sign2"] or "+").strip() != "+"
    return -value if negative else value


def _size(match: re.Match[str]) -> Fraction | None:
    """Return a number without its sign; None if it is not rational, or too large. Raises ValueError, ZeroDivisionError."""
    if num := match["num"] or match["num1"]:
        return _plain(num) / _plain(match["den"] or match["den1"]) + int(match["mwhole"] or 0)
    if match["whole"]:
        return int(match["whole"]) + Fraction(int(match["mnum"]), int(match["mden"]))
    if match["fnum"]:
        return _plain(match["fnum"]) / _plain(match["fden"])
    if root := match["root"] or match["root1"] or match["root2"]:
        square = int(_plain(root))
        whole = math.isqrt(square)
        return Fraction(whole * int(match["times"] or 1)) if whole**2 == square else None
    value = _plain(match["dec"])
    if power := match["exp"] or match["pow"]:
        exponent = int(power.replace("−", "-"))
        return None if abs(exponent) > _MAX_POWER else value * Fraction(10) ** exponent
    if to := match["to"]:
        exponent = int(to.replace("−", "-"))
        return None if abs(exponent) * len(match["dec"]) > _MAX_POWER else value**exponent
    return value


def _plain(text: str) -> Fraction:
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d{1,2}", text):
        text = text.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"\d+,\d{1,2}|0,\d+", text):
        text = text.replace(",", ".")
    elif re.fullmatch(r"\d{1,3}(?:\.\d{3}){2,}", text):
        text = text.replace(".", "")
    return Fraction(_SEPARATORS.sub("", text))
