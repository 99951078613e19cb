#!/usr/bin/env python3
"""Measures all-reduce over a private switch on this machine.

    bench_allreduce.py --build FOLDER [--ranks 2,4,8] [--ports shm,memif,bridge] [--quick]
                       [--lanes N] [--json FILE]

Starts ina-switchd with a socket of its own in a temporary folder, and runs ina-perf with each
number of ranks over each kind of port. The switch's own counters must show that the switch absorbed
exactly ranks x bytes of all operations: a benchmark whose operations bypass the switch, even in
part, fails. The benchmark also fails where a result is not correct. On the shm port, registered
buffers are measured beside plain ones where libina has them. On memif each rank has a port of its
own, and on "bridge" an interface of ina-memif, beside a switch with the shm port alone. Without
--ports: shm and memif. Prints a table; --json writes {"meta": {commit, machine, command, ...},
"rows": [one object a measurement, as ina-perf gives it, and "port"]}. Where memif cannot be used, a
row's figures are null, and "missing" has the reason.
"""

import json
import shlex
import subprocess
import sys

from benchlib import command_line, metadata, processes, results
from benchlib.errors import BenchError, Unavailable
from benchlib.switch import SLOT_BYTES, Bridge, add_lanes_option, check_absorbed, plain_switch
from benchlib.table import cell

# memif copies into and out of packets of its own. Without hugepages DPDK takes ordinary memory; a
# port's rings with buffers for slots of 8 KiB need 60 MiB.
MEMIF_EAL = """\
eal:
  huge: no
  memory: {mib} MiB
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
RUN_DEADLINE_S = 600

# The statuses by which ina-perf reports that a port cannot be used on this machine; that is no
# defect of the project.
UNAVAILABLE = ("INA_ERR_NO_SWITCH", "INA_ERR_UNSUPPORTED", "INA_ERR_NO_MEMORY", "INA_ERR_REFUSED")


def start_switch(build, folder, port, ranks, lanes):
    """Starts a switch. It polls memif ports whether they are used or not, so there are only as many
    as ranks."""
    if port != "memif":
        return plain_switch(build, folder, lanes=lanes)
    ports = "".join(MEMIF_PORT.format(number=n, folder=folder) for n in range(ranks))
    return plain_switch(build, folder, ports=ports, more=MEMIF_EAL.format(mib=64 * (ranks + 1)),
                        lanes=lanes)


def run_perf(build, switch, port, buffers, ranks, sizes, quick, control=None):
    """Returns the rows of one ina-perf run, and the command. `control`: the control socket where
    ranks on memif join."""
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
        processes.run(command, RUN_DEADLINE_S, stdout=subprocess.DEVNULL)
    except BenchError as error:
        if any(name in str(error) for name in UNAVAILABLE):
            raise Unavailable(str(error)) from error
        raise
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
    check_absorbed(f"{ranks} ranks", absorbed_bytes,
                   sum(ranks * row["bytes"] * row["operations"] for row in rows))


HEADER = ("ranks   port         buffers       bytes  algbw GB/s      p50 us      p99 us  "
          "workers cpu us  switch cpu us  c2c ns")


def print_row(row):
    print(f"{row['ranks']:5d}  {row['port']:>6}  {row['buffers']:>14}  {row['bytes']:10d}  "
          f"{cell(row['algbw_GBps'], '10.3f')}  {cell(row['p50_us'], '10.1f')}  "
          f"{cell(row['p99_us'], '10.1f')}  {cell(row['cpu_us_per_op'], '14.1f')}  "
          f"{cell(row['switch_cpu_us_per_op'], '13.1f')}  "
          f"{cell(row['core_round_trip_ns'], '6.0f')}", flush=True)


def missing_rows(ranks, port, buffers, sizes, reason):
    """Returns rows without figures, for measurements that are impossible on this machine."""
    print(f"bench_allreduce: {ranks} ranks over {port}: {reason}", file=sys.stderr)
    figures = ("algbw_GBps", "p50_us", "p99_us", "cpu_us_per_op", "switch_cpu_us_per_op",
               "core_round_trip_ns", "correct")
    return [{"ranks": ranks, "port": port, "buffers": buffers, "bytes": size, "missing": reason,
             **dict.fromkeys(figures)} for size in sizes]


def measure(build, port, buffers, ranks, sizes, quick, lanes):
    """Returns the rows of one run with a switch of its own, and the command."""
    with processes.temporary_folder() as folder, \
            start_switch(build, folder, port, ranks, lanes) as switch:
        bridge = Bridge(build, switch, ranks) if port == "bridge" else None
        try:
            rows, command = run_perf(build, switch, port, buffers, ranks, sizes, quick,
                                     bridge and bridge.socket)
        finally:
            if bridge:
                bridge.stop()
    return rows, command.replace(str(folder), "TMP")


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--ports", default=",".join(DEFAULT_PORTS))
    add_lanes_option(parser)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, few repetitions")
    options = command_line.parse(parser)
    build = options.build
    all_sizes = QUICK_SIZES_BYTES if options.quick else SIZES_BYTES

    rows, commands = [], []
    meta = metadata.measured("allreduce", perf_commands=commands, slot_bytes=SLOT_BYTES,
                             lanes=options.lanes)
    print(HEADER)
    for port in options.ports.split(","):
        if port not in PORTS:
            raise BenchError(f"unknown port {port} (known: {', '.join(PORTS)})")
        sizes = [size for size in all_sizes if port == "shm" or size <= MEMIF_MAX_BYTES]
        for ranks in map(int, options.ranks.split(",")):
            for buffers in ["plain", "registered"] if port == "shm" else ["plain"]:
                try:
                    found, command = measure(build, port, buffers, ranks, sizes, options.quick,
                                             options.lanes)
                    commands.append(command)
                except Unavailable as error:
                    if port == "shm":
                        raise
                    found = missing_rows(ranks, port, buffers, sizes, str(error))
                rows += found
                for row in found:
                    print_row(row)
    results.write(options, {"meta": meta, "rows": rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_allreduce")
