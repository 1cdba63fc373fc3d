#!/usr/bin/env bash
# verl's own reward manager with judgekit's compute_score: a judge on a vLLM server for the data sources
# llm_judge_remote_*, verl's own scores for all others. GPU 0 trains, GPU 1 judges. Data: make_data.py math, math500.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
CUDA_VISIBLE_DEVICES=1 serve_judge
export LLM_JUDGE_SERVER_URL="${LLM_JUDGE_SERVER_URL:-http://127.0.0.1:8000/v1}"
DATA="${DATA:-$HOME/data/math}" CUDA_VISIBLE_DEVICES=0 grpo \
    reward.custom_reward_function.path=pkg://judgekit_verl \
    reward.custom_reward_function.name=compute_score \
    +reward.custom_reward_function.reward_kwargs.on_failure=raise \
    +reward.custom_reward_function.reward_kwargs.judged_sources='llm_judge_remote_*' \
    "$@"
