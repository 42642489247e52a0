#!/bin/sh
# Starts the bundled model, asks it the way a user would, prints the answers, stops it.
set -eu
cd "$(dirname "$0")/.."
bin=build/release/bin/sluice
log="$(mktemp "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")"

echo "starting sluice serve models/abacus on a free port (log: $log)"
"$bin" serve models/abacus --host 127.0.0.1 --port "${PORT:-0}" --served-model-name abacus >"$log" 2>&1 &
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

echo
echo "a completion:"
curl -fsS "$url/v1/completions" -H "Content-Type: application/json" \
  -d '{ "model": "abacus", "prompt": "San Francisco is a", "max_tokens": 20, "temperature": 0 }'
echo
echo
question="Tom has 13 apples. He buys 24 more and then gives 8 to Anna. How many apples does he have left?"
echo "a chat, streamed: $question"
"$bin" chat --url "$url" --temperature 0 --max-tokens 256 --quick "$question"

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
