"""What verl 0.9.1 imports through its `verl.plugins` entry points, inside `import verl`.

It makes `reward.reward_manager.name=judgekit` work without a module path. verl swallows what goes wrong
here, so the reason is logged.
"""

from __future__ import annotations

import logging

try:
    import judgekit_verl.manager  # noqa: F401, it enters itself: it may be what imports verl
except Exception:
    logging.getLogger("judgekit").exception("judgekit could not be entered among verl's reward managers")
