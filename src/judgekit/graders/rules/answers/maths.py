"""Mathematical equivalence, by math-verify in a worker process."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from judgekit.errors import reads_rollout
from judgekit.graders.protocol import Where
from judgekit.graders.rules.answers.mathtext import (
    is_token,
    readable,
    same_token,
    same_words,
    too_large,
    unwrapped,
    whole_answer,
    wordy,
)
from judgekit.graders.rules.asserted import doubt, sentence
from judgekit.graders.rules.committed import Claim, aside, claims, commitment, last_boxed
from judgekit.graders.rules.notation import number_in_words, shown, whole_quantity
from judgekit.graders.rules.numbers import final_quantity, marked_quantity
from judgekit.graders.rules.rule import Rule, at_least, needs, one_of, truths
from judgekit.graders.rules.thoughts import last_turn
from judgekit.graders.rules.units import Quantity
from judgekit.types import Abstained, Grade, Graded, Rollout

TAIL_CHARS = 65_536
"""Characters at the end of a response that are searched for an answer."""
MAX_REFERENCE_CHARS = 20_000


_MARKED = re.compile(r"(?<!\\)\$|\\\(|\\\[")
"""LaTeX that a text marks as such; an escaped dollar is money."""


class MathEquivalence(Rule):
    """Scores 1 if the answer is mathematically equal to the reference, else 0.

    The answer is what math-verify parses: the last `\\boxed{…}`, else LaTeX or an expression that the text marks as
    its answer, else the last one. Adjacent boxes are one answer, a set (*boxes*: "joined", as in math-verify;
    "last": only the last box counts, as in Hendrycks et al.'s MATH). Text up to the last `</think>` is ignored
    (*thinking*: "strip"; "keep" reads it, too). The reference is LaTeX, an expression, a number, a worked solution
    that ends in a box or in `#### 72`, or a list of accepted answers; a bare reference is parsed as if it were boxed.
    A short response without any mark or word is an answer as a whole. Mixed numbers (`1 1/2`), thousands with thin
    spaces and money are numbers. A reference of words (a name, a date) is compared by its words. One with an
    option's letter (`\\text{(C)}\\ 5`) accepts the letter, and the text.

    *extract*: the kinds of answers to parse, from "latex" and "expr" (alone: numbers, also in a box). *precision*: decimal digits that numbers are
    rounded to. *strict*: sets, intervals and tuples, variables and numbers must agree in kind: `\\{1, 2\\}` is not `(1, 2)`.
    *set_relations*: a set may be answered by a relation: `-2 \\le x \\le 7` for `[-2, 7]`.

    Evaluation may never finish (`9**9**9**9`), so it runs in a worker process that is killed at *timeout_s*: such a
    rollout has broken its grader. Abstains if the reference cannot be parsed, or has more than 100,000 digits.

    Source: math-verify's `parse` and `verify(gold, answer)`, with verl's boxing of a bare reference
    (`verl/utils/reward_score/math_verify.py`).
    """

    score_range = (0.0, 1.0)
    version = "2"
    inputs = ("response", "ground_truth")
    abstains = "the reference cannot be parsed as mathematics, or not be evaluated"
    where: Where = "process"

    def __init__(
        self,
        *,
        extract: Sequence[Literal["latex", "expr"]] = ("latex", "expr"),
        precision: int = 6,
        strict: bool = True,
        set_relations: bool = False,
        boxes: Literal["joined", "last"] = "joined",
        thinking: Literal["strip", "keep"] = "strip",
        timeout_s: float = 10.0,
        name: str = "math",
    ) -> None:
        for kind in extract:
            one_of(name, "extract", kind, ("latex", "expr"))
        one_of(name, "thinking", thinking, ("strip", "keep"))
        one_of(name, "boxes", boxes, ("joined", "last"))
        at_least(name, "precision", precision, 0, whole=True)
        self.libraries = (*self.libraries, needs(name, "math_verify", "math"))
        self.name = name
        self.extract = tuple(extract) or ("latex", "expr")
        self.precision = precision
        self.strict = strict
        self.set_relations = set_relations
        self.boxes = boxes
        self.thinking = thinking
        self.timeout_s = timeout_s

    def grade(self, rollout: Rollout, /) -> Grade:
        golds = [
            gold
            for value in truths(rollout)
            for text in (value, *_option(value))
            if (gold := self._gold(text)) is not None
        ]
        if not golds:
            return Abstained("the reference cannot be parsed as mathematics")
        text = rollout.response if self.thinking == "keep" else last_turn(rollout.response)
        if text is None or not text.strip():
            return Graded(0.0, "no answer is given")
        text = _INVISIBLE.sub("", text[-TAIL_CHARS:])
        given = self._given(_ANY_BOX.sub(r"\\boxed{", text))
        words = [gold for gold in golds if gold.kind == "words" and same_words(given.text, gold.text)]
        if given.why and not words:
            return Graded(0.0, given.why)
        if right := next((gold for gold in golds if self._fits(gold, given)), None):
            return Graded(
                1.0, f"{given.shown} is right" + ("" if right is golds[0] else f" ({right.text[:40]})")
            )
        if not given.text and not given.parsed:
            return Graded(0.0, "no answer could be parsed")
        return Graded(0.0, f"{given.shown} instead of {golds[0].text[:80]}")

    def _given(self, text: str) -> _Answer:
        """Return what a response gives as its answer."""
        found = claims(text)
        marked = commitment(text, _key, found=found, joined=self.boxes == "joined")
        if marked is None:
            return self._unmarked(text)
        if marked.text is None:
            return _Answer("", why=marked.why)
        assert marked.claim is not None
        if marked.claim.kind != "boxed":
            return self._in_words(marked.text, marked.claim)
        if self.boxes == "last":
            return self._boxed(f"\\boxed{{{marked.text}}}", marked.text)
        last = len(found) - 1
        while (
            last
            and found[last - 1].kind == "boxed"
            and not _CORRECTED.search(text, found[last - 1].end, found[last].start)
        ):
            last -= 1
        beside = [claim.text for claim in found[last:]]
        if len(beside) > 1 and all(aside(text, a, b) for a, b in pairwise(found[last:])):
            return self._boxed(", ".join(f"\\boxed{{{part}}}" for part in beside), marked.text)
        return self._boxed(text[found[last].start : marked.claim.end], marked.text)

    def _boxed(self, text: str, content: str) -> _Answer:
        if _DENIED.search(content):  # else the product of its letters, and of 0
            return _Answer("", why="the answer is denied")
        several = text.count("\\boxed{") > 1
        quantity = None if several else whole_quantity(content)
        if quantity is not None and (_SPELLED.search(content) or not _DIGIT.search(content)):
            return _Answer(content, self._parsed_number(quantity.value), quantity)
        if quantity is not None and _IN_WORDS.fullmatch(content.strip()):  # "\\text{42 apples}"
            number = shown(quantity.value) if "." in content else _latex(quantity.value)
            return _Answer(content, self._parse(f"\\boxed{{{number}}}"), quantity)
        spelled = None if several else number_in_words(unwrapped(_plain_text(content))) or _grouped(content)
        if spelled is not None:
            return _Answer(_latex(spelled), self._parsed_number(spelled), quantity)
        if not several and (inner := _ALL_TEXT.fullmatch(content)) and not wordy(inner[1]):
            text = text.replace(content, inner[1])
        text = readable(text, answer=False)
        if (boxed := last_boxed(text)) is not None and (better := readable(boxed, answer=True)) != boxed:
            text = text.replace(f"{{{boxed}}}", f"{{{better}}}")
        return _Answer(content, self._parse(text), quantity)

    def _in_words(self, marked: str, claim: Claim) -> _Answer:
        """Return what a tag, a mark or a sentence marks."""
        marked = _BOLD.sub("", marked)
        if claim.kind != "tag":
            marked = marked[_named_until(marked) :]
        if self._two(marked, claim):
            return _Answer("", why="several answers are given")
        text = marked if claim.kind == "tag" else _expression(marked)
        if _SPANS.fullmatch(text):
            return _Answer(
                text, self._bare(", ".join(_plain_text(found[0]) for found in _SPAN.finditer(text)))
            )
        if "\\boxed" in text and (inner := last_boxed(text)) is not None:
            return self._boxed(text, inner)
        if (number := number_in_words(unwrapped(_plain_text(text)))) is not None:
            return _Answer(_latex(number), self._parsed_number(number))
        if (whole := self._whole(text)) is not None:
            return whole
        bare = _plain_text(text)
        said = _SAID_BEFORE.match(bare)
        if said and (after := whole_quantity(bare[said.end() :])) is not None:
            return _Answer(bare, self._parsed_number(after.value), after)
        if whole_answer(bare) is not None and not wordy(bare):
            return _Answer(bare, self._bare(bare))
        if (span := _only_span(text)) is not None:
            return _Answer(span, self._bare(span))
        number_of = marked_quantity(marked, claim)
        if number_of.quantity is not None and not is_token(bare):
            return _Answer(bare, self._parsed_number(number_of.quantity.value), number_of.quantity)
        return _Answer(bare, [])

    def _whole(self, text: str) -> _Answer | None:
        """Return a marked text as a pair or as a number with its unit, if it is one."""
        if _PAIR.search(text):
            return _Answer(text, self._bare(_plain_text(text)))
        if (quantity := whole_quantity(text)) is None:
            return None
        if _DECIMAL_COMMA.search(text):  # or two values
            return _Answer(
                text, [*self._bare(_plain_text(text)), *self._parsed_number(quantity.value)], quantity
            )
        if "%" in text:
            return None
        exact = "." not in text or _SPELLED.search(text) or _grouped(text) is not None
        decimal = _NOUN.sub("", _plain_text(text))
        parsed = self._parsed_number(quantity.value) if exact else self._bare(decimal)
        return _Answer(text, parsed, quantity)

    def _parsed_number(self, number: Fraction) -> list[Any]:
        return self._parse(f"\\boxed{{{_latex(number)}}}")

    def _two(self, marked: str, claim: Claim) -> bool:
        """Whether an answer has another one in brackets behind it, and not the same again."""
        either = _OR_ASIDE.fullmatch(marked.strip())
        if either is None:
            return False
        first, second = (self._in_words(part, claim).parsed for part in either.groups())
        return bool(first and second and not self._equal(first, second))

    def _unmarked(self, text: str) -> _Answer:
        text = _BOLD.sub("", text).replace("__", "").strip().strip("`")
        whole = whole_answer(text)
        if whole is not None and not wordy(whole) and not _SENTENCE.search(_IN_WORDS.sub(" ", whole)):
            if not _DIGIT.search(whole) and (counted := whole_quantity(whole)) is not None:
                return _Answer(whole, self._parsed_number(counted.value), counted)
            return _Answer(whole, self._bare(whole) or self._parse(whole), whole_quantity(whole))
        spans = list(_SPAN.finditer(text))
        if not spans:
            if "expr" not in self.extract:
                return _Answer("", self._parse(text))
            return self._number_in(text)
        last = spans[-1]
        if "expr" in self.extract and _named_until(text, last):
            return self._number_in(text[last.end() :])
        if why := doubt(text, last.start(), last.end()):
            return _Answer("", why=why)
        if len(spans) > 1 and re.fullmatch(
            r"\s*,?\s*(?:or|and/or|/)\s*", text[spans[-2].end() : last.start()]
        ):
            return _Answer("", why="several answers are given")
        content = _plain_text(last[0])
        if not _is_money(text, last):
            marked = self._boxed(f"\\boxed{{{content}}}", content)
            if marked.parsed:
                return marked
        return _Answer(content, self._parse(readable(text, answer=False)))

    def _number_in(self, text: str) -> _Answer:
        """Return the number that a text without marks and mathematics ends with."""
        if (number := final_quantity(text)).quantity is not None:
            parsed = self._parsed_number(number.quantity.value)
            return _Answer(shown(number.quantity.value), parsed, number.quantity)
        return _Answer(text.strip()[:200], [], why=number.why)

    def _bare(self, text: str) -> list[Any]:
        return self._parse(f"\\boxed{{{readable(text, answer=True)}}}")

    def warm_up(self) -> None:
        super().warm_up()
        self._parse("\\boxed{1}")  # the first parse builds the grammar

    def _fits(self, gold: _Gold, given: _Answer) -> bool:
        if gold.kind == "token":
            return bool(given.text) and same_token(gold.text, given.text)
        if gold.kind == "words":
            return bool(given.text) and same_words(given.text, gold.text)
        if given.text and wordy(given.text) and not given.quantity and not _has_maths(given.text):
            return False
        if given.text and is_token(given.text) and not same_token(gold.text, given.text):
            return False
        if (by_units := _by_units(gold.quantity, given.quantity)) is not None:
            return by_units
        if _BOUND.match(given.text) and not _RELATION.search(gold.text):
            return False
        if self.strict and _of_other_kind(gold, given):
            return False
        parsed = given.parsed
        if gold.natural and "\\log" in given.text:
            parsed = self._bare(re.sub(r"\\log(?![_A-Za-z])", r"\\ln ", given.text))
        return bool(parsed) and self._equal(gold.parsed, parsed)

    @reads_rollout
    def _equal(self, gold: Sequence[Any], answer: Sequence[Any]) -> bool:
        # one by one: two that round to the same decimals need not have the same digits
        return any(self._alike(g, a) and not _differ(g, a, self.precision) for g in gold for a in answer)

    def _alike(self, gold: Any, answer: Any) -> bool:
        from math_verify import verify

        if isinstance(gold, str) and isinstance(answer, str):
            return "".join(gold.split()) == "".join(answer.split())
        # without its own timeout: that needs signals, and treats a timeout as a wrong answer
        compare = partial(
            verify,
            [gold],
            [answer],
            float_rounding=self.precision,
            strict=self.strict,
            allow_set_relation_comp=self.set_relations,
            timeout_seconds=None,
        )
        try:
            return bool(compare(raise_on_error=True))
        except (RecursionError, MemoryError):
            raise
        except Exception:  # parses that sympy cannot compare count as unequal; another pair may be equal
            return bool(compare(raise_on_error=False))

    def _parse(self, text: str, seconds: int | None = None) -> list[Any]:
        from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

        if "latex" not in self.extract:
            text = _in_expr(text)
        logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no timeout
        configs: list[Any] = []
        if "latex" in self.extract:
            configs.append(LatexExtractionConfig())
        if "expr" in self.extract:
            configs.append(ExprExtractionConfig())
        return list(parse(text, extraction_config=configs, parsing_timeout=seconds))

    def _gold(self, value: Any) -> _Gold | None:
        """Read the reference; None if it cannot be parsed."""
        if isinstance(value, Fraction):
            value = _latex(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            return None
        if isinstance(value, float | Decimal) and not math.isfinite(value):
            return None
        if isinstance(value, int) and abs(value) > 10**1000:
            return None
        text = _ANY_BOX.sub(r"\\boxed{", str(value).strip())
        if not text or len(text) > MAX_REFERENCE_CHARS:
            return None
        answer = _last_part(text)
        if (number := number_in_words(unwrapped(_plain_text(answer))) or _grouped(answer)) is not None:
            text = answer = _latex(number)
        elif _COUNTED.fullmatch(answer.strip()) and (counted := whole_quantity(answer)) is not None:
            text = answer = _latex(counted.value)
        elif wordy(answer):
            return _Gold(_plain_text(answer), "words")
        elif is_token(answer):
            return _Gold(_plain_text(answer), "token")
        elif last_boxed(text) is None and "####" not in text and answer != text:
            text = answer
        parsed = self._parsed_gold(text)
        if not parsed:
            return None
        natural = re.search(r"(?<![\\A-Za-z])log\s*\(", answer) is not None
        return _Gold(str(parsed[-1]), "maths", parsed, whole_quantity(answer), natural)

    def _parsed_gold(self, text: str) -> list[Any]:
        """Parse the reference into math-verify's list of candidates; empty if it cannot."""
        if "####" in text:
            text = text.rpartition("####")[2].strip()
        boxed = last_boxed(text)
        text = readable(text, answer=boxed is None)
        boxed = boxed if boxed is None else last_boxed(text)
        if boxed is not None and self.boxes == "last":
            text, boxed = boxed, None
        # its signal-based timeout works only in a main thread, such as a worker's
        seconds = 5 if threading.current_thread() is threading.main_thread() else None
        if boxed is not None:  # several boxes are one answer, in a reference as in a response
            better = readable(boxed, answer=True)
            attempts: tuple[str, ...] = (
                text.replace(f"{{{boxed}}}", f"{{{better}}}"),
                f"\\boxed{{{better}}}",
                boxed,
            )
        elif _MARKED.search(text):
            attempts = (text,)
        else:
            attempts = (f"\\boxed{{{text}}}", text)
        for attempt in attempts:
            found = self._parse(attempt, seconds)
            if found:
                return [] if any(map(too_large, found)) else found
        return []


def _in_expr(text: str) -> str:
    """Write what a box holds without LaTeX, as far as it is a number: without LaTeX, no box is read."""
    boxed = last_boxed(text)
    return _FRACTION.sub(r"\1/\2", text if boxed is None else boxed)


_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}")


class _Gold(NamedTuple):
    """A reference: mathematics, words, or a token such as a date."""

    text: str
    kind: Literal["maths", "words", "token"]
    parsed: Sequence[Any] = ()
    quantity: Quantity | None = None
    natural: bool = False
    """Whether its log is the natural one, as in plain text."""


class _Answer(NamedTuple):
    """A response's answer, as it is written and as it is parsed; or why there is none."""

    text: str
    parsed: Sequence[Any] = ()
    quantity: Quantity | None = None
    why: str = ""

    @property
    def shown(self) -> str:
        return str(self.parsed[-1] if self.parsed else self.text)[:80]


_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[ \t]+[A-Za-z]{2,}(?![A-Za-z])|<<")


def _is_money(text: str, span: re.Match[str]) -> bool:
    """Whether dollars stand before two amounts, not around mathematics: "$10 and has $42"."""
    inside = span[1] if span[1] and not span[0].startswith("$$") else ""
    return (
        inside != inside.strip()
        or _PROSE.search(_IN_WORDS.sub(" ", inside)) is not None
        or text[span.end() : span.end() + 1].isdigit()
    )


_COUNTED = re.compile(r"[-+]?\d+(?:\s+\d+)?/\d+\s+[a-z]{3,20}")
"""A fraction with what it counts: "3/4 cup"."""
_OPTION = re.compile(
    r"\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{\s*)?\(([A-H])\)\s*(?:\}|(?=\s))(?:\\[ ,;:!]|\\q?quad|[\s~])*(\S.*)"
)


def _option(value: Any) -> Sequence[str]:
    """Return the letter and the text of a reference that has both, as "(C) 5": each is right."""
    found = _OPTION.fullmatch(value) if isinstance(value, str) else None
    return found.groups() if found else ()


def _by_units(gold: Quantity | None, given: Quantity | None) -> bool | None:
    """Whether two quantities are equal, where their units decide that; else None."""
    if gold is None or given is None:
        return None
    if gold.unit and given.unit and gold.unit != given.unit:
        return given.same(gold)
    looser = (
        _has_area(gold) or _has_area(given) or {gold.unit, given.unit} <= {"", "%", "percent", "per cent"}
    )
    return True if looser and (gold.unit or given.unit) and given.same(gold) else None


def _has_area(quantity: Quantity) -> bool:
    """Whether a unit is a square or a cube that math-verify takes for variables ("cm^2"); m is a variable's name, too."""
    return quantity.unit.startswith(("square ", "cubic ")) and not quantity.unit.endswith(" m")


_RELATION = re.compile(r"[<>≤≥]|\\(?:leq?|geq?|lt|gt|in)(?![A-Za-z])|[(\[]")
_BOUND = re.compile(r"[\s$]*(?:(?:<(?!<)|[>≤≥])(?![^<>]*>$)|\\(?:leq?|geq?|lt|gt)(?![A-Za-z]))")
_KIND = re.compile(
    r"(?:[^={}()]*(?:=|\\in(?![a-z])))?\s*(?:\\left)?\s*(\\\{|\()[^(){}]*(?:\\right)?\s*(\\\}|\))"
)


def _of_other_kind(gold: _Gold, given: _Answer) -> bool:
    """Whether one is written as a set, in braces, and the other as a tuple or an interval, in parentheses."""
    texts = (str(gold.parsed[-1]), str(given.parsed[-1] if given.parsed else given.text))
    kinds = [
        found[1] + found[2] for text in texts if (found := _KIND.fullmatch(text.strip())) and "," in text
    ]
    return len({*kinds}) == 2 and {*kinds} == {"\\{\\}", "()"}


_SPELLED = re.compile(
    r"hundred|thousand|million|billion|trillion|lakh|crore|minus|negative|\d\s*x\s*10\b", re.IGNORECASE
)
_DIGIT = re.compile(r"\d")
_IN_WORDS = re.compile(r"\\(?:text|mbox)\s*\{[^{}]*\}")
_ALL_TEXT = re.compile(r"\s*\\(?:text|mbox)\s*\{([^{}]*)\}\s*")
_SPANS = re.compile(
    r"\s*\$([^$]{1,100})\$(?:(?:\s*,\s*(?:and|or)?|\s+and|\s+or)\s*\$([^$]{1,100})\$){1,5}[.\s]*"
)
"""Several values, each in dollars of its own."""
_SAID_BEFORE = re.compile(r"(?:\#|(?:now|the|then|so|yes|only|just)\s+)(?=[-$\d])")
_NOUN = re.compile(r"(?<=\d)\s*[A-Za-z][A-Za-z ]*$")
"""What a decimal counts: "3.5 cups"."""
_PAIR = re.compile(r"^[\s$*]*(?:\\left)?\([^()]*,[^()]*\)[\s$*.]*$")
_DECIMAL_COMMA = re.compile(r"^[\s$*]*[-−]?\d+,\d{1,2}[\s$*.]*$")
_SENTENCE = re.compile(r"\b(?:is|it|so|or|and|get|we|the|of|to|be|are|I|not|has|her|his)\b", re.IGNORECASE)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
"""Characters that nobody sees, and over which the parser stumbles: it would take the first number of what it cannot read."""
_DENIED = re.compile(r"\\text\s*\{\s*(?:is\s+)?not\s*\}")
_ANY_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{")
_SPAN = re.compile(
    r"(?<!\\)\$\$?((?:\\.|[^$\\]){1,2000})\$\$?|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]", re.DOTALL
)
_CORRECTED = re.compile(
    r"\b(?:wait|no|actually|wrong|instead|correction|sorry|mistake|hmm|should|so|therefore|thus|hence|then|now)\b",
    re.IGNORECASE,
)
"""Words after which a box is another answer than the one before."""
_BECAUSE = re.compile(
    r"(?<!\s)\s*+[,;(–—-]?\s*+\b(?:because|since|which|where|when|whenever|as\s+(?:we|it|the|\d|\$)|so\s+that|and\s+(?:the|so|this)|for\s+all|for\s+(?:the|each|every)|by\s+the|in\s+total|not)\b.*$",
    re.IGNORECASE | re.DOTALL,
)


_BOLD = re.compile(r"(?<![\w)])\*{2,3}|\*{2,3}(?![\w(-])")
"""Asterisks of bold text; those of a power stand between its parts."""


_OR_ASIDE = re.compile(r"([^()]{1,80})\(\s*or\s+(.{1,80})\)[.\s]*")
"""An answer with another one in brackets: "x=5 (or x=-5)"."""


def _expression(text: str) -> str:
    """Return a sentence's end without its full stop and what explains it."""
    return _BECAUSE.sub("", sentence(text[:2000])).strip()


_IS_A_NUMBER = re.compile(
    r"[^.\n!?$;]{0,60}?\b(?:is|are|was|equals)\s+(?:(?:equal\s+to|exactly|just|only|then|therefore|thus)\s+)*"
    r"(?=[-+\u2212]?\s?[$£€]?\.?\d)",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|when|where|whenever|whether|suppose|assum\w+|let|unless|perhaps|maybe|possibly|given|for|because|since)\b[^.\n!?;]*\Z",
    re.IGNORECASE,
)


def _named_until(text: str, last: re.Match[str] | None = None) -> int:
    """Return where a number begins that a sentence says its last mathematics to be ("the area of $ABC$ is 12"); else 0."""
    last = last or next(reversed([*_SPAN.finditer(text)]), None)
    said = None if last is None else _IS_A_NUMBER.match(text, last.end())
    if last is None or said is None or _CONDITION.search(text[max(0, last.start() - 200) : last.start()]):
        return 0
    return said.end()


_EMOJI = (
    "".join({*map(chr, (*range(0x2600, 0x27C0), *range(0x1F300, 0x1FB00)))} - {*"✗✘❌❎"}) + "\ufe0f \t\n"
)


def _plain_text(text: str) -> str:
    """Remove what decorates an answer: dollars around mathematics, bold, a final stop."""
    text = text.strip().strip("*").strip()
    text = re.sub(r"[.。;,]+$", "", text.rstrip(_EMOJI)).strip()
    found = _SPAN.fullmatch(text)
    return (next(group for group in found.groups() if group is not None).strip() if found else text).strip(
        " *"
    )


def _only_span(text: str) -> str | None:
    """Return the only mathematics that a sentence marks; None if it marks none, or several."""
    spans = [next(g for g in found.groups() if g is not None) for found in _SPAN.finditer(text)]
    return spans[0].strip() if len(set(spans)) == 1 else None


def _has_maths(text: str) -> bool:
    return re.search(r"\d|[\\=^]", text) is not None


def _key(text: str) -> str | None:
    """For comparing two marked texts."""
    found = whole_quantity(sentence(text))
    return str(found.value) if found is not None else "".join(_plain_text(text).split()) or None


_GROUPED = re.compile(
    r"\s*[-+−]?(?:\d{1,3}(?:\.\d{3}){2,}|\d{1,2}(?:,\d\d)+,\d{3}|\d{1,3}(?:['’_]\d{3})+)\s*"
)


def _grouped(text: str) -> Fraction | None:
    """Read a number with the thousands' marks of other countries."""
    found = whole_quantity(text) if len(text) < 100 and _GROUPED.fullmatch(unwrapped(text)) else None
    return None if found is None else found.value


def _latex(number: Fraction) -> str:
    sign = "-" if number < 0 else ""
    top, bottom = abs(number.numerator), number.denominator
    return f"{sign}{top}" if bottom == 1 else f"{sign}\\frac{{{top}}}{{{bottom}}}"


def _differ(a: Any, b: Any, digits: int) -> bool:
    """Return whether two values that are equal in their decimals differ in their digits."""
    from sympy import Basic, Eq, Float  # type: ignore[import-untyped]

    if not isinstance(a, Basic) or not isinstance(b, Basic):
        return False
    a, b = (x.rhs if isinstance(x, Eq) else x for x in (a, b))
    if not (getattr(a, "is_number", False) and getattr(b, "is_number", False)):
        return any(_differ(x, y, digits) for x, y in _members(a, b))
    try:
        x, y = a.evalf(30), b.evalf(30)
        size = max(abs(x), abs(y))
        if size == 0 or x == y:
            return False
        rounded = a.has(Float) or b.has(Float)
        near = 10.0**-digits if rounded else 1e-15
        return bool(abs(x - y) > near * size) and not (rounded and _round(x, digits) == _round(y, digits))
    except (TypeError, ValueError, ArithmeticError):
        return False


def _members(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Pair the members of two sets or tuples; none if they are something else, or of unlike size."""
    kind = type(a).__name__
    if type(a) is not type(b) or kind not in ("FiniteSet", "Tuple") or len(a.args) != len(b.args):
        return []
    if kind == "Tuple":
        return list(zip(a.args, b.args, strict=True))
    left, right = (sorted(x.args, key=lambda v: v.sort_key()) for x in (a, b))
    return list(zip(left, right, strict=True))


def _round(value: Any, digits: int) -> Any:
    return value.round(digits - 1 - math.floor(math.log10(abs(value)))) if value != 0 else value


def _last_part(text: str) -> str:
    """Return a reference's answer: its last box, what follows `####` or "the answer is", or all of it."""
    if (boxed := last_boxed(text)) is not None:
        return boxed
    if "####" in text:
        return text.rpartition("####")[2].strip()
    found = claims(text)
    return _expression(found[-1].text) if found and found[-1].kind in ("words", "tag") else text
