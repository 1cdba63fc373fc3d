"""What must come of every fault, written by hand; nothing here asks the code under test.

A line of the table: the fault, the places that it applies to, and the grade that it leaves: the error's name
("a|b" where Python's version or the way there decides, "*" where any name will do, "" for none: the fault is
benign), and whose fault it is. `reward` says what is paid then under each setting, from the documentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fault_graders import rollouts, rule_score, strikes, true_score

PLACES = ("inline", "thread", "process", "async", "group", "collected", "collected group")
EVERYWHERE = PLACES
LOOP = ("async", "group", "collected", "collected group")
WORKER = ("process",)
INFRA, ROLLOUT = "infrastructure", "rollout"


@dataclass(frozen=True)
class Row:
    """One fault."""

    error: str
    cause: str = INFRA
    places: tuple[str, ...] = EVERYWHERE
    in_worker: str = ""
    """The cause in a worker process, where it differs: there the memory is the rollout's own."""
    abstains: bool = False
    timed: bool = False
    """Whether it meets `timeout_s`."""


TABLE: dict[str, Row] = {
    # --- no fault of a grade
    "no_fault": Row(""),
    "slow": Row(""),
    "numpy_number_in_graded": Row(""),
    "awaitable": Row("", places=("inline", "thread")),
    # --- errors
    "raises": Row("ValueError"),
    "fails_for_half": Row("JudgeUnavailable"),
    "panic": Row("PanicException"),
    "unprintable_error": Row("Speechless"),
    "error_with_odd_usage": Row("ApiError"),
    "error_with_odd_flags": Row("OddFlags"),
    "bytes_of_a_proxy": Row("UnicodeDecodeError"),
    "typo_in_a_host_name": Row("UnicodeError|UnicodeEncodeError"),
    "no_memory": Row("MemoryError", in_worker=ROLLOUT),
    "recursion": Row("RecursionError", in_worker=ROLLOUT),
    "system_exit": Row("SystemExit"),
    "keyboard_interrupt": Row("KeyboardInterrupt", places=("thread", "process")),  # elsewhere: the user's
    "stop_iteration": Row("StopIteration|RuntimeError"),  # PEP 479: RuntimeError out of a coroutine
    "exception_group": Row("BaseExceptionGroup"),
    "cancelled_error": Row("CancelledError"),
    "rollout_error": Row("RolloutError", ROLLOUT),
    "graded_without_reason": Row("TypeError|DataError"),
    # --- values
    "nan": Row("ScoreNotFinite"),
    "inf": Row("ScoreNotFinite"),
    "out_of_range": Row("ScoreOutOfRange"),
    "huge_integer": Row("OverflowError|ScoreNotFinite|ScoreOutOfRange|TypeError"),
    "graded_huge_integer": Row("OverflowError|ScoreNotFinite|ScoreOutOfRange|TypeError"),
    "graded_nan": Row("ScoreNotFinite"),
    "graded_text": Row("TypeError|DataError"),
    "wrong_usage": Row("TypeError|DataError"),
    "usage_of_none": Row("TypeError"),
    "failed_oddly": Row("TypeError"),
    "closed_proxy": Row("*"),
    "none": Row("", abstains=True),
    "text": Row("TypeError"),
    "complex": Row("TypeError"),
    "list": Row("TypeError"),
    "object": Row("TypeError"),
    "mapping": Row("TypeError"),
    "one_grade_too_few": Row("WrongGroupGrades", places=("group", "collected group")),
    "one_grade_for_all": Row("WrongGroupGrades", places=("group", "collected group")),
    "grades_by_name": Row("WrongGroupGrades", places=("group", "collected group")),
    # --- time and cancellation
    "times_out": Row("GraderTimeout", places=("thread", *LOOP), timed=True),
    "hangs_for_ever": Row("GraderTimeout", places=LOOP, timed=True),
    "ignores_cancellation": Row("GraderTimeout", places=LOOP, timed=True),
    "beyond_the_deadline": Row("DeadlineExceeded", places=("thread", "process", *LOOP)),
    "cancels_itself": Row("CancelledError", places=LOOP),
    "old_timeout": Row("TimeoutError", places=LOOP),
    # --- worker processes
    "runs_away": Row("WorkerRanAway", ROLLOUT, WORKER, timed=True),
    "waits_in_its_worker": Row("WorkerTimeout", places=WORKER, timed=True),
    "worker_stopped": Row("WorkerTimeout", places=WORKER, timed=True),
    "worker_exits": Row("WorkerDied", ROLLOUT, WORKER),
    "worker_segfault": Row("WorkerDied", ROLLOUT, WORKER),
    "worker_killed_again": Row("*", places=WORKER),
    "worker_killed_beside_its_child": Row("WorkerLost", places=WORKER),
    "worker_killed_once": Row("", places=WORKER),
    "idle_workers_killed": Row("", places=WORKER),
    "worker_writes_to_its_output": Row("", places=WORKER),
    "unsendable": Row("*", places=WORKER),
    "unreadable": Row("*", places=WORKER),
    "import_slow": Row("", places=WORKER, timed=True),
    "import_fails": Row("ModuleNotFoundError", places=WORKER),
    "import_needs_memory": Row("MemoryError", places=WORKER),
    "import_exits": Row("*", places=WORKER),
    "warm_up_fails": Row("OSError", places=WORKER),
}

MECHANISMS: dict[str, tuple[str, ...]] = {
    "no fault": ("no_fault", "slow", "numpy_number_in_graded"),
    "an error": (
        "raises",
        "fails_for_half",
        "error_with_odd_usage",
        "bytes_of_a_proxy",
        "typo_in_a_host_name",
    ),
    "an error that raises when it is looked at": ("unprintable_error", "error_with_odd_flags"),
    "an error that is no Exception": ("panic", "exception_group"),
    "a number that is no score": ("nan", "inf", "out_of_range", "huge_integer"),
    "a Graded with a wrong score": ("graded_huge_integer", "graded_nan"),
    "a value that cannot be made": ("graded_text", "graded_without_reason", "wrong_usage"),
    "a grade with a wrong part": ("usage_of_none", "failed_oddly"),
    "a value that is no number": ("text", "complex", "list", "object", "mapping"),
    "a wrong number of grades": ("one_grade_too_few", "one_grade_for_all", "grades_by_name"),
}
"""Faults that take one way through the code: they differ in a name. Every other fault has a way of its own."""
_MECHANISM = {fault: name for name, faults in MECHANISMS.items() for fault in faults}


def path_of(fault: str, place: str, way: str) -> str:
    """The way through the code that a cell takes: equal for cells that differ only in a name or in a setting."""
    return f"{_MECHANISM.get(fault, fault)} | {place} | {way}"


SETTINGS: dict[str, dict[str, Any]] = {
    "exclude": {"missing_reward": "exclude"},
    "exclude, centred": {"missing_reward": "exclude", "transform": "center"},
    "mask": {"missing_reward": "mask"},
    "neutral": {"missing_reward": "neutral"},
    "neutral, centred": {"missing_reward": "neutral", "transform": "center"},
    "raise": {"missing_reward": "raise"},
    "number": {"missing_reward": -1.0},
    "renormalise": {"missing_reward": "raise", "if_missing": "renormalise"},
    "leaf number": {"missing_reward": "raise", "if_missing": 0.125},
    "broken number": {"missing_reward": "mask", "if_broken": 0.25},
}
"""Name → the runner's setting for a missing reward, its transform, and what the judge's leaf says."""


@dataclass(frozen=True)
class Expected:
    """One rollout's grade by the judge, and what it is paid."""

    struck: bool
    errors: tuple[str, ...]
    """Names that the failed grade may have; empty where it is graded or abstains."""
    cause: str
    abstains: bool
    score: float
    reward: float | None
    """NaN: a number of the tree's range, the same for its whole group."""
    status: str
    raises: bool
    """Whether its missing reward is to raise MissingRewardError."""


def cells() -> list[tuple[str, str]]:
    """Every fault in every place that it applies to."""
    return [(fault, place) for fault, row in TABLE.items() for place in row.places]


def expected(fault: str, place: str, setting: str) -> list[Expected]:
    """What the documentation promises for each rollout of the batch."""
    row, options = TABLE[fault], SETTINGS[setting]
    batch = rollouts()
    struck = [r.id in strikes(fault, place) for r in batch]
    cause = row.in_worker if place == "process" and row.in_worker else row.cause
    errors = () if row.abstains or not row.error else tuple(row.error.split("|"))
    raw = [
        _raw(rule_score(r), true_score(r), hit, not row.abstains and cause == ROLLOUT, options)
        for r, hit in zip(batch, struck, strict=True)
    ]
    alone = place.startswith("collected")
    paid = _transformed(raw, [r.group for r in batch], options, alone)
    out = []
    for i, rollout in enumerate(batch):
        reward, status, raises = paid[i]
        out.append(
            Expected(struck[i], errors, cause, row.abstains, true_score(rollout), reward, status, raises)
        )
    return out


def _raw(rule: float, score: float, struck: bool, broken: bool, options: dict[str, Any]) -> float | None:
    """0.5 rule + 0.5 judge, where the judge has a score or its leaf says what to take instead."""
    if not struck:
        return 0.5 * rule + 0.5 * score
    if broken:  # the rollout's own fault: the number written for it, or the low end of the range
        return 0.5 * rule + 0.5 * float(options.get("if_broken", 0.0))
    if options.get("if_missing") == "renormalise":
        return rule
    if "if_missing" in options:
        return 0.5 * rule + 0.5 * float(options["if_missing"])
    return None


def _transformed(
    raw: list[float | None], groups: list[Any], options: dict[str, Any], alone: bool
) -> list[tuple[float | None, str, bool]]:
    """Reward, status, and whether it raises, per rollout. *alone*: each group is graded by itself."""
    centred = options.get("transform") == "center"
    rule = options["missing_reward"]
    everyone = [x for x in raw if x is not None]
    out: list[tuple[float | None, str, bool]] = []
    for i, value in enumerate(raw):
        members = [x for x, g in zip(raw, groups, strict=True) if g == groups[i] and x is not None]
        middle = math.fsum(members) / len(members) if members else 0.0
        if value is not None and not centred:
            out.append((value, "scored", False))
        elif value is not None and len(members) >= 2:
            out.append((value - middle, "scored", False))
        elif rule == "exclude":  # also a lone member under a transform: it has nobody to be compared with
            out.append((None, "excluded", False))
        elif rule == "mask":
            out.append((None, "masked", False))
        elif rule == "raise":
            out.append((None, "", True))
        elif rule != "neutral":
            out.append((float(rule), "constant", False))
        elif centred:
            out.append((0.0, "neutral", False))
        elif members:
            out.append((middle, "neutral", False))
        elif alone:  # which other groups were there before is not said
            out.append((math.nan, "neutral", False))
        else:  # a group without any: a number like the other groups'; without those, the middle of the range
            out.append((math.fsum(everyone) / len(everyone) if everyone else 0.5, "neutral", False))
    return out
