"""What README and docs claim, and what holds it: `make claims` counts them, and exits with 1 where nothing holds one.

tests/claims.toml has the claims, each with the tests or the benchmarks' goals that hold it. A claim is a sentence or a
table's row with "never" or "always", in the README also one with a figure, and each measured row of docs/benchmarks.md.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "claims.toml").read_text("utf-8"))["page"]
WORDS = re.compile(r"\b(never|always)\b", re.IGNORECASE)
FIGURE = re.compile(r"\d")
NO_CLAIM = re.compile(r"\d\.|\[[^]]*\]\([^)]*\)\.?|Apache-2\.0\.")
"""A number of a list, a link alone, the licence's name."""


def plain(text: str) -> str:
    """A page in one line, without its code."""
    return re.sub(r"\s+", " ", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def claims_of(name: str) -> Iterator[str]:
    """Yield each sentence and row of a page that claims something: "never" or "always", in the README also a figure."""
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|#]|\d\. )", text):
        row = paragraph.startswith("|")
        for sentence in [paragraph] if row else re.split(r"(?<=[.:!?])\s+", paragraph):
            said = plain(sentence).strip()
            if NO_CLAIM.fullmatch(said):
                continue
            figure = name == "README.md" and FIGURE.search(re.sub(r"\([^)]*\)", "", said))
            measured = name == "docs/benchmarks.md" and row and FIGURE.search(said.rsplit("|", 2)[-2])
            if WORDS.search(said) or figure or measured:
                yield said


@functools.cache
def names_in(path: Path) -> set[str]:
    """The functions of a test, or the keys of a benchmark's dictionaries and the parts of names it makes."""
    tree = ast.parse(path.read_text("utf-8"))
    if path.name.startswith("test_"):
        return {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def unheld(name: str) -> list[str]:
    known = [
        says
        for page in PAGES
        if page["name"] == name
        for says in [*(c[0] for c in page["claims"]), *page.get("said", ())]
    ]
    return [said for said in claims_of(name) if not any(says in said or said in says for says in known)]


def main() -> None:
    """`make claims`: how many there are, and which nothing holds."""
    missing = {page["name"]: found for page in PAGES if (found := unheld(page["name"]))}
    for name, found in missing.items():
        print(name, *found, sep="\n  ")
    claims = sum(len(page["claims"]) for page in PAGES)
    print(json.dumps({"claims": claims, "unheld": sum(map(len, missing.values()))}))
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
