#!/usr/bin/env bash
# Recipe 002: Llama 3.3 70B in FP8 on vLLM, NVIDIA DGX Spark: the command of its compose service. deploy/compose.yaml is that
# service. What it leaves to the reader is filled in: the long document is a file.
set -euo pipefail

NAME=nvidia/Llama-3.3-70B-Instruct-FP8
MODEL=${MODEL:-$NAME}
DOCUMENT=${DOCUMENT:-$(dirname "$0")/../README.md}
ANSWER_TOKENS=${ANSWER_TOKENS:-1024}
PORT=${PORT:-8000}
URL=http://127.0.0.1:$PORT
source "$(dirname "$0")/common.sh"

launch() {
  exec vllm serve "$MODEL" \
    --served-model-name "$NAME" \
    --port "$PORT" \
    --max-model-len 65536 \
    --gpu-memory-utilization "${GPU_MEMORY_UTILIZATION:-0.80}" \
    --max-num-batched-tokens 32768 \
    --max-num-seqs 32 \
    --enable-prefix-caching \
    --trust-remote-code
}

chat() {
  curl -sS -X POST "$URL/v1/chat/completions" -H "Content-Type: application/json" -d "$1"
  echo
}

ask() {
  curl -sS "$URL/health"
  echo
  chat '{
    "model": "'"$NAME"'",
    "messages": [
      {"role": "system", "content": "You are a helpful AI assistant."},
      {"role": "user", "content": "Explain the key differences between dense and sparse (MoE) language models."}
    ],
    "max_tokens": '"$ANSWER_TOKENS"',
    "temperature": 0.7,
    "stream": false
  }'
  local request
  request=$(python3 - "$DOCUMENT" "$NAME" "$ANSWER_TOKENS" << 'EOF'
import json, sys
document, model, tokens = sys.argv[1:]
print(json.dumps({"model": model, "max_tokens": int(tokens), "temperature": 0.7, "stream": True, "messages": [
    {"role": "system", "content": "You are a document analysis expert."},
    {"role": "user", "content": "Here is a research paper:\n\n%s\n\nProvide a comprehensive summary." % open(document).read()}]}))
EOF
  )
  # Twice: the second time the document comes from the prefix cache.
  chat "$request"
  chat "$request"
}

accuracy() {
  curl -sS "$URL/metrics" | grep -E "^vllm:(num_requests_(running|waiting)|gpu_cache_usage_perc|prefix_cache_(queries|hits)_total|prompt_tokens_total|generation_tokens_total)"
}

# The recipe prints no bench; it speaks of one stream and of 8 and 32 at a time.
bench() {
  local concurrency
  for concurrency in ${CONCURRENCIES:-1 8 32}; do
    vllm bench serve --host 127.0.0.1 --port "$PORT" --model "$NAME" --tokenizer "$MODEL" --dataset-name random \
      --random-input-len "${INPUT_LEN:-1024}" --random-output-len "${OUTPUT_LEN:-256}" --ignore-eos \
      --max-concurrency "$concurrency" --num-prompts $((5 * concurrency))
  done
}

follow "$@"
