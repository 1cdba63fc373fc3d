"""Reads what TRL hands to a reward function: rows, groups, and where the batch belongs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from judgekit import ConfigError, Rollout
from judgekit.trainers import TRUTHS, plain, rollout_of

NOT_COLUMNS = ("environments", "log_extra", "log_metric", "trainer_state")


class Place(Struct, frozen=True, kw_only=True):
    """Where a call's rows stand among those of all ranks."""

    group_size: int
    start: int
    """Rows of the ranks before this one. TRL's groups are consecutive rows of all ranks together."""
    training: bool


def place_of(trainer: Any, rows: int) -> Place | None:
    """Return where this rank's *rows* stand; None where no trainer of TRL's is known."""
    if not hasattr(trainer, "num_generations"):
        return None
    training = bool(trainer.model.training)
    size = trainer.num_generations if training else trainer.num_generations_eval
    return Place(group_size=int(size), start=trainer.accelerator.process_index * rows, training=training)


def group_numbers(place: Place | None, prompts: Sequence[Any]) -> list[int]:
    """Return the number of each row's group.

    Without a place, rows that follow each other with one prompt are a group: AsyncGRPOTrainer calls the reward
    function with a single group, and hands over nothing else.
    """
    if place is not None:
        return [(place.start + i) // place.group_size for i in range(len(prompts))]
    numbers: list[int] = []
    for i, prompt in enumerate(prompts):
        same = i > 0 and prompt == prompts[i - 1]
        numbers.append(numbers[-1] + (not same) if i else 0)
    return numbers


def check_whole(place: Place | None, numbers: Sequence[int]) -> None:
    """Raise ConfigError where a group may be spread over ranks, or cannot be told from another."""
    if place is None:
        if numbers and numbers[-1] > 0:
            raise ConfigError(
                "graders of groups and transforms need to know TRL's groups: hand log_metric on to judgekit's reward "
                "function, with all other keywords that TRL passes"
            )
    elif place.start % place.group_size or len(numbers) % place.group_size:
        batch = (
            "per_device_train_batch_size × steps_per_generation"
            if place.training
            else "per_device_eval_batch_size"
        )
        raise ConfigError(
            f"a prompt's {place.group_size} rollouts are spread over ranks ({len(numbers)} rows each), and graders of "
            f"groups, transforms and missing_reward: neutral need them together: make {batch} a multiple of "
            f"{place.group_size}"
        )


def columns_of(given: Mapping[str, Any], rows: int) -> dict[str, Sequence[Any]]:
    """Return the data set's columns among TRL's keywords."""
    return {
        name: value
        for name, value in given.items()
        if name not in NOT_COLUMNS and isinstance(value, list | tuple) and len(value) == rows
    }


def state_of(environment: Any) -> dict[str, Any]:
    """Return what graders may read of an environment after its rollout: public attributes and properties that JSON can hold.

    What raises or is no such value (a client, a lock, a tensor) is left out, so that a grader that reads it abstains.
    """
    names = [*getattr(environment, "__dict__", ())]
    names += [
        name for name, value in inspect.getmembers_static(type(environment)) if isinstance(value, property)
    ]
    found = {}
    for name in names:
        if not name.startswith("_"):
            with contextlib.suppress(Exception):
                value = plain(getattr(environment, name))
                msgspec.json.encode(value)
                found[name] = value
    return found


def truth_columns(asked: str | None, columns: Mapping[str, Any]) -> Sequence[str]:
    """Return the columns that may hold the reference. Raises ConfigError if there is none of the name *asked* for."""
    if asked is None:
        return TRUTHS
    if asked not in columns:
        raise ConfigError(
            f"ground_truth={asked!r}: the data set has no such column (it has {', '.join(sorted(columns)) or 'none'})"
        )
    return (asked,)


def rollout(
    row: Mapping[str, Any],
    prompt: Any,
    completion: Any,
    *,
    truths: Sequence[str],
    tokens: Sequence[int] | None,
    keeps_tokens: bool = False,
    environment: Any = None,
    group: str,
    id: str,
) -> Rollout:
    """Make a rollout of one row. *prompt*, *completion*: both text, or both lists of messages.

    *truths*: the row's columns that may hold the reference. *tokens*: of the completion; with tools in it, TRL
    counts their answers' tokens too, so that the policy's are not known. *keeps_tokens*: whether a grader reads the tokens
    themselves, as the column `completion_ids`. *environment*: of this row; graders read its state as `environment_state`.
    """
    turns = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
    alone = all(turn.get("role") == "assistant" for turn in turns)
    return rollout_of(
        row,
        prompt=prompt,
        turns=turns,
        group=group,
        id=id,
        response_tokens=len(tokens) if tokens is not None and alone else None,
        truths=truths,
        fields={
            **({"completion_ids": tokens} if keeps_tokens and tokens is not None else {}),
            **({} if environment is None else {"environment_state": state_of(environment)}),
        },
    )
