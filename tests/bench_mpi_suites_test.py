#!/usr/bin/env python3
"""Tests how bench_mpi_suites.py interprets the output of programs.

    bench_mpi_suites_test.py
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))

import bench_mpi_suites as suites  # noqa: E402
from benchlib.errors import BenchError  # noqa: E402

PASSED = "Ran 12 tests in 0.1s\n\nOK (skipped=2)\n"
FAILED = "FAIL: testSum (test_op.TestOp)\nERROR: testMax (test_op.TestOp)\nRan 12 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n"
NO_MODULE = "ModuleNotFoundError: No module named 'mpi4py'\n"
REPORT = ("ina: MPI_Allreduce                        60         12288768  the switch\n"
          "ina: MPI_Allreduce                         3                   MPI: type and operation are not offered\n")


class SuitesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="ina-suites-")
        self.addCleanup(holder.cleanup)
        self.source = pathlib.Path(holder.name)
        (self.source / "test").mkdir()
        (self.source / "test/test_op.py").touch()
        (self.source / "build/lib.of-some-name").mkdir(parents=True)
        self.addCleanup(setattr, suites, "mpirun", suites.mpirun)
        self.addCleanup(setattr, suites, "built", suites.built)
        suites.built = lambda source, target, command: source

    def run_suite(self, **texts):
        """Returns the outcomes of a suite of one module on 2 ranks. `texts`: the output by way;
        None: the program does not end."""
        suites.mpirun = lambda build, mpi, way, ranks, *rest: texts[way] and [texts[way]] * ranks
        return suites.run_mpi4py(self.source, self.source, "openmpi", [], 2)

    def test_a_failure_of_both_is_not_new(self):
        outcomes = self.run_suite(plain=FAILED, ina=FAILED)
        self.assertEqual(len(outcomes["ina"].failed), 2)
        self.assertEqual(suites.new_failures(outcomes), [])

    def test_failures_with_the_interposer_alone(self):
        self.assertEqual(suites.new_failures(self.run_suite(plain=PASSED, ina=FAILED)),
                         ["test_op: testMax (test_op.TestOp)", "test_op: testSum (test_op.TestOp)"])
        self.assertEqual(suites.new_failures(self.run_suite(plain=PASSED, ina=None)), ["test_op"])

    def test_a_suite_that_did_not_start_is_no_success(self):
        with self.assertRaises(BenchError):
            self.run_suite(plain=NO_MODULE, ina=NO_MODULE)

    def test_ranks_count_a_test_once(self):
        outcome = self.run_suite(plain=PASSED, ina=REPORT + PASSED)["ina"]
        self.assertEqual((outcome.tests, outcome.skipped), (12, 2))
        self.assertEqual(outcome.through, {"the switch": 60, "MPI: type and operation are not offered": 3})


if __name__ == "__main__":
    unittest.main()
