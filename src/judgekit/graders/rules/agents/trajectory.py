"""Reads a trajectory: the tool calls, their arguments, and their results.

Supports the message formats that agents really use:

- OpenAI: `tool_calls` (arguments as JSON text or as a mapping), the older `function_call`, `role: tool`
  answers with or without `tool_call_id`, and the items of the Responses API (`function_call`,
  `function_call_output`).
- Anthropic: content blocks `tool_use` and `tool_result`.
- Text, in the forms of the models' own templates, of Search-R1 and of ReAct: see `judgekit.graders.rules.written_calls`.
- Messages wrapped as `{"message": {…}}`, calls wrapped as `{"tool_call": {…}}`.

An answer belongs to the call whose id it names, else to the oldest call without an answer. Calls without answers and
answers without calls are kept. What is only drafted in thinking is no call; calls between thoughts are. What stands in the prompt is its history, and not the policy's. If a rollout's messages have no assistant turn, its response is read instead.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgekit.graders.rules.calls import Call, Observation, call_of, is_call, is_mapping
from judgekit.graders.rules.stored import without_nulls
from judgekit.graders.rules.thoughts import without_thinking
from judgekit.graders.rules.written_calls import written
from judgekit.types import ASSISTANTS, Rollout, content_text, is_item, policy_turns, prompt_end


@dataclass(slots=True)
class Trajectory:
    """The calls and the observations of one rollout, each in order."""

    calls: list[Call] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    turns: int = 0
    """Number of assistant messages; the items of one of OpenAI's Responses are one."""


def read_trajectory(rollout: Rollout) -> Trajectory:
    """Read the rollout's calls and observations, from its messages or else its response."""
    found = Trajectory()
    if not rollout.messages:
        found.turns = 1
        _read_text(without_thinking(rollout.response), found, observe=True)
        return found
    places = [
        at for at in range(prompt_end(rollout), len(rollout.messages)) if is_mapping(rollout.messages[at])
    ]
    messages = [_unwrapped_message(rollout.messages[at]) for at in places]
    waiting: deque[Call] = deque()
    answers = [_answers(message) for message in messages]
    observed = any(answers)
    structured = list(map(_structured_calls, messages))
    as_what = ""
    is_data = any(structured)  # then no sentence of a turn is a call
    for at, message, calls, answered in zip(places, messages, structured, answers, strict=True):
        before = len(found.calls)
        is_turn = _role(message) in ASSISTANTS
        before_it, as_what = as_what, "message" if is_turn else "item" if is_item(message) else ""
        found.turns += (before_it, as_what) in _BEGINS
        found.calls += calls
        waiting += calls
        if is_turn and not is_data:
            _read_text(without_thinking(_said(message.get("content"))), found, observe=not observed)
            waiting.extend(call for call in found.calls[before:] if call.answer is None)
        for call in found.calls[before:]:
            call.at, call.turn = at, found.turns
        for id_, text, failed in answered:
            _observe(found, waiting, id_, text, failed)
    if not found.turns and not found.calls and not observed:  # the messages are only the prompt
        found.turns = 1
        _read_text(without_thinking(rollout.response), found, observe=True)
    return found


_BEGINS = {("", "message"), ("message", "message"), ("", "item")}
"""What begins a turn, after what: the items of one of OpenAI's Responses, and the message with which they end, are one."""


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
        content = [b for b in content if not (is_mapping(b) and b.get("type") in _THOUGHTS)]
    return content_text(content)


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
        return [call_of(value, 0)] if is_call(value) else []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [call for part in value for call in calls_in(part)]
    return []


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    return role if type(role) is str else ""


def _unwrapped_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = message.get("message")
    return inner if inner is not None and is_mapping(inner) else message


_CALLS = ("function_call", "tool_use", "custom_tool_call")


def _structured_calls(message: Mapping[str, Any]) -> list[Call]:
    if _role(message) not in ASSISTANTS:
        return [call_of(message, 0)] if message.get("type") in _CALLS else []
    calls = message.get("tool_calls")
    found: list[Call] = []
    if calls:
        if is_mapping(calls):
            calls = [calls]
        if isinstance(calls, list | tuple):
            found += [call_of(call, 0) for call in calls if is_mapping(call)]
            if _stored(calls):  # JSON text keeps its nulls
                for call in found:
                    call.arguments = without_nulls(call.arguments)
    if (one := message.get("function_call")) and is_mapping(one):
        found.append(call_of(one, 0))
    found += [
        call_of(block, 0)
        for block in _blocks(message)
        if block.get("type") in ("tool_use", "function_call", "tool_call")
    ]
    return found


def _stored(calls: Any) -> bool:
    """Whether a turn's calls were stored as structs, whose absent keys are null; others are JSON text."""
    return all(not isinstance(_function_of(call).get("arguments"), str) for call in calls if is_mapping(call))


def _function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if function is not None and is_mapping(function) else call


def _blocks(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = message.get("content")
    if content is None or isinstance(content, str) or not isinstance(content, Sequence):
        return ()
    return [block for block in content if is_mapping(block)]


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


def _unwrapped(text: str) -> str:
    whole = text.strip()
    opening = _RESPONSE_OPENS.match(whole)
    if opening is None or not (closing := re.search(f"</{_RESPONSE_NAMES}>$", whole)):
        return text
    return whole[opening.end() : closing.start()].strip()


def _read_text(text: str, found: Trajectory, *, observe: bool) -> None:
    """Find calls written in text; with *observe*, also the results between them."""
    waiting: deque[Call] = deque(call for call in found.calls if call.answer is None)
    for part in written(text, found.turns):
        if isinstance(part, Call):
            found.calls.append(part)
            waiting.append(part)
        elif observe:
            _observe(found, waiting, "", part, None)
