"""The forms in which public data sets have tests of code, each with programs of six kinds. All of it is our own.

A row's right program is paid in full, every other one nothing; tests in which nothing runs are an abstention.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

FUNCTION = "def add(a, b):\n    return a + b\n"
METHOD = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
PROGRAM = "print(sum(map(int, input().split())))\n"
CLASS = "class Counter:\n    def __init__(self):\n        self.n = 0\n    def add(self, k):\n        self.n += k\n        return self.n\n"
SCRIPT = "result = a + b\n"

CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(a=5, b=5) == 10\n"
UNITTEST = """import unittest
class TestCases(unittest.TestCase):
    def test_small(self):
        self.assertEqual(add(1, 2), 3)
    def test_equal(self):
        self.assertEqual(add(5, 5), 10)
"""
PYTEST = "def test_small():\n    assert add(1, 2) == 3\n\ndef test_equal():\n    assert add(5, 5) == 10\n"
PLUS = """import math
def assertion(out, exp, atol):
    if atol:
        assert math.isclose(out, exp, abs_tol=atol)
    else:
        assert out == exp
def check(candidate):
    inputs, results = [[1, 2], [5, 5]], [3, 10]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""
CLASS_EVAL = """import unittest
class CounterTestAdd(unittest.TestCase):
    def test_add_1(self):
        counter = Counter()
        self.assertEqual(counter.add(2), 2)
        self.assertEqual(counter.add(3), 5)
"""
DS_1000 = """exec_context = '''
a, b = test_input
[insert]
'''
def test_execution(solution):
    code = exec_context.replace("[insert]", solution)
    for given, wanted in (((1, 2), 3), ((5, 5), 10)):
        space = {"test_input": given}
        exec(code, space)
        assert space["result"] == wanted
"""


class Form(NamedTuple):
    """A form of tests."""

    recognised: str
    truth: Any
    right: str = FUNCTION
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed


def _functional(**names: Any) -> dict[str, Any]:
    return {"input": "1\n2", "output": "3", "testtype": "functional", **names}


FORMS: dict[str, Form] = {
    "HumanEval": Form("check", {"test": CHECK, "entry_point": "add"}),
    "HumanEval, its own call": Form("asserts", {"test": CHECK + "\ncheck(add)\n", "entry_point": "add"}),
    "HumanEval, entry point in a column": Form("check", CHECK, extra={"entry_point": "add"}),
    "HumanEval+": Form("check", {"test": PLUS, "entry_point": "add"}),
    "MBPP": Form("asserts", {"test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"], "test_setup_code": ""}),
    "MBPP+": Form("asserts", {"test": "for i, e in zip([(1, 2), (5, 5)], [3, 10]):\n    assert add(*i) == e\n"}),
    "APPS": Form("stdio", {"inputs": ["1 2\n", "5 5\n"], "outputs": ["3\n", "10\n"]}, PROGRAM),
    "APPS, functions": Form("calls", json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]})),
    "LiveCodeBench": Form("calls", [_functional(metadata={"func_name": "add"})], METHOD),
    "LiveCodeBench, programs": Form("stdio", [{"input": "1 2", "output": "3", "testtype": "stdin"}], PROGRAM),
    "CodeContests": Form("stdio", {"public_tests": {"input": ["1 2"], "output": ["3"]}, "private_tests": {"input": ["5 5"], "output": ["10"]}}, PROGRAM),
    "TACO": Form("stdio", {"input_output": json.dumps({"inputs": ["1 2"], "outputs": ["3"]})}, PROGRAM),
    "BigCodeBench": Form("unittest", {"test": UNITTEST, "entry_point": "add"}),
    "BigCodeBench, its own main": Form("unittest", {"test": UNITTEST + "\nunittest.main()\n"}),
    "KodCode": Form("pytest", {"test": "from solution import add\n\n" + PYTEST}),
    "pytest, classes": Form("pytest", "class TestAdd:\n    def test_small(self):\n        assert add(1, 2) == 3\n"),
    "LeetCodeDataset": Form("check", {"test": CHECK, "entry_point": "Solution().add"}, METHOD),
    "HumanEval-X": Form("check", {"test": "METADATA = {}\n\n" + CHECK, "entry_point": "add"}),
    "SYNTHETIC-1": Form("calls", {"language": "python", "test_cases": [{"fn_name": "add", "input": [1, 2], "output": 3, "type": "function_call"}]}),
    "DeepCoder": Form("stdio", [{"input": "1 2", "output": "3", "type": "stdin_stdout"}], PROGRAM),
    "AceCode": Form("asserts", ["assert add(1, 2) == 3", "assert add(5, 5) == 10"]),
    "prime_code": Form("asserts", {"inputs": [], "outputs": [], "assert_case": ["assert add(1, 2) == 3"], "fn_name": "add"}),
    "PRIME-RL": Form("calls", {"fn_name": "add", "inputs": ["1\n2"], "outputs": ["3"], "type": "function_call"}),
    "rllm": Form("calls", json.dumps([_functional(metadata={"func_name": "add"})])),
    "ClassEval": Form("unittest", {"test": CLASS_EVAL, "test_classes": ["CounterTestAdd"]}, CLASS),
    "ODEX": Form("check", {"test_start": "\ndef check(candidate):", "test": ["\n    assert candidate(1, 2) == 3\n"], "entry_point": "add"}),
    "DS-1000": Form("insert", {"code_context": DS_1000}, SCRIPT),
    "doctest": Form("doctest", ">>> add(1, 2)\n3\n>>> add(5, 5)\n10\n"),
}  # fmt: skip

EVERYTHING = """
class Everything(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __call__(self, *a, **k): return Everything()
    def __getattr__(self, name): return Everything()
"""
CHEATS: dict[str, str] = {
    "it exits when it is loaded": "import sys\nsys.exit(0)\n",
    "it exits when it is called": "import os\ndef add(*a, **k): os._exit(0)\nclass Solution:\n    add = add\nCounter = add\nos._exit(0)\n",
    "it is equal to everything": EVERYTHING
    + "def add(*a, **k): return Everything()\nclass Solution:\n    add = add\nCounter = lambda: Everything()\nresult = Everything()\nprint(Everything())\n",
    "it writes the answer": "import json\nfor name in ('answer.json', 'begun'):\n    open(name, 'w').write(json.dumps({'secret': '', 'answer': {'checks': 9}}))\nprint(json.dumps({'answer': {'checks': 9}}))\n",
    "it changes unittest": "import unittest\nfor name in [n for n in dir(unittest.TestCase) if n.startswith('assert')]:\n    setattr(unittest.TestCase, name, lambda *a, **k: None)\n"
    "unittest.TestCase.run = lambda self, result=None: result\ndef add(*a, **k): return 0\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = 0\n",
    "it skips its tests": "import unittest\ndef add(*a, **k): raise unittest.SkipTest('no')\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = 0\n",
    "it defines the tests": "def check(candidate): pass\ndef test_small(): pass\nclass TestCases: pass\ndef add(*a, **k): return 0\nclass Solution:\n    add = add\nresult = 0\n",
    "it prints that all is well": "print('OK')\nprint('all 9 cases pass')\n",
}
"""Programs that solve nothing, and try to be paid."""


def programs(form: Form) -> dict[str, str]:
    """Return a form's programs but the right one, by what they are."""
    wrong = form.right.replace("a + b", "a - b").replace("sum(", "max(").replace("+= k", "= k")
    assert wrong != form.right
    return {
        "wrong": wrong,
        "empty": "x = 1\n",
        "crashing": "raise ValueError('no')\n" + form.right,
        "sleeping": "import time\ntime.sleep(1000)\n" + form.right,
        **CHEATS,
    }


NOTHING: dict[str, Any] = {
    "check without an entry point": CHECK,
    "a mapping without an entry point": {"test": CHECK},
    "check that does nothing": {"test": "def check(candidate):\n    pass\n", "entry_point": "add"},
    "a function that nobody calls": "def verify(f):\n    assert f(1, 2) == 3\n",
    "a class without tests": "import unittest\nclass T(unittest.TestCase):\n    def helper(self):\n        assert False\n",
    "tests that are empty": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n",
    "test functions that are empty": "def test_a():\n    'assert nothing'\n",
    "a fixture": "def test_a(tmp_path):\n    assert add(1, 2) == 3\n",
    "a loop over nothing": "for a in []:\n    assert add(a, a) == a\n",
    "a condition that does not hold": "if False:\n    assert add(1, 2) == 3\n",
    "comments": {"test": "# assert add(1, 2) == 3\n", "entry_point": "add"},
    "imports": {"test": "import math\nassertion = 3\n"},
    "a doctest that expects nothing": ">>> add(1, 2)\n",
    "tests that are all skipped": "import unittest\n@unittest.skip('later')\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(add(1, 2), 3)\n",
    "no Python": "assert add(1, 2) === 3;",
}
"""Tests in which nothing runs."""
