"""Runs every known attack of a local user against ina-switchd once. Meanwhile a job of another user
goes on with right sums, others are served, the switch lives, and its memory is bounded.

    siege_test.py BUILD_FOLDER

This is the short version of ./dev bench siege: nothing is timed. Needs root.
"""

import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/net"), str(ROOT / "bench/siege")]
import rows  # noqa: E402
from bed import NEWCOMER_UID  # noqa: E402
from namespaces import SKIPPED, require_root  # noqa: E402
from play import Play  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SLICE_S = 0.2


class SiegeTest(unittest.TestCase):
    maxDiff = None

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
    for path in (BUILD / "switchd/ina-switchd", ROOT / "bench/siege/attacker.py"):
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
