"""`judgekit serve` and `judgekit check`: judges for other programs."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import anyio
import typer

from judgekit.cli.console import run, say
from judgekit.errors import ConfigError


def serve(
    engine: Annotated[
        str, typer.Option(help="http: vLLM servers on this machine; ray: named actors in a Ray cluster.")
    ] = "http",
    model: Annotated[str, typer.Option(help="A folder, a Hugging Face name, or 'embedded'.")] = "embedded",
    name: Annotated[str, typer.Option(help="The judge's name.")] = "judge",
    replicas: Annotated[int, typer.Option(help="Number of engines; each loads the whole model.")] = 1,
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs per engine.")] = 1,
    gpus: Annotated[
        float | None, typer.Option(help="ray: GPUs per engine; a fraction shares a GPU with others.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="http: address to listen on; 0.0.0.0 lets other machines connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="http: port of the first replica; the next ones follow.", min=1, max=65535)
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=["LLM_JUDGE_SERVER_API_KEY", "VLLM_API_KEY"],
            help="http: the key that clients must send. Other users can read arguments: prefer the variable.",
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="http: serve other machines without a key.")
    ] = False,
    address: Annotated[str, typer.Option(help="ray: the cluster's address.")] = "auto",
    python: Annotated[
        str | None,
        typer.Option(help="ray: run the actors with this Python, at the same path on every node."),
    ] = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(help="An argument for vLLM, as key=value in YAML or JSON; may be repeated."),
    ] = None,
    hang_timeout: Annotated[
        float,
        typer.Option(
            help="http: restart a server that has answered nothing, or whose engine has done nothing, for so many seconds.",
            min=1.0,
        ),
    ] = 120.0,
    status: Annotated[bool, typer.Option("--status", help="Show the judges of this name.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the judges of this name.")] = False,
) -> None:
    """Start judges for other programs, show them, or stop them."""
    if engine not in ("http", "ray"):
        raise ConfigError(f"serve: --engine is ray or http, not {engine!r}")
    if status and stop:
        raise ConfigError("serve: give --status or --stop, not both")
    if not model:
        raise ConfigError("serve: --model is a folder, a Hugging Face name, or 'embedded', not ''")
    if gpus is not None and (engine != "ray" or gpus <= 0):
        raise ConfigError("serve: --gpus is a number above 0, for --engine ray")
    extra = _engine_args(engine_arg or [])
    if engine == "ray":
        _serve_ray(model, name, replicas, tensor_parallel_size, gpus, address, python, extra, status, stop)
    elif status:
        _show_http(name)
    elif stop:
        _stop_http(name)
    else:
        _check_exposure(host, api_key, no_auth)
        _serve_http(model, name, replicas, tensor_parallel_size, host, port, api_key, extra, hang_timeout)


def _engine_args(given: Sequence[str]) -> dict[str, Any]:
    import yaml

    made: dict[str, Any] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(f"serve: --engine-arg is key=value, not {text!r}")
        try:
            made[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"serve: --engine-arg {key}: {value!r} is neither YAML nor JSON") from None
    return made


def _check_exposure(host: str, api_key: str | None, no_auth: bool) -> None:
    from judgekit.judges.launch.supervise import is_loopback

    if not (is_loopback(host) or api_key or no_auth):
        raise ConfigError(
            f"serve: on --host {host} other machines can use the judge: set LLM_JUDGE_SERVER_API_KEY to a key that "
            "they must send, or allow everybody with --no-auth"
        )


def _serve_http(
    model: str,
    name: str,
    replicas: int,
    tensor_parallel_size: int,
    host: str,
    port: int,
    api_key: str | None,
    extra: Mapping[str, Any],
    hang_timeout: float,
) -> None:
    from judgekit.cli.logs import rotating_file
    from judgekit.judges.engines.vllm.judge import model_path
    from judgekit.judges.launch.state_file import read_state, write_state
    from judgekit.judges.launch.supervise import http_replicas, supervise

    if read_state(name) is not None:
        raise ConfigError(
            f"serve: a judge named {name} is already served; stop it with --stop, or choose another --name"
        )
    servers = http_replicas(
        model,
        name=name,
        replicas=replicas,
        tensor_parallel_size=tensor_parallel_size,
        host=host,
        port=port,
        api_key=api_key,
        engine_args=extra,
        open_log=rotating_file,
    )
    urls = [server.url for server in servers]
    # written first, so that --stop also ends a judge that is still starting
    state = write_state(name, model=model, urls=urls, logs=[str(server.log) for server in servers])

    async def work() -> None:
        say(f"starting {replicas} server(s) for {model} (logs: {', '.join(str(s.log) for s in servers)}) …")
        async with supervise(servers, hang_timeout_s=hang_timeout):
            say(_lines_to_paste("http", name=name, urls=urls, tokenizer=model_path(model)))
            say("serving; stop with Ctrl-C")
            await anyio.sleep_forever()

    try:
        run(work, signal.SIGINT, signal.SIGTERM)
    finally:
        state.unlink(missing_ok=True)
        say("stopped")


def _show_http(name: str) -> None:
    from judgekit.judges.launch.state_file import read_state

    facts = read_state(name)
    if facts is None:
        say(f"no judge named {name} is served from here")
    else:
        say(f"{name}: {facts['model']} at {', '.join(facts['urls'])}")


def _stop_http(name: str) -> None:
    from judgekit.judges.launch.state_file import stop_supervisor

    say(f"{name} is stopped" if stop_supervisor(name) else f"no judge named {name} is served from here")


def _serve_ray(
    model: str,
    name: str,
    replicas: int,
    tensor_parallel_size: int,
    gpus: float | None,
    address: str,
    python: str | None,
    extra: Mapping[str, Any],
    status: bool,
    stop: bool,
) -> None:
    from judgekit.judges.engines.ray.judge import RayJudge, connect, start_ray_judge

    connect(address)
    judge = RayJudge(name)
    if status:
        rows = anyio.run(judge.status)
        for row in rows:
            shown = (
                row.get("error")
                or f"{row['config']['options'].get('model')}, {row['in_flight']} in flight, {row['served']} served, pid {row['pid']}"
            )
            say(f"{row['actor']}: {shown}")
        if not rows:
            say(f"no judge named {name} runs in this cluster")
        return
    if stop:
        say(f"{anyio.run(judge.stop)} replica(s) of {name} stopped")
        return
    judge = start_ray_judge(
        model,
        name=name,
        replicas=replicas,
        tensor_parallel_size=tensor_parallel_size,
        gpus=gpus,
        lifetime="detached",
        options={"engine_args": dict(extra)} if extra else {},
        python=python,
    )
    say(f"starting {replicas} replica(s) of {model} …")
    anyio.run(judge.start)
    say(_lines_to_paste("ray", name=name))


def _lines_to_paste(engine: str, *, name: str, urls: Sequence[str] = (), tokenizer: str = "") -> str:
    """The lines that use a running judge, for reward.yaml, verl and SkyRL."""
    if engine == "ray":
        judge = f"{{engine: ray, name: {name}}}"
        env = ""
    else:
        listed = urls[0] if len(urls) == 1 else "[" + ", ".join(urls) + "]"
        # with the tokenizer prompts are sent as token ids: no text of a rollout becomes a control token
        judge = f"{{engine: openai, url: {listed}, model: {name}, tokenizer: {json.dumps(tokenizer)}}}"
        env = f"export LLM_JUDGE_SERVER_URL={shlex.quote(','.join(urls))}\n"
    return f"""reward.yaml
    judges:
      {name}: {judge}
    graders:
      judge: {{use: judge, judge: {name}}}
verl (0.7.1 and later)
    reward.reward_manager.source=importlib reward.reward_manager.module.path=pkg://judgekit_verl \\
    reward.reward_manager.name=JudgeKitRewardManager +reward.reward_kwargs.judgekit_config=$PWD/reward.yaml \\
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager
SkyRL
    python -m judgekit_skyrl.main environment.env_class=judgekit \\
    environment.skyrl_gym.judgekit.config=$PWD/reward.yaml generator.batched=false
{env}check it with
    judgekit check {name if engine == "ray" else urls[0]}"""


def check(
    target: Annotated[
        str | None,
        typer.Argument(help="A Ray judge's name, or a server's URL. Without it: what is installed here."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model's name, for servers that have several.")
    ] = None,
    burst: Annotated[int, typer.Option(help="Number of verdicts to ask for at once.", min=1)] = 64,
    address: Annotated[str, typer.Option(help="The Ray cluster's address.")] = "auto",
) -> None:
    """Ask a running judge for verdicts, and measure its speed; without one, tell what is installed."""
    if target is None:
        from judgekit.cli.installed import report

        for line in report():
            say(line)
        return
    from judgekit.cli.checkup import CheckUp, check_up
    from judgekit.errors import JudgeUnavailable
    from judgekit.judges.base import Judge
    from judgekit.judges.engines.openai.judge import OpenAIJudge
    from judgekit.judges.engines.ray.judge import RayJudge, connect

    if not target:
        raise ConfigError("check: give a Ray judge's name, or a server's URL")
    http = "/" in target or ":" in target
    if not http:
        connect(address)

    async def work() -> CheckUp:
        judge: Judge = OpenAIJudge(target, model=model) if http else RayJudge(target)
        try:
            await judge.start()  # type: ignore[attr-defined]
            return await check_up(judge, burst=burst)
        finally:
            with anyio.CancelScope(shield=True):
                await judge.close()  # type: ignore[attr-defined]

    found = run(work, signal.SIGINT, signal.SIGTERM)
    say(f"model       {found.model}")
    say(f"verdicts    {found.verdict}")
    say(f"throughput  {found.per_second:.1f} verdicts/s in a burst of {burst}")
    say(f"prefix      {100 * found.cached:.0f} % of the prompt tokens came from the cache")
    if found.unverified:
        say(f"prompts     unverified: {found.unverified}")
    else:
        say("prompts     rollouts' texts reach the model as they were sent")
    if found.engine:
        say(f"engine      {found.engine}")
    if found.failures:
        raise JudgeUnavailable(f"some verdicts failed: {'; '.join(found.failures[:3])}")
