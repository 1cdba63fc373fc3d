"""A rule that runs a response's code against test cases in a sandbox."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from judgekit.errors import ConfigError
from judgekit.graders.protocol import Where
from judgekit.graders.rules.sandbox import Finished, Limits, SandboxError, best_way, run_program
from judgekit.graders.rules.text import Rule, after_think, at_least, code_blocks, one_of
from judgekit.types import Abstained, Grade, Graded, Rollout, look_up

Compare = Literal["lines", "exact", "tokens", "numbers"]
COMPARE = ("lines", "exact", "tokens", "numbers")


class Code(Rule):
    """Scores the share of test cases that the response's Python code passes.

    Scores are 0 to 1. The code is the last fenced Python block, or, with *whole*, a response without any fence.
    *cases*: dotted path of the cases in the rollout, in one of these formats, or JSON of one:

    - input and output: `[{"input": "1 2", "output": "3"}, …]` or `{"inputs": […], "outputs": […]}` (APPS,
      TACO); with `"fn_name"` the function of that name, or the method of `Solution`, is called instead (the
      input is the list of its arguments, or one JSON value per line as in LiveCodeBench);
    - tests: `["assert f(1) == 2", …]`, `{"test_list": […], "test_setup_code": …}` (MBPP), or
      `{"test": "def check(candidate): …", "entry_point": "f"}` (HumanEval).

    Every case runs in a separate process with limits on CPU time (*time_s*, rounded up to whole seconds), wall time
    (*wall_s*, by default three times that), memory, output, file size and, if the system can count them,
    processes. It has no network if the system can block it, see `judgekit.graders.rules.sandbox`. *network*: "off"
    (as far as possible), "forbidden" (ConfigError if it cannot be blocked) or "on". A case that fails, never ends or
    writes too much is not passed, which is a score. If the sandbox itself fails, the grade fails.

    *compare*: "lines" (equal lines, ignoring trailing space and trailing empty lines), "exact", "tokens" (ignoring
    space), "numbers" (tokens, with numbers equal within 1e-6). *score*: "share", or "all": 1 if all cases pass, else
    0. Only the first *max_cases* cases are run. *prefix*: dotted path of code to put before the response's (starter
    code). Abstains without cases.

    Tests run inside the program that they test, so code written to fool them can; inputs and outputs are compared
    outside. Runs in a thread.

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
        max_concurrency: int | None = None,
        python: str = sys.executable,
        name: str = "code",
    ) -> None:
        one_of(name, "score", score, ("share", "all"))
        one_of(name, "compare", compare, COMPARE)
        one_of(name, "network", network, ("off", "forbidden", "on"))
        at_least(name, "time_s", time_s, 0.1)
        wall_s = 3 * time_s if wall_s is None else wall_s
        at_least(name, "wall_s", wall_s, time_s)
        at_least(name, "memory_mb", memory_mb, 64, whole=True)
        at_least(name, "output_kb", output_kb, 1, whole=True)
        at_least(name, "processes", processes, 1, whole=True)
        at_least(name, "max_cases", max_cases, 1, whole=True)
        if os.name != "posix":
            raise ConfigError(f"{name}: running code needs a POSIX system (rlimits, process groups)")
        self.name = name
        self.cases = cases
        self.score = score
        self.compare: Compare = compare
        self.whole = whole
        self.prefix = prefix
        self.limits = Limits(time_s, wall_s, memory_mb, output_kb, 16, processes)
        self.network = network
        self.max_cases = max_cases
        self.max_concurrency = max_concurrency or max(1, os.cpu_count() or 1)
        self.python = python
        self.timeout_s = max_cases * (wall_s + 2.0) + 10.0
        if network == "forbidden" and self.isolation()["network"] != "none":
            raise ConfigError(
                f"{name}: this system cannot block a program's network: install bubblewrap, allow user namespaces, "
                "or set network='off' (as far as possible)"
            )

    def isolation(self) -> dict[str, str]:
        """Describe how the code is isolated on this machine."""
        try:
            return best_way(self.python, self.network == "on").isolation()
        except SandboxError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    def grade(self, rollout: Rollout, /) -> Grade:
        cases = read_cases(look_up(rollout, self.cases, None))
        if not cases:
            return Abstained(f"there are no cases at {self.cases}")
        code = program_of(rollout.response, self.whole)
        if code is None:
            return Graded(0.0, "there is no code")
        if self.prefix is not None:
            code = f"{look_up(rollout, self.prefix, '')}\n{code}"
        cases = cases[: self.max_cases]
        way = best_way(self.python, self.network == "on")
        passed = 0
        first: str | None = None
        for number, case in enumerate(cases, 1):
            finished = run_program(
                code,
                way=way,
                python=self.python,
                limits=self.limits,
                stdin=case.get("input", ""),
                job=case.get("job"),
            )
            problem = self._problem(finished, case)
            passed += problem is None
            if problem is not None and first is None:
                first = f"case {number}: {problem}"
                if self.score == "all":
                    break
        score = passed / len(cases) if self.score == "share" else float(passed == len(cases))
        metadata = {"passed": passed, "cases": len(cases), "network": "open" if way.network else "none"}
        return Graded(score, first or f"all {len(cases)} cases pass", metadata)

    def _problem(self, finished: Finished, case: Mapping[str, Any]) -> str | None:
        """Return why a case is not passed; None if it is."""
        if finished.how == "time":
            return f"no end within {self.limits.wall_s:g} s"
        if finished.how == "output":
            return f"more than {self.limits.output_kb} KiB of output"
        job = case.get("job")
        if job is not None:
            if not finished.answered:
                return _last_line(finished)
            if job["kind"] == "tests" or _same(finished.answer, case["output"]):
                return None
            return f"{finished.answer!r:.60} instead of {case['output']!r:.60}"
        if finished.code != 0:
            return _last_line(finished)
        if _equal(finished.output, case["output"], self.compare):
            return None
        return f"{finished.output.strip()!r:.60} instead of {case['output'].strip()!r:.60}"


def program_of(response: str, whole: bool) -> str | None:
    """Return the Python code of a response; None if there is none."""
    text = after_think(response)
    if text is None:
        return None
    blocks = code_blocks(text)
    if blocks:
        python = [code for language, code in blocks if language in ("python", "py", "python3")]
        unnamed = [code for language, code in blocks if not language]
        code = (python or unnamed or [""])[-1]
    else:
        code = text if whole else ""
    return code if code.strip() else None


def read_cases(value: Any) -> list[dict[str, Any]]:
    """Parse a reference's cases, each as {"input", "output"} or {"job", "output"}."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return [_tests(value)] if "assert" in value or "def check" in value else []
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if not isinstance(value, list | tuple):
        return []
    found: list[dict[str, Any]] = []
    for part in value:
        if isinstance(part, str):
            if part.strip():
                found.append(_tests(part))
        elif isinstance(part, Mapping):
            given = _first(part, "input", "stdin", "inputs")
            wanted = _first(part, "output", "stdout", "expected_output", "outputs")
            if wanted is None:
                found += _of_mapping(part)
                continue
            name = (
                part.get("fn_name") or (part.get("metadata") or {}).get("func_name")
                if isinstance(part.get("metadata") or {}, Mapping)
                else None
            )
            case = _pair(given, wanted, name)
            if case is not None:
                found.append(case)
    return found


def _of_mapping(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    if isinstance(value.get("inputs"), list | tuple) and isinstance(value.get("outputs"), list | tuple):
        pairs = zip(value["inputs"], value["outputs"], strict=False)
        return [case for i, o in pairs if (case := _pair(i, o, value.get("fn_name"))) is not None]
    if "test_list" in value and isinstance(value["test_list"], list | tuple):
        setup = value.get("test_setup_code") or "\n".join(map(str, value.get("test_imports") or ()))
        return [_tests(f"{setup}\n{test}") for test in value["test_list"]]
    for key in ("test", "tests", "test_code"):
        if isinstance(value.get(key), str) and value[key].strip():
            return [_tests(value[key], value.get("entry_point"))]
        if isinstance(value.get(key), list | tuple):
            return read_cases(value[key])
    for key in ("cases", "test_cases", "input_output"):
        if key in value:
            return read_cases(value[key])
    if _first(value, "output", "stdout", "expected_output") is not None:
        return read_cases([value])
    return []


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _tests(code: str, entry: Any = None) -> dict[str, Any]:
    return {"job": {"kind": "tests", "tests": code, "entry": entry if isinstance(entry, str) else None}}


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


def _last_line(finished: Finished) -> str:
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


def _same(given: Any, wanted: Any) -> bool:
    """Compare a function's answer; some data sets wrap the expected one in a list."""
    if _alike(given, wanted):
        return True
    return isinstance(wanted, list) and len(wanted) == 1 and _alike(given, wanted[0])


def _alike(given: Any, wanted: Any) -> bool:
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return given == wanted or math.isclose(given, wanted, rel_tol=1e-9, abs_tol=1e-9)
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


def _close(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-6)
    except ValueError:
        return False
