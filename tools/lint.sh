#!/bin/sh
# Format, include arrows, generated pages, clang-tidy. clang-tidy looks at the files that differ from the last commit that
# origin/main has, or, with LINT_ALL=1, at all.
set -u
cd "$(dirname "$0")/.."
status=0

files="$(git ls-files 'src/*.h' 'src/*.cc')"
if clang-format --dry-run -Werror $files 2>/dev/null; then
  echo "format: ok"
else
  echo "format: run \`make format\`; these differ:"
  for file in $files; do
    clang-format --dry-run -Werror "$file" 2>/dev/null || echo "  $file"
  done
  status=1
fi

if findings="$(python3 tools/check_includes.py)"; then
  echo "include arrows and file sizes: ok"
else
  echo "$findings"
  status=1
fi

if cmake --build build/release --target sluice >/dev/null && tools/generate_docs.sh --check; then
  echo "generated pages: ok"
else
  status=1
fi

if [ "${LINT_ALL:-}" = 1 ]; then
  sources="$(git ls-files 'src/*.cc')"
else
  base="$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD~20 2>/dev/null || git rev-parse HEAD)"
  sources="$(git diff --name-only --diff-filter=d "$base" -- 'src/*.cc' | head -n "${LINT_MAX_FILES:-40}")"
fi
if [ -n "$sources" ]; then
  if echo "$sources" | xargs -P "$(nproc)" -n 2 clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build/release 2>/dev/null; then
    echo "clang-tidy: ok ($(echo "$sources" | wc -l) files)"
  else
    echo "clang-tidy: see above"
    status=1
  fi
fi
exit $status
