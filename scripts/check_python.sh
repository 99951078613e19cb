#!/usr/bin/env bash
# Finds names in Python files that nothing defines, and imports that nothing uses: a module that
# only one fault of one benchmark runs would fail there alone. `--self-test` proves that the check
# finds such names.
set -euo pipefail

# Debian's: flake8 belongs to its interpreter, and another one may come first in PATH.
check() { /usr/bin/python3 -m flake8 --isolated --select F,E9 "$@"; }

if [[ ${1:-} == --self-test ]]; then
  folder=$(mktemp -d)
  trap 'rm -r "$folder"' EXIT
  printf 'import os\n\n\ndef f():\n    return os.sep\n' >"$folder/good.py"
  check "$folder/good.py" || exit 1
  printf 'def f():\n    return os.sep\n' >"$folder/bad.py"
  ! check "$folder/bad.py" >/dev/null || exit 1
  exit 0
fi
cd "$1"
mapfile -t files < <(find . -name '*.py' -not -path './build*' -not -path './.git/*')
check "${files[@]}" programs/run/ina-run
