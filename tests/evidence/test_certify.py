"""How far a grader can be trusted: intervals by prompt, thresholds that hold, labels that join, refusals with a reason."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from judgekit import DataError, Failed, Graded, GradingRunner, Ledger, Rollout, grader
from judgekit.evidence import Alarm, thresholds
from judgekit.evidence.certificate import _threshold, certify
from judgekit.evidence.gold_labels import read_labels
from judgekit.evidence.shares import clusters_of, most, share
from judgekit.ledger.reader import read_ledger
from judgekit.report.marks import Mark, write_mark
from judgekit.types import Price

from ..cli.in_process import call


@grader
def judge(extra: dict[str, Any]) -> Any:
    if extra["score"] == "failed":
        return Failed("JudgeUnavailable", "it is down")
    return extra["score"]


def ledger(path: Path, scores: list[list[Any]], *, texts: bool = True) -> Path:
    """Grade rollouts of several prompts; each has the score that is given for it."""
    kept = Ledger(path, texts=texts)
    runner = GradingRunner({"judge": judge}, missing_reward="mask", ledger=kept)
    runner.run_sync(
        [
            Rollout(prompt=f"q{i}", response=f"r{j}", group=i, id=f"{i}-{j}", extra={"score": score})
            for i, group in enumerate(scores)
            for j, score in enumerate(group)
        ]
    )
    kept.flush()
    return path


def labels(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labelled(folder: Path, prompts: int, *, mistaken: int = 0) -> tuple[Path, Path]:
    """Rollouts of which half are right; of *mistaken* prompts, the judge pays a wrong one, unsurely."""
    scores = [[0.95, 0.9, 0.6 if i < mistaken else 0.05, 0.1] for i in range(prompts)]
    said = [{"id": f"{i}-{j}", "label": int(j < 2)} for i in range(prompts) for j in range(4)]
    return ledger(folder / "ledger.jsonl", scores), labels(folder / "labels.jsonl", said)


# ---- intervals


@pytest.mark.parametrize("rate", [0.5, 0.85, 0.98])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("prompts", [10, 25, 100])
def test_intervals_hold_for_rollouts_of_common_prompts(rate: float, spread: float, prompts: int) -> None:
    """400 draws of unequal groups: of a nominal 95 %, at least 91 %, four standard errors of the count below it."""
    draw = np.random.default_rng(3)
    middle = math.log(rate / (1 - rate))
    true = float((1 / (1 + np.exp(-middle - spread * draw.standard_normal(200_000)))).mean())
    held = 0
    for _ in range(400):
        chance = 1 / (1 + np.exp(-middle - spread * draw.standard_normal(prompts)))
        of = np.repeat(np.arange(prompts), draw.integers(1, 16, prompts))
        found = share(draw.random(len(of)) < chance[of], of)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true <= found.high
    assert held >= 0.91 * 400


def test_an_error_more_never_makes_an_interval_narrower() -> None:
    prompts = np.repeat(np.arange(40), 8)
    limits = [most(np.arange(320) < errors, prompts) for errors in range(120)]
    assert limits == sorted(limits)


def test_what_is_not_known_is_none() -> None:
    assert share([], []).value is None
    one = share([True, False], ["p", "p"])
    assert (one.value, one.low, one.high) == (0.5, None, None)
    assert most([False], ["p"]) == 1.0


# ---- thresholds


def test_kept_verdicts_are_as_rarely_wrong_as_certified() -> None:
    """Over draws of labels, thresholds for 10 % let through more in at most 6 % of the certificates."""
    draw = np.random.default_rng(5)
    bad = found = 0
    for _ in range(300):
        of = np.repeat(np.arange(60), 8)
        right = draw.random(480) < 0.5
        # the judge is the more often right, the farther its score is from the middle
        away = draw.random(480) / 2
        calls = right == (draw.random(480) < away + 0.6)
        one = _threshold(np.where(calls, 0.5 + away, 0.5 - away), right, of, 0.5, 0.1)
        if one.high is None:
            continue
        found += 1
        kept = np.linspace(one.high - 0.5, 0.5, 1000)
        bad += float(np.maximum(0.4 - kept, 0.0).mean()) > 0.1
    assert found > 200
    assert bad <= 0.06 * 300


def test_unsure_verdicts_are_left_out(tmp_path: Path) -> None:
    path, said = labelled(tmp_path, 120, mistaken=30)
    reading = read_ledger(path)
    made = certify(reading, read_labels(said, reading.entries), "judge")
    assert made.refused == ""
    assert made.right is not None
    assert made.right.value == 1.0
    assert made.wrong is not None
    assert made.wrong.value == pytest.approx(210 / 240)
    (five,) = [one for one in made.thresholds if one.error == 0.05]
    assert five.low is not None
    assert five.high is not None
    assert 0.6 < five.high <= 0.9
    assert five.wrong == 0.0
    (one,) = [one for one in made.thresholds if one.error == 0.01]
    assert one.low is None
    assert one.labels is not None
    assert one.labels > 480


def test_it_is_recomputed_byte_for_byte(tmp_path: Path) -> None:
    path, said = labelled(tmp_path, 30, mistaken=3)
    for name in ("a.json", "b.json"):
        done = call(tmp_path, "certify", path.name, "--labels", said.name, "--grader", "judge", "--out", name)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    made = json.loads((tmp_path / "a.json").read_bytes())
    assert made["counts"] == {
        "rollouts": 120,
        "labels": 120,
        "scored": 120,
        "right": 60,
        "wrong": 60,
        "prompts": 30,
    }
    assert made["population"]["score_quantiles"][-1] == 0.95


def test_a_page_of_markdown(tmp_path: Path) -> None:
    path, said = labelled(tmp_path, 120, mistaken=30)
    done = call(tmp_path, "certify", path.name, "--labels", said.name, "--grader", "judge", "--out", "c.md")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "c.md").read_text()
    assert "480 labelled scores on 120 prompts: 240 right, 240 wrong." in text
    assert "| wrong ones that it calls wrong | 87.5% |" in text
    assert "| 1% | no threshold: some" in text
    tables = [[line for line in part.splitlines() if line.startswith("|")] for part in text.split("\n\n")]
    for table in filter(None, tables):
        assert len({line.count("|") for line in table}) == 1, table


def test_prompts_count_and_not_rollouts(tmp_path: Path) -> None:
    """The same verdicts, of many prompts or of few: texts tell which, groups where there are none."""
    widths = []
    for name, texts in (("many", True), ("few", True), ("without texts", False)):
        folder = tmp_path / name
        folder.mkdir()
        scores = [[0.9, 0.9, 0.1, 0.9 if i % 5 == 0 else 0.1] for i in range(100)]
        if name != "many":
            scores = [[one for group in scores[i : i + 10] for one in group] for i in range(0, 100, 10)]
        path = ledger(folder / "l.jsonl", scores, texts=texts)
        entries = read_ledger(path).entries
        said = {place: int(entry.id.split("-")[1]) % 4 < 2 for place, entry in enumerate(entries)}
        made = certify(read_ledger(path), said, "judge")
        assert made.wrong is not None
        assert made.wrong.high is not None
        assert made.wrong.low is not None
        widths.append(made.wrong.high - made.wrong.low)
    assert widths[1] > 1.2 * widths[0]
    assert widths[2] == widths[1]


# ---- what is missing


def test_failures_are_beside_the_figures_and_no_verdicts(tmp_path: Path) -> None:
    scores: list[list[Any]] = [[0.9, 0.1] for _ in range(20)] + [["failed", None]]
    path = ledger(tmp_path / "ledger.jsonl", scores)
    reading = read_ledger(path)
    said = {place: entry.id.endswith("-0") for place, entry in enumerate(reading.entries)}
    made = certify(reading, said, "judge")
    assert made.missing == {
        "right": {"abstained": 0, "failed": 1, "not asked": 0},
        "wrong": {"abstained": 1, "failed": 0, "not asked": 0},
    }
    assert made.agreement is not None
    assert (made.agreement.value, made.agreement.n) == (1.0, 40)


@pytest.mark.parametrize(
    ("prompts", "right", "why"),
    [
        (12, 12, "0 scored rollouts are labelled wrong"),
        (6, 2, "6 prompts"),
        (30, 9, "9 scored rollouts are labelled right"),
    ],
)
def test_few_labels_certify_nothing(tmp_path: Path, prompts: int, right: int, why: str) -> None:
    each = 1 if prompts > 6 else 6
    path = ledger(tmp_path / "ledger.jsonl", [[0.9] * each] * prompts)
    rows = [{"id": f"{i}-{j}", "label": int(i < right)} for i in range(prompts) for j in range(each)]
    said = labels(tmp_path / "labels.jsonl", rows)
    done = call(tmp_path, "certify", path.name, "--labels", said.name, "--grader", "judge", "--out", "c.json")
    assert done.returncode == 1
    assert f"not certified: {why}" in done.stdout or f"not certified: the labels are of {why}" in done.stdout
    made = json.loads((tmp_path / "c.json").read_bytes())
    assert why in made["refused"]
    assert (made["right"], made["agreement"], made["thresholds"]) == (None, None, [])


# ---- labels


def test_labels_join_by_each_of_the_three_ways_and_marks_are_labels(tmp_path: Path) -> None:
    path, _ = labelled(tmp_path, 12)
    entries = read_ledger(path).entries
    for way in (("id",), ("run", "index"), ("rollout_digest",)):
        rows = [{**{name: getattr(entry, name) for name in way}, "label": "right"} for entry in entries]
        assert read_labels(labels(tmp_path / "by.jsonl", rows), entries) == dict.fromkeys(range(48), True)
    for entry in entries:
        write_mark(path, Mark(entry.run, entry.index, "good" if int(entry.id.split("-")[1]) < 2 else "bad"))
    write_mark(path, Mark(entries[0].run, entries[0].index, "bad"))  # a person may change their mind
    done = call(tmp_path, "certify", path.name, "--grader", "judge")
    assert done.returncode == 0, done.stderr
    assert "48 labelled scores on 12 prompts, 23 right and 25 wrong" in done.stdout
    assert "95.7%" not in done.stdout.splitlines()[0]
    write_mark(path, Mark(entries[0].run, entries[0].index, ""))  # and take a mark back
    done = call(tmp_path, "certify", path.name, "--grader", "judge")
    assert "47 labelled scores on 12 prompts, 23 right and 24 wrong" in done.stdout


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [{"id": "elsewhere", "label": 1}],
            "none of 1 labels is about a rollout of the ledger, the first names id elsewhere",
        ),
        (
            [{"id": "0-0", "label": 1}, {"id": "0-0", "label": 0}],
            "lines 1 and 2 say different things of one rollout (id 0-0)",
        ),
        ([{"id": "0-0", "label": 2}], "line 1: 2 is no label"),
        ([{"id": "0-0", "label": "maybe"}], "line 1: 'maybe' is no label"),
        ([{"id": "0-0", "label": [1]}], "line 1: [1] is no label"),
        ([{"id": "0-0"}], "line 1: there is no label"),
        ([{"label": 1}], "line 1: it names no rollout"),
        ([{"run": [1], "index": 0, "label": 1}], "line 1: run [1] 0 is no name of a rollout"),
        ([{"rollout_digest": ["x"], "label": 1}], "is no name of a rollout"),
        ([{"run": "a", "index": [0], "label": 1}], "is no name of a rollout"),
        ([{"id": "0-0", "label": math.nan}], "none of 0 labels is about a rollout"),
        ([], "none of 0 labels"),
        ([{"id": "0-0", "label": None}], "none of 0 labels"),
    ],
)
def test_labels_that_do_not_fit_are_one_sentence(
    tmp_path: Path, rows: list[dict[str, Any]], says: str
) -> None:
    path, _ = labelled(tmp_path, 3)
    said = labels(tmp_path / "said.jsonl", rows)
    done = call(tmp_path, "certify", path.name, "--labels", said.name, "--grader", "judge")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_ledger_of_two_settings_and_wrong_names_are_refused(tmp_path: Path) -> None:
    path, said = labelled(tmp_path, 12)
    text = path.read_text().splitlines()
    spec = json.loads(text[0])
    other = {
        **spec,
        "digest": "other",
        "graders": {"judge": {**spec["graders"]["judge"], "fingerprint": "another"}},
    }
    lines = [
        line.replace(f'"spec":"{spec["digest"]}"', '"spec":"other"') if i % 2 else line
        for i, line in enumerate(text[1:])
    ]
    (tmp_path / "two.jsonl").write_text("\n".join([text[0], json.dumps(other), *lines]) + "\n")
    (tmp_path / "bare.jsonl").write_text("\n".join(text[1:]) + "\n")  # its spec is lost
    (tmp_path / "lost.jsonl").write_text("\n".join([json.dumps(other), *text[1:]]) + "\n")
    for args, says in (
        (("two.jsonl", "--grader", "judge", "--labels", said.name), "were graded with 2 settings of judge"),
        (
            (path.name, "--grader", "jugde", "--labels", said.name),
            "the ledger has no grader 'jugde': it has judge",
        ),
        ((path.name, "--grader", "judge"), "there are no marks of ledger.jsonl"),
        ((path.name, "--grader", "judge", "--labels", "nowhere.jsonl"), "nowhere.jsonl"),
        (("bare.jsonl", "--grader", "judge", "--labels", said.name), "the ledger has no grader 'judge'"),
        (
            ("lost.jsonl", "--grader", "judge", "--labels", said.name),
            "does not tell how judge graded the labelled",
        ),
        ((path.name, "--grader", "judge", "--labels", said.name, "--out", path.name), "ledger.jsonl"),
    ):
        done = call(tmp_path, "certify", *args)
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("prompts", "size", "error"), [(150, 8, 0.05), (60, 16, 0.1), (200, 1, 0.05)])
def test_a_threshold_holds_where_a_judge_is_right_or_wrong_about_a_prompt_as_a_whole(
    prompts: int, size: int, error: float
) -> None:
    """A judge that is wrong a little more often than is certified: in at most one draw of twenty, and what luck adds to it."""
    draw = np.random.default_rng(7)

    def certified(share: float, *, whole: bool) -> bool:
        wrong = (
            np.repeat(draw.random(prompts) < share, size) if whole else draw.random(prompts * size) < share
        )
        labels = np.resize([1, 0], prompts * size)
        scores = np.where(labels.astype(bool) ^ wrong, 0.9, 0.1)
        return thresholds(scores, labels, np.repeat(np.arange(prompts), size), error).low is not None

    assert sum(certified(1.02 * error, whole=True) for _ in range(300)) <= 15 + 8
    assert sum(certified(1.02 * error, whole=False) for _ in range(300)) <= 15 + 8
    if size > 1:  # and it is of use: where rollouts are independent, all of them count
        assert sum(certified(error / 2, whole=False) for _ in range(30)) >= 25


def test_numpy_s_prompts_and_groups_without_prompts_are_clusters() -> None:
    alarm, same = Alarm(), Alarm()
    alarm.add([(1.0, False)] * 2, prompts=np.array([1, 1]))
    same.add([(1.0, False)] * 2, prompts=["a", "a"])
    assert alarm.log_e == same.log_e
    with pytest.raises(DataError, match="2 audits have 1 prompts"):
        alarm.add([(1.0, False)] * 2, prompts=[1])
    assert clusters_of(["b", "a", "b", "x" * 10_000]).tolist() == [0, 1, 0, 2]


def test_a_price_and_no_prompts_are_no_other_settings_and_no_one_cluster(tmp_path: Path) -> None:
    """400 rollouts of 100 groups, whose data have no prompts; half of them graded before the judge had a price."""
    scores = random.Random(1)
    kept = Ledger(tmp_path / "l.jsonl", texts=True)
    for price in (None, Price(input=0.15, output=0.6)):

        class Judge:
            name, version, score_range = "judge", "1", (0.0, 1.0)
            judge = SimpleNamespace(price=price)

            def grade(self, rollout: Rollout, /) -> Any:
                return Graded(rollout.extra["score"])

        runner = GradingRunner({"judge": Judge()}, ledger=kept, fingerprints={"judge": "same"})
        runner.run_sync(
            [
                Rollout(response="x", group=f"{price} {i // 4}", extra={"score": scores.choice([0.1, 0.9])})
                for i in range(200)
            ]
        )
    kept.flush()
    reading = read_ledger(tmp_path / "l.jsonl")
    assert len({spec.graders["judge"].price for spec in reading.specs.values()}) == 2
    said = {i: entry.grades["judge"].score > 0.5 for i, entry in enumerate(reading.entries)}  # type: ignore[union-attr]
    found = certify(reading, said, "judge")
    assert not found.refused
    assert found.counts["prompts"] == 100
