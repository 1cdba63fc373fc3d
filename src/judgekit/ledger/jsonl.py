"""Reads rollouts from JSONL files, and writes results to them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from judgekit.errors import DataError, did_you_mean
from judgekit.types import RewardResult, Rollout

_FIELDS = Rollout.__struct_fields__
_FIRST = ("id", "group", "data_source", "prompt", "response")
_ROW_ORDER = (*_FIRST, *(field for field in _FIELDS if field not in _FIRST))


def read_rollouts(path: str | os.PathLike[str], *, limit: int | None = None) -> list[Rollout]:
    """Read a JSONL file with one rollout per line.

    The keys are the fields of `Rollout`; other keys are kept in `extra`. Skips blank lines. Raises DataError, which
    names the file and the line, for anything else that cannot be read.
    """
    rollouts: list[Rollout] = []
    for number, line in numbered_lines(path):
        if limit is not None and len(rollouts) >= limit:
            break
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {number}: not JSON ({error})") from None
        try:
            rollouts.append(rollout_from(row))
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
    if not rollouts:
        raise DataError(f"{path} holds no rollouts")
    return rollouts


def rollout_from(row: Any) -> Rollout:
    """Make a rollout from a mapping; keys that `Rollout` lacks go to `extra`."""
    if not isinstance(row, Mapping):
        raise DataError(f"a rollout is an object with at least a 'response', not {type(row).__name__}")
    if "response" not in row:
        hint = did_you_mean("response", row)
        raise DataError(f"the rollout has no 'response'{hint}")
    known = {key: value for key, value in row.items() if key in _FIELDS}
    rest = {key: value for key, value in row.items() if key not in _FIELDS}
    extra = known.get("extra") or {}
    if not isinstance(extra, Mapping):
        raise DataError("'extra' is an object")
    known["extra"] = {**rest, **extra}
    if isinstance(known.get("group"), list):
        known["group"] = tuple(known["group"])
    for key, kinds, name in (
        ("response", str, "text"),
        ("prompt", (str, list), "text or a list of messages"),
        ("messages", list, "a list of messages"),
        ("data_source", str, "text"),
        ("finish_reason", (str, type(None)), "text"),
        ("response_tokens", (int, type(None)), "a whole number"),
        ("id", (str, int), "text"),
    ):
        if key in known and not isinstance(known[key], kinds):
            raise DataError(f"{key!r} is {name}, not {type(known[key]).__name__}")
    if "id" in known:
        known["id"] = str(known["id"])
    return Rollout(**known)


def result_row(rollout: Rollout, result: RewardResult) -> dict[str, Any]:
    """A rollout and its result, as one row of a results file."""
    row = {key: value for key in _ROW_ORDER if (value := getattr(rollout, key)) not in ("", None, (), {})}
    row |= {"group": result.group, "response": rollout.response}
    row |= {
        "reward": result.reward,
        "status": result.status,
        "raw_reward": result.raw_reward,
        "contributions": result.contributions,
        "grades": result.grades,
    }
    if result.missing:
        row["missing"] = result.missing
    if result.policies:
        row["policies"] = result.policies
    return row


def json_line(row: Any) -> str:
    """Encode *row* as one line of JSONL."""
    return _encoder.encode(row).decode("utf-8", "replace") + "\n"


_encoder = msgspec.json.Encoder(enc_hook=repr)


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
