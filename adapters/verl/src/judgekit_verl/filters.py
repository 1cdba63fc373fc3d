"""The metric that DAPO's filter reads: a float for every rollout, under the name that verl's configuration has.

verl's V1 trainer with `algorithm.filter_groups.enable=True` discards groups in which `algorithm.filter_groups.metric` is
the same for all. `acc`, `seq_reward` and `seq_final_reward`, the names in verl's recipes, are the reward here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from judgekit import ConfigError
from judgekit.trainers import did_you_mean

REWARD_NAMES = ("acc", "score", "seq_reward", "seq_final_reward")
"""Names of the reward in verl's recipes."""
_VERLS = "reward"
"""verl reads this one from the rewards themselves."""


def filter_metric(config: Any, ours: Sequence[str]) -> str | None:
    """The name that the filter reads in `reward_extra_info`; None if it reads nothing there.

    *ours*: the names that are there. Raises ConfigError for any other.
    """
    section = (config.get("algorithm", None) or {}).get("filter_groups", None) or {}
    name = section.get("metric") if section.get("enable", False) else None
    if name is None or name == _VERLS:
        return None
    known = (_VERLS, *REWARD_NAMES, *ours)
    if name not in known:
        raise ConfigError(
            f"algorithm.filter_groups.metric: there is no {name!r}{did_you_mean(str(name), known)}"
        )
    return str(name)


def add_metric(answers: Sequence[dict[str, Any]], name: str, *, dropped: bool = False) -> None:
    """Make it a float in each of a group's answers: where a grader gave no score, the mean of its siblings'.

    That makes no group look as if its members differed. NaN for a rollout that came alone. *dropped*: the group is one that
    `drop_if` leaves out: all get that mean, so that verl samples another in its place.
    """
    infos = [answer["reward_extra_info"] for answer in answers]
    if name in REWARD_NAMES:
        for answer, info in zip(answers, infos, strict=True):
            info[name] = float(answer["reward_score"])
        return
    known = [info[name] for info in infos if info[name] is not None and not math.isnan(info[name])]
    if known:  # a mean of equal numbers may be another number, by rounding
        fill = known[0] if min(known) == max(known) else sum(known) / len(known)
    else:
        fill = 0.0 if len(infos) > 1 else math.nan
    for info in infos:
        if dropped or info[name] is None or math.isnan(info[name]):
            info[name] = fill
