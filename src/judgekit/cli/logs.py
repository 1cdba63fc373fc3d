"""Readable logs on stderr, and rotating files for servers' output, with loguru.

judgekit itself logs through the standard library's `logging`, to the logger "judgekit", so that any program can handle
its records. `set_up` is for programs of ours: the commands, and the trainers' entrypoints.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from loguru import Record

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ROUTED = ("judgekit", "py.warnings")
_FORMAT = "<dim>{time:HH:mm:ss}</dim> <level>{level: <7}</level> {message}"
_DEFAULT_SINK = 0
"""The id of the sink that loguru comes with."""
_our_level = logging.NOTSET
"""The level that `set_up` gave the library's logger."""


class InterceptHandler(logging.Handler):
    """Passes records of the standard library on to loguru, once."""

    def emit(self, record: logging.LogRecord) -> None:
        if _shown_by_root(record):
            return
        text = record.getMessage()
        if record.name == "py.warnings":
            text = text.partition("\n")[0]  # without the line of source
        level = record.levelname if record.levelname in _LEVELS else record.levelno
        logger.opt(exception=record.exc_info).log(level, text)


def _shown_by_root(record: logging.LogRecord) -> bool:
    """Whether a handler of the program's own shows the record: ours would repeat it. (Files do not count.)"""
    return any(
        handler.level <= record.levelno and not isinstance(handler, logging.FileHandler | logging.NullHandler)
        for handler in logging.root.handlers
    )


def set_up(level: str = "INFO") -> None:
    """Show judgekit's records and Python's warnings on stderr, a line each.

    Changes nothing that the program has configured itself: root handlers show the records as they show all others, and
    loguru sinks of its own stay and get them. Calling it again changes only the level.
    """
    global _our_level
    for name in _ROUTED:
        routed = logging.getLogger(name)
        if not any(isinstance(handler, InterceptHandler) for handler in routed.handlers):
            routed.addHandler(InterceptHandler())
    library = logging.getLogger("judgekit")
    if library.level in (logging.NOTSET, _our_level):  # else the program has chosen it
        library.setLevel(level)
        _our_level = library.level
    logging.captureWarnings(True)
    # loguru's own sink is verbose and shows the values of variables, keys included. Where it is gone already, the
    # program has configured loguru (or we have), and its sinks get the records.
    with contextlib.suppress(ValueError):
        logger.remove(_DEFAULT_SINK)
        logger.add(
            _write,
            level="DEBUG",
            format=_FORMAT,
            filter=_for_people,
            colorize=sys.stderr is not None and sys.stderr.isatty() and "NO_COLOR" not in os.environ,
            backtrace=False,
            diagnose=False,
        )


def _for_people(record: Record) -> bool:
    return "file" not in record["extra"]


def _write(text: str) -> None:
    if sys.stderr is None:
        return
    if "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr, end="")  # above a progress bar, not through it
    else:
        sys.stderr.write(text)


def rotating_file(path: Path, *, limit: str = "50 MB") -> Callable[[str], None]:
    """A function that appends lines to *path*, and keeps up to three older files beside it.

    A server writes to a pipe that its supervisor reads into this file. Were the file the server's own output, nobody
    could rotate it: the server would go on writing to the file that was moved away. The price is that the supervisor
    must keep reading; it outlives its servers in any case.
    """
    try:
        logger.add(
            path,
            level=0,
            format="{message}",
            filter=lambda record: record["extra"].get("file") == path,
            rotation=limit,
            retention=3,
            encoding="utf-8",
            errors="replace",
            backtrace=False,
            diagnose=False,
        )
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}; choose another folder with JUDGEKIT_STATE"
        ) from None
    lines = logger.bind(file=path)
    return lambda line: lines.opt(raw=True).info(f"{line}\n")


@contextlib.contextmanager
def diverted(module: str = "") -> Iterator[list[str]]:
    """Collect judgekit's warnings (of one *module*) instead of logging them, for commands that print them."""
    found: list[str] = []

    def divert(record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or (module and record.module != module):
            return True
        found.append(record.getMessage())
        return False

    library = logging.getLogger("judgekit")
    library.addFilter(divert)
    try:
        yield found
    finally:
        library.removeFilter(divert)
