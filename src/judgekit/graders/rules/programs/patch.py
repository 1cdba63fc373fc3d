"""A rule that applies a response's patch to a repository and runs the repository's tests in a sandbox."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import os
import shlex
import shutil
import sys
import tarfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from judgekit.errors import ConfigError
from judgekit.fork import in_child
from judgekit.graders.protocol import Where
from judgekit.graders.rules.programs.code import broken, last_line
from judgekit.graders.rules.programs.patch_text import PatchError, canonical, patch_of
from judgekit.graders.rules.programs.sandbox import DELETING_S, Limits, SandboxError
from judgekit.graders.rules.programs.sandboxes import InSandbox, Sandbox, sandbox_of
from judgekit.graders.rules.rule import Rule, at_least, one_of
from judgekit.graders.rules.stored import as_python
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up


class Patch(InSandbox, Rule):
    """Scores 1 if the response's patch makes the repository's tests pass, else 0.

    The patch is the last block fenced as `diff` or `patch`, or a response without a fence from its first header on. Wrong counts
    in hunks, missing `a/` and `b/`, other line ends and text behind the last hunk do no harm. It is applied by `git apply`, and
    pytest runs in the sandbox of `code`, within *budget_s* and *memory_mb*. All tests of the row's lists must pass: each
    one must have run, and only what pytest hands back for it counts.

    *task*: dotted path of a mapping, or JSON of one, as SWE-bench, SWE-Gym and SWE-smith have it: `FAIL_TO_PASS` and
    `PASS_TO_PASS` (lists of pytest's node ids, or JSON of them), `test_patch` (or `test_files`: texts by path), and, if it
    has one, its own `patch` and a `test_cmd`. *repository*: dotted path of the repository: a mapping of texts by path, or a name
    below the folder *repositories*: of a folder, or of a `.tar` or `.tar.gz` (without its ending). *command*: pytest with its
    options, where the row has no `test_cmd`. *python*: an interpreter that has pytest and what the repository needs.

    Files that decide about tests are the row's, whatever the patch does to them: its test files and what stands in their folder
    `tests`, conftest.py, pytest's settings, pyproject.toml, setup.cfg, what Python loads at its start, and compiled files.
    A patch that makes links, is binary, changes nothing, or leaves the repository scores 0.

    Abstains if there is no task or repository, its test patch does not apply, none of its tests is found, and if the row itself
    is broken, which is tried once for each row in a process: without a patch, a row whose tests pass is broken, and so is one whose
    own `patch` does not pass. Fails if the sandbox has no git or no pytest. Runs in a thread.

    The tests run in the process of the patched program: docs/security.md says what that cannot hold.

    Source: SWE-bench's `resolved` (arXiv:2310.06770).
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "extra")
    abstains = "there is no task, repository or test of the named ones, or the row's own patch does not pass"
    where: Where = "thread"

    def __init__(
        self,
        *,
        task: str = "extra",
        repository: str = "extra.repository",
        repositories: str | os.PathLike[str] | None = None,
        command: str = "pytest",
        budget_s: float = 300.0,
        memory_mb: int = 4096,
        sandbox: str | Sandbox | None = None,
        isolation: Literal["full", "none"] = "full",
        max_concurrency: int | None = None,
        python: str = sys.executable,
        name: str = "patch",
    ) -> None:
        one_of(name, "isolation", isolation, ("full", "none"))
        at_least(name, "budget_s", budget_s, 1.0)
        at_least(name, "memory_mb", memory_mb, 64, whole=True)
        if repositories is not None and not Path(repositories).is_dir():
            raise ConfigError(
                f"{name}: repositories is a folder with folders, .tar or .tar.gz files in it; there is none at {repositories}"
            )
        if isinstance(options := _options(command), str):
            raise ConfigError(f"{name}: command {command!r} {options}")
        if sandbox is None and shutil.which("git") is None:
            raise ConfigError(
                f"{name} needs git, which this machine does not have: install it, or give the URL of a sandbox service that "
                "has it as sandbox"
            )
        self.name = name
        self.task = task
        self.repository = repository
        self.repositories = None if repositories is None else Path(repositories)
        self.command = command
        self.budget_s = budget_s
        self.limits = Limits(budget_s, budget_s, memory_mb, file_mb=64, processes=_PROCESSES)
        self.sandbox = sandbox_of(name, sandbox, python, isolation=isolation)
        self.max_concurrency = max_concurrency or max(1, os.cpu_count() or 1)
        # the patch, what its row comes to without it, and waiting for another that asks for that
        self.timeout_s = 3 * (budget_s + DELETING_S + 30.0)

    def about_data(self, rollout: Rollout, /) -> str | Abstained:
        """Say how many tests a rollout's patch has to pass, and where its repository is."""
        task = self._task(rollout)
        if isinstance(task, Abstained):
            return task
        archive = self._archive(rollout)
        if isinstance(archive, Abstained):
            return archive
        own = "" if task.gold else ", and no patch of its own to try the row with"
        return f"{len(task.wanted)} tests that pytest must pass, {task.failing} of which fail before{own}"

    def grade(self, rollout: Rollout, /) -> Grade:
        task = self._task(rollout)
        if isinstance(task, Abstained):
            return task
        archive = self._archive(rollout)
        if isinstance(archive, Abstained):
            return archive
        patch = patch_of(rollout.response)
        if patch is None:
            return Graded(0.0, "there is no patch")
        try:
            patch = canonical(patch)
        except PatchError as error:
            return Graded(0.0, str(error))
        found = self._run(patch, task, archive)
        if isinstance(found, _Broken):
            return Abstained(found.why)
        if why := self._is_broken(found, task, archive):
            return Abstained(why)
        metadata = {"tests": len(task.wanted), "network": self.isolation()["network"]}
        if found.why:
            return Graded(0.0, found.why, metadata)
        return Graded(1.0, f"all {len(task.wanted)} tests pass", {**metadata, "restored": found.restored})

    def _task(self, rollout: Rollout) -> _Task | Abstained:
        value = as_python(look_up(rollout, self.task, None))
        if isinstance(value, str):
            value = _json(value)
        if not isinstance(value, Mapping):
            return Abstained(f"there is no task at {self.task}")
        failing, passing = (
            _names(value.get(n, value.get(n.lower()))) for n in ("FAIL_TO_PASS", "PASS_TO_PASS")
        )
        if failing is None or passing is None:
            return Abstained(
                f"FAIL_TO_PASS and PASS_TO_PASS of {self.task} are lists of names, or JSON of them"
            )
        if not failing:
            return Abstained(f"no test has to pass: {self.task} has no FAIL_TO_PASS")
        if odd := next((name for name in (*failing, *passing) if not _is_node(name)), None):
            return Abstained(f"{odd[:80]!r} is no node id of pytest's, such as tests/test_a.py::test_b")
        options = _options(str(value.get("test_cmd") or self.command))
        if isinstance(options, str):
            return Abstained(f"test_cmd {str(value['test_cmd'])[:80]!r} {options}")
        files = value.get("test_files") or {}
        if not isinstance(files, Mapping):
            return Abstained("test_files is a mapping of texts by path")
        given = str(value.get("test_patch") or "")
        return _Task(
            tuple(dict.fromkeys((*failing, *passing))),
            len(failing),
            given if not given or given.endswith("\n") else f"{given}\n",
            {str(path): str(text) for path, text in files.items() if text is not None},
            str(value.get("patch") or ""),
            tuple(options),
        )

    def _archive(self, rollout: Rollout) -> _Archive | Abstained:
        """Return a rollout's repository, packed. Raises FileNotFoundError if none has its name."""
        where = as_python(look_up(rollout, self.repository, None))
        if isinstance(where, str) and where.lstrip().startswith("{"):
            where = _json(where)
        if isinstance(where, Mapping):
            data = _packed({str(path): str(text) for path, text in where.items() if text is not None})
            return _Archive(data, False, hashlib.sha256(data).digest())
        if not isinstance(where, str) or not where.strip():
            return Abstained(f"there is no repository at {self.repository}")
        if self.repositories is None:
            raise ConfigError(
                f"{self.name}: {where!r} names a repository: give the folder that holds it as repositories, or a mapping "
                f"of texts by path at {self.repository}"
            )
        if where.startswith("/") or {"..", "."} & {*where.split("/")}:
            raise FileNotFoundError(f"there is no {where} in {self.repositories}")
        for ending in ("", ".tar", ".tar.gz", ".tgz"):
            path = self.repositories / f"{where}{ending}"
            if path.is_dir() and not ending:
                data = _packed_folder(path)
                return _Archive(data, False, hashlib.sha256(data).digest())
            if path.is_file() and path.name.endswith((".tar", ".tar.gz", ".tgz")):
                data = path.read_bytes()
                return _Archive(data, True, hashlib.sha256(data).digest())
        raise FileNotFoundError(
            f"there is no folder, .tar or .tar.gz of the name {where} in {self.repositories}"
        )

    def _run(self, patch: str, task: _Task, archive: _Archive) -> _Ended | _Broken:
        """Apply a patch and run the tests. Raises SandboxError."""
        job = {
            "kind": "patch",
            "runner": _source("patch_harness.py"),
            "equality": _source("patch_equality.py"),
            "inside": archive.inside,
            "test_patch": task.test_patch,
            "test_files": task.test_files,
            "wanted": task.wanted,
            "command": task.command,
        }
        # before the patch, not in the job: writing so long a text as JSON would stop every other thread
        finished = self.sandbox.run(f"{_base64(archive.data)}\n{patch}", limits=self.limits, job=job)
        if (limit := broken(finished, self.limits)) is not None:
            return _Ended(limit)
        if not finished.answered or not isinstance(finished.answer, dict):
            return _Ended(last_line(finished).removeprefix("AssertionError: "))
        answer = finished.answer
        if missing := answer.get("missing"):
            raise SandboxError(
                f"the sandbox has no {missing[0]}, which {self.name} needs: see python and sandbox"
            )
        if why := answer.get("row"):
            return _Broken(str(why))
        if why := answer.get("refused"):
            return _Ended(str(why))
        return _Ended("", answer["restored"])

    def _is_broken(self, found: _Ended, task: _Task, archive: _Archive) -> str:
        """Return why what a patch has come to says nothing of it; "" if it does."""
        if not found.why:
            without = self._tried("", task, archive)
            return "" if without else "its tests pass without any patch"
        if task.gold:
            own = self._tried(task.gold, task, archive)
            return f"its own patch does not pass: {own}" if own else ""
        if found.why.startswith(_NOT_RUN):
            without = self._tried("", task, archive)
            return f"without any patch, {without}" if without.startswith(_NOT_RUN) else ""
        return ""

    def _tried(self, patch: str, task: _Task, archive: _Archive) -> str:
        """Return why a patch of the row's own fails its tests; "" if it passes. Found out once in a process."""

        def run() -> str:
            found = self._run(patch if patch.endswith("\n") or not patch else f"{patch}\n", task, archive)
            return found.why

        said = json.dumps([patch, repr(task), repr(self.limits), self.isolation()])
        return _ROWS.found(
            hashlib.sha256(said.encode("utf-8", "surrogatepass") + archive.digest).digest(), run
        )


@dataclass(frozen=True, slots=True)
class _Task:
    """What a row says of its tests."""

    wanted: tuple[str, ...]
    failing: int
    test_patch: str
    test_files: Mapping[str, str]
    gold: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Archive:
    data: bytes
    inside: bool
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Ended:
    """What a patch has come to."""

    why: str
    """Why it does not pass; "" if it does."""
    restored: int = 0
    """How many files the tests had back that the patch has changed."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """What is wrong with a row."""

    why: str


_PROCESSES = 512
_MOST_BYTES = 256 << 20
_NOT_RUN = ("none of its tests ran", "the test command cannot start")
"""How the harness begins what it says where no test came to run."""


@functools.cache
def _source(name: str) -> str:
    return resources.files("judgekit.graders.rules.programs").joinpath(name).read_text("utf-8")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _names(value: Any) -> list[str] | None:
    """Read a list of tests, or JSON of one; None if it is neither."""
    if isinstance(value, str):
        value = _json(value) if value.strip() else []
    if value is None:
        return []
    return [str(name) for name in value] if isinstance(value, list | tuple) else None


def _is_node(name: str) -> bool:
    path = name.partition("::")[0]
    return "::" in name and path.endswith(".py") and not path.startswith("/") and ".." not in path.split("/")


def _options(command: str) -> list[str] | str:
    """Return the options of a command of pytest; what is wrong with it, if it is none."""
    try:
        parts = shlex.split(command)
    except ValueError as error:
        return f"cannot be read: {error}"
    if parts[1:3] == ["-m", "pytest"] and os.path.basename(parts[0]).startswith("python"):
        return parts[3:]
    if parts and os.path.basename(parts[0]) in ("pytest", "py.test"):
        return parts[1:]
    return "is not pytest's: only what pytest runs is counted"


def _base64(data: bytes) -> str:
    """Write an archive as text, in steps between which other threads run."""
    steps = range(0, len(data), _STEP)
    return "".join([base64.b64encode(data[at : at + _STEP]).decode("ascii") for at in steps])


_STEP = 3 << 18


def _packed(files: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, text in sorted(files.items()):
            data = text.encode("utf-8", "surrogatepass")
            member = tarfile.TarInfo(path.removeprefix("./"))
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def _packed_folder(folder: Path) -> bytes:
    """Pack a folder without what git and Python keep there. Raises ValueError if it is too large."""
    made = io.BytesIO()
    size = 0

    def fits(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal size
        if {".git", "__pycache__"} & {*member.name.split("/")}:
            return None
        size += member.size
        if size > _MOST_BYTES:
            raise ValueError(f"the repository {folder} has more than {_MOST_BYTES >> 20} MiB")
        member.mtime = 0
        return member

    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(folder, ".", filter=fits)
    return made.getvalue()


class _Rows:
    """What rows come to by themselves: found out once, by the first that asks, while the others wait."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most
        self.reset()
        in_child(self.reset)

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, Future[str]] = OrderedDict()

    def found(self, key: bytes, find: Callable[[], str]) -> str:
        with self._lock:
            future, first = self._found.get(key), False
            if future is None:
                future = self._found[key] = Future()
                first = True
                while len(self._found) > self.most:
                    self._found.popitem(last=False)
        if first:
            try:
                future.set_result(find())
            except BaseException as error:
                with self._lock:
                    self._found.pop(key, None)
                future.set_exception(error)
                raise
        return future.result()


_ROWS = _Rows()
