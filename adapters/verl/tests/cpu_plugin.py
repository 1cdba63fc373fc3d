"""verl 0.9.1's trainer on a machine without a GPU, for tests: loaded in each of its processes by

    VERL_USE_EXTERNAL_MODULES=cpu_plugin VERL_PLATFORM=cpu

It adds what verl has for GPUs only: a platform "cpu" (gloo, no device), its FSDP engine for it, and a rollout
engine "hfcpu" that samples with transformers in a Ray actor and gets new weights through a file. It reaches
into verl's internals, so it fits this one version.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

WEIGHTS = Path(os.environ.get("HFCPU_WEIGHTS", "/dev/shm/judgekit-verl-test")) / "weights.pt"
NEW_TOKENS = int(os.environ.get("HFCPU_NEW_TOKENS", "8"))


class _NoDevice(types.ModuleType):
    """In the place of torch.cuda: one device, the CPU, with nothing to ask it."""

    _ANSWERS = {  # noqa: RUF012
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": "cpu",
        "get_device_name": "cpu",
        "mem_get_info": (8 << 30, 16 << 30),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_allocated": 0,
        "max_memory_reserved": 0,
    }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._ANSWERS:
            return lambda *_, **__: self._ANSWERS[name]
        if name == "get_rng_state":
            return lambda *_: torch.get_rng_state()
        if name == "set_rng_state":
            return lambda state, *_: torch.set_rng_state(state)
        return getattr(torch.cpu, name, lambda *_, **__: None)


_NO_DEVICE = _NoDevice("no_device")


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):
    device_name = "cpu"
    vendor_name = "generic"
    device_module = _NO_DEVICE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None: ...
    def synchronize(self, device_index: Any = None) -> None: ...
    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: Any) -> None: ...
    def empty_cache(self) -> None: ...
    def get_device_capability(self, device_index: Any = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...
    def profiler_stop(self) -> None: ...
    def ray_resource_name(self) -> str:
        return "GPU"  # one is made up in ray.init

    def ray_noset_envvars(self) -> list[str]:
        return []

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        return {"num_gpus": num_gpus}

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def _weight_writer() -> type:
    from verl.workers.rollout.base import BaseRollout

    class HFCpuWeights(BaseRollout):  # type: ignore[misc]
        """The trainer's side of the rollout engine."""

        async def resume(self, tags: Any) -> None: ...
        async def release(self) -> None: ...
        async def update_weights(self, weights: Any, **_: Any) -> None:
            WEIGHTS.parent.mkdir(parents=True, exist_ok=True)
            part = WEIGHTS.with_suffix(".part")
            torch.save({name: t.detach().to("cpu").clone() for name, t in weights}, part)
            part.replace(WEIGHTS)

    return HFCpuWeights


def __getattr__(name: str) -> Any:
    if name == "HFCpuWeights":
        return _weight_writer()
    raise AttributeError(name)


def _replica() -> type:
    import ray
    from verl.workers.rollout.replica import RolloutReplica, TokenOutput

    @ray.remote(num_cpus=0)
    class Sampler:
        def __init__(self, path: str) -> None:
            from transformers import AutoModelForCausalLM, AutoTokenizer

            torch.set_num_threads(1)
            self.model = AutoModelForCausalLM.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32
            ).eval()
            self.end = AutoTokenizer.from_pretrained(path).eos_token_id
            self.loaded = 0.0
            self.version = 0
            self.lock = asyncio.Lock()

        @torch.no_grad()
        def sample(self, ids: list[int], temperature: float) -> tuple[list[int], list[float]]:
            tokens: list[int] = []
            logprobs: list[float] = []
            past, now = None, torch.tensor([ids])
            for _ in range(NEW_TOKENS):
                out = self.model(input_ids=now, past_key_values=past, use_cache=True)
                past = out.past_key_values
                scores = torch.log_softmax(out.logits[0, -1] / max(temperature, 1e-5), -1)
                token = int(scores.argmax() if temperature == 0 else torch.multinomial(scores.exp(), 1))
                tokens.append(token)
                logprobs.append(float(scores[token]))
                now = torch.tensor([[token]])
                if token == self.end:
                    break
            return tokens, logprobs

        async def generate(self, request_id: Any, prompt_ids: Any, sampling_params: Any, **_: Any) -> Any:
            async with self.lock:
                if WEIGHTS.exists() and (changed := WEIGHTS.stat().st_mtime) != self.loaded:
                    self.model.load_state_dict(torch.load(WEIGHTS), strict=False)
                    self.loaded, self.version = changed, self.version + 1
                temperature = float(dict(sampling_params).get("temperature", 1.0))
                tokens, logprobs = await asyncio.to_thread(self.sample, list(prompt_ids), temperature)
            steps = {f"{which}global_steps": self.version for which in ("", "min_", "max_")}
            return TokenOutput(
                token_ids=tokens,
                log_probs=logprobs,
                stop_reason="completed",
                num_preempted=0,
                extra_fields=steps,
            )

        async def wake_up(self) -> None: ...
        async def sleep(self) -> None: ...
        async def abort_all_requests(self, reject_request: bool = False) -> None: ...
        async def resume_generation(self) -> None: ...
        async def clear_kv_cache(self) -> None: ...
        async def release_kv_cache(self) -> None: ...
        async def resume_kv_cache(self) -> None: ...
        async def start_profile(self, **_: Any) -> None: ...
        async def stop_profile(self) -> None: ...

    class HFCpuReplica(RolloutReplica):  # type: ignore[misc]
        async def launch_servers(self) -> None:
            config = self.model_config
            path = config.path if hasattr(config, "path") else config["path"]
            self._server_handle = Sampler.remote(path)
            self.servers = [self._server_handle]
            self._server_address = f"hfcpu-{self.replica_rank}"

    return HFCpuReplica


def _after_replica_module() -> None:
    from verl.workers.rollout import base, replica

    base._ROLLOUT_REGISTRY[("hfcpu", "async")] = "cpu_plugin.HFCpuWeights"
    replica.RolloutReplicaRegistry.register("hfcpu", _replica)


def _after_fsdp_module() -> None:
    from verl.workers.engine.base import EngineRegistry

    module: Any = sys.modules["verl.workers.engine.fsdp.transformer_impl"]
    module.CPUOffloadPolicy = lambda **_: None  # the reference policy: there is no device to come from
    for kind, engine in (
        ("language_model", module.FSDPEngineWithLMHead),
        ("value_model", module.FSDPEngineWithValueHead),
    ):
        for strategy in ("fsdp", "fsdp2"):
            EngineRegistry._engines[kind][strategy].setdefault("cpu", engine)


class _AfterImport(importlib.abc.MetaPathFinder):
    """This module is imported inside `import verl`, before what it adds to: the rest follows each import."""

    then = {  # noqa: RUF012
        "verl.workers.rollout.replica": _after_replica_module,
        "verl.workers.engine.fsdp.transformer_impl": _after_fsdp_module,
    }

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self.then:
            return None
        add = self.then.pop(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            add()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _AfterImport())

_init_process_group = torch.distributed.init_process_group


def _init_with_gloo(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    if isinstance(backend, str) and backend.startswith("cpu:gloo,cpu:"):
        backend = "gloo"
    return _init_process_group(backend, *args, **kwargs)


torch.distributed.init_process_group = _init_with_gloo
