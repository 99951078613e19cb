#!/usr/bin/env python3
"""Tests how bench_mpi_suites.py interprets the output of programs.

    bench_mpi_suites_test.py
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))

import bench_mpi_suites as suites  # noqa: E402
from benchlib import mpi_programs  # noqa: E402
from benchlib.suites import summed  # noqa: E402
from benchlib.errors import BenchError  # noqa: E402

PASSED = "Ran 12 tests in 0.1s\n\nOK (skipped=2)\n"
FAILED = "FAIL: testSum (test_op.TestOp)\nERROR: testMax (test_op.TestOp)\nRan 12 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n"
NO_MODULE = "ModuleNotFoundError: No module named 'mpi4py'\n"
REPORT = ("ina: MPI_Allreduce                        60         12288768  the switch\n"
          "ina: MPI_Allreduce                         3                   MPI: type and operation are not offered\n")


def rows_of(path, run="all"):
    return suites.Rows(argparse.Namespace(json=path, raw=None, run=run))


class SuiteCase(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="ina-suites-")
        self.addCleanup(holder.cleanup)
        self.source = pathlib.Path(holder.name)
        (self.source / "test").mkdir()
        (self.source / "test/test_op.py").touch()
        (self.source / "build/lib.of-some-name").mkdir(parents=True)
        self.file = self.source / "suites.json"
        self.rows = rows_of(self.file)
        self.ran = []
        self.addCleanup(setattr, suites, "mpirun", suites.mpirun)
        self.addCleanup(setattr, suites, "built", suites.built)
        suites.built = lambda source, target, command: source

    def run_suite(self, words=(), **texts):
        """Runs a suite on 2 ranks, and returns the last row. `texts`: the output by way; None: the
        program does not end."""
        def mpirun(build, mpi, way, ranks, command, *rest):
            self.ran.append(command[-1].strip("^$"))
            return texts[way] and suites.Finished(0, "", [texts[way]] * ranks)
        suites.mpirun = mpirun
        suites.run_mpi4py(self.source, self.source, "openmpi", words, 2, self.rows)
        return self.rows.rows[-1] if self.rows.rows else None


class SuitesTest(SuiteCase):
    def test_a_failure_of_both_is_not_new(self):
        row = self.run_suite(plain=FAILED, ina=FAILED)
        self.assertEqual(len(row["failed"]), 2)
        self.assertEqual(row["new"], [])

    def test_failures_with_the_interposer_alone(self):
        self.assertEqual(self.run_suite(plain=PASSED, ina=FAILED)["new"],
                         ["test_op: testMax (test_op.TestOp)", "test_op: testSum (test_op.TestOp)"])
        self.assertEqual(self.run_suite(plain=PASSED, ina=None)["new"], ["test_op"])

    def test_a_suite_that_did_not_start_is_no_success(self):
        with self.assertRaises(BenchError):
            self.run_suite(plain=NO_MODULE, ina=NO_MODULE)

    def test_ranks_count_a_test_once(self):
        row = self.run_suite(plain=PASSED, ina=REPORT + PASSED)
        self.assertEqual((row["tests"], row["skipped"]), (12, 2))
        self.assertEqual((row["calls"], row["taken"], row["left"]),
                         (63, 60, {"MPI: type and operation are not offered": 3}))


class ProgramsTest(SuiteCase):
    """Programs that say themselves whether they have passed."""

    def test_lines_of_a_list(self):
        folder = pathlib.Path("/tests/coll")
        listed = mpi_programs.mpich_listed("allred 7 arg=-count=10 env=A=b timeLimit=300", folder)
        self.assertEqual((listed.name, listed.ranks, listed.command, listed.environment),
                         ("coll/allred -count=10 A=b", 7, [folder / "allred", "-count=10"], ["A=b"]))
        for line in ("", "# ic2 needs many", "coll", "scancel 2 xfail=ticket2266", "large_message 3 mem=6.5"):
            self.assertIsNone(mpi_programs.mpich_listed(line, folder), line)

    def test_each_program_once_on_few_ranks(self):
        folder = self.source / "coll"
        folder.mkdir()
        (folder / "allred").touch()
        (folder / "testlist").write_text("allred 4\nallred 10\nallred 2\nnot_built 2\n")
        programs = mpi_programs.mpich_programs(self.source, "coll", 4)
        self.assertEqual([program.name for program in programs], ["coll/allred, 4 ranks", "coll/allred, 2 ranks"])

    def test_verdicts(self):
        self.assertTrue(mpi_programs.mpich_passed("about\n No Errors\n"))
        self.assertFalse(mpi_programs.mpich_passed("Found 2 errors\n"))
        residuals = "  240 tests completed and passed residual checks.\n    {} tests completed and failed residual checks.\nEND OF TESTS.\n"
        self.assertTrue(mpi_programs.scalapack_passed(residuals.format(0)))
        self.assertFalse(mpi_programs.scalapack_passed(residuals.format(1)))
        self.assertFalse(mpi_programs.scalapack_passed("END OF TESTS.\n"))
        table = " ScaLAPACK Test for PDHSEQR\n    N  NB    P    Q  QR Time  CHECK\n"
        self.assertTrue(mpi_programs.scalapack_passed(table + "  500  50    1    2    10.60 PASSED\n"))
        self.assertFalse(mpi_programs.scalapack_passed(table + "  500  50    1    1    10.60 PASSED\n  500  50    1    2    10.60 FAILED\n"))
        self.assertFalse(mpi_programs.scalapack_passed(table))
        self.assertTrue(mpi_programs.scalapack_passed("TEST 1\nPassed 0.1 80 32\nPassed 0.1 80 32\nEnd of tests\n"))
        self.assertFalse(mpi_programs.scalapack_passed("TEST 1\nPassed 0.1 80 32\nFailed 90. 80 32\nEnd of tests\n"))
        self.assertTrue(mpi_programs.mumps_passed("  Solution is  1.00000060  2.00000048  3.0000  4.0000  4.99999905\n 7.5"))
        self.assertTrue(mpi_programs.mumps_passed("Solution is (0.9999999,0.0000) (2.00000,0.00) (3.0,0.0) (3.9999999,0.0) (5.0,0.0)\n"))
        self.assertFalse(mpi_programs.mumps_passed("Solution is 1.0 2.0 3.1 4.0 5.0\n"))

    def test_grids_fit_the_ranks(self):
        text = "4\tnumber of grids (P & Q)\n1 2 1 4\t\tvalues of P\n1 2 4 1   values of Q (NPCOL)\n1.0\tthreshold\n"
        self.assertEqual(mpi_programs.fitting_grids(text, 2), "4\tnumber of grids (P & Q)\n1 2 1 2 values of P\n1 1 2 1 values of Q (NPCOL)\n1.0\tthreshold\n")
        self.assertEqual(mpi_programs.fitting_grids(text, 4).split(), text.split())

    def test_a_stop_of_the_machine_is_one_step_of_a_deadline(self):
        def ends_after(waits, deadline_s):
            left = iter(range(waits, -1, -1))

            class Running:
                def wait(self, timeout):
                    if next(left):
                        raise subprocess.TimeoutExpired("program", timeout)
            return suites.ends_in_time(Running(), deadline_s)
        self.assertTrue(ends_after(2, 3))
        self.assertFalse(ends_after(3, 3))

    def test_what_fails_with_the_interposer_alone(self):
        program = mpi_programs.Program("coll/bcast 2", ["bcast"], 2, [], None, None)
        for plain, ina, new in ((0, 0, []), (1, 1, []), (0, 1, ["coll/bcast 2"]), (0, None, ["coll/bcast 2"])):
            statuses = {"plain": plain, "ina": ina}
            suites.mpirun = lambda build, mpi, way, *rest, given=statuses: (
                None if given[way] is None else suites.Finished(given[way], " No Errors\n", [REPORT, ""]))
            outcomes = suites.run_programs(self.source, "openmpi", [program], mpi_programs.mpich_passed, 60)
            self.assertEqual(suites.new_failures(outcomes), new)


class FileTest(SuiteCase):
    """Rows of several runs in one file."""

    def again(self, run):
        self.rows, self.ran = rows_of(self.file, run), []

    def read(self):
        return json.loads(self.file.read_text("utf-8"))["rows"]

    def test_each_row_says_where_it_is_from(self):
        self.run_suite(plain=PASSED, ina=PASSED)
        self.assertLessEqual({"commit", "time", "command", "cpu", "module"}, self.read()[0].keys())

    def test_a_run_replaces_its_own_rows_only(self):
        (self.source / "test/test_win.py").touch()
        self.run_suite(plain=PASSED, ina=PASSED)
        before = self.read()
        self.again("all")
        self.rows.origin["commit"] = "later"
        self.run_suite(["win"], plain=PASSED, ina=REPORT + PASSED)
        self.assertEqual(self.ran, ["test_win"] * 2)
        after = self.read()
        self.assertEqual([row["module"] for row in after], ["test_op", "test_win"])
        self.assertEqual(after[0], before[0])
        self.assertEqual((after[1]["taken"], after[1]["commit"]), (60, "later"))

    def test_an_interrupted_run_goes_on(self):
        self.run_suite(plain=PASSED, ina=PASSED)
        (self.source / "test/test_win.py").touch()
        self.again("missing")
        self.run_suite(plain=PASSED, ina=FAILED)
        self.assertEqual(self.ran, ["test_win"] * 2)
        self.again("missing")
        self.run_suite(plain=PASSED, ina=PASSED)
        self.assertEqual(self.ran, ["test_win"] * 2, "what has new failures runs again")
        self.again("missing")
        self.run_suite(plain=PASSED, ina=PASSED)
        self.assertEqual((self.ran, len(self.read())), ([], 2))

    def test_what_hangs_after_others_have_run_is_no_failed_start(self):
        self.run_suite(plain=PASSED, ina=PASSED)
        (self.source / "test/test_win.py").touch()
        self.again("missing")
        self.assertEqual(self.run_suite(plain=None, ina=None)["unfinished_plain"], ["test_win"])

    def test_a_row_of_a_whole_suite_gives_way_to_modules(self):
        whole = {"suite": "mpi4py", "mpi": "openmpi", "ranks": 2, "tests": 1056, "new": []}
        self.file.write_text(json.dumps({"rows": [whole, {**whole, "mpi": "mpich"}]}))
        self.again("all")
        self.run_suite(plain=PASSED, ina=PASSED)
        self.assertEqual([(row["mpi"], row["tests"]) for row in self.read()], [("mpich", 1056), ("openmpi", 12)])

    def test_modules_are_summed(self):
        (self.source / "test/test_win.py").touch()
        self.run_suite(plain=PASSED, ina=REPORT + FAILED)
        row, = summed(self.read())
        self.assertEqual((row["tests"], row["taken"], len(row["new"])), (24, 120, 4))


if __name__ == "__main__":
    unittest.main()
