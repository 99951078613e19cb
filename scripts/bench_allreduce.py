#!/usr/bin/env python3
"""Measures all-reduce over a private switch on this machine.

    bench_allreduce.py --build FOLDER [--ranks 2,4,8] [--ports shm,memif,bridge] [--quick]
                       [--json FILE]

Starts ina-switchd with a socket of its own in a temporary folder, runs ina-perf with each number of
ranks over each kind of port, and checks by the switch's own counters that it absorbed exactly ranks
x bytes of all operations: a benchmark that does not go through the switch, or not completely,
fails. So does one whose results are not correct. On the shm port, registered buffers are measured
beside plain ones where libina has them; on memif each rank has a port of its own, and on "bridge"
an interface of ina-memif, beside a switch with the shm port alone. Without --ports: shm and memif.
Prints a table; --json writes {"meta": {commit, machine, command, ...}, "rows": [one object a measurement, as
ina-perf gives it, and "port"]}. Where memif cannot be used a row has null for figures and "missing"
says why.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from outputs import result_file

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

# memif copies into and out of packets of its own. Without hugepages DPDK takes ordinary memory; the
# rings of 8 ports with buffers for slots of 8 KiB need most of this.
MEMIF_EAL = """\
eal:
  huge: no
  memory: 256 MiB
"""
MEMIF_PORT = """\
  - name: memif{number}
    type: ethdev
    ip: 10.0.{number}.1
    mtu: 9000
    device: "net_memif{number},role=server,id={number},socket={folder}/memif.sock,\
socket-abstract=no,rsize=10,bsize=9216"
"""
MEMIF_URL = ("memif:{folder}/memif.sock?id={{rank}}&ip=10.0.{{rank}}.2&mtu=9000&port=memif{{rank}}"
             "&control={control}")

SIZES_BYTES = [4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20,
               64 << 20, 256 << 20]
QUICK_SIZES_BYTES = [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20]
PORTS = ("shm", "memif", "bridge")
DEFAULT_PORTS = PORTS[:2]
MEMIF_MAX_BYTES = 64 << 20
WARMUP_OPERATIONS = 2
START_DEADLINE_S = 20
RUN_DEADLINE_S = 600
STOP_DEADLINE_S = 10


# How ina-perf says that a port cannot be used here, which is no defect of ours.
UNAVAILABLE = ("INA_ERR_NO_SWITCH", "INA_ERR_UNSUPPORTED", "INA_ERR_NO_MEMORY", "INA_ERR_REFUSED")


class BenchError(Exception):
    """Says in whole what went wrong."""


class Unavailable(BenchError):
    """A port cannot be had on this machine."""


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


def read_or_none(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def metadata(benchmark, **more):
    """What every benchmark's JSON says of its run: commit, machine, command line, and `more`."""
    return {
        "benchmark": benchmark,
        "commit": output_of(["git", "describe", "--always", "--dirty", "--abbrev=40"]) or "unknown",
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": memory_bytes(),
            "kernel": platform.release(),
            "load_before": os.getloadavg()[0],
            # Whether processes yield only within their session.
            "autogroups": read_or_none("/proc/sys/kernel/sched_autogroup_enabled"),
        },
        "command": shlex.join([f"scripts/bench_{benchmark}.py", *sys.argv[1:]]),
        **more,
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
                raise Unavailable(f"ina-switchd ended at once (status {self.process.returncode}):\n"
                                  + self.log.read_text(errors="replace"))
            if time.monotonic() > deadline:
                raise BenchError(f"ina-switchd did not answer within {START_DEADLINE_S} s:\n"
                                 + self.log.read_text(errors="replace"))
            time.sleep(0.01)

    def status(self):
        done = subprocess.run(
            [self.build / "programs/inactl/inactl", "status", "-j", "--socket", self.socket],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError((done.stderr or done.stdout).strip())
        return json.loads(done.stdout)

    def absorbed_bytes(self):
        return self.status()["aggregator"]["absorbed_bytes"]

    def stop(self):
        stop(self.process)


def stop(process):
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Bridge:
    """A running ina-memif beside a switch that answers."""

    def __init__(self, build, switch, ranks):
        self.socket = switch.folder / "memif-control.sock"
        self.process = subprocess.Popen(
            [build / "programs/memif/ina-memif", "--switch", switch.socket, "--socket", self.socket,
             "--memif", switch.folder / "memif.sock", "--workers", str(ranks)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                stop(self.process)
                raise Unavailable("ina-memif did not start")
            time.sleep(0.01)


def start_switch(build, folder, port, ranks):
    """memif ports are polled whether they are used or not: there are as many as ranks."""
    if port != "memif":
        return Switch(build, folder, CONFIG, slot_bytes=SLOT_BYTES)
    ports = "".join(MEMIF_PORT.format(number=n, folder=folder) for n in range(ranks))
    config = CONFIG.replace("  - name: shm0\n    type: shm\n", "{ports}") + MEMIF_EAL
    return Switch(build, folder, config, slot_bytes=SLOT_BYTES, ports=ports)


def run_perf(build, switch, port, buffers, ranks, sizes, quick, control=None):
    """Rows of one ina-perf run, and the command. `control`: where its ranks join, on memif."""
    report = switch.folder / f"perf-{port}-{buffers}-{ranks}.json"
    url = f"shm:{switch.socket}"
    if port != "shm":
        url = MEMIF_URL.format(folder=switch.folder, control=control or switch.socket)
    command = [str(build / "bench/ina-perf"), "--url", url, "--job", f"bench-{buffers}",
               "--ranks", str(ranks), "--sizes", ",".join(map(str, sizes)), "--dtype", "float32",
               "--warmup", str(WARMUP_OPERATIONS), "--switch-pid", str(switch.process.pid),
               "--json", str(report)]
    if quick:
        command.append("--quick")
    if buffers == "registered":
        command.append("--registered")
    before = switch.absorbed_bytes()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=RUN_DEADLINE_S,
                              check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"no end within {RUN_DEADLINE_S} s: {shlex.join(command)}") from error
    if done.returncode != 0:
        kind = Unavailable if any(name in done.stderr for name in UNAVAILABLE) else BenchError
        raise kind(f"{shlex.join(command)} ended with status {done.returncode}:\n"
                   f"{done.stderr.strip()}")
    rows = [{"port": port, **row} for row in json.loads(report.read_text())["rows"]]
    check(rows, ranks, sizes, switch.absorbed_bytes() - before)
    return rows, shlex.join(command)


def check(rows, ranks, sizes, absorbed_bytes):
    if sorted(row["bytes"] for row in rows) != sorted(sizes):
        raise BenchError(f"{ranks} ranks: asked for {sizes} bytes, "
                         f"got {[row['bytes'] for row in rows]}")
    for row in rows:
        if row["ranks"] != ranks or row["correct"] is not True:
            raise BenchError(f"{ranks} ranks: wrong result: {row}")
    expected = sum(ranks * row["bytes"] * row["operations"] for row in rows)
    if absorbed_bytes != expected:
        raise BenchError(f"{ranks} ranks: the switch absorbed {absorbed_bytes} bytes, but "
                         f"ranks x bytes of all operations is {expected}")


HEADER = ("ranks   port         buffers       bytes  algbw GB/s      p50 us      p99 us  "
          "workers cpu us  switch cpu us  c2c ns")


def figure(value, form):
    """Formatted, or "-" of the same width where there is none."""
    return format(value, form) if value is not None else format("-", ">" + form.partition(".")[0])


def print_row(row):
    print(f"{row['ranks']:5d}  {row['port']:>6}  {row['buffers']:>14}  {row['bytes']:10d}  "
          f"{figure(row['algbw_GBps'], '10.3f')}  {figure(row['p50_us'], '10.1f')}  "
          f"{figure(row['p99_us'], '10.1f')}  {figure(row['cpu_us_per_op'], '14.1f')}  "
          f"{figure(row['switch_cpu_us_per_op'], '13.1f')}  "
          f"{figure(row['core_round_trip_ns'], '6.0f')}", flush=True)


def missing_rows(ranks, port, buffers, sizes, reason):
    """What stands for rows that cannot be measured here."""
    print(f"bench_allreduce: {ranks} ranks over {port}: {reason}", file=sys.stderr)
    figures = ("algbw_GBps", "p50_us", "p99_us", "cpu_us_per_op", "switch_cpu_us_per_op",
               "core_round_trip_ns", "correct")
    return [{"ranks": ranks, "port": port, "buffers": buffers, "bytes": size, "missing": reason,
             **dict.fromkeys(figures)} for size in sizes]


def measure(build, port, buffers, ranks, sizes, quick):
    """Rows with a switch of their own, and the command."""
    with tempfile.TemporaryDirectory(prefix="ina-bench-") as folder:
        switch = start_switch(build, pathlib.Path(folder), port, ranks)
        bridge = None
        try:
            switch.wait_until_ready()
            if port == "bridge":
                bridge = Bridge(build, switch, ranks)
            rows, command = run_perf(build, switch, port, buffers, ranks, sizes, quick,
                                     bridge and bridge.socket)
        finally:
            if bridge:
                stop(bridge.process)
            switch.stop()
    return rows, command.replace(folder, "TMP")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--ports", default=",".join(DEFAULT_PORTS))
    parser.add_argument("--quick", action="store_true", help="fewer sizes, few repetitions")
    parser.add_argument("--json", type=result_file)
    options = parser.parse_args()
    build = options.build
    all_sizes = QUICK_SIZES_BYTES if options.quick else SIZES_BYTES

    rows, commands = [], []
    meta = metadata("allreduce", perf_commands=commands, slot_bytes=SLOT_BYTES)
    print(HEADER)
    for port in options.ports.split(","):
        if port not in PORTS:
            raise BenchError(f"unknown port {port} (known: {', '.join(PORTS)})")
        sizes = [size for size in all_sizes if port == "shm" or size <= MEMIF_MAX_BYTES]
        for ranks in map(int, options.ranks.split(",")):
            for buffers in ["plain", "registered"] if port == "shm" else ["plain"]:
                try:
                    found, command = measure(build, port, buffers, ranks, sizes, options.quick)
                    commands.append(command)
                except Unavailable as error:
                    if port == "shm":
                        raise
                    found = missing_rows(ranks, port, buffers, sizes, str(error))
                rows += found
                for row in found:
                    print_row(row)
    if options.json:
        options.json.write_text(
            json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        sys.exit(main())
    except BenchError as error:
        print(f"bench_allreduce: {error}", file=sys.stderr)
        sys.exit(1)
