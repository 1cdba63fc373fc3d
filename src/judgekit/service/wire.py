"""What client and server agree on: media types, the key's header, and the form of a result."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from judgekit.ledger.jsonl import encoded
from judgekit.types import RewardResult, Rollout

JSON = "application/json"
LINES = "application/x-ndjson"
KEY = "Idempotency-Key"
"""Header: requests with one key are one request, however often they come."""


def answer(result: RewardResult, rollout: Rollout) -> bytes:
    """Encode a result, with the id that the client gave its rollout, as one JSON text without a newline."""
    # spliced, since a copy of the result with one more field takes as long as all the rest
    try:
        return b'%s,"id":%s}' % (_encode(result)[:-1], _encode(rollout.id))
    except Exception:  # what JSON cannot hold, of a grader or of a data set, becomes text
        return b'%s,"id":%s}' % (encoded(result)[:-2], encoded(rollout.id)[:-1])


def hashable(type_: Any, value: Any) -> Any:
    """For msgspec: make a group's id of JSON hashable, where a `Hashable` is wanted."""
    if type_ is not Hashable:
        raise NotImplementedError(type_)
    return tuple(hashable(Hashable, item) for item in value) if isinstance(value, list) else value


_encode = msgspec.json.Encoder().encode
