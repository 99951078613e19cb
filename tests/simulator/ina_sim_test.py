#!/usr/bin/env python3
"""ina-sim as a program: its answers and its complaints.

    ina_sim_test.py PROGRAM
"""

import csv
import io
import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop()
SMALL = ["--plain-mb", "1", "--iterations", "2", "--workers", "4"]


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)


class InaSim(unittest.TestCase):
    def test_json(self):
        done = run(*SMALL, "--quiet", "--json", "-", "--sample-us", "10")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertTrue(result["correct"])
        self.assertEqual(result["sums_checked"], 8)
        self.assertEqual(len(result["jobs"]), 1)
        self.assertAlmostEqual(result["avg_jct_s"], 2 * 8e6 / 100e9, delta=0.2e-4)
        self.assertGreater(len(result["slot_samples"]), 10)

    def test_csv(self):
        done = run(*SMALL, "--jobs", "3", "--quiet", "--csv", "-")
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([row["model"] for row in rows], ["plain"] * 3)
        self.assertTrue(all(float(row["jct_s"]) > 0 for row in rows))

    def test_same_seed_same_answer(self):
        def answer(seed):
            options = ["--models", "vgg16,dlrm", "--jobs", "3", "--arrival-ms", "0.2", "--scale",
                       "512", "--slots", "16", "--workers", "4", "--iterations", "2"]
            result = json.loads(run(*options, "--seed", seed, "--quiet", "--json", "-").stdout)
            del result["simulator"]
            return result
        self.assertEqual(answer("5"), answer("5"))
        self.assertNotEqual(answer("5")["jobs"], answer("6")["jobs"])

    def test_complaints(self):
        for arguments, words in (
                (["--models", "alexnet"], "there is no model 'alexnet'; there are resnet50"),
                (["--policy", "lifo"], "lifo"),
                (["--workers", "65"], "a job has 1 to 64 workers, not 65"),
                (["--racks", "3"], "there are one or two racks"),
                (["--loss", "2"], "--loss"),
                (["--in-switch", "600"], "no more can be in the switch than in the window"),
                (["--policy", "static", "--help-straggler", "leader"],
                 "straggler help needs the policy esa or fcfs"),
                (["--nonsense"], "--nonsense"),
                (["--json", "/nonexistent/x", *SMALL], "cannot write /nonexistent/x")):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
