"""How a model's thinking is recognised by its chat template."""

from __future__ import annotations

import pytest

from judgekit import ConfigError
from judgekit.judges import Sampling
from judgekit.judges.prompts.thinking_marks import marks_of, without_thought

QWEN = "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"
MAGISTRAL = "{{ '[THINK]' + m.thinking + '[/THINK]' }}"
SEED = "<seed:think>{{ m.reasoning_content }}</seed:think>"
MINIMAX = "{{ '<mm:think>' + m.reasoning + '</mm:think>' }}"
GEMMA = "{{ '<|channel>thought\\n' + m.reasoning + '<channel|>' }}"
HARMONY = "<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>"


@pytest.mark.parametrize(
    ("prompt", "template", "end", "opening"),
    [
        ("assistant\n", QWEN, "</think>", "<think>\n"),
        ("assistant\n<think>\n", "{{ '<think>' }}", "</think>", ""),  # the template opens it
        ("assistant\n<thinking>", "", "</thinking>", ""),
        ("[/INST]", MAGISTRAL, "[/THINK]", "[THINK]"),
        ("assistant\n", SEED, "</seed:think>", "<seed:think>\n"),
        ("assistant\n", MINIMAX, "</mm:think>", "<mm:think>\n"),
        ("<|turn>model\n", GEMMA, "<channel|>", "<|channel>thought\n"),
        ("<|start|>assistant", HARMONY, "<|end|>", "<|channel|>analysis<|message|>"),
    ],
)
def test_marks(prompt: str, template: str, end: str, opening: str) -> None:
    marks, opens = marks_of(prompt, template)
    assert (marks.end, opens) == (end, opening)


def test_a_template_without_thinking_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"knows no thinking .* thinking: false"):
        marks_of("assistant\n", "{{ m.content }}")
    assert without_thought("assistant\n") == "assistant\n"
    assert without_thought("assistant\n<think>\n") == "assistant\n<think>\n\n</think>\n\n"


def test_the_budget_is_a_number_of_tokens() -> None:
    with pytest.raises(ConfigError, match="thinking_tokens is at least 1, not 0"):
        Sampling(thinking_tokens=0)
