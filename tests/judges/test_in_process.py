"""How an in-process engine is loaded, and what its identity covers; with a stand-in for vLLM's engine."""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit import ConfigError, GradingRunner, JudgeRejected, JudgeUnavailable, Rollout
from judgekit.execution.background import close_background_loop, in_background
from judgekit.graders import JudgeGrader
from judgekit.judges import JudgeReply, JudgeRequest, VLLMJudge, VLLMRewardModel
from judgekit.judges.engines.vllm import engine as vllm_engine
from judgekit.judges.engines.vllm import judge as vllm
from judgekit.judges.engines.vllm.judge import engine_identity, weights_identity
from judgekit.types import Usage


class Engine:
    sequences = 8

    def __init__(self) -> None:
        self.dead = self.hung = self.killed = self.given_up = False
        self.busy = True
        """Whether its processes do anything while it hangs."""
        self.model = ""
        self.asked: list[Any] = []

    def label_ids(self, choices: tuple[str, ...]) -> dict[str, list[int]]:
        return {label: [number] for number, label in enumerate(choices)}

    def check_priority(self, priority: int) -> None:
        assert priority == 0

    async def complete(self, request: JudgeRequest) -> JudgeReply:
        self.asked.append(request)
        while self.hung and not self.dead:
            await asyncio.sleep(0.01)
        if self.dead:
            raise JudgeUnavailable("the engine has died")
        return JudgeReply("1", choice_probs={"0": 0.0, "1": 1.0}, label_mass=1.0, model=self.model)

    async def reward(self, turns: Any) -> tuple[float, Usage]:
        self.asked.append(turns)
        return 0.5, Usage()

    def pulse(self) -> Engine:
        return self

    def stood_still(self) -> bool:
        return self.hung and not self.busy

    async def ping(self) -> None:
        while self.hung and not self.dead:
            await asyncio.sleep(0.01)

    def give_up(self) -> None:
        self.given_up = True

    def kill(self) -> None:
        self.dead = self.killed = True

    def shutdown(self) -> None:
        self.dead = True


class Loader:
    """In place of `load_engine`: fails as often as told, and takes as long."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.engines: list[Engine] = []
        self.loads = 0
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Engine:
        import time

        self.loads += 1
        time.sleep(self.seconds)
        if self.errors:
            raise self.errors.pop(0)
        self.engines.append(Engine())
        return self.engines[-1]


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loader:
    made = Loader()
    monkeypatch.setattr(vllm_engine, "load_engine", made)
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    return made


REQUEST = JudgeRequest(turns=(), choices=("0", "1"))


async def outcomes(judge: VLLMJudge, count: int) -> set[str]:
    found = await asyncio.gather(*(judge.complete(REQUEST) for _ in range(count)), return_exceptions=True)
    return {type(one).__name__ for one in found}


async def test_a_model_that_cannot_load_is_not_loaded_for_each_caller(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7. It is tried again after a pause, which grows."""
    loader.errors = [JudgeUnavailable("out of memory")] * 2
    judge = VLLMJudge()
    for _ in range(5):
        assert await outcomes(judge, 8) == {"JudgeUnavailable"}
    with pytest.raises(JudgeUnavailable, match="out of memory"):
        await judge.start()
    assert not await judge.ready()
    assert loader.loads == 1
    assert judge._pause_s == 2 * vllm._PAUSE_S
    judge._not_before = 0.0  # the pause is over
    assert await outcomes(judge, 8) == {"JudgeUnavailable"}
    assert loader.loads == 2
    assert judge._pause_s == 4 * vllm._PAUSE_S
    judge._not_before = 0.0
    assert await outcomes(judge, 8) == {"JudgeReply"}
    assert (loader.loads, judge._pause_s) == (3, vllm._PAUSE_S)
    await judge.close()


async def test_a_wrong_argument_is_final_until_the_judge_is_closed(loader: Loader) -> None:
    loader.errors = [ConfigError("no such argument")]
    judge = VLLMJudge()
    for _ in range(3):
        with pytest.raises(ConfigError, match="no such argument"):
            await judge.complete(REQUEST)
    with pytest.raises(ConfigError, match="no such argument"):
        await judge.ready()
    assert loader.loads == 1
    await judge.close()
    assert await outcomes(judge, 1) == {"JudgeReply"}


async def test_ready_begins_to_load_and_does_not_wait_for_it(loader: Loader) -> None:
    judge = VLLMJudge()
    assert not await judge.ready()
    while not await judge.ready():
        await asyncio.sleep(0.01)
    assert loader.loads == 1
    loader.engines[0].dead = True
    assert not await judge.ready()
    while not await judge.ready():
        await asyncio.sleep(0.01)
    assert loader.loads == 2
    await judge.close()


async def test_an_engine_that_hangs_is_ended_and_loaded_again(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "_ANSWER_S", 0.01)
    judge = VLLMJudge()
    await judge.start()
    (engine,) = loader.engines
    engine.hung = True
    assert set(await asyncio.gather(*(judge.ready() for _ in range(8)))) == {False}
    assert not engine.killed  # it may be busy
    engine.hung = False
    assert await judge.ready()
    monkeypatch.setattr(vllm, "_LOOK_S", 0.01)
    engine.hung = True
    assert not await judge.ready()
    while loader.loads < 2:  # nobody asks for it any more
        await asyncio.sleep(0.01)
    assert engine.killed
    while not await judge.ready():
        await asyncio.sleep(0.01)
    await judge.close()


@pytest.mark.parametrize("busy", [False, True])
async def test_an_engine_that_has_requests_and_does_nothing_is_ended_unasked(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """One whose processes are at work may have a long step to do."""
    monkeypatch.setattr(vllm, "_LOOK_S", 0.01)
    monkeypatch.setattr(vllm, "_HANGS", 1_000_000)
    judge = VLLMJudge()
    await judge.start()
    (engine,) = loader.engines
    engine.hung, engine.busy = True, busy
    call = asyncio.create_task(judge.complete(REQUEST))
    if busy:
        await judge.ready()
        await asyncio.sleep(0.5)
        assert not engine.killed
        engine.hung = False
        assert (await call).text == "1"
    else:
        with pytest.raises(JudgeUnavailable):
            await asyncio.wait_for(call, 60)
        assert engine.killed
        assert await outcomes(judge, 3) == {"JudgeReply"}
    await judge.close()


async def test_an_engine_that_is_closed_fails_what_it_still_has(loader: Loader) -> None:
    judge = VLLMJudge()
    await judge.start()
    (engine,) = loader.engines
    await judge.close()
    assert engine.given_up


async def test_an_engine_without_requests_is_left_alone(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "_LOOK_S", 0.01)
    judge = VLLMJudge()
    await judge.start()
    (engine,) = loader.engines
    assert await outcomes(judge, 3) == {"JudgeReply"}
    engine.hung, engine.busy = True, False
    await asyncio.sleep(0.5)
    assert not engine.killed
    engine.hung = False
    await judge.close()


async def test_start_asks_for_one_verdict(loader: Loader) -> None:
    """So that no rollout waits for what an engine makes on its first request."""
    judge = VLLMJudge()
    await judge.start()
    await judge.start()
    (asked,) = loader.engines[0].asked
    assert asked.choices == ("0", "1")
    await judge.close()
    model = VLLMRewardModel(judge.path)
    await model.start()
    assert len(loader.engines[1].asked) == 1
    await model.close()


async def test_a_warm_up_that_fails_is_no_failure_of_the_model(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where the engine dies of it."""

    async def refuses(self: Engine, request: JudgeRequest) -> JudgeReply:
        self.asked.append(request)
        raise ConfigError("'0' is not one token") if request.choices else JudgeRejected("too short")

    monkeypatch.setattr(Engine, "complete", refuses)
    judge = VLLMJudge()
    await judge.start()
    assert [r.choices for r in loader.engines[0].asked] == [("0", "1"), ()]
    await judge.close()

    async def dies(self: Engine, request: JudgeRequest) -> JudgeReply:
        self.dead = True
        raise JudgeUnavailable("the engine has died")

    monkeypatch.setattr(Engine, "complete", dies)
    with pytest.raises(JudgeUnavailable, match="has died"):
        await judge.start()
    await judge.close()


async def test_loading_counts_against_no_evaluation(loader: Loader) -> None:
    """Where nothing was started before; and where the engine dies between two evaluations, without layers."""
    loader.seconds = 2.0
    judge = VLLMJudge()
    runner = GradingRunner({"judge": JudgeGrader(judge)}, timeout_s=1.0)
    rollouts = [Rollout(prompt="p", ground_truth="1", response=f"text {i}") for i in range(4)]
    assert [r.reward for r in await runner.run(rollouts)] == [1.0] * 4
    loader.engines[0].dead = True
    assert [r.reward for r in await runner.run(rollouts)] == [1.0] * 4
    assert loader.loads == 2
    await judge.close()


# ---- labels


@pytest.mark.parametrize(
    ("reads_labels", "given", "complete"),
    [
        (True, (10, 20, 11, 21), True),
        (True, (10, 11, 21), False),
        (False, (10, 21), True),
        (False, (10, 20), False),
    ],
)
def test_a_label_that_the_engine_left_out_is_no_zero(
    reads_labels: bool, given: tuple[int, ...], complete: bool
) -> None:
    engine: Any = SimpleNamespace(_reads_labels=reads_labels, model="judge")
    done = SimpleNamespace(logprobs=[{i: SimpleNamespace(logprob=math.log(0.125)) for i in given}])
    labels = {"0": [10, 20], "1": [11, 21]}
    if complete:
        assert vllm_engine.Engine._read(engine, done, labels)[0] == {"0": 0.5, "1": 0.5}
    else:
        with pytest.raises(JudgeUnavailable, match="left out the probability"):
            vllm_engine.Engine._read(engine, done, labels)


# ---- identity


def model_folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(bytes(5 << 20))
    return path


def test_every_byte_of_the_weights_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    folder = model_folder(tmp_path / "model")
    before = weights_identity(str(folder))
    assert before.startswith("model-")
    (folder / "README.md").write_text("about it")
    assert weights_identity(str(folder)) == before
    weights = folder / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(5 << 19)  # in the middle
        file.write(b"x")
    os.utime(weights, ns=(1, 1))  # a clock too coarse to see the change
    assert weights_identity(str(folder)) != before


def test_weights_that_were_replaced_in_place_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a copy that keeps the time stamp, as `cp -p` from two archives with fixed times."""
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    folder = model_folder(tmp_path / "model")
    weights = folder / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    before = weights_identity(str(folder))
    weights.write_bytes(b"x" * (5 << 20))
    os.utime(weights, ns=(1, 1))
    assert weights_identity(str(folder)) != before


def test_files_that_a_model_or_its_arguments_name_count(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    template = tmp_path / "chat.jinja"
    draft = model_folder(tmp_path / "draft") / "model.safetensors"
    inner = folder / "1_Pooling" / "config.json"
    inner.parent.mkdir()
    args = {"chat_template": str(template), "speculative_config": {"model": str(draft.parent)}}
    seen = set()
    for changed in (template, draft, inner, folder / ".cache" / "downloaded"):
        changed.parent.mkdir(exist_ok=True)
        for text in ("A", "B"):
            changed.write_text(text)
            seen.add(engine_identity(str(folder), args, {}))
    assert len(seen) == 6  # what the hub's client keeps for itself is not read
    assert engine_identity(str(folder), {"chat_template": "{{ text }}" * 1000}, {}) not in seen


def test_large_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_STATE", str(tmp_path / "state"))
    folder = model_folder(tmp_path / "model")
    before = weights_identity(str(folder))
    store = tmp_path / "state" / "digests.json"
    (key,) = json.loads(store.read_text())
    assert "model.safetensors" in key
    store.write_text(json.dumps({key: "kept", f"{tmp_path}/gone:1:2:3:4": "x"}))
    assert weights_identity(str(folder)) != before  # the kept digest was taken
    for text in ("", "[]", '{"x": 1}', json.dumps({key: 7})):
        store.write_text(text)
        assert weights_identity(str(folder)) == before
    store.unlink()
    store.parent.rmdir()
    store.parent.write_text("no folder")  # it cannot be kept: it is read again
    assert weights_identity(str(folder)) == before


def test_a_hub_name_has_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert weights_identity("org/name") == "org/name"
    assert weights_identity("org/name", "v2") == "org/name@v2"
    refs = tmp_path / "hub" / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("abc123")
    assert weights_identity("org/name") == "org/name@abc123"


async def test_what_changes_numbers_changes_the_identity(loader: Loader) -> None:
    plain = VLLMJudge()
    same = VLLMJudge(gpu_memory_utilization=0.5, prefix_caching=False)
    others = [
        VLLMJudge(dtype="bfloat16"),
        VLLMJudge(engine_args={"quantization": "fp8"}),
        VLLMJudge(chat_template_kwargs={"reasoning_effort": "high"}),
        VLLMJudge(max_model_len=512),
    ]
    await plain.start()
    first = await plain.identity()
    assert first == loader.engines[0].model == await same.identity()
    assert len({first, *[await other.identity() for other in others]}) == 5
    await plain.close()


async def test_an_engine_loads_beside_graders_whose_threads_hang(loader: Loader) -> None:
    """`asyncio.to_thread` has few threads for the whole loop, and an SDK's hung calls may hold them all."""
    release = threading.Event()

    async def hang() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        asyncio.get_running_loop().run_in_executor(None, release.wait)

    await in_background(hang)
    await hang()
    judge = VLLMJudge()
    try:
        await asyncio.wait_for(judge.start(), 20)
        assert (await asyncio.wait_for(judge.complete(REQUEST), 20)).label_mass == 1.0
        await asyncio.wait_for(judge.close(), 20)
    finally:
        release.set()
        close_background_loop()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_hang_on_its_parents_engine(loader: Loader) -> None:
    judge = VLLMJudge()
    asyncio.run(judge.start())
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            asyncio.run(judge.complete(REQUEST))
            said = "answered"
        except BaseException as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.waitpid(child, 0)
    os.close(read)
    assert "answers only there" in said
    assert loader.loads == 1
    asyncio.run(judge.complete(REQUEST))
    asyncio.run(judge.close())
