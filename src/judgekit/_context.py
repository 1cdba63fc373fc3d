"""What calls within one run can know of it."""

from __future__ import annotations

from contextvars import ContextVar

CURRENT_RUN: ContextVar[str] = ContextVar("judgekit_run", default="")
"""Id of the run that is grading."""
