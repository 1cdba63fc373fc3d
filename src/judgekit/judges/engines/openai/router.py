"""How requests name their group to a router in front of replicas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

from msgspec import Struct

from judgekit.errors import ConfigError, did_you_mean
from judgekit.judges.base import JudgeRequest

ROUTERS: Mapping[str, str | None] = {
    "dynamo": "X-Dynamo-Session-ID",
    "litellm": "x-litellm-session-id",
    "llm-d": None,
    "production-stack": "x-user-id",
    "ray-serve": None,
    "sglang-router": "X-SMG-Routing-Key",
    "smg": "X-SMG-Routing-Key",
    "vllm-router": "X-Session-ID",
}
"""Routers by name, with the header whose value keeps requests on one replica; None: it reads the prompt's beginning.

Sources: docs.nvidia.com/dynamo (session affinity: `--router-session-affinity-ttl-secs`), docs.litellm.ai (`optional_pre_call_checks`),
llm-d.ai (prefix-cache scorer), docs.vllm.ai/projects/production-stack (`--routing-logic session --session-key x-user-id`), docs.ray.io
(PrefixCacheAffinityRouter), smg docs (`--routing-key-override`), vllm-router's README (`--policy consistent_hash`).
"""


class Routing(Struct, frozen=True):
    """What stands between a judge and its replicas."""

    routed: bool = False
    """Whether anything does: then a POST has one group's requests only."""
    header: str | None = None

    def key(self, request: JudgeRequest) -> str:
        """Return what a request has in common with those that should reach the same replica."""
        return routing_key(request) if self.routed else ""

    def headers(self, request: JudgeRequest) -> dict[str, str] | None:
        """Return the header that names a request's group to the router."""
        key = self.key(request) if self.header is not None else ""
        return {self.header: key} if self.header is not None and key else None


def routing_of(router: str | None, header: str | None) -> Routing:
    """Return the routing that a user asks for, by a router's name, a header, or both. Raises ConfigError."""
    if router is not None and router not in ROUTERS:
        raise ConfigError(f"openai: no router is called {router!r}{did_you_mean(router, ROUTERS)}")
    if header is not None and not re.fullmatch(r"[A-Za-z0-9_-]+", header):
        raise ConfigError(
            f"openai: routing_header is the name of a header, such as X-Session-ID, not {header!r}"
        )
    own = ROUTERS[router] if router is not None else None
    return Routing(router is not None or header is not None, header or own)


def routing_key(request: JudgeRequest) -> str:
    """Return a digest of what a group's requests share: the data that is not a rollout's own. Empty if there is none."""
    shared = [
        p.image or p.text
        for turn in request.turns
        for p in turn.pieces
        if not p.trusted and p.max_tokens is None
    ]
    text = "\0".join(shared).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).hexdigest() if text else ""
