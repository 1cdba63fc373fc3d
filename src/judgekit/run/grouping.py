"""Which rollouts answer the same prompt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from judgekit.errors import DataError
from judgekit.types import Rollout


def group_by_prompt(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Indices of *rollouts* by group: a partition, groups by first appearance, members in input order.

    Members need not stand together, and groups may differ in size. A rollout without `group` is grouped by
    its prompt and ground truth. Raises DataError for a group id that cannot be hashed.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        key = rollout.group
        if key is None:
            key = _prompt_key(rollout)
        try:
            groups.setdefault(key, []).append(index)
        except TypeError:
            raise DataError(
                f"rollout {index}: its group id must be hashable, not {type(key).__name__}"
            ) from None
    return list(groups.values())


def group_id(rollout: Rollout) -> Hashable:
    """The rollout's group as results and ledger show it: the host's id, or a digest of prompt and truth."""
    if rollout.group is not None:
        return rollout.group
    return (
        "prompt-"
        + blake2b(repr(_prompt_key(rollout)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    )


class _PromptKey(tuple[Any, ...]):
    """A key of its own type, so that no host's id equals it by accident."""

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is _PromptKey and tuple.__eq__(self, other)


def _prompt_key(rollout: Rollout) -> _PromptKey:
    prompt: Any = rollout.prompt
    truth: Any = rollout.ground_truth
    if not isinstance(prompt, str):
        prompt = _encoded(prompt)
    if not (truth is None or isinstance(truth, str)):
        truth = _encoded(truth)
    return _PromptKey((prompt, truth))


def _encoded(value: Any) -> bytes | str:
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


_encoder = msgspec.json.Encoder(order="deterministic")
