"""Reads the tests of code as data sets have them: which form they have, and what there is to run.

A form is one of `FORMS`. What its tests are is read from their text, before any of them runs: `check` is a function that
is given the program's, `unittest` classes are run, `pytest` functions are called, `asserts` are statements that run by
themselves. Tests in which nothing would run are none.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

Form = Literal["stdio", "calls", "asserts", "check", "unittest", "pytest", "doctest", "insert", "main"]
FORMS = ("stdio", "calls", "asserts", "check", "unittest", "pytest", "doctest", "insert", "main")

LIMITS = ("time_limit", "memory_limit")
Cases = list[dict[str, Any]]


def read_cases(value: Any, function: str | None = None, entry: str | None = None) -> Cases:
    """Parse a reference's cases, each as {"input", "output"}, {"job", "output"} or {"job"}, with its limits.

    Tests of which nothing would run are {"why"}. *function*: what the cases call that say "functional" and name no
    function of their own. *entry*: what `check` is given where the reference does not say it.
    """
    if isinstance(value, str):
        data = _data(value)
        if data is None and _LIKE_TESTS.search(value):
            return [_tests(value, entry)]
        value = data
    if isinstance(value, Mapping):
        own = _limits(value)
        return [{**own, **case} for case in _of_mapping(value, _function(value) or function, entry)]
    if isinstance(value, list | tuple):
        return [case for part in value for case in _of_part(part, function, entry)]
    return []


def _data(text: str) -> Any:
    """Read a text as JSON, or as LiveCodeBench packs it; None if it is neither."""
    try:
        return json.loads(text)
    except ValueError:
        return _unpacked(text)


def _limits(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value[key] for key in LIMITS if value.get(key) is not None}


def _of_part(part: Any, function: str | None, entry: str | None) -> Cases:
    """Return the cases of one entry of a list: a text of tests, an input with its output, or more cases."""
    if isinstance(part, str):
        return [_tests(part, entry)] if part.strip() else []
    if not isinstance(part, Mapping):
        return []
    wanted = _first(part, "output", "stdout", "expected_output", "outputs")
    if wanted is None:
        return read_cases(part, function, entry)
    functional = part.get("testtype") == "functional"
    name = _function(part) or (function if functional else None)
    if functional and name is None:
        return [
            {
                "why": "the cases call a function that they do not name: give cases: the path of what holds metadata, too"
            }
        ]
    case = _pair(_first(part, "input", "stdin", "inputs"), wanted, name)
    if case is not None and "fn_name" in part:
        case = _perhaps_wrapped(case)
    return [] if case is None else [{**_limits(part), **case}]


def _function(value: Mapping[str, Any]) -> str | None:
    """Return the function that cases call, as APPS (`fn_name`) and LiveCodeBench (`metadata.func_name`) name it."""
    metadata = value.get("metadata")
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except ValueError:
            metadata = None
    name = value.get("fn_name") or (metadata.get("func_name") if isinstance(metadata, Mapping) else None)
    return name if isinstance(name, str) and name else None


_UNPACKED = 256 << 20
"""Bytes of packed cases that are read at most; the largest of LiveCodeBench have some 100 MB."""


class _PlainData(pickle.Unpickler):
    """Reads pickled text, numbers and collections; refuses whatever would call or import something."""

    def find_class(self, module: str, name: str, /) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def _unpacked(text: str) -> Any:
    """Read LiveCodeBench's `private_test_cases`: JSON, pickled, compressed and in base64; None if it is none of that."""
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(text, validate=True), _UNPACKED)
        if not unzip.eof:  # too much, or a part is missing
            return None
        found = _PlainData(io.BytesIO(data)).load()
        return json.loads(found) if isinstance(found, str) else found
    except (ValueError, zlib.error, pickle.UnpicklingError, EOFError, LookupError, TypeError, AttributeError):
        return None


_LIKE_TESTS = re.compile(r"\bassert|\bdef (?:check|test)|unittest|^[ \t]*>>> ", re.MULTILINE)


def _of_mapping(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases:
    """Return the cases of an object: those of the first form of `_OBJECTS` that it has."""
    entry = value["entry_point"] if isinstance(value.get("entry_point"), str) else entry
    found = (read(value, function, entry) for read in _OBJECTS)
    return next((cases for cases in found if cases is not None), [])


def _ds1000(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    return [_inserting(value["code_context"])] if isinstance(value.get("code_context"), str) else None


def _odex(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    if not isinstance(value.get("test_start"), str) or not isinstance(value.get("test"), list | tuple):
        return None
    return [_tests(value["test_start"] + "".join(map(str, value["test"])), entry)]


def _prime_code(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    return read_cases(value["assert_case"], function, entry) if value.get("assert_case") else None


def _two_lists(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    """Read inputs and outputs, as APPS and TACO have them."""
    inputs, outputs = value.get("inputs"), value.get("outputs")
    if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple):
        return None
    if len(inputs) != len(outputs):
        return [{"why": f"there are {len(inputs)} inputs and {len(outputs)} outputs"}]
    cases = [_pair(i, o, function) for i, o in zip(inputs, outputs, strict=True)]
    return [_perhaps_wrapped(case) for case in cases if case is not None]


def _columns(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    """Read a column of inputs and one of outputs, as CodeContests has them."""
    if not isinstance(value.get("input"), list | tuple) or not isinstance(value.get("output"), list | tuple):
        return None
    return _two_lists({"inputs": value["input"], "outputs": value["output"]}, function, entry)


def _perhaps_wrapped(case: dict[str, Any]) -> dict[str, Any]:
    """Say of an answer that is a list of one that it may be the one: so APPS has it."""
    alone = "job" in case and isinstance(case["output"], list) and len(case["output"]) == 1
    return {**case, "wrapped": True} if alone else case


def _mbpp(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    if not isinstance(value.get("test_list"), list | tuple):
        return None
    setup = value.get("test_setup_code") or "\n".join(map(str, value.get("test_imports") or ()))
    return [_tests(f"{setup}\n{test}", entry) for test in value["test_list"]]


def _texts_of_tests(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    given = next((value[key] for key in _TESTS if _holds(value.get(key))), None)
    if given is None:
        return None
    found = read_cases(given, function, entry)
    return found or ([_tests(given, entry)] if isinstance(given, str) else [])


def _nested(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    key = next((key for key in ("cases", "test_cases", "input_output") if key in value), None)
    return None if key is None else read_cases(value[key], function)


def _groups(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    groups = [value[key] for key in _GROUPS if value.get(key)]
    return [case for group in groups for case in _of_group(group, function)] if groups else None


def _one_case(value: Mapping[str, Any], function: str | None, entry: str | None) -> Cases | None:
    if _first(value, "output", "stdout", "expected_output") is None:
        return None
    return read_cases([value], function)


_OBJECTS = (
    _ds1000,
    _odex,
    _prime_code,
    _two_lists,
    _mbpp,
    _texts_of_tests,
    _nested,
    _groups,
    _columns,
    _one_case,
)
"""Readers of objects that data sets have, each for one form: the cases, or None if it is another form."""
_TESTS = ("test", "tests", "test_code", "functional")
"""Where texts of tests stand."""


def _holds(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, list | tuple | Mapping)


_GROUPS = (
    "public_tests",
    "private_tests",
    "generated_tests",
    "public_test_cases",
    "private_test_cases",
    "official_tests",
)
"""Where CodeContests, LiveCodeBench and Codeforces have their cases."""


def _of_group(group: Any, function: str | None) -> Cases:
    return read_cases(group, function)


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _tests(text: str, entry: str | None) -> dict[str, Any]:
    found = recognise(text, entry is not None)
    if found.form is None:
        return {"why": found.why}
    return {
        "job": {"kind": "tests", "form": found.form, "tests": text, "entry": entry},
        "certain": found.certain,
    }


def _inserting(text: str) -> dict[str, Any]:
    if not re.search(r"^def test_(?:execution|string)\(", text, re.MULTILINE):
        return {"why": "code_context has no test_execution"}
    return {"job": {"kind": "tests", "form": "insert", "tests": text, "entry": None}, "certain": True}


class Tests(NamedTuple):
    """What a text of tests is."""

    form: Form | None
    certain: bool = False
    """Whether some of its checks run in any case: where none did, the program has kept them from it."""
    why: str = ""
    """Why nothing in it would run."""


@lru_cache(maxsize=256)
def recognise(text: str, has_entry: bool) -> Tests:
    """Recognise the form of a text of tests, without running it. *has_entry*: whether it is known what to check."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if re.search(r"^[ \t]*>>> ", text, re.MULTILINE):
            return _doctest(text)
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return Tests(None, why=f"the tests are no Python ({type(error).__name__}{where})")
    if all(_is_text(node) for node in tree.body):
        return _doctest("\n".join(node.value.value for node in tree.body))  # type: ignore[attr-defined]
    return _of_tree(tree, has_entry)


def _of_tree(tree: ast.Module, has_entry: bool) -> Tests:
    """Recognise the form of tests that are Python."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = _all_called(tree)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    cases = _test_cases(classes)
    methods = [m for case in cases for m in _methods(case)]
    if methods and not any(map(_does_something, methods)):
        return Tests(None, why="no test of its classes checks anything")
    alone = [f for name, f in functions.items() if name.startswith("test") and name not in called]
    alone += _of_plain_classes(classes, cases)
    if alone:
        if any(isinstance(n, ast.AsyncFunctionDef) for n in tree.body):
            return Tests(None, why="the tests are asynchronous")
        return _pytest(alone, methods, _certain(cases))
    if methods:
        return Tests("unittest", _certain(cases))
    check = functions.get("check")
    if check is not None and check.args.args and "check" not in called:
        return _check(check, has_entry)
    return _asserts(tree, functions)


def _all_called(tree: ast.Module) -> set[str]:
    """Return the names that the tests call when they are loaded."""
    return {_called(node) for node in _outside(tree.body) if isinstance(node, ast.Call)}


def _of_plain_classes(
    classes: Sequence[ast.ClassDef], cases: Sequence[ast.ClassDef]
) -> list[ast.FunctionDef]:
    """Return the tests of classes that pytest takes for tests and unittest does not."""
    return [m for c in classes if c not in cases and c.name.startswith("Test") for m in _methods(c)]


def _certain(cases: Sequence[ast.ClassDef]) -> bool:
    """Whether a method of test classes that checks something runs in any case."""
    run = [m for case in cases if not _skips(case) for m in _methods(case) if not _skips(m)]
    return any(map(_does_something, run))


def _pytest(alone: Sequence[ast.FunctionDef], methods: Sequence[ast.FunctionDef], sure: bool) -> Tests:
    """Of test functions, and methods of test classes beside them. *sure*: whether one of the methods runs in any case."""
    wants = next((f"{f.name} takes {name}" for f in alone for name in _fixtures(f)), None)
    if wants is not None:
        return Tests(None, why=f"fixtures are not made: {wants}")
    if methods or any(map(_does_something, alone)):
        return Tests("pytest", sure or any(_does_something(f) and not _skips(f) for f in alone))
    return Tests(None, why="no test function checks anything")


def _check(check: ast.FunctionDef, has_entry: bool) -> Tests:
    if not has_entry:
        return Tests(None, why="check(candidate) needs an entry point: the reference has no entry_point")
    if not any(isinstance(n, ast.Name) and n.id == check.args.args[0].arg for n in ast.walk(check)):
        return Tests(None, why="check does nothing with its candidate")
    return Tests("check", True)


def _asserts(tree: ast.Module, functions: Mapping[str, ast.FunctionDef]) -> Tests:
    if any(isinstance(node, ast.Assert) for node in tree.body):
        return Tests("asserts", True)

    def checks(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Assert)
        name = _called(node)
        return "assert" in name.lower() or (name in functions and _does_something(functions[name]))

    if any(map(checks, _outside(tree.body))):
        return Tests("asserts")
    return Tests(None, why="nothing in the tests runs: they only define")


def _doctest(text: str) -> Tests:
    from doctest import DocTestParser

    try:
        examples = DocTestParser().get_examples(text)
    except ValueError as error:
        return Tests(None, why=f"the doctests cannot be read ({error})")
    if any(example.want for example in examples):
        return Tests("doctest", True)
    return Tests(None, why="no doctest says what is to come out")


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _outside(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what runs when a module does: not the bodies of what it defines."""
    left: list[ast.AST] = [*body]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield node
        left.extend(ast.iter_child_nodes(node))


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )


def _test_cases(classes: Sequence[ast.ClassDef]) -> list[ast.ClassDef]:
    """Return the classes that derive from unittest's TestCase, by whatever way."""
    names: set[str] = set()
    for node in classes:
        bases = {
            base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases
        }
        if any(base.endswith("TestCase") or base in names for base in bases):
            names.add(node.name)
    return [node for node in classes if node.name in names]


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test")]


def _skips(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether a test has a decorator by which it may not run."""
    return any("skip" in (name := ast.unparse(mark)) or "xfail" in name for mark in node.decorator_list)


def _does_something(function: ast.FunctionDef) -> bool:
    """Whether a test calls, asserts or raises anything."""
    return any(
        isinstance(node, ast.Call | ast.Assert | ast.Raise)
        for part in function.body
        for node in ast.walk(part)
    )


def _fixtures(function: ast.FunctionDef) -> list[str]:
    """Return the parameters of a test that its decorators do not give."""
    given: set[str] = {"self"}
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and _called(mark) == "parametrize" and mark.args:
            given |= {
                name
                for part in ast.walk(mark.args[0])
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                for name in re.findall(r"\w+", part.value)
            }
    without = len(function.args.args) - len(function.args.defaults)
    return [one.arg for one in function.args.args[:without] if one.arg not in given]


def compiled_cases(value: Any, language: str, is_main: Callable[[str, str], bool]) -> Cases:
    """Parse the cases of a compiled language: inputs and outputs, or tests with a `main` of their own."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    texts = [value] if isinstance(value, str) else []
    if isinstance(value, Mapping):
        texts = [value[key] for key in ("test", "tests", "test_code") if isinstance(value.get(key), str)]
    for text in texts:
        if is_main(language, text):
            return [{"main": text, "certain": False}]
    found = [case for case in read_cases(value) if "why" not in case]
    wrong = next((form_of(case) for case in found if form_of(case) != "stdio"), None)
    if wrong is not None or (texts and not found):
        what = f"the cases are {wrong}, which are Python's" if wrong else "the tests have no main"
        return [{"why": f"{what}: {language} takes inputs and outputs, or tests with a main of their own"}]
    return found


def form_of(case: Mapping[str, Any]) -> Form:
    """Return the form of a case."""
    job = case.get("job")
    if "main" in case:
        return "main"
    return "stdio" if job is None else "calls" if job["kind"] == "call" else job["form"]


def written(case: Mapping[str, Any]) -> int:
    """Return how many checks a case has as they are written: loops may run one of them several times."""
    form = form_of(case)
    if form in ("stdio", "calls"):
        return 1
    if form == "main":
        return len(re.findall(r"\bassert\b", case["main"])) or 1
    text = case["job"]["tests"]
    if form == "doctest":
        return len(re.findall(r"^[ \t]*>>> ", text, re.MULTILINE))
    tree = ast.parse(text)
    if form in ("unittest", "pytest"):
        functions = [
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test")
        ]
        return len([function for function in functions if _does_something(function)])
    asserts = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Assert) or (isinstance(n, ast.Call) and "assert" in _called(n).lower())
    ]
    return len(asserts) or 1


def _pair(given: Any, wanted: Any, function: Any) -> dict[str, Any] | None:
    if isinstance(function, str) and function:
        if isinstance(given, str):
            try:
                given = [json.loads(line) for line in given.splitlines() if line.strip()]
                wanted = json.loads(wanted) if isinstance(wanted, str) else wanted
            except ValueError:
                return None
        arguments = list(given) if isinstance(given, list | tuple) else [given]
        return {"job": {"kind": "call", "function": function, "arguments": arguments}, "output": wanted}
    return {"input": _text(given), "output": _text(wanted)}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):  # some of APPS' inputs are lists of lines
        return "\n".join(map(_text, value))
    return "" if value is None else str(value)
