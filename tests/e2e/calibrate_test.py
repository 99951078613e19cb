"""Tests ina-plan calibrate: ina-plan can plan for the measured topology.

    calibrate_test.py INA_PLAN INA_SWITCHD
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INA_RUN = ROOT / "programs/run/ina-run"
SWITCHD, INA_PLAN = sys.argv.pop(), sys.argv.pop()
DEADLINE_S = 600


class CalibrateTest(unittest.TestCase):
    def calibrate(self, ranks, *options):
        return subprocess.run([INA_RUN, "-n", str(ranks), "--switchd", SWITCHD, INA_PLAN, "calibrate", *options],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    def plan(self, *options):
        done = subprocess.run([INA_PLAN, *options], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_its_output_is_planned_for(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mesh.yaml"
            done = self.calibrate(4, "--sizes", "2,2", "--output", str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            text = path.read_text()
            self.assertEqual([float(rate) > 0 for rate in re.findall(r"\bgbps: ([\d.e+]+)", text)], [True, True], text)
            self.assertIn("4 participants", self.plan("collective", "--topology", str(path), "--bytes", "1000000"))
            costs = re.search(r"^# ina-plan redistribute (.*)$", text, re.MULTILINE)[1].split()
            self.plan("redistribute", "--mesh", "x=4", "--shape", "8,8", "--from", "x,-", "--to", "-,x", *costs)

    def test_sizes_that_are_not_the_ranks(self):
        done = self.calibrate(2, "--sizes", "2,2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("2 x 2", done.stderr)

    def test_rails_that_are_too_few(self):
        done = self.calibrate(2, "--sizes", "2", "--rails", "shm:/a,shm:/b")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--rails has 2 URLs for 1 dimensions", done.stderr)


if __name__ == "__main__":
    unittest.main()
