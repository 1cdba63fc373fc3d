"""How near to the engine's own limit judges run: in process, behind Ray, behind HTTP.

    make bench-judge

The limit is vLLM's `LLM.generate` on token ids that are ready, in this process. Random models, so that the engine is real and
light: m4 (5 M parameters, the engine is the bottleneck) and m1 (0.5 M, the transport shows: naive ways to ask stand beside
ours). 384 rollouts with prompts of about 330 tokens, in groups of 8. `inprocess_…`, `ray_…` and `http_…` are the whole path: a
reward.yaml that says nothing of concurrency, its runner, the grader, the layers, the engine, one token a verdict. `auto_over_best_…`: what
that gives on engines of 16 and of 128 sequences over the best of several numbers, in process, m1; five rounds, in each of which every number
has its turn, and the best one is chosen on the other rounds; `…_16` the engine alone, 16 tokens a reply.
`http_ready_bodies`: a bare client over HTTP whose bodies were made before. `chat_…`: vLLM's `LLM.chat`, which makes the prompts, too. `client_cpu_ms`: this process's CPU per verdict over HTTP, through the
layers; `layers_cost_ms`: what the layers take of it; `inprocess_cpu_ms`: this process's CPU from rollout to reward where the engine
is its own. Each way is measured by itself: `generate` and the way in turn, after a batch of each that does not count, so that both
engines are equally warm. (An engine that has idled for half a minute, as it would while others are measured, takes up to a fifth
longer on a virtual machine; so would `generate`.) A batch's ratio is the mean time of `generate` right before and after it over its
own, so that a drift of the machine meets both. The median of the rounds counts. The engine reads the labels'
probabilities for a verdict, which `generate` does not here; what that takes of its speed is printed beside it (`generate, with
labels`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import FIGURES, finish, machine, quarters, reported

from judgekit import GradingRunner, Rollout
from judgekit.config import load_runner
from judgekit.execution.heap import freeze_heap
from judgekit.graders import JudgeGrader
from judgekit.judges import (
    CacheOptions,
    ChoiceVerdict,
    JudgeRequest,
    LayerOptions,
    OpenAIJudge,
    RayJudge,
    VLLMJudge,
    stacked,
    start_ray_judge,
)
from judgekit.judges.prompts.tokens import PromptEncoder

GOALS = {
    "auto_over_best_16": (">=", 0.95),
    "auto_over_best_128": (">=", 0.95),
    "inprocess_m4": (">=", 0.95),
    "ray_m4": (">=", 0.95),
    "http_m4": (">=", 0.95),
    "inprocess_m1": (">=", 0.95),
    "ray_m1": (">=", 0.80),
    "http_m1": (">=", 0.80),
    "client_cpu_ms": ("<=", 0.5),
    "layers_cost_ms": ("<=", 0.1),
    "prefix_hit_rate": (">=", 0.95),
}

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

GROUPS, PER_GROUP = 48, 8
PROMPTS = GROUPS * PER_GROUP
BLOCK = 32
ENGINE = {"max_model_len": 1024}
MAX_SEQS = 128
IN_FLIGHT = 2 * MAX_SEQS
"""More than the engine runs at once, so that its queue is not empty while an answer travels; offline has all at once. The runners find
theirs out."""
READY = "http, bodies ready"
"""POSTs of 32 prompts whose bytes were made before, by a bare client: what server and engine alone reach on these cores."""
NUMBERS = (16, 32, 64, 128, 256)
"""What "auto" is compared with."""
EXTRA = {"max_num_seqs": MAX_SEQS, "max_num_batched_tokens": 4096, "block_size": BLOCK}


def rollouts(seed: object) -> list[Rollout]:
    """Rollouts that no other seed has made, so that only a group's own prefix is in the cache."""
    from tiny_models import WORDS

    rng = random.Random(str(seed))

    def text(n: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(n))

    made = []
    for group in range(GROUPS):
        problem, reference = text(40), text(40)
        made += [
            Rollout(prompt=problem, ground_truth=reference, response=text(60), group=group)
            for _ in range(PER_GROUP)
        ]
    return made


def requests(given: list[Rollout], out: int) -> list[JudgeRequest]:
    """What a judge is asked about these rollouts."""
    asking = JudgeGrader(_Nobody(), verdict=ChoiceVerdict(min_mass=0.0)).asking
    made = [asking.request(asking.prepare(rollout))[0] for rollout in given]  # type: ignore[arg-type]
    return made if out == 1 else [JudgeRequest(turns=request.turns, max_tokens=out) for request in made]


class _Nobody:
    async def complete(self, request: JudgeRequest, /) -> Any:
        raise NotImplementedError


def messages(request: JudgeRequest) -> list[dict[str, str]]:
    return [{"role": t.role, "content": t.text} for t in request.turns]


async def all_at_once(ask: Callable[[JudgeRequest], Awaitable[Any]], batch: list[JudgeRequest]) -> None:
    """As a runner does: so many in flight, the next when one is done."""
    left = iter(batch)

    async def worker() -> None:
        for request in left:
            await ask(request)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


async def measure(model: str, folder: Path, out: int, rounds: int, naive: bool) -> dict[str, Any]:
    import ray
    from vllm import LLM, SamplingParams

    port = _free_port()
    arguments = {
        "model": folder,
        "host": "127.0.0.1",
        "port": port,
        "dtype": "float32",
        "max-model-len": 1024,
        "served-model-name": "judge",
    }
    arguments |= {key.replace("_", "-"): value for key, value in EXTRA.items()}
    flags = [
        "--enforce-eager",
        "--disable-uvicorn-access-log",
        "--enable-prompt-tokens-details",
    ]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags]
    for key, value in arguments.items():
        command += [f"--{key}", str(value)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        options = {**ENGINE, "engine_args": EXTRA}
        actors = start_ray_judge(str(folder), name=model, options=options)
        local = VLLMJudge(folder, **options)
        http = OpenAIJudge(f"http://127.0.0.1:{port}", tokenizer=folder, timeout_s=600)
        plain_http = OpenAIJudge(f"http://127.0.0.1:{port}", timeout_s=600)
        offline = LLM(
            model=str(folder), dtype="float32", enforce_eager=True, disable_log_stats=True, **ENGINE, **EXTRA
        )
        await asyncio.gather(actors.start(), local.start())
        while not await http.server.healthy():
            await asyncio.sleep(1)
        await asyncio.gather(http.start(), plain_http.start())
        params = SamplingParams(max_tokens=out, temperature=0, ignore_eos=True)
        naive_actor = ray.get_actor(f"judgekit:{model}:0", namespace="judgekit")

        encoder = PromptEncoder(offline.get_tokenizer(), context_tokens=1024)

        label_ids = sorted({encoder.token_ids(label)[0] for label in ("0", "1")})
        read = SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=label_ids, detokenize=False)

        async def by_generate(given: list[Rollout], params: Any = params) -> float:
            ids = [encoder.encode(r.turns, reply_tokens=out).ids for r in requests(given, out)]
            prompts = [{"prompt_token_ids": each} for each in ids]
            start = time.perf_counter()
            offline.generate(prompts, params, use_tqdm=False)
            return time.perf_counter() - start

        async def by_chat(batch: list[JudgeRequest]) -> None:
            offline.chat([messages(r) for r in batch], params, use_tqdm=False)

        async def by_naive_ray(batch: list[JudgeRequest]) -> None:
            await all_at_once(_one_call_each(naive_actor), batch)

        url = f"http://127.0.0.1:{port}"
        configured = {
            "inprocess": {"engine": "vllm", "model": str(folder), **options},
            "ray": {"engine": "ray", "name": model},
            "http": {"engine": "openai", "url": url, "tokenizer": str(folder), "timeout_s": 600},
        }
        ways: dict[str, Callable[[list[JudgeRequest]], Awaitable[None]]] = {f"chat_{model}": by_chat}
        runners = {}
        if out == 1:
            await local.close()  # the runner has one of its own
            for kind, judge in configured.items():
                runners[f"{kind}_{model}"] = runner = _runner(kind, judge, folder)
                await runner.start()
        else:
            ways |= {
                f"inprocess_{model}": lambda batch: all_at_once(local.complete, batch),
                f"ray_{model}": lambda batch: all_at_once(RayJudge(model).complete, batch),
                f"http_{model}": lambda batch: all_at_once(http.complete, batch),
            }
        if naive:
            session, openai_client = await _naive_clients(port)
            ways |= {
                "naive per-request Ray": by_naive_ray,
                "naive aiohttp, chat": lambda batch: all_at_once(_naive_post(session, port, out), batch),
                "naive OpenAI SDK": lambda batch: all_at_once(_naive_sdk(openai_client, out), batch),
                "ours, text over HTTP": lambda batch: all_at_once(plain_http.complete, batch),
                "ray, engine": lambda batch: all_at_once(RayJudge(model).complete, batch),
                "http, engine": lambda batch: all_at_once(http.complete, batch),
                READY: partial(_posts, session, port),
            }
            for kind in ("ray", "http"):
                ways[f"{kind}, layers"] = _layers_of(runners[f"{kind}_{model}"])
        offline_s: list[float] = []
        readings: list[float] = []
        """What `generate` keeps of its speed when it reads the labels' probabilities, as every verdict does."""
        names = [*runners, *ways]
        took: dict[str, list[float]] = {name: [] for name in names}
        ratios: dict[str, list[float]] = {name: [] for name in names}
        cpu_ms: dict[str, list[float]] = {name: [] for name in names}
        seeds = (f"{number} {out}" for number in itertools.count())

        async def timed(name: str) -> tuple[float, float]:
            """Seconds by the clock, and of this process's CPU."""
            given = rollouts(next(seeds))
            batch = requests(given, out)
            if name == READY:
                ids = [encoder.encode(r.turns, reply_tokens=out).ids for r in batch]
                batch = [_body(ids[i : i + 32], label_ids) for i in range(0, len(ids), 32)]
            await asyncio.sleep(1.5)  # vLLM's workers poll for a second after their last step
            cpu, start = time.process_time(), time.perf_counter()
            if name in runners:
                results = await runners[name].run(given)
            else:
                await ways[name](batch)
            found = time.perf_counter() - start, time.process_time() - cpu
            if name in runners and any(result.reward is None for result in results):
                raise SystemExit(f"{name}: {next(r.grades for r in results if r.reward is None)}")
            return found

        async def limit(params: Any = params) -> float:
            await asyncio.sleep(1.5)
            return await by_generate(rollouts(next(seeds)), params)

        freeze_heap()  # as `judgekit grade`, Ray actors and vLLM's own server do; for `generate` as well
        before = await limit()
        if out == 1:
            for round_ in range(-1, rounds):
                reading, after = await limit(read), await limit()
                if round_ >= 0:
                    readings.append((before + after) / 2 / reading)
                before = after
        for name in names:
            for round_ in range(-1, rounds):
                own, own_cpu = await timed(name)
                after = await limit()
                if round_ >= 0:  # the first one warms up
                    offline_s.append(after)
                    took[name].append(own)
                    ratios[name].append((before + after) / 2 / own)
                    cpu_ms[name].append(own_cpu / PROMPTS * 1000)
                before = after
        print(f"\n{model}, {out} output token(s), {rounds} rounds of {PROMPTS} prompts", flush=True)
        print(f"  {'generate':26} {PROMPTS / statistics.median(offline_s):7.1f} per s", flush=True)
        medians = {}
        if readings:
            print(
                f"  {'generate, with labels':26} {'':13}   {statistics.median(readings):.2f} of generate",
                flush=True,
            )
        for name, found in ratios.items():
            low, medians[name], high = quarters(found)
            print(
                f"  {name:26} {PROMPTS / statistics.median(took[name]):7.1f} per s   {medians[name]:.2f} of generate"
                f" (middle half {low:.2f} … {high:.2f})",
                flush=True,
            )
        figures: dict[str, Any] = {k: v for k, v in medians.items() if k.endswith(model)}
        if naive:
            figures["client_cpu_ms"] = statistics.median(cpu_ms["http, layers"])
            figures["inprocess_cpu_ms"] = statistics.median(cpu_ms[f"inprocess_{model}"])
            beyond = {
                kind: statistics.median(cpu_ms[f"{kind}, layers"])
                - statistics.median(cpu_ms[f"{kind}, engine"])
                for kind in ("ray", "http")
            }
            print("  CPU of the layers: " + ", ".join(f"{k} {v:.3f} ms" for k, v in beyond.items()))
            figures["layers_cost_ms"] = max(beyond.values())
            figures["http_ready_bodies"] = medians[READY]
        figures["naive"] = {k: round(v, 2) for k, v in medians.items() if k.startswith("naive")}
        if out > 1:
            figures["prefix_hit_rate"] = await prefix_hits(local)
            await local.close()
        if naive:
            await session.close()
        for runner in runners.values():
            await runner.close()
        for one in (http, plain_http):
            await one.close()
        await actors.stop()
        offline.llm_engine.engine_core.shutdown()
        return figures
    finally:
        server.terminate()
        server.wait()


async def measure_auto(folder: Path, sequences: int, rounds: int = 5) -> float:
    """How fast "auto" is over the best number, on an engine that runs so many requests at once."""
    engine = VLLMJudge(folder, **ENGINE, engine_args={**EXTRA, "max_num_seqs": sequences})
    await engine.start()
    limits: tuple[Any, ...] = ("auto", *NUMBERS)
    runners = {}
    for limit in limits:
        judge = stacked(engine, LayerOptions(max_concurrency=limit))
        grader = JudgeGrader(judge, verdict=ChoiceVerdict(min_mass=0.0))
        runners[limit] = GradingRunner({"judge": grader}, timeout_s=600)
    seconds: dict[Any, list[float]] = {limit: [] for limit in limits}
    order = random.Random(sequences)
    freeze_heap()
    for round_ in range(-1, rounds):
        for limit in order.sample(limits, len(limits)):
            given = rollouts(f"auto {sequences} {round_} {limit}")
            await asyncio.sleep(1.5)  # vLLM's workers poll for a second after their last step
            start = time.perf_counter()
            results = await runners[limit].run(given)
            if any(result.reward is None for result in results):
                raise SystemExit(f"auto: {next(r.grades for r in results if r.reward is None)}")
            if round_ >= 0:  # the first one warms up
                seconds[limit].append(time.perf_counter() - start)
    await engine.close()
    ratios = []
    for round_ in range(rounds):
        others = {n: statistics.median(t for i, t in enumerate(seconds[n]) if i != round_) for n in NUMBERS}
        best = min(others, key=others.__getitem__)
        ratios.append(seconds[best][round_] / seconds["auto"][round_])
    found = ", ".join(f"{n}: {PROMPTS / statistics.median(t):.0f}" for n, t in seconds.items())
    print(
        f"\n{sequences} sequences, per s: {found}; over the best: {', '.join(f'{r:.2f}' for r in ratios)}",
        flush=True,
    )
    return statistics.median(ratios)


def _runner(kind: str, judge: dict[str, Any], folder: Path) -> Any:
    """The runner of a reward.yaml. A random model's labels hold little of its probability."""
    path = folder / f"{kind}.yaml"
    config = {
        "judges": {"local": judge},
        "graders": {
            "judge": {"use": "judge", "judge": "local", "verdict": {"format": "choice", "min_mass": 0}}
        },
    }
    path.write_text(json.dumps(config))
    return load_runner(path)


def _layers_of(runner: Any) -> Callable[[list[JudgeRequest]], Awaitable[None]]:
    """The judge as reward.yaml makes it, without its runner."""
    made = runner.graders["judge"].judge
    return lambda batch: all_at_once(made.complete, batch)


def _one_call_each(actor: Any) -> Callable[[JudgeRequest], Awaitable[Any]]:
    """One Ray call per request, as a first version does it."""
    from judgekit.judges.engines.ray.packing import pack_requests

    async def ask(request: JudgeRequest) -> Any:
        caller = f"naive-{id(request)}"
        life = await actor.submit.remote(caller, pack_requests([(0, request)]))
        return await actor.collect.remote(caller, life, 0, 60.0)

    return ask


async def _naive_clients(port: int) -> tuple[Any, Any]:
    import aiohttp
    import openai

    # with its own retries: a server may close an idle connection as it is used
    return aiohttp.ClientSession(), openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x")


def _naive_post(session: Any, port: int, out: int) -> Callable[[JudgeRequest], Awaitable[Any]]:
    async def ask(request: JudgeRequest) -> Any:
        body = {"model": "judge", "messages": messages(request), "max_tokens": out, "temperature": 0}
        async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as response:
            return await response.json()

    return ask


def _body(prompts: list[list[int]], label_ids: list[int]) -> bytes:
    """What OpenAIJudge sends for so many prompts."""
    reads = {"logprobs": 0, "logprob_token_ids": label_ids, "return_tokens_as_token_ids": True}
    fields = {"model": "judge", "prompt": prompts, "max_tokens": 1, "temperature": 0, **reads}
    return json.dumps(fields).encode()


async def _posts(session: Any, port: int, bodies: list[bytes]) -> None:
    """Send bodies that are ready, eight at a time, and read the answers as JSON."""
    left = iter(bodies)

    async def worker() -> None:
        for body in left:
            headers = {"Content-Type": "application/json"}
            async with session.post(
                f"http://127.0.0.1:{port}/v1/completions", data=body, headers=headers
            ) as answer:
                answer.raise_for_status()
                json.loads(await answer.read())

    await asyncio.gather(*(worker() for _ in range(8)))


def _naive_sdk(client: Any, out: int) -> Callable[[JudgeRequest], Awaitable[Any]]:
    async def ask(request: JudgeRequest) -> Any:
        return await client.chat.completions.create(
            model="judge", messages=messages(request), max_tokens=out, temperature=0
        )

    return ask


async def prefix_hits(judge: VLLMJudge) -> float:
    """Cached tokens over the cacheable ones: the shared full blocks of all but a group's first member."""
    batch = requests(rollouts(9999), 1)
    replies: dict[int, Any] = {}

    async def ask(request: JudgeRequest) -> None:
        replies[id(request)] = await judge.complete(request)

    await all_at_once(ask, batch)
    assert judge._engine is not None
    encode = judge._engine.encoder.encode
    cached = cacheable = 0
    for start in range(0, len(batch), PER_GROUP):
        members = batch[start : start + PER_GROUP]
        ids = [encode(r.turns, reply_tokens=1).ids for r in members]
        shared = next(i for i, tokens in enumerate(zip(*ids, strict=False)) if len(set(tokens)) > 1)
        cacheable += (PER_GROUP - 1) * (shared // BLOCK * BLOCK)
        cached += sum(replies[id(r)].usage.cached_tokens for r in members)
    common = encode(
        batch[0].turns, reply_tokens=1
    ).ids  # the template's own beginning is shared by all groups
    other = encode(batch[PER_GROUP].turns, reply_tokens=1).ids
    over_all = next(i for i, (a, b) in enumerate(zip(common, other, strict=False)) if a != b) // BLOCK * BLOCK
    cached -= over_all * (len(batch) // PER_GROUP - 1)
    return cached / cacheable


async def calls() -> int:
    """64 rollouts of which 16 pass the gate, these being 8 distinct texts twice each."""
    from judgekit import Gate, Score, grader
    from judgekit.testing import ScriptedJudge

    @grader
    def right(rollout: Rollout) -> bool:
        return rollout.response.startswith("right")

    inner = ScriptedJudge("1", latency_s=0.001)
    judge = JudgeGrader(stacked(inner, LayerOptions(cache=CacheOptions())))
    runner = GradingRunner(
        {"right": right, "judge": judge}, Gate(if_=Score("right") >= 1, then="judge", otherwise=0.0)
    )
    texts = [f"right {i % 8}" if i < 16 else f"wrong {i}" for i in range(64)]
    await runner.run(
        [Rollout(prompt="p", ground_truth="1", response=text, group=i // 8) for i, text in enumerate(texts)]
    )
    return len(inner.requests)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["m1", "m4", "auto"])
    parser.add_argument(
        "--quick", action="store_true", help="only replies of one token, for which there are goals"
    )
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    import ray
    from tiny_models import make_model

    print(machine())
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    figures = FIGURES
    with tempfile.TemporaryDirectory() as folder:
        for model, layers, hidden in (("m1", 1, 64), ("m4", 4, 256)):
            if chosen.only in (None, model):
                path = make_model(Path(folder) / model, layers=layers, hidden=hidden)
                one = asyncio.run(measure(model, path, 1, chosen.rounds, naive=model == "m1"))
                figures |= {name: value for name, value in one.items() if name.endswith(model)}
                if one["naive"]:
                    figures[f"naive_{model}"] = one["naive"]
                    figures["layers_cost_ms"] = one["layers_cost_ms"]
                    figures["client_cpu_ms"] = one["client_cpu_ms"]
                    figures["inprocess_cpu_ms"] = one["inprocess_cpu_ms"]
                    figures["http_ready_bodies"] = one["http_ready_bodies"]
                if not chosen.quick:
                    sixteen = asyncio.run(measure(model, path, 16, chosen.rounds, naive=False))
                    figures |= {f"{k}_16": value for k, value in sixteen.items() if k.endswith(model)}
                    hits = sixteen["prefix_hit_rate"]
                    figures["prefix_hit_rate"] = min(figures.get("prefix_hit_rate", 1.0), hits)
    with tempfile.TemporaryDirectory() as folder:
        if chosen.only in (None, "auto"):
            path = make_model(Path(folder) / "m1", layers=1, hidden=64)
            for sequences in (16, 128):
                figures[f"auto_over_best_{sequences}"] = asyncio.run(measure_auto(path, sequences))
    figures["calls"] = asyncio.run(calls())
    ray.shutdown()
    asked = {name: goal for name, goal in GOALS.items() if _asked(name, chosen)}
    finish(figures, asked)


def _asked(name: str, chosen: argparse.Namespace) -> bool:
    """Whether a run with these options measures a figure."""
    if name.startswith("auto"):
        return chosen.only in (None, "auto")
    if name.endswith(("_m1", "_m4")):
        return chosen.only in (None, name[-2:])
    if name == "prefix_hit_rate":
        return not chosen.quick and chosen.only != "auto"
    return chosen.only in (None, "m1")


if __name__ == "__main__":
    reported(main)
