#!/bin/sh
# Installs the project into a temporary folder, compiles the examples against what was installed
# with the plain compilers and pkg-config and by CMake, and runs two ranks of each through a switch.
#
# usage: installed_examples.sh BUILD_DIR
set -eu

build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
switch_pid=

cleanup() {
  status=$?
  trap - EXIT INT TERM
  if [ -n "$switch_pid" ]; then
    kill "$switch_pid" 2>/dev/null || true
    wait "$switch_pid" 2>/dev/null || true
  fi
  if [ "$status" -ne 0 ] && [ -s "$work/switchd.log" ]; then
    echo "last lines of the switch's log:"
    tail -n 20 "$work/switchd.log"
  fi
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "FAILED: $*"
  exit 1
}

# only FILE_NAME: prints the path of the only installed file of this name.
only() {
  found=$(find "$work/root" -name "$1" ! -type d ! -path "*/bash-completion/*")
  [ "$(printf '%s\n' "$found" | grep -c .)" -eq 1 ] || fail "not installed exactly once: $1: $found"
  echo "$found"
}

meson install -C "$build" --no-rebuild --quiet --destdir "$work/root" >"$work/install.log" 2>&1 ||
  { cat "$work/install.log"; fail "meson install"; }

# The .pc file names the final prefix, and the sysroot moves the prefix into the temporary folder.
# pkg-config must keep system paths: below a sysroot they are not the system's own.
pc_file=$(only ina.pc)
export PKG_CONFIG_PATH="${pc_file%/*}"
export PKG_CONFIG_SYSROOT_DIR="$work/root"
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
flags=$(pkg-config --cflags --libs ina) || fail "pkg-config does not find ina"
case $flags in
  *"$work/root"*) ;;
  *) fail "pkg-config does not point at the installation: $flags" ;;
esac

cp "$source/examples/allreduce.c" "$source/examples/allreduce.cpp" "$source/examples/group.cpp" \
  "$source/examples/collectives.cpp" "$work"
# shellcheck disable=SC2086  # flags are words
{
  gcc -std=c11 -Wall -Wextra -Werror "$work/allreduce.c" $flags -o "$work/allreduce_c"
  g++ -std=c++20 -Wall -Wextra -Werror "$work/allreduce.cpp" $flags -o "$work/allreduce_cpp"
  g++ -std=c++20 -Wall -Wextra -Werror "$work/group.cpp" $flags -o "$work/group"
  g++ -std=c++20 -Wall -Wextra -Werror "$work/collectives.cpp" $flags -o "$work/collectives"
}

# Compile the examples again, with CMake's find_package.
{
  cmake -S "$source/examples" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$(dirname "$(only ina.h)")/../.." &&
    cmake --build "$work/cmake"
} >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "cmake"; }
for name in allreduce allreduce_c group collectives; do
  cp "$work/cmake/$name" "$work/cmake_$name"
done

# Installed programs run without changes to the loader's configuration.
if [ -x "$build/bench/ina-perf" ]; then
  "$(only ina-perf)" --help >"$work/out" 2>&1 || fail "installed ina-perf: $(cat "$work/out")"
fi

library=$(only libina.so.0)
export LD_LIBRARY_PATH="${library%/*}"
switchd=$(only ina-switchd)
socket=$work/switch.sock
"$switchd" --config "$source/conf/demo.yaml" --socket "$socket" >"$work/switchd.log" 2>&1 &
switch_pid=$!
tries=0
while [ ! -S "$socket" ]; do
  kill -0 "$switch_pid" 2>/dev/null || fail "the switch did not start"
  tries=$((tries + 1))
  [ "$tries" -le 200 ] || fail "the switch does not listen after 20 s"
  sleep 0.1
done

# run PROGRAM EXPECTED: runs two ranks; each must print EXPECTED after "rank R of 2: ".
run() {
  export INA_URL="shm:$socket" INA_JOB="$1" INA_WORLD_SIZE=2 INA_TIMEOUT_US=20000000
  INA_RANK=1 "$work/$1" >"$work/$1.1" 2>&1 &
  other=$!
  first=0 second=0
  INA_RANK=0 "$work/$1" >"$work/$1.0" 2>&1 || first=$?
  wait "$other" || second=$?
  cat "$work/$1.0" "$work/$1.1"
  [ "$first$second" = 00 ] || fail "$1 ended with status $first and $second"
  for rank in 0 1; do
    [ "$(cat "$work/$1.$rank")" = "rank $rank of 2: $2" ] || fail "$1, rank $rank: other output"
  done
}

run allreduce_c "100000 elements, each 3"
run allreduce_cpp "means 0.5 and 5"
run group "100 tensors, mean 0.5"
run collectives "50000 parameters, each 97"
run cmake_allreduce_c "100000 elements, each 3"
run cmake_collectives "50000 parameters, each 97"

# Without a switch the programs report an error, and do not hang or crash.
kill "$switch_pid"
wait "$switch_pid" || fail "the switch ended with status $?"
switch_pid=
for program in allreduce_c allreduce_cpp group; do
  status=0
  INA_RANK=0 INA_TIMEOUT_US=500000 "$work/$program" >"$work/out" 2>&1 || status=$?
  [ "$status" -eq 1 ] || fail "$program without a switch ended with status $status"
  grep -q INA_ERR_NO_SWITCH "$work/out" || fail "$program without a switch: $(cat "$work/out")"
done
echo "ok"
