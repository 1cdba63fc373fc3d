"""docs/service.md: its commands are ones, its requests are answered, its tables are true."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from judgekit import GradingRunner, cli
from judgekit.cli.serve_rewards import _TRAINERS
from judgekit.graders import FinalAnswer
from judgekit.service.forms import OpenRLHF, Slime, Verify
from judgekit.service.server import Limits
from judgekit.service.service import GROUP_WAIT_S

from .serving import serving
from .test_forms import LONE

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line
]


def test_there_are_commands_and_requests() -> None:
    assert {line.split()[0] for line in LINES} == {"judgekit", "curl"}


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("judgekit")])
def test_commands_can_be_called(line: str) -> None:
    _, name, *args = shlex.split(line)
    command: Any = typer.main.get_command(cli.app)
    command.get_command(click.Context(command), name).make_context(name, args)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("curl")])
async def test_requests_are_answered(line: str) -> None:
    _, url, *options = shlex.split(line)
    headers = [value.split(": ") for option, value in pairwise(options) if option == "-H"]
    body = options[options.index("-d") + 1] if "-d" in options else None
    async with serving(GradingRunner({"correct": FinalAnswer()})) as address:
        path = url.removeprefix("http://127.0.0.1:8080")
        if body is None:
            reply = await address.get(path)
        else:
            reply = await address.post(path, body.encode(), **{k: v for k, v in headers})
    assert reply.status == 200
    if path == "/v1/rewards" and "ndjson" not in line:
        assert [result["reward"] for result in reply.json["results"]] == [1.0, 0.0]
        named = re.search(r'"results": \[\{(.*?)\}\]', PAGE, re.DOTALL)
        assert named is not None
        assert set(re.findall(r'"(\w+)"', named[1])) == set(reply.json["results"][0])


def test_what_trainers_are_told_is_what_the_service_prints() -> None:
    told = [line for lines in _TRAINERS.values() for name, line in lines if name != "NeMo-Gym"]
    for line in told:
        for part in line.split("  "):
            assert part.format(url="http://127.0.0.1:8080") in PAGE


def test_the_table_of_missing_rewards_is_the_one_that_is_tested() -> None:
    assert len(LONE) == 5 * 4
    words = {409: "refused, 409", 500: "error 500"}
    rows = {
        row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:6]]
        for row in PAGE.partition("what a client can be told")[2].splitlines()
        if row.startswith("| ")
    }
    for setting, path, status, masked in LONE:
        name = next(
            name for name in rows if (f"`{setting}`" in name) or (setting == 0.25 and "number" in name)
        )
        cell = rows[name][{"/verify": 2, "/strict/verify": 3}.get(path, 0)]
        if status in words:
            assert cell == words[status], (setting, path)
        elif setting == 0.25:
            assert "number" in cell, (setting, path)
        else:
            assert masked is True
            assert cell == "masked", (setting, path)
    assert {OpenRLHF.knows, Slime.knows} == {"numbers"}
    assert Verify.knows == "masks"


def test_the_numbers_are_the_defaults() -> None:
    limits = Limits()
    assert f"`--max-requests` ({limits.requests})" in PAGE
    assert f"`--max-body-mb` is {limits.body_bytes >> 20}" in PAGE
    assert f"(`--stop-timeout`, {limits.stop_s:g} s)" in PAGE
    assert f"seconds at most ({GROUP_WAIT_S:g};" in PAGE
