"""What README and docs claim is held by a test or by a benchmark's goal: tests/claims.toml says which."""

from __future__ import annotations

from typing import Any

import pytest
from claims import PAGES, ROOT, names_in, plain, unheld


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page["name"])
def test_each_claim_stands_on_its_page_and_is_held(page: dict[str, Any]) -> None:
    text = plain((ROOT / page["name"]).read_text("utf-8"))
    for says, *held in page["claims"]:
        assert says in text, f"{page['name']} does not say this any more: {says}"
        assert held, says
        for place in held:
            path, name = place.split("::")
            assert name in names_in(ROOT / path), f"{place} is not there; it held: {says}"
    for says in page.get("said", ()):
        assert says in text, f"{page['name']} does not say this any more: {says}"


@pytest.mark.parametrize("name", sorted(str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("adapters/*/README.md")]))  # fmt: skip
def test_no_page_claims_what_nothing_holds(name: str) -> None:
    assert not unheld(name)
