"""What the patch's harness does in the sandbox, function by function, in the tests' own process."""

from __future__ import annotations

import ast
import base64
import contextlib
import gzip
import io
import os
import shutil
import sys
import tarfile
import types
import unittest
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _pytest.config
import pytest
from _pytest.assertion import rewrite
from _pytest.runner import runtestprotocol

from judgekit.graders.rules.programs import code_harness
from judgekit.graders.rules.programs import patch_harness as harness

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="this machine has no git")


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The names that stand beside the harness's own in the sandbox, and a folder to work in."""
    for name in ("hide", "keeping", "known", "stored"):
        monkeypatch.setattr(harness, name, getattr(code_harness, name), raising=False)
    monkeypatch.setattr(code_harness, "TRUSTED", set())
    monkeypatch.setattr(harness, "TRUSTED", code_harness.TRUSTED, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def write(files: dict[str, str]) -> None:
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def tree(root: str = ".") -> dict[str, str]:
    return {path: Path(root, path).read_text() for path in harness.listing(root)}


def member(name: str, data: bytes | None = b"", **about: Any) -> tuple[tarfile.TarInfo, bytes | None]:
    """A member of an archive; a folder if there is no data."""
    found = tarfile.TarInfo(name)
    found.size = len(data or b"")
    if data is None:
        found.type = tarfile.DIRTYPE
    for key, value in about.items():
        setattr(found, key, value)
    return found, data


def link(name: str, leads: str) -> tuple[tarfile.TarInfo, bytes | None]:
    return member(name, b"", type=tarfile.SYMTYPE, linkname=leads)


def packed(*members: tuple[tarfile.TarInfo, bytes | None]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data or b""))
    return made.getvalue()


def opened(*members: tuple[tarfile.TarInfo, bytes | None]) -> Any:
    return harness.opened(packed(*members), False)


# ---- a patch


def test_a_patch_is_tried_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getcwd()
    got: list[Any] = []

    def in_repository(*args: Any) -> str:
        got.append((os.getcwd(), args))
        os.chdir("/")
        return "answer"

    monkeypatch.setattr(harness, "in_repository", in_repository)
    source = f"{base64.b64encode(b'archive').decode()}\nthe\npatch\n"
    assert harness.patched(source, {"a": 1}) == "answer"  # type: ignore[comparison-overlap]
    root = f"{here}/repository"
    assert got == [(root, (root, b"archive", "the\npatch\n", {"a": 1}))]
    assert os.getcwd() == here


def test_what_a_machine_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "find_spec", {"pytest": None}.__getitem__)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", {"git": None}.__getitem__)
        assert harness.patched("", {}) == {"missing": ["git"]}
    monkeypatch.setattr(shutil, "which", {"git": "/usr/bin/git"}.__getitem__)
    assert harness.patched("", {}) == {"missing": ["pytest"]}
    assert os.listdir(".") == []


ARCHIVE = (
    member("a.py", b"x = 1\n"),
    member("conftest.py", b"c\n"),
    member("tests/test_a.py", b"a\n"),
    member("tests/data.txt", b"data\n"),
)
PATCH = """\
--- a/a.py
+++ b/a.py
@@ -1 +1 @@
-x = 1
+x = 2
--- a/conftest.py
+++ b/conftest.py
@@ -1 +1 @@
-c
+d
--- /dev/null
+++ b/extra.py
@@ -0,0 +1 @@
+y = 1
--- a/tests/data.txt
+++ /dev/null
@@ -1 +0,0 @@
-data
--- /dev/null
+++ b/tests/test_new.py
@@ -0,0 +1 @@
+mine
"""
JOB: dict[str, Any] = {
    "inside": False,
    "wanted": ["tests/test_a.py::test_a", "tests/test_new.py::test_b", "tests/test_a.py::test_c"],
    "test_patch": "",
    "test_files": {"tests/test_new.py": "new \ud800\n"},
}


class Runs:
    """What the tests of a patch are called with, in the place of the tests."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.said: list[Any] = []
        self.reading, self.writing = os.pipe()
        self.opened: Any = None

    def run_tests(self, *args: Any) -> int:
        tar, members = self.opened
        assert tar.closed
        assert members == {}
        self.said.append(args)
        if self.error is not None:
            raise self.error
        return 3

    def exits(self, code: int) -> None:
        raise SystemExit(code)

    def of(self, patch_: str = PATCH, archive: Any = ARCHIVE, **job: Any) -> Any:
        def opening(*args: Any) -> Any:
            self.opened = opener(*args)
            return self.opened

        opener = harness.opened
        with pytest.MonkeyPatch.context() as patch:  # at once: pytest itself captures by these
            patch.setattr(os, "dup", {2: self.writing}.get)
            patch.setattr(
                os, "dup2", lambda *a: self.said.append((os.readlink(f"/proc/self/fd/{a[0]}"), a[1]))
            )
            patch.setattr(os, "_exit", self.exits)
            patch.setattr(harness, "opened", opening)
            patch.setattr(harness, "run_tests", self.run_tests)
            patch.setattr(harness, "prefer_installed", self.said.append)
            return harness.in_repository("/root", packed(*archive), patch_, {**JOB, **job})


@needs_git
def test_files_that_decide_about_tests_are_the_row_s() -> None:
    runs = Runs()
    assert runs.of() == {"passed": 3, "restored": 3}
    assert runs.said == [
        ("/dev/null", 1),
        ("/dev/null", 2),
        {"extra", "test_new"},
        ("/root", {"a.py", "extra.py"}, ["tests/test_a.py", "tests/test_new.py"], ("tests/",), JOB),
    ]
    assert {path: Path(path).read_bytes() for path in harness.listing(".")} == {
        "a.py": b"x = 2\n",
        "conftest.py": b"c\n",
        "extra.py": b"y = 1\n",
        "tests/data.txt": b"data\n",
        "tests/test_a.py": b"a\n",
        "tests/test_new.py": b"new \xed\xa0\x80\n",
    }


@needs_git
def test_without_a_patch_the_repository_is_the_row_s() -> None:
    runs = Runs()
    assert runs.of("") == {"passed": 3, "restored": 0}
    assert runs.said[2:] == [
        set(),
        ("/root", set(), ["tests/test_a.py", "tests/test_new.py"], ("tests/",), JOB),
    ]


@needs_git
def test_tests_beside_the_code_are_the_row_s() -> None:
    runs = Runs()
    change = "--- a/test_a.py\n+++ b/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
    wanted = {"wanted": ["test_a.py::test_a"], "test_files": {}}
    assert runs.of(change, [member("test_a.py", b"a\n")], **wanted) == {"passed": 3, "restored": 1}
    assert tree() == {"test_a.py": "a\n"}
    assert runs.said[3][1:4] == (set(), ["test_a.py"], ())


@needs_git
def test_what_fails_ends_the_process_at_once() -> None:
    runs = Runs(AssertionError("tests\n  fail"))
    with pytest.raises(SystemExit) as raised:
        runs.of()
    assert raised.value.code == 1
    os.close(runs.writing)
    assert os.read(runs.reading, 100) == b"\nAssertionError: tests fail\n"


@needs_git
@pytest.mark.parametrize(
    ("patch", "job", "says"),
    [
        (
            PATCH.replace("x = 1", "x = 3"),
            {},
            {"refused": "the patch does not apply: patch failed: a.py:1 a.py: patch does not apply"},
        ),
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+a.py\n\\ No newline\n",
            {},
            {"refused": "the patch makes a link"},
        ),
        (
            PATCH,
            {"test_patch": "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x\n+y\n"},
            {"row": "its test patch does not apply: b.py: No such file or directory"},
        ),
        (
            PATCH,
            {"wanted": ["tests/test_z.py::test_a", "tests/test_a.py::test_a"]},
            {"row": "its tests are to be in tests/test_z.py, which is not there"},
        ),
    ],
)
def test_what_does_not_apply_is_said(patch: str, job: Any, says: Any) -> None:
    runs = Runs()
    assert runs.of(patch, **job) == says
    assert runs.said == []


@needs_git
def test_what_a_row_changes_is_read_and_taken_back() -> None:
    tar, members = opened(*ARCHIVE)
    for path in members:
        harness.put_back(path, tar, members)
    before = tree()
    change = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 5\n--- a/tests/data.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-data\n"
    job = {"test_patch": change, "test_files": {"tests/new.py": "new"}}
    assert harness.changed_by_row(["a.py"], tar, members, job) == {
        "a.py": b"x = 5\n",
        "tests/data.txt": None,
        "tests/new.py": b"new",
    }
    assert tree() == before


# ---- archives and files


@pytest.mark.parametrize(
    ("members", "inside", "paths"),
    [
        ([member("top", None), member("top/a.py"), member("top/b/c.py")], True, {"a.py", "b/c.py"}),
        ([member("top", None), member("top/a.py")], False, {"top", "top/a.py"}),
        ([member(".", None), member("./top/a.py")], True, {"a.py"}),
        ([member("top/a.py"), member("other/b.py")], True, {"top/a.py", "other/b.py"}),
        ([member("top/a.py"), member("b.py")], True, {"top/a.py", "b.py"}),
        ([member("a.py")], True, {"a.py"}),
        ([member("../a"), member("/etc/b"), member(".git/c"), member("d/__pycache__/e")], False, set()),
        ([member("a/.git/b"), member("a/.github/c"), member("a/..d")], False, {"a/.github/c", "a/..d"}),
        ([member("a//b/../c")], False, {"a/c"}),
    ],
)
def test_members_of_an_archive(members: Any, inside: bool, paths: set[str]) -> None:
    data = packed(*members)
    for given in (data, gzip.compress(data)):
        tar, found = harness.opened(given, inside)
        assert {*found} == paths
        assert isinstance(tar, tarfile.TarFile)
        assert all(one in tar.getmembers() for one in found.values())


def test_files_are_put_back_as_the_archive_has_them() -> None:
    tar, members = opened(
        member("a.py", b"a", mode=0o644),
        member("b.sh", b"b", mode=0o755),
        member("c", b"", type=tarfile.LNKTYPE, linkname="a.py"),
        member("d/e/f.py", b"f", mode=0o644),
        member("pipe", b"", type=tarfile.FIFOTYPE),
    )
    write({"a.py": "changed", "d": "a file where a folder was", "pipe": "kept?", "new.py": "n"})
    os.mkdir("b.sh")
    for path in (*members, "new.py", "not there", "a.py/nor there"):
        harness.put_back(path, tar, members)
    assert tree() == {"a.py": "a", "b.sh": "b", "c": "a", "d/e/f.py": "f"}
    assert [os.stat(path).st_mode & 0o111 for path in ("a.py", "b.sh", "d/e/f.py")] == [0, 0o111, 0]


def test_folders_are_put_back() -> None:
    tar, members = opened(member("a", None), member("b", None), member("c", None), member("d", None))
    write({"a/kept.py": "k", "b": "a file", "e/f.py": "f"})
    os.symlink("a", "c")
    for path in (*members, "e"):
        harness.put_back(path, tar, members)
    assert tree() == {"a/kept.py": "k"}
    assert [os.path.isdir(path) and not os.path.islink(path) for path in "abcd"] == [True] * 4
    assert not os.path.lexists("e")


def test_links_are_put_back_that_stay_in_the_repository() -> None:
    tar, members = opened(
        link("in", "a.py"),
        link("b/up", "../a.py"),
        link("out", "../a.py"),
        link("b/far", "../../a.py"),
        link("root", "/etc/passwd"),
    )
    write({"out": "was there"})
    for path in members:
        harness.put_back(path, tar, members)
    assert {path: os.readlink(path) for path in harness.listing(".")} == {"in": "a.py", "b/up": "../a.py"}


def test_folders_are_made_in_the_place_of_files_and_links() -> None:
    write({"file": "x", "folder/kept": "k"})
    os.symlink("folder", "link")
    os.symlink("nowhere", "broken")
    for path in ("file/a/b", "link/a", "broken/a", "folder/a/b", "new/a/b", "alone"):
        harness.parents(path)
    assert sorted(path.as_posix() for path in Path().rglob("*")) == [
        *["broken", "file", "file/a", "folder", "folder/a", "folder/kept", "link", "new", "new/a"],
    ]
    assert not any(os.path.islink(path) for path in ("link", "broken"))


def test_files_are_laid_and_removed() -> None:
    write({"a": "old", "b": "old", "c/d": "old"})
    harness.lay({"a": None, "b": b"new", "c": None, "e/f": b"new", "g": None})
    assert tree() == {"b": "new", "e/f": "new"}
    os.symlink("e", "link")
    harness.remove("link")
    assert tree() == {"b": "new", "e/f": "new"}
    harness.remove("b/below a file")


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/a"])
def test_no_file_is_laid_outside(path: str) -> None:
    with pytest.raises(ValueError, match=f"^{path} is not in the repository$"):
        harness.place(path, b"")


def test_files_are_read_where_there_are_any() -> None:
    write({"a": "text", "b/c": "x"})
    assert [harness.read(path) for path in ("a", "b", "c")] == [b"text", None, None]


def test_a_listing_has_files_and_links_but_no_folders() -> None:
    write({"a": "text", "b/c": "x"})
    os.symlink("b", "link")
    os.symlink("nowhere", "b/broken")
    os.chmod("a", 0o640)
    found = harness.listing(".")
    assert {*found} == {"a", "b/c", "link", "b/broken"}
    about = os.lstat("a")
    assert found["a"] == (4, about.st_mtime_ns, about.st_ino, 0o100640)
    assert found["link"][3] == os.lstat("link").st_mode


def test_paths_that_differ_between_two_listings() -> None:
    one, other = (1, 2, 3, 4), (1, 2, 3, 5)
    before = {"same": one, "changed": one, "removed": one}
    assert harness.changed_paths(before, {"same": one, "changed": other, "b": one}) == [
        "b",
        "changed",
        "removed",
    ]


@needs_git
@pytest.mark.parametrize(
    ("text", "patch", "becomes"),
    [
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n", "a\nx\nc\n"),
        ("a  d\nb\nc\n", "@@ -1,3 +1,3 @@\n a d\n-b\n+x\n c\n", "a  d\nx\nc\n"),
        ("z\na\nb\nc\n", "@@ -1,3 +1,3 @@\n y\n a\n-b\n+x\n", "z\na\nx\nc\n"),
        ("a\nb\nc\n", "@@ -2 +2 @@\n-b\n+x\n", "a\nx\nc\n"),
    ],
)
def test_a_patch_applies_where_it_may_be_meant(text: str, patch: str, becomes: str) -> None:
    write({"a.txt": text})
    said = harness.applied(f"--- a/a.txt\n+++ b/a.txt\n{patch}")
    assert (said, tree()) == ("", {"a.txt": becomes})


def test_git_is_asked_in_three_ways_and_its_first_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(command: list[str], **options: Any) -> Any:
        space = options.pop("env")
        kept = {name: space[name] for name in space if name.startswith("GIT_")}
        asked.append((command, options, kept, space["MADE_UP"]))
        return SimpleNamespace(
            returncode=1, stderr=[b"", b"error: first\n\xff  " + b"y" * 200, b"error: z"][len(asked) - 1]
        )

    monkeypatch.setattr(harness.subprocess, "run", run)
    monkeypatch.setenv("MADE_UP", "kept")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    assert harness.applied("\ud800") == f"first \ufffd {'y' * 142}"
    space = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.getcwd()),
    }
    assert asked == [
        (
            ["git", "apply", "--whitespace=nowarn", *options, "-"],
            {"input": b"\xed\xa0\x80", "capture_output": True},
            space,
            "kept",
        )
        for options in ([], ["--ignore-whitespace", "-C1"], ["--unidiff-zero"])
    ]
    monkeypatch.setattr(harness.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=2, stderr=b""))
    assert harness.applied("") == "git gives no reason"


@pytest.mark.parametrize(
    ("path", "it_decides"),
    [
        *((name, True) for name in sorted(harness._DECIDES)),
        ("a/b/conftest.py", True),
        *((f"a/x.{ending}", True) for ending in ("pyc", "pyo", "pth", "so", "pyd")),
        ("x.egg-info/a", True),
        ("b/x.dist-info/a", True),
        ("__pycache__/a", True),
        ("_pytest/a.py", True),
        ("_pytest", False),
        ("x.egg-info", False),
        ("tests/a", True),
        ("tests", True),
        ("src/tests/a", False),
        ("a.py", False),
        ("conftest.py/a.py", False),
    ],
)
def test_files_that_decide_about_tests(path: str, it_decides: bool) -> None:
    assert harness.decides(path, ("tests/", "other/tests/")) is it_decides


def test_without_folders_of_tests_names_decide() -> None:
    assert not harness.decides("tests/a", ())


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("tests/a.py", "tests/"),
        ("a/test/b/tests/c.py", "a/test/"),
        ("a/testing/b.py", ""),
        ("tests", ""),
        ("test.py", ""),
    ],
)
def test_the_outermost_folder_of_tests(path: str, folder: str) -> None:
    assert harness.tests_folder(path) == folder


def test_modules_that_a_patch_adds() -> None:
    added = ["a.py", "b/c.x.py", "d/e/__init__.py", "__init__.py", "f.txt", "g/h.pyc"]
    assert harness.new_modules(added) == {"a", "c", "e"}


def test_what_is_installed_comes_before_what_a_patch_adds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "installed.py").write_text("")
    monkeypatch.setattr(sys, "meta_path", ["others"])
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    harness.prefer_installed({"installed", "not_installed"})
    finder, *others = sys.meta_path
    assert others == ["others"]
    monkeypatch.setattr(sys, "path", [])
    assert finder.find_spec("installed").origin == str(tmp_path / "installed.py")  # type: ignore[union-attr]
    assert finder.find_spec("installed", [str(tmp_path)]) is None
    assert finder.find_spec("not_installed") is None
    (tmp_path / "another.py").write_text("")
    assert finder.find_spec("another") is None


# ---- the tests


class Steps:
    """The steps of a run of tests, each noted with its arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[Any] = []
        self.config = SimpleNamespace(_ensure_unconfigure=self.unconfigure)
        self.late: Any = lambda: None
        gives: dict[str, Any] = {
            "set_trap": "test_trap",
            "set_by_tests": {"attribute"},
            "load_plugins": None,
            "compare_well": None,
            "keeping": ("put back", "changed"),
            "stand_as_pytest": None,
            "hide": None,
            "configured": self.config,
            "watching": lambda session, given: f"{session} {given}",
            "collected": "session",
            "choose_items": {7},
            "defined": "given",
        }
        for name, value in gives.items():
            monkeypatch.setattr(harness, name, self.step(name, value))
        monkeypatch.setattr(harness, "run_each", self.run_each)
        monkeypatch.setattr(sys, "pycache_prefix", None)

    def step(self, name: str, gives: Any) -> Any:
        def called(*args: Any) -> Any:
            self.said.append((name, *args))
            return gives

        return called

    def run_each(self, session: Any, must_fail: Any, tampered: Any, run: Any, catch: Any) -> int:
        self.said.append(("run_each", session, must_fail, tampered(), run.__name__, catch.__name__))
        self.late()
        return 2

    def unconfigure(self) -> None:
        self.said.append("unconfigured")
        raise SystemExit


def test_tests_run_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    write(
        {
            "a.py": "",
            "b.py": "",
            "conftest.py": "",
            "tests/test_a.py": "",
            "tests/data.txt": "",
            "tox.ini": "",
        }
    )
    root = os.getcwd()
    job = {"equality": "equality", "command": ["-x"], "wanted": ["tests/test_a.py::test_a"]}
    assert harness.run_tests(root, {"b.py"}, ["tests/test_a.py"], ("tests/",), job) == 2
    said = {step[0]: step for step in steps.said if step != "unconfigured"}
    (paths,) = said["defined"][1:]
    assert sorted(paths) == [f"{root}/conftest.py", f"{root}/tests/test_a.py", f"{root}/tox.ini"]
    assert steps.said == [
        ("set_trap", "tests/test_a.py"),
        ("set_by_tests", ["tests/test_a.py"]),
        ("load_plugins",),
        ("compare_well", "equality", ["tests/test_a.py"]),
        ("keeping", [], harness._PYTEST),
        ("stand_as_pytest", root),
        ("hide",),
        ("configured", root, ["-x", "tests/test_a.py"], _pytest.config._prepareconfig),
        ("watching", steps.config, "changed", {"attribute"}),
        ("collected", steps.config, pytest),
        ("choose_items", "session", job["wanted"], ["tests/test_a.py::test_trap"], steps.config),
        ("defined", paths),
        ("run_each", "session", {7}, "session given", runtestprotocol.__name__, "catch_warnings_for_item"),
        "unconfigured",
    ]
    sources = ("a.py", "conftest.py", "tests/test_a.py", "tox.ini")
    assert {f"{root}/{path}" for path in sources} == code_harness.TRUSTED
    assert sys.pycache_prefix == "/dev/null/none"


@pytest.mark.parametrize("change", [lambda: os.unlink("a.py"), lambda: Path("a.py").write_text("changed")])
def test_a_patch_that_changes_files_while_its_tests_run_is_said(
    monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    steps = Steps(monkeypatch)
    steps.late = change
    write({"a.py": "", "b.py": ""})
    job = {"equality": "", "command": [], "wanted": []}
    date = harness.date
    changed: list[str] = []
    steps.late = lambda: (change(), changed.append("a.py"))
    monkeypatch.setattr(
        harness, "date", lambda path: (*(date(path) or ()), path.endswith(tuple(changed) or "-"))
    )
    with pytest.raises(AssertionError) as raised:
        harness.run_tests(os.getcwd(), {"b.py"}, [], (), job)
    assert str(raised.value) == "the patch changes a.py while its tests run"


def test_pytest_is_left_where_a_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)

    def late() -> None:
        raise KeyError("late")

    steps.late = late
    with pytest.raises(KeyError):
        harness.run_tests(os.getcwd(), set(), [], (), {"equality": "", "command": [], "wanted": []})
    assert steps.said[-1] == "unconfigured"


def test_attributes_that_the_files_of_tests_set() -> None:
    write({"a.py": "a.b = 1\nc.d += 1\ne = f.g", "wrong.py": "def (", "zero.py": "\0", "z.py": "a.z = 1"})
    assert harness.set_by_tests(["a.py", "wrong.py", "zero.py", "z.py"]) == {"b", "d", "z"}


@pytest.mark.parametrize("has_src", [False, True])
def test_the_process_stands_as_pytest_does(monkeypatch: pytest.MonkeyPatch, has_src: bool) -> None:
    root = os.getcwd()
    monkeypatch.setattr(sys, "path", ["others"])
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setitem(sys.modules, "__main__", sys)
    monkeypatch.setenv("PYTHONPATH", "before")
    if has_src:
        os.mkdir("src")
    harness.stand_as_pytest(root)
    places = [root, *([f"{root}/src"] if has_src else [])]
    assert sys.path == [*places, "others"]
    assert os.environ["PYTHONPATH"] == ":".join(places)
    assert sys.argv == ["pytest"]
    assert sys.modules["__main__"].__name__ == "__main__"
    assert vars(sys.modules["__main__"]).get("__file__") is None


def item(nodeid: str, **more: Any) -> Any:
    return SimpleNamespace(nodeid=nodeid, **more)


def config_with(*errors: str) -> Any:
    reporter = SimpleNamespace(stats={"error": [SimpleNamespace(longrepr=error) for error in errors]})
    return SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin={"terminalreporter": reporter}.get))


def test_wanted_tests_and_traps_are_chosen() -> None:
    trap = item("a::trap")
    items = [item("a::x"), trap, item("a::y"), item("a::z")]
    session = SimpleNamespace(items=items)
    kept = session.items
    chosen = harness.choose_items(session, ["a::z", "a::x"], ["a::trap", "a::none"], None)
    assert chosen == {id(trap)}
    assert [one.nodeid for one in session.items] == ["a::x", "a::trap", "a::z"]
    assert session.items is kept


def test_wanted_tests_that_are_not_there_are_said() -> None:
    session = SimpleNamespace(items=[item("a::x"), item("a::trap")])
    for wanted, errors, says in (
        (["a::y"], ["first\n last  line \n\n"], "none of its tests ran: last line"),
        (["a::y"], [], "none of its tests ran: there is no test of that name"),
        (["a::x", "a::y"], ["E", "F"], "a::y is not there: E"),
        (["a::x", "a::y"], [], "a::y is not there"),
    ):
        with pytest.raises(AssertionError) as raised:
            harness.choose_items(session, wanted, ["a::trap"], config_with(*errors))
        assert str(raised.value) == says


def test_why_nothing_was_collected() -> None:
    assert harness.why_not_collected(config_with(f"a\n{'x' * 200}"), "before ") == f"before {'x' * 150}"
    assert harness.why_not_collected(config_with("")) == "there is no test of that name"
    nothing = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda name: None))
    assert harness.why_not_collected(nothing) == "there is no test of that name"
    assert harness.why_not_collected(nothing, ": ") == ""


@pytest.mark.parametrize("spec", [None, "spec"])
def test_pytest_is_configured(monkeypatch: pytest.MonkeyPatch, spec: Any) -> None:
    monkeypatch.setattr(harness, "find_spec", {"xdist": spec}.__getitem__)
    expected = ["--rootdir=/root", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:judgekit"]
    expected += ["-n", "0"] if spec else []
    assert harness.configured("/root", ("-x", "a.py"), lambda options: options) == [*expected, "-x", "a.py"]


class OfItsOwn(BaseException):
    pass


def raises(error: BaseException) -> Any:
    def raising(*args: Any, **named: Any) -> Any:
        raise error

    return raising


def test_a_command_that_cannot_start_is_said() -> None:
    with pytest.raises(AssertionError) as raised:
        harness.configured("/root", (), raises(OfItsOwn("a\n b")))
    assert str(raised.value) == "the test command cannot start: OfItsOwn: a b"
    assert raised.value.__suppress_context__


class FakePytest:
    """Pytest as far as a session needs it."""

    class UsageError(Exception):
        pass

    def __init__(self, **errors: BaseException) -> None:
        self.said: list[Any] = []
        self.errors = errors
        self.Session = SimpleNamespace(from_config=self.step("from_config", "session"))
        hook = SimpleNamespace(
            pytest_sessionstart=self.step("pytest_sessionstart"),
            pytest_collection=self.step("pytest_collection"),
        )
        self.config = SimpleNamespace(_do_configure=self.step("_do_configure"), hook=hook)

    def step(self, name: str, gives: Any = None) -> Any:
        def called(*args: Any, **named: Any) -> Any:
            self.said.append((name, args, named))
            if name in self.errors:
                raise self.errors[name]
            return gives

        return called


STEPS = ["from_config", "_do_configure", "pytest_sessionstart", "pytest_collection"]


@pytest.mark.parametrize("errors", [{}, {"pytest_collection": FakePytest.UsageError()}])
def test_a_session_collects_its_tests(errors: Any) -> None:
    fake = FakePytest(**errors)
    assert harness.collected(fake.config, fake) == "session"
    named = {"session": "session"}
    assert fake.said == list(zip(STEPS, [(fake.config,), (), (), ()], [{}, {}, named, named], strict=True))


@pytest.mark.parametrize("step", STEPS[:3])
def test_a_session_that_cannot_start_is_said(step: str) -> None:
    fake = FakePytest(**{step: OfItsOwn("it\nends")})
    with pytest.raises(AssertionError) as raised:
        harness.collected(fake.config, fake)
    assert str(raised.value) == "the test command cannot start: OfItsOwn: it ends"


def test_collecting_hides_no_other_error() -> None:
    fake = FakePytest(pytest_collection=OfItsOwn())
    with pytest.raises(OfItsOwn):
        harness.collected(fake.config, fake)


def report(when: str, outcome: str = "passed", longrepr: Any = None, **more: Any) -> Any:
    return SimpleNamespace(when=when, outcome=outcome, longrepr=longrepr, **more)


FINE = [report("setup"), report("call"), report("teardown")]
FAILS = [report("setup"), report("call", "failed", "it\n fails"), report("teardown")]


class Session:
    """A session whose tests come to what is given."""

    def __init__(self, **reports: Any) -> None:
        self.reports = reports
        self.items = [
            item(
                name, config=f"config {name}", ihook=f"hook {name}", obj=lambda: 0, iter_markers=lambda _: ()
            )
            for name in reports
        ]
        self.testsfailed = 0
        self.said: list[Any] = []

    def run(self, one: Any, *, log: bool, nextitem: Any) -> list[Any]:
        self.said.append((one.nodeid, log, nextitem and nextitem.nodeid))
        found: list[Any] = self.reports[one.nodeid]
        if callable(found):
            found = found(self, one)
        return found

    @contextlib.contextmanager
    def catch(self, **named: Any) -> Iterator[None]:
        self.said.append(("catches", named.pop("item").nodeid, *sorted(named.items())))
        yield
        self.said.append("caught")

    def all(self, must_fail: Any = (), tampered: Any = lambda: "", catch: Any = None) -> int:
        ids = {id(one) for one in self.items if one.nodeid in must_fail}
        return harness.run_each(self, ids, tampered, self.run, catch)


def test_tests_run_one_after_another() -> None:
    session = Session(a=FINE, trap=FAILS, b=FINE)
    assert session.all(["trap"]) == 2
    assert session.said == [("a", True, "trap"), ("trap", True, "b"), ("b", True, None)]


def test_warnings_are_caught_as_pytest_does() -> None:
    session = Session(a=FINE)
    assert session.all(catch=session.catch) == 1
    around = [("config", "config a"), ("ihook", "hook a"), ("when", "runtest")]
    assert session.said == [("catches", "a", *around), ("a", True, None), "caught"]


def fails_a_part(session: Any, one: Any) -> Any:
    session.testsfailed += 1
    return FINE


def changes_the_next(session: Any, one: Any) -> Any:
    session.items[1].obj = lambda: 1
    return FINE


class Item(SimpleNamespace):
    def runtest(self) -> None:
        """What an item has of its class."""


@pytest.mark.parametrize(
    ("reports", "says"),
    [
        ({"a": FAILS}, "a fails: it fails"),
        ({"a": FINE, "trap": FINE}, "a test that must fail has passed: the patch takes pytest apart"),
        ({"a": fails_a_part}, "a has a part that fails"),
        ({"a": changes_the_next, "b": FINE}, "the patch changes the test b"),
    ],
)
def test_a_run_that_does_not_pass_says_why(reports: Any, says: str) -> None:
    with pytest.raises(AssertionError) as raised:
        Session(**reports).all(["trap"])
    assert str(raised.value) == says


def test_a_part_that_fails_is_a_failure_of_a_trap_too() -> None:
    assert Session(trap=fails_a_part, a=FINE).all(["trap"]) == 1


def test_an_item_with_a_method_of_its_own_is_not_run() -> None:
    session = Session(a=FINE)
    session.items[:] = [Item(nodeid="a", obj=None, runtest=lambda: None)]
    with pytest.raises(AssertionError) as raised:
        session.all()
    assert str(raised.value) == "the patch changes the test a"
    assert session.said == []


@pytest.mark.parametrize(("looks", "ran"), [(["changed"], 0), (["", "changed"], 1)])
def test_what_was_taken_apart_is_said_before_and_after_each_test(looks: list[str], ran: int) -> None:
    session = Session(a=FINE, b=FINE)
    with pytest.raises(AssertionError) as raised:
        session.all(tampered=iter(looks).__next__)
    assert str(raised.value) == "changed"
    assert len(session.said) == ran


class Relay:
    pass


class Manager:
    def __init__(self) -> None:
        self._inner_hookexec = object()

    def register(self) -> None:
        """What a manager has of its class."""


class Watched:
    """Pytest's configuration as far as it is watched."""

    def __init__(self) -> None:
        function = code_harness.os.path.join
        self.caller = SimpleNamespace(
            name="pytest_runtest_call", get_hookimpls=lambda: [SimpleNamespace(function=function)]
        )
        relay: Any = Relay()
        relay.pytest_runtest_call, relay.other = self.caller, 3
        self.config: Any = SimpleNamespace(hook=relay, pluginmanager=Manager())
        self.session: Any = Item()
        self.changed = ""
        self.by_tests: list[Any] = []
        self.tampered = harness.watching(self.config, self.what_changed, {"attribute"})

    def what_changed(self, by_tests: set[str]) -> str:
        self.by_tests.append(by_tests)
        return self.changed


def inner(watched: Watched) -> None:
    watched.config.pluginmanager._inner_hookexec = object()


def adds_a_hook(watched: Watched) -> None:
    space: dict[str, Any] = {}
    exec(compile("def hook(): pass", "/repository/a.py", "exec"), space)
    watched.caller.get_hookimpls = lambda: [SimpleNamespace(function=space["hook"])]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda it: setattr(it, "changed", "ast.parse"), "the patch changes ast.parse"),
        (lambda it: setattr(it.config, "hook", Relay()), "the patch changes pytest's hooks"),
        (
            lambda it: setattr(it.config.hook, "pytest_runtest_call", SimpleNamespace(get_hookimpls=None)),
            "the patch changes pytest's hooks",
        ),
        (lambda it: delattr(it.config.hook, "pytest_runtest_call"), "the patch changes pytest's hooks"),
        (
            lambda it: setattr(it.config, "pluginmanager", Manager()),
            "the patch changes how pytest calls its hooks",
        ),
        (inner, "the patch changes how pytest calls its hooks"),
        (lambda it: setattr(it.session, "runtest", print), "the patch changes pytest's runtest"),
        (
            lambda it: setattr(it.config.pluginmanager, "register", print),
            "the patch changes pytest's register",
        ),
        (adds_a_hook, "the patch adds to pytest's pytest_runtest_call"),
        (lambda it: setattr(it.config.hook, "pytest_new", 3), ""),
        (lambda it: None, ""),
    ],
)
def test_a_patch_that_changes_pytest_is_said(change: Any, says: str) -> None:
    watched = Watched()
    change(watched)
    assert watched.tampered(watched.session, []) == says
    assert watched.by_tests == [{"attribute"}]


def test_a_patch_that_changes_the_tests_is_said() -> None:
    watched = Watched()
    space = {"one": inner, "other": 3}
    assert watched.tampered(watched.session, [(space, "one", __file__)]) == ""
    given = [(space, "one", __file__), (space, "other", __file__), (space, "gone", __file__)]
    assert watched.tampered(watched.session, given) == "the patch changes other of the tests"
    assert watched.tampered(watched.session, given[2:]) == "the patch changes gone of the tests"


EQUALITY = """
import sys
tests_use_any = False
def install(*args):
    sys.made_up_installed.append((args, tests_use_any, __name__, install.__code__.co_filename))
    raise AttributeError
"""


@pytest.mark.parametrize(
    ("texts", "uses_any"), [(["", "x"], False), (["ANY", ""], True), (["", "mock.ANY"], True)]
)
def test_equality_is_installed(monkeypatch: pytest.MonkeyPatch, texts: list[str], uses_any: bool) -> None:
    installed: list[Any] = []
    monkeypatch.setattr(sys, "made_up_installed", installed, raising=False)
    write({f"{i}.py": text for i, text in enumerate(texts)})
    harness.compare_well(EQUALITY, ["0.py", "1.py"])
    args = (sys.modules["builtins"], rewrite, unittest.TestCase)
    assert installed == [(args, uses_any, "patch_equality", "<frozen patch_equality>")]


@pytest.mark.parametrize("error", [SystemExit(), ValueError(), None])
def test_plugins_are_loaded_without_what_they_add_to_imports(
    monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    finders = ["first", "second"]
    monkeypatch.setattr(sys, "meta_path", finders)
    got: list[Any] = []

    def prepare(options: list[str]) -> None:
        got.append(options)
        sys.meta_path.insert(0, "added")  # type: ignore[arg-type]
        if error is not None:
            raise error

    monkeypatch.setattr(_pytest.config, "_prepareconfig", prepare)
    harness.load_plugins()
    assert got == [["-s", "--rootdir=../empty", "-p", "no:cacheprovider", "-p", "no:judgekit", "../empty"]]
    assert sys.meta_path is finders
    assert finders == ["first", "second"]
    assert os.listdir("../empty") == []


# ---- what tests come to


def test_an_error_is_one_line() -> None:
    assert harness.one_line(ValueError("a\n\n b")) == "ValueError: a b"
    assert harness.one_line(ValueError("x" * 300)) == f"ValueError: {'x' * 188}"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a::x[1]", ["a::x[1]"]),
        ("a::y[p", ["a::y[p q]", "a::y[p r]"]),
        ("a::y[p]", []),
        ("a::z", []),
        ("a::w", []),
    ],
)
def test_tests_are_found_by_name(name: str, found: list[str]) -> None:
    items = [item(one) for one in ("a::x[1]", "a::y[p q]", "a::y[p r]", "a::w q")]
    assert [one.nodeid for one in harness.matching(items, name)] == found


def test_methods_of_an_object_s_own_are_found() -> None:
    assert harness.overridden(Item(x=1, y=print)) == ""
    assert harness.overridden(Item(runtest=3)) == ""
    assert harness.overridden(Item(x=1, runtest=print)) == "runtest"


def test_the_code_of_a_test() -> None:
    case = Item()
    assert harness.body(SimpleNamespace(obj=inner)) is inner.__code__
    assert harness.body(SimpleNamespace(obj=case.runtest)) is Item.runtest.__code__
    assert harness.body(SimpleNamespace(obj=3)) is None
    assert harness.body(SimpleNamespace()) is None


def crashed(message: str) -> Any:
    return SimpleNamespace(reprcrash=SimpleNamespace(message=message))


MARKED, UNMARKED = ([True], [])


@pytest.mark.parametrize(
    ("reports", "marks", "fine", "why"),
    [
        (FINE, UNMARKED, True, ""),
        (FAILS, UNMARKED, False, "fails: it fails"),
        ([report("setup", "failed", "no\nsetup"), FINE[2]], UNMARKED, False, "was not run: no setup"),
        ([report("setup", "failed", "alone")], UNMARKED, False, "was not run: alone"),
        (
            [FINE[0], report("call", "skipped", ("file", 3, "Skipped: no")), FINE[2]],
            UNMARKED,
            False,
            "is skipped: Skipped: no",
        ),
        ([*FINE[:2], report("teardown", "failed", crashed("at\nend"))], UNMARKED, False, "fails: at end"),
        ([FINE[0], report("call", "skipped", wasxfail=""), FINE[2]], MARKED, True, ""),
        (
            [FINE[0], report("call", "skipped", wasxfail=""), report("teardown", "failed", "x")],
            MARKED,
            False,
            "fails: x",
        ),
        (
            [FINE[0], report("call", "skipped", wasxfail=""), FINE[2]],
            UNMARKED,
            False,
            "is said to fail, by no mark of its own",
        ),
        ([report("setup", "skipped", "s", wasxfail=""), *FINE[1:]], MARKED, False, "is skipped: s"),
        ([FINE[1], FINE[0], FINE[2]], UNMARKED, False, "was not run: "),
    ],
)
def test_what_a_test_has_come_to(reports: Any, marks: Any, fine: bool, why: str) -> None:
    asked = SimpleNamespace(iter_markers={"xfail": marks}.__getitem__)
    assert harness.came_to(asked, reports) == (fine, why)


@pytest.mark.parametrize(
    ("longrepr", "says"),
    [
        (crashed(f"a\n b{'x' * 200}"), f"a b{'x' * 117}"),
        (crashed(""), ""),
        (("file", 3, "reason"), "reason"),
        ("text  of it", "text of it"),
        (None, ""),
    ],
)
def test_how_a_test_has_crashed(longrepr: Any, says: str) -> None:
    assert harness.crash(SimpleNamespace(longrepr=longrepr)) == says


def test_hooks_of_nobody_known_are_foreign() -> None:
    def caller(name: str, *functions: Any) -> Any:
        return SimpleNamespace(
            name=name, get_hookimpls=lambda: [SimpleNamespace(function=f) for f in functions]
        )

    ours = caller("ours", os.path.join, ast.NodeVisitor().visit)
    assert harness.foreign([]) == ""
    assert harness.foreign([ours]) == ""
    assert harness.foreign([ours, caller("code", os.path.join, inner)]) == "the patch adds to pytest's code"
    assert harness.foreign([caller("method", Item().runtest)]) == "the patch adds to pytest's method"
    assert harness.foreign([caller("builtin", print)]) == "the patch adds to pytest's builtin"


def test_a_file_has_a_number_and_a_date() -> None:
    write({"a": ""})
    about = os.lstat("a")
    assert harness.date("a") == (about.st_ino, about.st_ctime_ns)
    assert harness.date("b") is None


SOURCE = """\
import json as given
from os import path
def f(): pass
def twice(): pass
def twice(): pass
def given(): pass
def path(): pass
def assigned(): pass
assigned = 3
def stored(): pass
@given
def decorated(): pass
async def later(): pass
class Plain:
    def g(self): pass
    @property
    def h(self): pass
@given
class Decorated:
    def i(self): pass
class Gone:
    def j(self): pass
x.stored = 1
"""


def test_what_the_files_of_tests_define(monkeypatch: pytest.MonkeyPatch) -> None:
    write({"a.py": SOURCE, "b.py": "def f(): pass", "c.ini": "[x]"})
    module: Any = types.ModuleType("made_up")
    plain = type("Plain", (), {"g": inner})
    vars(module).update(__file__="a.py", Plain=plain, Decorated=plain, Gone=3)
    settings: Any = types.ModuleType("made_up_settings")
    settings.__file__ = "c.ini"
    monkeypatch.setitem(sys.modules, "made_up", module)
    monkeypatch.setitem(sys.modules, "made_up_settings", settings)
    found = harness.defined(["b.py", "c.ini", "a.py"])
    assert [(name, path) for _, name, path in found] == [("f", "a.py"), ("g", "a.py")]
    assert found[0][0] is vars(module)
    assert found[1][0] == vars(plain)


def test_names_that_a_file_binds() -> None:
    text = "a = b\nimport c, d as e\nfrom f import g as h\ni.j = k\nfor m in n: pass"
    assert harness.assigned(ast.parse(text)) == {"a", "c", "e", "h", "j", "m"}


def test_the_file_of_a_function() -> None:
    assert harness.made_in(inner) == __file__
    assert harness.made_in(3) is None


@pytest.mark.parametrize(
    "text", ["def test_case():\n    assert total([2])\n", "x", "", "def test_price(): pass\n"]
)
def test_a_trap_fails_under_a_name_like_the_others(text: str) -> None:
    write({"a.py": text})
    names = set()
    for _ in range(3):
        write({"a.py": text})
        name = harness.set_trap("a.py")
        names.add(name)
        written = Path("a.py").read_text()
        assert written.startswith(f"{text}\n\ndef {name}():\n    ")
        assert written.count(name) == 1
        space: dict[str, Any] = {}
        exec(written.removeprefix(text), space)
        with pytest.raises((AssertionError, ValueError)):
            space[name]()
    words = (
        {"case", "assert", "total"}
        if "total" in text
        else {"price", "pass"}
        if "price" in text
        else {"value"}
    )
    for name in names:
        head, *parts = name.split("_")
        assert head == "test"
        assert len(parts) == 3
        assert {*parts} <= words


def test_a_trap_is_added_to_text_that_is_no_utf_8() -> None:
    Path("a.py").write_bytes(b"\xff price")
    name = harness.set_trap("a.py")
    assert name == "test_price_price_price"
    assert Path("a.py").read_bytes().startswith(b"\xff price\n\ndef test_price_price_price():\n    ")
