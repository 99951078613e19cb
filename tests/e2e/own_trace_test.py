#!/usr/bin/env python3
"""`inactl trace` by users without an administrator's rights: they may trace only their own jobs.

    own_trace_test.py INA_SWITCHD INACTL LOAD_WORKER

Needs root, to act as other users.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from waiting import DEADLINE_S, wait_until  # noqa: E402

SWITCHD, INACTL, LOAD_WORKER = (str(pathlib.Path(arg).resolve()) for arg in sys.argv[1:4])
del sys.argv[1:4]

OWNER, OTHER = 65533, 65534
SKIPPED = 77


def as_user(uid, command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]


class OwnTraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ina-trace-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.socket = self.folder / "switch.sock"
        config = self.folder / "switch.yaml"
        config.write_text("aggregator: {slots: 1024}\nstatic: {slots_per_job: 256}\neal: {huge: no}\n"
                          "control: {mode: 0666}\n")
        self.log = open(self.folder / "log", "w+")  # noqa: SIM115
        self.addCleanup(self.log.close)
        self.run_in_background([SWITCHD, "--config", str(config), "--socket", str(self.socket)], stderr=self.log)
        wait_until("the switch", lambda: self.inactl(0, "status").returncode == 0)

    def run_in_background(self, command, **options):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **options)

        def end():
            process.kill()
            process.wait(DEADLINE_S)

        self.addCleanup(end)
        return process

    def inactl(self, uid, *arguments):
        return subprocess.run(as_user(uid, [INACTL, *arguments, "--socket", str(self.socket)]),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=DEADLINE_S)

    def start_job(self, uid, name):
        for rank in ("0", "1"):
            self.run_in_background(as_user(uid, [LOAD_WORKER, f"shm:{self.socket}", name, rank, "2", "20000", "-1", "1"]))
        wait_until(f"sums of {name}", lambda: any(
            job["name"] == name and job["owner"] == f"uid:{uid}" and job["results"]
            for job in json.loads(self.inactl(0, "status", "-j").stdout)["jobs"]))

    def traced(self, uid, *arguments):
        done = self.inactl(uid, "trace", *arguments, "--json")
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def refused(self, uid, *arguments, status=1):
        done = self.inactl(uid, "trace", *arguments)
        self.assertEqual(done.returncode, status, done)
        return done.stderr

    def test_owners_trace_their_own_jobs_and_no_others(self):
        self.start_job(OWNER, "train")
        found = self.traced(OWNER, "train", "--packets", "50")
        self.assertEqual((found["schema"], found["job"], found["complete"], len(found["packets"])),
                         (1, f"uid:{OWNER}/train", True, 50))
        self.assertIn("absorbed", self.inactl(OWNER, "trace", f"uid:{OWNER}/train", "--packets", "3").stdout)
        owned = f"job 'train' belongs to uid:{OWNER}, and you are uid:{OTHER}: its owner and administrators may trace it"
        for arguments in (("train",), (f"uid:{OWNER}/train",), ("train", "--owner", f"uid:{OWNER}")):
            self.assertIn(owned, self.refused(OTHER, *arguments))
        self.assertIn("there is no job 'tune'", self.refused(OWNER, "tune"))
        # A user's own job of that name comes first; another user's job of that name stays
        # inaccessible.
        self.start_job(OTHER, "train")
        self.assertEqual(self.traced(OTHER, "train")["job"], f"uid:{OTHER}/train")
        self.assertIn("you are", self.refused(OTHER, "train", "--owner", f"uid:{OWNER}"))
        # Administrators may trace any job, and so may root through the workers' socket.
        self.assertEqual(self.traced(0, "train", "--owner", f"uid:{OWNER}")["job"], f"uid:{OWNER}/train")
        log = (self.folder / "log").read_text()
        self.assertRegex(log, rf'packets traced by="uid:{OWNER}, pid \d+" job="uid:{OWNER}/train" packets="50"')
        self.assertRegex(log, rf'refused peer="pid \d+" status="\S+" text="job \'train\' belongs to uid:{OWNER}')

    def test_nothing_else_of_administrators_is_theirs(self):
        self.start_job(OWNER, "train")
        for command in (("abort", "train"), ("kick", "train", "0"), ("policy", "set", "esa"), ("reload",), ("drain",)):
            done = self.inactl(OWNER, *command)
            self.assertEqual(done.returncode, 3, done)
            self.assertIn("administrators are root", done.stderr)
        done = self.inactl(OWNER, "trace", "train", "--admin", f"{self.socket}.admin")
        self.assertEqual(done.returncode, 3, done)

    def test_what_an_owner_may_trace_is_bounded_and_gives_way(self):
        self.start_job(OWNER, "train")
        self.assertIn("a trace takes 1 ms to 10 s", self.refused(OWNER, "train", "--timeout", "11s"))
        made = self.inactl(0, "create", "idle", "--workers", "2", "--tenant", f"uid:{OTHER}")
        self.assertEqual(made.returncode, 0, made)
        done = self.inactl(OTHER, "trace", "idle", "--timeout", "1s")
        self.assertEqual(done.returncode, 4, done)
        self.assertIn("0 of 32 packets came within 1 s", done.stderr)

        def traces():
            return (self.folder / "log").read_text().count(f'packets traced by="uid:{OTHER}')

        def begin(timeout):
            before = traces()
            waiting = subprocess.Popen(
                as_user(OTHER, [INACTL, "trace", "idle", "--timeout", timeout, "--socket", str(self.socket)]),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(waiting.communicate)
            self.addCleanup(waiting.kill)
            wait_until("the trace", lambda: traces() > before)
            return waiting

        # Another owner must wait, an administrator need not.
        waiting = begin("10s")
        self.assertIn(f"the switch traces job uid:{OTHER}/idle for uid:{OTHER}, pid", self.refused(OWNER, "train"))
        self.assertEqual(self.traced(0, "train")["job"], f"uid:{OWNER}/train")
        said = waiting.communicate(timeout=DEADLINE_S)[1]
        self.assertEqual(waiting.returncode, 1)
        self.assertIn("an administrator has begun a trace, which ended this one", said)
        # A trace ends when its user disconnects.
        waiting = begin("10s")
        waiting.kill()
        waiting.wait(DEADLINE_S)
        wait_until("the end of the trace", lambda: self.inactl(OWNER, "trace", "train").returncode == 0)
        # A user may trace for ten seconds at once, and then for a quarter of the time.
        while (done := self.inactl(OTHER, "trace", "idle", "--timeout", "8s")).returncode == 4:
            pass
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, rf"uid:{OTHER} has traced for so long that the packets of all jobs were slower: again in \d+ s")
        self.assertEqual(self.traced(OWNER, "train")["complete"], True)

if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root, to be other users")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
