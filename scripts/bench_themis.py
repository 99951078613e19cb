#!/usr/bin/env python3
"""Predictions for the schedules of Themis, the baseline, a search, and aggregating switches.

    bench_themis.py --build FOLDER [--quick] [--json FILE]

ina-themis plans and simulates one all-reduce of 18 sizes on the six topologies of the Themis paper,
the paper's example, and iterations of training; docs/themis.md has the model. Nothing is sent. The
result is compared with the golden figures below. A row that is off by more than 3 % is a failure.

--json writes {"meta", "topologies": [{"name", "base_us", "fifo_us", "scf_us", "search_us", "speedup",
"utilisation", ...}], "fig5", "mean_speedup", "max_speedup", "mean_speedup_ina", "max_speedup_ina",
"min_speedup", "training", "planning", "failures", ...}. Times are of 1e9 bytes; "speedup" and "utilisation" are
means over the sizes, of Themis with the smallest chunk first.
"""

import json
import time

from benchlib import command_line, metadata, processes, results

FOLDER = "conf/topologies"
TOPOLOGIES = ("2d-sw-sw", "3d-sw-sw-sw-homo", "3d-sw-sw-sw-hetero", "3d-fc-ring-sw", "4d-ring-sw-sw-sw",
              "4d-ring-fc-ring-sw")
PLANNING = ("hetero-128-3d", "hetero-128-5d")
QUICK_EVALUATIONS = 200
DEADLINE_S = 1200

# By topology: utilisation of baseline, FIFO and SCF in %, speed-up of SCF, and the times of
# baseline and SCF for 1e9 bytes in us.
GOLDEN = {
    "2D-SW_SW": (64, 94, 99, 1.55, 12503, 8081),
    "3D-SW_SW_SW homo": (36, 87, 98, 2.77, 18753, 6769),
    "3D-SW_SW_SW hetero": (61, 94, 99, 1.62, 9378, 5781),
    "3D-FC_Ring_SW": (62, 85, 97, 1.57, 10001, 6529),
    "4D-Ring_SW_SW_SW": (56, 79, 97, 1.75, 6000, 3637),
    "4D-Ring_FC_Ring_SW": (62, 86, 98, 1.56, 4000, 2645),
}
GOLDEN_KEYS = ("utilisation_base", "utilisation_fifo", "utilisation", "speedup", "base_us", "scf_us")
GOLDEN_SCALE = (0.01, 0.01, 0.01, 1, 1, 1)
GOLDEN_FIG5 = {"base": 8, "fifo": 8, "scf": 7}
TOLERANCE = 0.03
# Lower limits.
GOALS = {"mean_speedup": 1.72, "max_speedup": 2.70, "mean_speedup_ina": 1.88, "max_speedup_ina": 2.92,
         "min_speedup": 1.00}
# Upper limit of the planner's time, for 128 participants.
MOST_PLANNING_MS = 1000


def paths(names):
    return [f"{FOLDER}/{name}.yaml" for name in names]


def measure(build, quick):
    command = [build / "bench/ina-themis", "--json", "-", "--topology", *paths(TOPOLOGIES),
               "--planning", *paths(PLANNING)]
    if quick:
        command += ["--evaluations", QUICK_EVALUATIONS]
    return json.loads(processes.run(command, DEADLINE_S))


def failures_of(report):
    """Returns the report's deviations from the goals, as sentences."""
    found = []
    for row in report["topologies"]:
        for key, scale, wanted in zip(GOLDEN_KEYS, GOLDEN_SCALE, GOLDEN[row["name"]]):
            off = row[key] / (wanted * scale) - 1
            if abs(off) > TOLERANCE:
                found.append(f"{row['name']}: {key} is {row[key]:.4g}, golden {wanted * scale:g} "
                             f"({off:+.1%})")
    found += [f"figure 5, {key}: {report['fig5'][key]:g} units, not {wanted}"
              for key, wanted in GOLDEN_FIG5.items() if abs(report["fig5"][key] - wanted) > 1e-6]
    found += [f"{key} is {report[key]:.3f}, less than {least}"
              for key, least in GOALS.items() if report[key] < least]
    if report["search_worse"]:
        found.append(f"the search is worse than Themis at {report['search_worse']} points")
    found += [f"{row['name']}: the search took {row['search_planning_ms']:.0f} ms"
              for row in report["planning"] if row["search_planning_ms"] > MOST_PLANNING_MS]
    return found


def show(report):
    print(f"{'1e9 bytes, us':22}{'baseline':>10}{'fifo':>10}{'scf':>10}{'search':>10}{'INA':>10}"
          f"{'INA search':>12}{'ideal':>10}")
    for row in report["topologies"]:
        print(f"{row['name']:22}" + "".join(f"{row[key]:{width}.0f}" for key, width in (
            ("base_us", 10), ("fifo_us", 10), ("scf_us", 10), ("search_us", 10), ("ina_scf_us", 10),
            ("ina_search_us", 12), ("ideal_us", 10))))
    print(f"\n{'18 sizes, mean':22}{'speed-up':>10}{'search':>10}{'INA':>10}{'INA search':>12}   "
          "utilisation base/FIFO/SCF/search      gap to ideal: SCF, search")
    for row in report["topologies"]:
        use = "/".join(f"{row['utilisation' + kind]:.1%}" for kind in ("_base", "_fifo", "", "_search"))
        print(f"{row['name']:22}{row['speedup']:9.2f}x{row['speedup_search']:9.2f}x"
              f"{row['speedup_ina']:9.2f}x{row['speedup_ina_search']:11.2f}x   {use:38}"
              f"{row['gap']:.1%}, {row['gap_search']:.1%}")
    print(f"\nmean {report['mean_speedup']:.3f}x, max {report['max_speedup']:.3f}x; search "
          f"{report['mean_speedup_search']:.3f}x, {report['max_speedup_search']:.3f}x; INA "
          f"{report['mean_speedup_ina']:.3f}x, {report['max_speedup_ina']:.3f}x; INA and search "
          f"{report['mean_speedup_ina_search']:.3f}x, {report['max_speedup_ina_search']:.3f}x; least of all "
          f"{report['min_speedup']:.3f}x")
    print(f"search better than Themis at {report['search_better']} of {report['points']} points, worse at "
          f"{report['search_worse']}; figure 5: {report['fig5']['base']:g} -> {report['fig5']['scf']:g}, "
          f"FIFO {report['fig5']['fifo']:g}")
    print("\ntraining: mean speed-up of an iteration over the topologies")
    for row in report["training"]:
        implied = row["implied_compute_ms"]
        print(f"{row['name']:16}{row['speedup']:6.3f}x, published {row['published']:.2f}x (first version "
              f"{row['published_first']:.2f}x); computing {row['compute_ms']:.2f} ms; without it "
              f"{row['speedup_without_compute']:.2f}x; the published figure implies "
              + (f"{implied:.2f} ms" if implied else "less than none"))
    print("\nplanning, ms of processor time")
    for row in report["planning"]:
        print(f"{row['name']:16} {row['participants']} participants: Themis {row['themis_planning_ms']:.1f}, "
              f"search {row['search_planning_ms']:.0f}; predicted us: {row['base_us']:.0f}, "
              f"{row['themis_us']:.0f}, {row['search_us']:.0f}")


def main():
    parser = command_line.parser_of(__doc__, build="build")
    parser.add_argument("--quick", action="store_true")
    options = command_line.parse(parser)
    started = time.monotonic()
    report = measure(options.build, options.quick)
    failures = failures_of(report)
    show(report)
    for failure in failures:
        print(f"MISSED: {failure}")
    results.write(options, {
        "meta": {"benchmark": "themis", **metadata.predicted(started)}, **report,
        "failures": failures})
    return 1 if failures else 0


if __name__ == "__main__":
    command_line.run(main, "bench_themis")
