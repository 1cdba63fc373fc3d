"""Verdicts that a certificate does not trust abstain, the tree decides, and a certificate of another grader is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from judgekit import (
    Abstained,
    ConfigError,
    Failed,
    Graded,
    GradingRunner,
    Rollout,
    grader,
    group_grader,
)
from judgekit.config import load_config, load_runner
from judgekit.graders.trust import UNTRUSTED, Trust, Trusted, untrusted, with_trust
from judgekit.ledger.reader import read_ledger
from judgekit.replay import known_grades, replay
from judgekit.testing import ScriptedJudge

from ..cli.in_process import call

LOW, HIGH = 0.3, 0.7


def certificate(folder: Path, **changes: Any) -> Path:
    """A certificate of a grader called judge that is trusted for errors of 5 and 10 %, and not for 1 %."""
    made = {
        "certificate": 1,
        "grader": "judge",
        "version": "1",
        "fingerprint": "",
        "score_range": [0, 1],
        "cut": 0.5,
        "thresholds": [
            {"error": 0.01, "low": None, "high": None, "labels": 900},
            {"error": 0.05, "low": LOW, "high": HIGH},
            {"error": 0.1, "low": 0.4, "high": 0.6},
        ],
        **changes,
    }
    path = folder / "judge.cert.json"
    path.write_text(json.dumps(made))
    return path


SCORES = """
from judgekit import Failed, Graded, grader, group_grader

@grader
def judge(extra):
    return Graded(extra["score"], "because", {"raw": "text"})

@grader
def careful(extra):
    return extra["truth"]

@group_grader
def others(extra):
    return [one["score"] for one in extra]
"""

REWARD = """
graders:
  judge: {use: "scores_of_trust:judge"%s}
  careful: "scores_of_trust:careful"
reward: {fallback: [judge, careful]}
ledger: {path: ledger.jsonl}
"""


def house(folder: Path, trust: str = "", name: str = "reward.yaml", reward: str = REWARD) -> Path:
    (folder / "scores_of_trust.py").write_text(SCORES)
    path = folder / name
    path.write_text(reward % trust)
    return path


def rollouts(*pairs: tuple[float, float]) -> list[Rollout]:
    return [
        Rollout(prompt="q", response=f"r{i}", id=str(i), extra={"score": score, "truth": truth})
        for i, (score, truth) in enumerate(pairs)
    ]


TRUST = ", trust: {certificate: judge.cert.json, error: 0.05}"
PAIRS = ((0.9, 0.0), (0.5, 0.0), (0.5, 1.0), (0.1, 1.0), (LOW, 1.0), (HIGH, 0.0))


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of a test's folder are of that test."""
    import sys

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "scores_of_trust", raising=False)


# ---- what is not trusted abstains


def of(path: Path) -> str:
    return load_config(path).fingerprints()["judge"]


def certified(folder: Path, reward: str = REWARD, **changes: Any) -> Path:
    """A folder whose certificate is about its judge."""
    bare = house(folder, reward=reward)
    certificate(folder, fingerprint=of(bare), **changes)
    return house(folder, TRUST, reward=reward)


@pytest.mark.usefixtures("apart")
def test_an_unsure_verdict_goes_to_the_careful_one(tmp_path: Path) -> None:
    runner = load_runner(certified(tmp_path))
    results = runner.run_sync(rollouts(*PAIRS))
    assert [result.reward for result in results] == [0.9, 0.0, 1.0, 0.1, LOW, HIGH]
    grade = results[1].grades["judge"]
    assert isinstance(grade, Abstained)
    assert grade.reason == "not trusted between 0.3 and 0.7"
    assert grade.metadata == {"raw": "text", "untrusted_reason": "because", UNTRUSTED: 0.5}
    assert untrusted(grade) == Graded(0.5, "because", {"raw": "text"})
    assert results[0].grades["judge"] == Graded(0.9, "because", {"raw": "text"})
    assert "careful" not in {name for name, one in results[0].grades.items() if isinstance(one, Graded)}


@pytest.mark.usefixtures("apart")
def test_the_tree_decides_what_an_abstention_does(tmp_path: Path) -> None:
    alone = 'graders:\n  judge: {use: "scores_of_trust:judge"%s}\nrunner: {missing_reward: mask}\n'
    results = load_runner(certified(tmp_path, reward=alone)).run_sync(rollouts(*PAIRS))
    assert [result.reward for result in results] == [0.9, None, None, 0.1, LOW, HIGH]


def test_failures_abstentions_and_wrong_scores_stay_what_they_are() -> None:
    given: list[Any] = [
        Failed("JudgeUnavailable", "it is down"),
        Abstained("no reference"),
        None,
        1.5,
        float("nan"),
        "0.5",
        True,
    ]

    @grader
    def judge(extra: dict[str, Any]) -> Any:
        return given[extra["i"]]

    batch = [Rollout(prompt="q", response=str(i), extra={"i": i}) for i in range(len(given))]
    bare = GradingRunner({"judge": judge}, missing_reward="mask").run_sync(batch)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Trust, "thresholds", lambda *_, **__: (LOW, HIGH))
        wrapped = Trusted(judge, Trust(Path("any")))
    found = GradingRunner({"judge": wrapped}, missing_reward="mask").run_sync(batch)
    assert [one.grades for one in found] == [one.grades for one in bare]


async def test_async_group_and_awaitable_graders_are_trusted_alike(tmp_path: Path) -> None:
    certificate(tmp_path)
    trust = Trust(tmp_path / "judge.cert.json")

    @grader
    async def later(extra: dict[str, Any]) -> float:
        return float(extra["score"])

    @group_grader
    def together(extra: list[dict[str, Any]]) -> list[float]:
        return [one["score"] for one in extra]

    class Plain:
        name, version, score_range = "plain", "1", (0.0, 1.0)

        def grade(self, rollout: Rollout, /) -> Any:
            return self._soon(rollout)

        async def _soon(self, rollout: Rollout) -> float:
            return float(rollout.extra["score"])

    class Group:
        name, version, score_range = "group", "1", (0.0, 1.0)

        async def grade_group(self, rollouts: Sequence[Rollout], /) -> list[float]:
            return [rollout.extra["score"] for rollout in rollouts]

    inners: list[Any] = [later, together, Plain(), Group()]
    for inner in inners:
        runner = GradingRunner({"judge": Trusted(inner, trust)}, missing_reward="mask")
        results = await runner.run(rollouts(*PAIRS))
        assert [result.reward for result in results] == [0.9, None, None, 0.1, LOW, HIGH]


def test_it_is_asked_where_and_as_its_grader_is(tmp_path: Path) -> None:
    certificate(tmp_path)

    class Slow:
        name, version, score_range = "slow", "1", (0.0, 1.0)
        where, timeout_s, max_concurrency = "thread", 3.0, 2
        judge = ScriptedJudge("1")
        started = 0

        def start(self) -> None:
            self.started += 1

        def grade(self, rollout: Rollout, /) -> float:
            return float(rollout.extra["score"])

    slow = Slow()
    runner = GradingRunner(
        {"judge": Trusted(slow, Trust(tmp_path / "judge.cert.json"))}, missing_reward="mask"
    )
    results = runner.run_sync(rollouts(*PAIRS))
    assert [result.reward for result in results] == [0.9, None, None, 0.1, LOW, HIGH]
    assert slow.started == 1
    assert runner.judged == ("judge",)
    copied = pickle.loads(pickle.dumps(Trusted(_module_level, Trust(tmp_path / "judge.cert.json"))))
    assert copied.trusted == (LOW, HIGH)
    assert with_trust(Graded(0.5), copied.trusted) == Abstained(
        "not trusted between 0.3 and 0.7", {UNTRUSTED: 0.5}
    )


@grader
def _module_level(response: str) -> float:
    return float(bool(response))


# ---- what is refused


@pytest.mark.parametrize(
    ("changes", "trust", "says"),
    [
        ({}, "{certificate: nowhere.json}", "nowhere.json cannot be read: No such file or directory"),
        ({}, "{certificate: scores_of_trust.py}", "is no certificate of `judgekit certify"),
        ({"refused": "3 labels"}, "{certificate: judge.cert.json}", "certifies nothing: 3 labels"),
        (
            {},
            "{certificate: judge.cert.json, error: 0.01}",
            "no threshold reaches an error of 0.01; error: 0.05 is reached",
        ),
        (
            {},
            "{certificate: judge.cert.json, error: 0.03}",
            "has thresholds for an error of 0.01, 0.05, 0.1, not of 0.03",
        ),
        ({"version": "2"}, "{certificate: judge.cert.json}", "its version is 1, and was 2"),
        (
            {"score_range": [0, 10]},
            "{certificate: judge.cert.json}",
            "its range is (0.0, 1.0), and was (0.0, 10.0)",
        ),
        ({"fingerprint": "0123"}, "{certificate: judge.cert.json}", "its template, judge, scale or sampling"),
        ({"fingerprint": ""}, "{certificate: judge.cert.json}", "does not tell its settings"),
        ({}, "{error: 0.05}", "the parameter 'certificate' is missing"),
        ({}, "{certificate: judge.cert.json, eror: 0.05}", "there is no parameter 'eror'"),
        ({}, "{certificate: judge.cert.json, on_change: ignore}", "'refuse' or 'warn'"),
        ({}, "judge.cert.json", "expected a mapping"),
    ],
)
@pytest.mark.usefixtures("apart")
def test_what_cannot_be_trusted_is_said_in_a_sentence(
    tmp_path: Path, changes: dict[str, Any], trust: str, says: str
) -> None:
    certified(tmp_path, **changes) if "fingerprint" not in changes else certificate(tmp_path, **changes)
    path = house(tmp_path, f", trust: {trust}")
    with pytest.raises(ConfigError) as caught:
        load_runner(path)
    assert says in str(caught.value)
    assert "graders.judge.trust" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_graders_without_one_bounded_score_have_none_to_trust(tmp_path: Path) -> None:
    trust = Trust(certificate(tmp_path))

    class Several:
        name, version, score_range, outputs = "several", "1", (0.0, 1.0), ("a", "b")

        def grade(self, rollout: Rollout, /) -> Any:
            return {"a": 1.0, "b": 0.0}

    class Unbounded:
        name, version, score_range = "free", "1", (float("-inf"), 1.0)

        def grade(self, rollout: Rollout, /) -> float:
            return 0.0

    with pytest.raises(ConfigError, match="several outputs has no one score to trust"):
        Trusted(Several(), trust)
    with pytest.raises(ConfigError, match="no bounds"):
        Trusted(Unbounded(), trust)


@pytest.mark.usefixtures("apart")
def test_a_changed_grader_is_warned_of_if_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate(tmp_path, fingerprint="another")
    path = house(tmp_path, ", trust: {certificate: judge.cert.json, on_change: warn}")
    runner = load_runner(path)
    assert "judge.cert.json is not about this grader as it is now" in caplog.text
    assert runner.run_sync(rollouts((0.5, 1.0)))[0].reward == 1.0


JUDGE = {
    "use": "judge",
    "judge": "small",
    "template": "question.txt",
    "rubric": "Is it right?",
    "sampling": {"temperature": 0.5, "seed": 1},
    "verdict": {"format": "line", "low": 0, "high": 10},
}
SMALL = {"engine": "openai", "url": "http://127.0.0.1:1", "model": "a-judge"}
CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"template": "default", "rubric": None}, {}),
    *(
        ({key: value}, {})
        for key, value in (
            ("template", "other.txt"),
            ("template", "Is {CANDIDATE_SOLUTION} right?\n{RUBRIC} {HOW_TO_ANSWER}\n{REMINDER}"),
            ("rubric", "Is it polite?"),
            ("rubric", "Is it right? "),
            ("sampling", {"temperature": 0.6, "seed": 1}),
            ("sampling", {"temperature": 0.5, "seed": 2}),
            ("sampling", {"temperature": 0.5, "seed": 1, "top_p": 0.9}),
            ("sampling", {"temperature": 0.5, "seed": 1, "thinking": True}),
            ("sampling", {"temperature": 0.5, "seed": 1, "max_tokens": 12}),
            ("verdict", {"format": "line", "low": 0, "high": 5}),
            ("verdict", "json"),
            ("verdict", "choice"),
            ("votes", 3),
            ("max_tokens", 100),
            ("fields", {"PROBLEM": "extra.question"}),
            ("version", "2"),
            ("judge", "large"),
        )
    ),
    *(
        ({}, {key: value})
        for key, value in (
            ("model", "another-judge"),
            ("engine", "vllm"),
            ("chat_template_kwargs", {"enable_thinking": False}),
            ("extra_body", {"top_k": 1}),
            ("model", "./weights"),
        )
    ),
]


def judged(folder: Path, own: dict[str, Any], judge: dict[str, Any], *, trust: bool = True) -> Path:
    trusted = {"trust": {"certificate": "judge.cert.json"}} if trust else {}
    engine = {**SMALL, **judge}
    if engine["engine"] == "vllm":
        engine.pop("url")
    made = {
        "graders": {
            "judge": {key: value for key, value in {**JUDGE, **own, **trusted}.items() if value is not None}
        },
        "judges": {"small": engine, **({"large": SMALL} if own.get("judge") == "large" else {})},
    }
    path = folder / "reward.yaml"
    path.write_text(json.dumps(made))
    return path


def unnoticed(folder: Path) -> tuple[int, list[Any]]:
    """How many changes were tried of a grader that has a certificate, and those with which it was not refused."""
    for name in ("question.txt", "other.txt"):
        (folder / name).write_text(
            "Question: {PROBLEM}\nAnswer: {CANDIDATE_SOLUTION}\nRubric: {RUBRIC}\n{HOW_TO_ANSWER}\n{REMINDER}"
        )
    (folder / "weights").mkdir()
    (folder / "weights" / "config.json").write_text("{}")
    (folder / "weights" / "model.safetensors").write_bytes(b"\0" * (1 << 24) + b"\0\1")

    def refused(own: dict[str, Any], judge: dict[str, Any]) -> bool:
        try:  # an engine that could not be made here is not what this is about
            load_runner(judged(folder, own, judge), judges={"small": ScriptedJudge("1")})
        except ConfigError as error:
            return "is not about this grader as it is now" in str(error)
        return False

    certificate(folder, fingerprint=of(judged(folder, {}, {}, trust=False)), score_range=[0, 10])
    assert not refused({}, {})
    found: list[Any] = [change for change in CHANGES if not refused(*change)]
    # the contents of files that are named, a model's weights among them
    with (folder / "question.txt").open("a") as file:
        file.write(" ")
    if not refused({}, {}):
        found.append("the template's file")
    local: dict[str, Any] = {"model": "./weights"}
    certificate(folder, fingerprint=of(judged(folder, {}, local, trust=False)), score_range=[0, 10])
    assert not refused({}, local)
    with (folder / "weights" / "model.safetensors").open("r+b") as file:
        file.seek(1 << 23)
        file.write(b"\1" * (1 << 19))
    if not refused({}, local):
        found.append("the model's weights")
    return len(CHANGES) + 2, found


def test_no_change_of_template_judge_scale_or_sampling_goes_unnoticed(tmp_path: Path) -> None:
    tried, found = unnoticed(tmp_path)
    assert tried >= 24
    assert found == []


def test_an_address_a_key_and_the_layers_are_no_change(tmp_path: Path) -> None:
    (tmp_path / "question.txt").write_text(
        "{PROBLEM} {CANDIDATE_SOLUTION} {RUBRIC}\n{HOW_TO_ANSWER}\n{REMINDER}"
    )
    certificate(tmp_path, fingerprint=of(judged(tmp_path, {}, {}, trust=False)), score_range=[0, 10])
    layers = {"cache": {"path": "verdicts.sqlite"}}
    load_runner(judged(tmp_path, {}, {"url": "http://127.0.0.1:2", "api_key": "k", "layers": layers}))


@pytest.mark.usefixtures("apart")
def test_both_ways_of_writing_a_grader_are_one(tmp_path: Path) -> None:
    short = house(tmp_path, reward='graders: {judge: "scores_of_trust:judge"} #%s\n')
    long = house(tmp_path, name="long.yaml")
    assert of(short) == of(long)


# ---- the ledger, replay, another certificate


@pytest.mark.usefixtures("apart")
def test_the_ledger_says_what_was_trusted_and_replay_takes_the_raw_scores(tmp_path: Path) -> None:
    path = certified(tmp_path)
    load_runner(path).run_sync(rollouts(*PAIRS))
    ledger = tmp_path / "ledger.jsonl"
    reading = read_ledger(ledger)
    (spec,) = reading.specs.values()
    assert spec.graders["judge"].trust == (LOW, HIGH)
    assert spec.graders["careful"].trust is None

    assert [one.reward for one in replay(ledger).results] == [0.9, 0.0, 1.0, 0.1, LOW, HIGH]
    raw = replay(ledger, trust={"judge": None})
    assert [one.reward for one in raw.results] == [score for score, _ in PAIRS]
    assert {spec.graders["judge"].trust for spec in raw.specs.values()} == {None}
    wider = replay(ledger, trust={"judge": (0.05, 0.95)})
    assert [one.reward for one in wider.results] == [None, 0.0, 1.0, None, None, None]
    assert isinstance(wider.results[0].grades["judge"], Abstained)
    with pytest.raises(ConfigError, match="trust: the ledger holds no grades of 'jugde'.*'judge'"):
        replay(ledger, trust={"jugde": None})

    # the file's trust counts in the command
    house(tmp_path, name="raw.yaml")
    for name, first in (("raw.yaml", 0.5), ("reward.yaml", 0.0)):
        done = call(tmp_path, "replay", "ledger.jsonl", "--reward", name, "--out", "new.jsonl", "--force")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
        assert rows[1]["reward"] == first
    certificate(tmp_path, fingerprint="another")
    done = call(
        tmp_path, "replay", "ledger.jsonl", "--reward", "reward.yaml", "--out", "new.jsonl", "--force"
    )
    assert done.returncode == 2
    assert "graders.judge.trust: " in done.stderr


@pytest.mark.usefixtures("apart")
def test_a_ledger_with_trust_is_certified_by_its_raw_scores(tmp_path: Path) -> None:
    path = certified(tmp_path)
    batch = [
        Rollout(
            prompt=f"q{i}",
            response=f"{i}",
            id=str(i),
            extra={"score": (0.45 if i % 8 == 1 else 0.9) if i % 2 else 0.1, "truth": i % 2},
        )
        for i in range(240)
    ]
    load_runner(path).run_sync(batch)
    (tmp_path / "labels.jsonl").write_text(
        "".join(json.dumps({"id": str(i), "label": i % 2}) + "\n" for i in range(240))
    )
    args = ("--labels", "labels.jsonl", "--grader", "judge", "--out", "again.json")
    done = call(tmp_path, "certify", "ledger.jsonl", *args)
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "again.json").read_text())
    assert made["counts"]["scored"] == 240
    assert made["fingerprint"] == of(house(tmp_path, name="bare.yaml"))
    # and the new certificate is one of this grader
    load_runner(house(tmp_path, ", trust: {certificate: again.json, error: 0.1}"))


@pytest.mark.usefixtures("apart")
def test_grades_of_another_trust_are_not_taken_from_a_ledger(tmp_path: Path) -> None:
    runner = load_runner(certified(tmp_path))
    batch = rollouts(*PAIRS)
    runner.run_sync(batch)
    reading = read_ledger(tmp_path / "ledger.jsonl")
    same = known_grades(reading, runner, batch).grades
    other = known_grades(reading, load_runner(house(tmp_path)), batch).grades
    assert all("judge" in known for known in same)
    assert not any("judge" in known for known in other)


@pytest.mark.usefixtures("apart")
def test_the_trust_that_the_ledger_has_changes_nothing_in_a_replay(tmp_path: Path) -> None:
    """A group without a reward was filled with the mean of a run before, which this ledger does not hold."""
    alone = 'graders: {judge: {use: "scores_of_trust:judge"%s}}\n'
    path = certified(
        tmp_path, reward=alone + "runner: {missing_reward: neutral}\nledger: {path: ledger.jsonl}\n"
    )
    runner = load_runner(path)
    runner.run_sync(rollouts((0.9, 1.0), (0.8, 1.0)))
    filled = runner.run_sync(rollouts((0.5, 1.0), (0.5, 0.0)))
    assert [one.reward for one in filled] == [pytest.approx(0.85)] * 2
    assert runner.ledger is not None
    runner.ledger.flush()
    ledger = tmp_path / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    (tmp_path / "later.jsonl").write_text("".join([lines[0], *lines[-2:]]))
    done = call(tmp_path, "replay", "later.jsonl", "--reward", path.name, "--out", "new.jsonl")
    assert "2 rewards recomputed, 0 changed" in done.stdout


def test_what_a_grade_says_of_turns_survives_distrust() -> None:
    """A replay with other thresholds has the turns again, also from a ledger's JSON."""
    grade = Graded(0.5, "so", turns=(0.25, None, 0.75))
    doubted = with_trust(grade, (0.2, 0.8))
    assert isinstance(doubted, Abstained)
    read = msgspec.json.decode(msgspec.json.encode(doubted), type=Abstained)
    assert untrusted(doubted) == untrusted(read) == grade
