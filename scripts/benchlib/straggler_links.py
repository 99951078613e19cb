"""The part of bench_straggler.py with hosts: links that change while gradients are on them.

Each worker is a process on a host of its own, a network namespace joined to the switch by a veth
pair that tbf shapes both ways (benchlib/shaped.py). Gradients are ready to go, and as large as
their staging memory: the links are the bottleneck. One uplink at a time is slower for a turn, then
the next one's (rotating), or always the first one's (permanent).

Baselines park nothing. `off` has windows of 64 or 128 KiB. `run-ahead` may have in the switch as
much as the ways of help may run ahead, with A2TP's window and without. All have the same slots.
Each is judged at its best setting, and reductions are against the better of the two baselines, in
the same round. `switch home` is an ablation: run-ahead with the fallback in the switch, nothing
parked.
"""

import dataclasses
import json
import shlex
import statistics
import subprocess
import time

from benchlib import stats
from benchlib.errors import BenchError
from benchlib.machine import cpu_times
from benchlib.shaped import ShapedBed
from benchlib.switch import status

RATE_MBIT = 50
QUEUE_MS = 20
# A host's own queue is no smaller than a socket's buffer: the socket waits, and loses nothing.
UPLINK_QUEUE_MS = 100
SLOT_BYTES = 1344
SLOTS = 128
RANKS = 4
OTHER_RANKS = 2  # of the second job
GRADIENT = 8 << 20
ITERATIONS = 3
QUICK_GRADIENT = 4 << 20
QUICK_ITERATIONS = 1
ROUNDS = 3
PERIOD_MS = 200
RUN_AHEAD_KIB = 4096
PATIENCE_MS = 20  # the daemon's default
RUN_DEADLINE_S = 120
STATUS_PAUSE_S = 0.25

CONFIG = """\
aggregator: {{policy: esa, slot_bytes: {slot_bytes}, slots: {slots}}}
congestion: {{aggregator_window: {aggregators}}}
jobs: {{window_bytes: {window_kib} KiB}}
fallback: {{home: {home}}}
straggler: {{help: {help}, run_ahead: {run_ahead_kib} KiB, patience: {patience_ms} ms}}
switch: {{idle: backoff}}
"""


@dataclasses.dataclass(frozen=True)
class Way:
    """The switch's settings: a way of help, or a variant of a baseline."""
    name: str
    help: str = "off"
    home: str = "workers"
    window_kib: int = 128
    aggregators: bool = True

    def config(self):
        return CONFIG.format(slot_bytes=SLOT_BYTES, slots=SLOTS, run_ahead_kib=RUN_AHEAD_KIB,
                             patience_ms=PATIENCE_MS, help=self.help, home=self.home,
                             window_kib=self.window_kib, aggregators=str(self.aggregators).lower())


BASELINES = [Way("off"), Way("off", window_kib=64),
             Way("run-ahead", window_kib=RUN_AHEAD_KIB),
             Way("run-ahead", window_kib=RUN_AHEAD_KIB, aggregators=False)]
ABLATION = Way("switch home", home="spill", window_kib=RUN_AHEAD_KIB, aggregators=False)
HELP = [Way("leader", help="leader"), Way("fallback", help="fallback"),
        Way("spill", help="spill", home="spill")]
QUICK_WAYS = [BASELINES[0], BASELINES[2], HELP[0], HELP[2]]


@dataclasses.dataclass(frozen=True)
class Pattern:
    kind: str
    factor: int = 1

    @property
    def name(self):
        return {"none": "none", "permanent": f"uplink, permanent {self.factor}x",
                "rotating": f"uplink, rotating {self.factor}x, {PERIOD_MS} ms"}[self.kind]


HEADLINE = Pattern("rotating", 4)
PATTERNS = [Pattern("none"), HEADLINE, Pattern("rotating", 2), Pattern("permanent", 4)]
QUICK_PATTERNS = [Pattern("none"), HEADLINE]


class Job:
    """The ranks of one job, on hosts of their own."""

    def __init__(self, bed, build, name, hosts, gradient, iterations):
        self.processes = []
        for rank, host in enumerate(hosts):
            command = [build / "bench/ina-straggle", "--url", bed.url("udp", host.number), "--job", name,
                       "--rank", rank, "--ranks", len(hosts), "--bytes", gradient, "--staging-bytes",
                       2 * gradient, "--rate", 1e5, "--iterations", iterations]
            self.processes.append((command, host.start(
                *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))

    def run(self):
        return all(process.poll() is None for _, process in self.processes)

    def iterations_s(self, deadline):
        """Returns iteration times, of the slowest rank each."""
        reports = []
        for command, process in self.processes:
            try:
                output, errors = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as late:
                raise BenchError(f"no end within {RUN_DEADLINE_S} s: "
                                 f"{shlex.join(map(str, command))}") from late
            if process.returncode != 0:
                raise BenchError(errors.strip())
            reports.append(json.loads(output))
        if any(report["wrong_elements"] for report in reports):
            raise BenchError("wrong sums over links that change")
        return stats.slowest([report["iterations_s"] for report in reports])

    def end(self):
        for _, process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


class Bench:
    def __init__(self, build, folder, quick):
        self.build = build
        self.folder = folder
        self.size = (QUICK_GRADIENT, QUICK_ITERATIONS) if quick else (GRADIENT, ITERATIONS)
        self.bed = ShapedBed(RANKS + OTHER_RANKS, RATE_MBIT, QUEUE_MS, UPLINK_QUEUE_MS)

    def measure(self, way, pattern, phase, jobs=("a",)):
        """Runs one turn. Returns a dictionary of figures. `jobs`: "a" has the straggler, "b" has
        none."""
        hosts = {"a": self.bed.hosts[:RANKS], "b": self.bed.hosts[RANKS:]}
        dropped = self.bed.dropped()
        self.bed.start_switch(self.build / "switchd/ina-switchd", self.folder, way.config())
        started = []
        try:
            with self.bed.uplinks(hosts["a"]) as uplinks:
                if pattern.kind == "rotating":
                    uplinks.rotate(pattern.factor, PERIOD_MS / 1e3, phase)
                elif pattern.kind == "permanent":
                    uplinks.set_rate(0, 1 / pattern.factor)
                idle, all_ = cpu_times()
                started = [Job(self.bed, self.build, name, hosts[name], *self.size) for name in jobs]
                held = self.watch(started)
                deadline = time.monotonic() + RUN_DEADLINE_S
                times = {name: job.iterations_s(deadline) for name, job in zip(jobs, started)}
                idle, all_ = (now - before for now, before in zip(cpu_times(), (idle, all_)))
            after = status(self.build, self.bed.socket)["aggregator"]
        finally:
            for job in started:
                job.end()
            self.bed.stop_switch()
        fragments = sum(-(-self.size[0] // SLOT_BYTES) * self.size[1] for _ in jobs)
        return {"times": times, "cpu_idle": idle / max(1, all_),
                "slots_held": statistics.mean(held) if held else 0,
                "parked": after["parked"] / fragments,
                "by_fallback": after["fallback_results"] / fragments,
                "link_drops": self.bed.dropped() - dropped}

    def watch(self, jobs):
        """Samples the slots held, now and then, while all jobs run."""
        held = []
        deadline = time.monotonic() + RUN_DEADLINE_S
        while all(job.run() for job in jobs):
            if time.monotonic() > deadline:
                raise BenchError(f"no result within {RUN_DEADLINE_S} s")
            held += [job["slots_held"] for job in status(self.build, self.bed.socket)["jobs"]
                     if job["state"] == "running"]
            time.sleep(STATUS_PAUSE_S)
        return held


def settings(quick):
    return QUICK_WAYS if quick else [*BASELINES, ABLATION, *HELP]


def compare(pattern, turns):
    """Returns one pattern's row. `turns`: the turns of all rounds, by setting."""
    def times(way):
        return [statistics.mean(turn["times"]["a"]) for turn in turns[way]]

    chosen = {}
    for way in turns:
        if way.name not in chosen or (statistics.median(times(way)) <
                                      statistics.median(times(chosen[way.name]))):
            chosen[way.name] = way
    medians = {name: statistics.median(times(way)) for name, way in chosen.items()}
    baseline = min(("off", "run-ahead"), key=medians.get)

    def against(name, other):
        return statistics.median(a / b for a, b in zip(times(chosen[name]), times(chosen[other])))

    helped = [way.name for way in HELP if way.name in chosen]
    figures = ("cpu_idle", "slots_held", "parked", "by_fallback", "link_drops")
    return {
        "name": pattern.name, "pattern": pattern.kind, "factor": pattern.factor,
        "period_ms": PERIOD_MS, "slots": SLOTS, "rounds": len(turns[chosen["off"]]),
        "baseline": baseline,
        "settings": {name: {"window_kib": way.window_kib, "aggregator_window": way.aggregators}
                     for name, way in chosen.items()},
        "iteration_s": medians,
        "iteration_s_by_round": {name: times(way) for name, way in chosen.items()},
        "reduction": {name: 1 - against(name, baseline) for name in helped},
        "gain": {name: 1 / against(name, baseline) for name in helped},
        "against_off": {name: against(name, "off") - 1 for name in helped},
    } | {figure: {name: statistics.median(turn[figure] for turn in turns[way])
                  for name, way in chosen.items()} for figure in figures}


def show(row):
    print(f"{row['name']:<30}" + "  ".join(f"{name} {seconds:.2f}" for name, seconds in
                                           row["iteration_s"].items()) +
          "   saved " + ", ".join(f"{name} {saved:.0%}" for name, saved in row["reduction"].items()) +
          f"   CPU idle {min(row['cpu_idle'].values()):.0%}..{max(row['cpu_idle'].values()):.0%}",
          flush=True)


def second_job(bench, chosen, rounds):
    """Returns both jobs' times, and job B's alone. `chosen`: the best setting of each way."""
    rows = []
    runs = [("alone", chosen["off"], Pattern("none"), ("b",))]
    runs += [(name, way, HEADLINE, ("a", "b")) for name, way in chosen.items()]
    turns = {name: [] for name, *_ in runs}
    for round_ in range(rounds):
        for name, way, pattern, jobs in runs:
            turns[name].append(bench.measure(way, pattern, phase_of(round_), jobs))
    for name, way, *_ in runs:
        def median(job):
            found = [statistics.mean(turn["times"][job]) for turn in turns[name] if job in turn["times"]]
            return statistics.median(found) if found else None
        rows.append({"slots": SLOTS, "help": name, "straggling_s": median("a"), "other_s": median("b"),
                     "cpu_idle": statistics.median(turn["cpu_idle"] for turn in turns[name])})
        own = rows[-1]["straggling_s"]
        print(f"beside another job: {name:<12} A {'' if own is None else f'{own:.2f}'} "
              f"B {rows[-1]['other_s']:.2f}", flush=True)
    return rows


def phase_of(round_):
    return round_ * 0.618034 % 1


def measure(build, folder, quick, rounds):
    """Returns the keys of this part for the benchmark's result."""
    bench = Bench(build, folder, quick)
    rounds = rounds or (1 if quick else ROUNDS)
    with bench.bed:
        rows, headline = [], None
        for pattern in QUICK_PATTERNS if quick else PATTERNS:
            turns = {way: [] for way in settings(quick)}
            for round_ in range(rounds):
                for way, taken in turns.items():
                    taken.append(bench.measure(way, pattern, phase_of(round_)))
            rows.append(compare(pattern, turns))
            show(rows[-1])
            if pattern == HEADLINE:
                best = rows[-1]["settings"]
                headline = {way.name: way for way in turns
                            if best[way.name] == {"window_kib": way.window_kib,
                                                  "aggregator_window": way.aggregators}}
        second = second_job(bench, headline, rounds)
    return {"links": {"ranks": RANKS, "rate_mbit": RATE_MBIT, "gradient_bytes": bench.size[0],
                      "iterations": bench.size[1], "slots": SLOTS, "slot_bytes": SLOT_BYTES,
                      "run_ahead_kib": RUN_AHEAD_KIB, "patience_ms": PATIENCE_MS,
                      "period_ms": PERIOD_MS},
            "patterns": rows, "second_job": second}
