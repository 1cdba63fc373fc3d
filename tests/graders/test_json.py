"""JSON in a response: found, checked against a schema, compared with a reference."""

from __future__ import annotations

import json
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout, RolloutError
from judgekit.execution.pool import ProcessPool
from judgekit.graders import JsonFormat, JsonMatch, ToolCallFormat

DEEP = "[" * 10_000 + "]" * 10_000


def score(grader: Any, response: str, truth: Any = None, **extra: Any) -> float | None:
    grade = grader.grade(Rollout(response=response, ground_truth=truth, extra=extra))
    assert isinstance(grade, Graded | Abstained)
    return grade.score if isinstance(grade, Graded) else None


@pytest.mark.parametrize(
    ("text", "whole", "fenced", "anywhere"),
    [
        ('{"a": 1}', 1, 1, 1),
        (" [1, 2] \n", 1, 1, 1),
        ('"text"', 1, 1, 1),
        ("5", 1, 1, 1),
        ("null", 1, 1, 1),
        ('```json\n{"a": 1}\n```', 0, 1, 1),
        ('```\n{"a": 1}\n```', 0, 1, 1),
        ('Here it is:\n```JSON\n{"a": 1}\n```\nDone.', 0, 1, 1),
        ('~~~json\n{"a": 1}\n~~~', 0, 1, 1),
        ('```json\n{"a": 1}', 0, 1, 1),
        ('```json\n{"a": 1\n```', 0, 0, 0),
        ("```python\nx\n```\n```json\n{}\n```", 0, 1, 1),
        ('<think>{"a"</think>{"a": 1}', 0, 1, 1),
        ("<think>{}", 0, 0, 0),
        ('It is {"a": 1}, I think.', 0, 0, 1),
        ("It is so.", 0, 0, 0),
        ("", 0, 0, 0),
        ('{"a": NaN}', 0, 0, 0),
        ("[Infinity]", 0, 0, 0),
        ("{'a': 1}", 0, 0, 0),
        ('{"a": 1,}', 0, 0, 0),
        ('{"a": 1} {"b": 2}', 0, 0, 1),
        ('{"犬": "🐕", "x": "\\ud83d"}', 1, 1, 1),
        ('```json\n{"a": 1}\n```\nUse it so:\n```javascript\nconst a = JSON.parse(text);\n```', 0, 1, 1),
        ('```json\n{"a": 1}\n```\nor\n```json\n{"a": \n```', 0, 0, 0),
        ("\ufeff{}", 1, 1, 1),
        ("{" * 2000, 0, 0, 0),
        ('{"a": "' + "x" * 10**6 + '"}', 1, 1, 1),
    ],
)
def test_where_json_is_found(text: str, whole: float, fenced: float, anywhere: float) -> None:
    assert score(JsonFormat(where="whole"), text) == whole
    assert score(JsonFormat(), text) == fenced
    assert score(JsonFormat(where="anywhere"), text) == anywhere


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 10_000 + "1" + "}" * 10_000, "9" * 5000])
def test_json_that_cannot_be_read_is_the_rollouts_failure(text: str) -> None:
    (result,) = GradingRunner([JsonFormat(), JsonMatch()]).run_sync(
        [Rollout(response=text, ground_truth="[]")]
    )
    for grade in result.grades.values():
        assert isinstance(grade, Failed)
        assert grade.cause == "rollout"


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', 1),
        ('{"a": 1, "b": ["x"]}', 1),
        ('{"a": "1"}', 0),
        ('{"a": 1.5}', 0),
        ('{"a": true}', 0),
        ("{}", 0),
        ('{"a": 1, "c": 2}', 0),
        ('{"a": 1, "b": [2]}', 0),
        ("[]", 0),
        ("no", 0),
        ('```json\n{"a": 1}\n```', 1),
    ],
)
def test_schemas(text: str, expected: float, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    assert score(JsonFormat(schema=SCHEMA), text) == expected
    assert score(JsonFormat(schema=str(file)), text) == expected
    assert score(JsonFormat(schema="extra.schema"), text, schema=SCHEMA) == expected
    assert score(JsonFormat(schema="extra.schema"), text, schema=json.dumps(SCHEMA)) == expected


def test_schema_options() -> None:
    assert score(JsonFormat(schema=SCHEMA, partial=0.3), "{}") == 0.3
    assert score(JsonFormat(schema=SCHEMA, partial=0.3), "no") == 0
    assert score(JsonFormat(kind="object"), "[]") == 0
    assert score(JsonFormat(kind="array"), "[]") == 1
    assert score(JsonFormat(schema="extra.schema"), "{}") is None
    assert score(JsonFormat(schema="extra.schema"), "{}", schema="{") is None
    assert score(JsonFormat(schema="extra.schema"), "{}", schema={"type": "objekt"}) is None
    assert JsonFormat(schema=SCHEMA).where == "inline"
    assert JsonFormat(schema={"type": "string", "pattern": "x"}).where == "process"


def test_a_pattern_of_a_schema_is_matched_where_it_can_be_killed() -> None:
    pool = ProcessPool(1)
    try:
        grader = JsonFormat(schema={"type": "string", "pattern": "^(a+)+$"})
        grader.timeout_s = 0.5
        (result,) = GradingRunner([grader], pool=pool).run_sync(
            [Rollout(response=json.dumps("a" * 40 + "!"))]
        )
        grade = result.grades["json"]
        assert isinstance(grade, Failed)
        assert grade.cause == "rollout"
    finally:
        pool.close()


UNORDERED = {"score": "leaves", "list_order": False}
MATCHES: list[tuple[str, Any, Any, float | None]] = [
    ('{"a": 1, "b": 2}', {"b": 2, "a": 1}, {}, 1),
    ('{"a": 1}', '{"a": 1}', {}, 1),
    ('{"a": 1}', '```json\n{"a": 1}\n```', {}, 1),
    ('```json\n{"a": 1}\n```', {"a": 1}, {}, 1),
    ('{"a": 1.0}', {"a": 1}, {}, 1),
    ('{"a": "1"}', {"a": 1}, {}, 0),
    ('{"a": "1"}', {"a": 1}, {"number_texts": True}, 1),
    ('{"a": true}', {"a": 1}, {}, 0),
    ('{"a": null}', {}, {}, 1),
    ('{"a": null}', "{}", {}, 0),
    ('{"a": 1, "c": 3}', {"a": 1}, {}, 0),
    ('{"a": 1, "c": 3}', {"a": 1}, {"extra_keys": "fine"}, 1),
    ('{"a": 1}', {"a": 1, "c": 3}, {"extra_keys": "fine"}, 0),
    ("[1, 2]", [2, 1], {}, 0),
    ("[1, 2]", [2, 1], {"list_order": False}, 1),
    ("[1, 1, 2]", [2, 2, 1], {"list_order": False}, 0),
    ("[1, 2]", [1], {}, 0),
    ('{"a": 1.001}', {"a": 1}, {"tolerance": 0.01}, 1),
    ('{"a": 1.1}', {"a": 1}, {"tolerance": 0.01}, 0),
    ('{"a": "Dog "}', {"a": "Dog"}, {}, 1),
    ('{"a": "dog"}', {"a": "Dog"}, {}, 0),
    ('{"a": "dog"}', {"a": "Dog"}, {"ignore_case": True}, 1),
    ('{"a": 1, "b": 2}', {"a": 1, "b": 3}, {"only": ["a"]}, 1),
    ('{"b": 2}', {"a": 1, "b": 2}, {"only": "a"}, 0),
    ('{"a": {"b": [1, {"c": 2}]}}', {"a": {"b": [1, {"c": 2}]}}, {}, 1),
    ('{"a": {"b": [1, {"c": 2}]}}', {"a": {"b": [1, {"c": 3}]}}, {}, 0),
    ("no JSON", {"a": 1}, {}, 0),
    ("", {}, {}, 0),
    ("{}", None, {}, None),
    ("{}", "not JSON", {}, None),
    ("{}", [], {"only": ["a"]}, None),
    ("5", 5, {}, 1),
    ('"犬"', '"犬"', {}, 1),
    ('{"a": 1, "b": 2}', {"a": 1, "b": 3}, {"score": "leaves"}, 0.5),
    ('{"a": 1}', {"a": 1, "b": 3}, {"score": "leaves"}, 2 / 3),
    ('{"a": 1, "b": 3}', {"a": 1}, {"score": "leaves"}, 2 / 3),
    ('{"a": 1, "b": 3}', {"a": 1}, {"score": "leaves", "extra_keys": "fine"}, 1),
    ('{"b": 1}', {"a": 1}, {"score": "leaves", "extra_keys": "fine"}, 0),
    ("{}", {"a": 1}, {"score": "leaves"}, 0),
    ("[3, 1, 2]", [1, 2, 3], {"score": "leaves", "list_order": False}, 1),
    ("[3, 1, 2]", [1, 2, 3], {"score": "leaves"}, 0),
    ("{}", {}, {"score": "leaves"}, 1),
    (json.dumps(list(range(5000))), list(range(5000)), {}, 1),
    # records of a list are compared as wholes: each value is right in its own alone
    (
        json.dumps([{"n": "a", "v": 2}, {"n": "b", "v": 1}]),
        [{"n": "a", "v": 1}, {"n": "b", "v": 2}],
        UNORDERED,
        0.5,
    ),
    (
        json.dumps([{"n": "b", "v": 2}, {"n": "a", "v": 1}]),
        [{"n": "a", "v": 1}, {"n": "b", "v": 2}],
        UNORDERED,
        1,
    ),
    (json.dumps([{"n": "b", "v": 2}]), [{"n": "a", "v": 1}, {"n": "b", "v": 2}], UNORDERED, 2 / 3),
    (json.dumps([[2, 1], [3]]), [[3], [1, 2]], UNORDERED, 1),
    (json.dumps([[2, 3], [1]]), [[3], [1, 2]], UNORDERED, 2 / 3),
    (json.dumps({"a": [{"x": []}, {"x": {}}]}), {"a": [{"x": {}}, {"x": []}]}, UNORDERED, 1),
    ("[]", [1], UNORDERED, 0),
    ("[1]", [], UNORDERED, 0),
    ("[[]]", [], UNORDERED, 0),
    # tags in JSON's texts are only text
    ('{"a": "<answer>5</answer>", "b": 1}', {"a": "<answer>5</answer>", "b": 1}, {}, 1),
    ('{"a": "<think>", "b": "</think>"}', {"a": "<think>", "b": "</think>"}, {}, 1),
    ('<think>x</think>{"a": "<think>", "b": "</think>"}', {"a": "<think>", "b": "</think>"}, {}, 1),
    ('So:\n```json\n{"a": "<answer>5</answer>"}\n```', {"a": "<answer>5</answer>"}, {}, 1),
    ('<think>{"a": 2}</think><answer>{"a": 1}</answer>', {"a": 1}, {}, 1),
]


def test_leaves_a_thousand_levels_down_are_not_looked_for() -> None:
    truth: Any = 5
    for _ in range(1001):
        truth = [truth]
    with pytest.raises(RolloutError, match="nested more than 1,000 deep"):
        score(JsonMatch(score="leaves"), "[5]", truth)


@pytest.mark.parametrize(("response", "truth", "options", "expected"), MATCHES)
def test_json_match(response: str, truth: Any, options: Any, expected: float | None) -> None:
    assert score(JsonMatch(**options), response, truth) == (
        expected if expected is None else pytest.approx(expected)
    )


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: JsonFormat(where="fence"), "did you mean 'fenced'"),  # type: ignore[arg-type]
        (lambda: JsonFormat(kind="dict"), "kind is one of"),  # type: ignore[arg-type]
        (lambda: JsonFormat(partial=1), "partial is the score"),
        (lambda: JsonFormat(schema={"type": "objekt"}), "the schema is not valid"),
        (lambda: JsonFormat(schema="nowhere.json"), "cannot read the schema"),
        (lambda: JsonMatch(score="leafs"), "did you mean 'leaves'"),  # type: ignore[arg-type]
        (lambda: JsonMatch(tolerance=-1), "tolerance is a number of at least 0"),
        (lambda: JsonMatch(extra_keys="ok"), "extra_keys is one of"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_said(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


def test_without_jsonschema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    JsonFormat()
    with pytest.raises(ConfigError, match=r"judgekit-rl\[json\]"):
        JsonFormat(schema=SCHEMA)


AND_OR: dict[str, Any] = {
    "$defs": {
        "e": {
            "anyOf": [
                {"type": "object", "properties": {"and": {"$ref": "#/$defs/e"}}, "required": ["and"]},
                {"type": "object", "properties": {"and": {"$ref": "#/$defs/e"}, "x": {}}, "required": ["x"]},
            ]
        }
    },
    "$ref": "#/$defs/e",
}


@pytest.mark.parametrize("schema", [AND_OR, {"type": "array", "uniqueItems": True}])
def test_a_schema_that_short_texts_can_keep_busy_is_checked_where_it_can_be_killed(schema: Any) -> None:
    assert JsonFormat(schema=schema).where == "process"
    tool = {"type": "function", "function": {"name": "w", "parameters": schema}}
    assert ToolCallFormat(tools=[tool]).where == "process"
    assert JsonFormat(schema={"type": "object", "required": ["a"]}).where == "inline"


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 400, "NaN", "-Infinity"])
def test_a_number_that_cannot_be_checked_does_not_fit(number: str) -> None:
    """A policy must not get out of its score by a number that breaks the check."""
    grader = JsonFormat(schema={"properties": {"price": {"type": "number", "multipleOf": 0.01}}})
    assert score(grader, f'{{"price": {number}}}') == 0.0
    assert score(grader, '{"price": 1.25}') == 1.0


def test_a_reference_without_the_keys_that_count_is_none() -> None:
    assert score(JsonMatch(only=["a"]), "{}", {"b": 1}) is None


def test_an_item_more_in_a_list_is_no_key_more() -> None:
    def score(response: str, reference: str) -> float:
        graded = JsonMatch(score="leaves", extra_keys="fine").grade(
            Rollout(response=response, ground_truth=reference)
        )
        assert isinstance(graded, Graded)
        return graded.score

    assert score('{"cities": ["Rome", "Oslo", "Bern", "Kyiv"]}', '{"cities": ["Rome"]}') == pytest.approx(0.4)
    assert score('{"cities": ["Rome"], "more": [1, 2]}', '{"cities": ["Rome"]}') == 1


def test_long_ids_are_compared_exactly() -> None:
    def score(response: str, reference: str) -> float:
        graded = JsonMatch(number_texts=True).grade(
            Rollout(response=f'{{"id": "{response}"}}', ground_truth=f'{{"id": {reference}}}')
        )
        assert isinstance(graded, Graded)
        return graded.score

    assert score("1234567890123456789", "1234567890123456789") == 1
    assert score("1234567890123456788", "1234567890123456768") == 0
    assert score(" 5 ", "5") == score("5.0", "5") == score("-7", "-7") == 1


@pytest.mark.parametrize(
    ("items", "options"),
    [
        ([{"name": "Coffee"}, {"name": "Coffee", "note": "large"}], {"extra_keys": "fine"}),
        ([100, 100.9], {"tolerance": 0.01}),
        (["5", 5, "5.0"], {"number_texts": True}),
    ],
)
def test_items_that_fit_several_are_paired_so_that_all_fit(items: list[Any], options: dict[str, Any]) -> None:
    """A list is equal to itself in any order, also where an item is near to two."""
    grader = JsonMatch(list_order=False, **options)
    for order in permutations(items):
        assert score(grader, json.dumps(order), json.dumps(items)) == 1
    assert score(grader, json.dumps([*items[:-1], "other"]), json.dumps(items)) == 0


def test_a_null_is_an_absent_key_whether_or_not_the_reference_has_others() -> None:
    """Arrow pads a row's struct only if another row has the key."""
    for padded in ({"a": 1}, {"a": 1, "b": None}, {"a": 1, "c": None}):
        for given in ('{"a": 1}', '{"a": 1, "b": null}'):
            assert score(JsonMatch(), given, padded) == 1
        assert score(JsonMatch(), '{"a": 1, "b": 2}', padded) == 0
    assert score(JsonMatch(), '{"a": 1, "b": null}', '{"a": 1}') == 0  # in text it is a value


def test_pairings_take_no_longer_than_they_may() -> None:
    """Lists in lists, none of whose leaves is right, or few."""

    class Counting(JsonMatch):
        asked = 0

        def _same(self, given: Any, wanted: Any) -> bool:
            self.asked += 1
            return super()._same(given, wanted)

    def nest(width: int, depth: int, leaf: Any) -> Any:
        return leaf if depth == 0 else [nest(width, depth - 1, leaf) for _ in range(width)]

    for wrong in (nest(4, 6, 2), [nest(4, 5, 1)] * 3 + [nest(4, 5, 2)]):
        grader = Counting(list_order=False, tolerance=0.01)
        assert score(grader, json.dumps(wrong), json.dumps(nest(4, 6, 1))) == 0
        assert grader.asked < 2_000_000
