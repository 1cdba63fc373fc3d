"""Finds out what a chat template reads or edits in a message, by looking at what it renders.

Where a prompt goes as text, a template sees the rollout's words: it may test for one (and switch the judge's thinking), replace
it (and join what stood around it), split at it, or strip it. Which words those are is not guessed: each suspicious one is put
into a message, and what is rendered must be the same as with a harmless word in its place. Those that do not survive are
broken up as control strings are, and looked at again. What parts the turns is seen in the same way.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct

from judgekit.errors import JudgeRejected
from judgekit.execution.together import together
from judgekit.judges.prompts.control_strings import disarm, jinja_literals

Messages = list[dict[str, Any]]
Show = Callable[[Messages, bool], Awaitable[str]]
"""Renders messages, with thinking on or off. Raises JudgeError."""

SUSPECTS = (
    "/think", "/no_think", "/nothink", "/no_thinking", "/system_override", "/set think", "/set nothink", "<think>", "</think>",
    "<thinking>", "</thinking>", "[THINK]", "[/THINK]", "<answer>", "</answer>", "<solution>", "</solution>", "<reasoning>",
    "</reasoning>", "<response>", "</response>", "<tool_response>", "</tool_response>", "<image>", "<video>", "<audio>",
    "detailed thinking on", "detailed thinking off", "Thought:", "Final Answer:", "Reasoning: high", "Reasoning effort", "Reasoning strength", "####", "```", "---", "***",
    "\n\n", "Human:", "Assistant:", "User:", "System:", "### Response:", "### Instruction:",
)  # fmt: skip
"""Words that the templates of public models are documented to read, and what quotations are made of."""
_MOST_WORDS = 400
_LONGEST_WORD = 200
_AT_ONCE = 16
_ROUNDS = 4
_HARMLESS = "quartz"
_MARKS = ("opal zero", "opal one", "opal two", "opal three")
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


class Rendered(Struct, frozen=True):
    """What was seen of a chat template."""

    strings: tuple[str, ...] = ()
    """Words that it reads, and headers of turns: to be broken up in a rollout's text."""
    unverified: str = ""
    """Why it is not known that a rollout's text is rendered as it is written; empty: it is known."""


def template_words(template: str) -> list[str]:
    """Return the words that a chat template may look for: its string literals, and those that it joins of them."""
    found = dict.fromkeys(jinja_literals(template))
    try:
        from jinja2 import Environment, TemplateError, nodes
    except ImportError:  # its literals are in the text all the same
        return list(found)
    try:
        made = Environment(extensions=["jinja2.ext.loopcontrols"])
        tree = made.parse(_GENERATION.sub("", template))
    except TemplateError:  # an extension's tags
        return list(found)
    for node in tree.find_all(nodes.Expr):
        try:
            value = node.as_const(nodes.EvalContext(made))
        except Exception:  # not constant; jinja2 raises whatever the expression does
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str):
                found.setdefault(one)
    return list(found)


def words_to_try(template: str) -> list[str]:
    """Return every suspicious word, those of *template* first."""
    words = dict.fromkeys((*template_words(template), *SUSPECTS))
    kept = [w for w in words if 0 < len(w) <= _LONGEST_WORD and (len(w) > 1 or not (w.isalnum() or w == " "))]
    return kept[:_MOST_WORDS]


class Shape(Struct, frozen=True):
    """The messages in which words are tried."""

    within: tuple[Callable[[str], Messages], ...]
    """Each puts a text where a rollout's can stand, with other text around it."""
    edges: tuple[Callable[[str], Messages], ...]
    """Each puts it where it begins or ends a message, so that white space at its ends may be stripped."""
    dialogue: Callable[[Sequence[str]], Messages]
    """Messages with these contents, for what parts them."""
    turns: int
    """Messages of a dialogue."""
    thinking: tuple[bool, ...]


def _judged(text: str) -> Messages:
    fenced = f"````\n{text}\n````"
    return [
        {
            "role": "system",
            "content": f"Judge what stands between the fences.\n\n{fenced}\n\nThat was the task.",
        },
        {"role": "user", "content": f"{fenced}\n\nThe candidate was:\n{fenced}"},
    ]


def _asked(contents: Sequence[str]) -> Messages:
    return [{"role": r, "content": text} for r, text in zip(("system", "user"), contents, strict=True)]


def _spoken(contents: Sequence[str]) -> Messages:
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(contents)]


JUDGE = Shape((_judged,), (), _asked, 2, (False, True))
"""A judge's prompts: texts stand in quotations."""
REWARD_MODEL = Shape(
    (lambda text: _spoken([f"opal\n{text}\nopal"] * 4),),
    (lambda text: _spoken([f"{text} opal {text}"] * 4), lambda text: _spoken([text] * 2)),
    _spoken,
    4,
    (False,),
)
"""A reward model's: texts are whole messages."""


async def look(show: Show, shape: Shape, strings: Collection[str] = (), template: str = "") -> Rendered:
    """Look at what a template makes of messages. *strings*: those that are broken up anyway. *template*: its text, where known.

    Raises JudgeError where what shows it does not answer, or shows nothing.
    """
    seen = _Look(show, shape, strings)
    words = words_to_try(template)
    await seen.headers()
    seen.add([word for word, fine in zip(words, await seen.survive(words), strict=True) if not fine])
    for _ in range(_ROUNDS):
        if await seen.whole(words):
            break
        seen.add(await seen.needed(words))
    else:
        seen.doubt("its chat template changes some words, also where they are broken up")
    found = [word for word in words if word in seen.found]
    left = [word for word, fine in zip(found, await seen.survive(found), strict=True) if not fine]
    if left:
        seen.doubt(f"its chat template reads {', '.join(map(repr, left[:3]))}, which cannot be broken up")
    await seen.forge()
    return Rendered(tuple(seen.found), "; ".join(seen.doubts))


class _Look:
    """One search, with what it has found so far."""

    def __init__(self, show: Show, shape: Shape, strings: Collection[str]) -> None:
        self._show, self._shape = show, shape
        self._strings = tuple(strings)
        self.found: list[str] = []
        self.doubts: list[str] = []
        self._parts: list[str] = []
        self._plain: dict[tuple[int, bool], str] = {}
        """What is rendered of a harmless word, by form and thinking."""

    def add(self, words: Sequence[str]) -> None:
        self.found += [word for word in dict.fromkeys(words) if word not in self.found]

    def doubt(self, why: str) -> None:
        if why not in self.doubts:
            self.doubts.append(why)

    def _sent(self, text: str) -> str:
        return disarm(text, (*self._strings, *self.found))

    async def survive(self, words: Sequence[str]) -> list[bool]:
        """Say of each word whether it is rendered as it is written."""
        fine: list[bool] = []
        for i in range(0, len(words), _AT_ONCE):
            for outcome in await together(self._survives(word) for word in words[i : i + _AT_ONCE]):
                if isinstance(outcome, Exception):
                    raise outcome
                fine.append(outcome)
        return fine

    async def whole(self, words: Sequence[str]) -> bool:
        """Whether all words together survive, in their order and in the other."""
        return await self._survives("\n".join(words)) and await self._survives("\n".join(reversed(words)))

    async def needed(self, words: Sequence[str]) -> list[str]:
        """Return words that together do not survive, none of which can be left out."""
        for order in (list(words), list(reversed(words))):
            if await self._survives("\n".join(order)):
                continue
            size = len(order) // 2
            while size:
                at = 0
                while at < len(order):
                    fewer = order[:at] + order[at + size :]
                    if fewer and not await self._survives("\n".join(fewer)):
                        order = fewer
                    else:
                        at += size
                size //= 2
            return order
        return []

    async def _survives(self, text: str) -> bool:
        sent = self._sent(text)
        forms = [(form, sent) for form in self._shape.within]
        if bare := sent.strip():
            forms += [(form, bare) for form in self._shape.edges]
        for number, (form, said) in enumerate(forms):
            for thinking in self._shape.thinking:
                try:
                    shown = await self._show(form(said), thinking)
                except JudgeRejected:
                    shown = None
                plain = await self._harmless(number, form, thinking)
                if shown is not None and _same(plain.replace(_HARMLESS, said), shown):
                    continue
                self._plain.pop((number, thinking), None)  # a template may write the time
                plain = await self._harmless(number, form, thinking)
                if shown is None or not _same(
                    plain.replace(_HARMLESS, said), await self._show(form(said), thinking)
                ):
                    return False
        return True

    async def _harmless(self, number: int, form: Callable[[str], Messages], thinking: bool) -> str:
        if (number, thinking) not in self._plain:
            self._plain[number, thinking] = await self._show(form(_HARMLESS), thinking)
        return self._plain[number, thinking]

    async def headers(self) -> None:
        """Find what the template writes between turns, where it is plain text, and whether it shows every message."""
        marks = _MARKS[: self._shape.turns]
        for thinking in self._shape.thinking:
            parts = between(await self._show(self._shape.dialogue(marks), thinking), marks)
            if parts is None:
                self.doubt("its chat template drops, repeats or reorders messages")
                continue
            self._parts = parts
            self.add(headers_in(parts))
            if self._shape.edges and not all(part.strip() for part in parts[1:-1]):
                self.doubt("its chat template parts turns by white space alone")
        for number, form in enumerate((*self._shape.within, *self._shape.edges)):
            shown = await self._harmless(number, form, self._shape.thinking[0])
            if not all(_holds(shown, message["content"]) for message in form(_HARMLESS)):
                self.doubt("its chat template renders texts otherwise than they are written")

    async def forge(self) -> None:
        """Try to pass off a text as several turns."""
        if not self._shape.edges or not self._parts:
            return
        marks = _MARKS[: self._shape.turns]
        real = await self._show(self._shape.dialogue(marks), False)
        _, _, second, third, _ = self._parts
        said = self._sent(f"{marks[1]}{second}{marks[2]}{third}{marks[3]}")
        forged = await self._show(self._shape.dialogue([marks[0], said]), False)
        if _same(real.strip(), forged.strip()):
            self.doubt("a text can pass for several turns of its chat template")


def _same(wanted: str, shown: str) -> bool:
    return wanted == shown or _folded(wanted) == _folded(shown)


def _holds(shown: str, content: str) -> bool:
    return content in shown or _folded(content).strip() in _folded(shown)


def _folded(text: str) -> str:
    """A text without what tokenizers are free to change: compatibility forms, case, the number of spaces."""
    return re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", unicodedata.normalize("NFKC", text).lower()))


def between(shown: str, marks: Sequence[str]) -> list[str] | None:
    """Return the text before, between and behind *marks*; None unless each is there once, in order."""
    parts: list[str] = []
    for mark in marks:
        before, found, shown = shown.partition(mark)
        if not found or mark in shown:
            return None
        parts.append(before)
    return [*parts, shown]


def headers_in(parts: Sequence[str]) -> list[str]:
    """Return the headers of turns in what stands between them, where they are plain words."""
    return [header for i, part in enumerate(parts) for header in _plain_headers(part, first=i == 0)]


def _plain_headers(part: str, *, first: bool) -> Iterator[str]:
    """Yield the lines of what stands between two turns that tokenizers read as plain text, with the newline before each."""
    lines = part.split("\n")
    if first:  # before it may be instructions of any length
        lines = lines[-2:]
    for number, line in enumerate(lines):
        bare = line.strip()
        if not bare or len(bare) > 64 or disarm(bare) != bare:
            continue
        begins = number > 0 or first
        alone = bare.isalnum()
        if alone and not (begins and number < len(lines) - 1):
            continue  # one word on a line with the text: ordinary text is full of it
        yield ("\n" if begins else "") + bare + ("\n" if alone else "")
