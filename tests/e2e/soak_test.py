#!/usr/bin/env python3
"""The short version of ./dev soak, and a test that the soak finds injected faults.

    soak_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

import soak  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SECONDS = 120
PAUSE_US = 30_000  # most of the time is for other tests
DEADLINE_S = 600
EMPTY = {"descriptors": 20, "threads": 12, "mbufs": 3, "slots_used": 0, "slots_reserved": 0, "memory_used_bytes": 0}


def samples_of(values, every_s=5.0):
    """Returns samples in the form of soak.py. `values`: for each sample, the value of all judged
    keys."""
    return [{"seconds": number * every_s, **dict.fromkeys(soak.LIMITS, value)}
            for number, value in enumerate(values)]


class JudgementTest(unittest.TestCase):
    def test_a_line_that_grows_is_a_leak_and_noise_is_none(self):
        noise = [(number * 7919) % 5 for number in range(200)]
        self.assertEqual(soak.leaks(samples_of(noise)), [])
        steep = samples_of([value + 50 * number / 200 for number, value in enumerate(noise)])
        self.assertAlmostEqual(soak.growth(steep, "descriptors"), 50, delta=3)
        self.assertEqual(len(soak.leaks(steep)), 2, "descriptors and threads, but not memory or mbufs")
        self.assertIn("descriptors grew by", soak.leaks(steep)[0])
        self.assertEqual(soak.leaks(samples_of(range(30))), [], "too short to tell")

    def test_mbufs_that_were_not_counted_are_no_leak(self):
        """As without Ethernet ports."""
        samples = [{key: value for key, value in sample.items() if key != "mbufs"}
                   for sample in samples_of(range(0, 2000, 10))]
        self.assertEqual(len(soak.leaks(samples)), 2, "descriptors and threads")
        empty = {key: value for key, value in EMPTY.items() if key != "mbufs"}
        self.assertEqual(soak.held(empty, empty), [])

    def test_what_an_empty_switch_keeps_is_held(self):
        self.assertEqual(soak.held(EMPTY, EMPTY), [])
        self.assertEqual(soak.held(EMPTY, EMPTY | {"threads": 11}), [])
        for key in EMPTY:
            self.assertIn(key, soak.held(EMPTY, EMPTY | {key: EMPTY[key] + 1})[0])

    def test_only_the_right_end_is_right(self):
        self.assertIsNone(soak.wrong_end("INA_OK 17", 0))
        self.assertIsNone(soak.wrong_end("ok 17", 0))
        lost = "rank 0 of 3, reduce of 5 int32, sum, root 1: INA_ERR_PEER_LOST rank 2 is gone"
        self.assertIsNone(soak.wrong_end(lost, 0, lost=2))
        for said, code, killed in ((lost, 0, None), (lost, 0, 1), ("INA_OK 17", 0, 2), ("INA_OK 17", 1, None),
                                   ("INA_ERR_TIMEOUT x", 0, None), ("", -11, None), ("", -11, 2)):
            self.assertIsNotNone(soak.wrong_end(said, code, killed), (said, code, killed))


class SoakTest(unittest.TestCase):
    def test_mixed_jobs_with_faults(self):
        with tempfile.TemporaryDirectory(prefix="ina-soak-test-") as folder:
            report = pathlib.Path(folder) / "soak.json"
            done = subprocess.run([sys.executable, SCRIPTS / "soak.py", "--build", BUILD, "--seconds",
                                   str(SECONDS), "--pause-us", str(PAUSE_US), "--sample-every", "2", "--raw",
                                   report], text=True, capture_output=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.loads(report.read_text())
        self.assertEqual(found["failures"], [])
        self.assertTrue(found["meta"]["command"].startswith("scripts/soak.py "), found["meta"])
        # A soak that has done nothing proves nothing.
        self.assertGreater(found["operations"], 0)
        self.assertGreater(len(found["raw"]), 1)
        self.assertGreaterEqual(sum(found["events"].values()), 3, found["events"])
        root = os.geteuid() == 0
        self.assertEqual({"mbufs" in sample for sample in found["raw"]}, {root})
        self.assertEqual("No mbufs were counted" in done.stdout, not root)


if __name__ == "__main__":
    unittest.main()
