#!/usr/bin/env python3
"""A switch sums contributions to a fragment in one pass when it finds several of them. It stands still
until all ranks have posted theirs, so this does not depend on the scheduler. Needs no root.

    groups_form_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

import error_cases  # noqa: E402
from libina import microseconds  # noqa: E402

RANKS = 4
SLOT_BYTES = 4096
FRAGMENTS = 8  # fit into every worker's window


class GroupsFormTest(error_cases.LibraryCases):
    def summed(self):
        found = json.loads(self.inactl("status", "--json").stdout)["aggregator"]
        return {name: found[name] for name in ("absorbed", "grouped", "groups")}

    def sum_at_once(self, ranks):
        """Returns what the switch counts for an all-reduce that all ranks have posted while it
        stood still."""
        before = self.summed()
        with self.standing_still():
            begun = [rank.allreduce_async(FRAGMENTS * SLOT_BYTES // 4) for rank in ranks]
        for rank, (memory, request) in zip(ranks, begun):
            rank.library.check(rank.library.calls.ina_wait(request, microseconds(20)), rank.handle)
            self.assertEqual(set(memory), {0})
        after = self.summed()
        return {name: after[name] - before[name] for name in before}

    def test_contributions_that_are_there_are_summed_in_one_pass(self):
        for policy in ("static", "fcfs", "esa"):
            with self.subTest(policy):
                self.start(aggregator=f"{{policy: {policy}, slots: 256, slot_bytes: {SLOT_BYTES}}}")
                ranks = self.job_of(RANKS, policy)
                found = self.sum_at_once(ranks)
                self.assertEqual(found, {"absorbed": RANKS * FRAGMENTS, "grouped": RANKS * FRAGMENTS, "groups": FRAGMENTS})
                for rank in ranks:
                    rank.leave()
                self.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
