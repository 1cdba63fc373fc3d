"""Requests to a judge and its replies. Engines and layers all implement `Judge`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from judgekit.errors import ConfigError
from judgekit.types import Usage

Role = Literal["system", "user", "assistant"]


class Piece(Struct, frozen=True, gc=False, omit_defaults=True):
    """A part of a prompt."""

    text: str
    trusted: bool = True
    """False for text from a dataset or a rollout: it is tokenised as data, so that no part of it becomes a
    control token."""
    max_tokens: int | None = None
    """An untrusted piece longer than this many tokens is cut in the middle, and marked as cut. If a prompt does not
    fit the context, pieces with a limit are cut first (`UNLIMITED`: only then), those without it last."""
    pool: int = 0
    """Pieces of one prompt with the same number above 0 share their `max_tokens`: together they have that many."""
    image: str = ""
    """The URL of an image in place of a text, for judges with `images`."""


UNLIMITED = 1 << 40
"""`Piece.max_tokens` of a text that is cut before others, but only if the prompt does not fit."""


class Turn(Struct, frozen=True):
    """One chat turn; its content is its pieces, concatenated."""

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
    """Maximum tokens of the reply; None: the verdict format's."""
    thinking: bool = False
    """Whether the judge thinks before its verdict. Passed to the chat template as `enable_thinking`."""
    thinking_tokens: int = 1024
    """Maximum tokens of the thinking, beside the reply's; thinking that is longer is closed there."""
    priority: int = 0
    """Requests with a lower one go first, where the engine schedules by it (vLLM: `scheduling_policy: priority`). Changes no verdict."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature is a number from 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is a share above 0 and up to 1, not {self.top_p}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens is at least 1, not {self.max_tokens}")
        if self.thinking_tokens < 1:
            raise ConfigError(f"thinking_tokens is at least 1, not {self.thinking_tokens}")


class JudgeRequest(Struct, frozen=True, omit_defaults=True):
    """One question to a judge."""

    turns: tuple[Turn, ...]
    choices: tuple[str, ...] = ()
    """Labels for a one-token verdict; empty: the judge writes text."""
    json_schema: Mapping[str, Any] | None = None
    """The engine constrains the reply to this schema, if it supports that."""
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    """Texts at which a reply ends, before them."""
    sampling: Sampling = Sampling()
    vote: int = 0
    """Number of this vote. Part of the cache key, so that n votes are n requests."""
    asker: str = ""
    """`name@version` of the grader that asks; part of the cache key."""
    nonce: str = ""
    """A random code in the prompt that the verdict must repeat, so that no text written earlier can be a
    verdict. Not part of the cache key."""
    run: str = ""
    """The run that asks. Part of the cache key of what another run would not get again."""
    accept: Callable[[JudgeReply], object] | None = None
    """Raises VerdictError if a reply contains no verdict; a cache stores only replies that pass. Not sent to
    other processes."""


class JudgeReply(Struct, frozen=True, omit_defaults=True):
    """One answer of a judge."""

    text: str
    finish_reason: str = "stop"
    """Why the reply ended: "stop" if it is complete, "length" if it was cut."""
    choice_probs: Mapping[str, float] | None = None
    """For requests with choices: each label's probability, normalised over the labels."""
    label_mass: float | None = None
    """Share of the labels in the full vocabulary's probability (0..1); None if the engine constrained the
    choice, so that the share is unknown."""
    usage: Usage = Usage()
    latency_s: float = 0.0
    model: str = ""
    """Identity of the weights that produced the reply."""
    nonce: str = ""
    """If the reply is from a cache: the nonce of the request it was made for."""
    thinking: str = ""
    """What the judge thought before it, where that is known."""
    thinking_cut: bool = False
    """Whether the thinking was longer than allowed, and was closed."""
    identity: str | None = None
    """What made it, as the engine's `identity()` says it: a cache files it under that. Empty where this is not known for
    certain: it is used, and not stored. None: the engine does not say, and is asked before and after the call."""


@runtime_checkable
class Judge(Protocol):
    """A judge engine, or a layer around one.

    `complete` raises `JudgeUnavailable`, `JudgeTimeout` or `JudgeRejected`, never a library's own error.
    """

    async def complete(self, request: JudgeRequest, /) -> JudgeReply: ...


WRAPPER: ContextVar[Callable[[Judge], Judge] | None] = ContextVar("judgekit_wrapper", default=None)
"""What a grader puts around a judge before it asks it, such as a tracer; None: nothing."""


class RewardModel(Protocol):
    """A model that scores a conversation with one number."""

    async def reward(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        """Return the last turn's reward, and the usage. Raises JudgeError."""
        ...
