"""Runs ina-sim many times, side by side: its simulator is one per process. What it finds depends on
its options alone, not on the machine, so that runs may share it with other work."""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

from bench_allreduce import output_of
from outputs import result_file

RUN_DEADLINE_S = 300


class SimulationError(Exception):
    """A run failed, or its sums were wrong."""


def run(program, options):
    """One run's result; `options`: names without dashes, True for a flag."""
    command = [program, "--quiet", "--json", "-"]
    for name, value in options.items():
        if value is True:
            command.append(f"--{name}")
        elif value is not False:
            command += [f"--{name}", str(value)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise SimulationError(f"no end after {RUN_DEADLINE_S} s: {shlex.join(command)}") from None
    if done.returncode != 0:
        raise SimulationError(f"{shlex.join(command)}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    if not result["correct"]:
        raise SimulationError(f"wrong: {shlex.join(command)}")
    return result


def run_all(program, runs):
    """The results of all, in their order; as many processes as cores, or as INA_JOBS says."""
    processes = int(os.environ.get("INA_JOBS", os.cpu_count() or 1))
    done = 0

    def one(options):
        nonlocal done
        result = run(program, options)
        done += 1
        if sys.stderr.isatty():
            filled = 40 * done // len(runs)
            print(f"\r[{'=' * filled:40}] {done} of {len(runs)} runs", end="", file=sys.stderr,
                  flush=True)
        return result

    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(one, runs))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return results


class Runs:
    """Results by options; what has run is not run again."""

    def __init__(self, program):
        self.program = program
        self.results = {}

    @staticmethod
    def key(options):
        return tuple(sorted(options.items()))

    def run(self, wanted):
        new = {self.key(options): options for options in wanted}
        new = {key: options for key, options in new.items() if key not in self.results}
        self.results |= zip(new, run_all(self.program, list(new.values())))

    def of(self, options, seeds):
        return [self.results[self.key(options | {"seed": seed})] for seed in seeds]


def interval(values):
    """Mean and half of the 95 % confidence interval (Student's t)."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}.get(len(values), 2.0)
    half = t * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.mean(values), half


def speed(results):
    """What the simulator itself did; wall times depend on what else the machine does."""
    wall_s = sum(result["simulator"]["wall_s"] for result in results)
    return {
        "runs": len(results),
        "events": sum(result["simulator"]["events"] for result in results),
        "process_s": round(wall_s, 1),
        "events_per_s": round(sum(r["simulator"]["events"] for r in results) / wall_s),
        "gbit_per_wall_s": round(sum(r["simulator"]["gbit_per_wall_s"] * r["simulator"]["wall_s"]
                                     for r in results) / wall_s, 1),
    }


def parse_arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", default="build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=result_file)
    return parser.parse_args()


def exit_with(main, name):
    """Runs a benchmark's main() as the process."""
    try:
        sys.exit(main())
    except SimulationError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(1)


def meta(benchmark, started, results):
    return {
        "benchmark": benchmark,
        "commit": output_of(["git", "describe", "--always", "--dirty"]) or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "command": shlex.join(sys.argv),
        "wall_s": round(time.monotonic() - started, 1),
        "simulator": speed(results),
    }


def write(path, result):
    if path:
        pathlib.Path(path).write_text(json.dumps(result, indent=1) + "\n")
