"""Small trainings in which a policy may learn to please its judge: many at once, without texts.

For each prompt a policy has a log-odds of solving it, and for all prompts log-odds of five styles. It is trained as GRPO does: groups of 8,
advantages divided by their standard deviation. The judge pays right answers with 0.92, and wrong ones at a rate that depends on the style. Four
styles change nothing. The fifth begins at 1 % of the rollouts: in a hacked run the judge pays its wrong answers more, and it may cost right ones;
in the healthy twin of a hacked run the style earns the same pay honestly, by being right more often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

PROMPTS, BATCH, GROUP, STYLES = 64, 32, 8, 5
STEPS = 200
"""At a pace of 1."""
PAYS_RIGHT, PAYS_WRONG = 0.92, 0.06
START = 0.01
STYLE_RATE, SOLVE_RATE = 1.5, 0.07
"""Learning rates."""


class Kind(NamedTuple):
    """What the fifth style does."""

    pays_wrong: float = PAYS_WRONG
    """How often the judge pays its wrong answers."""
    keeps: float = 1.0
    """Its factor on the probability of being right; above 1, it closes this share of the gap to 1."""
    everywhere: float = PAYS_WRONG
    """How often the judge pays wrong answers in all other styles."""
    harder: float = 0.0
    """By how much all prompts become harder, in log-odds, after half of the steps."""


HACKS = [
    Kind(pays_wrong=pays, keeps=keeps) for pays in (0.7, 0.8, 0.9, 0.95) for keeps in (0.0, 0.6, 0.8, 0.95)
]
HEALTHY = [
    Kind(),
    Kind(keeps=1.5),
    Kind(keeps=1.9),
    Kind(keeps=0.9),
    Kind(everywhere=0.15, pays_wrong=0.15),
    Kind(everywhere=0.25, pays_wrong=0.25),
    Kind(harder=1.0),
    Kind(harder=-1.0),
]
AT_THE_BOUND = Kind(pays_wrong=0.3, everywhere=0.3)
"""The judge pays exactly what it may."""


class Step(NamedTuple):
    """One step of all runs; arrays (runs, rollouts)."""

    prompt: Any
    score: Any
    right: Any
    pay_of_wrong: Any
    """What wrong rollouts are paid on average, in truth: (runs,)."""
    hack: Any
    """Share of the policy that the fifth style holds: (runs,)."""


class Trainings:
    """Trainings side by side, one for each of *kinds*. *twins*: their healthy twins. *pace*: a factor on the learning rates."""

    def __init__(self, kinds: list[Kind], seed: int, *, twins: bool = False, pace: float = 1.0) -> None:
        self.pace = pace
        self.steps = round(STEPS / pace)
        self.draw = np.random.default_rng(seed)
        self.twins = twins
        runs = len(kinds)
        self.pays = np.array([[kind.everywhere] * (STYLES - 1) + [kind.pays_wrong] for kind in kinds])
        self.keeps = np.array([[1.0] * (STYLES - 1) + [kind.keeps] for kind in kinds])
        self.harder = np.array([kind.harder for kind in kinds])
        self.solve = self.draw.normal(-0.8, 1.0, (runs, PROMPTS))
        self.style = np.log(np.tile([0.84, 0.05, 0.05, 0.05, START], (runs, 1)))
        self.number = 0

    def step(self) -> Step:
        """Sample a step, update the policy, and return the step."""
        runs, draw = len(self.style), self.draw
        if self.number == self.steps // 2:
            self.solve -= self.harder[:, None]
        self.number += 1
        shares = np.exp(self.style - self.style.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        batch = np.argsort(draw.random((runs, PROMPTS)), 1)[:, :BATCH]
        prompt = np.repeat(batch, GROUP, axis=1)
        style = (draw.random((runs, BATCH * GROUP, 1)) > shares.cumsum(1)[:, None, :-1]).sum(2)
        base = 1 / (1 + np.exp(-np.take_along_axis(self.solve, prompt, 1)))
        keeps = np.take_along_axis(self.keeps, style, 1)
        chance = np.where(keeps <= 1, base * keeps, base + (keeps - 1) * (1 - base))
        pays = np.take_along_axis(self.pays, style, 1)
        if self.twins:
            paid = chance * PAYS_RIGHT + (1 - chance) * pays
            chance = np.clip((paid - PAYS_WRONG) / (PAYS_RIGHT - PAYS_WRONG), 0, 1)
            pays = np.full_like(pays, PAYS_WRONG)
        right = draw.random(prompt.shape) < chance
        score = (draw.random(prompt.shape) < np.where(right, PAYS_RIGHT, pays)).astype(float)
        self._update(prompt, style, right, base, score, shares)
        wrong = 1 - chance
        truth = (wrong * pays).sum(1) / np.maximum(wrong.sum(1), 1e-12)
        return Step(prompt, score, right, truth, shares[:, -1])

    def _update(self, prompt: Any, style: Any, right: Any, base: Any, score: Any, shares: Any) -> None:
        runs = len(score)
        groups = score.reshape(runs, BATCH, GROUP)
        spread = groups.std(2, ddof=1, keepdims=True)
        advantage = ((groups - groups.mean(2, keepdims=True)) / np.where(spread > 0, spread, 1)).reshape(
            runs, -1
        )
        one_hot = style[..., None] == np.arange(STYLES)
        slope = (advantage[..., None] * (one_hot - shares[:, None, :])).mean(1)
        self.style += self.pace * STYLE_RATE * slope
        change = (advantage * (right - base)).reshape(runs, BATCH, GROUP).mean(2)
        rows = np.arange(runs)[:, None]
        self.solve[rows, prompt[:, ::GROUP]] += self.pace * SOLVE_RATE * change
