"""Functions for verl's `custom_reward_function`: a remote vLLM judge, by row or batch.

    reward.custom_reward_function.path=pkg://judgekit_verl reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.on_failure=raise

The judge's address comes from LLM_JUDGE_SERVER_URL (several separated by commas), LLM_JUDGE_SERVER_API_KEY and
LLM_JUDGE_SERVER_TIMEOUT, or from the row's `extra_info`. Equal requests at temperature 0 are sent once; with
LLM_JUDGE_CACHE, a file, once for all processes and runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from judgekit import (
    ConfigError,
    Fallback,
    Grader,
    GradingRunner,
    GroupGrader,
    MissingRewardError,
    Retry,
)
from judgekit.graders import JudgeGrader
from judgekit.judges import CacheOptions, LayerOptions, LineVerdict, Sampling, Template, openai_judge, stacked
from judgekit.trainers import RewardConfig, rollout_of, run_blocking
from judgekit_verl.versions import awaits_scores

UNSET: Final = object()
_LINE = "REWARD: {score}"


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    on_failure: Any = UNSET,
    judged_sources: str | Sequence[str] = "*",
    **_: Any,
) -> float:
    """Return the judge's score of one solution, 0 to 1.

    *extra_info* may hold server_url, api_key, timeout (seconds), model_name, temperature, top_p,
    max_new_tokens, enable_thinking, batch_size (requests in flight), problem, prompt_template ("default",
    "detailed", or a text with {PROBLEM} {REFERENCE_SOLUTION} {CANDIDATE_SOLUTION} whose last line asks for
    `REWARD: <score>`), target_gt, filter_gt_by_prompt_token, prompt.

    *on_failure*: what to do if the judge gives no score: "raise" (MissingRewardError), a number to return, or
    the `use:` name of a grader, such as "edit_similarity", to grade instead. There is no default.

    *judged_sources*: patterns (`llm_judge_remote_*`; several in a list or separated by commas) of the data sources that
    the judge grades; the others get the score of verl's `default_compute_score`, with its range and its errors.
    """
    (score,) = await _scores(
        [data_source], [solution_str], [ground_truth], [extra_info], on_failure, judged_sources
    )
    return score


def compute_score_blocking(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> float:
    """`compute_score_async` for synchronous callers, with the same options."""
    return run_blocking(compute_score_async(data_source, solution_str, ground_truth, extra_info, **options))


compute_score = compute_score_async if awaits_scores() else compute_score_blocking
"""What the installed verl calls: it awaits a coroutine function from 0.7.1 on, and earlier ones need the score itself."""


def compute_score_batched(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None] | None = None,
    *,
    on_failure: Any = UNSET,
    judged_sources: str | Sequence[str] = "*",
    **_: Any,
) -> list[float]:
    """`compute_score` for many rows, from synchronous code; one score per row, in order."""
    infos = extra_infos if extra_infos is not None else [None] * len(solution_strs)
    return run_blocking(
        _scores(data_sources, solution_strs, ground_truths, infos, on_failure, judged_sources)
    )


async def _scores(
    sources: Sequence[str],
    solutions: Sequence[str],
    truths: Sequence[Any],
    infos: Sequence[Mapping[str, Any] | None],
    on_failure: Any,
    judged_sources: str | Sequence[str],
) -> list[float]:
    if on_failure is UNSET:
        raise ConfigError(
            "say what a failed judge returns: on_failure=raise, a number, or a grader's name such as edit_similarity, in "
            "+custom_reward_function.reward_kwargs.on_failure (under reward. from verl 0.7.1 on)"
        )
    lengths = {len(sources), len(solutions), len(truths), len(infos)}
    if len(lengths) > 1:
        raise ConfigError(f"compute_score_batched: the arguments have different lengths: {sorted(lengths)}")
    patterns = judged_sources.split(",") if isinstance(judged_sources, str) else list(judged_sources)
    rows: dict[GradingRunner, list[int]] = {}
    rollouts = []
    others = []
    for index, (source, solution, truth, given) in enumerate(
        zip(sources, solutions, truths, infos, strict=True)
    ):
        info = dict(given or {})
        rollouts.append(
            rollout_of(
                {"data_source": source, "ground_truth": truth, "extra_info": info},
                prompt=str(info.get("problem") or info.get("question") or ""),
                turns=[{"role": "assistant", "content": solution}],
            )
        )
        if any(fnmatchcase(str(source), pattern.strip()) for pattern in patterns):
            rows.setdefault(_runner_for(info, on_failure), []).append(index)
        else:
            others.append(index)
    scores: list[float] = [0.0] * len(rollouts)

    async def grade(runner: GradingRunner, indices: list[int]) -> None:
        for index, result in zip(indices, await runner.run([rollouts[i] for i in indices]), strict=True):
            if result.reward is None:
                raise MissingRewardError(f"row {index} has no score ({', '.join(result.missing)})")
            scores[index] = float(result.reward)

    async def by_verl(index: int) -> None:
        scores[index] = await asyncio.to_thread(
            _default_score, sources[index], solutions[index], truths[index], dict(infos[index] or {})
        )

    try:
        async with asyncio.TaskGroup() as group:
            for index in others:
                group.create_task(by_verl(index))
            for runner, indices in rows.items():
                group.create_task(grade(runner, indices))
    except ExceptionGroup as errors:  # raise the cause, without the group around it
        raise errors.exceptions[0] from None
    return scores


def _default_score(source: str, solution: str, truth: Any, info: dict[str, Any]) -> float:
    from verl.utils.reward_score import default_compute_score

    found = default_compute_score(source, solution, truth, info)
    return float(found["score"] if isinstance(found, Mapping) else found)


def _runner_for(info: Mapping[str, Any], on_failure: Any) -> GradingRunner:
    """Return the runner for these options; rows with equal options share one, for the process's life."""
    # a data set's file gives all rows the same fields, and None where a row has none
    info = {name: value for name, value in info.items() if value is not None}
    url = str(info.get("server_url") or os.environ.get("LLM_JUDGE_SERVER_URL", ""))
    if not url:
        raise ConfigError(
            "the judge's address is not set: set LLM_JUDGE_SERVER_URL, or server_url in the row's extra_info"
        )
    return _runner(
        ",".join(one.strip().removesuffix("/chat/completions") for one in url.split(",")),
        str(info.get("api_key") or os.environ.get("LLM_JUDGE_SERVER_API_KEY", "")),
        float(info.get("timeout") or os.environ.get("LLM_JUDGE_SERVER_TIMEOUT") or 60),
        str(info.get("model_name") or ""),
        float(info.get("temperature", 0.7)),
        float(info.get("top_p", 0.8)),
        int(info.get("max_new_tokens", 512)),
        bool(info.get("enable_thinking", False)),
        int(info.get("batch_size", 128)),
        str(info.get("prompt_template") or "default"),
        os.environ.get("LLM_JUDGE_CACHE", ""),
        on_failure,
    )


@lru_cache(maxsize=64)
def _runner(
    url: str,
    api_key: str,
    timeout: float,
    model: str,
    temperature: float,
    top_p: float,
    max_tokens: int,
    thinking: bool,
    batch_size: int,
    template: str,
    cache: str,
    on_failure: Any,
) -> GradingRunner:
    engine = openai_judge(url, model=model or None, api_key=api_key or None, timeout_s=timeout)
    judge = stacked(
        engine,
        LayerOptions(
            max_concurrency=batch_size,
            attempt_timeout_s=timeout,
            retry=Retry(attempts=3),
            cache=CacheOptions(path=cache or None),
        ),
    )
    prompt = _template(template)
    coded = "REMINDER" in prompt.fields  # otherwise the template itself describes the last line
    graders: dict[str, Grader | GroupGrader] = {
        "judge": JudgeGrader(
            judge,
            template=prompt,
            verdict=LineVerdict(line=_LINE, integer=False, nonce=coded, max_tokens=max_tokens),
            sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens, thinking=thinking),
        )
    }
    reward: Any = "judge"
    missing_reward: Any = "raise"
    if isinstance(on_failure, int | float):
        missing_reward = float(on_failure)
    elif on_failure != "raise":
        other = RewardConfig.model_validate({"graders": {"other": str(on_failure)}}).build()
        graders["other"] = other.graders["other"]
        reward = Fallback("judge", "other")
    runner = GradingRunner(
        graders,
        reward,
        missing_reward=missing_reward,
        max_concurrency=max(batch_size, 1),
        timeout_s=timeout * 4,
    )
    return runner.with_settings(shared=True)  # verl calls row by row, and each call is one run


def _template(given: str) -> Template:
    """Load a shipped template by name, or make one of the given text."""
    if "{CANDIDATE_SOLUTION}" not in given:
        return Template.load(given)
    text = given if "{HOW_TO_ANSWER}" in given or "REWARD:" in given else f"{given}\n\n{{HOW_TO_ANSWER}}"
    return Template(text)
