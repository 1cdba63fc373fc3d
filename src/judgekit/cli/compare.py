"""`judgekit compare`: what another reward, or another judge, does to the same rollouts, and to the gradient."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgekit.cli.console import fail, many, not_kept, out, prints_aside, say
from judgekit.cli.report import Force, LimitsFile, read_limits, tell_torn

if TYPE_CHECKING:
    from judgekit.ledger.schema import Entry
    from judgekit.types import RewardResult


def compare(
    before: Annotated[Path, typer.Argument(help="A ledger written by judgekit: a file or a folder.")],
    after: Annotated[Path | None, typer.Argument(help="A later ledger of the same rollouts.")] = None,
    reward: Annotated[
        list[Path] | None,
        typer.Option(
            help="A reward.yaml, in the place of AFTER: what it pays for BEFORE's grades. May be given several times."
        ),
    ] = None,
    grade: Annotated[
        bool,
        typer.Option(
            "--grade", help="Ask the graders of --reward for what BEFORE lacks: new graders, and failures."
        ),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the report of the later side, with the comparison, to this HTML file."
        ),
    ] = None,
    limits: LimitsFile = None,
    force: Force = False,
    json_summary: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two ledgers, or a ledger with other rewards: rewards, grades, and what becomes of GRPO's advantages."""
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import STDOUT, whole_file
    from judgekit.report.comparison import comparison
    from judgekit.report.page import render, whole_table
    from judgekit.report.warnings import signals

    rewards = reward or []
    _check(before, after, rewards, to, grade=grade, force=force, json_summary=json_summary)
    given = read_limits(limits)
    if json_summary or to == STDOUT:
        out.file = sys.stderr
    found: list[dict[str, Any]] = []
    page = ""
    with prints_aside(out.file is sys.stderr):
        earlier = whole_table(before)
        tell_torn(earlier)
        for path, name in _later(before, after, rewards, grade=grade):
            with path as ledger:
                later = whole_table(ledger)
                tell_torn(later)
                found.append(
                    {"reward": name, **comparison(earlier, later)} if name else comparison(earlier, later)
                )
                if to is not None:
                    page = render(later, signals(later, given), comparison=found[-1])
    if to is not None:
        with whole_file(to) as file:
            file.write(page)
    if json_summary:
        sys.stdout.write(json_line(found[0] if len(found) == 1 else {"rewards": found}))
    elif to != STDOUT:
        _print(found[0]) if len(found) == 1 else _print_several(found)
        if to is not None:
            say(f"report  {to}  (open it in a browser)")


def _check(
    before: Path,
    after: Path | None,
    rewards: Sequence[Path],
    to: Path | None,
    *,
    grade: bool,
    force: bool,
    json_summary: bool,
) -> None:
    """Raise ConfigError if the arguments do not go together, or something cannot be written."""
    from judgekit.errors import ConfigError
    from judgekit.ledger.output_files import STDOUT, check_targets

    if (after is None) == (not rewards):
        raise ConfigError(
            "compare: give a second ledger, or --reward, a reward.yaml that is to pay for the first one's grades"
            + ("" if after is None else ": not both")
        )
    if grade and not rewards:
        raise ConfigError("compare: --grade asks the graders of a reward.yaml: give --reward")
    if to is not None and len(rewards) > 1:
        raise ConfigError("compare: --out writes the page of one comparison: give one --reward")
    if json_summary and to == STDOUT:
        raise ConfigError("--json and --out - both write to standard output: give --out a file")
    if to is not None:
        check_targets([to], inputs=[before, after, *rewards], force=force)


def _later(
    before: Path, after: Path | None, rewards: Sequence[Path], *, grade: bool
) -> Iterator[tuple[Any, str]]:
    """Yield a context with the later ledger for each comparison, and the name of its reward."""
    if after is not None:
        yield nullcontext(after), ""
    for config in rewards:
        yield _repaid(before, config, grade=grade), str(config)


@contextmanager
def _repaid(before: Path, config: Path, *, grade: bool) -> Iterator[Path]:
    """A ledger of what another reward pays for the grades of *before*, for as long as it is compared."""
    from judgekit.cli.replay import ask_again, recomputed
    from judgekit.ledger.writer import Ledger

    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        path = Path(folder) / f"{config.stem}.jsonl"
        kept = Ledger(path, texts=True)
        if grade:
            again = ask_again(before, config, kept, new=True)
            kept.close()
            if again.still_failed:
                say(
                    f"warning: {many(again.still_failed, 'rollout')} still with a failed grade: {config} cannot pay it"
                )
        else:
            _check_graded(config, *recomputed(before, config, kept))
        if lost := not_kept(kept, f"make room in {folder}"):
            fail(lost, code=1)  # what is left would be compared as if it were all
        yield path


def _check_graded(config: Path, entries: Sequence[Entry], results: Sequence[RewardResult]) -> None:
    """Raise DataError if the reward needs grades that its rollouts were not asked for: they would count as missing."""
    from judgekit.errors import DataError
    from judgekit.types import Failed, Skipped

    lacking: Counter[str] = Counter()
    gates: dict[str, str] = {}
    for entry, result in zip(entries, results, strict=True):
        for name, one in result.grades.items():
            if isinstance(one, Failed) and one.error == "NotRecorded":
                lacking[name] += 1
                skipped = entry.grades.get(name)
                if isinstance(skipped, Skipped):
                    gates.setdefault(name, skipped.gate)
    if lacking:
        name, n = lacking.most_common(1)[0]
        why = f", whose gate there ({gates[name]}) was not passed" if name in gates else ""
        raise DataError(
            f"{config}: the ledger holds no grade of {name!r} for {n} of {len(entries)} rollouts{why}, and this reward needs "
            "it: judgekit compare --grade asks for it"
        )


def _print(found: Mapping[str, Any]) -> None:
    sides = _table("", "ledger", "rollouts", "mean raw reward", "missing", "unfinished", left=2)
    for which in ("before", "after"):
        side = found[which]
        sides.add_row(
            which,
            side["ledger"],
            str(side["rollouts"]),
            _number(side["reward_mean"]),
            str(side["missing"]),
            str(side["unfinished"]),
        )
    out.print(sides)
    if not found["pairs"]:
        say("\nno rollout is in both: their ids, groups or texts differ")
        return
    raw = found["raw_rewards_changed"]
    note = "" if raw == found["rewards_changed"] else f", {raw} of them also before transforms and fills"
    say(f"\n{found['pairs']} rollouts are in both; {found['rewards_changed']} rewards changed{note}")
    graders = _table(
        "grader", "graded in both", "before", "after", "correlation", "moved", "kind changed", left=1
    )
    for name, g in found["graders"].items():
        graders.add_row(
            name,
            str(g["both_graded"]),
            *(_number(g[key]) for key in ("mean_before", "mean_after", "correlation")),
            str(g["scores_moved"]),
            str(g["kinds_changed"]),
        )
    out.print(graders)
    _print_gradient(found["gradient"])


def _print_gradient(found: Mapping[str, Any]) -> None:
    if not found["groups"]:
        say("\nno two rollouts of a group are in both: a gradient needs groups")
        return
    of = [f"{source} {_number(cosine)}" for source, cosine in found["cosine_by_source"].items()]
    by_source = f" ({', '.join(of)})" if len(of) > 1 else ""
    say(
        f"\ngradient: cosine of GRPO's advantages {_number(found['cosine'])}{by_source}, over {found['groups']} groups\n"
        f"  best member changes in {found['best_changed']}\n"
        f"  flat {found['flat_before']} before, {found['flat_after']} after: {found['became_flat']} become flat, "
        f"{found['stopped_being_flat']} stop being flat"
    )
    if not found["most"]:
        return
    say("\ngroups whose advantages change most, and the rollout in each that moves most")
    groups = _table("group", "source", "cosine", "rollout", "reward", "advantage", left=2)
    for group in found["most"]:
        at = next(m for m in group["members"] if m["row"] == group["explained"]["row"])
        groups.add_row(
            str(group["group"]),
            group["source"],
            _number(group["cosine"]),
            at["id"] or str(at["row"]),
            " → ".join(map(_number, at["rewards"])),
            " → ".join(f"{x:+.2f}" for x in at["advantages"]),
        )
    out.print(groups)
    first = found["most"][0]["explained"]
    say(f"\nthe first of them, before:\n{first['before']}\nafter:\n{first['after']}")


def _print_several(found: Sequence[Mapping[str, Any]]) -> None:
    before = found[0]["before"]
    say(
        f"{before['ledger']}: {before['rollouts']} rollouts, mean raw reward {_number(before['reward_mean'])}\n"
    )
    rows = _table(
        "reward",
        "mean raw reward",
        "rewards changed",
        "cosine",
        "best changes",
        "become flat",
        "stop being flat",
        left=1,
    )
    for one in found:
        gradient = one["gradient"]
        rows.add_row(
            one["reward"],
            _number(one["after"]["reward_mean"]),
            str(one["rewards_changed"]),
            _number(gradient["cosine"]),
            *(str(gradient[key]) for key in ("best_changed", "became_flat", "stopped_being_flat")),
        )
    out.print(rows)


def _table(*columns: str, left: int) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
