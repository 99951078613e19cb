#!/usr/bin/env python3
"""Jobs that share one simulated switch: how long they take under each allocation policy.

    bench_jct.py --build FOLDER [--quick] [--json FILE]

ina-sim trains jobs that arrive at random (docs/evaluation.md says how). Each experiment varies one
thing: the number of slots, with either home of the fallback; the number of jobs; the mix of
models; the links' rate; two racks; loss. Links, windows and time-outs are the same for all
policies. `static` gets the best of three ways to cut the array into pools; `fcfs` and `esa` are run
with and without A2TP's second window.

--json writes {"meta", "workload", "points": [{"experiment", "policy", "home", "slots", "jobs", ...,
"avg_jct_s", "p99_jct_s", ...}], "speedups": [...], "best_speedup_vs_fcfs", ...}. A speedup is the
ratio of average completion times at one point, above 1 where esa is faster;
`best_speedup_vs_fcfs` is of the better of esa's two variants to the better of fcfs's.
"""

import statistics
import time

import simulations

HEAVY = "vgg16,bert,gnmt"
LIGHT = "resnet50,dlrm"
MIXED = "vgg16,resnet50,bert,dlrm,gnmt,resnet50,vgg16,resnet50"

# What all runs have in common unless an experiment varies it.
BASE = {"models": MIXED, "jobs": 8, "workers": 8, "scale": 64, "iterations": 2,
        "most-iterations": 8, "arrival-ms": 1, "rate-gbps": 100, "delay-us": 1, "window": 512,
        "rto-ms": 1, "jitter": 0.02, "home": "workers", "slots": 64, "sample-us": 50}
QUICK_BASE = BASE | {"scale": 256, "most-iterations": 4, "arrival-ms": 0.25}

POLICIES = {
    "static": {"policy": "static"},
    "fcfs": {"policy": "fcfs"},
    "fcfs+window": {"policy": "fcfs", "aggregator-window": True},
    "esa": {"policy": "esa"},
    "esa+window": {"policy": "esa", "aggregator-window": True},
}
ABLATIONS = {
    "esa, no priorities": {"policy": "esa", "no-priorities": True},
    "esa, no decay": {"policy": "esa", "decay": "none"},
    "esa, decay by time": {"policy": "esa", "decay": "time"},
    "esa, no residual": {"policy": "esa", "no-residual": True},
    "esa, near-full bonus": {"policy": "esa", "near-full-bonus": True},
    "esa, 2 ways": {"policy": "esa", "ways": 2},
    "esa, 4 ways": {"policy": "esa", "ways": 4},
    "esa, 8 ways": {"policy": "esa", "ways": 8},
    "esa+window, 2 ways": {"policy": "esa", "ways": 2, "aggregator-window": True},
    "esa+window, 4 ways": {"policy": "esa", "ways": 4, "aggregator-window": True},
    "fcfs, 4 ways": {"policy": "fcfs", "ways": 4},
    "fcfs+window, 4 ways": {"policy": "fcfs", "ways": 4, "aggregator-window": True},
    "esa+window, no priorities": {"policy": "esa", "no-priorities": True,
                                  "aggregator-window": True},
}
SLOTS = (16, 32, 64, 128, 256, 1024, 4096)


def experiments(quick):
    """(name, what it varies, policies)"""
    if quick:
        return [("slots", {"slots": slots, "home": home}, POLICIES)
                for home in ("workers", "dedicated") for slots in (32, 256)]
    found = [("slots", {"slots": slots, "home": home}, POLICIES)
             for home in ("workers", "dedicated") for slots in SLOTS]
    found += [("slots, 25", {"slots": slots, "rate-gbps": 25, "arrival-ms": 4}, POLICIES)
              for slots in (16, 64, 256)]
    found += [("ablations", {"slots": slots}, ABLATIONS) for slots in (16, 64, 256)]
    found += [("jobs", {"jobs": jobs}, POLICIES) for jobs in (2, 4, 8, 16)]
    found += [("mix", {"models": models, "mix": mix}, POLICIES)
              for mix, models in (("communication-heavy", HEAVY), ("mixed", MIXED),
                                  ("compute-heavy", LIGHT))]
    found += [("rate", {"rate-gbps": rate, "arrival-ms": 100 / rate}, POLICIES)
              for rate in (10, 25, 100)]
    found += [("workers", {"workers": workers, "jobs": 64 // workers}, POLICIES)
              for workers in (8, 16, 32)]
    found += [("racks", {"racks": 2, "uplink-gbps": 200}, POLICIES),
              ("loss", {"loss": 0.0001}, POLICIES),
              ("spill", {"home": "spill"}, POLICIES)]
    return found


def variants(policy, options):
    """`static` may cut the array into fewer pools than there are jobs; others then wait."""
    if policy != "static":
        return [options]
    jobs = options["jobs"]
    return [options | {"static-pools": pools}
            for pools in sorted({jobs, max(1, jobs // 2), max(1, jobs // 4)})
            if options["slots"] >= 2 * pools]


def point(experiment, policy, varied, options, runs):
    jcts = [job["jct_s"] for run in runs for job in run["jobs"]]
    fragments = sum(run["fragments"] for run in runs)
    return {
        "experiment": experiment, "policy": policy, "home": options["home"],
        "slots": options["slots"], "jobs": options["jobs"], "workers": options["workers"],
        "rate_gbps": options["rate-gbps"], "mix": varied.get("mix", "mixed"),
        "static_pools": options.get("static-pools"),
        "avg_jct_s": statistics.mean(run["avg_jct_s"] for run in runs),
        "avg_jct_s_by_seed": [run["avg_jct_s"] for run in runs],
        "p99_jct_s": sorted(jcts)[-(len(jcts) // 100) - 1],
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


def timeline(run, most=300):
    """(time, slots used, jobs), thinned out."""
    samples = run.get("slot_samples", [])
    return samples[::max(1, -(-len(samples) // most))]


def speedups(points):
    """At each point of the experiments, esa to fcfs."""
    rows = []
    groups = {}
    for p in points:
        key = (p["experiment"], p["home"], p["slots"], p["jobs"], p["workers"], p["rate_gbps"],
               p["mix"])
        groups.setdefault(key, {})[p["policy"]] = p
    for key, by_policy in groups.items():
        if not {"fcfs", "fcfs+window", "esa", "esa+window"} <= by_policy.keys():
            continue
        jct = {policy: p["avg_jct_s"] for policy, p in by_policy.items()}
        rows.append(dict(zip(("experiment", "home", "slots", "jobs", "workers", "rate_gbps", "mix"),
                             key)) | {
            "esa_vs_fcfs": jct["fcfs"] / jct["esa"],
            "window_esa_vs_window_fcfs": jct["fcfs+window"] / jct["esa+window"],
            "best_esa_vs_best_fcfs": min(jct["fcfs"], jct["fcfs+window"]) /
                                     min(jct["esa"], jct["esa+window"]),
            "best_esa_vs_static": jct["static"] / min(jct["esa"], jct["esa+window"])
                                  if "static" in jct else None,
        })
    return rows


def best_homes(points):
    """Each policy with its own best home and window, by slots."""
    rows = []
    slots = [p for p in points if p["experiment"] == "slots"]
    for number in sorted({p["slots"] for p in slots}):
        best = {policy: min(p["avg_jct_s"] for p in slots
                            if p["slots"] == number and p["policy"].startswith(policy))
                for policy in ("fcfs", "esa")}
        rows.append({"slots": number, "speedup": best["fcfs"] / best["esa"]})
    return rows


def main():
    args = simulations.parse_arguments(__doc__.splitlines()[0])
    started = time.monotonic()
    base = QUICK_BASE if args.quick else BASE
    seeds = range(1, 2 if args.quick else 4)

    cells = []  # (experiment, policy, varied, options)
    for experiment, varied, policies in experiments(args.quick):
        for policy, own in policies.items():
            options = base | {k: v for k, v in varied.items() if k != "mix"} | own
            cells += [(experiment, policy, varied, each) for each in variants(policy, options)]
    runs = [cell[3] | {"seed": seed} for cell in cells for seed in seeds]
    results = simulations.run_all(f"{args.build}/sim/ina-sim", runs)

    points = {}
    for i, (experiment, policy, varied, options) in enumerate(cells):
        own = results[i * len(seeds):(i + 1) * len(seeds)]
        p = point(experiment, policy, varied, options, own)
        key = (experiment, policy, tuple(sorted(varied.items())))
        if experiment == "slots" and options["slots"] in (64, 256) and policy != "static":
            p["slot_timeline"] = timeline(own[0])
        if key not in points or p["avg_jct_s"] < points[key]["avg_jct_s"]:
            points[key] = p
    points = list(points.values())

    print(f"{'experiment':10} {'policy':26} {'home':10} {'slots':>5} {'jobs':>4} {'Gb/s':>5} "
          f"{'JCT ms':>8} {'p99 ms':>8} {'used':>6} {'fallback':>8} {'drops':>7}")
    for p in points:
        print(f"{p['experiment']:10} {p['policy']:26} {p['home']:10} {p['slots']:>5} "
              f"{p['jobs']:>4} {p['rate_gbps']:>5} {p['avg_jct_s'] * 1e3:>8.2f} "
              f"{p['p99_jct_s'] * 1e3:>8.2f} {p['slots_used_mean']:>6.1f} {p['by_fallback']:>8.1%} "
              f"{p['queue_drops']:>7}")
    ratios = speedups(points)
    print("\nhow many times shorter with esa: plain, both with window, best to best; to static")
    for row in ratios:
        print(f"{row['experiment']:10} {row['home']:10} {row['slots']:>5} slots {row['jobs']:>2} "
              f"jobs {row['rate_gbps']:>4} Gb/s {row['mix']:20} {row['esa_vs_fcfs']:>6.2f} "
              f"{row['window_esa_vs_window_fcfs']:>6.2f} {row['best_esa_vs_best_fcfs']:>6.2f} "
              f"{row['best_esa_vs_static']:>6.2f}")
    result = {
        "meta": simulations.meta("jct", started, results),
        "workload": base | {"seeds": list(seeds)},
        "points": points,
        "speedups": ratios,
        "speedup_best_homes": best_homes(points),
        "best_speedup_vs_fcfs": max(row["best_esa_vs_best_fcfs"] for row in ratios),
        "best_speedup_vs_fcfs_home_workers": max(
            row["best_esa_vs_best_fcfs"] for row in ratios if row["home"] == "workers"),
        "worst_speedup_vs_fcfs": min(row["best_esa_vs_best_fcfs"] for row in ratios),
    }
    print(f"\nbest {result['best_speedup_vs_fcfs']:.2f}, with the fallback at the workers "
          f"{result['best_speedup_vs_fcfs_home_workers']:.2f}, worst "
          f"{result['worst_speedup_vs_fcfs']:.2f}; {result['meta']['wall_s']} s")
    simulations.write(args.json, result)
    return 0


if __name__ == "__main__":
    simulations.exit_with(main, "bench_jct")
