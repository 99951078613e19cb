#!/usr/bin/env python3
"""Plans of collectives, carried out by the engines on ns-3's links, beside the planner's model.

    bench_themis_sim.py --build FOLDER [--quick] [--json FILE]

One all-reduce on each of the six topologies of the Themis paper, with 16 ranks in place of 1024, by
the plans of the baseline, Themis and the search: `ina-sim plan`. Each group of a dimension has an
aggregating switch, which carries out all stages. Rates are a tenth of the file's, so that a frame
takes whole nanoseconds. The network is one of these:
  - plain: links have no latency. Here the planner's prediction must be within 5 %, or the benchmark
    fails. Of two rounds the second counts: the first begins with small windows;
  - marks: the same, and ports mark frames that find more than 200 kB queued;
  - latency: links of the file's latencies (ten times as long, as the rates are a tenth), no marks.
Plans for `switches` assume the switches that carry them out. Plans for `kinds` assume the kinds of
the file, but switches carry them out all the same.

--json writes {"meta", "rows": [{"name", "sizes", "plans", "scheduler", "network", "bytes",
"chunks", "predicted_by_kind_us", "predicted_us", "measured_us", "difference", "speedup", "predicted_speedup", "dimensions", ...}], "worst_difference",
"failures"}. "predicted_us" is the planner's time for switches.
"difference" is that of measured_us to predicted_us, "worst_difference" that of plans for switches on the network `plain`. "speedup" is
against the baseline's plan of the same row.
"""

import time

from benchlib import command_line, results, simulations

FOLDER = "conf/topologies"
# With 16 ranks, whose run takes seconds.
TOPOLOGIES = {
    "2d-sw-sw": (4, 4),
    "3d-sw-sw-sw-homo": (4, 2, 2),
    "3d-sw-sw-sw-hetero": (4, 2, 2),
    "3d-fc-ring-sw": (2, 4, 2),
    "4d-ring-sw-sw-sw": (2, 2, 2, 2),
    "4d-ring-fc-ring-sw": (2, 2, 2, 2),
}
SCHEDULERS = ("baseline", "themis", "search")
FEW_SCHEDULERS = SCHEDULERS[:2]
SIZE, QUICK_SIZE = 32 << 20, 16 << 20
CHUNKS, QUICK_CHUNKS = 32, 16
RATE_FACTOR = 0.1
PLAIN = {"latency-factor": 0}
NETWORKS = {
    "plain": PLAIN,
    "marks": PLAIN | {"ecn-bytes": 200_000, "queue-bytes": 1_000_000},
    "latency": {"latency-factor": 10},
}
TOLERANCE = 0.05
KEYS = ("ranks", "bytes", "chunks", "predicted_by_kind_us", "predicted_us", "measured_us",
        "agreed_us", "difference", "elements_checked", "dimensions", "queue_drops", "ecn_marks", "queries", "resent", "by_fallback",
        "bypassed")


def cases(quick):
    """Returns the settings that all schedulers of a row share."""
    for name, sizes in TOPOLOGIES.items():
        for network in ("plain",) if quick else NETWORKS:
            yield {"file": name, "sizes": sizes, "network": network, "plans": "switches"}
        if not quick:
            yield {"file": name, "sizes": sizes, "network": "plain", "plans": "kinds"}


def schedulers_of(case, quick):
    """Returns the schedulers. The search takes part where plans are compared with the model."""
    is_compared = case["network"] == "plain" and case["plans"] == "switches"
    return SCHEDULERS if is_compared and not quick else FEW_SCHEDULERS


def options_of(case, scheduler, quick):
    return {"topology": f"{FOLDER}/{case['file']}.yaml", "sizes": ",".join(map(str, case["sizes"])),
            "rate-factor": RATE_FACTOR, **NETWORKS[case["network"]],
            "for-switches": case["plans"] == "switches", "scheduler": scheduler, "rounds": 2,  # the windows have grown in the first
            "bytes": QUICK_SIZE if quick else SIZE, "chunks": QUICK_CHUNKS if quick else CHUNKS}


def row_of(case, scheduler, found, baseline):
    row = {"name": found["topology"], **case, "scheduler": scheduler,
           **{key: found[key] for key in KEYS}}
    row["speedup"] = baseline["measured_us"] / found["measured_us"]
    row["predicted_speedup"] = baseline["predicted_us"] / found["predicted_us"]
    return row


def judged(rows):
    return [row for row in rows if row["network"] == "plain" and row["plans"] == "switches"]


def failures_of(rows):
    return [f"{row['name']}, {row['scheduler']}: {row['difference']:+.1%} beside the planner's prediction"
            for row in judged(rows) if abs(row["difference"]) > TOLERANCE]


def show(rows):
    print(f"{'us':22}{'plans':>9}{'network':>9}{'scheduler':>11}{'by kind':>10}{'planner':>10}"
          f"{'measured':>10}{'planner':>9}"
          f"{'speed-up: planner, measured':>29}")
    for row in rows:
        print(f"{row['name']:22}{row['plans']:>9}{row['network']:>9}{row['scheduler']:>11}"
              f"{row['predicted_by_kind_us']:10.0f}{row['predicted_us']:10.0f}"
              f"{row['measured_us']:10.0f}{row['difference']:9.1%}"
              f"{row['predicted_speedup']:15.2f}{row['speedup']:14.2f}")


def main():
    args = simulations.parse_arguments(__doc__)
    started = time.monotonic()
    wanted = [(case, scheduler) for case in cases(args.quick)
              for scheduler in schedulers_of(case, args.quick)]
    found = simulations.run_all(args.build / "sim/ina-sim",
                                [options_of(*one, args.quick) for one in wanted], ("plan",))
    rows = []
    for (case, scheduler), own in zip(wanted, found):
        if scheduler == "baseline":
            baseline = own
        rows.append(row_of(case, scheduler, own, baseline))
    failures = failures_of(rows)
    show(rows)
    for failure in failures:
        print(f"MISSED: {failure}")
    results.write(args, {
        "meta": simulations.meta("themis-sim", started, found), "rows": rows,
        "worst_difference": max(abs(row["difference"]) for row in judged(rows)),
        "rate_factor": RATE_FACTOR, "failures": failures})
    return 1 if failures else 0


if __name__ == "__main__":
    command_line.run(main, "bench_themis_sim")
