#!/usr/bin/env python3
"""Tests which results the benchmark of all collectives accepts, and its choice of a library's
fastest algorithm."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import bench_collectives  # noqa: E402
from benchlib.errors import BenchError  # noqa: E402
from benchlib.tournament import Contestant, Tournament  # noqa: E402


def row(**changed):
    return {"collective": "all-gather", "ranks": 4, "bytes": 4096, "correct": True,
            "payload_bytes_up": 1024.0, "payload_bytes_down": 4096.0, "overhead_bytes": 114.0,
            "fragments_resent": 0, "p50_us": 1.0} | changed


class Check(unittest.TestCase):
    def test_payload_is_what_the_result_needs(self):
        bench_collectives.check(row())
        with self.assertRaisesRegex(BenchError, "all-gather of 4096 bytes, 4 ranks: payload"):
            bench_collectives.check(row(payload_bytes_up=4096.0))

    def test_more_is_explained_by_what_was_sent_again(self):
        bench_collectives.check(row(payload_bytes_up=2048.0, fragments_resent=3))

    def test_a_wrong_result_ends_it(self):
        for correct in (False, None):
            with self.assertRaisesRegex(BenchError, "wrong result"):
                bench_collectives.check(row(correct=correct))

    def test_counts_are_exchanged_before_a_send_and_receive(self):
        bench_collectives.check(row(collective="send-receive", payload_bytes_up=4096.0 + 32,
                                    payload_bytes_down=4096.0 + 4 * 32))

    def test_table_is_aligned(self):
        for one in (row(), row(collective="barrier", bytes=0, payload_bytes_up=0.0,
                               payload_bytes_down=0.0)):
            self.assertEqual(len(bench_collectives.table_line(one)), len(bench_collectives.HEADER))


class FakeTeam:
    """Algorithms, each with a first time and a later time."""
    times = {"plain": (9, 9), "a": (2, 8), "b": (3, 4), "c": (5, 5), "d": (30, 1)}

    def __init__(self):
        self.asked = []

    def run(self, mode, size, operations, collective):
        again = mode in self.asked
        self.asked.append(mode)
        return [self.times[mode][again]] * operations


class FastestMode(unittest.TestCase):
    def test_the_best_few_are_looked_at_again(self):
        team = FakeTeam()
        contestant = Contestant("openmpi_shm", team, "plain", list(team.times), "broadcast")
        self.assertEqual(Tournament("here", 0.1, None).fastest_mode(contestant, 4096), "b")
        self.assertEqual(team.asked[5:], ["a", "b", "c"])


if __name__ == "__main__":
    unittest.main()
