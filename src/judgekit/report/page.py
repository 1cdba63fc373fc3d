"""The report: one HTML file that needs no network, with a ledger's columns and the texts of some thousand rollouts.

The page is the same that `judgekit view` serves (`assets/`). Texts that a policy wrote are untrusted: they travel as
compressed data, the script writes them as text nodes only, and the page's policy allows no script, style, image or
connection besides its own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from judgekit.errors import DataError
from judgekit.ledger.jsonl import encoded
from judgekit.ledger.output_files import whole_file
from judgekit.metrics import Signal, SignalLimits
from judgekit.report.audits import audits_of
from judgekit.report.costs import costs
from judgekit.report.formulas import with_formulas
from judgekit.report.marks import read_marks
from judgekit.report.table import Table
from judgekit.report.warnings import signals, to_json
from judgekit.types import Price, Rollout, policy_turns

ROWS = 5000
"""Rollouts whose texts a report holds."""
_CHUNK = 100
"""Rollouts that are decompressed together."""
_BYTES = 4_800_000
"""Size of the page beyond which no more texts are added: browsers and mail programs take it well."""
_LONGEST = 20_000
"""Longer texts are cut in the middle to this many characters."""
_SCRIPTS = ("charts", "query", "markdown", "overview", "runs", "report")
"""The last one starts the page."""
_FAILED_SHARE = 0.25
"""Share of the rollouts with texts that may be taken for their failures."""


def write_report(
    ledger: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    rows: int = ROWS,
    limits: SignalLimits | None = None,
    price: Price | None = None,
) -> None:
    """Write the page about *ledger* to *path*, with the texts of *rows* rollouts; *price* as in `render`.

    Raises DataError if the ledger cannot be read or has no rollouts.
    """
    table = whole_table(ledger)
    page = render(table, signals(table, limits), rows=rows, price=price)
    with whole_file(path) as file:
        file.write(page)


def render(
    table: Table,
    signals: Sequence[Signal],
    *,
    rows: int = ROWS,
    comparison: Mapping[str, Any] | None = None,
    price: Price | None = None,
) -> str:
    """Make the page. All rollouts are in its figures and its table, the texts of *rows* can be read in it.

    *price*: of judges whose price the ledger does not hold.

    These are taken by whole groups over the whole range of rewards, a quarter of them of groups with failures; fewer where
    the page would grow beyond some 5 MB.
    """
    chosen = _sample(table, rows)
    blocks = [_previewed(table.block(number), set(chosen)) for number in range(table.blocks)]
    data = {
        "facts": table.facts(),
        "signals": to_json(signals),
        "costs": costs(table, price),
        "marks": marks_of(table),
        "comparison": comparison,
        "audits": audits_of(table.path),
    }
    texts, chunks = [], []
    room = _BYTES - len(packed({**data, "blocks": blocks}))
    for i in range(0, len(chosen), _CHUNK):
        chunk = chosen[i : i + _CHUNK]
        while chunk and room > 0:
            text = packed([told(table.rollout(row)) for row in chunk])
            if len(text) <= room:
                room -= len(text)
                texts.append(text)
                chunks.append(chunk)
                break
            chunk = chunk[: len(chunk) // 2]
    with_texts = {row for chunk in chunks for row in chunk}
    blocks = [_previewed(block, with_texts) for block in blocks]
    islands = [
        ("data", packed({**data, "blocks": blocks, "chunks": chunks})),
        *((f"chunk-{i}", text) for i, text in enumerate(texts)),
    ]
    return shell(table.path.name, connect=False, islands=islands)


def whole_table(ledger: str | os.PathLike[str]) -> Table:
    """Read a ledger to its end. Raises DataError if there are no rollouts in it."""
    table = Table(ledger)
    table.read(end=True)
    if not table.rows:
        raise DataError(f"the ledger {ledger} holds no rollouts yet")
    return table


def marks_of(table: Table) -> list[dict[str, Any]]:
    """The marks of a ledger, for the page."""
    marks = read_marks(table.path, table.successors() if table.replaced else {})
    return [{**msgspec.to_builtins(mark), "run": run, "index": index} for (run, index), mark in marks.items()]


def shell(title: str, *, connect: bool, islands: Iterable[tuple[str, str]] = ()) -> str:
    """The page without or with its data. *connect*: it may fetch from where it came."""
    style, script = _asset("report.css"), _script()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        f"form-action 'none'" + ("; connect-src 'self'" if connect else "")
    )
    data = "\n".join(
        f'<script type="application/octet-stream" id="{name}">{text}</script>' for name, text in islands
    )
    parts = {"policy": policy, "title": html.escape(title), "style": style, "script": script, "data": data}
    # at once: a title or a script may have such a name in it
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("report.html"))


def _sample(table: Table, rows: int) -> list[int]:
    """Rows of whole groups: up to a quarter with failures, the others spread evenly over the groups' mean rewards."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row in table.shown():
        groups[table.codes["group"][row]].append(row)
    failed = [key for key, members in groups.items() if any(_failed(table, row) for row in members)]
    chosen: dict[int, Sequence[int]] = {}
    quarter = int(rows * _FAILED_SHARE)
    for key, members in groups.items():
        if len(members) > max(quarter, 1):  # rollouts without a prompt are one group, of any size
            groups[key] = members[:: -(-len(members) // max(quarter, 1))]
    left = _take(chosen, failed, groups, quarter)
    by_reward = sorted(
        (key for key in groups if key not in chosen), key=lambda key: _mean(table, groups[key])
    )
    _take(chosen, by_reward, groups, rows - quarter + left)
    keys = list(chosen)
    random.Random(0).shuffle(keys)  # so that what the page has no room for is not all of one kind
    return [row for key in keys for row in chosen[key]]


def _take(
    chosen: dict[int, Sequence[int]],
    keys: Sequence[int],
    groups: Mapping[int, Sequence[int]],
    room: int,
) -> int:
    """Choose of *keys* what has room, evenly spaced; returns the room that is left."""
    size = sum(len(groups[key]) for key in keys) / max(1, len(keys))
    count = max(1, min(len(keys), int(room / max(1, size))))
    spaced = [keys[round(i * (len(keys) - 1) / max(1, count - 1))] for i in range(count)] if keys else []
    for key in dict.fromkeys([*spaced, *keys]):
        if len(groups[key]) <= room:
            chosen[key] = groups[key]
            room -= len(groups[key])
    return room


def _previewed(block: dict[str, Any], rows: set[int]) -> dict[str, Any]:
    """The block with the previews of *rows* only."""
    first = block["start"]
    return {
        **block,
        "preview": [text if first + i in rows else "" for i, text in enumerate(block["preview"])],
    }


def _mean(table: Table, rows: Sequence[int]) -> float:
    values = [x for row in rows if (x := table.numbers["raw"][row]) == x]
    return sum(values) / len(values) if values else -float("inf")


def _failed(table: Table, row: int) -> bool:
    return any(column.error[row] >= 0 for column in table.graders.values())


def cut(value: Any, longest: int = _LONGEST, *, depth: int = 100) -> Any:
    """Return *value* with every text beyond *longest* characters cut in its middle, and nothing nested beyond *depth*."""
    if isinstance(value, str):
        if len(value) <= longest:
            return value
        half = longest // 2
        return (
            f"{value[:half]}\n[… {len(value) - longest} characters are only in the ledger …]\n{value[-half:]}"
        )
    if not isinstance(value, list | dict):
        return value
    if not depth:
        return "[… what lies deeper is only in the ledger …]"
    if isinstance(value, list):
        return [cut(item, longest, depth=depth - 1) for item in value]
    return {key: cut(item, longest, depth=depth - 1) for key, item in value.items()}


def told(rollout: dict[str, Any], longest: int = _LONGEST) -> dict[str, Any]:
    """Return a rollout as the page shows it: its texts cut, with its formulas, and with the turn that each message is of."""
    made = with_formulas(cut(rollout, longest))
    if not any(grade.get("turns") for grade in rollout.get("grades", {}).values()):
        return made
    messages = rollout.get("messages") or []
    places = policy_turns(Rollout(response="", prompt=rollout.get("prompt") or "", messages=messages))
    turn_of = {at: turn for turn, messages in enumerate(places) for at in messages}
    return {**made, "turn_of": [turn_of.get(at) for at in range(len(messages))]}


def packed(value: Any) -> str:
    """Return what an island of the page holds."""
    return base64.b64encode(gzip.compress(encoded(value), 9, mtime=0)).decode()


def _asset(name: str) -> str:
    return (files("judgekit.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    """The page's script, one function of its own names."""
    parts = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
