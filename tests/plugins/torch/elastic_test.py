"""Tests torchrun: restarts, and ends of all kinds, after which nothing may remain.

    elastic_test.py BUILD_FOLDER
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import ranks
from ranks import SwitchTest

RANKS = 2
DEADLINE_S = 600
GONE_DEADLINE_S = 600

# Computes sums. The first life of rank 1 ends as the argument says; in the last life all ranks
# print.
PROGRAM = textwrap.dedent("""\
    import os, pathlib, signal, sys, time
    import torch
    import torch.distributed as dist
    import ina, ina.torch

    # The library alone understands torchrun's variables, too: another job for each life.
    with ina.Context() as job:
        job.barrier()
        assert (job.rank, job.world_size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    dist.init_process_group("ina")
    rank, life = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    total = torch.ones(1000)
    dist.all_reduce(total)
    assert total[0] == dist.get_world_size()
    (folder / f"started.{life}.{rank}").write_text(str(os.getpid()))
    if how == "wait":
        while True:
            dist.all_reduce(total)
            time.sleep(0.01)
    if life == 0 and rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise RuntimeError("the first life ends")
    if life == 0:
        # torchrun asks it to end at some time, perhaps before it is told.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            dist.all_reduce(torch.ones(1000))
        except RuntimeError as error:
            (folder / "told").write_text(str(error))
            raise
    dist.all_reduce(total)
    (folder / f"ended.{life}.{rank}").write_text("well")
    dist.destroy_process_group()
""")


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def shared_memory():
    return {path.name for path in pathlib.Path("/dev/shm").iterdir() if "ina" in path.name}


class ElasticTest(SwitchTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="ina-elastic-")
        self.addCleanup(holder.cleanup)
        self.work = pathlib.Path(holder.name)
        (self.work / "program.py").write_text(PROGRAM)
        self.memory_before = shared_memory()

    def launch(self, how, restarts):
        # --redirects, --tee: the defaults of PyTorch 1.13 fail under Python 3.11, whose IntFlag
        # does not list zero.
        # The rendezvous is in a file: that of --standalone needs libuv since PyTorch 2.4, with which
        # Debian's is not built.
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={RANKS}", "--rdzv_backend=c10d",
                   f"--rdzv_endpoint={self.work}/rendezvous", "--rdzv_conf=store_type=file", "--rdzv_id=test",
                   f"--max_restarts={restarts}", "--redirects=1", "--tee=2", "--log_dir", str(self.work / "logs"),
                   str(self.work / "program.py"), how, str(self.work)]
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "INA_URL": self.url, "OMP_NUM_THREADS": "1",
                 "USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                 "PYTHONPATH": str(ranks.BUILD / "plugins/python")},
            # A shell ignores SIGINT in background processes, and so this test may inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        return running

    def pids(self, running, life):
        """Returns the ranks' process ids, once all have made their first sum. `running`: torchrun,
        whose end ends the wait."""
        paths = [self.work / f"started.{life}.{rank}" for rank in range(RANKS)]

        def started():
            return all(path.exists() and path.read_text() for path in paths)

        self.await_(lambda: started() or running.poll() is not None, DEADLINE_S, "ranks have not started")
        self.assertTrue(started(), f"torchrun has ended with {running.returncode}")
        return [int(path.read_text()) for path in paths]

    def await_(self, condition, deadline_s, text):
        end = time.monotonic() + deadline_s
        while not condition():
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.05)

    def expect_nothing_left(self, pids):
        self.await_(lambda: not any(map(alive, pids)), GONE_DEADLINE_S, f"processes are left of {pids}")
        self.await_(lambda: self.switch.status()["jobs"] == [], GONE_DEADLINE_S, "the switch has a job left")
        self.assertLessEqual(shared_memory(), self.memory_before)

    def test_restarts(self):
        """The ranks of the second life form a job of their own, which is independent of the end of
        the first job."""
        for how in ("kill", "raise"):
            with self.subTest(how):
                self.setUp()
                running = self.launch(how, restarts=1)
                said, _ = running.communicate(timeout=DEADLINE_S)
                self.assertEqual(running.returncode, 0, said)
                self.assertTrue((self.work / "told").exists(), said)
                self.assertIn("INA_ERR_PEER_LOST", (self.work / "told").read_text())
                self.assertEqual(sorted(path.name for path in self.work.glob("ended.*")),
                                 [f"ended.1.{rank}" for rank in range(RANKS)])
                self.expect_nothing_left(self.pids(running, 0) + self.pids(running, 1))

    def test_no_restart_left(self):
        running = self.launch("raise", restarts=0)
        said, _ = running.communicate(timeout=DEADLINE_S)
        self.assertNotEqual(running.returncode, 0)
        self.assertIn("the first life ends", said)
        self.expect_nothing_left(self.pids(running, 0))

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                self.setUp()
                running = self.launch("wait", restarts=3)
                pids = self.pids(running, 0)
                running.send_signal(number)
                running.communicate(timeout=DEADLINE_S)
                self.assertNotEqual(running.returncode, 0)
                self.expect_nothing_left(pids)

    def test_killed(self):
        """Kills torchrun and all ranks at once."""
        running = self.launch("wait", restarts=3)
        pids = self.pids(running, 0)
        for pid in [running.pid, *pids]:
            os.kill(pid, signal.SIGKILL)
        running.communicate(timeout=DEADLINE_S)
        self.expect_nothing_left(pids)


if __name__ == "__main__":
    unittest.main()
