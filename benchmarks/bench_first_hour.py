"""A user's first hour: roads from data to a reward, wrong calls, lint, and functions that users have already.

    make bench-first-hour

Everything goes through the command line as users call it, or through the function that a trainer calls.

* `roads`: task × judge × trainer. `judgekit init` writes the file, `judgekit lint` must have nothing against it, and a right and a
  wrong row of the task are graded in the trainer's way: by `judgekit grade`, by the function that slime, AReaL or OpenRLHF calls, by
  `judgekit serve-rewards` as NeMo-Gym asks it, and by TRL's own trainer where its environment is there. The judge is a server that
  speaks OpenAI's API. `unscored`: rows without a score; `not_apart`: roads on which the right row is not paid more than the wrong one.
* `wrong_calls`: of every command, of reward.yaml, of damaged files, and for each shipped grader each parameter misspelt and with a
  value of a wrong kind. `bad`: those not answered by one sentence on stderr with exit code 2, or that left anything behind.
* `lint_planted`, `lint_found`: faults that need no rollout, and those that lint tells; `lint_false`: what it says of every example, of
  README's block, of docs/recipes.md and of every file that `init` writes.
* `functions`: shapes of reward functions of five kinds; `functions_equal`: those whose numbers are their trainer's, bit for bit.
  `own_code`: tests that compare with the trainer's own code, where its environment is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from aiohttp import web
from common import finish, machine, reported

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cli import test_wrong_calls, test_wrong_rollouts, test_wrong_yaml  # noqa: E402
from tests.cli.command import CONFIG, ROWS  # noqa: E402
from tests.cli.in_process import call, contents  # noqa: E402
from tests.graders import test_reward_functions as shapes  # noqa: E402

from judgekit import GradingRunner, from_function  # noqa: E402
from judgekit.bridges import bridge, openrlhf, slime  # noqa: E402
from judgekit.cli.graders import EXAMPLES, found, parameters  # noqa: E402
from judgekit.cli.init import JUDGES, NEXT, ONE_BY_ONE, TASKS, needs_judge  # noqa: E402
from judgekit.graders.rules.programs.sandbox import SandboxError, isolation  # noqa: E402

GOALS: dict[str, tuple[str, float]] = {
    "roads": (">=", 10),
    "unscored": ("==", 0),
    "not_apart": ("==", 0),
    "wrong_calls": (">=", 300),
    "bad": ("==", 0),
    "lint_planted": (">=", 8),
    "lint_missed": ("==", 0),
    "lint_false": ("==", 0),
    "functions": (">=", 12),
    "functions_different": ("==", 0),
    "own_code_failed": ("==", 0),
}

# ---- roads

SEARCH = {"type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
OTHER = {"type": "function", "function": {"name": "search", "arguments": '{"query": "y"}'}}
PAIRS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "maths": ({"prompt": "144 / 2?", "ground_truth": "72"}, r"It is $\boxed{\frac{144}{2}}$.", r"It is $\boxed{71}$."),
    "answer": ({"prompt": "144 / 2?", "ground_truth": "72"}, "The answer is 72.", "The answer is 71."),
    "words": ({"prompt": "Who wrote Emma?", "ground_truth": "Jane Austen"}, "The answer is Jane Austen.", "The answer is Mary Shelley."),
    "choice": ({"prompt": "The largest planet?", "options": ["Mars", "Jupiter"], "ground_truth": "B"}, "The answer is B.", "The answer is A."),
    "code": (
        {"prompt": "Add one.", "ground_truth": [{"input": "1", "output": "2"}]},
        "```python\nprint(int(input()) + 1)\n```",
        "```python\nprint(int(input()))\n```",
    ),
    "tools": ({"prompt": "Find x.", "ground_truth": [{"name": "search", "arguments": {"query": "x"}}]}, "x", "y"),
    "instructions": (
        {"prompt": "Write a line without a comma.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
        "no comma here",
        "a comma, here",
    ),
    "open": ({"prompt": "Write a line."}, "A line of mine.", "A bad line of mine."),
    "rubric": ({"prompt": "Write a line."}, "A line of mine.", "A bad line of mine."),
    "preference": ({"prompt": "Write a line."}, "A line of mine.", "A bad line of mine."),
}  # fmt: skip
"""For each task: a row, a right response and a wrong one."""


class Judge:
    """A server that speaks OpenAI's API: label 1 for what it reads, unless that holds the word `bad`; of two, the other one."""

    def __init__(self) -> None:
        self.asked = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait(30)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        ready.set()
        self._loop.run_forever()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "judge", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.Response:
        self.asked += 1
        first, _, second = json.dumps(await request.json()).partition("RESPONSE B:")
        good = 0.1 if re.search(r"\bbad\b", first) else 0.9
        labels = ("A", "B") if second else ("1", "0")
        tops = [
            {"token": label, "logprob": math.log(share)}
            for label, share in zip(labels, (good, 1 - good), strict=True)
        ]
        best = max(tops, key=lambda top: float(top["logprob"]))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": best["token"]},
            "finish_reason": "stop",
            "logprobs": {"content": [{**best, "top_logprobs": tops}]},
        }
        return web.json_response(
            {"choices": [choice], "model": "judge", "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
        )


class Road(NamedTuple):
    task: str
    judge: str
    trainer: str


def row(task: str, text: str) -> dict[str, Any]:
    """A row of a file of rollouts."""
    made = {**PAIRS[task][0], "response": text}
    if task == "tools":
        tool = SEARCH if text == "x" else OTHER
        made["messages"] = [{"role": "assistant", "content": None, "tool_calls": [tool]}]
    return made


def columns(task: str) -> dict[str, Any]:
    return {key: value for key, value in PAIRS[task][0].items() if key != "prompt"}


def by_file(folder: Path, road: Road, texts: Sequence[str]) -> list[float | None]:
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row(road.task, text)) + "\n" for text in texts))
    done = call(folder, *["grade", "reward.yaml", "rollouts.jsonl", "--out", "graded.jsonl", "--force"])
    if done.returncode not in (0, 1) or not (folder / "graded.jsonl").exists():
        raise RuntimeError(done.stderr)
    return [json.loads(line)["reward"] for line in (folder / "graded.jsonl").read_text().splitlines()]


def by_slime(folder: Path, road: Road, texts: Sequence[str]) -> list[float | None]:
    given = columns(road.task)
    made = [
        SimpleNamespace(
            group_index=0, index=i, prompt=PAIRS[road.task][0]["prompt"], response=text, metadata=dict(given), response_length=1,
            label=given.get("ground_truth"), status=SimpleNamespace(value="completed"), remove_sample=False,
        )
        for i, text in enumerate(texts)
    ]  # fmt: skip
    rewards = asyncio.run(slime.reward(SimpleNamespace(judgekit_reward=str(folder / "reward.yaml")), made))
    return [None if one.remove_sample else reward for one, reward in zip(made, rewards, strict=True)]


def by_openrlhf(folder: Path, road: Road, texts: Sequence[str]) -> list[float | None]:
    prompt, label = PAIRS[road.task][0]["prompt"], columns(road.task).get("ground_truth")
    return [float(openrlhf.reward_func([prompt + text], [prompt], [label])["rewards"]) for text in texts]


def by_nemo_gym(folder: Path, road: Road, texts: Sequence[str]) -> list[float | None]:
    """`judgekit serve-rewards` in a process of its own, asked as NeMo-Gym's agent does."""
    command = [sys.executable, "-m", "judgekit", "serve-rewards", "reward.yaml", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if match := re.search(r"serving rewards at (http://\S+?);", line):
                break
        else:
            raise RuntimeError(said)
        rewards: list[float | None] = []
        for text in texts:
            answer = asked(f"{match[1]}/verify", verify(road.task, text))
            rewards.append(None if answer.get("mask_sample") else float(answer["reward"]))
        return rewards
    finally:
        process.terminate()
        process.communicate(timeout=60)


def asked(url: str, body: Any) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def verify(task: str, text: str) -> dict[str, Any]:
    said = {"type": "output_text", "text": text, "annotations": []}
    output = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": PAIRS[task][0]["prompt"]}]},
        "response": {
            "id": "r", "created_at": 0.0, "model": "policy", "object": "response", "output": [output],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        },
        **columns(task),
    }  # fmt: skip


BY: Mapping[str, Callable[[Path, Road, Sequence[str]], list[float | None]]] = {
    "none": by_file,
    "slime": by_slime,
    "openrlhf": by_openrlhf,
    "nemo-gym": by_nemo_gym,
}
NO_COLUMNS = {"openrlhf"}
"""Trainers that hand over the text and a label, and no other column."""


def possible() -> Iterator[Road]:
    """Yield the roads that there are here."""
    try:
        isolation()
        sandbox = True
    except SandboxError:
        sandbox = False
    for task in TASKS:
        for judge in ("none", "http"):
            for trainer in BY:
                lacks = trainer in NO_COLUMNS and task == "instructions"
                lacks |= TASKS[task].compares and trainer in ONE_BY_ONE
                if (
                    (judge == "none" and needs_judge(task)) or lacks
                    or (task == "tools" and trainer != "none")  # their rows show text
                    or (task == "code" and not sandbox)
                    or (trainer == "nemo-gym" and task not in ("answer", "words", "open"))  # a process each
                ):  # fmt: skip
                    continue
                yield Road(task, judge, trainer)


def walk(road: Road, judge: Judge) -> tuple[int, bool, int]:
    """Go a road: rows without a score, whether right is paid more than wrong, and what lint says of the file."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        options = ["--task", road.task, "--judge", road.judge, "--from", road.trainer]
        if road.judge == "http":
            options += ["--url", f"http://127.0.0.1:{judge.port}/v1", "--model", "judge"]
        wrote = call(folder, "init", *options)
        if wrote.returncode:
            raise RuntimeError(wrote.stderr)
        linted = call(folder, "lint", "reward.yaml")
        bridge._bridges.clear()
        with environment(JUDGEKIT_REWARD=str(folder / "reward.yaml")):
            rewards = BY[road.trainer](folder, road, PAIRS[road.task][1:])
        missing = sum(reward is None for reward in rewards)
        right, wrong = rewards
        apart = right is not None and wrong is not None and right > wrong
        return missing, apart, linted.stdout.count("warning: ") + (linted.returncode != 0)


@contextlib.contextmanager
def environment(**names: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# ---- wrong calls


def refused(folder: Path, args: Sequence[str], says: str, stdin: bytes = b"") -> str:
    """Call, and return what is wrong with the answer; "" if it is one sentence with code 2, and nothing is left behind."""
    before = contents(folder)
    try:
        done = call(folder, *args, stdin=stdin)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    problems = []
    if done.returncode != 2:
        problems.append(f"code {done.returncode}")
    if done.stderr.count("\n") != 1 or not done.stderr.startswith("judgekit: ") or done.stdout:
        problems.append(f"it says {(done.stdout + done.stderr)[:300]!r}")
    if says not in done.stderr:
        problems.append(f"{says!r} is not in {done.stderr[:300]!r}")
    if contents(folder) != before:
        problems.append("it left something behind")
    return "; ".join(problems)


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "reward.yaml").write_text(CONFIG)
    (folder / "rollouts.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    return folder


def wrong_calls(folder: Path) -> Iterator[tuple[str, str]]:
    """Make every wrong call; yield what it was and what is wrong with its answer."""
    with environment(JUDGEKIT_STATE=str(folder / "state")):
        crowded = test_wrong_calls.crowd(fresh(folder / "crowded"))
        for args, says in [*test_wrong_calls.ARGUMENTS, *test_wrong_calls.OUTPUTS]:
            yield args, refused(crowded, args.split(" "), says)
        for number, (text, says) in enumerate(test_wrong_yaml.CASES):
            here = fresh(folder / "yaml")
            (here / "reward.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
            (here / "mine.py").write_text("unfinished = (")
            (here / "mine_too.py").write_text("raise ValueError('a fault of the user\\'s own')")
            (here / "mine_exits.py").write_text("raise SystemExit(3)")
            yield f"lint, file {number}", refused(here, ["lint", "reward.yaml"], says)
        rows = [("r.jsonl", data, says) for data, says in test_wrong_rollouts.LINES]
        for name, data, says in [*rows, *test_wrong_rollouts.OTHERS]:
            here = fresh(folder / "rows")
            (here / name).write_bytes(data)
            yield (
                f"grade, {name} {data[:40]!r}",
                refused(here, ["grade", "reward.yaml", name, "--out", "g.jsonl"], says),
            )
        here = fresh(folder / "graders")
        for grader, wrong, says in wrong_parameters():
            (here / "reward.yaml").write_text(wrong)
            yield f"{grader}: {wrong}", refused(here, ["lint", "reward.yaml"], says)


WRONG: Sequence[tuple[str, str]] = (
    ("text", "3"), ("whole number", "'x'"), ("number", "'x'"), ("true or false", "maybe"), ("list", "3"), ("mapping", "3"),
    ('"', "no_such_value"),
)  # fmt: skip
"""For a parameter's kind, a value of another."""


def wrong_parameters() -> Iterator[tuple[str, str, str]]:
    """Yield for each shipped grader a file with each of its parameters misspelt, and one with a value of a wrong kind."""
    served = "url: 'http://127.0.0.1:1', model: m"
    judge, scalar = f"{{engine: openai, {served}}}", f"{{engine: reward_model_http, {served}}}"
    judges = f"judges: {{local: {judge}, other: {judge}, scalar: {scalar}}}\n"
    for grader, example in EXAMPLES.items():
        for parameter in parameters(found(grader)):
            inside = example.removeprefix("{").removesuffix("}")
            others = re.sub(rf",? ?\b{parameter.name}: (\[[^\]]*\]|\{{[^}}]*\}}|[^,]+)", "", inside)
            misspelt = f"{parameter.name[:-1]}q"
            yield (
                grader,
                f"graders: {{g: {{{others}, {misspelt}: 1}}}}\n{judges}",
                f"there is no parameter {misspelt!r}",
            )
            value = next((value for kind, value in WRONG if parameter.kind.startswith(kind)), None)
            if value is not None and " or " not in parameter.kind:
                yield (
                    grader,
                    f"graders: {{g: {{{others}, {parameter.name}: {value}}}}}\n{judges}",
                    f"graders.g.{parameter.name}",
                )


# ---- lint

JUDGE = "judges: {j: {engine: openai, url: 'http://127.0.0.1:1', model: m}}\n"
RULES = "graders: {correct: final_answer, brief: {use: length, soft_max: 9, hard_max: 20}}\n"
AGENT = "graders: {correct: final_answer, loops: action_loop}\n"
PLANTED: Mapping[str, tuple[str, str, str]] = {
    "a judge that never sees the candidate": (
        f"graders: {{j: {{use: judge, judge: j, template: \"Is it good?\\n{{PROBLEM}} {{HOW_TO_ANSWER}}\"}}}}\n{JUDGE}", "", "never see what it judges"),
    "a template that needs a reference": (f"graders: {{j: {{use: judge, judge: j}}}}\n{JUDGE}", '{"prompt": "Write.", "response": "x"}', "there is no ground_truth for {REFERENCE_SOLUTION}"),
    "a rule without its reference": ("graders: {correct: final_answer}\n", '{"response": "x"}', "there is no ground_truth"),
    "an abstention that leaves the group": (f"{AGENT}reward: {{weighted: {{correct: 0.8, loops: 0.2}}}}\n", "", "which a policy can choose"),
    "an abstention that is renormalised": (f"{AGENT}reward: {{weighted: {{correct: 0.8, loops: {{weight: 0.2, of: {{score: loops, if_missing: renormalise}}}}}}}}\n", "", "its weight goes to the other terms"),
    "a gate that can be dodged": (f"{AGENT}reward: {{gate: {{if: 'loops >= 1', then: correct, otherwise: 0}}}}\n", "", "which a policy can choose"),
    "additive brevity": (f"{RULES}reward: {{weighted: {{correct: 0.7, brief: 0.3}}}}\n", "", "brief: pays up to 0.3 for form alone"),
    "additive format": ("graders: {passes: {use: code, isolation: none}, block: code_block}\nreward: {weighted: {passes: 0.9, block: 0.1}}\n", "", "block: pays up to 0.1 for form alone"),
    "equal weights by default": (RULES, "", "brief: pays up to 0.5 for form alone"),
    "a term that is clipped away": (f"{RULES}reward: {{product: [correct, {{clip: {{of: brief, low: 1, high: 2}}}}]}}\n", "", "is 1 for every rollout"),
    "a constant term": (f"{RULES}reward: {{weighted: {{correct: 1, bonus: {{weight: 0.5, of: 1}}, brief: 0}}}}\n", "", "the term 'bonus' is 1 for every rollout"),
    "a reward that never varies": (f"{RULES}reward: {{max: [1, correct, brief]}}\n", "", "max is 1 for every rollout"),
    "two equal branches": (f"{RULES}reward: {{gate: {{if: 'correct >= 1 and brief > 0', then: 1, otherwise: 1}}}}\n", "", "is 1 for every rollout"),
    "a function that never reads the response": ("graders: {hard: 'theirs:hard'}\n", "", "hard: it reads only ground_truth, prompt"),
    "a gate that always passes": (f"{RULES}reward: {{gate: {{if: 'correct >= 0', then: correct, otherwise: brief}}}}\n", "", "always passes"),
    "a case that is never taken": (f"{RULES}reward: {{switch: {{by: data_source, cases: {{'*': correct, math: brief}}}}}}\n", "", "is never taken"),
    "a judge that nobody asks": (f"graders: {{correct: final_answer}}\n{JUDGE}", "", "no grader asks it"),
}  # fmt: skip
"""Faults that need no rollout: a reward.yaml, some rows or none, and what lint must say."""


def lint(folder: Path) -> tuple[dict[str, bool], dict[str, str]]:
    """Return which planted faults were told, and what was said of files that have none."""
    told = {}
    for name, (text, rows, says) in PLANTED.items():
        here = fresh(folder / "planted")
        (here / "reward.yaml").write_text(text)
        (here / "theirs.py").write_text(
            "def hard(prompt: str, ground_truth: str) -> float:\n    return float(len(prompt) > 9)\n"
        )
        (here / "rows.jsonl").write_text(f"{rows}\n" * 3)
        done = call(here, "lint", "reward.yaml", *(["rows.jsonl"] if rows else []))
        told[name] = says in done.stdout + done.stderr
    here = fresh(folder / "extras")
    (here / "reward.yaml").write_text(
        "graders: {m: math, j: {use: json, schema: {type: object}}, r: rouge}\n"
    )
    kept = {name: sys.modules.get(name) for name in ("math_verify", "jsonschema", "rouge_score")}
    sys.modules.update(dict.fromkeys(kept))  # type: ignore[arg-type]
    try:
        told["all missing extras at once"] = (
            "judgekit-rl[math,json,text]" in call(here, "lint", "reward.yaml").stderr
        )
    finally:
        for name, module in kept.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
    false = {}
    for path in sorted((ROOT / "examples").glob("*/reward*.yaml")):
        done = call(path.parent, "lint", path.name)
        if done.returncode or "warning" in done.stdout:
            false[str(path.relative_to(ROOT))] = done.stdout + done.stderr
    pages = [
        ROOT / "README.md",
        ROOT / "docs" / "recipes.md",
        *sorted((ROOT / "adapters").glob("*/README.md")),
    ]
    for page in pages:
        for number, block in enumerate(re.findall(r"```yaml\n(graders:.*?)```", page.read_text(), re.DOTALL)):
            if "my_rewards" in block:
                continue
            here = fresh(folder / "shown")
            (here / "reward.yaml").write_text(block)
            done = call(here, "lint", "reward.yaml")
            if done.returncode or "warning" in done.stdout:
                false[f"{page.relative_to(ROOT)}, block {number}"] = done.stdout + done.stderr
    for task in TASKS:
        for judge in JUDGES:
            if judge == "none" and needs_judge(task):
                continue
            for trainer in NEXT:
                if TASKS[task].compares and trainer in ONE_BY_ONE:
                    continue
                here = fresh(folder / "init")
                call(here, "init", "new.yaml", "--task", task, "--judge", judge, "--from", trainer)
                done = call(here, "lint", "new.yaml")
                if done.returncode or "warning" in done.stdout:
                    false[f"init {task} {judge} {trainer}"] = done.stdout + done.stderr
    return told, false


# ---- functions


def functions() -> dict[str, bool]:
    """Return for each shape whether the numbers are those of its own trainer, bit for bit."""
    equal = {}
    for shape, (function, host, options) in shapes.SHAPES.items():
        results = GradingRunner({"f": from_function(function, name="f", **options)}).run_sync(
            shapes.rollouts(host)
        )
        theirs = shapes.own_numbers(function, host)
        equal[shape] = [shapes.bits(r.reward) for r in results] == [shapes.bits(number) for number in theirs]
    return equal


OWN_CODE: Mapping[str, tuple[str, str]] = {
    "TRL": ("trl", "adapters/trl/tests/test_their_functions.py"),
    "verl": ("verl", "adapters/verl/tests/test_custom_functions.py"),
}
"""Tests that compare with the trainer's own code, in its environment."""


def own_code() -> tuple[dict[str, int], int]:
    """Return the tests that passed by trainer, and how many failed."""
    passed, failed = {}, 0
    for trainer, (name, tests) in OWN_CODE.items():
        python = ROOT / ".venv" / name / "bin" / "python"
        if not python.exists():
            continue
        paths = [ROOT / "src", ROOT / "adapters" / name / "src"]
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
            cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        )  # fmt: skip
        counted = dict(re.findall(r"(\d+) (passed|failed|error)", done.stdout)[::-1])
        counts = {what: int(count) for count, what in counted.items()}
        passed[trainer] = counts.get("passed", 0)
        failed += counts.get("failed", 0) + counts.get("error", 0) + (done.returncode != 0 and not counts)
        if done.returncode:
            print(done.stdout[-2000:])
    return passed, failed


def main() -> None:
    print(machine())
    logging.getLogger("judgekit").addHandler(logging.NullHandler())
    judge = Judge()
    start = time.perf_counter()
    unscored = not_apart = said = 0
    roads: list[Road] = []
    for road in possible():
        missing, apart, warnings = walk(road, judge)
        roads.append(road)
        unscored += missing
        not_apart += not apart
        said += warnings
        if missing or not apart or warnings:
            print(
                f"  {' × '.join(road)}: {missing} unscored, {'apart' if apart else 'not apart'}, {warnings} warnings"
            )
    print(
        f"{len(roads)} roads in {time.perf_counter() - start:.0f} s; the judge was asked {judge.asked} times",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        calls = bad = 0
        for what, problem in wrong_calls(folder):
            calls += 1
            if problem:
                bad += 1
                print(f"  {what}: {problem}")
        print(f"{calls} wrong calls, {bad} answered badly", flush=True)
        told, false = lint(folder)
    for name, found_ in told.items():
        if not found_:
            print(f"  lint does not tell {name}")
    for name, text in false.items():
        print(f"  lint says of {name}: {text}")
    equal = functions()
    passed, failed = own_code()
    finish(
        {
            "roads": len(roads),
            "tasks": len({road.task for road in roads}),
            "trainers": len({road.trainer for road in roads}),
            "unscored": unscored,
            "not_apart": not_apart,
            "wrong_calls": calls,
            "bad": bad,
            "lint_planted": len(told),
            "lint_found": sum(told.values()),
            "lint_missed": len(told) - sum(told.values()),
            "lint_false": len(false) + said,
            "functions": len(equal),
            "functions_equal": sum(equal.values()),
            "functions_different": len(equal) - sum(equal.values()),
            "own_code": passed,
            "own_code_failed": failed,
            "seconds": round(time.perf_counter() - start, 1),
        },
        GOALS,
    )


if __name__ == "__main__":
    reported(main)
