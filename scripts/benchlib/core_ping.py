"""Measures the round trip between two cores. On virtual machines it changes within seconds, and the
speed of shared memory with it."""

import select
import subprocess

from benchlib.errors import BenchError

DEADLINE_S = 180


class CorePing:
    """A running peer_core_ping (bench/peers), which measures on request."""

    def __init__(self, build):
        self.process = subprocess.Popen([build / "bench/peers/peer_core_ping"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def measure_ns(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], DEADLINE_S)[0]:
            raise BenchError("the core-to-core round trip was not measured in time")
        return int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait()
