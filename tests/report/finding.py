"""Searching a table as the server does, with and without its index."""

from __future__ import annotations

from contextlib import closing

from judgekit.report.search import Texts, Wanted, matching
from judgekit.report.table import Table


def found(table: Table, wanted: Wanted, first_row: int = 0) -> list[int]:
    """Return the rows; the index must make no difference to them."""
    results = []
    for indexed in (True, False):
        with closing(Texts()) as texts:
            if indexed:
                texts.follow(table)
            rows = texts.rows(table, wanted, first_row)
        results.append(matching([(row, table.place(row)) for row in rows], wanted) if wanted.regex else rows)
    assert results[0] == results[1]
    return results[0]


def matching_rows(table: Table, text: str, first_row: int = 0) -> list[int]:
    return found(table, Wanted(text), first_row)
