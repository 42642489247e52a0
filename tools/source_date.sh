#!/bin/sh
# Prints the time that packages use as their timestamp, in seconds since 1970: SOURCE_DATE_EPOCH if it is set, else
# the time of the commit.
set -eu
cd "$(dirname "$0")/.."
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
  echo "$SOURCE_DATE_EPOCH"
else
  git log -1 --format=%ct 2>/dev/null || {
    echo "tools/source_date.sh: this is no git checkout: set SOURCE_DATE_EPOCH to the time that packages shall carry" >&2
    exit 1
  }
fi
