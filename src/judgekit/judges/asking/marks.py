"""How families of models mark their thinking."""

from __future__ import annotations

from msgspec import Struct

from judgekit.errors import ConfigError


class Marks(Struct, frozen=True):
    """How a family of models opens and ends its thinking."""

    start: str
    end: str
    after_start: str = "\n"
    after_end: str = "\n\n"


TAGS = (
    Marks("<think>", "</think>"),
    Marks("<thinking>", "</thinking>"),
    Marks("[THINK]", "[/THINK]", after_start=""),
    Marks("<seed:think>", "</seed:think>"),
)
HARMONY = Marks(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    after_start="",
    after_end="<|start|>assistant<|channel|>final<|message|>",
)
"""gpt-oss: thinking is a message of its own, in another channel (OpenAI's harmony response format)."""


def marks_of(prompt: str, template: str) -> tuple[Marks, str]:
    """Return a model's marks, and what opens the thinking behind *prompt*, which its template made for thinking.

    Raises ConfigError if the template knows none of them.
    """
    bare = prompt.rstrip()
    for marks in TAGS:
        if bare.endswith(marks.start):
            return marks, ""
    for marks in TAGS:
        if marks.end in template:
            return marks, marks.start + marks.after_start
    if "<|channel|>" in template and "<|message|>" in template:
        return HARMONY, HARMONY.start
    raise ConfigError(
        "the judge's chat template knows no thinking (of the forms <think>, [THINK], <seed:think> and harmony): write "
        "thinking: false"
    )


def without_thought(prompt: str) -> str:
    """Close the thinking that a template opens whatever it is told, as others do it when thinking is off."""
    bare = prompt.rstrip()
    for marks in TAGS:
        if bare.endswith(marks.start):
            return f"{bare}\n\n{marks.end}\n\n"
    return prompt
