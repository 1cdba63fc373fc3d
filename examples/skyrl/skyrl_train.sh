#!/usr/bin/env bash
# The same four configurations for the package skyrl-train: ./skyrl_train.sh rules|judge|rules-async|judge-async [arguments]
set -euo pipefail
cd "$(dirname "$0")"
kind=${1:-}
KEY=environment.skyrl_gym.judgekit
case $kind in
rules | rules-async) reward="$KEY.config=$PWD/reward_rules.yaml" ;;
# JUDGE_PYTHON: an environment with judgekit[vllm], Python 3.12 and Ray 2.51.1, for skyrl-train's own vLLM is too old
judge | judge-async) reward="$KEY.config=$PWD/reward_judge.yaml $KEY.serve=${JUDGE_MODEL:-Qwen/Qwen2.5-1.5B-Instruct} $KEY.serve_max_model_len=8192 $KEY.serve_python=${JUDGE_PYTHON:?the python of the environment of the judge}" ;;
*) echo "usage: $0 rules|judge|rules-async|judge-async [arguments]" >&2 && exit 2 ;;
esac
case $kind in
*-async) how="trainer.placement.colocate_all=false trainer.placement.colocate_policy_ref=false $KEY.fully_async=true trainer.fully_async.max_staleness_steps=1 trainer.fully_async.num_parallel_generation_workers=32 trainer.algorithm.use_tis=true trainer.algorithm.tis_imp_ratio_cap=2.0 generator.sampling_params.logprobs=0" ;;
*) how="trainer.placement.colocate_all=true" ;;
esac
shift
python -m judgekit_skyrl.main_train $reward $how \
    data.train_data="['${DATA:-$PWD/data}/train.parquet']" \
    data.val_data="['${DATA:-$PWD/data}/validation.parquet']" \
    trainer.algorithm.advantage_estimator=grpo trainer.algorithm.use_kl_loss=false \
    trainer.policy.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
    trainer.policy.optimizer_config.lr=1.0e-6 trainer.strategy=fsdp2 \
    trainer.train_batch_size=16 trainer.policy_mini_batch_size=16 \
    trainer.micro_forward_batch_size_per_gpu=8 trainer.micro_train_batch_size_per_gpu=8 \
    trainer.placement.{policy,ref,critic}_num_gpus_per_node=1 \
    trainer.epochs=1 trainer.eval_interval=20 trainer.eval_before_train=false \
    trainer.ckpt_interval=-1 trainer.resume_mode=none trainer.logger=console \
    generator.n_samples_per_prompt=4 generator.batched=false generator.async_engine=true generator.backend=vllm \
    generator.num_inference_engines=1 generator.inference_engine_tensor_parallel_size=1 \
    generator.sampling_params.max_generate_length=1024 \
    "$@"
