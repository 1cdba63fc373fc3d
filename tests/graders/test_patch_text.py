"""What a patch is read as, and how it is written again."""

from __future__ import annotations

import pytest

from judgekit.graders.rules.programs import patch_text
from judgekit.graders.rules.programs.patch_text import PatchError, canonical, patch_of

CHANGE = "@@ -1 +1 @@\n-a\n+b\n"
WRITTEN = "@@ -1,1 +1,1 @@\n-a\n+b\n"


def head(left: str, right: str | None = None) -> str:
    right = left if right is None else right
    return f"diff --git a/{left} b/{right}\n--- a/{left}\n+++ b/{right}\n"


@pytest.mark.parametrize(
    ("patch", "written"),
    [
        (f"--- a/x\n+++ b/x\n{CHANGE}", f"{head('x')}{WRITTEN}"),
        (f"--- x\n+++ x\n{CHANGE}", f"{head('x')}{WRITTEN}"),
        (f"--- old/d/x\n+++ new/d/x\n{CHANGE}", f"{head('d/x')}{WRITTEN}"),
        (f"--- ./x\t2024-01-01\n+++ ././x\t2024-01-02\n{CHANGE}", f"{head('x')}{WRITTEN}"),
        (f"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n{CHANGE}", f"{head('x')}{WRITTEN}"),
        (
            f"--- /dev/null\n+++ b/x\n{CHANGE}",
            f"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n{WRITTEN}",
        ),
        (
            f"--- a/x\n+++ /dev/null\n{CHANGE}",
            f"diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n{WRITTEN}",
        ),
        (
            f"diff --git a/x b/x\nnew file mode 100755  \n--- /dev/null\n+++ b/x\n{CHANGE}",
            f"diff --git a/x b/x\nnew file mode 100755\n--- /dev/null\n+++ b/x\n{WRITTEN}",
        ),
        (
            "diff --git a/x b/x\ndeleted file mode 100644\nindex 1..0\n",
            "diff --git a/x b/x\ndeleted file mode 100644\n",
        ),
        (
            "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
            "diff --git a/x b/y\nrename from x\nrename to y\n",
        ),
        (
            "diff --git a/x b/y\nnew file mode 100644\n",
            "diff --git a/y b/y\nnew file mode 100644\n",
        ),
        (
            "diff --git a/x b/y\ndeleted file mode 100644\n",
            "diff --git a/x b/x\ndeleted file mode 100644\n",
        ),
        (
            "diff --git a/x b/y\ncopy from x\ncopy to y\n",
            "diff --git a/x b/y\ncopy from x\ncopy to y\n",
        ),
        (
            f"diff --git a/x b/y\n--- a/x\n+++ b/y\n{CHANGE}",
            f"diff --git a/x b/y\nrename from x\nrename to y\n--- a/x\n+++ b/y\n{WRITTEN}",
        ),
        (
            f"--- a/x\n+++ b/x\n{CHANGE}--- a/y\n+++ b/y\n{CHANGE}",
            f"{head('x')}{WRITTEN}{head('y')}{WRITTEN}",
        ),
        (f"--- a/x\n+++ b/x\n{CHANGE}-- \n2.40\n", f"{head('x')}{WRITTEN}"),
        (f"--- a/x\n+++ b/x\n{CHANGE}\n\nThat is all.\n", f"{head('x')}{WRITTEN}"),
        (
            f"--- a/x\n+++ b/x\n@@ -5,1 +7,1 @@ def f():\n{CHANGE[12:]}",
            f"{head('x')}@@ -5,1 +7,1 @@\n-a\n+b\n",
        ),
        (
            f"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9 +9 @@\n{CHANGE[12:]}",
            f"{head('x')}@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9,1 +9,1 @@\n-a\n+b\n",
        ),
        (
            f"--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n a\n-b\n+c\n@@ -9 +9 @@\n{CHANGE[12:]}",
            f"{head('x')}@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9,1 +9,1 @@\n-a\n+b\n",
        ),
        (
            "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-a\n+b\n c\n",
            f"{head('x')}@@ -1,2 +1,2 @@\n-a\n+b\n c\n",
        ),
        (
            "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-a\n+b\n\n- a list of prose\n",
            f"{head('x')}{WRITTEN}",
        ),
        (
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
            f"{head('x')}@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
        ),
        (
            f"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n b\n c\n{CHANGE}",
            f"{head('x')}{WRITTEN}",
        ),
    ],
)
def test_what_a_patch_means_is_written_again(patch: str, written: str) -> None:
    assert canonical(patch) == written


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("", "the patch changes nothing"),
        ("x" * ((1 << 20) + 1), "the patch has more than 1 MiB"),
        ("x" * (1 << 20), "the patch changes nothing"),
        ("a\0", "the patch is binary"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 5\n", "the patch is binary"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "the patch is binary"),
        ("diff --git a/x b/x\nnew file mode 120000\n", "the patch makes a link or a module"),
        ("diff --git a/x b/x\nold mode 160000\n", "the patch makes a link or a module"),
        ("diff --git a/x b/x\nindex 1..2 160000\n", "the patch changes a link or a module"),
        ("diff --git a/x b/x\nindex 1..2 100644\n", "the patch changes nothing"),
        (f"{CHANGE}", "the patch has a hunk of no file"),
        (f"diff --git a/x b/x\n{CHANGE}", "the patch has a hunk of no file"),
        (f"--- a/x\n+++ b/x\n@@ {'y' * 80}\n", f"the patch has a hunk without line numbers: '@@ {'y' * 57}'"),
        (f"--- a/{'../' * 40}x\n+++ b/{'../' * 40}x\n{CHANGE}", f"the patch may not touch {('../' * 40)[:80]!r}: it is no plain path in the repository"),
        (f"--- /x\n+++ /x\n{CHANGE}", "the patch may not touch '/x': it is absolute"),
        (f"--- a/.git/x\n+++ b/.git/x\n{CHANGE}", "the patch may not touch '.git/x': it is git's own"),
        (f"--- /dev/null\n+++ /dev/null\n{CHANGE}", "the patch has a file without a name"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n b\n", "the patch changes nothing"),
    ],
)  # fmt: skip
def test_why_a_patch_is_refused(patch: str, says: str) -> None:
    with pytest.raises(PatchError) as raised:
        canonical(patch)
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a/b.py", ""),
        ("/a", "it is absolute"),
        ("C:a", "it is absolute"),
        ("a//b", "it is no plain path in the repository"),
        ("a/../b", "it is no plain path in the repository"),
        ("a/./b", "it is no plain path in the repository"),
        ("", "it is no plain path in the repository"),
        (".GIT/a", "it is git's own"),
        ("a/.git. ./b", "it is git's own"),
        ("GIT~1/b", "it is git's own"),
        (".github/a", ""),
        ("a\nb", "it has characters that no path needs"),
        ("a\x7fb", "it has characters that no path needs"),
        ("a\\b", "it has characters that no path needs"),
    ],
)
def test_paths_that_a_patch_may_touch(path: str, why: str) -> None:
    assert patch_text._unsafe(path) == why


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a/x b/x", ("x", "x")),
        (" a/d/x b/d/x ", ("d/x", "d/x")),
        ("c/x d/x", ("x", "x")),
        ("a/x y b/x y", ("x y", "x y")),
        ("a/long name b/n", ("long name", "n")),
        ("a/x c/x", ("x", "x")),
        ("abc def", ("abc", "def")),
        ("abcd ef", (None, None)),
        ("x x", ("x", "x")),
        ("x", (None, None)),
        ('"a/\\303\\244" "b/\\303\\244"', ("ä", "ä")),
        ('"a/x"', (None, None)),
        ('"a/\\"x" "b/\\"x"', ('"x', '"x')),
    ],
)
def test_both_paths_of_a_file(text: str, paths: tuple[str | None, str | None]) -> None:
    assert patch_text._both(text) == paths


@pytest.mark.parametrize(
    ("left", "right", "paths"),
    [
        ("/dev/null", "b/x", (None, "x")),
        ("/dev/null", "x", (None, "x")),
        ("a/x", "/dev/null", ("x", None)),
        ("/dev/null", "/dev/null", (None, None)),
        ("a/x", "b/y", ("x", "y")),
        ("a/x", "a/x", ("a/x", "a/x")),
        ("one/x", "two/x", ("x", "x")),
        ("one/x", "two/y", ("one/x", "two/y")),
        ("x", "y", ("x", "y")),
    ],
)
def test_what_stands_before_both_paths_is_taken_off(left: str, right: str, paths: object) -> None:
    assert patch_text._paths(left, right) == paths


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("./././x\tdate", "x"),
        ('"a b"', "a b"),
        ('"', '"'),
        ('"\\n\\t\\r\\a\\b\\f\\v\\\\\\"\\q"', '\n\t\r\a\b\f\v\\"?'),
        ('"\\303\\251x"', "éx"),
        ('"\\777"', "\ufffd"),
        ('"é"', "é"),
    ],
)
def test_a_path_is_read_as_git_quotes_it(text: str, path: str) -> None:
    assert patch_text._path(text) == path


@pytest.mark.parametrize(
    ("path", "quoted"),
    [
        ("a/b-c.py", "a/b-c.py"),
        ("a b", "a b"),
        (" a", '"\\040\\141"'),
        ("é", '"\\303\\251"'),
        ('a"', '"\\141\\042"'),
        ("\ud800", '"\\355\\240\\200"'),
    ],
)
def test_a_path_is_quoted_as_git_reads_it(path: str, quoted: str) -> None:
    assert patch_text._quoted(path) == quoted


DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@"


@pytest.mark.parametrize(
    ("response", "patch"),
    [
        (f"```diff\n{DIFF}\n```", DIFF),
        (f"```patch\n{DIFF}\n```\n```diff\nlast\n```", DIFF),
        (f"```\n{DIFF}\n```\n```\nother\n```", DIFF),
        (f"```\n{DIFF}\n```\n```diff\nnamed\n```\n```\ndiff --git a b\n```", "diff --git a b"),
        (f"```python\n{DIFF}\n```", DIFF),
        (f"```python\nx\n```\n{DIFF}", DIFF),
        (f"words\n{DIFF}\r\n-a\r\n", f"{DIFF}\n-a\n"),
        ("words\ndiff --git a/x b/x\nmore", "diff --git a/x b/x\nmore"),
        ("words diff --git a/x", None),
        ("--- a/x\nno plus", None),
        (f"<think>{DIFF}</think>", None),
        (f"<think>{DIFF}", None),
        ("```diff\n  \n```", None),
    ],
)
def test_where_a_response_has_its_patch(response: str, patch: str | None) -> None:
    assert patch_of(response) == patch


@pytest.mark.parametrize(
    ("lines", "old", "new", "end"),
    [
        ([" a", "-b", "+c"], 2, 2, 3),
        ([" a", "-b", "+c", "", ""], 2, 2, 3),
        ([" a", "", "+c", ""], 2, 3, 3),
        (["-a", "+b", "\\ No newline"], 1, 1, 3),
        (["-a", "\\ No newline", "+b"], 1, 1, 3),
        (["-a", "+b", "+c"], 1, 1, None),
        (["-a", "+b", "-c"], 1, 1, None),
        (["-a", "+b", " c"], 1, 1, None),
        (["-a", "+b", "", "- c"], 1, 1, 2),
        (["-a", "+b", "- c"], 1, 1, None),
        (["-a", "+b", "prose"], 1, 1, 2),
        (["-a", "+b", "@@ -1 +1 @@"], 1, 1, 2),
        (["-a", "+b", "--- a/y", "+++ b/y"], 1, 1, 2),
        (["-a", "+b", "", "--- a/y", "+++ b/y"], 1, 1, 2),
        (["-a", "+b", "-- "], 1, 1, 2),
        (["-a", "prose"], 2, 1, None),
        (["-a"], 2, 1, None),
        (["-a", "-b", "+c"], 1, 1, None),
        ([], 0, 0, 0),
    ],
)
def test_the_end_of_a_hunk_by_its_counts(lines: list[str], old: int, new: int, end: int | None) -> None:
    assert patch_text._counted(lines, 0, old, new) == end
    moved = patch_text._counted(["prose", *lines], 1, old, new)
    assert moved == (None if end is None else end + 1)


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        ([" a", "-b", "+c", "\\ No", "", " d", "prose"], 6),
        ([" a", "", ""], 1),
        (["", ""], 0),
        ([" a", "@@ -1 +1 @@"], 1),
        ([" a", "-- "], 1),
        (["-a", "--- a/x", "+++ b/x"], 1),
        (["-a", "--- a/x"], 2),
        ([" a", "diff --git a b"], 1),
    ],
)
def test_the_end_of_a_hunk_by_its_lines(lines: list[str], end: int) -> None:
    assert patch_text._ended(lines, 0) == end
    assert patch_text._ended(["prose", *lines], 1) == end + 1


WHOLE = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n"


@pytest.mark.parametrize(
    "response",
    [
        f"```diff\n{WHOLE}```\nBefore it was:\n```diff\n-b\n```",
        f"The bug:\n```python\nx = 1\n```\n<patch>\n{WHOLE}</patch>",
        f"The bug:\n```python\nx = 1\n```\n\n{WHOLE}",
        f"The bug:\n```python\nx = 1\n```\n\n{WHOLE}\n```python\nx = 2\n```",
        f"```git\n{WHOLE}```",
        f"```udiff\n{WHOLE}```",
        f"```python\n{WHOLE}```",
        f"<solution>\n{WHOLE}</solution>",
        WHOLE,
    ],
)
def test_a_patch_is_found_wherever_it_stands(response: str) -> None:
    found = patch_of(response)
    assert found is not None
    assert canonical(found) == canonical(WHOLE)


def test_code_is_no_patch() -> None:
    assert patch_of("```python\nx = 1\n```") is None
    assert patch_of("It is easy.") is None
