"""Which tests execute which line, and what the tests say of a mutant.

One run of a room's quick tests under coverage tells which of them execute which line, and how long each takes. A mutant is a copy
of the source with one change; only the tests that execute the changed line run on it, the fastest first, up to the first
that fails. The map is kept under .work/ until source or tests change.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from multiprocessing import Queue, get_context
from pathlib import Path
from typing import Any, NamedTuple

from mutation.operators import Mutant
from mutation.rooms import ROOT, Room
from slow_tests import mark_slow

SLOTS = max(2, os.cpu_count() or 1)
MEMORY = 8 << 30
"""Bytes of address space of the tests of one mutant."""
BUDGET_S = 20.0
"""Of tests, measured without a mutation, that one mutant is worth."""
FAR_BUDGET_S = 90.0
"""The same where coverage does not tell which tests execute a line, for it runs in another process."""
_VERL = ("adapters/verl/tests/test_groups.py", "adapters/verl/tests/test_other_trainers.py")
IN_OTHER_PROCESSES: dict[str, str | tuple[str, ...]] = {
    "judgekit/execution/pool_worker.py": "tests/execution/test_pool",
    "judgekit/graders/rules/programs/code_harness.py": "tests/graders/test_code",
    "judgekit/graders/rules/programs/patch_harness.py": "tests/graders/test_patch",
    "judgekit/judges/engines/ray/actor.py": "tests/vllm/test_ray.py",
    "judgekit_skyrl/main_train.py": "adapters/skyrl/tests/test_main_train.py",
    "judgekit_skyrl/service.py": "adapters/skyrl/tests/test_service.py",
    "judgekit_verl/curves.py": _VERL,
    "judgekit_verl/manager.py": _VERL,
    "judgekit_verl/sessions.py": _VERL,
}
"""Modules that run in other processes, where coverage does not see them, and the tests that use them."""


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

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        mark_slow(items)  # tests/conftest.py does it for the core's tests alone

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.coverage.switch_context("")


OPTIONS = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--tb=no"]
KEPT = ROOT / ".work" / "mutation"


class Map(NamedTuple):
    """What a room's tests execute."""

    lines: dict[str, dict[int, list[str]]]
    """By module and line the tests."""
    seconds: dict[str, float]
    """That each test takes."""
    failed: list[str]
    """Tests that fail without a mutation: they are left out."""


def map_of(room: Room, *, slow: bool = False) -> Map:
    """Return the room's map: the one that is kept, while nothing has changed, else a new one.

    It has the quick tests, those of `make unit`; with *slow* the others.
    """
    kept = KEPT / f"{room.name}{'-slow' if slow else ''}.json"
    state = _state(room)
    if kept.exists() and (found := json.loads(kept.read_text()))["state"] == state:
        lines = {m: {int(k): v for k, v in by_line.items()} for m, by_line in found["lines"].items()}
        return Map(lines, found["seconds"], found["failed"])
    KEPT.mkdir(parents=True, exist_ok=True)
    answers: Any = get_context("fork").SimpleQueue()
    pid = os.fork()
    if pid == 0:
        with _quiet(kept.with_suffix(".log")):
            answers.put(_record(room, slow))
        os._exit(0)
    made = Map(*answers.get())
    os.waitpid(pid, 0)
    kept.write_text(json.dumps({"state": state, **made._asdict()}))
    return made


def _state(room: Room) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for folder in (ROOT / "src", ROOT / room.root, *(ROOT / test for test in room.tests)):
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _record(room: Room, slow: bool) -> tuple[Any, ...]:
    import coverage
    import pytest

    root = ROOT / room.root
    _shadowed(room, root)
    cover = coverage.Coverage(
        data_file=None, config_file=False, source=[str(root)], messages=False, concurrency=["thread"]
    )
    recorder = Recorder(cover)
    cover.start()
    pytest.main([*OPTIONS, "-m", "slow" if slow else "not slow", *room.tests], plugins=[recorder])
    cover.stop()
    data = cover.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    for file in data.measured_files():
        lines[Path(file).relative_to(root).as_posix()] = {
            line: [c for c in contexts if c and c not in recorder.failed]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
    seconds = {name: s for name, s in recorder.seconds.items() if name not in recorder.failed}
    return lines, seconds, sorted(recorder.failed)


def _shadowed(room: Room, root: Path) -> None:
    """Have this process and its children import the room from *root*, and the core from the checkout or from there."""
    roots = [str(root)] if room.root == "src" else [str(root), str(ROOT / "src")]
    sys.path[:0] = roots
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)


def tests_for(mutant: Mutant, known: Map, body: range, in_function: bool) -> list[str]:
    """The tests that execute the mutant's statement, which has the lines *body*: the fastest first, within the budget."""
    module, seconds = known.lines.get(mutant.module, {}), known.seconds
    names = {name for line in body for name in module.get(line, ())}
    budget = BUDGET_S
    if far := IN_OTHER_PROCESSES.get(mutant.module):
        budget = BUDGET_S if names else FAR_BUDGET_S
        names |= {name for name in seconds if name.startswith(far)}
    elif not names and not in_function:  # what runs at import, before any test
        names = {name for contexts in module.values() for name in contexts}
    chosen: list[str] = []
    total = 0.0
    for name in sorted(names & set(seconds), key=lambda n: (seconds[n], n)):
        total += seconds[name]
        if chosen and total > budget:
            break
        chosen.append(name)
    return chosen


def statement_lines(source: str, line: int) -> tuple[range, bool]:
    """The lines of the innermost statement around a line, and whether it is a function's.

    Coverage counts a statement at its first line.
    """
    best, in_function = range(line, line + 1), False
    size = 10**9
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            end = node.end_lineno or node.lineno
            in_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if end - node.lineno < size:
                size = end - node.lineno
                is_block = bool(getattr(node, "body", None))
                best = range(node.lineno, line + 1 if is_block else end + 1)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and line < node.body[0].lineno:
                    best = range(node.body[0].lineno, end + 1)  # a default is seen by whoever calls it
    return best, in_function


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


def serve(room: Room, slot: int, home: Path, jobs: Queue[Any], answers: Queue[Any]) -> None:
    """One slot: its own copy of the source, and a forked child per mutant with pytest loaded already."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    shadow = home / f"slot{slot}"
    shutil.copytree(ROOT / room.root, shadow, ignore=shutil.ignore_patterns("__pycache__"))
    while (job := jobs.get()) is not None:
        number, mutant, names, timeout_s, limit_s = job
        path = shadow / mutant.module
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        try:
            verdict = _try(room, shadow, names, timeout_s, limit_s)
        finally:
            path.write_bytes(source)
        answers.put((number, verdict))


def _try(room: Room, shadow: Path, names: list[str], timeout_s: float, limit_s: float) -> str:
    """ "survived" where all tests pass, else how it was killed."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with _quiet(shadow.parent / f"{shadow.name}.log"):
            code = _run(room, shadow, names, timeout_s)
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


def _run(room: Room, shadow: Path, names: list[str], timeout_s: float) -> int:
    import pytest

    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # of a mutant that counts for ever
    _shadowed(room, shadow)
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


def try_all(room: Room, mutants: Sequence[Mutant], known: Map, home: Path) -> list[str]:
    """Return what became of each: killed, survived, timed out, or no test executes it."""
    context = get_context("fork")
    jobs: Any = context.Queue()
    answers: Any = context.Queue()
    slots = [context.Process(target=serve, args=(room, i, home, jobs, answers)) for i in range(SLOTS)]
    for slot in slots:
        slot.start()
    verdicts = ["no test executes it"] * len(mutants)
    sources = {m.module: (ROOT / room.root / m.module).read_text() for m in mutants}
    asked = 0
    for number, mutant in enumerate(mutants):
        names = tests_for(mutant, known, *statement_lines(sources[mutant.module], mutant.line))
        if not names:
            continue
        total = sum(known.seconds[name] for name in names)
        slowest = max(known.seconds[name] for name in names)
        jobs.put((number, mutant, names, 10 + 5 * slowest, 30 + 4 * total))
        asked += 1
    for _ in slots:
        jobs.put(None)
    for _ in range(asked):
        number, verdict = answers.get()
        verdicts[number] = verdict
    for slot in slots:
        slot.join()
    return verdicts
