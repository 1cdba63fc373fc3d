"""Text without its thinking, and without the tokens that end a turn."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_THINK = r"(?:\w{1,12}:)?(?:think|thinking|thought|thoughts|reasoning)|longcat_think"
_ENDS = (
    rf"</(?:{_THINK})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>|<\|plamo:end_think:plamo\|>|<channel\|>"
    r"|<\|channel\|>final(?:(?!<\|message\|>)[^\n]){0,60}<\|message\|>"  # a format may stand between them
)
# a mark behind an opening quote is only spoken of: code and JSON may hold such texts; a fence is no quote
_NOT_QUOTED = r"(?<![\s(\[{=:,\\][\"'`])(?<!\b[rbfu][\"'])(?<!^[\"'`])"
_NO_QUOTE = r"(?![\"']|`(?!`))"
_THOUGHT_ENDS = re.compile(rf"{_NOT_QUOTED}(?:{_ENDS})|(?:{_ENDS}){_NO_QUOTE}", re.IGNORECASE)
_ANALYSIS = r"<\|channel\|>analysis<\|message\|>"
_THOUGHT_OPENS = re.compile(
    rf"{_NOT_QUOTED}(?:<(?:{_THINK})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|plamo:begin_think:plamo\|>"
    rf"|<\|channel>thought\b|{_ANALYSIS})",
    re.IGNORECASE,
)
_MESSAGE_ENDS = re.compile(r"<\|end\|>|(?=<\|start\|>)")
_AGENT = re.compile(
    rf"(?P<call><tool_call>)|(?P<analysis>{_ANALYSIS})|(?P<opens>{_THOUGHT_OPENS.pattern})|(?:{_THOUGHT_ENDS.pattern})",
    re.IGNORECASE,
)


_MOST_REMEMBERED = 100_000
"""Characters of the longest text of which something is remembered."""


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the answers for the last few texts: a reward's rules ask the same of a rollout, one after the other."""
    kept = functools.lru_cache(maxsize=4)(function)

    @functools.wraps(function)
    def ask(text: str, *more: Any) -> T:
        return kept(text, *more) if len(text) <= _MOST_REMEMBERED else function(text, *more)

    return ask


@remembered
def after_think(text: str) -> str | None:
    """Return the text after the thinking, or all of it; None if there is only thinking. Tokens that end a turn are left out."""
    text = _with_its_marks(text)
    ended = None
    for ended in _THOUGHT_ENDS.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    rest = without_end(text[ended.end() :] if ended else text)
    if (opening := _THOUGHT_OPENS.search(rest)) is not None:
        before = rest[: opening.start()]
        return before if before.strip() else None
    return rest


_RESULTS = re.compile(
    r"</(?:search|tool_call|code|python|browse)>(?P<seen>(?:(?:\s|<\|\w{1,20}\|>|user|tool|ipython)*+"
    r"<(?P<tag>tool_response|information|observation|interpreter)>.*?(?:</(?P=tag)>|\Z))+)",
    re.DOTALL,
)
"""The end of a call, and the results that stand right behind it, the last of which may be cut off."""
_CALLS = ("tool_call", "search")
_GIVES_ANSWER = re.compile(r"\"name\"\s*:\s*\"(?:final_?answer|answer|finish|submit)", re.IGNORECASE)
"""A call by which an answer is given."""


@remembered
def last_turn(text: str) -> str | None:
    """Return what the policy says last, without its thinking; None if there is only thinking.

    A trajectory may stand in one text: what a tool says in it, right behind a call, is no answer of the policy's. Its last turn
    is the last one that says something besides a call.
    """
    rest = after_think(text)
    if rest is None or "</" not in rest:
        return rest
    at = 0
    turns: list[str] = []
    for results in _RESULTS.finditer(rest):
        turns.append(rest[at : results.start("seen")])
        at = results.end()
    turns.append(rest[at:])
    return next((turn for turn in reversed(turns) if not _only_calls(turn)), "")


def _only_calls(text: str) -> bool:
    """Whether a turn is nothing but calls, and these give no answer."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        tag = next((tag for tag in _CALLS if text.endswith(f"</{tag}>", 0, end)), None)
        opened = -1 if tag is None else text.rfind(f"<{tag}>", 0, end)
        if opened < 0 or _GIVES_ANSWER.search(text, opened, end):
            return end == 0
        end = opened


_BARE_ANALYSIS = re.compile(r"analysis(?=[A-Z\"'(])")
_BARE_HEADER = re.compile(r"assistant(analysis|commentary|final)(?: json(?=[{\[]))?")


def _with_its_marks(text: str) -> str:
    """Put back gpt-oss's marks where decoding has dropped them: `analysisThe sum…assistantfinalIt is 42.`"""
    if not _BARE_ANALYSIS.match(text):
        return text
    return "<|channel|>analysis<|message|>" + _BARE_HEADER.sub(_header, text[len("analysis") :])


def _header(match: re.Match[str]) -> str:
    message = "" if match[1] == "commentary" else "<|message|>"
    return f"<|end|><|start|>assistant<|channel|>{match[1]}{message}"


_END_TOKENS = re.compile(
    r"(?:(?:<\|[A-Za-z_]{2,30}\|>|<｜[^｜\n]{2,30}｜>|</s>|<(?:seed:)?eos>|<end_of_turn>|<turn\|>|\[e~\[|\[\|[A-Za-z]{2,30}\|\]|\[EOS\])\s*+)++\Z",
    re.IGNORECASE,
)
_END_CHARS = 2_000
"""Characters at the end that are searched for them."""


def without_end(text: str) -> str:
    """Remove the control tokens with which a model ends its turn, where a trainer keeps them."""
    if not text.rstrip().endswith((">", "|]", "[EOS]", "[e~[")):
        return text
    end = _END_TOKENS.search(text, max(0, len(text) - _END_CHARS))
    return text if end is None else text[: end.start()]


@remembered
def without_thinking(text: str) -> str:
    """Remove each thought, and keep what stands between them, as agents write it."""
    text = _with_its_marks(text)
    if "<" not in text and "[" not in text and "◁" not in text:
        return text
    kept: list[str] = []
    at = start = 0
    thinking = False
    first = True
    calls_close = True
    while True:
        found = (_THOUGHT_ENDS if thinking else _AGENT).search(text, at)
        if found is None:
            break
        at = found.end()
        if not thinking and found["analysis"]:
            # gpt-oss says of each message what it is: nothing stands between an analysis and the next message
            kept.append(text[start : found.start()])
            ended = _MESSAGE_ENDS.search(text, at)
            at = start = ended.end() if ended else len(text)
            first = False
        elif not thinking and found["call"]:
            # a call's text may speak of thoughts
            end = text.find("</tool_call>", at) if calls_close else -1
            calls_close = end >= 0
            at = end if end >= 0 else at
        elif thinking:
            thinking, start = False, at
        elif found["opens"]:
            kept.append(text[start : found.start()])
            thinking, first = True, False
        elif first and text.find("<|channel|>", 0, found.start()) < 0:  # the prompt opened it
            kept, start, first = [], at, False
    if not thinking:
        kept.append(text[start:])
    return "".join(kept)
