"""The forms in which trainers' own clients ask for the reward of a rollout, and what they take for an answer.

A form reads a request's body and writes its answer. What a client can be told about a missing reward is `knows`. The
facts were read from, and tried with, the clients of OpenRLHF 0.11, slime 0.3, NeMo-Gym 0.7 and verifiers 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from judgekit.ledger.jsonl import encoded
from judgekit.service.lanes import Knows
from judgekit.service.reading import Refusal, decoded_object, field, rollout_at
from judgekit.service.service import require_reward
from judgekit.trainers.figures import why_missing
from judgekit.trainers.rollouts import fields_of_row
from judgekit.types import PAID, QUERY, RewardResult, Rollout, content_text

_CONTENT = (str, list)


class Asked(Struct, frozen=True):
    """What a request asks for."""

    rollouts: Sequence[Rollout]
    slot: str = ""
    """The client's own name of this sample, where it has one; empty: only its text tells it from others."""
    row: Mapping[str, Any] = {}
    """The body, where the answer repeats it."""


class Form(Protocol):
    """How a trainer's client asks, and what it reads."""

    name: ClassVar[str]
    knows: ClassVar[Knows]

    def read(self, body: bytes, settings: Mapping[str, str]) -> Asked:
        """Read a request. *settings*: the address's query. Raises Refusal."""
        ...

    def write(self, asked: Asked, results: Sequence[RewardResult]) -> bytes:
        """Write its answer. Raises Refusal where there is none that the client understands."""
        ...


class OpenRLHF:
    """`--reward.remote_url http://HOST:PORT/openrlhf`: whole texts of prompt and response.

    `?strip=A,B`: special tokens to take out of responses, since the texts have them.
    """

    name: ClassVar[str] = "openrlhf"
    knows: ClassVar[Knows] = "numbers"

    def read(self, body: bytes, settings: Mapping[str, str]) -> Asked:
        row = decoded_object(body)
        texts = field(row, "query", list, "a list of texts of prompt and response")
        prompts = field(row, "prompts", list, "a list of prompts")
        labels = field(row, "labels", list, "a list of labels") if row.get("labels") is not None else []
        labels = labels or [None] * len(texts)
        if not texts or not len(texts) == len(prompts) == len(labels):
            raise Refusal(400, "'query', 'prompts' and 'labels' have one entry for each rollout")
        strip = [token for token in settings.get("strip", "").split(",") if token]
        return Asked(
            [
                self._rollout(*parts, strip=strip, place=f"query[{i}]")
                for i, parts in enumerate(zip(texts, prompts, labels, strict=True))
            ]
        )

    def _rollout(self, text: Any, prompt: Any, label: Any, *, strip: Sequence[str], place: str) -> Rollout:
        if not isinstance(text, str) or not isinstance(prompt, str):
            raise Refusal(400, f"{place}: the texts of prompt and response are text")
        response = _after(prompt, text)
        if response is None:
            raise Refusal(
                400,
                f"{place} does not begin with its prompt, or an end of it: where the response begins is unknown",
            )
        for token in strip:
            response = response.replace(token, "")
        row = {"prompt": prompt, "response": response, "ground_truth": label, "extra": {QUERY: text}}
        return rollout_at(row, place)

    def write(self, asked: Asked, results: Sequence[RewardResult]) -> bytes:
        rewards = [require_reward(result) for result in results]
        # numbers only, and the same keys for every sample: a score that is missing has no place here
        logs = {"judgekit_missing": [float(result.status != "scored") for result in results]}
        for name in results[0].grades:
            logs[f"judgekit_{name}_missing"] = [float(name in result.missing) for result in results]
        if len(results) == 1:  # lists of one would become tensors of one dimension too many
            return encoded(
                {
                    "rewards": rewards[0],
                    "scores": rewards[0],
                    "extra_logs": {name: values[0] for name, values in logs.items()},
                }
            )
        return encoded({"rewards": rewards, "scores": rewards, "extra_logs": logs})


_ANCHOR = 8
"""Characters of a prompt's end that must stand before a response, where the prompt's beginning was cut off."""


def _after(prompt: str, text: str) -> str | None:
    """What follows the prompt in *text*; the prompt may have lost its beginning there. None: it is not there."""
    if text.startswith(prompt):
        return text[len(prompt) :]
    anchor = prompt[-_ANCHOR:]
    end = text.find(anchor) + len(anchor) if anchor in text else 0
    while end and end <= len(prompt):
        if prompt.endswith(text[:end]):
            return text[end:]
        following = text.find(anchor, end - len(anchor) + 1)
        end = following + len(anchor) if following >= 0 else 0
    return None


class Slime:
    """`--rm-type remote_rm --rm-url http://HOST:PORT/slime --reward-key reward`."""

    name: ClassVar[str] = "slime"
    knows: ClassVar[Knows] = "numbers"

    def read(self, body: bytes, settings: Mapping[str, str]) -> Asked:
        row = decoded_object(body)
        made = {
            "prompt": field(row, "prompt", _CONTENT, "text or a list of messages"),
            "response": field(row, "response", str, "text"),
            "ground_truth": row.get("label"),
        }
        return Asked([rollout_at(made, "the sample")])

    def write(self, asked: Asked, results: Sequence[RewardResult]) -> bytes:
        (result,) = results
        scores = {name: score for name in result.grades if (score := result.score(name)) is not None}
        told = {"reward": require_reward(result), "status": result.status, "scores": scores}
        return encoded({**told, "turns": result.turns} if result.turns else told)


class Verify:
    """NeMo-Gym's `/verify`: a row of the data set with the policy's response, in the form of OpenAI's Responses.

    *strict*: for clients that pay the reward beside `mask_sample` all the same (verifiers): a missing one is an error.
    """

    name: ClassVar[str] = "verify"
    knows: ClassVar[Knows] = "masks"

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict

    def read(self, body: bytes, settings: Mapping[str, str]) -> Asked:
        row = decoded_object(body)
        asked = field(row, "responses_create_params", dict, "an object with the prompt as 'input'")
        response = field(row, "response", dict, "the policy's response, an object with 'output'")
        prompt = _messages(asked.get("input"), "responses_create_params.input")
        said = _messages(response.get("output"), "response.output")
        policy = [turn for turn in said if turn["role"] == "assistant"]
        extra = {name: value for name, value in row.items() if name not in _ROLLOUT_KEYS}
        metadata = row.get("verifier_metadata")
        made = {
            "prompt": prompt,
            "response": policy[-1]["content"] if policy else "",
            "messages": [*prompt, *said],
            **fields_of_row({**(metadata if isinstance(metadata, Mapping) else {}), **extra}),
            "group": _group(row),
            "id": _text(row.get("_ng_rollout_id")),
        }
        return Asked([rollout_at(made, "the row")], slot=_slot(row), row=row)

    def write(self, asked: Asked, results: Sequence[RewardResult]) -> bytes:
        (result,) = results
        missing = result.status not in PAID
        if missing and self.strict:
            raise Refusal(500, f"no reward: {why_missing(result)}", kind="MissingReward")
        told = asked.row.get("instance_config")
        scores = {
            f"judgekit_{name}": score for name in result.grades if (score := result.score(name)) is not None
        }
        return encoded(
            {
                # a row that was graded before may have figures of then
                **{name: value for name, value in asked.row.items() if not name.startswith("judgekit_")},
                **scores,
                **({"judgekit_turns": result.turns} if result.turns else {}),
                # the form wants a number here; with mask_sample it is no reward
                "reward": 0.0 if result.reward is None else result.reward,
                "mask_sample": missing,
                "failure_kind": "judge_failed" if missing else None,
                "failure_reason": why_missing(result) if missing else None,
                # what NeMo-RL reads
                "instance_config": {**(told if isinstance(told, dict) else {}), "mask_sample": missing},
            }
        )


_ROLLOUT_KEYS = ("responses_create_params", "response")


def _messages(items: Any, place: str) -> list[dict[str, Any]]:
    """Chat messages of a Responses object's items. What the policy wrote in a row is one turn, without its reasoning."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise Refusal(400, f"{place} is text or a list of items")
    turns: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise Refusal(400, f"{place}[{number}] is an object")
        kind = item.get("type", "message")
        if kind == "function_call_output":
            output = content_text(item.get("output"))
            turns.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        elif kind == "function_call":
            function = {"name": item.get("name", ""), "arguments": item.get("arguments", "")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            _policy(turns).setdefault("tool_calls", []).append(call)
        elif kind == "message":
            role, text = item.get("role", "assistant"), content_text(item.get("content"))
            if role == "assistant":
                _policy(turns)["content"] += text
            else:
                turns.append({"role": str(role), "content": text})
    return turns


def _policy(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy's turn that is being written."""
    if not turns or turns[-1]["role"] != "assistant":
        turns.append({"role": "assistant", "content": ""})
    return turns[-1]


def _group(row: Mapping[str, Any]) -> str | None:
    """The prompt's id: NeMo-Gym repeats task indices from step to step, where a group of that name is over."""
    for name in ("_ng_group_id", "_ng_task_index"):
        if row.get(name) is not None:
            return f"{row[name]}:{_text(row.get('_ng_group_attempt'))}"
    return None


def _slot(row: Mapping[str, Any]) -> str:
    """The sample's own place among the samples of its task; empty where the row names none."""
    if row.get("_ng_rollout_index") is None and row.get("_ng_rollout_id") is None:
        return ""
    return ":".join(_text(row.get(name)) for name in _SLOT)


_SLOT = ("_ng_rollout_id", "_ng_group_id", "_ng_task_index", "_ng_rollout_index", "_ng_attempt_index")


def _text(value: Any) -> str:
    return "" if value is None else str(value)
