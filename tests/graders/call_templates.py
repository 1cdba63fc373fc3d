"""Tool calls as the chat templates of model families write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Made = tuple[str, Mapping[str, Any]]
"""A call's name and arguments."""
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "text": {"type": "string"},
        "days": {"type": "integer"},
        "ratio": {"type": "number"},
        "metric": {"type": "boolean"},
        "tags": {"type": "array"},
        "place": {"type": "object"},
        "nothing": {"type": "null"},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
    for name in ("weather", "shop.find")
]
CALLS: Mapping[str, Sequence[Made]] = {
    "text": [("weather", {"city": "Paris"})],
    "two": [("weather", {"city": "Paris"}), ("shop.find", {"days": 3, "ratio": 0.5})],
    "numbers": [("weather", {"days": -12, "ratio": 1e-7, "metric": True})],
    "texts like numbers": [("weather", {"city": "75001", "text": "true"})],
    "lists": [("shop.find", {"tags": ["a, b", 'c"d', 3, False], "place": {"x": {"y": [1.5]}, "street": "Rue d'Ulm"}})],
    "lines": [("weather", {"text": "one\n  two\n\nthree: [4], {5} (6) 'seven' \"eight\" <b>é中</b>"})],
}  # fmt: skip


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _object(call: Made, key: str = "arguments") -> str:
    return json.dumps({"name": call[0], key: call[1]}, ensure_ascii=False)


def _list(calls: Sequence[Made]) -> str:
    return f"[{', '.join(map(_object, calls))}]"


def _bare(value: Any) -> str:
    """A value where the format has no quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _qwen(call: Made) -> str:
    values = "".join(f"<parameter={key}>\n{_bare(value)}\n</parameter>\n" for key, value in call[1].items())
    return f"<function={call[0]}>\n{values}</function>"


def _glm(call: Made) -> str:
    values = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{_bare(value)}</arg_value>\n" for key, value in call[1].items()
    )
    return f"<tool_call>{call[0]}\n{values}</tool_call>"


def _invoke(call: Made, prefix: str = "", typed: bool = False) -> str:
    values = "".join(
        f'<{prefix}parameter name="{key}"'
        + (f' string="{str(isinstance(value, str)).lower()}"' if typed else "")
        + f">{_bare(value)}</{prefix}parameter>\n"
        for key, value in call[1].items()
    )
    return f'<{prefix}invoke name="{call[0]}">\n{values}</{prefix}invoke>'


def _gemma(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_gemma(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma, value)) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


def _python(calls: Sequence[Made], between: str = ", ") -> str:
    return between.join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in calls
    )


def _deepseek(call: Made, *, fenced: bool) -> str:
    inner = (
        f"function<｜tool▁sep｜>{call[0]}\n```json\n{_json(call[1])}\n```"
        if fenced
        else f"{call[0]}<｜tool▁sep｜>{_json(call[1])}"
    )
    return f"<｜tool▁call▁begin｜>{inner}<｜tool▁call▁end｜>"


def _each(calls: Sequence[Made], write: Callable[[Made], str], between: str = "\n") -> str:
    return between.join(map(write, calls))


TEMPLATES: Mapping[str, Callable[[Sequence[Made]], str]] = {
    "hermes": lambda calls: _each(calls, lambda call: f"<tool_call>\n{_object(call)}\n</tool_call>"),
    "toolrl": lambda calls: f"<tool_call>\n{_each(calls, _object)}\n</tool_call>",
    "qwen3_coder": lambda calls: _each(calls, lambda call: f"<tool_call>\n{_qwen(call)}\n</tool_call>"),
    "qwen3_coder without the tag": lambda calls: _each(calls, _qwen),
    "glm45": lambda calls: _each(calls, _glm),
    "minimax_m2": lambda calls: f"<minimax:tool_call>\n{_each(calls, _invoke)}\n</minimax:tool_call>",
    "deepseek_v32": lambda calls: (
        f"<｜DSML｜function_calls>\n{_each(calls, lambda call: _invoke(call, '｜DSML｜', typed=True))}\n</｜DSML｜function_calls>"
    ),
    "deepseek_v41": lambda calls: (
        f"<｜DSML｜ calls>\n{_each(calls, lambda call: _invoke(call, '｜DSML｜ ', typed=True))}\n</｜DSML｜ calls>"
    ),
    "mistral": lambda calls: _each(calls, lambda call: f"[TOOL_CALLS]{call[0]}[ARGS]{_json(call[1])}", ""),
    "mistral, a list": lambda calls: f"[TOOL_CALLS] {_list(calls)}",
    "mistral, with ids": lambda calls: _each(
        calls, lambda call: f"[TOOL_CALLS]{call[0]}[CALL_ID]9xK2c0aQz[ARGS]{_json(call[1])}", ""
    ),
    "deepseek_v3": lambda calls: (
        f"<｜tool▁calls▁begin｜>{_each(calls, lambda call: _deepseek(call, fenced=True))}<｜tool▁calls▁end｜>"
    ),
    "deepseek_v31": lambda calls: (
        f"<｜tool▁calls▁begin｜>{_each(calls, lambda call: _deepseek(call, fenced=False), '')}<｜tool▁calls▁end｜>"
    ),
    "kimi_k2": lambda calls: "<|tool_calls_section_begin|>"
    + "".join(
        f"<|tool_call_begin|>functions.{name}:{i}<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
        for i, (name, arguments) in enumerate(calls)
    )
    + "<|tool_calls_section_end|>",
    "gpt-oss": lambda calls: _each(
        calls,
        lambda call: (
            "<|start|>assistant<|channel|>commentary "
            f"to=functions.{call[0]} <|constrain|>json<|message|>{_json(call[1])}<|call|>"
        ),
        "",
    ),
    "gpt-oss, the recipient first": lambda calls: _each(
        calls,
        lambda call: (
            f"<|start|>assistant to=functions.{call[0]}<|channel|>commentary json<|message|>{_json(call[1])}<|call|>"
        ),
        "",
    ),
    "gpt-oss without special tokens": lambda calls: _each(
        calls, lambda call: f"assistantcommentary to=functions.{call[0]} json{_json(call[1])}", ""
    ),
    "gemma4": lambda calls: _each(
        calls, lambda call: f"<|tool_call>call:{call[0]}{_gemma(call[1])}<tool_call|>", ""
    ),
    "llama3_json": lambda calls: _each(calls, lambda call: _object(call, "parameters"), "; "),
    "llama3_json after the tag": lambda calls: (
        f"<|python_tag|>{_each(calls, lambda call: _object(call, 'parameters'), '; ')}<|eom_id|>"
    ),
    "llama3, functions": lambda calls: _each(calls, lambda call: f"<function={call[0]}>{_json(call[1])}</function>"),
    "granite": lambda calls: f"<|tool_call|>{_list(calls)}",
    "phi4_mini_json": lambda calls: f"functools{_list(calls)}",
    "jamba": lambda calls: f"<tool_calls>{_list(calls)}</tool_calls>",
    "hunyuan_a13b": lambda calls: f"<tool_calls>{_list(calls)}</tool_calls>",
    "xlam": _list,
    "xlam in a fence": lambda calls: f"```json\n{_list(calls)}\n```",
    "openai's message": lambda calls: json.dumps(
        {
            "tool_calls": [
                {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": _json(arguments)}}
                for i, (name, arguments) in enumerate(calls)
            ]
        }
    ),
    "only names and arguments": lambda calls: _each(calls, lambda call: f"{call[0]}\n{_json(call[1])}"),
    "kimi_k2 without special tokens": lambda calls: "".join(
        f"functions.{name}:{i}{_json(arguments)}" for i, (name, arguments) in enumerate(calls)
    ),
    "pythonic": lambda calls: f"[{_python(calls)}]",
    "llama4_pythonic": lambda calls: f"<|python_start|>[{_python(calls)}]<|python_end|>",
    "lfm2": lambda calls: f"<|tool_call_start|>[{_python(calls)}]<|tool_call_end|>",
    "olmo3": lambda calls: f"<function_calls>\n{_python(calls, chr(10))}\n</function_calls>",
}  # fmt: skip
