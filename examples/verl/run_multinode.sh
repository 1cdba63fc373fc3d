#!/usr/bin/env bash
# Several nodes: submits to a running Ray cluster ($RAY_ADDRESS, such as http://head:8265) that serves a judge named
# `judge` (judgekit serve --engine ray --address auto, on any node). All nodes must share the ledger's path in
# reward_judge_ray.yaml.
set -euo pipefail
cd "$(dirname "$0")"
ray job submit --address "${RAY_ADDRESS:?the address of the cluster, such as http://head:8265}" \
    --runtime-env runtime_env.yaml --working-dir . -- \
    bash -c '. ./common.sh; train "$PWD/reward_judge_ray.yaml" trainer.nnodes='"${NODES:-2}"' trainer.n_gpus_per_node='"${GPUS_PER_NODE:-8}"' reward.num_workers=8'
