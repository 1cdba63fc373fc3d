"""The page in a real browser: its main actions at desktop and phone width, light and dark, and hostile rollouts."""

from __future__ import annotations

import csv
import io
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from judgekit import Failed, Graded, Rollout, Usage, read_ledger
from judgekit.ledger.reader import beside
from judgekit.report.comparison import comparison
from judgekit.report.marks import read_marks
from judgekit.report.page import render, whole_table, write_report
from judgekit.report.warnings import signals
from judgekit.types import Price

from .ledgers import EVIL, some, write
from .opened import Opened, Served, browser, sync_api
from .test_table import append, entry, unfinished

__all__ = ["browser"]
SHAPES = [(1400, "light"), (1400, "dark"), (400, "light"), (400, "dark")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training steps of 40 rollouts in groups of four; a page with a comparison."""
    folder = tmp_path_factory.mktemp("report")
    batches = [(step, some(40, step=step)) for step in (1, 2)]
    for name in ("before.jsonl", "after.jsonl"):
        for step, batch in batches:
            write(folder / name, batch, global_step=step)
    table = whole_table(folder / "after.jsonl")
    page = render(table, signals(table), comparison=comparison(whole_table(folder / "before.jsonl"), table))
    (folder / "after.html").write_text(page)
    return folder / "after.html"


@pytest.mark.parametrize(("width", "scheme"), SHAPES)
def test_the_main_actions(browser: Any, report: Path, width: int, scheme: str) -> None:
    with Opened(browser, report.as_uri(), width, scheme) as opened:
        page = opened.page
        # 1: the overview's figures are about all rollouts
        assert page.locator("html").get_attribute("data-theme") == scheme
        assert "80 rollouts in 20 groups" in page.locator("#facts").inner_text()
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="judge", exact=True))
        assert row.first.inner_text().split() == ["judge", "0.459", "0.301", "40", "20", "0", "20"]
        assert page.locator("path.curve").count() >= 3
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert (
            page.locator("tr").evaluate_all("rows => Math.max(...rows.map((row) => row.clientHeight))") < 80
        )
        # 2: a cause of failures opens its rollouts
        failed = page.locator(".signals li", has_text="judge: JudgeUnavailable (infrastructure) × 20")
        failed.get_by_role("button", name="show").click()
        assert opened.shown() == 20
        assert page.locator("#search").input_value() == "judge.failed error=JudgeUnavailable"
        page.get_by_role("button", name="clear").click()
        assert opened.shown() == 80
        # 3: search in texts
        page.locator("#search").fill("question 3")
        opened.expect(".filters output", "8 ")
        page.locator("#search").fill("")
        opened.expect(".filters output", "80 ")
        # 4: filters
        if width < 700:
            page.get_by_role("button", name="filters").click()
        page.get_by_label("any status").select_option("scored")
        assert opened.shown() == 40
        page.get_by_label("any source").select_option("math")
        assert opened.shown() == 20
        page.get_by_label("any status").select_option("")
        page.locator("#search").fill("source=math reward>=0.4")
        opened.expect(".filters output", r"(?!20 |40 |80 )\d+ of 80")
        above = opened.shown()
        # 5: sorting
        page.locator(".head").get_by_text("reward").click()
        column = ".row .cell:first-child"
        values = [float(text) for text in page.locator(column).all_inner_texts()]
        assert values == sorted(values, reverse=True)
        page.locator(".head").get_by_text("reward").click()
        values = [float(text) for text in page.locator(column).all_inner_texts()]
        assert values == sorted(values)
        # 6: a rollout with its conversation, judge's prompt, and reply
        page.locator(".row").first.click()
        detail = page.locator(".detail")
        detail.get_by_text("Be brief.").wait_for()
        detail.locator("summary").first.click()
        detail.get_by_text("Is it fine?").wait_for()
        detail.get_by_text("Score: 5").wait_for()
        # 7: a mark and a note, which outlive the page
        detail.get_by_role("button", name="good").click()
        page.locator(".detail button[aria-pressed=true]").wait_for()
        detail.get_by_label("Note").fill("well argued")
        page.keyboard.press("Tab")
        # 8: its group side by side
        page.get_by_role("button", name="group of 4").click()
        page.locator(".member").nth(3).wait_for()
        assert page.locator(".member").count() == 4
        assert page.locator(".member").filter(has_text="no advantage").count() == 2
        page.get_by_role("button", name="next →").click()
        page.get_by_role("button", name="all groups").click()
        page.locator(".row").nth(19).wait_for()
        # 9: the selection as files
        opened.tab("Rollouts")
        page.keyboard.press("Escape")
        if width < 700:
            page.get_by_role("button", name="filters").click()
        rows = list(csv.DictReader(io.StringIO(opened.download("CSV"))))
        assert len(rows) == above
        assert {row["data_source"] for row in rows} == {"math"}
        assert [row["note"] for row in rows if row["mark"]] == ["well argued"]
        lines = [json.loads(line) for line in opened.download("JSONL").splitlines()]
        assert len(lines) == above
        (mark,) = (json.loads(line) for line in opened.download("marks").splitlines())
        assert (mark["mark"], mark["note"]) == ("good", "well argued")
        # 10: the comparison
        opened.tab("Compare")
        page.get_by_text("80 rollouts are in both").wait_for()
        page.reload()
        page.wait_for_selector("html[data-ready]")
        page.get_by_text("80 rollouts are in both").wait_for()
        opened.tab("Overview")
        page.get_by_text("Graders against your marks").wait_for()
        assert [request.partition("#")[0] for request in opened.requests] == [report.as_uri()] * 2


def test_charts_are_drawn_again_for_another_width(browser: Any, report: Path) -> None:
    scales = """() => [...document.querySelectorAll("figure svg")].map(
        (picture) => picture.getBoundingClientRect().width / picture.viewBox.baseVal.width)"""
    with Opened(browser, report.as_uri()) as opened:
        drawn = len(opened.page.evaluate(scales))
        for width in (500, 1000, 1400):
            opened.page.set_viewport_size({"width": width, "height": 800})
            for _ in range(500):
                found = opened.page.evaluate(scales)
                if all(abs(scale - 1) < 0.1 for scale in found):
                    break
                opened.page.wait_for_timeout(20)
            assert found == pytest.approx([1] * drawn, abs=0.1)


def test_a_dot_of_a_picture_is_a_rollout(browser: Any, report: Path) -> None:
    with Opened(browser, report.as_uri()) as opened:
        picture = opened.page.locator('svg[aria-label="raw reward against length"]')
        picture.scroll_into_view_if_needed()
        box, drawn = picture.bounding_box(), picture.evaluate("picture => picture.viewBox.baseVal.width")
        starts = re.findall(r"M([\d.]+) ([\d.]+)h0", picture.locator(".dots").first.get_attribute("d"))
        x, y = (
            box[side] + float(at) * box["width"] / drawn for side, at in zip("xy", starts[0], strict=True)
        )
        opened.page.mouse.move(x, y)
        length, reward = picture.locator("title").text_content().split(", ")
        opened.page.mouse.click(x, y)
        opened.expect(".detail .big", re.escape(f"{float(reward):.4f}"))
        assert f"{length} characters long" in opened.page.locator(".detail").inner_text()


def test_no_mouse_is_needed(browser: Any, report: Path) -> None:
    with Opened(browser, report.as_uri()) as opened:
        page = opened.page
        press = page.keyboard.press
        press("t")
        assert page.locator("html").get_attribute("data-theme") == "dark"
        press("?")
        page.get_by_text("mark good").wait_for()
        press("Escape")
        press("/")
        page.keyboard.type("question 3")
        opened.expect(".filters output", "8 ")
        press("Escape")
        press("j")
        page.locator(".detail").get_by_text("Question 3").wait_for()
        first = page.locator(".row[aria-selected=true]").get_attribute("data-line")
        press("j")
        press("m")
        page.locator(".detail button[aria-pressed=true]", has_text="good").wait_for()
        assert page.locator(".row[aria-selected=true]").get_attribute("data-line") == str(int(first or 0) + 1)
        press("k")
        assert page.locator(".row[aria-selected=true]").get_attribute("data-line") == first
        press("g")
        page.locator(".member").nth(3).wait_for()
        press("2")
        press("Escape")
        assert page.locator(".detail").count() == 0
        page.locator(".grid").focus()
        press("End")
        assert page.locator(".row[aria-selected=true]").get_attribute("aria-rowindex") == "9"
        press("1")
        page.get_by_text("Over training steps").wait_for()


def test_hostile_rollouts_run_nothing_and_hide_nothing(browser: Any, tmp_path: Path) -> None:
    big = "x" * 1_000_000 + EVIL
    trajectory = [
        {"role": EVIL, "content": [{"type": "text", "text": EVIL}, {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x.png"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": EVIL, "arguments": EVIL}}, None, 7]},
        "no message", 7, {"role": ["x"], "content": {"a": 1}},
    ]  # fmt: skip
    rollouts = [
        Rollout(response=EVIL, prompt=EVIL, id=EVIL, group=EVIL, data_source=EVIL, ground_truth=EVIL, extra={EVIL: EVIL, "judge": "mumbles"}),
        Rollout(response=EVIL, prompt=EVIL, id="=1+1", group=EVIL, messages=[m for m in trajectory if isinstance(m, dict)]),
        Rollout(response=big, prompt=EVIL, group=EVIL),
    ]  # fmt: skip
    ledger = write(tmp_path / "l.jsonl", rollouts)
    out = tmp_path / "l.html"
    write_report(ledger, out)
    with Opened(browser, out.as_uri()) as opened:
        page = opened.page
        opened.tab("Rollouts")
        for i in range(3):
            page.locator(".row").nth(i).click()
            page.locator(".detail h3", has_text="response").wait_for()
            text = page.locator(".detail").inner_text()
            for told in ("U+202E", "U+200B", "U+E0041", "<script>document.title"):
                assert told in text
            assert "\u202e" not in text
        page.locator(".row").nth(1).click()
        assert page.get_by_text("(not loaded)").count() == 1
        assert "\u202e" not in page.locator("main").inner_text()
        assert '"\'=1+1"' in opened.download("CSV")
        page.get_by_role("button", name="group of 3").click()
        page.locator(".member").nth(2).wait_for()
        opened.tab("Overview")
        assert page.title() == "l.jsonl · judgekit"
        assert page.locator("img, iframe, a, object").count() == 0
        assert page.locator("script").count() == 3
        assert opened.requests == [out.as_uri()]


def test_odd_shapes_are_shown_whole(browser: Any, tmp_path: Path) -> None:
    """Nothing of a rollout is left out, whatever its shape, and no part of it hides another."""
    odd: list[Any] = [
        {"role": "assistant", "content": None, "tool_calls": {"secret": "S1"}},
        {"role": "assistant", "content": "", "tool_calls": "S2"},
        {"from": "human", "value": "S3"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "t", "url": "u", "more": "S4"}],
            "reasoning": "S5",
        },
        {"role": "assistant", "content": {"x": "S6"}, "name": {"y": "S7"}, "reasoning_content": ["S8"]},
    ]
    path = tmp_path / "l.jsonl"
    cases = [{"input": "S9", "output": "1"}]
    append(
        path, entry(0, messages=odd, ground_truth=cases, response="e" + "\u200b" * 200_000 + "e" * 300_000)
    )
    append(path, entry(1, reward=1e17, raw_reward=1e17, response="x"))
    out = tmp_path / "l.html"
    write_report(path, out)
    with Opened(browser, out.as_uri()) as opened:
        opened.tab("Rollouts")
        opened.page.locator("#search").fill("e")
        opened.page.locator(".row").first.click()
        opened.page.locator(".detail h3", has_text="reference").wait_for()
        text = opened.page.locator(".detail").text_content()
        assert [f"S{i}" for i in range(1, 10) if f"S{i}" not in text] == []
        assert "U+200B × " in text


SLOW_TO_SAVE = """() => {
  const send = fetch;
  let wait = 800;  // the first mark arrives last, if nothing keeps their order
  window.fetch = async (path, given) => {
    if (given.method) await new Promise((done) => setTimeout(done, wait = wait / 2));
    return send(path, given);
  };
}"""


@pytest.mark.parametrize("slow", [False, True])
def test_arrow_keys_walk_and_a_click_after_a_note_counts(browser: Any, tmp_path: Path, slow: bool) -> None:
    ledger = write(tmp_path / "l.jsonl", some(40))
    with Served(ledger) as served, Opened(browser, f"{served.url}&sort=%2Bindex") as opened:
        page = opened.page
        if slow:
            page.evaluate(SLOW_TO_SAVE)
        opened.tab("Rollouts")
        page.locator(".grid").focus()
        for _ in range(4):
            page.keyboard.press("ArrowDown")
        assert page.locator(".row[aria-selected=true]").get_attribute("data-line") == "3"
        page.locator(".detail").get_by_text("row 3 ·").wait_for()  # and no earlier one is shown still
        page.get_by_label("Note").fill("my note")
        box = page.locator(".detail").get_by_role("button", name="bad").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        page.mouse.down()
        page.wait_for_timeout(150)
        page.mouse.up()
        page.locator(".detail button[aria-pressed=true]", has_text="bad").wait_for()
        (mark,) = read_marks(ledger).values()
        assert (mark.mark, mark.note) == ("bad", "my note")


@pytest.mark.parametrize(("width", "scheme"), [SHAPES[0], SHAPES[3]])
def test_the_served_page_is_live_and_keeps_marks(
    browser: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    ledger = write(tmp_path / "l.jsonl", some(40, response=EVIL))
    with Served(ledger) as served, Opened(browser, served.url, width, scheme) as opened:
        page = opened.page
        opened.tab("Rollouts")
        assert opened.shown() == 40
        page.locator("#search").fill("question 3")
        opened.expect(".filters output", "4 ")
        page.locator(".row").first.click()
        page.locator(".detail").get_by_role("button", name="bad").click()
        page.locator(".detail button[aria-pressed=true]").wait_for()
        (mark,) = read_marks(ledger).values()
        assert mark.mark == "bad"
        page.keyboard.press("Escape")
        page.get_by_role("button", name="clear").click()
        write(ledger, some(8, step=9))
        opened.expect("#facts", "48 ")
        opened.expect(".filters output", "48 ")
        assert page.title() == "l.jsonl · judgekit"


SELECTED = """() => {
    const row = document.querySelector(".row[aria-selected=true]"), { x, y, width, height } = row.getBoundingClientRect();
    return { line: row.dataset.line, place: [x, y, width, height] };
}"""
"""The selected row, its line and its place read at once: rows are drawn anew between two questions."""


def test_the_place_is_kept_while_rows_arrive(browser: Any, tmp_path: Path) -> None:
    ledger = write(tmp_path / "l.jsonl", some(400))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        page = opened.page
        opened.tab("Rollouts")
        page.locator(".grid").evaluate("box => { box.scrollTop = 6000; }")
        page.locator('.row[data-line="210"]').click()
        page.locator(".detail h3", has_text="response").wait_for()
        before = page.evaluate(SELECTED)
        write(ledger, some(8, step=9))  # two of them fail, and stand before it
        opened.expect(".filters output", "408 ")
        assert page.evaluate(SELECTED) == {"line": "212", "place": before["place"]}
        assert page.locator(".detail h3", has_text="response").count() == 1
        opened.tab("Overview")
        opened.tab("Rollouts")  # the opened rollout is in view
        sync_api.expect(page.locator(".row[aria-selected=true]")).to_be_in_viewport()


def test_a_replaced_ledger_is_shown_again(browser: Any, tmp_path: Path) -> None:
    ledger = write(tmp_path / "l.jsonl", some(40))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        page = opened.page
        opened.tab("Rollouts")
        page.locator("#search").fill("question 3")
        opened.expect(".filters output", "4 of 40")
        page.locator(".row").nth(2).click()
        page.locator(".detail h3", has_text="response").wait_for()
        other = write(tmp_path / "other", some(24, step=9, response="Other words. "))
        other.rename(ledger)
        opened.expect("#facts", "24 ")
        opened.expect(".filters output", "4 of 24")
        assert page.locator(".detail").count() == 0
        assert page.locator("#search").input_value() == "question 3"
        page.locator(".row").nth(2).click()
        page.locator(".detail").get_by_text("Other words.").first.wait_for()
        ledger.write_text("")
        opened.expect("#facts", "0 ")
        assert page.locator(".row").count() == 0
        write(ledger, some(8))
        opened.expect(".filters output", "0 of 8")


def test_a_search_finds_what_arrives_later(browser: Any, tmp_path: Path) -> None:
    ledger = write(tmp_path / "l.jsonl", some(40))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        opened.tab("Rollouts")
        opened.page.locator("#search").fill("question 1")
        opened.expect(".filters output", "4 of 40")
        write(ledger, some(8, step=9))
        opened.expect(".filters output", "8 of 48")
        assert opened.page.evaluate("document.activeElement.id") == "search"


def test_groups_follow_each_other_as_they_are_listed(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    means = [0.5, 0.9, 0.1, 0.7]
    append(
        path,
        *(
            entry(i, group=f"g{i // 2}", id="", reward=means[i // 2], raw_reward=means[i // 2])
            for i in range(8)
        ),
    )
    write_report(path, tmp_path / "l.html")
    with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
        page = opened.page
        opened.tab("Groups")
        page.locator(".head").get_by_text("mean").click()
        sync_api.expect(page.locator(".row .cell:first-child")).to_have_text(["g1", "g3", "g0", "g2"])
        page.locator(".row").first.click()
        for step in ("g1", "j", "g3", "j", "g0", "button", "g2", "k", "g0"):
            if step == "button":
                page.get_by_role("button", name="next →").click()
            elif step in "jk":
                page.keyboard.press(step)
            else:
                page.locator(".row-of b", has_text=step).wait_for()


def test_of_a_huge_group_some_are_shown_and_it_says_so(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, group=None, reward=i / 1000, raw_reward=i / 1000) for i in range(1001)))
    append(path, entry(0, run="other", group="other"))
    write_report(path, tmp_path / "l.html", rows=0)
    with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
        opened.tab("Groups")
        opened.page.locator(".row").first.click()
        opened.page.get_by_text("60 of them are shown, evenly over their rewards; 941 are not.").wait_for()
        rewards = [float(text) for text in opened.page.locator(".member .big").all_inner_texts()]
        assert (len(rewards), rewards[0], rewards[-1]) == (60, 1.0, 0.0)
        opened.page.get_by_role("button", name="all in the table").click()
        assert opened.shown() == 1001


def test_unfinished_rollouts_are_not_missing_ones(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    for step in (1, 2):
        append(path, entry(0, run=f"r{step}", tags={"step": step}))
        append(path, *(unfinished(i, run=f"r{step}", group=0, tags={"step": step}) for i in (1, 2, 3)))
    write_report(path, tmp_path / "l.html")
    with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
        missing = opened.page.locator("figcaption", has_text="share of rewards missing")
        assert missing.inner_text().endswith("0 % → 0 %")
        opened.tab("Groups")
        cells = opened.page.locator(".row").first.locator(".cell")
        sync_api.expect(cells).to_have_text(["0", "4", "0.500", "0.000", "0", "3", ""])


def test_a_reward_and_the_raw_one_are_told_apart(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(
        path,
        *(entry(i, group=0, reward=i - 0.5, raw_reward=float(i), grades={"a": Graded(i)}) for i in (0, 1)),
    )
    write_report(path, tmp_path / "l.html")
    with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
        opened.tab("Groups")
        opened.page.locator(".row").first.click()
        opened.page.get_by_text("2 members, mean raw reward 0.500").wait_for()
        first = " ".join(opened.page.locator(".member .row-of").first.inner_text().split())
        assert first == "reward 0.500 raw 1.0000 scored advantage +0.500 open"


def test_costs_are_shown_where_prices_are_known(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    grade = Graded(0.5, usage=Usage(1, 200_000, 0, 50_000))
    append(path, *(entry(i, tags={"step": i}, usage=grade.usage, grades={"a": grade}) for i in range(4)))
    for price, cost in ((None, None), (Price(1.0, 4.0), "1.60 US dollars")):
        write_report(path, tmp_path / "l.html", price=price)
        with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
            used = opened.page.locator("table", has_text="written")
            cells = ["a", "4", "800,000", "0", "200,000", *([cost] if cost else [])]
            sync_api.expect(used.locator("td")).to_have_text(cells)
            assert opened.page.get_by_text("US dollars in a step").count() == (cost is not None)
            assert ("US dollars" in opened.page.locator(".tiles").inner_text()) == (cost is not None)


CLIPPED_BY = """() => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (!walker.currentNode.data.includes("\u0301\u0301")) continue;
    let box = walker.currentNode.parentElement;
    const visible = (box) => { const style = getComputedStyle(box); return style.overflowY === "visible" || style.display === "inline"; };
    while (visible(box)) box = box.parentElement;
    found.push(box.matches(".cell") ? "cell" : box.tagName.toLowerCase());
  }
  return [...new Set(found)].sort();
}"""
"""Which boxes cut off what sticks out of a text with two acute accents."""


def test_towers_of_combining_marks_stay_in_their_own_place(browser: Any, tmp_path: Path) -> None:
    tower = "x" + "\u0301" * 60
    path = tmp_path / "l.jsonl"
    grades = {"a": Graded(0.5, reason=tower), tower: Failed(tower, tower)}
    given = {"prompt": [{"role": tower, "content": tower}], "group": tower, "id": tower, "data_source": tower}
    append(path, *(entry(i, response=tower, grades=grades, tags={"step": i}, **given) for i in range(3)))
    write_report(path, tmp_path / "l.html")
    with Opened(browser, (tmp_path / "l.html").as_uri()) as opened:
        page = opened.page
        found = {"overview": page.evaluate(CLIPPED_BY)}
        opened.tab("Rollouts")
        page.locator(".row").first.wait_for()
        found["rollouts"] = page.evaluate(CLIPPED_BY)
        page.locator(".row").first.click()
        page.locator(".detail h3", has_text="response").wait_for()
        found["rollout"] = page.evaluate(CLIPPED_BY)
        opened.tab("Groups")
        page.locator(".row").first.wait_for()
        found["groups"] = page.evaluate(CLIPPED_BY)
        page.locator(".row").first.click()
        page.locator(".member").first.wait_for()
        found["members"] = page.evaluate(CLIPPED_BY)
    own = {"button", "select", "label", "td", "cell", "li", "figcaption", "pre", "p", "h3", "b", "span"}
    assert {name: [box for box in boxes if box not in own] for name, boxes in found.items()} == {
        name: [] for name in found
    }
    assert all(found.values())


def test_a_saved_selection_is_not_named_like_a_ledger(browser: Any, report: Path) -> None:
    with Opened(browser, report.as_uri()) as opened:
        opened.tab("Rollouts")
        with opened.page.expect_download() as waiting:
            opened.page.get_by_role("button", name="JSONL", exact=True).click()
        assert waiting.value.suggested_filename == "after.selection.ndjson"


def test_marks_that_another_page_of_the_report_wrote_are_shown(browser: Any, report: Path) -> None:
    with Opened(browser, report.as_uri()) as opened:
        other = opened.context.new_page()
        other.goto(report.as_uri())
        other.wait_for_selector("html[data-ready]")
        opened.tab("Rollouts")
        opened.page.locator(".row").first.click()
        opened.page.locator(".detail").get_by_role("button", name="good").click()
        other.get_by_text("Graders against your marks").wait_for()


def test_an_address_without_its_token_says_what_to_do(browser: Any, tmp_path: Path) -> None:
    ledger = write(tmp_path / "l.jsonl", some(4))
    with Served(ledger) as served:
        page = browser.new_page()
        page.goto(served.url.partition("#")[0])
        page.get_by_text("open the address that judgekit view printed").wait_for()
        page.close()


def curve_of(ledger: Path, *, alarm: bool) -> None:
    """What `judgekit audit` writes beside a ledger."""
    run = read_ledger(ledger).entries[0].run
    points = [
        {
            "step": step, "log_e": 4.0 * alarm, "alarm": alarm and step == 2,
            "recent": {"paid_wrong": 0.1 * step, "low": 0.05 * step, "high": None if step < 1 else 0.3, "line": 0.2},
        }
        for step in range(4)
    ]  # fmt: skip
    example = {
        "step": 3, "run": run, "index": 1, "watch": {"score": 1.0}, "grader": {"score": 0.0}, "response": EVIL,
    }  # fmt: skip
    told = {
        "settings": {"watch": "judge", "grader": "careful", "pays_at_most": 0.3},
        "in_words": f"alarm at step 2: {EVIL}" if alarm else "no alarm",
        "alarm": {"step": 2, "log_e": 4.0} if alarm else None,
        "audits": {},
        "steps": points,
        "examples": [example, {**example, "run": "gone"}],
    }
    beside(ledger, "curve").write_text(json.dumps(told))


@pytest.mark.parametrize(("means", "half"), [([0.0, 1.0], 6.353), ([0.0, 1.0, 1.0, 0.0], 0.9187)])
def test_intervals_of_few_groups_are_as_wide_as_they_must_be(
    browser: Any, tmp_path: Path, means: list[float], half: float
) -> None:
    """*half*: Student's quantile times the standard error, each group twice."""
    overview = (files("judgekit.report") / "assets" / "overview.js").read_text()
    write_report(write(tmp_path / "ledger.jsonl", some(8)), tmp_path / "report.html")
    with Opened(browser, (tmp_path / "report.html").as_uri()) as opened:
        low, high = opened.page.evaluate(
            f"(() => {{ const means = {means}, known = Number.isFinite, groupKey = (row) => row >> 1;\n{overview}\n"
            "return interval([...means, ...means].map((_, row) => row), (row) => means[row >> 1]).slice(1); })()"
        )
    assert (high - low) / 2 == pytest.approx(half, rel=0.003)


def test_audits_are_shown_with_their_curve_and_lead_to_the_rollouts(browser: Any, tmp_path: Path) -> None:
    ledger = write(tmp_path / "ledger.jsonl", some(8))
    curve_of(ledger, alarm=True)
    write_report(ledger, tmp_path / "report.html")
    for width, scheme in SHAPES[::3]:
        with Opened(browser, (tmp_path / "report.html").as_uri(), width, scheme) as opened:
            page = opened.page
            assert page.locator(".signals .raised", has_text="alarm at step 2").count() == 1
            picture = page.locator('svg[aria-label^="paid, though"]')
            assert [picture.locator(f".{kind}").count() for kind in ("curve", "band", "bound", "alarm")] == [
                1,
                1,
                1,
                1,
            ]
            rows = page.locator("table", has_text="best paid").locator("tbody tr")
            assert rows.count() == 2
            assert rows.nth(1).locator("button").count() == 0  # its rollout is not in the ledger any more
            rows.nth(0).locator("button").click()
            assert page.get_by_role("tab", name="Rollouts").get_attribute("aria-selected") == "true"
            assert page.evaluate("document.body.scrollWidth") <= width


def test_a_served_page_shows_audits_that_come_later(browser: Any, tmp_path: Path) -> None:
    ledger = write(tmp_path / "ledger.jsonl", some(8))
    with Served(ledger) as served, Opened(browser, served.url) as opened:
        assert opened.page.locator("h2", has_text="Audits").count() == 0
        curve_of(ledger, alarm=False)
        opened.page.locator("h2", has_text="Audits").wait_for()
        assert opened.page.locator("p.fine", has_text="no alarm").count() == 1
