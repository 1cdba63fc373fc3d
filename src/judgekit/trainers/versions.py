"""Which version of a trainer is installed."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from judgekit.errors import ConfigError


@cache
def host_version(
    package: str, oldest: tuple[int, ...], *, adapter: str, name: str, lacks: str
) -> tuple[int, ...]:
    """Return the version of the installed *package*, with as many numbers as *oldest* has.

    *name*: the trainer's, in messages; *lacks*: what earlier versions do not do. Raises ConfigError if the package is missing
    or older.
    """
    try:
        text = version(package)
    except PackageNotFoundError:
        raise ConfigError(
            f"{adapter} works inside {name}, and {name} is not installed here: pip install {package}"
        ) from None
    found = tuple(int(part) for part in [*re.findall(r"\d+", text), *"0" * len(oldest)][: len(oldest)])
    if found < oldest:
        needed = ".".join(map(str, oldest))
        raise ConfigError(f"{name} {text} {lacks}; {adapter} needs {needed} or later")
    return found
