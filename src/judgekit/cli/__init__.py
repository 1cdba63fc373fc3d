"""The `judgekit` command.

judgekit grade reward.yaml rollouts.jsonl --out graded.jsonl    grade a file of rollouts
judgekit report ledger.jsonl                                    a page about what was graded
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from judgekit.errors import JudgekitError
from judgekit.metrics import Metrics
from judgekit.types import RewardResult, Rollout
from judgekit.version import __version__

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)
out = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def main() -> None:
    """Run the command; what a user can get wrong ends as one sentence and exit code 2."""
    try:
        app()
    except JudgekitError as error:
        Console(stderr=True, highlight=False).print(f"judgekit: {error}", markup=False, soft_wrap=True)
        sys.exit(2)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"judgekit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Rewards for RL post-training, from rules and frozen local judges."""


@app.command()
def grade(
    config: Annotated[Path, typer.Argument(help="The reward.yaml.")],
    rollouts: Annotated[Path, typer.Argument(help="A JSONL file, one rollout a line.")],
    to: Annotated[Path, typer.Option("--out", help="Where the graded rollouts go, as JSONL.")],
    ledger: Annotated[
        Path | None, typer.Option(help="Keep every grade here, with texts, for reports and replay.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here (needs --ledger).")] = None,
    limit: Annotated[int | None, typer.Option(help="Grade only the first so many rollouts.", min=1)] = None,
) -> None:
    """Grade the rollouts of a file."""
    from judgekit.config import load_runner
    from judgekit.errors import ConfigError
    from judgekit.ledger.jsonl import json_line, read_rollouts, result_row, whole_file
    from judgekit.ledger.writer import Ledger

    if report is not None and ledger is None:
        raise ConfigError("--report is made from the ledger: give --ledger, too")
    batch = read_rollouts(rollouts, limit=limit)
    overrides = {} if ledger is None else {"ledger": Ledger(ledger, texts=True)}
    runner = load_runner(config, progress=sys.stderr.isatty(), **overrides)
    before = ledger.stat().st_size if ledger is not None and ledger.exists() else 0

    async def run() -> tuple[list[RewardResult], float]:
        try:
            await runner.start()
            start = time.perf_counter()
            return await runner.run(batch), time.perf_counter() - start
        finally:
            await runner.close()

    with whole_file(to) as file:
        if runner.has_judges:
            out.print("starting the judges (a local engine takes about half a minute) …")
        out.print(f"grading {len(batch)} rollouts with {', '.join(runner.graders)} …")
        results, seconds = asyncio.run(run())
        file.writelines(json_line(result_row(r, result)) for r, result in zip(batch, results, strict=True))
    _print_summary(runner.metrics, results, batch, seconds)
    out.print(f"\ngraded rollouts  {to}")
    if ledger is not None:
        more = " (appended to what was there)" if before else ""
        out.print(f"ledger           {ledger}{more}")
    if report is not None and ledger is not None:
        from judgekit.ledger.report import write_report

        write_report(ledger, report)
        out.print(f"report           {report}  (open it in a browser)")


@app.command("report")
def report_command(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; by default beside the ledger.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Show so many rollouts in full; failures first.", min=0)] = 300,
) -> None:
    """A self-contained HTML page about what was graded."""
    from judgekit.ledger.report import write_report

    target = to or ledger.with_suffix(".html")
    write_report(ledger, target, rows=rows)
    out.print(f"report  {target}  (open it in a browser)")


@app.command()
def replay(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit.")],
    to: Annotated[Path, typer.Option("--out", help="Where the new rewards go, as JSONL.")],
    config: Annotated[
        Path | None, typer.Option("--reward", help="A reward.yaml: its reward and runner sections count.")
    ] = None,
) -> None:
    """Compute the rewards of a ledger anew, without a call."""
    from judgekit.config import load_config
    from judgekit.ledger.jsonl import json_line, whole_file
    from judgekit.reward.spec import parse
    from judgekit.run.replay import replay as again

    options: dict[str, Any] = {}
    if config is not None:
        loaded = load_config(config)
        if loaded.reward is not None:
            options["reward"] = parse(loaded.reward)
        said = ("transform", "missing_reward")
        options |= {key: loaded.runner[key] for key in said if key in loaded.runner}
    found = again(ledger, **options)
    with whole_file(to) as file:
        for entry, result in zip(found.entries, found.results, strict=True):
            row = {
                "run": entry.run,
                "index": entry.index,
                "id": entry.id,
                "group": entry.group,
                "was": entry.reward,
            }
            row |= {"reward": result.reward, "status": result.status, "contributions": result.contributions}
            file.write(json_line(row))
    changed = sum(e.reward != r.reward for e, r in zip(found.entries, found.results, strict=True))
    out.print(f"{len(found.results)} rewards computed anew, {changed} of them changed")
    out.print(f"rewards  {to}")


@app.command()
def lint(config: Annotated[Path, typer.Argument(help="The reward.yaml.")]) -> None:
    """Check a reward.yaml: make everything that it names, and start nothing."""
    import logging

    from judgekit.config import load_runner

    class Warnings(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    found: list[str] = []
    library, handler = logging.getLogger("judgekit"), Warnings(logging.WARNING)
    before, library.propagate = library.propagate, False
    library.addHandler(handler)
    try:
        runner = load_runner(config)
    finally:
        library.removeHandler(handler)
        library.propagate = before
    for text in found:
        out.print(f"warning: {text}", markup=False, soft_wrap=True)
    low, high = runner.reward.bounds()
    out.print(f"{config}: {len(runner.graders)} graders, rewards from {low:g} to {high:g}", markup=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of reward.yaml, for editors."""
    import json

    from judgekit.cli.schema import reward_schema

    typer.echo(json.dumps(reward_schema(), indent=1, ensure_ascii=False))


@app.command()
def serve(
    engine: Annotated[
        str, typer.Option(help="ray: named actors in a Ray cluster; http: vLLM servers here.")
    ] = "http",
    model: Annotated[str, typer.Option(help="A folder, a hub name, or 'embedded'.")] = "embedded",
    name: Annotated[str, typer.Option(help="What the judge is called.")] = "judge",
    replicas: Annotated[int, typer.Option(help="Engines, each with the whole model.")] = 1,
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs of one engine.")] = 1,
    gpus: Annotated[
        float | None, typer.Option(help="ray: GPUs of one engine; a fraction shares one.")
    ] = None,
    port: Annotated[int, typer.Option(help="http: port of the first replica.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="LLM_JUDGE_SERVER_API_KEY", help="http: the key to ask for.")
    ] = None,
    address: Annotated[str, typer.Option(help="ray: the cluster's address.")] = "auto",
    python: Annotated[
        str | None,
        typer.Option(help="ray: the interpreter of another environment, by its path on every node."),
    ] = None,
    engine_arg: Annotated[
        list[str] | None, typer.Option(help="A further argument of vLLM, as key=value.")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Show the judges of this name.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the judges of this name.")] = False,
) -> None:
    """Start judges that others use, show them, or stop them."""
    from judgekit.errors import ConfigError

    extra = _engine_args(engine_arg or [])
    if engine == "http":
        _serve_http(model, name, replicas, tensor_parallel_size, port, api_key, extra, status, stop)
    elif engine == "ray":
        _serve_ray(model, name, replicas, tensor_parallel_size, gpus, address, python, extra, status, stop)
    else:
        raise ConfigError(f"serve: --engine is ray or http, not {engine!r}")


def _engine_args(given: Sequence[str]) -> dict[str, Any]:
    import yaml

    from judgekit.errors import ConfigError

    made: dict[str, Any] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(f"serve: --engine-arg is key=value, not {text!r}")
        made[key] = yaml.safe_load(value)
    return made


def _serve_http(
    model: str,
    name: str,
    replicas: int,
    tensor_parallel_size: int,
    port: int,
    api_key: str | None,
    extra: Mapping[str, Any],
    status: bool,
    stop: bool,
) -> None:
    import signal

    from judgekit.errors import ConfigError
    from judgekit.judges import serving

    if status:
        facts = serving.recall(name)
        out.print(
            f"no judge named {name} is served from here"
            if facts is None
            else f"{name}: {facts['model']} at {', '.join(facts['urls'])}"
        )
        return
    if stop:
        out.print(
            f"{name} is stopped"
            if serving.stop_remembered(name)
            else f"no judge named {name} is served from here"
        )
        return
    if serving.recall(name) is not None:
        raise ConfigError(
            f"serve: a judge named {name} is served already; stop it with --stop, or take another --name"
        )
    made = serving.http_replicas(
        model,
        name=name,
        replicas=replicas,
        tensor_parallel_size=tensor_parallel_size,
        port=port,
        api_key=api_key,
        engine_args=extra,
    )

    async def run() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, ended.set)
        out.print(
            f"starting {replicas} server(s) for {model} (logs: {', '.join(str(r.log) for r in made)}) …"
        )
        async with serving.kept_up(made, lambda text: out.print(text, markup=False)):
            state = serving.remember(name, made, model)
            out.print(serving.lines_to_paste("http", name=name, urls=[r.url for r in made]), markup=False)
            out.print("serving until interrupted")
            await ended.wait()
            state.unlink(missing_ok=True)

    asyncio.run(run())
    out.print("stopped")


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
    from judgekit.judges import serving
    from judgekit.judges.engines.ray import RayJudge, connect, start_ray_judge

    connect(address)
    judge = RayJudge(name)
    if status:
        rows = asyncio.run(judge.status())
        for row in rows:
            shown = (
                row.get("error")
                or f"{row['config']['options'].get('model')}, {row['in_flight']} in flight, {row['served']} served, pid {row['pid']}"
            )
            out.print(f"{row['actor']}: {shown}", markup=False)
        if not rows:
            out.print(f"no judge named {name} runs in this cluster")
        return
    if stop:
        out.print(f"{asyncio.run(judge.stop())} replica(s) of {name} stopped")
        return
    options = {"engine_args": dict(extra)} if extra else {}
    judge = start_ray_judge(
        model,
        name=name,
        replicas=replicas,
        tensor_parallel_size=tensor_parallel_size,
        gpus=gpus,
        lifetime="detached",
        options=options,
        python=python,
    )
    out.print(f"starting {replicas} replica(s) of {model} …")
    asyncio.run(judge.start())
    out.print(serving.lines_to_paste("ray", name=name), markup=False)


@app.command()
def check(
    target: Annotated[str, typer.Argument(help="A Ray judge's name, or a server's URL.")],
    model: Annotated[str | None, typer.Option(help="The model's name on a server that has several.")] = None,
    burst: Annotated[int, typer.Option(help="Verdicts asked for at once.", min=1)] = 64,
    address: Annotated[str, typer.Option(help="The Ray cluster's address.")] = "auto",
) -> None:
    """Ask a running judge for verdicts: is it there, what is it, how fast, does it share prefixes?"""
    from judgekit.errors import JudgeUnavailable
    from judgekit.judges import serving
    from judgekit.judges.base import Judge
    from judgekit.judges.engines.openai import OpenAIJudge
    from judgekit.judges.engines.ray import RayJudge, connect

    http = "/" in target or ":" in target
    if not http:
        connect(address)

    async def run() -> serving.CheckUp:
        judge: Judge = OpenAIJudge(target, model=model) if http else RayJudge(target)
        try:
            await judge.start()  # type: ignore[attr-defined]
            return await serving.check_up(judge, burst=burst)
        finally:
            await judge.close()  # type: ignore[attr-defined]

    found = asyncio.run(run())
    out.print(f"model       {found.model}", markup=False)
    out.print(f"verdicts    {found.verdict}")
    out.print(f"throughput  {found.per_second:.1f} verdicts/s in a burst of {burst}")
    out.print(f"prefix      {100 * found.cached:.0f} % of the prompt tokens came from the cache")
    if found.failures:
        raise JudgeUnavailable(f"some verdicts failed: {'; '.join(found.failures[:3])}")


def _print_summary(
    metrics: Metrics, results: Sequence[RewardResult], batch: Sequence[Rollout], seconds: float
) -> None:
    counts = metrics.counts
    failed = any(g.failed for g in counts.graders.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("grader", "graded", "mean", "std", "abstained", "skipped", "failed", "p50", "p95"):
        table.add_column(column, justify="left" if column == "grader" else "right", no_wrap=True)
    if failed:
        table.add_column("failures")
    for name, g in counts.graders.items():
        cells = [
            name,
            str(g.graded),
            _number(g.mean if g.graded else math.nan),
            _number(g.std),
            str(g.abstained),
            str(g.skipped),
            str(g.failed),
        ]
        cells += [_duration(metrics.percentile(name, 0.5)), _duration(metrics.percentile(name, 0.95))]
        if failed:
            cells.append(g.top_errors())
        table.add_row(*cells)
    out.print()
    out.print(table)
    rewards = [r.reward for r in results if r.reward is not None]
    statuses = ", ".join(f"{count} {status}" for status, count in counts.statuses.items())
    out.print(
        f"\n{len(results)} rollouts in {counts.groups} groups, {seconds:.1f} s: {statuses}", markup=False
    )
    if rewards:
        out.print(
            f"reward: mean {sum(rewards) / len(rewards):.3f}, {counts.flat_groups} zero-variance groups"
        )
        for line in histogram(rewards):
            out.print(line, markup=False)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def histogram(values: Sequence[float], bins: int = 10, width: int = 40) -> list[str]:
    """Lines of a bar chart of *values*."""
    low, high = min(values), max(values)
    if low == high:
        return [f"{low:8.3f}           {'█' * width} {len(values)}"]
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    step = (high - low) / bins
    top = max(counts)
    return [
        f"{low + i * step:8.3f} … {low + (i + 1) * step:<7.3f}{'█' * round(width * count / top)} {count}"
        for i, count in enumerate(counts)
    ]
