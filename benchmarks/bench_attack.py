"""Whether `judgekit attack`, `lint`, `grade` and `compare` find what is wrong with a reward, and our own rules pay what they should.

    make bench-attack

`faults`: twelve faults that are planted in sound rewards; each is found if the command that is to find it says so and ends as it
should. `findings_on_sound`: holes and errors in six rewards without a fault. `paid_wrong`, `refused`: the whole corpus on 400 rows in
public forms (with GSM8K's where ../shared is present), by the rule that is made for each kind. `judge_paid_wrong`: the same by the
embedded judge, by family with Wilson's interval. `attack_s`, `pytest_s`: the commands' own time, start included.
`cosine_error`: the cosine of `judgekit compare` against the advantages that verl, SkyRL and TRL compute of the same rewards.
"""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import FIGURES, finish, machine, reported

ROOT = Path(__file__).resolve().parents[1]
CLI = (sys.executable, "-m", "judgekit")
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k_train.jsonl"

GRADERS = """graders:
  correct: {use: final_answer}
  brief:   {use: length, soft_max: 700, hard_max: 1400}
"""
JUDGED = """graders:
  correct: {use: final_answer}
  judge:   {use: judge, judge: local}
judges:
  local: {engine: "planted:Judge"}
"""
PLANTED = '''
from judgekit import Usage
from judgekit.judges import JudgeReply

class Judge:
    """Says yes to everything."""

    async def complete(self, request):
        worst, *_, best = request.choices
        return JudgeReply(best, choice_probs={worst: 0.0, best: 1.0}, label_mass=1.0, usage=Usage(calls=1))

class Contrary(Judge):
    """Likes what is wrong, and nothing that is right."""

    async def complete(self, request):
        worst, *_, best = request.choices
        wrong = "41" in "".join(turn.text for turn in request.turns)
        return JudgeReply("", choice_probs={worst: 0.9 - 0.8 * wrong, best: 0.1 + 0.8 * wrong}, label_mass=1.0, usage=Usage(calls=1))
'''


class Fault(NamedTuple):
    what: str
    reward: str
    command: str
    """What is to find it; {yaml} and {rows} are files."""
    says: str
    """A regular expression of what it then says."""
    code: int = 1


ROWS = [
    {
        "prompt": f"{n} * 7?",
        "group": n,
        "ground_truth": str(7 * n),
        "response": f"The answer is {7 * n - k % 2}.",
    }
    for n in range(6, 46)
    for k in range(4)
]
WORDS_42 = [
    {"prompt": "6 * 7?", "group": n, "ground_truth": "42", "response": f"The answer is {41 + k % 2}."}
    for n in range(40)
    for k in range(4)
]
ATTACK = "attack {yaml}"
FAULTS = (
    Fault("a weight's sign", GRADERS + "reward: {weighted: {correct: -0.7, brief: {weight: 0.3, of: {product: [correct, brief]}}}}\n",
          ATTACK, "earns? no more than a wrong one|no right answer is paid|earns more than an honest", code=2),
    Fault("the weight on the wrong term", GRADERS + "reward: {weighted: {correct: 0.1, brief: 0.9}}\n", ATTACK, "holds no answer, and earns as much"),
    Fault("a gate the wrong way round", GRADERS + "reward: {gate: {if: correct < 1, then: brief, otherwise: 0}}\n",
          ATTACK, "no more than a wrong one|no right answer is paid", code=2),
    Fault("a clip below a score", GRADERS + "reward: {clip: {of: {weighted: {correct: 0.7, brief: 0.3}}, low: 0, high: 0.3}}\n",
          ATTACK, "no more than a wrong one", code=2),
    Fault("brevity that is added", GRADERS + "reward: {weighted: {correct: 0.7, brief: 0.3}}\n", ATTACK, "holds no answer, and earns as much"),
    Fault("if_missing: 1", "graders: {correct: final_answer, loops: action_loop}\nreward: {weighted: {correct: 0.7, loops: {weight: 0.3, of: {score: loops, if_missing: 1}}}}\n",
          ATTACK, "holds no answer, and earns as much"),
    Fault("a length in the wrong unit", GRADERS.replace("soft_max: 700, hard_max: 1400", "soft_max: 7, hard_max: 14")
          + "reward: {gate: {if: correct >= 1, then: brief, otherwise: 0}}\n", ATTACK, "is right, and earns less than another right answer"),
    Fault("a switch that hides a case", "graders: {correct: final_answer}\nreward: {switch: {by: data_source, cases: {maths: correct}}}\n",
          "attack {yaml} {rows}", "no right answer has a reward", code=2),
    Fault("a gate that nothing passes", GRADERS + "reward: {gate: {if: correct >= 2, then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}\n",
          "lint {yaml}", "correct >= 2", code=2),
    Fault("tests that are only defined", "graders:\n  correct: {use: code}\n", "grade {yaml} {defined}", "nothing|never|no check", code=1),
    Fault("a saturated judge", JUDGED.replace("  correct: {use: final_answer}\n", "") + "reward: judge\n", "grade {yaml} {rows}", "rewards are the highest one", code=0),
    Fault("two graders that cancel", JUDGED.replace("Judge", "Contrary") + "reward: {weighted: {correct: 0.5, judge: 0.5}}\n",
          "grade {yaml} {same}", "judge and correct correlate by -1.00", code=0),
)  # fmt: skip
SOUND = (
    ("number", "graders: {correct: final_answer}\n"),
    ("number", GRADERS + "reward: {gate: {if: correct >= 1, then: {weighted: {correct: 0.7, brief: 0.3}}, otherwise: 0}}\n"),
    ("number", GRADERS + "reward: {weighted: {correct: 0.8, brief: {weight: 0.2, of: {product: [correct, brief]}}}}\n"),
    ("choice", "graders: {correct: multiple_choice}\n"),
    ("text", "graders:\n  correct: {use: text_match, part: committed, ignore_case: true}\n"),
    ("tools", "graders:\n  correct: {use: tool_calls, of: exact}\n"),
)  # fmt: skip
"""Rewards without a fault, each with the kind of rows that it is for."""
DEFINED = {
    "prompt": "Write add(a, b).",
    "response": "```python\nx = 1\n```",
    "ground_truth": "def never():\n    assert add(1, 2) == 3\n",
    "extra": {"entry_point": "add"},
}


def call(folder: Path, command: str) -> tuple[int, str, float]:
    """Run `judgekit`; returns its exit code, what it printed, and its seconds."""
    start = time.perf_counter()
    done = subprocess.run([*CLI, *command.split()], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr, time.perf_counter() - start


def planted() -> tuple[int, dict[str, str]]:
    found, by = 0, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "planted.py").write_text(PLANTED)
        files = {"rows": ROWS, "same": WORDS_42, "defined": [DEFINED]}
        for file, rows in files.items():
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for fault in FAULTS:
            (folder / "reward.yaml").write_text(fault.reward)
            names = {file: f"{file}.jsonl" for file in files}
            code, said, _ = call(folder, fault.command.format(yaml="reward.yaml", **names))
            told = code == fault.code and re.search(fault.says, said) is not None
            found += told
            by[fault.what] = fault.command.split()[0] if told else "not found"
            print(f"{fault.what:32} {by[fault.what]}" + ("" if told else f" (code {code})\n{said[:1500]}"))
    return found, by


def sound() -> int:
    found = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = rows_in_public_forms(random.Random(2))
        for kind, text in SOUND:
            (folder / "reward.yaml").write_text(text)
            rows = [{**row, "response": ""} for row in made if row["kind"] == kind][:20]
            (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            for command in ("attack reward.yaml rows.jsonl --json", "lint reward.yaml"):
                code, said, _ = call(folder, command)
                holes = (
                    [h for h in json.loads(said.strip().splitlines()[-1])["holes"] if h["certain"]]
                    if "--json" in command
                    else []
                )
                if code or holes:
                    found += 1
                    print(
                        f"a finding on a sound reward, by {command}: {[h['id'] for h in holes][:5] or said[:500]}\n{text}"
                    )
    return found


NAMES = ("Ava", "Noor", "Ilse", "Tomás", "Kenji", "Zuri", "Pavel", "Mei")
THINGS = ("jars", "pages", "tickets", "bricks", "lamps", "coins")
ELEMENTS = {
    "sodium": "Na",
    "silver": "Ag",
    "tin": "Sn",
    "lead": "Pb",
    "tungsten": "W",
    "potassium": "K",
    "gold": "Au",
    "copper": "Cu",
}
CITIES = {
    "France": "Paris",
    "Chile": "Santiago",
    "Kenya": "Nairobi",
    "Norway": "Oslo",
    "Japan": "Tokyo",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Ghana": "Accra",
}
LATEX = (
    ("\\frac{{{a}}}{{{b}}}", "Simplify the ratio of {a} to {b}."), ("{a}\\sqrt{{{p}}}", "Simplify $\\sqrt{{{aap}}}$."),
    ("({a}, {b})", "Where do the lines meet that cross at {a} and {b}?"), ("x={a}", "Solve $x-{b}={amb}$."),
    ("\\frac{{\\pi}}{{{b}}}", "What angle is {deg} of a half turn?"), ("{a}+{b}i", "Write the complex number with parts {a} and {b}."),
)  # fmt: skip


def rows_in_public_forms(rng: random.Random) -> list[dict[str, Any]]:
    """400 rows as data sets have them: GSM8K's rationales, options, LaTeX, words, calls and tests."""
    made: list[dict[str, Any]] = []
    gsm8k = [json.loads(line) for line in GSM8K.read_text().splitlines()] if GSM8K.is_file() else []
    for row in rng.sample(gsm8k, min(80, len(gsm8k))):
        text = row.get("answer") or row.get("ground_truth") or ""
        if "####" in text:
            made.append({"kind": "number", "prompt": row["question"], "ground_truth": text})
    while len(made) < 160:
        a, b, who, what = rng.randint(2, 999), rng.randint(2, 99), rng.choice(NAMES), rng.choice(THINGS)
        value = rng.choice([a * b, a - b, -b, a / 4, a + b / 100, a * 1000])
        truth = f"{value:g}" if isinstance(value, float) else rng.choice([f"{value}", f"{value:,}"])
        made.append(
            {
                "kind": "number",
                "prompt": f"{who} counts {a} {what} and {b} boxes. How many?",
                "ground_truth": f"{who} counts.\n#### {truth}",
            }
        )
    for _ in range(80):
        a, b = rng.sample(range(2, 40), 2)
        texts = [str(a + b), str(a * b), str(a - b), f"{a}{b}"][: rng.randint(3, 4)]
        letters = "ABCD"[: len(texts)]
        shown = "\n".join(f"{x}. {t}" for x, t in zip(letters, texts, strict=True))
        made.append(
            {
                "kind": "choice",
                "prompt": f"What is {a} and {b} together?\n{shown}",
                "ground_truth": rng.choice(letters),
                "extra": {"options": texts},
            }
        )
    for _ in range(60):
        form, prompt = rng.choice(LATEX)
        a, b, p = rng.randint(2, 30), rng.randint(31, 60), rng.choice([2, 3, 5, 7, 11])
        fill = {"a": a, "b": b, "p": p, "aap": a * a * p, "amb": a - b, "deg": f"1/{b}"}
        made.append({"kind": "maths", "prompt": prompt.format(**fill), "ground_truth": form.format(**fill)})
    for _ in range(60):
        table, ask = rng.choice(
            [(ELEMENTS, "What is the symbol of {}?"), (CITIES, "What is the capital of {}?")]
        )
        key = rng.choice(list(table))
        made.append(
            {
                "kind": "text",
                "prompt": f"{rng.choice(NAMES)} asks, {len(made)}th in the row: {ask.format(key)}",
                "ground_truth": table[key],
            }
        )
    for n in range(32):
        arguments = {"city": rng.choice(list(CITIES.values())), "days": rng.randint(1, 9)}
        made.append(
            {
                "kind": "tools",
                "prompt": f"Task {n}: the forecast, please.",
                "ground_truth": [{"name": "forecast", "arguments": arguments}],
            }
        )
    for n in range(8):
        k = rng.randint(2, 9)
        made.append({
            "kind": "code", "prompt": f"Write scale_{n}(xs), which multiplies each element by {k}.",
            "ground_truth": f"assert scale_{n}([1, 2]) == [{k}, {2 * k}]\nassert scale_{n}([]) == []\nassert scale_{n}([-1]) == [{-k}]",
            "extra": {"entry_point": f"scale_{n}", "solution": f"def scale_{n}(xs):\n    return [x * {k} for x in xs]"},
        })  # fmt: skip
    return made


RULES = {
    "number": "final_answer", "choice": "multiple_choice", "maths": "math", "text": "{use: text_match, part: committed, ignore_case: true}",
    "tools": "{use: tool_calls, of: exact}", "code": "code",
}  # fmt: skip


DOCUMENTED = {
    "final_answer": ("nothing/54", "nothing/55"),
    "multiple_choice": ("nothing/11", "nothing/54", "nothing/55", "scattered/8", "scattered/13"),
    "math": ("copied/0", "copied/1"),
}
"""What docs/testing.md says that a rule still pays: a grade that a response gives itself where the answer is 1; a numbered list of
letters for an option whose text is 1; an expression of the prompt that equals the answer."""


def rules() -> dict[str, Any]:
    """The whole corpus on 400 rows, each kind by the rule that is made for it."""
    rows = rows_in_public_forms(random.Random(39))
    total: Counter[str] = Counter()
    listed: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, rule in RULES.items():
            of_it = [
                {k: v for k, v in row.items() if k != "kind"} | {"response": ""}
                for row in rows
                if row["kind"] == kind
            ]
            (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of_it))
            (folder / "reward.yaml").write_text(f"graders:\n  correct: {rule}\n")
            _, said, seconds = call(folder, "attack reward.yaml rows.jsonl --limit 400 --json")
            report = json.loads(said.strip().splitlines()[-1])
            wrong = [h for h in report["holes"] if h["what"] != "right refused"]
            listed_in_docs = [h for h in wrong if h["id"] in DOCUMENTED.get(rule, ())]
            wrong = [h for h in wrong if h not in listed_in_docs]
            refused = [h for h in report["holes"] if h["what"] == "right refused"]
            dresses = report["completions"]
            total.update(
                rows=report["rows"],
                completions=dresses,
                paid_wrong=len(wrong),
                paid_wrong_in_docs=len(listed_in_docs),
                refused=len(refused),
            )
            for hole in report["holes"]:
                listed[f"{rule}: {hole['what']}"].append(f"{hole['id']}: {hole['response'][:70]!r}")
            print(
                f"{rule}: {report['rows']} rows, {dresses} completions, paid wrongly {len(wrong)} (and {len(listed_in_docs)} as docs/testing.md says), refused {len(refused)}, skipped {report['skipped']}, {seconds:.0f} s"
            )
    for what, which in listed.items():
        print(f"{what}: {len(which)}")
        for line in which[:8]:
            print(f"    {line}")
    return dict(total)


JUDGE = """
graders:
  judge: {use: judge, judge: local}
judges:
  local: {engine: vllm, model: embedded}
"""


def judge() -> dict[str, Any]:
    """The corpus on the shipped numbers, by the embedded judge in its own environment."""
    python = ROOT / ".venv" / "vllm" / "bin" / "python"
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "reward.yaml").write_text(JUDGE)
        program = (
            "import asyncio, json, msgspec\n"
            "from judgekit.attack.corpus import completions\n"
            "from judgekit.attack.targets import SHIPPED\n"
            "from judgekit.config import load_runner\n"
            "rows = [r for r in SHIPPED if r.kind == 'number']\n"
            "made = [(r, c) for r in rows for c in completions(r)]\n"
            "runner = load_runner('reward.yaml')\n"
            "async def main():\n"
            "    async with runner:\n"
            "        return await runner.run([r.rollout(c.text) for r, c in made])\n"
            "results = asyncio.run(main())\n"
            "print(json.dumps([[c.family, c.right, x.reward] for (_, c), x in zip(made, results)]))\n"
        )
        done = subprocess.run([python, "-c", program], cwd=name, capture_output=True, text=True, timeout=1800)
    found = (
        json.loads(done.stdout.strip().splitlines()[-1])
        if done.returncode == 0
        else sys.exit(done.stderr[-3000:])
    )
    families: dict[str, list[bool]] = defaultdict(list)
    for family, _, reward in found:
        families[family].append((reward or 0.0) >= 0.5)
    wrong = [paid for family, values in families.items() if family != "dress" for paid in values]
    for family, values in families.items():
        low, high = wilson(sum(values), len(values))
        print(
            f"embedded judge, {family:14} says yes to {sum(values)} of {len(values)} ({low:.3f} … {high:.3f})"
        )
    return {
        "judge_paid_wrong": sum(wrong) / len(wrong),
        "judge_completions": len(found),
        "judge_by_family": {f: round(sum(v) / len(v), 4) for f, v in families.items()},
    }


def wilson(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share."""
    p, d = k / n, 1 + z * z / n
    middle, half = (p + z * z / (2 * n)) / d, z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    return middle - half, middle + half


TESTS = """
import pytest

@pytest.mark.parametrize("n", range(200))
def test_right_is_more_than_wrong(judgekit_reward, n):
    reward = judgekit_reward("reward.yaml", judges={"local": "recorded.jsonl"})
    right, wrong = reward.group(f"{n} * 7?", str(7 * n), [f"The answer is {7 * n}.", f"The answer is {7 * n - 1}."])
    assert right > wrong
"""


def times() -> dict[str, float]:
    """How long the commands take, start included: an attack on 20 rows, and 200 tests from a recording."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "planted.py").write_text(PLANTED)
        rows = [row for row in rows_in_public_forms(random.Random(1)) if row["kind"] == "number"][-20:]
        (folder / "rows.jsonl").write_text("".join(json.dumps({**r, "response": ""}) + "\n" for r in rows))
        (folder / "reward.yaml").write_text(SOUND[1][1])
        attacks = [call(folder, "attack reward.yaml rows.jsonl") for _ in range(3)]
        asked = [
            {"prompt": f"{n} * 7?", "ground_truth": str(7 * n), "response": f"The answer is {7 * n - k}."}
            for n in range(200)
            for k in range(2)
        ]
        (folder / "asked.jsonl").write_text("".join(json.dumps(r) + "\n" for r in asked))
        (folder / "reward.yaml").write_text(JUDGED + "reward: {weighted: {correct: 0.5, judge: 0.5}}\n")
        code, said, _ = call(folder, "grade reward.yaml asked.jsonl --record recorded.jsonl")
        if code:
            sys.exit(said)
        (folder / "test_reward.py").write_text(TESTS)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "-p",
            "no:hypothesispytest",  # of our own environment; it takes a second of its own at the end
            "test_reward.py",
        ]
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
            seconds.append(time.perf_counter() - start)
            if "200 passed" not in done.stdout:
                sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return {"attack_s": min(seconds_of for *_, seconds_of in attacks), "pytest_s": min(seconds)}


HOST = """
import json, sys, typing
if sys.version_info < (3, 12):  # SkyRL's types need it under 3.11
    import typing_extensions
    typing.TypedDict = typing_extensions.TypedDict
import numpy as np, torch
{imports} import compute_grpo_outcome_advantage
sides = json.load(open(sys.argv[1]))
index = np.array([g for g in range({groups}) for _ in range(8)])
made = []
for rewards in sides:
    tokens = torch.zeros(len(rewards), 3, dtype=torch.float32)
    tokens[:, -1] = torch.tensor(rewards, dtype=torch.float32)
    advantages, _ = compute_grpo_outcome_advantage(tokens, torch.ones_like(tokens), index)
    made.append(advantages[:, -1].double().numpy())
a, b = made
print(json.dumps(float(a @ b / np.sqrt((a @ a) * (b @ b)))))
"""
TRL = """
import json, random, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from toy_training import GROUP, Steps, trainer
from judgekit.reward.transforms import zscore
rng = random.Random(0)

def score(completions, **columns):
    return [rng.random() for _ in completions]

score.__name__ = "judgekit"
steps = Steps()
made = trainer(Path(tempfile.mkdtemp()), score, steps=4, callbacks=[steps])
steps.trainer = made
made.train()
dot = xx = yy = 0.0
for kept in steps.kept:
    for start in range(0, len(kept["rewards"]), GROUP):
        ours = zscore(kept["rewards"][start:][:GROUP])
        for x, y in zip(ours, kept["advantages"][start:][:GROUP]):
            dot, xx, yy = dot + x * y, xx + x * x, yy + y * y
print(json.dumps(dot / (xx * yy) ** 0.5))
"""
HOSTS = {
    "verl": "from verl.trainer.ppo.core_algos",
    "skyrl": "from skyrl.backends.skyrl_train.utils.ppo_utils",
}


def cosines() -> dict[str, float]:
    """`judgekit compare` against what the trainers compute."""
    rng = random.Random(5)
    groups = 64
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mine.py").write_text(
            "from judgekit import grader\n\n@grader(version='1')\ndef a(extra: dict) -> float:\n    return extra['a']\n\n"
            "@grader(version='1')\ndef b(extra: dict) -> float:\n    return extra['b']\n"
        )
        values = [(rng.choice([0.0, 1.0, rng.random()]), rng.random()) for _ in range(groups * 8)]
        rows = [
            {
                "prompt": f"p{i // 8}",
                "group": i // 8,
                "id": str(i),
                "response": "x",
                "extra": {"a": a, "b": b},
            }
            for i, (a, b) in enumerate(values)
        ]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = 'graders: {a: "mine:a", b: "mine:b"}\nreward: {weighted: {a: %s, b: %s}}\n'
        (folder / "old.yaml").write_text(config % (0.8, 0.2))
        (folder / "new.yaml").write_text(config % (0.3, 0.7))
        call(folder, "grade old.yaml rows.jsonl --ledger l.jsonl")
        code, said, _ = call(folder, "compare l.jsonl --reward new.yaml --json")
        if code:
            sys.exit(said)
        ours = json.loads(said.strip().splitlines()[-1])["gradient"]["cosine"]
        sides = [[0.8 * a + 0.2 * b for a, b in values], [0.3 * a + 0.7 * b for a, b in values]]
        (folder / "sides.json").write_text(json.dumps(sides))
        for host, imports in HOSTS.items():
            program = HOST.replace("{imports}", imports).replace("{groups}", str(groups))
            found[host] = abs(ours - _in(host, program, str(folder / "sides.json")))
        found["trl"] = abs(1.0 - _in("trl", TRL, "", str(ROOT / "adapters" / "trl" / "tests")))
    return found


def _in(host: str, program: str, *arguments: str) -> float:
    """Run a program in a host's environment; returns the number that it prints last."""
    python = ROOT / ".venv" / host / "bin" / "python"
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, timeout=900)
    if done.returncode:
        sys.exit(f"{host}: {done.stderr[-3000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    print(machine())
    parts: Sequence[Callable[[], dict[str, Any]]] = (
        lambda: dict(zip(("faults_found", "found_by"), planted(), strict=True)),
        lambda: {"findings_on_sound": sound()},
        rules,
        times,
        lambda: {"cosine_errors": (by := cosines()), "cosine_error": max(by.values())},
        judge,
    )
    for part in parts:
        FIGURES.update(part())
    FIGURES["refused_share"] = FIGURES["refused"] / FIGURES["completions"]
    finish(
        dict(FIGURES),
        {
            "faults_found": ("==", 12),
            "findings_on_sound": ("==", 0),
            "rows": (">=", 400),
            "paid_wrong": ("==", 0),
            "refused_share": ("<=", 0.01),
            "attack_s": ("<=", 5.0),
            "pytest_s": ("<=", 3.0),
            "cosine_error": ("<=", 1e-6),
            "judge_paid_wrong": ("<=", 0.02),
        },
    )


if __name__ == "__main__":
    reported(main)
