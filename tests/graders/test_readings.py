"""What the rules' readers make of some thousand texts: numbers, answers, words, calls.

The rows stand in `readings/`, a file for each module and a row for each line: the reader, what it is given, and what it reads
there. After a change that is meant, `python -m tests.graders.test_readings` writes what is read anew: read the diff.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from judgekit import Rollout
from judgekit.graders.rules import (
    asserted,
    calls,
    committed,
    english,
    notation,
    numbers,
    rule,
    stored,
    thoughts,
    values,
)
from judgekit.graders.rules.agents import bfcl, expected, literals, loops, trajectory
from judgekit.graders.rules.answers import choices, mathtext
from judgekit.graders.rules.format import json_format, markup
from judgekit.graders.rules.instructions import constraints, instructions
from judgekit.graders.rules.text import overlap

from ..readings import Readings


def _commitment(text: str, **how: Any) -> Any:
    return committed.commitment(text, lambda part: part.strip().casefold() or None, **how)


def _chosen(response: str, options: Any) -> Any:
    found = choices.read_options(options)
    return None if found is None else choices.choose(response, found)


def _referred(value: Any, options: Any) -> Any:
    found = choices.read_options(options)
    return None if found is None else choices.MultipleChoice()._reference(value, found)


def _number_shown(top: int, bottom: int) -> str:
    return notation.shown(Fraction(top, bottom))


def _converted(one: str, other: str) -> Any:
    mine, theirs = notation.whole_quantity(one), notation.whole_quantity(other)
    assert mine is not None
    assert theirs is not None
    return mine.converted(theirs), mine.same(theirs)


def _trajectory(messages: list[Any], response: str = "") -> Any:
    found = trajectory.read_trajectory(Rollout(response=response, messages=messages))
    made = [
        (c.name, c.arguments, c.id, c.turn, c.at, c.complete, c.answer and c.answer.text) for c in found.calls
    ]
    return (
        found.turns,
        made,
        [(o.text, o.flag, o.failed, o.call and o.call.name) for o in found.observations],
    )


def _calls(value: Any) -> Any:
    return [(c.name, c.arguments, c.id, c.turn, c.complete) for c in trajectory.calls_in(value)]


def _expected(value: Any) -> Any:
    found = expected.expected_calls(value)
    return found and [(one.name, one.filled, [_form(*form) for form in one.forms]) for one in found]


def _form(name: str, arguments: Any, optional: frozenset[str]) -> Any:
    without_name = getattr(arguments, "values_without_name", None)
    kind = type(arguments).__name__
    return (
        name,
        kind,
        dict(arguments) if isinstance(arguments, dict) else arguments,
        without_name,
        sorted(optional),
    )


def _fits(call: Any, answer: Any, tools: Any = None, language: Any = "python") -> Any:
    (made,), (wanted,) = trajectory.calls_in(call), bfcl.answers(answer) or [None]
    assert wanted is not None
    return bfcl.fits(made, wanted, bfcl.documents(tools), language)


def _cycles(actions: list[int], most: int) -> Any:
    return loops.cycles(actions, most), loops.longest_run(actions)


def _near(*given: Any) -> list[int]:
    return loops.near_classes([calls.Call("go", arguments) for arguments in given])


def _json(text: str, where: Any) -> Any:
    return json_format.read_json(text, where)


READERS: dict[str, dict[str, Callable[..., Any]]] = {
    "numbers": {
        "final_quantity": numbers.final_quantity,
        "only_hash": lambda text: numbers.final_quantity(text, need_marker="####"),
        "read_quantity": numbers.read_quantity,
        "whole_quantity": notation.whole_quantity,
        "number_in_words": notation.number_in_words,
        "in_ascii": notation.in_ascii,
        "shown": _number_shown,
        "converted": _converted,
    },
    "committed": {
        "after_think": thoughts.after_think,
        "without_thinking": thoughts.without_thinking,
        "last_boxed": committed.last_boxed,
        "claims": committed.claims,
        "choices": lambda text: committed.claims(text, choice=True),
        "commitment": _commitment,
        "joined": lambda text: _commitment(text, joined=True),
        "asserted": asserted.asserted,
        "doubt": lambda before, said, after: asserted.doubt(
            before + said + after, len(before), len(before) + len(said)
        ),
        "sentence": asserted.sentence,
    },
    "values": {
        "undecorated": values.undecorated,
        "tokens": values.tokens,
        "same_value": values.same_value,
        "occurs": lambda value, text: values.occurs(values.tokens(value), values.tokens(text)),
        "signs": values.signs,
    },
    "english": {
        "is_verb": english.is_verb,
        "syllables": english.syllables,
        "words": english.words,
        "bare_words": english.bare_words,
        "stripped": english.stripped,
        "sentences": english.sentences,
        "ends_with_emoji": english.ends_with_emoji,
        "starts_with_emoji": english.starts_with_emoji,
    },
    "mathtext": {
        "readable": lambda text: (
            mathtext.readable(text, answer=False),
            mathtext.readable(text, answer=True),
        ),
        "in_latex": mathtext.in_latex,
        "plain_maths": mathtext.plain_maths,
        "is_token": mathtext.is_token,
        "same_token": mathtext.same_token,
        "wordy": mathtext.wordy,
        "same_words": mathtext.same_words,
        "unwrapped": mathtext.unwrapped,
        "whole_answer": mathtext.whole_answer,
    },
    "choices": {
        "choose": _chosen,
        "read_options": choices.read_options,
        "reference": _referred,
    },
    "agents": {
        "trajectory": _trajectory,
        "calls_in": _calls,
        "looks_like_an_error": calls.looks_like_an_error,
        "canonical": calls.canonical,
        "parsed_arguments": calls.parsed_arguments,
        "expected_calls": _expected,
        "shallow": expected.shallow,
        "literal": literals.literal,
        "answers": bfcl.answers,
        "documents": bfcl.documents,
        "fits": _fits,
        "cycles": _cycles,
        "near_classes": _near,
    },
    "format": {
        "read_json": _json,
        "misfit": json_format.misfit,
        "schema_problem": json_format.schema_problem,
        "code_blocks": rule.code_blocks,
        "part_of": rule.part_of,
        "references": rule.references,
        "normalised": rule.normalised,
        "normaliser": lambda reference, text: rule.normaliser(reference)(text),
        "tools": markup._tools,
        "without_nulls": stored.without_nulls,
        "constraint": lambda id_, text, given: constraints.CONSTRAINTS[id_][0](text, **given),
        "variants": instructions.variants,
        "read_constraints": instructions.read_constraints,
        "ngrams": overlap.ngrams,
    },
}
READINGS = Readings(Path(__file__).with_name("readings"), READERS)


@pytest.mark.parametrize(("file", "start"), READINGS.parts(), ids=str)
def test_what_is_read_in_a_text_has_not_changed(file: str, start: int) -> None:
    changed = list(READINGS.changed(file, start))
    assert not changed, "\n".join(changed)


def test_every_reader_has_rows() -> None:
    assert READINGS.named() == {file: {*readers} for file, readers in READERS.items()}


if __name__ == "__main__":
    READINGS.write(sys.argv[1:])
