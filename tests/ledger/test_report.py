"""The page about a ledger: its figures are right, and nothing that a policy wrote is more than text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    DataError,
    Failed,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Rollout,
    Score,
    Usage,
    Weighted,
    grader,
    read_ledger,
)
from judgekit.ledger.report import render, write_report

EVIL = "<script>alert('x')</script><img src=x onerror=y>"


@grader
def length(rollout: Rollout) -> Any:
    return Graded(len(rollout.response) / 10, reason=f"because {EVIL}")


@grader
async def judge(rollout: Rollout) -> Any:
    if rollout.id == "2":
        raise JudgeUnavailable("down")
    if rollout.id == "3":
        return Failed("VerdictError", "no line", metadata={"raw": f"maybe {EVIL}"}, usage=Usage(calls=1))
    if rollout.id == "4":
        return None
    return Graded(0.5, usage=Usage(calls=2, prompt_tokens=3000, cached_tokens=1500, completion_tokens=20))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Six rollouts: judged, judged, failed, failed, abstained, and one that does not come to the judge."""
    path = tmp_path / "l&l.jsonl"
    tree = Weighted(
        {"length": 0.5, "judged": (0.5, Gate(if_=Score("length") >= 0.1, then="judge", otherwise=0.0))}
    )
    runner = GradingRunner(
        {"length": length, "judge": judge}, tree, missing_reward="mask", ledger=Ledger(path, texts=True)
    )
    sizes = (1, 2, 3, 4, 5, 0)
    rollouts = [
        Rollout(
            response="x" * n,
            id=str(i),
            group=i // 2,
            prompt=[{"role": "user", "content": EVIL}],
            ground_truth="truth",
        )
        for i, n in enumerate(sizes)
    ]
    runner.run_sync(rollouts)
    return path


def page_of(path: Path, **options: Any) -> str:
    out = path.with_suffix(".html")
    write_report(path, out, **options)
    return out.read_text()


class Tags(HTMLParser):
    """Names of all tags of a page, and whether they are balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br", "rect", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_runs_nothing(ledger: Path) -> None:
    page = page_of(ledger)
    tags = Tags(page)
    assert tags.open == []
    assert not tags.seen & {"script", "img", "iframe", "a", "link"}
    assert "default-src 'none'" in page
    assert "&lt;script&gt;" in page
    assert "<h1>l&amp;l.jsonl</h1>" in page


def test_facts_and_tables_are_right(ledger: Path) -> None:
    page = page_of(ledger)
    assert "6 rollouts in 3 groups; 3 scored, 3 masked" in page
    assert "5 judge calls with 6,000 prompt tokens (50 % from the prefix cache) and 40 written." in page
    rows = re.findall(r"<tr>(<td>.*?)</tr>", page)
    cells = {row[0]: row[1:] for row in (re.findall("<td>(.*?)</td>", r) for r in rows)}
    assert cells["length"][:3] == ["6", "0.250", "0.171"]
    assert cells["length"][3:] == ["0", "0", "0"]
    assert cells["judge"] == ["infrastructure", "VerdictError", "1"] or cells["judge"][0] == "2"
    assert "<td>judge</td><td>2</td><td>0.500</td><td>0.000</td><td>1</td><td>1</td><td>2</td>" in page
    for error in ("JudgeUnavailable", "VerdictError"):
        assert f"<td>judge</td><td>infrastructure</td><td>{error}</td><td>1</td>" in page
    assert "reward of a rollout: mean 0.217 of 3" in page
    assert "length: mean 0.250 of 6" in page
    assert "transform none, missing rewards: mask" in page


def test_rollouts_are_shown_in_full_failures_first(ledger: Path) -> None:
    page = page_of(ledger)
    shown = re.findall(r'<summary><b class="(\w+)">(.*?)</b> \w+ · group (\d)', page)
    assert [s[0] for s in shown] == ["masked"] * 3 + ["scored"] * 3
    assert shown[0] == ("masked", "no reward", "1")
    assert sorted(s[1] for s in shown[3:]) == ["0", "0.3", "0.35"]
    assert "<p>length 0.05 + judged 0.25</p>" in page
    assert "reply</h4><pre>maybe &lt;script&gt;alert(&#x27;x&#x27;)" in page
    assert "<h4>prompt</h4><pre>[user] &lt;script" in page
    assert "<h4>reference</h4><pre>truth</pre>" in page
    assert "<h4>response</h4><pre>xxxxx</pre>" in page
    for chip in (
        'class="chip failed" title="down (infrastructure)">judge JudgeUnavailable',
        'class="chip skipped" title="behind length &gt;= 0.1">judge skipped',
        'class="chip abstained" title="returned None">judge abstained',
        'title="because &lt;script&gt;',
    ):
        assert chip in page
    assert "more are in the ledger" not in page
    few = page_of(ledger, rows=2)
    assert "<p>4 more are in the ledger" in few
    assert few.count("<details>") == 2


def test_a_long_text_is_cut_in_its_middle(tmp_path: Path) -> None:
    path = tmp_path / "l"
    text = "a" * 4000 + "b" * 4000
    GradingRunner([length], {"length": 1.0}, ledger=Ledger(path, texts=True)).run_sync(
        [Rollout(response=text, prompt="p" * 6000)]
    )
    page = page_of(path)
    assert "p" * 6000 in page
    assert f"<pre>{'a' * 3000}\n[… 2000 characters …]\n{'b' * 3000}</pre>" in page


def test_equal_scores_are_one_bar_and_torn_lines_are_said(ledger: Path) -> None:
    reading = read_ledger(ledger)
    page = render(reading.entries, {}, title="t", torn=2)
    assert "2 torn lines were skipped" in page
    assert "Reward tree" not in page
    figures = {
        f.split("<figcaption>")[1].split(":")[0]: f for f in re.findall("<figure>(.*?)</figure>", page)
    }
    assert re.findall("<title>(.*?)</title>", figures["judge"]) == ["0 … 1: 2"]
    bars = re.findall("<title>(.*?)</title>", figures["length"])
    assert len(bars) == 20
    assert (bars[0], bars[4], bars[19]) == ("0 … 0.025: 1", "0.1 … 0.125: 1", "0.475 … 0.5: 1")
    assert re.findall('height="([0-9.]+)"', figures["length"])[:2] == ["120.0", "0.0"]
    assert '<line x1="180.0" x2="180.0"' in figures["length"]


def test_a_ledger_without_rewards_or_rollouts_is_said(tmp_path: Path) -> None:
    path = tmp_path / "l"
    nothing = grader(lambda response: None)
    GradingRunner({"nothing": nothing}, ledger=Ledger(path)).run_sync([Rollout(response="secret")])
    page = page_of(path)
    assert "No rollout has a reward." in page
    assert "<h2>Failures by cause</h2>\n<p>None.</p>" in page
    assert "<td>nothing</td><td>0</td><td>nan</td><td>nan</td><td>1</td>" in page
    assert "judge calls" not in page
    assert "secret" not in page
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="holds no rollouts yet"):
        page_of(tmp_path / "empty")
