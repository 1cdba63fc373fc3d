"""Units: which are known, when two quantities are the same, and the unit that stands behind a number in a text.

A percent sign is a unit. Units decide only where the answer and the reference both have one that is known: 5 feet are not
5 meters, 500 cm are 5 m, 5 m² are not 5 m, 36 km/h are 10 m/s. A rate and what is none ("$5 an hour" for "$5") are compared
by value. "3 dozen" is right for 3 and for 36.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import NamedTuple

from judgekit.graders.rules.english import listed

MAGNITUDES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "millions": 10**6, "billion": 10**9, "trillion": 10**12,
    "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "lakh": 10**5, "crore": 10**7, "mn": 10**6, "bn": 10**9,
}  # fmt: skip
MAGNITUDE = re.compile(
    r"\s?(?:[-\s]?(hundred|thousand|millions?|billion|trillion|lakh|crore|mn|bn)\b|([万萬亿億]))(?!\s*-\s*[a-z])",
    re.IGNORECASE,
)

UNITS: dict[str, tuple[str, Fraction]] = {}
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
            UNITS[_name.replace("-", " ")] = (_dimension, Fraction(_factor))
for _name, _length in [(name, factor) for name, (kind, factor) in UNITS.items() if kind == "length"]:
    UNITS[f"cubic {_name}"] = ("volume", _length**3 * 1000)
    for _square in ("square", "sq", "sq."):
        UNITS[f"{_square} {_name}"] = ("area", _length**2)
_UNIT_WORD = re.compile(
    r"[ \t-]{0,3}(?:\\?(%)|(°(?:\s?[CF]\b)?)|(¢)|\s?([€£¥₹$])(?!\d)|\s?((?:square|sq\.?|cubic)\s+\w+|per\s+cent\b|[A-Za-z$]+)([²³]|\^\{?\s?[23]\}?)?)"
)
RATE = re.compile(r"\s*(/|per\b|\\cdot|·|an?\b)\s*([A-Za-z]+)")

_GLUED_UNITS = frozenset(
    listed(
        "cm mm km kg mg lb lbs oz ml mph kph ft yd mi min mins sec secs hr hrs hz khz mhz ghz kw kj kwh kpa kcal cal pm am "
        "th st nd rd m g l h s usd eur w j n pa v a k° c° deg gb mb kb tb bps days dollars cents percent"
    )
)
"""What may stand right behind a number, without a blank."""
PRODUCT = re.compile(r"[a-z]?[x-z]{2,3}|ab|bc|ac|abc|pq")
"""Variables side by side."""
_SPELLED = frozenset(
    listed(
        "sqrt sinh cosh tanh asin acos atan alpha beta gamma delta theta lambda sigma omega frac cdot times infty"
    )
)
"""Functions and letters that a text spells out right behind a number: "2sqrt"."""
_FUNCTIONS = frozenset(listed("pi sqrt ln log sin cos tan exp or and to squared cubed factorial"))
_DOZEN = UNITS["dozen"]
_ONE = ("number", Fraction(1))


def _measure(unit: str) -> tuple[str, Fraction] | None:
    """Return what a unit or a rate ("km/h") measures, and how many of its base it is; None if it is not known."""
    known = [UNITS.get(part) for part in unit.split("/")] if unit not in UNITS else [UNITS[unit]]
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


def may_be_glued(name: str) -> bool:
    """Whether a word right behind a number is what it counts ("130miles"), not a factor ("5xy")."""
    low = name.lower()
    return low in _GLUED_UNITS or low in MAGNITUDES or low in UNITS or (len(low) > 3 and low not in _SPELLED)


def unit_at(text: str, at: int) -> tuple[str, int]:
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
    if key in UNITS:
        return key, word.end()
    return "", word.end() if len(name) > 1 else at


def _rate_at(text: str, at: int, unit: str) -> tuple[str, int] | None:
    """Return what a unit becomes by "/h" or "per hour" behind it, and where that ends; None if nothing is."""
    if unit in ("x", "y", "z"):
        return None
    parts, known, end = [unit], unit in UNITS, at
    while (rate := RATE.match(text, end)) and rate[2].lower() in UNITS:
        end, known = rate.end(), known and rate[1] not in ("\\cdot", "·")
        parts.append(rate[2].lower())
    return None if end == at else ("/".join(parts) if known else "", end)


def _no_unit(name: str, *, glued: bool) -> bool:
    """Whether a word behind a number is a variable or a function, and no unit."""
    if len(name) == 1 and name not in UNITS and name != "L":
        return True
    return (
        name.lower() in _FUNCTIONS
        or PRODUCT.fullmatch(name) is not None
        or (glued and not may_be_glued(name))
    )
