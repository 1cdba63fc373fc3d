"""Texts of a rollout as a person reads them: Markdown, formulas, the judge's verdict; and that they can do nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit import Graded
from judgekit.report import formulas
from judgekit.report.formulas import mathml, with_formulas
from judgekit.report.marks import read_marks
from judgekit.report.page import write_report

from .opened import Opened, Served, browser, sync_api
from .test_table import append, entry

__all__ = ["browser"]

MARKDOWN = """# Title
A *soft* and **strong** word, `code <b>`, ~~gone~~ and [a link](https://example.com/x).

1. one
2. two
   - inner

| a | b |
|---|---|
| 1 | **2** |

> quoted

```python
x = "**not bold**"
```
#### 42"""

HOSTILE = [
    "<script>document.title = 'hacked'</script>", "<img src=x onerror=\"document.title='hacked'\">",
    "[click](javascript:document.title='hacked')", "![x](http://127.0.0.1:9/x.png)", "[a]: javascript:alert(1)", "<javascript:alert(1)>",
    "**<svg onload=alert(1)>**", "`</pre><script>alert(1)</script>`", "# <iframe src=http://127.0.0.1:9></iframe>",
    "| <script>alert(1)</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | c |", "> <script>alert(1)</script>",
    "- <a href=javascript:alert(1)>x</a>", "[![x](javascript:alert(1))](javascript:alert(2))", "```<script>\nalert(1)\n```",
    "\u202e**right to left**", "*\u200b*", "[\u202e](x\u200by)", "**a" * 20_000, "$" * 30_001, "`a" * 20_000, "__a" * 20_000, "[" * 30_000,
    ">" * 5000, "- " * 3000, "|" * 5000 + "\n" + "|-" * 2500, "\\(" * 10_000,
]  # fmt: skip
MATHML = {
    r"\text{ok}": "<math><mtext>ok</mtext></math>",
    "script": "<math><mtext><script>alert(document.title='hacked')</script></mtext></math>",
    "href": '<math><mrow href="javascript:alert(1)"><mi>x</mi></mrow></math>',
    "event": '<math><mi onclick="alert(1)" onload="alert(1)">x</mi></math>',
    "style": '<math><mi style="color:transparent">x</mi></math>',
    "phantom": "<math><mphantom><mi>x</mi></mphantom></math>",
    "html": '<html xmlns="http://www.w3.org/1999/xhtml"><body onload="alert(1)"/></html>',
    "other": '<math><img xmlns="http://www.w3.org/1999/xhtml" src="x" onerror="alert(1)"/></math>',
    "entity": '<!DOCTYPE math [<!ENTITY a "b">]><math><mi>&a;</mi></math>',
}


def opened_report(browser: Any, folder: Path, *entries: Any) -> Opened:
    append(folder / "l.jsonl", *entries)
    write_report(folder / "l.jsonl", folder / "l.html")
    return Opened(browser, (folder / "l.html").as_uri() + "#tab=Rollouts")


def test_markdown_is_drawn_and_raw_on_a_key(browser: Any, tmp_path: Path) -> None:
    with opened_report(browser, tmp_path, entry(0, response=MARKDOWN), entry(1, response="other")) as opened:
        page = opened.page
        page.locator(".row").first.click()
        prose = page.locator(".detail .prose")
        prose.get_by_text("Title").wait_for()
        drawn = {
            kind: prose.locator(kind).all_inner_texts()
            for kind in (
                "strong",
                "em",
                "del",
                "li > div > p",
                "td",
                "blockquote",
                "pre",
                ".heading",
                ".linked",
            )
        }
        assert drawn == {
            "strong": ["strong", "2"], "em": ["soft"], "del": ["gone"], "li > div > p": ["one", "two", "inner"],
            "td": ["1", "2"], "blockquote": ["quoted"], "pre": ['x = "**not bold**"'], ".heading": ["# Title", "#### 42"], ".linked": ["a link"],
        }  # fmt: skip
        assert "(https://example.com/x)" in prose.inner_text()
        assert page.locator("a").count() == 0
        page.keyboard.press("r")
        page.locator(".detail pre", has_text="# Title").wait_for()
        assert page.locator(".detail pre").first.inner_text() == MARKDOWN
        page.keyboard.press("r")
        prose.get_by_text("Title").wait_for()


def test_hostile_texts_are_text_and_do_not_hold_the_page_up(browser: Any, tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": text} for text in HOSTILE]
    with opened_report(
        browser, tmp_path, entry(0, response="\n\n".join(HOSTILE[:17]), prompt=prompt)
    ) as opened:
        page = opened.page
        page.set_default_timeout(60_000)
        page.locator(".row").first.click()
        page.locator(".detail h3", has_text="response").wait_for()
        assert page.locator("img, iframe, a, object, svg[onload]").count() == 0
        assert page.locator("script").count() == 3
        text = page.locator(".detail").text_content()
        for kept in ("<script>document.title", "onerror=", "javascript:document.title", "U+202E", "U+200B"):
            assert kept in text
        assert "\u202e" not in text
        assert page.title() == "l.jsonl · judgekit"
        assert len(opened.requests) == 1


def test_of_mathml_only_what_draws_is_taken(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formulas, "mathml", MATHML.get)
    response = " and ".join(f"${source}$" for source in MATHML)
    with opened_report(browser, tmp_path, entry(0, response=response)) as opened:
        opened.page.locator(".row").first.click()
        opened.page.locator(".detail math").first.wait_for()
        assert opened.page.locator(".detail math").all_text_contents() == ["ok"]
        raw = [f"${source}$" for source in MATHML if source != r"\text{ok}"]
        assert opened.page.locator(".detail code.math").all_inner_texts() == raw
        assert opened.page.title() == "l.jsonl · judgekit"


def test_formulas_are_found_and_what_cannot_be_converted_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("latex2mathml")
    rollout = {
        "response": r"$\frac{1}{2}$ and \(x^2\), $$\sqrt{3}$$ \[y\]; costs $5", "prompt": [{"content": "$z$"}], "other": {"deep": ["$w$"]},
    }  # fmt: skip
    made = with_formulas(rollout)["formulas"]
    assert set(made) == {r"\frac{1}{2}", "x^2", r"\sqrt{3}", "y", "z", "w"}
    assert "<mfrac>" in made[r"\frac{1}{2}"]
    assert [mathml(source) for source in ("{" * 400, r"\text{<mi>}", r"\text{a & b}")] == ["", "", ""]
    assert with_formulas({"response": "none"}) == {"response": "none"}
    many = with_formulas({"response": " ".join(f"$x_{{{i}}}$" for i in range(500))})
    assert len(many["formulas"]) == 200


def test_without_the_converter_formulas_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    formulas.mathml.cache_clear()
    assert with_formulas({"response": "$x$"}) == {"response": "$x$"}
    formulas.mathml.cache_clear()


def test_what_the_judge_was_asked_about_and_its_verdict_are_marked(browser: Any, tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "Grade this:\nThe answer is 7.\nEnd."}]
    replies = [
        "<think>Hm, seven.</think>It is fine.\n### Score: 4",
        'Well argued.\n{"score": 4, "code": "x"}',
        "4",
    ]
    verdicts = ["### Score: 4", '{"score": 4, "code": "x"}', "4"]
    rows = [
        entry(i, response="The answer is 7.", grades={"judge": Graded(0.75, metadata={"prompt": asked, "raw": raw})})
        for i, raw in enumerate(replies)
    ]  # fmt: skip
    with opened_report(browser, tmp_path, *rows) as opened:
        page = opened.page
        for i, verdict in enumerate(verdicts):
            page.locator(".row").nth(i).click()
            page.locator(".detail").get_by_text(f"row {i} ·").wait_for()
            page.locator(".detail summary", has_text="judge").click()
            assert page.locator(".candidate").all_inner_texts() == ["The answer is 7."]
            assert [text.strip() for text in page.locator(".verdict").all_inner_texts()] == [verdict]
        page.locator(".row").first.click()
        page.locator(".detail").get_by_text("row 0 ·").wait_for()
        page.locator(".detail summary", has_text="judge").click()
        page.locator(".detail summary", has_text="thinking").click()
        assert page.locator(".thinking").inner_text() == "Hm, seven."


def test_a_score_by_hand_is_kept_and_exported_as_a_label(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, response=f"answer {i}") for i in range(3)))
    with Served(path) as served, Opened(browser, f"{served.url}&tab=Rollouts") as opened:
        page = opened.page
        for i, score in enumerate(("0.8", "0.1", "0.5")):
            page.locator(".row").nth(i).click()
            page.locator(".detail").get_by_text(f"row {i} ·").wait_for()
            page.get_by_label("Your score").fill(score)
            page.get_by_label("Note").fill(f"note {i}")
            page.keyboard.press("Tab")
            sync_api.expect(page.locator(".detail button[data-mark][aria-pressed=true]")).to_have_text(
                [["good"], ["bad"], []][i]
            )
        page.wait_for_timeout(300)
        found = [(mark.mark, mark.score, mark.note) for mark in read_marks(path).values()]
        assert found == [("good", 0.8, "note 0"), ("bad", 0.1, "note 1"), ("", 0.5, "note 2")]
        page.reload()
        page.wait_for_selector("html[data-ready]")
        lines = [json.loads(line) for line in opened.download("marks").splitlines()]
    assert [line["label"] for line in lines] == [1, 0, None]
    gold = pytest.importorskip("judgekit.evidence.gold_labels")
    from judgekit import read_ledger

    (tmp_path / "labels.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    assert gold.read_labels(tmp_path / "labels.jsonl", read_ledger(path).entries) == {0: True, 1: False}


def test_each_turn_shows_what_it_earned(browser: Any, tmp_path: Path) -> None:
    """Beside the last message of each turn: messages of the policy that stand side by side are one."""
    messages = [
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "I look."}, {"role": "assistant", "content": "Now."},
        {"role": "tool", "content": "nothing"}, {"role": "assistant", "content": "It is 7."},
    ]  # fmt: skip
    graded = Graded(0.5, turns=(0.25, None))
    line = entry(
        0,
        prompt=messages[:1],
        messages=messages,
        response="It is 7.",
        raw_reward=0.75,
        turns=(0.25, 0.0),
        grades={"progress": graded},
    )
    with opened_report(browser, tmp_path, line) as opened:
        opened.page.locator(".row").first.click()
        opened.page.locator(".detail .earned").first.wait_for()
        shown = opened.page.locator(".detail .turn").all_inner_texts()
        assert [text.split("\n")[-1] for text in shown if "earned" in text] == [
            "turn 1 earned 0.25 progress 0.25", "turn 2 earned 0 progress –",
        ]  # fmt: skip
        assert "earned" not in shown[1]
        assert opened.page.get_by_text("turns earned 0.25, the outcome 0.5").count() == 1
