"""Errors: what they say and keep, also behind a pickle, and the sentences that help with a name."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from judgekit import ConfigError, errors
from judgekit.errors import (
    FailureRateError,
    GraderRaised,
    JudgeBudgetSpent,
    JudgeError,
    JudgekitError,
    JudgeLoading,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    MissingExtra,
    RolloutError,
    ServiceUnavailable,
    VerdictError,
    attribute,
    closest,
    describe,
    did_you_mean,
    first_error,
    read_utf8,
    reads_rollout,
)


@pytest.mark.parametrize(
    ("error", "text", "kept"),
    [
        (JudgekitError(), "", {}),
        (ConfigError("a: b"), "a: b", {}),
        (MissingExtra("it needs x", "sql"), "it needs x: pip install 'judgekit-rl[sql]'", {"extra": "sql"}),
        (FailureRateError("too many", [1, 2]), "too many", {"results": [1, 2]}),
        (VerdictError("none", "the reply"), "none", {"raw": "the reply", "usage": None, "from_rollout": False}),
        (VerdictError("none"), "none", {"raw": ""}),
        (
            GraderRaised("KeyError", "'x'", True, False),
            "KeyError: 'x'",
            {"error": "KeyError", "detail": "'x'", "retryable": True, "from_rollout": False},
        ),
        (GraderRaised("E", "d", False, True), "E: d", {"retryable": False, "from_rollout": True}),
        (JudgeUnavailable("down", 2.5), "down", {"retry_after": 2.5, "lost": False, "refused": False}),
        (JudgeUnavailable("down"), "down", {"retry_after": None}),
        (JudgeRejected("too long", 400, "prompt"), "too long", {"status": 400, "field": "prompt", "own": False}),
        (JudgeRejected("no"), "no", {"status": None, "field": ""}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)  # fmt: skip
def test_errors_keep_what_they_say_behind_a_pickle(
    error: JudgekitError, text: str, kept: dict[str, object]
) -> None:
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert type(one) is type(error)
        assert str(one) == text
        assert {name: getattr(one, name) for name in kept} == kept


def test_which_errors_may_be_gone_when_a_call_is_repeated() -> None:
    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, JudgekitError)
    ]
    assert {one for one in found if one.retryable} == {
        JudgeUnavailable,
        JudgeLoading,
        JudgeTimeout,
        ServiceUnavailable,
    }
    assert not any(one.exhausted for one in found)
    assert {one for one in found if issubclass(one, JudgeError)} == {
        JudgeError, JudgeUnavailable, JudgeLoading, JudgeTimeout, JudgeRejected, JudgeBudgetSpent,
    }  # fmt: skip


def test_several_missing_extras_are_one_line_to_install() -> None:
    found = [MissingExtra("a needs x", "x"), MissingExtra("b needs y", "y"), MissingExtra("a needs x", "x,z")]
    assert str(MissingExtra.all_of(found)) == "a needs x; b needs y: pip install 'judgekit-rl[x,y,z]'"


class Mute(Exception):
    """One that cannot be looked at."""

    def __str__(self) -> str:
        raise KeyError("text")

    def __getattr__(self, name: str) -> object:
        raise SystemExit(name)


def test_errors_that_raise_when_they_are_looked_at() -> None:
    assert describe(Mute()) == ("Mute", "(its text cannot be had: str() raised KeyError)")
    assert describe(ValueError("x" * 1001)) == ("ValueError", "x" * 1000)
    assert attribute(Mute(), "retryable") is None
    assert attribute(ValueError(), "retryable") is None
    assert attribute(JudgeTimeout("slow"), "retryable") is True


def test_a_text_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("naïve".encode())
    assert read_utf8(path) == "naïve"
    path.write_bytes(b"ab\xff")
    with pytest.raises(ConfigError, match=r"a\.txt: not UTF-8 text \(byte 2\); save it as UTF-8"):
        read_utf8(path)
    with pytest.raises(ConfigError, match=r"cannot read .*b\.txt: No such file or directory"):
        read_utf8(tmp_path / "b.txt")


def test_names_that_are_meant() -> None:
    known = ["weighted", "gate", "clip"]
    assert did_you_mean("wieghted", known) == "; did you mean 'weighted'?"
    assert did_you_mean("other", known) == "; there is 'clip', 'gate', 'weighted'"
    assert did_you_mean("other", []) == "; there is none"
    assert closest("gates", known) == "; did you mean 'gate'?"
    assert closest("other", known) == ""


def test_the_first_error_of_nested_groups() -> None:
    first = ValueError("a")
    inner = ExceptionGroup("inner", [first, KeyError("b")])
    assert first_error(ExceptionGroup("outer", [inner, TypeError("c")])) is first


def test_what_is_too_deep_for_a_parser_is_the_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    @reads_rollout
    def parse(error: type[BaseException] | None) -> str:
        """Parse."""
        if error is not None:
            raise error
        return "parsed"

    assert parse(None) == "parsed"
    assert (parse.__name__, parse.__doc__) == ("parse", "Parse.")
    for error in (RecursionError, MemoryError):
        with pytest.raises(RolloutError, match=rf"^nested too deep for a parser \({error.__name__}\)$"):
            parse(error)
    with pytest.raises(KeyError):
        parse(KeyError)
    monkeypatch.setattr(errors, "out_of_memory", lambda: True)
    with pytest.raises(MemoryError):  # a process without memory is no rollout's fault
        parse(MemoryError)
    with pytest.raises(RolloutError):
        parse(RecursionError)


def test_a_process_that_has_memory_says_so() -> None:
    assert not errors.out_of_memory()
