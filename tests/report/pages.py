"""What stands in a report, read as its own script reads it."""

from __future__ import annotations

import base64
import gzip
import re
from typing import Any

import msgspec


class Page:
    """A report's data."""

    def __init__(self, text: str) -> None:
        islands = dict(re.findall(r'<script type="application/octet-stream" id="([\w-]+)">([^<]*)<', text))
        unpacked = {
            name: msgspec.json.decode(gzip.decompress(base64.b64decode(data)))
            for name, data in islands.items()
        }
        self.data: dict[str, Any] = unpacked.pop("data")
        self.facts = self.data["facts"]
        self.rollouts: dict[int, Any] = {
            row: rollout
            for number, rows in enumerate(self.data["chunks"])
            for row, rollout in zip(rows, unpacked[f"chunk-{number}"], strict=True)
        }
        """By row, those whose texts are in the page."""
