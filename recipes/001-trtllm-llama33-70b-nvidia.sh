#!/usr/bin/env bash
# Recipe 001: Llama 3.3 70B on TensorRT-LLM, NVIDIA Blackwell and Hopper. The bench is a function here; the recipe's here-document
# for it is unquoted, so that its variables would be empty.
set -euo pipefail

NAME=nvidia/Llama-3.3-70B-Instruct-FP8
MODEL=${MODEL:-$NAME}
CONCURRENCIES=${CONCURRENCIES:-1 2 4 8 16 32 64 128 256} ROUNDS=${ROUNDS:-5}
INPUT_LEN=${INPUT_LEN:-1024} OUTPUT_LEN=${OUTPUT_LEN:-1024}
RESULT_DIR=${RESULT_DIR:-/tmp/llama3.3_output}
PORT=${PORT:-8000}
URL=http://127.0.0.1:$PORT
source "$(dirname "$0")/common.sh"

launch() {
  # Named, so that it is there when the server reads it.
  local config
  config=$(mktemp --suffix .yml)
  cat << 'EOF' > "$config"
enable_attention_dp: false
cuda_graph_config:
  enable_padding: true
  max_batch_size: 1024
kv_cache_config:
  dtype: fp8
EOF
  exec trtllm-serve "$MODEL" \
    --served_model_name "$NAME" \
    --host 0.0.0.0 \
    --port "$PORT" \
    --max_batch_size 1024 \
    --max_num_tokens 2048 \
    --max_seq_len 2048 \
    --kv_cache_free_gpu_memory_fraction "${KV_CACHE_FRACTION:-0.9}" \
    --tp_size 1 \
    --ep_size 1 \
    --trust_remote_code \
    --extra_llm_api_options "$config"
}

ask() {
  curl -s -o /dev/null -w "Status: %{http_code}\n" "$URL/health"
  curl -sS "$URL/v1/completions" -H "Content-Type: application/json" -d '{
      "model": "'"$NAME"'",
      "prompt": "Where is New York?",
      "max_tokens": 16,
      "temperature": 0
  }'
  echo
}

accuracy() {
  score --model local-completions --tasks gsm8k --batch_size 256 \
    --gen_kwargs temperature=0.0,add_special_tokens=False --num_fewshot 5 \
    --model_args "model=$NAME,base_url=$URL/v1/completions,num_concurrent=32,max_retries=20,tokenized_requests=False" \
    --log_samples --output_path trtllm.fp8.gsm8k
}

bench() {
  local concurrency
  for concurrency in $CONCURRENCIES; do
    python3 -m tensorrt_llm.serve.scripts.benchmark_serving \
      --model "$NAME" \
      --tokenizer "$MODEL" \
      --port "$PORT" \
      --backend openai \
      --dataset-name "random" \
      --random-input-len "$INPUT_LEN" \
      --random-output-len "$OUTPUT_LEN" \
      --random-prefix-len 0 \
      --random-ids \
      --num-prompts $((concurrency * ROUNDS)) \
      --max-concurrency "$concurrency" \
      --ignore-eos \
      --tokenize-on-client \
      --percentile-metrics "ttft,tpot,itl,e2el" \
      --save-result \
      --result-dir "$RESULT_DIR" \
      --result-filename "concurrency_${concurrency}.json"
  done
}

follow "$@"
