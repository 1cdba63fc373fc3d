"""Scalar reward models, which score a conversation with one number."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from judgekit.errors import ConfigError, JudgeRejected, JudgeUnavailable
from judgekit.execution.flight import Flights
from judgekit.judges.base import Turn
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.engines.http import Server
from judgekit.judges.engines.openai.fitting import Messages, shorter
from judgekit.judges.engines.openai.showing import UNSHOWN, rendered_by
from judgekit.judges.engines.replies import TOO_LONG, usage_shares
from judgekit.judges.health import READY_S
from judgekit.judges.prompts.messages import text_messages
from judgekit.judges.prompts.rendered import REWARD_MODEL, Rendered
from judgekit.types import Usage


class HTTPRewardModel:
    """A reward model behind a server, such as vLLM's with `--runner pooling`.

    *endpoint*: "/classify" and "/pooling" take the conversation as chat messages, "/score" the prompt and the
    response as a pair (cross-encoders). *activation*: whether the server applies its activation to the number
    (off: the raw number). *url*, *api_key* and *timeout_s* as in `OpenAIJudge`. The messages have no generation
    prompt, because most reward models are trained without; *add_generation_prompt* adds it. A conversation that is too long for
    the server is cut, its longest text first. What the server's chat template reads in a text, and the headers of its turns, are
    broken up, see `judgekit.judges.prompts.rendered`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        endpoint: Literal["/classify", "/pooling", "/score"] = "/classify",
        activation: bool = False,
        add_generation_prompt: bool = False,
        api_key: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if endpoint not in ("/classify", "/pooling", "/score"):
            raise ConfigError(f"reward model: endpoint is /classify, /pooling or /score, not {endpoint!r}")
        self.server = Server(url, api_key=api_key, timeout_s=timeout_s)
        # with connections of its own: a health check must not wait behind requests
        self._health = self.server.beside(timeout_s=READY_S, max_connections=2)
        self.model = model
        self.endpoint = endpoint
        self._activation = activation
        self._generation_prompt = add_generation_prompt
        self._seen: Rendered | None = None
        """What the server's chat template does, as far as it was asked."""
        self._looks: Flights[Rendered] = Flights(lasting=True)

    async def reward(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        strings = (await self._look()).strings
        messages = text_messages(turns, control_strings=strings)
        while True:
            try:
                answer = await self.server.post(self.endpoint, self._body(messages), root=True)
                break
            except JudgeUnavailable as error:
                if error.lost:  # it may come back with another template
                    self._seen = None
                raise
            except JudgeRejected as error:
                if not TOO_LONG.search(str(error)):
                    raise
                messages = shorter(turns, strings, messages, 0.6)
        value = _number(answer)
        if value is None:
            raise JudgeUnavailable(f"{self.server} answered {self.endpoint} without a single number")
        (usage,) = usage_shares(answer.get("usage"), 1)
        return value, usage

    async def _look(self) -> Rendered:
        """Return what the server's chat template does; all callers wait for one look."""
        if self._seen is None:
            self._seen = await self._looks.join(None, self._find_out)
        return self._seen

    async def _find_out(self) -> Rendered:
        found = await rendered_by(
            self.server, self.model, REWARD_MODEL, generation_prompt=self._generation_prompt
        )
        if self.endpoint == "/score":  # a template of its own, which no server shows
            found = msgspec.structs.replace(found, unverified=UNSHOWN)
        return found

    @property
    def unverified(self) -> str:
        """Why it is not known that the server renders texts as they were written; empty: it does, as far as it was asked."""
        return self._seen.unverified if self._seen is not None else ""

    def _body(self, messages: Messages) -> dict[str, Any]:
        body: dict[str, Any] = {"use_activation": self._activation}
        if self.model is not None:
            body["model"] = self.model
        if self.endpoint == "/score":
            queries = "\n".join(m["content"] for m in messages[:-1])
            return {**body, "queries": queries, "documents": messages[-1]["content"]}
        body |= {"messages": messages, "add_generation_prompt": self._generation_prompt}
        return {**body, "task": "classify"} if self.endpoint == "/pooling" else body

    async def start(self) -> None:
        """Check the server, and look at what it makes of messages. Raises JudgeUnavailable if it is not healthy."""
        if not await self.server.healthy():
            raise JudgeUnavailable(f"{self.server} is not healthy or not reachable")
        await self._look()

    async def ready(self) -> bool:
        """Whether the server says that it is healthy."""
        return await self._health.healthy()

    async def progress(self) -> object:
        """Return what the engine has done so far, where the server's `/metrics` tell it (vLLM's do)."""
        return await self._health.work_done()

    async def load(self) -> EngineLoad | None:
        """Return how busy the engine is; None where the server's `/metrics` do not tell it."""
        return await self._health.load()

    async def close(self) -> None:
        self._looks.cancel()
        await self.server.close()
        await self._health.close()

    async def identity(self) -> str:
        return f"{self.model or 'reward model'} at {self.server}"

    def __repr__(self) -> str:
        return f"HTTPRewardModel({self.server.url!r}, {os.fspath(self.endpoint)!r})"


def _number(answer: dict[str, Any]) -> float | None:
    """Return the single number of /classify (`probs`), /pooling (`data`) or /score (`score`)."""
    entries = answer.get("data")
    entry = entries[0] if isinstance(entries, list) and len(entries) == 1 else None
    if not isinstance(entry, dict):
        return None
    found = entry.get("probs", entry.get("score", entry.get("data")))
    while isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= sys.float_info.max:
        return None
    return float(found)
