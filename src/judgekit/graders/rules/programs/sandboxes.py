"""Where a rollout's code runs: in a sandbox on this machine, or in a sandbox service.

Both run one program and say how it ended, by the same `Finished`. To add another, write a class with `run` and
`isolation`, and give an instance of it to `Code(sandbox=…)`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

from judgekit.errors import ConfigError
from judgekit.graders.rules.programs.sandbox import (
    ENVELOPE,
    Finished,
    How,
    Limits,
    SandboxError,
    answers,
    best_way,
    harness,
    read_answer,
    rlimits,
    run_program,
)

MAX_REPLY_BYTES = 64 << 20


@runtime_checkable
class Sandbox(Protocol):
    """Runs one program at a time; called from several threads."""

    def run(
        self, code: str, *, limits: Limits, stdin: str = "", job: Mapping[str, Any] | None = None
    ) -> Finished:
        """Run *code* as a program that reads *stdin*, or answers a *job*. Raises SandboxError if it cannot."""
        ...

    def isolation(self) -> dict[str, str]:
        """Describe how programs are isolated; "network" is "none" or "open"."""
        ...


@dataclass(frozen=True, slots=True)
class LocalSandbox:
    """Runs programs on this machine, isolated as well as the system can; see `judgekit.graders.rules.programs.sandbox`."""

    python: str = sys.executable
    network: bool = False
    """Whether programs may use the network."""
    isolated: bool = True
    """Whether to refuse to run them as plain processes."""

    def run(
        self, code: str, *, limits: Limits, stdin: str = "", job: Mapping[str, Any] | None = None
    ) -> Finished:
        way = best_way(self.python, self.network, self.isolated)
        return run_program(code, way=way, python=self.python, limits=limits, stdin=stdin, job=job)

    def isolation(self) -> dict[str, str]:
        return best_way(self.python, self.network, self.isolated).isolation()


@dataclass(frozen=True, slots=True)
class RemoteSandbox:
    """Runs programs in a service that speaks SandboxFusion's `POST /run_code`.

    The service bounds the wall time, the harness that goes with each program everything else. A service that cannot be
    reached, answers with an error or not at all is a SandboxError: nothing is known about the program. If a program leaves no
    sign that it has begun, an empty one is sent: if that begins, the sign has been deleted.
    """

    url: str
    """The address of `run_code`, such as "http://sandbox:8080/run_code"."""
    slack_s: float = 30.0
    """How much longer than the program a request may take: waiting for a place, starting."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            fine = parts.scheme in ("http", "https") and bool(parts.netloc)
        except ValueError:  # an IPv6 address that is none
            fine = False
        if not fine:
            raise ConfigError(
                f"sandbox: {self.url!r} is not the URL of a sandbox, such as http://host:8080/run_code"
            )

    def run(
        self, code: str, *, limits: Limits, stdin: str = "", job: Mapping[str, Any] | None = None
    ) -> Finished:
        secret = secrets.token_hex(16)
        most = limits.answer_kb << 10
        what = {"kind": "program", **(job or {}), "limits": rlimits(limits), "answer_bytes": most}
        reply = self._ask(_body(code, what, secret if answers(job) else stdin, limits), limits)
        result, files = reply.get("run_result"), reply.get("files")
        if reply is _TOO_LONG:
            return Finished("output", 1, "", "")
        if reply.get("status") == "SandboxError" or not isinstance(result, Mapping):
            raise SandboxError(f"the sandbox at {self.url} failed: {str(reply.get('message'))[:200]}")
        files = files if isinstance(files, Mapping) else {}
        output = str(result.get("stdout") or "")
        how: How = "ended"
        if result.get("status") == "TimeLimitExceeded":
            how = "time"
        elif len(output.encode("utf-8", "replace")) > limits.output_kb << 10:
            how = "output"
        elif "begun" not in files and not self._begins(limits):
            said = str(result.get("stderr") or "").strip()[-200:]
            raise SandboxError(f"the sandbox at {self.url} did not start the program: {said}")
        exited = result.get("return_code")
        ended = exited if isinstance(exited, int) else 1
        answer = (
            read_answer(_decoded(files.get("answer.json"), most + ENVELOPE), secret)
            if answers(job)
            else (None, False)
        )
        return Finished(how, ended, output, str(result.get("stderr") or ""), *answer)

    def _begins(self, limits: Limits) -> bool:
        """Whether a program that does nothing begins: then one without a sign of it has deleted it."""
        reply = self._ask(_body("", {"kind": "program", "limits": rlimits(limits)}, "", limits), limits)
        files = reply.get("files")
        return isinstance(files, Mapping) and "begun" in files

    def isolation(self) -> dict[str, str]:
        return {"by": self.url, "network": "the service's", "files": "the service's", "user": "the service's"}

    def _ask(self, body: Mapping[str, Any], limits: Limits) -> Mapping[str, Any]:
        request = urllib.request.Request(
            self.url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=limits.wall_s + self.slack_s) as response:
                text = response.read(MAX_REPLY_BYTES + 1)
                if len(text) > MAX_REPLY_BYTES:  # only what a program writes makes it so long
                    return _TOO_LONG
                reply = json.loads(text)
        except urllib.error.HTTPError as error:
            error.close()
            raise SandboxError(f"the sandbox at {self.url} answered {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise SandboxError(f"the sandbox at {self.url} cannot be reached: {error}") from None
        except (ValueError, RecursionError):
            raise SandboxError(f"the sandbox at {self.url} did not answer in JSON") from None
        if not isinstance(reply, Mapping):
            raise SandboxError(f"the sandbox at {self.url} answered {type(reply).__name__}, not an object")
        return reply


class InSandbox:
    """Base of rules that run a rollout's code: it says at the start whether they can."""

    name: str
    sandbox: Sandbox

    def isolation(self) -> dict[str, str]:
        """Describe how the code is isolated on this machine."""
        try:
            return self.sandbox.isolation()
        except SandboxError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    def warm_up(self) -> None:
        """Find out how programs can be isolated. Raises ConfigError if they cannot."""
        self.isolation()


def sandbox_of(
    name: str,
    sandbox: str | Sandbox | None,
    python: str,
    *,
    network: str = "off",
    isolation: Literal["full", "none"],
) -> Sandbox:
    """Return the sandbox that a grader's settings mean. Raises ConfigError if they mean none."""
    if isinstance(sandbox, str):
        sandbox = RemoteSandbox(sandbox)
    if sandbox is not None and (not isinstance(sandbox, Sandbox) or network == "forbidden"):
        raise ConfigError(
            f"{name}: sandbox is the URL of a service or an object with run() and isolation(), without "
            "network='forbidden': only the service knows its network"
        )
    if sandbox is None and os.name != "posix":
        raise ConfigError(f"{name}: running code needs a POSIX system (rlimits, process groups)")
    return LocalSandbox(python, network == "on", isolation == "full") if sandbox is None else sandbox


_TOO_LONG: Mapping[str, Any] = {}


def _body(code: str, what: Mapping[str, Any], stdin: str, limits: Limits) -> dict[str, Any]:
    """Return a request that runs *code* under the harness."""
    return {
        "code": harness(),
        "language": "python",
        "stdin": stdin,
        "run_timeout": limits.wall_s,
        "memory_limit_MB": limits.memory_mb,
        "files": {"code.py": _base64(code), "job.json": _base64(json.dumps(what))},
        "fetch_files": ["begun", "answer.json"],
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _decoded(text: Any, most: int) -> bytes:
    """Decode a file of at most *most* bytes; any other is empty."""
    if not isinstance(text, str) or len(text) > most * 4 // 3 + 4:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
