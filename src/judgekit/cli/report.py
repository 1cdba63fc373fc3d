"""`judgekit report` and `judgekit view`: looking at a ledger."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from judgekit.cli.console import out, run, say
from judgekit.errors import ConfigError
from judgekit.metrics import SignalLimits

Ledger = Annotated[Path, typer.Argument(help="A ledger written by judgekit: a file or a folder.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
LimitsFile = Annotated[
    Path | None,
    typer.Option(
        "--limits",
        help="A YAML file with limits of signals, such as length: 0.4, or a reward.yaml with runner: {signals: …}.",
    ),
]
PriceIn = Annotated[
    float | None,
    typer.Option(
        help="US dollars per million prompt tokens, of judges whose price the ledger does not hold.", min=0
    ),
]
PriceOut = Annotated[float | None, typer.Option(help="… per million tokens that they write.", min=0)]
PriceCached = Annotated[
    float | None,
    typer.Option(
        help="… per million prompt tokens from the prompt cache; by default as much as others.", min=0
    ),
]


def report(
    ledger: Ledger,
    to: Annotated[
        Path | None,
        typer.Option("--out", help="The HTML file, by default beside the ledger; - for standard output."),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            help="Rollouts whose texts the page holds: whole groups, over the whole range of rewards.", min=0
        ),
    ] = 5000,
    limits: LimitsFile = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    force: Force = False,
    json_summary: Annotated[
        bool,
        typer.Option("--json", help="Print statuses, signals and costs as JSON, and all else to stderr."),
    ] = False,
) -> None:
    """Write a self-contained HTML page about a ledger; about several, if it is a folder of such folders."""
    from judgekit.ledger.jsonl import json_line
    from judgekit.ledger.output_files import STDOUT, check_targets, whole_file
    from judgekit.report.costs import costs
    from judgekit.report.page import render, whole_table
    from judgekit.report.runs import ledgers_in, render_runs
    from judgekit.report.warnings import signals, to_json

    name = f"{ledger.resolve().name}.html" if ledger.is_dir() else f"{ledger.stem}.html"
    target = to or ledger.parent / name
    check_targets([target], inputs=[ledger], force=force)
    price = _price(price_in, price_out, price_cached)
    if json_summary and target == STDOUT:
        raise ConfigError("--json and --out - both write to standard output: give --out a file")
    if json_summary or target == STDOUT:
        out.file = sys.stderr
    several = ledgers_in([ledger])
    if len(several) > 1:
        page = render_runs(several, ledger.resolve().name, limits=read_limits(limits), price=price)
        with whole_file(target) as file:
            file.write(page)
        if json_summary:
            sys.stdout.write(json_line({"report": str(target), "ledgers": [str(path) for path in several]}))
        elif target != STDOUT:
            say(f"report  {target}  ({len(several)} runs; open it in a browser)")
        return
    table = whole_table(several[0])
    found = signals(table, read_limits(limits))
    with whole_file(target) as file:
        file.write(render(table, found, rows=rows, price=price))
    tell_torn(table)
    for one in found:
        if one.raised:
            say(f"signal  {one.text}")
    if json_summary:
        rows_of = Counter(map(table.status, table.shown()))
        told: dict[str, Any] = {
            "report": str(target),
            "rollouts": rows_of.total(),
            "statuses": dict(rows_of),
            "skipped_lines": len(table.torn),
            "signals": to_json(found),
            "costs": costs(table, price),
        }
        sys.stdout.write(json_line(told))
    elif target != STDOUT:
        say(f"report  {target}  (open it in a browser)")


def view(
    ledgers: Annotated[
        list[Path],
        typer.Argument(
            help="A ledger written by judgekit: a file or a folder; several, or a folder of such folders, are shown as runs."
        ),
    ],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any free one.", min=0, max=65535)] = 0,
    limits: LimitsFile = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Look at a ledger of any size in the browser, live while a run writes to it; or at several together.

    The page is served on 127.0.0.1 only. On a machine elsewhere: ssh -L PORT:127.0.0.1:PORT, with --port PORT.
    """
    import tempfile
    import webbrowser

    from judgekit.errors import DataError
    from judgekit.report.runs import Runs, ledgers_in
    from judgekit.report.view import View

    for path in ledgers:
        if not path.exists():
            raise DataError(f"cannot read {path}: there is no such file")
    found = ledgers_in(ledgers)
    given, price = read_limits(limits), _price(price_in, price_out, price_cached)
    server: View | Runs = (
        View(found[0], limits=given, price=price)
        if len(found) == 1
        else Runs(found, limits=given, price=price)
    )

    async def serve() -> None:
        async with server.served(port) as url:
            say(f"{found[0] if len(found) == 1 else f'{len(found)} runs'}: {url}   (Ctrl-C ends)")
            with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:  # which only its owner can read
                if browser:
                    # a browser's arguments are seen by all users of the machine: the address goes in a file
                    page = Path(folder) / "view.html"
                    page.write_text(f'<meta http-equiv="refresh" content="0;url={url}">')
                    await anyio.to_thread.run_sync(webbrowser.open, page.as_uri(), abandon_on_cancel=True)
                await anyio.sleep_forever()

    run(serve, signal.SIGTERM)


def tell_torn(table: Any) -> None:
    """Warn of lines that were skipped."""
    if table.torn:
        say(f"warning: {table.path}: skipped {len(table.torn)} line(s), the first is line {table.torn[0]}")


def _price(given_in: float | None, given_out: float | None, cached: float | None) -> Any:
    """The price in the options; None without them."""
    from judgekit.types import Price

    if given_in is None and given_out is None and cached is None:
        return None
    if given_in is None or given_out is None:
        raise ConfigError("a price has two parts: give --price-in and --price-out")
    return Price(given_in, given_out, cached)


def read_limits(path: Path | None) -> SignalLimits | None:
    """The limits in a YAML file, or in a reward.yaml; None without one. Raises ConfigError for a name or a value that is none."""
    import msgspec

    from judgekit.config import load_config
    from judgekit.strict_yaml import read_yaml

    if path is None:
        return None
    found = read_yaml(path)
    if isinstance(found, dict) and "graders" in found:
        given: SignalLimits | None = load_config(path).runner_settings().get("signals")
        return given
    try:
        return msgspec.convert(found, SignalLimits)
    except msgspec.ValidationError as error:
        known = ", ".join(SignalLimits.__struct_fields__)
        raise ConfigError(f"{path}: {error}; limits are {known}") from None
