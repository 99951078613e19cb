"""ina-run --mpi: an MPI program with the library for its MPI, over a switch of its own.

    ina_run_test.py INA_SWITCHD [MPI LIBRARY PROGRAM]...
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

INA_RUN = pathlib.Path(__file__).resolve().parents[3] / "programs/run/ina-run"
SWITCHD, *rest = sys.argv[1:]
MPIS = {rest[i]: (pathlib.Path(rest[i + 1]).resolve(), rest[i + 2]) for i in range(0, len(rest), 3)}
del sys.argv[1:]
DEADLINE_S = 600
# Open MPI starts nothing as root otherwise.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def ina_run(*arguments, **environment):
    return subprocess.run([INA_RUN, "--switchd", SWITCHD, "--mpi", "-n", "2", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=DEADLINE_S,
                          env={**os.environ, **AS_ROOT, "INA_MPI_REPORT": "1", **environment})


class InaRunTest(unittest.TestCase):
    def through_the_switch(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"MPI_Allreduce +\d+ +\d+ +the switch")

    def test_the_library_is_that_of_the_programs_mpi(self):
        for library, program in MPIS.values():
            self.through_the_switch(ina_run(program, LD_LIBRARY_PATH=str(library.parent)))

    def test_a_library_that_is_named(self):
        for library, program in MPIS.values():
            self.through_the_switch(ina_run("--mpi-library", library, program))

    def test_a_library_that_is_not_there(self):
        for mpi, (_, program) in MPIS.items():
            for arguments in ([], ["--mpi-library", f"/nowhere/libina_mpi_{mpi}.so"]):
                done = ina_run(*arguments, program, LD_LIBRARY_PATH="")
                self.assertEqual(done.returncode, 1, done)
                self.assertRegex(done.stderr, rf"there is no \S*libina_mpi_{mpi}.so: .*--mpi-library")
                self.assertEqual(done.stdout, "")

    def test_a_program_without_mpi(self):
        done = ina_run("/bin/true")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("/bin/true is linked with neither Open MPI nor MPICH", done.stderr)
        self.assertIn("there is no such program", ina_run("/no/such/program").stderr)

    def test_the_status_is_the_programs(self):
        with tempfile.TemporaryDirectory(prefix="ina-mpi-") as folder:
            script = pathlib.Path(folder) / "script"
            script.write_text("#!/bin/sh\nexit 7\n")
            script.chmod(0o755)
            for library, _ in MPIS.values():
                self.assertEqual(ina_run("--mpi-library", library, script).returncode, 7)


if __name__ == "__main__":
    unittest.main()
