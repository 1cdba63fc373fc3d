"""The report: all rollouts in its columns, texts of a fair sample, and nothing that a policy wrote as markup."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from judgekit import DataError
from judgekit.ledger.reader import beside
from judgekit.report.audits import audits_of
from judgekit.report.marks import Mark, marks_path, read_marks, write_mark
from judgekit.report.page import write_report
from judgekit.report.table import Table

from .finding import matching_rows
from .ledgers import EVIL, some, write
from .pages import Page
from .test_table import append, entry


def page_of(ledger: Path, **options: Any) -> str:
    out = ledger.with_suffix(".html")
    write_report(ledger, out, **options)
    return out.read_text()


class Scripts(HTMLParser):
    """The tags of a page, and the texts of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.inside: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and "type" not in self.tags[-1][1]:
            self.inside.setdefault(self.tags[-1][0], data)


def test_the_page_runs_and_loads_nothing_but_its_own(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / f"{'<b>'}.jsonl", some(8, response=EVIL)))
    parsed = Scripts(page)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(parsed.inside[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert len([1 for tag, given in parsed.tags if tag == "script" and "type" not in given]) == 1
    assert not {tag for tag, _ in parsed.tags} & {"img", "iframe", "a", "link", "object", "form", "b"}
    assert all(
        not key.startswith("on") and key not in ("src", "href") for _, given in parsed.tags for key in given
    )
    assert "hacked" not in page
    assert "&lt;b&gt;.jsonl" in page


def test_numbers_are_written_by_formatters_that_are_made_once(tmp_path: Path) -> None:
    script = Scripts(page_of(write(tmp_path / "l.jsonl", some(4)))).inside["script"]
    assert script.count("new Intl.NumberFormat(") == 2
    assert not re.findall(
        r"\.toLocale\w+\(", script
    )  # makes one for each number: most of the time of 200,000 rows


@pytest.mark.parametrize("name", ["{{data}}", "{{script}}", "{{policy}} {{none}}"])
def test_a_name_that_looks_like_a_part_of_the_page_is_a_name(tmp_path: Path, name: str) -> None:
    page = page_of(write(tmp_path / f"{name}.jsonl", some(4)))
    assert f"<title>{name}.jsonl · judgekit</title>" in page
    assert Page(page).facts["rows"] == 4
    assert page.count('id="data"') == page.count('"use strict"') == 1


def test_all_rollouts_are_in_it_with_their_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(12))
    found = Page(page_of(path))
    assert found.facts["rows"] == 12
    assert sorted(found.rollouts) == list(range(12))
    (block,) = found.data["blocks"]
    assert {row: rollout["id"] for row, rollout in found.rollouts.items()} == dict(enumerate(block["id"]))
    assert {rollout["response"] for rollout in found.rollouts.values()} == {r.response for r in some(12)}
    assert found.facts["title"] == "l.jsonl"
    (spec,) = found.facts["specs"]
    assert spec["missing_reward"] == "mask"
    assert spec["graders"]["judge"]["range"] == [0, 1]


def test_a_small_sample_is_of_whole_groups_over_the_range_of_rewards(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(
        path,
        *(
            entry(i, group=i // 4, reward=i / 400, raw_reward=i / 400, response=f"text {i}")
            for i in range(400)
        ),
    )
    found = Page(page_of(path, rows=40))
    assert found.facts["rows"] == 400
    groups: dict[int, list[int]] = {}
    for row in found.rollouts:
        groups.setdefault(row // 4, []).append(row)
    assert all(len(members) == 4 for members in groups.values())
    assert len(groups) == 10
    assert min(groups) < 20
    assert max(groups) > 95
    previews = found.data["blocks"][0]["preview"]
    assert {row for row, text in enumerate(previews) if text} == set(found.rollouts)


def test_rare_failures_are_in_the_sample(tmp_path: Path) -> None:
    from judgekit import Failed, Graded

    path = tmp_path / "l.jsonl"
    rows = {42, 242, 342}
    failed = Failed("JudgeTimeout", "slow")
    append(
        path,
        *(entry(i, group=i // 4, grades={"a": failed if i in rows else Graded(0.5)}) for i in range(400)),
    )
    shown = Page(page_of(path, rows=60)).rollouts
    assert rows <= set(shown)
    assert len(shown) == 60


def test_rollouts_without_a_prompt_are_sampled_too(tmp_path: Path) -> None:
    """They are one group, larger than any page."""
    path = tmp_path / "l.jsonl"
    append(path, *(entry(i, group=None, response=f"text {i}") for i in range(300)))
    shown = sorted(Page(page_of(path, rows=40)).rollouts)
    assert 5 <= len(shown) <= 40
    assert shown[-1] > 250


def test_large_rollouts_leave_room_for_some(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    rng = random.Random(0)
    text = lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=19_000))  # noqa: E731
    append(
        path,
        *(entry(i, response=text(), messages=[{"role": "user", "content": text()}] * 3) for i in range(200)),
    )
    page = page_of(path)
    assert len(Page(page).rollouts) > 50
    assert len(page) < 5_500_000


def test_rows_0_keeps_no_text(tmp_path: Path) -> None:
    found = Page(page_of(write(tmp_path / "l.jsonl", some(8)), rows=0))
    assert found.rollouts == {}
    assert found.facts["rows"] == 8


def test_a_long_text_is_cut_in_its_middle_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, entry(0, response="a" * 500_000 + "b" * 500_000, messages=[{"content": "c" * 30_000}]))
    page = page_of(path)
    rollout = Page(page).rollouts[0]
    assert len(rollout["response"]) < 21_000
    assert "[… 980000 characters are only in the ledger …]" in rollout["response"]
    assert rollout["response"].startswith("aaa")
    assert rollout["response"].endswith("bbb")
    assert "[… 10000 characters" in rollout["messages"][0]["content"]
    assert len(page) < 200_000


def test_deep_values_make_no_ledger_unreadable(tmp_path: Path) -> None:
    deep: Any = "bottom"
    for _ in range(400):
        deep = {"a": [deep]}
    path = tmp_path / "l.jsonl"
    append(path, entry(0, extra={"deep": deep}, response="needle"))
    assert "deeper" in str(Page(page_of(path)).rollouts[0]["extra"])
    table = Table(path)
    table.read()
    assert matching_rows(table, "extra needle") == []
    assert matching_rows(table, "extra") == []
    assert matching_rows(table, "needle") == [0]


def test_a_ledger_without_texts_or_rollouts(tmp_path: Path) -> None:
    found = Page(page_of(write(tmp_path / "l.jsonl", some(4), texts=False)))
    assert "response" not in found.rollouts[0]
    assert found.data["blocks"][0]["preview"] == [""] * 4
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="holds no rollouts yet"):
        page_of(tmp_path / "empty")


def test_marks_are_beside_the_ledger_and_in_its_page(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", some(4))
    run = Page(page_of(path)).rollouts[0]["run"]
    write_mark(path, Mark(run, 0, "good", "well argued"))
    write_mark(path, Mark(run, 1, "bad"))
    write_mark(path, Mark(run, 1, ""))
    assert marks_path(path) == tmp_path / "l.marks.jsonl"
    (mark,) = read_marks(path).values()
    assert (mark.mark, mark.note, mark.time > 1e9) == ("good", "well argued", True)
    assert [m["mark"] for m in Page(page_of(path)).data["marks"]] == ["good"]
    with marks_path(path).open("ab") as file:
        file.write('{"run":"r","index":3,"note":"half é'.encode()[:-1])  # killed, or the disk was full
    write_mark(path, Mark(run, 2, "bad"))
    assert [m["mark"] for m in Page(page_of(path)).data["marks"]] == ["good", "bad"]
    folder = tmp_path / "folder"
    folder.mkdir()
    assert marks_path(folder) == tmp_path / "folder.marks.jsonl"
    marks_path(path).write_text('{"run": "r"}\n')
    with pytest.raises(DataError, match="line 1: not a mark"):
        read_marks(path)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"settings": {}}', '{"settings": 1, "steps": [1]}', "\udcff"]
)
def test_a_curve_that_cannot_be_read_is_none(tmp_path: Path, text: str | None) -> None:
    ledger = write(tmp_path / "ledger.jsonl", some(4))
    if text is not None:
        beside(ledger, "curve").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert audits_of(ledger) is None
    page_of(ledger)
