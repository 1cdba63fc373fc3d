"""The layout: imports point one way, without a circle, the root stays small, and so do functions."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import judgekit

SRC = Path(judgekit.__file__).parent
ROOTS = {"types", "errors", "version", "fork", "metrics"}
"""What every package may know."""
ALLOWED = {
    "reward": set(),
    "rollouts": set(),
    "ledger": set(),
    "execution": set(),
    "judges": {"execution", "strict_yaml"},
    "graders": {"judges", "execution"},
    "run": {"reward", "ledger", "execution", "graders"},
    "replay": {"reward", "ledger", "execution", "graders", "run"},
    "testing": {"judges", "attack"},
    "strict_yaml": set(),
    "config": {"reward", "ledger", "execution", "graders", "judges", "run", "evidence", "strict_yaml"},
    "data": {"rollouts", "ledger", "run", "replay", "config", "execution"},
    "attack": {"run", "graders", "reward", "config", "execution", "judges", "ledger"},
    "bridges": {"trainers"},
    "report": {"ledger", "reward"},
    "evidence": {"ledger", "graders", "run", "replay", "rollouts"},
    "trackers": {"run", "judges", "graders"},
    "trainers": {"reward", "rollouts", "run", "execution", "config", "ledger"},
    "service": {
        "rollouts",
        "trackers",
        "data",
        "run",
        "replay",
        "execution",
        "trainers",
        "ledger",
        "graders",
        "judges",
    },
    "cli": {
        "attack",
        "evidence",
        "report",
        "strict_yaml",
        "service",
        "data",
        "run",
        "replay",
        "execution",
        "config",
        "trainers",
        "ledger",
        "graders",
        "judges",
        "reward",
        "rollouts",
    },
}
"""For each package or root module, the others that it may import besides `ROOTS`."""


INSIDE = {
    "judges": {
        "": {"prompts", "verdicts"},
        "prompts": {"verdicts", ""},
        "verdicts": {""},
        "layers": {"prompts", "verdicts", ""},
        "engines": {"prompts", "verdicts", ""},
        "launch": {"engines", "prompts", "verdicts", ""},
    },
    "graders.rules": {
        "": {"text"},
        "answers": {""},
        "text": {""},
        "format": {"agents", ""},
        "instructions": {""},
        "agents": {""},
        "programs": {""},
    },
}
"""For each folder of a package, the others that it may import; "": the files beside the folders. Of judges, layers know no engine, and
engines no layer. Families of rules share what is beside them; `format` reads tool calls, and the rules over a group measure lengths.
A package's own front, which may name all of them, is let off."""
TWICE = {
    "judge.py": "an engine's judge, in the engine's own folder",
    "registry.py": "the names of reward.yaml, for graders and for judges",
    "turns.py": "turns of graders on the event loop, and turns of a policy",
}
"""Files of one name in several folders, with the reason."""
MOST_DECISIONS, MOST_LINES = 20, 60
"""Of one function: its cyclomatic complexity, and the lines of its body without the docstring."""


def modules() -> dict[str, Path]:
    found = {}
    for path in SRC.rglob("*.py"):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """Modules of ours that a module imports: at its top, in functions, and for type checkers."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


def part_of(name: str) -> str:
    return [*name.split("."), ""][1]


def test_imports_point_one_way() -> None:
    wrong = [
        f"{name} imports {other}"
        for name in MODULES
        for other in imports(name)
        if part_of(name) in ALLOWED and part_of(other) not in {part_of(name), *ROOTS, *ALLOWED[part_of(name)]}
    ]
    assert wrong == []


@pytest.mark.parametrize("package", INSIDE)
def test_a_package_is_laid_out_in_floors(package: str) -> None:
    before = f"judgekit.{package}."
    floors = INSIDE[package]

    def folder(name: str) -> str:
        first = name.removeprefix(before).partition(".")[0]
        return first if (SRC / package.replace(".", "/") / first).is_dir() else ""

    ours = [name for name in MODULES if name.startswith(before)]
    wrong = [
        f"{name} imports {other}"
        for name in ours
        for other in imports(name)
        if other in ours and folder(other) not in {folder(name), *floors[folder(name)]}
    ]
    assert wrong == []
    assert {folder(name) for name in ours} == floors.keys()


def test_a_file_name_tells_one_file() -> None:
    names = Counter(path.name for path in MODULES.values() if path.name not in ("__init__.py", "__main__.py"))
    assert {name for name, count in names.items() if count > 1} == TWICE.keys()


def test_the_shared_roots_know_nothing_else() -> None:
    known = {name: set(map(part_of, imports(f"judgekit.{name}"))) for name in ROOTS}
    assert all(parts <= ROOTS for parts in known.values()), known


def test_there_is_no_import_circle() -> None:
    """Type-checking imports and those inside functions count: they hide a circle, they do not end it."""
    graph = {name: set(imports(name)) - {name} for name in MODULES}
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, sorted(graph)


def test_the_root_has_at_most_nine_modules_and_no_private_ones() -> None:
    assert len(list(SRC.glob("*.py"))) <= 9
    private = [
        name
        for name in MODULES
        if any(part.startswith("_") and part != "__main__" for part in name.split("."))
    ]
    assert private == []


Function = ast.FunctionDef | ast.AsyncFunctionDef


def complexity(function: Function) -> int:
    """Count a function's decisions as radon does. Functions and classes inside it count for themselves."""
    count, left = 1, [*function.body]
    while left:
        match node := left.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.Assert():
                count += 1
                continue
            case ast.If() | ast.IfExp():
                count += 1
            case ast.BoolOp():
                count += len(node.values) - 1
            case ast.For() | ast.AsyncFor() | ast.While():
                count += 1 + bool(node.orelse)
            case ast.comprehension():
                count += 1 + len(node.ifs)
            case ast.Try():
                count += len(node.handlers) + bool(node.orelse)
            case ast.Match():
                others = any(isinstance(c.pattern, ast.MatchAs) and not c.pattern.pattern for c in node.cases)
                count += len(node.cases) - others
        left.extend(ast.iter_child_nodes(node))
    return count


def length(function: Function) -> int:
    body = function.body[ast.get_docstring(function) is not None :]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_stay_small() -> None:
    files = [*SRC.rglob("*.py"), *Path(__file__).parent.parent.glob("adapters/*/src/**/*.py")]
    wrong = [
        f"{path}:{node.lineno} {node.name}: complexity {complexity(node)}, {length(node)} lines"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function) and (complexity(node) > MOST_DECISIONS or length(node) > MOST_LINES)
    ]
    assert wrong == []


def test_no_package_is_shadowed_by_a_function() -> None:
    import judgekit.graders.protocol as protocol

    assert protocol.__file__ is not None
    for name in judgekit.__all__:
        assert f"judgekit.{name}" not in MODULES, name
