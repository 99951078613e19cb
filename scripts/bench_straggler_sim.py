#!/usr/bin/env python3
"""The time of an iteration with slow workers in a simulated rack, with and without straggler help.

    bench_straggler_sim.py --build FOLDER [--quick | --points-seed N [--points N]] [--json FILE]

Eight workers at 100 Gb/s, one job, policy esa. Workloads: `plain`, all-reduces of 256 MB and
nothing else; `vgg16`, training with computation, a quarter of the model's size. The slow part is
  - an uplink: one worker's link to the switch, with gradients ready to go;
  - a producer: a worker makes its contributions slowly, and goes on while none can be sent (staging
    as large as the gradient);
  - a coupled producer: the same, but it stops as soon as four fragments wait to be sent.
The slow part is one worker after the other, for a period each (rotating; the headline is that of
uplinks, a quarter of the rate for 1 ms each); one after the other, each in its own share of the
work (shares); always the same one (permanent); or all stop now and then (random). `link` is a link
that is slow in both directions.

Baselines park nothing: `off` has a window of 2 or 4 MiB, `run-ahead` one of 8, 16 or 32 MiB, with
and without A2TP's window, in an array of as many slots as the ways of help have. One seed picks the
best window of each baseline for each pattern; other seeds judge the windows. A seed decides the beginning of the rotation, the
stops, and computing times. Reductions and gains are against the better of the two baselines.
`switch home` is an ablation: run-ahead with the fallback's home in the switch, nothing parked. With
help the window is 32 MiB, and fragments that wait for a straggler are parked: `leader`, `fallback`
(at the workers), `spill` (in the switch).

--points-seed N draws other points from wide ranges: 2 to 32 workers, all-reduces of 32 to 256 MB, 64 to
4,096 slots, every pattern, one worker farther away, losses of 0.1 %. At each one `harm` is the time with
help divided by that without, at the daemon's default windows and the same home, mean of seeds.

`second_job`: job A with the headline's straggler beside job B, which has none, in one array.

--json writes {"meta", "workload", "points": [...], "patterns": [...], "second_job": [...], "headline",
"headline_charged", "best_iteration_reduction", "best_throughput_gain", "worst_against_off",
"no_straggler_overhead", ...}. "best_iteration_reduction" is the most of all patterns,
"best_throughput_gain" that of trained models (`vgg16`) only; with --quick, which trains none, of all.
"""

import random
import statistics
import time

from benchlib import command_line, results, simulations
from benchlib.stats import mean_interval

BASE = {"policy": "esa", "slots": 256, "ways": 4, "workers": 8, "rate-gbps": 100, "delay-us": 1, "rto-ms": 5,
        "sample-us": 20, "home": "workers", "no-aggregator-window": False}
# No simulated host has time slices for which a worker might wait: a few round trips of patience are
# enough.
PARKING = {"window": 4096, "in-switch": 256, "patience-us": 20}
BASELINES = {
    "off": [{"window": 512}, {"window": 256}, {"window": 512, "no-aggregator-window": True}],
    "run-ahead": [{"window": window, "no-aggregator-window": plain}
                  for window in (1024, 2048, 4096) for plain in (False, True)],
}
ABLATIONS = {
    # A2TP's window would limit it: that window shrinks with every sum made outside of the array.
    "switch home": {"window": 4096, "home": "spill", "no-aggregator-window": True},
}
HELP = {
    "leader": PARKING | {"help-straggler": "leader"},
    "fallback": PARKING | {"help-straggler": "fallback"},
    "spill": PARKING | {"help-straggler": "fallback", "home": "spill"},
}
SEARCH_SEED = 0
SEEDS = (1, 2, 3)
RANDOM_SEEDS = range(1, 13)  # where workers stop at random, seeds differ more

# Of points that a seed draws.
DRAWN_POINTS = 24
DRAWN_SEEDS = (1, 2, 3, 4)
HARM = 1.02

WORKLOADS = {
    "plain": {"plain-mb": 256, "iterations": 1, "jitter": 0},
    "vgg16": {"models": "vgg16", "scale": 4, "iterations": 1, "jitter": 0.02},
}
QUICK_WORKLOADS = {"plain": WORKLOADS["plain"] | {"plain-mb": 128}}
SLOW = {
    "uplink": {"slow": "uplink"},
    "producer": {"slow": "producer", "staging": 0},
    "coupled-producer": {"slow": "producer", "staging": 4},
}
SWITCH_CORES = 8


def charge(small_ns, large_ns):
    """Returns the options for hosts of one core, and a switch of several, that take this time for
    a packet of 1 and of 8 KiB."""
    byte_ns = (large_ns - small_ns) / 7168
    packet_ns = small_ns - 1024 * byte_ns
    return {"host-packet-ns": round(packet_ns, 1), "host-byte-ns": round(byte_ns, 4),
            "switch-packet-ns": round(packet_ns / SWITCH_CORES, 2),
            "switch-byte-ns": round(byte_ns / SWITCH_CORES, 5)}


# As `bench pipeline` measured for one lane (esa, fan-in 8, groups of 1, one way): with AVX-512 on a
# Zen 5, in the history of docs/figures/pipeline.json at commit 82216443, and with AVX2 on a Zen 3,
# 5ed2a75; with AVX-512 on a Xeon with two processors, in the file of commit 4ae067b4.
CHARGES = {"AVX-512, Zen 5": charge(42.3, 176.9), "AVX2, Zen 3": charge(123.4, 360.7),
           "AVX-512, Xeon": charge(66.9, 361.8)}
SECOND_JOB_SLOTS = (128, 256, 512)


def pattern(slow, kind, factor=4, period_us=1000, workload="plain", **more):
    return {"workload": workload, "slow": slow, "pattern": kind, "factor": factor,
            "period_us": period_us, "slots": BASE["slots"], "policy": BASE["policy"]} | more


HEADLINE = pattern("uplink", "rotating")
QUICK = [pattern("uplink", "none"), HEADLINE, pattern("uplink", "rotating", period_us=100)]


def patterns(quick):
    if quick:
        return QUICK
    found = [pattern("uplink", "none")]
    found += [pattern("uplink", "rotating", factor=factor) for factor in (4, 2, 8)]
    found += [pattern("uplink", "rotating", period_us=us) for us in (100, 250, 4000)]
    found += [pattern("uplink", kind) for kind in ("random", "permanent", "link")]
    found += [pattern("coupled-producer", kind)
              for kind in ("rotating", "shares", "random")]
    found += [pattern("coupled-producer", "rotating", period_us=100)]
    found += [pattern("producer", kind) for kind in ("rotating", "random")]
    found += [pattern("uplink", "none", workload="vgg16")]
    found += [pattern(slow, "rotating", workload="vgg16") for slow in ("uplink", "producer")]
    found += [pattern("uplink", "rotating", workload="vgg16", factor=8),
              pattern("uplink", "random", workload="vgg16"),
              pattern("uplink", "link", workload="vgg16")]
    found += [HEADLINE | {"slots": slots} for slots in (64, 1024, 4096)]
    return found + [HEADLINE | {"policy": "fcfs"}]


def seeds_of(case, quick):
    """Returns the seeds: a single one for a case without randomness."""
    if case["pattern"] == "random" and not quick:
        return RANDOM_SEEDS
    chance = case["pattern"] == "rotating" or case["workload"] != "plain"
    return SEEDS if chance and not quick else SEEDS[:1]


def straggler(case):
    """Returns the options that describe the straggler to ina-sim."""
    return SLOW[case["slow"]] | {"straggler": case["pattern"], "factor": case["factor"],
                                 "period-us": case["period_us"], "slots": case["slots"],
                                 "policy": case["policy"]}


def with_phase(options, seed):
    """Adds the seed, and a start of the rotation that depends on it."""
    round_us = options["period-us"] * options["workers"]
    phase_us = round(seed * 0.618034 % 1 * round_us) if options["straggler"] == "rotating" else 0
    return options | {"seed": seed, "phase-us": phase_us}


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


class Runs(simulations.Runs):
    def of(self, options, seeds):
        return [self.results[self.key(with_phase(options, seed))] for seed in seeds]

    def run_seeds(self, some):
        """Runs each of `some`, pairs of (options, seeds)."""
        self.run([with_phase(options, seed) for options, seeds in some for seed in seeds])

    def iteration_s(self, options, seeds):
        return statistics.mean(run["avg_iteration_s"] for run in self.of(options, seeds))


class Case:
    """One pattern, and the ways of help for it."""

    def __init__(self, case, workload, seeds):
        self.case = case
        self.seeds = seeds
        self.common = BASE | workload | straggler(case)

    def settings(self, name):
        return [self.common | own for own in BASELINES[name]]

    def search(self):
        return [(options, (SEARCH_SEED,)) for name in BASELINES for options in self.settings(name)]

    def pick(self, runs):
        """Chooses the ways: of each baseline the best one by the search's seed, and all others."""
        best = {name: min(self.settings(name),
                          key=lambda options: runs.iteration_s(options, (SEARCH_SEED,)))
                for name in BASELINES}
        # The ablation is for the headline, and for its variants of slots and policy.
        headline = all(self.case[key] == value for key, value in HEADLINE.items()
                       if key not in ("slots", "policy"))
        others = {name: self.common | own
                  for name, own in ((ABLATIONS if headline else {}) | HELP).items()}
        self.ways = best | others

    def judge(self):
        return [(options, self.seeds) for options in self.ways.values()]

    def points(self, runs):
        return {name: point(self.case, name, options, runs.of(options, self.seeds))
                for name, options in self.ways.items()}


def point(case, help_, options, runs):
    times = [run["avg_iteration_s"] for run in runs]
    iteration_s, half = mean_interval(times)
    return case | {
        "help": help_, "home": options["home"], "window": options["window"],
        "in_switch": options.get("in-switch"),
        "aggregator_window": not options["no-aggregator-window"],
        "iteration_s": iteration_s, "iteration_s_half_interval": half,
        "iterations_per_s": 1 / iteration_s, "iteration_s_by_seed": times,
        "slots_used_mean": statistics.mean(run["slots_used_mean"] for run in runs),
        "slots_used_peak": max(run["slots_used_peak"] for run in runs),
        "parked": sum(run["parked"] for run in runs) / sum(run["fragments"] for run in runs),
        "by_parker": sum(run["by_parker"] for run in runs),
        "fallback_bytes": statistics.mean(run["fallback_bytes"] for run in runs),
        "queue_drops": sum(run["queue_drops"] for run in runs),
        "queries": sum(run["queries"] for run in runs),
    }


def against(points, name, other):
    """Returns the ratio of one way's iteration time to another's, by seed: mean, half of the
    interval."""
    return mean_interval(
        [a / b for a, b in zip(points[name]["iteration_s_by_seed"],
                               points[other]["iteration_s_by_seed"])])


def compare(case, points):
    """Compares the ways of help with the better of the baselines, each at its best window."""
    better = min(BASELINES, key=lambda name: points[name]["iteration_s"])
    to_better = {name: against(points, name, better) for name in points}
    to_off = {name: against(points, name, "off") for name in HELP}
    return case | {
        "name": title(case), "seeds": len(points["off"]["iteration_s_by_seed"]),
        "baseline": better,
        "off_s": points["off"]["iteration_s"], "baseline_s": points[better]["iteration_s"],
        "best_window": {name: points[name]["window"] for name in BASELINES},
        "best_has_aggregator_window": {name: points[name]["aggregator_window"] for name in BASELINES},
        "iteration_s": {name: p["iteration_s"] for name, p in points.items()},
        "iteration_s_half_interval": {name: p["iteration_s_half_interval"]
                                      for name, p in points.items()},
        "reduction": {name: 1 - ratio for name, (ratio, _) in to_better.items()},
        "reduction_half_interval": {name: half for name, (_, half) in to_better.items()},
        "gain": {name: 1 / ratio for name, (ratio, _) in to_better.items()},
        "against_off": {name: ratio - 1 for name, (ratio, _) in to_off.items()},
    }


def second_job_runs(headline, workloads, quick):
    """Returns (description, options) of each run. `help` "alone": job B runs without job A."""
    found = []
    for slots in (256,) if quick else SECOND_JOB_SLOTS:
        for policy in ("esa",) if quick else ("esa", "fcfs"):
            what = {"slots": slots, "policy": policy}
            case = Case(HEADLINE | what, workloads["plain"] | {"plain-mb": 128}, SEEDS[:1])
            alone = case.common | BASELINES["off"][0] | {"straggler": "none"}
            found.append((what | {"help": "alone"}, alone))
            for name, options in headline.ways.items():
                own = {key: options[key] for key in
                       ("window", "in-switch", "patience-us", "help-straggler", "home",
                        "no-aggregator-window") if key in options}
                found.append((what | {"help": name}, case.common | own | {
                    "jobs": 2, "arrival-ms": 0, "straggler-jobs": 1}))
    return found


def second_job(what, run):
    jobs = [job["jct_s"] for job in run["jobs"]]
    return what | {"straggling_s": jobs[0] if len(jobs) == 2 else None, "other_s": jobs[-1],
                   "slots_used_mean": run["slots_used_mean"], "queue_drops": run["queue_drops"]}


def show(rows, second):
    ways = (*BASELINES, *ABLATIONS, *HELP)
    print(f"{'iteration in ms':42} {'slots':>5} " + " ".join(f"{way:>11}" for way in ways) +
          "   saved: " + ", ".join(HELP) + "; against off")
    for row in rows:
        name = f"{row['workload']} {row['policy']}: {row['name']}"
        print(f"{name:42} {row['slots']:>5} " +
              " ".join(f"{row['iteration_s'].get(way, float('nan')) * 1e3:>11.2f}" for way in ways) +
              "   " + " ".join(f"{row['reduction'][way]:>7.1%}" for way in HELP) +
              "   " + " ".join(f"{row['against_off'][way]:>+7.1%}" for way in HELP))
    print("\njob A with a straggler beside job B, ms")
    for row in second:
        straggling = row["straggling_s"]
        print(f"{row['policy']:5} {row['slots']:>4} slots {row['help']:11} "
              f"A {straggling * 1e3 if straggling else float('nan'):7.2f} "
              f"B {row['other_s'] * 1e3:7.2f}, slots used {row['slots_used_mean']:.0f}")


def draw_point(chance):
    """Returns the options of one point."""
    workers = chance.choice((2, 4, 8, 16, 32))
    most = 3 if workers <= 8 else 1  # larger ones would take minutes
    found = {"workers": workers, "plain-mb": round(32 * 2 ** chance.uniform(0, most)), "iterations": 1, "jitter": 0,
             "slots": round(2 ** chance.uniform(6, 12)),
             "straggler": chance.choice(("none", "permanent", "rotating", "random", "link", "shares")),
             "factor": chance.choice((1.2, 2, 4, 8)), "period-us": round(100 * 40 ** chance.uniform(0, 1))}
    found |= SLOW[chance.choice(list(SLOW))]
    if found["straggler"] == "link":
        found |= SLOW["uplink"]
    if chance.random() < 0.2:
        found["farther-us"] = round(50 ** chance.uniform(0, 1), 1)
    if chance.random() < 0.15:
        found["loss"] = 0.001
    return found


def run_drawn(args):
    """Compares each way of help with none at drawn points."""
    started = time.monotonic()
    chance = random.Random(args.points_seed)
    drawn = [draw_point(chance) for _ in range(args.points)]
    runs = Runs(args.build / "sim/ina-sim")

    def options(varied, way):
        own = HELP[way] | {"in-switch": BASELINES["off"][0]["window"]} if way in HELP else BASELINES["off"][0] | {
            "home": HELP[way.removeprefix("off, ")].get("home", BASE["home"])}
        return BASE | {"sample-us": 0} | varied | own

    ways = {way: "off, " + way for way in HELP}
    runs.run_seeds([(options(varied, way), DRAWN_SEEDS) for varied in drawn for pair in ways.items() for way in pair])
    rows = []
    for varied in drawn:
        off = {way: runs.iteration_s(options(varied, other), DRAWN_SEEDS) for way, other in ways.items()}
        helped = {way: runs.iteration_s(options(varied, way), DRAWN_SEEDS) for way in HELP}
        rows.append({name.replace("-", "_"): value for name, value in varied.items()} | {
            "off_s": off, "iteration_s": helped, "harm": {way: helped[way] / off[way] for way in HELP}})
    for row in sorted(rows, key=lambda row: -max(row["harm"].values())):
        print(" ".join(f"{way} {row['harm'][way]:.3f}" for way in HELP) + "   " + ", ".join(
            f"{name} {value}" for name, value in row.items() if name not in ("off_s", "iteration_s", "harm", "iterations", "jitter")))
    harms = sorted(harm for row in rows for harm in row["harm"].values())
    result = {"meta": simulations.meta("straggler-sim", started, list(runs.results.values())),
              "workload": BASE | {"points_seed": args.points_seed, "seeds": list(DRAWN_SEEDS), "parking": PARKING},
              "points": rows, "worst_harm": harms[-1], "median_harm": statistics.median(harms),
              "harms_beyond_1_02": sum(harm > HARM for harm in harms)}
    print(f"\nat {len(rows)} points of seed {args.points_seed}, with each way of help: worst {harms[-1]:.3f}, median "
          f"{result['median_harm']:.3f}, {result['harms_beyond_1_02']} of {len(harms)} beyond {HARM}; "
          f"{result['meta']['wall_s']} s")
    results.write(args, result)
    return 0


def gains_of(row):
    return ", ".join(f"{way} {row['reduction'][way]:.1%} ± {row['reduction_half_interval'][way]:.1%} "
                     f"({row['gain'][way]:.2f}x)" for way in HELP)


def main():
    args = simulations.parse_arguments(__doc__, drawn=DRAWN_POINTS)
    if args.points_seed is not None:
        return run_drawn(args)
    started = time.monotonic()
    workloads = QUICK_WORKLOADS if args.quick else WORKLOADS
    runs = Runs(args.build / "sim/ina-sim")
    cases = [Case(case, workloads[case["workload"]], seeds_of(case, args.quick))
             for case in patterns(args.quick)]
    runs.run_seeds([found for case in cases for found in case.search()])
    for case in cases:
        case.pick(runs)
    headline = next(case for case in cases if case.case == HEADLINE)
    charged = {machine: {name: options | own for name, options in headline.ways.items()}
               for machine, own in CHARGES.items()}
    beside = second_job_runs(headline, workloads, args.quick)
    runs.run_seeds([found for case in cases for found in case.judge()] +
                   [(options, headline.seeds) for ways in charged.values()
                    for options in ways.values()] +
                   [(options, SEEDS[:1]) for _, options in beside])

    of_cases = [case.points(runs) for case in cases]
    rows = [compare(case.case, points) for case, points in zip(cases, of_cases)]
    second = [second_job(what, runs.of(options, SEEDS[:1])[0]) for what, options in beside]
    paid = {machine: compare(HEADLINE, {
        name: point(HEADLINE, name, options, runs.of(options, headline.seeds))
        for name, options in ways.items()}) for machine, ways in charged.items()}
    show(rows, second)

    main_row = rows[cases.index(headline)]
    slow = [row for row in rows if row["pattern"] != "none"]
    trained = [row for row in slow if row["workload"] != "plain"] or slow
    steady = [row for row in rows if row["pattern"] == "none"]
    worst = {way: max(row["against_off"][way] for row in rows) for way in HELP}
    overhead = {way: max(-row["reduction"][way] for row in steady) for way in HELP}
    judged = ("baseline", "baseline_s", "iteration_s", "reduction", "reduction_half_interval", "gain")
    result = {
        "meta": simulations.meta("straggler-sim", started, list(runs.results.values())),
        "workload": BASE | {"workloads": workloads, "parking": PARKING, "baselines": BASELINES,
                            "seeds": list(SEEDS), "search_seed": SEARCH_SEED},
        "points": [p for points in of_cases for p in points.values()],
        "patterns": rows,
        "comparison": rows,
        "second_job": second,
        "headline": {key: main_row[key] for key in ("name", "slots", "policy", *judged)},
        "headline_charged": [{"machine": machine, "charges": CHARGES[machine]} |
                             {key: row[key] for key in judged} for machine, row in paid.items()],
        "best_iteration_reduction": max(row["reduction"][way] for row in slow for way in HELP),
        "best_throughput_gain": max(row["gain"][way] for row in trained for way in HELP),
        "rotating_4x": {row["workload"]: row["reduction"] for row in rows
                        if all(row[k] == v for k, v in HEADLINE.items() if k != "workload")},
        "worst_against_off": worst,
        "no_straggler_overhead": max(overhead.values()),
        "no_straggler_overhead_by_help": overhead,
    }
    print(f"\nheadline ({main_row['name']}), against {main_row['baseline']}: {gains_of(main_row)}")
    for machine, row in paid.items():
        print(f"with processors charged ({machine}): {gains_of(row)}")
    print("worst against off: " + ", ".join(f"{way} {worst[way]:+.1%}" for way in HELP) +
          f"; without stragglers at most {result['no_straggler_overhead']:+.1%}; "
          f"{result['meta']['wall_s']} s")
    results.write(args, result)
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_straggler_sim")
