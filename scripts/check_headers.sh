#!/usr/bin/env bash
# Compiles each header alone: whoever includes it must need no other include before it.
# The build itself shows that for x.h where x.cc includes it before anything else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

flags=(-std=c++20 -fsyntax-only -w -I. -Iinclude)
for library in libdpdk libhwy fmt spdlog yaml-cpp nlohmann_json eigen3 python3; do
  if read -ra found < <(pkg-config --cflags "$library" 2>/dev/null); then flags+=("${found[@]}"); fi
done

# Some folders have a precompiled header, which stands before the first include.
precompiled=$(find . -path './build*' -prune -o -path '*/pch/*.h' -printf '%h\n' | xargs -r dirname | sort -u)

is_compiled_first() {
  local source=${1%.h}.cc folder
  folder=$(dirname "$1")
  [[ -f $source ]] && ! grep -qxF "$folder" <<<"$precompiled" && [[ $folder != ./tests/* ]] &&
    [[ $(grep -m1 '^#include' "$source") == "#include \"${1#./}\"" ]]
}

# Headers that are included several times on purpose (Highway's per-target code) are not on their own.
# Those of the MPI interposer are compiled with each MPI that there is, by the build; those of the Python modules
# where Python's headers are.
elsewhere=./plugins/mpi
pkg-config --exists python3 || elsewhere=./plugins
find . -path './build*' -prune -o -path './.git' -prune -o -path "$elsewhere" -prune -o \
  \( -name '*.h' -o -name '*.hpp' \) ! -name '*-inl.h' -print |
  while read -r header; do is_compiled_first "$header" || printf '%s\0' "$header"; done |
  xargs -0 -r -P "${INA_JOBS:-$(nproc)}" -I{} "${CXX:-g++}" "${flags[@]}" -x c++ {}

# The C ABI is C.
"${CC:-gcc}" -std=c99 -pedantic -Wall -Werror -fsyntax-only -x c include/ina/ina.h
