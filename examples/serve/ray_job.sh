#!/usr/bin/env bash
# Starts a judge in a running Ray cluster, as a job. Its actors outlive the job; stop them with
# `judgekit serve --engine ray --name judge --stop`.
set -euo pipefail
cd "$(dirname "$0")"
ray job submit --address "${RAY_ADDRESS:?the address of the cluster, such as http://head:8265}" \
    --runtime-env runtime_env.yaml -- \
    judgekit serve --engine ray --name judge --model "${JUDGE_MODEL:-Qwen/Qwen2.5-1.5B-Instruct}" \
    --replicas "${REPLICAS:-1}" --gpus 1
