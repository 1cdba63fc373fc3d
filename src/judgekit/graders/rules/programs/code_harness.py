"""Runs a rollout's code in the sandbox: `python -I harness.py` in the folder of its files.

Sets its own limits irrevocably, reports that it has started, and runs the program as described in `job.json`. What a
program must not see (this file, the tests, the secret that a result must contain) is in no file, no module and no
descriptor while it runs; for tests, a hook keeps it from the frames of its callers, and what it has changed of the
libraries is put back.
"""

import ast
import builtins
import collections
import contextlib
import copy
import importlib
import itertools
import json
import operator
import os
import re
import resource
import secrets
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
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

PROGRAM, TESTS = "code.py", "<tests>"
"""The files that the program's frames, and those of the tests, say they come from."""


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    for name, value in job["limits"].items():
        if job.get("language") == "java" and name in ("RLIMIT_AS", "RLIMIT_NPROC"):
            continue  # a Java machine reserves what it never uses, and has many threads; all its processes are watched
        limit = getattr(resource, name, None)
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(limit, (value, value))
    program = job["kind"] in ("program", "compiled")
    said = ""
    if not program:  # the secret comes on standard input, unless the program's input does
        with os.fdopen(os.dup(0)) as file:
            said = file.read()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
    with open("code.py", encoding="utf-8", errors="surrogatepass") as file:
        source = file.read()
    for name in ("job.json", "code.py", "harness.py"):
        with contextlib.suppress(OSError):
            os.unlink(name)
    begun = job.get("begun")
    if begun is None:  # a sandbox service knows only files
        with open("begun", "w") as file:
            file.write("begun")
    else:  # the program that follows cannot take this back
        os.write(begun, b"1")
        os.close(begun)
    sys.setrecursionlimit(20_000)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    sys.argv = ["code.py"]
    if job["kind"] == "compiled":
        execute(job)
    if program:
        run(source, types.ModuleType("__main__"))
        return
    if "runner" in job:  # a job that brings its own way to run, in these names
        exec(builtins.compile(job.pop("runner"), "<runner>", "exec"), globals())
    kinds = {"tests": tests, "call": call, "compile": compiled, "patch": globals().get("patched")}
    answer = kinds[job["kind"]](source, job)  # type: ignore[misc]
    text = json.dumps(answer, default=plain)
    if len(text) > job["answer_bytes"]:
        raise ValueError(f"the answer has more than {job['answer_bytes'] >> 10} KiB")
    with open("answer.json", "w", encoding="utf-8") as file:
        file.write(f'{{"secret": {json.dumps(said)}, "answer": {text}}}')


def compiled(source: str, job: dict[str, Any]) -> dict[str, Any]:
    """Compile a program. Returns what was made, in base64, or what the compiler said."""
    import base64
    import shutil
    import subprocess

    command = job["command"]
    if shutil.which(command[0]) is None:
        return {"missing": [command[0]]}
    for name, text in job["files"].items():
        with open(name, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    before = {*os.listdir(".")} - {"program"}
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").splitlines()
        return {"problem": next((line for line in said if "error" in line), "it does not compile")[:200]}
    made = {}
    for name in {*os.listdir(".")} - before:
        with open(name, "rb") as binary:
            made[name] = base64.b64encode(binary.read()).decode()
    return {"made": made}


def execute(job: dict[str, Any]) -> None:
    """Become a program that was compiled before."""
    import base64

    for name, data in job["files"].items():
        with open(name, "wb") as file:
            file.write(base64.b64decode(data))
        os.chmod(name, 0o700)
    os.execvp(job["command"][0], job["command"])


def run(source: str, module: types.ModuleType) -> None:
    """Execute the program as a module."""
    module.__dict__["__builtins__"] = builtins
    sys.modules.setdefault(module.__name__, module)
    exec(compile(source, PROGRAM, "exec"), module.__dict__)


def call(source: str, job: dict[str, Any]) -> Any:
    """Return what a function of the program's gives for the job's arguments."""
    module = sys.modules["solution"] = types.ModuleType("solution")
    given: dict[str, Any] = {}
    exec(PRELUDE, given)
    module.__dict__.update({name: value for name, value in given.items() if name != "__builtins__"})
    run(source, module)
    own = {name: value for name, value in vars(module).items() if given.get(name) is not value}
    return function_of(own, job["function"])(*job["arguments"])


def function_of(space: dict[str, Any], name: str) -> Any:
    """Return a function of the program's, a method of its `Solution`, or what an expression of it gives."""
    if name in space:
        return space[name]
    if not name.isidentifier():
        return eval(name, space)
    if isinstance(space.get("Solution"), type):
        return getattr(space["Solution"](), name)
    raise NameError(f"the code defines no {name}")


def tests(source: str, job: dict[str, Any]) -> dict[str, Any]:
    """Run the program, and its tests. Returns how many checks were executed; raises what a failed check raises.

    What is made here is made before the program is loaded, and is no class, which a program could find among the
    subclasses of another.
    """
    form, text, entry = job.get("form", "asserts"), job["tests"], job.get("entry") or ""
    written = ast.parse("" if form == "doctest" else text)
    modules = imported(written)
    if lost := sorted({top for name in modules if not there(top := name.partition(".")[0])}):
        return {"missing": lost}
    for name in (*modules, *_USED, *(["doctest"] if form == "doctest" else [])):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    counted = checking(space)
    code = compile(text_of(written), TESTS, "exec")
    module = sys.modules["solution"] = sys.modules["__main__"] = types.ModuleType("solution")
    put_back, changed = keeping(modules)
    hide()
    if form != "insert":
        reaches(source)
        run(source, module)
        put_back()
        names = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        space.update({name: names[name] for name in names.keys() - shadowing(written, names, entry)})
    if form == "doctest":
        doctested(text, space)
    else:
        exec(code, space)
        defined = [n.name for n in written.body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
        executed(form, space, dict.fromkeys(defined), entry, source)
    if what := changed(stored(written)):
        raise AssertionError(f"the program changed {what}")
    put_back()
    return {"checks": counted()}


_USED = (
    "unittest",
    "copy",
    "datetime",
    "decimal",
    "difflib",
    "fractions",
    "pprint",
    "random",
    "re",
    "string",
)
_COUNT, _COMPARE, _MINUS, _GIVEN = (f"_{secrets.token_hex(8)}" for _ in range(4))
"""What the tests call these, in their own namespace."""


def imported(tree: ast.Module) -> list[str]:
    """Return the modules that the tests import."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return sorted(names - {"solution", "__main__", "__future__"})


def there(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None


def stored(tree: ast.Module) -> set[str]:
    """Return the attributes that the tests set themselves."""
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}


def shadowing(tree: ast.Module, names: dict[str, Any], entry: str) -> set[str]:
    """Return the names of builtins that a program defines and the tests do not mean: `def abs(x): return 0`."""
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} & {*names}
    meant = {n.id for n in ast.walk(ast.parse(entry or "0")) if isinstance(n, ast.Name)}
    others = {name for name in used if not hasattr(builtins, name)}
    return {name for name in names if hasattr(builtins, name) and name not in meant and (others or meant)}


def reaches(source: str) -> None:
    """Raise AssertionError if a program names what leads only to those who call it."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(source)):
            said = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", "")
            if isinstance(said, str) and (found := [name for name in _LEADS if name in said]):
                raise AssertionError(f"the program reaches for its tests by {found[0]}")


_LEADS = (
    "__subclasses__",
    "__globals__",
    "__closure__",
    "f_back",
    "f_locals",
    "f_globals",
    "tb_frame",
    "gi_frame",
)


def hide() -> None:
    """Keep the program from the frames of its callers, from the tests' code, and from what the collector knows."""
    getframe, ident, busy = sys._getframe, threading.get_ident, set[int]()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in _AUDITED and not event.startswith("ctypes."):
            return
        me = ident()
        if me in busy:
            return
        busy.add(me)
        try:
            leads_there = leads(event, args, getframe(1))
        finally:
            busy.discard(me)
        if leads_there:
            raise RuntimeError(f"the program reaches for its tests by {event}")

    sys.addaudithook(hook)


_HERE = globals()
_ROOTS = (os.path.dirname(os.__file__), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def trusted(frame: Any) -> bool:
    return frame is None or frame.f_globals is _HERE or known(frame.f_code.co_filename)


TRUSTED = set[str]()
"""Files of a repository that no patch has touched."""


def known(name: str) -> bool:
    return name == TESTS or name in TRUSTED or name.startswith(("<frozen ", *_ROOTS))


def acting(frame: Any) -> bool:
    """Whether a frame of the program's is on the way to the tests."""
    while frame is not None and frame.f_globals is not _HERE and frame.f_code.co_filename != TESTS:
        if not trusted(frame):
            return True
        frame = frame.f_back
    return False


def handed(frame: Any) -> bool:
    """Whether a frame would be handed to the program."""
    code = frame.f_code
    if not trusted(frame) or code.co_filename.endswith("/inspect.py"):
        return acting(frame)
    return code.co_name in ("currentframe", "walk_tb", "walk_stack") and not trusted(frame.f_back)


def leads(event: str, args: tuple[Any, ...], frame: Any) -> bool:
    """Whether what a frame does would lead the program to its tests."""
    if event == "sys._getframe":
        return handed(frame)
    if event in ("object.__getattr__", "object.__setattr__"):
        return leads_by_attribute(event, args, frame)
    if event in ("compile", "code.__new__"):
        name = args[1]
        name = os.fsdecode(name) if isinstance(name, str | bytes) else ""
        return known(name) and acting(frame) and not trusted_loader(frame)
    if event in ("sys.settrace", "sys.setprofile"):
        return acting(frame) and not frame.f_code.co_filename.endswith("/doctest.py")
    if event == "open":
        return isinstance(args[0], str) and args[0].startswith("/proc/") and (acting(frame) or relayed(frame))
    if event.startswith(("gc.", "sys._current", "sys.addaudithook")):
        return acting(frame) or relayed(frame)
    while frame is not None and "ctypes" in frame.f_code.co_filename:
        frame = frame.f_back
    return not trusted(frame) or (event.startswith("ctypes.") and relayed(frame, _THREADS))


def leads_by_attribute(event: str, args: tuple[Any, ...], frame: Any) -> bool:
    """Whether an attribute that is read or set is a frame, or what a function of the tests or the libraries is made of."""
    if args[1] in ("tb_frame", "gi_frame", "cr_frame", "ag_frame"):
        return handed(frame)
    owner: Any = getattr(args[0], "__code__", None) if args[1] in _OF_FUNCTIONS else None
    theirs = owner is not None and (owner.co_filename == TESTS or event != "object.__getattr__")
    # a repository's own code may change its own functions, also while a file of the patch is loaded
    return theirs and known(owner.co_filename) and (not trusted(frame) if TRUSTED else acting(frame))


_THREADS = ("/threading.py", "/thread.py", "/events.py", "/sched.py")


def relayed(frame: Any, by: tuple[str, ...] = (".py",)) -> bool:
    """Whether the standard library calls for somebody else, whose frame may be in another thread."""
    name = frame.f_code.co_filename if frame is not None else ""
    return name.startswith(_ROOTS[0]) and "site-packages" not in name and name.endswith(by)


def trusted_loader(frame: Any) -> bool:
    name = frame.f_code.co_filename
    return (
        name.startswith("<frozen importlib") or name.endswith("/_pytest/assertion/rewrite.py")
    ) and trusted(frame)


_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
_AUDITED = {
    "sys._getframe", "sys._current_frames", "sys._current_exceptions", "sys.settrace", "sys.setprofile", "sys.addaudithook",
    "sys.monitoring.register_callback", "gc.get_objects", "gc.get_referrers", "gc.get_referents", "object.__getattr__",
    "object.__setattr__", "compile", "code.__new__", "open", "marshal.loads",
}  # fmt: skip


def keeping(
    imports: list[str], only: tuple[str, ...] | None = None
) -> tuple[Callable[[], None], Callable[[set[str]], str]]:
    """Keep what libraries are before the program. Returns what puts it back, and what says what has changed.

    *only*: the top names of those to keep; by default the standard library's, and what the tests import.
    """
    tops = {name.partition(".")[0] for name in imports}
    watched: dict[str, types.ModuleType] = {}
    for name, module in [*sys.modules.items()]:
        top = name.partition(".")[0]
        theirs = (
            name in imports or (top in tops and "testing" in name) or (top == "_pytest" and "pytest" in tops)
        )
        if (top in only) if only else (top in sys.stdlib_module_names and top not in _THEIRS) or theirs:
            watched[name] = module
    kept: list[tuple[Any, dict[str, Any]]] = []
    for name, module in watched.items():
        kept.append((module, dict(vars(module))))
        classes = {id(v): v for v in vars(module).values() if isinstance(v, type) and v.__module__ == name}
        kept += [(one, dict(vars(one))) for one in classes.values()]

    def differences() -> Iterator[tuple[Any, str, Any]]:
        for thing, members in kept:
            now = vars(thing)
            for name, value in members.items():
                if not one_member(now.get(name), value) and (callable(value) or isinstance(value, _BOUND)):
                    yield thing, name, value
            for name in now.keys() - members.keys() - {"_"}:
                member = callable(now[name]) or isinstance(now[name], _BOUND)
                if hasattr(builtins, name) or (isinstance(thing, type) and member):
                    yield thing, name, None

    def put_back() -> None:
        sys.modules.update(watched)
        for thing, name, value in [*differences()]:
            with contextlib.suppress(AttributeError, TypeError):
                setattr(thing, name, value) if value is not None else delattr(thing, name)

    def changed(by_tests: set[str]) -> str:
        for name, module in watched.items():
            if sys.modules.get(name) is not module:
                return name
        found = (f"{thing.__name__}.{name}" for thing, name, _ in differences() if name not in by_tests)
        return next(found, "")

    return put_back, changed


def one_member(one: Any, other: Any) -> bool:
    """Whether two members are one, or properties of one function: pytest makes some of its own again."""
    return one is other or (type(one) is type(other) is property and one.fget is other.fget)


_BOUND = (classmethod, staticmethod, property)
_THEIRS = (
    "sys",
    "os",
    "__main__",
    "signal",
    "threading",
    "warnings",
    "logging",
    "locale",
    "pydoc",
    "tempfile",
    "asyncio",
    "multiprocessing",
    "concurrent",
)
"""Modules that programs may change for reasons of their own."""


def checking(space: dict[str, Any]) -> Callable[[], int]:
    """Give the tests' namespace what their checks go by. Returns how many have been executed.

    A program's object does not decide what it is equal to, unless it is compared to another one of the program's.
    """
    count = 0

    def counted(more: int = 1) -> None:
        nonlocal count
        count += more

    space.update({_COUNT: counted, _COMPARE: compared, _MINUS: minus, _GIVEN: given})
    unittest: Any = sys.modules["unittest"]
    case = unittest.TestCase
    unittest.main = lambda *args, **options: None
    for name in [name for name in vars(case) if name.startswith("assert")]:
        if not re.match("assert_?(?:Is|True|False|Raises|Warns|Logs|NoLogs|Regex)", name):
            setattr(case, name, _asserting(vars(case)[name], given))
    return lambda: count


def _asserting(kept: Any, given: Callable[..., list[Any]]) -> Any:
    def asserting(self: Any, *args: Any, **named: Any) -> Any:
        return kept(
            self, *given(*args[:2]), *args[2:], **dict(zip(named, given(*named.values()), strict=True))
        )

    asserting.__name__ = kept.__name__
    return asserting


_SCALARS: set[type] = {int, float, complex, bool, str, bytes, type(None)}
_PLAIN: set[type] = {*_SCALARS, list, tuple, dict, set, frozenset, range, collections.deque}
_mro_of: Any = type.__dict__["__mro__"].__get__
_dict_of: Any = type.__dict__["__dict__"].__get__
_SLOTS = (types.WrapperDescriptorType, types.MethodDescriptorType)
_BY: dict[str, Any] = {
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}


def own(value: Any, name: str) -> Any:
    """Return the method of a value's class that is no builtin one."""
    for kind in _mro_of(type(value)):
        if name in (members := _dict_of(kind)):
            return None if isinstance(members[name], _SLOTS) else members[name]
    return None


def made(value: Any, name: str = "__eq__") -> bool:
    """Whether it is the program that decides what a value is equal to."""
    method = own(value, name)
    if method is None:
        return False
    if type(method) is not types.FunctionType:
        return True
    return not method.__code__.co_filename.startswith((TESTS, "<frozen ", *_ROOTS))


def base(value: Any) -> Any:
    """Return a value without what the program's classes make of it, where it is one of Python's."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    kinds = _mro_of(kind)
    for one, plainer in _PLAINER:
        if one in kinds:
            return plainer(value, base) if kind is not one or mixed(value, kind) else value
    return value


def mixed(value: Any, kind: Any) -> bool:
    inside = {*map(type, value)} | ({*map(type, value.values())} if kind is dict else set())
    return not inside <= _SCALARS


def decides(mine: Any, other: Any, name: str) -> bool:
    return type(other) in _PLAIN and type(mine) not in _PLAIN and made(mine, name)


def refuse(mine: Any, other: Any) -> None:
    """Raise AssertionError if a value is equal to everything."""
    if type(mine) in _PLAIN or own(mine, "__eq__") is None:
        return
    same = False
    with contextlib.suppress(Exception):
        same = bool(mine == other_than(other))
    if same:
        raise AssertionError(f"a {type(mine).__name__} is equal to everything")


def inside(left: Any, right: Any) -> bool | None:
    """Compare what lists, tuples and dicts hold, where that is not only plain values; None for all else."""
    kind = type(left)
    if kind is not type(right) or kind not in (list, tuple, dict):
        return None
    if not mixed(left, kind) and not mixed(right, kind):
        return None
    if kind is dict:
        return left.keys() == right.keys() and all(compared("eq", left[key], right[key]) for key in left)
    return len(left) == len(right) and all(
        one is other or compared("eq", one, other) for one, other in zip(left, right, strict=True)
    )


def compared(how: str, left: Any, right: Any) -> Any:
    left, right = base(left), base(right)
    if how in ("In", "NotIn"):
        if not made(left) or type(right) not in _PLAIN:
            return _BY[how](left, right)
        return any(left is one or compared("eq", left, one) for one in right) == (how == "In")
    if how in ("eq", "ne") and (found := inside(left, right)) is not None:
        return found == (how == "eq")
    for mine, other in ((left, right), (right, left)):
        if how in ("eq", "ne"):
            if decides(mine, other, "__eq__") or decides(mine, other, "__ne__"):
                return how == "ne"
            refuse(mine, other)
        elif decides(mine, other, f"__{how}__") or decides(mine, other, f"__{_TURNED[how]}__"):
            raise AssertionError(f"a {type(mine).__name__} decides itself what it is compared to")
    return _BY[how](left, right)


def minus(left: Any, right: Any) -> Any:
    left, right = base(left), base(right)
    if decides(left, right, "__sub__") or decides(right, left, "__rsub__"):
        raise AssertionError("an object of the program decides itself how far off it is")
    return left - right


def given(*values: Any) -> list[Any]:
    values = tuple(map(base, values))
    for mine, other in itertools.permutations(values[:2], 2):
        if decides(mine, other, "__eq__"):
            raise AssertionError(f"a {type(mine).__name__} decides itself what it is equal to")
        refuse(mine, other)
    return [*values]


_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_PLAINER: tuple[tuple[Any, Callable[[Any, Callable[[Any], Any]], Any]], ...] = (
    (int, lambda value, base: int.__int__(value)),
    (float, lambda value, base: float.__float__(value)),
    (str, lambda value, base: str.__str__(value)),
    (list, lambda value, base: [base(one) for one in list.__iter__(value)]),
    (tuple, lambda value, base: tuple([base(one) for one in tuple.__iter__(value)])),
    (dict, lambda value, base: {base(key): base(one) for key, one in dict.items(value)}),
    (set, lambda value, base: {base(one) for one in set.__iter__(value)}),
    (frozenset, lambda value, base: frozenset([base(one) for one in frozenset.__iter__(value)])),
    (collections.deque, lambda value, base: collections.deque([base(one) for one in collections.deque.__iter__(value)])),
)  # fmt: skip
"""Python's own kinds, and how a value of a class derived from one becomes one."""


def text_of(tree: ast.Module) -> ast.Module:
    """Return the tests' text with each assertion counted, and what it compares as `compared` does."""

    class Checking(ast.NodeTransformer):
        inside = 0

        def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
            self.inside += 1
            self.generic_visit(node)
            self.inside -= 1
            return [node, _called(node)]

        def visit_Expr(self, node: ast.Expr) -> Any:
            asserts = isinstance(node.value, ast.Call) and "assert" in _name(node.value.func).lower()
            self.inside += asserts
            self.generic_visit(node)
            self.inside -= asserts
            if not asserts:
                return node
            assert isinstance(node.value, ast.Call)
            args = node.value.args
            if (
                isinstance(node.value.func, ast.Attribute)
                and len(args) > 1
                and _name(node.value.func.value) != "self"
            ):
                node.value.args = [ast.Starred(_call(_GIVEN, *args[:2]), ast.Load()), *args[2:]]
            return [node, _called(node)]

        def visit_Compare(self, node: ast.Compare) -> ast.expr:
            self.generic_visit(node)
            how = _HOW.get(type(node.ops[0]))
            calls = any(isinstance(one, ast.Call) for one in (node.left, *node.comparators))
            if how is None or len(node.ops) > 1 or not (self.inside or calls):
                return node
            return ast.copy_location(_call(_COMPARE, ast.Constant(how), node.left, node.comparators[0]), node)

        def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
            self.generic_visit(node)
            if not self.inside or not isinstance(node.op, ast.Sub):
                return node
            return ast.copy_location(_call(_MINUS, node.left, node.right), node)

    changed: ast.Module = Checking().visit(copy.deepcopy(tree))
    return ast.fix_missing_locations(changed)


_HOW: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.In: "In", ast.NotIn: "NotIn",
}  # fmt: skip


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [*args], [])


def _called(node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Expr(_call(_COUNT)), node)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def executed(form: str, space: dict[str, Any], defined: Iterable[str], entry: str, source: str) -> None:
    """Run what the tests' text has defined."""
    count = space[_COUNT]
    if form == "check":
        space["check"](function_of(space, entry))
        count()
    elif form == "insert":  # DS-1000: the tests' text takes the program's
        for name in ("test_execution", "test_string"):
            if callable(space.get(name)):
                space[name](source)
                count()
    elif form in ("unittest", "pytest"):
        for name in ("setUpModule", "setup_module"):
            if callable(space.get(name)):
                space[name]()
        for thing in [space[name] for name in defined]:
            if isinstance(thing, type) and issubclass(thing, sys.modules["unittest"].TestCase):
                count(_unittest(thing))
            elif form == "pytest":
                _pytest(thing, count)


def _unittest(case: Any) -> int:
    unittest: Any = sys.modules["unittest"]
    result = unittest.TestResult()
    unittest.TestLoader().loadTestsFromTestCase(case).run(result)
    failed = [*result.failures, *result.errors]
    if failed:
        raise AssertionError(failed[0][1].strip().rpartition("\n")[2])
    for test, reason in result.skipped:
        method = getattr(test, getattr(test, "_testMethodName", ""), None)
        if not any(getattr(one, "__unittest_skip__", False) for one in (type(test), method)):
            raise AssertionError(f"a test was skipped while it ran: {reason}")
    if result.unexpectedSuccesses:
        raise AssertionError("a test passed that is expected to fail")
    return int(result.testsRun) - len(result.skipped)


def _pytest(thing: Any, count: Callable[[], None]) -> None:
    if isinstance(thing, type) and thing.__name__.startswith("Test"):
        for name in [name for name in vars(thing) if name.startswith("test")]:
            one = thing()
            _around(one, "setup_method")
            _each(getattr(one, name), count)
            _around(one, "teardown_method")
    elif not isinstance(thing, type) and thing.__name__.startswith("test"):
        _each(thing, count)


def _around(one: Any, name: str) -> None:
    if callable(method := getattr(one, name, None)):
        method(*[None] * (method.__code__.co_argcount - 1))


def _each(function: Any, count: Callable[[], None]) -> None:
    """Call a test once, or once for each of its parameters."""
    calls: list[dict[str, Any]] = [{}]
    for mark in getattr(function, "pytestmark", ()):
        if mark.name in ("skip", "skipif", "xfail"):
            return
        if mark.name == "parametrize":
            calls = [{**call, **given} for call in calls for given in _parameters(*mark.args[:2])]
    for call in calls:
        function(**call)
        count()


def _parameters(names: Any, values: Any) -> list[dict[str, Any]]:
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = [getattr(value, "values", value) if hasattr(value, "marks") else value for value in values]
    rows = [
        row if len(names) > 1 or hasattr(value, "marks") else (row,)
        for row, value in zip(rows, values, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in rows]


def doctested(text: str, space: dict[str, Any]) -> None:
    doctest = sys.modules["doctest"]
    found = doctest.DocTestParser().get_doctest(text, dict(space), "tests", None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    if runner.run(found, out=said.append).failed:
        raise AssertionError(" ".join("".join(said).split())[-120:])
    space[_COUNT](sum(bool(example.want) for example in found.examples))


def other_than(value: Any) -> Any:
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


# what a program makes of builtins while its tests run is not what this file goes by
globals().update({name: value for name, value in vars(builtins).items() if not name.startswith("__")})

if __name__ == "__main__":
    main()
