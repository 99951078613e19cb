#!/usr/bin/env python3
"""Plans of array redistributions: checked on every element, and compared by modelled time.

    bench_redistribute.py --build FOLDER [--quick] [--json FILE]

Runs redistribute_bench: 600 seeded problems (60 with --quick) and the users' cases. Each plan is carried
out in memory, every element is checked on every rank, and the buffers are watched. Nothing is sent over
a network: times are those of a cost model, which `costs` states (us an operation, us a message, bytes
a us). --json writes {"meta", "seed", "costs", "modelled", "users_cases", "by_costs", "planning"}:

`modelled`: `geomean_vs_X` and `max_vs_X` are the baseline's modelled time / the chosen plan's, over all
cases in which the plan sends anything (`free_cases` do not); the chosen plan is the cheaper of the
synthesised and the direct one. `geomean_vs_best_baseline`: against the best of the three in each case.
`synthesised_..`: of plans in the normal form alone. `limited_cases` were planned again with a limit of
1.25 times the larger of source and target. Planning times are processor time of
the planner's one thread on this machine.
`by_costs`: the same cases under other costs. `planning`: the planner's time on large meshes.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

from bench_allreduce import BenchError, metadata
from outputs import result_file

RUN_DEADLINE_S = 3600
CASES, QUICK_CASES = 600, 60
BASELINES = (("XLA's order", "xla"), ("gather, then slice", "naive"), ("direct", "direct"))


def run_bench(build, quick):
    """What redistribute_bench found, and the command."""
    command = [str(build / "bench/redistribute_bench"), "--cases",
               str(QUICK_CASES if quick else CASES), "--json", "-"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=RUN_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"no end within {RUN_DEADLINE_S} s: {shlex.join(command)}") from error
    if done.returncode != 0:
        raise BenchError(f"{shlex.join(command)} ended with status {done.returncode}:\n"
                         f"{done.stderr.strip()}")
    return json.loads(done.stdout), shlex.join(command)


def print_result(result):
    modelled = result["modelled"]
    print(f"{modelled['cases']} cases: {modelled['failures']} failures, "
          f"{modelled['memory_violations']} memory violations; {modelled['plans_carried_out']} plans "
          f"carried out, {modelled['elements_checked']} elements checked")
    print("\nmodelled time of a baseline / of the plan")
    for name, key in BASELINES:
        print(f"  {name:20} geometric mean {modelled[f'geomean_vs_{key}']:7.2f}   "
              f"largest {modelled[f'max_vs_{key}']:7.2f}")
    print(f"  {'the best of them':20} geometric mean {modelled['geomean_vs_best_baseline']:7.2f}")
    print("\nelements that a rank sends    gather-slice  synthesised  direct")
    for row in result["users_cases"]:
        print(f"  {row['name']:26}{row['naive_elements']:14}{row['synthesised_elements']:13}"
              f"{row['direct_elements']:8}")
    print("\ncosts                                  vs XLA  largest   vs direct   synthesised vs XLA")
    for row in result["by_costs"]:
        print(f"  {row['name']:36}{row['geomean_vs_xla']:7.2f}{row['max_vs_xla']:9.2f}"
              f"{row['geomean_vs_direct']:12.2f}{row['synthesised_geomean_vs_xla']:21.2f}")
    print("\nplanning, ms        ranks      p50      p99      max")
    for row in result["planning"]:
        mesh = "x".join(map(str, row["mesh"]))
        print(f"  {mesh:24}{row['ranks']:6}{row['p50_ms']:9.2f}{row['p99_ms']:9.2f}{row['max_ms']:9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--json", type=result_file)
    options = parser.parse_args()

    meta = metadata("redistribute")
    result, meta["bench_command"] = run_bench(options.build, options.quick)
    print_result(result)
    if options.json:
        options.json.write_text(json.dumps({"meta": meta, **result}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        print(f"bench_redistribute: {error}", file=sys.stderr)
        sys.exit(1)
