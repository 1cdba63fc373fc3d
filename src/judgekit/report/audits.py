"""What `judgekit audit` has found of a ledger, for the page: it keeps the curve in a file beside the ledger."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from judgekit.ledger.reader import beside


def audits_of(ledger: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the curve of a ledger's audits, the alarm and the examples; None where nothing was audited, or by another version."""
    try:
        told = msgspec.json.decode(beside(ledger, "curve").read_bytes())
        return {
            **{key: told["settings"][key] for key in ("watch", "grader")},
            "in_words": told["in_words"],
            "alarm": told["alarm"],
            "steps": [
                {"step": point["step"], "alarm": point["alarm"]}
                | {key: point["recent"][key] for key in ("paid_wrong", "low", "high", "line")}
                for point in told["steps"]
            ],
            "examples": told["examples"],
        }
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return None


def audited_at(ledger: str | os.PathLike[str]) -> int:
    """Return what changes whenever the curve does; 0 without one."""
    try:
        return beside(ledger, "curve").stat().st_mtime_ns
    except OSError:
        return 0
