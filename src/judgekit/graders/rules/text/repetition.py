"""Rules against repetitive text."""

from __future__ import annotations

import math
import zlib
from typing import Literal

from judgekit.errors import ConfigError
from judgekit.graders.rules.rule import Rule, at_least, one_of
from judgekit.types import Abstained, Grade, Graded, Rollout


class Repetition(Rule):
    """Penalises repeated n-grams: *max_penalty* times their share.

    0 without repeats, close to *max_penalty* for one thing over and over. *unit*: "words" (separated by spaces, in
    lower case) or "characters" (ignoring spaces, for languages that do not use them). A response of fewer than *n*
    units scores 0.

    Source: the n-gram repetition penalty of Yeo et al. 2025 (arXiv:2502.03373, appendix C.2), as open-r1's
    `get_repetition_penalty_reward`.
    """

    version = "1"
    inputs = ("response",)
    abstains = "never"
    only_form = True
    inline_limit = 60_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        n: int = 3,
        max_penalty: float = -1.0,
        unit: Literal["words", "characters"] = "words",
        name: str = "repetition",
    ) -> None:
        at_least(name, "n", n, 1, whole=True)
        if not isinstance(max_penalty, int | float) or not math.isfinite(max_penalty) or max_penalty >= 0:
            raise ConfigError(f"{name}: max_penalty is a number below 0, not {max_penalty!r}")
        one_of(name, "unit", unit, ("words", "characters"))
        self.name = name
        self.n = n
        self.max_penalty = float(max_penalty)
        self.unit = unit
        self.score_range = (self.max_penalty, 0.0)

    def grade(self, rollout: Rollout, /) -> Grade:
        units = rollout.response.lower().split()
        if self.unit == "characters":
            units = list("".join(units))
        total = len(units) - self.n + 1
        if total < 1:
            return Graded(0.0)
        different = len(set(zip(*(units[i:] for i in range(self.n)), strict=False)))
        repeated = 1.0 - different / total
        return Graded(repeated * self.max_penalty or 0.0, f"{repeated:.0%} of the {self.n}-grams are repeats")


class Compression(Rule):
    """Scores 1 up to a compression ratio of *soft_max*, falling linearly to 0 at *hard_max*.

    The ratio is the size in UTF-8 over the compressed size (zlib, level 6): about 2 to 3 for prose, more for
    code and tables, far more for loops. Short texts cannot be compressed, so they score 1. Abstains on empty
    responses.

    Source: compression ratios as a measure of repetition (Shaib et al. 2024, arXiv:2403.00553); Whisper drops
    segments above 2.4 (`compression_ratio_threshold`, arXiv:2212.04356).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response",)
    abstains = "the response is empty"
    only_form = True
    dodge = "writes nothing"
    inline_limit = 200_000
    timeout_s = 10.0

    def __init__(self, *, soft_max: float = 4.0, hard_max: float = 10.0, name: str = "compression") -> None:
        at_least(name, "soft_max", soft_max, 0)
        at_least(name, "hard_max", hard_max, 0)
        if not soft_max < hard_max:
            raise ConfigError(f"{name}: soft_max is below hard_max, not {soft_max!r} and {hard_max!r}")
        self.name = name
        self.soft_max = soft_max
        self.hard_max = hard_max

    def grade(self, rollout: Rollout, /) -> Grade:
        if not rollout.response:
            return Abstained("the response is empty")
        data = rollout.response.encode("utf-8", "surrogatepass")
        ratio = len(data) / len(zlib.compress(data, 6))
        score = (self.hard_max - ratio) / (self.hard_max - self.soft_max)
        return Graded(min(max(score, 0.0), 1.0), f"compresses {ratio:.2f} times", {"ratio": ratio})
