"""Reads requests, and refuses those that are none: with answers that no client takes for a score."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from judgekit.data.rollout_files import rollout_from
from judgekit.errors import DataError, JudgekitError
from judgekit.ledger.jsonl import encoded
from judgekit.rollouts.rows import decoded as decoded_json
from judgekit.types import Rollout


class Refusal(Exception):
    """A request that is not graded, as an HTTP answer.

    *retry_after_s*: after which the same request may be sent again; None: that is no use.
    """

    def __init__(
        self, status: int, message: str, *, kind: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.kind = kind or HTTPStatus(status).phrase.replace(" ", "")
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> bytes:
        """An object with `error` and without anything that could be read as a reward."""
        # with the status, for a stream's last line: there the answer's own went out before
        return encoded({"error": {"type": self.kind, "message": self.message, "status": self.status}})


def refusal_of(error: JudgekitError) -> Refusal:
    """The answer to a request whose grading has ended with *error*."""
    if error.retryable:
        wait = getattr(error, "retry_after", None)
        return Refusal(503, str(error), kind=type(error).__name__, retry_after_s=wait or 1.0)
    return Refusal(500, str(error), kind=type(error).__name__)


def decoded(body: bytes) -> Any:
    """Decode a request's body, as files are decoded. Raises Refusal."""
    try:
        return decoded_json(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None


def decoded_object(body: bytes) -> dict[str, Any]:
    """Decode a body that is a JSON object. Raises Refusal."""
    row = decoded(body)
    if not isinstance(row, dict):
        raise Refusal(400, f"the body is a JSON object, not {_name(row)}")
    return row


def field(row: Mapping[str, Any], name: str, kinds: type | tuple[type, ...], wanted: str) -> Any:
    """The field *name* of a request. Raises Refusal where it is missing or of another type."""
    if name not in row:
        raise Refusal(400, f"{name!r} is missing: {wanted}")
    value = row[name]
    if not isinstance(value, kinds):
        raise Refusal(400, f"{name!r} is {wanted}, not {_name(value)}")
    return value


def _name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """A request of our own form."""

    rollouts: list[Rollout]
    tags: dict[str, Any] = {}


def batch(body: bytes) -> Batch:
    """Read a request of our own form. Raises Refusal."""
    try:
        found = _decode_batch(body)  # as most come: a quarter of the time
        if all(one.response_tokens is None or one.response_tokens >= 0 for one in found.rollouts):
            return found
    except (msgspec.DecodeError, DataError, RecursionError, UnicodeDecodeError):
        pass
    row = decoded_object(body)
    rows = field(row, "rollouts", list, "a list of rollouts, each an object with at least 'response'")
    tags = field(row, "tags", dict, "an object") if "tags" in row else {}
    if unknown := row.keys() - {"rollouts", "tags"}:
        raise Refusal(400, f"there is no field {min(unknown)!r}; there is 'rollouts' and 'tags'")
    return Batch([rollout_at(item, f"rollouts[{i}]") for i, item in enumerate(rows)], tags)


def _plain_group(kind: Any, value: Any) -> Any:
    """For msgspec: take a group's id that needs no conversion."""
    if value is None or type(value) in (str, int):
        return value
    raise ValueError(f"a {type(value).__name__} is no plain group")


def rollout_at(row: Any, place: str) -> Rollout:
    """Make a rollout of a row as `judgekit grade` does. Raises Refusal, which names the *place*."""
    try:
        return rollout_from(row)
    except DataError as error:
        # hints are for the command's --map
        hint = re.sub(r"if '([^']*)' is it: --map \w+=\S+", r"send \1 under that name", str(error))
        hint = re.sub(r" \(--map [^)]*\)", "", hint)
        raise Refusal(400, f"{place}: {hint}", kind="DataError") from None


_decode_batch = msgspec.json.Decoder(Batch, dec_hook=_plain_group).decode
