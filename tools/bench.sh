#!/bin/sh
# Measures how far the engine is from this machine's limits, with the shape of a 1-billion-parameter Llama and random
# weights. Needs about 4 GiB of memory and some minutes. Usage: tools/bench.sh [options of sluice bench]
set -eu
cd "$(dirname "$0")/.."
bin=build/release/bin/sluice
shape=benchmarks/llama-3.2-1b-shape

"$bin" doctor
for run in \
  "one stream, decode|--batch-size 1 --input-len 16 --output-len 33 --num-iters 3" \
  "512-token prefill|--batch-size 1 --input-len 512 --output-len 1 --num-iters 3" \
  "32 streams, decode|--batch-size 32 --input-len 16 --output-len 33 --num-iters 1"; do
  echo
  echo "== ${run%%|*}"
  # shellcheck disable=SC2086
  "$bin" bench latency "$shape" --load-format dummy ${run#*|} "$@"
done

# The same measurement for a mixture-of-experts model; counts only the bytes of the experts that a token uses.
echo
echo "== experts, one stream, decode"
"$bin" bench latency benchmarks/moe-32x512-shape --load-format dummy --batch-size 1 --input-len 16 --output-len 33 --num-iters 3 "$@"

# The same Llama with narrow weight formats. One stream is compared with the read bandwidth, from the bytes of these
# weights; prefill is compared with the BF16 prefill above.
for format in fp8 nvfp4 mxfp4 int4; do
  for run in "one stream, decode|--input-len 16 --output-len 33" "512-token prefill|--input-len 512 --output-len 1"; do
    echo
    echo "== $format, ${run%%|*}"
    # shellcheck disable=SC2086
    "$bin" bench latency "benchmarks/llama-3.2-1b-$format-shape" --load-format dummy --batch-size 1 --num-iters 3 \
      ${run#*|} "$@"
  done
done
