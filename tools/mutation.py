"""Changes the core's source one place at a time and asks the tests whether they notice: `make mutation`.

    python tools/mutation.py                                  # 330 mutants, sampled over all functions
    python tools/mutation.py --mutants 2000 --only run/       # more of one package
    python tools/mutation.py --show 17                        # the diff of one mutant

One run under coverage tells which tests execute which line, and how long each takes. A mutant is a copy of the
source with one change; only the tests that execute the changed line run on it, the fastest first, up to the
first that fails. A mutant whose tests all pass has survived. Survivors that cannot be killed, because the
change does not change what anybody can see, stand in mutation_survivors.toml with the reason; they do not
count as killed. mutmut was looked at: it has no sample of a bounded length, no accepted survivors, and its
mutants do not reach the programs of worker processes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing import Queue, get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/judgekit")
MUTATED = ("run", "replay", "execution", "reward", "ledger", "trainers")
TESTS = tuple(f"tests/{name}" for name in MUTATED)
ACCEPTED = Path(__file__).with_name("mutation_survivors.toml")
IN_WORKERS = {"execution/pool_worker.py": "tests/execution/test_pool"}
"""Modules that run in other processes, where coverage does not see them, and the tests that use them."""
SLOTS = max(2, os.cpu_count() or 1)
GOALS = {"mutants": 300, "killed": 0.90}
MEMORY = 8 << 30
"""Bytes of address space of the tests of one mutant."""
BUDGET_S = 20.0
"""Of tests, measured without a mutation, that one mutant is worth."""


# ---- mutants


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    """Its path under the package."""
    function: str
    line: int
    start: int
    end: int
    """Offsets of what is replaced, in the encoded source."""
    text: str
    what: str
    """The change in words; with the line's text it names the mutant in mutation_survivors.toml."""

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
UNSEEN = ("__repr__", "__reduce__", "__str__", "__doc__", "__slots__", "__all__")
"""Functions and names that are for people, or that have another test."""
CHECKS = ("strict", "digest_size")
"""Arguments like an assertion, or of no meaning to anybody."""


class Mutator(ast.NodeVisitor):
    """Collects the mutants of one module."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.found: list[Mutant] = []
        self._names: list[str] = []
        self._source = source.encode()
        self._lines = [0]
        for line in self._source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.visit(ast.parse(source))

    def _add(self, node: Any, text: str, what: str) -> None:
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        name = ".".join(self._names) or "(module)"
        self.found.append(Mutant(self.module, name, node.lineno, start, end, text, what))

    # -- where not to look

    def _named(self, node: Any) -> None:
        if node.name in UNSEEN or _is_abstract(node):
            return
        self._names.append(node.name)
        # no decorators, no annotations, and of the arguments only the defaults
        for default in [*getattr(getattr(node, "args", None), "defaults", ())]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _named

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted is for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message."""

    # -- what to change

    def _condition(self, test: ast.expr) -> None:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
            self._add(test, f"(not ({ast.unparse(test)}))", "condition negated")

    def visit_Compare(self, node: ast.Compare) -> None:
        for i, op in enumerate(node.ops):
            changed = ast.Compare(node.left, list(node.ops), node.comparators)
            changed.ops[i] = COMPARISONS[type(op)]()
            signs = SIGNS[type(op)], SIGNS[type(changed.ops[i])]
            self._add(node, f"({ast.unparse(changed)})", "{} → {}".format(*signs))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other, what = (ast.Or(), "and → or") if isinstance(node.op, ast.And) else (ast.And(), "or → and")
        self._add(node, f"({ast.unparse(ast.BoolOp(other, node.values))})", what)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"({ast.unparse(node.operand)})", "not removed")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self._add(node, f"({ast.unparse(node.operand)})", "minus removed")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other: ast.operator | None = None
        if isinstance(node.op, ast.Add) and not _is_text(node):
            other, what = ast.Sub(), "+ → -"
        elif isinstance(node.op, ast.Sub):
            other, what = ast.Add(), "- → +"
        elif isinstance(node.op, ast.Mult) and not _is_text(node):
            other, what = ast.Div(), "* → /"
        elif isinstance(node.op, ast.Div):
            other, what = ast.Mult(), "/ → *"
        if other is not None:
            self._add(node, f"({ast.unparse(ast.BinOp(node.left, other, node.right))})", what)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not self._names:  # a constant of the module is a setting: no test is to repeat its number
            return
        if isinstance(node.value, bool):
            self._add(node, str(not node.value), f"{node.value} → {not node.value}")
        elif isinstance(node.value, int | float):
            self._add(node, f"({node.value!r} + 1)", f"{node.value!r} + 1")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
            other = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.func.id]
            self._add(node.func, other, f"{node.func.id} → {other}")
        if _is_message(node):
            return
        self.visit(node.func)
        for value in [*node.args, *(k.value for k in node.keywords if k.arg not in CHECKS)]:
            self.visit(value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not _is_none(node.value):
            self._add(node, "return None", "return None")
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_message(call):
            what = "await removed" if isinstance(node.value, ast.Await) else "call removed"
            self._add(node, "pass", what)
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._names and all(
            isinstance(t, ast.Attribute | ast.Subscript | ast.Tuple) for t in node.targets
        ):
            init = self._names[-1] == "__init__"  # without its attributes nothing works: no news
            if not init and not any(_binds_name(t) for t in node.targets):
                self._add(node, "pass", "assignment removed")
        elif any(isinstance(t, ast.Name) and t.id in UNSEEN for t in node.targets):
            return
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass", "assignment removed")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass", "raise removed")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "pass", "break removed")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "pass", "continue removed")


def _is_text(node: ast.BinOp) -> bool:
    """Whether either side is clearly text or a sequence, which cannot be subtracted."""
    kinds = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
    return any(
        isinstance(side, kinds) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _is_abstract(node: Any) -> bool:
    """Whether a function is only there to be overridden."""
    last = node.body[-1]
    return (
        isinstance(last, ast.Raise)
        and last.exc is not None
        and "NotImplementedError" in ast.unparse(last.exc)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_message(node: ast.Call) -> bool:
    """Whether the call only tells somebody something, or builds an error."""
    name = ast.unparse(node.func)
    return name.startswith(("logger.", "warnings.")) or name.endswith(("Error", "add_note"))


def _binds_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple) and any(isinstance(t, ast.Name) for t in target.elts)


def mutants_of(source_root: Path) -> list[Mutant]:
    """Every mutant of every module of the mutated packages."""
    found: list[Mutant] = []
    for package in MUTATED:
        for path in sorted((source_root / package).rglob("*.py")):
            module = path.relative_to(source_root).as_posix()
            seen = set()
            for mutant in Mutator(module, path.read_text()).found:
                if (mutant.start, mutant.end, mutant.text) not in seen:
                    seen.add((mutant.start, mutant.end, mutant.text))
                    found.append(mutant)
    return found


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them, spread over all functions: one of each in turn.

    The order is a hash of each function's and each mutant's text, so that a change somewhere else in the
    source does not change what is tried.
    """

    def rank(*parts: str) -> bytes:
        return blake2b("|".join([str(seed), *parts]).encode(), digest_size=8).digest()

    by_function: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_function[mutant.module, mutant.function].append(mutant)
    functions = [by_function[name] for name in sorted(by_function, key=lambda name: rank(*name))]
    for members in functions:
        members.sort(key=lambda m: rank(m.what, m.text))
    turns = [m for i in range(max(map(len, functions), default=0)) for f in functions for m in f[i : i + 1]]
    return sorted(turns[:count], key=lambda m: (m.module, m.start, m.what))


# ---- tests


class Chosen:
    """A pytest plugin that runs the chosen tests, in the order given."""

    def __init__(self, names: list[str], timeout_s: float) -> None:
        self.order = {name: i for i, name in enumerate(names)}
        self.timeout_s = timeout_s

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        import pytest

        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda i: self.order[i.nodeid]
        )
        for item in items:
            item.add_marker(pytest.mark.timeout(self.timeout_s), append=False)


class Recorder:
    """A pytest plugin that notes how long each test took, whether it passed, and which lines it executed."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.coverage.switch_context("")


OPTIONS = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--tb=no"]


def map_tests(shadow: Path) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Per module and line the tests that execute it, and the seconds that each test takes."""
    answers: Any = get_context("fork").SimpleQueue()
    pid = os.fork()
    if pid == 0:
        with _quiet(shadow.parent / "map.log"):
            answers.put(_record(shadow))
        os._exit(0)
    lines, seconds, failed = answers.get()
    os.waitpid(pid, 0)
    if failed:
        print(f"{len(failed)} tests fail without a mutation and are left out:", *sorted(failed), sep="\n  ")
    return lines, seconds


def _record(shadow: Path) -> tuple[Any, dict[str, float], set[str]]:
    import coverage
    import pytest

    sys.path.insert(0, str(shadow))
    os.environ["PYTHONPATH"] = str(shadow)
    cover = coverage.Coverage(
        data_file=None, config_file=False, source=[str(shadow)], messages=False, concurrency=["thread"]
    )
    recorder = Recorder(cover)
    cover.start()
    pytest.main([*OPTIONS, *TESTS], plugins=[recorder])
    cover.stop()
    data = cover.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    for file in data.measured_files():
        module = Path(file).relative_to(shadow / "judgekit").as_posix()
        lines[module] = {
            line: [c for c in contexts if c and c not in recorder.failed]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
    seconds = {name: s for name, s in recorder.seconds.items() if name not in recorder.failed}
    return lines, seconds, recorder.failed


def tests_for(
    mutant: Mutant, lines: dict[str, dict[int, list[str]]], seconds: dict[str, float], body: range
) -> list[str]:
    """The tests that execute the mutant's statement, the fastest first, within the budget."""
    module = lines.get(mutant.module, {})
    names = {name for line in body for name in module.get(line, ())}
    if mutant.module in IN_WORKERS:
        names = {name for name in seconds if name.startswith(IN_WORKERS[mutant.module])}
    elif not names:  # what runs at import, before any test: a default, a constant
        names = {name for contexts in module.values() for name in contexts}
    chosen: list[str] = []
    total = 0.0
    for name in sorted(names & set(seconds), key=lambda n: (seconds[n], n)):
        total += seconds[name]
        if chosen and total > BUDGET_S:
            break
        chosen.append(name)
    return chosen


def statement_lines(source: str, line: int) -> range:
    """The lines of the innermost statement around a line: coverage counts a statement at its first one."""
    best = range(line, line + 1)
    size = 10**9
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            end = node.end_lineno or node.lineno
            if end - node.lineno < size:
                size = end - node.lineno
                is_block = bool(getattr(node, "body", None))
                best = range(node.lineno, line + 1 if is_block else end + 1)
    return best


# ---- running them


PRELOADED = (
    "asyncio",
    "anyio._backends._asyncio",
    "anyio.pytest_plugin",
    "hypothesis.strategies",
    "hypothesis.internal.conjecture.engine",
    "msgspec.json",
    "pydantic",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "tqdm",
    "yaml",
)


def serve(slot: int, home: Path, jobs: Queue[Any], answers: Queue[Any]) -> None:
    """One slot: its own copy of the source, and a forked child per mutant with pytest loaded already."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    shadow = home / f"slot{slot}"
    shutil.copytree(ROOT / "src", shadow, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    while (job := jobs.get()) is not None:
        number, mutant, names, timeout_s, limit_s = job
        path = shadow / "judgekit" / mutant.module
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        start = time.monotonic()
        try:
            verdict = _try(shadow, names, timeout_s, limit_s)
        finally:
            path.write_bytes(source)
        answers.put((number, verdict, time.monotonic() - start))


def _try(shadow: Path, names: list[str], timeout_s: float, limit_s: float) -> str:
    """ "survived" where all tests pass, else how it was killed."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with _quiet(shadow.parent / f"{shadow.name}.log"):
            code = _run(shadow, names, timeout_s)
        os._exit(code)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _end_group(pid)
            return "survived" if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 else "killed"
        time.sleep(0.01)
    _end_group(pid)
    os.waitpid(pid, 0)
    return "timed out"


def _end_group(pid: int) -> None:
    """End what a test has left: its workers, its scripts."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _run(shadow: Path, names: list[str], timeout_s: float) -> int:
    import pytest

    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # of a mutant that counts for ever
    sys.path.insert(0, str(shadow))
    os.environ["PYTHONPATH"] = str(shadow)
    files = list(dict.fromkeys(name.split("::")[0] for name in names))
    basetemp = shadow.parent / f"{shadow.name}-tmp"
    try:
        return int(
            pytest.main(
                [*OPTIONS, "-x", f"--basetemp={basetemp}", *files], plugins=[Chosen(names, timeout_s)]
            )
        )
    except BaseException:
        return 1


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send everything that is printed to a file; only for a process that ends right after."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    yield
    sys.stdout.flush()
    sys.stderr.flush()


# ---- the account


def accepted() -> dict[tuple[str, str, str], str]:
    """Survivors that were looked at: by module, line and change, the reason."""
    if not ACCEPTED.exists():
        return {}
    rows = tomllib.loads(ACCEPTED.read_text()).get("survivor", [])
    return {(row["module"], row["line"].strip(), row["change"]): row["reason"] for row in rows}


def show(mutant: Mutant) -> str:
    """Its diff."""
    path = ROOT / PACKAGE / mutant.module
    before = path.read_bytes()
    after = mutant.apply(before)
    return "\n".join(
        difflib.unified_diff(
            before.decode().splitlines(),
            after.decode().splitlines(),
            mutant.module,
            mutant.what,
            "",
            "",
            1,
            "",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=330, help="how many to try")
    parser.add_argument("--seed", type=int, default=11, help="which of them")
    parser.add_argument("--only", default="", help="modules whose path under the package begins so")
    parser.add_argument("--show", type=int, help="print the diff of the mutant with this number, and stop")
    options = parser.parse_args()

    os.chdir(ROOT)
    began = time.monotonic()
    everything = [m for m in mutants_of(ROOT / PACKAGE) if m.module.startswith(options.only)]
    mutants = sample(everything, options.mutants, options.seed)
    if options.show is not None:
        print(show(mutants[options.show]))
        return
    functions = {(m.module, m.function) for m in mutants}
    print(f"{len(mutants)} of {len(everything)} mutants, in {len(functions)} functions", flush=True)

    with tempfile.TemporaryDirectory(prefix="judgekit-mutation-") as folder:
        home = Path(folder)
        shadow = home / "map"
        shutil.copytree(ROOT / "src", shadow, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
        lines, seconds = map_tests(shadow)
        print(f"{len(seconds)} tests mapped in {time.monotonic() - began:.0f} s", flush=True)
        verdicts = run(home, mutants, lines, seconds)
    report(mutants, verdicts, time.monotonic() - began, whole=not options.only and len(mutants) >= 300)


def run(
    home: Path, mutants: list[Mutant], lines: dict[str, dict[int, list[str]]], seconds: dict[str, float]
) -> dict[int, str]:
    """Try them all; per mutant's number what became of it."""
    context = get_context("fork")
    jobs: Any = context.Queue()
    answers: Any = context.Queue()
    slots = [context.Process(target=serve, args=(i, home, jobs, answers)) for i in range(SLOTS)]
    for slot in slots:
        slot.start()
    verdicts: dict[int, str] = {}
    sources = {m.module: (ROOT / PACKAGE / m.module).read_text() for m in mutants}
    asked = 0
    for number, mutant in enumerate(mutants):
        names = tests_for(mutant, lines, seconds, statement_lines(sources[mutant.module], mutant.line))
        if not names:
            verdicts[number] = "no test executes it"
            continue
        total = sum(seconds[name] for name in names)
        slowest = max(seconds[name] for name in names)
        jobs.put((number, mutant, names, 5 + 5 * slowest, 20 + 4 * total))
        asked += 1
    for _ in slots:
        jobs.put(None)
    for done in range(asked):
        number, verdict, _ = answers.get()
        verdicts[number] = verdict
        if done % 25 == 24:
            left = sum(v not in ("killed", "timed out") for v in verdicts.values())
            print(f"  {done + 1} of {asked} tried, {left} survive", flush=True)
    for slot in slots:
        slot.join()
    return verdicts


def report(mutants: list[Mutant], verdicts: dict[int, str], took_s: float, *, whole: bool) -> None:
    """List the survivors, then the figures as JSON; exit with 1 where they miss a goal."""
    reasons = accepted()
    survivors: dict[str, list[str]] = {"accepted": [], "not accepted": []}
    used = set()
    killed = 0
    for number, mutant in enumerate(mutants):
        verdict = verdicts[number]
        if verdict in ("killed", "timed out"):
            killed += 1
            continue
        line = (ROOT / PACKAGE / mutant.module).read_text().splitlines()[mutant.line - 1].strip()
        key = (mutant.module, line, mutant.what)
        used.add(key)
        place = f"{number:4} {mutant.module}:{mutant.line} {mutant.function}: {mutant.what}\n       {line}"
        if verdict != "survived":
            place += f"\n       {verdict}"
        if key in reasons:
            survivors["accepted"].append(f"{place}\n       {reasons[key]}")
        else:
            survivors["not accepted"].append(place)
    for kind, places in survivors.items():
        print(f"{len(places)} survivors, {kind}:")
        print(*places, sep="\n")
    share = killed / max(1, len(mutants))
    missed = [f"killed is {share:.3f}, the goal is >= {GOALS['killed']}"] if share < GOALS["killed"] else []
    if len(mutants) < GOALS["mutants"]:
        missed.append(f"mutants is {len(mutants)}, the goal is >= {GOALS['mutants']}")
    for line in missed if whole else ():
        print(f"MISSED: {line}")
    print(json.dumps({"mutants": len(mutants), "killed": round(share, 4), "seconds": round(took_s)}))
    if missed and whole:
        sys.exit(1)


if __name__ == "__main__":
    main()
