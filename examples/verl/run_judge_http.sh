#!/usr/bin/env bash
# Rules and a judge on a vLLM server: GPU 0 trains, GPU 1 judges. The server can also run on another node.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
CUDA_VISIBLE_DEVICES=1 serve_judge
CUDA_VISIBLE_DEVICES=0 train "$PWD/reward_judge_http.yaml" "$@"
