"""API providers whose OpenAI-compatible endpoints have forms of their own, as they document them."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

from judgekit.errors import ConfigError, did_you_mean


class Provider(Struct, frozen=True):
    """How a provider's endpoint differs from OpenAI's."""

    name: str
    hosts: tuple[str, ...] = ()
    """Ends of the host names that are its own."""
    key_header: str = "Authorization"
    """The header that carries the key; a bearer's in `Authorization`."""
    lists_models: bool = True
    """Whether `/models` answers the same key, below the same address."""
    without: frozenset[str] = frozenset()
    """Fields that it refuses, or drops without a word."""
    source: str = ""


PROVIDERS = {
    one.name: one
    for one in (
        Provider("openai", ("api.openai.com",), source="platform.openai.com/docs/api-reference/chat"),
        Provider(
            "azure",
            (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
            key_header="api-key",
            lists_models=False,
            source="learn.microsoft.com/azure/ai-services/openai/reference",
        ),
        Provider(
            "gemini",
            ("generativelanguage.googleapis.com",),
            without=frozenset({"logprobs", "top_logprobs", "seed"}),
            source="ai.google.dev/gemini-api/docs/openai",
        ),
        Provider(
            "anthropic",
            ("api.anthropic.com",),
            lists_models=False,
            without=frozenset({"logprobs", "top_logprobs", "response_format", "seed"}),
            source="docs.anthropic.com/en/api/openai-sdk",
        ),
    )
}
"""By name. Any other server is asked what it takes."""

_ANY = Provider("")


def provider_of(url: str, name: str | None) -> Provider:
    """Return the provider of this *name*, or else the one whose address *url* is. Raises ConfigError."""
    if name is not None:
        if name not in PROVIDERS:
            raise ConfigError(f"openai: no provider is called {name!r}{did_you_mean(name, PROVIDERS)}")
        return PROVIDERS[name]
    try:
        host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
    except ValueError:  # not an address, which the judge says when it reads it
        host = ""
    return next((p for p in PROVIDERS.values() if any(f".{host}".endswith(end) for end in p.hosts)), _ANY)


def deployment(url: str) -> str | None:
    """Return the deployment that an Azure address names."""
    _, found, name = url.rpartition("/deployments/")
    return name if found and "/" not in name else None
