"""Thinking as the chat templates of model families mark it, by the name of vLLM's reasoning parser."""

from __future__ import annotations

from collections.abc import Mapping

THOUGHT = "I think it is \\boxed{41}."
ANSWER = "The answer is \\boxed{42}."
THINKING: Mapping[str, tuple[str, str]] = {
    "deepseek_r1": ("<think>", "</think>"),
    "qwen3": ("<think>\n", "\n</think>\n\n"),
    "mistral": ("[THINK]", "[/THINK]"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "glm45": ("<think>", "</think>"),
    "kimi_k2": ("<think>", "</think>"),
    "olmo3": ("<think>", "</think>"),
    "nemotron_v3": ("<think>", "</think>"),
    "plamo3": ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    "cohere_command3": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "gpt-oss": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "gpt-oss, constrained": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    ),
    "gpt-oss without special tokens": ("analysis", "assistantfinal"),
    "longcat": ("<longcat_think>", "</longcat_think>"),
    "open thoughts": ("<|begin_of_thought|>", "<|end_of_thought|>"),
    "kimi vl": ("◁think▷", "◁/think▷"),
    "reasoning tags": ("<reasoning>", "</reasoning>"),
}
UNREAD_BY_VLLM = (
    "cohere_command3",
    "gpt-oss",
    "gpt-oss, constrained",
    "gpt-oss without special tokens",
    "longcat",
    "open thoughts",
    "kimi vl",
    "reasoning tags",
)
"""It has no parser for these, or one that asks the model's own tokenizer."""
