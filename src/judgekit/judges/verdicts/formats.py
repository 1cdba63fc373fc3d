"""Verdict formats: how a judge must answer, and how its reply is parsed.

Parsing is strict: a reply that is not in the agreed format raises `VerdictError` with the raw text. A rollout's
text is never parsed. A format reads only the reply: the probabilities of its first token (`choice`), its end
(`line`), or all of it (`json`). Written verdicts contain a nonce that the rollout cannot know, so that a
judge that repeats the rollout gives no verdict.

What judges do to an agreed form without changing what it says is read: bold, brackets, a full stop, `4/5` and `4 out of 5` where
5 is the scale's highest score, prose before a JSON object that has this prompt's code. A number that was not offered, a
second number, words behind it, and a form of which another reading is possible are no verdict.
"""

from __future__ import annotations

import copy
import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from judgekit.errors import ConfigError, VerdictError
from judgekit.judges.base import JudgeReply
from judgekit.judges.verdicts.labels import check_probabilities

_PLACE = re.compile(r"\{(score|a|b)\}")
_END_CHARS = 500
"""A verdict that may follow other text is looked for in so many characters at the reply's end."""
_BOLD = r"[\s*_`]*+"
_OPENING = r"(?:\\(?:text(?:bf|tt|rm)?|math(?:bf|rm)|boxed)\s*\{|\\[(\[]|[\s*_`$([{])*+"
"""What may stand between the words that announce a score and the score: bold, brackets, a formula."""
_CLOSING = r"[\s.!。*_`$\\\])}]*+\Z"
_FENCE = re.compile(r"^[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?```", re.MULTILINE)
_RULED_OFF = re.compile(r"(?:\n\s*(?:`{3,}|-{3,}|\*{3,}))+\Z")
"""A fence's end, or a line drawn below a text."""
_DENIED = re.compile(
    r"(?:\b(?:not|never|than|instead of|neither|nor)|n['’]t)\s+(?:\w+\s+){0,2}[^\w\s]*$",
    re.IGNORECASE,
)
"""What stands before a verdict that is none."""
"""What may stand behind it: a full stop, the end of bold text or of a formula."""
_NUMBER = r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?"
_FENCED = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\r?\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_OBJECT = re.compile(r"^[ \t]*(?:```(?:json)?[ \t]*\r?\n[ \t]*)?\{", re.MULTILINE | re.IGNORECASE)
_MOST_OBJECTS = 16
"""Prose before an object may have so many lines that begin like one."""
_ESCAPE = re.compile(r"\\([\"\\/bfnrt]|u[0-9a-fA-F]{4}|)")


class Verdict(Struct, frozen=True):
    """The result of parsing a reply."""

    score: float
    """The score, or the mean of `scores` if there are several."""
    reason: str = ""
    metadata: Mapping[str, Any] = {}
    scores: Mapping[str, float] | None = None
    """Named scores, if the reply has several."""


class VerdictFormat(Protocol):
    """How to ask for a verdict, and how to parse it."""

    name: str
    score_range: tuple[float, float]
    max_tokens: int
    """Maximum tokens of a reply."""
    choices: tuple[str, ...]
    """Labels of a one-token verdict; empty for written verdicts."""
    json_schema: Mapping[str, Any] | None
    """Schema that the engine can constrain the reply to."""
    outputs: tuple[str, ...]
    """Names of the scores, if there are several."""
    uses_nonce: bool
    markers: tuple[str, ...]
    """What introduces a verdict that has no nonce: wherever data contain it, it is broken up."""

    def words(self, nonce: str = "", /) -> dict[str, str]:
        """Return the trusted template fields HOW_TO_ANSWER (constant) and REMINDER (with the nonce)."""
        ...

    def read(self, reply: JudgeReply, nonce: str = "", /) -> Verdict:
        """Parse the verdict. Raises VerdictError."""
        ...


class ChoiceVerdict:
    """A one-token verdict: the score is the expected value over the labels.

    `labels` maps each label, which must be one token of the judge's vocabulary, to its score. If the labels hold
    less than `min_mass` of the full vocabulary's probability, the judge did not answer: no verdict. Expectation
    over score tokens: G-Eval (Liu et al. 2023, arXiv:2303.16634, section 2.1).

    Every rollout of a grader is asked for the same labels, so that none can choose its own question. Only a judge's
    vocabulary changes them: if a label is not one of its tokens, as digits in sentencepiece models, letters are used
    instead (A is the worst), or digits instead of letters.
    """

    name = "choice"
    max_tokens = 1
    json_schema: Mapping[str, Any] | None = None
    outputs: tuple[str, ...] = ()
    uses_nonce = False
    markers: tuple[str, ...] = ()

    def __init__(self, labels: Mapping[str, float] | None = None, *, min_mass: float = 0.5) -> None:
        self.labels = {str(k): float(v) for k, v in (labels or {"0": 0.0, "1": 1.0}).items()}
        if len(self.labels) < 2:
            raise ConfigError("choice: give at least two labels with scores, such as {'0': 0.0, '1': 1.0}")
        if not all(math.isfinite(score) for score in self.labels.values()):
            raise ConfigError("choice: every label's score must be finite")
        if len(set(self.labels.values())) < 2:
            raise ConfigError("choice: the labels must not all have the same score")
        if not 0.0 <= min_mass <= 1.0:
            raise ConfigError(f"choice: min_mass is a probability from 0 to 1, not {min_mass}")
        self.min_mass = min_mass
        self.choices = tuple(self.labels)
        self.score_range = (min(self.labels.values()), max(self.labels.values()))
        self._ends: tuple[str, str] | None = None
        """What the lowest and the highest score mean, if they are not the worst and the best verdict."""
        self._words = self._said()

    def spare(self) -> ChoiceVerdict:
        """Return the same format with labels of the other kind, for vocabularies without these."""
        ordered = sorted(self.labels, key=lambda label: self.labels[label])
        names = string.digits if any(label.isalpha() for label in ordered) else string.ascii_uppercase
        if len(ordered) > len(names):
            return self
        made = ChoiceVerdict(
            {name: self.labels[label] for name, label in zip(names, ordered, strict=False)},
            min_mass=self.min_mass,
        )
        return made.between(*self._ends) if self._ends else made

    def between(self, low: str, high: str) -> ChoiceVerdict:
        """Return the same labels, of which the words say when the ones with the lowest and the highest score are to be given."""
        made = copy.copy(self)
        made._ends = (low, high)
        made._words = made._said()
        return made

    @property
    def all_labels(self) -> dict[str, float]:
        """The scores of these labels and of the spare ones."""
        return {**self.spare().labels, **self.labels}

    @classmethod
    def scale(
        cls, low: int, high: int, *, to: tuple[float, float] = (0.0, 1.0), min_mass: float = 0.5
    ) -> ChoiceVerdict:
        """Make a scale of whole numbers, mapped to the range *to*: `ChoiceVerdict.scale(1, 5)`.

        A scale beyond single digits uses letters as labels, A for the lowest, because most vocabularies spell 10
        with two tokens.
        """
        count = high - low + 1
        if not 2 <= count <= 26:
            raise ConfigError(f"choice: a scale has 2 to 26 steps, not {count}")
        digits = low >= 0 and high <= 9
        names = [str(n) for n in range(low, high + 1)] if digits else list(string.ascii_uppercase[:count])
        step = (to[1] - to[0]) / (count - 1)
        return cls({name: to[0] + i * step for i, name in enumerate(names)}, min_mass=min_mass)

    def words(self, nonce: str = "", /) -> dict[str, str]:
        return dict(self._words)

    def _said(self) -> dict[str, str]:
        best = max(self.labels, key=lambda label: self.labels[label])
        worst = min(self.labels, key=lambda label: self.labels[label])
        offered = ", ".join(self.labels)
        means = f"{best} is the best verdict, {worst} the worst."
        if self._ends is not None:
            low, high = self._ends
            means = f"{best} if {high}, {worst} if {low}."
        return {
            "HOW_TO_ANSWER": f"Answer with one of {offered} and nothing else: {means}",
            "REMINDER": f"Your verdict ({offered}):",
        }

    def read(self, reply: JudgeReply, nonce: str = "", /) -> Verdict:
        """Compute the expected score. Raises VerdictError; JudgeUnavailable for numbers that are no probabilities."""
        probs = reply.choice_probs
        if probs is None or set(probs) != set(self.labels):
            raise VerdictError("the engine returned no probabilities for the offered labels", reply.text)
        mass = reply.label_mass
        check_probabilities(probs, mass)
        if mass is not None and (mass < self.min_mass or mass <= 0):
            below = f", below min_mass={self.min_mass}" if mass < self.min_mass else ""
            raise VerdictError(
                f"the labels hold {mass:.3g} of the probability{below}: the judge did not answer with a label",
                reply.text,
            )
        low, high = self.score_range
        score = math.fsum(p * self.labels[label] for label, p in probs.items())
        metadata: dict[str, Any] = {"probs": dict(probs)}
        if mass is not None:
            metadata["label_mass"] = mass
        # min and max only remove rounding errors of the sum
        return Verdict(min(max(score, low), high), reply.thinking, metadata)


class _Scale:
    """A judge's scale, and the range that its scores are mapped to."""

    def __init__(
        self, name: str, low: float, high: float, integer: bool, to: tuple[float, float] | None
    ) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigError(f"{name}: the scale needs finite low < high, not {low}..{high}")
        if to is not None and not (math.isfinite(to[0]) and math.isfinite(to[1]) and to[0] < to[1]):
            raise ConfigError(
                f"{name}: to is the range that scores are mapped to, with finite low < high, not {to}"
            )
        self.low, self.high, self.integer = float(low), float(high), integer
        self.ends = ("worst", "best")
        self.range = (float(to[0]), float(to[1])) if to is not None else (self.low, self.high)

    def describe(self) -> str:
        low, high = self.ends
        return f"{'a whole number' if self.integer else 'a number'} from {self.low:g} ({low}) to {self.high:g} ({high})"

    def between(self, low: str, high: str) -> _Scale:
        """Return the same scale with other words for its ends."""
        made = copy.copy(self)
        made.ends = (low, high)
        return made

    def of_all(self) -> str:
        """Return a pattern for what may follow a score: that it is one of this scale, by its highest (`4/5`, `4 out of 5`)."""
        return rf"(?:{_BOLD}(?:/|out{_BOLD}of){_BOLD}{re.escape(f'{self.high:g}')}(?:\.0+)?(?![0-9.]*[0-9]))?"

    def map(self, value: float, raw: str) -> float:
        """Map *value* to the target range. Raises VerdictError if it is not on the scale."""
        if not self.low <= value <= self.high or (self.integer and value != int(value)):
            raise VerdictError(f"the score {value:g} is not {self.describe()}", raw)
        a, b = self.range
        if (a, b) == (self.low, self.high):
            return value
        return min(max(a + (value - self.low) / (self.high - self.low) * (b - a), a), b)


def _checked_tokens(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}: max_tokens is a whole number of tokens, at least 1, not {value!r}")
    return value


class LineVerdict:
    """A written verdict at the end of the reply: its last line is `### Final Score: x`.

    *low*..*high* is the judge's scale (inclusive), *to* the range that scores are mapped to; *integer* allows
    whole numbers only. *values*: words instead of numbers, each with its score (`{"True": 1, "False": 0}`). *line*: another
    last line, which contains `{score}` once; or `{a}` and `{b}`, the scores of two responses, of which the verdict is
    A's share: 1 if A has more, 0.5 if they are equal, else 0. *own_line*: whether the line holds nothing else; off, text may
    stand before it, and full stops, asterisks and the like behind it.

    With *nonce* the line contains a code, `### Final Score [k3v9]: x`, that is new for every prompt. Without it
    (for judges that were trained on a fixed line), what stands before `{score}` is broken up by a space wherever a rollout
    or data contain it, so that a judge that ends by repeating the rollout gives no verdict.
    """

    name = "line"
    choices: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    outputs: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        low: float = 0.0,
        high: float = 1.0,
        to: tuple[float, float] | None = None,
        integer: bool = True,
        line: str = "### Final Score: {score}",
        values: Mapping[str, float] | None = None,
        own_line: bool = True,
        nonce: bool = True,
        max_tokens: int = 512,
    ) -> None:
        self._before, *rest = _PLACE.split(line)
        self._names = rest[::2]
        if self._names not in (["score"], ["a", "b"]) or "\n" in line or not self._before.strip():
            raise ConfigError(
                f"line: {line!r} must be one line that contains {{score}} once, or {{a}} and then {{b}}, with words before it"
            )
        self.line = line
        self.own_line = own_line
        self.uses_nonce = nonce
        self.max_tokens = _checked_tokens("line", max_tokens)
        marker = self._before.strip()
        if not nonce and len(marker) < 2:
            raise ConfigError(
                f"line: without nonce, at least two characters stand before {{score}}: {line!r}"
            )
        self.markers: tuple[str, ...] = () if nonce else (marker,)
        self._scale = _Scale("line", low, high, integer, to)
        self.values = {str(word): float(score) for word, score in (values or {}).items()}
        two = len(self._names) == 2
        if values is not None:
            self._check_values(alone=(low, high, to) == (0.0, 1.0, None) and not two)
            self.score_range = (min(self.values.values()), max(self.values.values()))
            words = sorted(map(re.escape, self.values), key=len, reverse=True)
            value = f"(?i:({'|'.join(words)}))"
        else:
            if two and to is not None:
                raise ConfigError("line: with {a} and {b} the verdict is A's share, 0 to 1: leave to= out")
            self.score_range = (0.0, 1.0) if two else self._scale.range
            value = f"({_NUMBER}){self._scale.of_all()}"
        self._value = "".join(
            rf"{_OPENING}{value}{_BOLD if text.strip() else ''}{re.escape(text.strip())}"
            for text in rest[1::2]
        )
        if not two:
            self._value = rf"{_BOLD}(?:(?i:score)?{_BOLD}:)?{self._value}"

    def _check_values(self, *, alone: bool) -> None:
        if not alone:
            raise ConfigError(
                "line: values take the place of a scale: leave low, high and to out, and write {score}"
            )
        scores = self.values.values()
        if len({word.strip().casefold() for word in self.values} - {""}) < max(2, len(self.values)):
            raise ConfigError(f"line: values are two or more different words, not {', '.join(self.values)!r}")
        if not all(map(math.isfinite, scores)) or len(set(scores)) < 2:
            raise ConfigError("line: values have finite scores that are not all the same")

    def between(self, low: str, high: str) -> LineVerdict:
        """Return the same form, whose words say what the ends of its scale mean; itself where it has no scale of one score."""
        if self.values or len(self._names) == 2:
            return self
        made = copy.copy(self)
        made._scale = self._scale.between(low, high)
        return made

    def words(self, nonce: str = "", /) -> dict[str, str]:
        code = "CODE" if self.uses_nonce else ""
        end = "end with the line\n" if self.own_line else "end with\n"
        what = f"one of {', '.join(self.values)}" if self.values else self._scale.describe()
        which = (
            "<score> is"
            if self._names == ["score"]
            else "<a>, the score of response A, and <b>, that of response B, are each"
        )
        how = f"Reason briefly, then {end}{self._shown(code)}\nwhere {which} {what}"
        if self.uses_nonce:
            how += " and CODE is the code that you are given at the end"
        reminder = (
            f"End with the line {self._shown(nonce)}" if self.own_line else f"End with {self._shown(nonce)}"
        )
        return {"HOW_TO_ANSWER": how + ".", "REMINDER": reminder}

    def read(self, reply: JudgeReply, nonce: str = "", /) -> Verdict:
        _check_whole(reply)
        text = without_thinking(reply.text).rstrip()
        # no rollout knows the code: a fence around the line quotes nothing
        ended = _RULED_OFF.search(text) if self.uses_nonce else None
        text = text[: ended.start()] if ended else text
        pattern = self._announced(nonce) + self._value
        if self.own_line:
            reason, _, last = text.rpartition("\n")
            match = re.match(_BOLD + pattern + _CLOSING, last)
        else:
            last = text[-_END_CHARS:]
            match = re.search(pattern + _CLOSING, last)
            reason = text[: len(text) - len(last) + (match.start() if match else 0)]
        if match is None:
            what = "last line is not" if self.own_line else "end is not"
            raise VerdictError(
                f"the reply's {what} {self._with_code(nonce)!r} but {last[-80:]!r}", reply.text
            )
        if not self.own_line and (rival := self._rival(reason, pattern, match)):
            raise VerdictError(
                f"the reply's end gives no one verdict: {rival!r} stands before it", reply.text
            )
        fences = len(_FENCE.findall(reason))
        if (fences + (ended[0].count("```") if ended else 0)) % 2:
            raise VerdictError("the verdict line is inside a code fence", reply.text)
        return Verdict(self._score(match.groups(), reply.text), reason.strip())

    def _rival(self, before: str, pattern: str, verdict: re.Match[str]) -> str:
        """Return what makes a verdict within a line none: another one on its line, or a word against it."""
        line = before.rpartition("\n")[2]
        other = next((o for o in re.finditer(pattern, line) if o.groups() != verdict.groups()), None)
        denied = _DENIED.search(line)
        return other[0] if other is not None else denied[0] if denied is not None else ""

    def _score(self, found: Sequence[str], raw: str) -> float:
        if self.values:
            return next(
                score for word, score in self.values.items() if word.casefold() == found[0].casefold()
            )
        scores = [self._scale.map(float(number), raw) for number in found]
        if len(scores) == 1:
            return scores[0]
        a, b = scores
        return 0.5 if a == b else float(a > b)

    def _announced(self, nonce: str) -> str:
        """Return a pattern for what stands before the score.

        With a code, which no rollout knows, bold text, capitals and the signs of a heading make no difference. Without one it
        is the words that are broken up in data, in whatever case.
        """
        words = self._coded(nonce).split()
        if not self.uses_nonce:
            return "(?i:" + r"\s+".join(map(re.escape, words)) + ")"
        words = [
            part for word in words for part in re.split(r"(?<=\])(?=[:=]$)", word)
        ]  # "**Score [code]**: 8"
        plain = [word for text in words if (word := text.strip("*_`")) and word.strip("#")]
        return f"(?:#{{1,6}}{_BOLD})?(?i:{_BOLD.join(map(re.escape, plain))})"

    def _coded(self, nonce: str) -> str:
        """What stands before the score, with the code."""
        if not self.uses_nonce:
            return self._before
        head = self._before.rstrip()
        colon = head[-1] if head[-1] in ":=" else ""
        return f"{head.removesuffix(colon).rstrip()} [{nonce}]{colon} "

    def _with_code(self, nonce: str) -> str:
        return self._coded(nonce) + self.line[len(self._before) :]

    def _shown(self, nonce: str) -> str:
        return _PLACE.sub(r"<\1>", self._with_code(nonce))


class JsonVerdict:
    """A written verdict as one JSON object: code, reason, then one or several scores.

        JsonVerdict(low=0, high=10, to=(0, 1), scores=["accuracy", "completeness", "clarity"])

    The schema is sent to engines that support one. The reply must be the object and nothing else (one code
    fence around it is accepted), with exactly the agreed keys. *scores*: names of several scores, which become
    several grades of one call (`grader.accuracy`, …). *nonce*: the object begins with a code that is new for
    every prompt.
    """

    name = "json"
    choices: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        low: float = 0.0,
        high: float = 1.0,
        to: tuple[float, float] | None = None,
        integer: bool = False,
        scores: Sequence[str] = (),
        nonce: bool = True,
        max_reason: int = 600,
        max_tokens: int = 512,
    ) -> None:
        self._scale = _Scale("json", low, high, integer, to)
        if isinstance(scores, str) or len(set(scores)) < len(scores):
            raise ConfigError(f"json: scores is a list of distinct names, not {scores!r}")
        for name in scores:
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in ("code", "reason"):
                raise ConfigError(f"json: {name!r} cannot be the name of a score")
        self.score_range = self._scale.range
        self.outputs = tuple(scores)
        self.uses_nonce = nonce
        self.max_tokens = _checked_tokens("json", max_tokens)
        self._keys = self.outputs or ("score",)
        number: dict[str, Any] = {"type": "integer" if integer else "number", "minimum": low, "maximum": high}
        properties: dict[str, Any] = {"code": {"type": "string", "maxLength": 16}} if nonce else {}
        properties["reason"] = {"type": "string", "maxLength": max_reason}
        properties |= dict.fromkeys(self._keys, number)
        self.json_schema: Mapping[str, Any] | None = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def between(self, low: str, high: str) -> JsonVerdict:
        """Return the same form, whose words say what the ends of its scale mean."""
        made = copy.copy(self)
        made._scale = self._scale.between(low, high)
        return made

    def words(self, nonce: str = "", /) -> dict[str, str]:
        how = f"Answer with one JSON object and nothing else:\n{self._shown('CODE')}\nwhere each score is {self._scale.describe()}"
        if self.uses_nonce:
            how += " and CODE is the code that you are given at the end"
        reminder = (
            f"Answer with the JSON object {self._shown(nonce)}"
            if self.uses_nonce
            else "Answer with the JSON object."
        )
        return {"HOW_TO_ANSWER": how + ".", "REMINDER": reminder}

    def read(self, reply: JudgeReply, nonce: str = "", /) -> Verdict:
        found = self.read_object(reply, nonce, self._keys)
        scores: dict[str, float] = {}
        for key in self._keys:
            value = found[key]
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
                raise VerdictError(f"{key!r} is not a number but {value!r:.60}", reply.text)
            scores[key] = self._scale.map(float(value), reply.text)
        mean = math.fsum(scores.values()) / len(scores)
        return Verdict(mean, found["reason"], scores=scores if self.outputs else None)

    def read_object(self, reply: JudgeReply, nonce: str, keys: Sequence[str]) -> dict[str, Any]:
        """Parse the object, with exactly the code, the reason and *keys*. Raises VerdictError."""
        _check_whole(reply)
        found = _object_at_end(reply.text, nonce if self.uses_nonce else "")
        wanted = {*(("code",) if self.uses_nonce else ()), "reason", *keys}
        if not isinstance(found, dict) or set(found) != wanted:
            raise VerdictError(
                f"the reply is not an object with the keys {', '.join(sorted(wanted))}", reply.text
            )
        if self.uses_nonce and found["code"] != nonce:
            raise VerdictError("the reply does not contain this prompt's code", reply.text)
        if not isinstance(found["reason"], str):
            raise VerdictError("the reason is not text", reply.text)
        return found

    def _shown(self, code: str) -> str:
        parts = [f'"code": "{code}"'] if self.uses_nonce else []
        parts += ['"reason": "<why, briefly>"', *(f'"{key}": <score>' for key in self._keys)]
        return "{" + ", ".join(parts) + "}"


def _object_at_end(text: str, nonce: str) -> Any:
    """Parse all of *text*, or what follows a `</think>`: a reason may quote one. At most one of these is JSON.

    With a *nonce*, prose may stand before the object, if it does not have the code as well: no rollout can have written it.
    """
    error: Exception | None = None
    for start in (0, *(end.end() for end in re.finditer("</think>", text))):
        part = text[start:].strip()
        places = [0]
        if nonce:
            places += [m.start() for m in _OBJECT.finditer(part) if m.start()][-_MOST_OBJECTS:]
        for place in places:
            if place and f'"{nonce}"' in part[:place]:
                break
            try:
                return _parsed(part[place:].strip())
            except (ValueError, RecursionError) as wrong:
                error = error or (wrong if part.startswith(("{", "`")) else None)
    without_thinking(text)  # which may never have ended
    raise VerdictError(f"the reply is not one JSON object: {error or 'it has none'}", text) from None


def _parsed(text: str) -> Any:
    """Parse an object, in one code fence or none. Raises ValueError.

    Backslashes that JSON does not know are those of formulas (`\\(x\\)`), and lines may break within a text.
    """
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1].strip()
    if not text.startswith("{"):
        raise ValueError("it has none")
    whole = _ESCAPE.sub(lambda m: m[0] if m[1] else r"\\", text)
    return json.loads(whole, object_pairs_hook=_no_twins, parse_constant=_no_constant, strict=False)


def without_thinking(text: str) -> str:
    """Return the text after the last `</think>`, or all of it if there is none.

    The opening tag may be in the prompt. Raises VerdictError if the reply opens thinking and never closes it.
    """
    _, closed, after = text.rpartition("</think>")
    if not closed and text.lstrip().startswith("<think>"):
        raise VerdictError("the reply ends inside its thinking", text)
    return after


def _check_whole(reply: JudgeReply) -> None:
    if reply.finish_reason != "stop":
        raise VerdictError(f"the reply was cut ({reply.finish_reason}) before its verdict", reply.text)


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a score")
