"""Every error that judgekit raises.

A grader may raise anything: the runner turns it into a `Failed` grade. These classes only say more.
All arguments go to `Exception.__init__`, so that every error survives pickling (Ray, process pools).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class JudgekitError(Exception):
    """Base of every error of this package."""

    retryable: bool = False
    """Whether the same call may succeed if it is repeated."""
    exhausted: bool = False
    """Whether it was already retried as often as allowed."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConfigError(JudgekitError, ValueError):
    """A wrong argument, raised at construction, before anything is graded."""


class MissingExtra(ConfigError):
    """A package that a grader needs is not installed. `reason`: who needs what; `extra`: judgekit's extra that brings it."""

    def __init__(self, reason: str, extra: str) -> None:
        super().__init__(reason, extra)
        self.reason = reason
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.reason}: pip install 'judgekit-rl[{self.extra}]'"

    @classmethod
    def all_of(cls, errors: Sequence[MissingExtra]) -> MissingExtra:
        """Return one error for several, with one line that installs everything."""
        extras = dict.fromkeys(extra for error in errors for extra in error.extra.split(","))
        return cls("; ".join(dict.fromkeys(error.reason for error in errors)), ",".join(extras))


class DataError(JudgekitError, ValueError):
    """Input data that cannot be read. Names the file, the line and what is wrong."""


class MissingRewardError(JudgekitError):
    """A rollout has no reward and the runner's setting is ``missing_reward="raise"``."""


class FailureRateError(JudgekitError):
    """The share of failed grades exceeds ``max_failure_rate``. `results`: the results all the same."""

    def __init__(self, message: str, results: Sequence[Any] = ()) -> None:
        super().__init__(message, results)
        self.results = results


class AuditAlarm(JudgekitError):
    """Audits have shown that a grader pays wrong rollouts more than it may, and `on_alarm: stop` ends the training."""


class VerdictError(JudgekitError):
    """The judge's reply holds no verdict in the agreed form. `raw` is the reply, uncut."""

    usage: Any = None
    """What the judge consumed for it (`Usage`)."""
    from_rollout: bool = False
    """Whether it counts as the rollout's fault (`unreadable="low"` of judge graders)."""

    def __init__(self, message: str, raw: str = "") -> None:
        super().__init__(message, raw)
        self.raw = raw


class RolloutError(JudgekitError):
    """The rollout broke its grader: a length bomb, an expression that never ends. Not an infrastructure failure."""


class GraderRaised(JudgekitError):
    """The grader raised in its worker. `error` is the class name of what it raised."""

    def __init__(self, error: str, detail: str, retryable: bool, from_rollout: bool) -> None:
        super().__init__(error, detail, retryable, from_rollout)
        self.error = error
        self.detail = detail
        self.retryable = retryable
        self.from_rollout = from_rollout

    def __str__(self) -> str:
        return f"{self.error}: {self.detail}"


class ServiceUnavailable(JudgekitError):
    """The reward service (`judgekit serve-rewards`) gave no answer, however often it was asked."""

    retryable = True


class JudgeError(JudgekitError):
    """The judge's engine or endpoint failed."""


class JudgeUnavailable(JudgeError):
    """The engine is unreachable, has died, or sheds load.

    `retry_after`: seconds that the endpoint asks callers to wait, if it says so. `lost`: the connection failed or
    broke off, so that another process may answer next. `refused`: the endpoint has too many requests (HTTP 429, 503).
    """

    retryable = True
    lost: bool = False
    refused: bool = False

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after


class JudgeLoading(JudgeUnavailable):
    """The engine is being loaded or restarted by its owner."""


class JudgeTimeout(JudgeError):
    """One attempt took longer than its `attempt_timeout_s`."""

    retryable = True


class JudgeRejected(JudgeError):
    """The engine refuses this request (too long, unknown model, bad key), and would refuse it again.

    `status`: a server's HTTP status. `field`: the field of the request that it names. `own`: whether it says itself that the
    reason is no prompt, such as a bill that is not paid.
    """

    own: bool = False

    def __init__(self, message: str, status: int | None = None, field: str = "") -> None:
        super().__init__(message, status, field)
        self.status = status
        self.field = field


class JudgeBudgetSpent(JudgeError):
    """The judge's `budget` is spent: this process asks it nothing more."""


def attribute(error: BaseException, name: str) -> Any:
    """Return an exception's attribute, or None if it has none or raises."""
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def describe(error: BaseException) -> tuple[str, str]:
    """Return an exception's class name and its text, even if its `__str__` raises."""
    try:
        return type(error).__name__, str(error)[:1000]
    except BaseException as worse:
        return type(error).__name__, f"(its text cannot be had: str() raised {type(worse).__name__})"


def read_utf8(path: Path) -> str:
    """Read a text file of the user's. Raises ConfigError if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` or a list of the known names, for the end of a sentence."""
    names = sorted(known)
    listed = f"; there is {', '.join(map(repr, names))}" if names else "; there is none"
    return closest(name, names) or listed


def closest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the end of a sentence that lists the known names; empty where none is like it."""
    close = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in nested exception groups."""
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def reads_rollout(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Turn a parser's recursion errors into RolloutError, because they are the rollout's fault.

    Python's own parser also raises MemoryError. A process that has no memory left is no rollout's fault.
    """

    @functools.wraps(function)
    def read(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (RecursionError, MemoryError) as error:
            if isinstance(error, MemoryError) and out_of_memory():
                raise
            raise RolloutError(f"nested too deep for a parser ({type(error).__name__})") from None

    return read


def out_of_memory() -> bool:
    """Whether this process cannot get 64 MiB."""
    try:
        bytearray(64 << 20)
    except MemoryError:
        return True
    return False
