"""Groups rollouts by prompt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from judgekit.errors import DataError
from judgekit.types import Rollout


def group_by_prompt(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Return the indices of *rollouts* by group, groups by first appearance, members in input order.

    Members need not be adjacent, and groups may differ in size. The ids 1, 1.0 and True are three groups.
    A rollout without `group` is grouped by its prompt and ground truth. Raises DataError for a group id that
    cannot be hashed, and for a ground truth that cannot be compared.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        groups.setdefault(group_key(rollout, index), []).append(index)
    return list(groups.values())


def group_key(rollout: Rollout, index: int) -> Hashable:
    """Return a key that is equal for the rollouts of a group. Raises DataError as `group_by_prompt`, with the *index*."""
    given = rollout.group
    if type(given) is str or type(given) is int:
        return given
    try:
        key: Hashable = ("prompt", *_prompt(rollout)) if given is None else _id_key(given)
        hash(key)
    except DataError as error:
        raise DataError(f"rollout {index}: {error}") from None
    except Exception:
        raise DataError(
            f"rollout {index}: its group id must be hashable, not {type(given).__name__}"
        ) from None
    return key


def group_id(rollout: Rollout) -> Hashable:
    """Return the rollout's group for results and ledger: the host's id, or a digest of prompt and truth."""
    if rollout.group is not None:
        return rollout.group
    text = repr(_prompt(rollout)).encode("utf-8", "surrogatepass")
    return f"prompt-{blake2b(text, digest_size=8).hexdigest()}"


def _prompt(rollout: Rollout) -> tuple[bytes | str, bytes | str | None]:
    prompt: Any = rollout.prompt
    truth: Any = rollout.ground_truth
    if not isinstance(prompt, str):
        prompt = _encoded(prompt)
    if not (truth is None or isinstance(truth, str)):
        truth = _encoded(truth)
    return prompt, truth


def _id_key(given: Any) -> Hashable:
    """Return a host's id as a key that distinguishes 1, 1.0 and True, also in tuples, and from any prompt's key.

    Numpy's numbers equal Python's.
    """
    if isinstance(given, tuple):
        return ("ids", *map(_id_key, given))
    if getattr(given, "ndim", None) == 0:
        given = given.item()
    if isinstance(given, bool | float):
        if given != given:
            raise DataError("a group id is nan, which equals nothing: give the rollouts of a prompt one id")
        return (type(given).__name__, given)
    return given  # type: ignore[no-any-return]


def _encoded(value: Any) -> bytes | str:
    """Encode all of *value* for comparison. A repr would not do: it may be abbreviated, or only name an address."""
    try:
        return _encoder.encode(value)
    except (TypeError, OverflowError, UnicodeError):  # keys that are no text, huge ints, lone surrogates
        return repr(msgspec.to_builtins(value, enc_hook=_plain, builtin_types=(bytes,)))
    except RecursionError:
        raise DataError(
            "a prompt or ground truth that holds itself: give the rollouts their `group`"
        ) from None


def _plain(value: Any) -> Any:
    """Convert what msgspec does not know: arrays to their values, other objects to what pickle keeps of them."""
    try:
        if isinstance(value, type):
            return f"{value.__module__}.{value.__qualname__}"
        if hasattr(value, "tolist"):
            return value.tolist()
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return reduced
        make, arguments, state, *contents = (*reduced, None, None, None)[:5]
        return [make.__qualname__, arguments, state, *(list(c) for c in contents if c is not None)]
    except Exception:
        raise DataError(
            f"a {type(value).__name__} in a prompt or ground truth cannot be compared with others: "
            "give the rollouts their `group`"
        ) from None


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
