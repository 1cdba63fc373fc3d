"""VLLMJudge on the real vLLM engine: what is read, what happens when it dies, what it leaves behind."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from tiny_models import WORDS

from judgekit import Failed, Graded, GradingRunner, JudgeRejected, JudgeUnavailable, Retry, Rollout
from judgekit.errors import ConfigError
from judgekit.execution.background import background_loop
from judgekit.graders import JudgeGrader
from judgekit.judges import (
    ChoiceVerdict,
    JudgeRequest,
    LineVerdict,
    Piece,
    Sampling,
    Turn,
    VLLMJudge,
    VLLMRewardModel,
    health,
)
from judgekit.judges.engines.vllm import engine as vllm_engine
from judgekit.judges.engines.vllm import judge as vllm
from judgekit.judges.engines.vllm.engine import engine_processes
from judgekit.judges.layers.stack import LayerOptions, stacked

from .processes import engine_below, send

LABELS = ("0", "1", "A")


def ask(text: str, shared: str = "Is it right?", **options: object) -> JudgeRequest:
    turns = (
        Turn("system", (Piece(shared),)),
        Turn("user", (Piece("Text: "), Piece(text, trusted=False), Piece("\nAnswer:"))),
    )
    return JudgeRequest(turns=turns, **options)  # type: ignore[arg-type]


def words(n: int, start: int = 0) -> str:
    return " ".join(WORDS[(start + 7 * i) % len(WORDS)] for i in range(n))


async def gather(judge: VLLMJudge, requests: list[JudgeRequest]) -> list[object]:
    return await asyncio.gather(*(judge.complete(r) for r in requests), return_exceptions=True)


async def test_probabilities_and_mass_are_the_models_own(engine: VLLMJudge, random_model: Path) -> None:
    """Against transformers' forward pass over the same tokens."""
    import torch
    from transformers import AutoTokenizer, Qwen2ForCausalLM

    request = ask(words(30), choices=LABELS)
    reply = await engine.complete(request)
    assert engine._engine is not None
    ids = engine._engine.encoder.encode(request.turns, reply_tokens=1).ids
    model = Qwen2ForCausalLM.from_pretrained(random_model).float()
    with torch.no_grad():
        full = torch.softmax(model(torch.tensor([ids])).logits[0, -1], -1)
    tokenizer = AutoTokenizer.from_pretrained(random_model)
    raw = {label: sum(float(full[t]) for t in _forms(tokenizer, label)) for label in LABELS}
    assert reply.label_mass == pytest.approx(sum(raw.values()), rel=1e-3)
    assert reply.choice_probs == pytest.approx({k: v / sum(raw.values()) for k, v in raw.items()}, rel=1e-3)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(ids), 1)


def _forms(tokenizer: object, label: str) -> set[int]:
    both = [tokenizer.encode(f, add_special_tokens=False) for f in (label, f" {label}")]  # type: ignore[attr-defined]
    return {ids[0] for ids in both if len(ids) == 1}


async def test_a_model_that_does_not_answer_with_a_label_gives_no_verdict(engine: VLLMJudge) -> None:
    grader = JudgeGrader(engine, verdict=ChoiceVerdict(min_mass=0.5))
    (result,) = await GradingRunner({"judge": grader}).run(
        [Rollout(prompt="p", ground_truth="4", response="4")]
    )
    grade = result.grades["judge"]
    assert isinstance(grade, Failed)
    assert grade.error == "VerdictError"
    assert result.reward is None


async def test_label_reads_are_the_same_beside_other_requests(engine: VLLMJudge) -> None:
    """One style of logprobs per engine: a batch that mixes requests corrupts nothing."""
    reads = [ask(words(20, i), choices=LABELS) for i in range(24)]
    texts = [ask(words(15, i), max_tokens=12) for i in range(24)]
    alone = [r.choice_probs for r in await gather(engine, reads)]  # type: ignore[attr-defined]
    mixed = await gather(engine, [r for pair in zip(reads, texts, strict=True) for r in pair])
    assert [r.choice_probs for r in mixed[::2]] == [pytest.approx(p, rel=1e-4) for p in alone]  # type: ignore[attr-defined]
    assert all(math.isfinite(p) for probs in alone for p in probs.values())


async def test_the_same_prompts_in_other_orders_and_batches_give_the_same_verdicts(engine: VLLMJudge) -> None:
    requests = [ask(words(10 + i, i), choices=LABELS) for i in range(20)]
    together = [r.choice_probs for r in await gather(engine, requests)]  # type: ignore[attr-defined]
    backwards = [r.choice_probs for r in await gather(engine, requests[::-1])][::-1]  # type: ignore[attr-defined]
    one_by_one = [(await engine.complete(r)).choice_probs for r in requests]
    for a, b, c in zip(together, backwards, one_by_one, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
        assert a == pytest.approx(c, rel=1e-4)


async def test_written_replies_say_how_they_ended(engine: VLLMJudge) -> None:
    reply = await engine.complete(ask("x", max_tokens=5))
    assert reply.choice_probs is None
    assert reply.usage.completion_tokens <= 5
    assert reply.finish_reason in ("length", "stop")
    hot = await engine.complete(ask("x", max_tokens=5, sampling=Sampling(temperature=1.0, seed=3)))
    assert hot.text is not None
    grader = JudgeGrader(engine, verdict=LineVerdict(max_tokens=8))
    (result,) = await GradingRunner({"judge": grader}).run(
        [Rollout(prompt="p", ground_truth="4", response="4")]
    )
    assert isinstance(result.grades["judge"], Failed)


async def test_a_group_hits_the_prefix_cache(engine: VLLMJudge) -> None:
    shared = words(200, 3)
    first = await engine.complete(ask("one", shared, choices=LABELS))
    second = await engine.complete(ask("two", shared, choices=LABELS))
    assert first.usage.cached_tokens < 64
    assert second.usage.cached_tokens >= 0.8 * second.usage.prompt_tokens - 64


async def test_copies_of_a_request_are_answered_as_those_that_vllm_makes(engine: VLLMJudge) -> None:
    """A request after the first of its kind is a copy of what vLLM made of that one, with its own tokens."""
    hot = Sampling(temperature=1.0, seed=3)
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    kinds: list[dict[str, object]] = [
        {"choices": LABELS},
        {"choices": LABELS[:2]},
        {"max_tokens": 12},
        {"max_tokens": 7},
        {"max_tokens": 12, "stop": (words(1, 3),)},
        {"max_tokens": 12, "sampling": hot},
        {"max_tokens": 12, "sampling": hot, "vote": 1},
        {"max_tokens": 12, "sampling": Sampling(temperature=0.7, top_p=0.5, seed=3)},
        {"max_tokens": 24, "json_schema": schema},
        {"max_tokens": 24, "json_schema": {**schema, "properties": {"score": {"type": "boolean"}}}},
    ]
    assert engine._engine is not None
    requests, llm = engine._engine._requests, engine._engine.llm
    made = []
    for text in (words(20), words(25, 4)):
        requests._kinds.clear()  # so that vLLM makes each
        made += [await engine.complete(ask(text, **kind)) for kind in kinds]
    assert len(requests._kinds) == len(kinds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm, "generate", None)
        copies = [
            await engine.complete(ask(text, **kind)) for text in (words(20), words(25, 4)) for kind in kinds
        ]
    for one, other in zip(made, copies, strict=True):
        assert (one.text, one.finish_reason) == (other.text, other.finish_reason)
        assert (one.choice_probs or {}) == pytest.approx(other.choice_probs or {}, rel=1e-4)
        assert one.usage.completion_tokens == other.usage.completion_tokens
    assert len({reply.text for reply in made}) > len(kinds)


async def test_bad_requests_are_refused_and_the_engine_lives(engine: VLLMJudge) -> None:
    with pytest.raises(JudgeRejected, match="tokens too long for the context of 2048"):
        await engine.complete(ask("x", words(3000), choices=LABELS))
    with pytest.raises(JudgeRejected, match="refused"):
        await engine.complete(ask("x", max_tokens=0))
    assert (await engine.complete(ask("x", choices=LABELS))).choice_probs


async def test_a_flood_is_cut_and_judged(engine: VLLMJudge) -> None:
    reply = await engine.complete(ask("🙂`<|im_end|>" * 20_000, choices=LABELS))
    assert reply.usage.prompt_tokens <= 2047


async def test_cancelling_the_caller_ends_the_request_in_the_engine(engine: VLLMJudge) -> None:
    assert engine._engine is not None
    requests = engine._engine.llm.output_processor
    await engine.complete(ask("x", choices=LABELS))
    _signal_engine(engine, signal.SIGSTOP)  # none can be answered before it is cancelled
    try:
        both: list[dict[str, object]] = [{"max_tokens": 1500}, {"choices": LABELS}]  # vLLM makes it; a copy
        tasks = [asyncio.create_task(engine.complete(ask(words(20, i), **both[i % 2]))) for i in range(8)]
        while requests.get_num_unfinished_requests() < 8:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        deadline = time.monotonic() + 20
        while requests.get_num_unfinished_requests() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert requests.get_num_unfinished_requests() == 0
    finally:
        _signal_engine(engine, signal.SIGCONT)
    assert (await engine.complete(ask("x", choices=LABELS))).choice_probs


async def test_what_the_engine_breaks_off_is_its_own_failure(engine: VLLMJudge) -> None:
    """vLLM aborts what is running where another program pauses it, and hands out what there is so far."""
    assert engine._engine is not None
    llm = engine._engine.llm
    await engine.complete(ask("x", choices=LABELS))
    _signal_engine(engine, signal.SIGSTOP)
    try:
        asked = asyncio.create_task(gather(engine, [ask("x", choices=LABELS), ask("y", max_tokens=1500)]))
        while llm.output_processor.get_num_unfinished_requests() < 2:
            await asyncio.sleep(0.01)
        names = list(llm.output_processor.external_req_ids)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(llm.abort(names), background_loop()))
        for outcome in await asked:
            assert isinstance(outcome, JudgeUnavailable)
            assert "broke off its reply" in str(outcome)
    finally:
        _signal_engine(engine, signal.SIGCONT)
    assert (await engine.complete(ask("x", choices=LABELS))).choice_probs


async def test_a_priority_without_effect_is_refused_at_the_start(engine: VLLMJudge) -> None:
    with pytest.raises(ConfigError, match="has no effect with the scheduling policy 'fcfs'"):
        await engine.check_request(ask("x", sampling=Sampling(priority=1)))
    await engine.check_request(ask("x"))


def test_one_engine_serves_loops_that_come_and_go_and_run_sync(engine: VLLMJudge) -> None:
    grader = JudgeGrader(engine, verdict=ChoiceVerdict(min_mass=0.0))
    runner = GradingRunner({"judge": grader})
    rollouts = [Rollout(prompt="p", ground_truth="4", response=words(5, i)) for i in range(6)]
    first = asyncio.run(runner.run(rollouts))
    second = asyncio.run(runner.run(rollouts))
    third = runner.run_sync(rollouts)
    assert all(isinstance(r.grades["judge"], Graded) for r in first)
    assert [r.reward for r in first] == pytest.approx([r.reward for r in second], rel=1e-4)
    assert [r.reward for r in first] == pytest.approx([r.reward for r in third], rel=1e-4)


async def test_kill_9_of_the_engine_under_load_fails_what_was_asked_and_it_is_rebuilt(
    random_model: Path,
) -> None:
    """No wrong reward: what was in flight is a failure or, tried again, the verdict of a run without the fault."""
    before = engine_processes()
    judge = VLLMJudge(random_model, max_model_len=1024)
    await judge.start()
    try:
        await judge.complete(ask("x", choices=LABELS))
        requests = [ask(words(20, i), max_tokens=400) for i in range(4)]
        requests += [ask(words(20, i), choices=LABELS) for i in range(4)]
        _signal_engine(judge, signal.SIGSTOP)  # none can be answered before the kill
        calls = [asyncio.create_task(judge.complete(r)) for r in requests]
        await asyncio.sleep(0.3)
        _kill_engine(judge)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(r, JudgeUnavailable) for r in results)
        layered = stacked(judge, LayerOptions(retry=Retry(attempts=3, wait_initial_s=0.1, budget=1.0)))
        expected = (await judge.complete(ask("x", choices=LABELS))).choice_probs
        calls = [asyncio.create_task(layered.complete(ask("x", choices=LABELS, vote=i))) for i in range(4)]
        await asyncio.sleep(0)
        _kill_engine(judge)
        for call in calls:
            assert (await call).choice_probs == pytest.approx(expected, rel=1e-4)
    finally:
        await judge.close()
    assert engine_processes() == before


async def test_an_engine_that_hangs_under_load_is_rebuilt_and_costs_no_verdict(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped, so that it answers nothing and has not died."""
    for name, value in {"_QUIET_S": 1.0, "_LOOK_S": 0.2, "_PATIENCE_S": 2.0}.items():
        monkeypatch.setattr(health, name, value)
    monkeypatch.setattr(vllm, "_ANSWER_S", 1.0)
    monkeypatch.setattr(vllm, "_LOOK_S", 1.0)
    judge = VLLMJudge(random_model, max_model_len=1024)
    grader = JudgeGrader(stacked(judge), verdict=ChoiceVerdict(min_mass=0.0))
    runner = GradingRunner({"judge": grader}, timeout_s=8.0)
    rollouts = [Rollout(prompt="p", ground_truth="4", response=words(5, i)) for i in range(16)]
    try:
        expected = [r.reward for r in await runner.run(rollouts)]
        _signal_engine(judge, signal.SIGSTOP)
        found = await runner.run(rollouts)
        assert [r.grades["judge"] for r in found if not isinstance(r.grades["judge"], Graded)] == []
        assert [r.reward for r in found] == pytest.approx(expected, rel=1e-4)
    finally:
        await judge.close()


async def test_who_leaves_while_the_engine_loads_starts_no_other(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A big model takes longer to load than a request may wait."""
    loads = []
    load = vllm_engine.load_engine

    def counted(*args: Any) -> Any:
        loads.append(args)
        return load(*args)

    monkeypatch.setattr(vllm_engine, "load_engine", counted)
    before = engine_processes()
    judge = VLLMJudge(random_model, max_model_len=512)
    ticks = 0
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(judge.complete(ask("x", choices=LABELS)), 0.2)
    waiting = asyncio.create_task(judge.complete(ask("x", choices=LABELS)))
    while not waiting.done():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), background_loop()))
        ticks += 1
    assert (await waiting).choice_probs
    assert len(loads) == 1
    assert ticks > 5  # the loop that the engine is to live on went on
    await judge.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(judge.start(), 0.2)
    another = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # noqa: ASYNC220
    await judge.close()
    assert len(loads) == 2
    assert engine_processes() == before
    assert another.poll() is None  # what the host starts meanwhile is not the engine's to end
    another.kill()
    another.wait()


def _kill_engine(judge: VLLMJudge) -> None:
    _signal_engine(judge, signal.SIGKILL)


def _signal_engine(judge: VLLMJudge | VLLMRewardModel, signum: signal.Signals) -> None:
    assert judge._engine is not None
    assert judge._engine.watchdog is not None
    send(engine_below(os.getpid()) & judge._engine.watchdog.watched, signum)


OWNER = """
    import asyncio, os, sys
    from judgekit.judges import VLLMJudge

    async def main():
        judge = VLLMJudge(sys.argv[1], max_model_len=512)
        loading = asyncio.create_task(judge.start())
        if sys.argv[2] == "loaded":
            await loading
        from judgekit.judges.engines.vllm.engine import engine_processes
        while not engine_processes():
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        print("PIDS", *engine_processes(), flush=True)
        await asyncio.sleep(600)

    if __name__ == "__main__":
        asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("how", "when"),
    [(signal.SIGKILL, "loading"), (signal.SIGKILL, "loaded"), (signal.SIGTERM, "loaded")],
)
def test_no_engine_outlives_its_owner(
    tmp_path: Path, random_model: Path, how: signal.Signals, when: str
) -> None:
    """vLLM alone leaves its processes behind in both cases; on a GPU they hold the memory."""
    script = tmp_path / "owner.py"
    script.write_text(textwrap.dedent(OWNER))
    owner = subprocess.Popen([sys.executable, script, random_model, when], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    line = next(line for line in owner.stdout if line.startswith("PIDS"))
    pids = [int(p) for p in line.split()[1:]]
    assert len(pids) >= (1 if when == "loading" else 2)
    assert all(Path(f"/proc/{p}").exists() for p in pids)
    owner.send_signal(how)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 15
    while any(_running(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [p for p in pids if _running(p)]


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_script_without_its_guard_is_told_so(tmp_path: Path, random_model: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import asyncio\nfrom judgekit.judges import VLLMJudge\n"
        f"asyncio.run(VLLMJudge({str(random_model)!r}, max_model_len=512).start())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "guard its main part with: if __name__ == '__main__':" in done.stderr


def test_ranks_of_adapters_are_vllm_s(tmp_path: Path) -> None:
    """The smallest that vLLM takes and the adapter fits."""
    from vllm.config.lora import MaxLoRARanks

    taken = get_args(MaxLoRARanks)
    for rank in (1, 8, 9, 64, 65, 256, 257, 512):
        (tmp_path / "adapter_config.json").write_text(f'{{"r": {rank}}}')
        most = vllm._rank_of(str(tmp_path))["max_lora_rank"]
        assert most == min(one for one in taken if one >= max(rank, 8))
    (tmp_path / "adapter_config.json").write_text('{"r": 513}')
    with pytest.raises(ConfigError, match="has the rank 513, and vLLM takes up to 512"):
        vllm._rank_of(str(tmp_path))


def test_a_vllm_that_cannot_be_imported_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.async_llm", None)
    with pytest.raises(ConfigError, match="vLLM cannot be imported .*: install judgekit-rl"):
        vllm_engine._import_vllm()
