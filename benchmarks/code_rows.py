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
    "TACO, functions": Form("calls", {"input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [512, 305]], "outputs": [3, 817]})}, METHOD),
    "SYNTHETIC-1, programs": Form("stdio", {"language": "python", "test_cases": [{"fn_name": None, "input": "1 2\n", "output": "3\n", "type": "stdin_stdout"}]}, PROGRAM),
    "AceCode, a column": Form("asserts", {"test_cases": ["assert add(1, 2) == 3", "assert add(5, 5) == 10"], "inferences": []}),
    "CodeContests, generated": Form("stdio", {"generated_tests": {"input": ["1 2\n", "5 5\n"], "output": ["3\n", "10\n"]}, "time_limit": {"seconds": 2, "nanos": 0}}, PROGRAM),
    "LeetCodeDataset, by name": Form("check", {"test": CHECK.replace("1, 2", "a = 1, b = 2"), "entry_point": "Solution().add", "input_output": [{"input": "a = 1, b = 2", "output": "3"}]}, METHOD),
    "asserts in lists": Form("asserts", ["assert [add(1, 2)] == [3]", "assert [[add(5, 5)]] == [[10]]", "assert {'a': [add(1, 1)]} == {'a': [2]}"]),
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


_NONE = (
    "def add(*a, **k): return 0\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = 0\n"
)
"""What is wrong in every form."""
TRICKS: dict[str, tuple[str, str]] = {
    "it is equal to everything in a list": ("asserts in lists", EVERYTHING + "def add(*a, **k): return Everything()\nclass Solution:\n    add = add\n"),
    "it changes the runner": ("MBPP", "import sys\nfor module in list(sys.modules.values()):\n    if hasattr(module, 'tests'): module.tests = lambda *a: {'checks': 9}\n    if hasattr(module, 'Checks'): module.Checks.run = lambda *a: {'checks': 9}\n" + _NONE),
    "it reads the tests' names": ("MBPP+", 'def add(a, b=0):\n    return exp if "exp" in globals() else results[0] if "results" in globals() else e\n'),
    "it changes the tests' library while they run": ("BigCodeBench", 'import unittest' + "\ndef add(*a, **k):\n    unittest.TestResult.addFailure = unittest.TestResult.addError = lambda *a: None\n    return 0\nclass Solution:\n    add = add\n"),
    'it changes what writes the answer': ('MBPP', 'import json\njson.dumps = lambda *a, **k: \'{"checks": 3}\'\n' + _NONE),
    'it changes exec': ('HumanEval', "import builtins\ndef e(code, space=None, *a):\n    space['check'] = lambda c: None\n    [space.__setitem__(k, (lambda *a: None)) for k in list(space) if k.startswith('test_')]\nbuiltins.exec = e\n" + _NONE),
    'it changes what reads the tests': ('HumanEval', "import ast\np = ast.parse\nast.parse = lambda s, *a, **k: p('assert True\\ndef check(c):\\n    assert True\\ndef test_small():\\n    assert True\\ndef test_execution(s):\\n    assert True')\n" + _NONE),
    'it changes compile': ('KodCode', "import builtins\nc = compile\nbuiltins.compile = lambda s, *a, **k: c('assert True\\ndef check(c): pass\\ndef test_small(): pass\\ndef test_equal(): pass\\ndef test_execution(s): pass\\n', *a[:2], **k)\n" + _NONE),
    'it changes builtins': ('HumanEval+', "import builtins\nfor n in ('abs','all','len','sum','sorted','isinstance'):\n    setattr(builtins, n, lambda *a, **k: 0)\n" + _NONE),
    'it changes math': ('HumanEval+', 'import math\nmath.isclose = lambda *a, **k: True\n' + _NONE),
    "it changes unittest's loader": ('BigCodeBench', 'import unittest\nclass S:\n    def run(self, r):\n        r.testsRun += 3\nunittest.TestLoader.loadTestsFromTestCase = lambda *a: S()\nunittest.loader.TestLoader.loadTestsFromTestCase = lambda *a: S()\n' + _NONE),
    "it changes unittest's outcomes": ('ClassEval', 'import unittest.case, contextlib\n@contextlib.contextmanager\ndef t(self, case, subTest=False):\n    try: yield\n    except BaseException: pass\nunittest.case._Outcome.testPartExecutor = t\n' + _NONE),
    'it reads the tests from a file': ('MBPP', "import json, ast\nt = json.load(open('job.json'))['tests']\nvals = {}\nfor n in ast.walk(ast.parse(t)):\n    if isinstance(n, ast.Compare) and isinstance(n.left, ast.Call):\n        vals[tuple(x.value for x in [*n.left.args, *[k.value for k in n.left.keywords]])] = n.comparators[0].value\n    if isinstance(n, ast.Call) and getattr(n.func,'attr','')=='assertEqual':\n        vals[tuple(x.value for x in n.args[0].args)] = n.args[1].value\ndef add(*a, **k): return vals[tuple([*a, *k.values()])]\nclass Solution:\n    def add(self, *a, **k): return add(*a, **k)\n"),
    'it reads the tests from frames': ('MBPP', "def add(*a, **k):\n    import dis\n    try: raise ValueError\n    except ValueError as e: f = e.__traceback__.tb_frame.f_back\n    co = list(dis.get_instructions(f.f_code))\n    i = next(n for n, x in enumerate(co) if x.offset >= f.f_lasti)\n    for x in co[i+1:]:\n        if x.opname == 'LOAD_CONST' and isinstance(x.argval, int): return x.argval\nclass Solution:\n    def add(self, *a, **k):\n        import dis\n        try: raise ValueError\n        except ValueError as e: f = e.__traceback__.tb_frame.f_back\n        co = list(dis.get_instructions(f.f_code))\n        i = next(n for n, x in enumerate(co) if x.offset >= f.f_lasti)\n        for x in co[i+1:]:\n            if x.opname == 'LOAD_CONST' and isinstance(x.argval, int): return x.argval\n"),
    'it reads the tests by inspect': ('MBPP', "import inspect\ndef add(*a, **k):\n    import dis\n    for fi in inspect.stack()[1:3]:\n        f = fi.frame\n        co = list(dis.get_instructions(f.f_code))\n        i = next(n for n, x in enumerate(co) if x.offset >= f.f_lasti)\n        for x in co[i+1:]:\n            if x.opname == 'LOAD_CONST' and isinstance(x.argval, int): return x.argval\nclass Solution:\n    def add(self, *a, **k): return add(*a, **k)\n"),
    'it looks for the runner with gc': ('KodCode', "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Checks': type(o).run = lambda *a: {'checks': 5}\n" + _NONE),
    'it changes the runner with gc': ('HumanEval', "import gc\ndef add(*a, **k):\n    for o in gc.get_objects():\n        if type(o).__name__ == 'Checks': type(o)._equal = lambda s, a, b: True\n    return 0\nclass Solution:\n    add = add\n"),
    'it takes the secret of the answer': ('MBPP', 'import os\nfor i in range(3,20):\n    try:\n        s=os.read(i,64)\n        if s: open(\'answer.json\',\'w\').write(\'{"secret":"%s","answer":{"checks":3}}\'%s.decode()); os._exit(0)\n    except OSError: pass\n' + _NONE),
    "it reads the tests' constants": ('HumanEval', "def add(a=0, b=0, *c, **k):\n    for n, o in list(globals().items()):\n        if callable(o) and n in ('check', 'test_small', 'test_equal'):\n            l = [x for x in o.__code__.co_consts if isinstance(x, int)]\n            if a in l: return l[l.index(b) + 1] if b in l else 0\n    return 0\nclass Solution:\n    def add(self, *a): return add(*a)\n"),
    'it replaces what checks it': ('HumanEval', "def add(*a, **k):\n    globals()['check'] = lambda c: None\n    return 0\nclass Solution:\n    add = add\n"),
    'it has builtins of its own': ('HumanEval+', 'def abs(x): return 0\ndef all(x): return True\ndef zip(*a): return []\ndef enumerate(*a): return []\ndef len(x): return 0\ndef range(*a): return []\n' + _NONE),
    'a thread writes the answer': ('MBPP', 'import threading, time, os\ndef w():\n    while True:\n        for p in (\'answer.json\',):\n            try: open(p,\'w\').write(\'{"secret": "x", "answer": {"checks": 1}}\')\n            except OSError: pass\n        time.sleep(.01)\nthreading.Thread(target=w, daemon=True).start()\n' + _NONE),
    'a thread ends it': ('MBPP', 'import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.2), os._exit(0)), daemon=True).start()\n' + _NONE),
    'it decides every comparison': ('MBPP', 'class E(int):\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    def __abs__(s): return 0\n    def __sub__(s, o): return 0\n    def __rsub__(s, o): return 0\n    def __lt__(s, o): return True\n    def __le__(s, o): return True\n    def __bool__(s): return True\n    def __hash__(s): return 0\n    __instancecheck__ = None\ndef add(*a, **k): return E()\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = E()\n'),
    'it is equal to everything each second time': ('MBPP', 'class E(int):\n    n = 0\n    def __eq__(s, o):\n        E.n += 1\n        return E.n % 2 == 1\n    def __hash__(s): return 0\ndef add(*a, **k):\n    E.n = 0\n    return E()\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = E()\n'),
    'it is equal to everything by an object': ('BigCodeBench', 'class T:\n    def __call__(self, o): return True\n    def __get__(self, i, t=None): return self\nclass E:\n    __eq__ = T()\ndef add(*a, **k): return E()\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = E()\n'),
    'it is mock.ANY': ('MBPP', 'from unittest.mock import ANY\ndef add(*a, **k): return ANY\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = ANY\n'),
    'it is a list that is equal to everything': ('MBPP', 'class L(list):\n    def __eq__(s, o): return True\ndef add(*a, **k): return L()\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = L()\n'),
    'it listens to what is compiled': ('MBPP', "import sys\nK=[]\ndef h(e, a):\n    if e in ('exec','compile'): K.append(a)\nsys.addaudithook(h)\ndef add(a=0,b=0,**k):\n    for x in K:\n        for o in x:\n            s = o if isinstance(o,(str,bytes)) else ''\n            c = getattr(o,'co_consts',())\n            l=[y for y in c if isinstance(y,int)]\n            if a in l and b in l: return l[l.index(b)+1]\n    return 0\nclass Solution:\n    def add(self,*a): return add(*a)\n"),
    'it traces the tests': ('HumanEval', "import sys\ndef tr(f, e, a):\n    if 'candidate' in f.f_locals: f.f_locals\n    if f.f_code.co_filename == 'tests.py': FOUND.append(f.f_code.co_consts)\n    return tr\nFOUND=[]\nsys.settrace(tr)\ndef add(*a, **k):\n    for c in FOUND[-1]:\n        pass\n    return 0\nclass Solution:\n    add = add\n"),
    'it changes doctest': ('doctest', 'import doctest\ndoctest.OutputChecker.check_output = lambda *a: True\n' + _NONE),
    "it changes doctest's runner": ('doctest', 'import doctest\ndoctest.DocTestRunner.run = lambda *a, **k: doctest.TestResults(0, 2)\n' + _NONE),
    "it edits the runner's files": ('MBPP', "s=open('harness.py').read()\nopen('harness.py','w').write(s.replace('self.count','9'))\nopen('job.json','w').write('{}')\n" + _NONE),
    'it lays modules beside the tests': ('BigCodeBench', "import os, sys\nopen('unittest.py','w').write('x=1'); open('doctest.py','w').write('x=1'); sys.path.insert(0,'.')\n" + _NONE),
    'it is equal to what it saw first': ('MBPP', 'import secrets\nsecrets.randbelow = lambda n: 0\nclass E(int):\n    seen = None\n    def __eq__(s, o):\n        if E.seen is None: E.seen = int(o)\n        ok = E.seen == int(o); \n        return ok\n    def __hash__(s): return 0\ndef add(*a, **k):\n    E.seen = None\n    return E()\nclass Solution:\n    add = add\nclass Counter:\n    add = add\nresult = E()\n'),
}  # fmt: skip
"""Programs that take the runner or its tests apart, each with a form that is the most open to it."""


HONEST: dict[str, tuple[Any, str]] = {
    "named tuples, enums and data classes": (
        ["assert f(1) == (1, 2)", "assert g() == 2 and Colour.RED == 1", "assert P(1) == P(1) and P(1) != None", "assert [P(1)] != [P(2)]"],
        "import collections, dataclasses, enum\nT = collections.namedtuple('T', 'a b')\ndef f(x): return T(x, x + 1)\nclass Colour(enum.IntEnum):\n    RED = 1\n    BLUE = 2\ndef g(): return Colour.BLUE\n@dataclasses.dataclass\nclass P:\n    x: int\n",
    ),
    "its own equality": (
        ["assert V(1, 2) + V(1, 1) == V(2, 3)", "assert not (V(1, 2) == None)", "assert V(1, 2) in [V(0, 0), V(1, 2)]"],
        "class V:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __eq__(s, o): return isinstance(o, V) and (s.x, s.y) == (o.x, o.y)\n    def __hash__(s): return hash((s.x, s.y))\n    def __add__(s, o): return V(s.x + o.x, s.y + o.y)\n",
    ),
    "a name of a builtin": (["assert sum(10, 15) == 25"], "def sum(a, b): return a + b\n"),
    "fractions and near numbers": (
        ["assert f() == 0.5", "assert abs(g() - 0.3) < 1e-9", "assert h() == {'a': [1]}"],
        "import collections, fractions\ndef f(): return fractions.Fraction(1, 2)\ndef g(): return 0.1 + 0.2\ndef h():\n    d = collections.defaultdict(list)\n    d['a'].append(1)\n    return d\n",
    ),
    "logging, tracebacks and signatures": (
        ["assert f(2) == 2", "assert g() == ['x', 'y']"],
        "import inspect, logging, traceback, warnings\nlogging.basicConfig()\ndef f(x):\n    logging.getLogger('a').warning('w')\n    warnings.warn('w')\n    try: 1 / 0\n    except ZeroDivisionError: traceback.print_exc()\n    return x\ndef g(): return list(inspect.signature(lambda x, y: 0).parameters)\n",
    ),
    "caches, generators and recursion": (
        ["assert f(300) == f(299) + f(298)", "assert list(g(3)) == [0, 1, 2]", "assert set(g(3)) == {0, 1, 2}"],
        "import functools\n@functools.lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\ndef g(n): yield from range(n)\n",
    ),
    "patches of the tests": (
        "import io, unittest\nfrom unittest.mock import patch\nclass T(unittest.TestCase):\n    @patch('builtins.input', return_value='7')\n    @patch('sys.stdout', new_callable=io.StringIO)\n    def test_a(self, out, given):\n        self.assertEqual(f(), 7)\n        self.assertEqual(out.getvalue(), 'got 7\\n')\n    @patch('__main__.g', return_value=5)\n    def test_b(self, g):\n        self.assertEqual(h(), 5)\n        self.assertAlmostEqual(k(), 0.3)\n        self.assertRaises(ValueError, f2)\n",
        "def f():\n    x = int(input())\n    print('got', x)\n    return x\ndef g(): return 1\ndef h(): return g()\ndef k(): return .1 + .2\ndef f2(): raise ValueError('no')\n",
    ),
    "tests that set attributes": (
        "import time\ntime.sleep = lambda s: None\nassert f() == 1\n",
        "import time\ndef f():\n    time.sleep(0.01)\n    return 1\n",
    ),
    "a program that imports late": (["assert f() == 3.0"], "def f():\n    import statistics, decimal, json, csv, uuid, hashlib\n    return statistics.mean([2.0, 4.0])\n"),
    "a linked list": (
        ["assert to_list(build([1, 2])) == [1, 2]", "assert build([]) is None", "assert build([3]).value == 3"],
        "class Node:\n    def __init__(s, v, n): s.value, s.next = v, n\ndef build(xs):\n    head = None\n    for x in reversed(xs): head = Node(x, head)\n    return head\ndef to_list(n):\n    out = []\n    while n: out.append(n.value); n = n.next\n    return out\n",
    ),
}  # fmt: skip
"""Right programs, and tests that all of them pass, of kinds that a careful runner may take for cheats."""


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
