"""Audits beside a training: `judgekit audit --follow` in a process of its own, which reads the ledger that the training writes.

The rewards cannot depend on it, and the trainer's process computes nothing for it: once a step it reads a file with the curve.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.config import load_config
from judgekit.errors import AuditAlarm, ConfigError
from judgekit.ledger.reader import beside

logger = logging.getLogger("judgekit")

_PROGRAM = """
import os, signal, threading

def end_with_the_trainer():
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_trainer, daemon=True).start()
from judgekit.cli import main
main()
"""
_PATIENT = 10
"""Steps after which something must have been audited."""
_WAIT_S = 10.0
"""Seconds that the process has for its end."""


class AuditBeside:
    """Audits the ledger of a reward.yaml with a section `audit` while a training writes it.

    *config*: the reward.yaml. *ledger*: the one that is written, texts and all, if it is not the file's. Starts at once;
    `close` ends it, and so does the end of this process. Raises ConfigError if the ledger cannot be audited.
    """

    def __init__(
        self, config: str | os.PathLike[str], *, ledger: str | os.PathLike[str] | None = None
    ) -> None:
        loaded = load_config(config)
        try:
            settings = loaded.audit_settings()
            if settings is None:
                raise ConfigError("there is no section audit")
            texts = ledger is not None or (loaded.ledger or {}).get("texts")
            ledger = loaded.ledger_path() if ledger is None else Path(ledger)
            if ledger is None or not texts:
                raise ConfigError(
                    "audit: audits read the ledger: add ledger: {path: ledger.jsonl, texts: true}"
                )
        except ConfigError as error:
            raise ConfigError(f"{config}: {error}") from None
        self.settings = settings
        self.ledger = ledger
        self.curve = beside(ledger, "curve")
        """Where the curve is, as `judgekit audit --json` prints it."""
        self._seen: tuple[int, int] | None = None
        self.latest: dict[str, float] = {}
        """The figures that were read last."""
        self._alarm: str = ""
        self._told = self._late = False
        self._asked = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (its process outlives any block)
        self.curve.unlink(missing_ok=True)  # an earlier training's alarm is none of this one
        arguments = ["audit", str(ledger), "--reward", os.fspath(config), "--follow"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is the trainer's
        )
        self._end = weakref.finalize(self, _ended, self._process)

    @classmethod
    def of(cls, config: str | os.PathLike[str] | None) -> AuditBeside | None:
        """Begin the audits that a reward.yaml asks for; None if it asks for none. Raises ConfigError."""
        return None if config is None or load_config(config).audit is None else cls(config)

    def figures(self) -> dict[str, float]:
        """Return the last audited step's figures for a tracker, none before the first; say new ones, and an alarm, in the log.

        `judgekit/audit/paid_wrong` is the curve over the last audits (0..1), with `_low` and `_high`, `line` what it may be, `log_e` the
        evidence for the alarm and `alarm` 0 or 1. Raises AuditAlarm with `on_alarm: stop`.
        """
        self.read()
        self._asked += 1
        if self._asked == _PATIENT and self._seen is None and not self._told:
            logger.warning(
                "after %d steps none has been audited: is the ledger %s, which workers write, one that this process can read?",
                self._asked,
                self.ledger,
            )
        if self._alarm and self.settings.on_alarm == "stop":
            raise AuditAlarm(self._alarm)
        return dict(self.latest)

    def read(self) -> None:
        """Take over what has been found since, and say in the log what is new."""
        self._read()
        self._check_process()

    def close(self) -> None:
        """End the audits."""
        self._end()
        self._errors.close()

    def _read(self) -> None:
        try:
            status = self.curve.stat()
            if (seen := (status.st_mtime_ns, status.st_ino)) == self._seen:
                return
            told = _curve.decode(self.curve.read_bytes())
        except (OSError, msgspec.DecodeError):
            return  # none yet, or it is just being replaced
        self._seen = seen
        last = told.last
        if last is None:
            return
        recent = last.recent
        found = {
            "paid_wrong": recent.paid_wrong,
            "paid_wrong_low": recent.low,
            "paid_wrong_high": recent.high,
            "line": recent.line,
            "log_e": last.log_e,
            "alarm": float(told.alarm is not None),
        }
        self.latest = {
            f"judgekit/audit/{name}": float(value) for name, value in found.items() if value is not None
        }
        if recent.paid_wrong is not None:
            logger.info(
                "audited step %s: %s pays %.2f of what it may pay on rollouts that %s calls wrong (it may: %.2f)",
                last.step,
                self.settings.watch,
                recent.paid_wrong,
                self.settings.grader,
                recent.line,
            )
        if told.late and not self._late:
            self._late = True
            logger.warning(
                "%d rollouts of the ledger are of steps that had ended, and nobody audits them: give each training a ledger of its own",
                told.late,
            )
        if told.alarm is not None and not self._alarm:
            self._alarm = told.in_words
            logger.warning("%s", self._alarm)

    def _check_process(self) -> None:
        """Say once if the audits have ended by themselves: the training goes on without them."""
        code = self._process.poll()
        if code is None or self._told or self._alarm:
            return
        self._told = True
        self._errors.seek(0)
        why = self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        logger.error(
            "the audits have ended, and the training goes on without them: %s", why or f"code {code}"
        )


class _Recent(Struct):
    paid_wrong: float | None
    low: float | None
    high: float | None
    line: float | None


class _Step(Struct):
    step: Any
    recent: _Recent
    log_e: float


class _Curve(Struct):
    """Of what `judgekit audit --json` tells, what a trainer needs: not all steps, which are more from step to step."""

    last: _Step | None
    alarm: Any
    in_words: str
    late: int


_curve = msgspec.json.Decoder(_Curve)


def _ended(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.terminate()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
