"""A rule that runs a response's code against test cases in a sandbox."""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from judgekit.errors import ConfigError
from judgekit.graders.protocol import Where
from judgekit.graders.rules.programs.code_compiled import (
    COMPILERS,
    FENCES,
    Language,
    Source,
    has_main,
    source_of,
)
from judgekit.graders.rules.programs.code_forms import (
    FORMS,
    Form,
    compiled_cases,
    form_of,
    read_cases,
    written,
)
from judgekit.graders.rules.programs.sandbox import DELETING_S, Finished, Limits, MachineBusy, SandboxError
from judgekit.graders.rules.programs.sandboxes import InSandbox, Sandbox, sandbox_of
from judgekit.graders.rules.rule import Rule, at_least, code_blocks, one_of
from judgekit.graders.rules.thoughts import after_think
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

Compare = Literal["lines", "exact", "tokens", "numbers"]
COMPARE = ("lines", "exact", "tokens", "numbers")


class _Ran(NamedTuple):
    """What a rollout's cases came to."""

    passed: int
    checks: int
    """How many were executed in those that passed."""
    first_problem: str | None


class Code(InSandbox, Rule):
    """Scores the share of test cases that the response's code passes.

    Scores are 0 to 1. The code is the last fenced block of the *language*, or, with *whole*, a response without any fence.
    *cases*: dotted path of the cases in the rollout, in one of these formats, or JSON of one:

    - input and output: `[{"input": "1 2", "output": "3"}, …]` or `{"inputs": […], "outputs": […]}` (APPS,
      TACO), or groups of these (CodeContests' `public_tests`, …; Codeforces' `official_tests`); with `"fn_name"` the function of that name, or the method of `Solution`, is called instead (the
      input is the list of its arguments, or one JSON value per line as in LiveCodeBench, whose packed
      `private_test_cases` are read as plain data: nothing in them is run);
    - tests: `["assert f(1) == 2", …]`, `{"test_list": […], "test_setup_code": …}` (MBPP),
      `{"test": "def check(candidate): …", "entry_point": "f"}` (HumanEval; the entry point is an expression, or at
      `extra.entry_point`), unittest classes, pytest functions without fixtures, doctests, DS-1000's `code_context`. They
      may import the program as `solution`.

    *language*: "cpp" and "java" are compiled by g++ and javac, once for a rollout, and take inputs and outputs, or tests with a
    `main` of their own that follow the program (HumanEval-X). There, a program that defines `operator==` or `equals` is not passed.

    A test counts only if it ran: tests in which nothing runs are an abstention with the reason. *form*: the form that the
    cases must have (stdio, calls, asserts, check, unittest, pytest, doctest, insert, main); the metadata say which it is.

    Every case runs in a separate process with limits on CPU time (*time_s*, rounded up to whole seconds), wall time
    (*wall_s*, by default three times that, without what it waits for a busy machine's processors), memory, output, file
    size and, if the system can count them, processes. It has no network if the system can block it, see `judgekit.graders.rules.programs.sandbox`. *network*: "off"
    (as far as possible), "forbidden" (ConfigError if it cannot be blocked) or "on". A case that fails, never ends or
    writes too much is not passed, which is a score. If the sandbox itself fails, the grade fails.

    *compare*: "lines" (equal lines, ignoring trailing space and trailing empty lines), "exact", "tokens" (ignoring
    space), "numbers" (tokens, with numbers equal within 1e-6). *score*: "share", or "all": 1 if all cases pass, else
    0. Only the first *max_cases* cases are run, and none after *stop_after* failed ones; those count as failed. A case or
    all of them may have limits of their own, `time_limit` (seconds, or text such as "2 seconds") and `memory_limit`
    (megabytes, or bytes if above 100,000); they hold where they are lower than the grader's. *prefix*: dotted path of code to put before the response's (starter
    code). Abstains without cases.

    *budget_s*: wall time of all cases of a rollout together. *isolation*: "none" runs programs as plain processes, where
    the system isolates none.

    *sandbox*: the URL of a service that speaks SandboxFusion's `run_code`, or an object with the methods of
    `judgekit.graders.rules.programs.sandboxes.Sandbox`; by default programs run on this machine. A service that fails is an
    infrastructure failure.

    Tests run inside the program that they test, so code written to fool them can; inputs and outputs are compared
    outside. A function's answer may have 64 KiB as JSON, and eight times what the expected one has. Runs in a thread.

    Source: APPS (arXiv:2105.09938), MBPP (arXiv:2108.07732), HumanEval's `check_correctness`
    (arXiv:2107.03374), LiveCodeBench's functional cases (arXiv:2403.07974); the share as in PRIME's and verl's
    code reward.
    """

    score_range = (0.0, 1.0)
    version = "1"
    inputs = ("response", "ground_truth")
    abstains = "there are no cases"
    where: Where = "thread"

    def __init__(
        self,
        *,
        cases: str = "ground_truth",
        language: Language = "python",
        form: Form | None = None,
        score: Literal["share", "all"] = "share",
        compare: Compare = "lines",
        whole: bool = True,
        prefix: str | None = None,
        time_s: float = 10.0,
        wall_s: float | None = None,
        memory_mb: int = 1024,
        output_kb: int = 1024,
        processes: int = 32,
        network: Literal["off", "forbidden", "on"] = "off",
        max_cases: int = 20,
        stop_after: int | None = None,
        budget_s: float = 60.0,
        sandbox: str | Sandbox | None = None,
        isolation: Literal["full", "none"] = "full",
        max_concurrency: int | None = None,
        python: str = sys.executable,
        name: str = "code",
    ) -> None:
        one_of(name, "score", score, ("share", "all"))
        one_of(name, "compare", compare, COMPARE)
        one_of(name, "language", language, FENCES)
        if language != "python" and sandbox is None and shutil.which(COMPILERS[language]) is None:
            raise ConfigError(
                f"{name}: language {language} needs {COMPILERS[language]}, which this machine does not have: install it, "
                "or give the URL of a sandbox service that has it as sandbox"
            )
        if form is not None:
            one_of(name, "form", form, FORMS)
        one_of(name, "network", network, ("off", "forbidden", "on"))
        one_of(name, "isolation", isolation, ("full", "none"))
        at_least(name, "budget_s", budget_s, 1.0)
        at_least(name, "time_s", time_s, 0.1)
        wall_s = 3 * time_s if wall_s is None else wall_s
        at_least(name, "wall_s", wall_s, time_s)
        at_least(name, "memory_mb", memory_mb, 64, whole=True)
        at_least(name, "output_kb", output_kb, 1, whole=True)
        at_least(name, "processes", processes, 1, whole=True)
        at_least(name, "max_cases", max_cases, 1, whole=True)
        if stop_after is not None:
            at_least(name, "stop_after", stop_after, 1, whole=True)
        self.name = name
        self.cases = cases
        self.language: Language = language
        self.form = form
        self.score = score
        self.compare: Compare = compare
        self.whole = whole
        self.prefix = prefix
        self.limits = Limits(time_s, wall_s, memory_mb, output_kb, processes=processes)
        self.budget_s = budget_s
        self.network = network
        self.max_cases = max_cases
        self.stop_after = 1 if score == "all" else stop_after
        self.sandbox = sandbox_of(name, sandbox, python, network=network, isolation=isolation)
        self.max_concurrency = max_concurrency or max(1, os.cpu_count() or 1)
        # longer than programs can make it take: a timeout would be the infrastructure's failure
        self.timeout_s = budget_s + max_cases * (DELETING_S + 2.0) + 10.0
        if network == "forbidden" and self.isolation()["network"] != "none":
            raise ConfigError(
                f"{name}: this system cannot block a program's network: install bubblewrap, allow user namespaces, "
                "or set network='off' (as far as possible)"
            )

    def _cases(self, rollout: Rollout) -> list[dict[str, Any]] | Abstained:
        """Return the cases of a rollout of which something would run, or why there are none."""
        try:
            value = look_up(rollout, self.cases, None)
            found = (
                read_cases(value, entry=_entry(rollout))
                if self.language == "python"
                else compiled_cases(value, self.language, has_main)
            )
        except RecursionError:  # JSON that is nested too deep
            found = []
        cases = [case for case in found if "why" not in case]
        if not cases:
            return Abstained(found[0]["why"] if found else f"there are no cases at {self.cases}")
        form = form_of(cases[0])
        if self.form is not None and form != self.form:
            return Abstained(f"the cases at {self.cases} are {form}, not {self.form}")
        return cases

    def about_data(self, rollout: Rollout, /) -> str | Abstained:
        """Say which form the cases of a rollout have, and how many checks are written in them."""
        cases = self._cases(rollout)
        if isinstance(cases, Abstained):
            return cases
        checks = sum(map(written, cases))
        return (
            f"{len(cases)} case{'s' * (len(cases) != 1)} of the form {form_of(cases[0])} with {checks} "
            f"check{'s' * (checks != 1)}"
            + (f", of which {self.max_cases} cases run" if len(cases) > self.max_cases else "")
        )

    def grade(self, rollout: Rollout, /) -> Grade:
        cases = self._cases(rollout)
        if isinstance(cases, Abstained):
            return cases
        code = program_of(rollout.response, self.whole, self.language)
        if code is None:
            return Graded(0.0, "there is no code")
        if self.prefix is not None:
            code = f"{look_up(rollout, self.prefix, '')}\n{code}"
        cases = cases[: self.max_cases]
        about = {
            "passed": 0,
            "cases": len(cases),
            "form": form_of(cases[0]),
            "checks": 0,
            "network": self.sandbox.isolation()["network"],
        }
        source: Source | None = None
        compiled: dict[str, Any] | None = None
        if self.language != "python":
            made = self._compiled(code, cases[0].get("main"))
            if isinstance(made, str):
                return Graded(0.0, made, about)
            source, compiled = made
        ran = self._run(code, cases, time.monotonic() + self.budget_s, source, compiled)
        if isinstance(ran, Abstained):
            return ran
        score = ran.passed / len(cases) if self.score == "share" else float(ran.passed == len(cases))
        about |= {"passed": ran.passed, "checks": ran.checks}
        return Graded(score, ran.first_problem or f"all {len(cases)} cases pass", about)

    def _run(
        self,
        code: str,
        cases: Sequence[Mapping[str, Any]],
        ends: float,
        source: Source | None,
        compiled: dict[str, Any] | None,
    ) -> _Ran | Abstained:
        """Run the cases one after another until all have run, enough have failed, or the time is used up."""
        passed = failed = checks = 0
        first: str | None = None
        for number, case in enumerate(cases, 1):
            limits = limits_of(case, self.limits)
            used_up = f"case {number}: the time for all cases, {self.budget_s:g} s, is used up"
            if (left := ends - time.monotonic()) <= 0:
                first = first or used_up
                break
            limits = replace(limits, wall_s=min(limits.wall_s, left))
            try:
                finished = self.sandbox.run(
                    code, limits=limits, stdin=case.get("input", ""), job=compiled or case.get("job")
                )
            except SandboxError as error:
                if number == 1 or isinstance(error, MachineBusy) or time.monotonic() < ends:
                    raise
                first = first or used_up  # what the others left was too short for the sandbox itself
                break
            ends += finished.held_up_s
            problem, executed = self._came_to(finished, case, limits, source)
            if problem is None and not executed:
                if not case["certain"]:
                    return Abstained(f"case {number}: none of its checks ran")
                problem = "none of its checks ran"
            if problem is None:
                passed += 1
                checks += executed or 0
                continue
            failed += 1
            first = first or f"case {number}: {problem}"
            if failed == self.stop_after:
                break
        return _Ran(passed, checks, first)

    def _came_to(
        self, finished: Finished, case: Mapping[str, Any], limits: Limits, source: Source | None
    ) -> tuple[str | None, int | None]:
        """Return why a case is not passed, None if it is; and how many checks its run has executed."""
        try:
            problem = self._problem(finished, case, limits, source)
        except SandboxError:
            raise
        except Exception as error:  # the program has run: whatever is odd about its answer is its doing
            problem = f"what it gave cannot be compared ({type(error).__name__})"
        if source is not None and source.token:
            return problem, source.checks(finished.output)
        return problem, ran_in(finished)

    def _compiled(self, code: str, tests: str | None) -> tuple[Source, dict[str, Any]] | str:
        """Compile a program, with its tests if they have a `main`. Returns how to run it, or why it passes no case."""
        source = source_of(self.language, code, tests)
        if isinstance(source, str):
            return source
        limits = replace(
            self.limits,
            time_s=max(self.limits.time_s, _COMPILE_S),
            wall_s=min(max(self.limits.wall_s, 3 * _COMPILE_S), self.budget_s),
            memory_mb=max(self.limits.memory_mb, 1024),
        )
        finished = self.sandbox.run("", limits=limits, job=source.job(self.language))
        if not finished.answered or not isinstance(finished.answer, dict):
            return f"it does not compile: {broken(finished, limits) or last_line(finished)}"
        if missing := finished.answer.get("missing"):
            raise SandboxError(f"the sandbox has no {missing[0]}, which language: {self.language} needs")
        if problem := finished.answer.get("problem"):
            return f"it does not compile: {problem}"
        return source, source.run(self.language, finished.answer["made"], self.limits.memory_mb)

    def _problem(
        self, finished: Finished, case: Mapping[str, Any], limits: Limits, source: Source | None = None
    ) -> str | None:
        """Return why a case is not passed; None if it is."""
        if (limit := broken(finished, limits)) is not None:
            return limit
        if source is not None and source.token:
            if finished.code == 0 and source.checks(finished.output) is not None:
                return None
            return last_line(finished)
        job = case.get("job")
        if job is not None:
            if not finished.answered:
                return last_line(finished)
            if (
                isinstance(finished.answer, dict)
                and job["kind"] == "tests"
                and finished.answer.get("missing")
            ):
                raise SandboxError(
                    f"the tests import {', '.join(finished.answer['missing'])}, which the sandbox's Python does not have"
                )
            if job["kind"] == "tests" or _same(finished.answer, case["output"], wrapped="wrapped" in case):
                return None
            return f"{_SHORT.repr(finished.answer):.60} instead of {_SHORT.repr(case['output']):.60}"
        if finished.code != 0:
            return last_line(finished)
        if _equal(finished.output, case["output"], self.compare):
            return None
        return f"{finished.output.strip()[:60]!r:.60} instead of {case['output'].strip()[:60]!r:.60}"


_COMPILE_S = 20.0
"""CPU time that a compiler has, at least."""
_SHORT = reprlib.Repr()
"""Shows values without writing out the whole of them, which for a large one would stop every other thread."""
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 20
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


def broken(finished: Finished, limits: Limits) -> str | None:
    """Return which limit a program has broken; None if none."""
    if finished.how == "time":
        return f"no end within {limits.wall_s:g} s"
    if finished.how in ("memory", "processes"):
        most = (
            f"{limits.memory_mb} MiB of memory"
            if finished.how == "memory"
            else f"{limits.processes} processes"
        )
        return f"more than {most}, all its processes together"
    if finished.how == "output":
        return f"more than {limits.output_kb} KiB of output"
    return None


def limits_of(case: Mapping[str, Any], most: Limits) -> Limits:
    """Return a case's own limits where they are lower than *most*."""
    seconds, megabytes = _quantity(case.get("time_limit")), _quantity(case.get("memory_limit"))
    if megabytes is not None and megabytes > 100_000:  # bytes
        megabytes /= 1 << 20
    time_s = most.time_s if seconds is None else min(seconds, most.time_s)
    return replace(
        most,
        time_s=time_s,
        # waiting for a busy machine is not the program's time: a short limit leaves it some of that all the same
        wall_s=min(most.wall_s, max(most.wall_s * time_s / most.time_s, _LEAST_WALL_S)),
        memory_mb=most.memory_mb if megabytes is None else min(max(int(megabytes), 64), most.memory_mb),
        answer_kb=min(most.answer_kb, _LEAST_ANSWER_KB + 8 * _size(case.get("output")) // 1024),
    )


_LEAST_ANSWER_KB = 64


def _size(value: Any) -> int:
    """Return about how many characters a value has as JSON."""
    try:
        return len(json.dumps(value, default=str))
    except (ValueError, TypeError, RecursionError):
        return 1 << 30


_LEAST_WALL_S = 10.0


def _quantity(value: Any) -> float | None:
    """Read 2, 2.0, "2", "2 seconds" or {"seconds": 2, "nanos": 500000000}; None if it is no positive number."""
    if isinstance(value, Mapping):
        value = (_quantity(value.get("seconds")) or 0.0) + (_quantity(value.get("nanos")) or 0.0) / 1e9
    if isinstance(value, str) and (found := re.match(r"\s*(\d{1,12}(?:\.\d{1,9})?)", value)):
        value = float(found[1])
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
    return float(value) if fine else None


def program_of(response: str, whole: bool, language: str = "python") -> str | None:
    """Return the code of a response in a language; None if there is none."""
    text = after_think(response)
    if text is None:
        return None
    blocks = code_blocks(text)
    if blocks:
        named = [code for fence, code in blocks if fence in FENCES[language]]
        unnamed = [code for fence, code in blocks if not fence]
        code = (named or unnamed or [""])[-1]
    else:
        code = text if whole else ""
    return code if code.strip() else None


def ran_in(finished: Finished) -> int:
    """Return how many checks a run has executed: those that its tests report, else the comparison that follows."""
    if isinstance(finished.answer, dict) and {*finished.answer} == {"checks"}:
        checks = finished.answer["checks"]
        return checks if isinstance(checks, int) else 0
    return 1


def _entry(rollout: Rollout) -> str | None:
    found = look_up(rollout, "extra.entry_point", None)
    return found if isinstance(found, str) and found else None


def last_line(finished: Finished) -> str:
    """Return the error, from the last line of stderr or the exit code."""
    lines = [line for line in finished.errors.splitlines() if line.strip()]
    if lines:
        return lines[-1].strip()[:150]
    if finished.code < 0 or finished.code > 128:
        number = -finished.code if finished.code < 0 else finished.code - 128
        return "no end within its CPU time" if number in _OUT_OF_TIME else f"killed by signal {number}"
    return f"exit code {finished.code}" if finished.code else "it ended before its tests did"


_OUT_OF_TIME = (9, 24)
"""SIGKILL, which has no other sender here, and SIGXCPU."""


def _same(given: Any, wanted: Any, *, wrapped: bool = False) -> bool:
    """Compare a function's answer. *wrapped*: the expected one may stand in a list, as APPS has it."""
    if _alike(given, wanted):
        return True
    return wrapped and isinstance(wanted, list) and len(wanted) == 1 and _alike(given, wanted[0])


def _alike(given: Any, wanted: Any) -> bool:
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        if given == wanted:
            return True
        if isinstance(given, int) and isinstance(wanted, int):
            return False
        try:
            return math.isclose(given, wanted, rel_tol=1e-9, abs_tol=1e-9)
        except OverflowError:  # a whole number that no float can be near to
            return False
    if isinstance(given, list) and isinstance(wanted, list | tuple):
        return len(given) == len(wanted) and all(map(_alike, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, Mapping):
        return {*given} == {str(k) for k in wanted} and all(
            _alike(given[str(k)], v) for k, v in wanted.items()
        )
    return bool(given == wanted)


def _equal(given: str, wanted: str, how: Compare) -> bool:
    if how == "exact":
        return given == wanted
    if how == "lines":
        return _lines(given) == _lines(wanted)
    mine, theirs = given.split(), wanted.split()
    if how == "tokens":
        return mine == theirs
    return len(mine) == len(theirs) and all(a == b or _close(a, b) for a, b in zip(mine, theirs, strict=True))


def _lines(text: str) -> Sequence[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _close(given: str, wanted: str) -> bool:
    """Whether two texts are about the same number: within 1e-6 of it, or of 1; a whole number is near to itself alone."""
    try:
        if _WHOLE.fullmatch(wanted):
            whole = int(wanted)
            return int(given) == whole if _WHOLE.fullmatch(given) else abs(float(given) - whole) <= 1e-6
        return math.isclose(float(given), float(wanted), rel_tol=1e-6, abs_tol=1e-6)
    except (ValueError, OverflowError):
        return False


_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")
