"""Tests ina-run: ranks with a switch of their own.

    run_test.py BUILD_FOLDER
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
INA_RUN = ROOT / "programs/run/ina-run"
EXAMPLE = """
import ina, numpy
with ina.Context() as job:
    print(job.allreduce(numpy.full(3, 1.5))[0])
"""
SWITCHD = BUILD / "switchd/ina-switchd"
DEADLINE_S = 600


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"


class RunTest(unittest.TestCase):
    def run_ranks(self, ranks, *command, **environment):
        return subprocess.run([INA_RUN, "-n", str(ranks), "--switchd", SWITCHD, *command],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              env={**os.environ, **environment})

    def test_collectives(self):
        done = self.run_ranks(3, sys.executable, "-c", EXAMPLE,
                              PYTHONPATH=str(BUILD / "plugins/python"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] 4.5", "[1] 4.5", "[2] 4.5"])

    def test_output(self):
        done = self.run_ranks(2, "sh", "-c", "echo one; printf two; echo three >&2; exit 0")
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] one", "[0] two", "[1] one", "[1] two"])
        self.assertEqual(sorted(done.stderr.splitlines()), ["[0] three", "[1] three"])

    def test_environment(self):
        done = self.run_ranks(2, "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $INA_RANK $MASTER_PORT")
        lines = sorted(line.split() for line in done.stdout.splitlines())
        self.assertEqual([line[:5] for line in lines],
                         [["[0]", "0", "2", "0", "0"], ["[1]", "1", "2", "1", "1"]])
        self.assertEqual(lines[0][5], lines[1][5])

    def test_most_ranks_are_those_of_a_job(self):
        most = int(re.search(r"#define INA_MAX_WORLD_SIZE (\d+)", (ROOT / "include/ina/ina.h").read_text())[1])
        done = self.run_ranks(most + 1, "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"a job has 1 to {most} ranks", done.stderr)

    def test_failure_ends_all(self):
        begin = time.monotonic()
        done = self.run_ranks(3, "sh", "-c", "if [ $RANK = 1 ]; then exit 7; fi; sleep 1000")
        self.assertEqual(done.returncode, 7)
        self.assertIn("rank 1 ended with status 7", done.stderr)
        self.assertLess(time.monotonic() - begin, 20)

    def test_killed_rank(self):
        done = self.run_ranks(2, "sh", "-c", "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 1000")
        self.assertEqual(done.returncode, 128 + 9)
        self.assertIn("rank 1 was killed by signal 9", done.stderr)

    def test_nothing_is_left(self):
        """Nothing remains, also if ina-run itself is killed."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as folder:
                running = subprocess.Popen(
                    [INA_RUN, "-n", "2", "--switchd", SWITCHD, "sh", "-c",
                     f"echo $$ > {folder}/$RANK; echo started; exec sleep 1000"],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env={**os.environ, "TMPDIR": folder},
                    # A shell ignores SIGINT in background processes, and so this test may inherit
                    # that.
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
                for _ in range(2):
                    self.assertIn("started", running.stdout.readline())
                pids = [int((pathlib.Path(folder) / str(rank)).read_text()) for rank in range(2)]
                running.send_signal(number)
                running.communicate(timeout=DEADLINE_S)
                self.assertEqual(running.returncode,
                                 -number if number == signal.SIGKILL else 128 + number)
                deadline = time.monotonic() + 10
                while any(map(alive, pids)) and time.monotonic() < deadline:
                    time.sleep(0.05)
                self.assertFalse(any(map(alive, pids)), number)

    def test_wrong_commands(self):
        for command, text in ((["-n", "0", "true"], "1 to 4096"), (["-n", "2"], "COMMAND"),
                              (["-n", "2", "--switchd", "/nothing", "true"], "no /nothing"),
                              (["-n", "2", "--switchd", str(SWITCHD), "/nothing"], "No such file")):
            done = subprocess.run([INA_RUN, *command], capture_output=True, text=True,
                                  timeout=DEADLINE_S, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
