#!/usr/bin/env python3
"""The time of an iteration while one worker is slow, with straggler help off and on.

    bench_straggler.py --build FOLDER [--part shm|links|both] [--ranks N] [--rounds N] [--quick] [--json FILE]

Starts an ina-switchd for each way of help, and against each the ranks of ina-straggle. The ranks
are real processes over the shm port that make gradients at a stated rate, and stop while the
network does not take their gradients (coupled producers, bench/ina_straggle.cc). In each round the ways take turns for
each pattern of slowness, which a seed makes the same for all. All ways have the same slots, and the
same bytes of a worker in the switch; only `wide` and `wide-a2tp`, without help, may have as much in
the switch as the others may run ahead, the latter with A2TP's window. `again` repeats `off` without stragglers, and shows the difference between
two equal runs.

A point is a way, a pattern and a severity. Its iteration time is the mean over all iterations of
all rounds, with the slowest rank's time of each; throughput is the inverse. `slots_held` is the
mean of the samples of the slots that the job held. Every element of every sum is checked.

The other part has hosts whose links change while gradients are on them (benchlib/straggler_links.py); it
needs root.

--json writes {"meta", "points", "best_iteration_reduction", "best_throughput_gain",
"no_straggler_overhead", "no_straggler_noise", "links", "patterns": [...], "second_job": [...]}. Keys
of a part that was left out are missing. Reduction and gain are those of the best of the ways with
help against the best of `off`, `wide` and `wide-a2tp`, over the shm port: both of the same point,
while bench_straggler_sim.py takes the gain from trained models only, and the reduction from all
patterns. The overhead is the median over turns of the worst way's, without a straggler and with
workers that only send; the noise is the same of `again`. Where the shm part was left out, reduction,
gain and overhead are those of `patterns`, against the better of `off` and `run-ahead`.
"""

import os
import statistics
import sys
import time

from benchlib import command_line, metadata, results, stats, straggler_links, testbed
from benchlib.errors import BenchError
from benchlib.processes import Ranks, temporary_folder
from benchlib.switch import Switch

CONFIG = """\
aggregator: {{slots: 1024, slot_bytes: 1024, policy: esa}}
fallback: {{home: {home}}}
straggler: {{help: {help}, run_ahead: {run_ahead}}}
jobs: {{window_bytes: {window}}}
congestion: {{aggregator_window: {aggregator_window}}}
control: {{socket: "{socket}"}}
ports: [{{name: shm0, type: shm}}]
log: {{level: warning}}
"""
WINDOW = "512 KiB"
RUN_AHEAD = "16 MiB"
# Name, straggler.help, fallback.home, jobs.window_bytes, congestion.aggregator_window.
WAYS = [("off", "off", "workers", WINDOW, "true"),
        ("leader", "leader", "workers", WINDOW, "true"),
        ("fallback", "fallback", "workers", WINDOW, "true"),
        ("spill", "spill", "spill", WINDOW, "true"),
        ("wide", "off", "workers", RUN_AHEAD, "false"),
        ("wide-a2tp", "off", "workers", RUN_AHEAD, "true"),
        ("again", "off", "workers", WINDOW, "true")]
BASELINES = ["off", "wide", "wide-a2tp"]
QUICK_WAYS = [*BASELINES, "leader", "spill"]

# MiB/s and bytes of a worker's gradients. A gradient takes 4 s, or 1 s with --quick, of a worker
# that nothing slows. One rotation takes the same time.
RATE = 16
GRADIENT = 64 << 20
QUICK_GRADIENT = 16 << 20
ITERATIONS = 2
# A rate without pauses: as fast as the machine can.
FULL_RATE = 1e5
FULL_ITERATIONS = 20
FULL_GRADIENT = 16 << 20
FULL_TURNS = 5

RUN_DEADLINE_S = 300
STATUS_PAUSE_S = 0.1


def patterns(period_ms, quick):
    """Returns (pattern, severity) of the points."""
    if quick:
        return [("none", 1), (f"rotating:4:{period_ms}ms", 4)]
    points = [("none", 1)]
    for severity in (2, 4, 8):
        points.append((f"rotating:{severity}:{period_ms}ms", severity))
    points += [(f"rotating:4:{4 * period_ms}ms", 4), (f"random:4:{period_ms}ms", 4),
               ("permanent:4", 4), ("link:4", 4)]
    return points


class Way:
    def __init__(self, build, folder, name, help_, home, window, aggregator_window):
        self.name = name
        folder.mkdir()
        self.switch = Switch(build, folder, CONFIG, help=help_, home=home, window=window,
                             run_ahead=RUN_AHEAD, aggregator_window=aggregator_window)
        self.build = build

    def run(self, ranks, pattern, seed, gradient, rate, iterations):
        """Returns iteration times of the slowest rank, and samples of the slots held."""
        # Workers by shared memory run no further ahead than 1 MiB, unless they ask for more.
        commands = [["env", f"INA_WINDOW_BYTES={16 << 20}",
                     str(self.build / "bench/ina-straggle"), "--url", f"shm:{self.switch.socket}",
                     "--rank", str(rank), "--ranks", str(ranks), "--bytes", str(gradient),
                     "--rate", str(rate), "--iterations", str(iterations),
                     "--straggle", pattern, "--seed", str(seed)] for rank in range(ranks)]
        with Ranks(commands, f"{self.name}, {pattern}") as running:
            held = self.watch(running)
            reports = running.reports(RUN_DEADLINE_S)
        if any(report["wrong_elements"] for report in reports):
            raise BenchError(f"{self.name}, {pattern}: wrong sums")
        return stats.slowest([report["iterations_s"] for report in reports]), held

    def watch(self, ranks):
        """Samples, now and then, the slots that the job holds while it runs."""
        held = []
        deadline = time.monotonic() + RUN_DEADLINE_S
        while ranks.all_run():
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: no result within {RUN_DEADLINE_S} s")
            for job in self.switch.status()["jobs"]:
                if job["state"] == "running":
                    held.append(job["slots_held"])
            time.sleep(STATUS_PAUSE_S)
        return held

    def parked(self):
        return self.switch.status()["aggregator"]["parked"]


def measure(ways, options, meta):
    gradient = QUICK_GRADIENT if options.quick else GRADIENT
    period_ms = round(1000 * gradient / (1 << 20) / RATE / options.ranks)
    meta |= {"ranks": options.ranks, "rounds": options.rounds, "gradient_bytes": gradient,
             "rate_mib_s": RATE, "window": WINDOW, "run_ahead": RUN_AHEAD}
    samples = {}
    for round_ in range(options.rounds):
        for pattern, severity in patterns(period_ms, options.quick):
            for way in ways:
                if way.name == "again" and severity > 1:
                    continue
                before = way.parked()
                times, held = way.run(options.ranks, pattern, 1 + round_, gradient, RATE,
                                      ITERATIONS)
                add(samples, (way.name, pattern, severity), times, held, way.parked() - before)
        # No worker is slow, and cores are scarce: help must cost nothing here.
        for way in ways * FULL_TURNS:
            before = way.parked()
            times, held = way.run(options.ranks, "none", 1, FULL_GRADIENT, FULL_RATE,
                                  FULL_ITERATIONS)
            add(samples, (way.name, "full rate", 1), times[1:], held, way.parked() - before)
    return [point_of(*key, **value) for key, value in samples.items()]


def add(samples, key, times, held, parked):
    sample = samples.setdefault(key, {"times": [], "held": [], "parked": 0, "rounds": []})
    sample["times"] += times
    sample["rounds"].append(statistics.median(times))
    sample["held"] += held
    sample["parked"] += parked
    print(f"  {key[0]:<10}{key[1]:<18}{statistics.mean(times):8.3f} s  parked {parked}",
          file=sys.stderr, flush=True)


def point_of(way, pattern, severity, times, held, parked, rounds):
    mean = statistics.mean(times)
    return {"way": way, "pattern": pattern, "severity": severity, "iteration_s": mean,
            "throughput_per_s": 1 / mean,
            "slots_held": statistics.mean(held) if held else None, "parked": parked,
            "round_medians_s": [round(value, 5) for value in rounds],
            "samples_s": [round(value, 5) for value in times]}


def summary(points):
    """Returns the figures of the targets."""
    def of(way, pattern):
        return next(p for p in points if (p["way"], p["pattern"]) == (way, pattern))
    helped = [p for p in points if p["way"] not in (*BASELINES, "again")]
    ratios = [p["iteration_s"] / min(of(way, p["pattern"])["iteration_s"] for way in BASELINES)
              for p in helped if p["severity"] > 1]
    best = min(ratios)

    def overhead(p):
        off = of("off", p["pattern"])
        return statistics.median(on / off for on, off in zip(p["round_medians_s"],
                                                             off["round_medians_s"])) - 1
    return {"best_iteration_reduction": 1 - best, "best_throughput_gain": 1 / best,
            "no_straggler_overhead": max(overhead(p) for p in helped if p["severity"] == 1),
            "no_straggler_noise": max((abs(overhead(p)) for p in points if p["way"] == "again"),
                                      default=None)}


def links_summary(rows):
    """Returns the figures of the targets, from patterns over links that change."""
    best = max(saved for row in rows if row["pattern"] != "none" for saved in row["reduction"].values())
    return {"best_iteration_reduction": best, "best_throughput_gain": 1 / (1 - best),
            "no_straggler_overhead": max(-saved for row in rows if row["pattern"] == "none"
                                         for saved in row["reduction"].values())}


def print_points(points):
    print(f"{'pattern':<18}{'way':<10}{'iteration s':>12}{'of off':>8}{'slots held':>12}"
          f"{'parked':>10}")
    for pattern in dict.fromkeys(p["pattern"] for p in points):
        rows = [p for p in points if p["pattern"] == pattern]
        for p in rows:
            held = "" if p["slots_held"] is None else f"{p['slots_held']:.0f}"
            print(f"{pattern:<18}{p['way']:<10}{p['iteration_s']:>12.3f}"
                  f"{p['iteration_s'] / rows[0]['iteration_s']:>8.2f}{held:>12}{p['parked']:>10}")


def measure_shm(options, meta):
    """Returns the keys of the part over the shm port."""
    build = options.build.resolve()
    with temporary_folder() as folder:
        ways = []
        try:
            for way in WAYS:
                if options.quick and way[0] not in QUICK_WAYS:
                    continue
                ways.append(Way(build, folder / way[0], *way))
            for way in ways:
                way.switch.wait_until_ready()
            points = measure(ways, options, meta)
        finally:
            for way in ways:
                way.switch.stop()
    print_points(points)
    result = summary(points)
    print(f"\niteration time down by {100 * result['best_iteration_reduction']:.0f} % at best, "
          f"throughput {result['best_throughput_gain']:.2f}x; without a straggler "
          f"{100 * result['no_straggler_overhead']:+.1f} %\n")
    return {"points": points} | result


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--part", choices=("shm", "links", "both"),
                        help="over the shm port, over links that change, both (as root: both, links with --quick)")
    parser.add_argument("--ranks", type=int, default=8, help="over the shm port")
    parser.add_argument("--rounds", type=int, help="3, 1 in --quick")
    parser.add_argument("--quick", action="store_true", help="two patterns, less than a minute")
    options = command_line.parse(parser)
    rounds = options.rounds
    options.rounds = rounds or (1 if options.quick else 3)
    if not options.part and os.geteuid() == 0:
        options.part = "links" if options.quick else "both"
    options.part = options.part or "shm"
    if options.part != "shm":
        testbed.require_root()
    meta = metadata.measured("straggler")
    found = {} if options.part == "links" else measure_shm(options, meta)
    if options.part != "shm":
        with temporary_folder() as folder:
            links = straggler_links.measure(options.build.resolve(), folder, options.quick, rounds)
        found = links_summary(links["patterns"]) | links | found
    results.write(options, {"meta": meta} | found)
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_straggler", *testbed.ERRORS)
