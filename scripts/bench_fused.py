#!/usr/bin/env python3
"""Many small all-reduces: one by one, all in flight, in a group, coalesced, and as one tensor.

    bench_fused.py --build FOLDER [--ranks N] [--quick] [--json FILE]

Starts an ina-switchd in a temporary folder and the ranks of ina-fused, real processes over the shm
port, once for each mix of sizes. In each round a rank takes the ways in turn, so that what else the
machine does meets all alike, each once untimed to warm the caches, and checks every element of
every sum. A round's time is that of its slowest rank; what is reported is the median over the
rounds, with the quartiles, and the median ratio of the blocking calls' time to each way's, round by
round.

--json writes {"meta", "rows": [a row for each mix and way]}.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import bench_allreduce
from bench_allreduce import BenchError
from outputs import result_file

# Two jobs (with and without coalescing) with the windows that a job gets by default.
CONFIG = bench_allreduce.CONFIG.replace("slots: 512", "slots: 1024", 1)
TENSORS = 100
MIXES = [(256, 256), (1024, 1024), (4096, 4096), (256, 4096)]
QUICK_MIXES = [(256, 4096)]
ROUNDS = 300
QUICK_ROUNDS = 60
RUN_DEADLINE_S = 300
WAYS = ["blocking", "asynchronous", "group", "coalesced", "one_tensor"]


def rank_commands(build, switch, ranks, mix, rounds):
    return [[str(build / "bench/ina-fused"), "--url", f"shm:{switch.socket}",
             "--rank", str(rank), "--ranks", str(ranks), "--tensors", str(TENSORS),
             "--least-bytes", str(mix[0]), "--most-bytes", str(mix[1]),
             "--rounds", str(rounds)] for rank in range(ranks)]


def run_ranks(commands):
    """What each rank reports."""
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for command in commands]
    try:
        reports = []
        for process in processes:
            output, errors = process.communicate(timeout=RUN_DEADLINE_S)
            if process.returncode != 0:
                raise BenchError(errors.strip())
            reports.append(json.loads(output))
        return reports
    except subprocess.TimeoutExpired as late:
        raise BenchError(f"no result within {RUN_DEADLINE_S} s") from late
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def measure(build, ranks, mix, rounds):
    with tempfile.TemporaryDirectory(prefix="ina-bench-") as folder:
        switch = bench_allreduce.Switch(build, pathlib.Path(folder), CONFIG,
                                        slot_bytes=bench_allreduce.SLOT_BYTES)
        try:
            switch.wait_until_ready()
            before = switch.absorbed_bytes()
            reports = run_ranks(rank_commands(build, switch, ranks, mix, rounds))
            absorbed = switch.absorbed_bytes() - before
        finally:
            switch.stop()
    # No way leaves work out: the switch has added all of it, for each way in each round.
    least = len(WAYS) * ranks * reports[0]["bytes"] * reports[0]["checked_rounds"]
    if absorbed < least:
        raise BenchError(f"the switch absorbed {absorbed} bytes, not {least}")
    rows = rows_of(reports, ranks, mix)
    if wrong := [row["way"] for row in rows if not row["correct"]]:
        raise BenchError("wrong sums: " + ", ".join(wrong))
    return rows


def rows_of(reports, ranks, mix):
    slowest = {way: [max(times) for times in zip(*(r["samples_us"][way] for r in reports))]
               for way in WAYS}
    rows = []
    for way in WAYS:
        samples = slowest[way]
        quartiles = statistics.quantiles(samples, n=4)
        rows.append({
            "way": way, "ranks": ranks, "tensors": TENSORS,
            "least_bytes": mix[0], "most_bytes": mix[1], "bytes": reports[0]["bytes"],
            "fragments": reports[0]["fragments"][way],
            "median_us": statistics.median(samples),
            "quartiles_us": [quartiles[0], quartiles[2]],
            "speedup_over_blocking": statistics.median(
                blocking / own for blocking, own in zip(slowest["blocking"], samples)),
            "correct": all(report["wrong_elements"][way] == 0 for report in reports),
            "samples_us": [round(sample, 2) for sample in samples],
        })
    return rows


def print_rows(rows):
    first = rows[0]
    print(f"\n{first['tensors']} tensors of {first['least_bytes']}..{first['most_bytes']} bytes, "
          f"{first['ranks']} ranks")
    print(f"  {'way':<14}{'fragments':>10}{'median us':>11}{'quartiles':>20}{'speedup':>9}")
    for row in rows:
        low, high = row["quartiles_us"]
        print(f"  {row['way']:<14}{row['fragments']:>10}{row['median_us']:>11.1f}"
              f"{f'{low:.1f}..{high:.1f}':>20}{row['speedup_over_blocking']:>8.1f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one mix, some seconds")
    parser.add_argument("--json", type=result_file)
    options = parser.parse_args()
    build = options.build.resolve()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    meta = bench_allreduce.metadata("fused")
    rows = []
    for mix in QUICK_MIXES if options.quick else MIXES:
        measured = measure(build, options.ranks, mix, rounds)
        print_rows(measured)
        rows += measured
    if options.json:
        options.json.write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench_fused: {error}")
