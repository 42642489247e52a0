#!/bin/sh
# Proves and measures the CUDA backend wherever a GPU is: selftest, kernel-bench, and the load of the recipes on the shape
# of Llama 3.3 70B in FP8. Builds nothing. Usage: tools/gpu_report.sh [options]; --help lists them.
set -eu
command -v python3 >/dev/null || { echo "tools/gpu_report.sh: needs python3 (3.9 or later, nothing else)" >&2; exit 1; }
exec python3 "$(dirname "$0")/gpu_report.py" "$@"
