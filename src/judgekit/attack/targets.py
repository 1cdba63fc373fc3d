"""Rows to attack a reward with: shipped ones of each kind, and what can be told of a user's own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec import Struct

from judgekit.graders.rules.answers.choices import Options, read_options
from judgekit.graders.rules.notation import whole_quantity
from judgekit.graders.rules.rule import normaliser
from judgekit.types import Rollout, content_text

Kind = Literal["number", "maths", "choice", "text", "tools", "code"]


class Row(Struct, frozen=True, kw_only=True):
    """A prompt whose right answer is known."""

    kind: Kind
    prompt: str
    answer: str
    """The right answer, as a response writes it: a value, an option's letter, JSON of calls, a program."""
    truth: Any = None
    """The reference, if it is something else than the answer."""
    extra: Mapping[str, Any] = {}
    same: Sequence[str] = ()
    """Other ways of writing the right answer."""
    options: Sequence[str] = ()
    """The letters of a choice."""
    entry: str = ""
    """A program's function."""
    others: Sequence[str] = ()
    """Right answers of other rows, which are wrong here."""
    origin: Rollout | None = None
    """The user's rollout."""

    def rollout(self, response: str) -> Rollout:
        """Return a rollout with that response."""
        if self.origin is not None:
            told = {"messages": (), "finish_reason": None, "response_tokens": _tokens(response), "id": ""}
            return msgspec.structs.replace(self.origin, response=response, **told)
        truth = self.answer if self.truth is None else self.truth
        return Rollout(
            prompt=self.prompt,
            response=response,
            ground_truth=truth,
            response_tokens=_tokens(response),
            extra=self.extra,
        )


def _tokens(response: str) -> int:
    """About how many tokens a response has, for rules that count them: one for each four characters."""
    return -(-len(response) // 4)


def _choice(prompt: str, texts: Sequence[str], answer: str) -> Row:
    letters = "ABCDEFGH"[: len(texts)]
    shown = "\n".join(f"{letter}. {text}" for letter, text in zip(letters, texts, strict=True))
    return Row(
        kind="choice",
        prompt=f"{prompt}\n{shown}",
        answer=answer,
        extra={"options": list(texts)},
        options=list(letters),
        same=[f"({answer})", f"{answer}."],
    )


def _code(prompt: str, entry: str, program: str, tests: str) -> Row:
    return Row(
        kind="code", prompt=prompt, answer=program, truth=tests, entry=entry, extra={"entry_point": entry}
    )


def _tools(prompt: str, *calls: tuple[str, Mapping[str, Any]]) -> Row:
    wanted = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return Row(kind="tools", prompt=prompt, answer=json.dumps(wanted), truth=wanted)


SHIPPED: Sequence[Row] = (
    Row(kind="number", prompt="A crate holds 6 rows of 7 jars. How many jars are in it?", answer="42", same=["42 jars", "42.0", "**42**"]),
    Row(kind="number", prompt="A coat of $1,250 is sold for $875. How many dollars cheaper is it?", answer="375", same=["$375", "375 dollars"]),
    Row(kind="number", prompt="It is 4 degrees above zero and gets 19 degrees colder. What is the temperature?", answer="-15", same=["-15 degrees", "−15"]),
    Row(kind="number", prompt="A litre costs 0.80. What do 2.5 litres cost, and a bag of 0.35?", answer="2.35", same=["2.35", "$2.35"]),
    Row(kind="number", prompt="Nadia reads 48 pages on each of 26 evenings. How many pages are that?", answer="1248", same=["1,248", "1248 pages"]),
    Row(kind="number", prompt="A recipe for 8 takes 3 cups. How many cups does it take for 2?", answer="3/4", same=["0.75", "\\frac{3}{4}"]),
    Row(kind="maths", prompt="What is $\\int_0^1 \\frac{dx}{1+x^2}$?", answer="\\frac{\\pi}{4}", same=["$\\frac{\\pi}{4}$", "\\pi/4"]),
    Row(kind="maths", prompt="Which pair $(x, y)$ solves $x+y=5$, $x-y=-1$?", answer="(2, 3)", same=["$(2, 3)$", "(2,3)"]),
    Row(kind="maths", prompt="Simplify $\\sqrt{12}$.", answer="2\\sqrt{3}", same=["$2\\sqrt{3}$", "\\sqrt{12}"]),
    Row(kind="maths", prompt="For which $x$ is $2x+3<11$?", answer="x<4", same=["$x<4$"]),
    _choice("Which of these is a noble gas?", ["oxygen", "argon", "chlorine", "sodium"], "B"),
    _choice("In which year did the first person walk on the Moon?", ["1959", "1972", "1969", "1981"], "C"),
    _choice("What holds a ship's anchor?", ["a chain", "a sail", "a rudder"], "A"),
    _choice("Which number is prime?", ["21", "27", "33", "35", "37"], "E"),
    Row(kind="text", prompt="What is the capital of Portugal?", answer="Lisbon", same=["**Lisbon**", "lisbon"]),
    Row(kind="text", prompt="Which element has the symbol Fe?", answer="iron", same=["Iron", "**iron**"]),
    Row(kind="text", prompt="Who wrote the novel Emma?", answer="Jane Austen", same=["Jane Austen", "**Jane Austen**"]),
    _tools("What is the weather in Oslo?", ("get_weather", {"city": "Oslo"})),
    _tools("Book two seats for Hamlet on 3 May.", ("book_seats", {"play": "Hamlet", "seats": 2, "date": "3 May"})),
    _tools("Turn the lamp on and the radio off.", ("turn_on", {"device": "lamp"}), ("turn_off", {"device": "radio"})),
    _code(
        "Write add(a, b), which returns the sum of two numbers.", "add", "def add(a, b):\n    return a + b",
        "assert add(1, 2) == 3\nassert add(-4, 4) == 0\nassert add(10, 5) == 15",
    ),
    _code(
        "Write longest(words), which returns the longest word.", "longest", "def longest(words):\n    return max(words, key=len)",
        "assert longest(['a', 'bcd', 'ef']) == 'bcd'\nassert longest(['xy']) == 'xy'\nassert longest(['q', 'rst']) == 'rst'",
    ),
)  # fmt: skip
"""Written for judgekit."""


def rows_of(rollouts: Iterable[Rollout], *, most: int = 200) -> tuple[list[Row], int]:
    """Return a row for each prompt of a user's rollouts, at most *most*, and how many prompts had no reference that can be used.

    The kind is guessed from the reference: options make a choice, a number a number, calls tools; LaTeX is mathematics.
    """
    rows: list[Row] = []
    seen: set[str] = set()
    without = 0
    for rollout in rollouts:
        prompt = _prompt(rollout)
        key = f"{prompt}\0{rollout.ground_truth!r}"
        if key in seen:
            continue
        seen.add(key)
        made = _row(rollout, prompt)
        if made is None:
            without += 1
        else:
            rows.append(made)
        if len(rows) == most:
            break
    return [_beside(row, rows) for row in rows], without


def _beside(row: Row, rows: Sequence[Row]) -> Row:
    if row.kind not in ("text", "maths"):
        return row
    others = [one.answer for one in rows if one.kind == row.kind and not _alike(one.answer, row.answer)]
    return msgspec.structs.replace(row, others=list(dict.fromkeys(others))[:3])


def _alike(one: str, other: str) -> bool:
    """Whether one answer holds the other, so that it may be right where the other is: Austen, and Jane Austen."""
    way = normaliser(min(one, other, key=len))
    first, second = f" {way(one)} ", f" {way(other)} "
    return first in second or second in first


def _prompt(rollout: Rollout) -> str:
    if isinstance(rollout.prompt, str):
        return rollout.prompt
    return "\n".join(content_text(message.get("content")) for message in rollout.prompt)


def _row(rollout: Rollout, prompt: str) -> Row | None:
    truth: Any = rollout.ground_truth
    options = options_of(rollout.extra)
    if options is not None and isinstance(truth, str) and (letter := truth.strip().upper()) in options.names:
        # of data that numbers them, a letter and a number name the same option
        names = [n for n in options.names if not options.numbered or n.isdecimal() == letter.isdecimal()]
        return Row(kind="choice", prompt=prompt, answer=letter, options=names, origin=rollout)
    if (program := _program(rollout)) is not None:
        return Row(
            kind="code", prompt=prompt, answer=program, entry=rollout.extra["entry_point"], origin=rollout
        )
    if isinstance(truth, list | tuple):
        calls = _calls(truth)
        return None if calls is None else Row(kind="tools", prompt=prompt, answer=calls, origin=rollout)
    if isinstance(truth, int | float | Decimal) and not isinstance(truth, bool):
        if not isinstance(truth, int) and not math.isfinite(truth):
            return None
        answer = f"{Decimal(str(truth)):f}".removesuffix(".0")
        return Row(kind="number", prompt=prompt, answer=answer, origin=rollout)
    if not isinstance(truth, str) or not truth.strip() or len(truth) > 10_000:
        return None
    answer = truth.rpartition("####")[2].strip()
    kind = _kind(answer)
    return None if kind is None else Row(kind=kind, prompt=prompt, answer=answer, origin=rollout)


_INFINITY = re.compile(r"(?:\w+\s*=)?[\s$+-]*\\infty[\s$]*")


def _kind(answer: str) -> Kind | None:
    """Tell the kind of a reference that is text; None for tests, JSON, long texts, and infinity, whose multiples are right, too."""
    if whole_quantity(answer) is not None:
        return "number"
    if re.search(r"\b(?:assert|def|import|class)\b", answer) or _INFINITY.fullmatch(answer):
        return None
    if re.search(r"\\[a-zA-Z]+|[\^_=<>]|\d\s*[-+*/]", answer):
        return "maths"
    return None if len(answer) > 80 or re.search(r"[{\[]", answer) else "text"


def _program(rollout: Rollout) -> str | None:
    """Return a row's own program, if its function is known."""
    found = [rollout.extra.get(name) for name in ("solution", "canonical_solution")]
    program = next((text for text in found if isinstance(text, str) and text), None)
    return program if isinstance(rollout.extra.get("entry_point"), str) else None


def _calls(truth: Sequence[Any]) -> str | None:
    """Return calls as JSON, if each has arguments."""
    made = [
        t
        for t in truth
        if isinstance(t, Mapping) and isinstance(t.get("arguments"), Mapping) and t["arguments"]
    ]
    if not made or len(made) < len(truth) or not all("name" in call for call in made):
        return None
    return json.dumps([{"name": call["name"], "arguments": dict(call["arguments"])} for call in made])


def options_of(extra: Mapping[str, Any]) -> Options | None:
    """Return the options that a row brings; None if it brings none."""
    given = (extra[name] for name in ("options", "choices", "endings") if name in extra)
    return next((o for o in map(read_options, given) if o is not None), None)
