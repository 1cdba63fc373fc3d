"""The ledger's format: an append-only JSONL file with one line per graded rollout.

A line has everything that its reward was computed from, so that rewards can be recomputed with other weights (`replay`)
and every verdict can be traced. A run writes a `spec` line before its first rollout. A rollout whose grade has come, but
not its reward, gets an "unfinished" line with its grades so far; its own line follows, is complete, and counts instead.
Lines are appended whole, so that processes can share a ledger, and survive a killed process. On reading, a torn line is
skipped and reported.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded, stable
from judgekit.types import NO_NUMBERS, Grade, Price, RewardResult, Rollout, Status, Usage
from judgekit.version import __version__

logger = logging.getLogger("judgekit")

FORMAT = 1
"""The format that this version writes. It reads older ones, too, and refuses newer ones, which may mean something else."""
RESUMES = "resumes"
"""Tag of a run: the ids of the runs that it replaces."""
STEP_TAGS = ("step", "global_step", "global_steps")
"""Names under which hosts tag a run with its training step."""


class Spec(Struct, frozen=True, kw_only=True, tag_field="type", tag="spec"):
    """How the rollouts with this digest were graded."""

    digest: str
    """Identifies this spec in the lines of its rollouts."""
    graders: Mapping[str, GraderSpec]
    reward: Any
    """The reward tree, in its YAML form."""
    transform: str
    missing_reward: Any
    drop_if: str | None = None
    judgekit: str
    """Version of judgekit."""
    format: int = 1
    """Version of the ledger's format, see `FORMAT`."""

    @classmethod
    def of(
        cls,
        graders: Mapping[str, GraderSpec],
        *,
        reward: Any,
        transform: str,
        missing_reward: Any,
        drop_if: str | None = None,
    ) -> Spec:
        """Describe how rollouts are graded. The digest covers what their grades, rewards and costs depend on."""
        what = [graders, reward, transform, missing_reward, *([] if drop_if is None else [drop_if])]
        body = msgspec.json.encode(what, order="deterministic")
        return cls(
            digest=blake2b(body, digest_size=6).hexdigest(),
            graders=graders,
            reward=reward,
            transform=transform,
            missing_reward=missing_reward,
            drop_if=drop_if,
            judgekit=__version__,
        )


class GraderSpec(Struct, frozen=True, omit_defaults=True):
    """One grader of a spec."""

    version: str
    score_range: tuple[Any, Any]
    """Lowest and highest score; infinities are the texts "-inf" and "inf", since JSON has no such numbers."""
    price: Price | None = None
    """The price of its judge's tokens, if known."""
    fingerprint: str = ""
    """Digest of the settings that its grades depend on, its judges' included; empty if not known."""
    trust: tuple[float, float] | None = None
    """It abstains where its score is between these two."""

    @classmethod
    def of(
        cls,
        version: str,
        bounds: tuple[float, float],
        price: Price | None = None,
        fingerprint: str = "",
        trust: tuple[float, float] | None = None,
    ) -> GraderSpec:
        low, high = (x if math.isfinite(x) else str(x) for x in bounds)
        return cls(version, (low, high), price, fingerprint, trust)

    def bounds(self) -> tuple[float, float]:
        low, high = self.score_range
        return float(low), float(high)

    def same_as(self, other: GraderSpec) -> bool:
        """Whether grades of both are comparable."""
        return (self.version, self.bounds()) == (other.version, other.bounds())

    def same_settings(self, other: GraderSpec) -> bool:
        """Whether both give the same grades: they are comparable, and of the same settings as far as these are known."""
        return self.same_as(other) and (self.fingerprint, self.trust) == (other.fingerprint, other.trust)


class Comparison(Struct, frozen=True, array_like=True):
    """A call of a grader that compares the members of a group."""

    call: str
    """Identifies it: its run, and its number there. A run that takes its grades writes the same."""
    members: int
    """How many members it compared."""


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="rollout"):
    """One graded rollout."""

    spec: str
    time: float
    """Seconds since the epoch. Clocks jump: which of a rollout's lines counts is decided by `order`."""
    run: str
    """Identifies the call of the runner."""
    order: int = 0
    """Its place among the lines of its run: of several unfinished lines of a rollout, the last one counts."""
    index: int
    group: Any
    group_first: int = 0
    """Index of its group's first member: two groups of a run may have one id."""
    id: str = ""
    tags: Mapping[str, Any] = {}
    """What the host passed to `run`: training step, policy version, …"""
    reward: float | None
    status: Status | Literal["unfinished"]
    """"unfinished": the grades so far of a rollout without a reward. Another line follows, unless the run ended early."""
    raw_reward: float | None
    contributions: Mapping[str, float]
    turns: Sequence[float] = ()
    grades: Mapping[str, Grade]
    compared: Mapping[str, Comparison] = {}
    """By grader, the call that compared it with other members of its group."""
    group_numbers: Mapping[str, float | None] = NO_NUMBERS
    missing: Sequence[str] = ()
    policies: Sequence[str] = ()
    usage: Usage = Usage()
    wall_s: float = 0.0
    data_source: str = ""
    finish_reason: str | None = None
    response_tokens: int | None = None
    response_chars: int = 0
    rollout_digest: str = ""
    """Digest of everything that a grader can read, kept here or not. Rollouts with equal digests get equal grades."""
    prompt: Any = None
    """Prompt, messages, response, ground truth and extra are only kept with `Ledger(texts=True)`."""
    messages: Sequence[Any] = ()
    response: str | None = None
    ground_truth: Any = None
    extra: Mapping[str, Any] = {}

    @classmethod
    def of(
        cls, result: RewardResult, rollout: Rollout, *, digest: str = "", texts: bool = False, **fields: Any
    ) -> Entry:
        """Make the entry of a result. *digest*: the rollout's; *fields*: what neither the result nor the rollout has."""
        if texts:
            fields |= {name: getattr(rollout, name) for name in TEXTS}
        return cls(
            time=time.time(),
            index=result.index,
            group=result.group,
            id=rollout.id,
            reward=result.reward,
            status=result.status,
            raw_reward=result.raw_reward,
            contributions=result.contributions,
            turns=result.turns,
            group_numbers=result.group_numbers,
            missing=result.missing,
            policies=result.policies,
            grades=result.grades,
            usage=result.usage,
            wall_s=result.wall_s,
            data_source=rollout.data_source,
            finish_reason=rollout.finish_reason,
            response_tokens=rollout.response_tokens,
            response_chars=len(rollout.response),
            rollout_digest=digest or rollout_digest(rollout),
            **fields,
        )

    @property
    def rollout(self) -> tuple[str, bytes, str]:
        """What identifies the rollout, also in another run: its id, group and digest."""
        return self.id, encoded(self.group), self.rollout_digest

    def to_rollout(self) -> Rollout:
        """Make the rollout, without its texts if they were not kept."""
        return Rollout(
            response=self.response or "",
            prompt=self.prompt or "",
            group=_hashable(self.group),
            ground_truth=self.ground_truth,
            messages=tuple(self.messages),
            data_source=self.data_source,
            finish_reason=self.finish_reason,
            response_tokens=self.response_tokens,
            extra=self.extra,
            id=self.id,
        )


def _hashable(group: Any) -> Any:
    if isinstance(group, list):
        return tuple(map(_hashable, group))
    return repr(group) if isinstance(group, dict) else group


Line = Spec | Entry
TEXTS = ("prompt", "messages", "response", "ground_truth", "extra")
"""What is only kept with `Ledger(texts=True)`."""
_graded = attrgetter(*(field for field in Rollout.__struct_fields__ if field not in ("id", "group")))


def tagged_step(tags: Mapping[str, Any], default: Any = None) -> Any:
    """Return the training step that a run is tagged with, *default* if there is none."""
    return next((tags[tag] for tag in STEP_TAGS if tag in tags), default)


def rollout_digest(rollout: Rollout) -> str:
    """Return a digest of everything that a grader can read of a rollout, except its id and group."""
    return blake2b(stable(_graded(rollout)), digest_size=8).hexdigest()


def foreign(path: Path, number: int, error: Exception) -> DataError:
    """Return the error for a line of JSON that is not a ledger's."""
    return DataError(
        f"{path}, line {number}: not a line of a judgekit ledger ({error}); give the file of --ledger, not that of --out"
    )
