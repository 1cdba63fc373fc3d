"""Laws of every rule grader: a score is finite and in range, whatever the rollout; nothing else gets out."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judgekit import Abstained, Failed, Graded, GradingRunner, Rollout
from judgekit.config import RewardConfig
from judgekit.execution.pool import ProcessPool
from judgekit.graders.registry import GRADERS
from judgekit.types import look_up

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from rule_graders import CONSTRAINTS, GROUP_RULES, RULES, sample  # noqa: E402

ALL = {name: make() for name, make in {**RULES, **GROUP_RULES}.items()}
INLINE = {name: rule for name, rule in ALL.items() if getattr(rule, "where", "inline") == "inline"}
KILLABLE = {name: rule for name, rule in ALL.items() if name not in INLINE and name != "code"}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    pool = ProcessPool(2)
    yield pool
    pool.close()


def check(results: Any, rules: dict[str, Any]) -> None:
    for result in results:
        for name, grade in result.grades.items():
            low, high = rules[name].score_range
            if isinstance(grade, Graded):
                assert math.isfinite(grade.score)
                assert low <= grade.score <= high
            elif isinstance(grade, Failed):
                assert grade.cause == "rollout", (name, grade, result)
            else:
                assert isinstance(grade, Abstained)
                assert grade.reason


HOSTILE = [
    "",
    " \n\t",
    "\0",
    "\ud800 \udfff",
    "é" * 3 + "\u202e\ufeff🐕‍🦺",
    "٣٤ ½ ① ７ 二",
    "9" * 6000,
    "9**9**9**9 = ?",
    "1e999999999 -0.0 nan inf",
    "a" * 40 + "!",
    "{" * 5000,
    "[" * 6000 + "]" * 6000,
    '{"a":' * 3000,
    "<think>" * 2000,
    "</think>" * 2000 + "<answer>",
    "<tool_call>" * 2000,
    "<search>" * 2000,
    "Action: " * 2000 + "\nObservation:" * 500,
    "```" * 3000,
    "```python\n" * 1000,
    "\\boxed{" * 3000,
    "$" * 3001,
    "(" * 5000 + ")" * 5000,
    "*" * 5001 + "<<" * 2000 + "[" * 2000,
    "Answer: " * 2000,
    "." * 20_000 + "x",
    "\n" * 20_000 + "* x",
    "word " * 5000,
    "-" * 20_000 + "1",
    "\\frac{1}{0} \\sqrt{-1} 1/0",
]
TRUTHS: list[Any] = ["7", None, ["a", "b"], "[1]", {"a": 1}, math.nan, "("]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_end_as_a_grade(text: str, pool: ProcessPool) -> None:
    rules = {
        name: rule for name, rule in {**INLINE, **KILLABLE}.items() if name != "math" or "9**9" not in text
    }
    extra = {"options": ["a", "b"], "steps": 2, "calls": [{"name": "a"}]}
    batch = [
        Rollout(response=text, ground_truth=truth, extra=extra, group=0, response_tokens=5)
        for truth in TRUTHS[:3]
    ]
    batch.append(
        Rollout(
            response="", messages=[{"role": "assistant", "content": text}, {"role": "tool", "content": text}]
        )
    )
    batch.append(
        Rollout(
            response="",
            messages=[{"role": "assistant", "tool_calls": [{"function": {"name": text, "arguments": text}}]}],
        )
    )
    check(GradingRunner(rules, pool=pool, missing_reward="mask").run_sync(batch), rules)


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=200), st.sampled_from(TRUTHS))
def test_any_text_ends_as_a_grade(text: str, truth: Any) -> None:
    extra = {"options": ["a", "b"], "steps": 2}
    batch = [Rollout(response=t, ground_truth=truth, extra=extra, group=0) for t in (text, text[::-1])]
    check(GradingRunner(INLINE, missing_reward="mask").run_sync(batch), INLINE)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200), st.sampled_from(TRUTHS))
def test_any_text_ends_as_a_grade_in_a_worker(pool: ProcessPool, text: str, truth: Any) -> None:
    rollout = Rollout(response=text, ground_truth=truth)
    check(GradingRunner(KILLABLE, pool=pool, missing_reward="mask").run_sync([rollout]), KILLABLE)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("name", "arguments", "x")), inner, max_size=3)
    ),
    max_leaves=6,
)
MESSAGES: Any = st.lists(
    st.dictionaries(
        st.sampled_from(
            ("role", "content", "tool_calls", "function_call", "tool_call_id", "type", "name", "message")
        ),
        st.sampled_from(("assistant", "tool", "user", "function_call", "tool_use")) | VALUES,
    )
    | VALUES,
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(MESSAGES, VALUES)
def test_any_messages_end_as_a_grade(messages: Any, reference: Any) -> None:
    rollout = Rollout(
        response="x",
        messages=messages,
        ground_truth=reference,
        extra={"calls": reference, "steps": reference},
    )
    check(GradingRunner(INLINE, missing_reward="mask").run_sync([rollout]), INLINE)


@pytest.mark.parametrize("name", sorted(INLINE))
def test_no_rule_leaves_work_for_the_garbage_collector(name: str) -> None:
    """An error that its own frame holds keeps everything above it, too, until a collection stops the event loop."""
    made = (RULES | GROUP_RULES)[name]()
    batch = [
        Rollout(prompt="p", response=text, ground_truth=given, extra={"options": ["7", "8"]})
        for text in ("", "Action: a", "<answer>{", "```json\n{\n```", "\\boxed{1", "[1, 2", "7", '{"a": NaN}')
        for given in ("", "{", "7", '{"a": 1}')
    ]
    runner = GradingRunner([made], missing_reward="mask")
    runner.run_sync(batch)
    gc.collect()
    gc.disable()
    try:
        before = sum(type(one) is FrameType for one in gc.get_objects())
        runner.run_sync(batch)
        assert sum(type(one) is FrameType for one in gc.get_objects()) - before < len(batch)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", sorted(RULES))
def test_samples_are_graded(name: str, pool: ProcessPool) -> None:
    """What the benchmark measures is work, not an abstention."""
    (result,) = GradingRunner({name: ALL[name]}, pool=pool).run_sync([sample(name, 200)])
    assert isinstance(result.grades[name], Graded), result.grades


SETTINGS: dict[str, dict[str, Any]] = {
    "cosine_length": {"correct": {"use": "final_answer", "tolerance": 0.1}},
    "instructions": {"constraints": CONSTRAINTS},
    "length": {"soft_max": 10, "hard_max": 20},
    "regex": {"pattern": "x"},
    "script": {"scripts": ["Latin"]},
    "shortest_correct": {"correct": "math"},
    "soft_overlong": {"max_length": 100, "cache": 10, "unit": "words"},
}


@pytest.mark.parametrize("name", sorted({**RULES, **GROUP_RULES}))
def test_a_configuration_can_name_it(name: str) -> None:
    config = RewardConfig(graders={"mine": {"use": name, **SETTINGS.get(name, {})}})
    made = config.build().graders["mine"]
    assert type(made) is type(ALL[name])
    assert made.name == "mine"
    if name in ("cosine_length", "shortest_correct"):
        assert look_up(Rollout(response=""), "response") == ""
        assert made.correct.name == "mine.correct"  # type: ignore[union-attr]


def test_large_rollouts_leave_the_event_loop_where_they_can(pool: ProcessPool) -> None:
    """One that cannot be sent to a worker stays."""

    class Counts:
        name, version, score_range, inline_limit = "counts", "1", (0.0, 1.0), 10

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def grade(self, rollout: Rollout) -> float:
            return 1.0

    before = pool.started
    rollouts = [
        Rollout(response="7"),
        Rollout(response="7" * 11),
        Rollout(response="", messages=[{"content": "7" * 11}]),
    ]
    results = GradingRunner([Counts()], pool=pool).run_sync(rollouts)
    assert [result.reward for result in results] == [1, 1, 1]
    assert pool.started == before
    own = ProcessPool(1)
    try:
        GradingRunner([RULES["rouge"]()], pool=own).run_sync(
            [Rollout(response="7 " * 50_000, ground_truth="7")]
        )
        assert own.started == 1
    finally:
        own.close()


def test_every_grader_says_what_it_is() -> None:
    for name, rule in ALL.items():
        assert rule.inputs, name
        assert isinstance(rule.abstains, str), name
        assert rule.version, name
        assert (
            "Source" in (type(rule).__doc__ or "") or "arXiv" in (type(rule).__doc__ or "") or name == "regex"
        ), name
    assert set(ALL) | {
        "judge",
        "judge_turns",
        "listwise",
        "pairwise",
        "panel",
        "reward_model",
        "rubric",
        "service",
        "service_group",
    } == set(GRADERS)


def test_the_table_in_the_documentation_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "grader_table.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
