"""Prepares answers of mathematics for math-verify: what the field writes and its parser does not read."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

_LATEX_FORMS = [
    (re.compile(r"\\(?:boldsymbol|bm|underline|mathsf|textsf|emph)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:mathrm|text|operatorname)\s*\{\s*([ie])\s*\}"), r" \1 "),
    (re.compile(r"\\text\s*\{\s*,\s*\}"), ","),
    (re.compile(r"\\[,;:! ]\s*(?=\\?%)"), ""),
    (re.compile(r"\\degree(?![A-Za-z])"), r"^{\\circ}"),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset "),
]
"""What math-verify does not read, and how it reads the same."""
_REPEATING = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{0,9})\\overline\s*\{\s*(\d{1,9})\s*\}")
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
    ("sinh", "cosh", "tanh", "sqrt", "frac", "asin", "acos", "atan", "arcsin", "arccos", "arctan", "infinity")
)
_TIME = re.compile(r"\d:\d\d\s*[ap]\.?\s?m", re.IGNORECASE)
_BARE = re.compile(r"[^\W\d_]{2,}")
MAX_DIGITS = 100_000
"""A reference whose value may have more digits is not evaluated."""
MAX_WHOLE_CHARS = 200


def readable(text: str, *, answer: bool) -> str:
    """Rewrite mixed numbers, spaced thousands, money and, in an *answer* alone, more, for the parser."""
    text = in_latex(text)
    if "\\" in text:
        for pattern, plain in _LATEX_FORMS:
            text = pattern.sub(plain, text)
        text = _REPEATING.sub(_repeated, text)
    text = _MONEY.sub("", text)
    text = _CURRENCY.sub("", text)
    text = _SPACED.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    text = _MIXED.sub(_improper, text).replace("~", " ")
    if not answer:
        return text
    if _SPACED_WHOLE.fullmatch(text):
        text = text.strip().replace(" ", "")
    if unit := _UNIT_IN_MATHS.fullmatch(text.strip()):
        text = unit[1]
    text = _SCIENTIFIC.sub(r"\1 \\cdot 10^{\2}", text)
    return plain_maths(re.sub(r"(?<=[\d)}\]])[.;,]+\s*$|(?:\\\\)+\s*$", "", text))


_SYMBOLS = {
    "∞": r"\infty ", "π": r"\pi ", "°": r"^{\circ}", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "×": r"\times ",
    "÷": r"\div ", "−": "-", "≤": r"\le ", "≥": r"\ge ", "≠": r"\neq ", "±": r"\pm ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∅": r"\emptyset ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ",
    "φ": r"\phi ", "ω": r"\omega ", "μ": r"\mu ", "σ": r"\sigma ", "ℝ": r"\mathbb{R}", "⁄": "/", "∕": "/", "∣": "|", "⟨": r"\langle ",
    "⟩": r"\rangle ", "…": r"\ldots ", "′": "'", "ℯ": "e", "∗": "*", "﹣": "-", "⩽": r"\le ", "⩾": r"\ge ",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣⁱ⁽⁾ᵏᵐ", "0123456789+-nxi()km")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙₓ", "0123456789+-nx")
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣⁱ⁽⁾ᵏᵐ]+")
_SUBSCRIPTS = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋ₙₓ]+")
_RADICAL = re.compile(r"([√∛∜])\s?(?:\(([^()√]{1,100})\)|\{([^{}√]{1,100})\}|(\d+(?:\.\d+)?|\\pi|[A-Za-zπ]))")
_DEGREES = {"√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]"}
_EN_DASH = re.compile(r"(?<![\w)}\]–])\s?–\s?(?=[\d.\\(])")
"""One that is a minus, not a range's."""
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")


def in_latex(text: str) -> str:
    """Write Unicode's mathematics as LaTeX: roots, exponents, fractions, signs and full-width characters."""
    if text.isascii():
        return text
    text = _EN_DASH.sub("-", text)
    text = _VULGAR.sub(
        lambda found: "\\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", found[0]).split("⁄")), text
    )
    text = _SUPERSCRIPTS.sub(lambda found: f"^{{{found[0].translate(_RAISED)}}}", text)
    text = _SUBSCRIPTS.sub(lambda found: f"_{{{found[0].translate(_LOWERED)}}}", text)
    text = _RADICAL.sub(lambda m: f"{_DEGREES[m[1]]}{{{m[2] or m[3] or m[4]}}}", text)
    forms = {c: _SYMBOLS.get(c) or _narrow(c) for c in set(text) if not c.isascii()}
    return text.translate({ord(c): form for c, form in forms.items() if form != c})


def _narrow(char: str) -> str:
    if "\uff01" <= char <= "\uff5e" and char not in "，；：！？":
        return unicodedata.normalize("NFKC", char)
    return str(unicodedata.decimal(char)) if unicodedata.category(char) == "Nd" else char


_NAMES = {
    "pi": r"\pi ", "oo": r"\infty ", "inf": r"\infty ", "infinity": r"\infty ", "theta": r"\theta ", "alpha": r"\alpha ",
    "beta": r"\beta ", "gamma": r"\gamma ", "lambda": r"\lambda ", "phi": r"\phi ", "omega": r"\omega ", "mu": r"\mu ",
    "sigma": r"\sigma ", "Pi": r"\pi ", "PI": r"\pi ",
    "ln": r"\ln ", "log": r"\ln ", "sin": r"\sin ", "cos": r"\cos ", "tan": r"\tan ", "cot": r"\cot ", "sec": r"\sec ",
    "csc": r"\csc ", "asin": r"\arcsin ", "acos": r"\arccos ", "atan": r"\arctan ", "arcsin": r"\arcsin ", "arccos": r"\arccos ",
    "arctan": r"\arctan ", "sinh": r"\sinh ", "cosh": r"\cosh ", "tanh": r"\tanh ",
}  # fmt: skip
_CALLS = {
    "sqrt": r"\sqrt{%s}", "cbrt": r"\sqrt[3]{%s}", "exp": "e^{%s}", "abs": r"\left|%s\right|", "Abs": r"\left|%s\right|",
    "floor": r"\lfloor %s\rfloor ", "ceil": r"\lceil %s\rceil ", "factorial": "(%s)!", "log2": r"\log_{2}(%s)", "log10": r"\log_{10}(%s)",
    "Rational": r"\frac%s",
}  # fmt: skip
_PLAIN = re.compile(
    r"(?<![\\A-Za-z])(?:"
    + "|".join(sorted([*_NAMES, *_CALLS], key=len, reverse=True))
    + r")(?![A-Za-z{])|\*|\^\s?-?[\w(][\w.(]|\^\s?[(-]|<=|>="
)
_PART = re.compile(
    r"\s*(\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\.\d+|log10|log2|[A-Za-z]+|\*\*|<=|>=|!=|[-+*/^()=<>,\[\]{}|!%;:_'&.]|$)"
)
_MAX_PLAIN = 500


def plain_maths(text: str) -> str:
    """Write mathematics in plain text (`pi/4`, `x**2 + 1`, `exp(-x)`) as LaTeX; other texts are left as they are."""
    if len(text) > _MAX_PLAIN or not _PLAIN.search(text):
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            return text
        at = found.end()
        part = found[1]
        if part.isalpha() and part not in _NAMES and part not in _CALLS and len(part) > 3:
            return text
        if part:
            parts.append(part)
    try:
        return _translated(parts, 0)
    except _Unreadable:
        return text


class _Unreadable(Exception):
    pass


def _translated(parts: list[str], depth: int) -> str:
    if depth > 30:
        raise _Unreadable
    out: list[str] = []
    at = 0
    while at < len(parts):
        part = parts[at]
        at += 1
        if part in _CALLS and at < len(parts) and parts[at] == "(":
            end = _closing(parts, at)
            out.append(_CALLS[part] % _translated(parts[at + 1 : end], depth + 1))
            at = end + 1
        elif part in _NAMES:
            out.append(_NAMES[part])
        elif part in ("^", "**"):
            if at >= len(parts):
                raise _Unreadable
            end = at
            if parts[end] in ("-", "+") and end + 1 < len(parts):
                end += 1
            if parts[end] in _CALLS and end + 1 < len(parts) and parts[end + 1] == "(":
                end = _closing(parts, end + 1)
            elif parts[end] in ("(", "{"):
                end = _closing(parts, end)
            inner = parts[at : end + 1]
            if inner[0] in "({" and len(inner) >= 2:
                inner = inner[1:-1]
            out.append(f"^{{{_translated(inner, depth + 1)}}}")
            at = end + 1
        else:
            out.append(
                {"*": r"\cdot ", "<=": r"\le ", ">=": r"\ge ", "!=": r"\neq "}.get(
                    part, part + " " * part[-1:].isalpha()
                )
            )
    return "".join(out)


def _closing(parts: list[str], at: int) -> int:
    depth = 0
    for i in range(at, len(parts)):
        depth += (parts[i] in ("(", "{")) - (parts[i] in (")", "}"))
        if depth == 0:
            return i
    raise _Unreadable


_TOKENS = re.compile(
    r"""\d{4}-\d{1,2}-\d{1,2} | \d{1,4}/\d{1,2}/\d{1,4} | \d{1,3}(?:\s*:\s*\d{1,3})+ | \d+(?:\.\d+){2,} | 0[xXbBoO][\da-fA-F]+
      | [-+]?\d+(?:\.\d+)?(?:[ \t\n]+[-+]?\d+(?:\.\d+)?)+ | \d+\s*[-–]\s*\d+(?:\s*[-–]\s*\d+)* | (?!\d+\Z)\+?\d[\d\ ()-]{6,}\d
      | [A-Z]{3,} | (?!(?:ln|log|sin|cos|tan|sqrt|pi|exp)(?![a-z]))(?=[A-Za-z\d-]*[A-Za-z]\d)(?=[A-Za-z\d-]*\d)[A-Za-z\d]+(?:-[A-Za-z\d]+)*""",
    re.VERBOSE,
)


def is_token(text: str) -> bool:
    """Return whether a text is a token rather than an expression: a date, a time, a code, a row of numbers."""
    bare = unwrapped(text).strip(" .")
    if re.search(r"\\[cl]?dots|…|\.\.\.", text):  # a sequence, of which only a part is written
        return True
    if re.fullmatch(r"\d{1,3}(?: \d{3})+(?:\.\d+)?|\d+ \d+/\d+|\d+[eE][-+]?\d+", bare) or re.fullmatch(
        r"\d{1,3}(?:\.\d{3}){2,}", bare
    ):
        return False
    return _TOKENS.fullmatch(bare) is not None


def same_token(a: str, b: str) -> bool:
    """Compare two tokens without case and space."""
    return _token(a) == _token(b)


def _token(text: str) -> str:
    text = re.sub(r"\\[cl]?dots|\.\.\.", "…", unwrapped(text).strip(" ."))
    if re.fullmatch(r"[-+\d.\s]+", text):
        return " ".join(text.split())
    return re.sub(r"\s+|\\[,;:! ]|[{}]", "", text).replace("–", "-").casefold()


def _repeated(found: re.Match[str]) -> str:
    """Write 0.1\\overline{6} as a fraction."""
    before, period = found[1] + found[2], found[3]
    size = 10 ** len(found[2])
    top = int(before + period) - int(before or "0")
    return f"\\frac{{{top}}}{{{size * (10 ** len(period) - 1)}}}"


def _improper(found: re.Match[str]) -> str:
    whole, part, of = map(int, found.groups())
    return f"{whole * of + part}/{of}" if 0 < part < of else found[0]


def wordy(text: str) -> bool:
    """Return whether an answer is words, such as a name or a date, where letters are no variables."""
    bare = unwrapped(text)
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
    text = unwrapped(text).casefold()
    text = re.sub(r"\b([ap])\.?\s?m\b\.?", r"\1m", text)
    text = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", text)
    if any(month in text for month in _MONTHS.split()):
        return [sorted(re.findall(r"\w+", text))]
    return sorted(words for part in re.split(r"\band\b|[,;]", text) if (words := re.findall(r"\w+", part)))


def unwrapped(text: str) -> str:
    for _ in range(3):
        text = _WRAPPER.sub(r" \1 ", text)
    return re.sub(r"\\[,;:! ]|[$~]", " ", text).strip()


def whole_answer(text: str) -> str | None:
    """Return a response that is only an expression, whole; None if it has marks, words or several lines."""
    text = text.strip().rstrip(".")
    if not text or len(text) > MAX_WHOLE_CHARS or "\n" in text or "$" in text or r"\boxed" in text:
        return None
    letters = _BARE.findall(re.sub(r"\\(?:begin|end)\s*\{\w+\*?\}|\\[A-Za-z]+", " ", _WRAPPER.sub(" ", text)))
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
