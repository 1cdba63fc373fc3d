"""Scalar reward models on the real engine: in process and behind a server, against transformers."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from judgekit import ConfigError, Failed, GradingRunner, JudgeUnavailable, Rollout, Score, Weighted
from judgekit.execution.background import background_loop
from judgekit.graders import RewardModelGrader
from judgekit.judges import HTTPRewardModel, Piece, Turn, VLLMRewardModel
from judgekit.judges.launch.supervise import http_replicas, supervise
from tests.judges.servers import free_port

from .test_engine import _signal_engine, words

PROMPT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "how many?"}]
ROLLOUTS = [Rollout(prompt=PROMPT, response=words(6, i), group=0) for i in range(5)]


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_models import make_model

    return make_model(tmp_path_factory.mktemp("models") / "reward", reward=True)


def expected(folder: Path) -> list[float]:
    import torch
    from transformers import AutoTokenizer, Qwen2ForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Qwen2ForSequenceClassification.from_pretrained(folder).float()
    found = []
    for rollout in ROLLOUTS:
        text = tokenizer.apply_chat_template(
            [*PROMPT, {"role": "assistant", "content": rollout.response}], tokenize=False
        )
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            found.append(float(model(**ids).logits[0, 0]))
    return found


async def breaks_off(model: VLLMRewardModel) -> None:
    """What the engine breaks off has no number: that is no sign of a wrong model."""
    assert model._engine is not None
    llm = model._engine.llm
    _signal_engine(model, signal.SIGSTOP)
    try:
        asked = asyncio.create_task(model.reward([Turn("user", (Piece("how many?"),))]))
        while not llm.output_processor.external_req_ids:
            await asyncio.sleep(0.01)
        names = list(llm.output_processor.external_req_ids)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(llm.abort(names), background_loop()))
        with pytest.raises(JudgeUnavailable, match="broke off its reply"):
            await asked
    finally:
        _signal_engine(model, signal.SIGCONT)


async def test_in_process_and_over_http_it_pays_what_the_model_says(reward_model: Path) -> None:
    truth = expected(reward_model)
    assert len({round(v, 4) for v in truth}) > 1
    local = VLLMRewardModel(reward_model, max_model_len=512)
    reward = Weighted({"rm": (1.0, Score("rm", if_broken=-10.0))})
    results = await GradingRunner({"rm": RewardModelGrader(local)}, reward).run(ROLLOUTS)
    assert [r.reward for r in results] == pytest.approx(truth, abs=2e-3)
    squashed = await GradingRunner({"rm": RewardModelGrader(local, squash=True)}).run(ROLLOUTS)
    assert all(0 < (r.reward or 0) < 1 for r in squashed)
    await breaks_off(local)
    await local.close()

    (server,) = http_replicas(
        str(reward_model),
        port=free_port(),
        engine_args={"runner": "pooling", "max-model-len": 512},
    )
    async with supervise([server], start_timeout_s=300):
        for endpoint in ("/classify", "/pooling"):
            remote = HTTPRewardModel(f"http://127.0.0.1:{server.port}", model="judge", endpoint=endpoint)  # type: ignore[arg-type]
            grader = RewardModelGrader(remote)
            results = await GradingRunner({"rm": grader}, reward).run(ROLLOUTS)
            assert [r.reward for r in results] == pytest.approx(truth, abs=2e-3)
            assert remote.unverified == ""  # vLLM shows what it makes of a dialogue
            await remote.close()
        wrong = HTTPRewardModel(f"http://127.0.0.1:{server.port}", model="nobody")
        (result,) = await GradingRunner({"rm": RewardModelGrader(wrong)}, reward).run(ROLLOUTS[:1])
        assert isinstance(result.grades["rm"], Failed)
        assert result.reward is None
        await wrong.close()


def test_a_range_without_a_low_end_needs_a_written_number() -> None:
    class Model:
        async def reward(self, turns: object) -> tuple[float, object]:
            await asyncio.sleep(0)
            return 1.0, None

    with pytest.raises(ConfigError, match="has no lowest score"):
        GradingRunner({"rm": RewardModelGrader(Model())})  # type: ignore[arg-type]
