"""What rows without a reward do to verl's learning rate, as docs say it."""

from __future__ import annotations

import pytest

from losses import AGGREGATIONS, LOSSES, rate

BY_ROWS = ("geo_mean", "sapo")
"""Losses that are means over rows, whatever is written."""


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("mode", LOSSES)
def test_the_factor_is_the_share_of_rows_that_are_trained_on(mode: str, aggregation: str) -> None:
    found = rate(mode, aggregation)
    by_rows = mode in BY_ROWS or aggregation.startswith("seq-mean")
    assert found.rate == pytest.approx(found.live if by_rows else 1.0, abs=1e-6)
    assert found.shape_error <= 1e-6
