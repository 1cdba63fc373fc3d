"""Rows of our own from JSON lines, Parquet and trainers: none is paid wrongly, and hardly one refused."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded, Rollout
from judgekit.data import read_rollouts
from judgekit.graders import (
    Boxed,
    CodeBlock,
    EditSimilarity,
    FinalAnswer,
    JsonMatch,
    MathEquivalence,
    MultipleChoice,
    Overlap,
    StepSequence,
    TagFormat,
    TextMatch,
    TokenF1,
    ToolCallMatch,
)
from judgekit.trainers import rollout_of

from .field_rows import Row, rows

RULES: dict[str, Any] = {
    "final_answer": FinalAnswer(),
    "math": MathEquivalence(),
    "multiple_choice": MultipleChoice(),
    "tool_calls": ToolCallMatch(),
    "tool_calls_exact": ToolCallMatch(of="exact"),
    "tool_calls_subset": ToolCallMatch(arguments="subset"),
    "step_sequence": StepSequence(arguments="exact"),
    "json_match": JsonMatch(),
    "token_f1": TokenF1(),
    "overlap": Overlap(normalise=True),
    "edit_similarity": EditSimilarity(normalise=True),
    "text_match": TextMatch(how="normalised"),
    "answer_or_rest": TextMatch(part="answer_or_rest"),
    "contains": TextMatch(how="contains"),
    "boxed": Boxed(),
    "code_block": CodeBlock(),
    "tags_after": TagFormat(["think"], text_after=True),
}
REFUSED: dict[tuple[str, str], str] = {}
"""Right answers that are refused: (rule, response), and why."""
ROWS = rows()


def as_column(row: Row) -> dict[str, Any]:
    return {"prompt": "q", "response": row.response, "ground_truth": row.truth, **row.extra}


def kinds_of_columns() -> dict[tuple[str, str, str], list[Row]]:
    """Rows that one Parquet file can hold: of one kind, rule and type of reference."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in ROWS:
        options = row.extra.get("options")
        shape = f"{type(options).__name__}{'text' in options if isinstance(options, dict) else ''}"
        found[row.kind, row.rule, f"{type(row.truth).__name__} {shape}"].append(row)
    return found


def from_files(folder: Path, ending: str) -> dict[int, Rollout]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made: dict[int, Rollout] = {}
    for number, some in enumerate(kinds_of_columns().values()):
        path = folder / f"{number}.{ending}"
        if ending == "jsonl":
            path.write_text("".join(json.dumps(as_column(row)) + "\n" for row in some))
        else:
            pq.write_table(pa.Table.from_pylist([as_column(row) for row in some]), path)
        made |= {id(row): rollout for row, rollout in zip(some, read_rollouts(path), strict=True)}
    return made


def from_trainer() -> dict[int, Rollout]:
    """Rows as verl loads them: a Parquet file's, with the reference in `reward_model`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made: dict[int, Rollout] = {}
    for some in kinds_of_columns().values():
        table = pa.Table.from_pylist(
            [
                {
                    "data_source": "x",
                    "reward_model": {"ground_truth": row.truth},
                    "extra_info": {"n": 1, **row.extra},
                }
                for row in some
            ]
        )
        file = io.BytesIO()
        pq.write_table(table, file)
        stored = pq.read_table(io.BytesIO(file.getvalue())).to_pylist()
        for row, columns in zip(some, stored, strict=True):
            turns = [{"role": "assistant", "content": row.response}]
            made[id(row)] = rollout_of(columns, prompt="q", turns=turns)
    return made


def paid(rule: str, rollout: Rollout) -> float | None:
    grade = RULES[rule].grade(rollout)
    return grade.score if isinstance(grade, Graded) else None


def test_there_are_enough_kinds_and_siblings() -> None:
    kinds = Counter(row.kind for row in ROWS)
    assert len(ROWS) >= 1500
    assert len(kinds) >= 40
    assert {kind: n for kind, n in kinds.items() if n < 15} == {}


def test_no_row_is_paid_wrongly_and_hardly_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = {
        "JSON lines": from_files(tmp_path, "jsonl"),
        "Parquet": from_files(tmp_path, "parquet"),
        "a trainer": from_trainer(),
    }
    wrongly: list[tuple[Any, ...]] = []
    refused: dict[tuple[str, str], Row] = {}
    right = 0
    for row in ROWS:
        known: list[tuple[Any, float | None]] = []
        for form, rollouts in forms.items():
            rollout = rollouts[id(row)]
            same = (rollout.response, repr(rollout.ground_truth), repr(rollout.extra.get("options")))
            score = next((s for other, s in known if other == same), -1.0)
            if score == -1.0:
                score = paid(row.rule, rollout)
                known.append((same, score))
            fine = row.paid if isinstance(row.paid, tuple) else (row.paid,)
            right += row.paid == 1.0
            if score in fine:
                continue
            if row.paid == 1.0:
                refused[row.rule, row.response] = row
            else:
                wrongly.append((form, row.kind, row.rule, row.response, row.truth, score))
    kinds = len({row.kind for row in ROWS})
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{len(ROWS)} rows of {kinds} kinds, each from {', '.join(forms)}: {len(wrongly)} paid wrongly, "
            f"{len(refused)} right ones refused (of {right // len(forms)})"
        )
        for problem in wrongly:
            print(f"paid wrongly: {problem}")  # noqa: T201
        for rule, response in refused:
            print(f"refused: {rule}: {response!r}: {REFUSED.get((rule, response), '?')}")  # noqa: T201
    assert wrongly == []
    assert set(refused) == set(REFUSED)
    assert len(refused) <= right / len(forms) / 100


def test_values_that_no_file_holds() -> None:
    """Numpy's, decimals and fractions, in memory."""
    from decimal import Decimal
    from fractions import Fraction

    import numpy as np

    options = np.array(["iron", "silver", "gold", "copper"], dtype=object)
    for truth in (42, 42.0, Decimal("42"), Decimal("42.0"), Fraction(42), np.int64(42), np.float64(42), np.array(["41", "42"]), np.array(42), {"target": np.array([42])}):  # fmt: skip
        for rule, response in (("final_answer", "#### 42"), ("math", "\\boxed{42}")):
            assert paid(rule, Rollout(response=response, ground_truth=truth)) == 1.0, (rule, truth)
            assert paid(rule, Rollout(response=response.replace("42", "43"), ground_truth=truth)) == 0.0
    for truth in (Decimal("NaN"), Decimal("Infinity"), np.nan, True, object()):
        assert paid("final_answer", Rollout(response="#### 42", ground_truth=truth)) is None
    for key in (2, np.int64(2), 2.0, "C", np.str_("C"), "gold", np.array(["C"])):
        rollout = Rollout(response="Answer: gold", ground_truth=key, extra={"options": options})
        assert paid("multiple_choice", rollout) == 1.0, key
    call = {"name": "a", "arguments": {"x": 1}}
    truth = np.array([{**call, "arguments": {"x": np.int64(1), "y": None}}], dtype=object)
    assert (
        paid(
            "tool_calls_exact",
            Rollout(response=f"<tool_call>{json.dumps(call)}</tool_call>", ground_truth=truth),
        )
        == 1.0
    )


def test_what_a_rule_takes_for_the_answer_is_in_its_reason() -> None:
    def reason(rule: str, response: str, truth: Any = "42") -> str:
        return str(RULES[rule].grade(Rollout(response=response, ground_truth=truth)).reason)

    assert reason("final_answer", "The answer is 41.") == "41 instead of 42"
    assert reason("final_answer", "The answer is not 42.") == "the answer is denied"
    assert reason("math", "\\boxed{41}") == "41 instead of 42"
    assert reason("math", "\\boxed{42") == "the last box does not end"
    assert (
        reason("math", "The answer is 41. The answer is 42.")
        == "several different answers stand side by side"
    )
    assert reason("multiple_choice", "I pick B.", "C") == "B (pick B) instead of C"
    assert reason("multiple_choice", "Maybe B", "B") == "no option is chosen"
