#!/usr/bin/env bash
# Recipe 004: Llama 4 Scout on vLLM, NVIDIA Blackwell and Hopper. It loads the models that the recipe links to: the ids of its own
# launch command do not exist, and its requests name these.
set -euo pipefail

COMPUTE_CAPABILITY=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || echo none)
if [ "$COMPUTE_CAPABILITY" = "10.0" ]; then
  export VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB='{"2":32,"4":32,"8":8}'
  export VLLM_USE_FLASHINFER_MOE_FP8=1
  export VLLM_USE_FLASHINFER_MOE_FP4=1
  DTYPE="FP4"
else
  DTYPE="FP8"
fi
NAME=nvidia/Llama-4-Scout-17B-16E-Instruct-$DTYPE
MODEL=${MODEL:-$NAME}
INPUT_LEN=${INPUT_LEN:-1024} OUTPUT_LEN=${OUTPUT_LEN:-1024} CONCURRENCY=${CONCURRENCY:-512}
NUM_PROMPTS=${NUM_PROMPTS:-$((5 * CONCURRENCY))}
PORT=${PORT:-8000}
URL=http://127.0.0.1:$PORT
source "$(dirname "$0")/common.sh"

launch() {
  local config
  config=$(mktemp --suffix .yaml)
  if [ "$DTYPE" = FP4 ]; then
    cat << 'EOF' > "$config"
kv-cache-dtype: fp8
compilation-config: '{"pass_config":{"enable_fi_allreduce_fusion":true,"enable_attn_fusion":true,"enable_noop":true},"custom_ops":["+quant_fp8","+rms_norm"],"cudagraph_mode":"FULL_DECODE_ONLY","splitting_ops":[]}'
async-scheduling: true
no-enable-prefix-caching: true
max-num-batched-tokens: 8192
max-model-len: 10240
EOF
  else
    cat << 'EOF' > "$config"
kv-cache-dtype: fp8
async-scheduling: true
no-enable-prefix-caching: true
max-num-batched-tokens: 8192
max-model-len: 10240
EOF
  fi
  exec vllm serve "$MODEL" \
    --served-model-name "$NAME" \
    --port "$PORT" \
    --config "$config" \
    --tensor-parallel-size 1 \
    --max-num-seqs 512
}

follow "$@"
