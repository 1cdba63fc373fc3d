#!/usr/bin/env bash
# Rule reward, synchronous, one GPU.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
train "$PWD/reward_rules.yaml" $ONE_GPU "$@"
