"""Rules about a response's parts: a box, code that parses, a script, tool calls."""

from __future__ import annotations

import ast
import json
import re
import tomllib
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from judgekit.errors import ConfigError, RolloutError, did_you_mean, reads_rollout
from judgekit.graders.protocol import Per, Where
from judgekit.graders.rules.agents.trajectory import by_turn, read_trajectory
from judgekit.graders.rules.calls import Call, Untyped
from judgekit.graders.rules.committed import commitment, last_box
from judgekit.graders.rules.format.json_format import loads, may_take_long, misfit, schema_problem
from judgekit.graders.rules.rule import (
    Rule,
    at_least,
    code_blocks,
    needs,
    one_of,
    share,
)
from judgekit.graders.rules.stored import as_python, without_nulls
from judgekit.graders.rules.thoughts import after_think
from judgekit.graders.rules.work import Paced
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up


class Boxed(Rule):
    """Scores 1 if the response, after its thinking, has an answer in `\\boxed{…}`, else 0.

    Different boxes side by side, and a box that is taken back, are no answer. *once*: more than one box scores 0. *at_end*: only punctuation and math signs may follow.

    Source: the answer format of MATH (Hendrycks et al. 2021, arXiv:2103.03874; `last_boxed_only_string`).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response",)
    abstains = "never"
    only_form = True
    inline_limit = 1_000_000
    timeout_s = 5.0

    def __init__(self, *, once: bool = False, at_end: bool = False, name: str = "boxed") -> None:
        self.name = name
        self.once = once
        self.at_end = at_end

    def grade(self, rollout: Rollout, /) -> Grade:
        text = after_think(rollout.response)
        if text is None:
            return Graded(0.0, "the thinking never ends")
        box = last_box(text)
        if box is None or not text[slice(*box)].strip():
            return Graded(0.0, "nothing is boxed")
        marked = commitment(text, lambda part: "".join(part.split()), only="boxed")
        if marked is not None and marked.text is None:
            return Graded(0.0, marked.why)
        if marked is not None and marked.claim is not None and marked.claim.kind != "boxed":
            return Graded(0.0, "the answer is taken back")
        if self.once and len(re.findall(r"\\f?box(?:ed)?\s{0,4}\{", text)) > 1:
            return Graded(0.0, "more than one answer is boxed")
        if self.at_end and not re.fullmatch(
            r"(?:[\s}$.,;:!)\]\\*_`\"'”’。！．、]|</answer>)*+", text[box[1] :]
        ):
            return Graded(0.0, "there is text after the box")
        return Graded(1.0)


def _python(code: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape is not a syntax error
        ast.parse(code)


def _yaml(code: str) -> None:
    import yaml

    for _ in yaml.safe_load_all(code):
        pass


_CHECKS: dict[str, Callable[[str], Any]] = {
    "json": loads,
    "python": _python,
    "toml": tomllib.loads,
    "yaml": _yaml,
}
_LANGUAGES = {
    "py": "python",
    "python3": "python",
    "python": "python",
    "json": "json",
    "toml": "toml",
    "yaml": "yaml",
    "yml": "yaml",
}


class CodeBlock(Rule):
    """Scores 1 if the response has a code block with correct syntax, else 0.

    *language*: "python", "json", "yaml", "toml", or "any": blocks in any language, though only those four are
    parsed. A fenced block without a name counts as *language*. *blocks*: "last" (the last block of the language
    decides), "all", or "any". *whole*: a response without a fence is treated as code. Parsing runs in a worker
    process, because deeply nested code can crash an interpreter.

    Source: `ast.parse`, as OpenJudge's `SyntaxCheckGrader`; the block as in open-r1's `extract_code`.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response",)
    abstains = "never"
    only_form = True
    where: Where = "process"

    def __init__(
        self,
        *,
        language: Literal["python", "json", "yaml", "toml", "any"] = "python",
        blocks: Literal["last", "all", "any"] = "last",
        whole: bool = False,
        timeout_s: float = 5.0,
        name: str = "code_block",
    ) -> None:
        one_of(name, "language", language, (*_CHECKS, "any"))
        one_of(name, "blocks", blocks, ("last", "all", "any"))
        self.name = name
        self.language = language
        self.blocks = blocks
        self.whole = whole
        self.timeout_s = timeout_s

    def grade(self, rollout: Rollout, /) -> Grade:
        text = after_think(rollout.response)
        if text is None:
            return Graded(0.0, "the thinking never ends")
        found = [
            (name, code)
            for language, code in code_blocks(text)
            if (name := _LANGUAGES.get(language, language) or self.language) == self.language
            or self.language == "any"
        ]
        if not found and self.whole and "```" not in text:
            found = [(self.language, text)]
        found = [(name, code) for name, code in found if code.strip()]
        if not found:
            return Graded(0.0, "there is no code block")
        problems = [_problem(name, code) for name, code in (found[-1:] if self.blocks == "last" else found)]
        wrong = [problem for problem in problems if problem is not None]
        right = not wrong if self.blocks != "any" else len(wrong) < len(problems)
        return Graded(1.0) if right else Graded(0.0, wrong[0][:200])


@reads_rollout
def _problem(language: str, code: str) -> str | None:
    """Return the syntax error; None if there is none, or the language is not parsed."""
    check = _CHECKS.get(language)
    if check is None:
        return None
    try:
        check(code)
    except (RecursionError, MemoryError, RolloutError):
        raise
    except Exception as error:  # every parser has its own errors
        return f"{language}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return None


SCRIPTS: Mapping[str, str] = {
    "Arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "Armenian": "\u0530-\u058f",
    "Bengali": "\u0980-\u09ff",
    "Cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Devanagari": "\u0900-\u097f\ua8e0-\ua8ff",
    "Georgian": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Gujarati": "\u0a80-\u0aff",
    "Gurmukhi": "\u0a00-\u0a7f",
    "Han": "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f",
    "Hangul": "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff",
    "Hebrew": "\u0590-\u05ff\ufb1d-\ufb4f",
    "Hiragana": "\u3041-\u309f",
    "Kannada": "\u0c80-\u0cff",
    "Katakana": "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0250-\u02af\u1e00-\u1eff\u2c60-\u2c7f\ua722-\ua7ff\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a",
    "Malayalam": "\u0d00-\u0d7f",
    "Tamil": "\u0b80-\u0bff",
    "Telugu": "\u0c00-\u0c7f",
    "Thai": "\u0e00-\u0e7f",
}
"""Character ranges of the scripts (Unicode blocks)."""
LANGUAGES: Mapping[str, tuple[str, ...]] = {
    "ar": ("Arabic",), "bg": ("Cyrillic",), "bn": ("Bengali",), "de": ("Latin",), "el": ("Greek",),
    "en": ("Latin",), "es": ("Latin",), "fa": ("Arabic",), "fi": ("Latin",), "fr": ("Latin",),
    "gu": ("Gujarati",), "he": ("Hebrew",), "hi": ("Devanagari",), "hy": ("Armenian",), "id": ("Latin",),
    "it": ("Latin",), "ja": ("Hiragana", "Katakana", "Han"), "ka": ("Georgian",), "kn": ("Kannada",),
    "ko": ("Hangul", "Han"), "ml": ("Malayalam",), "mr": ("Devanagari",), "ne": ("Devanagari",),
    "nl": ("Latin",), "pa": ("Gurmukhi",), "pl": ("Latin",), "pt": ("Latin",), "ru": ("Cyrillic",),
    "sw": ("Latin",), "ta": ("Tamil",), "te": ("Telugu",), "th": ("Thai",), "tr": ("Latin",),
    "uk": ("Cyrillic",), "ur": ("Arabic",), "vi": ("Latin",), "zh": ("Han",),
}  # fmt: skip
_LETTER = re.compile(r"[^\W\d_]")
_NOT_PROSE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?(?:\$\$|\Z)|\$[^$\n]*\$|\\\((?:(?!\\[()]).)*\\\)|\\\[(?:(?!\\[\[\]]).)*\\\]"
    r"|\\begin\{(?P<maths>(?:equation|align|gather|multline|eqnarray|math|cases|array|[a-zA-Z]?matrix)[a-z]*\*?)\}(?:(?!\\(?:begin|end)\{).)*\\end\{(?P=maths)\}"
    r"|\\(?:begin|end)\{[^}\n]{0,40}\}|\\[a-zA-Z]+|</?[A-Za-z][\w:.-]{0,40}\s?/?>|<[|｜][A-Za-z_▁]{2,30}[|｜]>|https?://\S+",
    re.DOTALL,
)


class Script(Rule):
    """Scores the share of letters in the wanted scripts, 0 to 1.

    *scripts*: names such as "Latin", "Han", "Cyrillic"; *language*: a code such as "zh" instead, which means its
    scripts. This can tell Chinese from English, but not German from English; for that use `Instructions`' language
    constraint. Japanese needs kana: Han alone is Chinese. *min_share*: score 1 from this share on and 0 below.
    *prose*: ignore code, formulas, tags, control tokens and addresses. *min_letters*: abstain on responses with fewer letters.

    Source: the language-consistency reward of DeepSeek-R1 (arXiv:2501.12948, section 2.3.2: the proportion of
    target-language words in the chain of thought), here by script and letter; Unicode's blocks.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response",)
    abstains = "the response has too few letters"
    only_form = True
    dodge = "writes too few letters"
    inline_limit = 60_000
    timeout_s = 5.0

    def __init__(
        self,
        scripts: Sequence[str] | str = (),
        *,
        language: str | None = None,
        min_share: float | None = None,
        prose: bool = True,
        min_letters: int = 1,
        name: str = "script",
    ) -> None:
        names = [scripts] if isinstance(scripts, str) else list(scripts)
        if bool(names) == (language is not None):
            raise ConfigError(f"{name}: give scripts, such as ['Latin'], or a language, such as 'zh'")
        if language is not None:
            if language not in LANGUAGES:
                raise ConfigError(f"{name}: unknown language {language!r}{did_you_mean(language, LANGUAGES)}")
            names = list(LANGUAGES[language])
        for script in names:
            one_of(name, "scripts", script, SCRIPTS)
        if min_share is not None:
            share(name, "min_share", min_share)
        at_least(name, "min_letters", min_letters, 1, whole=True)
        self.name = name
        self.scripts = tuple(names)
        self.language = language
        self.min_share = min_share
        self.prose = prose
        self.min_letters = min_letters
        self._wanted = re.compile("[" + "".join(SCRIPTS[script] for script in names) + "]")

    def grade(self, rollout: Rollout, /) -> Grade:
        text = _NOT_PROSE.sub(" ", rollout.response) if self.prose else rollout.response
        if not text.isascii():
            # in pieces: the time of one normalisation grows with the square of a run of combining marks
            text = "".join(unicodedata.normalize("NFC", text[i : i + 128]) for i in range(0, len(text), 128))
        letters = _LETTER.findall(text)
        if len(letters) < self.min_letters:
            return Abstained("the response has too few letters")
        wanted = len(self._wanted.findall("".join(letters)))
        part = min(wanted / len(letters), 1.0)
        if self.language == "ja" and not re.search("[\u3041-\u30ff]", text):
            part = 0.0
        score = part if self.min_share is None else float(part >= self.min_share)
        return Graded(score, f"{part:.0%} of the letters are {' or '.join(self.scripts)}")


class ToolCallFormat(Paced, Rule):
    """Scores the share of tool calls that are well formed, 0 to 1.

    A call is well formed if it has a name and its arguments are a JSON object, which only calls of a tool that is known
    to take none may leave out; if the tools are known, there must
    also be a tool of that name whose schema the arguments fit. *tools*: OpenAI tool definitions, or their dotted
    path in the rollout. *check*: "schema", "required" (only that no required argument is missing and none is
    unknown), or "none" (only names). *all_or_nothing*: 1 if every call is well formed, else 0. *without* a call:
    "abstain", or "zero" if there should be one. *per*: "turn" also says which share of each turn's calls is well formed. Also
    abstains if a tool's schema is not valid.

    Source: OpenAI's function-calling schema; the formats of models' chat templates (docs/answers.md); BFCL's AST checks.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("messages", "response", "extra.tools")
    abstains = (
        "no tool was called (unless without=zero), or the tools or a tool's schema are in no valid form"
    )
    only_form = True
    dodge = "calls no tool"
    inline_limit = 100_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        tools: Sequence[Mapping[str, Any]] | str = "extra.tools",
        check: Literal["schema", "required", "none"] = "schema",
        all_or_nothing: bool = False,
        without: Literal["abstain", "zero"] = "abstain",
        per: Per = "rollout",
        name: str = "tool_format",
    ) -> None:
        one_of(name, "per", per, get_args(Per))
        self.gives_turns = per == "turn"
        one_of(name, "check", check, ("schema", "required", "none"))
        one_of(name, "without", without, ("abstain", "zero"))
        if check == "schema":
            self.libraries = (*self.libraries, needs(name, "jsonschema", "json"))
        self.name = name
        self.path = tools if isinstance(tools, str) else None
        self.tools = None if isinstance(tools, str) else _tools(tools)
        self.where: Where = "process" if check == "schema" and may_take_long(self.tools) else "inline"
        if self.tools is not None and not self.tools:
            raise ConfigError(
                f"{name}: tools is a list of tool definitions with a name, or a path such as extra.tools"
            )
        self.check = check
        self.all_or_nothing = all_or_nothing
        self.without = without
        if without == "zero":
            self.dodge = ""

    def here(self, rollout: Rollout) -> Grade:
        calls = read_trajectory(rollout).calls
        if not calls:
            return (
                Abstained("no tool was called")
                if self.without == "abstain"
                else Graded(0.0, "no tool was called")
            )
        tools = self._known(rollout)
        if isinstance(tools, Abstained):
            return tools
        if self.check == "schema":
            for tool in {call.name for call in calls} & set(tools or ()):
                if (schema := (tools or {})[tool]) is not None and (problem := schema_problem(schema)):
                    return Abstained(f"the schema of {tool} is not valid: {problem}")
        found = [self._problem(call, tools) for call in calls]
        problems = [problem for problem in found if problem is not None]
        score = float(not problems) if self.all_or_nothing else 1.0 - len(problems) / len(calls)
        fine = [float(problem is None) for problem in found]
        turns = by_turn(rollout, calls, fine) if self.gives_turns else None
        return Graded(score, problems[0][:200] if problems else "", turns=turns)

    def _known(self, rollout: Rollout) -> dict[str, Any] | Abstained | None:
        """Return the tools that there are; None if that is not said."""
        if self.path is None:
            return self.tools
        value = as_python(look_up(rollout, self.path, None))
        tools = _tools(value)
        if value and not tools:
            return Abstained(f"the tools at {self.path} have no form that is read")
        return tools

    def _problem(self, call: Call, tools: Mapping[str, Any] | None) -> str | None:
        if not call.name:
            return "a call without a name"
        if not call.complete and not (tools and call.name in tools and not _takes(tools[call.name])):
            return f"{call.name}: the call has no arguments, not even {{}}"
        if not isinstance(call.arguments, Mapping):
            return f"{call.name}: the arguments are not a JSON object"
        if not tools:
            return None
        if call.name not in tools:
            return f"there is no tool {call.name!r}{did_you_mean(call.name, tools)}"
        schema = tools[call.name]
        if self.check == "none" or not isinstance(schema, Mapping):
            return None
        problem = _misnamed(call.arguments, schema)
        if problem is None and self.check == "schema":
            problem = misfit(_as_declared(call.arguments, schema), schema)
        return None if problem is None else f"{call.name}: {problem}"


def _as_declared(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, of which those without quotes are texts where the schema takes a text."""
    declared = schema.get("properties")

    def value(name: str, given: Any) -> Any:
        if not isinstance(given, Untyped):
            return given
        if not isinstance(declared, Mapping) or name not in declared:
            return given.read()
        alone = {**schema, "required": [], "properties": {name: declared[name]}}
        return str(given) if misfit({name: str(given)}, alone) is None else given.read()

    return {name: value(name, given) for name, given in arguments.items()}


def _misnamed(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """Return which argument is missing or unknown."""
    for name in schema.get("required") or ():
        if name not in arguments:
            return f"the argument {name!r} is missing"
    known = schema.get("properties")
    if isinstance(known, Mapping) and not schema.get("additionalProperties"):
        for name in arguments:
            if name not in known:
                return f"there is no argument {name!r}"
    return None


def _takes(schema: Any) -> bool:
    """Return whether a tool takes arguments."""
    return isinstance(schema, Mapping) and bool(schema.get("properties"))


_TYPES = {
    "any": None,
    "array": "array",
    "arraylist": "array",
    "bool": "boolean",
    "boolean": "boolean",
    "char": "string",
    "dict": "object",
    "double": "number",
    "float": "number",
    "hashmap": "object",
    "hashtable": "object",
    "int": "integer",
    "integer": "integer",
    "list": "array",
    "long": "integer",
    "none": "null",
    "null": "null",
    "number": "number",
    "object": "object",
    "str": "string",
    "string": "string",
    "tuple": "array",
}
"""JSON Schema's types, by the names that data sets use (BFCL: Python's, Java's and JavaScript's)."""


def _json_schema(schema: Any) -> Any:
    """Write the types of a tool's schema as JSON Schema does."""
    if isinstance(schema, list | tuple):
        return [_json_schema(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {
        key: value if key in ("enum", "default", "const") else _json_schema(value)
        for key, value in schema.items()
    }
    if isinstance(kind := schema.get("type"), str) and kind.lower() in _TYPES:
        del made["type"]
        if (known := _TYPES[kind.lower()]) is not None:
            made["type"] = known
    return made


def _tools(value: Any) -> dict[str, Any] | None:
    """Return the argument schemas by tool name; None if *value* defines no tools."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        return None
    found: dict[str, Any] = {}
    for tool in without_nulls(as_python(value)):
        declared = (
            next((tool[key] for key in _DECLARATIONS if key in tool), None)
            if isinstance(tool, Mapping)
            else None
        )
        if isinstance(declared, list | tuple):  # Gemini's
            found |= _tools(declared) or {}
            continue
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            given = next((function[key] for key in _SCHEMAS if key in function), None)
            found[function["name"]] = _json_schema(_whole(given))
    return found


_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "inputs")
"""Where a tool's schema stands: OpenAI's, Anthropic's, MCP's, smolagents'."""


def _whole(schema: Any) -> Any:
    """Make a schema of a mapping of parameters alone, as xLAM and smolagents have them; others are returned as they are."""
    if not isinstance(schema, Mapping) or not schema or isinstance(schema.get("properties"), Mapping):
        return schema
    if not all(
        isinstance(one, Mapping) and not {"type", "description"}.isdisjoint(one) for one in schema.values()
    ):
        return schema
    properties = {name: {**one, "type": _plain_type(one.get("type"))} for name, one in schema.items()}
    needed = [
        name
        for name, one in schema.items()
        if "default" not in one
        and one.get("nullable") is not True
        and "optional" not in str(one.get("type")).lower()
    ]
    return {"type": "object", "properties": without_nulls(properties), "required": needed}


def _plain_type(kind: Any) -> Any:
    """Read a type as Python writes it: "List[int], optional"; None where it says nothing."""
    if not isinstance(kind, str):
        return kind
    name = re.split(r"[\[,(]", kind)[0].strip().lower()
    return name if name in _TYPES else None
