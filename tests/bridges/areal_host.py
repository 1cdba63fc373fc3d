"""AReaL's own code in a process of its own: `python areal_host.py CASES` prints what became of each case, as JSON.

It runs apart because importing AReaL changes the process's logging. AReaL comes from the environment's folder
beside/areal; of what it imports and nothing here calls, stand-ins take the place.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import json
import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

BESIDE = Path(sys.prefix) / "beside" / "areal"
_UNUSED = ("einops", "flask", "lark", "numba", "swanlab", "tensorboardX", "torchdata", "trackio", "werkzeug")
PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"


class _StandIns:
    """Finds a module of empty classes and decorators for each of `_UNUSED`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _UNUSED:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do."""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def new(cls: type, *given: Any, **_: Any) -> Any:
            return given[0] if given and callable(given[0]) else (lambda function: function)

        return type(name, (), {"__new__": new})


sys.path.append(str(BESIDE))
sys.meta_path.append(_StandIns())

from areal.infra.controller.rollout_controller import RolloutController  # noqa: E402
from areal.infra.remote_inf_engine import RemoteInfEngine  # noqa: E402
from areal.infra.rpc.serialization import serialize_value  # noqa: E402
from areal.utils import stats_tracker  # noqa: E402


class Tokenizer:
    """A token for each character; 0 ends a reply."""

    eos_token_id = pad_token_id = 0

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(chr(i) if i else "" if skip_special_tokens else "<eos>" for i in ids)

    def apply_chat_template(self, messages: Any, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [63]}


class Settings:
    """What RLVRWorkflow asks of its gconfig."""

    def new_with_stop_and_pad_token_ids(self, tokenizer: Any) -> Settings:
        return self

    def new(self, **_: Any) -> Settings:
        return self


class Engine:
    """Says each of its texts in turn, and raises at `stop`."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)

    async def agenerate(self, request: Any) -> Any:
        said = self.texts.pop(0)
        await asyncio.sleep(0.001 * (len(said) % 7))  # they end in another order than they began
        if said == "stop":
            raise RuntimeError("the server has gone")
        tokens = [*map(ord, said), 0]
        return SimpleNamespace(
            input_tokens=[63],
            output_tokens=tokens,
            input_len=1,
            output_len=len(tokens),
            output_logprobs=[-0.1] * len(tokens),
            output_versions=[0] * len(tokens),
            stop_reason="stop",
        )


def documented() -> dict[str, Any]:
    """What the lines of the documentation give to AReaL's trainer."""
    found: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n((?:(?!```).)*bridges\.areal.*?)```", PAGE.read_text(), re.DOTALL)
    config = SimpleNamespace(gconfig=Settings(), tokenizer_path=Tokenizer())
    exec(block, {"config": config, "trainer": SimpleNamespace(train=lambda **given: found.update(given))})
    return found


def workflow(size: int, *, evaluation: bool) -> Any:
    """The workflow, as AReaL's engine makes it on a worker."""
    engine = object.__new__(RemoteInfEngine)
    engine.logger = logging.getLogger("engine")
    given, kind = documented(), "eval_workflow" if evaluation else "workflow"
    return engine._resolve_workflow(given[kind], given[f"{kind}_kwargs"], size)


async def episodes(size: int, row: dict[str, Any], groups: Sequence[Sequence[str]]) -> Any:
    """What AReaL keeps of each group, all at once: rewards and tokens in the loss; None where it is rejected."""

    async def one(texts: Sequence[str]) -> Any:
        try:
            found = await workflow(size, evaluation=size == 1).arun_episode(Engine(texts), dict(row))
        except RuntimeError as error:
            return str(error)
        if found is None:
            return None
        return {"rewards": found["rewards"].tolist(), "trained": found["loss_mask"].sum(1).tolist()}

    return await asyncio.gather(*map(one, groups))


def main() -> None:
    for name in ("", "areal"):
        logging.getLogger(name).setLevel(logging.ERROR)
    sys.stdout.write(json.dumps([run(case) for case in json.loads(sys.argv[1])]) + "\n")


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run the groups of a case, beside whose reward.yaml the trainer was started."""
    os.chdir(case["folder"])
    begun = time.monotonic()
    kept = asyncio.run(episodes(case["size"], case["row"], case["groups"]))
    controller: Any = SimpleNamespace()
    made = type(workflow(1, evaluation=False))
    return {
        "kept": kept,
        "seconds": time.monotonic() - begun,
        # between AReaL's controller and its workers
        "class_as_text": RolloutController._resolve_workflow_str(controller, made),
        "reward_as_text": json.loads(json.dumps(serialize_value(documented()["workflow_kwargs"]["reward"]))),
        "figures": stats_tracker.get("rollout").export(),
    }


if __name__ == "__main__":
    main()
