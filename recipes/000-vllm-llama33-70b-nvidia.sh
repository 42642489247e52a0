#!/usr/bin/env bash
# Recipe 000: Llama 3.3 70B on vLLM, NVIDIA Blackwell and Hopper. The served name is the same on both, so that the requests below
# find it: the recipe's own requests name the FP4 model only.
set -euo pipefail

COMPUTE_CAPABILITY=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || echo none)
if [ "$COMPUTE_CAPABILITY" = "10.0" ]; then
  export VLLM_ATTENTION_BACKEND=FLASHINFER
  export VLLM_USE_TRTLLM_ATTENTION=1
  ASYNC_SCHEDULING_FLAG="--async-scheduling"
  FUSION_FLAG='{"pass_config":{"enable_fi_allreduce_fusion":true,"enable_noop":true},"custom_ops":["+quant_fp8","+rms_norm"],"full_cuda_graph":true}'
  DTYPE="FP4"
else
  ASYNC_SCHEDULING_FLAG=""
  FUSION_FLAG="{}"
  DTYPE="FP8"
fi
NAME=nvidia/Llama-3.3-70B-Instruct-$DTYPE
MODEL=${MODEL:-$NAME}
INPUT_LEN=${INPUT_LEN:-1024} OUTPUT_LEN=${OUTPUT_LEN:-1024} CONCURRENCY=${CONCURRENCY:-512}
NUM_PROMPTS=${NUM_PROMPTS:-$((5 * CONCURRENCY))}
PORT=${PORT:-8080}
URL=http://127.0.0.1:$PORT
source "$(dirname "$0")/common.sh"

launch() {
  # An empty flag is no word: it must stay without quotes.
  # shellcheck disable=SC2086
  exec vllm serve "$MODEL" \
    --served-model-name "$NAME" \
    --host 0.0.0.0 \
    --port "$PORT" \
    --tokenizer "$MODEL" \
    --kv-cache-dtype "${KV_CACHE_DTYPE:-fp8}" \
    --trust-remote-code \
    --gpu-memory-utilization "${GPU_MEMORY_UTILIZATION:-0.9}" \
    --compilation-config "$FUSION_FLAG" \
    $ASYNC_SCHEDULING_FLAG \
    --enable-chunked-prefill \
    --no-enable-prefix-caching \
    --pipeline-parallel-size 1 \
    --tensor-parallel-size 1 \
    --max-num-seqs 512 \
    --max-num-batched-tokens 8192 \
    --max-model-len 9216
}

follow "$@"
