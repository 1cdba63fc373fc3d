"""Looks at the first rows of a user's data: which column is which field, and what kind of task it is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from judgekit.data.files import Broken, read_rows
from judgekit.data.rollout_files import PAIR, PAIRED, each_rollout, hint_at_columns, responses_of
from judgekit.errors import ConfigError, DataError
from judgekit.rollouts.rows import HOLDERS, POLICY, as_messages, given
from judgekit.types import OTHER_NAMES, Rollout

LOOKED_AT = 64
"""Rows that are read."""
_OPTIONS = ("options", "choices", "endings", "answer_choices", "candidates", "answers_list")
"""Columns that may hold the options of a question."""
_SOURCES = 3
"""Data sources that are named."""
_CRITERIA = ("rubric", "rubrics", "criteria")
"""Columns that may hold criteria for a judge."""


class Looked(Struct):
    """What the first rows of a file are."""

    columns: Mapping[str, str]
    """The columns that are fields of a rollout under another name, by field: for `--map`."""
    rollouts: Sequence[Rollout]
    answered: bool
    """Whether there are responses; else the rows are prompts, for a trainer."""
    task: str
    """A key of `judgekit.cli.init.TASKS`."""
    why: str
    """What shows that."""
    rows: int
    criteria: str
    """The path of the criteria that rows bring for a judge; "" if they bring none that can be read."""
    options: str
    """The settings of `multiple_choice` by which their references are options; "" if there are none."""

    def column(self, field: str) -> str:
        """Return what rows call a field."""
        paired = field == "response" and any(PAIRED in rollout.extra for rollout in self.rollouts)
        return " and ".join(PAIR) if paired else self.columns.get(field, field)

    @property
    def mapping(self) -> str:
        """The option of `judgekit grade` that names the columns; "" if none is needed."""
        named = ",".join(f"{field}={column}" for field, column in self.columns.items())
        return f" --map {shlex.quote(named)}" if named else ""


def look(path: Path) -> Looked:
    """Read the first rows of a file. Raises DataError if it cannot be read, or holds no rows."""
    rows = _first_rows(path)
    whole = [{key: as_messages(value) for key, value in row.items()} for row in rows.values()]
    columns = dict(_columns(whole))
    answered = _answered(whole, columns)
    if not answered:
        columns.pop("response", None)
        whole = [{**row, "response": ""} for row in whole]
    placed = list(zip(rows, whole, strict=True))
    rollouts = list(each_rollout(placed, str(path), columns, skip_bad_rows=True))
    # where there is none, it says what is wrong with the first
    rollouts = rollouts or list(each_rollout(placed, str(path), columns))
    hint_at_columns(rollouts, str(path))
    criteria = _criteria(rollouts)
    options = _options(rollouts)
    task, why = _task(rollouts, criteria, options)
    named = next((name for name in _CRITERIA if any(name in rollout.extra for rollout in rollouts)), None)
    if named and not criteria:
        why += f"; {named!r} holds no criteria that are read: texts, or objects with text and weight"
    sources = sorted({rollout.data_source for rollout in rollouts} - {""})
    if len(sources) > 1:
        more = " …" if len(sources) > _SOURCES else ""
        why += (
            f"; but the rows are of {len(sources)} data sources ({', '.join(sources[:_SOURCES])}{more}): where these need rules of "
            "their own, write switch: by data_source"
        )
    return Looked(columns, rollouts, answered, task, why, len(whole), criteria, options)


def _first_rows(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the first rows by their places, without those that are none. Raises DataError if all are."""
    rows = dict(islice(read_rows(path), LOOKED_AT))
    found = {place: row for place, row in rows.items() if isinstance(row, Mapping)}
    if not found:
        broken = next((row for row in rows.values() if isinstance(row, Broken)), None)
        raise DataError(f"{broken.where}: {broken.problem}" if broken else f"{path} holds no rows")
    return found


def _answered(rows: Sequence[Mapping[str, Any]], columns: dict[str, str]) -> bool:
    """Return whether there are responses; a conversation with one is it, which *columns* then say."""
    response, messages = (columns.get(name, name) for name in ("response", "messages"))
    if any(responses_of(row) or given(row.get(response)) for row in rows):
        return True
    said = [turn["role"] for row in rows if _messages(row.get(messages)) for turn in row[messages]]
    if set(POLICY).isdisjoint(said):
        return False
    if all(row.get(response) is None for row in rows):
        columns.pop("messages", None)
        columns["response"] = messages
    return True


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each field that stands under another name, with its column."""
    names = {name for row in rows for name, value in row.items() if given(value)}
    held = any(isinstance(row.get(name), Mapping) for row in rows for name in HOLDERS)
    taken = {"responses", *PAIR} & names if any(responses_of(row) for row in rows) else set[str]()
    for field, others in OTHER_NAMES.items():
        if field in names or (field == "ground_truth" and held) or (field == "response" and taken):
            continue
        for name in others:
            if name in names and name not in taken and _fits(field, [row.get(name) for row in rows]):
                taken.add(name)
                yield field, name
                break


def _fits(field: str, values: Sequence[Any]) -> bool:
    known = [value for value in values if given(value)]
    texts = all(isinstance(value, str) for value in known)
    if field in ("response", "prompt"):
        return texts or all(_messages(value) for value in known)
    if field == "messages":
        return all(_messages(value) for value in known)
    if field in ("finish_reason", "data_source"):
        return texts
    return field != "response_tokens" or all(isinstance(value, int) for value in known)


def _messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) and "role" in one for one in value)


def _task(rollouts: Sequence[Rollout], criteria: str, options: str) -> tuple[str, str]:
    """Return what kind of task rollouts are, and what shows it. *criteria*, *options*: as `Looked` has them."""
    from judgekit.graders.rules.agents.expected import expected_calls
    from judgekit.graders.rules.programs.code_forms import read_cases
    from judgekit.graders.rules.written_calls import MARKS

    if any(PAIRED in rollout.extra for rollout in rollouts):
        return "preference", f"there are pairs, {' and '.join(PAIR)}"
    if criteria:
        return "rubric", f"the rows bring criteria, in {criteria}"
    if any("instruction_id_list" in rollout.extra for rollout in rollouts):
        return "instructions", "there are IFEval's instruction_id_list"
    truths = [rollout.ground_truth for rollout in rollouts if given(rollout.ground_truth)]
    if not truths:
        return "open", "there are no references"
    if options:
        return "choice", f"the references are options ({options})"
    if all(any("why" not in case for case in read_cases(truth)) for truth in truths):
        return "code", "the references are test cases"
    spoken = any(rollout.messages for rollout in rollouts)
    marks = (*MARKS, "arguments", "parameters")  # else a list of words may be one of tools' names
    if all(
        expected_calls(truth) is not None and (spoken or any(mark in str(truth) for mark in marks))
        for truth in truths
    ):
        return "tools", "the references are tool calls"
    return _answers(truths)


def _answers(truths: Sequence[Any]) -> tuple[str, str]:
    """Return which kind of answer references are, and what shows it."""
    from judgekit.graders.rules.numbers import read_quantity

    texts = [str(truth) for truth in truths]
    if any(mark in text for text in texts for mark in ("\\", "^", "$")):
        return "maths", "the references are formulas"
    if all(read_quantity(truth) is not None for truth in truths):
        return "answer", "the references hold numbers"
    return "words", "the references are words"


def _options(rollouts: Sequence[Rollout]) -> str:
    """Return the settings of `multiple_choice` by which each reference is one of its row's options; "" if there are none."""
    from judgekit.graders.rules.answers.choices import MultipleChoice
    from judgekit.types import Abstained

    known = [rollout for rollout in rollouts if given(rollout.ground_truth)]
    if known and all(isinstance(rollout.ground_truth, bool) for rollout in known):
        return 'options: ["Yes", "No"]'
    for name in _OPTIONS:
        if not known or not all(given(rollout.extra.get(name)) for rollout in known):
            continue
        for first in (0, 1):
            rule = MultipleChoice(options=f"extra.{name}", first=first)
            if not any(isinstance(rule.grade(rollout), Abstained) for rollout in known):
                return f"options: extra.{name}" + ", first: 1" * first
    return ""


def _criteria(rollouts: Sequence[Rollout]) -> str:
    """Return where rows have criteria for a judge, as a path; "" if nowhere, or in a form that is not read."""
    from judgekit.graders.judged.rubric import criteria_of

    for name in _CRITERIA:
        found = [value for rollout in rollouts if given(value := rollout.extra.get(name))]
        try:
            if found and all(map(criteria_of, found)):
                return f"extra.{name}"
        except ConfigError:
            continue
    return ""
