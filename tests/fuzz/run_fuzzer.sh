#!/usr/bin/env bash
# Runs one fuzz target from its committed corpus.
#
#   run_fuzzer.sh PROGRAM TARGET [LIBFUZZER_ARGUMENT...]   default: INA_FUZZ_SECONDS (15) seconds, some twice that
#   run_fuzzer.sh PROGRAM TARGET --merge                   adds found inputs to the corpus if they
#                                                          reach code that no input there reaches
#
# Results go to PROGRAM's folder: new inputs to found/TARGET, crashes to crashes/TARGET.
set -euo pipefail
program=$(realpath "$1") target=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
corpus=$here/corpus/$target
cd "$(dirname "$program")"
mkdir -p "found/$target" "crashes/$target"
if [[ ${1:-} == --merge ]]; then
  exec "$program" -set_cover_merge=1 -max_len=1024 "$corpus" "found/$target"
fi
# libFuzzer's own exit code, 77, means a skipped test for meson.
arguments=(-error_exitcode=99 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 "-artifact_prefix=crashes/$target/")
[[ ! -f $here/$target.dict ]] || arguments+=("-dict=$here/$target.dict")
seconds=${INA_FUZZ_SECONDS:-15}
# These targets mostly wait for a switch in the same process, whose control plane is not optimised.
case $target in control | remote) seconds=$((seconds * 2)) ;; esac
[[ $# -gt 0 ]] || set -- "-max_total_time=$seconds"
exec "$program" "${arguments[@]}" "$@" "found/$target" "$corpus"
