"""Our own form, POST /v1/rewards: what it takes, what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Rollout,
    grader,
    read_ledger,
)
from judgekit.graders import FinalAnswer, Length
from judgekit.graders.function import group_grader

from .serving import Gate, serving, until

ROWS: list[dict[str, Any]] = [
    {"response": "#### 4", "ground_truth": "4", "group": ["a", 1], "id": "x"},
    {"response": "#### 5", "ground_truth": "4", "group": ["a", 1], "id": "y"},
    {"response": "#### 3", "ground_truth": "3", "group": "b"},
]


def rules(**settings: Any) -> GradingRunner:
    return GradingRunner(
        {"correct": FinalAnswer(), "brief": Length(soft_max=4, hard_max=10)},
        {"correct": 0.9, "brief": 0.1},
        **settings,
    )


@grader
async def down(response: str) -> float:
    raise JudgeUnavailable("the judge is down")


@grader
def picky(response: str) -> float:
    if "bad" in response:
        raise JudgeUnavailable("the judge is down")
    return 1.0


async def test_results_are_those_of_the_runner_with_all_grades() -> None:
    rollouts = [
        Rollout(**{**row, "group": tuple(row["group"]) if isinstance(row["group"], list) else row["group"]})
        for row in ROWS
    ]
    runner = rules(transform="center")
    expected = await runner.run(rollouts)
    async with serving(runner) as address:
        got = (await address.post("/v1/rewards", {"rollouts": ROWS})).json
    assert [r["reward"] for r in got["results"]] == [r.reward for r in expected]
    assert [r["raw_reward"] for r in got["results"]] == [r.raw_reward for r in expected]
    assert [r["id"] for r in got["results"]] == ["x", "y", ""]
    assert [r["index"] for r in got["results"]] == [0, 1, 2]
    assert got["results"][1]["grades"]["correct"]["score"] == 0.0
    assert got["results"][0]["status"] == "scored"


async def test_a_row_means_what_it_means_in_a_file() -> None:
    row = {
        "response": "#### 4",
        "reward_model": {"ground_truth": "4"},
        "extra_info": {"level": 3},
        "note": "?",
    }
    seen: list[Rollout] = []

    class Reads:
        name, version, score_range, inputs = "reads", "1", (0.0, 1.0), ("response", "extra")

        def grade(self, rollout: Rollout) -> float:
            seen.append(rollout)
            return 1.0

    async with serving(GradingRunner([Reads()])) as address:
        assert (await address.post("/v1/rewards", {"rollouts": [row]})).status == 200
    assert seen[0].ground_truth == "4"
    assert seen[0].extra == {"note": "?", "level": 3}


async def test_no_rollouts_are_no_results() -> None:
    async with serving(rules()) as address:
        assert (await address.post("/v1/rewards", {"rollouts": []})).json["results"] == []


async def test_tags_reach_the_ledger(tmp_path: Path) -> None:
    async with serving(rules(ledger=Ledger(tmp_path / "l.jsonl"))) as address:
        await address.post("/v1/rewards", {"rollouts": ROWS, "tags": {"step": 7}})
    assert [entry.tags["step"] for entry in read_ledger(tmp_path / "l.jsonl").entries] == [7, 7, 7]


BODIES = [
    (b"", "the body is not JSON"),
    (b"{", "the body is not JSON"),
    (b"\xff\xfe", "the body is not JSON"),
    (b"[" * 200_000, "the body is not JSON"),
    (b'{"rollouts": [{"response": "x", "extra": {"n": ' + b"9" * 5000 + b"}}]}", "the body is not JSON"),
    (b"[]", "the body is a JSON object, not list"),
    (b"null", "the body is a JSON object, not null"),
    (b"{}", "'rollouts' is missing: a list of rollouts"),
    (
        b'{"rollouts": {}}',
        "'rollouts' is a list of rollouts, each an object with at least 'response', not dict",
    ),
    (b'{"rollouts": [], "tags": []}', "'tags' is an object, not list"),
    (b'{"rollouts": [], "tag": {}}', "there is no field 'tag'"),
    (b'{"rollouts": [], "tags": {"resumes": 1}}', "the tag 'resumes' is judgekit's own"),
    (b'{"rollouts": [1]}', "rollouts[0]: a rollout is an object"),
    (b'{"rollouts": [{"response": "x"}, {}]}', "rollouts[1]: the row is empty"),
    (b'{"rollouts": [{"response": null}]}', "rollouts[0]: 'response' is null"),
    (b'{"rollouts": [{"response": 1}]}', "rollouts[0]: 'response' is text, not int"),
    (
        b'{"rollouts": [{"completion": "x"}]}',
        "the rollout has no 'response'; send completion under that name",
    ),
    (
        b'{"rollouts": [{"response": "x", "ground_truth": "1", "reward_model": {"ground_truth": "2"}}]}',
        "two references that differ, in 'ground_truth' and in 'reward_model': keep one",
    ),
    (b'{"rollouts": [{"response": "x", "group": {}}]}', "rollouts[0]: 'group' is text, a number or a list"),
]


@pytest.mark.parametrize(("body", "says"), BODIES, ids=range(len(BODIES)))
async def test_what_is_no_request_is_refused_and_says_why(body: bytes, says: str) -> None:
    async with serving(rules()) as address:
        status, _, message = (await address.post("/v1/rewards", body)).error
    assert status == 400
    assert says in message
    assert "--map" not in message  # an option of the command


async def test_what_python_writes_as_json_is_read() -> None:
    """Lone surrogates, infinities and integers of any size; a NaN for a field is what pandas writes for none."""
    seen: list[Rollout] = []

    class Reads:
        name, version, score_range, inputs = "reads", "1", (0.0, 1.0), ("response", "extra")

        def grade(self, rollout: Rollout) -> float:
            seen.append(rollout)
            return 1.0

    row = {
        "response": "a\ud800b",
        "ground_truth": math.nan,
        "extra": {"n": 10**40, "x": -math.inf, "y": math.nan},
        "id": "\udfff",
    }
    async with serving(GradingRunner([Reads()])) as address:
        reply = await address.post("/v1/rewards", {"rollouts": [row]})
        assert reply.json["results"][0]["reward"] == 1.0
    assert seen[0].response == "a\ud800b"
    assert seen[0].ground_truth is None
    extra = dict(seen[0].extra)
    assert math.isnan(extra.pop("y"))
    assert extra == {"n": 10**40, "x": -math.inf}


async def test_a_judge_that_is_down_is_no_number() -> None:
    async with serving(GradingRunner({"judge": down, "brief": Length(soft_max=4, hard_max=9)})) as address:
        (result,) = (await address.post("/v1/rewards", {"rollouts": [{"response": "x"}]})).json["results"]
    assert result["reward"] is None
    assert result["status"] == "excluded"
    assert result["missing"] == ["judge"]
    assert result["grades"]["judge"] == {
        "kind": "failed",
        "error": "JudgeUnavailable",
        "detail": "the judge is down",
        "retryable": True,
    }


async def test_neutral_is_the_mean_of_a_group_and_never_of_whatever_came_before() -> None:
    rows = [
        {"response": "good", "group": 1},
        {"response": "bad", "group": 1},
        {"response": "bad", "group": 2},
    ]
    async with serving(GradingRunner([picky], missing_reward="neutral")) as address:
        got = (await address.post("/v1/rewards", {"rollouts": rows})).json["results"]
        alone = (await address.post("/v1/rewards", {"rollouts": rows[2:]})).json["results"]
    assert [(r["reward"], r["status"]) for r in got] == [(1.0, "scored"), (1.0, "neutral"), (None, "masked")]
    assert [(r["reward"], r["status"]) for r in alone] == [(None, "masked")]


async def test_raise_and_max_failure_rate_are_errors() -> None:
    rows = [{"response": "x"}] * 20
    async with serving(GradingRunner([down], missing_reward="raise")) as address:
        assert (await address.post("/v1/rewards", {"rollouts": rows})).error[:2] == (
            500,
            "MissingRewardError",
        )
    async with serving(GradingRunner([down], max_failure_rate=0.5)) as address:
        assert (await address.post("/v1/rewards", {"rollouts": rows})).error[:2] == (500, "FailureRateError")


async def test_a_stream_has_a_line_a_result_as_soon_as_it_is_final() -> None:
    gate = Gate(open=False)

    @grader
    async def some(response: str) -> float:
        if response == "slow":
            await gate.opened.wait()
        return 1.0

    rows = [{"response": "slow", "id": "s"}, {"response": "fast", "id": "f"}]
    async with (
        serving(GradingRunner([some])) as address,
        address.session.post(
            address.url + "/v1/rewards", json={"rollouts": rows}, headers={"Accept": "application/x-ndjson"}
        ) as response,
    ):
        assert response.headers["Content-Type"] == "application/x-ndjson"
        first = json.loads(await response.content.readline())
        assert (first["id"], first["index"]) == ("f", 1)
        gate.opened.set()
        second = json.loads(await response.content.readline())
        assert (second["id"], second["index"]) == ("s", 0)
        assert json.loads(await response.content.readline()) == {"done": True}
        assert await response.content.readline() == b""


async def test_an_error_in_mid_stream_is_a_line_and_done_is_missing() -> None:
    async with serving(GradingRunner([picky], missing_reward="raise", max_concurrency=1)) as address:
        rows = [{"response": "good", "group": 1}, {"response": "bad", "group": 2}]
        reply = await address.post("/v1/rewards", {"rollouts": rows}, Accept="application/x-ndjson")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert lines[-1]["error"]["type"] == "MissingRewardError"
    assert not any("done" in line for line in lines)


async def test_groups_are_graded_whole() -> None:
    @group_grader
    def rank(rollouts: Any) -> list[float]:
        order = sorted(range(len(rollouts)), key=lambda i: len(rollouts[i].response))
        return [order.index(i) / (len(rollouts) - 1) for i in range(len(rollouts))]

    rows = [{"response": "x" * n, "group": g} for n in (3, 1, 2) for g in "ab"]
    async with serving(GradingRunner([rank])) as address:
        got = (await address.post("/v1/rewards", {"rollouts": rows})).json["results"]
    assert [r["reward"] for r in got] == [1.0, 1.0, 0.0, 0.0, 0.5, 0.5]


async def test_a_body_that_is_too_large_is_refused_and_says_what_to_do() -> None:
    async with serving(rules(), body_bytes=1000) as address:
        status, _, message = (
            await address.post("/v1/rewards", {"rollouts": [{"response": "x" * 2000}]})
        ).error
        assert status == 413
        assert "send fewer rollouts at once, or raise --max-body-mb" in message
        assert (await address.post("/v1/rewards", {"rollouts": [{"response": "x"}]})).status == 200


async def test_a_client_that_sends_half_a_body_and_goes_costs_nothing() -> None:
    async with serving(rules()) as address:
        host, port = address.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/rewards HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        await until(lambda: address.server._reading)
        writer.close()
        await until(lambda: not address.server._reading)
        assert address.service.requests["/v1/rewards", 499] == 1
        assert (await address.post("/v1/rewards", {"rollouts": ROWS})).status == 200


async def test_unknown_paths_and_methods_are_refused() -> None:
    async with serving(rules()) as address:
        status, _, message = (await address.post("/reward", {})).error
        assert status == 404
        assert "there is /v1/rewards, /openrlhf, /slime" in message
        assert (await address.get("/v1/rewards")).error[0] == 405


async def test_the_metrics_count_requests_grades_and_failures() -> None:
    async with serving(GradingRunner({'od"d\n': picky})) as address:
        await address.post("/v1/rewards", {"rollouts": [{"response": "good"}, {"response": "bad"}]})
        await address.post("/v1/rewards", b"")
        reply = await address.get("/metrics")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = reply.text.splitlines()
    assert 'judgekit_requests_total{route="/v1/rewards",status="200"} 1' in lines
    assert 'judgekit_requests_total{route="/v1/rewards",status="400"} 1' in lines
    assert 'judgekit_grades_total{grader="od\\"d\\n",outcome="graded"} 1' in lines
    assert 'judgekit_failures_total{grader="od\\"d\\n",error="JudgeUnavailable"} 1' in lines
    assert 'judgekit_rollouts_total{status="excluded"} 1' in lines
    assert all(line.startswith("# ") or line.rpartition(" ")[2].replace(".", "").isdigit() for line in lines)
