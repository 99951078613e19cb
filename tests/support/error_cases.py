"""The shared part of the tests that cause the errors with recipes in docs/operations.md.

    THE_TEST INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF [--list] [TestClass.test ...]

The text that a user gets must contain the recipe's quotation. The last line has the number of texts
that were seen, and `--list` prints them. tests/recipes_test.py reports for every recipe which test
causes the error.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import libina  # noqa: E402
import recipes_test  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

LIST = "--list" in sys.argv
if LIST:
    sys.argv.remove("--list")
SWITCHD, INACTL, LOAD_WORKER, LIBINA, PSD, MEMIF = (str(pathlib.Path(arg).resolve()) for arg in sys.argv[1:7])
del sys.argv[1:7]

TABLES = recipes_test.tables((TESTS.parent / "docs/operations.md").read_text())
RECIPES, STATUSES = TABLES["Text"], TABLES["Status"]
SEEN, SEEN_STATUSES = set(), set()
STATUS_NAMES = {int(value): name for name, value in re.findall(r"^  (INA_ERR_\w+) = (-\d+)",
                                                               (TESTS.parent / "include/ina/ina.h").read_text(), re.MULTILINE)}
NOBODY = 65534
TOKEN = "red-token-0123456789"


def as_user(uid):
    """Returns the start of a command that runs as this user; empty for root, which runs the
    tests."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []


class Cases(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ina-errors-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.socket = self.folder / "switch.sock"
        self.config = self.folder / "switch.yaml"
        self.switch = None

    def write(self, **sections):
        values = {"aggregator": "{slots: 256}", "static": "{slots_per_job: 128}", "eal": "{huge: no}",
                  "jobs": "{window_bytes: 64KiB}"} | sections
        self.config.write_text("".join(f"{section}: {value}\n" for section, value in values.items()))

    def start(self, **sections):
        self.write(**sections)
        # The switch has a process group of its own, by which its helper is found.
        self.switch = self.logged([SWITCHD, "--config", str(self.config), "--socket", str(self.socket)], process_group=0)
        self.await_switch()

    def await_switch(self):
        def serves():
            self.assertIsNone(self.switch.poll(), self.log())
            return self.inactl("status").returncode == 0

        wait_until("the switch", serves)

    def logged(self, command, **options):
        """Starts a command in the background; `self.log()` returns its output."""
        with open(self.folder / "log", "a") as log:
            return self.background(command, stdout=log, stderr=log, **options)

    def log(self):
        return (self.folder / "log").read_text()

    def logs(self, recipe):
        """Waits for a line of the log that has the text."""
        line = wait_until(f"{recipe!r} in the log", lambda: next(
            (line for line in self.log().splitlines() if recipes_test.is_part_of(recipe, line)), None))
        self.expect(recipe, line)

    def stop(self, number=signal.SIGTERM):
        self.switch.send_signal(number)
        self.switch.wait(DEADLINE_S)

    @contextlib.contextmanager
    def standing_still(self):
        """The switch does nothing from the beginning of the block to its end."""
        self.switch.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.switch.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self.switch.send_signal(signal.SIGCONT)

    def background(self, command, **options):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def inactl(self, *arguments, uid=0):
        return subprocess.run([*as_user(uid), INACTL, *arguments, *([] if "--socket" in arguments else ["--socket", str(self.socket)])],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=DEADLINE_S)

    def rank(self, job, number, size=2, url=None, times=-1, elements=1000, **environment):
        environment = {"INA_TIMEOUT_US": str(DEADLINE_S // 2 * 1_000_000)} | environment
        return self.background([LOAD_WORKER, url or f"shm:{self.socket}", job, str(number), str(size), str(elements), str(times), "1"],
                               stdout=subprocess.PIPE, text=True, env=os.environ | environment)

    def said(self, worker):
        return worker.communicate(timeout=DEADLINE_S)[0]

    def job(self, name):
        return next((job for job in json.loads(self.inactl("status", "-j").stdout)["jobs"] if job["name"] == name), {})

    def run_job(self, name, size=2, **environment):
        ranks = [self.rank(name, number, size, **environment) for number in range(size)]
        wait_until(f"sums of {name}", lambda: self.job(name).get("results"))
        return ranks

    def expect(self, recipe, text, status=None):
        self.assertTrue(recipe in RECIPES, f"docs/operations.md has no recipe for {recipe!r}")
        self.assertTrue(recipes_test.is_part_of(recipe, text), f"{recipe!r} is not in {text!r}")
        SEEN.add(recipe)
        if status:
            self.assertIn(status, STATUSES)
            self.assertTrue(text.startswith(status + " "), text)
            SEEN_STATUSES.add(status)

    def refused(self, recipe, *arguments, exit_status=1, uid=0):
        done = self.inactl(*arguments, uid=uid)
        self.assertEqual(done.returncode, exit_status, done)
        self.expect(recipe, done.stderr)

    def line(self):
        """Returns a control connection, which the caller closes."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(DEADLINE_S)
        line.connect(str(self.socket))
        return line

    def ask(self, *messages, remote=None):
        """Returns the answers to messages of one control connection."""
        line = socket.create_connection(("127.0.0.1", remote), DEADLINE_S) if remote else self.line()
        self.addCleanup(line.close)
        answers = []
        for message in messages:
            data = json.dumps(message).encode()
            line.sendall(struct.pack("<I", len(data)) + data if remote else data)
            answer = line.recv(1 << 16)
            answers.append(json.loads(answer[4:] if remote else answer))
        return answers

    def told(self, recipe, *messages, remote=None):
        answer = self.ask(*messages, remote=remote)[-1]
        self.assertEqual(answer["type"], "refused", answer)
        self.expect(recipe, answer["text"])
        SEEN_STATUSES.add(STATUS_NAMES[answer["status"]])

    @staticmethod
    def join(**changed):
        return {"type": "join", "version": 1, "job": "job", "rank": 0, "world_size": 2, "transport": "shm"} | changed


class LibraryCases(Cases):
    """Cases with ranks that are threads of the test's own process."""

    def join_job(self, job, rank, world_size, url=None, **more):
        context = libina.Library(LIBINA).join(url or f"shm:{self.socket}", job, rank, world_size, **more)
        self.addCleanup(context.leave)
        return context

    def job_of(self, world_size, name, **more):
        return libina.on_ranks(world_size, lambda rank: self.join_job(name, rank, world_size, **more))

    @staticmethod
    def in_time(begin):
        """Returns the result of `begin(timeout_s)`, with the shortest of some time-outs in which it succeeds: for calls
        that wait for their time-out afterwards, which must also suffice to join on a busy machine."""
        *short, longest = (0.2, 1, 5, DEADLINE_S / 2)
        for timeout_s in short:
            try:
                return begin(timeout_s)
            except libina.InaError as error:
                if not str(error).startswith("INA_ERR_TIMEOUT "):
                    raise
        return begin(longest)

    def groups_of(self, ranks):
        groups = libina.on_ranks(len(ranks), lambda rank: ranks[rank].split())
        for group in groups:
            self.addCleanup(group.leave)
        return groups

    def fails(self, recipe, call, status=None):
        self.expect(recipe, libina.errors_of(1, lambda rank: call())[0], status)

    def all_said(self, recipe, texts, status=None):
        for text in texts:
            self.expect(recipe, text, status)


def main():
    """Runs the cases of the calling program."""
    if os.geteuid() != 0:
        print("needs root, to be other users")
        sys.exit(77)
    result = unittest.main(verbosity=2, exit=False).result
    print(f"{len(SEEN)} of {len(set(RECIPES))} texts and {len(SEEN_STATUSES)} of {len(STATUSES)} statuses were seen")
    if LIST:
        print("\n".join(sorted(SEEN | SEEN_STATUSES)))
    sys.exit(not result.wasSuccessful())
