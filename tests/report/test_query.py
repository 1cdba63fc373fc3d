"""The search language in the page: fields, operators, expressions, messages; links; columns; what is suspicious first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, Failed, Graded, Usage
from judgekit.report.marks import Mark, write_mark
from judgekit.report.page import write_report

from .opened import Opened, Served, browser, sync_api
from .test_table import append, entry, unfinished

__all__ = ["browser"]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight rollouts in two groups, each with something of its own."""
    path = tmp_path_factory.mktemp("query") / "l.jsonl"
    asked = Usage(calls=1, prompt_tokens=10)

    def one(index: int, reward: float | None, judge: Any, rule: Any, **given: Any) -> Any:
        fields = {
            "group": index // 4,
            "response": f"answer {index}",
            "response_chars": 8,
            "prompt": "why 3 < 4?",
        } | given
        grades = {"judge": judge, "rule one": rule}
        return entry(index, reward=reward, raw_reward=reward, status="masked" if reward is None else "scored", grades=grades, **fields)  # fmt: skip

    def said(score: float, reason: str = "") -> Graded:
        return Graded(score, reason=reason, usage=asked)

    append(
        path,
        one(0, 0.5, said(0.5), Graded(0.5)),
        one(1, 0.9, said(0.95, "Fine work."), Graded(0.0)),
        one(2, None, Failed("JudgeTimeout", "30 s", usage=asked), Graded(1.0)),
        one(3, 0.1, said(0.1), Abstained("no reference"), data_source="math"),
        one(4, 0.2, said(0.2), Graded(0.25), response="", response_chars=0),
        one(5, 0.3, said(0.3), Graded(0.3), response="Say 42, then 43.", response_chars=16),
        one(6, 0.4, said(0.4), Graded(0.4), finish_reason="length", tags={"step": 3}),
        one(7, -1.0, said(0.0), Graded(0.1), id="=1+1"),
    )
    run = entry(0).run
    write_mark(path, Mark(run, 3, "bad", "wrong unit"))
    write_report(path, path.with_suffix(".html"))
    return path


SEARCHES = [
    ("", [0, 1, 2, 3, 4, 5, 6, 7]),
    ("reward<0.3", [3, 4, 7]),
    ("reward>=0.3 reward<=0.5", [0, 5, 6]),
    ("reward=none", [2]),
    ("reward!=none -reward<0.3", [0, 1, 5, 6]),
    ("reward!=0.5", [1, 2, 3, 4, 5, 6, 7]),
    ("reward=-1", [7]),
    ("judge.failed", [2]),
    ("any.abstained", [3]),
    ("-any.failed -any.abstained", [0, 1, 4, 5, 6, 7]),
    ('"rule one">0.3', [0, 2, 6]),
    ('"rule one".abstained', []),  # a phrase: it has no such state
    ("judge>0.9", [1]),
    ("status=masked", [2]),
    ("status!=scored", [2]),
    ("source=math", [3]),
    ("error~timeout", [2]),
    ("error=JudgeTimeout", [2]),
    ("group=1", [4, 5, 6, 7]),
    ("id~/^[0-3]$/", [0, 1, 2, 3]),
    ("finish=length", [6]),
    ("mark=bad note~unit", [3]),
    ("step=3", [6]),
    ("length>8", [5]),
    ("advantage>0", [1, 4, 5, 6]),
    ("look=disagree", [1]),
    ("look=empty", [4]),
    ("look=cut", [6]),
    ("look=missing", []),
    ("ANSWER 1", [1]),
    ('"answer 1"', [1]),
    ('answer -"answer 1"', [0, 2, 3, 6, 7]),
    ("answer reward<0.3", [3, 7]),
    ("3 < 4?", [0, 1, 2, 3, 4, 5, 6, 7]),
    ("response~answer", [0, 1, 2, 3, 6, 7]),
    ("prompt~answer", []),
    ("reason~fine", [1]),
    ("reason~/fine/", []),
    ("reason~/fine/i", [1]),
    (r"text~/\b4[23]\b/", [5]),
    (r"/say \d+/i judge<1", [5]),
    ("response!~answer", [4, 5]),
    ("response~/nothing|then/", [5]),
    ("rollout.reward<0", [7]),
]
WRONG = [
    ("rewrd<0.3", "No field is called 'rewrd'. There are judge, rule one, reward, raw, step,"),
    ("a=b", 'To search for the text, write "a=b".'),
    ("reward<abc", "reward<abc: 'abc' is no number."),
    ("reward<", "reward< lacks what comes after <."),
    ("reward~3", "reward is a number: write reward<0.5, say."),
    ("judge=failed", "Write judge.failed."),
    ("juge.failed", "No grader is called 'juge'. There are judge, rule one, any."),
    ("status>scored", "status is no number: write status=scored or status~scored."),
    ("response=answer", "response is a text: write response~word or response~/expression/."),
    ("text~/(/", "/(/ is no regular expression."),
    ("reward<none", "reward<none: none goes with = and !=."),
    ('"open', 'A quote is not closed: put " at its end.'),
    ("reward=/1/", "A regular expression goes with ~, as in reward~/1/."),
]  # fmt: skip


def found(opened: Opened, search: str) -> None:
    opened.page.locator("#search").fill(search)
    opened.page.wait_for_function(
        "wanted => new URLSearchParams(location.hash.slice(1)).get('search') === (wanted || null)", arg=search
    )


def rows_of(opened: Opened) -> list[int]:
    opened.page.wait_for_function("() => / of /.test(document.querySelector('.filters output').textContent)")
    return sorted(int(text) for text in opened.page.locator(".row .cell:first-child").all_inner_texts())


@pytest.mark.parametrize("served", [False, True])
def test_a_search_finds_what_it_says_in_the_file_and_on_the_server(
    browser: Any, ledger: Path, served: bool
) -> None:
    hidden = "&columns=-reward%0A-status%0A%2Bindex"

    def look(opened: Opened) -> None:
        wrong = {}
        texts = [search for search, _ in SEARCHES].index("ANSWER 1")
        for search, wanted in SEARCHES[texts if served else 0 :]:  # columns are the page's in both
            found(opened, search)
            if (rows := rows_of(opened)) != wanted:
                wrong[search] = rows
        assert wrong == {}
        found(opened, "index=0")
        for search, message in WRONG:
            opened.page.locator("#search").fill(search)
            sync_api.expect(opened.page.get_by_role("alert")).to_contain_text(message)
            assert rows_of(opened) == [0]  # what was found before stays
            opened.page.locator("#search").fill("index=0")
            sync_api.expect(opened.page.get_by_role("alert")).to_be_hidden()
            assert rows_of(opened) == [0]

    if served:
        with Served(ledger) as server, Opened(browser, f"{server.url}&tab=Rollouts{hidden}") as opened:
            look(opened)
    else:
        url = ledger.with_suffix(".html").as_uri()
        with Opened(browser, f"{url}#tab=Rollouts{hidden}") as opened:
            look(opened)


def test_what_is_looked_at_stands_in_the_address(browser: Any, ledger: Path) -> None:
    url = ledger.with_suffix(".html").as_uri()
    with Opened(browser, url) as opened:
        page = opened.page
        opened.tab("Rollouts")
        found(opened, "judge<0.5 reward>-5")
        assert rows_of_rewards(opened) == [-1.0, 0.1, 0.2, 0.3, 0.4]
        page.locator(".head").get_by_text("reward").click()
        page.locator(".row").nth(1).click()
        page.locator(".detail").get_by_text("Say 42").wait_for()
        link = page.url
    with Opened(browser, link) as opened:
        page = opened.page
        page.locator(".detail").get_by_text("Say 42").wait_for()
        assert page.locator("#search").input_value() == "judge<0.5 reward>-5"
        assert page.locator(".row[aria-selected=true] .cell:first-child").inner_text() == "0.300"
        assert rows_of_rewards(opened) == [-1.0, 0.1, 0.2, 0.3, 0.4]
        page.get_by_role("button", name="group of 4").click()
        page.locator(".member").nth(3).wait_for()
        link = page.url
        page.go_back()
        page.locator(".detail").get_by_text("Say 42").wait_for()
    with Opened(browser, link) as opened:
        opened.page.locator(".row-of b", has_text="1").first.wait_for()
        assert opened.page.locator(".member").count() == 4
    with Opened(browser, f"{url}#tab=Rollouts&rollout=r+99") as opened:
        opened.page.get_by_text("The rollout of this link is not in the ledger.").wait_for()
    with Opened(browser, f"{url}#tab=Rollouts&search=judge%3D") as opened:
        opened.page.get_by_role("alert").get_by_text("judge= lacks what comes after =.").wait_for()


def rows_of_rewards(opened: Opened) -> list[float]:
    return sorted(float(text) for text in opened.page.locator(".row .cell:first-child").all_inner_texts())


def test_what_is_suspicious_comes_first_and_says_why(browser: Any, ledger: Path) -> None:
    with Opened(browser, ledger.with_suffix(".html").as_uri() + "#tab=Rollouts") as opened:
        told = [
            text
            for text in opened.page.locator(".row").all_inner_texts()
            if "answer" in text or "paid" in text
        ]
        reasons = [
            "paid for nothing", "judge 0.95, rule one 0", "cut off, yet paid", "judge failed",
        ]  # fmt: skip
        assert [reason in text for reason, text in zip(reasons, told, strict=False)] == [True] * 4
        opened.tab("Overview")
        signals = opened.page.locator(".signals li", has_text="Judge and rule disagree: 1")
        signals.get_by_role("button", name="show").click()
        assert opened.shown() == 1
        assert opened.page.locator("#search").input_value() == "look=disagree"


def test_columns_are_chosen(browser: Any, ledger: Path) -> None:
    with Opened(browser, ledger.with_suffix(".html").as_uri() + "#tab=Rollouts") as opened:
        page = opened.page
        heads = page.locator(".head button")
        assert "judge" in heads.all_inner_texts()
        page.locator(".columns summary").click()
        page.get_by_label("judge", exact=True).uncheck()
        page.get_by_label("advantage", exact=True).check()
        sync_api.expect(heads.filter(has_text=re.compile("^judge$"))).to_have_count(0)
        sync_api.expect(heads.filter(has_text="advantage")).to_have_count(1)
        page.reload()
        page.wait_for_selector("html[data-ready]")
        sync_api.expect(heads.filter(has_text="advantage")).to_have_count(1)
        sync_api.expect(heads.filter(has_text=re.compile("^judge$"))).to_have_count(0)


def test_a_column_of_one_value_is_not_shown_unless_it_is_wanted(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, grades={"a": Graded(i / 4), "b": Graded(1.0)}) for i in range(4)))
    append(path, unfinished(9))
    write_report(path, tmp_path / "l.html")
    with Opened(browser, (tmp_path / "l.html").as_uri() + "#tab=Rollouts") as opened:
        heads = opened.page.locator(".head button").all_inner_texts()
        assert "a" in heads
    path.unlink()
    append(path, *(entry(i, grades={"a": Graded(i / 4), "b": Graded(1.0)}) for i in range(4)))
    write_report(path, tmp_path / "l.html")
    with Opened(browser, (tmp_path / "l.html").as_uri() + "#tab=Rollouts") as opened:
        heads = opened.page.locator(".head button").all_inner_texts()
        assert ("a" in heads, "b" in heads, "status" in heads) == (True, False, False)


def test_an_expression_that_takes_forever_is_given_up(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.report.view._EXPRESSION_S", 4.0)
    path = tmp_path / "l.jsonl"
    append(path, entry(0, response="a" * 60 + "!"), entry(1, response="b"))
    with Served(path) as served, Opened(browser, f"{served.url}&tab=Rollouts") as opened:
        opened.page.locator("#search").fill("/(a+)+$/")
        opened.page.get_by_role("alert").get_by_text("put more plain letters in it").wait_for()
        opened.page.locator("#search").fill("/b$/")
        sync_api.expect(opened.page.locator(".filters output")).to_have_text("1 of 2", timeout=20_000)
        opened.errors.clear()  # the browser tells of the answer that was no result
