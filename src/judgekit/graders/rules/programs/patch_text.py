"""Reads the patch of a response, and writes it again as `git apply` takes it.

Models write the right lines under wrong counts, without the `a/` and `b/` before a path, with the line ends of another
system, or with prose behind the last hunk. What a patch means is read here; what is written again has counts that are
right and paths that are plain. A patch that leaves the repository, makes links or is binary is refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from judgekit.graders.rules.rule import code_blocks
from judgekit.graders.rules.thoughts import after_think

MOST_CHARACTERS = 1 << 20
"""A longer patch is refused."""


class PatchError(Exception):
    """A text is no patch, or a patch that may not be applied."""


@dataclass(slots=True)
class _File:
    """What a patch does to one file."""

    old: str | None
    new: str | None
    headers: list[str] = field(default_factory=list)
    """Lines of git's that are kept: a mode, a rename, a copy."""
    hunks: list[tuple[int, int, list[str]]] = field(default_factory=list)
    """The first line in the old file, that in the new one, and the lines with their signs."""
    named: bool = False
    """Whether its `---` and `+++` have been read."""


def patch_of(response: str) -> str | None:
    """Return the patch of a response; None if there is none.

    It is the last block that is fenced as a diff or patch, of those with a header where any has one; else the last other one
    that is a diff, else all from the first header on that stands in no fence.
    """
    text = after_think(response)
    if text is None:
        return None
    text = text.replace("\r\n", "\n")
    blocks = code_blocks(text)
    named = [code for language, code in blocks if language in _NAMES]
    whole = [code for code in named if _HEADER.search(code)]
    other = [code for language, code in blocks if language not in _NAMES and _HEADER.search(code)]
    found = (whole or other or named or [""])[-1]
    if not (named or other) and (header := _HEADER.search(text)):
        found = _OUTSIDE.split(text[header.start() :], maxsplit=1)[0]
    return found if found.strip() else None


_NAMES = frozenset(("diff", "patch", "udiff", "git"))
_OUTSIDE = re.compile(r"^(?:```|</(?:patch|diff|solution|answer)>)", re.MULTILINE)
"""What ends a patch that no fence does."""


_HEADER = re.compile(r"^(?:diff --git |--- [^\n]*+\n\+\+\+ )", re.MULTILINE)
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


def canonical(patch: str) -> str:
    """Write a patch as `git apply` takes it. Raises PatchError if it is none, or may not be applied."""
    if len(patch) > MOST_CHARACTERS:
        raise PatchError(f"the patch has more than {MOST_CHARACTERS >> 20} MiB")
    if "\0" in patch:
        raise PatchError("the patch is binary")
    files = _read(patch.split("\n"))
    for path in (path for file in files for path in (file.old, file.new) if path is not None):
        if why := _unsafe(path):
            raise PatchError(f"the patch may not touch {path[:80]!r}: {why}")
    files = [file for file in files if file.hunks or file.headers]
    if not files:
        raise PatchError("the patch changes nothing")
    return "".join(map(_written, files))


def _read(lines: Sequence[str]) -> list[_File]:
    files: list[_File] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            files.append(_File(*_both(line[11:])))
        elif _names_file(lines, at):
            if not files or files[-1].named or files[-1].hunks:
                files.append(_File(None, None))
            files[-1].old, files[-1].new = _paths(lines[at][4:], lines[at + 1][4:])
            files[-1].named = True
            at += 1
        elif found := _HUNK.match(line):
            if not files or not files[-1].named:
                raise PatchError("the patch has a hunk of no file")
            at = _hunk(lines, at + 1, found, files[-1])
            continue
        elif line.startswith("@@"):
            raise PatchError(f"the patch has a hunk without line numbers: {line[:60]!r}")
        elif files and not files[-1].named:
            _header(line, files[-1])
        at += 1
    return files


def _header(line: str, file: _File) -> None:
    """Read a line between `diff --git` and `---`."""
    if line.startswith(("GIT binary patch", "Binary files ")):
        raise PatchError("the patch is binary")
    if found := re.match(r"(?:new file mode|deleted file mode|old mode|new mode) (\d{6})\s*$", line):
        if found[1][:3] != "100":
            raise PatchError("the patch makes a link or a module")
        if line.startswith("new file"):
            file.old = None
        elif line.startswith("deleted"):
            file.new = None
        if line.startswith(("new file", "deleted")):
            file.headers.append(line.rstrip())
    elif re.match(r"index \S+ (?:12|16)0000\s*$", line):
        raise PatchError("the patch changes a link or a module")
    elif found := re.match(r"(rename|copy) (from|to) (.+)", line):
        path = _path(found[3])
        if found[2] == "from":
            file.old = path
        else:
            file.new = path
        file.headers.append(f"{found[1]} {found[2]} {_quoted(path)}")


def _hunk(lines: Sequence[str], at: int, head: re.Match[str], file: _File) -> int:
    """Read a hunk's lines, whose counts may be wrong. Returns where the next part begins."""
    end = _counted(lines, at, int(head[2] or 1), int(head[4] or 1)) or _ended(lines, at)
    body = [line or " " for line in lines[at:end]]
    if any(line[0] in "+-" for line in body):
        file.hunks.append((int(head[1]), int(head[3]), body))
    return end


def _counted(lines: Sequence[str], at: int, old: int, new: int) -> int | None:
    """Return the end of a hunk by its counts; None if they do not fit its lines."""
    while at < len(lines) and (old > 0 or new > 0):
        sign = lines[at][:1] or " "
        if sign not in " +-\\":
            return None
        old -= sign in " -"
        new -= sign in " +"
        at += 1
    if old or new:
        return None
    if at < len(lines) and lines[at].startswith("\\"):
        at += 1
    rest = at
    while rest < len(lines) and not lines[rest].strip():
        rest += 1
    if rest == len(lines) or _begins(lines, rest):
        return at
    ends = lines[rest][0] not in " +-" or (rest > at and lines[rest].startswith("- "))
    return at if ends else None


def _ended(lines: Sequence[str], at: int) -> int:
    """Return the end of a hunk by what its lines begin with."""
    start = at
    while at < len(lines) and lines[at][:1] in ("", " ", "+", "-", "\\") and not _begins(lines, at):
        at += 1
    while at > start and not lines[at - 1]:
        at -= 1
    return at


def _begins(lines: Sequence[str], at: int) -> bool:
    """Whether a line begins another hunk, another file, or the end of a mail."""
    line = lines[at]
    return line.startswith(("@@ ", "diff --git ")) or line == "-- " or _names_file(lines, at)


def _names_file(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _both(text: str) -> tuple[str | None, str | None]:
    """Read the two paths of `diff --git`, of which other lines may say more."""
    text = text.strip()
    if text.startswith('"'):
        found = re.findall(r'"(?:\\.|[^"\\])*"', text)
        return _paths(found[0], found[1]) if len(found) == 2 else (None, None)
    middle = len(text) // 2
    if len(text) % 2 and text[middle] == " ":  # both are of one length, unless the file is renamed
        left, right = text[:middle], text[middle + 1 :]
        if left == right or left.partition("/")[2] == right.partition("/")[2]:
            return _paths(left, right)
    left, _, right = text.partition(" b/")
    return _paths(left, f"b/{right}") if right else (None, None)


def _paths(left: str, right: str) -> tuple[str | None, str | None]:
    """Return the old and the new path of a file, without what stands before both; None for no file."""
    old, new = _path(left), _path(right)
    if old == "/dev/null":
        return None, None if new == "/dev/null" else new.removeprefix("b/")
    if new == "/dev/null":
        return old.removeprefix("a/"), None
    below = old.partition("/")[2], new.partition("/")[2]
    if (old != new and below[0] and below[0] == below[1]) or (old[:2], new[:2]) == ("a/", "b/"):
        old, new = below
    return old, new


def _path(text: str) -> str:
    text = text.partition("\t")[0].strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = _unquoted(text[1:-1])
    while text.startswith("./"):
        text = text[2:]
    return text


_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, '"': 34}


def _unquoted(text: str) -> str:
    """Read a path that git has quoted, as C does."""
    found = bytearray()
    for part in re.finditer(r"\\([0-7]{3})|\\(.)|([^\\]+)", text, re.DOTALL):
        if part[1]:
            found.append(int(part[1], 8) & 255)
        elif part[2]:
            found.append(_ESCAPES.get(part[2], 63))
        else:
            found += part[3].encode("utf-8", "surrogatepass")
    return found.decode("utf-8", "replace")


def _quoted(path: str) -> str:
    if re.fullmatch(r"[\w./+@=,~^#%&()\[\]{} -]+", path, re.ASCII) and path == path.strip():
        return path
    return '"' + "".join(f"\\{byte:03o}" for byte in path.encode("utf-8", "surrogatepass")) + '"'


def _unsafe(path: str) -> str:
    """Return why a path may not be written to; "" if it may."""
    parts = path.split("/")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "it is absolute"
    if "" in parts or ".." in parts or "." in parts:
        return "it is no plain path in the repository"
    if any(part.lower().rstrip(". ") in (".git", "git~1") for part in parts):
        return "it is git's own"
    if re.search(r"[\x00-\x1f\x7f\\]", path):
        return "it has characters that no path needs"
    return ""


def _written(file: _File) -> str:
    """Return a file's part of a patch, as git writes it."""
    old, new = file.old, file.new
    lines = _git_header(file)
    if file.hunks:
        lines.append("--- /dev/null" if old is None else f"--- {_quoted(f'a/{old}')}")
        lines.append("+++ /dev/null" if new is None else f"+++ {_quoted(f'b/{new}')}")
    for first_old, first_new, body in file.hunks:
        olds = sum(line[0] in " -" for line in body)
        news = sum(line[0] in " +" for line in body)
        lines += [f"@@ -{first_old},{olds} +{first_new},{news} @@", *body]
    return "\n".join(lines) + "\n"


def _git_header(file: _File) -> list[str]:
    """Return git's lines about a file: its names, and whether it is new, deleted or renamed."""
    left = file.old if file.old is not None else file.new
    right = file.new if file.new is not None else file.old
    if left is None or right is None:
        raise PatchError("the patch has a file without a name")
    lines = [f"diff --git {_quoted(f'a/{left}')} {_quoted(f'b/{right}')}"]
    if file.old is None and not any(line.startswith("new file") for line in file.headers):
        lines.append("new file mode 100644")
    if file.new is None and not any(line.startswith("deleted") for line in file.headers):
        lines.append("deleted file mode 100644")
    if file.old is not None and file.new is not None and left != right and not file.headers:
        lines += [f"rename from {_quoted(left)}", f"rename to {_quoted(right)}"]
    return lines + file.headers
