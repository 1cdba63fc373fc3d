"""Makes a judge of one OpenAI-compatible server, or of several of the same weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from judgekit.judges.base import Judge
from judgekit.judges.engines.openai.judge import OpenAIJudge
from judgekit.judges.engines.openai.probe import LogprobStyle
from judgekit.judges.engines.openai.request_fields import LimitField
from judgekit.judges.engines.replicas import Routed
from judgekit.judges.prompts.images import Images


def openai_judge(
    url: str | Sequence[str] | None = None,
    *,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float | None = None,
    provider: str | None = None,
    max_tokens_field: LimitField | None = None,
    omit: Sequence[str] = (),
    tokenizer: str | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    identity: str | None = None,
    logprobs: LogprobStyle | None = None,
    router: str | None = None,
    routing_header: str | None = None,
    images: Images = "none",
    sleep: bool = False,
) -> Judge:
    """Make an `OpenAIJudge`, or a `Routed` over several servers of the same weights.

    *url*: one address, or several, in a list or separated by commas (as in LLM_JUDGE_SERVER_URL).
    """
    given = url if url is not None else os.environ.get("LLM_JUDGE_SERVER_URL", "")
    each = [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)
    judges = [
        OpenAIJudge(
            one,
            model=model,
            api_key=api_key,
            timeout_s=timeout_s,
            provider=provider,
            max_tokens_field=max_tokens_field,
            omit=omit,
            tokenizer=tokenizer,
            chat_template_kwargs=chat_template_kwargs,
            extra_body=extra_body,
            identity=identity,
            logprobs=logprobs,
            router=router,
            routing_header=routing_header,
            images=images,
            sleep=sleep,
        )
        for one in each
    ]
    return judges[0] if len(judges) == 1 else Routed(judges)
