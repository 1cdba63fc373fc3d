"""Values near a row's answer that are wrong for certain."""

from __future__ import annotations

import re
from fractions import Fraction

from judgekit.attack.targets import Row
from judgekit.graders.rules.notation import whole_quantity

_EQUATION = re.compile(r"((?:[A-Za-z]\w*\s*=\s*)?)(.*)", re.DOTALL)
"""A value, with the name that an equation gives it in front: x=5."""
_WORDS = ("quartz", "Ouagadougou", "1848", "seventeen")


def named_value(answer: str) -> tuple[str, str]:
    """Split an equation, such as x=5, into its value and what stands before it."""
    found = _EQUATION.match(answer)
    assert found is not None
    return found[1], found[2]


def bare_value(answer: str) -> str:
    """Return an answer's value without an equation's name, and without a unit behind it: x=5 and 5 cm are 5."""
    value = named_value(answer)[1]
    return value if whole_quantity(value) is None else _UNIT.sub("", value)


_UNIT = re.compile(r"(?<=\d)\s*(?:\\?%|°|\^\{?\\circ\}?|[A-Za-z][A-Za-z ]*)$")


def is_zero(value: str) -> bool:
    quantity = whole_quantity(value)
    return quantity is not None and not quantity.value


def wrong_values(row: Row) -> dict[str, str]:
    """Return wrong answers by what is wrong with them; at least three."""
    found: dict[str, str]
    if row.kind == "choice":
        found = {f"option {letter}": letter for letter in row.options if letter != row.answer}
    elif row.kind == "number":
        found = _numbers(row.answer)
    elif row.kind == "maths":
        name, a = named_value(row.answer)
        found = {
            "negated": f"{name}-({a})",
            "one more": f"{name}{a}+1",
            "doubled": f"{name}2({a})",
            "another": f"{name}\\frac{{17}}{{19}}",
        }
        if is_zero(a):
            del found["negated"], found["doubled"]
    else:
        found = {f"another {number}": word for number, word in enumerate(_WORDS)}
    found |= {f"of another row {number}": text for number, text in enumerate(row.others)}
    return {what: text for what, text in found.items() if text not in (row.answer, *row.same)}


def _numbers(answer: str) -> dict[str, str]:
    quantity = whole_quantity(answer)
    if quantity is None:
        return {"another": "7919", "a fraction": "17/19", "negative": "-7919"}
    value = quantity.value
    made: dict[str, Fraction] = {
        "sign": -value if value else Fraction(5),
        "one more": value + 1,
        "one less": value - 1,
        "ten times": value * 10 if value else Fraction(10),
        "a tenth": value / 10 if value else Fraction(1, 10),
        "a hundredth": value / 100 if value else Fraction(1, 100),
        "a digit": value + 30,
        "a little more": value + Fraction(1, 10),
    }
    if quantity.unit == "%":  # a hundredth of it is itself
        del made["a hundredth"]
    return {what: _shown(number) for what, number in made.items() if number != value}


def _shown(number: Fraction) -> str:
    """A decimal where it ends soon, else a fraction."""
    if number.denominator == 1:
        return str(number.numerator)
    bottom = number.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    if bottom == 1 and number.denominator <= 10**6:
        return f"{float(number):.10f}".rstrip("0")
    return f"{number.numerator}/{number.denominator}"
