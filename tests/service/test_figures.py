"""The figures of a service, as Prometheus reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from judgekit import GradingRunner, JudgeUnavailable, Ledger, read_ledger
from judgekit.service.exposition import exposition

from .serving import Gate, serving, until

ROWS = {"rollouts": [{"response": "x"}, {"response": "y"}]}


def figures(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


async def test_what_is_in_flight_waits_or_was_given_up() -> None:
    gate = Gate(open=False)
    runner = GradingRunner([gate], missing_reward=0.0, transform="center")
    async with serving(runner, group_wait_s=600) as address:

        def now() -> list[str]:
            told = figures(exposition(address.service))
            names = ("requests_in_flight", "abandoned_jobs", "groups_waiting")
            return [told[f"judgekit_{name}"] for name in names]

        assert now() == ["0", "0", "0"]
        assert (await address.get("/health")).json == {
            "status": "ok",
            "runner": runner.spec.digest,
            "bounds": list(runner.reward.bounds()),
            "grouped": False,
            "missing_reward": 0.0,
            "in_flight": 0,
            "groups_waiting": 0,
        }
        asking = asyncio.create_task(address.post("/v1/rewards", ROWS))
        await until(lambda: gate.asked)
        assert now() == ["1", "0", "0"]
        asking.cancel()
        await until(lambda: now() == ["0", "1", "0"])
        body = {"prompt": "p", "response": "z", "label": "", "group_index": 0}
        members = [asyncio.create_task(address.post("/slime?group=2", body))]
        await until(lambda: now()[2] == "1")
        assert (await address.get("/health")).json["groups_waiting"] == 1
        gate.opened.set()
        members.append(asyncio.create_task(address.post("/slime?group=2", body)))
        assert [reply.status for reply in await asyncio.gather(*members)] == [200, 200]
        await until(lambda: now() == ["0", "0", "0"])


async def test_a_service_keeps_the_runner_s_deadline_or_has_one_of_its_own() -> None:
    async def deadline(runner: GradingRunner) -> float | None:
        async with serving(runner) as address:
            return address.service.runner.settings.deadline_s

    assert await deadline(GradingRunner([Gate()], deadline_s=7.0)) == 7.0
    assert await deadline(GradingRunner([Gate()])) == 600.0


async def test_the_lines_of_a_group_have_the_request_s_mark(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    body = {"prompt": "p", "response": "z", "label": "", "group_index": 0}
    async with serving(GradingRunner([Gate()], ledger=Ledger(file))) as address:
        both = [address.post("/slime?group=2", body) for _ in range(2)]
        assert [reply.status for reply in await asyncio.gather(*both)] == [200, 200]
    assert [len(entry.tags["request"]) for entry in read_ledger(file).entries] == [24, 24]


async def test_answers_are_counted_by_route_and_status_and_grades_by_kind() -> None:
    gate = Gate()
    async with serving(GradingRunner([gate])) as address:
        await address.post("/v1/rewards", ROWS)
        await address.post("/v1/rewards", b"no")
        gate.error = JudgeUnavailable("down")
        await address.post("/v1/rewards", {"rollouts": [{"response": "z"}]})
        text = (await address.get("/metrics")).text
    told = figures(text)
    assert told['judgekit_requests_total{route="/v1/rewards",status="200"}'] == "2"
    assert told['judgekit_requests_total{route="/v1/rewards",status="400"}'] == "1"
    assert told['judgekit_rollouts_total{status="scored"}'] == "2"
    assert told['judgekit_rollouts_total{status="excluded"}'] == "1"
    for line in ("# TYPE judgekit_requests_total counter", "# TYPE judgekit_groups_waiting gauge"):
        assert line in text.splitlines()
    assert text.endswith("\n")


async def test_names_are_escaped_and_audits_are_among_them() -> None:
    async with serving(GradingRunner({'a"b\\c\nd': Gate()})) as address:
        await address.post("/v1/rewards", ROWS)
        service = cast(Any, address.service)
        service.audits = SimpleNamespace(latest={"judgekit/audit/paid_wrong": 0.25})
        text = exposition(service)
        service.audits = None
    assert r'grader="a\"b\\c\nd"' in text
    assert "judgekit_audit_paid_wrong 0.25\n" in text
