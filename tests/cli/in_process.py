"""Calls the command in this process: fast enough for tables of wrong calls."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from msgspec import Struct

from judgekit import cli
from judgekit.cli.console import out


class Called(Struct):
    """What a call did."""

    returncode: int
    stdout: str
    stderr: str


def call(folder: Path, *args: str, stdin: bytes = b"") -> Called:
    """Call `judgekit` with *args* in *folder*."""
    told, said = io.StringIO(), io.StringIO()
    with (
        _in(folder),
        mock.patch.object(sys, "argv", ["judgekit", *args]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.object(out, "_file", None),
        contextlib.redirect_stdout(told),
        contextlib.redirect_stderr(said),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        else:
            code = 0
    return Called(code, told.getvalue(), said.getvalue())


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    """Work in *folder*; modules that are imported from it, and the way to them, are forgotten afterwards."""
    before, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def contents(folder: Path) -> dict[str, bytes | str]:
    """Return the files below *folder*, with what they hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file()
        else os.readlink(path)
        if path.is_symlink()
        else ""
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def refused(folder: Path, args: str, says: str, *, stdin: bytes = b"") -> None:
    """Assert that a call is refused with one sentence and code 2 before anything is done; *args* are split at spaces."""
    before = contents(folder)
    called = call(folder, *args.split(" "), stdin=stdin)
    assert says in called.stderr
    assert called.stderr.startswith("judgekit: ")
    assert (called.returncode, called.stderr.count("\n"), called.stdout) == (2, 1, "")
    assert "Traceback" not in called.stderr
    assert contents(folder) == before
