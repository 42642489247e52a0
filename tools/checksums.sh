#!/bin/sh
# Writes the SHA-256 digests of the packages in build/dist to build/dist/SHA256SUMS.
set -eu
cd "$(dirname "$0")/../build/dist"
find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
