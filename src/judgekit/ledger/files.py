"""Files that commands write: whole or not at all, and never over an input."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from judgekit.errors import ConfigError

STDOUT = Path("-")


def check_targets(
    outputs: Sequence[Path | None], *, inputs: Sequence[Path | None] = (), force: bool = False
) -> None:
    """Raise ConfigError if an output cannot be written, or would overwrite something.

    An output must not be an input, another output or a folder; an existing file needs *force*. Devices and pipes, and
    "-" for standard output, are written as they are.
    """
    given = [path for path in outputs if path is not None and path != STDOUT]
    taken = [path for path in inputs if path is not None]
    for path in given:
        for other in taken:
            if _same(path, other):
                raise ConfigError(f"{path} would overwrite {other}, which is read: choose another file")
        taken.append(path)
        if path.is_dir():
            raise ConfigError(f"{path} is a folder: give the name of a file")
        if path.is_file() and path.stat().st_size and not force:
            raise ConfigError(f"{path} exists: --force overwrites it")
        folder = path.absolute().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise ConfigError(f"cannot write {path}: Permission denied")


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Write to a temporary file; rename it to *path* on success, delete it on error.

    A symbolic link stays one, an existing file keeps its mode. What is no regular file (a device, a pipe) is written
    directly, and "-" is standard output.
    """
    given = Path(path)
    if given == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    target = given.resolve()
    try:
        mode = target.stat().st_mode
    except OSError:
        mode = 0o666 & ~_umask()
    else:
        if not stat.S_ISREG(mode):
            with open(target, "w", encoding="utf-8", errors="backslashreplace") as file:
                yield file
            return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
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
        return a.resolve() == b.resolve()


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
