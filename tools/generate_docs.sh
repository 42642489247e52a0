#!/bin/sh
# Writes the generated pages of docs/. Most are output of the program; the cases of security.md come from the tests, and
# performance.md from the last comparison. With --check it writes nothing, and fails if a page is out of date.
set -eu
cd "$(dirname "$0")/.."
bin=build/release/bin/sluice
status=0
page() {
  new="$(mktemp)"
  "$bin" help "$2" >"$new"
  if [ -n "${3:-}" ]; then "$3" "$bin" >>"$new"; fi
  if [ "${check:-}" = yes ]; then
    cmp -s "$new" "docs/$1" || { echo "docs/$1 is not what the program says: run \`make docs\`"; status=1; }
    rm -f "$new"
  else
    cat "$new" >"docs/$1"
    rm -f "$new"
  fi
}
if [ "${1:-}" = --check ]; then check=yes; fi
page options.md --markdown
page metrics.md --metrics
page models.md --models tools/decoder_types.py
page parsers.md --parsers
page json-schema.md --json-schema
if [ "${check:-}" = yes ]; then
  made="$(mktemp -d)"
  benchmarks/compare/compare.py --report "$made/performance.md"
  for file in performance.md $(cd "$made" && ls images/*.svg); do
    cmp -s "$made/$file" "docs/$file" || { echo "docs/$file is not what benchmarks/compare/runs say: run \`make docs\`"; status=1; }
  done
  rm -rf "$made"
else
  benchmarks/compare/compare.py --report docs/performance.md
fi
if [ "${check:-}" = yes ]; then
  tools/security_cases.py page --check || status=1
else
  tools/security_cases.py page
fi
exit $status
