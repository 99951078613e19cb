#!/usr/bin/env python3
"""Themis's plans carried out by 16 ranks on this machine, beside the baseline's and the search's.

    bench_themis_live.py --build FOLDER [--quick] [--rounds N] [--json FILE]

ina-hierarchical, with all ranks of a job in one process, sums one vector over an ina-switchd of its
own, by each scheduler in turn. The network is EMULATED: a token bucket for each rank, dimension and
direction limits the payload to a number of MB/s, so that ranks wait for the bucket and not for the
processor. A round runs each scheduler once; over the rounds each scheduler has each place in the
order. Every element is checked in every round.

--json writes {"meta", "rows": [{"mesh", "bytes", "baseline_ms", "themis_ms", "search_ms",
"predicted_speedup", "measured_speedup", ...}]}. Times are medians over the rounds, of the slowest
rank. Speed-ups are of Themis over the baseline: predicted by the planner's simulation, and measured
as the median over the rounds of baseline / Themis in the same round, with its 95 % interval.
`search_..` is the same for the search. `rates_mb_s`: the emulated rates of the dimensions;
`wrong_elements` must be 0.
"""

import json
import statistics

from benchlib import command_line, metadata, processes, progress, results, stats
from benchlib.switch import SHM_PORT, SLOT_BYTES, Switch

RUN_DEADLINE_S = 900
ROUNDS, QUICK_ROUNDS = 15, 3
# Sizes of the dimensions, their emulated rates in MB/s, and bytes.
ROWS = (((4, 4), (4, 4), 1 << 20), ((4, 4), (4, 2), 1 << 20), ((4, 4), (4, 4), 1 << 22),
        ((2, 2, 4), (4, 4, 4), 1 << 20), ((2, 2, 4), (4, 3, 2), 1 << 20),
        ((2, 2, 4), (4, 4, 4), 1 << 22))
QUICK_ROWS = (ROWS[0], ROWS[3])
CHUNKS = 16
# The time of a round trip to the switch with 16 ranks on this machine, which the planner uses.
STEP_LATENCY_US = 500
# Groups share the slots of a job.
CONFIG = """\
aggregator:
  slot_bytes: {slot_bytes}
  slots: {slots}
  policy: esa
control:
  socket: "{socket}"
ports:
{ports}log:
  level: warning
"""
SLOTS = 2048


def run(build, sizes, rates, size_bytes, rounds):
    """Returns the combined report of all ranks."""
    def listed(values):
        return ",".join(map(str, values))

    progress.show(f"{'x'.join(map(str, sizes))}, {size_bytes} bytes")
    with processes.temporary_folder() as folder, \
            Switch(build, folder, CONFIG, slot_bytes=SLOT_BYTES, slots=SLOTS, ports=SHM_PORT) as switch:
        found = json.loads(processes.run(
            [str(build / "bench/ina-hierarchical"), "--url", f"shm:{switch.socket}", "--sizes",
             listed(sizes), "--rates", listed(rates), "--bytes", str(size_bytes), "--chunks", str(CHUNKS),
             "--rounds", str(rounds), "--step-latency-us", str(STEP_LATENCY_US)], RUN_DEADLINE_S))
    progress.clear()
    return found


def row_of(sizes, rates, found):
    by_name = found["schedulers"]
    samples = {name: own["samples_ms"] for name, own in by_name.items()}
    row = {"mesh": "x".join(map(str, sizes)), "bytes": found["bytes"], "rates_mb_s": list(rates),
           "emulated": True, "wrong_elements": found["wrong_elements"]}
    for name, times in samples.items():
        row[f"{name}_ms"] = statistics.median(times)
        row[f"{name}_quartiles_ms"] = stats.quartiles(times)
        row[f"{name}_predicted_ms"] = by_name[name]["predicted_ms"]
    for name, prefix in (("themis", ""), ("search", "search_")):
        ratios = [base / own for base, own in zip(samples["baseline"], samples[name])]
        row[f"{prefix}predicted_speedup"] = (by_name["baseline"]["predicted_ms"]
                                             / by_name[name]["predicted_ms"])
        row[f"{prefix}measured_speedup"] = statistics.median(ratios)
        row[f"{prefix}measured_interval"] = stats.median_interval(ratios)
    return row


def print_rows(rows):
    print("all-reduce of 16 ranks over emulated dimensions, ms; speed-ups over the baseline\n")
    print("mesh     MB/s         bytes  baseline    themis    search    themis predicted, measured"
          "          search predicted, measured")
    for row in rows:
        rates = ",".join(map(str, row["rates_mb_s"]))
        print(f"{row['mesh']:8} {rates:8}{row['bytes']:10}{row['baseline_ms']:10.1f}"
              f"{row['themis_ms']:10.1f}{row['search_ms']:10.1f}", end="")
        for prefix in ("", "search_"):
            low, high = row[f"{prefix}measured_interval"]
            print(f"{row[f'{prefix}predicted_speedup']:10.2f}"
                  f"{row[f'{prefix}measured_speedup']:8.2f} [{low:.2f}, {high:.2f}]", end="")
        print()


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--rounds", type=int, help="paired rounds of each row")
    options = command_line.parse(parser)

    meta = metadata.measured("themis-live")
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    rows = [row_of(sizes, rates, run(options.build, sizes, rates, size_bytes, rounds))
            for sizes, rates, size_bytes in (QUICK_ROWS if options.quick else ROWS)]
    print_rows(rows)
    results.write(options, {"meta": {**meta, "rounds": rounds, "chunks": CHUNKS,
                                          "step_latency_us": STEP_LATENCY_US}, "rows": rows})
    return 1 if any(row["wrong_elements"] for row in rows) else 0


if __name__ == "__main__":
    command_line.run(main, "bench_themis_live")
