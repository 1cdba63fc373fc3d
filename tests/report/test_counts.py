"""How many rollouts and groups the page shows of a ledger in several blocks: all of them, at rest and while it grows."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from judgekit.ledger.schema import Entry
from judgekit.report.page import write_report
from judgekit.report.table import Table

from .opened import Opened, Served, browser, sync_api
from .test_table import append, entry, unfinished

__all__ = ["browser"]
SIZE = 4
"""Members of a group."""
RUN = 1000
"""Rollouts of a run; a step grades each of its prompts twice, in two groups of one id."""


def lines(count: int, first: int = 0) -> list[Entry]:
    """Rollouts of many runs in groups of four; every tenth has an unfinished line before its own."""
    found = []
    for i in range(first, count):
        index = i % RUN
        given = {
            "run": f"run {i // RUN}", "group": f"q{index // SIZE % (RUN // SIZE // 2)}", "group_first": index // SIZE * SIZE,
            "response": f"answer {i}",
        }  # fmt: skip
        if i % 10 == 0:
            found.append(unfinished(index, **given))
        found.append(entry(index, reward=i % 7 / 7, raw_reward=i % 7 / 7, **given))
    return found


def expect_counts(opened: Opened, count: int) -> None:
    """Wait until heading, table and groups all say how many there are."""
    groups = count // SIZE
    sync_api.expect(opened.page.locator("#facts")).to_contain_text(
        f"{count:,} rollouts in {groups:,} groups", timeout=15_000
    )
    opened.tab("Groups")
    listed = opened.page.get_by_role("grid", name="Groups")
    sync_api.expect(listed).to_have_attribute("aria-rowcount", str(groups + 1))
    opened.page.locator(".row").first.click()
    opened.page.locator(".member").nth(SIZE - 1).wait_for()
    assert opened.page.locator(".member").count() == SIZE
    opened.tab("Rollouts")
    opened.expect(".filters output", re.escape(f"{count:,} of {count:,}"))


@pytest.mark.parametrize("count", [5_000, 20_000])
@pytest.mark.parametrize("kind", ["report", "view"])
def test_all_groups_of_a_finished_ledger_are_shown(
    browser: Any, tmp_path: Path, count: int, kind: str
) -> None:
    ledger = tmp_path / "l.jsonl"
    append(ledger, *lines(count))
    if kind == "report":
        write_report(ledger, tmp_path / "l.html", rows=100)
        with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
            opened.page.locator("#facts").get_by_text(f"{count:,} rollouts").wait_for()
            assert f"in {count // SIZE:,} groups" in opened.page.locator("#facts").inner_text()
            opened.tab("Groups")
            listed = opened.page.get_by_role("grid", name="Groups")
            assert listed.get_attribute("aria-rowcount") == str(count // SIZE + 1)
        return
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        expect_counts(opened, count)
        opened.page.reload()
        expect_counts(opened, count)


def test_a_block_travels_once_however_long_the_ledger_is_read(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(self: Table, rows: int) -> int:
        time.sleep(0.02)
        return read(self, rows)

    read = Table.read
    monkeypatch.setattr(Table, "read", slowly)
    ledger = tmp_path / "l.jsonl"
    append(ledger, *lines(30_000))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        expect_counts(opened, 30_000)
        blocks = Counter(url.rpartition("/")[2] for url in opened.requests if "/api/block/" in url)
        first = blocks.pop("0", 0)  # comes with the first answer, and again when it is whole
    assert first <= 1
    assert set(blocks.values()) == {1}


@pytest.mark.parametrize("tab", ["Overview", "Groups"])
@pytest.mark.parametrize("count", [5_000, 20_000])
def test_groups_that_come_later_are_shown_where_a_person_looks(
    browser: Any, tmp_path: Path, count: int, tab: str
) -> None:
    ledger = tmp_path / "l.jsonl"
    append(ledger, *lines(count // 5))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        expect_counts(opened, count // 5)
        opened.tab(tab)
        append(ledger, *lines(count, count // 5))
        if tab == "Groups":
            listed = opened.page.get_by_role("grid", name="Groups")
            rows = str(count // SIZE + 1)
            sync_api.expect(listed).to_have_attribute("aria-rowcount", rows, timeout=15_000)
        expect_counts(opened, count)


def test_an_opened_group_that_is_not_whole_gets_its_other_members(browser: Any, tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    append(ledger, entry(0, group="g", response="one"), entry(1, group="g", response="two"))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        opened.tab("Groups")
        opened.page.locator(".row").first.click()
        opened.page.get_by_text("2 members").wait_for()
        append(ledger, entry(2, group="g", response="three"))
        opened.page.get_by_text("3 members").wait_for()
        assert opened.page.locator(".member").count() == 3
