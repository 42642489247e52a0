# What the recipes share: their steps, and a server that ends with the script. Sourced by the others.
#
# A recipe defines URL, the function launch, and those of ask, accuracy and bench that differ from these; then it calls
# `follow "$@"`.

usage() {
  echo "usage: [MODEL=FOLDER_OR_ID] $0 [launch | ask | accuracy | bench | all]"
  echo "  all (the default) launches the server, does the other steps and ends it; launch stays until Ctrl-C;"
  echo "  the others talk to a server that runs. Variables of the script's head change models and sizes."
}

# The folder of the program, put on PATH where `make build` has made it and nothing else is installed.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
if ! command -v vllm >/dev/null && [ -x "$root/build/release/bin/vllm" ]; then
  export PATH="$root/build/release/bin:$PATH" PYTHONPATH="$root/build/release/python${PYTHONPATH:+:$PYTHONPATH}"
fi

# Another server at this address would be taken for the one that is launched.
check_free() {
  if curl -s -o /dev/null "$URL/"; then
    echo "a server answers at $URL already: end it, or launch at another PORT" >&2
    exit 1
  fi
}

wait_until_ready() {
  until curl -sf -o /dev/null "$URL/health"; do
    kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready" >&2; exit 1; }
    sleep 0.2
  done
}

end_server() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
}

# lm_eval with these arguments; without it the step says how to get it.
score() {
  if ! command -v lm_eval >/dev/null; then
    echo "lm_eval is not installed, so accuracy is not measured. Install it: pip install 'lm_eval[api]'" >&2
    return 0
  fi
  lm_eval "$@"
}

# What recipes 000 and 004 say alike, of the variables of their heads.
ask() {
  curl -sS "$URL/v1/completions" -H "Content-Type: application/json" \
    -d '{ "model": "'"$NAME"'", "prompt": "San Francisco is a", "max_tokens": 20, "temperature": 0 }'
  echo
}

accuracy() {
  score --model local-completions --tasks gsm8k --model_args \
    "base_url=$URL/v1/completions,model=$NAME,tokenized_requests=False,tokenizer_backend=None,num_concurrent=128,timeout=120,max_retries=5"
}

bench() {
  vllm bench serve --host 127.0.0.1 --port "$PORT" --model "$NAME" --tokenizer "$MODEL" --trust-remote-code \
    --dataset-name random --random-input-len "$INPUT_LEN" --random-output-len "$OUTPUT_LEN" --ignore-eos \
    --max-concurrency "$CONCURRENCY" --num-prompts "$NUM_PROMPTS" \
    --save-result --result-filename vllm_benchmark_serving_results.json
}

follow() {
  case "${1:-all}" in
    launch) launch ;;
    ask | accuracy | bench) "$1" ;;
    all)
      check_free
      launch &
      server=$!
      trap end_server EXIT
      wait_until_ready
      ask
      accuracy
      bench
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
}
