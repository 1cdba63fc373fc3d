"""How families of models mark their thinking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    Marks("<mm:think>", "</mm:think>"),
    Marks("<|channel>thought", "<channel|>", after_end=""),
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
        if bare.endswith(marks.end):
            raise ConfigError(
                "the judge's chat template closes its thinking at once, whatever enable_thinking and thinking say: look for what "
                "opens it, and give it with chat_template_kwargs"
            )
    for marks in TAGS:
        if marks.end in template:
            return marks, marks.start + marks.after_start
    if _is_harmony(template):
        return HARMONY, HARMONY.start
    raise ConfigError(
        "the judge's chat template knows no thinking (of the forms <think>, [THINK], <seed:think>, <mm:think>, <|channel>thought and harmony): write "
        "thinking: false"
    )


def thinking_kwargs(thinking: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables for a chat template: what families call thinking, and the user's own."""
    named = {"enable_thinking": thinking, "thinking": thinking}
    return {**given, **named} if thinking else {**named, **given}


def _is_harmony(template: str) -> bool:
    return "<|channel|>" in template and "<|message|>" in template


def without_thought(prompt: str, template: str = "") -> str:
    """Close the thinking that a template opens whatever it is told, as others do it when thinking is off."""
    if _is_harmony(template) and prompt.endswith("<|start|>assistant"):
        return prompt + HARMONY.after_end.removeprefix("<|start|>assistant")
    bare = prompt.rstrip()
    for marks in TAGS:
        if bare.endswith(marks.start):
            return f"{bare}\n\n{marks.end}\n\n"
    return prompt
