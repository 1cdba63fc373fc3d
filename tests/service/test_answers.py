"""Requests that come again: nothing is graded twice, and no sample gets another's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgekit import GradingRunner, JudgeUnavailable, Ledger, Rollout, read_ledger
from judgekit.graders.function import grader, group_grader
from judgekit.service import once as answers
from judgekit.service.once import Answers, Job

from .serving import Address, Gate, serving, until
from .test_forms import rank, slime, verify

ROWS = {"rollouts": [{"response": "a"}, {"response": "b"}]}


async def give_up(address: Address, gate: Gate, path: str, body: Any, calls: int, **headers: str) -> None:
    """Send a request and go once *calls* grades are asked for."""
    sent = asyncio.create_task(address.post(path, body, **headers))
    await until(lambda: len(gate.asked) >= calls)
    sent.cancel()
    await asyncio.wait([sent])
    await until(lambda: address.service.in_flight == 0)


async def test_a_key_is_graded_once_at_once_and_later() -> None:
    gate = Gate()
    async with serving(GradingRunner([gate])) as address:
        replies = await asyncio.gather(
            *(address.post("/v1/rewards", ROWS, Idempotency_Key="k") for _ in range(5))
        )
        replies.append(await address.post("/v1/rewards", ROWS, Idempotency_Key="k"))
        assert {reply.text for reply in replies} == {replies[0].text}
        assert gate.asked == ["a", "b"]
        await address.post("/v1/rewards", ROWS, Idempotency_Key="other")
        assert gate.asked == ["a", "b"] * 2


async def test_a_key_with_another_body_is_refused() -> None:
    async with serving(GradingRunner([Gate()])) as address:
        await address.post("/v1/rewards", ROWS, Idempotency_Key="k")
        reply = await address.post("/v1/rewards", {"rollouts": []}, Idempotency_Key="k")
        assert reply.error[0] == 422
        assert "choose a new one" in reply.error[2]
        assert (await address.post("/v1/rewards", ROWS, Idempotency_Key="k" * 257)).error[0] == 400


async def test_a_key_may_be_asked_for_as_a_stream_as_well() -> None:
    gate = Gate()
    async with serving(GradingRunner([gate])) as address:
        whole = (await address.post("/v1/rewards", ROWS, Idempotency_Key="k")).json["results"]
        lines = await address.post("/v1/rewards", ROWS, Idempotency_Key="k", Accept="application/x-ndjson")
        assert [line for line in lines.text.splitlines()][-1] == '{"done":true}'
        assert len(lines.text.splitlines()) == len(whole) + 1
        assert gate.asked == ["a", "b"]


async def test_without_a_key_two_samples_with_one_text_are_two() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        both = [asyncio.create_task(address.post("/slime", slime("same"))) for _ in range(2)]
        await until(lambda: len(gate.asked) == 2)
        gate.opened.set()
        await asyncio.gather(*both)
        await address.post("/slime", slime("same"))
        assert gate.asked == ["same"] * 3


@pytest.mark.parametrize(
    ("path", "body"), [("/slime", slime("x")), ("/v1/rewards", {"rollouts": [{"response": "x"}]})]
)
async def test_a_client_that_has_gone_gets_what_was_begun_for_it(path: str, body: Any) -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        for _ in range(3):  # each of its tries has a timeout
            await give_up(address, gate, path, body, 1)
        assert address.service.answers.abandoned == 1
        gate.opened.set()
        assert (await address.post(path, body)).status == 200
        assert gate.asked == ["x"]
        await address.post(path, body)  # answered: the same text is another sample now
        assert gate.asked == ["x", "x"]


async def test_an_answer_waits_for_a_client_that_has_gone() -> None:
    gate = Gate(open=False)
    async with serving(GradingRunner([gate], missing_reward=0.0)) as address:
        await give_up(address, gate, "/slime", slime("x"), 1)
        gate.opened.set()
        await until(lambda: address.service.answers.running == 0)
        assert (await address.post("/slime", slime("x"))).json["reward"] == 1.0
        assert gate.asked == ["x"]


async def test_a_member_that_tries_again_is_no_new_member() -> None:
    """A client giving up three times, in a group of two."""
    async with serving(GradingRunner([rank])) as address:
        for _ in range(3):
            sent = asyncio.create_task(address.post("/slime?group=2", slime("x")))
            await until(lambda: address.service.lanes.waiting == 1 and address.service.in_flight == 1)
            sent.cancel()
            await asyncio.wait([sent])
            await until(lambda: address.service.in_flight == 0)
        first, second = await asyncio.gather(
            *(address.post("/slime?group=2", slime(text)) for text in ("x", "xx"))
        )
        assert (first.json["reward"], second.json["reward"]) == (0.0, 1.0)


async def test_equal_texts_are_two_members_of_a_group() -> None:
    sizes: list[int] = []

    @group_grader
    def count(rollouts: Sequence[Rollout]) -> list[float]:
        sizes.append(len(rollouts))
        return [1.0] * len(rollouts)

    async with serving(GradingRunner([count])) as address:
        await asyncio.gather(*(address.post("/slime?group=3", slime("same")) for _ in range(3)))
    assert sizes == [3]


async def test_a_slot_of_nemo_gym_is_graded_once() -> None:
    gate = Gate(open=False)
    bodies = [verify("same", _ng_task_index=0, _ng_rollout_index=i) for i in (0, 0, 1)]
    async with serving(GradingRunner([gate])) as address:
        sent = [asyncio.create_task(address.post("/verify", body)) for body in bodies]
        await until(lambda: address.service.in_flight == 3)
        gate.opened.set()
        await asyncio.gather(*sent)
    assert gate.asked == ["same", "same"]


async def test_an_error_is_no_answer_that_is_kept() -> None:
    gate = Gate()
    gate.error = JudgeUnavailable("down")
    async with serving(GradingRunner([gate], missing_reward="raise")) as address:
        for _ in range(2):
            reply = await address.post("/v1/rewards", {"rollouts": [{"response": "x"}]}, Idempotency_Key="k")
            assert reply.error[0] == 500
        gate.error = None
        reply = await address.post("/v1/rewards", {"rollouts": [{"response": "x"}]}, Idempotency_Key="k")
        assert reply.status == 200
    assert gate.asked == ["x"] * 3


# ---- the ledger, after a restart


async def test_a_restarted_service_takes_grades_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = Gate(), Gate(score=0.5)
    async with serving(GradingRunner([first], ledger=Ledger(path))) as address:
        before = (await address.post("/v1/rewards", ROWS, Idempotency_Key="k")).json["results"]
    async with serving(GradingRunner([second], ledger=Ledger(path))) as address:
        after = (await address.post("/v1/rewards", ROWS, Idempotency_Key="k")).json["results"]
        assert second.asked == []
        assert [r["reward"] for r in after] == [r["reward"] for r in before] == [1.0, 1.0]
        await address.post("/v1/rewards", ROWS, Idempotency_Key="another")
        assert second.asked == ["a", "b"]
    # the second run takes the place of the first: reports count each rollout once
    tagged = [entry for entry in read_ledger(path).entries if entry.tags.get("resumes")]
    assert len(tagged) == 2
    assert len(read_ledger(path).entries) == 4


@pytest.mark.parametrize("equal", [False, True])
async def test_of_a_rollout_with_several_lines_the_finished_one_counts(equal: bool, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    rows = {"rollouts": [{"response": "a"}, {"response": "a" if equal else "b"}]}

    @grader
    async def quick(response: str) -> float:
        return 0.0

    first, second = Gate(open=False), Gate()
    async with serving(GradingRunner([first, quick], ledger=Ledger(path))) as address:
        sent = asyncio.create_task(address.post("/v1/rewards", rows, Idempotency_Key="k"))
        await until(lambda: path.exists() and path.read_text().count("unfinished") == 2)
        first.opened.set()
        await sent
    async with serving(GradingRunner([second, quick], ledger=Ledger(path))) as address:
        again = await address.post("/v1/rewards", rows, Idempotency_Key="k")
    assert second.asked == []
    assert [r["reward"] for r in again.json["results"]] == [0.5, 0.5]


async def test_only_what_is_missing_is_asked_for_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    class Half(Gate):
        async def grade(self, rollout: Any) -> Any:
            self.asked.append(rollout.response)
            if rollout.response == "b":
                raise JudgeUnavailable("down")
            return 1.0

    first, second = Half(), Gate()
    for gate in (first, second):
        async with serving(GradingRunner([gate], ledger=Ledger(path))) as address:
            results = (await address.post("/v1/rewards", ROWS, Idempotency_Key="k")).json["results"]
    assert second.asked == ["b"]
    assert [r["reward"] for r in results] == [1.0, 1.0]


@pytest.mark.parametrize("what", ["settings", "version", "age", "rollout"])
async def test_grades_of_other_settings_versions_or_times_are_not_taken(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = Gate(), Gate()
    async with serving(GradingRunner([first], ledger=Ledger(path), fingerprints={"gate": "c"})) as address:
        await address.post("/v1/rewards", ROWS, Idempotency_Key="k")
    if what == "version":
        second.version = "2"  # type: ignore[misc]
    if what == "age":
        monkeypatch.setattr(answers, "KEEP_S", -1.0)
    rows = {"rollouts": [{"response": "a"}, {"response": "c"}]} if what == "rollout" else ROWS
    settings = {"gate": "other" if what == "settings" else "c"}
    async with serving(GradingRunner([second], ledger=Ledger(path), fingerprints=settings)) as address:
        await address.post("/v1/rewards", rows, Idempotency_Key="k")
    assert second.asked == (["c"] if what == "rollout" else ["a", "b"])


async def test_equal_samples_in_the_ledger_serve_one_request_each(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = Gate(), Gate()
    async with serving(GradingRunner([first], ledger=Ledger(path), missing_reward=0.0)) as address:
        for _ in range(2):
            await address.post("/slime", slime("same"))
    async with serving(GradingRunner([second], ledger=Ledger(path), missing_reward=0.0)) as address:
        for _ in range(3):
            await address.post("/slime", slime("same"))
    assert (first.asked, second.asked) == (["same"] * 2, ["same"])


async def test_a_ledger_with_torn_and_foreign_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = Gate(), Gate()
    async with serving(GradingRunner([first], ledger=Ledger(path))) as address:
        await address.post("/v1/rewards", ROWS, Idempotency_Key="k")
    path.write_bytes(path.read_bytes() + b'\xff\n{"type":"other"}\n[]\n{"type":"rollout","spec"')
    async with serving(GradingRunner([second], ledger=Ledger(path))) as address:
        await address.post("/v1/rewards", ROWS, Idempotency_Key="k")
    assert second.asked == []


@pytest.mark.parametrize("more", [0, 10])
async def test_only_the_end_of_a_large_ledger_is_read(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = Gate(), Gate()
    async with serving(GradingRunner([first], ledger=Ledger(path))) as address:
        for key in ("old", "new"):
            await address.post("/v1/rewards", {"rollouts": [{"response": key}]}, Idempotency_Key=key)
    last = path.read_bytes().splitlines(keepends=True)[-1]
    monkeypatch.setattr(answers, "RECALL_BYTES", len(last) + more)
    async with serving(GradingRunner([second], ledger=Ledger(path))) as address:
        for key in ("old", "new"):
            await address.post("/v1/rewards", {"rollouts": [{"response": key}]}, Idempotency_Key=key)
    assert second.asked == ["old"]


async def test_a_folder_of_ledgers_is_read(tmp_path: Path) -> None:
    first, second = Gate(), Gate()
    for gate in (first, second):
        async with serving(GradingRunner([gate], ledger=Ledger(f"{tmp_path}/many/"))) as address:
            await address.post("/v1/rewards", ROWS, Idempotency_Key="k")
    assert second.asked == []


async def test_grading_waits_for_a_ledger_that_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.service.service._AHEAD", 3)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    flushed: list[int] = []
    flush = ledger.flush
    monkeypatch.setattr(ledger, "flush", lambda limit: flushed.append(1) or flush(limit))
    async with serving(GradingRunner([Gate()], ledger=ledger, missing_reward=0.0)) as address:
        for _ in range(4):
            await address.post("/v1/rewards", ROWS)
        for _ in range(3):
            await address.post("/slime", slime("x"))
        assert len(flushed) == 3


# ---- what is kept is bounded


async def _ended(found: Answers, key: str, size: int, *, delivered: bool) -> Job:
    async def work(job: Job) -> None:
        job.add(0, b"x" * size)

    with found.job(key, "", work, unique=True) as job:
        await job.whole()
        job.delivered = delivered
    return job


@pytest.mark.parametrize("delivered", [False, True])
async def test_answers_are_dropped_oldest_first(delivered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "DELIVERED_BYTES" if delivered else "WAITING_BYTES"
    monkeypatch.setattr(answers, limit, 250)
    found = Answers()
    for key in "abc":
        await _ended(found, key, 100, delivered=delivered)
    assert [found.named(key) is not None for key in "abc"] == [False, True, True]
    again = await _ended(found, "b", 100, delivered=delivered)
    assert again.waiting == 0
    await _ended(found, "d", 100, delivered=delivered)
    assert [found.named(key) is not None for key in "abcd"] == [False, True, False, True]


async def test_answers_are_dropped_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Answers()
    first = await _ended(found, "a", 100, delivered=False)
    assert await _ended(found, "a", 100, delivered=False) is first
    await _ended(found, "b", 100, delivered=False)
    monkeypatch.setattr(answers, "KEEP_S", -1.0)
    assert (
        await _ended(found, "a", 100, delivered=False) is not first
    )  # too old, though nothing came after it
    assert found.named("b") is None  # something did
    assert found.abandoned == found.running == 0


async def test_a_body_of_text_leaves_nothing_behind_once_it_is_answered() -> None:
    async with serving(GradingRunner([Gate()], missing_reward=0.0)) as address:
        for i in range(20):
            await address.post("/slime", slime(str(i)))
            await address.post("/v1/rewards", {"rollouts": [{"response": str(i)}]})
            await address.post(
                "/v1/rewards", {"rollouts": [{"response": str(i)}]}, Accept="application/x-ndjson"
            )
        assert address.service.answers._jobs == {}


async def test_followers_get_every_part_and_the_error() -> None:
    found = Answers()
    step = asyncio.Event()

    async def work(job: Job) -> None:
        job.add(0, b"a")
        await step.wait()
        job.add(1, b"b")
        raise ValueError("no")

    async def follow() -> list[bytes]:
        got: list[bytes] = []
        with found.job("k", "", work, unique=True) as job:
            try:
                async for part in job.follow():
                    got.append(part)
                    step.set()
            except ValueError as error:
                got.append(str(error).encode())
        return got

    assert await asyncio.gather(follow(), follow()) == [[b"a", b"b", b"no"]] * 2
    assert found.named("k") is None
