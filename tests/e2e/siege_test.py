"""Runs every known attack of a local user against ina-switchd once. Meanwhile a job of another user
goes on with right sums, others are served, the switch lives, and its memory is bounded.

    siege_test.py BUILD_FOLDER

This is the short version of ./dev bench siege: nothing is timed. Needs root.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = [str(ROOT / folder) for folder in ("tests/net", "tests/support", "tests/siege", "scripts")]
sys.path[:0] = FOLDERS
import rows  # noqa: E402
from bed import NEWCOMER_UID  # noqa: E402
from namespaces import SKIPPED, require_root  # noqa: E402
from play import Play  # noqa: E402
from waiting import DEADLINE_S, has_ended, wait_until  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SLICE_S = 0.2
# A siege that goes on until it is told to end. Prints its folder, and the pids of its parties.
BED = """
import signal, sys
sys.path[:0] = sys.argv[2:]
from bed import Bed, children_of
from benchlib import processes
processes.exit_on_sigterm()
with Bed(sys.argv[1], bridge=True) as bed:
    bed.start_switch()
    bed.start_victims()
    bed.start_newcomer()
    parties = [bed.switch, bed.bridge, *bed.victims, bed.newcomer.process]
    print(bed.folder, *(pid for party in parties for pid in children_of(party.pid)), flush=True)
    signal.pause()
"""


class SiegeTest(unittest.TestCase):
    maxDiff = None

    def test_nothing_outlives_it(self):
        for number, folder_goes in ((signal.SIGTERM, True), (signal.SIGKILL, False)):
            with self.subTest(number.name), \
                    subprocess.Popen([sys.executable, "-B", "-c", BED, BUILD, *FOLDERS],
                                     stdout=subprocess.PIPE, text=True) as siege:
                folder, *pids = siege.stdout.readline().split()
                siege.send_signal(number)
                self.assertGreaterEqual(len(pids), 5)
                for pid in pids:
                    wait_until("the parties to end", lambda pid=pid: has_ended(pid))
                siege.wait(DEADLINE_S)
                if folder_goes:
                    self.assertFalse(pathlib.Path(folder).exists())
                self.remove_rest(folder, siege.pid)

    def remove_rest(self, folder, pid):
        """Of a siege that was killed."""
        shutil.rmtree(folder, ignore_errors=True)
        for root in ("memory", ""):
            with contextlib.suppress(OSError):
                pathlib.Path("/sys/fs/cgroup", root, f"ina-siege-{pid}").rmdir()

    def test_every_attack(self):
        for row in rows.ROWS:
            if not row.quick:
                continue
            with self.subTest(attack=row.name):
                played = Play(row, BUILD, SLICE_S, 0).run()
                self.assertEqual(played["problems"], [], played["attacker"])
                # An attack that has done nothing proves nothing.
                if row.attack and not row.attack.startswith("ring:"):
                    self.assertTrue(played["attacker"])


def require_that_others_may_read():
    """Every party has a user of its own, and runs programs of this tree, which it must be able to
    read."""
    for path in (BUILD / "switchd/ina-switchd", ROOT / "tests/siege/attacker.py"):
        done = subprocess.run(["test", "-r", path], user=NEWCOMER_UID, group=NEWCOMER_UID,
                              extra_groups=[], check=False)
        if done.returncode != 0:
            print(f"skipped: other users cannot read {path}")
            sys.exit(SKIPPED)


if __name__ == "__main__":
    require_root()
    os.chdir("/")
    require_that_others_may_read()
    unittest.main()
