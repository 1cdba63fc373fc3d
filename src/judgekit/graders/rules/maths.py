"""Mathematical equivalence, by math-verify in a worker process."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from judgekit.errors import reads_rollout
from judgekit.graders.protocol import Where
from judgekit.graders.rules.mathtext import (
    readable,
    same_words,
    too_large,
    whole_answer,
    words_of_answer,
    wordy,
)
from judgekit.graders.rules.text import Rule, after_think, at_least, last_boxed, needs, one_of
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
    spaces and money are numbers. A reference of words (a name, a date) is compared by its words.

    *extract*: the kinds of answers to parse, from "latex" and "expr". *precision*: decimal digits that numbers are
    rounded to. *strict*: sets, intervals and tuples, variables and numbers must agree in kind.
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
        truth = rollout.ground_truth
        values = truth if isinstance(truth, list | tuple) else [truth]
        golds = [gold for value in values if (gold := self._gold(value))]
        if not golds:
            return Abstained("the reference cannot be parsed as mathematics")
        text = rollout.response if self.thinking == "keep" else after_think(rollout.response)
        if text is None or not text.strip():
            return Graded(0.0, "no answer is given")
        text = text[-TAIL_CHARS:]
        if self.boxes == "last" and (boxed := last_boxed(text)) is not None:
            text = f"\\boxed{{{boxed}}}"
        worded = last_boxed(text) or words_of_answer(text)
        if worded is not None and wordy(worded):
            texts = [value for value in values if isinstance(value, str) and wordy(_last_part(value))]
            if texts:
                right = any(same_words(worded, _last_part(value)) for value in texts)
                return Graded(
                    float(right), f"{worded[:80]} {'is right' if right else f'instead of {texts[0][:80]}'}"
                )
        text = readable(text, answer=False)
        if (boxed := last_boxed(text)) is not None and (better := readable(boxed, answer=True)) != boxed:
            text = text.replace(f"{{{boxed}}}", f"{{{better}}}")
        answer = self._parse(text)
        if (whole := whole_answer(text)) is not None and not self._fits(golds, answer):
            answer = self._parse(f"\\boxed{{{readable(whole, answer=True)}}}") or answer
        if not answer:
            return Graded(0.0, "no answer could be parsed")
        shown = str(answer[-1])[:80]
        if self._fits(golds, answer):
            return Graded(1.0, f"{shown} is right")
        return Graded(0.0, f"{shown} instead of {str(golds[0][-1])[:80]}")

    def warm_up(self) -> None:
        super().warm_up()
        self._parse("\\boxed{1}")  # the first parse builds the grammar

    def _fits(self, golds: Sequence[list[Any]], answer: list[Any]) -> bool:
        return bool(answer) and any(self._equal(gold, answer) for gold in golds)

    @reads_rollout
    def _equal(self, gold: list[Any], answer: list[Any]) -> bool:
        from math_verify import verify

        # without its own timeout: that needs signals, and treats a timeout as a wrong answer
        compare = partial(
            verify,
            gold,
            answer,
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

        logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no timeout
        configs: list[Any] = []
        if "latex" in self.extract:
            configs.append(LatexExtractionConfig())
        if "expr" in self.extract:
            configs.append(ExprExtractionConfig())
        return list(parse(text, extraction_config=configs, parsing_timeout=seconds))

    def _gold(self, value: Any) -> list[Any]:
        """Parse the reference into math-verify's list of candidates; empty if it cannot."""
        if isinstance(value, bool) or not isinstance(value, str | int | float | Fraction):
            return []
        if isinstance(value, float) and not math.isfinite(value):
            return []
        if isinstance(value, int) and abs(value) > 10**1000:
            return []
        text = str(value).strip()
        if not text or len(text) > MAX_REFERENCE_CHARS:
            return []
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
            attempts: tuple[str, ...] = (text, f"\\boxed{{{boxed}}}", boxed)
        elif _MARKED.search(text):
            attempts = (text,)
        else:
            attempts = (f"\\boxed{{{text}}}", text)
        for attempt in attempts:
            found = self._parse(attempt, seconds)
            if found:
                return [] if any(map(too_large, found)) else found
        return []


def _last_part(text: str) -> str:
    """Return a reference's answer: its last box, what follows `####`, or all of it."""
    boxed = last_boxed(text)
    return text.rpartition("####")[2] if boxed is None else boxed
