"""All-reduces and other collectives over trees of real switches, in network namespaces on this
machine: beside the same ranks at one switch, and with the bytes that each uplink carried."""

import json
import subprocess
import tempfile

from benchlib import processes, testbed
from benchlib.errors import BenchError, Unavailable

DEADLINE_S = 300
SLOT_BYTES = 8192
ROUNDS = 5


def shapes():
    """Returns the trees by their levels: a function that adds the switches, and returns those that
    workers join."""
    def one(bed):
        return [bed.add("root")]

    def two(bed):
        root = bed.add("root", below=True)
        return [bed.add(f"leaf{number}", above=root) for number in range(4)]

    def three(bed):
        root = bed.add("root", below=True)
        middle = [bed.add(f"middle{number}", above=root, below=True) for number in range(2)]
        return [bed.add(f"low{number}", above=middle[number % 2]) for number in range(4)]

    return {1: one, 2: two, 3: three}


class Tree:
    """A tree of switches that serve."""

    def __init__(self, build, levels):
        testbed.use_folder("tests/net")
        from tree_beds import TreeTestBed
        self.build = build
        self.folder = tempfile.TemporaryDirectory(prefix="ina-bench-trees-")
        self.bed = TreeTestBed(build / "switchd/ina-switchd", self.folder.name)
        self.joined = shapes()[levels](self.bed)
        for switch in self.bed.switches:
            switch.slot_bytes = SLOT_BYTES
            switch.window_kib = 1024
        try:
            self.bed.start()
        except RuntimeError as error:
            self.close()
            raise Unavailable(str(error)) from error

    def uplink(self):
        """Returns the payload bytes that the first leaf has sent up and has got, so far."""
        leaf = self.joined[0]
        if not leaf.above:
            return None
        ports = leaf.status(self.build / "programs/inactl/inactl")["ports"]
        port = next(port for port in ports if port["name"] == "up0")
        return [port["tx_bytes"], port["rx_bytes"]]

    def run(self, ranks, collective, size, rounds=ROUNDS):
        """Returns what the ranks print, in turns over the switches."""
        started = [subprocess.Popen(
            [self.build / "bench/tree_worker", self.joined[rank % len(self.joined)].url, "job",
             str(rank), str(ranks), collective, str(size), str(rounds)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(ranks)]
        try:
            said = [process.communicate(timeout=DEADLINE_S)[0] for process in started]
        finally:
            for process in started:
                processes.stop(process)
        for rank, (process, text) in enumerate(zip(started, said)):
            if process.returncode != 0:
                raise BenchError(f"rank {rank}: {text}")
        return [json.loads(text) for text in said]

    def close(self):
        self.bed.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def measure(build, points, progress):
    """Returns the rows, and whether a reproducible sum has the same bits in all trees. `points`:
    ranks, bytes, collectives."""
    times, uplinks, bits = {}, {}, set()
    for levels in shapes():
        with Tree(build, levels) as tree:
            for ranks, size, collectives in points:
                for collective in collectives:
                    progress(f"{levels} levels, {ranks} ranks, {collective} of {size} bytes")
                    before = tree.uplink()
                    said = tree.run(ranks, collective, size)
                    after = tree.uplink()
                    times[levels, ranks, size, collective] = max(one["us"] for one in said)
                    if before:
                        uplinks[levels, ranks, size, collective] = [
                            round((b - a) / ROUNDS) for a, b in zip(before, after)]
            bits |= {one["bits"] for one in tree.run(16, "reproducible", 100_000)}
    rows = []
    for (levels, ranks, size, collective), took in times.items():
        if levels == 1:
            continue
        up, down = uplinks[levels, ranks, size, collective]
        rows.append({"levels": levels, "ranks": ranks, "bytes": size, "collective": collective,
                     "us": took, "one_level_us": times[1, ranks, size, collective],
                     "uplink_bytes": up, "downlink_bytes": down, "correct": True})
    return rows, len(bits) == 1
