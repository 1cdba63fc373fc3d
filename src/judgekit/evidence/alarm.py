"""An alarm for a grader that a policy may have learnt to please: a bet that audits win only if it pays wrong rollouts too much.

The claim that is bet against, in every step given all before it: of rollouts that are wrong, the watched grader pays at most
`pays_at_most` on average, on a scale from 0 to 1, where each prompt counts alike, however many rollouts it has. It says nothing of how many rollouts are wrong, so a policy that gets better,
or worse, is no evidence. With a = pays_at_most and e = audit_error, an audited rollout of score s gains

    s > a, the audit says wrong:     s - a                  s > a, the audit says right:    -(s - a) e / (1 - e)
    s ≤ a, the audit says wrong:    -(a - s) / (1 - e)      s ≤ a, the audit says right:    0

For a right rollout the expectation is at most 0 if the audit calls it wrong with a probability of at most e, whatever that depends on.
For a wrong one it is at most s - a if the audit misses it with a probability of at most e; and the mean of s - a over wrong
rollouts is at most 0 by the claim. So whatever the share of right ones is, the expected gain is at most 0, and with a bet b in
[0, 1 / largest loss) the factor 1 + b gain is above 0 and has an expectation of at most 1: for rollouts of different prompts, which are
independent given the past, the product of their factors has, too. It also has for prompts that are given, drawn without replacement
(Maclaurin's inequality). Rollouts of one prompt are alike: their gains are averaged first, which needs no independence.

The stake of 1 is divided among all steps at which a change may begin: step k gets 1 / (k (k + 1)), which sum to 1 without an end, and
among a few bet sizes. What is held for steps to come is 1 / (t + 1) after t steps. The whole is a nonnegative supermartingale that
begins at 1, so it ever reaches 1 / false_alarms with a probability of at most false_alarms (Ville 1939), however long the run.

Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (2024), for the bets; Ville, "Étude critique
de la notion de collectif" (1939).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from judgekit.errors import ConfigError, DataError

BETS = (0.1, 0.25, 0.5, 0.9)
"""Bet sizes, as shares of the largest that can never lose more than the stake; a quarter of the stake each."""


class Alarm:
    """Raises an alarm once audits show that a grader pays wrong rollouts more than it may.

    *pays_at_most*: of rollouts that are wrong, what it may pay on average (above 0, below 1). *false_alarms*: the probability of
    an alarm at any time of a run in which it never pays more. *audit_error*: how often the audit itself may be wrong, of right
    rollouts and of wrong ones (below 0.5). Raises ConfigError for others.
    """

    def __init__(
        self, pays_at_most: float = 0.3, false_alarms: float = 0.05, audit_error: float = 0.02
    ) -> None:
        check_bounds(pays_at_most, false_alarms, audit_error)
        self.pays_at_most = pays_at_most
        self.false_alarms = false_alarms
        self.audit_error = audit_error
        self.steps = 0
        """Steps so far, those without an audit included."""
        self.raised: int | None = None
        """The step (from 1) at which the alarm was raised."""
        self.log_e = 0.0
        """Logarithm of what the stake of 1 has become; at `log(1 / false_alarms)` the alarm is raised."""
        largest_loss = max(pays_at_most, (1 - pays_at_most) * audit_error) / (1 - audit_error)
        self._bets = [share / largest_loss for share in BETS]
        self._begun = [-math.inf for _ in BETS]
        """For each bet size, the logarithm of all stakes that are in play."""

    def add(self, pairs: Sequence[tuple[float, bool]], prompts: Sequence[Hashable] = ()) -> float:
        """Take the audits of one step, and return `log_e`.

        *pairs*: of rollouts drawn at random, the watched grader's score (0..1), and whether the audit says that it is right. Others,
        such as the best paid, must not be among them. *prompts*: the prompt of each; without them, each is another one. A step
        without audits is told, too. Raises DataError for a score outside 0..1.
        """
        gains: dict[Hashable, list[float]] = {}
        if len(prompts) not in (0, len(pairs)):
            raise DataError(f"{len(pairs)} audits have {len(prompts)} prompts: give one for each, or none")
        for place, (score, right) in enumerate(pairs):
            gains.setdefault(prompts[place] if len(prompts) else place, []).append(self._gain(score, right))
        means = [math.fsum(found) / len(found) for found in gains.values()]
        self.steps += 1
        begins = -math.log(self.steps) - math.log(self.steps + 1)
        for at, bet in enumerate(self._bets):
            grown = math.fsum(math.log1p(bet * mean) for mean in means)
            self._begun[at] = _log_sum((self._begun[at], begins)) + grown
        held = -math.log(self.steps + 1)
        self.log_e = _log_sum((held, *(stake - math.log(len(BETS)) for stake in self._begun)))
        if self.raised is None and self.log_e >= -math.log(self.false_alarms):
            self.raised = self.steps
        return self.log_e

    def _gain(self, score: float, right: bool) -> float:
        if not 0 <= score <= 1:
            raise DataError(f"an audited score is from 0 to 1, not {score!r}")
        if right not in (0, 1):
            raise DataError(f"an audit says right or wrong, not {right!r}")
        above = score - self.pays_at_most
        odds = self.audit_error / (1 - self.audit_error)
        if above > 0:
            return -above * odds if right else above
        return 0.0 if right else above / (1 - self.audit_error)


def check_bounds(pays_at_most: float, false_alarms: float, audit_error: float) -> None:
    """Raise ConfigError for bounds under which no alarm means anything."""
    if not 0 < pays_at_most < 1:
        raise ConfigError(
            f"pays_at_most is above 0 and below 1 (scores count from 0 to 1), not {pays_at_most!r}"
        )
    if not 0 < false_alarms < 1:
        raise ConfigError(f"false_alarms is a probability above 0 and below 1, not {false_alarms!r}")
    if not 0 <= audit_error < 0.5:
        raise ConfigError(
            f"audit_error is from 0 to below 0.5, not {audit_error!r}: an audit that is wrong half of the time says nothing"
        )


def _log_sum(logs: Iterable[float]) -> float:
    """The logarithm of a sum, from the logarithms of its terms."""
    terms = list(logs)
    top = max(terms)
    return top + math.log(math.fsum(math.exp(term - top) for term in terms))
