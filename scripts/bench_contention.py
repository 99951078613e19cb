#!/usr/bin/env python3
"""Two jobs on a small array: compares the allocation policies by the jobs' completion times.

    bench_contention.py --build FOLDER [--slots 8,32,...] [--repetitions N] [--quick] [--json FILE]

For each number of slots, and in turn for each policy (A B C A B C, so that what else the machine
does meets all alike), starts a fresh ina-switchd in a temporary folder and the workers of two jobs,
real processes over the shm port, that begin at the same moment: `heavy` spends most of its time in
communication, `light` most of it computing, which is a sleep here. Workers check every element of
every sum. Reports medians over the repetitions: completion times, what the aggregators did, and how
often workers had to ask for results.

--json writes {"meta", "workload", "policies": [a row for each policy and number of slots],
"esa_speedup_vs_fcfs": geometric mean over the slots, "esa_speedup_vs_fcfs_by_slots"}; a speedup is
the ratio of average completion times, above 1 where esa is faster.
"""

import argparse
import json
import math
import os
import pathlib
import select
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bench_allreduce
from bench_allreduce import BenchError
from outputs import result_file

POLICIES = ["static", "fcfs", "esa"]
SLOTS = [8, 32, 128, 512, 2048]
QUICK_SLOTS = [8, 128, 2048]
REPETITIONS = 5
QUICK_REPETITIONS = 3

SLOT_BYTES = 1024
WINDOW_BYTES = 256 << 10
JOBS = {
    "heavy": {"ranks": 2, "layers": 4, "layer_bytes": 256 << 10, "compute_us": 1000,
              "iterations": 200},
    "light": {"ranks": 2, "layers": 4, "layer_bytes": 64 << 10, "compute_us": 8000,
              "iterations": 60},
}
QUICK_ITERATIONS_DIVISOR = 2

# Each policy gets the same windows and time-outs. The static pools are as large as two jobs can
# have them.
CONFIG = """\
aggregator:
  slot_bytes: {slot_bytes}
  slots: {slots}
  policy: {policy}
static:
  slots_per_job: {slots_per_job}
jobs:
  window_bytes: {window_bytes}
recovery:
  rto_min: 2 ms
control:
  socket: "{socket}"
ports:
  - name: shm0
    type: shm
log:
  level: warning
"""

SAMPLE_INTERVAL_S = 0.02
START_DEADLINE_S = 20
RUN_DEADLINE_S = 120
# Between the word to start and the start: long enough for all workers to have heard it.
LEAD_NS = 20_000_000


class Refused(Exception):
    """A job was not admitted."""


class Switch(bench_allreduce.Switch):
    """Asked often, while it is measured."""

    def status(self):
        """What `inactl status -j` prints, asked for directly: samples must cost little."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(START_DEADLINE_S)
            connection.connect(str(self.socket))
            connection.send(b'{"type": "status"}')
            _, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 1)
        with os.fdopen(descriptors[0], "rb") as content:
            content.seek(0)
            return json.load(content)


class Worker:
    """A running ina-contention."""

    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def line(self, deadline):
        """The next line it says."""
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self.process.stdout], [], [], left)[0]:
            raise BenchError(f"nothing heard from: {shlex.join(self.command)}")
        line = self.process.stdout.readline()
        if line:
            return line
        text = self.process.stderr.read().strip()
        if "INA_ERR_REFUSED" in text:
            raise Refused(text)
        raise BenchError(f"{shlex.join(self.command)} ended with status {self.process.wait()}: "
                         f"{text}")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def worker_commands(build, switch, iterations_divisor):
    commands = []
    for name, job in JOBS.items():
        for rank in range(job["ranks"]):
            commands.append((name, [
                str(build / "bench/ina-contention"), "--url", f"shm:{switch.socket}",
                "--job", name, "--rank", str(rank), "--ranks", str(job["ranks"]),
                "--layers", str(job["layers"]), "--layer-bytes", str(job["layer_bytes"]),
                "--compute-us", str(job["compute_us"]),
                "--iterations", str(job["iterations"] // iterations_divisor)]))
    return commands


def run_jobs(build, switch, iterations_divisor):
    """One run of both jobs: the workers' reports by job, and samples of the status."""
    workers = []
    samples = []
    try:
        for name, command in worker_commands(build, switch, iterations_divisor):
            workers.append((name, Worker(command)))
        deadline = time.monotonic() + START_DEADLINE_S
        for _, worker in workers:
            worker.line(deadline)
        start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + LEAD_NS
        for _, worker in workers:
            worker.process.stdin.write(f"{start_ns}\n")
            worker.process.stdin.flush()
        time.sleep(LEAD_NS * 1e-9)
        deadline = time.monotonic() + RUN_DEADLINE_S
        while any(worker.process.poll() is None for _, worker in workers):
            if time.monotonic() > deadline:
                raise BenchError(f"no end within {RUN_DEADLINE_S} s; the switch says: "
                                 + json.dumps(switch.status()))
            samples.append(switch.status())
            time.sleep(SAMPLE_INTERVAL_S)
        reports = {name: [] for name in JOBS}
        for name, worker in workers:
            reports[name].append(json.loads(worker.line(deadline)))
        return reports, samples
    finally:
        for _, worker in workers:
            worker.end()


def measure(build, policy, slots, iterations_divisor):
    """One repetition: a flat dictionary of numbers, or why a job was refused."""
    with tempfile.TemporaryDirectory(prefix="ina-bench-") as folder:
        switch = Switch(build, pathlib.Path(folder), CONFIG, slot_bytes=SLOT_BYTES, slots=slots,
                        policy=policy, slots_per_job=max(2, slots // 4 * 2),
                        window_bytes=WINDOW_BYTES)
        try:
            switch.wait_until_ready()
            try:
                reports, samples = run_jobs(build, switch, iterations_divisor)
            except Refused as refusal:
                return {"refused": str(refusal)}
            after = switch.status()["aggregator"]
        finally:
            switch.stop()
    jct_s = {name: max(r["seconds"] for r in of_job) for name, of_job in reports.items()}
    everybody = [report for of_job in reports.values() for report in of_job]
    # Slots are contended only while both jobs run.
    both = [s["aggregator"]["slots_used"] for s in samples if len(s["jobs"]) == len(JOBS)]
    results = after["results"] + after["fallback_results"]
    expected = sum(
        math.ceil(job["layer_bytes"] / SLOT_BYTES) * job["layers"]
        * (job["iterations"] // iterations_divisor) + 1  # and the barrier
        for job in JOBS.values())
    if results < expected:
        raise BenchError(f"{policy}, {slots} slots: {results} results, but the jobs' sums have "
                         f"{expected} fragments")
    found = {
        "avg_jct_s": statistics.mean(jct_s.values()),
        "jct_s": jct_s,
        "preemptions": after["preemptions"],
        "bypassed": after["bypassed"],
        "parts": after["parts"],
        "fallback_bytes": after["part_bytes"] + after["bypassed_bytes"],
        "fallback_result_share": after["fallback_results"] / results,
        "slot_utilisation": statistics.mean(both) / slots if both else 0.0,
        "slot_utilisation_peak": after["slots_used_peak"] / slots,
        "queries": sum(r["queries"] for r in everybody),
        "resent": sum(r["fragments_resent"] for r in everybody),
        "reminders": after["reminders"],
        "sleeps": sum(r["sleeps"] for r in everybody),
        "drops": sum(after["drops"].values()),
        "preempted_of": {},
        "bypassed_of": {},
    }
    # A job's own counters go when it ends; the last sample has nearly all.
    for sample in samples:
        for job in sample["jobs"]:
            found["preempted_of"][job["name"]] = job["preempted"]
            found["bypassed_of"][job["name"]] = job["bypassed"]
    return found


def combine(values):
    """Medians of numbers, key by key."""
    if isinstance(values[0], dict):
        return {key: combine([value[key] for value in values if key in value])
                for key in values[0]}
    return statistics.median(values)


def row_of(policy, slots, runs):
    for run in runs:
        if "refused" in run:
            return {"policy": policy, "slots": slots, "refused": run["refused"]}
    averages = [run["avg_jct_s"] for run in runs]
    return {"policy": policy, "slots": slots, **combine(runs),
            "avg_jct_best_s": min(averages), "avg_jct_worst_s": max(averages),
            "repetitions": len(runs), "samples": runs}


HEADER = ("slots  policy  avg JCT s    best   worst  heavy s  light s  preempted  bypassed  "
          "fallback MB  of results  slots used  (peak)  queries  reminders")


def print_row(row):
    if "refused" in row:
        print(f"{row['slots']:5d}  {row['policy']:>6}  refused: {row['refused']}", flush=True)
        return
    print(f"{row['slots']:5d}  {row['policy']:>6}  {row['avg_jct_s']:9.3f}  "
          f"{row['avg_jct_best_s']:6.3f}  {row['avg_jct_worst_s']:6.3f}  "
          f"{row['jct_s']['heavy']:7.3f}  {row['jct_s']['light']:7.3f}  "
          f"{row['preemptions']:9.0f}  {row['bypassed']:8.0f}  "
          f"{row['fallback_bytes'] / 1e6:11.1f}  {100 * row['fallback_result_share']:8.1f} %  "
          f"{100 * row['slot_utilisation']:8.1f} %  {100 * row['slot_utilisation_peak']:4.0f} %  "
          f"{row['queries']:7.0f}  {row['reminders']:9.0f}", flush=True)


def speedups(rows):
    """By slots: how many times fcfs takes as long as esa."""
    by_policy = {(row["policy"], row["slots"]): row.get("avg_jct_s") for row in rows}
    found = {}
    for policy, slots in by_policy:
        fcfs, esa = by_policy.get(("fcfs", slots)), by_policy.get(("esa", slots))
        if policy == "esa" and fcfs and esa:
            found[slots] = fcfs / esa
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--slots", help="numbers of slots to sweep, e.g. 8,128")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer of all, below a minute")
    parser.add_argument("--json", type=result_file)
    options = parser.parse_args()
    sweep = QUICK_SLOTS if options.quick else SLOTS
    if options.slots:
        sweep = [int(slots) for slots in options.slots.split(",")]
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    divisor = QUICK_ITERATIONS_DIVISOR if options.quick else 1
    policies = options.policies.split(",")
    build = options.build.resolve()
    meta = bench_allreduce.metadata("contention")

    rows = []
    print(HEADER)
    for slots in sweep:
        runs = {policy: [] for policy in policies}
        for _ in range(repetitions):
            for policy in policies:
                runs[policy].append(measure(build, policy, slots, divisor))
        for policy in policies:
            rows.append(row_of(policy, slots, runs[policy]))
            print_row(rows[-1])
    by_slots = speedups(rows)
    overall = statistics.geometric_mean(by_slots.values()) if by_slots else None
    for slots, speedup in by_slots.items():
        print(f"esa over fcfs, {slots} slots: {speedup:.2f} x")
    if overall:
        print(f"esa over fcfs, geometric mean: {overall:.2f} x")
    if options.json:
        workload = {"slot_bytes": SLOT_BYTES, "window_bytes": WINDOW_BYTES,
                    "jobs": {name: {**job, "iterations": job["iterations"] // divisor}
                             for name, job in JOBS.items()}}
        options.json.write_text(json.dumps(
            {"meta": meta, "workload": workload, "policies": rows,
             "esa_speedup_vs_fcfs": overall, "esa_speedup_vs_fcfs_by_slots": by_slots},
            indent=1) + "\n")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        sys.exit(main())
    except BenchError as error:
        print(f"bench_contention: {error}", file=sys.stderr)
        sys.exit(1)
