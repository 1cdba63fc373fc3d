"""The real engine, asleep and awake, and as a LoRA adapter. On CPU sleeping stops the engine's work and moves no memory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from judgekit.errors import JudgeLoading
from judgekit.judges import OpenAIJudge, VLLMJudge, awake, stacked
from judgekit.judges.launch.supervise import http_replicas, supervise
from tests.judges.servers import free_port

from .test_engine import LABELS, ask, words
from .test_servers import KEY


def make_adapter(folder: Path, base: Path, *, seed: int = 0) -> Path:
    """A random LoRA adapter for a model of `tools/tiny_models.py`."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((base / "config.json").read_text())
    hidden, heads, kv = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    torch.manual_seed(seed)
    sizes = {"q_proj": hidden, "v_proj": hidden // heads * kv}
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, size in sizes.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{place}.lora_A.weight"] = torch.randn(8, hidden)
            tensors[f"{place}.lora_B.weight"] = torch.randn(size, 8)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 8,
        "lora_alpha": 16,
        "target_modules": sorted(sizes),
        "bias": "none",
        "base_model_name_or_path": str(base),
    }
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder


async def test_a_judge_that_slept_judges_as_before(random_model: Path) -> None:
    judge = VLLMJudge(random_model, max_model_len=2048, sleep=True)
    layered = stacked(judge)
    requests = [ask(words(20, i), choices=LABELS) for i in range(6)]
    try:
        before = await asyncio.gather(*(layered.complete(r) for r in requests))
        for _ in range(2):
            await judge.wake_up()  # the phase before ended asleep
            writing = [asyncio.create_task(judge.complete(ask(words(9, i), max_tokens=64))) for i in range(4)]
            while judge._at_work + sum(one.done() for one in writing) < 4:
                await asyncio.sleep(0.01)
            await judge.sleep()
            assert {reply.finish_reason for reply in await asyncio.gather(*writing)} <= {"stop", "length"}
            with pytest.raises(JudgeLoading, match="sleeps"):
                await judge.complete(requests[0])
            waiting = asyncio.create_task(layered.complete(requests[0]))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            async with awake(layered):
                assert (await waiting).choice_probs == pytest.approx(before[0].choice_probs, rel=1e-3)
                after = await asyncio.gather(*(layered.complete(r) for r in requests))
            for a, b in zip(before, after, strict=True):
                assert b.choice_probs == pytest.approx(a.choice_probs, rel=1e-3)
    finally:
        await judge.close()


async def test_the_real_server_sleeps_and_is_not_taken_for_one_that_hangs(random_model: Path) -> None:
    (made,) = http_replicas(
        str(random_model), port=free_port(), api_key=KEY, engine_args={"max-model-len": 2048}
    )
    made.env["VLLM_SERVER_DEV_MODE"] = "1"
    request = ask(words(20), choices=LABELS)
    async with supervise([made], start_timeout_s=300, hang_timeout_s=8):
        judge = OpenAIJudge(f"http://127.0.0.1:{made.port}", api_key=KEY, sleep=True)
        layered = stacked(judge)
        before = await layered.complete(request)
        await judge.sleep()
        assert await judge.server.sleeping()
        waiting = asyncio.create_task(layered.complete(request))
        await asyncio.sleep(20)  # longer than a server may hang
        assert made.starts == 1
        assert not waiting.done()
        async with awake(layered):
            assert (await waiting).choice_probs == pytest.approx(before.choice_probs, rel=1e-3)
        assert await judge.server.sleeping()
        await judge.close()


async def test_an_adapter_judges_otherwise_and_has_an_identity_of_its_own(
    engine: VLLMJudge, random_model: Path, tmp_path: Path
) -> None:
    judge = VLLMJudge(random_model, max_model_len=2048, lora=make_adapter(tmp_path / "adapter", random_model))
    request = ask(words(20), choices=LABELS)
    try:
        own, plain = await judge.complete(request), await engine.complete(request)
        assert own.choice_probs is not None
        copied = await judge.complete(request)  # of what vLLM made of the first
        assert copied.choice_probs == pytest.approx(own.choice_probs, rel=1e-3)
        assert own.choice_probs != pytest.approx(plain.choice_probs, rel=1e-2)
        assert own.model == await judge.identity() != plain.model
        assert "adapter-" in own.model
    finally:
        await judge.close()
