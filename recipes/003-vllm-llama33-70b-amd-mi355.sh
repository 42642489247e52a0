#!/usr/bin/env bash
# Recipe 003: Llama 3.3 70B on vLLM, AMD MI355. FORMAT chooses the model: FP8 or MXFP4. $model, which the recipe leaves to its
# reader, is the launched name.
set -euo pipefail

FORMAT=${FORMAT:-FP8}
export SAFETENSORS_FAST_GPU=1
export VLLM_ROCM_USE_AITER=1
export VLLM_USE_V1=1
export NCCL_DEBUG=WARN
export VLLM_RPC_TIMEOUT=1800000
if [ "$FORMAT" = MXFP4 ]; then
  export VLLM_ROCM_USE_AITER_FP4_ASM_GEMM=1
  NAME=amd/Llama-3.3-70B-Instruct-MXFP4-Preview
  COMPILATION='{"cudagraph_mode":"FULL_AND_PIECEWISE"}'
else
  NAME=amd/Llama-3.3-70B-Instruct-FP8-KV
  COMPILATION='{"cudagraph_mode":"FULL_AND_PIECEWISE", "custom_ops": ["-rms_norm", "-quant_fp8", "-silu_and_mul"]}'
fi
MODEL=${MODEL:-$NAME/}
input_tokens=${INPUT_LEN:-8192}
output_tokens=${OUTPUT_LEN:-1024}
max_concurrency=${CONCURRENCY:-64}
# Five rounds; the recipe's 128 are two, which mostly measure how the batch fills and empties.
num_prompts=${NUM_PROMPTS:-$((5 * max_concurrency))}
PORT=${PORT:-8000}
URL=http://127.0.0.1:$PORT
source "$(dirname "$0")/common.sh"

launch() {
  exec vllm serve "$MODEL" \
    --served-model-name "$NAME" \
    --tensor-parallel-size 1 \
    --max-num-batched-tokens 32768 \
    --port "$PORT" \
    --trust-remote-code \
    --no-enable-prefix-caching \
    --disable-log-requests \
    --gpu_memory_utilization "${GPU_MEMORY_UTILIZATION:-0.9}" \
    --async-scheduling \
    --load-format safetensors \
    --compilation-config "$COMPILATION" \
    --kv-cache-dtype "${KV_CACHE_DTYPE:-fp8}"
}

ask() {
  curl -sS "$URL/v1/models"
  echo
}

accuracy() {
  score --model local-completions --tasks gsm8k --model_args "model=$NAME,base_url=$URL/v1/completions" --batch_size 100
}

bench() {
  vllm bench serve \
    --host localhost \
    --port "$PORT" \
    --model "$NAME" \
    --tokenizer "$MODEL" \
    --dataset-name random \
    --random-input-len "$input_tokens" \
    --random-output-len "$output_tokens" \
    --max-concurrency "$max_concurrency" \
    --num-prompts "$num_prompts" \
    --percentile-metrics ttft,tpot,itl,e2el \
    --ignore-eos \
    --seed 123
}

follow "$@"
