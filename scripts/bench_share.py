#!/usr/bin/env python3
"""All-reduce, TCP and ping through the same two ports of the switch: each alone, and all at once.

    bench_share.py --build FOLDER [--quick] [--json FILE]

Two hosts (network namespaces joined by veth to ina-switchd's AF_PACKET ports) run an all-reduce
over udp: (ina-perf, which checks every element), an iperf3 stream from the first to the second,
ping, and a copy over TCP whose contents are compared by hash. Each of these loads is measured alone
on the ports, and while all the others run from before its start until after its end. Several rounds
measure alone and together in turn. Prints medians; fails if a sum or the copy is wrong. Needs root.
--json writes {"meta", "rows": [one object for each of the four, with "alone" and "together"]}.
"""

import contextlib
import json
import re
import subprocess
import sys
import time

from benchlib import command_line, metadata, perf, results, testbed
from benchlib.errors import BenchError
from benchlib.processes import temporary_folder
from benchlib.stats import medians, percentile
from benchlib.switch import status
from benchlib.testbed import NetworkTestBed, require_root, wait_until

MTU = 9000
CONFIG = "aggregator: {policy: esa, slots: 8192, slot_bytes: 8192}\n"
SUM_BYTES = 1 << 20
ROUNDS, QUICK_ROUNDS = 7, 2
SECONDS, QUICK_SECONDS = 4, 1.5
PING_INTERVAL_S = 0.005
COPY_BYTES = 256 << 20
QUICK_COPY_BYTES = 32 << 20
LONG_S = 600  # duration of a load beside another one, which the benchmark ends earlier
DEADLINE_S = 120
IPERF_PORT, COPY_PORT = 5201, 5000

COPY_RECEIVE = """
import hashlib, socket, sys, time
server = socket.create_server(("", int(sys.argv[1])))
print("ready", flush=True)
connection, _ = server.accept()
pieces = []
start = time.monotonic()
while piece := connection.recv(1 << 20):
    pieces.append(piece)
seconds = time.monotonic() - start
data = b"".join(pieces)
print(len(data), seconds, hashlib.sha256(data).hexdigest(), flush=True)
"""

COPY_SEND = """
import hashlib, os, socket, sys
data = os.urandom(int(sys.argv[3]))
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=100) as connection:
    connection.sendall(data)
print(hashlib.sha256(data).hexdigest())
"""


class Load:
    """The four loads between the hosts."""

    def __init__(self, build, bed, folder, seconds, copy_bytes):
        self.build = build
        self.bed = bed
        self.folder = folder
        self.seconds = seconds
        self.copy_bytes = copy_bytes
        self.runs = 0
        self.a, self.b = bed.hosts
        self.b.start("iperf3", "--server", "--port", IPERF_PORT, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL)

    def status(self):
        return status(self.build, self.bed.socket)

    def start_ranks(self, seconds, report=None):
        self.runs += 1
        return perf.start(self.build, self.bed, f"share-{self.runs}", SUM_BYTES,
                          "--seconds-per-size", seconds, report=report)

    def start_iperf(self, seconds):
        return self.a.start("iperf3", "--client", self.b.ip, "--port", IPERF_PORT, "--time",
                            str(seconds), "--json", stdout=subprocess.PIPE, text=True)

    def start_ping(self, count):
        return self.a.start("ping", "-n", "-i", str(PING_INTERVAL_S), "-c", count, self.b.ip,
                            stdout=subprocess.PIPE, text=True)

    # Each returns its figures.

    def allreduce(self):
        report = self.folder / f"perf-{self.runs}.json"
        row = perf.row_of(self.start_ranks(self.seconds, report), report, DEADLINE_S)
        if not row["correct"]:
            raise BenchError("wrong sums")
        return {key: row[key] for key in ("algbw_GBps", "p50_us", "p99_us")}

    def tcp(self):
        output = self.start_iperf(self.seconds).communicate(timeout=DEADLINE_S)[0]
        end = json.loads(output).get("end", {})
        if "sum_received" not in end:
            raise BenchError(f"iperf3 failed: {output}")
        return {"GBps": end["sum_received"]["bits_per_second"] / 8e9,
                "retransmits": end["sum_sent"]["retransmits"]}

    def ping(self):
        count = round(self.seconds / PING_INTERVAL_S)
        output = self.start_ping(count).communicate(timeout=DEADLINE_S)[0]
        times = [1000 * float(ms) for ms in re.findall(r"time=([\d.]+) ms", output)]
        if not times:
            raise BenchError(f"no ping was answered: {output}")
        return {"p50_us": percentile(times, 0.5), "p99_us": percentile(times, 0.99),
                "max_us": max(times), "sent": count, "lost": count - len(times)}

    def copy(self):
        receiver = self.b.python(COPY_RECEIVE, COPY_PORT)
        receiver.stdout.readline()
        sent = self.a.run(sys.executable, "-c", COPY_SEND, self.b.ip, COPY_PORT, self.copy_bytes,
                          timeout=DEADLINE_S).strip()
        received, seconds, digest = receiver.communicate(timeout=DEADLINE_S)[0].split()
        if (int(received), digest) != (self.copy_bytes, sent):
            raise BenchError(f"the copy is not what was sent: {received} bytes, {digest}")
        return {"GBps": self.copy_bytes / float(seconds) / 1e9, "bytes": self.copy_bytes}

    @contextlib.contextmanager
    def beside(self, kind):
        """Runs all loads but `kind` meanwhile; the copy only where there is no other TCP stream."""
        processes = []
        if kind != "allreduce":
            before = self.status()["aggregator"]["results"]
            processes += self.start_ranks(LONG_S)
            wait_until("sums", lambda: self.status()["aggregator"]["results"] > before + 1000)
        if kind not in ("tcp", "copy"):
            processes.append(self.start_iperf(LONG_S))
        if kind != "ping":
            processes.append(self.start_ping(round(LONG_S / PING_INTERVAL_S)))
        time.sleep(0.5)
        try:
            if any(process.poll() is not None for process in processes):
                raise BenchError("what was to run beside has ended")
            yield
            if any(process.poll() is not None for process in processes):
                raise BenchError("what was to run beside has ended")
        finally:
            for process in processes:
                process.kill()
                process.communicate()
            wait_until("jobs to end", lambda: not self.status()["jobs"])


KINDS = {"allreduce": Load.allreduce, "tcp": Load.tcp, "ping": Load.ping, "copy": Load.copy}
RATES = {"allreduce": "algbw_GBps", "tcp": "GBps", "copy": "GBps", "ping": "p50_us"}


def measure(build, rounds, seconds, copy_bytes):
    samples = {kind: {"alone": [], "together": []} for kind in KINDS}
    with temporary_folder() as folder, NetworkTestBed(2, mtu=MTU) as bed:
        bed.start_switch(build / "switchd/ina-switchd", folder, CONFIG)
        load = Load(build, bed, folder, seconds, copy_bytes)
        for number in range(rounds):
            for kind, run in KINDS.items():
                samples[kind]["alone"].append(run(load))
                with load.beside(kind):
                    samples[kind]["together"].append(run(load))
            print(f"  round {number + 1} of {rounds}", flush=True)
        if bed.stop_switch() != 0:
            raise BenchError(f"ina-switchd failed:\n{bed.log()}")
    return [{"what": kind, "intact": True,
             **{how: medians(taken) | {"samples": [one[RATES[kind]] for one in taken]}
                for how, taken in both.items()}} for kind, both in samples.items()]


def show(rows):
    print(f"  {'':<12}{'alone':>26}{'together':>26}")
    for row in rows:
        texts = []
        for how in ("alone", "together"):
            figures = row[how]
            if row["what"] == "ping":
                texts.append(f"{figures['p50_us']:.0f} / {figures['p99_us']:.0f} us, "
                             f"{figures['lost']:.0f} lost")
            else:
                texts.append(f"{figures[RATES[row['what']]]:.3f} GB/s")
        print(f"  {row['what']:<12}{texts[0]:>26}{texts[1]:>26}")


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    options = command_line.parse(parser)
    require_root()
    meta = metadata.measured("share", transport="udp, AF_PACKET ports, veth", mtu=MTU,
                             allreduce_bytes=SUM_BYTES, ranks=2)
    rows = measure(options.build.resolve(), QUICK_ROUNDS if options.quick else ROUNDS,
                   QUICK_SECONDS if options.quick else SECONDS,
                   QUICK_COPY_BYTES if options.quick else COPY_BYTES)
    show(rows)
    results.write(options, {"meta": meta, "rows": rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench share", *testbed.ERRORS)
