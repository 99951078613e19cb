"""Tests the wheel, installed into a folder, without other parts of the package: for `./dev wheel`.

    wheel_test.py INSTALLED_FOLDER SWITCHD [unittest's arguments]
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
INSTALLED, SWITCHD = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
DEADLINE_S = 600

# Prints "own" if all libraries of the project come from the wheel.
OWN_LIBRARIES = """
import ina, pathlib, sys
with ina.Context() as job, ina.Hierarchy(job, "dimensions: [{kind: ring, size: 2, gbps: 10, step_latency_ns: 500}]"):
    mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libina" in line and "/" in line}
names = sorted(pathlib.Path(path).name for path in mapped)
assert names == ["libina-topology.so", "libina.so"], names
assert all(path.startswith(sys.argv[1]) for path in mapped), mapped
print("own")
"""

HIERARCHY = """
import ina, numpy
NETWORK = '''
dimensions:
  - {kind: halving-doubling, size: 2, gbps: 80, step_latency_ns: 500}
  - {kind: ring, size: 2, gbps: 10, step_latency_ns: 500}
'''
with ina.Context() as job, ina.Hierarchy(job, NETWORK) as network:
    print(network.allreduce(numpy.full(1000, job.rank, numpy.float32))[999])
"""

TRAINING = SOURCE / "examples/pytorch/digits.py"
HAS_TORCH = importlib.util.find_spec("torch") is not None


class WheelTest(unittest.TestCase):
    def run_ranks(self, ranks, *command, **environment):
        """Returns the ranks' output, sorted. Fails if a rank fails."""
        with tempfile.TemporaryDirectory(prefix="ina-wheel-") as elsewhere:
            done = subprocess.run(
                [SOURCE / "programs/run/ina-run", "-n", str(ranks), "--switchd", SWITCHD, sys.executable, *command],
                cwd=elsewhere, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                env={**os.environ, "PYTHONPATH": str(INSTALLED), **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted(done.stdout.splitlines())

    def test_collectives(self):
        self.assertEqual(self.run_ranks(2, SOURCE / "examples/python/average.py"),
                         [f"[{rank}] rank {rank} of 2: 100000 elements, each 0.5" for rank in range(2)])

    def test_topologies(self):
        self.assertEqual(self.run_ranks(4, "-c", HIERARCHY), [f"[{rank}] 6.0" for rank in range(4)])

    def test_libraries(self):
        self.assertEqual(self.run_ranks(2, "-c", OWN_LIBRARIES, str(INSTALLED)), ["[0] own", "[1] own"])

    @unittest.skipUnless(HAS_TORCH, "no PyTorch, so that the wheel was built without ina.torch")
    def test_training(self):
        """Either backend gives the same losses: for two ranks the order of a sum does not
        matter."""
        losses = []
        with tempfile.TemporaryDirectory(prefix="ina-wheel-") as folder:
            for backend in ("ina", "gloo"):
                path = pathlib.Path(folder) / backend
                self.run_ranks(2, TRAINING, "--backend", backend, "--losses", path)
                losses.append(path.read_text(encoding="utf-8"))
        self.assertTrue(losses[0])
        self.assertEqual(*losses)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_another_pytorch(self):
        """The extension is not loaded into a PyTorch that it does not fit."""
        text = self.refusal("torch.__version__ = '2.1.0'")
        self.assertRegex(text, r"ImportError: ina.torch was built for PyTorch \d+\.\d+, and this is 2\.1\.0")

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_built_without_pytorch(self):
        text = self.refusal("import sys; sys.modules['ina._torch_version'] = None")
        self.assertIn("ImportError: this build of the package ina has no ina.torch", text)

    def refusal(self, before):
        done = subprocess.run([sys.executable, "-c", f"import torch; {before}; import ina.torch"],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              env={**os.environ, "PYTHONPATH": str(INSTALLED)})
        self.assertNotEqual(done.returncode, 0)
        return done.stderr


if __name__ == "__main__":
    unittest.main()
