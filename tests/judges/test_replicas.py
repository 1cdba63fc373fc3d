"""Replicas: how servers are laid out on GPUs and ports, what is handed to each, and what they do together."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from judgekit import ConfigError, JudgeTimeout, JudgeUnavailable
from judgekit.judges import JudgeReply, JudgeRequest, Piece, Routed, Turn
from judgekit.judges.engines.openai import servers
from judgekit.judges.launch import supervise


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def has_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_has_vllm", lambda: True)


REQUEST = JudgeRequest((Turn("user", (Piece("?"),)),), max_tokens=1)


@pytest.mark.usefixtures("has_vllm")
def test_gpus_are_dealt_out_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_port_is_free", lambda host, port: True)
    port = 4321
    lines: dict[Path, list[str]] = {}

    def open_log(path: Path) -> Any:
        return lines.setdefault(path, []).append

    made = supervise.http_replicas(
        "embedded",
        name="j",
        replicas=2,
        tensor_parallel_size=2,
        port=port,
        gpus=["0", "1", "4", "5", "7"],
        logs=tmp_path,
        open_log=open_log,
    )
    assert [replica.env["CUDA_VISIBLE_DEVICES"] for replica in made] == ["0,1", "4,5"]
    assert [replica.port for replica in made] == [port, port + 1]
    assert [replica.log for replica in made] == [tmp_path / "j-0.log", tmp_path / "j-1.log"]
    assert list(lines) == [tmp_path / "j-0.log", tmp_path / "j-1.log"]
    for replica in made:
        text = " ".join(replica.command)
        assert "--tensor-parallel-size 2" in text
        assert "--max-model-len 4096" in text
        assert "--dtype" not in text, "GPUs need none of a CPU's settings"
        assert replica.model == "j"
        assert "VLLM_API_KEY" not in replica.env
        assert replica.env["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.usefixtures("has_vllm")
def test_a_cpu_has_its_settings_and_a_user_may_change_them() -> None:
    (made,) = supervise.http_replicas("embedded", port=free_port(), gpus=[])
    assert "--dtype float32 --enforce-eager --block-size 32" in " ".join(made.command)
    assert "CUDA_VISIBLE_DEVICES" not in made.env
    (made,) = supervise.http_replicas(
        "embedded", port=free_port(), gpus=[], engine_args={"max-model-len": 2048, "block-size": 16}
    )
    text = " ".join(made.command)
    assert "--max-model-len 2048" in text
    assert "--block-size 16" in text
    assert "4096" not in text
    assert "--block-size 32" not in text


@pytest.mark.usefixtures("has_vllm")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"replicas": 0}, "must be at least 1"),
        ({"tensor_parallel_size": 0}, "must be at least 1"),
        ({"replicas": 2, "tensor_parallel_size": 2, "gpus": ["0", "1", "2"]}, "2 × 2 GPUs are needed, and there are 3"),
        ({"gpus": ["0"], "tensor_parallel_size": 2}, "1 × 2 GPUs are needed, and there are 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_laid_out_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        supervise.http_replicas("embedded", port=free_port(), **given)


def test_without_vllm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_has_vllm", lambda: False)
    with pytest.raises(ConfigError, match="vLLM is not installed: pip install"):
        supervise.http_replicas("embedded", port=free_port(), gpus=[])


def test_gpus_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3,,GPU-ab")
    assert [gpu.strip() for gpu in supervise._gpus()] == ["2", "3", "GPU-ab"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert supervise._gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert supervise._gpus() == []  # no nvidia-smi
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: x)'\necho '  MIG 1g'\necho 'GPU 1: A (UUID: y)'\n")
    smi.chmod(0o755)
    assert supervise._gpus() == ["0", "1"]
    smi.write_text("#!/bin/sh\necho 'GPU 0: A'\nexit 9\n")
    assert supervise._gpus() == []  # a driver that is not there


def test_addresses() -> None:
    assert supervise._local_address("0.0.0.0") == "127.0.0.1"
    assert supervise._local_address("::") == "[::1]"
    assert supervise._local_address("10.0.0.7") == "10.0.0.7"
    assert supervise._public_address("10.0.0.7") == "10.0.0.7"
    assert supervise._public_address("fe80::1") == "[fe80::1]"
    assert supervise._public_address("0.0.0.0").count(".") == 3


def test_each_server_is_asked_with_all_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that got lost on the way would be another judge."""
    made: list[tuple[str, dict[str, Any]]] = []

    class Made:
        def __init__(self, url: str, **given: Any) -> None:
            made.append((url, given))

    monkeypatch.setattr(servers, "OpenAIJudge", Made)
    given: dict[str, Any] = {
        name: f"its {name}"
        for name in (
            "model", "api_key", "timeout_s", "provider", "max_tokens_field", "omit", "tokenizer", "chat_template_kwargs",
            "extra_body", "identity", "logprobs", "router", "routing_header", "images", "sleep",
        )
    }  # fmt: skip
    both: Any = servers.openai_judge("http://a, http://b", **given)
    assert made == [("http://a", given), ("http://b", given)]
    assert isinstance(both, Routed)
    monkeypatch.setenv("LLM_JUDGE_SERVER_URL", "http://c")
    assert isinstance(servers.openai_judge(), Made)
    assert made[-1][0] == "http://c"


class Engine:
    """A replica that says what is done with it."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.closed = 0
        self.checked = 0

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        return JudgeReply("1")

    async def check_request(self, request: JudgeRequest) -> None:
        self.checked += 1
        if self.fails is not None:
            raise self.fails

    async def close(self) -> None:
        self.closed += 1


async def test_closing_closes_each() -> None:
    engines = [Engine(), Engine()]
    routed = Routed(engines)
    asking = routed.replicas[0].asking = asyncio.create_task(asyncio.sleep(60))
    await routed.close()
    assert [engine.closed for engine in engines] == [1, 1]
    await asyncio.sleep(0)
    assert asking.cancelled()


async def test_a_request_is_checked_by_the_first_that_answers() -> None:
    gone, there, idle = Engine(JudgeUnavailable("gone")), Engine(), Engine()
    await Routed([gone, there, idle]).check_request(REQUEST)
    assert [engine.checked for engine in (gone, there, idle)] == [1, 1, 0]
    with pytest.raises(ConfigError, match="no such label"):
        await Routed([Engine(ConfigError("no such label")), there]).check_request(REQUEST)
    for error in (JudgeUnavailable("gone"), JudgeTimeout("late")):
        with pytest.raises(type(error)):
            await Routed([Engine(error), Engine(error)]).check_request(REQUEST)
    await Routed([object(), object()]).check_request(REQUEST)  # type: ignore[list-item]


def test_what_a_server_finds_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    plain = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    assert supervise._server_env([], None) == plain
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    assert supervise._server_env(["0", "2"], "k") == {
        **plain, "VLLM_CPU_KVCACHE_SPACE": "7", "CUDA_VISIBLE_DEVICES": "0,2", "VLLM_API_KEY": "k",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, []),
        (True, ["--x"]),
        (False, ["--no-x"]),
        ({"a": 1}, ["--x", '{"a": 1}']),
        ([1, "b", {"c": 2}, [3]], ["--x", "1", "b", '{"c": 2}', "[3]"]),
        (0.5, ["--x", "0.5"]),
    ],
)
def test_options_of_a_server_are_written_on_its_command_line(value: Any, written: list[str]) -> None:
    assert supervise._as_arguments("x", value) == written
