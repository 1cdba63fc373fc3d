#!/usr/bin/env bash
# Rules only, one GPU.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
train "$PWD/reward_rules.yaml" "$@"
