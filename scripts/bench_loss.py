#!/usr/bin/env python3
"""All-reduces between hosts whose links lose frames: how long they take, and whether sums are right.

    bench_loss.py --build FOLDER [--ranks N] [--quick] [--json FILE]

Starts ina-switchd with an AF_PACKET port to each of N hosts (network namespaces joined to it by
veth, segmentation offloads off), has nftables drop INA frames at random on each host, on the way
out and on the way in, and runs ina-perf on each host over the udp: transport, for each rate of
loss. Every element of every sum is checked; the switch must have absorbed at least ranks x bytes.
Needs root. --json writes {"meta", "rows": [a row for each rate]}.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import bench_allreduce
from bench_allreduce import BenchError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/net"))
from namespaces import NetworkTestBed, require_root  # noqa: E402

LOSSES = [0, 0.0001, 0.001, 0.01, 0.03, 0.1]  # of each frame, on each link, in each direction
QUICK_LOSSES = [0, 0.01, 0.1]
BYTES = 1 << 20
OPERATIONS = 50
QUICK_OPERATIONS = 10
RUN_DEADLINE_S = 300
CONFIG = "aggregator: {policy: esa, slots: 65536, slot_bytes: 1024}\n"
RESOLUTION = 1_000_000


def lose(host, rate):
    """From now on the host loses this share of what it sends to the switch and gets from it."""
    host.run("nft", "flush", "ruleset")
    if rate == 0:
        return
    drop = f"numgen random mod {RESOLUTION} < {round(rate * RESOLUTION)} drop"
    host.run("nft", "add", "table", "ip", "loss")
    for hook, port in (("output", "dport"), ("input", "sport")):
        host.run("nft", f"add chain ip loss {hook} {{ type filter hook {hook} priority 0; }}")
        host.run("nft", f"add rule ip loss {hook} udp {port} 7584-7599 {drop}")


def run_ranks(build, bed, folder, operations):
    """Rank 0's row of ina-perf."""
    report = folder / "perf.json"
    processes = []
    for rank, host in enumerate(bed.hosts):
        url = f"udp:{bed.switch_ip}?control={bed.socket}&port={bed.port(rank)}"
        environment = os.environ | {"INA_RANK": str(rank), "INA_WORLD_SIZE": str(len(bed.hosts))}
        processes.append(host.start(
            build / "bench/ina-perf", "--url", url, "--job", "loss", "--sizes", BYTES,
            "--warmup", 2, "--iterations", operations, "--timeout", "60s",
            *(["--json", report] if rank == 0 else []), env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for process in processes:
        output = process.communicate(timeout=RUN_DEADLINE_S)[0]
        if process.returncode != 0:
            raise BenchError(output.strip())
    return json.loads(report.read_text(encoding="utf-8"))["rows"][0]


def measure(build, ranks, rate, operations):
    with tempfile.TemporaryDirectory(prefix="ina-bench-") as name, NetworkTestBed(ranks) as bed:
        folder = pathlib.Path(name)
        bed.start_switch(build / "switchd/ina-switchd", folder, CONFIG)
        for host in bed.hosts:
            lose(host, rate)
        row = run_ranks(build, bed, folder, operations)
        counters = bed.status(build / "cli/inactl")["aggregator"]
    # With the fallback in the workers, what it got went through the switch too.
    least = ranks * BYTES * operations
    seen = counters["absorbed_bytes"] + counters["bypassed_bytes"]
    if rate == 0 and seen < least:
        raise BenchError(f"the switch saw {seen} bytes of contributions, not {least}")
    if not row["correct"]:
        raise BenchError(f"wrong sums at a loss of {rate}")
    fragments = counters["results"] + counters["fallback_results"]
    return {"loss": rate, "ranks": ranks, "bytes": BYTES, "operations": operations,
            "p50_us": row["p50_us"], "p99_us": row["p99_us"], "algbw_GBps": row["algbw_GBps"],
            "by_fallback": counters["fallback_results"] / fragments,
            "packets_per_contribution":
                counters["packets"] / (ranks * fragments), "correct": row["correct"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="three rates, few operations")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    require_root()
    build = options.build.resolve()
    meta = bench_allreduce.metadata("loss", transport="udp, AF_PACKET ports, veth")
    rows = []
    print(f"{BYTES} bytes of float32, {options.ranks} ranks")
    print(f"  {'loss':>8}{'p50 ms':>10}{'p99 ms':>10}{'GB/s':>8}{'by fallback':>13}"
          f"{'packets each':>14}")
    for rate in QUICK_LOSSES if options.quick else LOSSES:
        row = measure(build, options.ranks, rate,
                      QUICK_OPERATIONS if options.quick else OPERATIONS)
        rows.append(row)
        print(f"  {rate:>8.2%}{row['p50_us'] / 1000:>10.2f}{row['p99_us'] / 1000:>10.2f}"
              f"{row['algbw_GBps']:>8.3f}{row['by_fallback']:>12.1%}"
              f"{row['packets_per_contribution']:>14.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchError, RuntimeError, subprocess.TimeoutExpired) as error:
        sys.exit(f"bench loss: {error}")
