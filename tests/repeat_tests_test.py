#!/usr/bin/env python3
"""The search for tests that fail by chance must find failures, and report how to repeat them."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import repeat_tests  # noqa: E402
import test_targets  # noqa: E402

# Appends its name to a file, and fails each time that the file then has this number of lines.
PROGRAM = """
import pathlib, sys
runs, name, fails_at = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with runs.open("a") as file:
    file.write(name + "\\n")
print("says", name)
sys.exit(1 if runs.read_text().count(name) == fails_at else 0)
"""

# The report of a GoogleTest program of two cases.
GTEST = """
import pathlib, sys
report = next(a.partition("xml:")[2] for a in sys.argv if a.startswith("--gtest_output=xml:"))
assert "--gtest_shuffle" in sys.argv
assert any(a.startswith("--gtest_random_seed=") for a in sys.argv)
pathlib.Path(report).write_text('<testsuites><testsuite name="S"><testcase name="good"/>'
    '<testcase name="bad"><failure/></testcase><testcase name="off" status="notrun"/>'
    '</testsuite></testsuites>')
sys.exit(1)
"""


class RepeatTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.runs = self.root / "runs"
        self.tests = []
        (self.root / "meson-info").mkdir()

    def add(self, name, program=PROGRAM, fails_at=0, suite="ina:wire", **more):
        self.tests.append({
            "cmd": [sys.executable, "-c", program, str(self.runs), name, str(fails_at)], "env": {},
            "name": name, "workdir": None, "timeout": 60, "suite": [suite], "is_parallel": True,
            "protocol": "exitcode", "depends": [], **more})

    def repeat(self, *options):
        (self.root / "meson-info/intro-tests.json").write_text(json.dumps(self.tests))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = repeat_tests.main([str(self.root), *map(str, options)])
        return status, output.getvalue()

    def test_a_test_that_fails_once_is_found(self):
        self.add("steady")
        self.add("flaky", fails_at=2)
        status, output = self.repeat("--rounds", 4)
        self.assertEqual(status, 1)
        self.assertIn("8 runs in 4 rounds, 1 failed:\n  flaky: 1 times\n    round 2: exit status 1; ",
                      output)
        self.assertIn("says flaky", (self.root / "repeat/2-flaky.log").read_text())
        self.assertEqual([log.name for log in (self.root / "repeat").iterdir()], ["2-flaky.log"])

    def test_nothing_failed(self):
        self.add("steady")
        status, output = self.repeat("--rounds", 3, "--load")
        self.assertEqual(status, 0)
        self.assertIn("3 runs in 3 rounds, 0 failed\n", output)

    def test_jitter_is_preloaded_or_missed(self):
        self.add("steady", program="import os; assert os.environ['LD_PRELOAD'].endswith('jitter.so'); "
                                   "assert os.environ['INA_JITTER_SEED'] == '7'")
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            self.repeat("--rounds", 1, "--jitter")
        self.assertIn("sanitizers' builds have none", said.getvalue())
        library = self.root / repeat_tests.JITTER
        library.parent.mkdir(parents=True)
        library.touch()  # the loader reports that it is no library, and continues
        status, output = self.repeat("--rounds", 1, "--jitter", "--seed", 7)
        self.assertEqual(status, 0, output)

    def test_the_order_differs_and_follows_from_the_seed(self):
        for number in range(8):
            self.add(f"test{number}")

        def orders(seed, rounds):
            self.runs.unlink(missing_ok=True)
            self.assertEqual(self.repeat("--rounds", rounds, "--seed", seed, "--jobs", 1)[0], 0)
            names = self.runs.read_text().split()
            return [names[i:i + 8] for i in range(0, len(names), 8)]

        first, second = orders(7, 2)
        self.assertNotEqual(first, second)
        self.assertEqual(sorted(first), sorted(second))
        self.assertEqual(orders(8, 1), [second])

    def test_cases_of_gtest_programs_are_named(self):
        self.add("program", GTEST, protocol="gtest")
        status, output = self.repeat("--rounds", 1)
        self.assertEqual(status, 1)
        self.assertIn(": 2 cases of 1 tests", output)
        self.assertIn("round 1: S.bad; ", output)

    def test_a_test_that_does_not_end_has_failed(self):
        self.add("slow", "import time; time.sleep(1000)", timeout=0.2)
        status, output = self.repeat("--rounds", 1)
        self.assertEqual(status, 1)
        self.assertIn("slow: did not end within 0.2 s", output)

    def test_skipped_is_not_failed(self):
        self.add("steady")
        self.add("rootless", "import sys; sys.exit(77)")
        status, output = self.repeat("--rounds", 1)
        self.assertEqual(status, 0)
        self.assertIn("1 skipped", output)

    def test_programs_run_in_the_build_folder(self):
        self.add("here", "import pathlib, sys; sys.exit(not pathlib.Path('meson-info').is_dir())")
        self.assertEqual(self.repeat("--rounds", 1)[0], 0)

    def test_nothing_selected_is_a_failure(self):
        self.add("steady")
        self.assertEqual(self.repeat("--rounds", 1, "--suite", "net")[0], 1)

    def test_targets_of_suites(self):
        self.add("a", depends=["a_id", "worker_id"])
        self.add("b", suite="ina:net", depends=["b_id"])
        (self.root / "meson-info/intro-tests.json").write_text(json.dumps(self.tests))
        (self.root / "meson-info/intro-targets.json").write_text(json.dumps([
            {"id": f"{name}_id", "filename": [os.path.join(self.root.resolve(), "tests", name)]}
            for name in ("a", "b", "worker", "other")]))
        for options, expected in (((), "tests/a\ntests/b\ntests/worker\n"),
                                  (("--suite", "wire"), "tests/a\ntests/worker\n"),
                                  (("--no-suite", "wire"), "tests/b\n"),
                                  (("--suite", "none"), "")):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                self.assertEqual(test_targets.main([str(self.root), *options]), 0)
            self.assertEqual(output.getvalue(), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
