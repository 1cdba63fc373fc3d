"""Wrong reward.yaml files: one sentence with the place and what to do, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .in_process import refused

JUDGE = "{engine: openai, url: 'http://127.0.0.1:1', model: m}"
LONG = "in no part of the reward: give it a weight (0 only observes it) or take it out"

# fmt: off
TEXTS = [
    ("", "reward.yaml: expected the sections graders, judges, reward and runner"),
    ("[]", "expected the sections"),
    ("3", "expected the sections"),
    ("---\n---\n", "line 2: not YAML (a second document begins"),
    ("a: b: c", "line 1: not YAML (mapping values are not allowed here)"),
    ("graders: {a: final_answer", "line 1: not YAML (expected ',' or '}'"),
    ("graders:\n\t- a", "line 2: not YAML (found character '\\t'"),
    ("graders: &a {b: *c}", "line 1: not YAML (found undefined alias 'c')"),
    ("graders: {a: !!python/object:os.system x}", "the tag tag:yaml.org,2002:python/object:os.system is not known"),
    ("graders: {a: !env x}", "the tag !env is not known; write plain values"),
    ("graders: !!int x", "cannot be read (invalid literal for int()"),
    ("{" * 5000, "nested too deeply"),
    ("graders: {[1]: final_answer}", "line 1: a key is a name"),
    ("graders: {a: final_answer, a: boxed}", "line 1: the key 'a' stands twice, first in line 1"),
    ("graders: {a: final_answer}\ngraders: {b: boxed}", "line 2: the key 'graders' stands twice, first in line 1"),
    ("graders: {a: final_answer}\nreward: {weighted: {a: 0.5, a: 0.7}}", "line 2: the key 'a' stands twice"),
    ("graders: {a: '${NO_SUCH_VARIABLE_HERE}'}", "the environment variable NO_SUCH_VARIABLE_HERE is not set"),
    ("judges: {}", "graders: give at least one grader, such as graders: {correct: final_answer}"),
    ("graders: {a: final_answer}\njudge: {}", "there is no section 'judge'; did you mean 'judges'?"),
    ("graders: {}", "graders: give at least one grader"),
    ("graders: []", "graders: give at least one grader, such as graders: {correct: final_answer}, not []"),
    ("graders: null", "graders: give at least one grader"),
    ("graders: {a: null}", "graders.a: give a grader's name, or {use: its name, …}, not None"),
    ("graders: {a: 3}", "graders.a: give a grader's name, or {use: its name, …}, not 3"),
    ("graders: {a: []}", "graders.a: give a grader's name"),
    ("graders: {a: true}", "graders.a: give a grader's name"),
    ("graders: {a: {}}", "graders.a: say which grader it is with 'use'"),
    ("graders: {'': final_answer}", "a grader's name is text without a dot, not ''"),
    ("graders: {'a.b': final_answer}", "a grader's name is text without a dot, not 'a.b'"),
]
GRADERS = [
    ("Final_answer", "graders.a: there is no 'Final_answer'; did you mean 'final_answer'? (yours is module:object)"),
    ("{use: 3}", "graders.a: give a name or module:object as text, not 3"),
    ("{use: }", "graders.a: give a name or module:object as text, not None"),
    ("{use: []}", "graders.a: give a name or module:object as text, not []"),
    ("':'", "graders.a: ':' is not module:object, such as my_rewards:politeness"),
    ("'mine:'", "'mine:' is not module:object"),
    ("'../mine:x'", "'../mine:x' is not module:object"),
    ("'nomodule:x'", "cannot import nomodule (ModuleNotFoundError: No module named 'nomodule')"),
    ("'json:dump_all'", "json has no 'dump_all'; did you mean 'dump'?"),
    ("'json:dumps'", "graders.a: the parameter 'obj' is missing"),
    ("'os:sep'", "grader 'a': str has neither grade() nor grade_group()"),
    ("'mine:unfinished'", "cannot import mine (SyntaxError: '(' was never closed (mine.py, line 1))"),
    ("'mine_too:x'", "cannot import mine_too (ValueError: a fault of the user's own)"),
    ("'mine_exits:x'", "cannot import mine_exits (SystemExit: 3)"),
    ("{use: length, soft_max: '5', hard_max: 9}", "graders.a.soft_max: expected a number (got '5')"),
    ("{use: length, soft_max: yes, hard_max: 9}", "graders.a.soft_max: expected a number (got 'yes')"),
    ("{use: length, soft_max: .nan, hard_max: 9}", "graders.a.soft_max: expected a number (got nan)"),
    ("{use: length, soft_max: 9, hard_max: 5}", "soft_max <= hard_max must hold"),
    ("{use: length, softmax: 5}", "there is no parameter 'softmax'; did you mean 'soft_max'?"),
    ("{use: length}", "length: give soft_max and hard_max"),
    ("{use: regex}", "graders.a: the parameter 'pattern' is missing"),
    ("{use: regex, pattern: '('}", "'(' is not a valid pattern"),
    ("{use: regex, pattern: 3}", "graders.a.pattern: expected text (got 3)"),
    ("{use: text_match, how: contain}", "graders.a.how: expected 'exact', 'normalised'"),
    ("{use: judge}", "graders.a: the parameter 'judge' is missing"),
    ("{use: judge, judge: jj}", "graders.a.judge: there is no judge 'jj'; did you mean 'j'?"),
    ("{use: judge, judge: 3}", "graders.a.judge: there is no judge 3"),
    ("{use: panel, judges: j}", "graders.a.judges: give a list of judges"),
    ("{use: panel, judges: [j]}", "a panel needs at least two judges"),
    ("{use: judge, judge: {by: x}}", "graders.a.judge: routes maps patterns to judges"),
    ("{use: judge, judge: {routs: {}}}", "graders.a.judge: there is no parameter 'routs'; did you mean 'routes'?"),
    ("{use: judge, judge: {routes: {}}}", "graders.a.judge: routes: give at least one pattern with its judge"),
    ("{use: judge, judge: {routes: {'m*': k}}}", "graders.a.judge: there is no judge 'k'; there is 'j'"),
    ("{use: judge, judge: j, verdict: chioce}", "no verdict format is called 'chioce'; did you mean 'choice'?"),
    ("{use: judge, judge: j, verdict: {format: {}}}", "graders.a.verdict: no verdict format is called {}"),
    ("'judgekit:ConfigError'", "graders.a: <class 'judgekit.errors.ConfigError'> is no class or function with"),
    ("{use: judge, judge: j, verdict: 3}", "graders.a.verdict: expected a mapping (got 3)"),
    ("{use: judge, judge: j, sampling: {temp: 3}}", "graders.a.sampling: there is no parameter 'temp'"),
    ("{use: judge, judge: j, sampling: {temperature: hot}}", "sampling.temperature: expected a number (got 'hot')"),
    ("{use: judge, judge: j, sampling: {temperature: -1}}", "graders.a.sampling: temperature is a number from 0, not -1.0"),
    ("{use: judge, judge: j, sampling: {top_p: 0}}", "top_p is a share above 0 and up to 1, not 0.0"),
    ("{use: judge, judge: j, sampling: {max_tokens: 0}}", "max_tokens is at least 1, not 0"),
    ("{use: judge, judge: j, template: none.txt}", "no template file at"),
    ("{use: rubric, judge: j}", "graders.a: the parameter 'rubric' is missing"),
    ("{use: rubric, judge: j, rubric: helpfulnes}", "no rubric is called 'helpfulnes'; did you mean 'helpfulness'?"),
    ("{use: rubric, judge: j, rubric: none.toml}", "no rubric file at"),
    ("{use: final_answer, fields: 3}", "graders.a.fields: expected a mapping (got 3)"),
    ("{use: final_answer, fields: {nothing: x}}", "a rollout has no field 'nothing'"),
    ("{use: final_answer, name: 3}", "graders.a.name: expected text (got 3)"),
]
JUDGES = [
    ("null", "judges.j: give {engine: …}, such as {engine: vllm}, not None"),
    ("openai", "judges.j: give {engine: …}, such as {engine: vllm}, not 'openai'"),
    ("{}", "judges.j: say which engine it is with 'engine'"),
    ("{engine: opena}", "judges.j: there is no 'opena'; did you mean 'openai'?"),
    ("{engine: 3}", "judges.j: give a name or module:object as text, not 3"),
    ("{engine: openai, url: ''}", "judges.j: give the server's url="),
    ("{engine: openai, url: 3}", "judges.j.url: expected text or a list (got 3)"),
    ("{engine: openai, url: []}", "give at least one replica"),
    ("{engine: openai, url: 'ftp://x'}", "'ftp://x' is not a server address such as http://127.0.0.1:8000/v1"),
    ("{engine: openai, url: 'http://h:99999'}", "'http://h:99999' is not a server address"),
    ("{engine: openai, url: 'http://[::1'}", "'http://[::1' is not a server address"),
    ("{engine: 'math:pi'}", "judges.j: 3.141592653589793 is no class or function with parameters to set"),
    ("{engine: openai, url: 'http://h', modle: m}", "there is no parameter 'modle'; did you mean 'model'?"),
    ("{engine: openai, url: 'http://h', api_key: 3}", "judges.j.api_key: expected text (got 3)"),
    ("{engine: openai, url: 'http://h', timeout_s: 0}", "timeout_s is a number of seconds above 0, not 0"),
    ("{engine: openai, url: 'http://h', layers: 3}", "judges.j.layers: expected a mapping (got 3)"),
    ("{engine: openai, url: 'http://h', layers: {cach: {}}}", "there is no parameter 'cach'; did you mean 'cache'?"),
    ("{engine: openai, url: 'http://h', layers: {cache: {pth: x}}}", "judges.j.layers.cache: there is no parameter 'pth'"),
    ("{engine: openai, url: 'http://h', layers: {cache: 3}}", "cache: expected a mapping (got 3)"),
    ("{engine: openai, url: 'http://h', layers: {retry: {attempts: x}}}", "retry.attempts: expected a whole number (got"),
    ("{engine: openai, url: 'http://h', layers: {retry: {attempts: -1}}}", "attempts is at least 1, not -1"),
    ("{engine: openai, url: 'http://h', layers: {max_concurrency: 0}}", "judges.j.layers: a limit is at least 1, not 0"),
    ("{engine: vllm, model: 3}", "judges.j.model: expected text (got 3)"),
    ("{engine: 'nomodule:x'}", "judges.j: cannot import nomodule"),
    ("{engine: 'no module:x'}", "judges.j: 'no module:x' is not module:object"),
]
REWARDS = [
    ("&r {min: [a, *r]}", "reward.yaml, line 2: an alias stands within what it names"),
    ("{min: [" * 400 + "a" + "]}" * 400, "nested too deeply"),
    (f"{{gate: {{if: '{'not ' * 20_000}a >= 1', then: a, otherwise: 0}}}}", "gate: 'not not not"),
    ("[]", "reward: expected a mapping, a grader's name or a number, not []"),
    ("true", "reward: expected a mapping, a grader's name or a number, not True"),
    ("c", "the reward names 'c', which no grader gives; there is 'a', 'b'"),
    ("a", f"grader 'b' is {LONG}"),
    ("0.5", f"grader 'a' is {LONG}"),
    ("{}", "reward: no node is called ''"),
    ("{wieghted: {a: 1}}", "no node is called 'wieghted'; did you mean 'weighted'?"),
    ("{weighted: [a]}", "weighted takes a mapping of names to weights"),
    ("{weighted: {}}", "weighted: give at least one term"),
    ("{weighted: {a: x, b: 1}}", "the weight of 'a' is a finite number, not 'x'"),
    ("{weighted: {a: null, b: 1}}", "the weight of 'a' is a finite number, not None"),
    ("{weighted: {a: .nan, b: 1}}", "the weight of 'a' is a finite number, not nan"),
    ("{weighted: {a: .inf, b: 1}}", "the weight of 'a' is a finite number, not inf"),
    ("{weighted: {a: true, b: 1}}", "the weight of 'a' is a finite number, not True"),
    ("{weighted: {a: {weight: 1, off: b}}}", "the term 'a' is a weight, or {weight: …, of: …}"),
    ("{weighted: {a: 1}, normalise: true}", "weighted takes no 'normalise'; did you mean 'normalize'?"),
    ("{weighted: {a: 1}, normalize: 3}", "normalize is true or false, not 3"),
    ("{gate: 3}", "a gate is {if: 'correct >= 1', then: …, otherwise: …}, all three written"),
    ("{gate: {if: a > 0}}", "all three written"),
    ("{gate: {if: a >> 0, then: a, otherwise: b}}", "'a >> 0' is not a condition such as 'correct >= 1'"),
    ("{gate: {if: 3, then: a, otherwise: b}}", "3 is not a condition"),
    ("{gate: {if: c > 0, then: a, otherwise: b}}", "the reward names 'c'"),
    ("{gate: {if: a > 5, then: b, otherwise: 0}}", "the gate a > 5 can never pass: a lies in 0..1"),
    ("{gate: {if: '__import__(\"os\")', then: a, otherwise: b}}", "is not a condition"),
    ("{switch: {by: data_source, cases: {}}}", "switch: give at least one case"),
    ("{switch: {by: nothing, cases: {m: a}, otherwise: b}}", "switch: by is a field of the rollout, not 'nothing'"),
    ("{product: a}", "product takes a list of one or more nodes"),
    ("{product: []}", "product: give at least one node"),
    ("{fallback: [a, b, a]}", "fallback takes a list of 2 nodes"),
    ("{clip: {of: a, low: 1, high: 0}}", "clip: low 1 must be below high 0"),
    ("{clip: {of: a, low: x, high: 1}}", "clip: low is a finite number, not 'x'"),
    ("{const: x}", "const is a finite number, not 'x'"),
    ("{score: 3}", "score: give the name of a grader, not 3"),
    ("{score: a, if_missing: nothing}", "if_missing is 'propagate', 'renormalise' or a number, not 'nothing'"),
    ("{score: a, if_brokn: 0}", "score takes no 'if_brokn'; did you mean 'if_broken'?"),
]
SETTINGS = [
    ("runner: []", "runner: give a mapping, such as runner: {timeout_s: 30}, not []"),
    ("runner: {max_concurency: 3}", "runner: there is no parameter 'max_concurency'; did you mean 'max_concurrency'?"),
    ("runner: {max_concurrency: '8'}", "runner.max_concurrency: expected a whole number (got '8')"),
    ("runner: {max_concurrency: 0}", "max_concurrency is a whole number from 1, not 0"),
    ("runner: {max_concurrency: yes}", "runner.max_concurrency: expected a whole number (got 'yes')"),
    ("runner: {timeout_s: yes}", "runner.timeout_s: expected a number (got 'yes')"),
    ("runner: {timeout_s: 0}", "timeout_s is a number of seconds above 0, not 0.0"),
    ("runner: {timeout_s: .nan}", "runner.timeout_s: expected a number (got nan)"),
    ("runner: {timeout_s: 1m}", "runner.timeout_s: expected a number (got '1m')"),
    ("runner: {deadline_s: -1}", "deadline_s is a number of seconds above 0, not -1.0"),
    ("runner: {transform: zscor}", "runner.transform: expected 'none', 'center', 'zscore'"),
    ("runner: {missing_reward: yes}", "runner.missing_reward: expected 'exclude', 'neutral', 'mask' or 'raise' or a number"),
    ("runner: {missing_reward: true}", "runner.missing_reward: expected"),
    ("runner: {missing_reward: '0.5'}", "runner.missing_reward: expected"),
    ("runner: {on_missing: mask}", "runner: there is no parameter 'on_missing'"),
    ("runner: {max_failure_rate: 2}", "max_failure_rate is a share from 0 to below 1, not 2.0"),
    ("runner: {retry: 3}", "runner.retry: expected a mapping (got 3)"),
    ("runner: {retry: {attempt: 3}}", "runner.retry: there is no parameter 'attempt'; did you mean 'attempts'?"),
    ("runner: {retry: {attempts: 1.5}}", "runner.retry.attempts: expected a whole number (got 1.5)"),
    ("runner: {ledger: x}", "runner: there is no parameter 'ledger'"),
    ("ledger: l.jsonl", "ledger: give a mapping, such as ledger: {path: ledger.jsonl}, not 'l.jsonl'"),
    ("ledger: {}", "ledger: the parameter 'path' is missing"),
    ("ledger: {path: 3}", "ledger.path: expected text (got 3)"),
    ("ledger: {pth: x}", "ledger: there is no parameter 'pth'; did you mean 'path'?"),
    ("ledger: {path: l.jsonl, texts: yes}", "ledger.texts: expected true or false (got 'yes')"),
    ("ledger: {path: l.jsonl, fsync: always}", "ledger.fsync: expected 'never' or 'batch' (got 'always')"),
    ("judges: []", "judges: give a mapping of names to judges"),
]
BYTES = [
    (b"\xff\xfegraders", "not UTF-8 text (byte 0); save it as UTF-8"),
    (b"graders: {a: '\xe9'}", "not UTF-8 text (byte 14)"),
    (b"\x00", "not YAML (unacceptable character #x0000"),
    (b"PK\x03\x04zip", "not YAML (unacceptable character #x0003"),
    (b"\x89PNG\r\n", "not UTF-8 text"),
]
# fmt: on
CASES = [
    *TEXTS,
    *((f"graders: {{a: {text}}}\njudges: {{j: {JUDGE}}}\n", says) for text, says in GRADERS),
    *((f"graders: {{a: {{use: judge, judge: j}}}}\njudges: {{j: {text}}}\n", says) for text, says in JUDGES),
    *((f"graders: {{a: final_answer, b: boxed}}\nreward: {text}\n", says) for text, says in REWARDS),
    *((f"graders: {{a: final_answer}}\n{text}\n", says) for text, says in SETTINGS),
    *BYTES,
]


@pytest.mark.parametrize(("text", "says"), CASES, ids=range(len(CASES)))
def test_a_wrong_file_is_one_sentence(files: Path, text: str | bytes, says: str) -> None:
    (files / "reward.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (files / "mine.py").write_text("unfinished = (")
    (files / "mine_too.py").write_text("raise ValueError('a fault of the user\\'s own')")
    (files / "mine_exits.py").write_text("raise SystemExit(3)")
    refused(files, "lint reward.yaml", says)


@pytest.mark.parametrize(("text", "says"), [CASES[0], CASES[29], CASES[-1]], ids=["empty", "grader", "bytes"])
def test_grade_says_the_same(files: Path, text: str | bytes, says: str) -> None:
    (files / "reward.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(files, "grade reward.yaml rollouts.jsonl --out g.jsonl --ledger l.jsonl", says)
