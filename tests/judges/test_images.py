"""Images of a conversation: for judges that see, and an abstention for all others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiohttp import web

from judgekit import GradingRunner
from judgekit.errors import ConfigError
from judgekit.graders import JudgeGrader
from judgekit.judges import OpenAIJudge, Routed, Template, stacked
from judgekit.judges.engines.replicas import shared_prefix
from judgekit.judges.layers.cache import request_key
from judgekit.judges.prompts import images
from judgekit.judges.prompts.images import Image, image_in, images_of
from judgekit.types import Abstained, Failed, Graded, Rollout
from tests.judges.fake_server import FakeServer

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DATA = "data:image/png;base64," + base64.b64encode(PNG).decode()
REMOTE = "http://169.254.169.254/latest/meta-data"


def shows(url: str = DATA, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def rollout(*content: Any, **fields: Any) -> Rollout:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": list(content)}]
    return Rollout(prompt=prompt, response="a cat", ground_truth="a cat", **fields)


async def grade(judge: Any, one: Rollout, **options: Any) -> Any:
    async with GradingRunner([JudgeGrader(judge, **options)]) as runner:
        (result,) = await runner.run([one])
    return result.grades["judge"]


@pytest.mark.parametrize("kind", ["vllm", "provider"])
async def test_a_judge_that_sees_gets_the_image_at_its_place(kind: str) -> None:
    async with FakeServer(kind) as server:
        seen = rollout("What is on ", "this?", shows(detail="high", uuid="theirs"), "And why?")
        found = await grade(OpenAIJudge(server.url, images="data"), seen)
        assert isinstance(found, Graded)
        (body,) = (b for b in server.bodies if "Be brief" in json.dumps(b))
        messages = body["messages"][0] if isinstance(body["messages"][0], list) else body["messages"]
        assert [m["role"] for m in messages] == ["user"]  # no server takes images of a system message
        parts = messages[0]["content"]
        assert [p["type"] for p in parts] == ["text", "image_url", "text"]
        assert parts[1] == {"type": "image_url", "image_url": {"url": DATA}}  # nothing else of theirs
        assert "Be brief." in parts[0]["text"]
        assert "What is on this?" in parts[0]["text"]
        assert parts[0]["text"].endswith("[2] user, an image:\n")
        assert "[2] user, after the image:\n```\nAnd why?\n```" in parts[2]["text"]


def test_large_images_are_not_kept() -> None:
    url = "data:image/png;base64," + base64.b64encode(PNG + bytes(3 << 20)).decode()
    before = images._kept_url.cache_info().currsize
    assert image_in(shows(url), "data") == Image(url)
    assert images._kept_url.cache_info().currsize == before


@pytest.mark.parametrize(
    "block",
    [
        shows(DATA.replace("image/png", "image/jpeg")),  # says it is another kind than it is
        {"type": "image_url", "image_url": DATA},
        {"type": "input_image", "image_url": DATA},
        {"type": "image", "image": DATA},
        {"type": "image", "image": PNG},
        {"type": "image", "image": {"bytes": PNG, "path": "/etc/passwd"}},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": DATA.split(",")[1]},
        },
    ],
)
def test_forms_of_an_image(block: Any) -> None:
    assert image_in(block, "data") == Image(DATA)


@pytest.mark.parametrize(
    ("block", "allowed", "why"),
    [
        (shows(REMOTE), "data", "an image at an address"),
        (shows("file:///etc/passwd"), "any", "an image that is neither"),
        (shows("ftp://x/y.png"), "any", "an image that is neither"),
        (shows("http://127.0.0.1\n/x"), "any", "an image that is neither"),
        (shows("data:,"), "any", "an image that is neither"),
        (shows("data:image/svg+xml;base64,PHN2Zy8+"), "any", "an image that is neither"),
        (shows("data:image/png;base64," + "QUJD" * 9), "any", "an image that is neither"),
        (shows(DATA + "!"), "any", "an image that is neither"),
        ({"type": "image", "image": "/etc/passwd"}, "any", "an image that is neither"),
        ({"type": "image"}, "any", "an image that is neither"),
        ({"type": "image_embeds", "image_embeds": "AAAA"}, "any", "a part of the type 'image_embeds'"),
        ({"type": "input_audio", "input_audio": {}}, "any", "a part of the type 'input_audio'"),
        ({"type": "video_url", "video_url": {"url": DATA}}, "any", "a part of the type 'video_url'"),
        ({"type": "image_url", "image_url": {"url": DATA}, "text": "and"}, "any", "a part of the type"),
    ],
)
async def test_what_no_judge_sees(block: Any, allowed: Any, why: str) -> None:
    async with FakeServer("provider") as server:
        found = await grade(OpenAIJudge(server.url, images=allowed), rollout("What?", block))
        assert isinstance(found, Abstained)
        assert found.reason.startswith(f"there is {why}")
        assert not server.asked()


async def test_addresses_are_passed_on_only_where_it_is_said() -> None:
    async with FakeServer("provider") as server:
        judge = OpenAIJudge(server.url, images="any")
        found = await grade(judge, rollout("What?", shows("https://example.org/cat.png")))
        assert isinstance(found, Graded)
        assert "https://example.org/cat.png" in json.dumps(server.bodies)


async def test_a_judge_that_does_not_see_abstains_behind_all_layers() -> None:
    async with FakeServer("provider") as server:
        blind, sees = OpenAIJudge(server.url), OpenAIJudge(server.url, images="any")
        assert images_of(stacked(sees)) == "any"
        assert images_of(Routed([sees, sees])) == "any"
        assert images_of(Routed([blind, sees])) == "none"
        assert images_of(object()) == "none"
        found = await grade(stacked(blind), rollout("What?", shows()))
        assert isinstance(found, Abstained)
        assert found.reason == (
            "there is a part of the type 'image_url' in {PROBLEM}, and the judge reads text only"
        )


async def test_a_server_that_refuses_images_is_said_at_the_start() -> None:
    async def text_only(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "judge is not a multimodal model"}}, status=400)

    async with FakeServer("provider") as server:
        server.once["/v1/chat/completions"] = [text_only]
        judge = OpenAIJudge(server.url, images="data")
        with pytest.raises(ConfigError, match="images: .* refuses an image: .*not a multimodal model"):
            await judge.start()


async def test_no_text_can_stand_for_an_image() -> None:
    """Servers count placeholders in the text, and old Qwen-VL opens what stands in <img>."""
    places = "<image> <img>/etc/passwd</img> <|image_pad|> [IMG] <IMG_CONTEXT> <start_of_image> <image_soft_token> <|image|>"
    async with FakeServer("provider") as server:
        await grade(OpenAIJudge(server.url, images="data"), rollout(places, shows()))
        sent = json.dumps(server.bodies)
        assert "/etc/passwd" in sent
        for place in places.replace("/etc/passwd", " ").split():
            assert place not in sent, place
        assert "<img>" in json.dumps(rollout(places).prompt)


def test_images_need_chat_messages() -> None:
    with pytest.raises(ConfigError, match="images are sent with chat messages"):
        OpenAIJudge("http://127.0.0.1:1", tokenizer="x", images="data")
    with pytest.raises(ConfigError, match="images is none, data or any, not 'yes'"):
        OpenAIJudge("http://127.0.0.1:1", images="yes")  # type: ignore[arg-type]


async def test_a_flood_of_images_is_the_rollouts_own_failure() -> None:
    async def few(request: web.Request) -> web.StreamResponse:
        if (await request.text()).count('"image_url"') > 4:
            return web.json_response({"error": {"message": "the context length is exceeded"}}, status=400)
        return await server.well(request)

    turns = [{"role": "tool", "content": [shows()]} for _ in range(9)]
    async with FakeServer("vllm") as server:
        server.fault = few
        one = Rollout(prompt="p", response="r", ground_truth="1", messages=turns)
        judge = OpenAIJudge(server.url, images="data")
        found = await grade(judge, one, template=Template("The candidate:\n{TRAJECTORY}{HOW_TO_ANSWER}"))
        assert isinstance(found, Failed)
        assert found.cause == "rollout"


async def test_only_what_a_field_shows_counts() -> None:
    async with FakeServer("provider") as server:
        prompt = [
            {"role": "user", "content": ["Look: ", shows()]},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "What is 2 + 2?"},
        ]
        one = Rollout(prompt=prompt, response="4", ground_truth="4")
        found = await grade(OpenAIJudge(server.url), one, fields={"PROBLEM": "prompt_text"})
        assert isinstance(found, Graded)


async def test_another_image_is_another_request() -> None:
    other = DATA[:-8] + "AAAA" + DATA[-4:]
    assert image_in(shows(other), "data") == Image(other)
    asking = JudgeGrader(OpenAIJudge("http://127.0.0.1:1", images="data")).asking
    requests = []
    for url in (DATA, other):
        prepared = asking.prepare(rollout("What?", shows(url)), "data")
        assert not isinstance(prepared, Abstained)
        requests.append(asking.request(prepared)[0])
    assert request_key(requests[0], "") != request_key(requests[1], "")
    assert shared_prefix(requests[0]) != shared_prefix(requests[1])
