"""How requests name their group to a router in front of replicas."""

from __future__ import annotations

from hashlib import blake2b

from judgekit.judges.base import JudgeRequest


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
