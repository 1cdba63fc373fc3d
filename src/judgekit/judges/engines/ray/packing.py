"""Serialises requests, replies and errors for judges in other processes.

Uses msgpack instead of pickle: the two sides may have different versions of judgekit, and neither needs the
other's libraries.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from judgekit.errors import (
    ConfigError,
    JudgekitError,
    JudgeLoading,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    RolloutError,
    describe,
)
from judgekit.judges.base import JudgeReply, JudgeRequest

_ERRORS: dict[str, type[JudgekitError]] = {
    kind.__name__: kind
    for kind in (JudgeUnavailable, JudgeLoading, JudgeTimeout, JudgeRejected, ConfigError, RolloutError)
}


class Answer(Struct, frozen=True, omit_defaults=True):
    """One reply, or an error."""

    number: int
    reply: JudgeReply | None = None
    error: str = ""
    detail: str = ""
    retry_after: float | None = None

    def result(self) -> JudgeReply | Exception:
        if self.reply is not None:
            return self.reply
        if self.error == "JudgeUnavailable":
            return JudgeUnavailable(self.detail, self.retry_after)
        return _ERRORS.get(self.error, JudgeUnavailable)(self.detail)


def answer(number: int, result: JudgeReply | BaseException) -> Answer:
    """Make the answer to request *number*."""
    if isinstance(result, JudgeReply):
        return Answer(number, result)
    name, detail = describe(result)
    if name not in _ERRORS:
        name, detail = "JudgeUnavailable", f"{name}: {detail}"
    return Answer(number, None, name, detail, getattr(result, "retry_after", None))


def pack_requests(requests: Sequence[tuple[int, JudgeRequest]]) -> bytes:
    return _encoder.encode(requests)


def unpack_requests(data: bytes) -> list[tuple[int, JudgeRequest]]:
    return _requests.decode(data)


def pack_answers(first: int, answers: Sequence[Answer]) -> bytes:
    """*first*: number of the first answer, counted over all answers to this caller."""
    return _encoder.encode((first, answers))


def unpack_answers(data: bytes) -> tuple[int, list[Answer]]:
    return _answers.decode(data)


_encoder = msgspec.msgpack.Encoder(enc_hook=lambda _: None)  # drops `accept`, which is a function
_requests = msgspec.msgpack.Decoder(list[tuple[int, JudgeRequest]])
_answers = msgspec.msgpack.Decoder(tuple[int, list[Answer]])
