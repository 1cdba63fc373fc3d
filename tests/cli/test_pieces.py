"""What single functions of the commands decide and print: of grade, report, view, audit, certify, replay, compare, export."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from judgekit import Abstained, DataError, Failed, Graded, Skipped
from judgekit.cli import audit, certify, compare, console, grade, replay, report
from judgekit.evidence import audit_curve
from judgekit.evidence.certificate import Certificate, Threshold
from judgekit.evidence.shares import Share
from judgekit.ledger.reader import read_ledger
from judgekit.metrics import SignalLimits
from judgekit.report import runs as report_runs
from judgekit.report import view as report_view
from judgekit.report.marks import Mark, write_mark
from judgekit.types import Price

from ..report.ledgers import some, write
from .in_process import call, contents, refused

# ---- grade


class Recorded:
    """A recording of so many replies."""

    def __init__(self, path: Path, *replies: str) -> None:
        self.path = path
        self.replies = replies

    def judges(self) -> list[str]:
        return ["main"] if self.replies else []

    def lines(self) -> Iterator[str]:
        yield "head\n"
        yield from self.replies


def test_what_judges_replied_is_written_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: Any = Recorded(tmp_path / "r.jsonl", "one\n")
    with grade.recorded(kept):
        assert not kept.path.exists()
    assert kept.path.read_text() == "head\none\n"
    silent: Any = Recorded(tmp_path / "silent.jsonl")
    with grade.recorded(silent):
        pass
    assert silent.path.read_text() == "head\n"
    with grade.recorded(None):
        pass
    assert capsys.readouterr() == ("", "")


def test_what_judges_replied_until_an_early_end_is_written_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: Any = Recorded(tmp_path / "r.jsonl", "one\n")
    with pytest.raises(KeyboardInterrupt), grade.recorded(kept):
        raise KeyboardInterrupt
    assert kept.path.read_text() == "head\none\n"
    assert capsys.readouterr() == ("", f"what the judges replied until then is in {kept.path}\n")
    silent: Any = Recorded(tmp_path / "silent.jsonl")
    for recording in (silent, None):
        with pytest.raises(KeyboardInterrupt), grade.recorded(recording):
            raise KeyboardInterrupt
    assert not silent.path.exists()
    assert capsys.readouterr() == ("", "")


def test_a_ledger_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("x")
    assert [grade._holds_something(tmp_path / name) for name in ("none", "folder", "empty", "full")] == [
        False,
        False,
        False,
        True,
    ]
    (tmp_path / "folder" / "other.txt").write_text("x")
    assert not grade._holds_something(tmp_path / "folder")
    (tmp_path / "folder" / "a.jsonl").touch()
    assert grade._holds_something(tmp_path / "folder")


@pytest.mark.parametrize(
    ("rows", "at", "says"),
    [
        (3, 0, "tests: in the first row, cases\n"),
        (3, 1, "tests: in row 2, the first with cases, cases\n"),
        (101, 99, "tests: in row 100, the first with cases, cases\n"),
        (101, 100, "tests: none of the first 100 rows has cases that run; the first one: why of 0\n"),
        (100, 100, "tests: no row has cases that run; the first one: why of 0\n"),
        (0, 0, ""),
    ],
)
def test_the_first_rows_are_looked_at_for_cases(told: io.StringIO, rows: int, at: int, says: str) -> None:
    def about_data(row: int) -> Any:
        return Abstained(f"why of {row}") if row != at else "cases"

    graders = {"other": object(), "tests": SimpleNamespace(about_data=about_data)}
    runner: Any = SimpleNamespace(graders=graders)
    grade._tell_data(runner, range(rows))  # type: ignore[arg-type]
    assert told.getvalue() == says


@pytest.mark.parametrize(
    ("targets", "ledger", "appended", "says"),
    [
        ({}, None, False, ""),
        ({"--out": "-"}, None, False, ""),
        ({"--out": "o", "--report": "r"}, None, False, "graded rollouts  o\n"),
        ({"--report": "-"}, "l", False, "ledger           l\n"),
        ({"--report": "r"}, "l", True, "ledger           l (appended: reports count each of its runs)\nreport           r  (open it in a browser)\n"),
    ],
)  # fmt: skip
def test_written_files_are_told(
    told: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    targets: dict[str, str],
    ledger: str | None,
    appended: bool,
    says: str,
) -> None:
    reports: list[Any] = []
    monkeypatch.setattr("judgekit.report.page.write_report", lambda *paths: reports.append(paths))
    paths = {key: Path(targets[key]) if key in targets else None for key in ("--out", "--report")}
    kept: Any = SimpleNamespace(path=Path(ledger)) if ledger else None
    grade._tell_files(kept, paths, appended=appended)
    assert told.getvalue() == says
    assert reports == ([(Path("l"), paths["--report"])] if ledger and paths["--report"] else [])


def test_a_stop_says_what_is_kept() -> None:
    kept: Any = SimpleNamespace(path="l.jsonl", lost=0)
    assert grade._saved(None) == (
        "stopped: nothing was written (with --ledger, grades are kept, and --resume goes on)"
    )
    assert grade._saved(kept) == (
        "stopped: what was graded is in l.jsonl; --resume goes on from there (with --force, if --out exists)"
    )
    kept.lost = 2
    assert grade._saved(kept) == (
        "stopped: 2 lines are not in the ledger l.jsonl, whose disk took no more: make room, and --resume asks only for "
        "what is missing (with --force, if --out exists)"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--address auto", "--address is for --ray"),
        ("--concurrency 2", "--concurrency is for --ray"),
        ("--resume --record r.jsonl", "--resume asks judges only for what the ledger lacks: --record needs a run of its own"),
        ("--record -", "--record writes a file that tests read: give it a name"),
        ("--json --out -", "--json and --out - both write to standard output: give --out a file"),
        ("--json --report - --ledger l", "--json and --report - both write to standard output: give --report a file"),
        ("--record r.jsonl", "reward.yaml: there are no judges whose replies --record could keep"),
        ("--resume", "--resume reads the ledger: give --ledger, too"),
        ("--report r.html", "--report reads the ledger: give --ledger, too"),
        ("--ledger reward.yaml", "the ledger reward.yaml is reward.yaml, which is read: choose another file"),
        ("--ledger rollouts.jsonl", "the ledger rollouts.jsonl is rollouts.jsonl, which is read: choose another file"),
        ("--out reward.yaml --force", "reward.yaml would overwrite reward.yaml, which is read: choose another file"),
        ("--out rollouts.jsonl --force", "rollouts.jsonl would overwrite rollouts.jsonl, which is read: choose another file"),
        ("--out l.jsonl --ledger l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read: choose another file"),
        ("--limit 0", "Invalid value for '--limit'"),
    ],
)  # fmt: skip
def test_wrong_calls_of_grade(files: Path, args: str, says: str) -> None:
    refused(files, f"grade reward.yaml rollouts.jsonl {args}", says)


def test_the_ledger_of_the_file_is_checked_too(files: Path) -> None:
    text = (files / "reward.yaml").read_text()
    (files / "own.yaml").write_text(f"{text}ledger: {{path: own.yaml}}\n")
    refused(
        files, "grade own.yaml rollouts.jsonl", "own.yaml is own.yaml, which is read: choose another file"
    )
    (files / "input.yaml").write_text(f"{text}ledger: {{path: rollouts.jsonl}}\n")
    refused(files, "grade input.yaml rollouts.jsonl", "rollouts.jsonl, which is read")


def test_so_many_rollouts_are_graded_and_bad_rows_may_be_left_out(files: Path) -> None:
    told = json.loads(call(files, "grade", "reward.yaml", "rollouts.jsonl", "--limit", "2", "--json").stdout)
    assert told["rollouts"] == 2
    with (files / "rollouts.jsonl").open("a") as file:
        file.write("[1]\n")
    refused(files, "grade reward.yaml rollouts.jsonl", "line 5: a rollout is an object")
    done = call(files, "grade", "reward.yaml", "rollouts.jsonl", "--skip-bad-rows", "--json")
    assert (done.returncode, json.loads(done.stdout)["rollouts"]) == (0, 3)


def test_a_ledger_keeps_the_texts_and_a_run_that_loses_lines_fails(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    assert call(files, *args).returncode == 0
    assert '"response":"#### 4"' in (files / "l.jsonl").read_text()
    monkeypatch.setattr(grade, "not_kept", lambda ledger, advice: f"{ledger.path} lost some: {advice}")
    done = call(files, *args)
    assert (done.returncode, done.stderr) == (1, f"judgekit: l.jsonl lost some: {grade._RESUME}\n")


def test_a_run_that_goes_on_says_which_one_it_replaces(files: Path) -> None:
    args = ("grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl", "--resume")
    for _ in range(2):
        assert call(files, *args).returncode == 0
    entries = read_ledger(files / "l.jsonl", replaced=True).entries
    first, second = dict.fromkeys(entry.run for entry in entries)
    assert {entry.run: entry.tags for entry in entries} == {first: {}, second: {"resumes": [first]}}
    assert {entry.run for entry in read_ledger(files / "l.jsonl").entries} == {second}


# ---- report and view


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("report l.jsonl --json --out -", "--json and --out - both write to standard output: give --out a file"),
        ("report l.jsonl --out l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
        ("report l.jsonl --out old", "old exists: --force overwrites it"),
        ("report l.jsonl --limits limits.yaml", "limits.yaml: Object contains unknown field `lenght`; limits are length, length_overall, repetition, formatting, flat_groups, saturation, missing, disagreement"),
        ("report l.jsonl --rows -1", "Invalid value for '--rows'"),
        ("view l.jsonl none.jsonl --no-browser", "cannot read none.jsonl: there is no such file"),
        ("view l.jsonl --port 65536", "Invalid value for '--port'"),
    ],
)  # fmt: skip
def test_wrong_calls_of_report_and_view(tmp_path: Path, args: str, says: str) -> None:
    write(tmp_path / "l.jsonl", some(4))
    (tmp_path / "old").write_text("x")
    (tmp_path / "limits.yaml").write_text("lenght: 0.4\n")
    refused(tmp_path, args, says)


def test_a_page_goes_to_standard_output_alone(tmp_path: Path) -> None:
    write(tmp_path / "l.jsonl", some(4))
    with (tmp_path / "l.jsonl").open("a") as file:
        file.write('{"type":"rollo')
    before = contents(tmp_path)
    done = call(tmp_path, "report", "l.jsonl", "--out", "-")
    assert done.returncode == 0
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.rstrip().endswith("</html>")
    assert "warning: l.jsonl: skipped 1 line(s), the first is line 6\n" in done.stderr
    assert contents(tmp_path) == before


def test_a_page_is_beside_its_ledger_and_named_like_it(tmp_path: Path) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    write(tmp_path / "runs" / "one" / "a.b.jsonl", some(4))
    done = call(tmp_path, "report", "runs/one/a.b.jsonl")
    assert done.stdout.splitlines()[-1] == "report  runs/one/a.b.html  (open it in a browser)"
    done = call(tmp_path, "report", "runs/one")
    assert done.stdout.splitlines()[-1] == "report  runs/one.html  (open it in a browser)"
    assert (tmp_path / "runs" / "one.html").exists()


def test_a_page_holds_the_texts_of_so_many_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from judgekit.report import page

    write(tmp_path / "l.jsonl", some(4))
    asked: list[Any] = []

    def render(table: Any, found: Any, **options: Any) -> str:
        asked.append(options)
        return "page"

    monkeypatch.setattr(page, "render", render)
    call(tmp_path, "report", "l.jsonl")
    call(tmp_path, "report", "l.jsonl", "--force", "--rows", "3", "--price-in", "1", "--price-out", "2")
    assert asked == [{"rows": 5000, "price": None}, {"rows": 3, "price": Price(1.0, 2.0, None)}]


def test_raised_signals_are_told(tmp_path: Path) -> None:
    write(tmp_path / "l.jsonl", some(8))
    (tmp_path / "limits.yaml").write_text("missing: 0.01\n")
    done = call(tmp_path, "report", "l.jsonl", "--limits", "limits.yaml")
    raised = [line for line in done.stdout.splitlines() if line.startswith("signal")]
    assert raised
    assert all(line.startswith("signal  judge failed on ") for line in raised)
    (tmp_path / "limits.yaml").write_text("missing: 1\n")
    done = call(tmp_path, "report", "l.jsonl", "--limits", "limits.yaml", "--force")
    assert "signal" not in done.stdout


def test_several_runs_as_json_or_on_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def render(paths: Any, name: str, **options: Any) -> str:
        asked.append((list(paths), name, options))
        return "page"

    monkeypatch.setattr(report_runs, "render_runs", render)
    for name in "ab":
        (tmp_path / "runs" / name).mkdir(parents=True)
        write(tmp_path / "runs" / name / "l.jsonl", some(2))
    (tmp_path / "limits.yaml").write_text("length: 0.25\n")
    options = ("--limits", "limits.yaml", "--price-in", "1", "--price-out", "2", "--price-cached", "0.5")
    done = call(tmp_path, "report", "runs", "--out", "-", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "page", "")
    ((paths, name, given),) = asked
    assert (paths, name) == ([Path("runs/a"), Path("runs/b")], "runs")
    assert given == {"limits": SignalLimits(length=0.25), "price": Price(1.0, 2.0, 0.5)}
    done = call(tmp_path, "report", "runs")
    assert done.stdout == "report  runs.html  (2 runs; open it in a browser)\n"


@pytest.mark.parametrize("several", [False, True])
def test_what_is_served_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool) -> None:
    seen: list[Any] = []

    class Served:
        def __init__(self, ledgers: Any, **options: Any) -> None:
            seen.append((ledgers, options))

        @contextlib.asynccontextmanager
        async def served(self, port: int) -> AsyncIterator[str]:
            seen.append(port)
            yield "http://here"

    async def ends() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report.anyio, "sleep_forever", ends)
    monkeypatch.setattr(report_runs if several else report_view, "Runs" if several else "View", Served)
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", some(2))
    (tmp_path / "limits.yaml").write_text("length: 0.25\n")
    options = ("--limits", "limits.yaml", "--price-in", "1", "--price-out", "2", "--price-cached", "0.5")
    names = ("a.jsonl", "b.jsonl") if several else ("a.jsonl",)
    done = call(tmp_path, "view", *names, "--no-browser", "--port", "7", *options)
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == f"{'2 runs' if several else 'a.jsonl'}: http://here   (Ctrl-C ends)\n"
    given = {"limits": SignalLimits(length=0.25), "price": Price(1.0, 2.0, 0.5)}
    assert seen == [([Path(n) for n in names] if several else Path("a.jsonl"), given), 7]
    seen.clear()
    call(tmp_path, "view", *names, "--no-browser")
    assert (seen[0][1], seen[1]) == ({"limits": None, "price": None}, 0)


# ---- audit


def auditor(steps: int = 1, *, raised: bool = False, **fields: Any) -> Any:
    given = {"steps": [object()] * steps, "asked": 3, "reused": 2, "failed": 0, "abstained": 0, "why": ""}
    return SimpleNamespace(**{**given, "alarm": SimpleNamespace(raised=raised), **fields})


def point(number: int, *, audits: int = 4, alarm: bool = False, reason: str = "") -> Any:
    return SimpleNamespace(number=number, audits=audits, alarm=alarm, reason=reason)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> audit._Work:
    """Audits of a ledger in a folder of its own, whose curve is easily told."""
    monkeypatch.setattr(audit_curve, "alarm_in_words", lambda audited: "in words")
    monkeypatch.setattr(audit_curve, "examples", lambda steps: [])
    monkeypatch.setattr(audit_curve, "as_json", lambda audited, late: {"late": late})
    monkeypatch.setattr(audit_curve, "page", lambda audited: "# page\n")
    monkeypatch.setattr(audit_curve, "cells", lambda point: [str(point.number), *"abcdefg"])
    monkeypatch.setattr(audit_curve, "point_of", lambda audited, at: point(at, alarm=audited.alarm.raised))
    settings: Any = SimpleNamespace(watch="judge", grader="careful", on_alarm="warn")
    return audit._Work(tmp_path / "l.jsonl", settings, None, as_json=False)


def test_a_curve_is_written_beside_the_ledger_and_where_it_was_asked_for(
    work: audit._Work, tmp_path: Path
) -> None:
    work._write()
    assert contents(tmp_path) == {}  # nothing was audited
    work.auditor = auditor()
    work.steps.late = 5
    work._write()
    assert contents(tmp_path) == {"l.curve.json": b'{"late":5}\n'}
    work.to = Path("-")
    work._write()
    assert list(contents(tmp_path)) == ["l.curve.json"]
    for name, text in (("c.md", b"# page\n"), ("c.json", b'{"late":5}\n')):
        work.to = tmp_path / name
        work._write()
        assert contents(tmp_path)[name] == text


@pytest.mark.parametrize(
    ("to", "as_json", "printed"),
    [(None, False, ""), (Path("c.md"), False, ""), (Path("-"), False, '{"late":0}\n'), (None, True, '{"late":0}\n')],
)  # fmt: skip
def test_a_curve_is_printed_where_it_was_asked_for(
    work: audit._Work, capsys: pytest.CaptureFixture[str], to: Path | None, as_json: bool, printed: str
) -> None:
    work.to, work.as_json = to, as_json
    work._to_stdout()
    assert capsys.readouterr().out == ""
    work.auditor = auditor()
    work._to_stdout()
    assert capsys.readouterr().out == printed


def test_a_stop_says_how_far_the_audits_came(
    work: audit._Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    closed: list[bool] = []
    said: list[str] = []

    def run(main: Any, *signals: Any, ended: Any) -> None:
        said.append(ended())
        main().close()

    monkeypatch.setattr(audit, "run", run)
    runner: Any = SimpleNamespace(close=lambda: closed.append(True))
    work.as_json = True
    for audited in (None, auditor(0), auditor(1, asked=1), auditor(2)):
        work.auditor = audited
        work._run(None, runner)
    assert said == [
        "stopped: no step was audited to its end; what was asked is kept",
        "stopped: no step was audited to its end; what was asked is kept",
        "stopped after 1 step, 1 audit asked: in words",
        "stopped after 2 steps, 3 audits asked: in words",
    ]
    assert capsys.readouterr().out == '{"late":0}\n' * 2
    assert "l.curve.json" in contents(tmp_path)


def test_judges_are_closed_whatever_becomes_of_the_audits(work: audit._Work) -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    async def main() -> None:
        assert not closed
        raise KeyError("x")

    with pytest.raises(KeyError):
        work._run(main, SimpleNamespace(close=close))  # type: ignore[arg-type]
    assert closed == [True]


@pytest.mark.parametrize(
    ("on_alarm", "raised", "steps"), [("stop", True, 1), ("stop", False, 4), ("warn", True, 4)]
)
def test_an_alarm_ends_it_where_that_is_said(
    work: audit._Work,
    told: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    on_alarm: Any,
    raised: bool,
    steps: int,
) -> None:
    done: list[Any] = []
    slept: list[float] = []

    async def step(*given: Any) -> None:
        done.append(given)

    async def close() -> None: ...

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    specs = {"s": SimpleNamespace(graders={"judge": 1})}
    tail = SimpleNamespace(read=list, specs=specs)
    fake: Any = SimpleNamespace(add=lambda entries: None, late=0)
    fake.complete = lambda *, ended: [] if ended else [(1, ["a"]), (2, ["b"])]
    work.steps, work.settings = fake, SimpleNamespace(watch="judge", grader="g", on_alarm=on_alarm)  # type: ignore[assignment]
    monkeypatch.setattr("judgekit.ledger.tail.Tail", lambda path: tail)
    monkeypatch.setattr("judgekit.evidence.auditor.Auditor", lambda *given: auditor(raised=raised, step=step))
    monkeypatch.setattr(audit.anyio, "sleep", sleep)
    with contextlib.suppress(KeyboardInterrupt):
        work.follow(SimpleNamespace(close=close))  # type: ignore[arg-type]
    assert done == [(1, ["a"], specs), (2, ["b"], specs), (1, ["a"], specs), (2, ["b"], specs)][:steps]
    assert slept == [0.5] * (steps // 2)
    assert told.getvalue().startswith(
        f"following {work.ledger}: each step is audited once the next one has begun\n"
    )


def test_a_step_is_a_line_and_an_alarm_another(work: audit._Work, told: io.StringIO, tmp_path: Path) -> None:
    work.auditor = auditor(3)
    work._tell_step()
    line = "step 2  audits a  wrong b  paid, though wrong c  recent d  interval e  line f  log e g\n"
    assert told.getvalue() == line
    assert "l.curve.json" in contents(tmp_path)
    work.auditor = auditor(3, raised=True)
    work._tell_step()
    assert told.getvalue() == f"{line}{line}in words\n"


@pytest.mark.parametrize(
    ("points", "shown"),
    [
        (30, list(range(30))),
        (31, [*range(1, 31, 2), 30]),
        (60, list(range(1, 60, 2))),
        (61, [*range(2, 61, 3), 60]),
        (1, [0]),
    ],
)
def test_of_a_long_run_some_steps_are_shown_and_the_last_one(
    work: audit._Work, told: io.StringIO, points: int, shown: list[int]
) -> None:
    audit._print_table([point(i) for i in range(points)])
    assert [int(line.split()[0]) for line in told.getvalue().splitlines()[1:]] == shown
    told.truncate(0)
    told.seek(0)
    audit._print_table([point(i, alarm=i == 0) for i in range(points)])
    assert [int(line.split()[0]) for line in told.getvalue().splitlines()[1:]] == sorted({0, *shown})


@pytest.mark.parametrize(
    ("points", "fields", "says"),
    [
        ([point(0, audits=0)], {"why": "it\nis down"}, "none of 5 audits gave a verdict, the last one: it is down: nothing can be said of judge"),
        ([point(0, audits=0, reason="a"), point(1, audits=0, reason="b")], {"asked": 1, "reused": 0}, "none of 1 audit gave a verdict (b): nothing can be said of judge"),
        ([], {}, "none of 5 audits gave a verdict: nothing can be said of judge"),
    ],
)  # fmt: skip
def test_audits_without_a_verdict_say_nothing(
    work: audit._Work, monkeypatch: pytest.MonkeyPatch, points: list[Any], fields: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr(audit_curve, "curve", lambda audited: points)
    work.auditor = auditor(**fields)
    with pytest.raises(DataError) as raised:
        work.tell()
    assert str(raised.value) == says


def test_an_alarm_is_the_exit_code_1(
    work: audit._Work, told: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(audit_curve, "curve", lambda audited: [point(0, audits=0), point(1)])
    work.to = tmp_path / "c.md"
    work.auditor = auditor(2)
    work.tell()
    assert told.getvalue().endswith(f"in words\ncurve  {work.to}\n")
    assert sorted(contents(tmp_path)) == ["c.md", "l.curve.json"]
    work.to = Path("-")
    work.auditor = auditor(2, raised=True)
    with pytest.raises(typer.Exit) as ended:
        work.tell()
    assert ended.value.exit_code == 1
    assert told.getvalue().endswith("in words\n")


def test_the_best_paid_are_shown_with_both_grades(
    work: audit._Work, told: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = SimpleNamespace(
        entry=SimpleNamespace(id="", run="r", index=4, response="a\nb" + "x" * 100), score=0.91234, grade=Graded(0.25)
    )  # fmt: skip
    two = SimpleNamespace(
        entry=SimpleNamespace(id="q7", run="r", index=5, response=None), score=1.0, grade=Graded(0.0)
    )
    monkeypatch.setattr(audit_curve, "examples", lambda steps: [(3, one), (4, two)])
    work.auditor = auditor()
    work._print([])
    lines = told.getvalue().splitlines()
    assert lines[-3:] == [
        "best paid, though the audit says wrong:",
        f"  step 3, r 4: judge 0.9123, careful 0.25: a b{'x' * 97}",
        "  step 4, q7: judge 1, careful 0: ",
    ]


# ---- certify


def certificate(**fields: Any) -> Certificate:
    given: dict[str, Any] = {
        "grader": "judge", "version": "1", "fingerprint": "", "score_range": (0.0, 1.0), "cut": 0.5,
        "counts": {"scored": 9, "prompts": 1, "right": 5, "wrong": 4},
        "missing": {
            "right": {"failed": 2, "abstained": 0, "not asked": 1}, "wrong": {"failed": 0, "abstained": 0, "not asked": 0},
        },
        "next_labels": ["a 1", "a 2", "a 3", "a 4", "a 5", "a 6"],
    }  # fmt: skip
    return Certificate(**{**given, **fields})


REACHED = Threshold(0.05, 0.1234567, 0.9, 0.5, 0.0123, None)
FIRST = (
    "judge: 9 labelled scores on 1 prompt, 5 right and 4 wrong; it calls right what scores 0.5 or more\n"
    "  without a score, labelled right: 2 failed, 1 not asked\n"
)
NEXT = "  to label next, one of a prompt (run and index): a 1, a 2, a 3, a 4, a 5\n"
KEPT = "  at most 5% wrong                not trusted between 0.1235 and 0.9: 50% of the scores are kept, 1.2% of them wrong\n"
UNREACHED = (
    "  at most 1% wrong                no threshold; it takes some 300 labels without an error among them\n"
)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"refused": "too few"}, f"not certified: too few\n{NEXT}"),
        ({"refused": "too few", "next_labels": []}, "not certified: too few\n"),
        ({"thresholds": [REACHED]}, KEPT),
        ({"thresholds": [REACHED, Threshold(0.01, None, None, None, None, 300)]}, f"{KEPT}{UNREACHED}{NEXT}"),
        ({"agreement": Share(0.5, None, None, 4, 1)}, "  agreement                       50.0% of 4, of one prompt: no interval\n"),
    ],
)  # fmt: skip
def test_a_certificate_is_printed(told: io.StringIO, fields: dict[str, Any], says: str) -> None:
    certify._print(certificate(**fields))
    assert told.getvalue() == FIRST + says


@pytest.mark.parametrize("refuses", [False, True])
def test_a_certificate_is_written_and_a_refusal_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    write(tmp_path / "l.jsonl", some(4))
    (tmp_path / "labels.jsonl").write_text('{"index": 0, "label": 1}\n')
    found = certificate(refused="too few" if refuses else "")
    monkeypatch.setattr("judgekit.evidence.gold_labels.read_labels", lambda path, entries: {0: True})
    monkeypatch.setattr("judgekit.evidence.certificate.certify", lambda reading, gold, grader: found)
    args = ("certify", "l.jsonl", "--labels", "labels.jsonl", "--grader", "judge")
    for name in ("c.json", "c.md"):
        done = call(tmp_path, *args, "--out", name)
        assert (done.returncode, done.stderr) == (int(refuses), "")
        assert done.stdout.splitlines()[-1] == f"certificate  {name}"
    assert json.loads((tmp_path / "c.json").read_text())["grader"] == "judge"
    assert (tmp_path / "c.md").read_text().startswith("#")
    done = call(tmp_path, *args, "--out", "-")
    assert json.loads(done.stdout)["cut"] == 0.5
    assert "judge: 9 labelled scores" in done.stderr
    assert "certificate  " not in done.stderr
    done = call(tmp_path, *args)
    assert "certificate  " not in done.stdout
    refused(tmp_path, " ".join([*args, "--out", "c.md"]), "c.md exists: --force overwrites it")
    refused(tmp_path, " ".join([*args, "--out", "labels.jsonl", "--force"]), "labels.jsonl, which is read")
    refused(tmp_path, " ".join([*args, "--out", "l.jsonl", "--force"]), "l.jsonl, which is read")


def test_marks_are_labels_and_where_there_are_none_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "l.jsonl", some(4))
    args = ("certify", "l.jsonl", "--grader", "judge")
    says = "there are no marks of l.jsonl: set some in `judgekit view l.jsonl`, or give --labels; "
    refused(tmp_path, " ".join(args), says)
    marks = {name: SimpleNamespace(mark=mark) for name, mark in zip("abc", ("good", "bad", ""), strict=True)}
    seen: list[Any] = []
    monkeypatch.setattr("judgekit.report.marks.read_marks", lambda ledger, places=None: marks)
    monkeypatch.setattr(
        "judgekit.evidence.gold_labels.of_marks", lambda given, entries: seen.append(given) or {0: True}
    )
    monkeypatch.setattr(
        "judgekit.evidence.certificate.certify", lambda reading, gold, grader: certificate(grader=grader)
    )
    assert call(tmp_path, *args).returncode == 0
    assert seen == [{"a": True, "b": False}]


def test_marks_of_a_resumed_run_are_labels_of_the_run_that_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "l.jsonl", some(4))
    (run,) = {entry.run for entry in read_ledger(tmp_path / "l.jsonl").entries}
    write_mark(tmp_path / "l.jsonl", Mark(run, 2, "good"))
    lines = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    again = [{**line, "run": "again", "tags": {"resumes": [run]}} for line in lines if line.get("run") == run]
    with open(tmp_path / "l.jsonl", "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in again)
    seen: list[Any] = []

    def certified(reading: Any, gold: Any, grader: str) -> Any:
        seen.append(
            {(reading.entries[at].run, reading.entries[at].index): right for at, right in gold.items()}
        )
        return certificate(grader=grader)

    monkeypatch.setattr("judgekit.evidence.certificate.certify", certified)
    assert call(tmp_path, "certify", "l.jsonl", "--grader", "judge").returncode == 0
    assert seen == [{("again", 2): True}]


# ---- replay


def test_warnings_that_differ_in_figures_are_one() -> None:
    given = ["a 1 of 2", "b", "a 3 of 4,000", "c 1", "a 5.5 of 6"]
    assert list(replay._alike(given)) == ["a 1 of 2 (and in 2 other steps, with other figures)", "b", "c 1"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--json --out -", "--json and --out - both write to standard output: give --out a file"),
        ("--only all", "replay: --only is failed, not 'all'"),
        ("--out n.csv", "replay: n.csv: JSON lines are written: end the name with .jsonl"),
        ("--out l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
        ("--out reward --reward reward --force", "reward would overwrite reward, which is read"),
        ("--out k.jsonl --ledger k.jsonl", "k.jsonl would overwrite k.jsonl, which is read"),
        ("--out old", "old exists: --force overwrites it"),
        ("--ledger l.jsonl", "the ledger l.jsonl is l.jsonl, which is read"),
        ("--ledger reward --reward reward", "the ledger reward is reward, which is read"),
    ],
)
def test_wrong_calls_of_replay(files: Path, args: str, says: str) -> None:
    write(files / "l.jsonl", some(4))
    (files / "reward.yaml").rename(files / "reward")
    (files / "old").write_text("x")
    refused(files, f"replay l.jsonl {args}", says)


class Failing:
    """In place of what asks a ledger's failed grades again."""

    changed: tuple[str, ...] = ()
    failed = 2

    def __init__(self, reading: Any, runner: Any, *, new: bool) -> None:
        assert new is False

    async def ask(self) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("ledger", "lost", "says"),
    [
        ((), "", "stopped: nothing was written"),
        (("--ledger", "k.jsonl"), "", "stopped: what was asked is in k.jsonl"),
        (("--ledger", "k.jsonl"), "some are lost", "stopped: some are lost"),
    ],
)
def test_asking_again_that_is_stopped_says_what_is_kept(
    files: Path, monkeypatch: pytest.MonkeyPatch, ledger: tuple[str, ...], lost: str, says: str
) -> None:
    write(files / "l.jsonl", some(4))
    monkeypatch.setattr("judgekit.replay.FailedOnce", Failing)
    monkeypatch.setattr(replay, "not_kept", lambda kept, advice: lost)
    done = call(files, "replay", "l.jsonl", "--only", "failed", "--reward", "reward.yaml", *ledger)
    assert done.returncode == 130
    assert done.stderr == f"judgekit: {says}\n"
    assert done.stdout.endswith("asking again about 2 rollouts …\n")


def test_a_row_of_a_replay_has_its_turns_where_there_are_some() -> None:
    entry: Any = SimpleNamespace(run="r", index=1, id="i", group="g", reward=0.5)
    result: Any = SimpleNamespace(reward=1.0, status="scored", contributions={"a": 1.0}, turns=())
    row = {
        "run": "r", "index": 1, "id": "i", "group": "g", "was": 0.5, "reward": 1.0, "status": "scored",
        "contributions": {"a": 1.0},
    }  # fmt: skip
    assert replay._row(entry, result) == row
    result.turns = (0.25, 0.75)
    assert replay._row(entry, result) == {**row, "turns": (0.25, 0.75)}


def test_a_replay_that_scores_nothing_or_loses_lines_fails(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "rollouts.jsonl").write_text('{"response": "x", "prompt": "p"}\n')
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    done = call(files, "replay", "l.jsonl")
    assert (done.returncode, done.stderr) == (1, "judgekit: no rollout could be scored\n")
    told = json.loads(call(files, "replay", "l.jsonl", "--json").stdout)
    assert (told["reward_mean"], told["rollouts"]) == (None, 1)
    assert "asked_again" not in told
    monkeypatch.setattr(replay, "not_kept", lambda kept, advice: f"{kept.path} {advice}")
    done = call(files, "replay", "l.jsonl", "--ledger", "k.jsonl")
    assert (done.returncode, done.stderr) == (
        1,
        "judgekit: k.jsonl make room, and replay again into another ledger\n",
    )


def test_a_replay_goes_to_standard_output_alone(files: Path) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    done = call(files, "replay", "l.jsonl", "--out", "-")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["index"]: row["reward"] for row in rows} == {0: 1.0, 1: 0.0, 2: None}
    assert "grades" not in rows[0]
    assert done.stderr.endswith("3 rewards recomputed, 0 changed\n")
    done = call(files, "replay", "l.jsonl", "--out", "n.jsonl")
    assert done.stdout.endswith("3 rewards recomputed, 0 changed\nrewards  n.jsonl\n")


# ---- compare


def graded(name: str, was: Any, now: Any) -> tuple[Any, Any]:
    return SimpleNamespace(grades={name: was}), SimpleNamespace(grades={name: now, "other": Graded(1.0)})


NOT_RECORDED = Failed("NotRecorded", "the ledger has none")


def test_grades_that_the_ledger_lacks_are_named_with_their_gate() -> None:
    config = Path("new.yaml")
    skipped = Skipped("correct > 0")
    asked = [graded("a", Graded(1.0), Graded(1.0)), graded("a", Failed("E", ""), Failed("E", ""))]
    compare._check_graded(config, *zip(*asked, strict=True))
    lacking = [*asked, graded("b", skipped, NOT_RECORDED), graded("c", None, NOT_RECORDED)]
    with pytest.raises(DataError) as raised:
        compare._check_graded(
            config, *zip(*lacking, graded("b", Skipped("x > 1"), NOT_RECORDED), strict=True)
        )
    assert str(raised.value) == (
        "new.yaml: the ledger holds no grade of 'b' for 2 of 5 rollouts, whose gate there (correct > 0) was not passed, and "
        "this reward needs it: judgekit compare --grade asks for it"
    )
    with pytest.raises(DataError) as raised:
        compare._check_graded(config, *zip(graded("c", None, NOT_RECORDED), strict=True))
    assert str(raised.value) == (
        "new.yaml: the ledger holds no grade of 'c' for 1 of 1 rollouts, and this reward needs it: judgekit compare --grade "
        "asks for it"
    )


def test_a_comparison_of_two_ledgers_is_printed(told: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_print_gradient", lambda found: console.say(f"gradient {found}"))
    side = {"ledger": "a", "rollouts": 2, "reward_mean": 0.5, "missing": 1, "unfinished": 3}
    one = {
        "both_graded": 4, "mean_before": 0.25, "mean_after": 0.75, "correlation": None, "scores_moved": 5, "kinds_changed": 6,
    }  # fmt: skip
    found = {
        "before": side, "after": {**side, "ledger": "b", "reward_mean": None}, "pairs": 2, "raw_rewards_changed": 1,
        "rewards_changed": 1, "graders": {"judge": one}, "gradient": "g",
    }  # fmt: skip
    compare._print(found)
    lines = [line.split() for line in told.getvalue().splitlines()]
    assert lines[0] == ["ledger", "rollouts", "mean", "raw", "reward", "missing", "unfinished"]
    assert lines[1:3] == [["before", "a", "2", "0.500", "1", "3"], ["after", "b", "2", "–", "1", "3"]]
    assert " ".join(lines[4]) == "2 rollouts are in both; 1 rewards changed"
    assert lines[6:] == [["judge", "4", "0.250", "0.750", "–", "5", "6"], ["gradient", "g"]]
    assert told.getvalue().splitlines()[6].startswith("judge  ")
    told.truncate(0)
    told.seek(0)
    compare._print({**found, "raw_rewards_changed": 0})
    assert "; 1 rewards changed, 0 of them also before transforms and fills\n" in told.getvalue()


def test_comparisons_with_several_rewards_are_a_row_each(told: io.StringIO) -> None:
    side = {"ledger": "a", "rollouts": 2, "reward_mean": 0.5}
    gradient = {"cosine": 0.125, "best_changed": 1, "became_flat": 2, "stopped_being_flat": 3}
    compare._print_several(
        [
            {"before": side, "after": {"reward_mean": 0.25}, "reward": "x.yaml", "rewards_changed": 4, "gradient": gradient},
            {"before": side, "after": {"reward_mean": None}, "reward": "y.yaml", "rewards_changed": 5, "gradient": gradient},
        ]
    )  # fmt: skip
    first, blank, head, *rows = told.getvalue().splitlines()
    assert (first, blank) == ("a: 2 rollouts, mean raw reward 0.500", "")
    assert head.split() == [
        "reward",
        "mean",
        "raw",
        "reward",
        "rewards",
        "changed",
        "cosine",
        "best",
        "changes",
        "become",
        "flat",
        "stop",
        "being",
        "flat",
    ]
    assert [row.split() for row in rows] == [
        ["x.yaml", "0.250", "4", "0.125", "1", "2", "3"],
        ["y.yaml", "–", "5", "0.125", "1", "2", "3"],
    ]
    assert rows[0].startswith("x.yaml  ")


def test_what_still_fails_is_told_and_what_is_lost_ends_it(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(files, "grade", "reward.yaml", "rollouts.jsonl", "--ledger", "l.jsonl")
    real = replay.ask_again
    asked: list[Any] = []

    def ask_again(ledger: Path, config: Path, kept: Any, *, new: bool) -> Any:
        asked.append((ledger, config, new))
        found = real(ledger, config, kept, new=new)
        return SimpleNamespace(still_failed=len(asked) - 1, entries=found.entries, results=found.results)

    monkeypatch.setattr(replay, "ask_again", ask_again)
    args = ("compare", "l.jsonl", "--reward", "reward.yaml", "--grade")
    assert "still with a failed grade" not in call(files, *args).stdout
    assert asked == [(Path("l.jsonl"), Path("reward.yaml"), True)]
    warning = "warning: 1 rollout still with a failed grade: reward.yaml cannot pay it\n"
    assert warning in call(files, *args).stdout
    monkeypatch.setattr(compare, "not_kept", lambda kept, advice: f"{kept.path.name}: {advice}")
    done = call(files, *args)
    assert done.returncode == 1
    assert done.stderr.startswith("judgekit: reward.jsonl: make room in /")
    assert "gradient" not in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("l.jsonl l.jsonl --out l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read"),
        ("l.jsonl --reward reward.yaml --out reward.yaml --force", "reward.yaml would overwrite reward.yaml, which is read"),
        ("l.jsonl l.jsonl --out old", "old exists: --force overwrites it"),
        ("l.jsonl none.jsonl", "cannot read none.jsonl"),
        ("l.jsonl l.jsonl --limits none.yaml", "cannot read none.yaml"),
    ],
)  # fmt: skip
def test_wrong_calls_of_compare(files: Path, args: str, says: str) -> None:
    write(files / "l.jsonl", some(4))
    (files / "old").write_text("x")
    refused(files, f"compare {args}", says)


def test_a_comparison_s_page_goes_to_standard_output_alone(files: Path) -> None:
    write(files / "l.jsonl", some(4))
    done = call(files, "compare", "l.jsonl", "l.jsonl", "--out", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<!doctype html>")
    assert "4 rollouts are in both" not in done.stdout
    done = call(files, "compare", "l.jsonl", "l.jsonl", "--json", "--out", "c.html")
    assert json.loads(done.stdout)["pairs"] == 4
    assert (files / "c.html").exists()
    done = call(files, "compare", "l.jsonl", "l.jsonl", "--out", "c.html", "--force")
    assert done.stdout.endswith("\nreport  c.html  (open it in a browser)\n")


# ---- export


def test_an_export_says_what_it_wrote_and_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "l.jsonl", some(4))
    assert call(tmp_path, "export", "l.jsonl", "o.jsonl").stdout == "4 rollouts  o.jsonl\n"
    done = call(tmp_path, "export", "l.jsonl", "-")
    assert (done.stdout, done.stderr) == ((tmp_path / "o.jsonl").read_text(), "")
    write(tmp_path / "bare.jsonl", some(2), texts=False)
    done = call(tmp_path, "export", "bare.jsonl", "b.jsonl")
    assert done.stdout == (
        "warning: the ledger holds no texts of 2 rollouts: ledger: {texts: true} keeps them\n2 rollouts  b.jsonl\n"
    )
    (tmp_path / "empty.jsonl").touch()
    refused(tmp_path, "export empty.jsonl e.jsonl", "the ledger empty.jsonl holds no rollouts yet")
    refused(tmp_path, "export l.jsonl o.jsonl", "o.jsonl exists: --force overwrites it")
    refused(tmp_path, "export l.jsonl l.jsonl --force", "l.jsonl would overwrite l.jsonl, which is read")
