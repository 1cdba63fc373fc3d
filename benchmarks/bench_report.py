"""How fast the report opens, in a real browser (Chromium), with hostile texts among its rollouts.

    make bench-report

Half of the rollouts have a response that tries to run a script in the page. Ledgers are written line by line, with 4
rollouts to a group, two graders, and about 2 kB of texts each.

* `page_mb`, `load_s`: size of the report of 5,000 rollouts, and the time from its opening to the drawn overview;
  `page_texts`: how many of them can be read in full in it.
* `view_first_s`: from the start of `judgekit view` over 200,000 rollouts to the first ones in the browser's table.
* `view_all_s`: … to all of them. `view_filter_ms`: from the choice of a filter to the drawn table, the median of six.
* `search_s`: from the last letter of a search in all texts of its 508 MB to the drawn table, once its index is made.
* `groups_wrong`: groups that the page shows too many or too few of ledgers of 5,000, 20,000 and 200,000 rollouts, in its
  heading and in its list, in the report and in the view.
* `compare_s`: from the start of `judgekit view` of two ledgers of 5,000 rollouts each to the drawn comparison.
* `rss_mb`: the most memory that the server had.
* `script_executed`: dialogs, changed titles and requests to elsewhere, of all pages together.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import finish, machine, median, reported

from judgekit import Failed, Graded, Usage
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.schema import Entry
from judgekit.report.page import write_report

GOALS = {
    "page_mb": ("<=", 5.0),
    "load_s": ("<=", 2.0),
    "view_first_s": ("<=", 2.0),
    "view_filter_ms": ("<=", 300.0),
    "search_s": ("<=", 1.0),
    "groups_wrong": ("<=", 0.0),
    "compare_s": ("<=", 2.0),
    "rss_mb": ("<=", 600.0),
    "script_executed": ("<=", 0.0),
}
EVIL = "</pre></script><script>alert(document.title = 'hacked')</script><img src=http://127.0.0.1:9/x onerror=alert(1)>\u202e"
WORDS = ["".join(random.Random(i).choices("abcdefghijklmnopqrstuvwxyz", k=3 + i % 8)) for i in range(4000)]
FREQUENT = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(WORDS))))
"""Words are as unevenly frequent as those of a language (Zipf 1949)."""


def write(path: Path, rollouts: int) -> Path:
    """Write a ledger as a training run leaves it."""
    rng = random.Random(0)
    with open(path, "wb") as file:
        for i in range(rollouts):
            if i % 4 == 0:
                prompt = " ".join(rng.choices(WORDS, cum_weights=FREQUENT, k=60))
            response = " ".join(rng.choices(WORDS, cum_weights=FREQUENT, k=rng.randint(60, 300)))
            if i % 2:
                response += EVIL
            correct = rng.random() < 0.5
            judge = (
                Failed("JudgeTimeout", "no answer within 30 s")
                if rng.random() < 0.01
                else Graded(
                    round(rng.random(), 3),
                    reason=" ".join(rng.choices(WORDS, cum_weights=FREQUENT, k=12)),
                    usage=Usage(1, 400, 300, 8),
                )
            )
            reward = None if isinstance(judge, Failed) else 0.7 * correct + 0.3 * judge.score
            entry = Entry(
                spec="s", time=1e9 + i, run=f"run {i // 512}", index=i % 512, group=f"group {i // 4}", id=f"id {i}",
                tags={"global_step": i // 512}, reward=reward, status="masked" if reward is None else "scored",
                raw_reward=reward, contributions={}, grades={"correct": Graded(float(correct)), "judge": judge},
                usage=Usage(1, 400, 300, 8), wall_s=rng.random(), data_source=("math", "code", "chat")[i // 4 % 3],
                finish_reason="stop", response_tokens=len(response) // 4, response_chars=len(response),
                rollout_digest=f"{i:032x}", prompt=[{"role": "user", "content": prompt}], response=response, ground_truth="42",
            )  # fmt: skip
            file.write(encoded(entry))
    return path


class Watched:
    """A browser's page, and what of a rollout's script got through."""

    def __init__(self, browser: Any) -> None:
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.executed = 0
        self.allowed = ""
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    def _dialog(self, dialog: Any) -> None:
        self.executed += 1
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        self.executed += not request.url.startswith(self.allowed)

    def goto(self, url: str) -> None:
        self.allowed = url.partition("#")[0]
        self.page.goto(url)

    def close(self) -> int:
        self.executed += "hacked" in self.page.title()
        self.page.close()
        return self.executed


def look_around(page: Any) -> None:
    """Open rollouts and a group, so that every kind of text is drawn."""
    page.keyboard.press("2")
    for i in range(4):
        page.locator(".row").nth(i).click()
        page.locator(".detail h3", has_text="response").wait_for()
    page.keyboard.press("g")
    page.locator(".member").nth(3).wait_for()


def groups_wrong(page: Any, rollouts: int) -> int:
    """How many groups of four the page misses or makes up, in its heading and in its list."""
    told = int(page.locator("#facts").inner_text().split(" groups")[0].split(" in ")[1].replace(",", ""))
    page.keyboard.press("3")
    listed = int(page.get_by_role("grid", name="Groups").get_attribute("aria-rowcount")) - 1
    return abs(told - rollouts // 4) + abs(listed - rollouts // 4)


def report(browser: Any, folder: Path) -> dict[str, float]:
    ledger = write(folder / "small.jsonl", 5000)
    out = folder / "small.html"
    write_report(ledger, out)
    times, executed, wrong = [], 0, 0
    texts = out.read_text().count('id="chunk-') * 100
    for _ in range(5):
        watched = Watched(browser)
        begin = time.perf_counter()
        watched.goto(out.as_uri())
        watched.page.wait_for_selector("html[data-ready]")
        watched.page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        times.append(time.perf_counter() - begin)
        wrong += groups_wrong(watched.page, 5000)
        look_around(watched.page)
        executed += watched.close()
    return {
        "page_mb": out.stat().st_size / 1e6,
        "page_texts": texts,
        "load_s": median(times),
        "groups_wrong": wrong,
        "executed": executed,
    }


def middle(browser: Any, folder: Path) -> dict[str, float]:
    """Groups of 20,000 rollouts, in the report and in the view."""
    ledger = write(folder / "middle.jsonl", 20_000)
    out = folder / "middle.html"
    write_report(ledger, out)
    watched = Watched(browser)
    watched.goto(out.as_uri())
    watched.page.wait_for_selector("html[data-ready]")
    wrong = groups_wrong(watched.page, 20_000)
    executed = watched.close()
    with served(ledger) as (url, _):
        watched = Watched(browser)
        watched.goto(url)
        all_of(watched.page, 20_000)
        wrong += groups_wrong(watched.page, 20_000)
        executed += watched.close()
    return {"groups_wrong": wrong, "executed": executed}


def all_of(page: Any, rollouts: int) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#facts")).to_contain_text(f"{rollouts:,} rollouts", timeout=120_000)


@contextlib.contextmanager
def served(*arguments: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`judgekit view`, its address and its process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "judgekit", "view", *map(str, arguments), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield next(word for word in server.stdout.readline().split() if word.startswith("http")), server
    finally:
        server.kill()
        server.wait()


FILTER = """(text) => new Promise((done) => {
  const field = document.querySelector("#search"), select = document.querySelector('[aria-label="any status"]');
  const before = document.querySelector(".grid"), begin = performance.now();
  if (text === "masked" || text === "") {
    select.value = text;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  } else {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const look = () => (document.querySelector(".grid") === before ? setTimeout(look, 1)
    : requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin))));
  look();
})"""


def view(browser: Any, folder: Path, rollouts: int) -> dict[str, float]:
    from playwright.sync_api import expect

    ledger = write(folder / "large.jsonl", rollouts)
    begin = time.perf_counter()
    with served(ledger) as (url, server):
        watched = Watched(browser)
        page = watched.page
        watched.goto(url)
        page.wait_for_selector("html[data-ready]")
        page.keyboard.press("2")
        page.locator(".row").first.wait_for()
        first = time.perf_counter() - begin
        all_of(page, rollouts)
        everything = time.perf_counter() - begin
        filters = [
            page.evaluate(FILTER, text)
            for text in (
                "masked", "", "source=math", "judge.failed", "reward>0.9", "reward<0.1 correct=0",
            )
        ]  # fmt: skip
        page.get_by_role("button", name="clear").click()
        wrong = groups_wrong(page, rollouts)
        look_around(page)
        page.keyboard.press("/")
        searched = []
        for i in (77777, 123456, 42424):
            page.locator("#search").fill(f"no such text {i}")  # waits for the index, the first time
            expect(page.locator(".filters output")).to_contain_text(f"0 of {rollouts:,}", timeout=60_000)
            page.locator("#search").fill(f"id {i}")
            begin = time.perf_counter()
            expect(page.locator(".filters output")).to_contain_text(f"1 of {rollouts:,}", timeout=60_000)
            searched.append(time.perf_counter() - begin)
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        return {
            "view_first_s": first,
            "view_all_s": everything,
            "view_filter_ms": median(filters),
            "search_s": median(searched),
            "groups_wrong": wrong,
            "rss_mb": peak / 1e3,
            "ledger_mb": ledger.stat().st_size / 1e6,
            "executed": watched.close(),
        }


def compared(browser: Any, folder: Path) -> dict[str, float]:
    before, after = (write(folder / f"{name}.jsonl", 5000) for name in ("before", "after"))
    begin = time.perf_counter()
    with served(before, after) as (url, _):
        watched = Watched(browser)
        watched.goto(url)
        watched.page.get_by_text("5,000 rollouts are in both").wait_for()
        return {"compare_s": time.perf_counter() - begin, "executed": watched.close()}


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("bench-report needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = [step(browser, Path(name)) for step in (report, middle, compared)]
        found.append(view(browser, Path(name), 200_000))
        browser.close()
    summed = {
        "groups_wrong": sum(one.pop("groups_wrong", 0) for one in found),
        "script_executed": sum(one.pop("executed") for one in found),
    }
    print(machine())
    finish({key: value for one in [*found, summed] for key, value in one.items()}, GOALS)


if __name__ == "__main__":
    reported(main)
