"""What users can write: counted, so that one more is a visible choice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import typer.main

import judgekit
from judgekit.cli import app

SCHEMA = Path(__file__).parents[1] / "docs" / "reward.schema.json"


def names_in(schema: Any) -> Iterator[str]:
    """Yield the names of all properties in a JSON schema."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for value in schema.values():
            yield from names_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from names_in(value)


def public_names() -> Iterator[str]:
    """Yield what `judgekit` and its packages export."""
    for package in (
        judgekit,
        *(import_module(f"judgekit.{found.name}") for found in iter_modules(judgekit.__path__)),
    ):
        yield from getattr(package, "__all__", ())


def test_options_are_counted() -> None:
    """Of reward.yaml, of the commands, and public names. Raise a number only with a sentence that says why none went.

    `init --data` answers what `--task` and `grade --map` ask; both stay for whoever knows better. Six options and six names are those of
    `judgekit attack`: nothing else tells what a reward pays. `grade --record` makes what tests replay; `compare --reward` takes the
    place of a replay into a second ledger, and `--grade` that of a second run. `judgekit export` has the --force of all that
    write a file, and no other. `judgekit certify` has four: which grader, whose labels, and where to write.
    Its arithmetic has two public names, which take other people's labels.
    `attack` has --calls and --record, for judges cost money, and --ledger, so that the page shows an attack as it shows a run.
    An audit's alarm is an error of its own, which trainers catch; adapters run audits by one name.
    `trust` of a grader has three keys, and goes with every grader instead of a kind of judge of its own.
    `Turns` is a leaf of the tree: nothing else says which turn earned a part of the reward; `per` asks a rule for its turns, and
    costs those who do not ask nothing. `JudgeTurns` asks about each turn, which no template of `judge` can.
    Four names place rewards in a trainer's tokens, once for all adapters.
    `judgekit audit` has eight: the file, the three keys of its section `audit` that one tries out, beside a training or after it, and where to
    write; the section has seven, for a run that is watched from its start. `Alarm` is its arithmetic, for loops of one's own.
    `flat`, `share` and `spread` are what conditions say of a group, in Python; in text they cost no name.
    `rounds` of `pairwise` takes the place of `opponents` and `both_orders`. `drop_if` is a setting of the runner, for no trainer drops by what judgekit pays.
    `RewardConfig` counts since config is a package, which says what it exports.
    """
    commands: Any = typer.main.get_command(app)
    options = {
        (name, option)
        for name, command in commands.commands.items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }
    counts = {
        "names in reward.yaml": len(set(names_in(json.loads(SCHEMA.read_text())))),
        "public names": len(set(public_names())),
        "options of commands": len(options),
    }
    assert counts == {"names in reward.yaml": 269, "public names": 192, "options of commands": 97}
