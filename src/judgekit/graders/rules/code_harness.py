"""Runs a rollout's code in the sandbox: `python -I harness.py` in the folder of its files.

Sets its own limits irrevocably, reports that it has started, and runs the program as described in `job.json`. The
secret that a result must contain is read only after the code has been loaded.
"""

import ast
import contextlib
import json
import os
import resource
import secrets
import sys
import types
from typing import Any

PRELUDE = """
from typing import *
from functools import *
from collections import *
from itertools import *
from heapq import *
from bisect import *
from operator import *
from math import *
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string, sys, typing
"""
"""What the sites for which functions are written, and LiveCodeBench, import before them."""


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    for name, value in job["limits"].items():
        limit = getattr(resource, name, None)
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(limit, (value, value))
    secret = os.dup(0)  # the secret comes on standard input, unless the program's input does
    if job["kind"] != "program":
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
    begun = job.get("begun")
    if begun is None:  # a sandbox service knows only files
        with open("begun", "w") as file:
            file.write("begun")
    else:  # the program that follows cannot take this back
        os.write(begun, b"1")
        os.close(begun)
    with open("code.py", encoding="utf-8", errors="surrogatepass") as file:
        source = file.read()
    sys.setrecursionlimit(20_000)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    sys.argv = ["code.py"]
    program = job["kind"] == "program"
    module = types.ModuleType("__main__" if program else "solution")
    space: dict[str, Any] = module.__dict__
    space["__builtins__"] = __builtins__
    if not program:
        sys.modules["solution"] = module
    given: dict[str, Any] = {}
    if job["kind"] == "call":
        exec(PRELUDE, given)
        space.update({name: value for name, value in given.items() if name != "__builtins__"})
    answer: Any = None
    checks = Checks(job["tests"], job.get("form", "asserts")) if job["kind"] == "tests" else None
    if checks is None or not (answer := checks.missing()):
        if job.get("form") != "insert":
            exec(compile(source, "code.py", "exec"), space)
        if program:
            return
        if checks is not None:
            answer = checks.run(space, job.get("entry"))
        else:
            own = {name: value for name, value in space.items() if given.get(name) is not value}
            answer = function_of(own, job["function"])(*job["arguments"])
    text = json.dumps(answer, default=plain)
    if len(text) > job["answer_bytes"]:
        raise ValueError(f"the answer has more than {job['answer_bytes'] >> 10} KiB")
    with os.fdopen(secret) as file:
        said = file.read()
    with open("answer.json", "w", encoding="utf-8") as file:
        file.write(f'{{"secret": {json.dumps(said)}, "answer": {text}}}')


def function_of(space: dict[str, Any], name: str) -> Any:
    """Return a function of the program's, a method of its `Solution`, or what an expression of it gives."""
    if name in space:
        return space[name]
    if not name.isidentifier():
        return eval(name, space)
    if isinstance(space.get("Solution"), type):
        return getattr(space["Solution"](), name)
    raise NameError(f"the code defines no {name}")


class Checks:
    """Tests of one form: runs them, and counts the checks that were executed.

    Made before the program, which could put its own in the place of what checks.
    """

    def __init__(self, tests: str, form: str) -> None:
        import unittest

        self.tests, self.form, self.unittest = tests, form, unittest
        if form == "doctest":
            import doctest

            self.doctest = doctest
        self.count = 0
        self._loader = unittest.TestLoader()
        self._kept = [
            (kind, dict(vars(kind))) for kind in (unittest.TestCase, unittest.TestResult, unittest.TestSuite)
        ]

    def missing(self) -> dict[str, Any] | None:
        """Return which modules the tests import that are not installed; None if there are none."""
        from importlib.util import find_spec

        names: set[str] = set()
        if self.form != "doctest":
            for node in ast.walk(ast.parse(self.tests)):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
        lost = sorted(name for name in names if name not in sys.modules and find_spec(name) is None)
        return {"missing": lost} if lost else None

    def run(self, space: dict[str, Any], entry: str | None) -> dict[str, Any]:
        """Run the tests in the program's namespace. Raises what a failed check raises."""
        for kind, members in self._kept:  # as they were before the program
            for name, member in members.items():
                if vars(kind).get(name) is not member:
                    setattr(kind, name, member)
        if self.form == "doctest":
            self._doctest(space)
        elif self.form == "insert":
            self._insert(space)
        else:
            self._python(space, entry)
        return {"checks": self.count}

    def _python(self, space: dict[str, Any], entry: str | None) -> None:
        self.unittest.main = lambda *args, **options: None  # type: ignore[assignment]
        kept = self.unittest.TestCase.assertEqual

        def assert_equal(case: Any, first: Any, second: Any, msg: Any = None) -> None:
            kept(case, first, second, msg)
            self._equal(first, second)

        self.unittest.TestCase.assertEqual = assert_equal  # type: ignore[assignment, method-assign]
        space["__name__"] = "__main__"
        sys.modules["__main__"] = sys.modules["solution"]
        tree = self._executed(space)
        defined = [n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
        if self.form == "check":
            space["check"](function_of(space, entry or ""))
            self.count += 1
        elif self.form in ("unittest", "pytest"):
            for thing in [space[name] for name in dict.fromkeys(defined)]:
                if self._is_case(thing):
                    self._unittest(thing)
                elif self.form == "pytest":
                    self._pytest(thing)

    def _executed(self, space: dict[str, Any]) -> ast.Module:
        """Execute the tests' text, whose assertions are counted."""
        counter, equal = (f"_{secrets.token_hex(8)}" for _ in range(2))
        space[counter], space[equal] = self._counted, self._equal
        tree: ast.Module = _Counting(counter, equal).visit(ast.parse(self.tests))
        exec(compile(ast.fix_missing_locations(tree), "tests.py", "exec"), space)
        return tree

    def _counted(self) -> None:
        self.count += 1

    def _equal(self, left: Any, right: Any) -> Any:
        """Compare as `==` does; what is equal to everything is equal to nothing."""
        found = left == right
        for mine, other in ((left, right), (right, left)):
            if isinstance(type(mine).__eq__, types.FunctionType) and mine == _other_than(other):
                raise AssertionError(f"a {type(mine).__name__} is equal to everything")
        return found

    def _is_case(self, thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, self.unittest.TestCase)

    def _unittest(self, case: Any) -> None:
        result = self.unittest.TestResult()
        self._loader.loadTestsFromTestCase(case).run(result)
        failed = [*result.failures, *result.errors]
        if failed:
            raise AssertionError(failed[0][1].strip().rpartition("\n")[2])
        for test, reason in result.skipped:
            method = getattr(test, getattr(test, "_testMethodName", ""), None)
            if not any(getattr(one, "__unittest_skip__", False) for one in (type(test), method)):
                raise AssertionError(f"a test was skipped while it ran: {reason}")
        if result.unexpectedSuccesses:
            raise AssertionError("a test passed that is expected to fail")
        self.count += result.testsRun - len(result.skipped)

    def _pytest(self, thing: Any) -> None:
        if isinstance(thing, type) and thing.__name__.startswith("Test"):
            for name in [name for name in vars(thing) if name.startswith("test")]:
                one = thing()
                self._around(one, "setup_method")
                self._each(getattr(one, name))
                self._around(one, "teardown_method")
        elif not isinstance(thing, type) and thing.__name__.startswith("test"):
            self._each(thing)

    def _around(self, one: Any, name: str) -> None:
        if callable(method := getattr(one, name, None)):
            method(*[None] * (method.__code__.co_argcount - 1))

    def _each(self, function: Any) -> None:
        """Call a test once, or once for each of its parameters."""
        calls: list[dict[str, Any]] = [{}]
        for mark in getattr(function, "pytestmark", ()):
            if mark.name in ("skip", "skipif", "xfail"):
                return
            if mark.name == "parametrize":
                calls = [{**call, **given} for call in calls for given in _parameters(*mark.args[:2])]
        for call in calls:
            function(**call)
            self.count += 1

    def _doctest(self, space: dict[str, Any]) -> None:
        found = self.doctest.DocTestParser().get_doctest(self.tests, dict(space), "tests", None, 0)
        said: list[str] = []
        runner = self.doctest.DocTestRunner(verbose=False, optionflags=self.doctest.NORMALIZE_WHITESPACE)
        if runner.run(found, out=said.append).failed:
            raise AssertionError(" ".join("".join(said).split())[-120:])
        self.count += sum(bool(example.want) for example in found.examples)

    def _insert(self, space: dict[str, Any]) -> None:
        """DS-1000: the tests' text takes the program's."""
        with open("code.py", encoding="utf-8", errors="surrogatepass") as file:
            source = file.read()
        own: dict[str, Any] = {"__name__": "tests", "__builtins__": __builtins__}
        self._executed(own)
        for name in ("test_execution", "test_string"):
            if callable(own.get(name)):
                own[name](source)
                self.count += 1


def _parameters(names: Any, values: Any) -> list[dict[str, Any]]:
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = [getattr(value, "values", value) if hasattr(value, "marks") else value for value in values]
    rows = [
        row if len(names) > 1 or hasattr(value, "marks") else (row,)
        for row, value in zip(rows, values, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _other_than(value: Any) -> Any:
    """Return a value of the same kind that is another."""
    if isinstance(value, bool) or value is None:
        return object()
    if isinstance(value, int | float | complex):
        return value + 1 + secrets.randbelow(1 << 30)
    if isinstance(value, str):
        return value + secrets.token_hex(4)
    if isinstance(value, list | tuple):
        return [*value, secrets.token_hex(4)] if isinstance(value, list) else (*value, secrets.token_hex(4))
    return object()


class _Counting(ast.NodeTransformer):
    """Counts each assertion that holds; `==` in one is `Checks._equal`."""

    def __init__(self, counter: str, equal: str) -> None:
        self.counter, self.equal = counter, equal

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        node.test = _Equal(self.equal).visit(node.test)
        return [node, self._count(node)]

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call) and "assert" in _name(node.value.func).lower():
            return [node, self._count(node)]
        return node

    def _count(self, node: ast.stmt) -> ast.stmt:
        return ast.copy_location(ast.Expr(ast.Call(ast.Name(self.counter, ast.Load()), [], [])), node)


class _Equal(ast.NodeTransformer):
    """Writes `a == b` as a call."""

    def __init__(self, equal: str) -> None:
        self.equal = equal

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Eq):
            return node
        call = ast.Call(ast.Name(self.equal, ast.Load()), [node.left, node.comparators[0]], [])
        return ast.copy_location(call, node)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def plain(value: Any) -> Any:
    """Convert values that JSON cannot represent: sets to sorted lists, other iterables to lists."""
    if isinstance(value, set | frozenset):
        try:
            return sorted(value)
        except TypeError:
            return sorted(value, key=repr)
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value)


if __name__ == "__main__":
    main()
