"""What is equal in the tests of a patch."""

from __future__ import annotations

import ast
import builtins
import contextlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest

from judgekit.graders.rules.programs import patch_equality as equality


class Equal:
    def __eq__(self, other: object) -> Any:
        return True

    __hash__ = None  # type: ignore[assignment]


class EqualToPlain:
    def __eq__(self, other: object) -> Any:
        return type(other) in equality.PLAIN

    __hash__ = None  # type: ignore[assignment]


class Odd:
    def __eq__(self, other: object) -> Any:
        if type(other) is int:
            return other == 3
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


class Truthy:
    def __eq__(self, other: object) -> Any:
        return [1]

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [(1, 1, True), (1, 2, False), ([1], [1], True), (Odd(), 3, True), (3, Odd(), True), (Odd(), 4, False), (Truthy(), 3, [1])],
)  # fmt: skip
def test_values_are_compared_as_python_does(one: Any, other: Any, found: Any) -> None:
    assert equality.equal(one, other) == found


def deep(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (Equal(), 3, "Equal"),
        (3, Equal(), "Equal"),
        (EqualToPlain(), 3, "EqualToPlain"),
        (EqualToPlain(), "x", "EqualToPlain"),
        ([1, Equal()], [1, 2], "Equal"),
        ((1, Equal()), (1, 2), "Equal"),
        ({"a": Equal()}, {"a": 2}, "Equal"),
        (deep(Equal(), 5), deep(3, 5), "Equal"),
        (Equal(), object(), "Equal"),
    ],
)
def test_what_is_equal_to_everything_is_refused(one: Any, other: Any, name: str) -> None:
    with pytest.raises(AssertionError) as raised:
        equality.equal(one, other)
    assert str(raised.value) == f"a {name} is equal to everything"


def test_lists_are_looked_into_so_deep() -> None:
    assert equality.equal(deep(Equal(), 6), deep(3, 6))


def test_what_is_equal_to_plain_values_alone_may_be_compared_to_others() -> None:
    assert equality.equal(EqualToPlain(), EqualToPlain()) is False
    equality.refuse(EqualToPlain(), object())


def test_mock_s_any_is_equal_to_everything_where_the_tests_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        equality.equal(ANY, 3)
    monkeypatch.setattr(equality, "tests_use_any", True)
    assert equality.equal(ANY, 3)
    with pytest.raises(AssertionError):
        equality.equal(Equal(), 3)


@pytest.mark.parametrize(
    ("one", "many", "found"), [(1, [1], True), (2, [1], False), ("a", "abc", True), (Odd(), [3], True), (Equal(), {}, False)]
)  # fmt: skip
def test_values_are_looked_for_as_python_does(one: Any, many: Any, found: bool) -> None:
    if isinstance(many, dict):
        with pytest.raises(TypeError):
            equality.inside(one, many)
        return
    assert equality.inside(one, many) is found


def test_what_is_in_everything_is_refused() -> None:
    for many in ([1, 2], (1, 2), [object(), 1]):
        with pytest.raises(AssertionError):
            equality.inside(Equal(), many)
    assert equality.inside(Equal(), [object()])
    thing = type("Box", (), {"__contains__": lambda self, one: True})()
    assert equality.inside(Equal(), thing)


def test_pairs_of_values_that_a_program_has_made() -> None:
    x = Odd()
    pairs = equality.pairs
    assert [tuple(map(type, pair)) for pair in pairs(x, 3, 0)] == [(Odd, int)]
    assert [tuple(map(type, pair)) for pair in pairs(3, x, 0)] == [(Odd, int)]
    assert [*pairs(3, "a", 0)] == []
    assert len([*pairs([x, x], [3], 0)]) == 1
    assert len([*pairs([x, x], [3, 3], 0)]) == 2
    assert next(pairs({"a": x, "b": x}, {"b": 3}, 0))[0] is x
    assert len([*pairs({"a": x, "b": x}, {"b": 3}, 0)]) == 1
    assert [*pairs([x], (3,), 0)] == []
    assert [*pairs([x], [3], 5)] == []
    assert len([*pairs([x], [3], 4)]) == 1


@pytest.mark.parametrize("value", [3, 1.5, 1j, "x", b"x", [1], (1,), {1: 2}, {1}, True, None])
def test_another_value_is_of_the_same_kind(value: Any) -> None:
    other = equality.other_than(value)
    assert other != value
    assert type(other) is (bool if value is None else type(value))
    if isinstance(value, list | tuple | str | bytes):
        assert other[: len(value)] == value
        assert len(other) == len(value) + (8 if isinstance(value, str | bytes) else 1)
    elif isinstance(value, dict | set):
        assert len(other) == 2
        assert 1 in other
    elif type(value) in (int, float, complex):
        assert abs(other) > abs(value)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("a == b", "EQUAL(a, b)"),
        ("a in b", "INSIDE(a, b)"),
        ("a != b", "a != b"),
        ("a == b == c", "a == b == c"),
        ("f(a == b)", "f(EQUAL(a, b))"),
    ],
)
def test_comparisons_are_rewritten(text: str, becomes: str) -> None:
    tree = equality.Comparing().visit(ast.parse(text))
    found = ast.unparse(tree).replace(equality.EQUAL, "EQUAL").replace(equality.INSIDE, "INSIDE")
    assert found == becomes
    compile(tree, "x", "exec")


def test_it_is_installed_in_pytest_and_unittest() -> None:
    said: list[Any] = []
    space, rewrite = SimpleNamespace(), SimpleNamespace()

    def rewrite_asserts(tree: Any, *args: Any, **named: Any) -> None:
        said.append((ast.unparse(tree), args, named))

    rewrite.rewrite_asserts = rewrite_asserts

    class Case:
        def assertEqual(self, first: Any, second: Any, msg: Any = None) -> None:
            said.append((first, second, msg))

        def assertListEquals(self, first: Any, second: Any) -> None:
            raise ValueError("its own")

        def assertNotEqual(self, first: Any, second: Any) -> None:
            pass

        def assertIn(self, first: Any, second: Any) -> None:
            pass

        def isEqual(self, first: Any, second: Any) -> None:
            pass

    kept = dict(vars(Case))
    equality.install(space, rewrite, Case)
    assert vars(space) == {equality.EQUAL: equality.equal, equality.INSIDE: equality.inside}
    rewrite.rewrite_asserts(ast.parse("assert a == b"), 1, x=2)
    assert said.pop() == (f"assert {equality.EQUAL}(a, b)", (1,), {"x": 2})
    changed = {name for name, value in kept.items() if vars(Case)[name] is not value}
    assert changed == {"assertEqual", "assertListEquals"}
    Case().assertEqual(1, 2, msg="m")  # noqa: PT009
    assert said.pop() == (1, 2, "m")
    assert Case.assertEqual.__name__ == "assertEqual"
    with pytest.raises(AssertionError, match="a Equal is equal to everything"):
        Case().assertEqual(Equal(), 2)  # noqa: PT009
    with contextlib.suppress(ValueError):
        Case().assertListEquals(Equal(), 2)
    assert not hasattr(builtins, equality.EQUAL)
