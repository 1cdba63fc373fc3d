"""What stands in for SkyRL's GPU half: a tokenizer, a scripted policy, a tiny policy that learns."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from under_test import MODEL, configuration, part

try:
    from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface
except ImportError:  # before 0.3, and in skyrl_train: an interface of Ray actors, which nothing of ours meets
    InferenceEngineInterface = object

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(folder: Path) -> Any:
    """A byte-level tokenizer with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=260,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([""], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return tokenizer


class _Engine(InferenceEngineInterface):
    """The members that a generator does not use."""

    weight_version = 0

    @property
    def model_name(self) -> str:
        return "tiny"

    async def finish_session(self, session_id: Any) -> None: ...
    def get_endpoint_url(self) -> str:
        return ""

    async def chat_completion(self, payload: Any) -> Any:
        raise NotImplementedError

    render_chat_completion = completion = chat_completion

    async def wake_up(self, *_: Any, **__: Any) -> None: ...
    async def sleep(self, *_: Any, **__: Any) -> None: ...
    async def init_weight_update_communicator(self, info: Any) -> None: ...
    async def update_named_weights(self, request: Any) -> None: ...
    async def teardown(self) -> None: ...
    async def load_lora_adapter(self, *_: Any, **__: Any) -> None: ...
    async def reset_prefix_cache(self, *_: Any, **__: Any) -> None: ...
    async def pause_generation(self, *_: Any, **__: Any) -> None: ...
    async def resume_generation(self, *_: Any, **__: Any) -> None: ...
    async def get_world_size(self) -> tuple[int, int]:
        return (1, 1)


class ScriptedPolicy(_Engine):
    """Answers with *script(prompt text, number of the call)*; an exception in place of a text is raised."""

    def __init__(
        self,
        tokenizer: Any,
        script: Callable[[str, int], Any],
        *,
        delay_s: Callable[[int], float] = lambda call: random.uniform(0, 0.02),
    ) -> None:
        self.tokenizer = tokenizer
        self.script = script
        self.delay_s = delay_s
        self.calls = 0

    async def generate(self, input_batch: dict[str, Any], model: Any = None) -> dict[str, Any]:
        out: dict[str, Any] = {
            key: [] for key in ("responses", "response_ids", "stop_reasons", "response_logprobs")
        }
        for ids in input_batch["prompt_token_ids"]:
            self.calls += 1
            call = self.calls
            await asyncio.sleep(self.delay_s(call))
            text = self.script(self.tokenizer.decode(ids), call)
            if isinstance(text, Exception):
                raise text
            reason = "length" if text.endswith("…") else "stop"
            tokens = self.tokenizer.encode(text)
            if reason == "stop":
                tokens.append(self.tokenizer.eos_token_id)
            out["responses"].append(text)
            out["response_ids"].append(tokens)
            out["stop_reasons"].append(reason)
            out["response_logprobs"].append([-0.5] * len(tokens))
        return out


def generator(cls: type, tokenizer: Any, policy: Any, *, workers: int = 32, **settings: Any) -> Any:
    """A generator with SkyRL's own configuration."""
    cfg = configuration()
    config, gym = cfg.generator, cfg.environment.skyrl_gym
    config.batched = False
    config.max_input_length = 512
    config.sampling_params.max_generate_length = 64
    for key, value in settings.items():
        setattr(config, key, value)
    gym.max_env_workers = workers
    return cls(config, gym, policy, tokenizer, *MODEL)


def input_of(
    prompts: int,
    per_prompt: int,
    env: str = "judgekit",
    *,
    phase: str = "train",
    truth: Callable[[int], Any] = str,
    extras: dict[str, Any] | None = None,
    step: int = 7,
) -> Any:
    """A batch as SkyRL's trainers prepare it."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"q{i}?"}],
            "env_class": env,
            "uid": str(i),
            "env_extras": {
                "data_source": "toy",
                "reward_spec": {"method": "rule", "ground_truth": truth(i)},
                "extra_info": {"index": i},
                **(extras or {}),
            },
        }
        for i in range(prompts)
    ]
    made, _ = part("generators.utils").prepare_generator_input(rows, per_prompt, None, env, phase, step)
    return made


def totals(out: Any) -> list[float]:
    """Reward of each rollout: the sum over its tokens."""
    return [sum(r) if isinstance(r, list) else float(r) for r in out["rewards"]]


# ---- a policy that learns


def tiny_model(tokenizer: Any, seed: int, hidden: int = 64) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
    )
    return Qwen2ForCausalLM(config).float().eval()


class TinyPolicy(_Engine):
    """Samples from a tiny model on CPU, all that is asked within some milliseconds together."""

    def __init__(self, model: Any, tokenizer: Any, lock: threading.Lock, *, new_tokens: int = 8) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.lock = lock
        self.new_tokens = new_tokens
        self._queue: asyncio.Queue[Any] | None = None
        self._open: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def generate(self, input_batch: dict[str, Any], model: Any = None) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        if self._queue is None or self._loop is not loop:  # skyrl_train has one for each call
            self._loop, self._queue = loop, asyncio.Queue()
            self._task = asyncio.create_task(self._serve(self._queue))
        temperature = (input_batch.get("sampling_params") or {}).get("temperature", 1.0)
        futures = [loop.create_future() for _ in input_batch["prompt_token_ids"]]
        for ids, future in zip(input_batch["prompt_token_ids"], futures, strict=True):
            self._queue.put_nowait((list(ids), temperature, future))
        found = [await future for future in futures]
        return {
            "responses": [self.tokenizer.decode(ids, skip_special_tokens=True) for ids, _, _ in found],
            "response_ids": [ids for ids, _, _ in found],
            "stop_reasons": [reason for _, _, reason in found],
            "response_logprobs": [logprobs for _, logprobs, _ in found],
        }

    async def _serve(self, queue: asyncio.Queue[Any]) -> None:
        while True:
            asked = [await queue.get()]
            await asyncio.sleep(0.005)
            while not queue.empty() and len(asked) < 64:
                asked.append(queue.get_nowait())
            if self._open is not None:
                await self._open.wait()
            answers = await asyncio.to_thread(self._sample, [ids for ids, _, _ in asked], asked[0][1])
            for (_, _, future), answer in zip(asked, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    @torch.no_grad()
    def _sample(
        self, prompts: Sequence[list[int]], temperature: float
    ) -> list[tuple[list[int], list[float], str]]:
        with self.lock:
            width = max(map(len, prompts))
            pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
            ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
            tokens: list[list[int]] = [[] for _ in prompts]
            logprobs: list[list[float]] = [[] for _ in prompts]
            live = [True] * len(prompts)
            for _ in range(self.new_tokens):
                position = (mask.cumsum(1) - 1).clamp(min=0)
                logits = self.model(input_ids=ids, attention_mask=mask, position_ids=position).logits[:, -1]
                scores = torch.log_softmax(logits / (temperature or 1.0), -1)
                drawn = (
                    logits.argmax(-1) if not temperature else torch.multinomial(scores.exp(), 1).squeeze(1)
                )
                for i in range(len(prompts)):
                    if live[i]:
                        tokens[i].append(int(drawn[i]))
                        logprobs[i].append(float(scores[i, drawn[i]]))
                        live[i] = int(drawn[i]) != end
                if not any(live):
                    break
                ids = torch.cat([ids, drawn[:, None]], 1)
                mask = torch.cat([mask, torch.ones(len(prompts), 1, dtype=mask.dtype)], 1)
            return [
                (t, lp, "stop" if t[-1] == end else "length") for t, lp in zip(tokens, logprobs, strict=True)
            ]

    def increment_weight_version(self) -> None:
        self.weight_version += 1

    async def pause_generation(self, *_: Any, **__: Any) -> None:
        self._open = self._open or asyncio.Event()
        self._open.clear()

    async def resume_generation(self, *_: Any, **__: Any) -> None:
        if self._open is not None:
            self._open.set()


class CPUDispatch:
    """In the place of SkyRL's WorkerDispatch: the tiny model's forward and backward in this process."""

    def __init__(self, cfg: Any, model: Any, engine: TinyPolicy, lock: threading.Lock, *, lr: float = 3e-3):
        from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry

        self.cfg = cfg
        self.model = model
        self.engine = engine
        self.lock = lock
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
        self.loss = PolicyLossRegistry.get(cfg.trainer.algorithm.policy_loss_type)

    def init_weight_sync_state(self, client: Any) -> None: ...
    def finalize_pending_saves(self, *_: Any, **__: Any) -> None: ...
    def get_timing_metrics(self) -> dict[str, float]:
        return {}

    def get_lcm_dp_size(self) -> int:
        return 1

    def empty_cache(self, model: Any = None) -> None: ...
    def mark_all_offloaded(self) -> None: ...
    def get_node_ids(self) -> list[str]:
        return []

    async def save_weights_for_sampler(self, *_: Any, **__: Any) -> None:
        await self.engine.pause_generation()
        await self.engine.resume_generation()
        self.engine.increment_weight_version()

    def stage_data(self, model: Any, data: Any, boundaries: Any) -> list[Any]:
        return [data[start:end] for start, end in boundaries]

    def _logprobs(self, data: Any) -> Any:
        ids, mask = data["sequences"], data["attention_mask"]
        position = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self.model(input_ids=ids, attention_mask=mask, position_ids=position).logits.float()
        scores = torch.log_softmax(logits[:, :-1] / self.cfg.trainer.algorithm.temperature, -1)
        taken = scores.gather(-1, ids[:, 1:, None]).squeeze(-1)
        return taken[:, -data.metadata["response_length"] :]

    def forward(self, model: Any, data: Any) -> Any:
        from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput

        with self.lock, torch.no_grad():
            found = self._logprobs(data)
        return WorkerOutput(loss_fn_outputs=[{"logprobs": row.tolist()} for row in found])

    forward_from_staged = forward

    def forward_backward_from_staged(self, model: Any, data: Any) -> Any:
        from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput

        with self.lock:
            loss, metrics = self.loss(
                self._logprobs(data),
                data["action_log_probs"],
                data["advantages"],
                config=self.cfg.trainer.algorithm,
                loss_mask=data["loss_mask"],
                rollout_logprobs=data.get("rollout_logprobs"),
            )
            loss.backward()
        named = {f"loss_metrics/{key}": value for key, value in metrics.items()}
        return WorkerOutput(metrics={"policy_loss": loss.item(), **named})

    def optim_step(self, model: Any) -> float:
        with self.lock:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return float(norm)


def in_process(
    trainer: type, cfg: Any, model: Any, engine: TinyPolicy, lock: threading.Lock, lr: float = 3e-3
) -> type:
    """The trainer with its model in this process."""

    class OnCPU(trainer):  # type: ignore[misc, valid-type]
        def init_weight_sync_state(self) -> None:
            self.dispatch = CPUDispatch(cfg, model, engine, lock, lr=lr)
            self.ref_model = None

    return OnCPU


class Rows:
    """In the place of a tracker: keeps what the trainer logs."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        self.rows.append((step, dict(data)))

    def finish(self) -> None: ...
    def log_exception(self, *_: Any, **__: Any) -> None: ...

    def series(self, key: str) -> list[float]:
        """The values of *key* by step."""
        return [float(row[key]) for _, row in self.rows if key in row]


def trainer_of(experiment: Any, rows: Rows, engine: Any) -> Any:
    """Make the trainer of an entrypoint's experiment, with these in the place of its tracker and its engines."""
    return experiment.get_trainer(
        cfg=experiment.cfg,
        tracker=rows,
        tokenizer=experiment.tokenizer,
        train_dataset=experiment.train_dataset,
        eval_dataset=experiment.eval_dataset,
        inference_engine_client=engine,
        generator=experiment.get_generator(experiment.cfg, experiment.tokenizer, engine),
        colocate_pg=experiment.colocate_pg,
    )
