#!/usr/bin/env python3
"""Plans of collectives carried out by the product's own engines on ns-3's links, beside the planner's model.

    bench_themis_sim.py --build FOLDER [--quick] [--json FILE]

One all-reduce on each of the six topologies of the Themis paper, with 64 ranks in place of 1024, by the
baseline's plan, Themis's and the search's: `ina-sim plan`. Each group of a dimension has an aggregating
switch, as the product carries all stages out. Rates are a tenth of the file's, so that a frame takes whole
nanoseconds. Latencies are
  - none: model and measurement must be within 5 %, or the benchmark fails;
  - those of the file (ten times as long, as the rates are a tenth).
Plans are for `switches`: the planner reckons with what carries them out, an aggregating switch for each
group. Or for `kinds`: it reckons with those of the file, and switches carry its plans out all the same.

--json writes {"meta", "rows": [{"name", "sizes", "plans", "scheduler", "latency", "bytes", "chunks",
"predicted_by_kind_us", "predicted_us", "predicted_framed_us", "measured_us", "difference", "speedup",
"predicted_speedup", "dimensions", ...}], "worst_difference", "failures"}. Times are of the last of two
rounds. "difference" is that of measured_us to predicted_us, which reckons with switches at the rates of
their ports; "speedup" is against the baseline's plan of the same row.
"""

import time

from benchlib import command_line, results, simulations

FOLDER = "conf/topologies"
# With 64 ranks, as many as a job has.
TOPOLOGIES = {
    "2d-sw-sw": (8, 8),
    "3d-sw-sw-sw-homo": (4, 4, 4),
    "3d-sw-sw-sw-hetero": (4, 4, 4),
    "3d-fc-ring-sw": (4, 4, 4),
    "4d-ring-sw-sw-sw": (2, 2, 4, 4),
    "4d-ring-fc-ring-sw": (2, 4, 2, 4),
}
SCHEDULERS = ("baseline", "themis", "search")
QUICK_SCHEDULERS = SCHEDULERS[:2]
SIZE, QUICK_SIZE = 64 << 20, 16 << 20
CHUNKS, QUICK_CHUNKS = 64, 16
RATE_FACTOR = 0.1
LATENCY_FACTORS = {"none": 0, "file": 10}
TOLERANCE = 0.05
KEYS = ("ranks", "bytes", "chunks", "predicted_by_kind_us", "predicted_us", "predicted_framed_us",
        "measured_us", "agreed_us", "difference", "elements_checked", "dimensions", "queue_drops",
        "ecn_marks", "queries", "resent", "by_fallback", "bypassed")


def cases(quick):
    """What is the same for all schedulers of a row."""
    for name, sizes in TOPOLOGIES.items():
        for latency in LATENCY_FACTORS:
            for plans in ("switches", "kinds"):
                if quick and (latency, plans) != ("none", "switches"):
                    continue
                yield {"file": name, "sizes": sizes, "latency": latency, "plans": plans}


def options_of(case, scheduler, quick):
    return {"topology": f"{FOLDER}/{case['file']}.yaml", "sizes": ",".join(map(str, case["sizes"])),
            "rate-factor": RATE_FACTOR, "latency-factor": LATENCY_FACTORS[case["latency"]],
            "for-switches": case["plans"] == "switches", "scheduler": scheduler,
            "bytes": QUICK_SIZE if quick else SIZE, "chunks": QUICK_CHUNKS if quick else CHUNKS}


def row_of(case, scheduler, found, baseline):
    row = {"name": found["topology"], **case, "scheduler": scheduler,
           **{key: found[key] for key in KEYS}}
    row["speedup"] = baseline["measured_us"] / found["measured_us"]
    row["predicted_speedup"] = baseline["predicted_us"] / found["predicted_us"]
    return row


def failures_of(rows):
    return [f"{row['name']}, plans for {row['plans']}, {row['scheduler']}: {row['difference']:+.1%} "
            "where latency is negligible"
            for row in rows if row["latency"] == "none" and abs(row["difference"]) > TOLERANCE]


def show(rows):
    print(f"{'us':22}{'plans':>9}{'latency':>9}{'scheduler':>11}{'by kind':>10}{'switches':>10}"
          f"{'framed':>10}{'measured':>10}{'differs':>9}{'speed-up: model, measured':>27}")
    for row in rows:
        print(f"{row['name']:22}{row['plans']:>9}{row['latency']:>9}{row['scheduler']:>11}"
              f"{row['predicted_by_kind_us']:10.0f}{row['predicted_us']:10.0f}"
              f"{row['predicted_framed_us']:10.0f}{row['measured_us']:10.0f}{row['difference']:9.1%}"
              f"{row['predicted_speedup']:14.2f}{row['speedup']:13.2f}")


def main():
    args = simulations.parse_arguments(__doc__)
    started = time.monotonic()
    schedulers = QUICK_SCHEDULERS if args.quick else SCHEDULERS
    wanted = [(case, scheduler) for case in cases(args.quick) for scheduler in schedulers]
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
    results.write(args.json, {
        "meta": simulations.meta("themis-sim", started, found), "rows": rows,
        "worst_difference": max(abs(row["difference"]) for row in rows if row["latency"] == "none"),
        "rate_factor": RATE_FACTOR, "failures": failures})
    return 1 if failures else 0


if __name__ == "__main__":
    command_line.run(main, "bench_themis_sim")
