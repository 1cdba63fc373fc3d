"""Makes rollouts of rows: which column is which field, and hints where one seems to be misnamed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import Any

import msgspec

from judgekit.data.files import Broken, Cells, read_rows
from judgekit.errors import ConfigError, DataError, did_you_mean
from judgekit.rollouts.rows import (
    HOLDERS,
    POLICY,
    as_messages,
    given,
    hidden_columns,
    holds_more,
    last_said,
    references_in,
)
from judgekit.run.grouping import group_id
from judgekit.types import OTHER_NAMES, Message, Rollout, end_of, field_meant, plain

logger = logging.getLogger("judgekit")

FIELDS = Rollout.__struct_fields__
_VERL = {"prompt": "input", "response": "output", "ground_truth": "gts"}
_DUMPS: Mapping[str, tuple[frozenset[str], Mapping[str, str]]] = {
    "verl's dump of a step": (
        frozenset(("input", "output", "gts", "score", "step")),
        _VERL,
    ),
    "SkyRL's dump of an evaluation": (
        frozenset(("input_prompt", "output_response", "stop_reason", "env_extras")),
        {
            "prompt": "input_prompt",
            "response": "output_response",
            "finish_reason": "stop_reason",
            "ground_truth": "env_extras.reward_spec.ground_truth",
        },
    ),
}
"""Files that trainers write: the columns that each row has, and which of them is which field."""
PAIR = ("chosen", "rejected")
"""Columns of a preference pair: two responses to one prompt, the better one first."""
PAIRED = "preferred"
"""What `extra` calls it whether a rollout is the better one of its pair."""


def read_rollouts(
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    skip_bad_rows: bool = False,
) -> list[Rollout]:
    """Read the rollouts of a file or data set; see `judgekit.data.files` for the formats.

    *columns*: which column is which field of `Rollout`, as dotted paths: {"response": "completion"}; others keep their
    name, and what is no field goes to `extra`. A column `responses` with a list of texts makes a group of rollouts, and a
    preference pair, in columns `chosen` and `rejected`, a group of two, which `extra.preferred` tells apart, true or false; a
    response that is a list of messages is the text of its last turn. *skip_bad_rows*: leave out rows that cannot be read,
    and say how many and which, instead of refusing the file. Dumps of verl and SkyRL are recognised. Logs a hint where a field that no rollout has seems to stand under another
    name. Raises DataError, which names the file and the place, for anything else that cannot be read.
    """
    rows = each_rollout(read_rows(path), os.fspath(path), columns, skip_bad_rows=skip_bad_rows)
    found = list(islice(rows, limit))
    if not found:
        raise DataError(f"{'standard input' if path == '-' else path} holds no rollouts")
    hint_at_columns(found, os.fspath(path))
    return found


def rollouts_from(
    rows: Any, *, columns: Mapping[str, str] | None = None, skip_bad_rows: bool = False
) -> list[Rollout]:
    """Make rollouts of rows in memory: a list of mappings, a data set, a frame of polars or pandas, an Arrow table.

    *columns* and *skip_bad_rows* as in `read_rollouts`. Raises DataError, which names the row.
    """
    numbered = ((f"row {number}", row) for number, row in enumerate(_as_rows(rows), 1))
    found = list(each_rollout(numbered, type(rows).__name__, columns, skip_bad_rows=skip_bad_rows))
    hint_at_columns(found, type(rows).__name__)
    return found


def _as_rows(rows: Any) -> Iterable[Any]:
    if hasattr(rows, "to_dicts"):  # polars
        return rows.to_dicts()  # type: ignore[no-any-return]
    if hasattr(rows, "to_pylist"):  # pyarrow
        return rows.to_pylist()  # type: ignore[no-any-return]
    if hasattr(rows, "to_dict") and hasattr(
        rows, "iloc"
    ):  # pandas, where nothing is NaN and lists are arrays
        records = rows.astype(object).where(rows.notna(), None).to_dict("records")
        return [plain(row) for row in records]
    return rows  # type: ignore[no-any-return]


def each_rollout(
    rows: Iterable[tuple[str, Any]],
    name: str,
    columns: Mapping[str, str] | None,
    *,
    first: int = 0,
    skip_bad_rows: bool = False,
) -> Iterator[Rollout]:
    """Make rollouts of rows with their places, as `read_rollouts` does, one after another.

    *name*: of the file, for messages. *first*: number of the first row, where the rows before it are elsewhere.
    """
    _check_columns(columns)
    mapping = dict(columns or {})
    skipped: list[str] = []
    told: set[str] = set()
    for number, (place, row) in enumerate(rows, first):
        what, own = ("", mapping) if mapping else _dump(row)
        if what and what not in told:
            told.add(what)
            logger.info("%s is %s", name, what)
        try:
            if isinstance(row, Broken):
                raise DataError(row.problem)
            made = list(_made(row, own, number))
        except DataError as error:
            if not skip_bad_rows:
                where = row.where if isinstance(row, Broken) else f"{name}, {place}"
                raise DataError(f"{where}: {error}") from None
            skipped.append(f"{place}: {error}")
            continue
        yield from made
    if skipped:
        more = f" (and {len(skipped) - _NAMED} more)" if len(skipped) > _NAMED else ""
        logger.warning(
            "%s: left out %d rows that cannot be read: %s%s",
            name,
            len(skipped),
            "; ".join(skipped[:_NAMED]),
            more,
        )


_NAMED = 5
"""Bad rows that a message names."""


def _check_columns(columns: Mapping[str, str] | None) -> None:
    for field, column in (columns or {}).items():
        if (field not in FIELDS and field != "responses") or field == "extra":
            known = [f for f in FIELDS if f != "extra"]
            raise ConfigError(f"a rollout has no field {field!r}{did_you_mean(field, known)}")
        if not column or not isinstance(column, str):
            raise ConfigError(f"the column of {field!r} is a name, not {column!r}")


def _dump(row: Any) -> tuple[str, Mapping[str, str]]:
    """Return what a row is a dump of, and its columns; nothing if it is none."""
    if isinstance(row, Mapping) and "response" not in row:
        for what, (marks, mapping) in _DUMPS.items():
            if marks <= row.keys():
                return what, mapping
    return "", {}


def _made(row: Any, mapping: Mapping[str, str], number: int) -> Iterator[Rollout]:
    cells = isinstance(row, Cells)
    if isinstance(row, Mapping) and mapping:
        row = _renamed(row, mapping)
    if cells:  # an empty one is nothing, but for the response
        row = {k: v or "" for k, v in row.items() if v is not None or k == "response"}
    elif isinstance(row, Mapping):
        row = {key: as_messages(value) for key, value in row.items()}
    responses = responses_of(row)
    if responses is None:
        made = rollout_from(row)
        if mapping is _VERL and made.group is None:  # a prompt of another step is another group
            made = msgspec.structs.replace(made, group=_of_step(made))
        yield made
        return
    paired = row.get("responses") is None
    taken = ("responses", "response", *(PAIR if paired else ()))
    shared = {key: value for key, value in row.items() if key not in taken}
    shared.setdefault("group", number)
    if not responses:
        raise DataError("'responses' is an empty list: the row has no rollout")
    if not paired:
        for response in responses:
            yield rollout_from({**shared, "response": response})
        return
    yield from _pair(responses, shared)


def _of_step(rollout: Rollout) -> Any:
    """Return the name of a group in verl's dump: its own, or the prompt's in this step; None for a rollout that is alone."""
    own = _group(rollout.extra.get("uid"))
    if own not in (None, ""):
        return own
    asked = group_id(rollout)
    return None if asked is None else f"{asked} of step {rollout.extra.get('step')}"


def _pair(responses: Sequence[Any], shared: dict[str, Any]) -> Iterator[Rollout]:
    """Yield the rollouts of a preference pair: the preferred one first."""
    prompt, *both = _turns_apart(*responses)
    known = shared.get("prompt")
    if prompt and len(prompt) > (1 if isinstance(known, str) and known else len(known or ())):
        shared["prompt"] = prompt
    if any(map(_is_messages, both)):
        shared.pop("messages", None)  # the chosen conversation once more
    for response, preferred in zip(both, (True, False), strict=True):
        yield rollout_from({**shared, "response": response, PAIRED: preferred})


def responses_of(row: Any) -> list[Any] | None:
    """Return the responses of a row that has several: of `responses`, or of a preference pair; None of any other row."""
    if not isinstance(row, Mapping) or row.get("response") is not None:
        return None
    responses = row.get("responses")
    if isinstance(responses, Sequence) and not isinstance(responses, str):
        return list(responses)
    pair = [row.get(name) for name in PAIR]
    return None if responses is not None or any(one is None for one in pair) else pair


def _turns_apart(chosen: Any, rejected: Any) -> tuple[Sequence[Message], Any, Any]:
    """Part two conversations into the turns with which both begin, which are their prompt, and the rest of each."""
    if not (_is_messages(chosen) and _is_messages(rejected)):
        return (), chosen, rejected
    most = min(len(chosen), len(rejected)) - 1  # each has an answer
    same = next((i for i in range(most) if chosen[i] != rejected[i]), most)
    return chosen[:same], chosen[same:], rejected[same:]


def _renamed(row: Mapping[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    found = {field: _at(row, column) for field, column in mapping.items()}
    taken = {column for column in mapping.values() if column in row}
    rest = {key: value for key, value in row.items() if key not in taken}
    if "responses" in mapping and "response" in rest:  # another: a reference, perhaps
        own = rest.pop("response")
        extra = rest.get("extra")
        rest["extra"] = {"response": own, **(extra if isinstance(extra, Mapping) else {})}
    if "ground_truth" in mapping:  # the one that was chosen is the only one
        for key in HOLDERS:
            if isinstance(rest.get(key), Mapping):
                rest[key] = {name: value for name, value in rest[key].items() if name != "ground_truth"}
    return {**rest, **found}


def _at(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column, of an entry of `extra_info` or `extra`, or of a dotted path into a column; None where a row has nothing there."""
    if column in row:
        return row[column]
    for holder in ("extra_info", "extra"):
        if isinstance(held := row.get(holder), Mapping) and column in held:
            return held[column]
    value: Any = row
    for part in column.split("."):
        if isinstance(value, list | tuple) and part.lstrip("-").isdecimal():
            value = value[int(part)] if -len(value) <= int(part) < len(value) else None
        elif not isinstance(value, Mapping) or (part not in value and value is row):
            raise DataError(f"there is no column {column!r}{did_you_mean(column, row)}")
        else:
            value = value.get(part)
        if value is None:
            return None
    return value


def rollout_from(row: Any) -> Rollout:
    """Make a rollout from a mapping; keys that `Rollout` lacks go to `extra`. Raises DataError.

    Rows in the format that verl and SkyRL share have their `ground_truth` in `reward_model` or `reward_spec`, and more for
    `extra` in `extra_info`. Trainers take that one; a `ground_truth` beside it must be the same.
    """
    _check_response(row)
    row = {key: plain(value) for key, value in row.items()}
    known = {key: value for key, value in row.items() if key in FIELDS and value is not None}
    rest = {key: value for key, value in row.items() if key not in FIELDS}
    _choose_reference(known, rest)
    if isinstance(rest.get("extra_info"), Mapping):
        info = rest.pop("extra_info")
        columns = {key: value for key, value in row.items() if key not in FIELDS or key == "data_source"}
        rest = {**rest, **info, **hidden_columns(columns, info, known.get("ground_truth"))}
    extra = known.get("extra", {})
    if not isinstance(extra, Mapping):
        raise DataError("'extra' is an object")
    known["extra"] = {**rest, **extra}
    tokens = known.get("response_tokens")
    if (isinstance(tokens, str) and tokens.isdecimal()) or (
        isinstance(tokens, float) and tokens.is_integer()
    ):
        known["response_tokens"] = int(tokens)  # CSV has no numbers, and pandas no whole ones beside NaN
    if _is_messages(known.get("response")):
        _take_apart(known)
    if "group" in known:
        known["group"] = _group(known["group"])
        if not given(known["group"]):
            del known["group"]
    _check_kinds(known)
    if "id" in known:
        known["id"] = str(known["id"])
    return Rollout(**known)


_SAYS = frozenset(("content", "tool_calls", "function_call", "message"))
"""What a message may say something in."""


def _take_apart(known: dict[str, Any]) -> None:
    """Make text of a response of messages, which are the conversation's, or all of it."""
    turns = known["response"]
    said = [turn for turn in turns if turn["role"] in POLICY]
    if not said:
        roles = ", ".join(sorted({repr(turn["role"]) for turn in turns}))
        raise DataError(
            f"no message of the response is the policy's, whose role is 'assistant': there are {roles}"
        )
    if said[-1].keys().isdisjoint(_SAYS):
        others = ", ".join(map(repr, said[-1].keys() - {"role"})) or "nothing"
        raise DataError(f"the response's last message has no 'content', but {others}")
    known["response"] = last_said(turns)
    if not given(known.get("prompt")):  # it is the whole conversation
        known["prompt"] = list(takewhile(lambda turn: turn["role"] not in POLICY, turns)) or ""
    start: Any = known["prompt"]
    if isinstance(start, str):
        start = [{"role": "user", "content": start}] if start else []
    before = start if _is_messages(start) else []  # of another kind, it is refused
    known.setdefault("messages", turns if not before or end_of(before, turns) else [*before, *turns])


def _check_response(row: Any) -> None:
    if not isinstance(row, Mapping):
        raise DataError(f"a rollout is an object with at least a 'response', not {type(row).__name__}")
    if not row:
        raise DataError("the row is empty")
    if row.get("response") is not None:
        return
    if "response" in row:
        raise DataError("'response' is null; a rollout without text has the response \"\"")
    others = [name for name in OTHER_NAMES["response"] if isinstance(row.get(name), str)]
    others += [name for name in ("messages", *OTHER_NAMES["messages"]) if _is_messages(row.get(name))]
    others += get_close_matches("response", map(str, row), n=1)
    hint = f"; if {others[0]!r} is it: --map response={others[0]}" if others else did_you_mean("", row)
    raise DataError(f"the rollout has no 'response'{hint}")


def _choose_reference(known: dict[str, Any], rest: dict[str, Any]) -> None:
    """Make the row's reference its `ground_truth`, wherever it stands. Raises DataError if two differ."""
    own = known.get("ground_truth")
    if not given(own):
        known.pop("ground_truth", None)
    for key, held in references_in(rest, HOLDERS):
        if "ground_truth" not in known:
            known["ground_truth"] = held
            if not holds_more(rest[key]):
                del rest[key]
        elif given(held) and not _same(known["ground_truth"], held):
            raise DataError(
                f"the row has two references that differ, in 'ground_truth' and in {key!r}: keep one "
                f"(--map ground_truth=ground_truth or --map ground_truth={key}.ground_truth)"
            )
    if "ground_truth" not in known and isinstance(own, list | Mapping):
        known["ground_truth"] = own  # no calls, no fields


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "response": ((str,), "text"),
    "prompt": ((str, list), "text or a list of messages"),
    "messages": ((list,), "a list of messages"),
    "data_source": ((str,), "text"),
    "finish_reason": ((str,), "text"),
    "response_tokens": ((int,), "a whole number"),
    "id": ((str, int), "text"),
}


def _check_kinds(known: Mapping[str, Any]) -> None:
    for key, (kinds, name) in _KINDS.items():
        if key in known and (not isinstance(known[key], kinds) or isinstance(known[key], bool)):
            raise DataError(f"{key!r} is {name}, not {type(known[key]).__name__}")
    for key in ("prompt", "messages"):
        if isinstance(known.get(key), list) and not all(isinstance(m, Mapping) for m in known[key]):
            raise DataError(f"{key!r} is a list of messages, each an object with 'role' and 'content'")
    if known.get("response_tokens", 0) < 0:
        raise DataError(f"'response_tokens' is a whole number from 0, not {known['response_tokens']}")


def _same(reference: Any, other: Any) -> bool:
    """Whether two references say the same: numbers by value, also as text."""
    if isinstance(reference, list | tuple) and isinstance(other, list | tuple):
        return len(reference) == len(other) and all(map(_same, reference, other))
    return bool(reference == other) or str(reference).strip() == str(other).strip()


def _group(value: Any) -> Any:
    """A group's id that can be a key: a list becomes a tuple."""
    if isinstance(value, list):
        return tuple(map(_group, value))
    if isinstance(value, dict):
        raise DataError("'group' is text, a number or a list of them, not an object")
    return value


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(m, Mapping) and "role" in m for m in value)
    )


def hint_at_columns(rollouts: Sequence[Rollout], name: str) -> None:
    """Say which field no rollout has, where a column seems to be it under another name."""
    extra = {key for rollout in rollouts for key in rollout.extra}
    meant = {key: field_meant(key) for key in extra if isinstance(key, str)}
    for field in FIELDS:
        if field in ("response", "extra") or any(given(getattr(r, field)) for r in rollouts):
            continue
        others = OTHER_NAMES.get(field, ())
        near = sorted(key for key, one in meant.items() if one == field and key not in others)
        if field not in ("finish_reason", "messages"):  # few graders read them: only a slip is told
            near += [key for key in others if key in meant]
        if near:
            logger.warning(
                "%s: no rollout has a %s; if %r is it: --map %s=%s", name, field, near[0], field, near[0]
            )
