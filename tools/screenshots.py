"""Take the pictures of the documentation: `make screenshots` writes docs/pictures/*.png.

They show the report of a made-up training run: 30 steps of 64 answers to a few arithmetic questions, two rules, and a judge
that is down now and then. Needs Chromium.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from judgekit import Graded, GradingRunner, JudgeUnavailable, Ledger, Rollout, Usage, grader
from judgekit.report.page import write_report

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
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


def run(ledger: Path) -> None:
    """Grade the whole made-up run into *ledger*."""
    logging.disable(logging.WARNING)
    rng = random.Random(1)
    runner = GradingRunner(
        {"correct": correct, "judge": judge, "brief": brief},
        {"correct": 0.6, "judge": 0.3, "brief": 0.1},
        ledger=Ledger(ledger, texts=True),
        missing_reward="exclude",
    )
    for step in range(30):
        runner.run_sync(rollouts(rng, step), tags={"global_step": step})


def take(browser: Any, page: Path) -> None:
    def opened(width: int, height: int, scheme: str) -> Any:
        tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        return tab

    def picture(tab: Any, name: str) -> None:
        tab.wait_for_timeout(300)
        tab.screenshot(path=PICTURES / f"{name}.png")

    tab = opened(1400, 900, "light")
    picture(tab, "overview")
    tab.keyboard.press("2")
    tab.get_by_label("any status").select_option("scored")
    tab.locator(".head").get_by_text("judge").click()
    tab.locator(".row").nth(3).click()
    tab.locator(".detail h3", has_text="response").wait_for()
    picture(tab, "rollouts")
    tab.keyboard.press("g")
    tab.locator(".member").nth(7).wait_for()
    picture(tab, "group")
    tab = opened(400, 800, "dark")
    tab.keyboard.press("2")
    tab.locator(".row").nth(3).click()
    tab.locator(".detail h3", has_text="response").wait_for()
    picture(tab, "phone")


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots need Chromium: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        ledger = Path(folder) / "run.jsonl"
        run(ledger)
        write_report(ledger, ledger.with_suffix(".html"))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, ledger.with_suffix(".html"))
        browser.close()


if __name__ == "__main__":
    main()
