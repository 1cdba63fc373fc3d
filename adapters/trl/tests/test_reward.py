"""What TRL hands over, and what it makes of the rewards: through `_calculate_rewards` and a training step."""

from __future__ import annotations

import importlib
import inspect
import math
import multiprocessing
import pickle
import threading
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spawned
from graders_for_tests import down, fussy, longest, odd
from judgekit import ConfigError, GradingRunner, Ledger, MissingRewardError, grader, read_ledger
from judgekit_trl import judgekit_reward
from toy_training import GROUP, Steps, check_advantages, rows, trainer

VERSION = tuple(int(part) for part in version("trl").split(".")[:2])
EXCLUDES = VERSION >= (1, 6)
needs_1_6 = pytest.mark.skipif(not EXCLUDES, reason="None is added up as 0")
SETTING: Any = "exclude" if EXCLUDES else "raise"
CORRECT = (
    "graders: {correct: {use: text_match, how: contains, part: whole}}\nrunner: {missing_reward: raise}\n"
)
seen: list[Any] = []


@grader
def looks(rollout: Any) -> float:
    seen.append(rollout)
    return 0.5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "reward.yaml"
    made.write_text(CORRECT)
    return made


def calculate(made: Any, batch: list[dict[str, Any]], completions: list[Any], ids: Any = None) -> list[float]:
    """TRL's rewards for the batch."""
    prompts = [row["prompt"] for row in batch]
    ids = ids or [[1] * 3 for _ in batch]
    return made._calculate_rewards(batch, prompts, completions, ids)[:, 0].tolist()


def looked(
    folder: Path, batch: list[dict[str, Any]], completions: list[Any], ids: Any = None, **options: Any
) -> Any:
    """The rollouts that graders get."""
    seen.clear()
    runner = GradingRunner({"looks": looks}, missing_reward=SETTING)
    made = trainer(folder, judgekit_reward(runner, **options))
    assert calculate(made, batch, completions, ids) == [0.5] * len(batch)
    return list(seen)


def test_what_trl_needs_of_a_reward_function(file: Path) -> None:
    reward = judgekit_reward(file)
    assert inspect.iscoroutinefunction(reward)
    assert reward.__name__ == "judgekit"
    assert pickle.loads(pickle.dumps(reward)).__name__ == "judgekit"


def test_it_works_in_a_spawned_process(file: Path) -> None:
    """As AsyncGRPOTrainer calls it: pickled, by group, with neither a trainer's state nor its log."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=spawned.call, args=(judgekit_reward(file), queue))
    process.start()
    assert queue.get(timeout=120) == [0.0, 1.0]
    process.join()
    assert process.exitcode == 0


def test_text(tmp_path: Path) -> None:
    batch = [{"prompt": "3?c", "solution": "c", "level": 2}] * GROUP
    first, *_ = looked(tmp_path, batch, ["cd"] * GROUP)
    assert (first.prompt, first.response, first.ground_truth) == ("3?c", "cd", "c")
    assert first.extra == {"solution": "c", "level": 2}
    assert first.response_tokens == 3
    assert first.prompt_text == "3?c"
    assert list(first.messages) == [
        {"role": "user", "content": "3?c"},
        {"role": "assistant", "content": "cd"},
    ]


def test_messages(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "repeat"}, {"role": "user", "content": "3?c"}]
    batch = [{"prompt": asked, "solution": "c"}] * GROUP
    first, *_ = looked(tmp_path, batch, [[{"role": "assistant", "content": "cd"}]] * GROUP)
    assert (first.prompt_text, first.response, first.response_tokens) == ("3?c", "cd", 3)
    assert list(first.messages) == [*asked, {"role": "assistant", "content": "cd"}]


def test_tool_calls(tmp_path: Path) -> None:
    """In TRL's form: arguments are a mapping, there are no ids, and the tokens include those of the answers."""
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    turns = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "3"},
        {"role": "assistant", "content": "It is 3."},
    ]
    batch = [{"prompt": [{"role": "user", "content": "1+2?"}], "solution": "3"}] * GROUP
    first, *_ = looked(tmp_path, batch, [turns] * GROUP, [[1] * 20] * GROUP)
    assert first.response == "It is 3."
    assert first.response_tokens is None
    assert list(first.messages)[1:] == turns


def test_trls_tool_calls_are_graded(tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text(
        "graders: {calls: {use: tool_calls}}\nrunner: {missing_reward: raise}\n"
    )
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    wanted = [{"name": "add", "arguments": {"a": 1, "b": 2}}]
    right = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    wrong = [{"role": "assistant", "content": "3"}]
    batch = [{"prompt": [{"role": "user", "content": "1+2?"}], "ground_truth": wanted}] * GROUP
    made = trainer(tmp_path, judgekit_reward(tmp_path / "reward.yaml"))
    assert calculate(made, batch, [right, wrong] * 4) == [1.0, 0.0] * 4


def test_columns_of_any_name(tmp_path: Path) -> None:
    row = {"prompt": "3?c", "function": "f", "self": "s", "given": "g", "config": None}
    first, *_ = looked(tmp_path, [row] * GROUP, ["c"] * GROUP)
    assert first.extra == {"function": "f", "self": "s", "given": "g", "config": None}


@pytest.mark.parametrize("column", ["ground_truth", "solution", "answer", "label"])
def test_the_reference_is_found(tmp_path: Path, column: str) -> None:
    batch = [{"prompt": "3?c", column: "c"}] * GROUP
    assert looked(tmp_path, batch, ["c"] * GROUP)[0].ground_truth == "c"


def test_the_reference_of_the_usual_data_sets(tmp_path: Path) -> None:
    row = {
        "prompt": "?",
        "reward_model": {"ground_truth": "c"},
        "data_source": "toy",
        "extra_info": {"index": 7},
    }
    first, *_ = looked(tmp_path, [row] * GROUP, ["c"] * GROUP)
    assert (first.ground_truth, first.data_source, first.extra) == ("c", "toy", {"index": 7})


def test_the_reference_is_named(tmp_path: Path) -> None:
    batch = [
        {"prompt": "3?c", "solution": "a long one", "short": "c", "reward_model": {"ground_truth": "x"}}
    ] * GROUP
    assert looked(tmp_path, batch, ["c"] * GROUP, ground_truth="short")[0].ground_truth == "c"
    with pytest.raises(
        ConfigError, match=r"ground_truth='shrt': the data set has no such column \(it has reward_m"
    ):
        looked(tmp_path, batch, ["c"] * GROUP, ground_truth="shrt")


def test_two_groups_of_one_prompt_are_two(tmp_path: Path) -> None:
    """A ranking within each of them, and different groups in the ledger."""
    runner = GradingRunner(
        {"longest": longest}, missing_reward=SETTING, ledger=Ledger(tmp_path / "ledger.jsonl")
    )
    made = trainer(tmp_path, judgekit_reward(runner))
    texts = ["a" * n for n in (1, 2, 3, 4, 5, 6, 7, 8)] + ["a" * n for n in (11, 12, 13, 14, 15, 16, 17, 18)]
    rewards = calculate(made, [{"prompt": "3?c", "solution": "c"}] * 16, texts)
    assert rewards == pytest.approx([i / 7 for i in range(8)] * 2)
    assert [entry.group for entry in read_ledger(tmp_path / "ledger.jsonl").entries] == ["0"] * 8 + ["1"] * 8


def test_groups_of_a_validation(tmp_path: Path) -> None:
    runner = GradingRunner({"longest": longest}, missing_reward=SETTING)
    made = trainer(tmp_path, judgekit_reward(runner), num_generations_eval=2)
    made.model.eval()
    rewards = calculate(made, [{"prompt": "3?c"}] * 4, ["a", "aa", "aaaa", "aaa"])
    assert rewards == [0.0, 1.0, 1.0, 0.0]


def test_a_part_of_a_group_is_refused_where_it_matters(tmp_path: Path, file: Path) -> None:
    batch = [{"prompt": "3?c", "solution": "c"}] * 4
    made = trainer(tmp_path, judgekit_reward(GradingRunner({"longest": longest}, missing_reward=SETTING)))
    with pytest.raises(
        ConfigError, match=r"8 rollouts are spread over ranks \(4 rows each\).*steps_per_generation a"
    ):
        calculate(made, batch, ["a"] * 4)
    made = trainer(tmp_path, judgekit_reward(file))
    assert calculate(made, batch, ["a", "c", "cc", "d"]) == [0.0, 1.0, 1.0, 0.0]


async def test_group_graders_need_the_trainer() -> None:
    """Where a function of the user's stands between and hands over too little."""
    reward = judgekit_reward(GradingRunner({"longest": longest}, missing_reward=SETTING))
    assert await reward(prompts=["a"] * 3, completions=["a", "aa", "aaa"]) == [0.0, 0.5, 1.0]
    with pytest.raises(ConfigError, match="hand log_metric on"):
        await reward(prompts=["a", "b"], completions=["a", "b"])


@pytest.mark.parametrize("rloo", [False, True])
@needs_1_6
def test_a_missing_reward_moves_no_siblings_advantage(tmp_path: Path, rloo: bool) -> None:
    steps = Steps()
    made = trainer(
        tmp_path,
        judgekit_reward(GradingRunner({"fussy": fussy})),
        callbacks=[steps],
        rloo=rloo,
        max_completion_length=3,
    )
    steps.trainer = made
    made.train()
    (kept,) = steps.kept
    lengths = [len(completion) for completion in kept["completions"]]
    for length, reward, score, why in zip(
        lengths,
        kept["rewards"],
        kept["extra"]["judgekit/fussy"],
        kept["extra"]["judgekit/missing"],
        strict=True,
    ):
        if length % 2:
            assert math.isnan(reward)
            assert score is None
            assert why.startswith("fussy: JudgeUnavailable")
        else:
            assert reward == pytest.approx(length / 10)
            assert (score, why) == (length / 10, "")
    share = sum(length % 2 for length in lengths) / 64
    assert 0 < share < 1
    (row,) = [row for row in made.state.log_history if "judgekit/rollouts" in row]
    assert row["judgekit/excluded_rate"] == row["judgekit/fussy/failure_rate"] == share
    assert row["judgekit/fussy/mean"] == pytest.approx(row["rewards/judgekit/mean"])
    figures = [value for name, value in row.items() if name.startswith("judgekit/")]
    assert all(type(value) is float and math.isfinite(value) for value in figures)
    for start in range(0, 64, GROUP):
        rewards, advantages = kept["rewards"][start:][:GROUP], kept["advantages"][start:][:GROUP]
        check_advantages(rewards, advantages, rloo=rloo)


@needs_1_6
def test_a_dropped_group_gives_no_gradient_and_moves_no_other(tmp_path: Path) -> None:
    steps = Steps()
    reward = GradingRunner({"odd": odd}, drop_if="share(reward >= 1) >= 0.5")
    made = trainer(tmp_path, judgekit_reward(reward), callbacks=[steps], max_completion_length=3)
    steps.trainer = made
    made.train()
    (kept,) = steps.kept
    odds = [float(len(completion) % 2) for completion in kept["completions"]]
    dropped = 0
    for start in range(0, 64, GROUP):
        own, rewards = odds[start:][:GROUP], kept["rewards"][start:][:GROUP]
        drops = sum(own) >= GROUP / 2
        dropped += drops
        assert all(map(math.isnan, rewards)) if drops else rewards == own
        check_advantages(rewards, kept["advantages"][start:][:GROUP])
    assert 0 < dropped < 64 / GROUP
    (row,) = [row for row in made.state.log_history if "judgekit/rollouts" in row]
    assert row["judgekit/dropped_rate"] == dropped * GROUP / 64


@needs_1_6
def test_nobody_was_graded(tmp_path: Path) -> None:
    """No mean of nothing is logged, and a step without any reward is a step without a gradient."""
    made = trainer(tmp_path, judgekit_reward(GradingRunner({"down": down})), steps=2)
    before = [parameter.clone() for parameter in made.model.parameters()]
    made.train()
    for row in made.state.log_history[:2]:
        assert row["judgekit/excluded_rate"] == 1.0
        assert row["judgekit/empty_group_rate"] == 1.0
        assert "judgekit/down/mean" not in row
    assert all((a == b).all() for a, b in zip(before, made.model.parameters(), strict=True))


@needs_1_6
def test_beside_another_reward_function(tmp_path: Path) -> None:
    """There TRL makes 0 of None: refused, unless the reward is never missing."""

    def other(completions: list[Any], **_: Any) -> list[float]:
        return [0.3] * len(completions)

    made = trainer(tmp_path, [judgekit_reward(GradingRunner({"down": down})), other])
    with pytest.raises(
        ConfigError, match=r"beside another reward function .* TRL adds a missing reward up as 0"
    ):
        made.train()
    made = trainer(tmp_path, [judgekit_reward(GradingRunner({"fussy": fussy}, missing_reward=-1)), other])
    made.train()


class Room:
    """An environment as TRL makes it: `reset`, tools, and state that is nobody's but its own."""

    def __init__(self) -> None:
        self.opened = 0
        self.lock = threading.Lock()
        self._key = "secret"

    def reset(self, **_: Any) -> None:
        self.opened = 0

    def open_door(self) -> str:
        """Open a door."""
        self.opened += 1
        return "open"

    @property
    def reward(self) -> float:
        return self.opened / 2

    @property
    def broken(self) -> float:
        raise RuntimeError("no state")


@grader(fields={"earned": "extra.environment_state.reward"})
def environment_reward(earned: float) -> float:
    return earned


@pytest.mark.skipif(VERSION < (1, 8), reason="no environments")
def test_graders_read_an_environment_s_state(tmp_path: Path) -> None:
    runner = GradingRunner({"looks": looks, "own": environment_reward}, {"looks": 0.5, "own": 0.5})
    made = trainer(tmp_path, judgekit_reward(runner))
    made.environments = [Room() for _ in range(GROUP)]
    for i, room in enumerate(made.environments):
        for _ in range(i % 3):
            room.open_door()
    seen.clear()
    batch = [{"prompt": "3?c"}] * GROUP
    assert calculate(made, batch, ["a"] * GROUP) == [0.25 + 0.25 * (i % 3) for i in range(GROUP)]
    assert seen[2].extra["environment_state"] == {"opened": 2, "reward": 1.0}


@pytest.mark.skipif(VERSION < (1, 8), reason="no environments")
def test_beside_an_environment_s_own_reward(tmp_path: Path) -> None:
    """The refusal says how its reward becomes a grader."""

    class Paying(Room):
        def get_reward(self) -> float:
            return 0.5

    made = trainer(tmp_path, judgekit_reward(GradingRunner({"down": down})))
    made.environments = [Paying() for _ in range(GROUP)]

    def get_reward(
        environments: Any, _env_type: Any = Paying, **kwargs: Any
    ) -> Any:  # TRL's own, word for word
        return [e.get_reward() if type(e) is _env_type else None for e in environments]

    made.reward_funcs.append(get_reward)
    made.reward_func_names.append("Paying")
    made.reward_processing_classes.append(None)
    with pytest.raises(
        ConfigError, match=r"make the environment's get_reward a property.*environment_state\.reward"
    ):
        calculate(made, [{"prompt": "3?c"}] * GROUP, ["a"] * GROUP)


@pytest.mark.skipif(VERSION < (1, 16), reason="its code was another")
async def test_async_grpo_leaves_a_missing_reward_out(file: Path) -> None:
    """AsyncGRPOTrainer's own code scores a group; its trainer itself needs a vLLM server."""
    name = "trl.experimental.async_grpo.async_rollout_worker"
    worker = importlib.import_module(name)
    function = judgekit_reward(GradingRunner({"fussy": fussy}, missing_reward=SETTING))
    texts = ["aa", "a", "aaaa", "aaaaaa"]
    wanted = [0.2, None, 0.4, 0.6]
    group = SimpleNamespace(
        prompts=["3?c"] * 4,
        completions=texts,
        completions_ids=[[1]] * 4,
        completions_sequences=[[SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])]]
        * 4,
        reward_kwargs={"solution": ["c"] * 4},
        tool_call_counts=[0] * 4,
        tool_failure_counts=[0] * 4,
        model_version=0,
        group_id=0,
        env_rewards=[None] * 4,
        rollout_rewards=[None] * 4,
    )
    me = SimpleNamespace(
        reward_funcs=[function],
        reward_func_names=["judgekit"],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    samples = await worker._AsyncRolloutLoop._score_group(me, group)
    paid = [one for one in wanted if one is not None]
    mean = sum(paid) / 3
    deviation = (sum((one - mean) ** 2 for one in paid) / 3) ** 0.5
    exact = [0.0 if one is None else (one - mean) / (deviation + 1e-8) for one in wanted]
    assert [one.advantage for one in samples] == pytest.approx(exact, abs=1e-6)


def test_settings_for_missing_rewards(tmp_path: Path) -> None:
    batch = [{"prompt": "3?c"}] * GROUP
    texts = ["aa", "a", "aaaa", "aaaaaa", "a", "aa", "aa", "aa"]
    wanted = [0.2, None, 0.4, 0.6, None, 0.2, 0.2, 0.2]

    def rewards(setting: Any) -> list[float]:
        runner = GradingRunner({"fussy": fussy}, missing_reward=setting)
        return calculate(trainer(tmp_path, judgekit_reward(runner)), batch, texts)

    for setting, filled in ((-1.0, -1.0), ("neutral", 0.3)):
        assert rewards(setting) == pytest.approx([filled if x is None else x for x in wanted])
    with pytest.raises(MissingRewardError):
        rewards("raise")
    with pytest.raises(ConfigError, match="write missing_reward: exclude"):
        rewards("mask")
    if EXCLUDES:
        assert [math.isnan(x) for x in rewards("exclude")] == [x is None for x in wanted]
    else:
        with pytest.raises(
            ConfigError, match=r"needs TRL 1.6: .*upgrade it, or write missing_reward: neutral"
        ):
            rewards("exclude")


def test_a_config_error_comes_at_once(tmp_path: Path) -> None:
    (tmp_path / "reward.yaml").write_text("graders: {correct: {use: text_mach}}\n")
    with pytest.raises(ConfigError, match="text_match"):
        judgekit_reward(tmp_path / "reward.yaml")


def test_ranks_share_a_judges_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    text = "graders: {judge: {use: judge, judge: local}}\njudges: {local: {engine: vllm, model: embedded}}\n"
    (tmp_path / "reward.yaml").write_text(text + "runner: {missing_reward: raise}\n")
    with pytest.raises(
        ConfigError, match=r"judges.local: each of the 4 ranks would load the model; serve it once"
    ):
        judgekit_reward(tmp_path / "reward.yaml")


@pytest.mark.parametrize(
    ("found", "says"), [(None, "TRL is not installed"), ("0.29.1", "judgekit_trl needs 1.0")]
)
def test_trls_that_do_not_do(
    found: str | None, says: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import judgekit.trainers.versions as module

    def of(name: str) -> str:
        if found is None:
            raise module.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(module, "version", of)
    module.host_version.cache_clear()
    try:
        with pytest.raises(ConfigError, match=says):
            judgekit_reward(file)
    finally:
        module.host_version.cache_clear()


def test_a_step_with_data_of_ours(tmp_path: Path, file: Path) -> None:
    """Rows through TRL's own data loader, as text."""
    made = trainer(tmp_path, judgekit_reward(file), data=rows(16, messages=False))
    made.train()
    assert made.state.log_history[0]["judgekit/scored_rate"] == 1.0
