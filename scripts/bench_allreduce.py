#!/usr/bin/env python3
"""Measures all-reduce over a private switch on this machine.

    bench_allreduce.py --build FOLDER [--ranks 2,4,8] [--quick] [--json FILE]

Starts ina-switchd with a socket of its own in a temporary folder, runs ina-perf with each number of
ranks, and checks by the switch's own counters that it absorbed exactly ranks x bytes of all
operations: a benchmark that does not go through the switch, or not completely, fails. So does one
whose results are not correct. Prints a table; --json writes
{"meta": {commit, machine, command, ...}, "rows": [one object a measurement, as ina-perf gives it]}.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile
import time

# As conf/demo.yaml: 8 KiB slots, one job at a time.
SLOT_BYTES = 8192
CONFIG = """\
aggregator:
  slot_bytes: {slot_bytes}
  slots: 512
static:
  slots_per_job: 512
control:
  socket: "{socket}"
ports:
  - name: shm0
    type: shm
log:
  level: warning
"""

SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
QUICK_SIZES_BYTES = [4 << 10, 1 << 20]
# ina-perf runs, for each row, these operations beside those that it times and reports as `samples`.
WARMUP_OPERATIONS = 2
CHECK_OPERATIONS = 2
START_DEADLINE_S = 20
RUN_DEADLINE_S = 600
STOP_DEADLINE_S = 10


class BenchError(Exception):
    """Says in whole what went wrong."""


def output_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def metadata(commands):
    return {
        "benchmark": "allreduce",
        "commit": output_of(["git", "describe", "--always", "--dirty", "--abbrev=40"]) or "unknown",
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": memory_bytes(),
            "kernel": platform.release(),
        },
        "command": shlex.join(["scripts/bench_allreduce.py", *sys.argv[1:]]),
        "perf_commands": commands,
        "slot_bytes": SLOT_BYTES,
    }


class Switch:
    """A running ina-switchd and the means to ask it."""

    def __init__(self, build, folder, config_text, **values):
        """`values`: what fills `config_text`, besides the socket."""
        self.build = build
        self.folder = folder
        self.socket = folder / "switch.sock"
        config = folder / "switch.yaml"
        config.write_text(config_text.format(socket=self.socket, **values))
        self.log = folder / "switch.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [build / "switchd/ina-switchd", "--config", config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def wait_until_ready(self):
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            with contextlib.suppress(BenchError, OSError):
                return self.status()
            if self.process.poll() is not None:
                raise BenchError(f"ina-switchd ended at once (status {self.process.returncode}):\n"
                                 + self.log.read_text(errors="replace"))
            if time.monotonic() > deadline:
                raise BenchError(f"ina-switchd did not answer within {START_DEADLINE_S} s:\n"
                                 + self.log.read_text(errors="replace"))
            time.sleep(0.01)

    def status(self):
        done = subprocess.run(
            [self.build / "cli/inactl", "status", "-j", "--socket", self.socket],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(done.stderr.strip())
        return json.loads(done.stdout)

    def absorbed_bytes(self):
        return self.status()["aggregator"]["absorbed_bytes"]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_perf(build, switch, ranks, sizes, quick):
    """Rows of one ina-perf run, and the command."""
    report = switch.folder / f"perf-{ranks}.json"
    command = [str(build / "bench/ina-perf"), "--url", f"shm:{switch.socket}",
               "--job", f"bench-{ranks}", "--ranks", str(ranks),
               "--sizes", ",".join(map(str, sizes)), "--dtype", "float32",
               "--warmup", str(WARMUP_OPERATIONS), "--json", str(report)]
    if quick:
        command.append("--quick")
    before = switch.absorbed_bytes()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=RUN_DEADLINE_S,
                              check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"no end within {RUN_DEADLINE_S} s: {shlex.join(command)}") from error
    if done.returncode != 0:
        raise BenchError(f"{shlex.join(command)} ended with status {done.returncode}:\n"
                         f"{done.stderr.strip()}")
    rows = json.loads(report.read_text())["rows"]
    check(rows, ranks, sizes, switch.absorbed_bytes() - before)
    return rows, shlex.join(command)


def check(rows, ranks, sizes, absorbed_bytes):
    if sorted(row["bytes"] for row in rows) != sorted(sizes):
        raise BenchError(f"{ranks} ranks: asked for {sizes} bytes, got {[r['bytes'] for r in rows]}")
    for row in rows:
        if row["ranks"] != ranks or row["correct"] is not True:
            raise BenchError(f"{ranks} ranks: wrong result: {row}")
    expected = sum(
        ranks * row["bytes"] * (row["samples"] + WARMUP_OPERATIONS + CHECK_OPERATIONS)
        for row in rows)
    if absorbed_bytes != expected:
        raise BenchError(f"{ranks} ranks: the switch absorbed {absorbed_bytes} bytes, but "
                         f"ranks x bytes of all operations is {expected}")


def print_row(row):
    print(f"{row['ranks']:5d}  {row['bytes']:10d}  {row['dtype']:>8}  {row['algbw_GBps']:10.3f}  "
          f"{row['p50_us']:10.1f}  {row['p99_us']:10.1f}  {row['core_round_trip_ns']:6.0f}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--quick", action="store_true", help="two sizes, few repetitions")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    sizes = QUICK_SIZES_BYTES if options.quick else SIZES_BYTES

    rows, commands = [], []
    with tempfile.TemporaryDirectory(prefix="ina-bench-") as folder:
        switch = Switch(options.build.resolve(), pathlib.Path(folder), CONFIG,
                        slot_bytes=SLOT_BYTES)
        try:
            switch.wait_until_ready()
            print("ranks       bytes     dtype  algbw GB/s      p50 us      p99 us  c2c ns")
            for ranks in map(int, options.ranks.split(",")):
                found, command = run_perf(options.build, switch, ranks, sizes, options.quick)
                rows += found
                commands.append(command.replace(folder, "TMP"))
                for row in found:
                    print_row(row)
        finally:
            switch.stop()
    if options.json:
        options.json.write_text(
            json.dumps({"meta": metadata(commands), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        print(f"bench_allreduce: {error}", file=sys.stderr)
        sys.exit(1)
