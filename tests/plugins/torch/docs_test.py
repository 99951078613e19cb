"""Runs the Python blocks of docs/pytorch.md, as one program on two ranks.

    docs_test.py BUILD_FOLDER
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/plugins"))

import snippets  # noqa: E402

DEADLINE_S = 600
# What the document takes for granted.
MODEL = """
import torch
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
model = torch.nn.Linear(4, 2)
"""
STEP = """
rank = dist.get_rank()
model(torch.full((3, 4), float(rank))).sum().backward()
# The mean of 0 and 3 for each weight, over ranks 0 and 1.
assert torch.equal(model.module.weight.grad, torch.full((2, 4), 1.5)), model.module.weight.grad
assert dist.get_backend() == "ina" and ina.torch.stats()["bytes_by_switch"] > 0
import os
os.write(1, f"rank {rank} is right\\n".encode())
"""


class DocsTest(unittest.TestCase):
    def test_program(self):
        begin, hook = snippets.blocks("pytorch", "python")
        with tempfile.TemporaryDirectory(prefix="ina-torch-") as folder:
            program = pathlib.Path(folder) / "program.py"
            program.write_text(begin + MODEL + hook + STEP, "utf-8")
            done = subprocess.run(
                [ROOT / "programs/run/ina-run", "-n", "2", "--switchd", BUILD / "switchd/ina-switchd", sys.executable,
                 program], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                env=dict(os.environ, PYTHONPATH=str(BUILD / "plugins/python"), OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"[{rank}] rank {rank} is right" for rank in range(2)])


if __name__ == "__main__":
    unittest.main()
