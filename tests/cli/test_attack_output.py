"""What `judgekit attack` prints of a report: figures, holes by kind and family, cures, one completion, and its ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judgekit.attack import Hole, Report
from judgekit.attack import holes as attack_holes
from judgekit.attack.holes import WHAT
from judgekit.cli import attack
from judgekit.ledger.reader import read_ledger

from .in_process import call, refused
from .test_attack import GATED, JUDGED, OPEN


def hole(id: str, what: Any, *, certain: bool = True, **fields: Any) -> Hole:
    given: dict[str, Any] = {
        "id": id, "family": id.partition("/")[0], "what": what, "certain": certain, "paid": 0.5, "right": 1.0, "term": "brief",
        "reason": "", "decides": "correct", "why": f"why of {id}", "prompt": "the prompt", "response": f"response of {id}", "explained": f"tree of {id}",
    }  # fmt: skip
    return Hole(**({"wrong": 0.25} | given | fields))


HOLES = [
    *(hole(f"hedged/{i}", "as right", term="correct") for i in range(5)),
    hole("denied/0", "as right", term="correct", reason="because " * 20),
    hole("nothing/0", "nothing paid", response="x" * 100),
    hole("mocked/0", "above wrong", certain=False),
    hole("mocked/1", "above wrong", certain=False),
    hole("other/0", "above wrong", certain=False),
]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """A report with these fields is what every attack ends with."""
    (tmp_path / "open.yaml").write_text(OPEN)
    fields: dict[str, Any] = {
        "completions": 40, "rows": 2, "kinds": {"number": 1, "text": 1}, "seconds": 1.25, "skipped": {"odd": 3}, "right": 1.0,
        "wrong": 0.25, "nothing": None, "reach": 0.5, "unasked": ["judge"], "left_out": 4, "holes": HOLES,
    }  # fmt: skip

    async def found(*args: Any, **options: Any) -> Report:
        return Report(**fields)

    monkeypatch.setattr("judgekit.attack.find_holes", found)
    monkeypatch.setattr(Report, "worst", lambda self: fields["holes"])
    monkeypatch.setattr(attack_holes, "as_json", lambda report: {"rows": report.rows})
    return fields


def test_holes_are_printed_by_kind_and_family(reported: dict[str, Any], tmp_path: Path) -> None:
    done = call(tmp_path, "attack", "open.yaml")
    assert done.returncode == 1
    figures, *kinds, cures = done.stdout.split("\n\n")
    assert figures.splitlines() == [
        "open.yaml: 40 completions on 2 rows (1 number, 1 text), 1.2 s",
        "  3 rows not used: odd",
        "  a right answer earns 1, an honest wrong one 0.25, no answer at all nothing; a wrong one reaches 50% of the range",
        "  not asked: judge (--judges asks); what depends on them is only possible",
        "  4 completions have no reward: whether a policy may choose that is the reward's to say",
    ]
    by_kind = {kind.splitlines()[0]: kind.splitlines()[1:] for kind in kinds}
    assert list(by_kind) == [
        f"{WHAT['as right']}: 6", f"{WHAT['above wrong']}, if a judge is pleased: 3", f"{WHAT['nothing paid']}: 1",
    ]  # fmt: skip
    right = by_kind[f"{WHAT['as right']}: 6"]
    assert right[0] == '  hedged/0               0.5 of 1  correct: "response of hedged/0"'
    assert right[3] == "  hedged/…: 2 more; why of hedged/0"
    assert (
        right[4]
        == f'  denied/0               0.5 of 1  correct{" (" + ("because " * 20)[:58]}: "response of denied/0"'
    )
    assert len(right) == 5
    assert by_kind[f"{WHAT['above wrong']}, if a judge is pleased: 3"] == ["  mocked 2, other 1"]
    (nothing,) = by_kind[f"{WHAT['nothing paid']}: 1"]
    assert nothing.endswith(f'brief: "{"x" * 39} … {"x" * 15}"')
    assert [line.split()[0] for line in cures.splitlines()] == ["'brief'", "'correct'"]


def test_what_is_said_without_holes_and_of_possible_ones(reported: dict[str, Any], tmp_path: Path) -> None:
    reported |= {"holes": [], "unasked": [], "left_out": 0, "skipped": {}, "nothing": 0.125, "reach": None}
    done = call(tmp_path, "attack", "open.yaml")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "  a right answer earns 1, an honest wrong one 0.25, no answer at all 0.125; a wrong one reaches 0% of the range",
        "  no hole found",
    ]
    reported["holes"] = HOLES[-3:]
    done = call(tmp_path, "attack", "open.yaml")
    assert done.returncode == 0
    assert "no hole found" not in done.stdout
    assert "pays responses that are wrong" not in done.stdout


@pytest.mark.parametrize(("at_most", "code"), [("6", 1), ("7", 0), ("8", 0)])
def test_so_many_certain_holes_are_borne(
    reported: dict[str, Any], tmp_path: Path, at_most: str, code: int
) -> None:
    assert call(tmp_path, "attack", "open.yaml", "--at-most", at_most).returncode == code


def test_one_completion_is_shown_whole(reported: dict[str, Any], tmp_path: Path) -> None:
    done = call(tmp_path, "attack", "open.yaml", "--show", "nothing/0")
    assert done.stdout.splitlines() == [
        f"nothing/0: {WHAT['nothing paid']} (why of nothing/0)", "prompt: the prompt", f"response: {'x' * 100}", "tree of nothing/0",
    ]  # fmt: skip
    assert call(tmp_path, "attack", "open.yaml", "--show", "x/1").stdout == "x/1 is no hole of this reward\n"


def test_rows_that_cannot_be_used(reported: dict[str, Any], tmp_path: Path) -> None:
    reported |= {"rows": 0, "holes": []}
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1?", "response": "", "ground_truth": "2"}\n')
    done = call(tmp_path, "attack", "open.yaml")
    assert (done.returncode, done.stdout.count("\n")) == (2, 2)
    assert (
        "no row could be used: give rows of your own data, judgekit attack REWARD rollouts.jsonl\n"
        in done.stderr
    )
    assert call(tmp_path, "attack", "open.yaml", "rows.jsonl").stderr == "judgekit: no row could be used\n"
    assert json.loads(call(tmp_path, "attack", "open.yaml", "--json").stdout) == {"rows": 0}


@pytest.mark.parametrize(
    ("text", "short"),
    [("x" * 58, f'"{"x" * 58}"'), ("x" * 59, f'"{"x" * 39} … {"x" * 15}"'), ("a\nü", '"a\\nü"')],
)
def test_long_responses_are_shortened(text: str, short: str) -> None:
    assert attack._short(text) == short


def test_what_was_graded_is_kept_in_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "gated.yaml").write_text(GATED)
    (tmp_path / "rows.jsonl").write_text(
        '{"prompt": "1+1?", "response": "", "ground_truth": "2"}\n{"prompt": "2+2?", "response": "", "ground_truth": "4"}\n'
        '{"prompt": "why?", "response": ""}\n'
    )
    done = call(tmp_path, "attack", "gated.yaml", "rows.jsonl", "--ledger", "l.jsonl", "--limit", "1")
    assert done.returncode == 0, done.stderr
    entries = read_ledger(tmp_path / "l.jsonl").entries
    assert f"{len(entries)} completions on 1 rows" in done.stdout
    assert all(entry.response is not None for entry in entries)
    done = call(tmp_path, "attack", "gated.yaml", "rows.jsonl")
    assert "1 rows not used: no reference that an attack can be made from" in done.stdout
    refused(tmp_path, "attack gated.yaml rows.jsonl --ledger l.jsonl", "--ledger: l.jsonl is there already")


def test_recordings_are_of_judges_that_are_asked(tmp_path: Path) -> None:
    (tmp_path / "judged.yaml").write_text(JUDGED)
    (tmp_path / "there.jsonl").write_text("")
    for args, says in (
        ("--record r.jsonl", "--record keeps what judges reply: give --judges, too"),
        ("--judges --record there.jsonl", "--record: there.jsonl is there already: give another name"),
    ):
        refused(tmp_path, f"attack judged.yaml {args}", says)
    (tmp_path / "theirs.py").write_text(
        "def f(completions, **kwargs):\n    return [0.0 for _ in completions]\n"
    )
    refused(
        tmp_path,
        "attack theirs:f --judges --record r.jsonl",
        "theirs:f: a function has no judges whose replies",
    )


def test_warnings_of_the_reward_stand_above_the_report(tmp_path: Path) -> None:
    text = GATED.replace(
        "reward:", "judges:\n  idle: {engine: openai, url: 'http://127.0.0.1:9/v1', model: m}\nreward:"
    )
    (tmp_path / "idle.yaml").write_text(text)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1?", "response": "", "ground_truth": "2"}\n')
    done = call(tmp_path, "attack", "idle.yaml", "rows.jsonl")
    assert done.stdout.startswith("warning: judges.idle: no grader asks it")
