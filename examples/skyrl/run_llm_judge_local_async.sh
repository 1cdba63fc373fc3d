#!/usr/bin/env bash
# Reward by a local judge, generation one step ahead, three GPUs.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
train "$PWD/reward_judge.yaml" $ASYNC $JUDGE "$@"
