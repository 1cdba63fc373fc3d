"""Patches against a repository's tests: right ones are paid in whatever dress, no other is, and a broken row pays nobody."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from judgekit import Abstained, ConfigError, Failed, Graded, GradingRunner, Rollout
from judgekit.graders import Patch
from judgekit.graders.rules.programs.patch_text import PatchError, canonical, patch_of
from judgekit.graders.rules.programs.sandboxes import LocalSandbox

from .test_sandboxes import url as url

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


from patch_rows import (
    BROKEN,
    CHEATS,
    COSTLY,
    DRESSES,
    FILES,
    KINDS,
    RIGHT,
    TASK,
    WRONG,
    adding,
    fenced,
    row,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="this machine has no git")

PATCH = Patch(budget_s=60.0)
SHORT = Patch(budget_s=8.0, memory_mb=512)


def grade(response: str, grader: Patch = PATCH, **changes: Any) -> Any:
    return grader.grade(row(response, **changes))


@pytest.mark.parametrize("dress", DRESSES)
def test_the_right_patch_is_paid_in_whatever_dress(dress: str) -> None:
    found = grade(DRESSES[dress])
    assert isinstance(found, Graded), found
    assert found.score == 1.0, found.reason
    assert found.metadata is not None
    assert found.metadata["tests"] == 7
    assert (found.metadata["restored"] > 0) == ("of its own" in dress)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_patch_is_paid(kind: str) -> None:
    found = grade(KINDS[kind], SHORT if kind == "sleeping" else PATCH)
    assert isinstance(found, Graded), found
    assert found.score == 0.0, kind
    assert found.reason


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_patch_that_takes_the_tests_apart_is_not_paid(cheat: str) -> None:
    found = grade(fenced(CHEATS[cheat]))
    assert isinstance(found, Graded), found
    assert found.score == 0.0, cheat


@pytest.mark.parametrize("what", COSTLY)
def test_a_patch_has_a_budget(what: str) -> None:
    found = grade(fenced(COSTLY[what]), SHORT)
    assert isinstance(found, Graded), found
    assert found.score == 0.0


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_row_pays_nobody(what: str) -> None:
    changes, says = BROKEN[what]
    for patch in (RIGHT, WRONG):
        found = grade(fenced(patch), **changes)
        if what in ("nothing that fails before", "its own patch does not pass") and isinstance(found, Graded):
            # a row is tried where something depends on it: its own patch where one has failed, and none where one has passed
            assert found.score == (1.0 if "own" in what else 0.0)
            continue
        assert isinstance(found, Abstained)
        assert says in found.reason


def test_a_row_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = LocalSandbox.run

    def counting(self: LocalSandbox, code: str, **options: Any) -> Any:
        ran.append(code.partition("\n")[2])
        return run(self, code, **options)

    monkeypatch.setattr(LocalSandbox, "run", counting)
    task = {"problem": "once"}  # another row than that of the other tests
    extra = {"repository": {**FILES, "ONCE": "x"}, **TASK, **task}
    rollouts = [Rollout(response=fenced(patch), extra=extra) for patch in (WRONG, RIGHT, WRONG, RIGHT)]
    assert [PATCH.grade(rollout).score for rollout in rollouts] == [0, 1, 0, 1]  # type: ignore[union-attr]
    assert len(ran) == 6
    assert ran.count("") == 1
    PATCH.grade(Rollout(response="no patch", extra=extra))
    assert len(ran) == 6


def test_a_row_without_a_patch_of_its_own_is_believed_where_its_tests_ran() -> None:
    assert grade(fenced(WRONG), patch=None).score == 0
    assert grade(KINDS["crashing"], patch=None).score == 0
    assert grade(fenced(RIGHT), patch=None).score == 1


def test_a_sandbox_service_runs_patches(url: str) -> None:
    grader = Patch(sandbox=url, budget_s=60.0)
    assert grade(fenced(RIGHT), grader).score == 1
    for patch in (WRONG, CHEATS["it exits when it is loaded"], CHEATS["it writes the answer at the end"]):
        assert grade(fenced(patch), grader).score == 0


def test_tests_may_come_as_files_and_a_task_as_json() -> None:
    files = {
        "tests/test_new.py": "from shop.price import total\n\n\ndef test_new():\n    assert total([2], 50) == 1\n"
    }
    task = {"test_files": files, "FAIL_TO_PASS": json.dumps(["tests/test_new.py::test_new"])}
    grader = Patch(task="ground_truth", repository="ground_truth.repository", budget_s=60.0)
    rollout = Rollout(response=fenced(RIGHT), ground_truth={**task, "repository": FILES})
    assert grader.grade(rollout).score == 1  # type: ignore[union-attr]
    written = Rollout(
        response=fenced(WRONG), ground_truth=json.dumps(task), extra={"files": json.dumps(FILES)}
    )
    assert Patch(task="ground_truth", repository="extra.files").grade(written).score == 0  # type: ignore[union-attr]
    overwrites = adding("tests/test_new.py", "def test_new():\n    pass\n")
    assert grade(fenced(overwrites), test_patch=None, PASS_TO_PASS=None, patch=RIGHT, **task).score == 0


def test_repositories_are_folders_and_archives(tmp_path: Path) -> None:
    for path, text in FILES.items():
        file = tmp_path / "plain" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "plain" / ".git").mkdir()
    (tmp_path / "plain" / ".git" / "config").write_text("[core]\n\tbare = true\n")
    (tmp_path / "deep").mkdir()
    for name in ("a.tar", "b.tar.gz", "deep/c.tgz"):
        with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as tar:
            tar.add(tmp_path / "plain", "shop-1a2b3c" if name == "b.tar.gz" else ".")
    with tarfile.open(tmp_path / "a.tar", "a") as tar:  # what leads out of the archive is left out
        evil = tarfile.TarInfo("../outside")
        tar.addfile(evil, io.BytesIO())
        link = tarfile.TarInfo("shop/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../etc/passwd"
        tar.addfile(link)
    grader = Patch(repositories=str(tmp_path), repository="extra.instance_id", budget_s=60.0)
    for name in ("plain", "a", "b", "deep/c"):
        found = grade(fenced(RIGHT), grader, instance_id=name)
        assert isinstance(found, Graded), found
        assert found.score == 1.0, found.reason
        assert grade(fenced(WRONG), grader, instance_id=name).score == 0
    for name in ("none", "../plain", "/etc"):
        rollouts = [row(fenced(RIGHT), instance_id=name)]
        (result,) = GradingRunner([grader], missing_reward="mask").run_sync(rollouts)
        failed = result.grades["patch"]
        assert isinstance(failed, Failed)
        assert f"there is no {name}" in failed.detail or f"name {name}" in failed.detail
    assert isinstance(grade(fenced(RIGHT), grader, instance_id=None), Abstained)


def test_what_a_row_says_is_told() -> None:
    assert PATCH.about_data(row("")) == "7 tests that pytest must pass, 4 of which fail before"
    assert str(PATCH.about_data(row("", patch=None))).endswith("and no patch of its own to try the row with")
    assert isinstance(PATCH.about_data(row("", repository=None)), Abstained)


def test_subtests_and_marks_count_as_pytest_says() -> None:
    def score(text: str, names: list[str], patch: str = RIGHT) -> Any:
        files = {"tests/test_new.py": f"import pytest, unittest\nfrom shop.price import total\n{text}"}
        task = {"test_files": files, "test_patch": None, "PASS_TO_PASS": None, "patch": None}
        found = grade(fenced(patch), FAIL_TO_PASS=[f"tests/test_new.py::{name}" for name in names], **task)
        return found.score if isinstance(found, Graded) else found.reason

    sub = "class T(unittest.TestCase):\n    def test_a(self):\n        for d in (50, LAST):\n            with self.subTest(d=d): self.assertEqual(total([2], d), 1)\n"
    assert score(sub.replace("LAST", "50"), ["T::test_a"]) == 1
    assert score(sub.replace("LAST", "60"), ["T::test_a"]) == 0
    expected = "@pytest.mark.xfail\ndef test_a():\n    assert total([2], 50) == 7\ndef test_b():\n    assert total([2], 50) == 1\n"
    assert score(expected, ["test_a", "test_b"]) == 1
    assert score("@pytest.mark.skip\ndef test_a():\n    assert 0\n", ["test_a"]) == 0
    cut = "@pytest.mark.parametrize('a', ['x y', 'x z'])\ndef test_a(a):\n    assert total([2], 50) == 1\n"
    assert score(cut, ["test_a[x"]) == 1
    assert (
        score(
            "def test_a():\n    assert total([2], 50) == 1\n    assert [1.0] == [total([2], 50)]\n",
            ["test_a"],
        )
        == 1
    )
    mock = "from unittest.mock import ANY\ndef test_a():\n    assert (total([2], 50), 2) == (ANY, 2)\n    assert total([2], 50) == pytest.approx(1)\n    assert total([2], 50) in [1]\n"
    assert score(mock + "    assert total([2], 50) == 1\n", ["test_a"]) == 1


def test_settings_that_cannot_work_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="repositories is a folder"):
        Patch(repositories="no-such-folder")
    with pytest.raises(ConfigError, match="only what pytest runs is counted"):
        Patch(command="make test")
    with pytest.raises(ConfigError, match="give the folder that holds it as repositories"):
        Patch(repository="extra.instance_id").grade(row(fenced(RIGHT)))
    Patch(command="python3 -m pytest -rA")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda *_, **__: None)
        with pytest.raises(
            ConfigError, match="patch needs git, which this machine does not have: install it"
        ):
            Patch()


@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="another Python, without pytest")
def test_a_sandbox_without_pytest_is_the_machines_failure() -> None:
    grader = Patch(python="/usr/bin/python3")
    (result,) = GradingRunner([grader], missing_reward="mask").run_sync([row(fenced(RIGHT))])
    failed = result.grades["patch"]
    assert isinstance(failed, Failed)
    assert failed.cause == "infrastructure"
    assert "the sandbox has no pytest" in failed.detail


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("", "changes nothing"),
        ("words", "changes nothing"),
        ("@@ -1 +1 @@\n-a\n+b\n", "a hunk of no file"),
        ("--- a/x\n+++ b/x\n@@ ... @@\n-a\n+b\n", "a hunk without line numbers"),
        ("--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n", "a hunk without line numbers"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "a file without a name"),
        ('--- "a/\\056\\056/x"\n+++ "b/\\056\\056/x"\n@@ -1 +1 @@\n-a\n+b\n', "may not touch '../x'"),
        ("--- a/C:/x\n+++ b/C:/x\n@@ -1 +1 @@\n-a\n+b\n", "absolute"),
        ("--- a/x\\y\n+++ b/x\\y\n@@ -1 +1 @@\n-a\n+b\n", "characters that no path needs"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+\0\n", "binary"),
        (
            "diff --git a/x b/x\nindex 1..2 120000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
            "a link or a module",
        ),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "changes nothing"),
    ],
)
def test_what_is_no_patch_is_refused(patch: str, says: str) -> None:
    with pytest.raises(PatchError, match=says.replace(".", r"\.")):
        canonical(patch)


def test_patches_are_written_as_git_takes_them() -> None:
    wrong = "--- x.py\n+++ x.py\n@@ -1,9 +1,2 @@\n a\n-b\n+c\n\n d\n\nThe end.\n"
    assert (
        canonical(wrong)
        == "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,4 +1,4 @@\n a\n-b\n+c\n \n d\n"
    )
    two = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n"
    assert canonical(two).count("diff --git") == 2
    comment = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,1 @@\n--- a comment\n a\n"
    assert "@@ -1,2 +1,1 @@\n--- a comment\n a\n" in canonical(comment)
    quoted = canonical('--- "a/caf\\303\\251.py"\n+++ "b/caf\\303\\251.py"\n@@ -1 +1 @@\n-a\n+b\n')
    assert "\\303\\251" in quoted
    empty = "diff --git a/pkg/__init__.py b/pkg/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    assert canonical(empty) == "diff --git a/pkg/__init__.py b/pkg/__init__.py\nnew file mode 100644\n"
    deleted = canonical("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n")
    assert "deleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n\\ No newline" in deleted


def test_the_patch_of_a_response() -> None:
    assert patch_of("<think>") is None
    assert patch_of("```diff\n```") is None
    assert patch_of("```diff\na\n```\n```patch\nb\n```\n```\n--- c\n+++ c\n```") == "--- c\n+++ c"
    assert patch_of("```diff\na\n```\n```patch\nb\n```") == "b"
    assert patch_of("```python\nx = 1\n```") is None
    assert patch_of("words\n--- a\n+++ b\n@@") == "--- a\n+++ b\n@@"


@pytest.mark.parametrize(
    "line", ["-", "+x", " ", "@@ -1 +1 @@", "--- a/x\n+++ b/x", "diff --git a/x b/x", "\\", ""]
)
def test_reading_a_patch_takes_linear_time(line: str) -> None:
    text = "--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n" + f"{line}\n" * (400_000 // (len(line) + 1))
    with contextlib.suppress(PatchError):
        canonical(text)
