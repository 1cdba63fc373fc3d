"""Reads a trajectory: the tool calls, their arguments, and their results.

Supports the message formats that agents really use:

- OpenAI: `tool_calls` (arguments as JSON text or as a mapping), the older `function_call`, `role: tool`
  answers with or without `tool_call_id`, and the items of the Responses API (`function_call`,
  `function_call_output`).
- Anthropic: content blocks `tool_use` and `tool_result`.
- Text: `<tool_call>{…}</tool_call>` with `<tool_response>` (Hermes, Qwen), `<search>` with `<information>`
  (Search-R1), and ReAct's `Action: search[query]` or `Action:` / `Action Input:` with `Observation:`.
- Messages wrapped as `{"message": {…}}`, calls wrapped as `{"tool_call": {…}}`.

An answer belongs to the call whose id it names, else to the oldest call without an answer. Calls without answers and
answers without calls are kept. What is only drafted in thinking is no call; calls between thoughts are. If a rollout's messages have no assistant turn, its response is read instead.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from judgekit.errors import reads_rollout
from judgekit.graders.rules.stored import without_nulls
from judgekit.graders.rules.thoughts import without_thinking
from judgekit.types import ASSISTANTS, Rollout, content_text, policy_turns


@dataclass(slots=True, eq=False)
class Call:
    """One tool call."""

    name: str
    arguments: Any
    """A mapping, if they were one or JSON of one; else unchanged."""
    id: str = ""
    turn: int = 0
    """Index of the assistant's message."""
    answer: Observation | None = None
    complete: bool = True
    """Whether arguments were given at all, if only empty ones."""
    at: int = -1
    """Place of its message; -1: it stands in the response."""

    def key(self) -> str:
        """A key that equal calls share, regardless of argument order."""
        return f"{self.name}\0{canonical(self.arguments)}"


@dataclass(slots=True, eq=False)
class Observation:
    """One tool result."""

    text: str
    flag: bool | None = None
    """Whether it is marked as an error; None if it is not marked."""
    call: Call | None = None

    @property
    def failed(self) -> bool:
        """Whether it is an error, by its mark or else by its text."""
        return looks_like_an_error(self.text) if self.flag is None else self.flag


@dataclass(slots=True)
class Trajectory:
    """The calls and the observations of one rollout, each in order."""

    calls: list[Call] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    turns: int = 0
    """Number of assistant messages."""


ERROR_START = re.compile(
    r"""\s*[\["'(<*_]*\s*(?:
        (?:(?:fatal|runtime|internal|server|execution|tool|http|api|syntax|unknown|unexpected|an?|the)[ ]+)*
            (?:error|exception|failure)s?\b(?:
                \s*$ | \s*[\])}>*_"']*\s*[:;,.!-](?!\s*(?:0|none|no)\b) | [\])}>*]
              | [ ]+(?:occurred|while|when|during|at|from|calling|executing|invoking|parsing|reading|loading|running|code|\#?\d)\b)
      | traceback\ \(most\ recent\ call\ last\)
      | [A-Za-z_.]*(?:Error|Exception|Timeout)\b\s*(?:[:(]|$)
      | (?:failed|failure|unable|could\ not|cannot|can't)\ (?:to\b|:|\w+\b)
      | (?:http\s*(?:/[\d.]+\s*)?)?(?:status\s*(?:code)?\s*:?\s*)?[45]\d\d\s+(?:bad|unauthorized|forbidden|not|method|request|internal|service|gateway|too|error|client|server)
      | (?:permission|access)\ denied\b | command\ not\ found\b | no\ such\ (?:file|tool|function|command)\b
      | (?:request|operation|connection|execution|command|call)?\s*(?:timed\ out|refused|reset\ by\ peer)\b
      | (?:unknown|invalid|unrecognized|missing)\ (?:tool|function|command|arguments?|parameters?|required|api|json|syntax)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ERROR_LINE = re.compile(
    r"^(?:[\w./-]+: ){1,3}(?:command not found|no such file or directory|permission denied)\s*$|^Traceback \(most recent call last\):",
    re.IGNORECASE | re.MULTILINE,
)


def read_trajectory(rollout: Rollout) -> Trajectory:
    """Read the rollout's calls and observations, from its messages or else its response."""
    found = Trajectory()
    if not rollout.messages:
        found.turns = 1
        _read_text(without_thinking(rollout.response), found, observe=True)
        return found
    places = [at for at, message in enumerate(rollout.messages) if _is_mapping(message)]
    messages = [_unwrapped_message(rollout.messages[at]) for at in places]
    waiting: deque[Call] = deque()
    answers = [_answers(message) for message in messages]
    observed = any(answers)
    for at, message, answered in zip(places, messages, answers, strict=True):
        before = len(found.calls)
        if _role(message) in ASSISTANTS:
            found.turns += 1
            calls = _structured_calls(message, found.turns)
            if calls:
                found.calls += calls
                waiting += calls
            else:
                _read_text(without_thinking(_said(message.get("content"))), found, observe=not observed)
                waiting.extend(call for call in found.calls[before:] if call.answer is None)
        elif message.get("type") in ("function_call", "tool_use", "custom_tool_call"):
            call = _call(message, found.turns)
            found.calls.append(call)
            waiting.append(call)
        for call in found.calls[before:]:
            call.at = at
        for id_, text, failed in answered:
            _observe(found, waiting, id_, text, failed)
    if not found.turns and not found.calls and not observed:  # the messages are only the prompt
        found.turns = 1
        _read_text(without_thinking(rollout.response), found, observe=True)
    return found


def by_turn(rollout: Rollout, calls: Sequence[Call], values: Sequence[float]) -> tuple[float | None, ...]:
    """Return the mean of the calls' *values* over each of the policy's turns; None for a turn without a call."""
    turns = policy_turns(rollout)
    number_of = {at: number for number, turn in enumerate(turns) for at in turn or (-1,)}
    found: list[list[float]] = [[] for _ in turns]
    for call, value in zip(calls, values, strict=True):
        if call.at in number_of:  # the prompt's own messages are in no turn
            found[number_of[call.at]].append(value)
    return tuple(min(sum(values) / len(values), 1.0) if values else None for values in found)


_THOUGHTS = frozenset(
    ("thinking", "reasoning", "reasoning_text", "redacted_thinking", "summary_text", "thought")
)


def _said(content: Any) -> str:
    """Return a turn's text without its parts of thinking."""
    if isinstance(content, list | tuple):
        content = [b for b in content if not (_is_mapping(b) and b.get("type") in _THOUGHTS)]
    return content_text(content)


def looks_like_an_error(text: str) -> bool:
    """Return whether a tool's answer is just an error, by its beginning or its JSON."""
    start = text.lstrip()[:400]
    if ERROR_START.match(start) or _ERROR_LINE.search(text[:2000]):
        return True
    if start[:1] == "{" and len(text) <= 100_000:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(data, Mapping) and _says_error(data)
    return False


@reads_rollout
def canonical(value: Any) -> str:
    """Return one text for equal values: keys sorted, whole floats as integers, texts stripped."""
    plain = _plain(value)
    try:
        return _encode(plain).decode()
    except (TypeError, ValueError, OverflowError):  # values that JSON cannot represent
        return json.dumps(plain, sort_keys=True, default=str)


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


@reads_rollout
def parsed_arguments(value: Any) -> Any:
    """Parse a call's arguments: JSON text to its value, nothing to no arguments."""
    if isinstance(value, str):
        if not value or value.isspace():
            return {}
        try:
            return _decode(value)
        except (msgspec.DecodeError, UnicodeError):
            pass
        try:
            return json.loads(value)
        except ValueError:
            return value.strip()
    return {} if value is None else value


def calls_in(value: Any) -> list[Call]:
    """Parse calls from data: one, a list, a list of steps (lists), or JSON of any of these."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            text = Trajectory()
            _read_text(value, text, observe=False)
            return text.calls
    if isinstance(value, Mapping):
        if isinstance(value.get("tool_calls"), Sequence) and not isinstance(value["tool_calls"], str):
            return calls_in(list(value["tool_calls"]))
        return [_call(value, 0)] if _is_call(value) else []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [call for part in value for call in calls_in(part)]
    return []


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the first is fast, and nearly always enough


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    return role if type(role) is str else ""


def _unwrapped_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = message.get("message")
    return inner if inner is not None and _is_mapping(inner) else message


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value.strip()
    if kind is int or value is None:
        return value
    if kind is dict:
        return {k if type(k) is str else str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _says_error(data: Mapping[str, Any]) -> bool:
    for key in ("error", "errors", "exception", "traceback"):
        if data.get(key) and data[key] not in ("none", "None", "null", "false"):
            return True
    if data.get("success") is False or data.get("ok") is False or data.get("is_error") is True:
        return True
    return str(data.get("status", "")).lower() in ("error", "failed", "failure")


def _is_call(value: Mapping[str, Any]) -> bool:
    inner = _first(value, "tool_call") or value
    function = (_first(inner, "function") or inner) if isinstance(inner, Mapping) else None
    return isinstance(function, str) or (
        isinstance(function, Mapping) and isinstance(_first(function, "name", "tool"), str)
    )


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    """Return the first of these keys' values that is not null."""
    return next((found for key in keys if (found := value.get(key)) is not None), None)


def _call(value: Mapping[str, Any], turn: int) -> Call:
    inner = _first(value, "tool_call")
    inner = inner if _is_mapping(inner) else value
    function = _first(inner, "function")
    function = inner if function is None else function
    if not _is_mapping(function):
        function = {**inner, "name": function}
    name = _first(function, "name", "tool")
    present = [key for key in _ARGUMENTS if key in function]
    key = next((key for key in present if function[key] is not None), present[0] if present else None)
    arguments = None if key is None else function[key]
    id_ = inner.get("id") or inner.get("call_id") or inner.get("tool_use_id") or ""
    return Call(str(name or ""), parsed_arguments(arguments), str(id_), turn, complete=key is not None)


_ARGUMENTS = ("arguments", "input", "args", "parameters", "tool_input")


def _structured_calls(message: Mapping[str, Any], turn: int) -> list[Call]:
    calls = message.get("tool_calls")
    found: list[Call] = []
    if calls:
        if _is_mapping(calls):
            calls = [calls]
        if isinstance(calls, list | tuple):
            found += [_call(call, turn) for call in calls if _is_mapping(call)]
            if _stored(calls):  # JSON text keeps its nulls
                for call in found:
                    call.arguments = without_nulls(call.arguments)
    if (one := message.get("function_call")) and _is_mapping(one):
        found.append(_call(one, turn))
    found += [
        _call(block, turn)
        for block in _blocks(message)
        if block.get("type") in ("tool_use", "function_call", "tool_call")
    ]
    return found


def _stored(calls: Any) -> bool:
    """Whether a turn's calls were stored as structs, whose absent keys are null; others are JSON text."""
    return all(not isinstance(_call_of(call).get("arguments"), str) for call in calls if _is_mapping(call))


def _call_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if function is not None and _is_mapping(function) else call


def _blocks(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = message.get("content")
    if content is None or isinstance(content, str) or not isinstance(content, Sequence):
        return ()
    return [block for block in content if _is_mapping(block)]


_TOOLS = frozenset(("tool", "function", "observation", "ipython", "tool_response"))
_USERS = frozenset(("user", "human", "environment"))


def _answers(message: Mapping[str, Any]) -> list[tuple[str, str, bool | None]]:
    """Return a message's tool answers: call id, text, and whether it is marked as an error."""
    role = _role(message)
    if role in ASSISTANTS:
        return []
    if message.get("type") in ("function_call_output", "custom_tool_call_output"):
        return [(str(message.get("call_id") or ""), content_text(message.get("output")), _flag(message))]
    found = [
        (str(block.get("tool_use_id") or ""), content_text(block.get("content")), _flag(block))
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    ]
    if found:
        return found
    if role in _TOOLS:
        text = _unwrapped(content_text(message.get("content")))
        return [(str(message.get("tool_call_id") or message.get("id") or ""), text, _flag(message))]
    if role in _USERS:
        text = content_text(message.get("content"))
        if match := _OBSERVATION_START.match(text):
            return [("", _unwrapped(text[match.end() :]), None)]
        if "</" in text:
            return [("", answer.strip(), None) for answer in _tagged(text)]
    return []


def _flag(message: Mapping[str, Any]) -> bool | None:
    """Return whether an answer is marked as an error or a success; None if it is not marked."""
    if message.get("is_error") is not None:
        return bool(message["is_error"])
    status = str(message.get("status") or "").lower()
    return {"error": True, "failed": True, "success": False}.get(status)


def _observe(found: Trajectory, waiting: deque[Call], id_: str, text: str, failed: bool | None) -> None:
    call = None
    if id_:
        call = next((c for c in reversed(waiting) if c.id == id_), None)
    if call is None and waiting and not (id_ and all(c.id for c in waiting)):
        call = next((c for c in waiting if not (id_ and c.id)), None)
    if call is not None:
        waiting.remove(call)
    observation = Observation(text, failed, call)
    found.observations.append(observation)
    if call is not None:
        call.answer = observation


_OBSERVATION_START = re.compile(r"\s*(?:\*\*)?Observation(?:\s*\d+)?\s*:(?:\*\*)?[ \t]*", re.IGNORECASE)
_RESPONSE_NAMES = "(?:tool_response|information|observation|function_results?)"
_RESPONSE_OPENS = re.compile(f"<{_RESPONSE_NAMES}>")
_RESPONSE_CLOSES = re.compile(f"</{_RESPONSE_NAMES}>")


def _tagged(text: str) -> Iterator[str]:
    """Yield what stands between an opening tag of a tool's answer and the next closing one."""
    at = 0
    while opening := _RESPONSE_OPENS.search(text, at):
        closing = _RESPONSE_CLOSES.search(text, opening.end())
        if closing is None:  # nor is there one for any later tag: searching again would take quadratic time
            return
        yield text[opening.end() : closing.start()]
        at = closing.end()


_TEXT_CALL = re.compile(
    r"""
    <tool_call>(?P<json>.*?)(?:</tool_call>|\Z)
  | <(?P<tag>search|python|code|browse)>(?P<query>.*?)(?:</(?P=tag)>|\Z)
  | <(?:tool_response|information|observation)>(?P<seen>.*?)(?:</(?:tool_response|information|observation)>|\Z)
  | ^[ \t*]*+Action(?:[ \t]*+\d+)?[ \t]*+:[ \t*]*+(?P<name>[^\s\[(:{](?:[^\n\[(]{0,99}?[^\s\[(*`])??)[ \t*`]*+
      (?:\[(?P<bracket>[^\n]*)\][ \t*.]*+$ | \((?P<paren>[^\n]*)\)[ \t*.]*+$
       | \n[ \t*]*+Action[ \t]*+Input(?:[ \t]*+\d+)?[ \t]*+:[ \t*]*+(?P<input>.*?)(?=\n[ \t*]*+(?:Observation|Thought|Action|Final[ \t]*+Answer)\b[^\n:]{0,6}:|\Z)
       | $)
  | ^[ \t*]*+Observation(?:[ \t]*+\d+)?[ \t]*+:[ \t*]*+(?P<observation>.*?)(?=\n[ \t*]*+(?:Observation|Thought|Action|Final[ \t]*+Answer)\b[^\n:]{0,6}:|\Z)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_FINISH = {"finish", "final answer", "none", "n/a", "answer"}


def _unwrapped(text: str) -> str:
    whole = text.strip()
    opening = _RESPONSE_OPENS.match(whole)
    if opening is None or not (closing := re.search(f"</{_RESPONSE_NAMES}>$", whole)):
        return text
    return whole[opening.end() : closing.start()].strip()


def _read_text(text: str, found: Trajectory, *, observe: bool) -> None:
    """Find calls written in text; with *observe*, also the results between them."""
    waiting: deque[Call] = deque(call for call in found.calls if call.answer is None)
    for match in _TEXT_CALL.finditer(text):
        seen = match["seen"] if match["seen"] is not None else match["observation"]
        if seen is not None:
            if observe:
                _observe(found, waiting, "", seen.strip(), None)
            continue
        call: Call | None
        if match["json"] is not None:
            call = _json_call(match["json"], found.turns)
        elif match["tag"]:
            call = Call(match["tag"], match["query"].strip(), "", found.turns)
        elif match["name"].strip().lower() in _FINISH:
            continue
        else:
            given = next((g for g in (match["bracket"], match["paren"], match["input"]) if g is not None), "")
            call = Call(match["name"].strip(), parsed_arguments(given.strip("` \n")), "", found.turns)
        found.calls.append(call)
        waiting.append(call)


@reads_rollout
def _json_call(text: str, turn: int) -> Call:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if isinstance(data, Mapping) and _is_call(data):
        return _call(data, turn)
    return Call("", text.strip(), "", turn)
