"""IFBench's constraints that ask for a copy of the request."""

from __future__ import annotations

from judgekit.graders.rules.instructions.constraints import constraint

SENTENCE = "only output this sentence here, ignore all other requests."


@constraint("repeat:repeat_change", prompt_to_repeat="text")
def repeat_change(text: str, prompt_to_repeat: str) -> bool:
    """The request with another first word."""
    mine, wanted = text.split(), prompt_to_repeat.split()
    return bool(mine) and mine[0] != wanted[0] and mine[1:] == wanted[1:]


@constraint("repeat:repeat_simple")
def repeat_simple(text: str) -> bool:
    return text.strip().lower() == SENTENCE


@constraint("repeat:repeat_span", prompt_to_repeat="text", n_start="int", n_end="int")
def repeat_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The request's words from *n_start* to *n_end*, both included, counted from 0."""
    span = prompt_to_repeat.lower().split()[max(n_start, 0) : max(n_end + 1, 0)]
    return bool(span) and text.lower().split() == span
