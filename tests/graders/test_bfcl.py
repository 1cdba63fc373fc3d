"""Tool calls as BFCL's AST checker compares them: types, texts, optional arguments, literals, categories."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import ToolCallFormat, ToolCallMatch, ToolEfficiency
from judgekit.graders.rules.agents.expected import call_in_code
from judgekit.graders.rules.agents.literals import literal

TOOLS = [
    {
        "name": "trip.plan",
        "parameters": {
            "type": "dict",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "budget": {"type": "float"},
                "direct": {"type": "boolean"},
                "stops": {"type": "array", "items": {"type": "string"}},
                "box": {"type": "tuple", "items": {"type": "float"}},
                "hotel": {"type": "dict", "properties": {"name": {"type": "string"}}},
                "guests": {"type": "array", "items": {"type": "dict"}},
                "note": {"type": "any"},
            },
            "required": ["city"],
        },
    },
    {"name": "weather", "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
]  # fmt: skip
ANSWER = {
    "city": ["New York", "NYC"],
    "days": [3, ""],
    "budget": [500.0, 450.5, ""],
    "direct": [True, ""],
    "stops": [["Boston", "Salem, MA"], ["Albany"], ""],
    "box": [[1.0, 2.5], ""],
    "hotel": [{"name": ["The Inn", "Inn"], "stars": [4, 5, ""]}, ""],
    "guests": [[{"name": ["Ann"], "age": [30, ""]}, {"name": ["Bob"]}], ""],
    "note": ["my_note", ""],
}


def rollout(*calls: tuple[str, Any], truth: Any = None, tools: Any = None) -> Rollout:
    made = [{"function": {"name": name, "arguments": json.dumps(arguments)}} for name, arguments in calls]
    messages = [{"role": "assistant", "content": "" if made else "I cannot do that.", "tool_calls": made}]
    return Rollout(
        response="", messages=messages, ground_truth=truth, extra={} if tools is None else {"tools": tools}
    )


def score(*calls: tuple[str, Any], truth: Any, tools: Any = TOOLS, **options: Any) -> float | None:
    grader = ToolCallMatch(of="exact", checks="bfcl", **options)
    grade = grader.grade(rollout(*calls, truth=truth, tools=tools))
    assert isinstance(grade, Graded | Abstained)
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({}, True),
        ({"city": "new-york"}, True),
        ({"city": "N.Y.C"}, True),
        ({"city": "York"}, False),
        ({"city": 5}, False),
        ({"city": None}, False),
        ({"days": 3}, True),
        ({"days": 3.0}, False),
        ({"days": "3"}, False),
        ({"days": True}, False),
        ({"days": 4}, False),
        ({"budget": 500}, True),
        ({"budget": 450.5}, True),
        ({"budget": 450}, False),
        ({"direct": True}, True),
        ({"direct": False}, False),
        ({"direct": 1}, False),
        ({"direct": "true"}, False),
        ({"stops": ["boston", "Salem MA"]}, True),
        ({"stops": ["Salem, MA", "Boston"]}, False),
        ({"stops": ["Albany"]}, True),
        ({"stops": ["Boston"]}, False),
        ({"stops": "Albany"}, False),
        ({"stops": ""}, False),  # not of its type
        ({"note": ""}, True),
        ({"box": [1.0, 2.5]}, True),
        ({"box": [1, 2.5]}, True),
        ({"box": [2.5, 1.0]}, False),
        ({"hotel": {"name": "inn"}}, True),
        ({"hotel": {"name": "the inn", "stars": 5}}, True),
        ({"hotel": {"name": "Inn", "stars": 3}}, False),
        ({"hotel": {"stars": 4}}, False),
        ({"hotel": {"name": "Inn", "view": "sea"}}, False),
        ({"hotel": "Inn"}, False),
        ({"guests": [{"name": "ann", "age": 30}, {"name": "Bob"}]}, True),
        ({"guests": [{"name": "Bob"}, {"name": "Ann"}]}, False),
        ({"guests": [{"name": "Ann"}]}, False),
        ({"note": "MY-NOTE"}, True),
        ({"note": 5}, False),
        ({"more": 1}, False),
    ],
)
def test_arguments(arguments: dict[str, Any], right: bool) -> None:
    call = ("trip.plan", {"city": "NYC", **arguments})
    assert score(call, truth=[{"trip.plan": ANSWER}]) == right


@pytest.mark.parametrize(
    ("calls", "truth", "right"),
    [
        ([("weather", {"city": "Rome"})], [{"weather": {"city": ["Rome"]}}], True),
        ([("weather", {})], [{"weather": {"city": ["Rome", ""]}}], False),  # it is required
        ([("weathers", {"city": "Rome"})], [{"weather": {"city": ["Rome"]}}], False),
        ([("trip_plan", {"city": "Rome"})], [{"trip.plan": {"city": ["Rome"]}}], True),
        # parallel: any order, each once
        (
            [("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})],
            [{"weather": {"city": ["Rome"]}}, {"weather": {"city": ["Oslo"]}}],
            True,
        ),
        (
            [("weather", {"city": "Rome"}), ("weather", {"city": "Rome"})],
            [{"weather": {"city": ["Rome"]}}, {"weather": {"city": ["Oslo"]}}],
            False,
        ),
        # the first call fits both answers, the second only one
        (
            [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})],
            [{"weather": {"city": ["Rome", "Oslo"]}}, {"weather": {"city": ["Rome"]}}],
            True,
        ),
        ([("weather", {"city": "Rome"})] * 2, [{"weather": {"city": ["Rome"]}}], False),
        ([("weather", {"city": "Rome"})], [{"weather": {"city": ["Rome"]}}] * 2, False),
        ([], [{"weather": {"city": ["Rome"]}}], False),
        # irrelevance: no call is right
        ([], [], True),
        ([("weather", {"city": "Rome"})], [], False),
        ([("weather", {"city": "Rome"})], json.dumps([{"weather": {"city": ["Rome"]}}]), True),
        ([("weather", {"city": "Rome"})], {"id": "simple_1", "ground_truth": [{"weather": {"city": ["Rome"]}}]}, True),
        ([("weather", {"city": "Rome"})], None, None),
        ([("weather", {"city": "Rome"})], "weather", None),
        ([("weather", {"city": "Rome"})], [{"weather": {"city": "Rome"}}], None),
        ([("weather", {"city": "Rome"})], [{"weather": {}, "trip": {}}], None),
        ([("weather", "Rome")], [{"weather": {"city": ["Rome"]}}], False),
        ([("weather", {"city": "Rome"})], "[" * 3000, None),
    ],
)  # fmt: skip
def test_categories(calls: Any, truth: Any, right: bool | None) -> None:
    assert score(*calls, truth=truth) == right


@pytest.mark.parametrize(
    ("value", "accepted", "right"),
    [
        (3, [3.0], True), (3.0, [3], False), ("a b", ["AB"], True), ([1, "X"], [[1, "x"]], True), (True, [1], False),
        ({"a": 1}, [{"a": [1, 2]}], True), ([{"a": 1}], [[{"a": [1]}]], True), ("x", [""], False), ("", [""], True),
        (None, ["x"], False),
    ],
)  # fmt: skip
def test_without_documents_the_answer_tells_the_types(value: Any, accepted: Any, right: bool) -> None:
    assert score(("f", {"x": value}), truth=[{"f": {"x": accepted}}], tools=None) == right


def typed(kind: str, inner: str | None = None) -> list[dict[str, Any]]:
    details = {"type": kind, **({} if inner is None else {"items": {"type": inner}})}
    return [{"name": "f", "parameters": {"type": "dict", "properties": {"x": details}, "required": ["x"]}}]


@pytest.mark.parametrize(
    ("kind", "inner", "text", "value"),
    [
        ("integer", None, "-12", -12),
        ("integer", None, "1.5", None),
        ("byte", None, "127", 127),
        ("long", None, "123L", 123),
        ("long", None, "123", None),
        ("float", None, "3.5f", 3.5),
        ("float", None, "3.5", None),
        ("double", None, "3.14e-2", 0.0314),
        ("boolean", None, "true", True),
        ("boolean", None, "True", None),
        ("char", None, "'a'", "'a'"),
        ("String", None, "New York", "new york"),
        ("any", None, "userInput", "userInput"),
        ("Array", "integer", "new int[]{1, 2,3}", [1, 2, 3]),
        ("Array", "String", 'new String[]{"a, b", "c"}', ["a, b", "c"]),
        ("Array", "integer", "new int[] { }", []),
        ("ArrayList", "String", 'new ArrayList<>(Arrays.asList("a", "b"))', ["a", "b"]),
        ("ArrayList", "String", 'new ArrayList<String>() {{ add("a"); add("b)"); }}', ["a", "b)"]),
        ("ArrayList", "integer", "new ArrayList<>()", []),
        ("HashMap", None, 'new HashMap<String, Object>() {{ put("k", 1); put("s", "v"); put("t", true); }}', {"k": [1], "s": ["v"], "t": [True]}),
        ("HashMap", None, "new HashMap<>()", {}),
        ("HashMap", None, "settings", "settings"),
    ],
)  # fmt: skip
def test_literals_of_java(kind: str, inner: str | None, text: str, value: Any) -> None:
    tools = typed(kind, inner)
    found = score(("f", {"x": text}), truth=[{"f": {"x": [value]}}], tools=tools, language="java")
    assert found == (value is not None)
    other = [{"f": {"x": [{"other": [1]} if isinstance(value, dict) else "another"]}}]
    assert score(("f", {"x": text}), truth=other, tools=tools, language="java") == 0


@pytest.mark.parametrize(
    ("kind", "inner", "text", "value"),
    [
        ("integer", None, "12", 12),
        ("float", None, "1.5", 1.5),
        ("float", None, "one", None),
        ("Bigint", None, "123n", 123),
        ("Bigint", None, "123", None),
        ("Boolean", None, "false", False),
        ("String", None, "it's here", "its here'"),
        ("array", "String", "['a', \"b, c\"]", ["a", "b, c"]),
        ("array", "integer", "[1, 2]", [1, 2]),
        ("array", None, "[1, [2, 3]]", [1, [2, 3]]),
        ("array", "integer", "[1, 2", None),
        ("dict", None, "{a: 1, 'b': 'x', \"c\": true}", {"a": [1], "b": ["x"], "c": [True]}),
        ("dict", None, "{a: {b: 2}}", {"a": [{"b": [2]}]}),
        ("dict", None, "{}", {}),
        ("dict", None, "options", "options"),
        ("any", None, "x => x + 1", "x => x + 1"),
    ],
)
def test_literals_of_javascript(kind: str, inner: str | None, text: str, value: Any) -> None:
    if text == "it's here":
        value = 'it"s here'
    tools = typed(kind, inner)
    found = score(("f", {"x": text}), truth=[{"f": {"x": [value]}}], tools=tools, language="javascript")
    assert found == (value is not None)


def test_values_that_are_no_texts_need_no_literal() -> None:
    for language in ("java", "javascript"):
        assert (
            score(("f", {"x": 3}), truth=[{"f": {"x": [3]}}], tools=typed("integer"), language=language) == 1
        )


@given(st.text(max_size=60), st.sampled_from(["Array", "HashMap", "ArrayList", "dict", "long", "float"]))
def test_no_text_breaks_the_reading_of_literals(text: str, kind: str) -> None:
    for language in ("java", "javascript"):
        for start in ("", "new int[]{", "new ArrayList<>() {{ add(", "{", "["):
            literal(start + text, kind, "String", language)


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("cd(folder='document')", "cd", {"folder": "document"}),
        ("mv(source='a b', destination=\"c\")", "mv", {"source": "a b", "destination": "c"}),
        ("ls()", "ls", {}),
        ("api.post(content='x', tags=['#a', '#b'], n=-3)", "api.post", {"content": "x", "tags": ["#a", "#b"], "n": -3}),
        ("f(x={'a': [1, None, True]})", "f", {"x": {"a": [1, None, True]}}),
        ("f(x=g(1))", None, None),
        ("f(**{'a': 1})", None, None),
        ("f(x=y)", None, None),
        ("f", None, None),
        ("cd(folder='document'", None, None),
        ("import os; f()", None, None),
        ("__import__('os').system(x='ls')", None, None),
    ],
)  # fmt: skip
def test_calls_in_code(text: str, name: str | None, arguments: Any) -> None:
    found = call_in_code(text)
    assert (name, arguments) == (None, None) if found is None else found[:2] == (name, arguments)


TURNS = [["cd(folder='docs')", "sort('a.txt')"], [], ["mv('a.txt', destination='b.txt')"]]


@pytest.mark.parametrize(
    ("calls", "f1"),
    [
        ([("cd", {"folder": "docs"}), ("sort", {"file": "a.txt"}), ("mv", {"source": "a.txt", "destination": "b.txt"})], 1),
        ([("cd", {"folder": "docs"}), ("sort", {"file": "a.txt"})], 0.8),
        ([("cd", {"folder": "docs"}), ("sort", {})], 0.4),
        ([("cd", {"folder": "doc"}), ("sort", {"file": "b.txt"})], 0),
        ([("cd", {"folder": "docs"}), ("sort", {"file": "a.txt", "reverse": True})], 0.4),
        ([("mv", {"destination": "b.txt", "source": "a.txt"})], 0.5),
    ],
)  # fmt: skip
def test_answers_of_several_turns(calls: Any, f1: float) -> None:
    for truth in (TURNS, json.dumps(TURNS)):
        grade = ToolCallMatch().grade(rollout(*calls, truth=truth))
        assert isinstance(grade, Graded)
        assert grade.score == pytest.approx(f1)


@pytest.mark.parametrize("checks", ["judgekit", "bfcl"])
def test_a_reference_that_is_nested_too_deep_is_nobody_s_failure(checks: Any) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for truth in ("[" * 20_000, [{"f": {"x": [deep]}}], '[{"f": {"x": [' + "[" * 20_000):
        given = rollout(("f", {"x": 1}), truth=truth)
        assert isinstance(ToolCallMatch(checks=checks).grade(given), Abstained)
    assert isinstance(ToolEfficiency().grade(rollout(("f", {}), truth="[" * 20_000)), Abstained | Graded)


@pytest.mark.parametrize("options", [{"checks": "bfcl"}, {"text": "standardised"}])
def test_arguments_that_are_nested_too_deep_are_the_rollout_s(options: dict[str, Any]) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    given = rollout(("f", {"x": deep}), truth=[{"f": {"x": [1]}}])
    (result,) = GradingRunner([ToolCallMatch(**options)]).run_sync([given])
    failed = result.grades["tool_calls"]
    assert isinstance(failed, Failed)
    assert failed.cause == "rollout"


@pytest.mark.parametrize(
    ("text", "well_formed"),
    [
        ('{"name": "ls", "arguments": {}}', 1),
        ('{"name": "ls"}', 0),
        ('{"name": "ls", "parameters": {}}', 1),
        ('{"name": "ls", "arguments": null}', 1),
        ('{"name": "ls", "arguments": "{}"}', 1),
        ('{"arguments": {}}', 0),
        ("ls", 0),
    ],
)
def test_a_call_in_text_has_arguments(text: str, well_formed: float) -> None:
    grade = ToolCallFormat(check="none").grade(Rollout(response=f"<tool_call>{text}</tool_call>"))
    assert isinstance(grade, Graded)
    assert grade.score == well_formed


values = st.recursive(
    st.integers(-5, 5) | st.booleans() | st.floats(-9, 9) | st.text("abc", min_size=1, max_size=4),
    lambda inner: st.lists(inner, min_size=1, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), values, min_size=1, max_size=4), st.data())
def test_gold_against_itself_is_1_and_a_broken_call_is_not(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    truth = [{"f": {k: ["other", v] if isinstance(v, str) else [v] for k, v in arguments.items()}}]
    assert score(("f", arguments), truth=truth, tools=None) == 1
    name = data.draw(st.sampled_from(sorted(arguments)))
    without = {k: v for k, v in arguments.items() if k != name}
    for broken in (without, {**arguments, "more": 1}, {**arguments, name: {"not": "it"}}):
        assert score(("f", broken), truth=truth, tools=None) == 0
        assert ToolCallMatch(checks="bfcl").grade(rollout(("f", broken), truth=truth)).score < 1  # type: ignore[union-attr]
    assert score(("g", arguments), truth=truth, tools=None) == 0


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: ToolCallMatch(checks="bcfl"), "did you mean 'bfcl'"),  # type: ignore[arg-type]
        (lambda: ToolCallMatch(checks="bfcl", arguments="subset"), "leave out arguments"),
        (lambda: ToolCallMatch(checks="bfcl", ignore_case=True), "leave out arguments"),
        (lambda: ToolCallMatch(checks="bfcl", language="ruby"), "language is one of"),  # type: ignore[arg-type]
        (lambda: ToolCallMatch(language="java"), "is for checks='bfcl'"),
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
