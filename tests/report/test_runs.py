"""Several ledgers together: what is said of each, their curves, two compared, and the way into one and back."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from judgekit import DataError, Failed, Graded
from judgekit.report.comparison import comparison
from judgekit.report.marks import Mark, write_mark
from judgekit.report.runs import Runs, ledgers_in, names_of, render_runs, summary
from judgekit.report.table import Table

from .opened import Opened, Served, browser, sync_api
from .test_table import append, entry, unfinished

__all__ = ["browser"]


def ledger(path: Path, *, better: float = 0.0, steps: int = 3) -> Path:
    """Two groups of two in each step; the fourth rollout has no reward."""
    path.parent.mkdir(exist_ok=True, parents=True)
    for step in range(steps):
        rewards = [0.1 + better, 0.1 + better, 0.5 + step / 10, None]
        append(
            path,
            *(
                entry(
                    i, run=f"r{step}", tags={"step": step}, reward=reward, raw_reward=reward, time=60.0 * step, response=f"step {step}, {i}",
                    status="masked" if reward is None else "scored", response_tokens=10,
                    grades={"a": Failed("JudgeTimeout", "x") if reward is None else Graded(reward)},
                )
                for i, reward in enumerate(rewards)
            ),
        )  # fmt: skip
    return path


def test_a_ledger_is_summed_up(tmp_path: Path) -> None:
    path = ledger(tmp_path / "l.jsonl")
    append(path, unfinished(9, run="r2", time=200.0))
    table = Table(path)
    table.read()
    found = summary(table)
    steps = found.pop("steps")
    assert found == {
        "rollouts": 13, "groups": 7, "reward": pytest.approx((0.6 + 1.8) / 9), "missing": 3 / 12, "flat": 1.0, "length": 10.0,
        "unit": "characters", "failed": {"a": 3}, "tokens": 0, "ended": 200.0,
    } | {"length": found["length"]}  # fmt: skip
    assert [one["step"] for one in steps] == [0, 1, 2]
    assert steps[1]["reward"] == pytest.approx((0.2 + 0.6) / 3)
    assert steps[1]["graders"]["a"] == pytest.approx((0.2 + 0.6) / 3)
    append(tmp_path / "empty.jsonl")
    empty = Table(tmp_path / "empty.jsonl")
    empty.read()
    told = summary(empty)
    assert (told["rollouts"], told["reward"], told["missing"], told["flat"]) == (0, None, None, None)


def test_a_folder_of_folders_holds_several_ledgers(tmp_path: Path) -> None:
    one, two = ledger(tmp_path / "runs/a/ledger.jsonl"), ledger(tmp_path / "runs/b/c/0.jsonl")
    ledger(tmp_path / "runs/b/c/1.jsonl")
    assert ledgers_in([tmp_path / "runs"]) == [one.parent, two.parent]
    assert ledgers_in([two.parent, one]) == [two.parent, one]  # a folder of files is one ledger
    assert names_of([one.parent, two.parent]) == ["a", "b/c"]
    assert names_of([one, two]) == ["a/ledger.jsonl", "b/c/0.jsonl"]
    write_mark(one.parent, Mark("r", 0, "good"))  # beside its folder, which is in the folder of the runs
    write_mark(two.parent, Mark("r", 0, "good"))
    assert ledgers_in([tmp_path / "runs"]) == [one.parent, two.parent]
    (tmp_path / "none").mkdir()
    with pytest.raises(
        DataError, match=re.escape("holds no ledger: there is no file *.jsonl in it or below it")
    ):
        ledgers_in([tmp_path / "none"])


def test_nobody_without_the_token_reads_any_of_them(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:  # the browser of other tests has a loop in this one
        thread.submit(asyncio.run, _nobody_without_the_token(tmp_path)).result()


async def _nobody_without_the_token(tmp_path: Path) -> None:
    paths = [ledger(tmp_path / f"{name}.jsonl") for name in "ab"]
    async with Runs(paths).served() as url, aiohttp.ClientSession() as session:
        base, _, token = url.partition("#")
        for what in ("api/runs", "api/comparison?before=0&after=1", "0/api/state", "1/api/rollout/0"):
            assert (await session.get(base + what)).status == 403
            assert (
                await session.get(base + what, headers={"Authorization": f"Bearer {token}"})
            ).status == 200
        for page in ("", "0/"):
            assert "step 0" not in await (await session.get(base + page)).text()
        evil = {"Authorization": f"Bearer {token}", "Host": "evil.example"}
        assert (await session.get(base + "0/api/state", headers=evil)).status == 403
        for wrong in ("before=0", "before=0&after=2", "before=x&after=1", "before=-1&after=0"):
            headers = {"Authorization": f"Bearer {token}"}
            assert (await session.get(f"{base}api/comparison?{wrong}", headers=headers)).status == 400


@pytest.mark.parametrize("width", [1400, 400])
def test_runs_are_rows_curves_and_a_comparison(browser: Any, tmp_path: Path, width: int) -> None:
    paths = [ledger(tmp_path / name / "l.jsonl", better=i / 10) for i, name in enumerate("abc")]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "l.jsonl").write_text('{"type": "other"}\n')
    with (
        Served(*paths, tmp_path / "broken" / "l.jsonl") as served,
        Opened(browser, served.url, width) as opened,
    ):
        page = opened.page
        rows = page.locator("tbody tr")
        sync_api.expect(rows).to_have_count(4)
        sync_api.expect(page.locator("#title")).to_have_text("4 runs")
        sync_api.expect(page.get_by_text("reading …")).to_have_count(0)
        row = rows.filter(has_text="a/l.jsonl")
        assert row.locator("td").all_inner_texts()[1:4] == ["12", "6", "0.267"]
        assert "a failed × 3" in row.inner_text()
        assert "not a line of a judgekit ledger" in rows.filter(has_text="broken").inner_text()
        assert page.locator("figure .curve").count() == 6  # three runs, of the reward and of a grader
        page.get_by_role("button", name="sort by mean reward").click()
        assert [text.split("/")[0].strip() for text in rows.locator("td:first-child").all_inner_texts()] == [
            "c", "b", "a", "broken",
        ]  # fmt: skip
        page.get_by_label("choose a/l.jsonl").check()
        assert page.locator("figure .curve").count() == 2
        page.get_by_label("choose c/l.jsonl").check()
        page.get_by_text("No rollout is in both").or_(page.get_by_text("rollouts are in both")).wait_for()
        assert page.evaluate("document.body.scrollWidth") <= width
        row.get_by_role("button", name="a/l.jsonl").click()
        page.wait_for_selector("html[data-ready]")
        opened.expect("#facts", "12 rollouts in 6 groups")
        opened.tab("Rollouts")
        page.locator(".row").first.click()
        page.locator(".detail h3", has_text="response").wait_for()
        page.get_by_role("button", name="all runs").click()
        sync_api.expect(page.locator("#title")).to_have_text("4 runs")


def test_of_two_runs_the_comparison_leads_to_their_rollouts(browser: Any, tmp_path: Path) -> None:
    before, after = ledger(tmp_path / "before.jsonl"), ledger(tmp_path / "after.jsonl", better=0.2)
    with Served(before, after) as served, Opened(browser, served.url) as opened:
        page = opened.page
        page.get_by_text("12 rollouts are in both; the rewards of 6 changed").wait_for()
        page.locator("table", has_text="raw before").locator("tbody button").first.click()
        page.wait_for_selector("html[data-ready]")
        sync_api.expect(page.locator("#title")).to_have_text("after.jsonl")
        page.locator(".detail .big", has_text="0.3").wait_for()


def test_a_page_of_runs_needs_no_server(browser: Any, tmp_path: Path) -> None:
    paths = [ledger(tmp_path / name / "l.jsonl", better=i / 10) for i, name in enumerate("abc")]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "l.jsonl").write_text('{"type": "other"}\n')
    out = tmp_path / "runs.html"
    out.write_text(render_runs([*paths, tmp_path / "broken" / "l.jsonl"], "my runs"))
    with Opened(browser, out.as_uri()) as opened:
        page = opened.page
        rows = page.locator("tbody tr")
        sync_api.expect(rows).to_have_count(4)
        row = rows.filter(has_text="a/l.jsonl")
        assert row.locator("td").all_inner_texts()[1:4] == ["12", "6", "0.267"]
        assert "a failed × 3" in row.inner_text()
        assert "not a line of a judgekit ledger" in rows.filter(has_text="broken").inner_text()
        assert page.locator("figure .curve").count() == 6
        page.get_by_label("choose a/l.jsonl").check()
        page.get_by_label("choose c/l.jsonl").check()
        assert page.locator("figure .curve").count() == 4
        page.get_by_text("Two of several are compared by judgekit view").wait_for()
        assert opened.requests == [out.as_uri()]
    out.write_text(render_runs(paths[:2], "two"))
    with Opened(browser, out.as_uri()) as opened:
        opened.page.get_by_text("12 rollouts are in both; the rewards of 6 changed").wait_for()
        opened.page.locator("table", has_text="raw before").locator("tbody button").first.click()
        opened.page.get_by_text("This page holds no rollouts: judgekit view shows them.").wait_for()
        assert opened.requests == [out.as_uri()]


def islands(page: str) -> dict[str, Any]:
    """What stands in a page of runs, read as its script reads it."""
    found = dict(re.findall(r'<script type="application/octet-stream" id="([\w-]+)">([^<]*)<', page))
    return {name: json.loads(gzip.decompress(base64.b64decode(data))) for name, data in found.items()}


def test_a_page_of_runs_holds_each_and_the_comparison_of_two(tmp_path: Path) -> None:
    paths = [ledger(tmp_path / name / "l.jsonl", better=i / 10) for i, name in enumerate("ab")]
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"type": "other"}\n')
    told = islands(render_runs([*paths, broken], "my runs"))["runs"]
    assert told["compared"] is None
    assert [one["name"] for one in told["runs"]] == ["a/l.jsonl", "b/l.jsonl", "broken.jsonl"]
    assert [one["rollouts"] for one in told["runs"]] == [12, 12, 0]
    assert ["line of a judgekit ledger" in one["problem"] for one in told["runs"]] == [False, False, True]
    two = islands(render_runs(paths, "two"))["runs"]
    before, after = (Table(path) for path in paths)
    before.read()
    after.read()
    assert two["compared"] == json.loads(json.dumps(comparison(before, after)))
    assert two["compared"] is not None


def test_of_runs_without_rollouts_there_is_no_page(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").touch()
    with pytest.raises(DataError, match="none of the 2 ledgers in it holds rollouts that can be read"):
        render_runs([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], "it")


def test_runs_that_grow_are_shown_as_they_do(browser: Any, tmp_path: Path) -> None:
    paths = [ledger(tmp_path / f"{name}.jsonl") for name in "ab"]
    with Served(*paths) as served, Opened(browser, served.url) as opened:
        row = opened.page.locator("tbody tr", has_text="a.jsonl").first
        sync_api.expect(row.locator("td").nth(1)).to_have_text("12")
        append(paths[0], entry(0, run="later", tags={"step": 3}))
        sync_api.expect(row.locator("td").nth(1)).to_have_text("13")
