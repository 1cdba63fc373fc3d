"""Rules about the format of a rollout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from judgekit.errors import ConfigError
from judgekit.graders.protocol import Where
from judgekit.graders.rules.rule import Rule
from judgekit.graders.rules.thoughts import without_end
from judgekit.types import Grade, Graded, Rollout


class TagFormat(Rule):
    """Scores 1 if the tags occur once each, in order, else 0.

    Each must be opened and closed, with only space around and between them; *text_after*: text may follow the last, as
    in `<think>…</think>` and the answer.

    *tags*: names in order, by default `<think>…</think><answer>…</answer>` (DeepSeek-R1, arXiv:2501.12948,
    section 2.2.2). *opened*: the chat template opens the first tag in the prompt, so that the rollout begins
    inside it. *nonempty*: empty tags score 0.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response",)
    abstains = "never"
    only_form = True
    inline_limit = 2_000_000

    def __init__(
        self,
        tags: Sequence[str] = ("think", "answer"),
        *,
        opened: bool = False,
        nonempty: bool = True,
        text_after: bool = False,
        name: str = "tags",
    ) -> None:
        if (
            isinstance(tags, str)
            or not tags
            or not all(re.fullmatch(r"[A-Za-z][\w.:-]*", tag) for tag in tags)
        ):
            raise ConfigError(f"tags: give a list of tag names such as ['think', 'answer'], not {tags!r}")
        if len(set(tags)) < len(tags):
            raise ConfigError(f"tags: {list(tags)} contains a tag twice")
        self.name = name
        self.tags = tuple(tags)
        self.opened = opened
        self.nonempty = nonempty
        self.text_after = text_after

    def grade(self, rollout: Rollout, /) -> Grade:
        text = without_end(rollout.response)
        text = f"<{self.tags[0]}>{text}" if self.opened else text
        at = 0
        for tag in self.tags:
            for mark in (f"<{tag}>", f"</{tag}>"):
                if (count := text.count(mark)) != 1:
                    return Graded(0.0, f"{mark} occurs {count} times, not once")
            start, end = text.index(f"<{tag}>"), text.index(f"</{tag}>")
            if start < at or end < start:
                return Graded(0.0, f"<{tag}> is out of order")
            if text[at:start].strip():
                return Graded(0.0, f"there is text before <{tag}>")
            if self.nonempty and not text[start + len(tag) + 2 : end].strip():
                return Graded(0.0, f"<{tag}> is empty")
            at = end + len(tag) + 3
        if text[at:].strip() and not self.text_after:
            return Graded(0.0, f"there is text after </{self.tags[-1]}>")
        return Graded(1.0)


class RegexFormat(Rule):
    """Scores 1 if the pattern matches the rollout, else 0.

    *match*: "full" (the whole text), "search" (anywhere), "start". *flags*: letters of Python's inline flags,
    such as "is". On hostile text a pattern may never finish, so the grader runs in a worker process that is killed
    at its *timeout_s*: such a rollout has broken its grader. Use `where="inline"` only for patterns that always
    finish quickly.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response",)
    abstains = "never"
    only_form = True
    inline_limit = 2_000_000

    def __init__(
        self,
        pattern: str,
        *,
        match: Literal["full", "search", "start"] = "full",
        flags: str = "",
        where: Where = "process",
        timeout_s: float = 1.0,
        name: str = "regex",
    ) -> None:
        if match not in ("full", "search", "start"):
            raise ConfigError(f"regex: match is 'full', 'search' or 'start', not {match!r}")
        try:
            self.pattern = re.compile(f"(?{flags}){pattern}" if flags else pattern)
        except re.error as error:
            raise ConfigError(f"regex: {pattern!r} is not a valid pattern: {error}") from None
        self.name = name
        self.match = match
        self.where = where
        self.timeout_s = timeout_s

    def grade(self, rollout: Rollout, /) -> Grade:
        how = {"full": self.pattern.fullmatch, "search": self.pattern.search, "start": self.pattern.match}
        text = rollout.response
        found = how[self.match](text)
        if found is None and (rest := without_end(text)) != text:  # what ends a turn may be there, or not
            found = how[self.match](rest)
        return Graded(1.0) if found else Graded(0.0, "the pattern does not match")
