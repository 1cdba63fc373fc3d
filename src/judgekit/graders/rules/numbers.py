"""Reads the final answer of a worked solution as a number.

What counts as the answer, in this order:

1. Thinking is ignored (`judgekit.graders.rules.committed`); if it never ends there is no answer.
2. The last explicit marker decides, of any kind: `#### 72`, `\\boxed{72}`, `A: 72`, `Answer: 72`,
   `the answer is 72`, `<answer>72</answer>`. After it, up to the end of its line (sentence, brace or tag),
   the number after the last `=` counts, else the first number. A marker without a number gives no answer.
3. Without a marker the last number of the text counts (unless a marker is required).

A denied, a possible, a listed or a scattered answer is none: see `committed`. Nor is a part of an expression: `2\\sqrt{3}`
is not 2, `2x` is not 2, `10:45` is not 10, `E8` is not 8, `x > 5`, "half of 5" and "5 or more" are not 5.

Numbers may have a sign, a currency, a unit, thousands separators (comma, apostrophe, underscore, no-break or thin
space, LaTeX `{,}` and `\\,`; dots and spaces between several groups, and India's groups), decimals, and be fractions
(`3/4`, `\\frac34`), mixed (`1 1/2`, `3½`, `3\\frac12`), roots of squares (`\\sqrt{16}`), powers (`10^2`, `10²`), in
scientific notation, with a magnitude ("3 million"), or a number in English words, with what it counts ("forty-two",
"two thirds", "five apples"). Other exponents (`x^2`) and subscripts are no numbers. Numbers are compared by value:
1,234.50 = 1234.5, 18.00 = 18, 0.5 = 1/2. A percent sign is a unit. Units decide only where the answer and the reference
both have one that is known: 5 feet are not 5 meters, 500 cm are 5 m, 5 m² are not 5 m, 36 km/h are 10 m/s. A rate and what
is none ("$5 an hour" for "$5") are compared by value. "3 dozen" is right for 3 and for 36, "2 hours 30 minutes" for 2.5 hours.
"""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from numbers import Rational
from typing import Any, Literal, NamedTuple

from judgekit.graders.rules.committed import Claim, after_think, claims, commitment, sentence, unsettled

TAIL_CHARS = 65_536
"""Characters at the end of a text that are searched."""
_MAX_DIGITS = 100
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
_NUMBER = re.compile(
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
_MAGNITUDES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "millions": 10**6, "billion": 10**9, "trillion": 10**12,
    "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "lakh": 10**5, "crore": 10**7, "mn": 10**6, "bn": 10**9,
}  # fmt: skip
_MAGNITUDE = re.compile(
    r"\s?(?:[-\s]?(hundred|thousand|millions?|billion|trillion|lakh|crore|mn|bn)\b|([万萬亿億]))(?!\s*-\s*[a-z])",
    re.IGNORECASE,
)

_UNITS: dict[str, tuple[str, Fraction]] = {}
"""Known units: what they measure, and how many of its base they are."""
for _dimension, _table in {
    "length": {"m meter meters metre metres": "1", "cm centimeter centimeters centimetre centimetres": "1/100",
               "mm millimeter millimeters millimetre millimetres": "1/1000",
               "km kilometer kilometers kilometre kilometres kms": "1000", "in inch inches": "0.0254",
               "ft foot feet": "0.3048", "yd yard yards": "0.9144", "mi mile miles": "1609.344"},
    "mass": {"g gram grams": "1", "kg kilogram kilograms kilo kilos": "1000", "mg milligram milligrams": "1/1000",
             "lb lbs pound-mass": "453.59237", "oz ounce ounces": "28.349523125", "ton tons": "907184.74", "tonne tonnes": "1000000"},
    "time": {"s sec secs second seconds": "1", "min mins minute minutes": "60", "h hr hrs hour hours": "3600",
             "ms millisecond milliseconds": "1/1000", "day days": "86400", "week weeks": "604800", "month months": "2629746", "year years": "31556952"},
    "volume": {"l liter liters litre litres": "1", "ml milliliter milliliters millilitre millilitres": "1/1000",
               "gallon gallons gal": "3.785411784", "quart quarts": "0.946352946", "pint pints": "0.473176473"},
    "length/time": {"mph": "0.44704", "kph kmh kmph": "5/18"},
    "area": {"sqm": "1", "sqft": "0.09290304", "acre acres": "4046.8564224", "hectare hectares": "10000"},
    "angle": {"degree degrees ° deg": "1", "radian radians rad": "0"},
    "ratio": {"%": "1", "percent": "1", "per-cent": "1"},
    "dollars": {"$ usd dollar dollars us$ bucks": "1", "cent cents ¢": "1/100"},
    "euros": {"€ eur euro euros": "1"}, "sterling": {"£ gbp pounds-sterling": "1"}, "yen": {"¥ yen jpy": "1"}, "rupees": {"₹ rupee rupees rs rs.": "1"},
    "number": {"dozen dozens": "12"},
}.items():  # fmt: skip
    for _names, _factor in _table.items():
        for _name in _names.split():
            _UNITS[_name.replace("-", " ")] = (_dimension, Fraction(_factor))
for _name, _length in [(name, factor) for name, (kind, factor) in _UNITS.items() if kind == "length"]:
    _UNITS[f"cubic {_name}"] = ("volume", _length**3 * 1000)
    for _square in ("square", "sq", "sq."):
        _UNITS[f"{_square} {_name}"] = ("area", _length**2)
_SQUARED = re.compile(r"\^\s?(?:\{\s?([23])\s?\}|([23])(?!\d))")
_BEFORE_POWER = re.compile(r"(?:^|(?<=[\d\s}])|(/\s?))([A-Za-z]{1,11})\s?$")
_POWER = {"2": "²", "3": "³"}
_GLUED_POWER = re.compile(r"(\d\s?(?:[ckm]?m|ft|yd|in))([23])(?!\w)")
_THIN_SPACE = re.compile(r"(?<=\d)(?:\\[,;:! ]|~)\s*(?=[A-Za-z°])")
_RATIO = re.compile(r"\\[dt]?frac\s*\{\s*([a-z]+)\s*\}\s*\{\s*([a-z]+)\s*\}")
_UNIT_WORD = re.compile(
    r"[ \t-]{0,3}(?:\\?(%)|(°(?:\s?[CF]\b)?)|(¢)|\s?([€£¥₹$])(?!\d)|\s?((?:square|sq\.?|cubic)\s+\w+|per\s+cent\b|[A-Za-z$]+)([²³]|\^\{?\s?[23]\}?)?)"
)
_RATE = re.compile(r"\s*(/|per\b|\\cdot|·|an?\b)\s*([A-Za-z]+)")

_GLUED_UNITS = frozenset(
    [
        "cm",
        "mm",
        "km",
        "kg",
        "mg",
        "lb",
        "lbs",
        "oz",
        "ml",
        "mph",
        "kph",
        "ft",
        "yd",
        "mi",
        "min",
        "mins",
        "sec",
        "secs",
        "hr",
        "hrs",
        "hz",
        "khz",
        "mhz",
        "ghz",
        "kw",
        "kj",
        "kwh",
        "kpa",
        "kcal",
        "cal",
        "pm",
        "am",
        "th",
        "st",
        "nd",
        "rd",
        "m",
        "g",
        "l",
        "h",
        "s",
        "usd",
        "eur",
        "w",
        "j",
        "n",
        "pa",
        "v",
        "a",
        "k°",
        "c°",
        "deg",
        "gb",
        "mb",
        "kb",
        "tb",
        "bps",
        "days",
        "dollars",
        "cents",
        "percent",
    ]
)
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


_PRODUCT = re.compile(r"[a-z]?[x-z]{2,3}|ab|bc|ac|abc|pq")
"""Variables side by side."""
_NAMES = (
    "sqrt sinh cosh tanh asin acos atan alpha beta gamma delta theta lambda sigma omega frac cdot times infty"
)
_SPELLED = frozenset(_NAMES.split())
_FUNCTIONS = frozenset(
    [
        "pi",
        "sqrt",
        "ln",
        "log",
        "sin",
        "cos",
        "tan",
        "exp",
        "or",
        "and",
        "to",
        "squared",
        "cubed",
        "factorial",
    ]
)
_HALF = re.compile(
    r"\s+and\s+(?:an?|one)[\s-]+(half|third|quarter|fourth|fifth|eighth|tenth)\b", re.IGNORECASE
)
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "eighth": 8, "tenth": 10}
_MINUS = re.compile(r"(?<![\w)}]\s)\b(?:minus|negative)\s+(?=[$\d.\\])", re.IGNORECASE)


_DOZEN = _UNITS["dozen"]
_ONE = ("number", Fraction(1))


def _measure(unit: str) -> tuple[str, Fraction] | None:
    """Return what a unit or a rate ("km/h") measures, and how many of its base it is; None if it is not known."""
    known = [_UNITS.get(part) for part in unit.split("/")] if unit not in _UNITS else [_UNITS[unit]]
    if None in known:
        return None
    dimensions, factors = zip(*(part for part in known if part), strict=True)
    return "/".join(dimensions), factors[0] / math.prod(factors[1:], start=Fraction(1))


class Quantity(NamedTuple):
    """A number and its unit, if that is known."""

    value: Fraction
    unit: str = ""

    def same(self, other: Quantity) -> bool:
        return self.converted(other) == other.value

    def converted(self, other: Quantity) -> Fraction | None:
        """Return the value in the other's unit; None if the units do not agree."""
        mine, theirs = _measure(self.unit), _measure(other.unit)
        if mine is None or theirs is None or self.unit == other.unit:
            dozens = self.value * (mine or _ONE)[1] == other.value * (theirs or _ONE)[1]
            return other.value if dozens and _DOZEN in (mine, theirs) else self.value
        if ("/" in mine[0]) != ("/" in theirs[0]):  # "5 dollars an hour" where dollars an hour are asked for
            return self.value
        if mine[0] != theirs[0] or not (mine[1] and theirs[1]):  # radians are no rational number of degrees
            return None
        return self.value * mine[1] / theirs[1]


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
    rest = after_think(text[-TAIL_CHARS:])
    if rest is None:
        return Final(None, "the thinking never ends")
    text = in_ascii(rest).replace("__", "")
    marked = claims(text, only="hash" if need_marker == "####" else None)
    found = commitment(text, _value_of, found=marked)
    if found is None:
        return NO_NUMBER if need_marker else _last(text)
    if found.text is None:
        return Final(None, found.why)
    assert found.claim is not None
    return marked_quantity(found.text, found.claim)


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
        text = _RATIO.sub(lambda m: f" {m[1]}/{m[2]}" if m[1] in _UNITS and m[2] in _UNITS else m[0], text)
        text = _THIN_SPACE.sub(" ", text)
    text = _GLUED_POWER.sub(lambda m: m[1] + _POWER[m[2]], text)
    if "^" not in text:
        return text
    return _OTHER_EXPONENT.sub("", _SQUARED.sub(_squared, text))


def _squared(power: re.Match[str]) -> str:
    """Write a length's exponent as one character, which is no number, and "m/s^2" as "m/s/s"."""
    before = _BEFORE_POWER.search(power.string[max(0, power.start() - 14) : power.start()])
    if before is None or (known := _UNITS.get(before[2].lower())) is None:
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
        found = commitment(text, _value_of, found=marked)
        if found is None or found.text is None or found.claim is None:
            return None
        return marked_quantity(found.text, found.claim).quantity
    return _only(text)


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
    text = _bare(in_ascii(text)).strip()
    text = re.sub(r"(?<=[\d}%)])[.!?,;:]+$", "", text).strip()
    text = _IN_BRACKETS.sub(r" \1", text)
    for opens, closes in ("()", "{}", "<>"):
        if text.startswith(opens) and text.endswith(closes) and opens not in text[1:]:
            text = text[1:-1].strip()
    if text.endswith("!"):
        return None
    match = _NUMBER.match(text)
    if match is None:
        return counted_in_words(text)
    if re.fullmatch(r"\d{1,3} \d{3}", text):
        return Quantity(Fraction(int(text.replace(" ", ""))))
    value = _value(match)
    if value is None:
        return None
    value, unit, end = _with_unit(text, match, value)
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
    return Quantity(number, counted[0] if counted and counted[0] in _UNITS else "")


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


def _bare(text: str) -> str:
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


_SEVERAL = "several numbers are given as the answer"
_VALUE_AGAIN = re.compile(
    r"(?<![\w\\])(?P<name>[A-Za-z])\s*=\s*(?P<one>[^=,;\n]{1,20}?)(?P<sign>\s*[,;]?\s*\b(?:or|and/or|and)\s+|\s*[,;]\s*)"
    r"(?P=name)\s*=\s*(?P<other>[^=,;\n]*?)(?=\s*(?:[,;}<\n]|\.?\s*$|\bor\b))"
)
_ASIDES = re.compile(r"\b(?:because|since|where)\b")
"""What begins a reason, or says what letters mean."""


def marked_quantity(text: str, claim: Claim) -> Final:
    """Return the number of what a marker marks."""
    part = _bare(text)
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
        for match in _NUMBER.finditer(piece):
            if (value := _value(match)) is None:
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
    value, unit, _ = _with_unit(text, match, value)
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
    following = _NUMBER.search(rest)
    if following is None or (value := _value(following)) is None:
        return False
    return value == found.value or Quantity(*_with_unit(rest, following, value)[:2]).same(found)


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
    if unit and not _may_be_glued(unit[1]):
        return True
    if _OPERATORS.match(after):
        return True
    return _before_a_variable(after)


def _before_a_variable(after: str) -> bool:
    """Whether a number is a variable's factor: "5 x", "5 xy"."""
    if (name := re.match(r"\s*([a-z]{2,4})(?![A-Za-z'’])", after)) and _PRODUCT.fullmatch(name[1]):
        return True
    letter = re.match(r"\s*\\?[a-z](?![A-Za-z'’])(?!\s+[a-z]{2,})(?:\s*[-+^*=)·×]|\s*$)", after)
    return letter is not None and not re.match(r"\s*[mghslaA](?![A-Za-z])", after)


def _with_unit(text: str, match: re.Match[str], value: Fraction) -> tuple[Fraction, str, int]:
    """Return the value with its magnitude, the known unit, and where they end."""
    end = match.end()
    if half := _HALF.match(text, end):
        return value + Fraction(1, _PARTS[half[1].lower()]), "", half.end()
    if magnitude := _MAGNITUDE.match(text, end):
        value *= _MAGNITUDES[(magnitude[1] or magnitude[2]).lower()]
        end = magnitude.end()
    money = (match["money"] or "").strip().lower().lstrip("\\")
    if money:
        rate = _RATE.match(text, end)
        if money in _UNITS and rate and rate[2].lower() in _UNITS:
            return value, f"{money}/{rate[2].lower()}", rate.end()
        unit = money if money in _UNITS else ""
    else:
        unit, end = _unit_at(text, end)
    return _with_rest(text, value, unit, end)


_REST = re.compile(r"\s*(?:,\s*)?(?:and\b)?\s*(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)")


def _with_rest(text: str, value: Fraction, unit: str, end: int) -> tuple[Fraction, str, int]:
    """Add what is given in a smaller unit: "2 hours and 30 minutes"."""
    mine, rest = _UNITS.get(unit), _REST.match(text, end)
    theirs = _UNITS.get(rest[2].lower()) if rest else None
    if rest is None or mine is None or theirs is None or mine[0] != theirs[0] or value.denominator != 1:
        return value, unit, end
    more = Fraction(rest[1]) * theirs[1]
    if not 0 < more < mine[1]:
        return value, unit, end
    return value + (more if value >= 0 else -more) / mine[1], unit, rest.end()


def _may_be_glued(name: str) -> bool:
    """Whether a word right behind a number is what it counts ("130miles"), not a factor ("5xy")."""
    low = name.lower()
    return (
        low in _GLUED_UNITS or low in _MAGNITUDES or low in _UNITS or (len(low) > 3 and low not in _SPELLED)
    )


def _unit_at(text: str, at: int) -> tuple[str, int]:
    """Return the known unit that stands at a place, and where it ends; a word that is none counts as read, too."""
    if (word := _UNIT_WORD.match(text, at)) is None:
        return "", at
    name = next(group for group in word.groups()[:5] if group)
    key = " ".join(name.lower().split())
    if word[6]:
        key = f"{'cubic' if '3' in word[6] or '³' in word[6] else 'square'} {key}"
    if (rate := _rate_at(text, word.end(), key)) is not None:
        return rate
    if not word[6] and _no_unit(name, glued=word.start(5) == at):
        return "", at
    if key in _UNITS:
        return key, word.end()
    return "", word.end() if len(name) > 1 else at


def _rate_at(text: str, at: int, unit: str) -> tuple[str, int] | None:
    """Return what a unit becomes by "/h" or "per hour" behind it, and where that ends; None if nothing is."""
    if unit in ("x", "y", "z"):
        return None
    parts, known, end = [unit], unit in _UNITS, at
    while (rate := _RATE.match(text, end)) and rate[2].lower() in _UNITS:
        end, known = rate.end(), known and rate[1] not in ("\\cdot", "·")
        parts.append(rate[2].lower())
    return None if end == at else ("/".join(parts) if known else "", end)


def _no_unit(name: str, *, glued: bool) -> bool:
    """Whether a word behind a number is a variable or a function, and no unit."""
    if len(name) == 1 and name not in _UNITS and name != "L":
        return True
    return (
        name.lower() in _FUNCTIONS
        or _PRODUCT.fullmatch(name) is not None
        or (glued and not _may_be_glued(name))
    )


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
        and whole.unit in _UNITS
    ):
        return Final(whole)  # "2 hours 30 minutes"
    if (value := _value(last)) is None:
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
    if why := unsettled(text, last.start(), last.end()):
        return Final(None, why)
    before = text[max(start, last.start() - 60) : last.start()]
    after = text[last.end() : last.end() + 60]
    if _OR_BEFORE.search(before) or (_LIST_BEFORE.search(before) and not re.match(r"[^.!?\n]*\w", after)):
        return Final(None, _SEVERAL)
    if _glued(before, after):
        return Final(None, "the number is a part of an expression")
    value, unit, _ = _with_unit(text[: last.end() + 60], last, value)
    return Final(Quantity(value, unit))


def _only_numbers(text: str) -> bool:
    """Whether a text is a list of different numbers, and nothing else."""
    rest = _NUMBER.sub("", text)
    return not rest.strip(" \t\n\r,;|&•-") and len({_value(found) for found in _NUMBER.finditer(text)}) > 1


def _last_match(text: str) -> re.Match[str] | None:
    """Return where a text's last number is, looked for from its end."""
    last = None
    digits = max(text.rfind(digit) for digit in "0123456789")
    window = 2_000
    while digits >= 0 and last is None:
        start = max(0, digits - window)
        for match in _NUMBER.finditer(text, start, digits + _MAX_DIGITS):
            whole = start == 0 or match.start() > start + _MAX_DIGITS  # or it may begin before the window
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
    if unit and not _may_be_glued(unit[1]):
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
    part = _bare(text).rpartition("=")[2] if re.search(r"=\s*[-$\d.\\(]", text) else text
    if (whole := whole_quantity(part)) is not None and not re.search(
        r"\b(?:or|and)\b|[,;]", text.rpartition("=")[0]
    ):
        return whole
    if part is not text and re.search(r"\b(?:or|and)\b|[,;]", text.rpartition("=")[0]):
        return None
    bare = _bare(part)
    found = list(islice(_NUMBER.finditer(bare), 2))
    if len(found) != 1 or (value := _value(found[0])) is None:
        return None
    return _judged(bare, found[0], value).quantity


_NAMED = re.compile(r"^[ \t$]*+([A-Za-z])[ \t]*+=[ \t]*+[-−]?[\d.,/]++[ \t$]*+$", re.MULTILINE)
"""A line that gives a variable its value."""


def _on_its_own_line(text: str) -> Quantity | None:
    """Return the number on the last line of a worked solution; None if the line before is a number, too: a list."""
    above, _, last = text.strip().rpartition("\n")
    before = above.rstrip().rpartition("\n")[2]
    if not before or whole_quantity(before) is not None:
        return None
    return whole_quantity(last)


def _value_of(text: str) -> Fraction | None:
    """For comparing two marked texts: their number."""
    found = whole_quantity(sentence(text))
    if found is not None:
        return found.value
    for match in _NUMBER.finditer(text[:200]):
        return _value(match)
    return None


def _value(match: re.Match[str]) -> Fraction | None:
    if match.end() - match.start() > _MAX_DIGITS:
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
