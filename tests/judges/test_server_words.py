"""What is made of a server's address, its errors and its headers, value by value."""

from __future__ import annotations

import json
import math
import resource
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.errors import JudgeError, JudgeRejected, JudgeUnavailable
from judgekit.judges.engines import http
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.engines.http import Secret, Server, Words, retry_after, words_of

URL = "http://127.0.0.1:1/v1"


def test_a_key_is_never_shown() -> None:
    assert (repr(Secret("k")), str(Secret("k")), repr(Secret("")), Secret("k").reveal()) == (
        "Secret(…)",
        "Secret(…)",
        "Secret()",
        "k",
    )


@pytest.mark.parametrize(
    ("url", "shown", "root"),
    [
        ("h:1", "http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1/v1", "http://h:1"),
        ("https://h/proxy/v1", "https://h/proxy/v1", "https://h/proxy"),
        ("https://h/v1beta/openai", "https://h/v1beta/openai", "https://h"),
        ("https://h/v4", "https://h/v4", "https://h"),
        ("https://h/v1?key=x", "https://h/v1", "https://h"),
    ],
)
def test_where_a_server_s_pages_are(url: str, shown: str, root: str) -> None:
    server = Server(url)
    assert (repr(server), server.root) == (shown, root)


def test_what_is_not_given_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLM_JUDGE_SERVER_URL", "LLM_JUDGE_SERVER_API_KEY", "LLM_JUDGE_SERVER_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    plain = Server(URL)
    assert (plain.timeout_s, plain._key.reveal(), plain._key_header) == (60.0, "", "Authorization")
    monkeypatch.setenv("LLM_JUDGE_SERVER_URL", "http://e:2/v1")
    monkeypatch.setenv("LLM_JUDGE_SERVER_API_KEY", "secret")
    monkeypatch.setenv("LLM_JUDGE_SERVER_TIMEOUT", "7.5")
    found = Server()
    assert (found.url, found._key.reveal(), found.timeout_s) == ("http://e:2/v1", "secret", 7.5)
    given = Server(URL, api_key="", timeout_s=3)
    assert (given.url, given._key.reveal(), given.timeout_s) == (URL, "", 3.0)
    monkeypatch.setenv("LLM_JUDGE_SERVER_TIMEOUT", "soon")
    assert Server(URL, timeout_s=3).timeout_s == 3.0
    with pytest.raises(ConfigError, match="LLM_JUDGE_SERVER_TIMEOUT is a number of seconds, not 'soon'"):
        Server(URL)
    for wrong in (0, -1, math.nan):
        with pytest.raises(ConfigError, match="timeout_s is a number of seconds above 0, not "):
            Server(URL, timeout_s=wrong)


def test_the_same_server_with_other_connections() -> None:
    server = Server(f"{URL}?v=1", api_key="k", timeout_s=20, key_header="api-key")
    for timeout_s, kept in ((5.0, 5.0), (99.0, 20.0)):
        beside = server.beside(timeout_s=timeout_s, max_connections=3)
        assert (beside.url, beside._query, beside._key.reveal(), beside._key_header) == (
            URL,
            "?v=1",
            "k",
            "api-key",
        )
        assert (beside.timeout_s, beside._sessions.max_connections) == (kept, 3)
        assert beside._sessions is not server._sessions


@pytest.mark.parametrize(
    ("soft", "most"), [(resource.RLIM_INFINITY, 1024), (1, 1), (1000, 500), (2046, 1023), (4000, 1024)]
)
def test_half_of_the_files_may_be_connections(soft: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, soft))
    assert http._most_connections() == most
    assert Server(URL)._sessions.max_connections == most
    assert Server(URL, max_connections=7)._sessions.max_connections == 7


async def test_whether_an_engine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    answers: list[Any] = [{"is_sleeping": True}, {"is_sleeping": "yes"}, {}, JudgeUnavailable("no such page")]
    told = iter(answers)

    async def get(self: Server, path: str, *, root: bool = False) -> Any:
        asked.append((path, root))
        answer = next(told)
        if isinstance(answer, JudgeError):
            raise answer
        return answer

    monkeypatch.setattr(Server, "get", get)
    assert [await Server(URL).sleeping() for _ in answers] == [True, False, False, False]
    assert set(asked) == {("/is_sleeping", True)}


async def test_a_server_that_tells_no_load_is_asked_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    told = "vllm:num_requests_running 3\nvllm:num_requests_waiting 4\n"
    page: str | None = None

    async def page_of(self: Server, path: str) -> str | None:
        asked.append(path)
        return page

    monkeypatch.setattr(Server, "page", page_of)
    server = Server(URL)
    assert [await server.load() for _ in range(2)] == [None, None]
    page = told
    assert await server.load() == EngineLoad(3, 4)
    page = None
    assert [await server.load() for _ in range(5)] == [None] * 5
    assert asked == ["/metrics"] * 6
    page = told
    assert await server.load() is None


async def test_what_the_engine_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "# HELP vllm:prompt_tokens_total", "vllm:prompt_tokens_total 1", "vllm:other 2", "vllm:generation_tokens_total 3",
        "vllm:iteration_tokens_total_count 4", "vllm:request_success_total 5",
    ]  # fmt: skip
    pages = iter(["\n".join(lines), "vllm:other 2", "", None])

    async def page_of(self: Server, path: str) -> str | None:
        assert path == "/metrics"
        return next(pages)

    monkeypatch.setattr(Server, "page", page_of)
    assert await Server(URL).work_done() == "\n".join([lines[1], *lines[3:]])
    assert [await Server(URL).work_done() for _ in range(3)] == [None] * 3


@pytest.mark.parametrize("found", [{}, {"data": {}}, {"data": [1]}, {"data": [{"id": "a"}, {}]}])
async def test_models_in_an_unknown_format(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(self: Server, path: str, *, root: bool = False) -> Any:
        assert (path, root) == ("/models", False)
        return found

    monkeypatch.setattr(Server, "get", get)
    with pytest.raises(JudgeUnavailable, match=f"^{URL} lists its models in an unknown format$"):
        await Server(URL).models()
    found = {"data": [{"id": "a"}]}
    assert await Server(URL).models() == [{"id": "a"}]


# ---- errors


@pytest.mark.parametrize(
    ("parsed", "words"),
    [
        ({"error": {"message": "no", "code": "bad", "type": "T", "param": "top_p"}}, Words("no (bad)", "top_p", "bad t")),
        ({"message": "it is bad", "code": "bad"}, Words("it is bad", "", "bad")),
        ({"error": {"message": "no", "code": 400, "type": "T"}}, Words("no (T)", "", "400 t")),
        ({"error": {"code": 400}}, Words("", "", "400")),
        ({"error": {"type": "T"}}, Words("T", "", "t")),
        ({"error": {"detail": "no", "status": "BUSY"}}, Words("no (BUSY)", "", "busy")),
        ({"error": "no", "error_type": "overloaded"}, Words("no (overloaded)", "", "overloaded")),
        ([{"error": {"message": "no"}}], Words("no")),
        ([], Words("")),
        ("no", Words("")),
        ({"detail": "x" * 301, "param": "y" * 101}, Words("x" * 300, "y" * 100, "")),
        ({"message": "no", "param": 3, "code": "z" * 101}, Words(f"no ({'z' * 100})", "", "z" * 101)),
    ],
)  # fmt: skip
def test_what_a_server_says_of_an_error(parsed: Any, words: Words) -> None:
    assert words_of(parsed) == words


def refusal(status: int, body: Any = b"", **headers: str) -> JudgeError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http._refusal("it", status, {name.replace("_", "-"): text for name, text in headers.items()}, raw)


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (400, b"no such field", JudgeRejected, "it answered HTTP 400: no such field"),
        (400, b"\xff" + b"x" * 200, JudgeRejected, f"it answered HTTP 400: \ufffd{'x' * 99}"),
        (404, {"message": "no such model"}, JudgeRejected, "it answered HTTP 404: no such model"),
        (401, {"message": "secret"}, JudgeRejected, "it refuses the API key (HTTP 401): check api_key or LLM_JUDGE_SERVER_API_KEY"),
        (403, b"", JudgeRejected, "it refuses the API key (HTTP 403): check api_key or LLM_JUDGE_SERVER_API_KEY"),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, JudgeRejected, "it answered HTTP 429: pay (insufficient_quota)"),
        (400, {"error": {"message": "pay", "type": "Arrearage"}}, JudgeRejected, "it answered HTTP 400: pay (Arrearage)"),
        (500, {"message": "maximum context length is 10 tokens"}, JudgeRejected, "it answered HTTP 500: maximum context length is 10 tokens"),
        (500, {"message": "oh"}, JudgeUnavailable, "it answered HTTP 500: oh"),
        (400, {"error": {"message": "no", "code": "json_validate_failed"}}, JudgeUnavailable, "it answered HTTP 400: no (json_validate_failed): the judge's reply is no JSON"),
        *((status, {"message": "oh"}, JudgeUnavailable, f"it answered HTTP {status}: oh") for status in (408, 409, 424, 425, 429, 498, 502, 599)),
        *((status, {"message": "oh"}, JudgeRejected, f"it answered HTTP {status}: oh") for status in (402, 410, 413, 422, 499)),
        (400, {"error": {"message": "oh", "code": "rate_limit_exceeded"}}, JudgeUnavailable, "it answered HTTP 400: oh (rate_limit_exceeded)"),
        (400, {"message": "CUDA out of memory: the rest"}, JudgeUnavailable, "it answered HTTP 400: CUDA out of memory: the rest"),
        (400, {"message": "the prompt says: out of memory"}, JudgeRejected, "it answered HTTP 400: the prompt says: out of memory"),
    ],
)  # fmt: skip
def test_an_error_of_http_is_one_of_judges(status: int, body: Any, kind: type[JudgeError], says: str) -> None:
    error = refusal(status, body)
    assert (type(error), str(error)) == (kind, says)
    if isinstance(error, JudgeRejected):
        assert error.status == status
        assert error.own is (("insufficient" in says) or ("Arrearage" in says))
    if isinstance(error, JudgeUnavailable):
        assert (error.refused, error.retry_after) == (status in (429, 503), None)


def test_a_refusal_says_for_how_long_and_of_which_field() -> None:
    error = refusal(503, b"busy", Retry_After="2.5")
    assert isinstance(error, JudgeUnavailable)
    assert (str(error), error.refused, error.retry_after) == (
        "it answered HTTP 503: busy (asks to wait 2.5 s)",
        True,
        2.5,
    )
    rejected = refusal(400, {"error": {"message": "no", "param": "top_k"}})
    assert isinstance(rejected, JudgeRejected)
    assert rejected.field == "top_k"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": str(7 * 86400)}, 604800.0),
        ({"Retry-After": str(7 * 86400 + 1)}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "1", "retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-tokens": "0"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2s", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}, 2.0),
        ({"Retry-After": "1", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, 1.0),
        ({"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": "5"}, 5.0),
        ({"anthropic-ratelimit-output-tokens-remaining": "0", "anthropic-ratelimit-output-tokens-reset": "6"}, 6.0),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "7"}, 7.0),
    ],
)  # fmt: skip
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after(headers) == (wait if wait is None else pytest.approx(wait))


def test_a_time_in_place_of_seconds() -> None:
    later = datetime.now(UTC) + timedelta(seconds=300)
    for text in (
        format_datetime(later, usegmt=True),
        later.isoformat(),
        later.isoformat().replace("+00:00", "Z"),
    ):
        wait = retry_after({"Retry-After": text})
        assert wait is not None
        assert 200 < wait <= 300
    assert retry_after({"Retry-After": (later - timedelta(hours=1)).isoformat()}) == 0.0
    assert retry_after({"Retry-After": later.replace(tzinfo=None).isoformat()}) is None


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("http://me:secret@h:1/path?key=x#part", "http://h:1/path"),
        ("/there", "/there"),
        ("", "nowhere"),
        ("http://[::1", "an address that is none"),
        ("/" + "x" * 400, "/" + "x" * 299),
    ],
)
def test_an_address_without_its_secrets(location: str, shown: str) -> None:
    assert http._shown(location) == shown


@pytest.mark.parametrize(("status", "redirects"), [(299, False), (300, True), (399, True), (400, False)])
def test_redirects(status: int, redirects: bool) -> None:
    assert http._is_redirect(status) is redirects
