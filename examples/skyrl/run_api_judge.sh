#!/usr/bin/env bash
# Reward by a judge behind an OpenAI-compatible API, one GPU. The key comes from the environment or from an env file:
#   echo 'LLM_JUDGE_SERVER_API_KEY=…' > judge.env
# Ray is started here with the key, because SkyRL passes on to its tasks only variables that it knows.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
if [ -f judge.env ]; then set -a; . ./judge.env; set +a; fi
: "${LLM_JUDGE_SERVER_API_KEY:?put the key into judge.env or into the environment}"
ray start --head
trap 'ray stop' EXIT
MODEL=${MODEL:-Qwen/Qwen2.5-1.5B-Instruct} train "$PWD/reward_api_judge.yaml" $ONE_GPU \
    trainer.train_batch_size=8 trainer.policy_mini_batch_size=8 trainer.epochs=20 \
    generator.n_samples_per_prompt=5 "$@"
