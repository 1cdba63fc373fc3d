"""Registers judgekit with verl 0.9.1, which imports this through its `verl.plugins` entry points.

Makes `reward.reward_manager.name=judgekit` work without a module path, and the hook in the processes of verl's fully
asynchronous trainer. Earlier verls load it with `VERL_USE_EXTERNAL_MODULES=judgekit_verl.plugin`. verl swallows errors
raised here, so they are logged.
"""

from __future__ import annotations

import importlib
import logging
import sys

_names = ["judgekit_verl.manager", "judgekit_verl.group"]
if any(
    getattr(getattr(_module, "__spec__", None), "_initializing", False)
    for _name, _module in list(sys.modules.items())
    if _name.startswith("judgekit_verl.") and _name != __name__
):
    _names = []  # one of ours is what imports verl just now; the hook is imported by whoever needs it
for _name in _names:
    try:
        importlib.import_module(_name)
    except Exception:
        logging.getLogger("judgekit").exception("judgekit could not load %s in verl", _name)
