"""Requests, replies and errors as bytes, for judges in other processes.

msgpack, not pickle: the two sides may hold different versions of judgekit, and neither needs the other's
libraries to read what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from judgekit.errors import (
    ConfigError,
    JudgekitError,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    RolloutError,
)
from judgekit.judges.base import JudgeReply, JudgeRequest

_ERRORS: dict[str, type[JudgekitError]] = {
    kind.__name__: kind for kind in (JudgeUnavailable, JudgeTimeout, JudgeRejected, ConfigError, RolloutError)
}


class Answer(Struct, frozen=True, omit_defaults=True):
    """One reply, or the error in its place."""

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
    """What goes back for request *number*."""
    if isinstance(result, JudgeReply):
        return Answer(number, result)
    name, detail = type(result).__name__, str(result)[:2000]
    if name not in _ERRORS:
        name, detail = "JudgeUnavailable", f"{name}: {detail}"
    return Answer(number, None, name, detail, getattr(result, "retry_after", None))


def pack_requests(requests: Sequence[tuple[int, JudgeRequest]]) -> bytes:
    return _encoder.encode(requests)


def unpack_requests(data: bytes) -> list[tuple[int, JudgeRequest]]:
    return _requests.decode(data)


def pack_answers(answers: Sequence[Answer]) -> bytes:
    return _encoder.encode(answers)


def unpack_answers(data: bytes) -> list[Answer]:
    return _answers.decode(data)


_encoder = msgspec.msgpack.Encoder(enc_hook=lambda _: None)  # `accept`, a function, stays at home
_requests = msgspec.msgpack.Decoder(list[tuple[int, JudgeRequest]])
_answers = msgspec.msgpack.Decoder(list[Answer])
