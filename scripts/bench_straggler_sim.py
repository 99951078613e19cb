#!/usr/bin/env python3
"""Slow workers in a simulated rack: how long an iteration takes without straggler help and with it.

    bench_straggler_sim.py --build FOLDER [--quick] [--json FILE]

Eight workers at 100 Gb/s, one job, policy esa. Workloads: `plain`, all-reduces of 256 MB and nothing
else; `vgg16`, training with computation, a quarter of the model's size. What is slow is
  - an uplink: one worker's link to the switch, the gradients being ready to go;
  - a producer: a worker makes its contributions slowly, and goes on making them while nothing can be sent
    (staging as large as the gradient);
  - a coupled producer: the same, but it stops as soon as four fragments wait to be sent.
One after the other is slow for a period (rotating: the headline is that of uplinks, a quarter of the
rate for 1 ms each), each in its own share of the work (shares), always the same one (permanent), or
all stop now and then (random); `link` is a link that is slow in both directions.

Baselines park nothing: `off` has a window of 2 or 4 MiB, `run-ahead` one of 8 or 32 MiB, each at the
better of its windows, in an array of as many slots as the ways of help have. Reductions and gains are against the
better of the two. `switch home` is an ablation: run-ahead with the fallback's home in the switch, nothing
parked. With help the window is 32 MiB, and what a straggler keeps waiting is parked:
`leader`, `fallback` (at the workers), `spill` (in the switch).

`second_job`: job A with the headline's straggler beside job B, which has none, in one array.

--json writes {"meta", "workload", "points": [...], "patterns": [...], "second_job": [...], "headline",
"best_iteration_reduction", "best_throughput_gain", "worst_against_off", "no_straggler_overhead", ...}.
"""

import statistics
import time

import simulations

BASE = {"policy": "esa", "slots": 256, "ways": 4, "workers": 8, "rate-gbps": 100, "delay-us": 1, "rto-ms": 5,
        "sample-us": 20, "home": "workers", "no-aggregator-window": False}
# No host has time slices that a worker could wait for: a few round trips are patience enough.
PARKING = {"window": 4096, "in-switch": 64, "patience-us": 20}
BASELINES = {
    "off": [{"window": 512}, {"window": 256}, {"window": 512, "no-aggregator-window": True}],
    "run-ahead": [{"window": 4096}, {"window": 1024},
                  {"window": 1024, "no-aggregator-window": True}],
}
ABLATIONS = {
    # A2TP's window would hold it back: it shrinks with all that is put together outside the array.
    "switch home": [{"window": 4096, "home": "spill", "no-aggregator-window": True}],
}
HELP = {
    "leader": [PARKING | {"help-straggler": "leader"}],
    "fallback": [PARKING | {"help-straggler": "fallback"}],
    "spill": [PARKING | {"help-straggler": "fallback", "home": "spill"}],
}
ALL = BASELINES | ABLATIONS | HELP
MAIN = BASELINES | HELP

WORKLOADS = {
    "plain": {"plain-mb": 256, "iterations": 1, "jitter": 0},
    "vgg16": {"models": "vgg16", "scale": 4, "iterations": 2, "jitter": 0.02},
}
QUICK_WORKLOADS = {
    "plain": WORKLOADS["plain"],
    "vgg16": {"models": "vgg16", "scale": 16, "iterations": 3, "jitter": 0.02},
}
SLOW = {
    "uplink": {"slow": "uplink"},
    "producer": {"slow": "producer", "staging": 0},
    "coupled-producer": {"slow": "producer", "staging": 4},
}
# What `bench pipeline` measured of one lane (docs/figures/pipeline.json: esa, fan-in 8, 42.3 ns a packet of
# 1 KiB and 176.9 ns of 8 KiB): 23 ns and .0188 ns a byte. A host has one such core, the switch eight.
CHARGED = {"host-packet-ns": 23, "host-byte-ns": 0.0188, "switch-packet-ns": 2.9,
           "switch-byte-ns": 0.00235}
SECOND_JOB_SLOTS = (128, 256, 512)


def pattern(slow, kind, factor=4, period_us=1000, workload="plain", **more):
    return {"workload": workload, "slow": slow, "pattern": kind, "factor": factor,
            "period_us": period_us, "slots": BASE["slots"], "policy": BASE["policy"]} | more


HEADLINE = pattern("uplink", "rotating")
QUICK = [pattern("uplink", "none"), HEADLINE, pattern("uplink", "random"),
         pattern("uplink", "none", workload="vgg16"), HEADLINE | {"workload": "vgg16"}]


def patterns(quick):
    if quick:
        return QUICK
    found = [pattern("uplink", "none")]
    for slow in ("uplink", "coupled-producer"):
        found += [pattern(slow, "rotating", factor=factor) for factor in (4, 2, 8)]
        found += [pattern(slow, "rotating", period_us=us) for us in (100, 250, 4000, 16000)]
        found += [pattern(slow, kind) for kind in ("random", "permanent")]
    found += [pattern("coupled-producer", "shares"), pattern("uplink", "link")]
    found += [pattern("producer", kind) for kind in ("rotating", "random", "permanent")]
    found += [pattern("uplink", "none", workload="vgg16")]
    found += [pattern(slow, "rotating", workload="vgg16") for slow in SLOW]
    found += [pattern("uplink", "rotating", workload="vgg16", factor=8),
              pattern("uplink", "random", workload="vgg16"),
              pattern("uplink", "link", workload="vgg16")]
    found += [HEADLINE | {"slots": slots} for slots in (64, 1024, 4096)]
    return found + [HEADLINE | {"policy": "fcfs"}]


def straggler(case):
    """What ina-sim is told of it."""
    return SLOW[case["slow"]] | {"straggler": case["pattern"], "factor": case["factor"],
                                 "period-us": case["period_us"], "slots": case["slots"],
                                 "policy": case["policy"]}


def title(case):
    if case["pattern"] == "none":
        return "none"
    if case["pattern"] == "link":
        return f"link, {case['factor']}x"
    text = f"{case['slow']}, {case['pattern']}"
    if case["pattern"] != "random":
        text += f" {case['factor']}x"
    return text + (f", {case['period_us'] / 1000:g} ms"
                   if case["pattern"] in ("rotating", "random") else "")


class Runs:
    """Collects runs, and then has their results."""

    def __init__(self):
        self.options = []

    def add(self, options, seeds=(1,)):
        at = len(self.options)
        self.options += [options | {"seed": seed} for seed in seeds]
        return slice(at, len(self.options))

    def run(self, program):
        self.results = simulations.run_all(program, self.options)


def point(case, help_, options, runs):
    iteration_s = statistics.mean(run["avg_iteration_s"] for run in runs)
    return case | {
        "help": help_, "home": options["home"], "window": options["window"],
        "aggregator_window": not options["no-aggregator-window"],
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


def compare(case, points):
    """The ways of help beside the better of the baselines, each at its best window."""
    best = {}
    for p in points:
        if p["help"] not in best or p["iteration_s"] < best[p["help"]]["iteration_s"]:
            best[p["help"]] = p
    baseline = min(best[name]["iteration_s"] for name in BASELINES)
    took = {name: p["iteration_s"] for name, p in best.items()}
    return case | {
        "name": title(case),
        "off_s": baseline, "baseline_s": baseline,
        "best_window": {name: best[name]["window"] for name in BASELINES},
        "iteration_s": took,
        "reduction": {name: 1 - s / baseline for name, s in took.items()},
        "gain": {name: baseline / s for name, s in took.items()},
        "against_off": {name: took[name] / took["off"] - 1 for name in HELP},
    }


def add_patterns(runs, quick):
    """(case, help, options, where their results will be)"""
    workloads = QUICK_WORKLOADS if quick else WORKLOADS
    found = []
    for case in patterns(quick):
        for name, variants in (MAIN if quick else ALL).items():
            for variant in variants:
                options = BASE | workloads[case["workload"]] | straggler(case) | variant
                # Where chance decides most.
                seeds = range(1, 4) if case["pattern"] == "random" else (1,)
                found.append((case, name, options, runs.add(options, seeds)))
    return found


def add_second_job(runs, quick):
    """(what it is, results); `help` "alone": B with nobody beside it."""
    workload = (QUICK_WORKLOADS if quick else WORKLOADS)["plain"]
    found = []
    for slots in (256,) if quick else SECOND_JOB_SLOTS:
        for policy in ("esa",) if quick else ("esa", "fcfs"):
            common = BASE | workload | straggler(HEADLINE | {"slots": slots, "policy": policy})
            what = {"slots": slots, "policy": policy}
            alone = common | BASELINES["off"][0] | {"straggler": "none"}
            found.append((what | {"help": "alone"}, runs.add(alone)))
            for name, variants in MAIN.items():
                options = common | variants[0] | {"jobs": 2, "arrival-ms": 0, "straggler-jobs": 1}
                found.append((what | {"help": name}, runs.add(options)))
    return found


def add_charged(runs, quick):
    """The headline once more, where hosts and switch take time for each frame."""
    workload = (QUICK_WORKLOADS if quick else WORKLOADS)["plain"]
    return [(name, variant, runs.add(BASE | workload | straggler(HEADLINE) | variant | CHARGED))
            for name, variants in MAIN.items() for variant in variants]


def second_job(what, run):
    jobs = [job["jct_s"] for job in run["jobs"]]
    return what | {"straggling_s": jobs[0] if len(jobs) == 2 else None, "other_s": jobs[-1],
                   "slots_used_mean": run["slots_used_mean"], "queue_drops": run["queue_drops"]}


def show(rows, second):
    ways = list(rows[0]["iteration_s"])
    print(f"{'iteration in ms':42} {'slots':>5} " + " ".join(f"{way:>11}" for way in ways) +
          "   saved: " + ", ".join(HELP))
    for row in rows:
        name = f"{row['workload']} {row['policy']}: {row['name']}"
        print(f"{name:42} {row['slots']:>5} " +
              " ".join(f"{row['iteration_s'][way] * 1e3:>11.2f}" for way in ways) +
              "   " + " ".join(f"{row['reduction'][way]:>7.1%}" for way in HELP))
    print("\njob A with a straggler beside job B, ms")
    for row in second:
        straggling = row["straggling_s"]
        print(f"{row['policy']:5} {row['slots']:>4} slots {row['help']:10} "
              f"A {straggling * 1e3 if straggling else float('nan'):7.2f} "
              f"B {row['other_s'] * 1e3:7.2f}, slots used {row['slots_used_mean']:.0f}")


def main():
    args = simulations.parse_arguments(__doc__.splitlines()[0])
    started = time.monotonic()
    runs = Runs()
    cells = add_patterns(runs, args.quick)
    beside = add_second_job(runs, args.quick)
    charged = add_charged(runs, args.quick)
    runs.run(f"{args.build}/sim/ina-sim")

    points = [point(case, name, options, runs.results[at]) for case, name, options, at in cells]
    rows = [compare(case, [p for p, cell in zip(points, cells) if cell[0] is case])
            for case in dict((id(cell[0]), cell[0]) for cell in cells).values()]
    second = [second_job(what, runs.results[at][0]) for what, at in beside]
    paid = compare(HEADLINE, [point(HEADLINE, name, BASE | variant, runs.results[at])
                              for name, variant, at in charged])
    show(rows, second)

    main_row = next(row for row in rows if all(row[k] == v for k, v in HEADLINE.items()))
    slow = [row for row in rows if row["pattern"] != "none"]
    steady = [row for row in rows if row["pattern"] == "none"]
    worst = {way: max(row["against_off"][way] for row in rows) for way in HELP}
    overhead = {way: max(-row["reduction"][way] for row in steady) for way in HELP}
    result = {
        "meta": simulations.meta("straggler-sim", started, runs.results),
        "workload": BASE | {"workloads": QUICK_WORKLOADS if args.quick else WORKLOADS,
                            "parking": PARKING, "baselines": BASELINES},
        "points": points,
        "patterns": rows,
        "comparison": rows,
        "second_job": second,
        "headline": {key: main_row[key] for key in
                     ("name", "slots", "policy", "baseline_s", "iteration_s", "reduction", "gain")},
        "headline_charged": {"charges": CHARGED} | {
            key: paid[key] for key in ("baseline_s", "iteration_s", "reduction", "gain")},
        "best_iteration_reduction": max(row["reduction"][way] for row in slow for way in HELP),
        "best_throughput_gain": max(row["gain"][way] for row in slow for way in HELP
                                    if row["workload"] != "plain"),
        "rotating_4x": {row["workload"]: row["reduction"] for row in rows
                        if all(row[k] == v for k, v in HEADLINE.items() if k != "workload")},
        "worst_against_off": worst,
        "no_straggler_overhead": max(overhead.values()),
        "no_straggler_overhead_by_help": overhead,
    }
    print("\nheadline (" + main_row["name"] + "): " + ", ".join(
        f"{way} {main_row['reduction'][way]:.1%} ({main_row['gain'][way]:.2f}x)" for way in HELP))
    print("with processors charged: " + ", ".join(
        f"{way} {paid['reduction'][way]:.1%} ({paid['gain'][way]:.2f}x)" for way in HELP))
    print("worst against off: " + ", ".join(f"{way} {worst[way]:+.1%}" for way in HELP) +
          f"; without stragglers at most {result['no_straggler_overhead']:+.1%}; "
          f"{result['meta']['wall_s']} s")
    simulations.write(args.json, result)
    return 0


if __name__ == "__main__":
    simulations.exit_with(main, "bench_straggler_sim")
