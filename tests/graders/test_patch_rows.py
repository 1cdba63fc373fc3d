"""What a row of patches says, and what its runs come to, with a sandbox that answers what it is told."""

from __future__ import annotations

import base64
import io
import itertools
import json
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Graded, Rollout
from judgekit.graders import Patch
from judgekit.graders.rules.programs import patch as rules
from judgekit.graders.rules.programs.sandbox import Finished, Limits, SandboxError

DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
GOLD = "gold"
NUMBERS = itertools.count()
FILES = {"x": "a\n", "y": "é"}
TASK: dict[str, Any] = {
    "FAIL_TO_PASS": ["t.py::a", "t.py::b"],
    "PASS_TO_PASS": '["t.py::c", "t.py::a"]',
    "patch": GOLD,
}


def passes(restored: int = 0) -> Finished:
    return Finished("ended", 0, "", "", {"passed": 3, "restored": restored}, True)


def fails(why: str) -> Finished:
    return Finished("ended", 1, "", f"other\nAssertionError: {why}\n")


class Answers:
    """A sandbox that answers each patch as it is told."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"none": fails("none"), "gold": passes(), **answers}
        self.asked: list[Any] = []
        self.number = next(NUMBERS)  # an id may be a later one's, which then knows what this one was told

    def run(self, code: str, *, limits: Limits, job: Any = None, stdin: str = "") -> Finished:
        archive, _, patch = code.partition("\n")
        which = {"": "none", "gold\n": "gold"}.get(patch, "mine")
        self.asked.append((which, archive, patch, limits, job))
        found = self.answers[which]
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def isolation(self) -> dict[str, str]:
        return {"network": "none", "of": str(self.number)}


def grader(sandbox: Any = None, **options: Any) -> Patch:
    return Patch(sandbox=sandbox or Answers(), **options)


def row(response: str = f"```diff\n{DIFF}```", files: Any = FILES, **task: Any) -> Rollout:
    return Rollout(response=response, extra={"repository": files, **TASK, **task})


def test_a_patch_is_run_with_its_row() -> None:
    sandbox = Answers(mine=passes(2))
    task = {
        "test_patch": "change",
        "test_files": {"t.py": "text", "u.py": None, 3: 4},
        "test_cmd": "pytest -x 'a b'",
    }
    found = grader(sandbox, budget_s=7.0, memory_mb=100).grade(row(**task))
    assert found == Graded(1.0, "all 3 tests pass", {"tests": 3, "network": "none", "restored": 2})
    (which, archive, patch, limits, job), *others = sandbox.asked
    assert (which, [other[0] for other in others]) == ("mine", ["none"])
    assert patch == f"diff --git a/x b/x\n{DIFF.replace('@@ -1 +1 @@', '@@ -1,1 +1,1 @@')}"
    assert limits == Limits(7.0, 7.0, 100, file_mb=64, processes=512)
    runner, equality = job.pop("runner"), job.pop("equality")
    assert job == {
        "kind": "patch",
        "inside": False,
        "test_patch": "change\n",
        "test_files": {"t.py": "text", "3": "4"},
        "wanted": ("t.py::a", "t.py::b", "t.py::c"),
        "command": ("-x", "a b"),
    }
    assert runner.startswith('"""Applies a patch in the sandbox')
    assert equality.startswith('"""Compares what a patched program gives')
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as tar:
        members = [(member.name, member.size, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    assert members == [("x", 2, b"a\n"), ("y", 2, "é".encode())]


@pytest.mark.parametrize(
    ("answers", "task", "found", "asked"),
    [
        ({"mine": fails("t.py::a fails: no")}, {}, (0.0, "t.py::a fails: no"), ["mine", "gold"]),
        ({"mine": fails("no"), "gold": fails("why")}, {}, "its own patch does not pass: why", ["mine", "gold"]),
        ({"mine": passes(), "none": passes()}, {}, "its tests pass without any patch", ["mine", "none"]),
        ({"mine": fails("no")}, {"patch": None}, (0.0, "no"), ["mine"]),
        *(
            case
            for begins in ("none of its tests ran", "the test command cannot start")
            for case in (
                ({"mine": fails(f"{begins}: x")}, {"patch": ""}, (0.0, f"{begins}: x"), ["mine", "none"]),
                (
                    {"mine": fails(f"{begins}: x"), "none": fails(f"{begins}: y")},
                    {"patch": ""},
                    f"without any patch, {begins}: y",
                    ["mine", "none"],
                ),
            )
        ),
        ({"mine": Finished("ended", 0, "", "", {"row": "it is odd"}, True)}, {}, "it is odd", ["mine"]),
        (
            {"mine": Finished("ended", 0, "", "", {"refused": "it does not apply"}, True)},
            {},
            (0.0, "it does not apply"),
            ["mine", "gold"],
        ),
        ({"mine": Finished("time", 0, "", "")}, {}, (0.0, "no end within 300 s"), ["mine", "gold"]),
        ({"mine": Finished("ended", 0, "", "", [1], True)}, {}, (0.0, "it ended before its tests did"), ["mine", "gold"]),
        ({"mine": Finished("ended", 0, "", "", {"passed": 3}, False)}, {}, (0.0, "it ended before its tests did"), ["mine", "gold"]),
        ({"mine": Finished("ended", 3, "", "")}, {}, (0.0, "exit code 3"), ["mine", "gold"]),
    ],
)  # fmt: skip
def test_what_a_patch_has_come_to(answers: Any, task: Any, found: Any, asked: list[str]) -> None:
    sandbox = Answers(**answers)
    grade = grader(sandbox).grade(row(**task))
    if isinstance(found, str):
        assert grade == Abstained(found)
    else:
        assert grade == Graded(*found, {"tests": 3, "network": "none"})
    assert [ask[0] for ask in sandbox.asked] == asked


def test_a_sandbox_that_lacks_something_is_the_machine_s_failure() -> None:
    sandbox = Answers(mine=Finished("ended", 0, "", "", {"missing": ["git"]}, True))
    with pytest.raises(SandboxError) as raised:
        grader(sandbox, name="mine").grade(row())
    assert str(raised.value) == "the sandbox has no git, which mine needs: see python and sandbox"


def test_a_row_s_own_patch_is_tried_once_for_each_row() -> None:
    sandbox = Answers(mine=fails("no"))
    rule = grader(sandbox)
    for _ in range(2):
        rule.grade(row())
    assert [ask[0] for ask in sandbox.asked] == ["mine", "gold", "mine"]
    rule.grade(row(files={**FILES, "z": ""}))
    rule.grade(row(test_patch="other"))
    assert [ask[0] for ask in sandbox.asked][3:] == ["mine", "gold"] * 2
    grader(sandbox, budget_s=9.0).grade(row())
    assert [ask[0] for ask in sandbox.asked][7:] == ["mine", "gold"]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("no patch", "there is no patch"),
        ("```diff\nwords\n```", "the patch changes nothing"),
    ],
)
def test_no_patch_is_run_that_is_none(response: str, reason: str) -> None:
    sandbox = Answers()
    assert grader(sandbox).grade(row(response)) == Graded(0.0, reason)
    assert sandbox.asked == []


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"FAIL_TO_PASS": 3}, "FAIL_TO_PASS and PASS_TO_PASS of extra are lists of names, or JSON of them"),
        ({"PASS_TO_PASS": "[1"}, "no test has to pass"),
        ({"PASS_TO_PASS": {"a": 1}}, "FAIL_TO_PASS and PASS_TO_PASS of extra are lists of names, or JSON of them"),
        ({"FAIL_TO_PASS": []}, "no test has to pass: extra has no FAIL_TO_PASS"),
        ({"FAIL_TO_PASS": " "}, "no test has to pass: extra has no FAIL_TO_PASS"),
        ({"FAIL_TO_PASS": None}, "no test has to pass: extra has no FAIL_TO_PASS"),
        (
            {"FAIL_TO_PASS": ["x" * 100]},
            f"{'x' * 80!r} is no node id of pytest's, such as tests/test_a.py::test_b",
        ),
        ({"PASS_TO_PASS": ["/t.py::a"]}, "'/t.py::a' is no node id of pytest's, such as tests/test_a.py::test_b"),
        ({"test_cmd": f"make {'x' * 100}"}, f"test_cmd {('make ' + 'x' * 100)[:80]!r} is not pytest's: only what pytest runs is counted"),
        ({"test_cmd": "pytest '"}, "test_cmd \"pytest '\" cannot be read: No closing quotation"),
        ({"test_files": [1]}, "test_files is a mapping of texts by path"),
        ({"files": None}, "there is no repository at extra.repository"),
        ({"files": "  "}, "there is no repository at extra.repository"),
        ({"files": "{x"}, "there is no repository at extra.repository"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_tried(task: Any, reason: str) -> None:
    if task == {"PASS_TO_PASS": "[1"}:
        assert (
            grader(Answers(mine=passes())).about_data(row(**task))
            == "2 tests that pytest must pass, 2 of which fail before"
        )
        return
    rollout = row(**task)
    assert grader().about_data(rollout) == Abstained(reason)
    assert grader().grade(rollout) == Abstained(reason)


def test_a_task_that_is_not_there_is_said() -> None:
    for task in (None, "words", 3, "[1]"):
        assert grader(task="ground_truth").grade(Rollout(response="", ground_truth=task)) == Abstained(
            "there is no task at ground_truth"
        )


def test_names_of_lists_may_be_lower_case() -> None:
    task = {"fail_to_pass": ("t.py::a",), "pass_to_pass": None}
    rollout = Rollout(response="", ground_truth=task, extra={"repository": json.dumps(FILES)})
    assert grader(task="ground_truth").about_data(rollout) == (
        "1 tests that pytest must pass, 1 of which fail before, and no patch of its own to try the row with"
    )
    assert grader().about_data(row()) == "3 tests that pytest must pass, 2 of which fail before"


@pytest.mark.parametrize(
    ("name", "is_node"),
    [
        ("t.py::a", True),
        ("a/t.py::A::b[x]", True),
        ("t.py", False),
        ("t.txt::a", False),
        ("/t.py::a", False),
        ("a/../t.py::a", False),
        ("a/..b/t.py::a", True),
    ],
)
def test_node_ids(name: str, is_node: bool) -> None:
    assert rules._is_node(name) is is_node


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("pytest", []),
        ("/usr/bin/py.test -x", ["-x"]),
        ("python -m pytest -x a", ["-x", "a"]),
        ("/usr/bin/python3.11 -m pytest", []),
        ("ruby -m pytest", "is not pytest's: only what pytest runs is counted"),
        ("python -m unittest", "is not pytest's: only what pytest runs is counted"),
        ("", "is not pytest's: only what pytest runs is counted"),
        ("'", "cannot be read: No closing quotation"),
    ],
)
def test_commands_of_pytest(command: str, options: Any) -> None:
    assert rules._options(command) == options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"isolation": "half"}, "patch: isolation is one of"),
        ({"budget_s": 0.5}, "patch: budget_s is a number of at least 1"),
        ({"memory_mb": 63}, "patch: memory_mb is a whole number of at least 64"),
        ({"memory_mb": 64.5}, "patch: memory_mb is a whole number of at least 64"),
        ({"repositories": "/no/folder"}, "patch: repositories is a folder with folders, .tar or .tar.gz files in it; there is none at /no/folder"),
        ({"command": "make"}, "patch: command 'make' is not pytest's"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work(options: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        grader(**options)
    assert str(raised.value).startswith(says)


def test_settings_have_bounds_and_defaults() -> None:
    assert grader(budget_s=1.0, memory_mb=64, max_concurrency=3).max_concurrency == 3
    rule = grader()
    assert rule.limits == Limits(300.0, 300.0, 4096, file_mb=64, processes=512)
    assert rule.timeout_s == 3 * 350.0
    assert rule.max_concurrency is not None
    assert rule.max_concurrency >= 1
    assert (rule.name, rule.task, rule.repository, rule.command) == (
        "patch",
        "extra",
        "extra.repository",
        "pytest",
    )


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    for path in ("a.py", ".git/config", "b/__pycache__/c.pyc", "b/d.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    for name in ("one.tar", "two.tar.gz", "deep/three.tgz", "four.txt", "five.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def archive_of(repositories: Path, name: Any) -> Any:
    return grader(repositories=repositories, name="mine")._archive(row(files=name))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("one", "one.tar"),
        ("two", "two.tar.gz"),
        ("deep/three", "deep/three.tgz"),
        ("five.tar", "five.tar"),
    ],
)
def test_a_repository_is_an_archive(repositories: Path, name: str, file: str) -> None:
    found = archive_of(repositories, name)
    assert (found.data, found.inside) == (file.encode(), True)
    assert len(found.digest) == 32
    assert found.digest != archive_of(repositories, "two" if name != "two" else "one").digest


def test_a_repository_is_a_folder(repositories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = archive_of(repositories, "plain")
    assert found.inside is False
    with tarfile.open(fileobj=io.BytesIO(found.data)) as tar:
        assert {m.name: m.mtime for m in tar} == dict.fromkeys((".", "./a.py", "./b", "./b/d.py"), 0)
    (repositories / "plain/a.py").write_text("other")
    assert archive_of(repositories, "plain").digest != found.digest
    size = len("other") + len("b/d.py")
    monkeypatch.setattr(rules, "_MOST_BYTES", size)
    archive_of(repositories, "plain")
    monkeypatch.setattr(rules, "_MOST_BYTES", size - 1)
    with pytest.raises(ValueError, match=f"^the repository {repositories}/plain has more than 0 MiB$"):
        archive_of(repositories, "plain")


@pytest.mark.parametrize("name", ["/etc", "../x", "a/./b", "plain/../plain"])
def test_a_repository_stands_in_the_folder(repositories: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        archive_of(repositories, name)
    assert str(raised.value) == f"there is no {name} in {repositories}"


@pytest.mark.parametrize("name", ["none", "four.txt"])
def test_a_repository_that_is_not_there(repositories: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        archive_of(repositories, name)
    assert str(raised.value) == f"there is no folder, .tar or .tar.gz of the name {name} in {repositories}"


def test_a_name_without_a_folder_says_what_to_do() -> None:
    with pytest.raises(ConfigError) as raised:
        grader().grade(row(files="name"))
    assert str(raised.value) == (
        "patch: 'name' names a repository: give the folder that holds it as repositories, or a mapping of texts by path "
        "at extra.repository"
    )


def test_archives_are_written_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (b"", b"abcdefgh"):
        monkeypatch.setattr(rules, "_STEP", 3)
        assert rules._base64(data) == base64.b64encode(data).decode()


def test_paths_in_a_mapping_are_plain() -> None:
    with tarfile.open(fileobj=io.BytesIO(rules._packed({"./b": "2", "a": "\ud800"}))) as tar:
        assert [(m.name, m.size) for m in tar] == [("b", 1), ("a", 3)]
    found: Any = grader()._archive(row(files={"a": "x", "b": None, "c": 3}))
    with tarfile.open(fileobj=io.BytesIO(found.data)) as tar:
        assert tar.getnames() == ["a", "c"]
    assert found.inside is False


def test_what_was_found_out_is_kept_up_to_a_number() -> None:
    rows, ran = rules._Rows(2), []
    for key in (b"a", b"b", b"a", b"c", b"a", b"c"):
        assert rows.found(key, lambda key=key: ran.append(key) or key.decode()) == key.decode()  # type: ignore[misc]
    assert ran == [b"a", b"b", b"c", b"a"]
    rows.reset()
    assert rows.found(b"c", lambda: "again") == "again"


def test_an_error_is_not_kept() -> None:
    rows = rules._Rows()

    def find() -> str:
        raise SandboxError("busy")

    with pytest.raises(SandboxError, match="busy"):
        rows.found(b"a", find)
    assert rows.found(b"a", lambda: "fine") == "fine"


def test_others_wait_for_the_first_that_asks() -> None:
    rows, begun, goes = rules._Rows(), threading.Event(), threading.Event()

    def find() -> str:
        begun.set()
        goes.wait(60)
        return "first"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(rows.found, b"a", find)
        begun.wait(60)
        second = threads.submit(rows.found, b"a", lambda: "second")
        goes.set()
        assert (first.result(60), second.result(60)) == ("first", "first")
