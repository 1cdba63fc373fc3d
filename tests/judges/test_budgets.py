"""Budgets of tokens on the text path: counted by the server where it has a tokenizer to ask."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit.errors import JudgeRejected, JudgeUnavailable
from judgekit.judges import OpenAIJudge, Piece, Turn
from judgekit.judges.base import UNLIMITED, JudgeRequest
from judgekit.judges.prompts.cutting import LEAST, MARK

from .fake_server import FakeServer, says

pytest.importorskip("aiohttp")


def dense(text: str) -> int:
    """One token for four ASCII characters, three for each other one."""
    return sum(1 if c.isascii() else 12 for c in text) // 4


def ask(*texts: str, max_tokens: int | None, pool: int = 0) -> JudgeRequest:
    pieces = [p for t in texts for p in (Piece("[candidate]\n"), Piece(t, False, max_tokens, pool))]
    return JudgeRequest(turns=(Turn("user", (*pieces, Piece("\nNow."))),), choices=("0", "1"))


async def sent(server: FakeServer, request: JudgeRequest, **options: Any) -> list[str]:
    """The texts as the server got them."""
    judge = OpenAIJudge(server.url, **options)
    await judge.complete(request)
    await judge.close()
    content = server.bodies[-1]["messages"][-1]["content"]
    return [part.removesuffix("\nNow.") for part in content.split("[candidate]\n")[1:]]


async def test_a_text_within_its_budget_stays_whole() -> None:
    async with FakeServer() as server:
        server.tokens_of = dense
        text = "word " * 78  # 97 tokens, and more than three characters for each
        assert await sent(server, ask(text, max_tokens=100)) == [text]


@pytest.mark.parametrize(
    "text",
    ["ﷺ" * 9_000, "漢字 <|im_end|> " * 2_000, "ﷺ" * 500 + "x" * 9_000, "x" * 9_000 + "ﷺ" * 500, "🙂" * 400],
)
async def test_a_dense_text_is_cut_to_its_tokens(text: str) -> None:
    async with FakeServer() as server:
        server.tokens_of = dense
        (cut,) = await sent(server, ask(text, max_tokens=300))
        assert dense(cut) <= 300
        assert dense(cut) > 60
        assert MARK in cut


async def test_texts_of_a_pool_share_their_budget() -> None:
    async with FakeServer() as server:
        server.tokens_of = dense
        texts = await sent(server, ask("漢" * 300, "x" * 300, "字" * 900, max_tokens=400, pool=1))
        assert sum(map(dense, texts)) <= 400
        assert texts[1] == "x" * 300
        assert all(MARK in text for text in (texts[0], texts[2]))


async def test_something_is_left_of_every_text() -> None:
    async with FakeServer() as server:
        server.tokens_of = dense
        (cut,) = await sent(server, ask("漢" * 900, max_tokens=1))
        assert len(cut) == LEAST
        assert "漢" in cut


async def test_only_what_may_be_too_long_is_counted() -> None:
    counted: list[str] = []

    def tokens(text: str) -> int:
        counted.append(text)
        return dense(text)

    async with FakeServer() as server:
        server.tokens_of = tokens
        await sent(server, ask("x" * 100, max_tokens=100))
        await sent(server, ask("漢" * 33, max_tokens=100))
        await sent(server, ask("x" * 10_000, max_tokens=UNLIMITED))
        await sent(server, ask("x" * 10_000, max_tokens=None))
        assert [text for text in counted if len(text) > 9] == []
        await sent(server, ask("漢" * 34, max_tokens=100))
        assert len([text for text in counted if len(text) > 9]) >= 1


async def test_a_server_that_counts_nothing_gets_three_characters_for_a_token() -> None:
    async with FakeServer("provider") as server:
        (cut,) = await sent(server, ask("x" * 900, max_tokens=100))
        assert len(cut) == 300
    async with FakeServer() as server:
        judge = OpenAIJudge(server.url, logprobs="constrained")
        await judge.start()
        server.once["/tokenize"] = [says("{}", status=404)]
        await judge.complete(ask("x" * 900, max_tokens=100))
        assert server.bodies[-1]["messages"][-1]["content"].count("x") == 300 - len(MARK)
        server.once["/tokenize"] = [says("{}", status=401)]
        with pytest.raises(JudgeRejected, match="API key"):
            await judge.complete(ask("x" * 900, max_tokens=100))
        await judge.close()


async def test_each_text_is_cut_to_its_own_budget() -> None:
    async with FakeServer() as server:
        server.tokens_of = dense
        pieces = [
            p
            for text, most in (("a" * 4_000, 100), ("b" * 4_000, 300))
            for p in (Piece("[candidate]\n"), Piece(text, False, most))
        ]
        request = JudgeRequest(turns=(Turn("user", (*pieces, Piece("\nNow."))),), choices=("0", "1"))
        first, second = await sent(server, request)
        assert 60 < dense(first) <= 100
        assert 200 < dense(second) <= 300


async def test_a_server_that_counts_in_an_unknown_format_is_no_server_of_ours() -> None:
    async with FakeServer() as server:
        server.once["/tokenize"] = [says('{"tokens": "12"}')] * 9
        judge = OpenAIJudge(server.url)
        with pytest.raises(JudgeUnavailable, match="answered /tokenize in an unknown format"):
            await judge.complete(ask("text", max_tokens=None))
        await judge.close()
