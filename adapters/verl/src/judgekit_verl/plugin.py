"""Registers judgekit with verl 0.9.1, which imports this through its `verl.plugins` entry points.

Makes `reward.reward_manager.name=judgekit` work without a module path, and the hook in the processes of verl's fully
asynchronous trainer. Earlier verls load it with `VERL_USE_EXTERNAL_MODULES=judgekit_verl.plugin`. verl swallows errors
raised here, so they are logged.
"""

from __future__ import annotations

import importlib
import logging
import sys

_manager = sys.modules.get("judgekit_verl.manager")
_names = ["judgekit_verl.manager", "judgekit_verl.group"]
if _manager is not None and not hasattr(_manager, "JudgeKitRewardManager"):
    _names = []  # it is what imports verl just now; the hook is imported by whoever needs it
for _name in _names:
    try:
        importlib.import_module(_name)
    except Exception:
        logging.getLogger("judgekit").exception("judgekit could not load %s in verl", _name)
