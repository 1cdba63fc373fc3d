"""Groups rollouts by prompt."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from judgekit.errors import DataError
from judgekit.types import Rollout


def group_by_prompt(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Return the indices of *rollouts* by group, groups by first appearance, members in input order.

    Members need not be adjacent, and groups may differ in size. The ids 1, 1.0 and True are three groups.
    A rollout without `group` is grouped by its prompt, with images beside it, and its ground truth, and is alone if it has none of them. Raises
    DataError for a group id that cannot be hashed or compared, and for a ground truth that cannot be compared.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        key = group_key(rollout, index)
        try:
            groups.setdefault(key, []).append(index)
        except Exception as error:  # of the id's own __eq__
            raise DataError(
                f"rollout {index}: comparing its group id, a {type(rollout.group).__name__}, raised {type(error).__name__}"
            ) from None
    return list(groups.values())


def check_groups(groups: Iterable[Iterable[int]], rollouts: int) -> list[list[int]]:
    """Return *groups* as lists, without empty ones. Raises DataError unless each rollout's place is in them once."""
    try:
        found = [[operator.index(place) for place in group] for group in groups]
    except TypeError as error:
        raise DataError(
            f"groups are lists of the rollouts' places, such as [[0, 1], [2, 3]]: {error}"
        ) from None
    counts = Counter(place for group in found for place in group)
    wrong = [
        f"place {place} is in them {counts[place]} times" for place in range(rollouts) if counts[place] != 1
    ]
    wrong += [f"there is no place {place}" for place in counts if not 0 <= place < rollouts]
    if wrong:
        raise DataError(
            f"groups must hold the place of each of the {rollouts} rollouts once; {'; '.join(wrong[:3])}"
        )
    return [group for group in found if group]


def group_key(rollout: Rollout, index: int) -> Hashable:
    """Return a key that is equal for the rollouts of a group. Raises DataError as `group_by_prompt`, with the *index*."""
    given = rollout.group
    if type(given) is str or type(given) is int:
        return given
    try:
        if given is not None:
            key: Hashable = _id_key(given)
        else:
            key = ("alone", index) if _is_alone(rollout) else ("prompt", *_prompt(rollout))
        hash(key)
    except DataError as error:
        raise DataError(f"rollout {index}: {error}") from None
    except Exception:
        raise DataError(
            f"rollout {index}: its group id must be hashable, not {type(given).__name__}"
        ) from None
    return key


def group_id(rollout: Rollout) -> Hashable:
    """Return the rollout's group for results and ledger: the host's id, or a digest of prompt and truth, or None."""
    if rollout.group is not None or _is_alone(rollout):
        return rollout.group
    text = repr(_prompt(rollout)).encode("utf-8", "surrogatepass")
    return f"prompt-{blake2b(text, digest_size=8).hexdigest()}"


def _is_alone(rollout: Rollout) -> bool:
    """Whether nothing tells which group it belongs to."""
    return not rollout.prompt and rollout.ground_truth is None


_MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns that are part of a prompt beside its text."""


def _prompt(rollout: Rollout) -> tuple[bytes | str | None, ...]:
    prompt: Any = rollout.prompt
    truth: Any = rollout.ground_truth
    if not isinstance(prompt, str):
        prompt = _encoded(prompt)
    if not (truth is None or isinstance(truth, str)):
        truth = _encoded(truth)
    held = (rollout.extra.get(name) for name in _MEDIA)
    media = [
        _encoded(one)
        for one in held
        if not (one is None or (isinstance(one, list | tuple | str) and not one))
    ]
    return prompt, truth, *media


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


def not_a_rollout(item: Any, index: int) -> DataError:
    """Return the error for an item that is no rollout."""
    rows = ": judgekit.data.rollouts_from makes rollouts of rows" if isinstance(item, Mapping) else ""
    return DataError(f"item {index} is a {type(item).__name__}, not a judgekit.Rollout{rows}")
