# Shared by the launch scripts: GRPO on GSM8K with Qwen2.5-0.5B-Instruct on one GPU, verl 0.9.1.
# Each script calls `train` with its reward.yaml and may add or override any verl key.
train() {
    local reward=$1
    shift
    grpo \
        +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager \
        reward.reward_manager.name=judgekit \
        +reward.reward_kwargs.judgekit_config="$reward" \
        trainer.v1.sampler.custom_sampler.path=pkg://judgekit_verl \
        trainer.v1.sampler.custom_sampler.name=JudgeKitReplayBuffer \
        "$@"
}

# GRPO with verl's own reward manager, unless the arguments say otherwise.
grpo() {
    python3 -m verl.trainer.main_ppo \
        algorithm.adv_estimator=grpo \
        data.train_files="${DATA:-$HOME/data/gsm8k}/train.parquet" \
        data.val_files="${DATA:-$HOME/data/gsm8k}/test.parquet" \
        data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=1024 \
        actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
        actor_rollout_ref.actor.optim.lr=1e-6 \
        actor_rollout_ref.actor.ppo_mini_batch_size=64 \
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
        actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 \
        actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8 \
        actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \
        actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \
        actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
        reward.num_workers=2 \
        trainer.n_gpus_per_node="${GPUS:-1}" trainer.nnodes=1 \
        trainer.logger='["console"]' trainer.project_name=judgekit trainer.experiment_name="$(basename "$0" .sh)" \
        trainer.total_epochs=1 trainer.save_freq=-1 trainer.test_freq=20 \
        trainer.resume_mode=disable \
        "$@"
}

# Serves a judge over HTTP on port 8000 and returns once it answers. If the server ends first, shows its log and fails.
serve_judge() {
    local log=judge.log
    judgekit serve --name judge --model "${JUDGE:-Qwen/Qwen2.5-1.5B-Instruct}" --port 8000 >"$log" 2>&1 &
    JUDGE_PID=$!
    trap 'kill "$JUDGE_PID" 2>/dev/null; wait' EXIT
    until curl -sf http://127.0.0.1:8000/health >/dev/null; do
        if ! kill -0 "$JUDGE_PID" 2>/dev/null; then
            cat "$log" >&2
            echo "the judge's server has ended; its log is above" >&2
            return 1
        fi
        sleep 2
    done
}
