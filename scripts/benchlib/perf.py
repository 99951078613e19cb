"""ina-perf on the hosts of a test bed, as the ranks of one job over udp:."""

import json
import os
import subprocess

from benchlib.errors import BenchError


def start(build, bed, job, size, *options, report=None, url_options=""):
    """Starts the ranks and returns their processes, by rank. `size`: bytes of an operation;
    `options`: further options of ina-perf; `report`: the file for rank 0's figures; `url_options`:
    further options of the switch's URL."""
    ranks = []
    for rank, host in enumerate(bed.hosts):
        environment = os.environ | {"INA_RANK": str(rank), "INA_WORLD_SIZE": str(len(bed.hosts))}
        ranks.append(host.start(
            build / "bench/ina-perf", "--url", bed.url("udp", rank) + url_options, "--job", job,
            "--sizes", size, *options, "--timeout", "60s",
            *(["--json", report] if report and rank == 0 else []), env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return ranks


def row_of(ranks, report, deadline_s):
    """Waits until all ranks have ended, and returns rank 0's figures."""
    for process in ranks:
        output = process.communicate(timeout=deadline_s)[0]
        if process.returncode != 0:
            raise BenchError(output.strip())
    return json.loads(report.read_text(encoding="utf-8"))["rows"][0]
