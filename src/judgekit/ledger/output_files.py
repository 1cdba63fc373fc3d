"""Files that commands write: whole or not at all, and never over an input."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from judgekit.errors import ConfigError, JudgekitError

STDOUT = Path("-")
_LEDGER = b'{"type":"'
"""How a ledger begins."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def check_targets(
    outputs: Sequence[Path | None], *, inputs: Sequence[Path | None] = (), force: bool = False
) -> None:
    """Raise ConfigError if an output cannot be written, or would overwrite something.

    An output must not be an input, another output or a folder; an existing file needs *force*, and a ledger is never
    overwritten. Devices and pipes, and "-" for standard output, are written as they are.
    """
    given = [path for path in outputs if path is not None and path != STDOUT]
    if sum(path == STDOUT for path in outputs) > 1:
        raise ConfigError("only one output can be -, which is standard output")
    taken = [path for path in inputs if path is not None and path != STDOUT]
    for path in given:
        _check_overwrites(path, taken, force=force)
        taken.append(path)
    for path in given:  # only now: a refused call leaves no folders behind
        folder = path.absolute().parent
        with _sentence(path):
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(path if path.exists() else folder, os.W_OK):
                raise ConfigError(f"cannot write {path}: Permission denied")


def _check_overwrites(path: Path, taken: Sequence[Path], *, force: bool) -> None:
    for other in taken:
        if _same(path, other):
            raise ConfigError(f"{path} would overwrite {other}, which is read: choose another file")
        if os.path.isdir(other) and path.suffix == ".jsonl" and _same(path.parent, other):
            raise ConfigError(f"{path} would be read as a part of {other}: choose another folder")
    with _sentence(path):
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{path} is a folder: give the name of a file")
        if stat.S_ISREG(mode) and path.stat().st_size:
            if not force:
                raise ConfigError(f"{path} exists: --force overwrites it")
            if _begins(path).startswith(_LEDGER):
                raise ConfigError(f"{path} is a ledger, which is not overwritten: choose another file")


def check_ledger(path: Path, *, inputs: Sequence[Path] = ()) -> None:
    """Raise ConfigError if a ledger cannot be appended to *path*: an input, a device, or a file of another kind."""
    if path in (Path(), STDOUT):
        raise ConfigError("the ledger is a file or a folder: give its name, such as ledger.jsonl")
    for other in inputs:
        if other != STDOUT and _same(path, other):
            raise ConfigError(f"the ledger {path} is {other}, which is read: choose another file")
    with _sentence(path):
        mode = _mode(path)
        if not mode:
            folder = next(parent for parent in path.absolute().parents if parent.exists())
            if not os.access(folder, os.W_OK):
                raise ConfigError(f"cannot write the ledger {path}: Permission denied")
        if not mode or stat.S_ISDIR(mode):
            return
        if not stat.S_ISREG(mode):
            raise ConfigError(
                f"the ledger {path} is a device or a pipe, from which nothing can be read again"
            )
        start = _begins(path).lstrip()
        if start and not (start.startswith(_LEDGER) or _LEDGER.startswith(start)):
            raise ConfigError(f"{path} is not a ledger, and nothing is appended to it: choose another file")


def _mode(path: Path) -> int:
    """The file's mode, or 0 if there is none; OSError where it cannot be known."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


def _begins(path: Path) -> bytes:
    """How a file begins, without a byte order mark and the spaces that other writers of JSON put in."""
    with path.open("rb") as file:
        return file.read(64).removeprefix(codecs.BOM_UTF8).replace(b" ", b"")


@contextlib.contextmanager
def _sentence(path: Path) -> Iterator[None]:
    """Turn what the operating system says of *path* into a ConfigError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"cannot write {path}: a part of its path is a file, not a folder") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Write to a temporary file; rename it to *path* on success, delete it on error.

    A symbolic link stays one, an existing file keeps its mode. What is no regular file (a device, a pipe) is written
    directly, and "-" is standard output. Raises ConfigError if the file cannot be opened, and JudgekitError if the disk is
    full.
    """
    try:
        with _whole_file(Path(path)) as file:
            yield file
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise JudgekitError(f"cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def _whole_file(given: Path) -> Iterator[IO[str]]:
    if given == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(os.path.realpath(given))
    try:
        mode = given.stat().st_mode
    except OSError:
        mode = 0o666 & ~_umask()
    else:
        if not stat.S_ISREG(mode):
            with _sentence(given):
                device = open(given, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            with device:
                yield device
            return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise ConfigError(f"cannot write {given}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        os.chmod(name, stat.S_IMODE(mode))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them does not exist
        return os.path.realpath(a) == os.path.realpath(b)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
