#!/usr/bin/env bash
# Fails on trailing blanks and on a missing newline at the end, in the files given.
set -euo pipefail
failed=0
for file in "$@"; do
  if grep -nH '[[:blank:]]$' "$file"; then failed=1; fi
  if [[ -s $file && -n $(tail -c 1 "$file") ]]; then
    printf '%s: no newline at the end\n' "$file"
    failed=1
  fi
done
exit "$failed"
