"""`judgekit serve-rewards`: a reward.yaml over HTTP, for trainers elsewhere."""

from __future__ import annotations

import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import anyio.abc
import typer

from judgekit.cli.console import fail, not_kept, say
from judgekit.errors import ConfigError, first_error
from judgekit.execution.heap import freeze_heap

if TYPE_CHECKING:
    from judgekit.evidence.audit_settings import AuditSettings
    from judgekit.service.lanes import Knows
    from judgekit.service.service import RewardService


def serve_rewards(
    config: Annotated[Path, typer.Argument(help="The reward.yaml.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8080,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="JUDGEKIT_SERVICE_KEY",
            help="The key that clients must send. Other users can read arguments: prefer the variable.",
        ),
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Serve other machines without a key.")] = False,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Keep every grade in this file, or folder if it ends with /; a restarted service goes on from it.",
        ),
    ] = None,
    group: Annotated[
        int,
        typer.Option(
            help="Rollouts of a prompt that trainers send together, where their address has no ?group=.",
            min=1,
            max=1024,
        ),
    ] = 1,
    group_wait: Annotated[
        float, typer.Option(help="Seconds to wait for the missing members of a group.", min=0.001)
    ] = 60.0,
    max_requests: Annotated[
        int, typer.Option(help="Requests in flight; more are answered 503 with Retry-After.", min=1)
    ] = 4096,
    max_body_mb: Annotated[int, typer.Option(help="Largest body of a request, in MB.", min=1)] = 64,
    stop_timeout: Annotated[
        float, typer.Option(help="Seconds that a stop waits for what is being graded.", min=0)
    ] = 600.0,
) -> None:
    """Serve a reward.yaml to trainers over HTTP."""
    from judgekit.config import load_runner
    from judgekit.judges.launch.supervise import is_loopback
    from judgekit.ledger.output_files import check_ledger
    from judgekit.ledger.writer import Ledger
    from judgekit.service.server import Limits, RewardServer, allow_connections, bound_socket
    from judgekit.service.service import RewardService
    from judgekit.trainers.audit_beside import AuditBeside

    if not (is_loopback(host) or api_key or no_auth):
        raise ConfigError(
            f"serve-rewards: on --host {host} other machines can use the service: set JUDGEKIT_SERVICE_KEY to a key that "
            "they must send, or allow everybody with --no-auth"
        )
    if ledger is not None:
        check_ledger(Path(ledger), inputs=[config])
    audit = _audit_settings(config)
    kept = None if ledger is None else Ledger(ledger, texts=audit is not None)
    overrides: dict[str, Any] = {} if kept is None else {"ledger": kept}
    runner = load_runner(config, **overrides)
    if runner.ledger is not None:
        check_ledger(runner.ledger.path, inputs=[config])
    limits = Limits(requests=max_requests, body_bytes=max_body_mb << 20, stop_s=stop_timeout)
    with bound_socket(host, port) as listener:
        audits = (
            AuditBeside(config, ledger=None if ledger is None else Path(ledger))
            if audit is not None
            else None
        )
        service = RewardService(runner, group=group, group_wait_s=group_wait, audits=audits)
        server = RewardServer(service, api_key=api_key, limits=limits)

        async def serve(started: anyio.Event, stop: anyio.Event) -> None:
            if runner.resources:
                say("starting the judges (a local engine takes about half a minute) …")
            async with server.serve(listener):
                freeze_heap()
                started.set()
                for line in _told(service, listener):
                    say(line)
                await stop.wait()
                say("stopping: what was taken is finished; another signal stops at once")

        allow_connections(max_requests)
        try:
            _run(serve)
        finally:
            if audits is not None:
                audits.close()
    say("stopped")
    if lost := not_kept(runner.ledger, "make room for the next run"):
        fail(lost, code=1)


def _audit_settings(config: Path) -> AuditSettings | None:
    """Return the file's audit, if it has one. Raises ConfigError where it is one that a service cannot do."""
    from judgekit.config import load_config
    from judgekit.config.checks import placed

    try:
        audit = load_config(config).audit_settings()
    except ConfigError as error:
        raise placed(error, f"{config}") from None
    if audit is not None and audit.on_alarm == "stop":
        raise ConfigError(
            f"{config}: audit.on_alarm: the service cannot end a training: write warn, and let whatever watches /metrics act on "
            "judgekit_audit_alarm"
        )
    return audit


def _run(serve: Callable[[anyio.Event, anyio.Event], Awaitable[None]]) -> None:
    """Run *serve* with two events: it sets the first once it has started; SIGTERM or Ctrl-C sets the second.

    A signal before the first, and a second signal, cancel it: the exit code is 128 + the signal's number.
    """
    received: list[int] = []
    ended = False

    async def listen(
        started: anyio.Event,
        stop: anyio.Event,
        scope: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
            task_status.started()
            async for number in arriving:
                received.append(number)
                if stop.is_set() or not started.is_set():
                    break
                stop.set()
        scope.cancel()

    async def watched() -> None:
        nonlocal ended
        started, stop = anyio.Event(), anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(listen, started, stop, tasks.cancel_scope)
                await serve(started, stop)
                ended = True
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    anyio.run(watched)
    if not ended:
        raise typer.Exit(128 + received[-1])


def _told(service: RewardService, listener: socket.socket) -> Iterator[str]:
    """The lines to paste, and what reward.yaml rules out."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    yield f"serving rewards at {url}; stop with Ctrl-C"
    yield f"  judgekit     RewardClient({url!r}), or POST {url}/v1/rewards"
    grouped = "" if service.group == 1 else f"  (groups of {service.group})"
    for knows, lines in _TRAINERS.items():
        try:
            service.lanes.lane(knows, service.group)
        except ConfigError as error:
            yield f"  {' and '.join(name for name, _ in lines)}: {error}"
        else:
            for name, line in lines:
                yield f"  {name: <12} {line.format(url=url)}{grouped}"


_TRAINERS: Mapping[Knows, Sequence[tuple[str, str]]] = {
    "numbers": (
        ("OpenRLHF", "--reward.remote_url {url}/openrlhf"),
        ("slime", "--rm-type remote_rm --rm-url {url}/slime --reward-key reward"),
        ("ROLL", "submit_url: {url}/roll/submit_task  get_result_url: {url}/roll/task_result"),
    ),
    "masks": (
        ("NeMo-Gym", "{url}/verify"),
        ("verifiers", "--env.taskset.task.resources-url {url}/strict"),
    ),
}
"""What each trainer is told, by what its clients know."""
