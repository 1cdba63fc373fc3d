"""Registers judgekit with verl 0.9.1, which imports this through its `verl.plugins` entry points.

Makes `reward.reward_manager.name=judgekit` work without a module path. verl swallows errors raised here, so
they are logged.
"""

from __future__ import annotations

import logging

try:
    import judgekit_verl.manager  # noqa: F401, registers itself; it may be what imports verl
except Exception:
    logging.getLogger("judgekit").exception("judgekit could not register its reward manager with verl")
