"""Finds out what an OpenAI-compatible server can do, by asking it.

Only an answer settles an ability: a success, or a refusal of the field or path that was tried. A failure that may
pass (HTTP 5xx, a lost connection, a timeout) is raised, so that it cannot downgrade a server for good.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from judgekit.errors import ConfigError, JudgeError, JudgeRejected, JudgeUnavailable
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai import sglang
from judgekit.judges.engines.openai.showing import UNSHOWN, rendered_by
from judgekit.judges.prompts.images import DOT
from judgekit.judges.prompts.rendered import JUDGE
from judgekit.judges.prompts.tokens import PromptEncoder

logger = logging.getLogger("judgekit")

LogprobStyle = Literal["labels", "constrained", "top"]
"""How one-token verdicts are read:

* `labels`: vLLM from 0.20 on: each label's probability in the full vocabulary, by token id.
* `constrained`: older vLLM: the reply is constrained to the labels, so their share is unknown.
* `top`: any other server: the labels among the 20 most likely first tokens.
"""

IDENTITY = "@judgekit:"
"""`judgekit serve` lists its model under a second name, which ends with this mark and the identity."""

TOP = 20
"""Most likely tokens that servers send at most."""


class Abilities(Struct, frozen=True):
    """What one server can do."""

    model: str
    """The name that requests carry."""
    root: str
    """What the server says it has loaded."""
    adapter: bool = False
    """Whether that is a LoRA adapter."""
    version: str = ""
    """vLLM's version; empty for other servers."""
    context: int | None = None
    """Context length in tokens; None: unknown."""
    by_ids: bool = False
    """Whether prompts are sent as token ids."""
    native: bool = False
    """Whether they are sent to SGLang's own endpoint."""
    logprobs: LogprobStyle = "top"
    batches: bool = False
    """Whether one POST may carry several prompts."""
    owner: str = ""
    """Who serves it, as the server's list says (`owned_by`)."""
    identity: str = ""
    """What `judgekit serve` says of the weights and of the engine's arguments; empty for other servers."""
    control_strings: tuple[str, ...] = ()
    """The model's own control strings, and the words that its chat template reads, where the server shows them."""
    unverified: str = ""
    """Why it is not known that the chat template leaves a rollout's text as it is; empty: it is, or token ids are sent."""


async def served(server: Server, model: str | None, *, lists: bool = True) -> Abilities:
    """Return what the server's list says of *model*, or of the only model there is.

    *lists*: whether it has a list. A model that is named needs none.
    """
    try:
        entries = {str(m["id"]): m for m in await server.models()} if lists else {}
    except JudgeRejected as error:
        if error.status in (401, 403) or model is None:
            raise
        lists = False
    if not lists or set(entries) == {"unknown"}:  # so do gateways that have not looked at their workers (smg)
        if model is None:
            raise ConfigError(f"{server.url} lists no models: name the judge with model=")
        return Abilities(model=model, root=model)
    return _listed(server, entries, model)


def _listed(server: Server, entries: Mapping[str, Any], model: str | None) -> Abilities:
    """Return what the entries of a server's list say of *model*, or of the only one."""
    identities = {
        name: tail
        for entry in entries
        for name, mark, tail in [entry.rpartition(IDENTITY)]
        if name in entries
    }
    names = [name for name in entries if name.rpartition(IDENTITY)[0] not in identities]
    if model is None and len(names) != 1:
        raise ConfigError(f"{server.url} serves {', '.join(names) or 'no model'}: name the judge with model=")
    name = model or names[0]
    if name not in entries and len(names) < 50:  # providers list hundreds of models, and not always all
        raise ConfigError(f"{server.url} serves {', '.join(names)}, not {name!r}")
    entry = entries.get(name, {})
    length = entry.get("max_model_len")
    root = str(entry.get("root") or name)
    base = entry.get("parent")
    if isinstance(base, str):  # a LoRA adapter
        root = f"{root} on {identities.get(base) or (entries.get(base) or {}).get('root') or base}"
    return Abilities(
        model=name,
        root=root,
        adapter=isinstance(base, str),
        context=length if isinstance(length, int) and length > 0 else None,
        owner=str(entry.get("owned_by") or ""),
        identity=identities.get(name, ""),
    )


async def find_out(
    server: Server,
    found: Abilities,
    *,
    encoder: PromptEncoder | None,
    logprobs: LogprobStyle | None,
    template_kwargs: Mapping[str, Any],
) -> Abilities:
    """Complete *found* by asking the server.

    *encoder*: prompts are to be sent as its token ids; ConfigError where the server takes none. *logprobs*: a style
    that is not looked for but given. *template_kwargs*: those of every request. Raises JudgeError where the server does not answer.
    """
    if logprobs != "top":
        found = replace(found, version=await _version(server, found.owner))
    if encoder is not None:
        return await _by_ids(server, found, encoder.token_ids("0"), logprobs)
    return await _by_text(server, found, logprobs, template_kwargs)


async def token_ids(server: Server, model: str, text: str) -> list[int]:
    """Return the ids of *text* in the served model's vocabulary."""
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    ids = (await server.post("/tokenize", body, root=True)).get("tokens")
    if not isinstance(ids, list):
        raise JudgeUnavailable(f"{server} answered /tokenize in an unknown format")
    return ids


async def _version(server: Server, owner: str) -> str:
    """Return vLLM's version; empty for other servers. TensorRT-LLM and LocalAI have the page, too."""
    try:
        answer = await server.get("/version", root=True)
    except JudgeRejected:
        return ""
    except JudgeError as error:
        raise JudgeUnavailable(
            f"cannot tell what kind of server it is: {error}. If GET /version of this server never works, set logprobs: top"
        ) from None
    version = answer.get("version")
    if not isinstance(version, str) or (owner != "vllm" and (owner or not version.startswith("0."))):
        return ""
    return version


async def _by_ids(
    server: Server, found: Abilities, ids: Sequence[int], logprobs: LogprobStyle | None
) -> Abilities:
    """Find out how prompts of token ids can be sent."""
    if not found.version and logprobs in (None, "labels"):
        path = await sglang.served_model(server)
        if path is not None and await sglang.tells_labels(server, ids[0]):
            root = found.root if found.adapter else path
            return replace(found, root=root, by_ids=True, native=True, logprobs="labels")
    plain: dict[str, Any] = {"model": found.model, "max_tokens": 1, "temperature": 0.0}
    answer = await _accepted(server, "/completions", {**plain, "prompt": list(ids)})
    if answer is None or not _counted(answer, len(ids)):
        raise ConfigError(
            f"{server.url} takes no prompts as token ids, which keep rollouts from becoming control tokens: without "
            "tokenizer= prompts are sent as text"
        )
    style: LogprobStyle = logprobs or "top"
    if logprobs is None and found.version:
        probe = {**plain, **label_fields(ids[:1]), "prompt": list(ids)}
        style = (
            "labels" if _has_label(await _accepted(server, "/completions", probe), ids[0]) else "constrained"
        )
    two = await _accepted(server, "/completions", {**plain, "prompt": [list(ids), list(ids)]})
    return replace(found, by_ids=True, logprobs=style, batches=_has_choices(two, 2))


async def _by_text(
    server: Server, found: Abilities, logprobs: LogprobStyle | None, template_kwargs: Mapping[str, Any]
) -> Abilities:
    """Find out how prompts of chat messages can be sent, and what becomes of them."""
    if not found.version:
        return replace(found, logprobs=logprobs or "top", unverified=UNSHOWN)
    plain: dict[str, Any] = {"model": found.model, "max_tokens": 1, "temperature": 0.0}
    messages = [{"role": "user", "content": "0"}]
    try:
        await server.post("/chat/completions", {**plain, "messages": messages})
    except JudgeRejected as error:
        if error.status not in (400, 422):
            raise
        raise ConfigError(f"{server.url} refuses every chat message: {error}") from None
    style: LogprobStyle = logprobs or "constrained"
    if logprobs is None:
        with contextlib.suppress(JudgeRejected):  # no /tokenize: the labels' ids are not known
            ids = await token_ids(server, found.model, "0")
            probe = {**plain, **label_fields(ids[:1]), "logprobs": True, "messages": messages}
            if _has_label(await _accepted(server, "/chat/completions", probe), ids[0]):
                style = "labels"
    two = await _accepted(server, "/chat/completions/batch", {**plain, "messages": [messages] * 2})
    seen = await rendered_by(server, found.model, JUDGE, template_kwargs=template_kwargs)
    return replace(
        found,
        logprobs=style,
        batches=_has_choices(two, 2),
        control_strings=seen.strings,
        unverified=seen.unverified,
    )


async def _accepted(server: Server, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the server's answer, or None if it refuses the request."""
    try:
        return await server.post(path, body)
    except JudgeRejected as error:
        if error.status in (401, 403):
            raise
        return None


async def check_images(server: Server, model: str) -> None:
    """Raise ConfigError if the server refuses an image."""
    parts = [
        {"type": "text", "text": "Answer with 0 and nothing else."},
        {"type": "image_url", "image_url": {"url": DOT.url}},
    ]
    # without a limit of the reply: by which name a server takes that is not known yet
    body = {"model": model, "messages": [{"role": "user", "content": parts}]}
    try:
        await server.post("/chat/completions", body)
    except JudgeRejected as error:
        if error.status in (401, 403):
            raise
        raise ConfigError(f"images: {server.url} refuses an image: {error}") from None


def label_fields(ids: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a vLLM completion that ask for the logprobs of these ids."""
    return {"logprobs": 1, "logprob_token_ids": list(ids), "return_tokens_as_token_ids": True}


def _has_choices(answer: Mapping[str, Any] | None, count: int) -> bool:
    choices = (answer or {}).get("choices")
    return isinstance(choices, list) and len(choices) == count and all(isinstance(c, dict) for c in choices)


def _has_label(answer: Mapping[str, Any] | None, token: int) -> bool:
    if answer is None or not _has_choices(answer, 1):
        return False
    found = first_logprobs(answer["choices"][0])
    return found is not None and f"token_id:{token}" in dict(found)


def _counted(answer: Mapping[str, Any], count: int) -> bool:
    """Whether the server counted the prompt's ids, and not the characters of a list as text."""
    usage = answer.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return counted is None or counted == count


def first_logprobs(choice: Mapping[str, Any]) -> list[tuple[str, float]] | None:
    """Return the first token's candidates with their logprobs, from either API; None if there are none.

    Two tokens may be shown as one text, such as a word with and without the space before it: each is an entry of its own. The same
    entry twice is one.
    Raises JudgeUnavailable if a logprob is none: the others are not believed either.
    """
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return None
    try:
        if logprobs.get("content"):
            first = logprobs["content"][0]
            entries = [
                (str(entry["token"]), entry["logprob"], str(entry.get("bytes")))
                for entry in first.get("top_logprobs") or ()
            ]
            found = [(token, value) for token, value, _ in dict.fromkeys(entries)]
            sampled = str(first["token"])
            if all(token != sampled for token, _ in found):
                found.append((sampled, first["logprob"]))
        else:
            found = list(logprobs["top_logprobs"][0].items())
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None
    for token, value in found:
        # a little above 0 is rounding; minus infinity, or what no float holds, is a probability of 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:
            raise JudgeUnavailable(f"the logprob of {token!r} is {value!r:.40}")
    return [(token, float(max(value, -1e9))) for token, value in found] or None
