"""SGLang's own endpoint for prompts of token ids, `/generate` (docs.sglang.io, native API and sampling parameters).

Requests are made from those of an OpenAI-compatible completion, and answers are given in its form. SGLang's
`/v1/completions` takes token ids as well, but tells the most likely tokens only; `/generate` tells the probabilities of given ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.errors import JudgeRejected
from judgekit.judges.engines.http import Server

PATH = "/generate"
_SAMPLING = {
    "max_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "sampling_seed",
    "stop": "stop",
    "stop_token_ids": "stop_token_ids",
}
"""SGLang's names of a completion's sampling parameters."""


def generate_body(
    completion: Mapping[str, Any], ids: Sequence[int], labels: Sequence[int] = (), adapter: str | None = None
) -> dict[str, Any]:
    """Return the request for *ids* that a *completion* would be. *labels*: ids whose probabilities are wanted.

    *adapter*: the name of the LoRA adapter that is to answer.
    """
    sampling = {theirs: completion[ours] for ours, theirs in _SAMPLING.items() if ours in completion}
    form = completion.get("response_format")
    if form is not None:
        sampling["json_schema"] = json.dumps(form["json_schema"]["schema"])
    others = completion.keys() - _SAMPLING.keys() - {"model", "response_format"}
    body = {**{key: completion[key] for key in others}, "input_ids": list(ids), "sampling_params": sampling}
    if adapter is not None:
        body["lora_path"] = adapter
    if labels:
        body |= {"return_logprob": True, "logprob_start_len": -1, "token_ids_logprob": list(labels)}
    return body


def as_completion(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of `/generate` in the form of a completion's; without a choice where it has none."""
    meta = answer.get("meta_info")
    if not isinstance(meta, dict) or not isinstance(answer.get("text"), str):
        return {}
    ended = meta.get("finish_reason")
    choice: dict[str, Any] = {
        "index": 0,
        "text": answer["text"],
        "finish_reason": ended.get("type") if isinstance(ended, dict) else ended,
    }
    found = meta.get("output_token_ids_logprobs")
    if isinstance(found, list) and found and isinstance(found[0], list):
        entries = [entry for entry in found[0] if isinstance(entry, list) and len(entry) >= 2]
        choice["logprobs"] = {"top_logprobs": [{f"token_id:{entry[1]}": entry[0] for entry in entries}]}
    usage = {key: meta.get(key) for key in ("prompt_tokens", "completion_tokens")}
    return {
        "choices": [choice],
        "usage": {**usage, "prompt_tokens_details": {"cached_tokens": meta.get("cached_tokens")}},
    }


async def served_model(server: Server) -> str | None:
    """Return the path of the model that an SGLang server has loaded; None for other servers."""
    for path in ("/model_info", "/get_model_info"):  # the second until 0.5.5
        try:
            answer = await server.get(path, root=True)
        except JudgeRejected:
            continue
        if isinstance(model := answer.get("model_path"), str):
            return model
    return None


async def tells_labels(server: Server, token: int) -> bool:
    """Whether the server takes a prompt of token ids, and tells a given token's probability."""
    body = generate_body({"max_tokens": 1, "temperature": 0.0}, [token], [token])
    try:
        answer = as_completion(await server.post(PATH, body, root=True))
    except JudgeRejected as error:
        if error.status in (401, 403):
            raise
        return False
    choices = answer.get("choices") or [{}]
    tops = choices[0].get("logprobs", {}).get("top_logprobs", [{}])
    return f"token_id:{token}" in tops[0]
