"""Calls in a text, in the forms of the models' chat templates. tests/vllm/test_parsers.py asks vLLM the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from judgekit import Abstained, Graded, Rollout
from judgekit.graders import (
    ActionLoop,
    InformationGain,
    StepSequence,
    ToolCallFormat,
    ToolCallMatch,
    ToolEfficiency,
)
from judgekit.graders.rules.agents.trajectory import read_trajectory
from judgekit.graders.rules.calls import Call, Untyped, typed
from judgekit.graders.rules.work import calls_of
from judgekit.graders.rules.written_calls import written
from judgekit.trainers.rollouts import rollout_of
from tests.graders.call_templates import CALLS, SCHEMA, TEMPLATES, TOOLS, Made

FORMS = [(template, calls) for template in TEMPLATES for calls in CALLS]


def read(text: str) -> list[Made]:
    """The calls of a text, typed by the schema of the tools."""
    calls = [part for part in written(text) if isinstance(part, Call)]
    return [(call.name, typed(call.arguments, SCHEMA)) for call in calls]


@pytest.mark.parametrize(("template", "calls"), FORMS)
def test_calls_are_read_as_their_template_writes_them(template: str, calls: str) -> None:
    assert read(TEMPLATES[template](CALLS[calls])) == list(CALLS[calls])


@pytest.mark.parametrize(("template", "calls"), FORMS)
def test_the_right_calls_earn_in_each_form_and_others_do_not(template: str, calls: str) -> None:
    made = [{"name": name, "arguments": dict(arguments)} for name, arguments in CALLS[calls]]
    rollout = Rollout(response=TEMPLATES[template](CALLS[calls]), ground_truth=made, extra={"tools": TOOLS})
    for grader in (ToolCallMatch(of="exact"), StepSequence(), ToolCallFormat()):
        assert grader.here(rollout).score == 1, grader  # type: ignore[union-attr]
    for key in made[0]["arguments"]:
        others = [{**made[0], "arguments": {**made[0]["arguments"], key: "another"}}, *made[1:]]
        graded = ToolCallMatch(of="exact").here(Rollout(response=rollout.response, ground_truth=others))
        assert isinstance(graded, Graded)
        assert graded.score == 0


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_reference_in_a_form_is_read_as_the_response_is(template: str) -> None:
    """A reference that was taken from a model's own text."""
    for calls in CALLS.values():
        reference = TEMPLATES[template](calls)
        for other in ("hermes", "qwen3_coder", template):
            response = TEMPLATES[other](calls)
            graded = ToolCallMatch(of="exact").here(Rollout(response=response, ground_truth=reference))
            assert isinstance(graded, Graded), (reference, graded)
            assert graded.score == 1, (response, reference)


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_work_of_grading_counts_the_calls_of_each_form(template: str) -> None:
    text = TEMPLATES[template]([("weather", {"city": "Paris"})] * 30)
    assert len(read(text)) == 30
    if template not in ("only names and arguments", "kimi_k2 without special tokens"):
        assert calls_of(Rollout(response=text)) >= 30


BFCL = [{"weather": {"city": ["Paris"], "days": [3], "ratio": [0.5, ""], "tags": [["a", "b"], ""]}}]


@pytest.mark.parametrize("template", TEMPLATES)
def test_bfcl_knows_the_types_of_values_without_quotes(template: str) -> None:
    def score(arguments: dict[str, Any]) -> float:
        rollout = Rollout(
            response=TEMPLATES[template]([("weather", arguments)]), ground_truth=BFCL, extra={"tools": TOOLS}
        )
        graded = ToolCallMatch(of="exact", checks="bfcl").here(rollout)
        assert isinstance(graded, Graded)
        return graded.score

    assert score({"city": "Paris", "days": 3, "tags": ["a", "b"]}) == 1
    assert score({"city": "Paris", "days": 4}) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3), ("-0.5", -0.5), ("true", True), ("True", True), ("null", None), ("None", None), ("[1, 'a']", [1, "a"]),
        ('{"a": [true]}', {"a": [True]}), ("{'a': True}", {"a": True}), ("Paris", "Paris"), ("NaN", "NaN"), ("[1, x]", "[1, x]"),
        ("  3 ", 3), ('"quoted"', "quoted"), ("(1, 2)", (1, 2)), ("", ""), ("[" + "1," * 20_000 + "x]", "[" + "1," * 20_000 + "x]"),
    ],
)  # fmt: skip
def test_a_value_without_quotes_is_the_text_or_what_it_says(text: str, expected: Any) -> None:
    assert Untyped(text).read() == expected
    assert type(Untyped(text).read()) is type(expected)
    assert typed({"city": Untyped(text)}, SCHEMA) == {"city": text}


@pytest.mark.parametrize(
    ("details", "value"),
    [
        ({"type": "string"}, "3"), ({"type": "String"}, "3"), ({"type": ["string", "null"]}, "3"), ({"type": ["null", "integer"]}, 3),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "3"), ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3), ({}, 3),
        ({"type": 3}, 3), ("odd", 3), (None, 3), ({"anyOf": "odd"}, 3),
    ],
)  # fmt: skip
def test_what_may_be_a_text_stays_one(details: Any, value: Any) -> None:
    assert typed({"a": Untyped("3"), "b": 3.5}, {"properties": {"a": details}}) == {"a": value, "b": 3.5}
    assert typed({"a": Untyped("3")}, details) == {"a": 3}


def test_a_reference_in_lines_of_code_is_all_its_calls() -> None:
    for reference in ("weather(city='Paris')\nfind(days=3)", "[weather(city='Paris'), find(days=3)]"):
        for response, score in (("[weather(city='Paris'), find(days=3)]", 1), ("[weather(city='Paris')]", 0)):
            graded = ToolCallMatch(of="exact").here(Rollout(response=response, ground_truth=reference))
            assert isinstance(graded, Graded)
            assert graded.score == score, (reference, response)


def test_what_cannot_be_read_is_kept_whole() -> None:
    for text, kept in (
        ("<|tool_call|>[3] and more", "[3]"), ("a <|tool_call|>{oops\nmore", "{oops"), ("<tool_call>two words</tool_call>", "two words"),
        ("<function_calls> print(3) </function_calls>", "print(3)"), ('[TOOL_CALLS]{"a": 1}', '{"a": 1}'),
    ):  # fmt: skip
        (call,) = written(text)
        assert isinstance(call, Call)
        assert (call.name, call.arguments) == ("", kept)


def test_a_value_without_quotes_fits_a_reference_of_either_type() -> None:
    response = TEMPLATES["qwen3_coder"]([("weather", {"city": "75001"})])
    for reference, score in (("75001", 1), (75001, 1), (75002, 0), ("75,001", 0), ([75001], 0), (None, 0)):
        truth = [{"name": "weather", "arguments": {"city": reference}}]
        graded = ToolCallMatch().here(Rollout(response=response, ground_truth=json.dumps(truth)))
        assert isinstance(graded, Graded)
        assert graded.score == score, reference


@pytest.mark.parametrize(
    "text",
    [
        "I would call weather(city='Paris') now.", '{"name": "Alice", "age": 3}', '[{"name": "Alice"}]', "[1, 2]", "f(x)", "[]", "{}",
        '{"name": "weather", "arguments": {"city": "Paris"}, "because": "x"}', '{"name": "weather", "arguments": "Paris"}',
        '{"name": "weather", "arguments": {}, "parameters": {}}', 'Here: {"name": "weather", "arguments": {"city": "Paris"}}',
        '{"name": "weather", "arguments": {"city": "Paris"}} is my call', "[weather(city=Paris)]", "[weather('Paris')]",
        "[weather(**more)]", "[x.y[0](a=1)]", "print(3)", "[print(3)]", "x = weather(a=1)", "functools.reduce(f, [1])", "functools[0]",
        "An invoke name= is not a call.", "```python\nx = [1]\n```", '{"tool_calls": []}', '{"tool_calls": "none"}', "null", '"weather"',
        '["weather"]', '{"name": 3, "arguments": {}}', "weather {", "weather {}: that is my call", "",
    ],
)  # fmt: skip
def test_what_is_no_call_is_read_as_none(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{</tool_call>", "<tool_call>[]</tool_call>", "<tool_call>", "[TOOL_CALLS]", "[TOOL_CALLS][{", "[TOOL_CALLS][3]",
        "<|python_tag|>print(3)", "<|tool_call|>{}", "<tool_calls>[1]</tool_calls>", "<function_calls>print(</function_calls>",
        "<|python_start|>[f(3)]<|python_end|>",
    ],
)  # fmt: skip
def test_what_begins_as_a_call_and_cannot_be_read_is_a_call_without_a_name(text: str) -> None:
    (call,) = written(text)
    assert isinstance(call, Call)
    assert call.name == ""
    assert ToolCallFormat().here(Rollout(response=text)) == Graded(0.0, "a call without a name")


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("<function=weather>Paris</function>", "weather", "Paris"),
        ("<function=weather>{oops</function>", "weather", "{oops"),
        ("<tool_call><function=weather></function></tool_call>", "weather", {}),
        ("[TOOL_CALLS]weather[ARGS]{oops", "weather", "{oops"),
        ("<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{oops<|tool_call_end|>", "weather", "{oops"),
        ("<|channel|>commentary to=functions.weather<|message|>oops<|call|>", "weather", "oops"),
        ("<|tool_call>call:weather{city:<tool_call|>", "weather", "{city:"),
        ("<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{oops<｜tool▁call▁end｜>", "weather", "{oops"),
        ('<invoke name="weather">Paris</invoke>', "weather", "Paris"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_read_stay_as_they_are(text: str, name: str, arguments: Any) -> None:
    assert [(call.name, call.arguments) for call in written(text) if isinstance(call, Call)] == [
        (name, arguments)
    ]


def test_a_call_of_glm_without_arguments_is_complete_for_a_tool_that_takes_none() -> None:
    text = "<tool_call>now\n</tool_call>"
    assert read(text) == [("now", {})]
    takes = {"name": "now", "parameters": SCHEMA}
    for tool, score in (({"name": "now", "parameters": {"type": "object", "properties": {}}}, 1), (takes, 0)):
        graded = ToolCallFormat(tools=[tool]).here(Rollout(response=text))
        assert isinstance(graded, Graded)
        assert graded.score == score


def test_values_between_tags_may_hold_tags() -> None:
    value = "if (a < b) { return '</p>' } // <parameter> <arg_key>"
    for template in ("qwen3_coder", "minimax_m2", "deepseek_v32"):
        assert read(TEMPLATES[template]([("weather", {"text": value})])) == [("weather", {"text": value})]


def test_an_argument_in_json_may_hold_the_marks_of_other_forms() -> None:
    for value in (
        "<function=weather>",
        "<arg_key>city</arg_key>",
        "[TOOL_CALLS]weather{}",
        '<invoke name="x">',
        "[weather(city=1)]",
    ):
        for template in (
            "hermes",
            "mistral",
            "kimi_k2",
            "deepseek_v31",
            "gpt-oss",
            "llama3_json after the tag",
            "gemma4",
            "xlam",
        ):
            assert read(TEMPLATES[template]([("weather", {"text": value})])) == [
                ("weather", {"text": value})
            ], template


def test_calls_and_results_alternate_in_each_form() -> None:
    for write in (
        TEMPLATES[name] for name in ("hermes", "qwen3_coder", "glm45", "gpt-oss", "kimi_k2", "mistral")
    ):
        calls = [write([("weather", {"city": city})]) for city in ("Paris", "Rome")]
        text = f"{calls[0]}\n<tool_response>12</tool_response>\n{calls[1]}<tool_response>19</tool_response>It is 19."
        found = read_trajectory(Rollout(response=text))
        assert [call.answer and call.answer.text for call in found.calls] == ["12", "19"], text
        assert ToolEfficiency().grade(Rollout(response=text)).score == 1  # type: ignore[union-attr]


def test_the_same_call_in_another_form_is_a_repeated_action() -> None:
    calls = [("weather", {"city": "Paris"})]
    text = TEMPLATES["hermes"](calls) + TEMPLATES["qwen3_coder"](calls)
    assert ActionLoop().grade(Rollout(response=text)) == ActionLoop().grade(
        Rollout(response=TEMPLATES["hermes"](calls * 2))
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_call_that_is_only_thought_of_is_not_made(template: str) -> None:
    call = TEMPLATES[template]([("weather", {"city": "Paris"})])
    rollout = Rollout(response=f"<think>{call}</think>I do not know.", ground_truth=[{"name": "weather"}])
    assert read_trajectory(rollout).calls == []
    assert isinstance(ToolCallFormat().here(rollout), Abstained)


def test_an_analysis_of_gpt_oss_is_a_thought_and_the_messages_around_it_are_not() -> None:
    call = '<|start|>assistant<|channel|>commentary to=functions.weather<|message|>{"city": "%s"}<|call|>'
    draft = "<|channel|>analysis<|message|>%s <|channel|>commentary to=functions.weather<|message|>{}"
    text = (
        draft % "first" + "<|end|>" + call % "Paris" + "<|start|>assistant" + draft % "then" + call % "Rome"
    )
    final = "<|start|>assistant<|channel|>final<|message|>It rains.<|return|>"
    for whole in (text, text + final, text.partition("<|end|>")[2] + final):
        found = read_trajectory(Rollout(response=whole)).calls
        assert [call.arguments for call in found] == [{"city": "Paris"}, {"city": "Rome"}], whole
    assert read_trajectory(Rollout(response=draft % "only")).calls == []


PARTS = (
    "<", "<tool_call>", "<function=a>", "<tool_call><function=a>", "<parameter=a>", '<invoke name="a">', '<invoke name="a"><parameter name="b">',
    "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<|tool_call_begin|>", "<|tool_call>call:a{", '<|"|>', "[TOOL_CALLS]", "[TOOL_CALLS]a{",
    '[TOOL_CALLS]a[ARGS]{"b": "', "to=functions.a ", 'to=functions.a {"b": "', "[TOOL_CALLS][{", '<|python_tag|>["', '<|tool_call|>["', "functools[{",
    "<tool_calls>[", "<function_calls>", "<|python_start|>f(", "<tool_call>a<arg_key>", "<arg_key>a</arg_key><arg_value>", "Action: ", "[{", "f(a=1), ",
    '{"name": "a", "arguments": {}}, ', "```json\n", "\n```", " ", "a{", "<|channel|>analysis<|message|>", "<|channel|><|channel|>final<|message|>",
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "start", ["", "<tool_call>", "[TOOL_CALLS]", "<function=a>", "<|tool_call>call:a{", "["]
)
def test_a_long_text_is_read_in_time_that_grows_with_its_length(start: str, part: str) -> None:
    """Where the time grew with the square of the length, the test would run into the suite's limit."""
    text = start + part * (800_000 // len(part))
    rollout = Rollout(response=text, ground_truth=[{"name": "a"}])
    try:
        read_trajectory(rollout)
    except Exception as error:
        assert "nested too deep" in str(error)  # noqa: PT017 - most are read without one


def history(turn: dict[str, Any], city: str) -> Rollout:
    """A conversation whose prompt has calls of its own, as trainers hand it over."""
    asked = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}],
    }
    prompt = [{"role": "user", "content": "Rome?"}, asked, {"role": "tool", "tool_call_id": "1", "content": "12"},
              {"role": "assistant", "content": "12."}, {"role": "user", "content": "Next?"}]  # fmt: skip
    truth = [{"name": "weather", "arguments": {"city": city}}]
    return rollout_of({"ground_truth": truth}, prompt=prompt, turns=[turn])


def test_calls_of_the_prompts_history_are_not_the_policys() -> None:
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "2", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}],
    }
    idle = {"role": "assistant", "content": "I do not know."}
    for grader in (ToolCallMatch(of="exact", per="turn"), ToolCallMatch(), StepSequence()):
        assert grader.here(history(call, "Oslo")).score == 1, grader  # type: ignore[union-attr]
        assert grader.here(history(idle, "Rome")).score == 0, grader  # type: ignore[union-attr]
    assert isinstance(InformationGain().grade(history(idle, "Rome")), Abstained)
    assert isinstance(ToolEfficiency().grade(history(idle, "Rome")), Abstained)
    in_text = {"role": "assistant", "content": TEMPLATES["qwen3_coder"]([("weather", {"city": "Oslo"})])}
    assert ToolCallMatch(of="exact").here(history(in_text, "Oslo")).score == 1  # type: ignore[union-attr]


def test_tags_that_a_prompt_speaks_of_are_no_observations() -> None:
    prompt = [
        {
            "role": "user",
            "content": "Results stand between <information> and </information>. Who wrote Faust?",
        }
    ]
    said = (
        "".join(f"<search>Faust {i}</search><information>Error: timed out</information>" for i in range(3))
        + "<answer>Goethe</answer>"
    )
    whole = Rollout(response=said, prompt=prompt, messages=[*prompt, {"role": "assistant", "content": said}])
    for grader in (InformationGain(), ToolEfficiency()):
        assert grader.grade(whole) == grader.grade(Rollout(response=said))


def test_tokens_that_end_a_turn_are_no_part_of_a_call() -> None:
    for end in ("", "<|im_end|>", "</s>", "<turn|>"):
        for text, arguments in (('Action: f\nAction Input: {"x": 1}', {"x": 1}), ("Action: f[db1]", "db1")):
            assert [
                (call.name, call.arguments) for call in written(text + end) if isinstance(call, Call)
            ] == [("f", arguments)]


def test_a_message_with_parallel_calls_in_a_list_is_all_of_them() -> None:
    calls = [("weather", {"city": "Rome"}), ("shop.find", {"days": 3})]
    message = {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": json.dumps(given)}} for name, given in calls],
    }
    for reference in ([message], message, json.dumps([message])):
        for made, score in ((calls, 1), (calls[:1], 0), (calls[1:], 0)):
            graded = ToolCallMatch(of="exact").here(
                Rollout(response=TEMPLATES["hermes"](made), ground_truth=reference)
            )
            assert isinstance(graded, Graded)
            assert graded.score == score, (reference, made)


@pytest.mark.parametrize(
    ("details", "value", "score"),
    [
        ({"anyOf": [{"type": "string", "enum": ["auto"]}, {"type": "integer"}]}, "3", 1), ({"oneOf": [{"type": "string"}, {"type": "null"}]}, "12345", 1),
        ({"enum": ["1", "2"]}, "1", 1), ({"const": "1"}, "1", 1), ({"type": "integer"}, "3", 1), ({"type": "integer"}, "x", 0), ({"$ref": "#/$defs/t"}, "7", 1),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12345", 1), ({"type": "string", "enum": ["a"]}, "b", 0),
    ],
)  # fmt: skip
def test_the_schema_says_what_a_value_without_quotes_is(details: Any, value: str, score: float) -> None:
    schema = {
        "type": "object",
        "properties": {"x": details, "y": {"type": "integer"}},
        "required": ["x", "y"],
        "$defs": {"t": {"type": "string"}},
    }
    tools = [{"name": "f", "parameters": schema}]
    graded = ToolCallFormat(tools=tools).here(
        Rollout(response=TEMPLATES["qwen3_coder"]([("f", {"x": value, "y": 2})]))
    )
    assert isinstance(graded, Graded)
    assert graded.score == score, graded.reason


@pytest.mark.parametrize(
    "last",
    [
        "It is 12.",
        "It is 12.\n\n**Action:** Take a coat.",
        "Run <code>curl x</code>.",
        'It is\n{"c": 12}',
        'weather {"c": 12}',
    ],
)
def test_where_calls_are_data_no_sentence_is_one(last: str) -> None:
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "2", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}],
    }
    item = {"type": "function_call", "call_id": "2", "name": "weather", "arguments": '{"city": "Oslo"}'}
    truth = [{"name": "weather", "arguments": {"city": "Oslo"}}]
    for asked in (call, item):
        messages = [{"role": "user", "content": "?"}, asked, {"role": "assistant", "content": last}]
        rollout = Rollout(response=last, prompt=messages[:1], messages=messages, ground_truth=truth)
        graded = ToolCallMatch(of="exact").here(rollout)
        assert isinstance(graded, Graded)
        assert graded.score == 1, read_trajectory(rollout).calls


def test_an_action_written_as_code_has_named_arguments() -> None:
    (call,) = written('Thought: now\nAction: f(city="Paris", n=3)')
    assert isinstance(call, Call)
    assert (call.name, call.arguments) == ("f", {"city": "Paris", "n": 3})
    (quoted,) = written("Action: `f`\nAction Input: {}")
    assert isinstance(quoted, Call)
    assert quoted.name == "f"
    (text,) = written("Action: search(the town of Paris)")
    assert isinstance(text, Call)
    assert (text.name, text.arguments) == ("search", "the town of Paris")


def test_a_number_that_python_does_not_read_is_a_call_that_is_wrong() -> None:
    long = "9" * 6000
    for text in (
        f'<tool_call>{{"name": "f", "arguments": {{"a": {long}}}}}</tool_call>',
        f'[TOOL_CALLS]f[ARGS]{{"a": {long}}}',
    ):
        graded = ToolCallMatch().here(
            Rollout(response=text, ground_truth=[{"name": "f", "arguments": {"a": 9}}])
        )
        assert isinstance(graded, Graded), graded
        assert graded.score == 0
