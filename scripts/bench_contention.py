#!/usr/bin/env python3
"""Jobs that share a small array over a network: compares the allocation policies by the jobs'
completion times, on real processes.

    bench_contention.py --build FOLDER [--jobs 3] [--rate-mbit 100] [--home workers|dedicated|both]
                        [--rounds N] [--quick] [--json FILE]

Each worker is a process on a host of its own: a network namespace, joined to the switch by a veth
pair that tbf shapes both ways (tests/net/namespaces.py). The links are meant to be
the bottleneck: beside each figure is the share of the time in which the processor was idle. The fallback
is at the workers (fallback.home: workers), or in a server for all jobs, ina-psd, on one more host
with a link of the same rate (fallback.home: dedicated). A job computes (sleeps), then sums its
layers' gradients, and waits for all sums. While a job is alone on its links, communication takes
the stated share of computation. Workers check every element of every sum.

The numbers of slots are multiples of the bandwidth-delay product of one link, from its rate and the
time of one fragment's sum on an idle network. In each round all settings take turns. The settings
are esa as shipped; fcfs with A2TP's window, and four ways or one; fcfs without it, one way, and a window
of 512 fragments or one as large as the bandwidth-delay product (or 64 KiB, the least that a
configuration may have); and static. An array of fewer than four slots has fewer ways. A speedup compares esa with fcfs, at the best setting of
fcfs for that number of slots and home: the ratio of fcfs's average completion time to esa's in the
same round, as the median over the rounds. Above 1 esa is faster.

--json writes {"meta", "workload", "points": [{"home", "slots", "policy", "setting", "avg_jct_s",
"cpu_idle", ...}], "speedups": [...], "best_speedup", "worst_speedup"}.
"""

import contextlib
import json
import select
import shlex
import statistics
import time

from benchlib import command_line, metadata, results, stats, testbed
from benchlib.errors import BenchError
from benchlib.machine import cpu_times
from benchlib.processes import temporary_folder
from benchlib.shaped import ShapedBed
from benchlib.switch import status
from benchlib.testbed import require_root

RATE_MBIT = 100
SLOT_BYTES = 1344
# with the headers of the protocol and the network, and the gap between frames
FRAME_BYTES = 1344 + 40 + 42 + 24
WINDOW = 512  # fragments
LEAST_WINDOW = -(-(64 << 10) // SLOT_BYTES)  # the least jobs.window_bytes, in fragments
RANKS = 2
LAYERS = 4
LAYER_BYTES = 128 << 10
# For each job: communication / computation, and iterations; all jobs take about as long.
JOBS = [(1.0, 16), (0.5, 12), (0.2, 5), (1.0, 16)]
MULTIPLES = (0.5, 1, 2, 4, 8)  # of the bandwidth-delay product
ROUNDS = 10
QUEUE_MS = 20  # the length of a link's queue; further frames are dropped

# Name, aggregator.policy, aggregator.ways, congestion.aggregator_window, window: the largest, or
# the bandwidth-delay product if a configuration may have that.
SETTINGS = [
    ("esa", "esa", 4, True, "large"),
    ("fcfs, as esa", "fcfs", 4, True, "large"),
    ("fcfs", "fcfs", 1, False, "large"),
    ("fcfs+window", "fcfs", 1, True, "large"),
    ("fcfs, small window", "fcfs", 1, False, "small"),
    ("static", "static", 1, False, "large"),
]
QUICK = {"settings": ("esa", "fcfs", "fcfs, as esa"), "multiples": (1,), "rounds": 2}
HOMES = {"workers": ("workers",), "dedicated": ("dedicated",), "both": ("workers", "dedicated")}

START_DEADLINE_S = 30
RUN_DEADLINE_S = 120
# Time between the start order and the start, in which the order reaches all workers.
LEAD_NS = 50_000_000


def config_of(setting, slots, jobs, bdp, home):
    _, policy, ways, window, size = setting
    ways = min(ways, 1 << slots.bit_length() - 1)
    fragments = WINDOW if size == "large" else max(LEAST_WINDOW, round(bdp))
    return (f"aggregator: {{policy: {policy}, ways: {ways}, slot_bytes: {SLOT_BYTES}, "
            f"slots: {slots}}}\n"
            f"static: {{slots_per_job: {max(2, slots // jobs // 2 * 2)}}}\n"
            f"congestion: {{aggregator_window: {str(window).lower()}}}\n"
            f"jobs: {{window_bytes: {fragments * SLOT_BYTES}}}\n"
            f"fallback: {{home: {home}}}\n"
            "recovery: {rto_min: 20 ms}\n"
            "switch: {idle: backoff}\n")


class Worker:
    """A running ina-contention on a host."""

    def __init__(self, host, command):
        self.command = command
        self.process = host.start(*command, stdin=-1, stdout=-1, stderr=-1, text=True)

    def line(self, deadline):
        """Returns the worker's next line."""
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self.process.stdout], [], [], left)[0]:
            raise BenchError(f"nothing heard from: {shlex.join(self.command)}")
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"{shlex.join(self.command)} ended with status "
                             f"{self.process.wait()}: {self.process.stderr.read().strip()}")
        return line

    def say(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Network:
    """Hosts, links, and a switch for each turn. `server`: the last host belongs to a fallback
    server."""

    def __init__(self, build, jobs, rate_mbit, folder, server):
        self.build = build
        self.jobs = jobs
        self.rate_mbit = rate_mbit
        self.folder = folder
        self.bed = ShapedBed(jobs * RANKS + server, rate_mbit, QUEUE_MS)

    def command(self, job, rank, ratio, iterations, layer_bytes=LAYER_BYTES):
        number = job * RANKS + rank
        alone_s = LAYERS * layer_bytes / SLOT_BYTES * FRAME_BYTES * 8 / (self.rate_mbit * 1e6)
        return self.bed.hosts[number], [
            str(self.build / "bench/ina-contention"), "--url", self.bed.url("udp", number),
            "--job", f"job{job}", "--rank", str(rank), "--ranks", str(RANKS),
            "--layers", str(LAYERS), "--layer-bytes", str(layer_bytes),
            "--compute-us", str(round(alone_s / ratio * 1e6)) if ratio else "0",
            "--iterations", str(iterations)]

    def run(self, commands):
        """Returns the workers' reports, in the order of the commands."""
        workers = []
        try:
            for host, command in commands:
                workers.append(Worker(host, command))
            deadline = time.monotonic() + START_DEADLINE_S
            for worker in workers:
                worker.line(deadline)
            start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + LEAD_NS
            for worker in workers:
                worker.say(f"{start_ns}\n")
            deadline = time.monotonic() + RUN_DEADLINE_S
            return [json.loads(worker.line(deadline)) for worker in workers]
        finally:
            for worker in workers:
                worker.end()

    @contextlib.contextmanager
    def serving(self, config, home):
        """Runs a switch with this configuration and, for home "dedicated", a fallback server."""
        self.bed.start_switch(self.build / "switchd/ina-switchd", self.folder, config)
        server = None
        try:
            if home == "dedicated":
                server = self.start_server()
            yield
        finally:
            if server:
                server.terminate()
                server.wait(START_DEADLINE_S)
            self.bed.stop_switch()

    def start_server(self):
        host = self.bed.hosts[-1]
        with open(self.folder / "psd.log", "w", encoding="utf-8") as log:
            return host.start(self.build / "programs/psd/ina-psd", "--url",
                              self.bed.url("udp", host.number), stderr=log)

    def round_trip_s(self):
        """Returns the time of one fragment's sum on an idle network."""
        with self.serving(config_of(SETTINGS[1], 1024, 1, 64, "workers"), "workers"):
            iterations = 400
            reports = self.run([self.command(0, rank, 0, iterations, 1024)
                                for rank in range(RANKS)])
            # The link carries the four layers, of one fragment each, one after another.
            wire_s = (LAYERS - 1) * 1100 * 8 / (self.rate_mbit * 1e6)
            return max(r["seconds"] for r in reports) / iterations - wire_s

    def measure(self, home, setting, slots, bdp, divisor):
        """Runs one turn. Returns a flat dictionary of numbers."""
        jobs = [(ratio, max(2, iterations // divisor)) for ratio, iterations in JOBS[:self.jobs]]
        dropped = self.bed.dropped()
        with self.serving(config_of(setting, slots, self.jobs, bdp, home), home):
            idle, all_ = cpu_times()
            reports = self.run([self.command(job, rank, *jobs[job])
                                for job in range(self.jobs) for rank in range(RANKS)])
            idle, all_ = (now - before for now, before in zip(cpu_times(), (idle, all_)))
            after = status(self.build, self.bed.socket)["aggregator"]
        took = [max(r["seconds"] for r in reports[job * RANKS:(job + 1) * RANKS])
                for job in range(self.jobs)]
        results = after["results"] + after["fallback_results"]
        fragments = LAYERS * -(-LAYER_BYTES // SLOT_BYTES)
        expected = sum(fragments * iterations for _, iterations in jobs)
        if results < expected:
            raise BenchError(f"{home}, {setting[0]}, {slots} slots: {results} results, but the jobs' sums "
                             f"have {expected} fragments")
        return {"avg_jct_s": statistics.mean(took), "jct_s": took,
                "cpu_idle": idle / max(1, all_), "preemptions": after["preemptions"],
                "fallback_result_share": after["fallback_results"] / results,
                "slots_used_peak": after["slots_used_peak"],
                "link_drops": self.bed.dropped() - dropped,
                "queries": sum(r["queries"] for r in reports)}


def combine(home, name, policy, slots, multiple, turns):
    """Returns a point: medians over the rounds."""
    point = {"home": home, "slots": slots, "bdp_multiple": multiple, "policy": policy,
             "setting": name}
    point |= stats.medians(turns, leave_out=("jct_s",))
    return point | {"avg_jct_s_by_round": [turn["avg_jct_s"] for turn in turns]}


def speedup(points):
    """Returns the speedups among points of one home and number of slots."""
    esa = next(p for p in points if p["policy"] == "esa")["avg_jct_s_by_round"]

    def to_esa(policy):
        found = {p["setting"]: [a / b for a, b in zip(p["avg_jct_s_by_round"], esa)]
                 for p in points if p["policy"] == policy}
        name = min(found, key=lambda key: statistics.median(found[key]), default=None)
        return name, sorted(found.get(name, []))
    name, by_round = to_esa("fcfs")
    _, to_static = to_esa("static")
    return {"home": points[0]["home"], "slots": points[0]["slots"], "fcfs_setting": name,
            "esa_vs_fcfs_best": statistics.median(by_round), "least": by_round[0],
            "most": by_round[-1],
            "esa_vs_static": statistics.median(to_static) if to_static else None}


HEADER = (f"{'home':<9} {'slots':>5} {'x BDP':>5}  {'setting':<27}{'avg JCT s':>9} {'CPU idle':>9} "
          f"{'fallback':>9} {'drops':>6} {'queries':>8}")


def print_point(p):
    print(f"{p['home']:<9} {p['slots']:5d} {p['bdp_multiple']:5g}  {p['setting']:<27}{p['avg_jct_s']:9.3f} "
          f"{p['cpu_idle']:9.0%} {p['fallback_result_share']:9.1%} {p['link_drops']:6.0f} "
          f"{p['queries']:8.0f}", flush=True)


def sweep(network, options):
    """Returns the points, the round trip, and the bandwidth-delay product in fragments."""
    settings = [s for s in SETTINGS if not options.quick or s[0] in QUICK["settings"]]
    multiples = QUICK["multiples"] if options.quick else MULTIPLES
    rounds = options.rounds or (QUICK["rounds"] if options.quick else ROUNDS)
    round_trip_s = network.round_trip_s()
    bdp = options.rate_mbit * 1e6 / 8 * round_trip_s / FRAME_BYTES
    print(f"one fragment's sum takes {round_trip_s * 1e6:.0f} us, so that {bdp:.1f} fragments are "
          f"under way\n\n{HEADER}")
    points = []
    sizes = {max(1, round(multiple * bdp)): multiple for multiple in multiples}
    for slots, multiple in sizes.items():
        # Under static each job has a piece of the array; there must be enough slots for that.
        turns = {(home, setting): [] for home in HOMES[options.home] for setting in settings
                 if setting[1] != "static" or slots >= 2 * options.jobs}
        for _ in range(rounds):
            for (home, setting), taken in turns.items():
                taken.append(network.measure(home, setting, slots, bdp, 4 if options.quick else 1))
        for (home, setting), taken in turns.items():
            points.append(combine(home, setting[0], setting[1], slots, multiple, taken))
            print_point(points[-1])
    return points, round_trip_s, bdp


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=3, choices=range(2, len(JOBS) + 1))
    parser.add_argument("--rate-mbit", type=int, default=RATE_MBIT)
    parser.add_argument("--home", choices=HOMES, help="of the fallback (both; --quick: workers)")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer of all, below a minute")
    options = command_line.parse(parser)
    options.home = options.home or ("workers" if options.quick else "both")
    require_root()
    meta = metadata.measured("contention")
    with temporary_folder() as folder:
        network = Network(options.build.resolve(), options.jobs, options.rate_mbit, folder,
                          "dedicated" in HOMES[options.home])
        with network.bed:
            points, round_trip_s, bdp = sweep(network, options)
    speedups = [speedup([p for p in points if (p["home"], p["slots"]) == place])
                for place in dict.fromkeys((p["home"], p["slots"]) for p in points)]
    print("\nhow many times shorter with esa than with fcfs at its best")
    for row in speedups:
        static = "" if row["esa_vs_static"] is None else f"; static {row['esa_vs_static']:.2f}"
        print(f"{row['home']:<9} {row['slots']:5d} slots: {row['esa_vs_fcfs_best']:.2f} ({row['least']:.2f} .. "
              f"{row['most']:.2f}), {row['fcfs_setting']}{static}")
    result = {"meta": meta,
              "workload": {"jobs": JOBS[:options.jobs], "ranks": RANKS, "layers": LAYERS,
                           "layer_bytes": LAYER_BYTES, "slot_bytes": SLOT_BYTES,
                           "rate_mbit": options.rate_mbit, "round_trip_s": round_trip_s,
                           "bdp_fragments": bdp},
              "points": points, "speedups": speedups,
              "best_speedup": max(row["esa_vs_fcfs_best"] for row in speedups),
              "worst_speedup": min(row["esa_vs_fcfs_best"] for row in speedups)}
    results.write(options, result)
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_contention", *testbed.ERRORS)
