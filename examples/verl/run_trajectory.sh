#!/usr/bin/env bash
# Agents with a calculator, in verl's own tool loop: rules and a judge look at their whole trajectories. GPU 0 trains,
# GPU 1 judges.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
CUDA_VISIBLE_DEVICES=1 serve_judge
CUDA_VISIBLE_DEVICES=0 train "$PWD/reward_trajectory.yaml" \
    actor_rollout_ref.rollout.multi_turn.enable=True \
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns=5 \
    actor_rollout_ref.rollout.multi_turn.function_tool_path="$PWD/tools.py" \
    actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent \
    "$@"
