#!/usr/bin/env bash
# Finds code that bypasses common/logging/record.h and writes to the log directly. record.h quotes
# and escapes every value; otherwise text of foreign origin could forge lines of the log.
# `--self-test` proves that the check finds such code.
set -euo pipefail

find_raw() {
  grep -rnE 'spdlog::(trace|debug|info|warn|error|critical|log)[[:space:]]*\(|SPDLOG_|default_logger(_raw)?\(\)->' \
    --include='*.cc' --include='*.h' "$1" --exclude-dir='build*' --exclude-dir=logging --exclude-dir=.git
}

if [[ ${1:-} == --self-test ]]; then
  folder=$(mktemp -d)
  trap 'rm -r "$folder"' EXIT
  printf 'void f() { logging::info("x")("job", name); }\n' >"$folder/good.cc"
  ! find_raw "$folder" || exit 1
  printf 'void f() { spdlog::info("job={}", name); }\n' >"$folder/bad.cc"
  find_raw "$folder" >/dev/null || exit 1
  exit 0
fi
if find_raw "${1:-.}"; then
  echo 'check_logs: use common/logging/record.h there, so that no value can be mistaken for a line' >&2
  exit 1
fi
