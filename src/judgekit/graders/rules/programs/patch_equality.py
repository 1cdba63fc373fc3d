"""Compares what a patched program gives in its tests: an object that is equal to everything is equal to nothing.

It runs in the sandbox, in names of its own, and knows nothing of the harness: the patch can find it.
"""

import ast
import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

PLAIN = (int, float, complex, bool, str, bytes, type(None), list, tuple, dict, set, frozenset)
_MOST = 10_000
"""Members of lists that are looked at, at most."""

tests_use_any = False
"""Whether the tests themselves use `mock.ANY`, which is equal to everything."""


class Other:
    """Something that nothing is equal to."""


def equal(one: Any, other: Any) -> Any:
    """Return `one == other`. Raises AssertionError if that says nothing."""
    found = one == other
    if found is True:
        refuse(one, other)
    return found


def inside(one: Any, many: Any) -> Any:
    """Return `one in many`. Raises AssertionError if that says nothing."""
    found = one in many
    if found is True and type(one) not in PLAIN and type(many) in (list, tuple):
        for other in many[:_MOST]:
            if type(other) in PLAIN:
                refuse(one, other)
    return found


def refuse(one: Any, other: Any) -> None:
    """Raise AssertionError if one of two values is equal to everything, also where lists and mappings hold them."""
    for mine, theirs in pairs(one, other, 0):
        if type(mine) in PLAIN or (tests_use_any and type(mine).__module__ == "unittest.mock"):
            continue
        others = [Other()] if type(theirs) not in PLAIN else [Other(), other_than(theirs)]
        for another in others:
            with contextlib.suppress(Exception):
                if (mine == another) is True:
                    break
        else:
            continue
        raise AssertionError(f"a {type(mine).__name__} is equal to everything")


def pairs(one: Any, other: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    if type(one) is type(other) and type(one) in (list, tuple, dict) and depth < 5:
        keys = list(one)[:_MOST] if type(one) is dict else range(min(len(one), len(other), _MOST))
        for key in keys:
            if type(one) is not dict or key in other:
                yield from pairs(one[key], other[key], depth + 1)
        return
    if type(one) not in PLAIN:
        yield one, other
    if type(other) not in PLAIN:
        yield other, one


def other_than(value: Any) -> Any:
    """Return a plain value of the same kind that is another."""
    token = secrets.token_hex(4)
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float | complex):
        return value + 1 + secrets.randbelow(1 << 30)
    if isinstance(value, str):
        return value + token
    if isinstance(value, bytes):
        return value + token.encode()
    if isinstance(value, list):
        return [*value, token]
    if isinstance(value, tuple):
        return (*value, token)
    if isinstance(value, dict):
        return {**value, token: token}
    return {*value, token}


EQUAL, INSIDE = (f"equal_{secrets.token_hex(4)}", f"inside_{secrets.token_hex(4)}")


class Comparing(ast.NodeTransformer):
    """Puts `equal` in the place of `==`, and `inside` in that of `in`."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        how = {ast.Eq: EQUAL, ast.In: INSIDE}.get(type(node.ops[0]))
        if how is None or len(node.ops) > 1:
            return node
        made = ast.Call(ast.Name(how, ast.Load()), [node.left, node.comparators[0]], [])
        return ast.fix_missing_locations(ast.copy_location(made, node))


def install(builtins: Any, rewrite: Any, case: Any) -> None:
    """Compare so in the tests that pytest rewrites, and in unittest's `assertEqual` and its like."""
    setattr(builtins, EQUAL, equal)
    setattr(builtins, INSIDE, inside)
    asserts = rewrite.rewrite_asserts

    def rewritten(tree: Any, *args: Any, **named: Any) -> None:
        Comparing().visit(tree)
        asserts(tree, *args, **named)

    rewrite.rewrite_asserts = rewritten
    for name in [
        name for name in vars(case) if name.startswith("assert") and name.endswith(("Equal", "Equals"))
    ]:
        if "Not" not in name:
            setattr(case, name, refusing(vars(case)[name]))


def refusing(kept: Any) -> Any:
    def asserting(self: Any, first: Any, second: Any, *args: Any, **named: Any) -> Any:
        kept(self, first, second, *args, **named)
        refuse(first, second)

    asserting.__name__ = kept.__name__
    return asserting
