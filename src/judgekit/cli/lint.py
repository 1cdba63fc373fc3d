"""`judgekit lint` and `judgekit schema`: checks of reward.yaml that start nothing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli.console import many, say
from judgekit.errors import ConfigError


def lint(
    config: Annotated[Path, typer.Argument(help="The reward.yaml.")],
    rollouts: Annotated[
        Path | None,
        typer.Argument(help="Some rows of your data: graders that would abstain on all of them are told."),
    ] = None,
) -> None:
    """Check a reward.yaml without starting its judges."""
    from judgekit.cli.logs import diverted
    from judgekit.cli.look import look
    from judgekit.config import load_config
    from judgekit.errors import MissingExtra
    from judgekit.run.findings import findings

    loaded = load_config(config)
    vllm = find_spec("vllm") is None and any(spec.get("engine") == "vllm" for spec in loaded.judges.values())
    try:
        with diverted() as warnings:
            runner = loaded.build()
            if (audit := loaded.audit_settings()) is not None:
                loaded.audit_runner(audit.grader)
    except MissingExtra as error:
        also = [MissingExtra("engine: vllm needs vllm", "vllm")] if vllm else []
        everything = MissingExtra.all_of([error, *also])
        raise MissingExtra(f"{config}: {everything.reason}", everything.extra) from None
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None
    looked_at = [] if rollouts is None else look(rollouts).rollouts
    for text in [*warnings, *(f"reward: {text}" for text in findings(runner, looked_at))]:
        say(f"warning: {text}")
    if vllm:
        say("note: vLLM is not installed here, and engine: vllm needs it: pip install 'judgekit-rl[vllm]'")
    low, high = runner.reward.bounds()
    say(f"{config}: {many(len(runner.graders), 'grader')}, rewards from {low:g} to {high:g}")


def schema() -> None:
    """Print the JSON Schema of reward.yaml, for editors."""
    import json

    from judgekit.cli.json_schema import reward_schema

    typer.echo(json.dumps(reward_schema(), indent=1, ensure_ascii=False))
