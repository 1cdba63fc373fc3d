#!/usr/bin/env bash
# Rules and a judge as named Ray actors in the trainer's cluster: one GPU trains, one judges.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
trap 'judgekit serve --engine ray --name judge --stop; ray stop' EXIT
ray start --head --num-gpus=2
judgekit serve --engine ray --name judge --model "${JUDGE:-Qwen/Qwen2.5-1.5B-Instruct}" --gpus 1
train "$PWD/reward_judge_ray.yaml" "$@"
