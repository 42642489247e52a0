#!/bin/sh
# Tests and measures the CUDA backend on a machine with a GPU: selftest, kernel-bench, and the load of the recipes on the
# shape of Llama 3.3 70B in FP8. Builds nothing. Usage: tools/gpu_report.sh [options]; --help lists them.
set -eu
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {
  echo "tools/gpu_report.sh: needs a python3 of 3.9 or later in PATH, and nothing else; found $(python3 --version 2>&1 || true)" >&2
  exit 1
}
exec python3 "$(dirname "$0")/gpu_report.py" "$@"
