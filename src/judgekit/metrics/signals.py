"""Signals of a hacked or exhausted reward: figures, each with a limit.

    for signal in runner.metrics.counts.signals():
        if signal.raised: ...

A signal is evidence, not a verdict: where long answers are right, a reward should grow with length. judgekit only
reports signals; code that acts on them (stops, warns, lowers a weight) reads them here, once per step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from operator import mul

from msgspec import Struct

from judgekit.errors import ConfigError
from judgekit.metrics.moments import Moments
from judgekit.types import Graded, RewardResult, Rollout

LEAST = 64
"""Fewest rewards for which a correlation or a share is meaningful."""
LEAST_GROUPS = 16
WHOLE, EVERY = 64, 32
"""Of how many rollouts every text is analysed, from the start or the last reset, and of which ones after these. Reading 8,000
characters takes 0.2 ms: 16 µs for each rollout of a step of 1,024, and 5 µs where they have 2,000. Grading them with three
rules takes the runner 12."""
_READ = 8000
"""Characters of a response that are analysed during a run."""


class SignalLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits beyond which signals are raised. Correlations are Pearson's, shares 0 to 1. Raises ConfigError."""

    length: float = 0.5
    """Absolute correlation of reward and response length within the rollouts of a prompt."""
    length_overall: float = 0.8
    """The same over all rollouts, for trainers that hand them over one at a time. Higher, for hard prompts have
    long answers."""
    repetition: float = 0.4
    """Correlation of reward and the share of repeated word sequences: positive if repetition pays."""
    formatting: float = 0.5
    """Absolute correlation of reward and Markdown marks per character."""
    flat_groups: float = 0.8
    """Share of groups whose rewards are all equal: no gradient for a group-relative estimator."""
    saturation: float = 0.9
    """Share of rewards that are the highest possible one, or the lowest."""
    missing: float = 0.05
    """Share of a grader's evaluations that failed."""
    disagreement: float = -0.3
    """Correlation of a judge and a rule, below which they contradict each other."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
                raise ConfigError(f"the limit of the signal {name!r} is a number from -1 to 1, not {value!r}")


SIGNAL_LIMITS = SignalLimits()


class Signal(Struct, frozen=True):
    """A figure, and whether it is beyond its limit."""

    name: str
    """A field of `SignalLimits`."""
    subject: str
    """The grader, or pair of graders, that it is about; empty for the reward."""
    value: float
    limit: float
    count: int
    """Number of rollouts, groups or evaluations that it was computed from."""
    raised: bool
    text: str


class Evidence:
    """Correlations of rewards with what is easily inflated, and of judges with rules. Can be pickled and merged."""

    def __init__(self, length: str = "length") -> None:
        self.what = length
        """The name of lengths in texts."""
        self.length = Moments()
        """Moments of (length, reward) minus their group's means: hard prompts have long answers and low rewards."""
        self.repetition = Moments()
        self.formatting = Moments()
        self.pairs: dict[tuple[str, str], Moments] = {}
        """By (judge, rule), the moments of (the rule's score, the judge's score)."""
        self.judges: set[str] = set()

    def add(self, result: RewardResult, response: str) -> None:
        """Analyse one rollout."""
        response = response[:_READ]
        if (reward := result.raw_reward) is not None:
            self.repetition.add(repetition(response), reward)
            self.formatting.add(formatting(response), reward)
        judged: list[tuple[str, float]] = []
        ruled: list[tuple[str, float]] = []
        for name, grade in result.grades.items():
            if isinstance(grade, Graded):
                if grade.usage is not None:
                    self.judges.add(name)
                (judged if name in self.judges else ruled).append((name, grade.score))
        for judge, verdict in judged:
            for rule, score in ruled:
                self.pairs.setdefault((judge, rule), Moments()).add(score, verdict)

    def add_group(self, lengths: Sequence[float], rewards: Sequence[float]) -> None:
        """Analyse the valid members of one group."""
        if len(rewards) < 2:
            return
        mean_x, mean_y = _mean(lengths), _mean(rewards)
        xs, ys = [x - mean_x for x in lengths], [y - mean_y for y in rewards]
        self.length.n += len(xs)  # the deviations' means are 0
        self.length.xx += sum(map(mul, xs, xs))
        self.length.yy += sum(map(mul, ys, ys))
        self.length.xy += sum(map(mul, xs, ys))

    def merge(self, other: Evidence) -> None:
        self.judges |= other.judges
        for mine, theirs in (
            (self.length, other.length),
            (self.repetition, other.repetition),
            (self.formatting, other.formatting),
        ):
            mine.merge(theirs)
        for pair, moments in other.pairs.items():
            self.pairs.setdefault(pair, Moments()).merge(moments)

    def disagreements(self) -> Iterator[tuple[str, str, Moments]]:
        """Yield judges and rules whose scores both vary, with their moments."""
        for (judge, rule), moments in self.pairs.items():
            if rule not in self.judges and moments.xx and moments.yy:
                yield judge, rule, moments

    def signals(self, limits: SignalLimits) -> Iterator[Signal]:
        """Yield the signals for which there is enough evidence."""
        if self.length.n >= LEAST:
            yield correlated("length", self.length, limits.length, what=self.what)
        if self.repetition.n >= LEAST:
            yield correlated("repetition", self.repetition, limits.repetition, by_amount=False)
            yield correlated("formatting", self.formatting, limits.formatting)
        for judge, rule, moments in self.disagreements():
            if moments.n >= LEAST:
                value = moments.correlation
                yield Signal(
                    "disagreement", f"{judge} / {rule}", value, limits.disagreement, moments.n, value < limits.disagreement,
                    f"{judge} and {rule} correlate by {value:.2f} over {moments.n} rollouts",
                )  # fmt: skip


def correlated(
    name: str, moments: Moments, limit: float, *, what: str = "", by_amount: bool = True
) -> Signal:
    value = moments.correlation
    return Signal(
        name, "", value, limit, moments.n, (abs(value) if by_amount else value) > limit,
        f"reward and {what or name} correlate by {value:.2f} over {moments.n} rollouts",
    )  # fmt: skip


def flat(flat_groups: int, groups: int, limits: SignalLimits) -> Iterator[Signal]:
    if groups >= LEAST_GROUPS:
        share = flat_groups / groups
        yield Signal(
            "flat_groups", "", share, limits.flat_groups, groups, share > limits.flat_groups,
            f"{share:.1%} of {groups} groups have equal rewards: they give a group-relative estimator no gradient",
        )  # fmt: skip


def saturated(which: str, count: int, rewards: int, limits: SignalLimits) -> Iterator[Signal]:
    """*which*: "highest" or "lowest"; "same" where there is no other."""
    if rewards >= LEAST:
        share = count / rewards
        yield Signal(
            "saturation", which, share, limits.saturation, rewards, share > limits.saturation,
            f"{share:.1%} of {rewards} rewards are the {which} one: there is nothing left to learn from them",
        )  # fmt: skip


def missing(grader: str, failed: int, asked: int, errors: str, limits: SignalLimits) -> Iterator[Signal]:
    """*errors*: the most frequent ones, as text."""
    if asked:
        share = failed / asked
        yield Signal(
            "missing", grader, share, limits.missing, asked, share > limits.missing,
            f"{grader} failed on {share:.1%} of {asked} rollouts" + (f" ({errors})" if errors else ""),
        )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    """Return the mean, exact if all values are equal, so that their deviations are 0."""
    return values[0] if min(values) == max(values) else math.fsum(value / len(values) for value in values)


_LONGEST = 1 << 53
"""Beyond it, a whole number is no float."""


def length_of(rollout: Rollout) -> int:
    """Return a response's length: in tokens if the trainer gives them, else in characters."""
    return min(rollout.response_tokens or len(rollout.response), _LONGEST)


def repetition(text: str, size: int = 5) -> float:
    """Return the share (0..1) of a text's sequences of *size* words that occurred in it before."""
    words = text.split()
    total = len(words) - size + 1
    if total < 2:
        return 0.0
    return 1 - len(set(zip(*(words[i:] for i in range(size)), strict=False))) / total


def formatting(text: str) -> float:
    """Return the Markdown marks (headings, bullets, bold, fences, tables) per 100 characters."""
    if not text:
        return 0.0
    marks = text.count("**") + sum(map(bool, map(_MARK.match, text.split("\n"))))
    return 100 * marks / len(text)


_MARK = re.compile(r"[ \t]{0,3}(?:#{1,6} |[-*+] |\d+[.)] |\||```)")
"""At the beginning of a line."""
