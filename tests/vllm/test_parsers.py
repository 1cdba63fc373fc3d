"""vLLM's own parsers read the calls and the thinking of each chat template as our rules do."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

from judgekit.graders.rules.calls import Call, typed
from judgekit.graders.rules.thoughts import after_think
from judgekit.graders.rules.written_calls import written
from tests.graders.call_templates import CALLS, SCHEMA, TEMPLATES, TOOLS
from tests.graders.thinking_templates import ANSWER, THINKING, THOUGHT
from tests.graders.thinking_templates import UNREAD_BY_VLLM as NO_PARSER

PARSERS = {
    template: template
    for template in (
        "hermes", "qwen3_coder", "glm45", "minimax_m2", "deepseek_v32", "deepseek_v41", "mistral", "deepseek_v3", "deepseek_v31", "kimi_k2", "gemma4",
        "llama3_json", "granite", "phi4_mini_json", "jamba", "hunyuan_a13b", "xlam", "pythonic", "lfm2", "olmo3",
    )
} | {"llama3_json after the tag": "llama3_json", "qwen3_coder without the tag": "qwen3_coder", "llama4_pythonic": "llama4_pythonic"}  # fmt: skip


UNREAD_BY_VLLM = {
    ("phi4_mini_json", "lists"): "it stops at the first closing bracket",
    ("phi4_mini_json", "lines"): "it stops at the first closing bracket",
    ("pythonic", "lists"): "it reads no quotes of the other kind in a list",
    ("llama4_pythonic", "lists"): "it reads no quotes of the other kind in a list",
    ("olmo3", "lists"): "it reads no quotes of the other kind in a list",
    ("gemma4", "lists"): "it makes texts of the numbers in a list",
}


class Tokenizer:
    """What the parsers ask of a tokenizer before they read a text: that it has their special tokens."""

    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = Vocabulary()

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.vocabulary[token]

    def encode(self, text: str, **more: Any) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: list[int], **more: Any) -> str:
        return "".join(map(chr, ids))


class Vocabulary(defaultdict[str, int]):
    """Has every token that it is asked for."""

    def __missing__(self, token: str) -> int:
        self[token] = 2_000_000 + len(self)
        return self[token]

    def __contains__(self, token: object) -> bool:
        return True

    def get(self, token: str, default: Any = None) -> Any:
        return self[token]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("template", PARSERS)
def test_vllm_reads_the_same_calls(template: str, calls: str) -> None:
    request = ChatCompletionRequest(
        model="judge", messages=[{"role": "user", "content": "?"}], tools=TOOLS, tool_choice="auto"
    )
    text = TEMPLATES[template](CALLS[calls])
    parser = ToolParserManager.get_tool_parser(PARSERS[template])(Tokenizer(), tools=request.tools)
    found = parser.extract_tool_calls(text, request).tool_calls
    theirs = [(call.function.name, json.loads(call.function.arguments)) for call in found]
    ours = [(call.name, typed(call.arguments, SCHEMA)) for call in written(text) if isinstance(call, Call)]
    assert (ours == theirs) is ((template, calls) not in UNREAD_BY_VLLM)


@pytest.mark.parametrize("template", [name for name in THINKING if name not in NO_PARSER])
def test_vllm_takes_the_same_for_thinking(template: str) -> None:
    opens, ends = THINKING[template]
    request = ChatCompletionRequest(model="judge", messages=[{"role": "user", "content": "?"}])
    parser = ReasoningParserManager.get_reasoning_parser(template)(Tokenizer())
    text = f"{opens}{THOUGHT}{ends}{ANSWER}"
    thought, rest = parser.extract_reasoning(text, request)
    assert (thought.strip(), rest.strip()) == (THOUGHT, ANSWER)
    assert (after_think(text) or "").strip() == rest.strip()
