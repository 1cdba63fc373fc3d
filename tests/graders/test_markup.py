"""Boxes, code that parses, scripts, well-formed tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Graded, Rollout, RolloutError, errors
from judgekit.graders import Boxed, CodeBlock, Script, ToolCallFormat
from judgekit.graders.rules.format import markup


def score(grader: Any, response: str, **fields: Any) -> float | None:
    grade = grader.grade(Rollout(response=response, **fields))
    assert isinstance(grade, Graded | Abstained)
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("text", "plain", "once", "at_end"),
    [
        (r"\boxed{5}", 1, 1, 1),
        (r"It is $\boxed{5}$.", 1, 1, 1),
        (r"It is \boxed{\frac{1}{2}} in all", 1, 1, 0),
        (r"\boxed{5} or \boxed{6}", 0, 0, 0),
        (r"\boxed{41} \boxed{42} \boxed{43}", 0, 0, 0),
        (r"\boxed{5}, no, it is \boxed{6}", 1, 0, 1),
        (r"\boxed{5}. Wait, no, it's 6.", 0, 0, 0),
        (r"\boxed{}", 0, 0, 0),
        (r"\boxed{ }", 0, 0, 0),
        (r"\boxed{5", 0, 0, 0),
        ("5", 0, 0, 0),
        ("", 0, 0, 0),
        (r"<think>\boxed{5}</think>5", 0, 0, 0),
        (r"<think>x</think>\boxed{5}", 1, 1, 1),
        (r"<think>\boxed{5}", 0, 0, 0),
        (r"\fbox{5}", 1, 1, 1),
        (r"\boxed{犬}", 1, 1, 1),
        (r"\boxed{" * 50_000, 0, 0, 0),
        (r"\boxed{5} \boxed{5}", 1, 0, 1),
        (r"\boxed {5}", 1, 1, 1),
        (r"$$\boxed{5}$$", 1, 1, 1),
        ("boxed{5}", 0, 0, 0),
        (r"\boxed{\text{five}}\)", 1, 1, 1),
        (r"\boxed 5", 0, 0, 0),
        (r"\boxed{5} and then more, up to the same 5", 1, 1, 0),
        (r"5 is \boxed{5}", 1, 1, 1),
        (r"**Answer:** **\boxed{5}**", 1, 1, 1),
        (r"\(\boxed{5}\)。", 1, 1, 1),
        (r"\boxed{5}!", 1, 1, 1),
        (r"`\boxed{5}`", 1, 1, 1),
        (r"<answer>\boxed{5}</answer>", 1, 1, 1),
        (r"\boxed{5}?", 1, 1, 0),
    ],
)
def test_boxed(text: str, plain: float, once: float, at_end: float) -> None:
    assert score(Boxed(), text) == plain
    assert score(Boxed(once=True), text) == once
    assert score(Boxed(at_end=True), text) == at_end


def block(code: str, language: str = "python") -> str:
    return f"Here:\n```{language}\n{code}\n```\n"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (block("x = 1"), {}, 1),
        (block("x = "), {}, 0),
        (block("x = 1", "py"), {}, 1),
        (block("x = 1", ""), {}, 1),
        (block("x = 1", "Python"), {}, 1),
        (block("x = 1", "javascript"), {}, 0),
        (block("let x;", "javascript"), {"language": "any"}, 1),
        (block("x = ", "python"), {"language": "any"}, 0),
        (block("print('\\d')"), {}, 1),
        (block("# just a comment"), {}, 1),
        (block("   "), {}, 0),
        ("no code", {}, 0),
        ("x = 1", {"whole": True}, 1),
        ("x = 1", {}, 0),
        ("", {"whole": True}, 0),
        (block("x = ") + block("x = 1"), {}, 1),
        (block("x = 1") + block("x = "), {}, 0),
        (block("x = ") + block("x = 1"), {"blocks": "all"}, 0),
        (block("x = 1") + block("x = "), {"blocks": "any"}, 1),
        (block('{"a": 1}', "json"), {"language": "json"}, 1),
        (block("{a: 1}", "json"), {"language": "json"}, 0),
        (block("a: 1", "yml"), {"language": "yaml"}, 1),
        (block("a: [1", "yaml"), {"language": "yaml"}, 0),
        (block("a = 1", "toml"), {"language": "toml"}, 1),
        (block("a = ", "toml"), {"language": "toml"}, 0),
        ("```python\nx = 1", {}, 1),
        ("<think>" + block("x = 1") + "</think>no", {}, 0),
        (block("変数 = '🐕'"), {}, 1),
        (block("x\0"), {}, 0),
        (block("(" * 1000), {}, 0),
        (block("x = 1\n" * 20_000), {}, 1),
    ],
)
def test_code_blocks(text: str, options: Any, expected: float) -> None:
    assert score(CodeBlock(**options), text) == expected


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Hello there", {"scripts": "Latin"}, 1),
        ("Grüße, ça va?", {"scripts": ["Latin"]}, 1),
        ("你好", {"language": "zh"}, 1),
        ("你好 ab", {"language": "zh"}, 0.5),
        ("Hello", {"language": "zh"}, 0),
        ("Привет", {"language": "ru"}, 1),
        ("Привет ok", {"language": "ru"}, 0.75),
        ("これは犬です", {"language": "ja"}, 1),
        ("犬", {"language": "ja"}, 0),
        ("안녕하세요", {"language": "ko"}, 1),
        ("नमस्ते", {"language": "hi"}, 1),
        ("สวัสดี", {"language": "th"}, 1),
        ("مرحبا", {"language": "ar"}, 1),
        ("γειά", {"language": "el"}, 1),
        ("你好 `code` $x^2$ ```py\nabc\n```", {"language": "zh"}, 1),
        ("你好 abc", {"language": "zh", "prose": False}, 0.4),
        ("123 !?", {"language": "zh"}, None),
        ("", {"scripts": "Latin"}, None),
        ("🐕🐕", {"scripts": "Latin"}, None),
        ("你好吗 a", {"language": "zh", "min_share": 0.7}, 1),
        ("你好吗 ab", {"language": "zh", "min_share": 0.7}, 0),
        ("a" * 10**5, {"scripts": ["Latin", "Han"]}, 1),
        ("ok", {"scripts": "Latin", "min_letters": 3}, None),
        ("<think>\n你好\n</think>\n<answer>好</answer><|im_end|>", {"language": "zh"}, 1),
        ("你好<｜end▁of▁sentence｜>", {"language": "zh"}, 1),
        (r"你 \(x+y=10\) 好 \[xy=21\] 好 \boxed{3}", {"language": "zh"}, 1),
        ("你\n\\begin{align*}\nabc &= d\n\\end{align*}\n好", {"language": "zh"}, 1),
        ("\\begin{itemize} \\item 你好 \\end{itemize}", {"language": "zh"}, 1),
        ("\\begin{equation} a" * 2000, {"language": "zh"}, 0),
        ("In Markdown: \\[ 你好你好", {"scripts": "Latin"}, 10 / 14),
        ("\\( 你好", {"scripts": "Latin"}, 0),
        ("ok <|你好你好|>", {"scripts": "Latin"}, 1 / 3),
        ("x < y and 你好 > z", {"language": "zh"}, 0.25),
        ("<x 你好", {"language": "zh"}, 2 / 3),
    ],
)
def test_scripts(text: str, options: Any, expected: float | None) -> None:
    found = score(Script(**options), text)
    assert found == (expected if expected is None else pytest.approx(expected))


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
                "required": ["q"],
            },
        },
    },
    {"name": "stop"},
]


def call(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (call('{"name": "search", "arguments": {"q": "x"}}'), {}, 1),
        (call('{"name": "search", "arguments": {"q": "x", "n": 3}}'), {}, 1),
        (call('{"name": "search", "arguments": {"q": "x", "n": "3"}}'), {}, 0),
        (call('{"name": "search", "arguments": {"q": "x", "n": "3"}}'), {"check": "required"}, 1),
        (call('{"name": "search", "arguments": {"n": 3}}'), {}, 0),
        (call('{"name": "search", "arguments": {"n": 3}}'), {"check": "none"}, 1),
        (call('{"name": "search", "arguments": {"q": "x", "z": 1}}'), {}, 0),
        (call('{"name": "serch", "arguments": {"q": "x"}}'), {}, 0),
        (call('{"name": "serch", "arguments": {"q": "x"}}'), {"check": "none"}, 0),
        (call('{"name": "search", "arguments": "{\\"q\\": \\"x\\"}"}'), {}, 1),
        (call('{"name": "search", "arguments": [1]}'), {}, 0),
        (call('{"name": "search"'), {}, 0),
        (call(""), {}, 0),
        (call('{"name": "stop"}'), {}, 1),
        (call('{"name": "stop", "arguments": {"any": 1}}'), {}, 1),
        (call('{"name": "stop"}') + call("{bad}"), {}, 0.5),
        (call('{"name": "stop"}') + call("{bad}"), {"all_or_nothing": True}, 0),
        ("no call", {}, None),
        ("no call", {"without": "zero"}, 0),
        ("", {}, None),
        (call('{"name": "search", "arguments": {"q": "犬"}}'), {}, 1),
    ],
)
def test_tool_call_format(text: str, options: Any, expected: float | None) -> None:
    assert score(ToolCallFormat(tools=TOOLS, **options), text) == expected
    assert score(ToolCallFormat(**options), text, extra={"tools": TOOLS}) == expected


def test_unknown_tools_and_bad_schemas() -> None:
    text = call('{"name": "search", "arguments": {"q": 1}}')
    assert score(ToolCallFormat(), text) == 1
    bad = [{"name": "search", "parameters": {"type": "objekt"}}]
    assert score(ToolCallFormat(), text, extra={"tools": bad}) is None
    assert score(ToolCallFormat(), text, extra={"tools": "["}) is None


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: CodeBlock(language="pyton"), "did you mean 'python'"),  # type: ignore[arg-type]
        (lambda: CodeBlock(blocks="first"), "blocks is one of"),  # type: ignore[arg-type]
        (lambda: Script(), "give scripts"),
        (lambda: Script("Latn"), "did you mean 'Latin'"),
        (lambda: Script(language="xx"), "unknown language 'xx'"),
        (lambda: Script("Latin", language="zh"), "give scripts"),
        (lambda: Script("Latin", min_share=2), "min_share is a number from 0 to 1"),
        (lambda: ToolCallFormat(check="all"), "check is one of"),  # type: ignore[arg-type]
        (lambda: ToolCallFormat(tools=[{}]), "a list of tool definitions"),
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


@pytest.mark.parametrize("left", [True, False])
def test_a_process_without_memory_is_no_fault_of_the_rollouts(
    left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's parser raises MemoryError for what is nested too deeply, too: that one is the rollout's."""

    def full(code: str) -> None:
        raise MemoryError

    monkeypatch.setitem(markup._CHECKS, "python", full)
    monkeypatch.setattr(errors, "out_of_memory", lambda: not left)
    with pytest.raises(RolloutError if left else MemoryError):
        CodeBlock().grade(Rollout(response="```python\nx\n```"))
    assert not real_out_of_memory()


real_out_of_memory = errors.out_of_memory


PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}],
        [{"name": "f", "input_schema": PARAMETERS}],
        [{"name": "f", "inputSchema": PARAMETERS}],
        [{"functionDeclarations": [{"name": "f", "parameters": PARAMETERS}]}],
        [
            {
                "name": "f",
                "parameters": {
                    "city": {"description": "x", "type": "str"},
                    "n": {"type": "int", "default": 3},
                },
            }
        ],
        [{"name": "f", "parameters": {"city": {"type": "str"}, "n": {"type": "int, optional"}}}],
        [{"name": "f", "inputs": {"city": {"type": "string"}, "n": {"type": "integer", "nullable": True}}}],
    ],
)
def test_tools_in_the_forms_of_others(tools: Any) -> None:
    def graded(arguments: str, name: str = "f") -> float | None:
        text = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
        return score(ToolCallFormat(), text, extra={"tools": tools})

    assert graded('{"city": "Paris", "n": 3}') == graded('{"city": "Paris"}') == 1
    assert graded("{}") == graded('{"city": 5}') == graded('{"city": "Paris", "z": 1}') == 0
    assert graded('{"city": "Paris", "n": "three"}') == graded("{}", "g") == 0


def test_a_parameter_of_no_known_type_may_be_anything() -> None:
    tools = [
        {
            "name": "f",
            "parameters": {"when": {"type": "Datetime", "description": "x"}, "type": {"type": "List[int]"}},
        }
    ]
    for arguments, right in (
        ('{"when": 5, "type": [1]}', 1),
        ('{"when": "x", "type": 1}', 0),
        ('{"when": 1}', 0),
    ):
        text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
        assert score(ToolCallFormat(), text, extra={"tools": tools}) == right


@pytest.mark.parametrize("tools", [{"f": PARAMETERS}, [5], "no JSON", [{"title": "f"}]])
def test_tools_that_cannot_be_read_are_told(tools: Any) -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    grade = ToolCallFormat().grade(Rollout(response=text, extra={"tools": tools}))
    assert grade == Abstained("the tools at extra.tools have no form that is read")
