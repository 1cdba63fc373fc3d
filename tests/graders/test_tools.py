"""Tool calls against a reference: matching and order."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Graded, Rollout
from judgekit.graders import StepSequence, ToolCallMatch
from judgekit.graders.rules.agents.tools import _common, _pairing


def made(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        for name, arguments in calls
    ]


def score(grader: Any, calls: Any, truth: Any) -> float | None:
    messages = made(*calls) or [{"role": "assistant", "content": "hm"}]
    grade = grader.grade(Rollout(response="", messages=messages, ground_truth=truth))
    assert isinstance(grade, Graded | Abstained)
    return grade.score if isinstance(grade, Graded) else None


A, B, C = ("a", {"x": 1}), ("b", {"y": "t"}), ("c", {})


def ref(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments} for name, arguments in calls]


CASES: list[tuple[Any, Any, Any, Any]] = [
    # calls, reference, options, score
    ([A], ref(A), {}, 1),
    ([A, B], ref(B, A), {}, 1),
    ([A], ref(B), {}, 0),
    ([A], ref(A, B), {}, 2 / 3),
    ([A, B], ref(A), {}, 2 / 3),
    ([A, A], ref(A), {}, 2 / 3),
    ([A], ref(A, A), {}, 2 / 3),
    ([], ref(A), {}, 0),
    ([], [], {}, 1),
    ([A], [], {}, 0),
    ([A], None, {}, None),
    ([A], "", {}, None),
    ([A], "nonsense text", {}, None),
    ([A], 5, {}, None),
    ([A], [{"no": "call"}], {}, None),
    ([A, B], ref(A), {"of": "precision"}, 0.5),
    ([A, B], ref(A), {"of": "recall"}, 1),
    ([A], ref(A, B), {"of": "precision"}, 1),
    ([A], ref(A, B), {"of": "recall"}, 0.5),
    ([], ref(A), {"of": "precision"}, 0),
    ([A], [], {"of": "recall"}, 1),
    ([B, A], ref(A, B), {"of": "exact"}, 1),
    ([A, B, C], ref(A, B), {"of": "exact"}, 0),
    ([A, B, C], ref(A, B), {"of": "recall_all"}, 1),
    ([A], ref(A, B), {"of": "recall_all"}, 0),
    # arguments
    ([("a", {"x": 1.0})], ref(A), {}, 1),
    ([("a", {"x": "1"})], ref(A), {}, 0),
    ([("a", {"x": True})], ref(A), {}, 0),
    ([("a", '{"x": 1}')], ref(A), {}, 1),
    ([("b", {"y": " t "})], ref(B), {}, 1),
    ([("b", {"y": "T"})], ref(B), {}, 0),
    ([("B", {"y": "T"})], ref(B), {"ignore_case": True}, 1),
    ([("a", {"x": 2})], ref(A), {"arguments": "ignore"}, 1),
    ([("a", {"x": 1, "z": 2})], ref(A), {}, 0),
    ([("a", {"x": 1, "z": 2})], ref(A), {"arguments": "subset"}, 1),
    ([("a", {"z": 2})], ref(A), {"arguments": "subset"}, 0),
    ([("a", {"x": 1, "z": 2})], ref(A), {"arguments": "partial"}, 0.5),
    ([("a", {"x": 1, "y": 3})], ref(("a", {"x": 1, "y": 2})), {"arguments": "partial"}, 0.5),
    ([C], ref(C), {"arguments": "partial"}, 1),
    ([("a", {"x": 1})], [{"name": "a", "kwargs": {"x": 1}}], {}, 1),
    ([("a", {})], [{"name": "a", "kwargs": {"x": 1}}], {}, 0),
    # the best pairing, though the closest pair is not in it: (2/3 + 2/3) / 2, not (1 + 0) / 2
    (
        [("a", {"x": 1, "y": 1, "z": 1}), ("a", {"x": 1, "y": 1, "z": 2})],
        ref(("a", {"x": 1, "y": 1, "z": 1}), ("a", {"x": 9, "y": 9, "z": 1})),
        {"arguments": "partial"},
        0.5,
    ),
    (
        [("a", {"x": 1, "y": 1, "z": 1}), ("a", {"x": 1, "y": 2, "z": 2})],
        ref(("a", {"x": 1, "y": 1, "z": 2}), ("a", {"x": 5, "y": 1, "z": 1})),
        {"arguments": "partial"},
        2 / 3,
    ),
    ([("a", "{broken")], ref(A), {}, 0),
    ([("a", {"x": {"k": [1, 2]}})], ref(("a", {"x": {"k": [1, 2]}})), {}, 1),
    ([("a", {"x": {"k": [2, 1]}})], ref(("a", {"x": {"k": [1, 2]}})), {}, 0),
    ([("検索", {"q": "犬"})], ref(("検索", {"q": "犬"})), {}, 1),
    # forms of references
    ([A], json.dumps(ref(A)), {}, 1),
    ([A], ref(A)[0], {}, 1),
    ([A, B], [ref(A), ref(B)], {}, 1),
    ([A], [{"function": {"name": "a", "arguments": '{"x": 1}'}}], {}, 1),
    ([A], {"tool_calls": ref(A)}, {}, 1),
    ([C], ["c"], {}, 1),
    ([A], [{"any_of": ref(B, A)}], {}, 1),
    ([C], [{"any_of": ref(B, A)}], {}, 0),
    ([A], [{"a": {"x": [1, 2]}}], {}, 1),
    ([("a", {"x": 2})], [{"a": {"x": [1, 2], "y": ["u", ""]}}], {}, 1),
    ([("a", {"x": 2, "y": "v"})], [{"a": {"x": [1, 2], "y": ["u", ""]}}], {}, 0),
    ([("a", {"x": 3})], [{"a": {"x": [1, 2]}}], {}, 0),
    # the best pairing: the first call could take what only the second can use
    ([B, A], [{"any_of": ref(A, B)}, {"any_of": ref(B)}], {}, 1),
    ([A] * 300, ref(*[A] * 300), {}, 1),
]


@pytest.mark.parametrize(("calls", "truth", "options", "expected"), CASES)
def test_tool_call_match(calls: Any, truth: Any, options: Any, expected: Any) -> None:
    assert score(ToolCallMatch(**options), calls, truth) == (
        None if expected is None else pytest.approx(expected)
    )


def test_calls_in_text_and_a_path() -> None:
    text = '<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>'
    grade = ToolCallMatch(reference="extra.calls").grade(Rollout(response=text, extra={"calls": ref(A)}))
    assert isinstance(grade, Graded)
    assert grade.score == 1
    assert ToolCallMatch(reference="extra.calls").grade(Rollout(response=text)) == Abstained(
        "extra.calls holds no calls"
    )


def test_the_pairing_is_the_largest() -> None:
    rnd = random.Random(1)
    for _ in range(300):
        calls, wanted = rnd.randint(0, 5), rnd.randint(0, 5)
        options = [[j for j in range(wanted) if rnd.random() < 0.4] for _ in range(calls)]
        best = 0
        for order in itertools.permutations(range(max(calls, wanted))):
            best = max(best, sum(1 for i in range(calls) if order[i] in options[i]))
        owner = _pairing(options)
        assert len(owner) == best
        assert len(set(owner.values())) == len(owner)
        assert all(j in options[i] for j, i in owner.items())


SEQUENCES: list[tuple[str, Any, str, float]] = [
    ("abc", "abc", "f1", 1),
    ("abc", "abc", "exact", 1),
    ("acb", "abc", "exact", 0),
    ("acb", "abc", "f1", 2 / 3),
    ("cba", "abc", "f1", 1 / 3),
    ("axbyc", "abc", "in_order", 1),
    ("axbyc", "abc", "recall", 1),
    ("axbyc", "abc", "precision", 0.6),
    ("axbyc", "abc", "exact", 0),
    ("ab", "abc", "in_order", 0),
    ("abx", "abc", "prefix", 2 / 3),
    ("xab", "abc", "prefix", 0),
    ("abcd", "abc", "prefix", 1),
    ("", "abc", "f1", 0),
    ("", "abc", "precision", 0),
    ("", "", "f1", 1),
    ("a", "", "f1", 0),
    ("a", "", "in_order", 1),
    ("aab", "ab", "f1", 0.8),
    ("ab" * 200, "ab" * 200, "f1", 1),
    ("ba" * 100, "ab" * 100, "recall", 199 / 200),
]


@pytest.mark.parametrize(("calls", "truth", "of", "expected"), SEQUENCES)
def test_step_sequence(calls: str, truth: str, of: Any, expected: float) -> None:
    found = score(StepSequence(of=of), [(c, {}) for c in calls], ref(*((c, {}) for c in truth)))
    assert found == pytest.approx(expected)


def test_steps_with_arguments() -> None:
    assert score(StepSequence(arguments="exact"), [("a", {"x": 2})], ref(A)) == 0
    assert score(StepSequence(), [("a", {"x": 2})], ref(A)) == 1
    assert score(StepSequence(), [("a", {"x": 2})], None) is None


def test_the_subsequence_is_the_longest() -> None:
    rnd = random.Random(2)
    for _ in range(200):
        a = [rnd.choice("abc") for _ in range(rnd.randint(0, 8))]
        b = [rnd.choice("abc") for _ in range(rnd.randint(1, 8))]
        table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
        fits = [sum(1 << j for j, y in enumerate(b) if x == y) for x in a]
        assert _common(fits, len(b)) == table[-1][-1]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: ToolCallMatch(of="f2"), "of is one of"),  # type: ignore[arg-type]
        (lambda: ToolCallMatch(arguments="part"), "arguments is one of"),  # type: ignore[arg-type]
        (lambda: ToolCallMatch(reference=""), "reference is the dotted path"),
        (lambda: StepSequence(arguments="partial"), "arguments is one of"),  # type: ignore[arg-type]
        (lambda: StepSequence(of="inorder"), "did you mean 'in_order'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
