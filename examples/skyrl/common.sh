# Shared by the launch scripts. Each calls `train` with its reward.yaml and its own keys.
train() {
    local reward=$1
    shift
    python -m judgekit_skyrl.main \
        environment.env_class=judgekit \
        environment.skyrl_gym.judgekit.config="$reward" \
        data.train_data="['${DATA:-$PWD/data}/train.parquet']" \
        data.val_data="['${DATA:-$PWD/data}/validation.parquet']" \
        trainer.algorithm.advantage_estimator=grpo \
        trainer.policy.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
        trainer.policy.optimizer_config.lr=1.0e-6 \
        trainer.strategy=fsdp \
        trainer.train_batch_size=16 trainer.policy_mini_batch_size=16 \
        trainer.epochs=1 trainer.eval_interval=20 trainer.eval_before_train=false \
        trainer.ckpt_interval=-1 trainer.resume_mode=none trainer.logger=console \
        trainer.project_name=judgekit trainer.run_name="$(basename "$0" .sh)" \
        generator.n_samples_per_prompt=4 \
        generator.batched=false \
        generator.sampling_params.max_generate_length=1024 \
        generator.inference_engine.backend=vllm \
        "$@"
}

# The policy and its vLLM take turns on one GPU.
ONE_GPU="trainer.placement.colocate_all=true trainer.placement.policy_num_gpus_per_node=1 generator.inference_engine.num_engines=1 generator.inference_engine.tensor_parallel_size=1"

# Training on one GPU; generation on another, one step ahead.
ASYNC="trainer.placement.colocate_all=false trainer.placement.policy_num_gpus_per_node=1 generator.inference_engine.num_engines=1 generator.inference_engine.tensor_parallel_size=1 trainer.fully_async.enabled=true trainer.fully_async.max_staleness_steps=1 trainer.fully_async.num_parallel_generation_workers=32 trainer.algorithm.policy_loss_type=rollout_is"

# The judge: Ray actors on GPUs of their own (JUDGE_TP for each of REWARD_NUM_ENGINES), started before the trainer takes the others.
JUDGE="environment.skyrl_gym.judgekit.serve=${JUDGE_MODEL:-Qwen/Qwen2.5-1.5B-Instruct} environment.skyrl_gym.judgekit.serve_tensor_parallel_size=${JUDGE_TP:-1} environment.skyrl_gym.judgekit.serve_max_model_len=${JUDGE_MAX_MODEL_LEN:-8192} environment.skyrl_gym.judgekit.serve_replicas=${REWARD_NUM_ENGINES:-1}"
