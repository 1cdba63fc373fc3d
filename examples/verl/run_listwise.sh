#!/usr/bin/env bash
# A judge that ranks the responses of each prompt: GPU 0 trains, GPU 1 judges.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
CUDA_VISIBLE_DEVICES=1 serve_judge
CUDA_VISIBLE_DEVICES=0 train "$PWD/reward_listwise.yaml" "$@"
