#!/usr/bin/env bash
# Rules and a judge on a vLLM server: GPU 0 trains, GPU 1 judges. The server can also run on another node.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
CUDA_VISIBLE_DEVICES=1 judgekit serve --name judge --model "${JUDGE:-Qwen/Qwen2.5-1.5B-Instruct}" --port 8000 &
trap 'kill %1; wait' EXIT
until curl -sf http://127.0.0.1:8000/health >/dev/null; do sleep 2; done
CUDA_VISIBLE_DEVICES=0 train "$PWD/reward_judge_http.yaml" "$@"
