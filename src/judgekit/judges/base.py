"""What a judge is asked and what it answers. Engines and layers implement `Judge`, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from judgekit.types import Usage

Role = Literal["system", "user", "assistant"]


class Piece(Struct, frozen=True, gc=False, omit_defaults=True):
    """A stretch of a prompt."""

    text: str
    trusted: bool = True
    """False for whatever a dataset or a policy wrote: it is tokenised as data, so that no part of it
    becomes a control token."""
    max_tokens: int | None = None
    """An untrusted piece longer than this many tokens is cut in its middle, and says so."""


class Turn(Struct, frozen=True):
    """One chat turn; its content is the concatenation of its pieces."""

    role: Role
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Sampling(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """How the judge generates. The default is greedy and without thinking."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    """Only used at a temperature above 0."""
    max_tokens: int | None = None
    """Tokens the reply may have; None: as many as the verdict format asks for."""
    thinking: bool = False
    """Passed to the chat template as `enable_thinking`."""


class JudgeRequest(Struct, frozen=True, omit_defaults=True):
    """One question to a judge."""

    turns: tuple[Turn, ...]
    choices: tuple[str, ...] = ()
    """Labels of a one-token read; empty: the judge writes text."""
    json_schema: Mapping[str, Any] | None = None
    """The reply is constrained to this schema where the engine can."""
    max_tokens: int = 512
    sampling: Sampling = Sampling()
    vote: int = 0
    """Which of several votes this is: part of the cache key, else n votes would be one."""
    asker: str = ""
    """`name@version` of the grader that asks; part of the cache key."""
    nonce: str = ""
    """A code that the prompt gives and the verdict must repeat, so that nothing that was written before
    can be one. Not part of the cache key."""
    accept: Callable[[JudgeReply], object] | None = None
    """Raises VerdictError where a reply holds no verdict: a cache keeps only what passes. Stays at home when
    a request travels."""


class JudgeReply(Struct, frozen=True, omit_defaults=True):
    """One answer of a judge."""

    text: str
    finish_reason: str = "stop"
    """The engine's word for why it ended: "stop" is a whole reply, "length" a cut one."""
    choice_probs: Mapping[str, float] | None = None
    """For a request with choices: probability of each label, normalised over the labels."""
    label_mass: float | None = None
    """Probability that the labels together have in the full vocabulary (0..1); None where the engine
    constrained the choice and cannot tell."""
    usage: Usage = Usage()
    latency_s: float = 0.0
    model: str = ""
    """Identity of the weights that answered."""
    nonce: str = ""
    """The request's nonce at the time, where a cache answered; else empty."""


@runtime_checkable
class Judge(Protocol):
    """A judge engine, or a layer around one.

    `complete` raises `JudgeUnavailable`, `JudgeTimeout` or `JudgeRejected`, never a library's own error.
    """

    async def complete(self, request: JudgeRequest, /) -> JudgeReply: ...
