#!/usr/bin/env python3
"""Measures the switch's packet path alone, beside the floor: the bare kernels on the same memory.

    bench_pipeline.py --build FOLDER [--quick] [--filter REGEX] [--json FILE]

Runs pipeline_bench (Google Benchmark), which checks its results and fails if one is wrong, and
takes medians over its repetitions. Prints a table; --json writes {"meta", "rows", "scaling"}.

A row: `ns_per_packet` is the whole path, messages to the workers included. `ns_per_result` is the
cost of writing these messages for one result (or, in the worst case, for one partial sum), and is
not part of `ns_per_packet_without_results`. `floor_ns` is the faster one of the floors with and
without prefetching; `ratio_to_floor` = floor_ns / ns_per_packet, which is 1 if the path costs
nothing in addition. `group` is the number of packets to the same fragment that come one after the
other in a burst of 32, as a NIC delivers the packets that workers send at the same time.
`nway_floor_ns` is the floor whose kernels sum such a group in one pass, and `ratio_to_nway_floor`
the ratio to that floor. `gbit_per_s` is gradient payload on one core. Cycles and instructions are
null where the machine does not count them. `samples_ns` has ns_per_packet of each repetition and
`floor_samples_ns` that of the floor; `spread` is (largest - smallest) / median of `samples_ns`.
"""

import json
import shlex
import statistics
import subprocess

from benchlib import command_line, metadata, processes, results
from benchlib.errors import BenchError
from benchlib.table import print_table

RUN_DEADLINE_S = 3600
BASE_PAYLOAD_BYTES = 1024

COLUMNS = [
    # title, key, format
    ("payload", "payload_bytes", "d"), ("fan-in", "fan_in", "d"), ("dtype", "dtype", "s"),
    ("policy", "policy", "s"), ("slots", "slots_in", "s"), ("packets", "packets_in", "s"),
    ("jobs", "jobs", "d"), ("ways", "ways", "d"), ("group", "group", "d"), ("worst", "worst_case", "s"),
    ("ns/pkt", "ns_per_packet", ".1f"),
    ("no sends", "ns_per_packet_without_results", ".1f"), ("ns/result", "ns_per_result", ".1f"),
    ("Mpps", "mpps", ".1f"), ("Gbit/s", "gbit_per_s", ".0f"), ("floor ns", "floor_ns", ".1f"),
    ("ratio", "ratio_to_floor", ".2f"), ("n-way ns", "nway_floor_ns", ".1f"),
    ("ratio", "ratio_to_nway_floor", ".2f"), ("spread", "spread", ".2f"),
]
SCALING_COLUMNS = [
    ("dimension", "dimension", "s"), ("value", "value", "d"), ("estimated", "estimated", "s"),
    ("ns/pkt", "ns_per_packet", ".1f"), ("no sends", "ns_per_packet_without_results", ".1f"),
    ("Gbit/s", "gbit_per_s", ".0f"), ("floor ns", "floor_ns", ".1f"), ("spread", "spread", ".2f"),
]


def run_bench(build, quick, only):
    """Returns Google Benchmark's report and the command."""
    with processes.temporary_folder() as folder:
        report = folder / "report.json"
        command = [str(build / "bench/pipeline_bench"), f"--benchmark_out={report}",
                   "--benchmark_out_format=json"]
        if quick:
            command.append("--quick")
        if only:
            command.append(f"--benchmark_filter={only}")
        processes.run(command, RUN_DEADLINE_S, stdout=subprocess.DEVNULL)
        return (json.loads(report.read_text()),
                shlex.join(command).replace(str(folder), "TMP"))


def value_of(text):
    return int(text) if text.isdigit() else text


def description(name):
    """Returns {"payload_bytes": 1024, ...} for "row/payload_bytes:1024/...". Google Benchmark's
    additions to a name are ignored."""
    pairs = (part.partition(":") for part in name.split("/")[1:])
    return {key: value_of(value) for key, colon, value in pairs
            if colon and key not in ("iterations", "repeats")}


def medians(repetitions):
    """Returns the figures of one benchmark from its repetitions."""
    def of(key):
        values = [repetition[key] for repetition in repetitions if key in repetition]
        return statistics.median(values) if values else None

    samples = [repetition["ns_per_packet"] for repetition in repetitions]
    figures = {
        "ns_per_packet": of("ns_per_packet"),
        "ns_per_packet_without_results": of("ns_per_packet_nothing_sent"),
        "ns_per_result": of("ns_per_result"),
        "ns_per_acknowledgement": of("ns_per_acknowledgement"),
        "mpps": 1e3 / of("ns_per_packet"),
        "floor_ns": None,
        "ratio_to_floor": None,
        "nway_floor_ns": None,
        "ratio_to_nway_floor": None,
        "cycles_per_packet": of("cycles_per_packet"),
        "instructions_per_packet": of("instructions_per_packet"),
        "samples_ns": samples,
        "spread": (max(samples) - min(samples)) / statistics.median(samples),
    }
    for floor in ("floor", "nway_floor"):
        if of(f"{floor}_plain_ns") is None:
            continue
        kind = min((f"{floor}_plain_ns", f"{floor}_prefetching_ns"), key=of)
        figures[f"{floor}_ns"] = of(kind)
        figures[f"{floor}_prefetches"] = kind == f"{floor}_prefetching_ns"
        figures[f"{floor}_samples_ns"] = [repetition[kind] for repetition in repetitions]
        # The two times of a repetition were measured under the same load, so they are compared
        # first.
        figures[f"ratio_to_{floor}"] = statistics.median(
            repetition[kind] / repetition["ns_per_packet"] for repetition in repetitions)
    return figures


def rows_of(report):
    """Returns (rows, scaling) in the order measured."""
    repetitions = {}
    for entry in report["benchmarks"]:
        if entry.get("error_occurred"):
            raise BenchError(f"{entry['name']}: {entry.get('error_message', 'failed')}")
        if entry["run_type"] == "iteration":
            repetitions.setdefault(entry["name"], []).append(entry)
    rows, scaling = [], []
    for name, entries in repetitions.items():
        row = {**description(name), **medians(entries)}
        for key in ("worst_case", "estimated"):
            if key in row:
                row[key] = bool(row[key])
        payload_bytes = row.get("payload_bytes", BASE_PAYLOAD_BYTES)
        row["gbit_per_s"] = 8 * payload_bytes / row["ns_per_packet"]
        (rows if name.startswith("row/") else scaling).append(row)
    return rows, scaling


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--filter", help="names of the benchmarks to run, as Google Benchmark's")
    options = command_line.parse(parser)

    meta = metadata.measured("pipeline")
    report, command = run_bench(options.build, options.quick, options.filter)
    rows, scaling = rows_of(report)
    if not rows and not scaling:
        raise BenchError("nothing was measured")
    if rows:
        print_table(COLUMNS, rows)
    if scaling:
        print()
        print_table(SCALING_COLUMNS, scaling)
    if options.json:
        context = report["context"]
        meta["machine"].update(l2_bytes=int(context["l2_bytes"]),
                               l3_bytes=int(context["l3_bytes"]),
                               instruction_set=context["instruction_set"])
        meta["bench_command"] = command
        results.write(options, {"meta": meta, "rows": rows, "scaling": scaling})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_pipeline")
