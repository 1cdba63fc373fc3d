"""The section `audit:` of a reward.yaml: which grader checks which, how often, and when it is an alarm."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from judgekit.errors import ConfigError
from judgekit.evidence.alarm import check_bounds


class AuditSettings(Struct, frozen=True, kw_only=True):
    """How a run is audited. Raises ConfigError."""

    grader: str
    """The grader that is believed: a better judge, or a rule. One that only `audit` names is not asked for rewards."""
    watch: str
    """The grader that a policy may learn to please."""
    share: float = 0.04
    """Of a step's rollouts that `watch` has scored, how many are audited: half of them drawn at random, half the best paid."""
    pays_at_most: float = 0.3
    """Of rollouts that are wrong, what `watch` may pay on average, with its range taken as 0..1."""
    on_alarm: Literal["warn", "stop"] = "warn"
    """Whether `judgekit audit --follow` goes on after an alarm, or ends with code 1, so that what started it can end the training."""
    false_alarms: float = 0.05
    """Probability of an alarm in a run in which `watch` never pays more, over its whole length."""
    audit_error: float = 0.02
    """How often `grader` itself may be wrong, of right rollouts and of wrong ones."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"share is above 0 and at most 1, not {self.share!r}")
        if self.on_alarm not in ("warn", "stop"):
            raise ConfigError(f"on_alarm is 'warn' or 'stop', not {self.on_alarm!r}")
        check_bounds(self.pays_at_most, self.false_alarms, self.audit_error)
        if self.grader == self.watch:
            raise ConfigError(
                f"{self.grader} cannot audit itself: grader is one that is believed, watch the one that may be gamed"
            )
