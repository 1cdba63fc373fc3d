#!/usr/bin/env bash
# Rule reward, generation one step ahead, two GPUs.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
train "$PWD/reward_rules.yaml" $ASYNC "$@"
