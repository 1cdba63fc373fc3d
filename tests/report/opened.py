"""A page in a real browser: opened from a file or served, and watched for what it must not do."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit.report.runs import Runs
from judgekit.report.view import View

try:
    from playwright import sync_api
except ImportError:
    sync_api = None
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if sync_api is None or CHROMIUM is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page that is open, and what it must not do."""

    def __init__(self, browser: Any, url: str, width: int = 1400, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready]")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            assert self.errors == [], self.errors
        self.context.close()

    def shown(self) -> int:
        """How many rollouts the table says it shows."""
        text = self.page.locator(".filters output").inner_text()
        return int(text.split(" of ")[0].replace(",", ""))

    def expect(self, selector: str, begins: str) -> None:
        sync_api.expect(self.page.locator(selector)).to_have_text(re.compile(f"^{begins}"))

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def download(self, button: str) -> str:
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name=button, exact=True).click()
        return Path(waiting.value.path()).read_text()


class Served(threading.Thread):
    """A ledger's view, or that of several, on a loop of its own thread."""

    def __init__(self, *ledgers: Path) -> None:
        super().__init__()
        self.ledgers = ledgers
        self.url = ""
        self.up = threading.Event()
        self.end = threading.Event()

    def run(self) -> None:
        async def serve() -> None:
            server = View(self.ledgers[0]) if len(self.ledgers) == 1 else Runs(self.ledgers)
            async with server.served() as self.url:
                self.up.set()
                await asyncio.to_thread(self.end.wait)

        asyncio.run(serve())

    def __enter__(self) -> Served:
        self.start()
        assert self.up.wait(20)
        return self

    def __exit__(self, *error: object) -> None:
        self.end.set()
        self.join()
