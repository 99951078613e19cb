"""MPI programs with the interposer preloaded, under the mpirun of each MPI.

    interposer_test.py BUILD_FOLDER MPI LIBRARY OTHER_LIBRARY PROGRAM...
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, MPI, LIBRARY, OTHER = sys.argv[1:5]
# By purpose, from the name mpi_NAME_openmpi.
PROGRAMS = {pathlib.Path(path).name.split("_")[1]: path for path in sys.argv[5:]}
del sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import plugin_switch  # noqa: E402
import snippets  # noqa: E402

# plm isolated: a single machine. Without it mpirun does not start if there is no ssh.
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated"],
          "mpich": ["mpirun.mpich"]}[MPI]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TAKEN = ["MPI_Allgather", "MPI_Allreduce", "MPI_Alltoall", "MPI_Barrier", "MPI_Bcast", "MPI_Reduce",
         "MPI_Reduce_scatter_block"]
SHARES = ["MPI_Allgatherv", "MPI_Alltoallv", "MPI_Gather", "MPI_Gatherv", "MPI_Reduce_scatter", "MPI_Scatter",
          "MPI_Scatterv"]
LARGE = ["MPI_Allgatherv_c", "MPI_Allreduce_c", "MPI_Bcast_c", "MPI_Ialltoallv_c", "MPI_Reduce_c"]
NONBLOCKING = ["MPI_Barrier", "MPI_Iallgather", "MPI_Iallgatherv", "MPI_Iallreduce", "MPI_Ialltoall", "MPI_Ialltoallv",
               "MPI_Ibarrier", "MPI_Ibcast", "MPI_Igather", "MPI_Igatherv", "MPI_Ireduce", "MPI_Ireduce_scatter",
               "MPI_Ireduce_scatter_block", "MPI_Iscatter", "MPI_Iscatterv"]
FORTRAN = sorted(TAKEN + SHARES + ["MPI_Iallgather", "MPI_Iallreduce", "MPI_Ibarrier"])
NOT_OFFERED = "MPI: type and operation are not offered"
DEADLINE_S = 600


def table(errors):
    """Returns the lines of the report: function, calls, bytes, through."""
    return re.findall(r"^ina: (MPI_\w+) +(\d+) +(?:(\d+) )? *(the switch|MPI: .*)$", errors, re.MULTILINE)


def taken(errors):
    return [name for name, _, _, through in table(errors) if through == "the switch"]


def reasons(errors):
    return {through for *_, through in table(errors)} - {"the switch"}


@unittest.skipUnless(shutil.which(MPIRUN[0]), f"no {MPIRUN[0]}")
class InterposerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="ina-mpi-")
        cls.addClassCleanup(holder.cleanup)
        cls.switch = plugin_switch.start(pathlib.Path(BUILD), pathlib.Path(holder.name))
        cls.addClassCleanup(cls.switch.stop)

    def run_program(self, ranks, library=None, options=(), program="collectives", arguments=(), **environment):
        """Returns (status, stdout, stderr)."""
        variables = {**os.environ, **AS_ROOT, "INA_URL": self.switch.url, **environment}
        # Only the program preloads the library, not mpirun and its helpers.
        command = ["env", *([f"LD_PRELOAD={library}"] if library else []), PROGRAMS[program], *arguments]
        done = subprocess.run([*MPIRUN, *options, "-n", str(ranks), *command], env=variables, timeout=DEADLINE_S,
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_collectives(self):
        for ranks in (2, 3, 4):
            status, said, errors = self.run_program(ranks, LIBRARY, INA_MPI_REPORT="1")
            self.assertEqual(status, 0, errors)
            self.assertIn("all right", said)
            self.assertEqual(taken(errors), TAKEN, errors)
            # MAX and MIN of `unsigned` on each communicator, and four of others().
            left = {name: int(calls) for name, calls, _, through in table(errors) if through == NOT_OFFERED}
            self.assertEqual(left, {"MPI_Allreduce": 3 * 8 + 4}, errors)
            self.assertLessEqual({NOT_OFFERED, "MPI: one rank", "MPI: intercommunicator"}, reasons(errors), errors)

    def test_more_ranks_than_a_switch_has_bits(self):
        """MPICH's ranks keep their cores while they wait, so there are fewer."""
        options = ["--mca", "mpi_yield_when_idle", "1"] if MPI == "openmpi" else []
        ranks = 100 if MPI == "openmpi" else 66
        status, said, errors = self.run_program(ranks, LIBRARY, options, "wide", INA_MPI_REPORT="1")
        self.assertEqual(status, 0, errors)
        self.assertIn("all right", said)
        self.assertEqual(taken(errors), ["MPI_Allgather", "MPI_Allreduce", "MPI_Alltoall", "MPI_Bcast"], errors)
        self.assertEqual(reasons(errors), set(), errors)

    def test_shares(self):
        for ranks in (2, 4):
            status, said, errors = self.run_program(ranks, LIBRARY, program="shares", INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertEqual(taken(errors), sorted(SHARES + (LARGE if MPI == "mpich" else [])), errors)
            self.assertLessEqual(reasons(errors), {"MPI: one rank"}, errors)

    def test_nonblocking(self):
        for ranks in (2, 4):
            status, said, errors = self.run_program(ranks, LIBRARY, program="nonblocking", INA_MPI_REPORT="1",
                                                    TAKEN_OVER="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertEqual(taken(errors), NONBLOCKING, errors)
            self.assertEqual(reasons(errors), {"MPI: before any blocking call"}, errors)

    def test_threads(self):
        status, said, errors = self.run_program(2, LIBRARY, program="nonblocking", arguments=["3"],
                                                INA_MPI_REPORT="1")
        self.assertEqual((status, said.strip()), (0, "all right"), errors)
        self.assertEqual((taken(errors), reasons(errors)), (NONBLOCKING, set()), errors)

    def test_freed_handles(self):
        """Handles that the program frees before a nonblocking call has ended."""
        for arguments in ([], ["comm"]):
            for ranks in (2, 4):
                status, said, errors = self.run_program(ranks, LIBRARY, program="freed", arguments=arguments, INA_MPI_REPORT="1")
                self.assertEqual((status, said.strip()), (0, "all right"), errors)
                self.assertEqual(set(NONBLOCKING) - set(taken(errors)), set(), errors)

    def test_reused_handles(self):
        """A handle comes free, and is another communicator's, before the call that frees it has returned."""
        for ranks in (2, 3):
            status, said, errors = self.run_program(ranks, LIBRARY, program="reused", INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertEqual((taken(errors), reasons(errors)), (["MPI_Allreduce"], set()), errors)
            if MPI == "mpich":  # takes the handle that came free last
                self.assertNotIn("reused: 0", errors)

    def test_callbacks(self):
        """Collective calls from within functions that MPI calls."""
        for ranks in (2, 3):
            status, said, errors = self.run_program(ranks, LIBRARY, program="callbacks", INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertIn("MPI_Allreduce", taken(errors), errors)

    def test_buffered_sends(self):
        """What was received before a collective call needs no room in the attached buffer after it."""
        for ranks in (2, 3):
            status, said, errors = self.run_program(ranks, LIBRARY, program="buffered", INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertEqual((taken(errors), reasons(errors)), (["MPI_Allreduce", "MPI_Barrier"], set()), errors)

    def test_overlaps(self):
        """Blocks that overlap, and what is sent with what is received."""
        for ranks in (2, 4):
            status, said, errors = self.run_program(ranks, LIBRARY, program="overlaps", INA_MPI_REPORT="1", TAKEN_OVER="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertLessEqual({"MPI_Allgatherv", "MPI_Alltoallv", "MPI_Gatherv", "MPI_Scatterv"}, set(taken(errors)), errors)

    def test_types(self):
        """Datatypes with gaps, negative bounds or extents, no bytes, and absolute addresses."""
        for ranks in (2, 3):
            status, said, errors = self.run_program(ranks, LIBRARY, program="types", INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertLessEqual({"MPI_Allgatherv", "MPI_Gather", "MPI_Ialltoall", "MPI_Scatterv"}, set(taken(errors)), errors)

    def arguments_of(self, library, *mode):
        """Returns what each of two ranks has seen of calls with wrong arguments."""
        with tempfile.TemporaryDirectory(prefix="ina-mpi-") as folder:
            status, said, errors = self.run_program(2, library, program="arguments", arguments=[f"{folder}/seen", *mode])
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            return [(pathlib.Path(folder) / f"seen.{rank}").read_text().splitlines() for rank in range(2)]

    def test_arguments(self):
        """Wrong arguments have MPI's own class of error and handler, and the communicator goes on."""
        plain, seen = self.arguments_of(None), self.arguments_of(LIBRARY)
        self.assertEqual(plain, seen)
        for lines in seen:
            for function in TAKEN + SHARES:
                self.assertTrue(any(line.startswith(f"{function} form") for line in lines), function)

    def test_arguments_that_mpi_does_not_look_at(self):
        for lines in self.arguments_of(LIBRARY, "unnoticed"):
            for line in lines:
                self.assertRegex(line, r": [1-9]\d*( own handler hears \d+)?$")

    def test_ranks_that_disagree(self):
        """Messages of different length are an MPI_ERR_TRUNCATE, which reaches the communicator's handler once. The communicator goes on."""
        seen = self.arguments_of(LIBRARY, "disagree")
        for lines in zip(*seen):
            self.assertEqual(len({line.split(":")[0] for line in lines}), 1)
            for line in lines:
                self.assertRegex(line, r": (0|(\d+) own handler hears \2)$")
            self.assertTrue(any("hears" in line for line in lines), lines)
        self.assertEqual(len(seen[0]), len(set(TAKEN + SHARES) - {"MPI_Barrier"}) + 1)

    def test_fatal_arguments(self):
        status, said, _ = self.run_program(2, LIBRARY, program="arguments", arguments=[f"{self.switch.folder}/fatal", "fatal"])
        self.assertEqual((status != 0, said), (True, ""))

    def test_fortran(self):
        ways = [name for name in PROGRAMS if name.startswith("fortran-")]
        if not ways:
            self.skipTest("no gfortran")
        for program in ways:
            status, said, errors = self.run_program(2, LIBRARY, program=program, INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertEqual(taken(errors), FORTRAN, errors)

    def test_examples(self):
        for program in [name for name in PROGRAMS if name.startswith("example-")]:
            for library, through in ((LIBRARY, ["MPI_Allreduce"]), (None, [])):
                status, said, errors = self.run_program(4, library, program=program, INA_MPI_REPORT="1")
                self.assertEqual(status, 0, errors)
                self.assertEqual(sorted(said.splitlines()),
                                 [f"rank {rank} of 4: 100000 elements, each 1.5" for rank in range(4)])
                self.assertEqual(taken(errors), through, errors)

    def test_commands_of_the_document(self):
        """docs/mpi.md has a command for each MPI, and the report of a program."""
        block, = snippets.blocks("mpi", "sh")
        library = pathlib.Path(LIBRARY)
        lines = [line for line in block.splitlines() if "mpirun" not in line or library.name in line]
        self.assertEqual(len([line for line in lines if "mpirun" in line]), 1, block)
        script = "\n".join(lines).replace("mpirun", shlex.join(MPIRUN)).replace("shm:/run/ina/switch.sock",
                                                                               self.switch.url)
        with tempfile.TemporaryDirectory(prefix="ina-mpi-") as folder:
            (pathlib.Path(folder) / "program").symlink_to(pathlib.Path(PROGRAMS["example-c"]).resolve())
            done = subprocess.run(["sh", "-euc", script], cwd=folder, timeout=DEADLINE_S, capture_output=True, text=True, check=False,
                                  env={**os.environ, **AS_ROOT, "INA_MPI_REPORT": "1",
                                       "LD_LIBRARY_PATH": str(library.resolve().parent)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"^rank \d of 4: 100000 elements, each 1.5$", done.stdout, re.MULTILINE)), 4)
        self.assertEqual(taken(done.stderr), ["MPI_Allreduce"], done.stderr)
        report, = snippets.blocks("mpi", "text")
        self.assertIn(report.splitlines()[1], done.stderr)
        self.assertEqual([row[3] for row in table(report)], ["the switch", NOT_OFFERED])

    @unittest.skipUnless((pathlib.Path(BUILD) / "plugins/python/ina").exists(), "no package of Python")
    def test_environment(self):
        """A program without MPI gets rank and number of ranks from mpirun's environment."""
        # One write for each line, because mpirun mixes the ranks' writes.
        text = ("import ina, os\n"
                "with ina.Context() as job: os.write(1, f'rank {job.rank} of {job.world_size}\\n'.encode())")
        name = {} if MPI == "openmpi" else {"INA_JOB": "environment"}  # MPICH gives a run no name
        done = subprocess.run([*MPIRUN, "-n", "3", sys.executable, "-c", text], timeout=DEADLINE_S, capture_output=True, text=True,
                              env={**os.environ, **AS_ROOT, **name, "INA_URL": self.switch.url,
                                   "PYTHONPATH": str(pathlib.Path(BUILD) / "plugins/python")}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {rank} of 3" for rank in range(3)])

    def test_programs_without_preload(self):
        for program in sorted(name for name in set(PROGRAMS) - {"arguments", "collectives", "communicators", "lost"} if "example-" not in name):
            status, said, errors = self.run_program(2, program=program)
            self.assertEqual((status, said.strip()), (0, "all right"), errors)

    def test_messages_go_on(self):
        """Over TCP the sender of a message must make progress until all is sent, also while it
        waits in a collective call."""
        options = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"] if MPI == "openmpi" else []
        status, said, errors = self.run_program(2, LIBRARY, options, MPIR_CVAR_NOLOCAL="1")
        self.assertEqual((status, said.strip()), (0, "all right"), errors)

    def test_without_preload(self):
        status, said, errors = self.run_program(2)
        self.assertEqual((status, said.strip()), (0, "all right"), errors)

    def test_switch_has_seen_it(self):
        before = self.switch.status()
        self.run_program(2, LIBRARY)
        after = self.switch.status()
        self.assertGreater(after["aggregator"]["absorbed_bytes"],
                           before["aggregator"]["absorbed_bytes"])
        self.assertEqual(after["jobs"], [], "nothing is left behind")

    def test_no_switch(self):
        status, said, errors = self.run_program(2, LIBRARY, INA_MPI_REPORT="1",
                                                INA_URL=f"shm:{self.switch.folder}/nothing.sock")
        self.assertEqual((status, said.strip()), (0, "all right"), errors)
        self.assertIn("MPI goes on without the switch", errors)
        self.assertNotIn("the switch\n", errors.replace("without the switch", ""))

    def run_communicators(self, ranks, *arguments, **environment):
        """Returns the report's lines and stderr."""
        status, said, errors = self.run_program(ranks, LIBRARY, program="communicators", arguments=arguments,
                                                INA_MPI_REPORT="1", **environment)
        self.assertEqual((status, said.strip()), (0, "all right"), errors)
        return table(errors), errors

    def run_partly(self, *parts):
        """Returns what rank 0 of several parts says on stdout and stderr, each a command."""
        command = [word for part in parts for word in (":", *part)][1:]
        done = subprocess.run([*MPIRUN, *command], env={**os.environ, **AS_ROOT, "INA_URL": self.switch.url, "INA_MPI_REPORT": "1"},
                              timeout=DEADLINE_S, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "all right"), done.stderr)
        return done.stderr

    def test_processes_without_the_library(self):
        """The parts of a program, or ranks of one part, of which some have it."""
        program, preload = PROGRAMS["communicators"], f"LD_PRELOAD={LIBRARY}"
        some = f"[ ${{OMPI_COMM_WORLD_RANK-$PMI_RANK}} -ge 2 ] || export {preload}; exec {program} part 2"
        for parts in ([["-n", "2", "env", preload, program, "part", "2"], ["-n", "2", program, "part", "2"]],
                      [["-n", "4", "sh", "-c", some]]):
            errors = self.run_partly(*parts)
            rows = {(int(calls), through) for name, calls, _, through in table(errors) if name == "MPI_Allreduce"}
            # The two that have it, and a copy of their communicator.
            self.assertEqual(rows, {(2, "the switch"), (5, "MPI: a process without the library, or of another MPI_COMM_WORLD")})
            self.assertEqual(len(re.findall("2 of 4 processes have", errors)), 1, errors)
        # One alone has nobody to share a job with, and the first ranks have it not.
        self.run_partly(["-n", "2", program, "part", "1"], ["-n", "1", "env", preload, program, "part", "1"])
        self.run_partly(["-n", "1", program, "part", "3"], ["-n", "2", "env", preload, program, "part", "3"])
        self.assertEqual(self.switch.status()["jobs"], [], "nothing is left behind")

    @unittest.skipUnless(MPI == "openmpi", "MPICH's mpirun of Debian 12 spawns nothing, without the library either")
    def test_spawned_processes(self):
        for own in (LIBRARY, None):
            status, said, errors = self.run_program(2, own, program="communicators", arguments=["spawn"], INA_MPI_REPORT="1")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            if own:
                self.assertIn("the switch", [through for *_, through in table(errors)])

    def test_late_ranks(self):
        """A rank that comes later than libina would wait loses nothing."""
        rows, errors = self.run_communicators(2, "late", INA_TIMEOUT_US="500000")
        self.assertEqual([row[0::3] for row in rows], [("MPI_Allreduce", "the switch")], errors)

    def test_pending_messages(self):
        """Joining, leaving and freeing never keep a message from another rank that waits for it."""
        environment = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"} if MPI == "openmpi" else {}
        for ranks in (2, 3):
            rows, errors = self.run_communicators(ranks, "pending", **environment)
            self.assertEqual([row[0::3] for row in rows], [("MPI_Allreduce", "the switch")], errors)

    def test_communicators_that_come_and_go(self):
        for ranks, arguments in ((2, ("loop", "1000")), (4, ("loop", "100")), (3, ("freed",)), (5, ("trees",))):
            rows, errors = self.run_communicators(ranks, *arguments)
            ways = {through for name, *_, through in rows if name == "MPI_Allreduce"}
            self.assertLessEqual(ways, {"the switch", "MPI: one rank"}, errors)
        self.assertEqual(self.switch.status()["jobs"], [], "nothing is left behind")

    def test_many_communicators(self):
        """Those for which the switch has no memory are MPI's."""
        rows, errors = self.run_communicators(2, "many", "100")
        self.assertEqual([row[0::3] for row in rows], [("MPI_Allreduce", "the switch")], errors)
        rows, errors = self.run_communicators(2, "many", "300")
        self.assertLessEqual({row[3] for row in rows}, {"the switch", "MPI: no group of the switch"}, errors)
        self.assertLessEqual(len(re.findall("without the switch", errors)), 1, errors)

    def test_no_switch_says_so_once(self):
        _, errors = self.run_communicators(2, "many", "40", INA_URL=f"shm:{self.switch.folder}/nothing.sock")
        self.assertEqual(len(re.findall("without the switch", errors)), 1, errors)

    def test_one_rank_without_a_switch(self):
        preload, program = f"LD_PRELOAD={LIBRARY}", [PROGRAMS["communicators"], "many", "2"]
        errors = self.run_partly(["-n", "2", "env", preload, *program],
                                 ["-n", "1", "env", preload, f"INA_URL=shm:{self.switch.folder}/nothing.sock", *program])
        self.assertIn("MPI: another rank has no switch", {through for *_, through in table(errors)})
        self.assertEqual(self.switch.status()["jobs"], [], "nothing is left behind")

    def test_full_switch(self):
        with tempfile.TemporaryDirectory(prefix="ina-mpi-") as folder:
            switch = plugin_switch.start(pathlib.Path(BUILD), pathlib.Path(folder),
                                          plugin_switch.CONFIG + "switch: {{max_groups: 2, max_groups_per_user: 2}}\n")
            self.addCleanup(switch.stop)
            rows, errors = self.run_communicators(2, "many", "8", INA_URL=switch.url)
            # Two communicators go through the switch in each of two rounds.
            self.assertEqual({row[3]: int(row[1]) for row in rows}, {"the switch": 4 * 2, "MPI: no group of the switch": 4 * 6})
            self.assertEqual(len(re.findall("without the switch", errors)), 1, errors)

    def test_preloaded_into_mpirun(self):
        """mpirun and its helpers do not use MPI, and are not affected."""
        done = subprocess.run([*MPIRUN, "-n", "2", PROGRAMS["collectives"]], timeout=DEADLINE_S, capture_output=True, text=True,
                              env={**os.environ, **AS_ROOT, "INA_URL": self.switch.url,
                                   "INA_MPI_REPORT": "1", "LD_PRELOAD": LIBRARY}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the switch", done.stderr)

    def test_reproducible_reductions(self):
        """The switch carries the same operations as without reproducible reductions."""
        for ranks in (2, 4):
            status, said, errors = self.run_program(ranks, LIBRARY, INA_MPI_REPORT="1", INA_NUMERIC="reproducible")
            self.assertEqual((status, said.strip()), (0, "all right"), errors)
            self.assertEqual(taken(errors), TAKEN, errors)

    def test_switch_is_lost(self):
        """The loss is an MPI error, of a nonblocking call in MPI_Wait. A program that handles the
        error continues."""
        for fatal in ([], ["fatal"]):
            with tempfile.TemporaryDirectory(prefix="ina-mpi-") as folder:
                switch = plugin_switch.start(pathlib.Path(BUILD), pathlib.Path(folder))
                gone = pathlib.Path(folder) / "gone"
                try:
                    command = [*MPIRUN, "-n", "2", "env", f"LD_PRELOAD={LIBRARY}", PROGRAMS["lost"], gone, *fatal]
                    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**os.environ, **AS_ROOT, "INA_URL": switch.url,
                                               "INA_REJOIN_TIMEOUT_US": "500000"}) as running:
                        self.assertEqual(running.stdout.readline(), "ready\n")
                        switch.stop()
                        gone.touch()
                        said, errors = running.communicate(timeout=DEADLINE_S)
                finally:
                    switch.stop()
            if fatal:  # mpirun may lose the output on stderr
                self.assertNotEqual(running.returncode, 0)
                self.assertEqual(said, "")
            else:
                self.assertIn("INA_ERR_SWITCH_LOST", errors)
                self.assertEqual((running.returncode, sorted(said.splitlines())),
                                 (0, ["rank 0 goes on", "rank 1 goes on"]), errors)

    def test_no_report(self):
        _, _, errors = self.run_program(2, LIBRARY)
        self.assertNotIn("ina:", errors)

    @unittest.skipUnless(OTHER, "only one MPI")
    def test_wrong_library(self):
        for program in sorted({"collectives", "fortran-mpif", "fortran-f08"} & set(PROGRAMS)):
            status, said, errors = self.run_program(2, OTHER, program=program)
            self.assertNotEqual(status, 0)
            self.assertNotIn("all right", said)
            self.assertRegex(errors, r"ina: libina_mpi_\w+.so is for .*, and this program uses .*; preload")


if __name__ == "__main__":
    unittest.main()
