"""Reads tool calls as models write them into their text, and the results between them.

| format | models |
|---|---|
| `<tool_call>{…}</tool_call>`, in ToolRL's prompts with an object in each line | Hermes, Qwen 2.5 and 3 |
| `<tool_call><function=f><parameter=a>…</parameter></function></tool_call>`, with or without the outer tag | Qwen 3 Coder and later, Seed-OSS, Nemotron |
| `<tool_call>f<arg_key>a</arg_key><arg_value>…</arg_value></tool_call>` | GLM 4.5 and later |
| `<invoke name="f"><parameter name="a">…</parameter></invoke>`, with any prefix in the tags | MiniMax M2, DeepSeek V3.2 and V4, Step 3 |
| `[TOOL_CALLS][{…}]`, `[TOOL_CALLS]f[ARGS]{…}` | Mistral |
| `<｜tool▁call▁begin｜>…<｜tool▁sep｜>…<｜tool▁call▁end｜>` | DeepSeek R1, V3 and V3.1 |
| `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` | Kimi K2 |
| `to=functions.f …<|message|>{…}` | gpt-oss |
| `<|tool_call>call:f{…}<tool_call|>` | Gemma 4 |
| `<|python_tag|>{…}`, `<function=f>{…}</function>`, or a reply that is nothing but `{"name": …, "parameters": …}` | Llama 3 |
| `<|tool_call|>[{…}]`, `<tool_calls>[{…}]`, `functools[{…}]`, or a reply that is nothing but `[{…}]` | Granite, Phi 4, Jamba, Hunyuan, xLAM |
| a reply that is nothing but `f{…}` | GLM 4, and those of the above that lose their special tokens when they are decoded |
| a reply that is nothing but `[f(a=1), g()]`, or that after `<|python_start|>`, `<|tool_call_start|>` or `<function_calls>` | Llama 4, LFM2, OLMo 3, BFCL's prompts |
| `<search>…</search>`, `Action: f[…]`, `Action:` with `Action Input:` | Search-R1, ReAct |

Where a format has no quotes, an argument is `Untyped`. What begins as a call and cannot be read is a call without a name.
Formats are read as vLLM's tool parsers read them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from judgekit.errors import out_of_memory, reads_rollout
from judgekit.graders.rules.calls import Call, Untyped, call_of, is_call, parsed_arguments
from judgekit.graders.rules.thoughts import without_end

MAX_CODE_CHARS = 20_000
"""Calls written as code that is longer are not read."""
MARKS = (
    "<tool_call>", "<function=", "invoke name=", "[TOOL_CALLS]", "<｜tool▁call▁begin｜>", "<|tool_call_begin|>",
    "to=functions.", "<|tool_call>", "<|python_tag|>", "<|tool_call|>", "<tool_calls>", "functools[",
    "<|python_start|>", "<|tool_call_start|>", "<function_calls>",
)  # fmt: skip
"""With what calls begin, besides those of a reply that is nothing else."""
_BEGINNINGS = (
    *MARKS, "<search>", "<python>", "<code>", "<browse>", "<tool_response>", "<information>", "<observation>",
    "Action", "Observation",
)  # fmt: skip
_ACTION_ENDS = r"(?=\n[ \t*]*+(?:Observation|Thought|Action|Final[ \t]*+Answer)\b[^\n:]{0,6}:|\Z)"
_FORM = re.compile(
    rf"""
    <tool_call>(?P<tagged>.*?)(?:</tool_call>|\Z)
  | <function=(?P<function>[^<>\n]{{1,200}})>(?P<body>.*?)(?:</function>|\Z)
  | <(?P<prefix>[\w:｜]{{0,30}}\ ?)invoke\ name="(?P<invoked>[^"\n]{{1,200}})">(?P<parameters>.*?)(?:</(?P=prefix)invoke>|\Z)
  | <｜tool▁call▁begin｜>(?P<deepseek>.*?)(?:<｜tool▁call▁end｜>|\Z)
  | <\|tool_call_begin\|>(?P<kimi>.*?)(?:<\|tool_call_end\|>|\Z)
  | <\|tool_call>call:(?P<gemma>.*?)(?:<tool_call\|>|<turn\|>|\Z)
  | \[TOOL_CALLS\]\s*+(?P<mistral>[\w.-]{{1,200}}+)(?:\[CALL_ID\]\w{{0,50}}+)?(?:\[ARGS\])?+
  | \bto=functions\.(?P<channel>[\w.-]{{1,200}}+)(?:(?!<\|message\|>)[^\n{{]){{0,100}}+(?:<\|message\|>)?+
  | (?P<data>\[TOOL_CALLS\] | <\|python_tag\|> | <\|tool_call\|> | <tool_calls>(?=\s*+[\[{{]) | \bfunctools(?=\[\{{))
  | (?:<\|python_start\|>|<\|tool_call_start\|>|<function_calls>(?!\s*+<))(?P<code>.*?)
      (?:<\|python_end\|>|<\|tool_call_end\|>|</function_calls>|\Z)
  | <(?P<tag>search|python|code|browse)>(?P<query>.*?)(?:</(?P=tag)>|\Z)
  | <(?:tool_response|information|observation)>(?P<seen>.*?)(?:</(?:tool_response|information|observation)>|\Z)
  | ^[ \t*]*+Action(?:[ \t]*+\d+)?[ \t]*+:[ \t*]*+(?P<name>[^\s\[(:{{](?:[^\n\[(]{{0,99}}?[^\s\[(*`])??)[ \t*`]*+
      (?:\[(?P<bracket>[^\n]*)\][ \t*.]*+$ | \((?P<paren>[^\n]*)\)[ \t*.]*+$
       | \n[ \t*]*+Action[ \t]*+Input(?:[ \t]*+\d+)?[ \t]*+:[ \t*]*+(?P<input>.*?){_ACTION_ENDS}
       | $)
  | ^[ \t*]*+Observation(?:[ \t]*+\d+)?[ \t]*+:[ \t*]*+(?P<observation>.*?){_ACTION_ENDS}
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_FINISH = {"finish", "final answer", "none", "n/a", "answer"}


def written(text: str, turn: int = 0) -> Iterator[Call | str]:
    """Yield the calls in a text, in order, and as texts the results that stand between them."""
    text = without_end(text)
    if whole := nothing_else(text, turn):
        yield from whole
        return
    if not any(beginning in text for beginning in _BEGINNINGS):  # which is found sooner than a form
        return
    at = 0
    while (match := _FORM.search(text, at)) is not None:
        at = match.end()
        if (result := match["seen"] if match["observation"] is None else match["observation"]) is not None:
            yield result.strip()
        elif match["name"] is not None:
            yield from _action(match, turn)
        elif match["tag"]:
            yield Call(match["tag"], match["query"].strip(), turn=turn)
        elif match["data"]:
            calls, at = _data(text, at, turn)
            yield from calls
        elif name := match["mistral"] or match["channel"]:
            value, at = _value(text, at)
            yield Call(name, value, turn=turn)
        else:
            yield from _marked(match, turn)


def _action(match: re.Match[str], turn: int) -> list[Call]:
    """Return ReAct's call, unless it is the one that ends."""
    name = match["name"].strip(" \t`*")
    if name.lower() in _FINISH:
        return []
    if match["paren"] is not None and (calls := in_python(f"{name}({match['paren']})")):
        ((called, values, named), *more) = calls
        if not values and not more:  # "f(city='Paris')"
            return [Call(called, named, turn=turn)]
    given = next((g for g in (match["bracket"], match["paren"], match["input"]) if g is not None), "")
    return [Call(name, parsed_arguments(given.strip("` \n")), turn=turn)]


def _marked(match: re.Match[str], turn: int) -> Iterator[Call]:
    """Yield the calls of a form that ends where its mark says so."""
    if match["tagged"] is not None:
        yield from _tagged(match["tagged"].strip(), turn)
    elif match["function"] is not None:
        yield _function(match["function"], match["body"], turn)
    elif match["invoked"] is not None:
        yield Call(match["invoked"].strip(), _parameters(match["parameters"]), turn=turn)
    elif match["deepseek"] is not None:
        yield _deepseek(match["deepseek"], turn)
    elif match["kimi"] is not None:
        name, _, arguments = match["kimi"].partition("<|tool_call_argument_begin|>")
        name = re.sub(r":\d{1,9}\Z", "", name.strip().removeprefix("functions."))
        yield Call(name, parsed_arguments(arguments), turn=turn)
    elif match["gemma"] is not None:
        name, _, arguments = match["gemma"].partition("{")
        yield Call(name.strip(), _gemma("{" + arguments), turn=turn)
    else:
        code = match["code"].strip()
        calls = _python(code, turn) if code else []
        yield from [Call("", code, turn=turn)] if calls is None else calls


@reads_rollout
def _tagged(text: str, turn: int) -> list[Call]:
    """Return what stands in a `<tool_call>`: JSON, Qwen's functions, or GLM's keys and values."""
    if text[:1] in ("{", "["):
        calls, end = _data(text, 0, turn)
        read = end == len(text) and text[-1] in "}]" and all(call.name for call in calls)
        return calls if read else [Call("", text, turn=turn)]
    if found := [_function(match["name"], match["body"], turn) for match in _FUNCTION.finditer(text)]:
        return found
    name, *pairs = text.split("<arg_key>")
    if not re.fullmatch(r"[A-Za-z_][\w.-]{0,199}", name.strip()):
        return [Call("", text, turn=turn)]
    # GLM writes no brackets around no arguments
    return [Call(name.strip(), dict(map(_pair, pairs)), turn=turn, complete=bool(pairs))]


_FUNCTION = re.compile(r"<function=(?P<name>[^<>\n]{1,200})>(?P<body>.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(
    r"<[\w:｜]{0,30} ?parameter(?:=(?P<short>[^<>\n]{1,200})|\ name=\"(?P<name>[^\"\n]{1,200})\"(?:\ string=\"(?P<string>true|false)\")?)>"
    r"(?P<value>.*?)(?:</[\w:｜]{0,30} ?parameter>|(?=<[\w:｜]{0,30} ?parameter[= ])|\Z)",
    re.DOTALL,
)


def _pair(text: str) -> tuple[str, Untyped]:
    key, _, value = text.partition("</arg_key>")
    _, _, value = value.partition("<arg_value>")
    value, _, _ = value.partition("</arg_value>")
    return key.strip(), Untyped(_unwrapped(value))


def _function(name: str, body: str, turn: int) -> Call:
    arguments = parsed_arguments(body) if body.lstrip().startswith("{") else _parameters(body)
    return Call(name.strip(), arguments, turn=turn)


def _parameters(text: str) -> Any:
    """Return the parameters in their tags; the text itself if it is something else."""
    found = {
        (match["short"] or match["name"]).strip(): _parameter(match) for match in _PARAMETER.finditer(text)
    }
    return found if found or not text.strip() else text.strip()


def _parameter(match: re.Match[str]) -> Any:
    value = _unwrapped(match["value"])
    if match["string"] is None:
        return Untyped(value)
    return value if match["string"] == "true" else Untyped(value).read()


def _unwrapped(value: str) -> str:
    """Return a value without the line ends with which templates surround it."""
    return value.removeprefix("\n").removesuffix("\n")


def _deepseek(text: str, turn: int) -> Call:
    name, _, rest = text.partition("<｜tool▁sep｜>")
    if not rest.lstrip().startswith("{"):  # a type stands before the name, and a fence around the arguments
        name, _, rest = rest.strip().partition("\n")
        rest = re.sub(r"\A\s*```\w*\s*|\s*```\s*\Z", "", rest)
    return Call(name.strip(), parsed_arguments(rest), turn=turn)


_JSON = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s;,]*+")


@reads_rollout
def _value(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value from *at* on, and where it ends; the rest of the line if there is none."""
    at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
    try:
        return _JSON.raw_decode(text, at)
    except ValueError as error:  # of a number that is too long, too
        end = text.find("\n", getattr(error, "pos", at))
        end = len(text) if end < 0 else end
        return text[at:end].strip(), end


def _data(text: str, at: int, turn: int) -> tuple[list[Call], int]:
    """Return the calls of the JSON values from *at* on, and where they end."""
    found: list[Call] = []
    while not found or text.startswith(("{", "["), at):
        start = at
        value, at = _value(text, at)
        found += _calls(value, turn) or [Call("", text[start:at].strip(), turn=turn)]
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
    return found, at


def _calls(data: Any, turn: int) -> list[Call]:
    """Return the calls of a JSON value: one, or a list of them; none if it is something else."""
    parts = data if isinstance(data, list) else [data]
    if not all(isinstance(part, Mapping) and is_call(part) for part in parts):
        return []
    return [call_of(part, turn) for part in parts]


_GEMMA = re.compile(
    r'<\|"\|>(?P<text>.*?)(?:<\|"\|>|\Z)|(?P<mark>[{}\[\],:])|(?P<bare>[^{}\[\],:<\s][^{}\[\],:<]*)',
    re.DOTALL,
)


@reads_rollout
def _gemma(text: str) -> Any:
    """Return Gemma's arguments, whose keys have no quotes and whose texts stand between `<|"|>`."""
    made = []
    for match in _GEMMA.finditer(text):
        if match["mark"]:
            made.append(match["mark"])
        else:
            bare = match["bare"].strip() if match["bare"] else None
            is_key = text[match.end() : match.end() + 1] == ":"
            value = match["text"] if bare is None else str(bare) if is_key else Untyped(bare).read()
            made.append(json.dumps(value))
    try:
        return json.loads("".join(made))
    except ValueError:
        return text


_FENCE = re.compile(r"```(?:json|tool_code|python)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


def nothing_else(text: str, turn: int = 0) -> list[Call]:
    """Return the calls of a reply that is nothing but calls; none if it is something else."""
    whole = without_end(text).strip()
    if (fenced := _FENCE.fullmatch(whole)) is not None:
        whole = fenced[1].strip()
    if whole[-1:] in ("]", ")") and _CODE.match(whole):
        return _python(whole, turn) or []
    if not (whole.startswith(("{", "[")) or _NAMED.match(whole)):
        return []
    found: list[Any] = []
    at = 0
    try:
        while at < len(whole):
            named = _NAMED.match(whole, at)
            value, at = _JSON.raw_decode(whole, named.end() if named else at)
            if named:
                value = {"name": named["name"], "arguments": value}
            elif isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
                value = value["tool_calls"]
            found += value if isinstance(value, list) else [value]
            at = _BETWEEN.match(whole, at).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return []
    return [call_of(part, turn) for part in found] if all(map(_is_plainly_a_call, found)) else []


_NAMED = re.compile(r"(?:functions\.)?(?P<name>[A-Za-z_][\w.-]{0,199})(?::\d{1,9})?\s*+(?=\{)")
_CODE = re.compile(r"(?:\[\s*)?[A-Za-z_][\w.]*\s*\(")


def _is_plainly_a_call(value: Any) -> bool:
    """Whether it has the keys of a call, and no others: it may be an answer in JSON."""
    function = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return False
    given = function.keys() & {"arguments", "parameters"}
    if len(given) != 1 or not (value.keys() | function.keys()) <= {"name", "id", "type", "function", *given}:
        return False
    return isinstance(parsed_arguments(function[given.pop()]), Mapping)


def _python(code: str, turn: int) -> list[Call] | None:
    """Return calls with named arguments, or None."""
    found = in_python(code)
    if found is None or any(values for _, values, _ in found):
        return None
    return [Call(name, named, turn=turn) for name, _, named in found]


def in_python(code: str) -> list[tuple[str, list[Any], dict[str, Any]]] | None:
    """Parse calls of literals, in a list or each in a line, such as `[sort('a.txt', reverse=True)]`; None if it is something else.

    Returns of each its name, the values without a name, and the named ones.
    """
    if len(code) > MAX_CODE_CHARS:
        return None
    try:
        lines = ast.parse(code).body
        found: list[tuple[str, list[Any], dict[str, Any]]] = []
        for line in lines:
            value = line.value if isinstance(line, ast.Expr) else None
            for call in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
                if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
                    return None  # **more
                name = ast.unparse(call.func)
                if not re.fullmatch(r"[\w.]+", name):
                    return None
                named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
                found.append((name, [ast.literal_eval(value) for value in call.args], named))
    except (SyntaxError, ValueError, TypeError, RecursionError):
        return None
    except MemoryError:  # of Python's parser, for what is nested too deeply
        if out_of_memory():
            raise
        return None
    return found
