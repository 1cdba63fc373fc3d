#!/usr/bin/env bash
# Reward by a local judge, synchronous, two GPUs.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
train "$PWD/reward_judge.yaml" $ONE_GPU $JUDGE "$@"
