"""Is a grader right? Labels before a training, audits while it runs."""

from judgekit.evidence.alarm import Alarm

__all__ = ["Alarm"]
