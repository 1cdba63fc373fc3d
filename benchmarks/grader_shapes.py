"""Texts of one repeated fragment: does a rule take linear time for them, and does the event loop keep turning?

Patterns with two ways to match the same characters, and loops that look at a whole prefix again, show as a time that
grows faster than the text.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rule_graders import GROUP_RULES, RULES, TOOLS

from judgekit import Failed, GradingRunner, Rollout, RolloutError
from judgekit.execution.pool import ProcessPool
from judgekit.graders import ActionLoop, StepSequence, ToolCallMatch
from judgekit.graders.rules import committed, thoughts

SHAPES: dict[str, tuple[str, str, str]] = {
    "action and spaces": ("Action: a", " ", "x"),
    "action inputs": ("", "Action: a\nAction Input: ", ""),
    "actions": ("", "Action: a\n", ""),
    "answer tags": ("", "<answer>", ""),
    "backslashes": ("", "\\", ""),
    "blank lines": ("", "\n", ""),
    "braces": ("", "{", ""),
    "brackets": ("", "[", ""),
    "boxes": ("", "\\boxed", ""),
    "boxes that open": ("", "\\boxed{", ""),
    "bullets": ("", "- ", ""),
    "capitals": ("", "TIME ", ""),
    "closing tags": ("", "</a>", ""),
    "combining marks": ("a", "\u0301", "a"),
    "commas": ("", "1,", ""),
    "dollars": ("", "$", ""),
    "emoji": ("", "\U0001f44d\U0001f3fd", ""),
    "equals": ("", "=1", ""),
    "fences": ("", "```\n", "x"),
    "fractions": ("", "\\frac{1}{2}", ""),
    "full stops": ("", ". ", ""),
    "hashes": ("", "#### ", ""),
    "Han": ("", "漢", ""),
    "JSON objects": ("", '{"a":1}', ""),
    "ligatures": ("", "\ufdfa", ""),
    "lines": ("", "a\n", ""),
    "numbers": ("", "1 ", ""),
    "observations": ("", "Observation:", ""),
    "options": ("", "(A) ", ""),
    "parentheses": ("", "(", ""),
    "questions": ("", "? ", ""),
    "quotes": ("", '"', ""),
    "sentences": ("", "a. ", ""),
    "spaces": ("", " ", "x"),
    "stars": ("", "* ", ""),
    "tags": ("", "<a>", ""),
    "ticks": ("", "`", ""),
    "tildes": ("", "~", "`"),
    "think tags": ("", "<think>", ""),
    "tool answers": ("", "<information>", "</"),
    "tool calls": ("", '<tool_call>{"name": "a"}</tool_call>', ""),
    "tool calls that open": ("", "<tool_call>{", ""),
    "words": ("", "time ", ""),
    "zero width": ("", "\u200b", ""),
}
PAIRED = (
    "1 ",
    " ",
    ". ",
    "\n",
    "- ",
    "(A) ",
    "A. ",
    "9,",
    '"',
    "$",
    "\\boxed{",
    "}",
    "#### 1 ",
    "answer is ",
    "not ",
    "or ",
    "²",
)
"""Fragments of which two stand one behind the other in a text, or in turn."""
PAIRED_RULES = ("boxed", "final_answer", "multiple_choice", "text_match")
"""Rules that look for an answer."""
STRUCTURED_RULES: dict[str, Any] = {
    "tool_calls_partial": lambda: ToolCallMatch(reference="extra.calls", arguments="partial"),
    "tool_calls_subset": lambda: ToolCallMatch(reference="extra.calls", arguments="subset"),
    "step_sequence_exact": lambda: StepSequence(reference="extra.calls", arguments="exact"),
    "action_loop_near": lambda: ActionLoop(near=True),
}
"""Settings in which calls are compared in pairs."""
PLACES = ("response", "assistant", "user", "reference")
"""Where the text stands."""
LONGEST = 200_000
SLOW_S = 0.005
"""Times below this say nothing about growth."""
SUSPECT = 1.2
"""Exponents above this are measured again, with more calls."""


def shaped(shape: str, chars: int, place: str, group: int = 0) -> Rollout:
    head, fragment, tail = SHAPES[shape]
    text = head + (fragment * (chars // len(fragment) + 1))[:chars] + tail
    extra: dict[str, Any] = {"options": ["a", "b"], "steps": 5, "tools": TOOLS, "calls": []}
    if place == "response":
        return Rollout(
            prompt="p", response=text, ground_truth="#### 72", extra=extra, response_tokens=9, group=group
        )
    if place == "reference":
        extra["calls"] = text
        return Rollout(
            prompt="p", response="#### 72", ground_truth=text, extra=extra, response_tokens=9, group=group
        )
    messages = (
        {"role": "user", "content": "p"},
        {"role": "assistant", "content": "Action: search[a]"},
        {"role": place, "content": text},
        {"role": "assistant", "content": "#### 72"},
    )
    return Rollout(response="#### 72", messages=messages, ground_truth="#### 72", extra=extra, group=group)


def calls(names: int, arguments: int, count: int) -> list[dict[str, Any]]:
    """So many calls, of so many different names, with so many arguments."""
    return [
        {"name": f"t{i % names}", "arguments": {f"a{j}": i for j in range(arguments)}} for i in range(count)
    ]


STRUCTURES: dict[str, tuple[int, int, int, int, int]] = {
    # names, arguments, calls, calls of the reference, members of a group
    "equal calls": (1, 0, 4000, 50, 8),
    "equal calls, a long reference": (1, 0, 400, 400, 8),
    "different names": (500, 0, 2000, 100, 8),
    "one name, different arguments": (1, 1, 1000, 200, 8),
    "many arguments": (1, 200, 40, 40, 8),
    "short calls, large groups": (4, 1, 40, 10, 64),
    "long calls, large groups": (4, 8, 60, 20, 32),
    "a long reference": (3, 1, 8, 2000, 8),
}
"""Rollouts whose work grows by their calls, their references, their arguments and their group, not by their characters."""


def structured(name: str, i: int) -> Rollout:
    """A rollout of one of `STRUCTURES`: every second one has its calls in one turn, the others one in each."""
    names, arguments, count, wanted, size = STRUCTURES[name]
    made = calls(names, arguments, count)
    turns = [made] if i % 2 else [[call] for call in made]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "p"}]
    for turn in turns:
        messages += [
            {"role": "assistant", "tool_calls": turn},
            {"role": "tool", "content": f"r{len(messages)}"},
        ]
    extra = {"calls": calls(names, arguments, wanted), "steps": 5, "tools": TOOLS, "options": ["a", "b"]}
    text = "We add 4 and 5. " * (39_000 // 16 if size > 8 else 50) + "#### 72"
    return Rollout(
        prompt="p", response=text, messages=messages, ground_truth="#### 72", extra=extra, group=i // size
    )


def exponents() -> Iterator[tuple[str, float, float]]:
    """Yield rule and shape, how the time of inline work grows with the text, and the seconds at its limit."""
    for name, make in RULES.items():
        grader = make()
        if getattr(grader, "where", "inline") != "inline":
            continue
        most = min(getattr(grader, "inline_limit", None) or LONGEST, LONGEST) - 200
        for shape in SHAPES:
            for place in PLACES:
                texts = [shaped(shape, n, place) for n in (most // 4, most)]
                short, whole = _seconds(grader, texts)
                if whole > SLOW_S and whole > 4**SUSPECT * short:  # noise of the machine, or growth?
                    short, whole = _seconds(grader, texts, best_of=15)
                if whole > SLOW_S:
                    yield f"{name}: {shape} ({place})", math.log(whole / short) / math.log(4), whole
    yield from _paired_exponents()


def _paired_exponents() -> Iterator[tuple[str, float, float]]:
    for name in PAIRED_RULES:
        grader = RULES[name]()
        most = min(getattr(grader, "inline_limit", None) or LONGEST, 40_000) - 200
        for one, other in itertools.permutations(PAIRED, 2):
            for how, made in (("behind", _behind), ("in turn", _in_turn)):
                texts = [made(one, other, n) for n in (most // 2, most)]
                short, whole = _seconds(grader, texts)
                if whole > SLOW_S and whole > 2**SUSPECT * short:
                    short, whole = _seconds(grader, texts, best_of=15)
                if whole > SLOW_S:
                    yield f"{name}: {one!r}, {other!r} ({how})", math.log2(whole / short), whole


def _behind(one: str, other: str, chars: int) -> Rollout:
    return _answered(one * (chars // 2 // len(one)) + other * (chars // 2 // len(other)))


def _in_turn(one: str, other: str, chars: int) -> Rollout:
    return _answered((one + other) * (chars // len(one + other)))


def _answered(text: str) -> Rollout:
    return Rollout(response=text, ground_truth="B", extra={"options": ["7", "8"]})


def _seconds(grader: Any, texts: Sequence[Rollout], best_of: int = 3) -> list[float]:
    """The best of several calls for each text, in seconds of CPU. They take turns, so that all meet the same machine."""
    best = [math.inf] * len(texts)
    for _ in range(best_of):
        for i, rollout in enumerate(texts):
            _forget()
            start = time.thread_time()
            with contextlib.suppress(RolloutError):
                grader.grade(rollout)
            best[i] = min(best[i], time.thread_time() - start)
    return best


def _forget() -> None:
    """Let the rules find out again what they remember of the last texts: it is the first call that counts."""
    for one in (*vars(committed).values(), *vars(thoughts).values()):
        kept = inspect.getclosurevars(one).nonlocals.get("kept") if inspect.isfunction(one) else None
        if isinstance(kept, functools._lru_cache_wrapper):
            kept.cache_clear()


async def stall(shape: str, pool: ProcessPool, ticker: Any, rollouts: int = 4096) -> dict[str, Any]:
    """Grade a run in which every 256th rollout is long, by every rule; *ticker* measures the event loop."""
    graders = {name: make() for name, make in {**RULES, **GROUP_RULES, **STRUCTURED_RULES}.items()}
    runner = GradingRunner(graders, dict.fromkeys(graders, 1.0), pool=pool, missing_reward="mask")
    if shape in STRUCTURES:
        batch = [structured(shape, i) for i in range(64)]
    else:
        batch = [
            shaped(shape, 15_000 if i % 256 == 0 else 60, PLACES[i // 256 % len(PLACES)], i // 8)
            for i in range(rollouts)
        ]
    await runner.start()  # loading is not grading
    gc.collect()
    gc.freeze()  # the batch is its owner's; what grading makes is the collector's, whose pauses count
    try:
        watch = ticker()
        results = await runner.run(batch)
        stall_ms = await watch.stop()
    finally:
        gc.unfreeze()
    found = {
        "stall_ms": stall_ms,
        "cpu_ms": watch.cpu_ms,
        "raised": 0,
        "out_of_range": 0,
        "blamed_wrongly": 0,
        "failed": set(),
    }
    for i, result in enumerate(results):
        in_reference = shape in SHAPES and PLACES[i // 256 % len(PLACES)] == "reference"
        for name, grade in result.grades.items():
            low, high = graders[name].score_range
            score = result.score(name)
            found["out_of_range"] += score is not None and not low <= score <= high
            if isinstance(grade, Failed):
                found["failed"].add(f"{name}: {grade.error} ({grade.cause})")
                # a rule that needs nothing but the rollout can only fail for it, and never for a reference
                found["blamed_wrongly"] += grade.cause != ("infrastructure" if in_reference else "rollout")
                found["raised"] += grade.error not in ("RolloutError", "WorkerRanAway", "GraderTimeout")
    return found


def stalls(pool: ProcessPool, ticker: Any, goal_ms: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each shape's figures: the first of three runs that is below the goal, else the best."""
    for shape in (*SHAPES, *STRUCTURES):
        rounds: list[dict[str, Any]] = []
        while len(rounds) < 3 and not (rounds and rounds[-1]["stall_ms"] <= goal_ms):
            rounds.append(asyncio.run(stall(shape, pool, ticker)))
        best = min(rounds, key=lambda found: float(found["stall_ms"]))
        for key in ("raised", "out_of_range", "blamed_wrongly"):
            best[key] = max(found[key] for found in rounds)
        yield shape, best
