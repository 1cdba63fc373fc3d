"""What commands refuse before they begin, and single lines that they print, word for word."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
import typer

from judgekit import ConfigError
from judgekit.cli import (
    audit,
    certify,
    compare,
    grade,
    graders,
    init,
    logs,
    replay,
    report,
    serve_rewards,
)
from judgekit.errors import DataError, MissingExtra
from judgekit.evidence.shares import Share
from judgekit.types import Price

from .in_process import call

HERE = Path("here.jsonl")


def _compare(**given: Any) -> None:
    found = {"after": None, "rewards": [], "to": None, "grade": False, "force": False, "json_summary": False}
    found.update(given)
    compare._check(HERE, found.pop("after"), found.pop("rewards"), found.pop("to"), **found)


def _replay(**given: Any) -> None:
    found = {"to": None, "config": None, "only": None, "keep": None, "force": False, "json_summary": False}
    found.update(given)
    replay._check(HERE, found.pop("to"), found.pop("config"), found.pop("only"), found.pop("keep"), **found)


ONE = [Path("a.yaml")]
BOTH = "--json and --out - both write to standard output: give --out a file"
NEITHER = (
    "compare: give a second ledger, or --reward, a reward.yaml that is to pay for the first one's grades"
)
OF_RAY: dict[str, Any] = {"skip_bad_rows": False, "report": None, "record": None}


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (_compare, NEITHER),
        (lambda: _compare(after=HERE, rewards=ONE), f"{NEITHER}: not both"),
        (lambda: _compare(after=HERE, grade=True), "compare: --grade asks the graders of a reward.yaml: give --reward"),
        (lambda: _compare(rewards=ONE * 2, to=Path("x.html")), "compare: --out writes the page of one comparison: give one --reward"),
        (lambda: _compare(rewards=ONE, to=Path("-"), json_summary=True), BOTH),
        (lambda: _replay(only="all"), "replay: --only is failed, not 'all'"),
        (lambda: _replay(only="failed"), "replay: --only failed asks graders again: give --reward, a reward.yaml"),
        (lambda: _replay(to=Path("x.csv")), "replay: x.csv: JSON lines are written: end the name with .jsonl"),
        (lambda: _replay(to=Path("-"), json_summary=True), BOTH),
        (lambda: grade._check_for_ray(**{**OF_RAY, "skip_bad_rows": True}), "--skip-bad-rows is not for --ray: a cluster refuses a block with a row that it cannot read"),
        (lambda: grade._check_for_ray(**{**OF_RAY, "report": HERE}), "--report reads one ledger: with --ray, give --ledger, and then judgekit report"),
        (lambda: grade._check_for_ray(**{**OF_RAY, "record": HERE}), "--record hears the judges of this process: it is not for --ray"),
        (lambda: report._price(1.0, None, None), "a price has two parts: give --price-in and --price-out"),
        (lambda: report._price(None, 1.0, None), "a price has two parts: give --price-in and --price-out"),
        (lambda: report._price(None, None, 1.0), "a price has two parts: give --price-in and --price-out"),
        (lambda: init._check("preference", "vllm", "openrlhf", None, None), "--task preference compares the responses to a prompt, and openrlhf hands them over one by one: give --task open or rubric"),
        (lambda: init._check("answer", "none", "trl", "m", None), "--model is of a judge: give --judge vllm or ray or http, too"),
        (lambda: init._check("answer", "vllm", "trl", "m", "u"), "--url is of a judge: give --judge http, too"),
        (lambda: init._chosen_judge("none", "open"), "--task open needs a judge: by rules alone an empty response would be worth most; give --judge vllm or ray or http"),
        (lambda: init._chosen("--task", "?", "x", {"a": "", "b": ""}, "a"), "--task: there is no 'x'; there are a, b"),
        (lambda: grade.columns_of("a"), "--map: 'a' is not field=column, such as response=completion"),
        (lambda: grade.columns_of("a=b,=c"), "--map: '=c' is not field=column, such as response=completion"),
        (lambda: grade.columns_of("a="), "--map: 'a=' is not field=column, such as response=completion"),
        (lambda: grade.columns_of("a=b,a=c"), "--map: 'a' has two columns, b and c"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(check: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        check()
    assert str(error.value) == says


def test_what_goes_together_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _compare(after=Path("there.jsonl"), json_summary=True)
    _compare(rewards=ONE * 2, grade=True)
    _compare(rewards=ONE, to=Path("x.html"), json_summary=True)
    _compare(rewards=ONE, to=Path("-"))
    for name in ("-", "x", "x.jsonl", "x.ndjson"):
        _replay(to=Path(name), only="failed", config=ONE[0])
    _replay(keep=Path("kept.jsonl"), json_summary=True)
    grade._check_for_ray(**OF_RAY)
    init._check("preference", "http", "trl", "m", "u")
    assert report._price(None, None, None) is None
    assert report._price(1.0, 2.0, None) == Price(1.0, 2.0, None)
    assert report._price(1.0, 0.0, 0.5) == Price(1.0, 0.0, 0.5)
    assert grade.columns_of(None) == {} == grade.columns_of("")
    assert grade.columns_of("a = b, c=d.e") == {"a": "b", "c": "d.e"}
    (tmp_path / "x.html").write_text("x")
    for check in (
        lambda: _compare(rewards=ONE, to=Path("x.html")),
        lambda: _replay(to=Path("x.html").with_suffix("")),
    ):
        (tmp_path / "x").write_text("x")
        with pytest.raises(ConfigError, match="exists: --force overwrites it"):
            check()


# ---- single lines


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (Share(None, None, None, 0, 0), "unknown"),
        (Share(0.5, None, None, 4, 1), "50.0% of 4, of one prompt: no interval"),
        (Share(0.5, 0.25, None, 4, 1), "50.0% of 4, of one prompt: no interval"),
        (Share(0.5, None, 0.75, 4, 1), "50.0% of 4, of one prompt: no interval"),
        (Share(0.5, 0.25, 0.75, 4, 1), "50.0%  [25.0%, 75.0%]  of 4 on 1 prompt"),
        (Share(0.5, 0.25, 0.75, 4, 2), "50.0%  [25.0%, 75.0%]  of 4 on 2 prompts"),
    ],
)
def test_a_share_is_shown_with_its_interval(share: Share, shown: str) -> None:
    assert certify._shown(share) == shown


GRADIENT: dict[str, Any] = {
    "groups": 3, "cosine": 0.5, "cosine_by_source": {"a": 0.25, "b": None}, "best_changed": 1, "flat_before": 2,
    "flat_after": 4, "became_flat": 3, "stopped_being_flat": 1, "most": [],
}  # fmt: skip


def test_a_gradient_is_told_by_source_where_there_are_several(told: io.StringIO) -> None:
    compare._print_gradient(GRADIENT)
    assert told.getvalue() == (
        "\ngradient: cosine of GRPO's advantages 0.500 (a 0.250, b –), over 3 groups\n"
        "  best member changes in 1\n"
        "  flat 2 before, 4 after: 3 become flat, 1 stop being flat\n"
    )
    told.truncate(0)
    compare._print_gradient({**GRADIENT, "cosine_by_source": {"a": 0.25}})
    assert "advantages 0.500, over" in told.getvalue()
    told.truncate(0)
    compare._print_gradient({**GRADIENT, "groups": 0})
    assert (
        told.getvalue().lstrip("\0") == "\nno two rollouts of a group are in both: a gradient needs groups\n"
    )


def test_the_group_that_changes_most_is_shown_with_its_member_that_does(told: io.StringIO) -> None:
    members = [
        {"row": 0, "id": "a", "rewards": [0.0, 1.0], "advantages": [-1.0, 1.0]},
        {"row": 1, "id": "", "rewards": [1.0, None], "advantages": [1.0, -1.0]},
    ]
    explained = {"row": 1, "before": "so it was", "after": "so it is"}
    most = [{"group": "g", "source": "s", "cosine": -1.0, "members": members, "explained": explained}]
    compare._print_gradient({**GRADIENT, "most": most})
    lines = told.getvalue().splitlines()
    at = lines.index("groups whose advantages change most, and the rollout in each that moves most")
    assert lines[at + 1].split() == ["group", "source", "cosine", "rollout", "reward", "advantage"]
    assert lines[at + 2].split() == ["g", "s", "-1.000", "1", "1.000", "→", "–", "+1.00", "→", "-1.00"]
    assert lines[at + 3 :] == ["", "the first of them, before:", "so it was", "after:", "so it is"]


def test_a_comparison_without_a_rollout_in_common_ends_early(told: io.StringIO) -> None:
    side = {"ledger": "l", "rollouts": 2, "reward_mean": None, "missing": 1, "unfinished": 3}
    compare._print({"before": side, "after": {**side, "ledger": "m"}, "pairs": 0})
    lines = told.getvalue().splitlines()
    assert lines[1].split() == ["before", "l", "2", "–", "1", "3"]
    assert lines[2].split() == ["after", "m", "2", "–", "1", "3"]
    assert lines[3:] == ["", "no rollout is in both: their ids, groups or texts differ"]


class _Lanes:
    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[Any] = []

    def lane(self, knows: str, group: int) -> None:
        self.asked.append((knows, group))
        if knows in self.refused:
            raise ConfigError("no numbers are sent")


def _listening(host: str, port: int = 80) -> Any:
    return SimpleNamespace(getsockname=lambda: (host, port, 0, 0))


NUMBERS = [
    "  OpenRLHF     --reward.remote_url http://h:80/openrlhf",
    "  slime        --rm-type remote_rm --rm-url http://h:80/slime --reward-key reward",
    "  ROLL         submit_url: http://h:80/roll/submit_task  get_result_url: http://h:80/roll/task_result",
]
MASKS = [
    "  NeMo-Gym     http://h:80/verify",
    "  verifiers    --env.taskset.task.resources-url http://h:80/strict",
]


def test_each_trainer_is_told_its_line() -> None:
    service: Any = SimpleNamespace(group=1, lanes=_Lanes())
    first = [
        "serving rewards at http://h:80; stop with Ctrl-C",
        "  judgekit     RewardClient('http://h:80'), or POST http://h:80/v1/rewards",
    ]
    assert list(serve_rewards._told(service, _listening("h"))) == [*first, *NUMBERS, *MASKS]
    assert service.lanes.asked == [("numbers", 1), ("masks", 1)]
    service = SimpleNamespace(group=8, lanes=_Lanes("numbers"))
    assert list(serve_rewards._told(service, _listening("h"))) == [
        *first,
        "  OpenRLHF and slime and ROLL: no numbers are sent",
        *(f"{line}  (groups of 8)" for line in MASKS),
    ]


@pytest.mark.parametrize(
    ("host", "url"), [("0.0.0.0", "http://me:80"), ("::", "http://me:80"), ("::1", "http://[::1]:80"), ("1.2.3.4", "http://1.2.3.4:80")]
)  # fmt: skip
def test_an_address_that_others_can_use_is_told(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_rewards.socket, "gethostname", lambda: "me")
    service: Any = SimpleNamespace(group=1, lanes=_Lanes())
    assert (
        next(serve_rewards._told(service, _listening(host))) == f"serving rewards at {url}; stop with Ctrl-C"
    )


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (str, "text"),
        (int, "whole number"),
        (float | None, "number or null"),
        (bool, "true or false"),
        (Any, "any"),
        (Annotated[int, 5], "whole number"),
        (Literal["a", 1], '"a", 1'),
        (list[str], "list of texts"),
        (list[int], "list of whole numbers"),
        (list[Any], "list of any values"),
        (list[bool], "list of true or false"),
        (list, "list"),
        (dict[str, float], "mapping of numbers"),
        (dict[str, Any], "mapping of any values"),
        (dict, "dict"),
        (int | int | str, "whole number or text"),
        (Path, "Path"),
        (type("Judge", (), {}), "a judge's name"),
        (type("VerdictFormat", (), {}), "a verdict format"),
    ],
)
def test_types_are_told_in_words(hint: Any, kind: str) -> None:
    assert graders.kind_of(hint) == kind


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        ("é", '"é"'),
        (True, "true"),
        ((1, "é"), '[1, "é"]'),
        ([Path("x")], "[\"PosixPath('x')\"]"),
        (sys.executable, "this Python"),
        (Path("x"), "PosixPath"),
        ({}, "{}"),
    ],
)
def test_defaults_are_told_as_yaml(value: Any, shown: str) -> None:
    assert graders.shown(value) == shown


def test_a_parameter_is_a_row_of_three_cells() -> None:
    assert graders.cells(graders.Parameter("a", "text", '"x"')) == ("a", "text", 'default "x"')
    assert graders.cells(graders.Parameter("a", "text", "")) == ("a", "text", "required")
    assert graders.parameters(3) == []

    def made(a: int, /, b: str, *rest: int, c: float = 0.5, **more: Any) -> None: ...

    assert graders.parameters(made) == [
        graders.Parameter("b", "text", ""),
        graders.Parameter("c", "number", "0.5"),
    ]


def test_a_grader_is_found_by_its_name_or_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert graders.found("judgekit.cli.graders:cells") is graders.cells
    with pytest.raises(ConfigError, match=r"there is no grader 'mth'; did you mean 'math'\?"):
        graders.found("mth")
    with pytest.raises(
        ConfigError, match="cannot import the grader 'no_such:thing': ModuleNotFoundError: No module named"
    ):
        graders.found("no_such:thing")


def test_a_command_without_numpy_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "judgekit.evidence.certificate", None)
    with pytest.raises(MissingExtra, match="judgekit certify needs numpy and scipy"):
        certify.certify(HERE, "judge")


# ---- audits


def _work(monkeypatch: pytest.MonkeyPatch, **of_auditor: Any) -> audit._Work:
    from judgekit.evidence import audit_curve

    settings: Any = SimpleNamespace(watch="judge", grader="careful")
    work = audit._Work(HERE, settings, None, as_json=False)
    auditor = {"steps": [], "asked": 1, "reused": 2, "failed": 0, "abstained": 3, "why": "", **of_auditor}
    work.auditor = SimpleNamespace(**auditor)  # type: ignore[assignment]
    monkeypatch.setattr(audit_curve, "alarm_in_words", lambda audited: "no alarm")
    monkeypatch.setattr(audit_curve, "examples", lambda steps: [])
    return work


def test_what_was_audited_is_told_with_what_came_too_late(
    told: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = _work(monkeypatch, failed=1, why="it\nis down" + "x" * 300)
    work.steps.late = 2
    work._print([])
    lines = told.getvalue().splitlines()
    assert lines[:3] == [
        "judge, audited by careful: 0 steps, 1 audit asked, 2 known, 1 failed, 3 abstained",
        f"  the last failure: it is down{'x' * 290}",
        "  2 rollouts came after the next step had begun, and are in no draw",
    ]
    assert " ".join(lines[3].split()) == "step audits wrong paid, though wrong recent interval line log e"
    assert lines[4:] == ["no alarm"]
    told.truncate(0)
    _work(monkeypatch)._print([])
    assert "came after" not in told.getvalue()
    assert "the last failure" not in told.getvalue()


def test_the_watched_grader_is_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    work = _work(monkeypatch)
    spec = SimpleNamespace(graders={"judge": None, "brief": None})
    work._check_watched({"a": spec})  # type: ignore[dict-item]
    for specs, names in (({"a": SimpleNamespace(graders={"b": 1, "a": 1})}, "a, b"), ({}, "none")):
        with pytest.raises(DataError, match=f"the ledger has no grades of 'judge': it has {names}$"):
            work._check_watched(specs)  # type: ignore[arg-type]


# ---- logs


@pytest.mark.parametrize(("level", "name"), [(logging.DEBUG, "DEBUG"), (logging.ERROR, "ERROR"), (35, None)])
def test_a_record_keeps_its_level(level: int, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    logger: Any = SimpleNamespace(log=lambda *said: seen.append(said))
    monkeypatch.setattr(logs.logger, "opt", lambda exception: logger)
    monkeypatch.setattr(logs, "_shown_by_root", lambda record: False)
    logs.InterceptHandler().emit(logging.LogRecord("judgekit", level, "p", 1, "a %s\nb", ("x",), None))
    logs.InterceptHandler().emit(logging.LogRecord("py.warnings", level, "p", 1, "a\nb", (), None))
    assert seen == [(name or level, "a x\nb"), (name or level, "a")]


def test_a_command_s_exit_code_is_that_of_its_error(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text("")
    done = call(tmp_path, "certify", "l.jsonl", "--grader", "judge")
    assert (done.returncode, done.stderr) == (2, "judgekit: the ledger l.jsonl holds no rollouts yet\n")
    assert issubclass(typer.Exit, RuntimeError)
