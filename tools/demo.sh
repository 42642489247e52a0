#!/bin/sh
# Starts a server with the bundled model, sends requests as a user would, prints the answers, and
# stops the server.
set -eu
cd "$(dirname "$0")/.."
bin="${SLUICE_BIN:-build/release/bin}/sluice"
log="$(mktemp "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")"

echo "starting sluice serve models/abacus on a free port (log: $log)"
"$bin" serve models/abacus --host 127.0.0.1 --port "${PORT:-0}" --served-model-name abacus \
  --enable-auto-tool-choice --tool-call-parser hermes --speculative-config \
  '{ "method": "eagle3", "model": "models/abacus-eagle3", "num_speculative_tokens": 3, "adaptive": false }' >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT INT TERM

ready=""
for _ in $(seq 600); do
  if grep -q "Application startup complete" "$log"; then
    ready=yes
    break
  fi
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$ready" ]; then
  echo "the server did not start:"
  cat "$log"
  exit 1
fi
url="$(sed -n 's|.* at \(http://127.0.0.1:[0-9]*\), ready.*|\1|p' "$log")"
echo "ready at $url"

question="Tom has 13 apples. He buys 24 more and then gives 8 to Anna. How many apples does he have left?"
echo
echo "a chat, streamed: $question"
"$bin" chat --url "$url" --temperature 0 --max-tokens 256 --quick "$question"

echo
echo "a completion:"
curl -fsS "$url/v1/completions" -H "Content-Type: application/json" \
  -d '{ "model": "abacus", "prompt": "San Francisco is a", "max_tokens": 20, "temperature": 0 }'
echo

echo
echo "the same question with a tool, models/abacus/calculator.json, which the model calls:"
"$bin" chat --url "$url" --temperature 0 --max-tokens 256 --tools models/abacus/calculator.json --quick "$question"

echo
echo "and its answer in a JSON schema:"
curl -fsS "$url/v1/chat/completions" -H "Content-Type: application/json" -d '{ "model": "abacus", "max_tokens": 256, "temperature": 0,
  "messages": [{ "role": "user", "content": "'"$question"' Answer in JSON." }],
  "response_format": { "type": "json_schema", "json_schema": { "name": "answer", "schema": { "type": "object",
    "properties": { "steps": { "type": "array", "items": { "type": "string" } }, "answer": { "type": "integer" } },
    "required": ["steps", "answer"], "additionalProperties": false } } } }'
echo

echo
curl -fsS "$url/metrics" | awk '
  { sub(/{.*/, "", $1) }
  $1 == "vllm:generation_tokens_total" { tokens += $NF }
  $1 == "vllm:spec_decode_num_draft_tokens_total" { proposed += $NF }
  $1 == "vllm:spec_decode_num_accepted_tokens_total" { right += $NF }
  END { printf "%d tokens in %d steps, %.1f a step: the drafting head in models/abacus-eagle3 proposed %d tokens, %d were right\n",
        tokens, tokens - right, tokens / (tokens - right), proposed, right }'

echo
kill -TERM "$server"
trap - EXIT INT TERM
if wait "$server"; then
  rm -f "$log"
  echo "done; serve it yourself: $bin serve models/abacus"
else
  echo "the server ended with an error:"
  cat "$log"
  exit 1
fi
