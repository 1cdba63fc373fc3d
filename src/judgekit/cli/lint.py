"""`judgekit lint` and `judgekit schema`: checks of reward.yaml that start nothing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli.console import say


def lint(config: Annotated[Path, typer.Argument(help="The reward.yaml.")]) -> None:
    """Check a reward.yaml without starting its judges."""
    from judgekit.cli.logs import diverted
    from judgekit.config import load_runner
    from judgekit.judges import VLLMJudge

    with diverted() as warnings:
        runner = load_runner(config)
    for text in warnings:
        say(f"warning: {text}")
    if any(isinstance(judge.engine, VLLMJudge) for judge in runner.resources) and find_spec("vllm") is None:
        say("note: vLLM is not installed here, and engine: vllm needs it: pip install 'judgekit-rl[vllm]'")
    low, high = runner.reward.bounds()
    count = len(runner.graders)
    say(f"{config}: {count} grader{'s' if count > 1 else ''}, rewards from {low:g} to {high:g}")


def schema() -> None:
    """Print the JSON Schema of reward.yaml, for editors."""
    import json

    from judgekit.cli.json_schema import reward_schema

    typer.echo(json.dumps(reward_schema(), indent=1, ensure_ascii=False))
