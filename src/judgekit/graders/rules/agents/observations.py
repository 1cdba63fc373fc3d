"""Rules about what an agent's calls achieved, and how many it needed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, get_args

from judgekit.graders.protocol import Per
from judgekit.graders.rules.agents.expected import expected_calls
from judgekit.graders.rules.agents.trajectory import Trajectory, by_turn, read_trajectory
from judgekit.graders.rules.rule import Rule, at_least, one_of, share
from judgekit.graders.rules.work import Paced, Work, calls_of
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

_WORD = re.compile(r"\S+")


class InformationGain(Paced, Rule):
    """Scores how much new information a trajectory's observations contain, 0 to 1.

    An observation's gain is 1 minus its greatest likeness to an earlier one, times
    exp(-*decay* · (likeness - *threshold*)) if the likeness is above the threshold; the score is the mean gain.
    *likeness*: "words": the Jaccard index of the sets of words; "order": that of the sets of pairs of neighbouring
    words. Errors count as 0, and nothing is compared with them. Empty answers are not observations.

    Abstains without observations, because an agent that answers without tools neither gains nor loses.

    Source: OpenJudge's `ObservationInformationGainGrader`, but for errors, short observations (there skipped)
    and trajectories without any (there 0).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("messages", "response")
    abstains = "nothing was observed"
    dodge = "calls no tool"
    inline_limit = 15_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        likeness: Literal["words", "order"] = "words",
        threshold: float = 0.5,
        decay: float = 2.0,
        name: str = "information_gain",
    ) -> None:
        one_of(name, "likeness", likeness, ("words", "order"))
        share(name, "threshold", threshold)
        at_least(name, "decay", decay, 0)
        self.name = name
        self.likeness = likeness
        self.threshold = threshold
        self.decay = decay

    def work(self, rollout: Rollout) -> Work:
        seen = calls_of(rollout)
        return Work(seen, seen * seen)

    def here(self, rollout: Rollout) -> Grade:
        observations = [o for o in read_trajectory(rollout).observations if o.text.strip()]
        if not observations:
            return Abstained("nothing was observed")
        before: list[set[Any]] = []
        gains: list[float] = []
        errors = 0
        for observation in observations:
            if observation.failed:
                errors += 1
                gains.append(0.0)
                continue
            words = self._features(observation.text)
            likeness = max((_jaccard(words, other) for other in before), default=0.0)
            excess = max(0.0, likeness - self.threshold)
            gains.append((1.0 - likeness) * math.exp(-self.decay * excess))
            before.append(words)
        score = math.fsum(gains) / len(gains)
        reason = f"{len(observations)} observations, {errors} of them errors"
        metadata = {"observations": len(observations), "errors": errors, "gains": gains[:100]}
        return Graded(min(max(score, 0.0), 1.0), reason, metadata)

    def _features(self, text: str) -> set[Any]:
        words = _WORD.findall(text.casefold())
        if self.likeness == "words" or len(words) < 2:
            return set(words)
        return set(pairwise(words))


def _jaccard(a: set[Any], b: set[Any]) -> float:
    common = len(a & b)
    union = len(a) + len(b) - common
    return common / union if union else 0.0


class ToolEfficiency(Paced, Rule):
    """Scores the share of tool calls that were useful, 0 to 1.

    A call is wasted if its answer is an error, if the same call (name and arguments) was already answered without
    an error, or, with *unanswered*="wasted", if it got no answer. *repeats*: "wasted"
    or "fine" (polling). *per*: "turn" also says which share of each turn's calls was useful. Abstains without tool calls.

    Source: the share of valid, non-redundant calls, as ToolLLM's solution-path checks and T-Eval count them.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("messages", "response")
    abstains = "no tool was called"
    only_form = True
    dodge = "calls no tool"
    inline_limit = 100_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        repeats: Literal["wasted", "fine"] = "wasted",
        unanswered: Literal["wasted", "fine"] = "fine",
        per: Per = "rollout",
        name: str = "tool_efficiency",
    ) -> None:
        one_of(name, "per", per, get_args(Per))
        self.gives_turns = per == "turn"
        one_of(name, "repeats", repeats, ("wasted", "fine"))
        one_of(name, "unanswered", unanswered, ("wasted", "fine"))
        self.name = name
        self.repeats = repeats
        self.unanswered = unanswered

    def here(self, rollout: Rollout) -> Grade:
        calls = read_trajectory(rollout).calls
        if not calls:
            return Abstained("no tool was called")
        done: set[str] = set()
        errors = repeated = unanswered = 0
        useful: list[float] = []
        for call in calls:
            key = call.key()
            useful.append(0.0)
            if call.answer is not None and call.answer.failed:
                errors += 1
                continue
            if key in done and self.repeats == "wasted":
                repeated += 1
                continue
            if call.answer is None and self.unanswered == "wasted":
                unanswered += 1
                continue
            done.add(key)
            useful[-1] = 1.0
        turns = by_turn(rollout, calls, useful) if self.gives_turns else None
        wasted = errors + repeated + unanswered
        metadata = {"calls": len(calls), "errors": errors, "repeats": repeated, "unanswered": unanswered}
        reason = f"{wasted} of {len(calls)} calls wasted"
        return Graded((len(calls) - wasted) / len(calls), reason, metadata, turns=turns)


class StepEfficiency(Paced, Rule):
    """Scores steps against the reference: 1 if no more, else reference over taken.

    *count*: "calls" (tool calls) or "turns" (messages of the assistant). The reference is at the dotted path
    *reference*: a number of steps, or calls in any format that `ToolCallMatch` reads; or it is *steps* for all
    rollouts. A trajectory without steps scores 0, unless none was needed. Abstains without a reference.

    It says nothing about success: put it behind a gate, such as Gate(correct ≥ 1).

    Source: the path-length term of SPL (Anderson et al. 2018, arXiv:1807.06757): optimal / max(taken, optimal).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("messages", "response", "extra.steps")
    abstains = "the reference has no number of steps"
    only_form = True
    inline_limit = 50_000
    timeout_s = 10.0

    def __init__(
        self,
        *,
        count: Literal["calls", "turns"] = "calls",
        steps: float | None = None,
        reference: str = "extra.steps",
        name: str = "step_efficiency",
    ) -> None:
        one_of(name, "count", count, ("calls", "turns"))
        if steps is not None:
            at_least(name, "steps", steps, 0)
        self.name = name
        self.count = count
        self.steps = steps
        self.reference = reference

    def here(self, rollout: Rollout) -> Grade:
        needed = self.steps if self.steps is not None else _steps(look_up(rollout, self.reference, None))
        if needed is None:
            return Abstained(f"there is no number of steps at {self.reference}")
        trajectory = read_trajectory(rollout)
        taken = _taken(trajectory, self.count)
        if not taken:
            return Graded(float(needed == 0), "no step was taken")
        return Graded(needed / max(taken, needed), f"{taken} steps, {needed:g} needed")


def _taken(trajectory: Trajectory, count: str) -> int:
    return len(trajectory.calls) if count == "calls" else trajectory.turns


def _steps(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) and value >= 0 else None
    if isinstance(value, list | tuple | Mapping) or (isinstance(value, str) and value.strip()[:1] in "[{"):
        calls = expected_calls(value)
        return None if calls is None else float(len(calls))
    return None
