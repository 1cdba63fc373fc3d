"""Trajectories as they really look: reading them, loops, information, efficiency."""

from __future__ import annotations

import importlib
import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import (
    ActionLoop,
    InformationGain,
    StepEfficiency,
    ToolCallFormat,
    ToolCallMatch,
    ToolEfficiency,
)
from judgekit.graders.protocol import as_grade
from judgekit.graders.registry import GRADERS
from judgekit.graders.rules.agents.loops import cycles, near_classes, number
from judgekit.graders.rules.agents.trajectory import read_trajectory
from judgekit.graders.rules.calls import Call, looks_like_an_error


def call(name: str, arguments: Any, id: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if id is None else {**made, "id": id}


def says(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def tool(text: str, id: str | None = None, **more: Any) -> dict[str, Any]:
    made = {"role": "tool", "content": text, **more}
    return made if id is None else {**made, "tool_call_id": id}


def steps(*pairs: tuple[Any, str]) -> list[dict[str, Any]]:
    """Messages that search for each argument in turn and see each answer."""
    return [
        message
        for i, (arguments, answer) in enumerate(pairs)
        for message in (says(call("search", arguments, str(i))), tool(answer, str(i)))
    ]


def rollout(messages: Any = (), response: str = "", **fields: Any) -> Rollout:
    return Rollout(response=response, messages=messages, **fields)


Seen = list[tuple[str, Any, str | None]]

SHAPES: list[tuple[str, Any, str, Seen]] = [
    ("arguments as text", [says(call("a", '{"x": 1}', "1")), tool("one", "1")], "", [("a", {"x": 1}, "one")]),
    (
        "arguments as a mapping",
        [says(call("a", {"x": 1}, "1")), tool("one", "1")],
        "",
        [("a", {"x": 1}, "one")],
    ),
    ("no arguments", [says(call("a", None)), tool("one")], "", [("a", {}, "one")]),
    ("broken arguments", [says(call("a", '{"x":'))], "", [("a", '{"x":', None)]),
    (
        "answers in another order",
        [says(call("a", {}, "1"), call("b", {}, "2")), tool("two", "2"), tool("one", "1")],
        "",
        [("a", {}, "one"), ("b", {}, "two")],
    ),
    (
        "no ids",
        [says(call("a", {}), call("b", {})), tool("one"), tool("two")],
        "",
        [("a", {}, "one"), ("b", {}, "two")],
    ),
    (
        "unanswered",
        [says(call("a", {}, "1"), call("b", {}, "2")), tool("two", "2")],
        "",
        [("a", {}, None), ("b", {}, "two")],
    ),
    ("an orphan", [tool("zero", "9"), says(call("a", {}, "1")), tool("nine", "9")], "", [("a", {}, None)]),
    (
        "function_call",
        [
            {"role": "assistant", "function_call": {"name": "a", "arguments": "{}"}},
            {"role": "function", "name": "a", "content": "one"},
        ],
        "",
        [("a", {}, "one")],
    ),
    (
        "Anthropic's blocks",
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "hm"},
                    {"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "one"}]}
                ],
            },
        ],
        "",
        [("a", {"x": 1}, "one")],
    ),
    (
        "the Responses API's items",
        [
            {"type": "function_call", "name": "a", "arguments": "{}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "one"},
        ],
        "",
        [("a", {}, "one")],
    ),
    (
        "wrapped messages",
        [{"message": says({"tool_call": call("a", {}, "1")})}, {"message": tool("one", "1")}],
        "",
        [("a", {}, "one")],
    ),
    (
        "content as blocks",
        [
            says(call("a", {}, "1")),
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "one"}]},
        ],
        "",
        [("a", {}, "one")],
    ),
    (
        "ReAct in turns",
        [
            {"role": "assistant", "content": "Thought: hm\nAction: search[dog]"},
            {"role": "user", "content": "Observation: one"},
        ],
        "",
        [("search", "dog", "one")],
    ),
    (
        "ReAct in one text",
        (),
        'Thought 1: x\nAction 1: Search[dog]\nObservation 1: one\ntwo\nThought 2: y\nAction: calc\nAction Input: {"e": 1}\nObservation: 2\nAction 3: Finish[2]',
        [("Search", "dog", "one\ntwo"), ("calc", {"e": 1}, "2")],
    ),
    (
        "Hermes",
        (),
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_response>ok</tool_response>',
        [("f", {"a": 1}, "ok")],
    ),
    (
        "Search-R1",
        (),
        "<think>x</think><search>dog</search>\n<information>one</information>",
        [("search", "dog", "one")],
    ),
    ("a call that is no JSON", (), "<tool_call>{bad</tool_call>", [("", "{bad", None)]),
    ("a call that never closes", (), '<tool_call>{"name": "f"}', [("f", {}, None)]),
    ("nothing", (), "Just an answer.", []),
    (
        "the prompt's messages",
        [{"role": "user", "content": "hm"}],
        "Action: search[dog]",
        [("search", "dog", None)],
    ),
    ("an answer in messages", [{"role": "assistant", "content": "hm"}], "Action: search[dog]", []),
    (
        "odd messages",
        [
            None,
            5,
            {},
            {"role": ["x"]},
            {"role": "assistant", "tool_calls": "x"},
            {"role": "assistant", "tool_calls": [None, {"function": None}]},
            {"role": "assistant", "tool_calls": {"name": "a"}},
        ],
        "",
        [("", {}, None), ("a", {}, None)],
    ),
    (
        "Unicode",
        [says(call("検索", '{"q": "犬 🐕"}', "1")), tool("見つかった", "1")],
        "",
        [("検索", {"q": "犬 🐕"}, "見つかった")],
    ),
]


@pytest.mark.parametrize(
    ("messages", "response", "seen"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES]
)
def test_shapes_of_trajectories(messages: Any, response: str, seen: Seen) -> None:
    found = read_trajectory(rollout(messages, response))
    assert [(c.name, c.arguments, c.answer.text if c.answer else None) for c in found.calls] == seen


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Error: no such key", True),
        ("error", True),
        ("[ERROR] bad", True),
        ("Traceback (most recent call last):\n  x", True),
        ("ValueError: bad", True),
        ("requests.exceptions.Timeout: x", True),
        ("404 Not Found", True),
        ("HTTP 500 Internal Server Error", True),
        ("bash: foo: command not found", True),
        ("cat: x: No such file or directory", True),
        ('{"error": "x"}', True),
        ('{"success": false}', True),
        ('{"status": "error", "message": "x"}', True),
        ("Failed to open the page", True),
        ("An error occurred: x", True),
        ("Permission denied", True),
        ("ls: cannot access 'x': No such file or directory", True),
        ("The request timed out after 30 s", True),
        ("Tool call failed: no such city", True),
        ("/bin/sh: 1: foo: not found", True),
        ("500 servers online", False),
        ("Failed jobs: 0", False),
        ('{"isError": true}', True),
        ("first\nTraceback (most recent call last):\n  File x\nValueError: bad\n", True),
        ("The issue says:\nTraceback (most recent call last):\n  File x\nand more text follows", False),
        ("Failed jobs: 3", True),
        ("errors.py:3: def x", False),
        ("Tool execution error: x", True),
        ('{"error": null, "rows": 1}', False),
        ("Error handling in Python is done with try.", False),
        ("The error rate is 5 %", False),
        ("Errors: 0", False),
        ("No errors", False),
        ("5 errors found and fixed", False),
        ("400 people came", False),
        ("", False),
        ("{" * 10_000, False),
    ],
)
def test_what_is_an_error(text: str, error: bool) -> None:
    assert looks_like_an_error(text) == error


def loop(*arguments: Any, **options: Any) -> Graded:
    grade = ActionLoop(**options).grade(rollout(steps(*((a, "ok") for a in arguments))))
    assert isinstance(grade, Graded)
    return grade


@pytest.mark.parametrize(
    ("arguments", "pairs", "repeats", "turning"),
    [
        (["a"], 1, 1, 1),
        (["a", "b"], 1, 1, 1),
        (["a", "a"], 0, 0, 0),
        (["a", "b", "a"], 2 / 3, 0.5, 1),
        (["a", "b", "c", "a"], 5 / 6, 2 / 3, 1),
        (["a", "a", "a", "a"], 0, 0, 0),
        (["a", "b", "a", "b"], 2 / 3, 1 / 3, 1 / 3),
        (["a", "b", "a", "b", "a", "b"], 0.6, 0.2, 0.2),
        (["a", "b", "c"] * 2, 0.8, 0.4, 0.4),
        (["dog bites man", "man bites dog"], 1, 1, 1),
        (["dog bites man", "dog bites man"], 0, 0, 0),
        ([{"q": "x", "n": 1}, {"n": 1, "q": "x"}], 0, 0, 0),
        (['{"q": "x", "n": 1}', {"n": 1.0, "q": "x "}], 0, 0, 0),
        ([{"n": 1}, {"n": 2}], 1, 1, 1),
        ([{"n": 1}, {"n": "1"}], 1, 1, 1),
        ([{"n": True}, {"n": 1}], 1, 1, 1),
        ([{"q": ["a", "b"]}, {"q": ["b", "a"]}], 1, 1, 1),
        ([None, None], 0, 0, 0),
        (["", "{}"], 0, 0, 0),
        (["犬", "犬"], 0, 0, 0),
        ([{"a": {"b": {"c": 1}}}] * 2, 0, 0, 0),
        ([str(i) for i in range(1000)], 1, 1, 1),
        (["x" * 10_000, "x" * 10_001], 1, 1, 1),
    ],
)
def test_action_loops(arguments: list[Any], pairs: float, repeats: float, turning: float) -> None:
    assert loop(*arguments).score == pytest.approx(pairs)
    assert loop(*arguments, measure="repeats").score == pytest.approx(repeats)
    assert loop(*arguments, measure="cycles").score == pytest.approx(turning)


def test_loops_are_described_and_bounded() -> None:
    grade = loop("x", "a", "b", "a", "b", "a", "b", "y", "y")
    assert grade.metadata == {
        "actions": 9,
        "different": 4,
        "repeats": 5,
        "longest_run": 2,
        "cycle": {"period": 2, "turns": 3, "start": 1},
    }
    assert grade.reason == "5 of 9 actions were done before; search 3 times"
    assert len(json.dumps(loop(*(str(i % 7) for i in range(2000))).metadata)) < 200


def test_loops_without_actions_abstain() -> None:
    assert ActionLoop().grade(rollout(response="I know.")) == Abstained("there are no actions")
    assert isinstance(ActionLoop(ignore=["search"]).grade(rollout(steps(("a", "b")))), Abstained)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("dog bites man", "Dog bites man!", True),
        ("dog bites man", "dog bites cat", True),
        ("dog bites man", "man bites dog", False),
        ("copy a b", "copy b a", False),
        ("dog", "cat", False),
        ("dog bites", "dog", False),
        ({"q": "dog bites man", "page": 1}, {"page": 2, "q": "dog bites man"}, True),
        ({"q": "dog bites man", "page": 1}, {"page": 2, "q": "cat bites man"}, False),
        ("w " * 500 + "x", "w " * 500 + "y", True),
    ],
)
def test_near_repeats_keep_the_order(a: Any, b: Any, same: bool) -> None:
    assert loop(a, b, near=True).score == (0 if same else 1)


def test_near_classes_are_those_of_comparing_everything() -> None:
    rnd = random.Random(0)
    for _ in range(300):
        texts = [[rnd.choice("abc") for _ in range(rnd.randint(0, 5))] for _ in range(rnd.randint(2, 6))]
        classes = list(range(len(texts)))
        for i, j in itertools.combinations(range(len(texts)), 2):
            a, b = texts[i], texts[j]
            if len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) <= (len(a) > 1):
                classes = [classes[i] if c == classes[j] else c for c in classes]
        assert near_classes([Call("f", " ".join(t)) for t in texts]) == number(classes)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 6))
def test_cycles_are_those_of_looking_everywhere(actions: list[int], most: int) -> None:
    best, turning = cycles(actions, most)
    longest = 0
    for period in range(1, most + 1):
        for start in range(len(actions) - 2 * period + 1):
            turn = actions[start : start + period]
            turns = 1
            while actions[start + turns * period : start + (turns + 1) * period] == turn:
                turns += 1
            if turns > 1:
                longest = max(longest, (turns - 1) * period)
    assert (best is None) == (longest == 0)
    if best is not None:
        assert (best["turns"] - 1) * best["period"] == longest
    assert 0 <= turning <= max(len(actions) - 1, 0)
    assert (turning > 0) == (longest > 0)


def gain(*answers: str, **options: Any) -> float | None:
    grade = InformationGain(**options).grade(rollout(steps(*((str(i), a) for i, a in enumerate(answers)))))
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], None),
        ([""], None),
        (["  \n"], None),
        (["one two three"], 1),
        (["5"], 1),
        (["Error: no"], 0),
        (["Error: no", "Error: no"], 0),
        (["one two three", "Error: no"], 0.5),
        (["one two three", ""], 1),
        (["a b c", "a b c"], 0.5),
        (["a b", "c d"], 1),
        (["a b", "b a"], 0.5),
        (["a b c", "A  B C"], 0.5),
        (["a b", "a c"], (1 + 2 / 3) / 2),
        (["a b c d e", "a b c d e", "a b c d e"], 1 / 3),
        (["a b c d", "a b c e"], (1 + (1 - 0.6) * 2.718281828 ** (-2 * 0.1)) / 2),
        (["Error: x", "a b", "a b"], 1 / 3),
        (['{"error": "x"}'], 0),
        (["犬 が", "犬 が"], 0.5),
        (["x " * 10_000] * 2, 0.5),
        ([str(i) for i in range(200)], 1),
    ],
)
def test_information_gain(answers: list[str], expected: float | None) -> None:
    assert gain(*answers) == (None if expected is None else pytest.approx(expected))


def test_information_gain_knows_order_and_marks() -> None:
    assert gain("dog bites man", "man bites dog", likeness="order") == 1
    marked = [says(call("a", {}, "1")), tool("all is well", "1", is_error=True)]
    assert InformationGain().grade(rollout(marked)).score == 0  # type: ignore[union-attr]
    marked = [says(call("a", {}, "1")), tool("Error: is a film", "1", status="success")]
    assert InformationGain().grade(rollout(marked)).score == 1  # type: ignore[union-attr]
    assert InformationGain().grade(rollout(response="I know: 42.")) == Abstained("nothing was observed")


@pytest.mark.parametrize(
    ("pairs", "options", "expected"),
    [
        ([("a", "x")], {}, 1),
        ([("a", "x"), ("b", "y")], {}, 1),
        ([("a", "x"), ("a", "x")], {}, 0.5),
        ([("a", "x"), ("a", "x")], {"repeats": "fine"}, 1),
        ([("a", "Error: x"), ("a", "x")], {}, 0.5),
        ([("a", "Error: x"), ("a", "Error: x")], {}, 0),
        ([("a", "Error: x")], {"repeats": "fine"}, 0),
        ([("a", "x"), ("b", "Error: x"), ("a", "x"), ("c", "z")], {}, 0.5),
        ([("a", "")], {}, 1),
        ([("a", ""), ("a", "")], {}, 0.5),
        ([("a", "x"), ("a", "Error: x")], {}, 0.5),
        ([("a", "x"), ("a", "x"), ("a", "x"), ("a", "x")], {}, 0.25),
        ([({"q": 1, "r": 2}, "x"), ({"r": 2, "q": 1}, "y")], {}, 0.5),
        ([({"q": 1}, "x"), ({"q": 2}, "y")], {}, 1),
        ([("犬", "見つかった"), ("猫", "いない")], {}, 1),
        ([(str(i), "x") for i in range(500)], {}, 1),
        ([("a", '{"error": "x"}'), ("b", '{"rows": []}')], {}, 0.5),
        ([("a", "Traceback (most recent call last):")], {}, 0),
        ([("x" * 10_000, "y" * 10_000)], {}, 1),
        ([("a", "x"), ("b", "y"), ("a", "x")], {"repeats": "fine"}, 1),
        ([], {}, None),
    ],
)
def test_tool_efficiency(pairs: Any, options: Any, expected: float | None) -> None:
    grade = ToolEfficiency(**options).grade(rollout(steps(*pairs)))
    assert (grade.score if isinstance(grade, Graded) else None) == expected


def test_unanswered_calls_are_fine_unless_said() -> None:
    lone = rollout([says(call("a", {}))])
    assert ToolEfficiency().grade(lone).score == 1  # type: ignore[union-attr]
    assert ToolEfficiency(unanswered="wasted").grade(lone).score == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("taken", "steps_", "options", "expected"),
    [
        (2, 2, {}, 1),
        (4, 2, {}, 0.5),
        (1, 2, {}, 1),
        (0, 2, {}, 0),
        (0, 0, {}, 1),
        (3, 0, {}, 0),
        (4, 2, {"count": "turns"}, 0.5),
        (4, [{"name": "a"}, {"name": "b"}], {}, 0.5),
        (4, '[{"name": "a"}]', {}, 0.25),
        (4, "two", {}, None),
        (4, None, {}, None),
        (4, True, {}, None),
        (4, float("nan"), {}, None),
        (4, -1, {}, None),
        (4, None, {"steps": 3}, 0.75),
        (300, 3, {}, 0.01),
        (1, 1.5, {}, 1),
        (3, 1.5, {}, 0.5),
        (2, [], {}, 0),
        (2, {"name": "a"}, {}, 0.5),
        (2, '[[{"name": "a"}, {"name": "b"}]]', {}, 1),
        (2, [5], {}, None),
    ],
)
def test_step_efficiency(taken: int, steps_: Any, options: Any, expected: float | None) -> None:
    made = rollout(
        steps(*((str(i), "x") for i in range(taken))) or [{"role": "user", "content": "x"}],
        extra={"steps": steps_},
    )
    grade = StepEfficiency(**options).grade(made)
    assert (grade.score if isinstance(grade, Graded) else None) == expected


@pytest.mark.parametrize(
    ("build", "says_"),
    [
        (lambda: ActionLoop(measure="pair"), "did you mean 'pairs'"),  # type: ignore[arg-type]
        (lambda: ActionLoop(max_period=0), "max_period is a whole number of at least 1"),
        (lambda: InformationGain(likeness="word"), "did you mean 'words'"),  # type: ignore[arg-type]
        (lambda: InformationGain(threshold=2), "threshold is a number from 0 to 1"),
        (lambda: InformationGain(decay=-1), "decay is a number of at least 0"),
        (lambda: ToolEfficiency(repeats="ok"), "repeats is one of"),  # type: ignore[arg-type]
        (lambda: StepEfficiency(steps=-1), "steps is a number of at least 0"),
        (lambda: StepEfficiency(count="call"), "did you mean 'calls'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_said(build: Any, says_: str) -> None:
    with pytest.raises(ConfigError, match=says_):
        build()


def test_a_nested_bomb_in_the_arguments_is_the_rollouts_fault() -> None:
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    (result,) = GradingRunner([ActionLoop()]).run_sync([rollout([says(call("a", {"x": deep}))])])
    grade = result.grades["action_loop"]
    assert isinstance(grade, Failed)
    assert grade.cause == "rollout"
    while isinstance(deep, list):  # take it apart by hand: its destructor would recurse
        deep = deep[0]


# ---- per turn


def _called(*names: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": n, "arguments": "{}"}} for n in names],
    }


_SHOWN = [{"role": "user", "content": "such as"}, _called("a"), {"role": "tool", "content": "1"}]
_AGENT = Rollout(
    response="done",
    prompt=_SHOWN,
    messages=[
        *_SHOWN,
        _called("a", "x"),
        {"role": "tool", "content": "Error: no"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "I think"},
        {"role": "user", "content": "go on"},
        _called("b"),
        _called(""),
    ],
    ground_truth=[
        {"name": "a", "arguments": {}},
        {"name": "a", "arguments": {}},
        {"name": "b", "arguments": {}},
    ],
)


@pytest.mark.parametrize(
    ("rule", "turns"),
    [
        (ToolCallMatch(per="turn"), (0.5, None, 0.5)),
        (ToolCallMatch(per="turn", arguments="partial", of="exact"), (0.5, None, 0.5)),
        (ToolEfficiency(per="turn"), (0.5, None, 1.0)),
        (ToolCallFormat(per="turn", check="none"), (1.0, None, 0.5)),
    ],
)
def test_rules_say_which_turns_calls_are_good(rule: Any, turns: tuple[float | None, ...]) -> None:
    """The share of each turn's calls. Calls that the prompt shows are in no turn; the score is what it is without."""
    grade = as_grade(rule.grade(_AGENT), rule.score_range, _AGENT)
    assert isinstance(grade, Graded)
    assert grade.turns == turns
    assert rule.gives_turns
    whole = type(rule)(**{"check": "none"} if isinstance(rule, ToolCallFormat) else {})
    assert not whole.gives_turns
    assert whole.grade(_AGENT).turns is None


def test_items_of_responses_are_turns() -> None:
    items: list[Any] = [{"role": "user", "content": "x"}]
    for at in range(3):
        items += [
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": str(at)},
            {"type": "function_call_output", "call_id": str(at), "output": "y"},
        ]
    items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "z"}]})
    grade = StepEfficiency(count="turns", steps=2).grade(Rollout(response="z", messages=tuple(items)))
    assert isinstance(grade, Graded)
    assert grade.score == 0.5


def test_answers_belong_to_the_call_id_of_an_item_that_has_an_id_of_its_own_too() -> None:
    items: list[Any] = [{"role": "user", "content": "x"}]
    for at in range(2):
        items += [
            {
                "type": "function_call",
                "id": f"fc_{at}",
                "call_id": f"call_{at}",
                "name": "f",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": f"call_{at}", "output": f"answer {at}"},
        ]
    calls = read_trajectory(Rollout(response="", messages=items)).calls
    assert [(call.id, call.answer.text if call.answer else None) for call in calls] == [
        ("call_0", "answer 0"),
        ("call_1", "answer 1"),
    ]


def test_calls_of_the_prompt_are_not_the_policy_s_behind_another_system_message() -> None:
    def turn(name: str, **more: Any) -> dict[str, Any]:
        call = {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "tool_calls": [call], **more}

    prompt = [{"role": "user", "content": "x"}, turn("old", content=None), {"role": "tool", "content": "y"}]
    bare = [prompt[0], turn("old"), prompt[2]]
    system = {"role": "system", "content": "Be brief."}
    for messages in ([*prompt, turn("new")], [system, *prompt, turn("new")], [*bare, turn("new")]):
        calls = read_trajectory(Rollout(response="", prompt=prompt, messages=messages)).calls
        assert [call.name for call in calls] == ["new"]
    other = [{"role": "user", "content": "z"}, *prompt[1:], turn("new")]
    assert len(read_trajectory(Rollout(response="", prompt=prompt, messages=other)).calls) == 2


def test_a_custom_tool_of_openai_s_has_a_name() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    (found,) = read_trajectory(
        Rollout(response="", messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])
    ).calls
    assert (found.name, found.arguments, found.id) == ("run", "ls", "c")


def test_a_response_without_messages_is_one_turn() -> None:
    rollout = Rollout(
        response='<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "x", "arguments": {}}</tool_call>',
        ground_truth=[{"name": "a", "arguments": {}}],
    )
    assert ToolCallMatch(per="turn").grade(rollout).turns == (0.5,)
    with pytest.raises(ConfigError, match="per is one of rollout, turn"):
        ToolCallMatch(per="turns")  # type: ignore[arg-type]


def test_every_shipped_grader_says_whether_it_speaks_of_turns() -> None:
    """So that `{turns: x}` for one that does not is an error, and not a missing reward."""
    for target in GRADERS.values():
        module, _, name = target.partition(":")
        if "service" not in module:  # it gives what the service's reward gives
            assert isinstance(getattr(importlib.import_module(module), name).gives_turns, bool), name
