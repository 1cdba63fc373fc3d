"""What the page shows of a ledger's audits: what `judgekit audit` kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judgekit.ledger.jsonl import json_line
from judgekit.ledger.reader import beside
from judgekit.report.audits import audited_at, audits_of


def curve(**changed: Any) -> dict[str, Any]:
    recent = {"paid_wrong": 0.25, "low": 0.125, "high": None, "line": 0.3, "audits": 40}
    told = {
        "settings": {"watch": "judge", "grader": "careful", "share": 0.5},
        "in_words": "no alarm: …",
        "alarm": None,
        "steps": [{"step": 7, "alarm": True, "audits": 8, "recent": recent}],
        "examples": [{"id": "a"}],
    }
    return {**told, **changed}


def test_the_page_has_the_alarm_the_curve_and_the_examples(tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    assert (audits_of(ledger), audited_at(ledger)) == (None, 0)
    beside(ledger, "curve").write_text(json_line(curve()))
    assert audits_of(ledger) == {
        "watch": "judge",
        "grader": "careful",
        "in_words": "no alarm: …",
        "alarm": None,
        "steps": [{"step": 7, "alarm": True, "paid_wrong": 0.25, "low": 0.125, "high": None, "line": 0.3}],
        "examples": [{"id": "a"}],
    }
    assert audited_at(ledger) == beside(ledger, "curve").stat().st_mtime_ns > 0


def test_a_curve_of_another_version_is_not_shown(tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    for name in curve():
        told = {key: value for key, value in curve().items() if key != name}
        beside(ledger, "curve").write_text(json_line(told))
        assert audits_of(ledger) is None, name
