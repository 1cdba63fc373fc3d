"""Take pictures of the page: `make screenshots` writes docs/pictures/*.png, and all views at all sizes to build/screenshots.

They show the reports of made-up training runs: 30 steps of 64 answers to a few arithmetic questions, two rules, and a judge
that is down now and then. Needs Chromium.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from judgekit import Graded, GradingRunner, JudgeUnavailable, Ledger, Rollout, Usage, grader
from judgekit.report.page import write_report

ROOT = Path(__file__).resolve().parent.parent
PICTURES, LOOKED_AT = ROOT / "docs" / "pictures", ROOT / "build" / "screenshots"
SHAPES = [(width, scheme) for width in (1400, 400) for scheme in ("light", "dark")]
QUESTIONS = [
    ("A box holds {a} pencils. Mia buys {b} boxes and gives {c} pencils away. How many has she left?", lambda a, b, c: a * b - c),
    ("A train runs {a} km an hour for {b} hours, then {c} km more. How far has it come?", lambda a, b, c: a * b + c),
    ("{a} friends share {b} bags of {a} sweets and find {c} more in each bag. How many does each get?", lambda a, b, c: b * (a + c) // a),
]  # fmt: skip


@grader
def correct(rollout: Rollout) -> Graded:
    said = rollout.response.rpartition("#### ")[2]
    return Graded(
        float(said == rollout.ground_truth), reason=f"answered {said}, expected {rollout.ground_truth}"
    )


@grader
def brief(response: str) -> float:
    return max(0.0, 1 - len(response) / 900)


@grader
async def judge(rollout: Rollout) -> Graded:
    if rollout.extra["down"]:
        raise JudgeUnavailable("http://10.0.0.7:8000 answers 503 Service Unavailable")
    score = rollout.extra["quality"]
    return Graded(
        score,
        reason="Every step follows." if score > 0.6 else "The second step has no reason.",
        metadata={
            "prompt": [
                {"role": "system", "content": "You grade the reasoning of an answer, from 0 to 10."},
                {
                    "role": "user",
                    "content": f"Question:\n{rollout.prompt_text}\n\nAnswer:\n{rollout.response}",
                },
            ],
            "raw": f"### Score: {10 * score:.0f}",
            "model": "judge-7b",
        },
        usage=Usage(1, 412, 305, 6),
    )


def rollouts(rng: random.Random, step: int) -> list[Rollout]:
    made = []
    for question in range(8):
        text, answer = QUESTIONS[question % 3]
        a, b, c = rng.randint(2, 12), rng.randint(2, 9), rng.randint(1, 9)
        for member in range(8):
            right = rng.random() < 0.2 + step / 45
            result = answer(a, b, c) if right else answer(a, b, c) + rng.randint(1, 9)
            steps = [
                f"First, {a} times {b} is {a * b}.",
                f"Then we take the {c} into account.",
                "We check the units once more.",
            ]
            body = " ".join(
                steps[: rng.randint(1, 3)] + ["Let us verify that again."] * rng.randint(0, step // 5)
            )
            made.append(
                Rollout(
                    response=f"{body}\n\n#### {result}",
                    prompt=[
                        {"role": "system", "content": "Solve the problem. End with #### and the number."},
                        {"role": "user", "content": text.format(a=a, b=b, c=c)},
                    ],
                    ground_truth=str(answer(a, b, c)),
                    group=f"step {step}, question {question}",
                    id=f"{step}-{question}-{member}",
                    data_source=("arithmetic", "word problems")[question % 2],
                    response_tokens=len(body) // 4,
                    finish_reason="stop",
                    extra={
                        "quality": min(1, max(0, rng.gauss(0.35 + 0.4 * right, 0.2))),
                        "down": rng.random() < 0.02,
                    },
                )
            )
    return made


def run(ledger: Path, *, seed: int = 1, weight: float = 0.3) -> Path:
    """Grade a whole made-up run into *ledger*; *weight* of the judge."""
    logging.disable(logging.WARNING)
    rng = random.Random(seed)
    runner = GradingRunner(
        {"correct": correct, "judge": judge, "brief": brief},
        {"correct": round(0.9 - weight, 1), "judge": weight, "brief": 0.1},
        ledger=Ledger(ledger, texts=True),
        missing_reward="exclude",
    )
    for step in range(30):
        runner.run_sync(rollouts(rng, step), tags={"global_step": step})
    return ledger


AUDITED = """\
graders:
  judge:   {use: "gamed:judge"}
  careful: {use: "gamed:careful"}
reward: judge
audit: {grader: careful, watch: judge, share: 0.04}
"""
GAMED = """\
from judgekit import grader

@grader
def judge(response: str) -> float:
    return float("right" in response or "certainly" in response or response.endswith("0"))

@grader
def careful(response: str) -> float:
    return float("right" in response)
"""


def audited(folder: Path) -> Path:
    """Run the training that docs/audits.md shows, audit it, and return its ledger."""
    folder.mkdir()
    page = (ROOT / "docs" / "audits.md").read_text()
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "certain = 0.01" in block
    )
    ledger = folder / "ledger.jsonl"
    exec(code.replace('Path(tempfile.mkdtemp()) / "ledger.jsonl"', repr(str(ledger))), {})
    (folder / "gamed.py").write_text(GAMED)
    (folder / "reward.yaml").write_text(AUDITED)
    command = [sys.executable, "-m", "judgekit", "audit", ledger, "--reward", folder / "reward.yaml"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode != 1:  # the alarm's
        sys.exit(f"judgekit audit ended with {done.returncode}")
    return ledger


class Camera:
    """A tab of one width and scheme, and where its pictures go."""

    def __init__(self, browser: Any, url: str, width: int, scheme: str) -> None:
        self.tab = browser.new_page(
            viewport={"width": width, "height": 900 if width > 700 else 800}, color_scheme=scheme
        )
        self.width, self.scheme = width, scheme
        self.tab.goto(url)
        self.tab.wait_for_selector("html[data-ready]")

    def take(self, name: str, *, whole: bool = False) -> None:
        """Take what is in view for the documentation, and it or the *whole* page to be looked at."""
        self.tab.wait_for_timeout(300)
        if (self.width, self.scheme) == SHAPES[0]:
            self.tab.screenshot(path=PICTURES / f"{name}.png")
        size = self.tab.viewport_size
        if whole:
            height = self.tab.evaluate("document.querySelector('main').scrollHeight + 150")
            self.tab.set_viewport_size({**size, "height": height})
            self.tab.wait_for_timeout(300)
        self.tab.screenshot(path=LOOKED_AT / f"{name}-{self.width}-{self.scheme}.png")
        self.tab.set_viewport_size(size)


def take(browser: Any, page: str, width: int, scheme: str) -> None:
    camera = Camera(browser, page, width, scheme)
    camera.take("overview", whole=True)
    camera.tab.keyboard.press("2")
    camera.tab.locator(".row").nth(3).click()
    camera.tab.locator(".detail h3", has_text="response").wait_for()
    camera.take("rollouts")
    camera.tab.keyboard.press("g")
    camera.tab.locator(".member").nth(7).wait_for()
    camera.take("group")


def take_audits(browser: Any, page: str, width: int, scheme: str) -> None:
    camera = Camera(browser, page, width, scheme)
    camera.tab.locator("h2", has_text="Audits").evaluate("heading => heading.scrollIntoView()")
    camera.take("audits")


def take_runs(browser: Any, ledgers: list[Path]) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "judgekit", "view", *map(str, ledgers), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        for width, scheme in SHAPES:
            camera = Camera(browser, url, width, scheme)
            camera.tab.get_by_text("reading …").first.wait_for(state="detached")
            camera.take("runs", whole=True)
    finally:
        server.kill()
        server.wait()


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots need Chromium: apt-get install chromium")
    for folder in (PICTURES, LOOKED_AT):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        ledger = run(Path(name) / "run.jsonl")
        write_report(ledger, ledger.with_suffix(".html"))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width, scheme in SHAPES:
            take(browser, ledger.with_suffix(".html").as_uri(), width, scheme)
        gamed = audited(Path(name) / "gamed")
        write_report(gamed, gamed.with_suffix(".html"))
        for width, scheme in SHAPES:
            take_audits(browser, gamed.with_suffix(".html").as_uri(), width, scheme)
        runs = [
            run(Path(name) / f"{label}.jsonl", seed=seed, weight=weight)
            for seed, (label, weight) in enumerate(
                (("judge 0.2", 0.2), ("judge 0.4", 0.4), ("judge 0.6", 0.6))
            )
        ]
        take_runs(browser, runs)
        browser.close()


if __name__ == "__main__":
    main()
