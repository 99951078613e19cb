#!/usr/bin/env python3
"""Slow workers in a simulated rack: how long an iteration takes without straggler help and with it.

    bench_straggler_sim.py --build FOLDER [--quick] [--json FILE]

Eight workers at 100 Gb/s, one job, policy esa. Workloads: `plain`, all-reduces of 256 MB and nothing
else; `vgg16`, training with computation, a quarter of the model's size. A straggler computes and sends
slower than others by a factor: one worker at a time in turn (rotating), in its own share of the work
(shares), always the same one (permanent); or all stop now and then (random); or the link of one is
slow (link).

Help is off with the window of the defaults (4 MiB ahead) and the fallback at the workers; `run-ahead`
and `spill home` are ablations: only the larger window, only the fallback in the switch, or both,
nothing parked. With help the window is 32 MiB, 64 fragments may be in the switch, and what a
straggler keeps waiting is parked: `leader`, `fallback` (at the workers), `spill` (in the switch).

--json writes {"meta", "workload", "points": [...], "best_iteration_reduction",
"best_throughput_gain", "no_straggler_overhead", ...}. Reductions and gains are against the better of
`off` and `run-ahead` at the same point; the overhead is the largest of all ways of help.
"""

import statistics
import time

import simulations

BASE = {"policy": "esa", "slots": 256, "workers": 8, "rate-gbps": 100, "delay-us": 1, "rto-ms": 5,
        "sample-us": 20, "home": "workers", "window": 512}
AHEAD = {"window": 4096}
# No host has time slices that a worker could wait for: a few round trips are patience enough.
PARKING = AHEAD | {"in-switch": 64, "patience-us": 20}
HELP = {
    "off": {},
    "run-ahead": AHEAD,
    "spill home": {"home": "spill"},
    "spill home, run-ahead": AHEAD | {"home": "spill"},
    "leader": PARKING | {"help-straggler": "leader"},
    "fallback": PARKING | {"help-straggler": "fallback"},
    "spill": PARKING | {"help-straggler": "fallback", "home": "spill"},
}
MODES = ("leader", "fallback", "spill")
MAIN = ("off", "leader", "fallback", "spill")

WORKLOADS = {
    "plain": {"plain-mb": 256, "iterations": 1, "jitter": 0},
    "vgg16": {"models": "vgg16", "scale": 4, "iterations": 2, "jitter": 0.02},
}
QUICK_WORKLOADS = {
    "plain": {"plain-mb": 64, "iterations": 1, "jitter": 0},
    "vgg16": {"models": "vgg16", "scale": 16, "iterations": 3, "jitter": 0.02},
}
PERIOD_US = 1000
# What varies when nothing else does.
DEFAULTS = {"straggler": "none", "factor": 4, "period-us": PERIOD_US}


def cases(quick):
    """(workload, what it varies, kinds of help)"""
    rotating = DEFAULTS | {"straggler": "rotating"}
    if quick:
        short = rotating | {"period-us": 500}
        return [(workload, varied, MAIN) for workload in QUICK_WORKLOADS
                for varied in (DEFAULTS, short)]
    patterns = [DEFAULTS] + [rotating | {"factor": factor} for factor in (2, 4, 8)]
    patterns += [DEFAULTS | {"straggler": pattern}
                 for pattern in ("shares", "permanent", "random", "link")]
    found = [(workload, varied, HELP) for workload in WORKLOADS for varied in patterns]
    found += [("plain", rotating | {"period-us": period}, HELP)
              for period in (100, 250, 4000, 16000)]
    found += [("plain", rotating | {"slots": slots}, HELP) for slots in (64, 1024, 4096)]
    found += [("plain", rotating | {"policy": "fcfs"}, HELP)]
    # Static pools know no parking; the more slots, the further their leaders run ahead.
    found += [("plain", rotating | {"policy": "static", "slots": slots, "window": 4096}, ("off",))
              for slots in (256, 1024, 4096)]
    return found


def point(workload, kind, options, runs):
    iteration_s = statistics.mean(run["avg_iteration_s"] for run in runs)
    return {
        "workload": workload, "policy": options["policy"], "slots": options["slots"],
        "pattern": options["straggler"], "factor": options["factor"],
        "period_us": options["period-us"], "help": kind, "home": options["home"],
        "window": options["window"],
        "iteration_s": iteration_s, "iterations_per_s": 1 / iteration_s,
        "iteration_s_by_seed": [run["avg_iteration_s"] for run in runs],
        "slots_used_mean": statistics.mean(run["slots_used_mean"] for run in runs),
        "slots_used_peak": max(run["slots_used_peak"] for run in runs),
        "parked": sum(run["parked"] for run in runs) / sum(run["fragments"] for run in runs),
        "by_parker": sum(run["by_parker"] for run in runs),
        "fallback_bytes": sum(run["fallback_bytes"] for run in runs),
        "queue_drops": sum(run["queue_drops"] for run in runs),
        "queries": sum(run["queries"] for run in runs),
    }


def compare(points):
    """Each case's kinds of help beside its best time without: reduction and gain."""
    groups = {}
    for p in points:
        key = (p["workload"], p["policy"], p["slots"], p["pattern"], p["factor"], p["period_us"])
        groups.setdefault(key, {})[p["help"]] = p["iteration_s"]
    rows = []
    for key, times in groups.items():
        if "off" not in times or not any(mode in times for mode in MODES):
            continue
        off = min(times[kind] for kind in ("off", "run-ahead") if kind in times)
        rows.append(dict(zip(("workload", "policy", "slots", "pattern", "factor", "period_us"), key))
                    | {"off_s": off, "reduction": {k: 1 - t / off for k, t in times.items()},
                       "gain": {k: off / t for k, t in times.items()}})
    return rows


def main():
    args = simulations.parse_arguments(__doc__.splitlines()[0])
    started = time.monotonic()
    workloads = QUICK_WORKLOADS if args.quick else WORKLOADS

    cells = [(workload, kind, BASE | workloads[workload] | varied | HELP[kind])
             for workload, varied, kinds in cases(args.quick) for kind in kinds]
    # Where chance decides most.
    seeds = [range(1, 4) if options["straggler"] == "random" and not args.quick else range(1, 2)
             for _, _, options in cells]
    runs = [cell[2] | {"seed": seed} for cell, of in zip(cells, seeds) for seed in of]
    results = simulations.run_all(f"{args.build}/sim/ina-sim", runs)
    points, at = [], 0
    for (workload, kind, options), of in zip(cells, seeds):
        points.append(point(workload, kind, options, results[at:at + len(of)]))
        at += len(of)

    print(f"{'workload':8} {'policy':6} {'slots':>5} {'pattern':9} {'factor':>6} {'period us':>9} "
          f"{'help':22} {'iteration ms':>12} {'slots used':>10} {'peak':>5} {'parked':>7}")
    for p in points:
        print(f"{p['workload']:8} {p['policy']:6} {p['slots']:>5} {p['pattern']:9} "
              f"{p['factor']:>6} {p['period_us']:>9} {p['help']:22} {p['iteration_s'] * 1e3:>12.2f} "
              f"{p['slots_used_mean']:>10.1f} {p['slots_used_peak']:>5} {p['parked']:>7.1%}")
    rows = compare(points)
    print("\niteration time saved against the better of off and run-ahead")
    for row in rows:
        print(f"{row['workload']:8} {row['policy']:6} {row['slots']:>5} {row['pattern']:9} "
              f"{row['factor']:>3} x {row['period_us']:>6} us " +
              " ".join(f"{mode} {row['reduction'][mode]:>7.1%}" for mode in MODES))
    slow = [row for row in rows if row["pattern"] != "none"]
    result = {
        "meta": simulations.meta("straggler-sim", started, results),
        "workload": BASE | {"workloads": workloads, "parking": PARKING},
        "points": points,
        "comparison": rows,
        "best_iteration_reduction": max(row["reduction"][m] for row in slow for m in MODES),
        "best_throughput_gain": max((row["gain"][m] for row in slow for m in MODES
                                     if row["workload"] != "plain"), default=None),
        "rotating_4x": {row["workload"]: row["reduction"] for row in rows
                        if row["pattern"] == "rotating" and row["factor"] == 4
                        and row["policy"] == "esa" and row["slots"] == BASE["slots"]
                        and row["period_us"] in (PERIOD_US, 500)},
        "no_straggler_overhead": max(-row["reduction"][m] for row in rows
                                     if row["pattern"] == "none" for m in MODES),
        "no_straggler_overhead_by_help": {
            m: max(-row["reduction"][m] for row in rows if row["pattern"] == "none")
            for m in MODES},
    }
    print(f"\nbest: iteration time down {result['best_iteration_reduction']:.1%}, training "
          f"{result['best_throughput_gain']:.2f} times as fast; without stragglers at most "
          f"{result['no_straggler_overhead']:+.1%}; {result['meta']['wall_s']} s")
    simulations.write(args.json, result)
    return 0


if __name__ == "__main__":
    simulations.exit_with(main, "bench_straggler_sim")
