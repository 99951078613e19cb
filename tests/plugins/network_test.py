"""A small program of each plugin on hosts of a network: the other tests use shared memory.

    network_test.py BUILD_FOLDER [MPI LIBRARY PROGRAM]...

Needs root (tests/net/namespaces.py), and skips itself without.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
# By MPI: the library, and the program that checks all collectives.
MPIS = {mpi: (library, program) for mpi, library, program in zip(*[iter(sys.argv[2:])] * 3)}
del sys.argv[1:]
sys.path[:0] = [str(ROOT / "tests/net"), str(ROOT / "scripts")]

from benchlib.mpi import AS_ROOT, MPIRUN  # noqa: E402
from namespaces import NetworkTestBed, require_root, wait_until  # noqa: E402

HOSTS = 2
DEADLINE_S = 600
AGGREGATOR = "aggregator: {slot_bytes: 1 KiB, slots: 1024, policy: esa}\n"

PYTHON = """
import ina, numpy, sys
with ina.Context() as job:
    rank = job.rank
    assert (job.allreduce(numpy.full(5000, rank + 1.0, numpy.float32)) == 3).all()
    assert (job.broadcast(numpy.full(5000, rank, numpy.int32), root=1) == 1).all()
    assert list(job.all_gather(numpy.full(2, rank, numpy.int64))) == [0, 0, 1, 1]
    received = numpy.zeros(5000)
    job.send_receive(numpy.full(5000, rank + 5.0), 1 - rank, received, 1 - rank)
    assert (received == 6 - rank).all()
    job.barrier()
    print("right", job.stats["bytes_by_switch"] > 0)
"""
TORCH = """
import datetime, sys, torch, torch.distributed as dist, ina.torch
rank = int(sys.argv[1])
dist.init_process_group("ina", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=60))
tensor = torch.full((5000,), rank + 1.0)
dist.all_reduce(tensor)
assert (tensor == 3).all()
tensor = torch.full((5000,), rank)
dist.broadcast(tensor, 1)
assert (tensor == 1).all()
gathered = [torch.zeros(2) for _ in range(2)]
dist.all_gather(gathered, torch.full((2,), float(rank)))
assert torch.cat(gathered).tolist() == [0, 0, 1, 1]
tensor = torch.full((5000,), 7.0)
dist.send(tensor, 1) if rank == 0 else dist.recv(tensor.zero_(), 0)
assert (tensor == 7).all()
print("right", ina.torch.stats()["bytes_by_switch"] > 0)
dist.destroy_process_group()
"""


class NetworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="ina-plugins-net-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.bed = NetworkTestBed(HOSTS)
        cls.addClassCleanup(cls.bed.close)
        cls.bed.start_switch(BUILD / "switchd/ina-switchd", cls.folder, AGGREGATOR)

    def status(self):
        return self.bed.status(BUILD / "programs/inactl/inactl")

    def delivered(self):
        return sum(port["delivered"] for port in self.status()["ports"] if port["type"] == "ethdev")

    def setUp(self):
        self.delivered_before = self.delivered()

    def tearDown(self):
        wait_until("the jobs to end", lambda: not self.status()["jobs"])
        self.assertGreater(self.delivered(), self.delivered_before, "nothing came over the network")

    def environment(self, host):
        return {**os.environ, "PYTHONPATH": str(BUILD / "plugins/python"), "INA_URL": self.bed.url("udp", host),
                "OMP_NUM_THREADS": "1"}

    def check_ranks(self, program, arguments, environments):
        """Runs a rank of the program on each host."""
        ranks = [host.python(program, *arguments(rank), env=self.environment(rank) | environments(rank))
                 for rank, host in enumerate(self.bed.hosts)]
        for rank in ranks:
            said, _ = rank.communicate(timeout=DEADLINE_S)
            self.assertEqual((rank.returncode, said), (0, "right True\n"))

    def test_python(self):
        self.check_ranks(PYTHON, lambda rank: [], lambda rank: {
            "INA_JOB": "python", "INA_RANK": str(rank), "INA_WORLD_SIZE": str(HOSTS)})

    @unittest.skipUnless(list(BUILD.glob("plugins/python/ina/_torch.*.so")), "no PyTorch")
    def test_torch(self):
        self.check_ranks(TORCH, lambda rank: [rank, self.folder / "store"], lambda rank: {})

    def test_mpi(self):
        """mpirun starts its ranks on one host, both of which reach the switch by the network."""
        for mpi, (library, program) in MPIS.items():
            with self.subTest(mpi):
                done = subprocess.run(
                    self.bed.hosts[0].command(*MPIRUN[mpi], "-n", "2", "env", f"LD_PRELOAD={library}", program),
                    env={**self.environment(0), **AS_ROOT, "INA_MPI_REPORT": "1"}, capture_output=True, text=True,
                    timeout=DEADLINE_S, check=False)
                self.assertEqual((done.returncode, done.stdout.strip()), (0, "all right"), done.stderr)
                for call in ("MPI_Allreduce", "MPI_Bcast", "MPI_Allgather"):
                    self.assertRegex(done.stderr, rf"(?m)^ina: {call} .* the switch$")


if __name__ == "__main__":
    require_root()
    unittest.main()
