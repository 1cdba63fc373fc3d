"""`judgekit replay`: the rewards of a ledger under other weights, and failed grades asked again."""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from judgekit.cli.console import fail, not_kept, out, prints_aside, run, say

if TYPE_CHECKING:
    from judgekit.ledger.reader import Reading
    from judgekit.ledger.schema import Entry
    from judgekit.ledger.writer import Ledger
    from judgekit.replay import Again, Replay
    from judgekit.types import RewardResult


def replay(
    ledger: Annotated[Path, typer.Argument(help="A ledger written by judgekit: a file or a folder.")],
    to: Annotated[
        Path | None,
        typer.Option("--out", help="The file for the new rewards (JSON lines); - for standard output."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--reward",
            help="A reward.yaml. Its sections reward and runner and the key trust of its graders are used, and with --only failed all of graders and judges. transform, missing_reward and drop_if stay as the ledger has them where it leaves them out.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="failed: ask the failed grades again, with the graders of --reward; all others come from the ledger."
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--ledger", help="Keep all grades and new rewards in this new ledger, as for `judgekit compare`."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json_summary: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, and all else to stderr.")
    ] = False,
) -> None:
    """Recompute the rewards of a ledger. Without --only failed, no grader is asked."""
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import STDOUT, whole_file
    from judgekit.ledger.writer import Ledger

    _check(ledger, to, config, only, keep, force=force, json_summary=json_summary)
    if json_summary or to == STDOUT:
        out.file = sys.stderr
    kept = None if keep is None else Ledger(keep, texts=True)
    with prints_aside(out.file is sys.stderr):
        again = None if only is None or config is None else ask_again(ledger, config, kept)
        entries, results = (again.entries, again.results) if again else recomputed(ledger, config, kept)
    if to is not None:
        with whole_file(to) as file:
            for entry, result in zip(entries, results, strict=True):
                row = _row(entry, result)
                file.write(json_line(row if again is None else {**row, "grades": result.grades}))
    _tell(entries, results, again, to, as_json=json_summary)
    if lost := not_kept(kept, _ELSEWHERE):
        fail(lost, code=1)
    if again is not None and again.excess is not None:
        fail(again.excess, code=1)
    if not any(result.status == "scored" for result in results):
        fail("no rollout could be scored", code=1)


def _check(
    ledger: Path,
    to: Path | None,
    config: Path | None,
    only: str | None,
    keep: Path | None,
    *,
    force: bool,
    json_summary: bool,
) -> None:
    """Raise ConfigError if the options do not go together, or something cannot be written."""
    from judgekit.errors import ConfigError
    from judgekit.ledger.output_files import STDOUT, check_ledger, check_targets

    if only not in (None, "failed"):
        raise ConfigError(f"replay: --only is failed, not {only!r}")
    if only is not None and config is None:
        raise ConfigError("replay: --only failed asks graders again: give --reward, a reward.yaml")
    if to is not None and to != STDOUT and to.suffix not in ("", ".jsonl", ".ndjson"):
        raise ConfigError(f"replay: {to}: JSON lines are written: end the name with .jsonl")
    if json_summary and to == STDOUT:
        raise ConfigError("--json and --out - both write to standard output: give --out a file")
    check_targets([to], inputs=[ledger, config, keep], force=force)
    if keep is not None:
        check_ledger(keep, inputs=[ledger, *([config] if config else [])])


_ELSEWHERE = "make room, and replay again into another ledger"


def recomputed(
    ledger: Path, config: Path | None, kept: Ledger | None
) -> tuple[Sequence[Entry], Sequence[RewardResult]]:
    """Recompute the rewards from the ledger's grades alone; writes them to *kept*, and closes it."""
    return _written(_replayed(ledger, config), kept)


def _written(found: Replay, kept: Ledger | None) -> tuple[Sequence[Entry], Sequence[RewardResult]]:
    if kept is not None:
        found.write(kept)
        kept.close()
    return found.entries, found.results


def _lacks(result: RewardResult) -> bool:
    """Whether the reward needs a grade that was not asked for when the ledger was written."""
    from judgekit.types import Failed

    return any(isinstance(grade, Failed) and grade.error == "NotRecorded" for grade in result.grades.values())


def _replayed(ledger: Path, config: Path | None) -> Replay:
    from judgekit.cli.logs import diverted
    from judgekit.config import load_config
    from judgekit.errors import ConfigError
    from judgekit.ledger.reader import read_ledger
    from judgekit.replay import replay as recompute
    from judgekit.reward.spec import parse

    options: dict[str, Any] = {}
    reading: Any = ledger
    if config is not None:
        loaded = load_config(config)
        reading = read_ledger(ledger, replaced=True)
        graded = {name: one for spec in reading.specs.values() for name, one in spec.graders.items()}
        try:
            if loaded.reward is not None:
                options["reward"] = parse(loaded.reward)
            settings = loaded.runner_settings()
            options["trust"] = loaded.trusts(graded)
        except ConfigError as error:
            raise ConfigError(f"{config}: {error}") from None
        options |= {key: settings[key] for key in _KEPT if key in settings}
        _tell_kept(config, _left_out(settings, reading))
        if other := _set_otherwise(loaded.fingerprints(), reading):
            say(
                f"warning: {config} has other settings of {', '.join(other)} than the ledger's grades are of; these are paid as they are: "
                "judgekit grade asks again"
            )
    with diverted() as warnings:
        found = recompute(reading, **options)
    for text in _alike(warnings):
        say(f"warning: {text}")
    return found


_KEPT = ("transform", "missing_reward", "drop_if")
"""Settings of the runner that stay as the ledger has them where the file leaves them out: a trainer may have set them."""


def _left_out(settings: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Return the ledger's own settings where the file has none."""
    spec = next(
        (spec for one in reversed(reading.entries) if (spec := reading.specs.get(one.spec)) is not None), None
    )
    return {} if spec is None else {key: getattr(spec, key) for key in _KEPT if key not in settings}


def _tell_kept(config: Path, kept: Mapping[str, Any]) -> None:
    """Say which of these settings are no defaults."""
    from judgekit.run.settings import Settings

    if told := [f"{key}: {value}" for key, value in kept.items() if value != getattr(Settings(), key)]:
        say(f"{', '.join(told)}, as the ledger has it: {config} does not say")


def _set_otherwise(fingerprints: Mapping[str, str], reading: Reading) -> list[str]:
    """Return the graders of a reward.yaml whose settings, as far as the ledger tells, are not those that it was written with."""
    graders = [
        (key.partition(".")[0], one) for spec in reading.specs.values() for key, one in spec.graders.items()
    ]
    return list(
        dict.fromkeys(
            name
            for name, one in graders
            if one.fingerprint and fingerprints.get(name, one.fingerprint) != one.fingerprint
        )
    )


def _alike(warnings: Sequence[str]) -> Iterator[str]:
    """Yield the warnings, those that differ in figures only once: a ledger of many steps repeats them for each."""
    kinds: dict[str, list[str]] = {}
    for text in warnings:
        kinds.setdefault(re.sub(r"\d[\d.,]*", "#", text), []).append(text)
    for first, *others in kinds.values():
        yield f"{first} (and in {len(others)} other steps, with other figures)" if others else first


def ask_again(ledger: Path, config: Path, kept: Ledger | None, *, new: bool = False) -> Again:
    """Ask the failed grades again, and with *new* those that the ledger lacks; all others come from it."""
    from judgekit.config import load_config, load_runner
    from judgekit.errors import ConfigError
    from judgekit.ledger.reader import read_ledger
    from judgekit.replay import Again, FailedOnce

    reading = read_ledger(ledger)
    loaded = load_config(config)
    try:
        settings = loaded.runner_settings()
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None
    left_out = _left_out(settings, reading)
    runner = load_runner(config, progress=True, ledger=kept, **left_out)
    work = FailedOnce(reading, runner, new=new)
    if work.changed:
        say(
            f"warning: {', '.join(work.changed)}: the ledger's grades are of other settings; what is asked now stands beside them"
        )
    if not (work.failed or new):
        replayed = _replayed(ledger, config)
        if not any(_lacks(result) for result in replayed.results):
            say("the ledger holds no failed grades: nothing to ask again")
            return Again(*_written(replayed, kept), asked=0, still_failed=0)

    _tell_kept(config, left_out)

    async def ask() -> Again:
        try:
            say(
                "asking for what the ledger lacks …"
                if new
                else f"asking again about {work.failed} rollouts …"
                if work.failed
                else "asking for the grades that the reward needs now …"
            )
            await runner.start()
            return await work.ask()
        finally:
            with anyio.CancelScope(shield=True):  # SIGTERM still ends the judges and flushes the ledger
                await runner.close()

    def ended() -> str:
        if kept is None:
            return "stopped: nothing was written"
        return f"stopped: {not_kept(kept, _ELSEWHERE) or f'what was asked is in {kept.path}'}"

    return run(ask, signal.SIGTERM, ended=ended)


def _row(entry: Entry, result: RewardResult) -> dict[str, Any]:
    return {
        "run": entry.run,
        "index": entry.index,
        "id": entry.id,
        "group": entry.group,
        "was": entry.reward,
        "reward": result.reward,
        "status": result.status,
        "contributions": result.contributions,
        **({"turns": result.turns} if result.turns else {}),
    }


def _tell(
    entries: Sequence[Entry],
    results: Sequence[RewardResult],
    again: Again | None,
    to: Path | None,
    *,
    as_json: bool,
) -> None:
    from judgekit.cli.summary import problems, scored
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import STDOUT

    changed = sum(e.reward != r.reward for e, r in zip(entries, results, strict=True))
    rewards = scored(results)
    if as_json:
        told: dict[str, Any] = {
            "rollouts": len(results),
            "changed": changed,
            "statuses": dict(Counter(result.status for result in results)),
            "reward_mean": sum(rewards) / len(rewards) if rewards else None,
            "problems": list(problems(results)),
        }
        if again is not None:
            told |= {"asked_again": again.asked, "still_failed": again.still_failed}
        sys.stdout.write(json_line(told))
        return
    if again is not None:
        say(f"{again.asked} rollouts asked about again, {again.still_failed} still with a failed grade")
        for line in problems(results):
            say(line)
    say(f"{len(results)} rewards recomputed, {changed} changed")
    if to not in (None, STDOUT):
        say(f"rewards  {to}")
