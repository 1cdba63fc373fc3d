"""Whose failure it is when a request ends without a verdict. One table says it, and nobody else decides.

Engines raise what happened; they do not know whose text was at fault. Where a rollout's text may have been, a fair comparison
decides (`Asking.ask`): the judge is asked the same with a harmless text in the rollout's place. If that fails, too, the failure
is the judge's, and never counts as low. A rollout that is refused again and again, while the harmless text is accepted
each time in between, has broken its grader. Graders of groups compare with the siblings instead (`judged/voting.py`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from judgekit.errors import (
    JudgeRejected,
    RolloutError,
    VerdictError,
)

Whose = Literal["judge", "compared", "compared if low", "rollout"]
"""The judge's (cause `infrastructure`), found out by comparison, found out only under `unreadable: low`, or the rollout's."""


class Ending(Struct, frozen=True):
    """One way in which a request ends without a verdict."""

    happened: str
    raised: str
    """The error that engines raise for it, and the grade's `error` unless a comparison makes it another."""
    whose: Whose
    again: str
    """Who asks again before the grade fails."""


TABLE: tuple[Ending, ...] = (
    Ending(
        "no connection, or one that breaks off; HTTP 408, 409, 424, 425, 498, 5xx",
        "JudgeUnavailable",
        "judge",
        "retry, restart",
    ),
    Ending(
        "HTTP 429 or 503, or a rate limit or overload with another status",
        "JudgeUnavailable",
        "judge",
        "when the server says",
    ),
    Ending(
        "an answer that is no JSON, has no choice, or is an error in HTTP 200",
        "JudgeUnavailable",
        "judge",
        "retry",
    ),
    Ending("an engine that is out of memory", "JudgeUnavailable", "judge", "retry"),
    Ending(
        "a reply broken off (`abort`, `error`, an unknown end), or all in `reasoning_content` with `content` null",
        "JudgeUnavailable",
        "judge",
        "retry",
    ),
    Ending("label probabilities that are none, or left out", "JudgeUnavailable", "judge", "retry"),
    Ending("no answer in time", "JudgeTimeout", "judge", "retry"),
    Ending("the judge loads or sleeps", "JudgeLoading", "judge", "until it is there"),
    Ending("the judge's `budget` is spent", "JudgeBudgetSpent", "judge", "no"),
    Ending("HTTP 401, 403, 404; a quota or bill; an unknown model", "JudgeRejected", "judge", "no"),
    Ending("HTTP 400, 413, 422", "JudgeRejected", "compared", "3 times, in the comparison"),
    Ending(
        "a content filter that removes the reply", "JudgeRejected", "compared", "3 times, in the comparison"
    ),
    Ending("a refusal (`message.refusal`)", "JudgeRejected", "compared", "3 times, in the comparison"),
    Ending(
        "a reply without a verdict in the agreed form, or cut",
        "VerdictError",
        "compared if low",
        "once, with a hint",
    ),
    Ending(
        "labels with less than `min_mass` of the probability",
        "VerdictError",
        "compared if low",
        "once, with a hint",
    ),
    Ending("an image, or a trajectory, that cannot be shown", "RolloutError", "rollout", "no"),
)
"""The cases that graders of groups and panels add are in docs/judges.md."""


def about_prompt(error: BaseException) -> bool:
    """Whether a refusal may be about the prompt, so that it has to be compared."""
    return isinstance(error, JudgeRejected) and error.status in (None, 400, 413, 422) and not error.own


def whose(error: BaseException) -> Whose:
    """Return whose failure an error of a judge is, as far as it tells that itself."""
    if isinstance(error, RolloutError):
        return "rollout"
    if isinstance(error, VerdictError):
        return "compared if low"
    return "compared" if about_prompt(error) else "judge"
