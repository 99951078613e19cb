#!/usr/bin/env python3
"""The time and the correctness of all-reduces over links that lose frames.

    bench_loss.py --build FOLDER [--ranks N] [--rounds N] [--quick] [--json FILE]

Starts ina-switchd with an AF_PACKET port to each of N hosts (network namespaces joined to it by
veth, segmentation offloads off), has nftables drop INA frames at random on each host, on the way
out and on the way in, and runs ina-perf on each host over the udp: transport, for each rate of
loss. All rates have their turn in each round; a row has the medians of the rounds, and the ratio of
its time to that without losses in the same round. Every element of every sum is checked; the switch
must have absorbed at least ranks x bytes, and frames must have been lost. Needs root. --json writes
{"meta", "rows": [a row for each rate], "incast"}.
"""

import json

from benchlib import command_line, metadata, perf, progress, results, testbed
from benchlib.errors import BenchError
from benchlib.processes import temporary_folder
from benchlib.stats import median
from benchlib.switch import status
from benchlib.testbed import NetworkTestBed, require_root

LOSSES = [0, 0.0001, 0.001, 0.01, 0.03, 0.1]  # of each frame, on each link, in each direction
QUICK_LOSSES = [0, 0.01, 0.1]
BYTES = 1 << 20
OPERATIONS = 50
ROUNDS = 5
QUICK_OPERATIONS = 10  # also for 10 %, where each takes seconds
RUN_DEADLINE_S = 300
INCAST_HOSTS = [1, 2, 4, 8]
INCAST_MBIT = 200  # slow enough that the link is the bottleneck, not this machine
INCAST_QUEUES = [32 << 10, 256 << 10]
INCAST_OPERATIONS = 10
INCAST_QUICK_OPERATIONS = 3
FRAME_BYTES = 14 + 20 + 8 + 72 + 1024  # the size that the link counts
CONFIG = "aggregator: {policy: esa, slots: 65536, slot_bytes: 1024}\n"
RESOLUTION = 1_000_000


def lose(host, rate):
    """Has the host lose this share of its frames to and from the switch, from now on. A rule takes
    time, too, so there is one that loses nothing."""
    host.run("nft", "flush", "ruleset")
    kept = RESOLUTION - 1 - round(rate * RESOLUTION)
    drop = f"numgen random mod {RESOLUTION} > {kept} counter drop"
    # A rule in the output hook would report the loss to the sender, which would send again.
    out = f"type filter hook egress device {host.interface} priority 0;"
    for family, hook, chain, port in (("netdev", "out", out, "dport"),
                                      ("ip", "in", "type filter hook input priority 0;", "sport")):
        host.run("nft", "add", "table", family, "loss")
        host.run("nft", f"add chain {family} loss {hook} {{ {chain} }}")
        host.run("nft", f"add rule {family} loss {hook} udp {port} 7584-7599 {drop}")


def lost_frames(host):
    rules = json.loads(host.run("nft", "-j", "list", "ruleset"))["nftables"]
    return sum(part["counter"]["packets"] for entry in rules for part in
               entry.get("rule", {}).get("expr", []) if "counter" in part)


def run_ranks(build, bed, folder, operations):
    """Returns rank 0's row of ina-perf."""
    report = folder / "perf.json"
    # Without segmentation offload each frame is lost independently.
    ranks = perf.start(build, bed, "loss", BYTES, "--warmup", 2, "--iterations", operations,
                       report=report, url_options="&gso=off")
    return perf.row_of(ranks, report, RUN_DEADLINE_S)


def measure(build, ranks, rate, operations):
    with temporary_folder() as folder, NetworkTestBed(ranks) as bed:
        bed.start_switch(build / "switchd/ina-switchd", folder, CONFIG)
        for host in bed.hosts:
            lose(host, rate)
        row = run_ranks(build, bed, folder, operations)
        counters = status(build, bed.socket)["aggregator"]
        lost = sum(lost_frames(host) for host in bed.hosts)
    # With the fallback in the workers, its contributions pass the switch, too.
    least = ranks * BYTES * operations
    seen = counters["absorbed_bytes"] + counters["bypassed_bytes"]
    if rate == 0 and seen < least:
        raise BenchError(f"the switch saw {seen} bytes of contributions, not {least}")
    if not row["correct"]:
        raise BenchError(f"wrong sums at a loss of {rate}")
    if (lost != 0) != (rate != 0):
        raise BenchError(f"{lost} frames were lost at a loss of {rate}")
    fragments = counters["results"] + counters["fallback_results"]
    return {"loss": rate, "ranks": ranks, "bytes": BYTES, "operations": operations,
            "p50_us": row["p50_us"], "p99_us": row["p99_us"], "algbw_GBps": row["algbw_GBps"],
            "by_fallback": counters["fallback_results"] / fragments,
            "packets_per_contribution": counters["packets"] / (ranks * fragments),
            "lost_frames": lost, "correct": row["correct"]}


def measure_rounds(build, ranks, rates, rounds, operations_of):
    """Returns a row for each rate."""
    found = {rate: [] for rate in rates}
    for number in range(rounds):
        for rate in rates:
            progress.bar(sum(map(len, found.values())), rounds * len(rates), "runs of lossy links")
            found[rate].append(measure(build, ranks, rate, operations_of(rate)))
    progress.bar(rounds * len(rates), rounds * len(rates), "runs of lossy links")
    rows = []
    for rate in rates:
        ratios = [row["p50_us"] / without["p50_us"] for row, without in zip(found[rate], found[0])]
        rows.append(found[rate][0] |
                    {key: median([row[key] for row in found[rate]]) for key in
                     ("p50_us", "p99_us", "algbw_GBps", "by_fallback", "packets_per_contribution",
                      "lost_frames")} |
                    {"rounds": rounds, "ratio": median(ratios), "least_ratio": min(ratios),
                     "most_ratio": max(ratios)})
    return rows


def measure_incast(build, hosts, queue_bytes, operations):
    with temporary_folder() as folder, NetworkTestBed(hosts) as bed:
        bed.share_link(INCAST_MBIT, queue_bytes)
        bed.start_switch(build / "switchd/ina-switchd", folder, CONFIG)
        row = run_ranks(build, bed, folder, operations)
        lost = bed.lost_on_shared_link()
        counters = status(build, bed.socket)["aggregator"]
    if not row["correct"]:
        raise BenchError(f"wrong sums with {hosts} hosts behind one link")
    fragments = -(-BYTES // 1024)
    link_bytes = fragments * FRAME_BYTES * hosts
    fragments_done = counters["results"] + counters["fallback_results"]
    return {"hosts": hosts, "queue_bytes": queue_bytes, "rate_mbit": INCAST_MBIT, "bytes": BYTES,
            "operations": operations, "p50_us": row["p50_us"], "p99_us": row["p99_us"],
            "share_of_link": link_bytes * 8 / row["p50_us"] / INCAST_MBIT,
            "lost": lost / (fragments_done * hosts),
            "by_fallback": counters["fallback_results"] / fragments_done,
            "correct": row["correct"]}


def incast(build, quick):
    print(f"incast: {BYTES} bytes of float32, hosts behind one link of {INCAST_MBIT} Mbit/s")
    print(f"  {'hosts':>8}{'queue':>10}{'p50 ms':>10}{'p99 ms':>10}{'of link':>9}{'lost':>9}"
          f"{'by fallback':>13}")
    rows = []
    for queue_bytes in INCAST_QUEUES:
        for hosts in INCAST_HOSTS:
            row = measure_incast(build, hosts, queue_bytes,
                                 INCAST_QUICK_OPERATIONS if quick else INCAST_OPERATIONS)
            rows.append(row)
            print(f"  {hosts:>8}{queue_bytes >> 10:>6} KiB{row['p50_us'] / 1000:>10.2f}"
                  f"{row['p99_us'] / 1000:>10.2f}{row['share_of_link']:>8.1%}{row['lost']:>8.1%}"
                  f"{row['by_fallback']:>13.1%}", flush=True)
    return rows


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS}, 1 in --quick")
    parser.add_argument("--quick", action="store_true", help="three rates, few operations")
    options = command_line.parse(parser)
    require_root()
    build = options.build.resolve()
    meta = metadata.measured("loss", transport="udp, AF_PACKET ports, veth")
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    rows = measure_rounds(build, options.ranks, QUICK_LOSSES if options.quick else LOSSES, rounds,
                          lambda rate: QUICK_OPERATIONS if options.quick or rate >= 0.1
                          else OPERATIONS)
    print(f"{BYTES} bytes of float32, {options.ranks} ranks, medians of {rounds} rounds")
    print(f"  {'loss':>8}{'p50 ms':>10}{'p99 ms':>10}{'x':>7}{'least':>7}{'most':>7}{'GB/s':>8}"
          f"{'by fallback':>13}{'packets each':>14}")
    for row in rows:
        print(f"  {row['loss']:>8.2%}{row['p50_us'] / 1000:>10.2f}{row['p99_us'] / 1000:>10.2f}"
              f"{row['ratio']:>7.2f}{row['least_ratio']:>7.2f}{row['most_ratio']:>7.2f}"
              f"{row['algbw_GBps']:>8.3f}{row['by_fallback']:>12.1%}"
              f"{row['packets_per_contribution']:>14.2f}", flush=True)
    incast_rows = incast(build, options.quick)
    results.write(options, {"meta": meta, "rows": rows, "incast": incast_rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench loss", *testbed.ERRORS)
