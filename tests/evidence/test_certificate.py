"""A certificate, figure by figure: what is counted, drawn to be labelled next, and written on the page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, DataError, Failed, Grade, Graded, GradingRunner, Ledger, Rollout, grader
from judgekit.evidence.certificate import ERRORS, certify
from judgekit.evidence.certificate_page import page
from judgekit.evidence.gold_labels import of_marks, read_labels
from judgekit.ledger.reader import Reading
from judgekit.ledger.schema import Entry

from .test_certify import judge, ledger, read_ledger


def reading(tmp_path: Path, scores: list[list[Any]]) -> Reading:
    return read_ledger(ledger(tmp_path / "ledger.jsonl", scores))


def test_a_certificate_of_known_figures(tmp_path: Path) -> None:
    """Of each of 10 prompts two rollouts are labelled, and a third is not; on one prompt the judge is wrong about both."""
    scores = [[0.9, 0.1, 0.5] if i else [0.1, 0.5, 0.5] for i in range(10)] + [[0.7]] * 25
    read = reading(tmp_path, scores)
    places = {entry.id: place for place, entry in enumerate(read.entries)}
    labels = {places[f"{i}-{j}"]: j == 0 for i in range(10) for j in range(2)}
    made = certify(read, labels, "judge")
    assert (made.grader, made.cut, made.score_range, made.seed, made.refused) == (
        "judge",
        0.5,
        (0.0, 1.0),
        0,
        "",
    )
    assert made.counts == {
        "rollouts": 55,
        "labels": 20,
        "scored": 20,
        "right": 10,
        "wrong": 10,
        "prompts": 10,
    }
    assert made.missing == {x: {"abstained": 0, "failed": 0, "not asked": 0} for x in ("right", "wrong")}
    found = {what: (one.value, one.n, one.prompts) for what, one in made.shares()}
    assert found == {
        "right ones that it calls right": (0.9, 10, 10),
        "wrong ones that it calls wrong": (0.9, 10, 10),  # a score of the middle calls right
        "agreement": (0.9, 20, 10),
    }
    assert [one.error for one in made.thresholds] == list(ERRORS) == [0.01, 0.02, 0.05, 0.1]
    assert made.population["score_quantiles"] == pytest.approx([0.1, 0.1, 0.1, 0.3, 0.9, 0.9, 0.9])
    assert made.population["chars_quantiles"] == [2.0] * 7
    assert made.population["from"] <= made.population["to"]

    unlabelled = {
        f"{entry.run} {entry.index}" for entry in read.entries if len(entry.id) == 4 and entry.id >= "10"
    }
    assert len(made.next_labels) == len(set(made.next_labels)) == 20
    assert set(made.next_labels) < unlabelled
    assert certify(read, labels, "judge", seed=1).next_labels != made.next_labels
    assert certify(read, labels, "judge", seed=0) == made


def test_what_is_labelled_next_has_a_score_and_is_one_of_each_prompt(tmp_path: Path) -> None:
    read = reading(tmp_path, [[0.9], [0.1, 0.2, 0.3], [None], ["failed"], [0.5]])
    made = certify(read, {0: True}, "judge")
    prompts = {f"{entry.run} {entry.index}": entry.group for entry in read.entries}
    assert sorted(prompts[name] for name in made.next_labels) == [1, 4]
    assert made.refused == "1 scored rollouts are labelled right: it takes 10 of each class"


@pytest.mark.parametrize(
    ("right", "wrong", "prompts", "says"),
    [
        (10, 10, 10, ""),
        (9, 10, 10, "9 scored rollouts are labelled right: it takes 10 of each class"),
        (10, 9, 10, "9 scored rollouts are labelled wrong: it takes 10 of each class"),
        (10, 10, 9, "the labels are of 9 prompts: it takes 10"),
    ],
)
def test_how_many_labels_it_takes(tmp_path: Path, right: int, wrong: int, prompts: int, says: str) -> None:
    read = reading(tmp_path, [[0.9] * (1 + (right + wrong) // prompts) for _ in range(prompts)])
    by_prompt = sorted(
        range(len(read.entries)),
        key=lambda place: read.entries[place].index % (1 + (right + wrong) // prompts),
    )
    made = certify(read, {place: at < right for at, place in enumerate(by_prompt[: right + wrong])}, "judge")
    assert made.refused == says
    assert (made.agreement is None) == bool(says)


def test_policies_and_data_sets_of_the_labels_are_told(tmp_path: Path) -> None:
    path = ledger(tmp_path / "ledger.jsonl", [[0.9], [0.1], [0.5]])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [line for line in lines if "index" in line]
    rows[0] |= {
        "data_source": "b",
        "tags": {"policy": "new", "other": 1},
        "time": 86400.0 * 2,
        "response_chars": 10,
    }
    rows[1] |= {"data_source": "a|c", "tags": {"policy_version": 7}, "time": 86400.0, "response_chars": 30}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = certify(read_ledger(path), {0: True, 1: False}, "judge")
    about = made.population
    assert (about["data_sources"], about["policies"]) == (["a|c", "b"], ["7", "new"])
    assert (about["from"], about["to"]) == (86400.0, 86400.0 * 2)
    assert about["chars_quantiles"] == [10.0, 12.0, 15.0, 20.0, 25.0, 28.0, 30.0]
    text = page(made)
    assert "Rollouts: data sources a\\|c, b; graded 1970-01-02 to 1970-01-03.\n" in text
    assert "**Not certified**: 1 scored rollouts are labelled right: it takes 10 of each class.\n" in text
    assert "| | share |" not in text


def test_the_page_of_a_certificate(tmp_path: Path) -> None:
    scores: list[list[Any]] = [[0.9, 0.1] for _ in range(300)] + [[None, "failed"]]
    read = reading(tmp_path, scores)
    labels = {place: entry.id.endswith("-0") for place, entry in enumerate(read.entries)}
    made = certify(read, labels, "judge")
    text = page(made)
    assert text.startswith(
        "# Certificate of judge\n\n600 labelled scores on 300 prompts: 300 right, 300 wrong. "
    )
    assert "It calls right what scores 0.5 or more." in text
    assert made.right is not None
    assert (
        f"| right ones that it calls right | 100.0% | {made.right.low:.1%} to 100.0% | 300 on 300 prompts |"
        in text
    )
    assert (
        "|\n\n| at most so many wrong | not trusted between | kept | of these wrong |\n|---|---|---|---|\n| 1% |"
        in text
    )
    assert (
        "|\n\n| without a score | abstained | failed | not asked |\n|---|---|---|---|\n| labelled right |"
        in text
    )
    assert "| 5% | 0.1 and 0.9 | 100% | 0.0% |" in text
    assert "| labelled right | 1 | 0 | 0 |\n| labelled wrong | 0 | 1 | 0 |" in text
    assert f"Grader: version {judge.version}, settings {made.fingerprint or 'unknown'}." in text
    assert "Rollouts: data sources unnamed; graded " in text


def test_scores_without_bounds_have_no_middle(tmp_path: Path) -> None:
    @grader(name="judge", score_range=(0.0, math.inf))
    def unbounded(response: str) -> float:
        return 1.0

    kept = Ledger(tmp_path / "ledger.jsonl")
    GradingRunner({"judge": unbounded}, ledger=kept).run_sync([Rollout(response="x")])
    kept.close()
    with pytest.raises(DataError, match=r"the scores of judge have no bounds \(0 to inf\)"):
        certify(read_ledger(tmp_path / "ledger.jsonl"), {0: True}, "judge")


def test_the_page_of_labels_without_a_score(tmp_path: Path) -> None:
    read = reading(tmp_path, [[None], [0.9]])
    made = certify(read, {0: True}, "judge")
    assert made.population == {}
    assert "Rollouts:" not in page(made)
    assert made.missing["right"] == {"abstained": 1, "failed": 0, "not asked": 0}


# ---- labels


def entry(index: int, **fields: Any) -> Entry:
    grades: dict[str, Grade] = {"judge": Graded(1.0), "a": Abstained("x"), "f": Failed("E")}
    given: dict[str, Any] = {
        "run": "run", "index": index, "group": 0, "grades": grades, "reward": 1.0, "raw_reward": 1.0, "status": "scored",
        "contributions": {}, "id": f"id{index}", "rollout_digest": f"digest{index}", "time": 0.0, "spec": "",
    }  # fmt: skip
    return Entry(**(given | fields))


@pytest.mark.parametrize(
    ("label", "right"),
    [
        *(
            (word, True)
            for word in (1, 1.0, True, "1", "true", "right", "good", "correct", " Right ", "CORRECT")
        ),
        *((word, False) for word in (0, 0.0, False, "0", "False", "wrong", "bad", "incorrect", "BAD\n")),
    ],
)
def test_every_word_for_a_label(tmp_path: Path, label: Any, right: bool) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"id": "id1", "label": label}) + "\n")
    found = read_labels(path, [entry(0), entry(1)])
    assert found == {1: right}
    assert type(found[1]) is bool


def test_how_a_label_names_its_rollout(tmp_path: Path) -> None:
    entries = [
        entry(0),
        entry(1),
        entry(2, id="id1"),
        entry(3, id="7"),
        entry(3, run="later", id="", rollout_digest="digest3"),
    ]
    path = tmp_path / "labels.jsonl"

    def found(**row: Any) -> dict[int, bool]:
        path.write_text(json.dumps(row | {"label": 1}) + "\n")
        return read_labels(path, entries)

    assert found(run="run", index=1, id="id0") == {1: True}  # run and index count first
    assert found(rollout_digest="digest2", id="id0") == {2: True}
    assert found(id=7) == {3: True}
    assert found(run="run", id="id0") == {0: True}
    assert found(rollout_digest="digest3") == {4: True}  # the last line of equal rollouts
    with pytest.raises(DataError, match="line 1: 2 rollouts have the id id1: name them by run and index"):
        found(id="id1")
    for nothing in ({"id": ""}, {"id": None}, {"rollout_digest": ""}, {"index": 1}, {"run": "run"}):
        with pytest.raises(DataError, match="line 1: it names no rollout"):
            found(**nothing)
    with pytest.raises(DataError, match="the first names run run 9, the ledger has id id0"):
        found(run="run", index=9)
    path.write_text("")
    with pytest.raises(
        DataError, match="none of 0 labels is about .* names none, the ledger has run run index 5"
    ):
        read_labels(path, [entry(5, id="")])


def test_lines_that_are_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    for line, says in (
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: there is no label: a label names its rollout by id"),
        ('{"id": "id0"}', "line 2: there is no label"),
        ('{"id": "id0", "label": 0.5}', "line 2: 0.5 is no label: 1 or 0, true or false, right or wrong"),
        ('{"id": "id0", "label": 0}', "lines 1 and 2 say different things of one rollout"),
    ):
        path.write_text('{"id": "id0", "label": 1}\n' + line + "\n")
        with pytest.raises(DataError, match=says):
            read_labels(path, [entry(0)])
    path.write_text(
        '{"id": "id0", "label": 1}\n{"id": "id0", "label": "good"}\n{"id": "id1", "label": null}\n'
    )
    assert read_labels(path, [entry(0), entry(1)]) == {0: True}


def test_labels_that_join_nothing_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(f'{{"id": "{name}", "label": 1}}\n' for name in ("id0", "ID1", "ID2")))
    assert read_labels(path, [entry(0), entry(1)]) == {0: True}
    assert "2 of its labels are about no rollout of the ledger, the first names id ID1" in caplog.text


def test_marks_are_labels_of_their_rollouts() -> None:
    marks = {("run", 1): True, ("run", 0): False, ("other", 0): True}
    assert of_marks(marks, [entry(0), entry(1), entry(2)]) == {1: True, 0: False}
