#!/usr/bin/env python3
"""Many small all-reduces: one by one, all in flight, in a group, coalesced, and as one tensor.

    bench_fused.py --build FOLDER [--ranks N] [--quick] [--json FILE]

Starts an ina-switchd in a temporary folder and the ranks of ina-fused, real processes over the shm
port, once for each mix of sizes. In each round a rank runs all ways in turn, so that other load of
the machine affects all alike. Each way runs once untimed to warm the caches. The rank checks every
element of every sum. A round's time is that of its slowest rank. The result is the median over the
rounds, with the quartiles, and the median ratio of the blocking calls' time to each way's, round by
round.

--json writes {"meta", "rows": [a row for each mix and way]}.
"""

import statistics

from benchlib import command_line, metadata, results, stats
from benchlib.errors import BenchError
from benchlib.processes import Ranks, temporary_folder
from benchlib.switch import plain_switch

JOBS = 2  # with and without coalescing, each with the window that a job gets by default
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


def measure(build, ranks, mix, rounds):
    with temporary_folder() as folder, plain_switch(build, folder, JOBS) as switch:
        before = switch.absorbed_bytes()
        with Ranks(rank_commands(build, switch, ranks, mix, rounds)) as running:
            reports = running.reports(RUN_DEADLINE_S)
        absorbed = switch.absorbed_bytes() - before
    # The switch must have added all data, for each way in each round: no way may omit work.
    least = len(WAYS) * ranks * reports[0]["bytes"] * reports[0]["checked_rounds"]
    if absorbed < least:
        raise BenchError(f"the switch absorbed {absorbed} bytes, not {least}")
    rows = rows_of(reports, ranks, mix)
    if wrong := [row["way"] for row in rows if not row["correct"]]:
        raise BenchError("wrong sums: " + ", ".join(wrong))
    return rows


def rows_of(reports, ranks, mix):
    slowest = {way: stats.slowest([r["samples_us"][way] for r in reports]) for way in WAYS}
    rows = []
    for way in WAYS:
        samples = slowest[way]
        rows.append({
            "way": way, "ranks": ranks, "tensors": TENSORS,
            "least_bytes": mix[0], "most_bytes": mix[1], "bytes": reports[0]["bytes"],
            "fragments": reports[0]["fragments"][way],
            "median_us": statistics.median(samples),
            "quartiles_us": stats.quartiles(samples, "exclusive"),
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
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one mix, some seconds")
    options = command_line.parse(parser)
    build = options.build.resolve()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    meta = metadata.measured("fused")
    rows = []
    for mix in QUICK_MIXES if options.quick else MIXES:
        measured = measure(build, options.ranks, mix, rounds)
        print_rows(measured)
        rows += measured
    results.write(options, {"meta": meta, "rows": rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_fused")
