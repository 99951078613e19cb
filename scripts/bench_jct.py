#!/usr/bin/env python3
"""The completion times of jobs that share one simulated switch, under each allocation policy.

    bench_jct.py --build FOLDER [--quick | --points-seed N] [--json FILE]

ina-sim trains jobs that arrive at random (docs/evaluation.md describes the model). A point is a
cluster and its load. At each point esa as shipped is compared with the other policies at their best
settings: `static` over three partitions of the array and the two largest windows that fit, `fcfs`
over one and four ways, with A2TP's window and its cap and without them, over windows of 4 to 512
fragments (from 1 on where jobs have at most two slots each), and over two and eight ways at the best
window of four. The first seed picks each policy's best settings, of fcfs those of each number of ways; all
seeds judge them. An array that is never full is the bound.

--points-seed N runs other points, which the seed draws from wide ranges: 2 to 64 workers with each home,
4 to 512 slots, one worker 1 to 50 us farther away than the others, two racks with uplinks of a third to
all of their hosts' rate, losses of 0.1 and 0.5 %, jobs that come in bursts. There esa without A2TP's
window is another of the other policies. So nobody can tune esa to the points that are reported.

--json writes {"meta", "workload", "points", "speedups", "headlines", "ablations",
"best_speedup_vs_fcfs_best", "median_speedup_vs_fcfs_best", "worst_vs_best_other",
"points_worse_than_1_02", ...}. A speedup is another policy's average completion time divided by
esa's, above 1 where esa is faster, with a 95 % confidence interval over seeds; "vs_best_other" is
esa's divided by the best other policy's, above 1 where esa is slower.
"""

import random
import statistics
import time

from benchlib import command_line, results, simulations
from benchlib.stats import mean_interval

HEAVY = "vgg16,bert,gnmt"
LIGHT = "resnet50,dlrm"
MIXED = "vgg16,resnet50,bert,dlrm,gnmt,resnet50,vgg16,resnet50"
GPT2 = "conf/sim/gpt2-small.yaml"
MIXES = {HEAVY: "communication-heavy", LIGHT: "compute-heavy", MIXED: "mixed", GPT2: "GPT-2"}

# The options of all runs, unless a point varies them.
BASE = {"models": MIXED, "jobs": 8, "workers": 8, "scale": 64, "iterations": 2,
        "most-iterations": 8, "arrival-ms": 1, "rate-gbps": 100, "delay-us": 1, "window": 512,
        "rto-ms": 1, "jitter": 0.02, "home": "workers", "slots": 64, "sample-us": 200}
QUICK_BASE = BASE | {"scale": 256, "most-iterations": 4, "arrival-ms": 0.25}

SLOTS = (16, 32, 64, 128, 256, 1024, 4096)
AMPLE_SLOTS = 65536
WINDOWS = (4, 8, 16, 32, 64, 128, 256, 512)
ADAPTIVE_WINDOWS = (4, 8, 16, 32, 64, 512)  # the most that A2TP's window may grow to
WAYS, MORE_WAYS = (1, 4), (2, 8)
SMALL_WINDOWS = (1, 2)  # besides, where jobs have two slots each, or fewer
SEEDS = range(1, 6)
P99_SEEDS = range(1, 26)  # of eight jobs each

# Without A2TP's window and its cap.
PLAIN = {"no-aggregator-window": True}
ABLATIONS = {
    "esa": {},
    "esa, 1 way": {"ways": 1},
    "esa, 2 ways": {"ways": 2},
    "esa, 8 ways": {"ways": 8},
    "esa, no window": PLAIN,
    "esa, window without cap": {"no-window-cap": True},
    "esa, 1 way, no window": PLAIN | {"ways": 1},
    "esa, no priorities": {"no-priorities": True},
    "esa, no decay": {"decay": "none"},
    "esa, no residual": {"no-residual": True},
    "esa, near-full bonus": {"near-full-bonus": True},
    "fcfs, 4 ways, window": {"policy": "fcfs"},
    "fcfs, 1 way, window": {"policy": "fcfs", "ways": 1},
    "fcfs, 1 way, no window": PLAIN | {"policy": "fcfs", "ways": 1},
}
# The points with the most contention: few slots, with either home, and slower links.
HEADLINES = (("slots", {"slots": 16, "home": "dedicated"}), ("slots", {"slots": 16}),
             ("slots, 25", {"slots": 16, "rate-gbps": 25, "arrival-ms": 4}))


# Of points that a seed draws. Jobs are small, so that a point takes seconds.
DRAWN_BASE = {"models": MIXED, "scale": 256, "iterations": 1, "most-iterations": 4, "arrival-ms": 0.25,
              "rate-gbps": 100, "delay-us": 1, "window": 512, "rto-ms": 1, "jitter": 0.02, "sample-us": 200}
DRAWN_POINTS = 24
DRAWN_SEEDS = range(1, 9)
DRAWN_WORKERS = (2, 4, 8, 12, 16, 24, 32, 48, 64)
MOST_DRAWN_HOSTS = 64
BURSTS = 1.5  # shape of Pareto's distribution: its variance is infinite


DRAWN_AXES = ("farther-us", "uplink-gbps", "loss", "arrival-tail")


def draw_point(chance):
    """Returns the varied options of one point. Each axis beyond workers, home and slots is drawn for
    some of the points only: together all of them would hide each other."""
    workers = chance.choice(DRAWN_WORKERS)
    jobs = max(2, min(8, MOST_DRAWN_HOSTS // workers))
    found = {"home": chance.choice(("workers", "dedicated", "spill")), "workers": workers, "jobs": jobs,
             "slots": max(2 * jobs, round(2 ** chance.uniform(2, 9)))}
    axis = chance.choice(("farther", "racks", "loss", "bursts", "mix", "none"))
    if axis == "farther":
        found["farther-us"] = round(50 ** chance.uniform(0, 1), 1)
    elif axis == "racks":
        behind = jobs * (workers - workers // 2)
        found |= {"racks": 2, "uplink-gbps": round(behind * 100 / chance.uniform(1, 3))}
    elif axis == "loss":
        found["loss"] = chance.choice((0.001, 0.005))
    elif axis == "bursts":
        found["arrival-tail"] = BURSTS
    elif axis == "mix":
        found["models"] = chance.choice((HEAVY, LIGHT))
    return axis, found


def drawn_experiments(seed, count=DRAWN_POINTS):
    chance = random.Random(seed)
    return [draw_point(chance) for _ in range(count)]


def experiments(quick):
    """Returns (name, varied options) of each point."""
    homes = ("workers", "dedicated")
    if quick:
        return [("slots", {"slots": slots, "home": home}) for home in homes for slots in (16, 64)]
    found = [("slots", {"slots": slots, "home": home}) for home in homes for slots in SLOTS]
    found += [("slots, 25", {"slots": slots, "rate-gbps": 25, "arrival-ms": 4})
              for slots in (16, 64, 256)]
    found += [("jobs", {"jobs": jobs}) for jobs in (2, 4, 16)]
    found += [("mix", {"models": models, "slots": slots, "home": home})
              for models in (HEAVY, LIGHT) for home in homes for slots in (16, 64)]
    found += [("rate", {"rate-gbps": 10, "arrival-ms": 10, "slots": slots}) for slots in (16, 64)]
    found += [("workers", {"workers": workers, "jobs": 64 // workers}) for workers in (16, 32)]
    found += [("delay", {"delay-us": delay}) for delay in (5, 20)]
    found += [("racks", {"racks": 2, "uplink-gbps": 200, "slots": slots}) for slots in (16, 64)]
    found += [("loss", {"loss": 0.0001, "slots": slots}) for slots in (16, 64)]
    found += [("spill", {"home": "spill", "slots": slots}) for slots in (16, 64)]
    found += [("GPT-2", {"models": GPT2, "slots": slots, "home": home})
              for home in homes for slots in (16, 64)]
    found += [("GPT-2", {"models": GPT2, "slots": 16, "rate-gbps": 25, "arrival-ms": 4})]
    return found


def static_settings(options):
    """Returns static's settings. With fewer pools than jobs some jobs wait. A window is at most
    half a pool."""
    jobs = options["jobs"]
    found = []
    for pools in sorted({jobs, max(1, jobs // 2), max(1, jobs // 4)}):
        most = min(512, options["slots"] // pools // 2)
        found += [{"policy": "static", "static-pools": pools, "window": window}
                  for window in sorted({w for w in WINDOWS if w < most} | {most})[-2:] if most >= 1]
    return found


def fcfs_settings(options, quick):
    windows, adaptive = ((8, 32, 512), (512,)) if quick else (WINDOWS, ADAPTIVE_WINDOWS)
    small = SMALL_WINDOWS if options["slots"] <= 2 * options["jobs"] and not quick else ()
    return [{"policy": "fcfs", "ways": ways, "window": window} | own
            for ways in WAYS
            for own, some in ((PLAIN, windows), ({}, adaptive)) for window in (*small, *some)]


def kind(setting):
    """Returns the name of a setting among the points: the policy, and "+window" with A2TP's
    window."""
    plain = "no-aggregator-window" in setting
    if setting["policy"] == "esa":
        return "esa, no window" if plain else "esa"
    return setting["policy"] + ("+window" if setting["policy"] == "fcfs" and not plain else "")


class Runs(simulations.Runs):
    def avg_jct_s(self, options, seeds):
        return statistics.mean(run["avg_jct_s"] for run in self.of(options, seeds))


def p99(runs):
    jcts = sorted(job["jct_s"] for run in runs for job in run["jobs"])
    return jcts[-(len(jcts) // 100) - 1]


def point(experiment, policy, options, runs):
    fragments = sum(run["fragments"] for run in runs)
    return {
        "experiment": experiment, "policy": policy, "home": options["home"],
        "slots": options["slots"], "jobs": options["jobs"], "workers": options["workers"],
        "rate_gbps": options["rate-gbps"], "delay_us": options["delay-us"],
        "mix": MIXES[options["models"]], "racks": options.get("racks", 1),
    } | {name.replace("-", "_"): options[name] for name in DRAWN_AXES if name in options} | {
        "static_pools": options.get("static-pools"), "window": options["window"],
        "ways": options.get("ways", 4) if policy != "static" else None,
        "aggregator_window": policy != "static" and "no-aggregator-window" not in options,
        "avg_jct_s": statistics.mean(run["avg_jct_s"] for run in runs),
        "avg_jct_s_by_seed": [run["avg_jct_s"] for run in runs],
        "p99_jct_s": p99(runs),
        "avg_iteration_s": statistics.mean(run["avg_iteration_s"] for run in runs),
        "gradient_gbps": statistics.mean(run["gradient_gbps"] for run in runs),
        "slots_used_mean": statistics.mean(run["slots_used_mean"] for run in runs),
        "by_fallback": sum(run["by_fallback"] for run in runs) / fragments,
        "fallback_bytes": sum(run["fallback_bytes"] for run in runs),
        "preemptions": sum(run["preemptions"] for run in runs),
        "queue_drops": sum(run["queue_drops"] for run in runs),
        "ecn_marks": sum(run["ecn_marks"] for run in runs),
        "queries": sum(run["queries"] for run in runs),
    }


def add_timelines(runs, judged, most=300):
    """Adds (time, slots used, jobs) of the first seed to the points that plots show. `most`: limits
    the number of samples."""
    shown = [(points[name], options | {"seed": 1, "sample-us": 50})
             for chosen, points in judged for name, options in chosen.items()
             if points[name]["experiment"] == "slots" and points[name]["slots"] in (64, 256)
             and name in ("fcfs", "fcfs+window", "esa")]
    runs.run([options for _, options in shown])
    for p, options in shown:
        samples = runs.results[runs.key(options)]["slot_samples"]
        p["slot_timeline"] = samples[::max(1, -(-len(samples) // most))]


class Comparison:
    """One point: for each policy the candidate settings, and the final comparison."""

    def __init__(self, experiment, varied, base, quick, more=()):
        self.experiment = experiment
        self.options = base | varied
        self.esa = self.options | {"policy": "esa"}
        self.bound = self.esa | {"slots": AMPLE_SLOTS}
        self.others = [self.options | own for own in
                       static_settings(self.options) + fcfs_settings(self.options, quick) + list(more)]

    def first(self, seed):
        return [options | {"seed": seed} for options in (self.esa, self.bound, *self.others)]

    def try_more_ways(self, runs, seed):
        """Adds fcfs over other numbers of ways at the best windows of four ways. Returns the new
        runs."""
        new = [options | {"ways": ways} for options in self.finalists(runs, seed)
               if options.get("ways") == max(WAYS) for ways in MORE_WAYS]
        self.others += new
        return [options | {"seed": seed} for options in new]

    def finalists(self, runs, seed):
        """Returns the best setting of each kind by one seed; for fcfs, of each number of ways: one seed
        says little about what is best of many."""
        kinds = {}
        for options in self.others:
            kinds.setdefault((kind(options), options.get("ways")), []).append(options)
        return [min(of_kind, key=lambda options: runs.avg_jct_s(options, (seed,)))
                for of_kind in kinds.values()]

    def judged(self, runs, seeds):
        """Returns the chosen settings and the points of esa, of the bound and of the best of each
        kind."""
        best = {}
        for options in self.finalists(runs, seeds[0]):
            name = kind(options)
            if name not in best or (runs.avg_jct_s(options, seeds) <
                                    runs.avg_jct_s(best[name], seeds)):
                best[name] = options
        chosen = {"esa": self.esa, "bound": self.bound} | best
        points = {name: point(self.experiment, name, options, runs.of(options, seeds))
                  for name, options in chosen.items()}
        return chosen, points


def ratios(points):
    """Returns the ratios of one point: each other policy's completion time to esa's."""
    esa = points["esa"]["avg_jct_s_by_seed"]

    def to_esa(names):
        name = min(names, key=lambda n: points[n]["avg_jct_s"])
        by_seed = [a / b for a, b in zip(points[name]["avg_jct_s_by_seed"], esa)]
        mean = points[name]["avg_jct_s"] / points["esa"]["avg_jct_s"]
        return name, mean, mean_interval(by_seed)[1]

    others = [name for name in points if name not in ("esa", "bound")]
    fcfs, fcfs_ratio, fcfs_half = to_esa([name for name in others if name.startswith("fcfs")])
    other, other_ratio, other_half = to_esa(others)
    same = {key: points["esa"][key] for key in
            ("experiment", "home", "slots", "jobs", "workers", "rate_gbps", "delay_us", "mix",
             "racks", *(axis.replace("-", "_") for axis in DRAWN_AXES)) if key in points["esa"]}
    return same | {
        "fcfs": fcfs, "fcfs_ways": points[fcfs]["ways"], "fcfs_window": points[fcfs]["window"],
        "esa_vs_fcfs_best": fcfs_ratio, "esa_vs_fcfs_best_half_interval": fcfs_half,
        "other": other, "vs_best_other": 1 / other_ratio,
        "vs_best_other_half_interval": other_half,
        "esa_vs_bound": points["bound"]["avg_jct_s"] / points["esa"]["avg_jct_s"],
        "esa_vs_static": (points["static"]["avg_jct_s"] / points["esa"]["avg_jct_s"]
                          if "static" in points else None),
    }


def run_drawn(args):
    """Compares esa with the others at points that the seed draws."""
    started = time.monotonic()
    runs = Runs(args.build / "sim/ina-sim")
    comparisons = [Comparison(axis, varied, DRAWN_BASE, True, [PLAIN | {"policy": "esa"}])
                   for axis, varied in drawn_experiments(args.points_seed, args.points)]
    runs.run([options for c in comparisons for options in c.first(DRAWN_SEEDS[0])])
    runs.run([options | {"seed": seed} for c in comparisons
              for options in (c.esa, c.bound, *c.finalists(runs, DRAWN_SEEDS[0])) for seed in DRAWN_SEEDS])
    judged = [c.judged(runs, DRAWN_SEEDS)[1] for c in comparisons]
    speedups = [ratios(points) for points in judged]
    show(speedups)
    result = {
        "meta": simulations.meta("jct", started, list(runs.results.values())),
        "workload": DRAWN_BASE | {"seeds": list(DRAWN_SEEDS), "points_seed": args.points_seed},
        "points": [p for points in judged for p in points.values()], "speedups": speedups,
    } | drawn_summary(speedups)
    print(f"\nat {len(speedups)} points of seed {args.points_seed}: against the best other median "
          f"{result['median_vs_best_other']:.3f}, worst {result['worst_vs_best_other']:.3f}, "
          f"{result['points_worse_than_1_02']} worse than 1.02; {result['meta']['wall_s']} s")
    results.write(args, result)
    return 0


def drawn_summary(speedups):
    to_other = [row["vs_best_other"] for row in speedups]
    return {"median_vs_best_other": statistics.median(to_other), "worst_vs_best_other": max(to_other),
            "points_worse_than_1_02": sum(ratio > 1.02 for ratio in to_other)}


def headline_settings(comparison, chosen):
    """Yields (how, name, options, seeds) of runs that examine one point more closely."""
    for name, options in chosen.items():
        if name == "bound":
            continue
        yield "p99", name, options, P99_SEEDS
        yield "scale 16", name, options | {"scale": 16, "arrival-ms": 4 * options["arrival-ms"]}, SEEDS
        yield "devices", name, options | {"devices": True}, SEEDS


def headline(rows):
    """Returns the table of one headline point: how -> policy -> figures."""
    found = {}
    for how, name, own in rows:
        found.setdefault(how, {})[name] = {
            "avg_jct_s": statistics.mean(run["avg_jct_s"] for run in own),
            "p99_jct_s": p99(own), "jobs": sum(len(run["jobs"]) for run in own)}
    return found


def show(speedups):
    print(f"{'experiment':10} {'home':10} {'slots':>5} {'jobs':>4} {'Gb/s':>5} {'mix':20} "
          f"{'fcfs/esa':>9} {'+-':>5} {'fcfs best with':22} {'esa/best other':>14} {'bound/esa':>9}")
    for row in speedups:
        setting = f"{row['fcfs'].removeprefix('fcfs') or 'plain'}, {row['fcfs_ways']} w, " \
                  f"W {row['fcfs_window']}"
        print(f"{row['experiment']:10} {row['home']:10} {row['slots']:>5} {row['jobs']:>4} "
              f"{row['rate_gbps']:>5} {row['mix']:20} {row['esa_vs_fcfs_best']:>9.3f} "
              f"{row['esa_vs_fcfs_best_half_interval']:>5.3f} {setting:22} "
              f"{row['vs_best_other']:>14.3f} {row['esa_vs_bound']:>9.3f}")


def summary(speedups):
    to_fcfs = [row["esa_vs_fcfs_best"] for row in speedups]
    worst = max(row["vs_best_other"] for row in speedups)
    workers = [row["esa_vs_fcfs_best"] for row in speedups if row["home"] == "workers"]
    return {
        "best_speedup_vs_fcfs_best": max(to_fcfs),
        "median_speedup_vs_fcfs_best": statistics.median(to_fcfs),
        "worst_speedup_vs_fcfs_best": min(to_fcfs),
        "worst_vs_best_other": worst,
        "points_worse_than_1_02": sum(row["vs_best_other"] > 1.02 for row in speedups),
        "best_speedup_vs_fcfs": max(to_fcfs),
        "best_speedup_vs_fcfs_home_workers": max(workers),
        "worst_speedup_vs_fcfs": min(to_fcfs),
        "median_esa_vs_bound": statistics.median(row["esa_vs_bound"] for row in speedups),
    }


def ablations(runs, base, seeds):
    """Returns points of esa with one feature removed or changed at the headline points, and of fcfs
    with all features but esa."""
    cells = [(name, base | varied | {"policy": "esa"} | own)
             for _, varied in HEADLINES for name, own in ABLATIONS.items()]
    runs.run([options | {"seed": seed} for _, options in cells for seed in seeds])
    return [point("ablations", name, options, runs.of(options, seeds)) for name, options in cells]


def main():
    args = simulations.parse_arguments(__doc__, drawn=DRAWN_POINTS)
    if args.points_seed is not None:
        return run_drawn(args)
    started = time.monotonic()
    base = QUICK_BASE if args.quick else BASE
    seeds = range(1, 3) if args.quick else SEEDS
    runs = Runs(args.build / "sim/ina-sim")
    comparisons = [Comparison(experiment, varied, base, args.quick)
                   for experiment, varied in experiments(args.quick)]
    runs.run([options for c in comparisons for options in c.first(seeds[0])])
    if not args.quick:
        runs.run([options for c in comparisons for options in c.try_more_ways(runs, seeds[0])])
    runs.run([options | {"seed": seed} for c in comparisons
              for options in (c.esa, c.bound, *c.finalists(runs, seeds[0])) for seed in seeds])
    judged = [c.judged(runs, seeds) for c in comparisons]
    speedups = [ratios(points) for _, points in judged]

    headlines, ablated = [], []
    if not args.quick:
        for (experiment, varied) in HEADLINES:
            at = next(i for i, c in enumerate(comparisons)
                      if c.experiment == experiment and c.options == base | varied)
            cells = list(headline_settings(comparisons[at], judged[at][0]))
            runs.run([options | {"seed": seed} for _, _, options, some in cells for seed in some])
            headlines.append(varied | {"experiment": experiment, "by": headline(
                [(how, name, runs.of(options, some)) for how, name, options, some in cells])})
        ablated = ablations(runs, base, seeds)

    add_timelines(runs, judged)
    points = [p for _, of_point in judged for p in of_point.values()]
    show(speedups)
    result = {
        "meta": simulations.meta("jct", started, list(runs.results.values())),
        "workload": base | {"seeds": list(seeds)},
        "points": points, "speedups": speedups, "headlines": headlines, "ablations": ablated,
    } | summary(speedups)
    print(f"\nagainst fcfs at its best: best {result['best_speedup_vs_fcfs_best']:.2f}, median "
          f"{result['median_speedup_vs_fcfs_best']:.3f}; against the best other: worst "
          f"{result['worst_vs_best_other']:.3f}, {result['points_worse_than_1_02']} of "
          f"{len(speedups)} points worse than 1.02; {result['meta']['wall_s']} s")
    results.write(args, result)
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_jct")
