#!/usr/bin/env python3
"""Tests the statistics of the comparison over the wire. A peer's worse path in place of its better
path, or a ratio of another path, would go unnoticed otherwise."""

import inspect
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import bench_wire  # noqa: E402
import bench_wire_report as report  # noqa: E402

WHAT = {"transport": "udp", "ranks": 4, "bytes": 1000, "mtu": 1500, "offloads": False}


def rounds_of(**series):
    """Returns one round for each place in the lists of times in us; `_at_` stands for @."""
    count = len(next(iter(series.values())))
    return [{name.replace("_at_", "@"): {"us": times[i], "core_round_trip_ns": [100, 100]}
             for name, times in series.items()} for i in range(count)]


def row_of(paths=("switch", "kernel"), **series):
    return report.make_row(WHAT, "udp", "forward_udp", list(paths), rounds_of(**series), {})


class TeamTest(unittest.TestCase):
    def test_a_team_that_only_forwards_is_called_as_any_other(self):
        for name in ("check", "run"):
            self.assertEqual(inspect.signature(getattr(bench_wire.Forwarding, name)),
                             inspect.signature(getattr(bench_wire.Team, name)))


class SettingsTest(unittest.TestCase):
    def test_more_packet_loops_have_larger_windows_of_the_same_fragments(self):
        for mtu, settings in bench_wire.SETTINGS.items():
            self.assertEqual(bench_wire.settings_of(mtu, 1), settings)
            many = bench_wire.settings_of(mtu, 8)
            self.assertEqual(many["slot_bytes"], settings["slot_bytes"])
            self.assertEqual(many["window"], 4 * settings["window"])
            self.assertGreaterEqual(many["ring_frames"], 2 * many["window"])


class RowTest(unittest.TestCase):
    def test_bandwidths_are_of_the_median_time(self):
        row = row_of(udp=[10, 30, 20], forward_udp=[5, 5, 8])
        self.assertEqual(row["us"], 20)
        self.assertAlmostEqual(row["algbw_GBps"], 0.05)
        self.assertAlmostEqual(row["forwarding_limit_GBps"], 0.2)
        self.assertEqual(row["samples"], 3)
        low, high = row["spread"]["algbw_GBps"]
        self.assertAlmostEqual(low, 0.04)  # the third quartile of the times, 25 us
        self.assertAlmostEqual(high, 1000 / 15 / 1e3)

    def test_a_peer_has_its_better_path_and_algorithm(self):
        row = row_of(udp=[10], openmpi_tcp_at_switch=[40], openmpi_tcp_at_kernel=[20],
                     gloo_ring_at_switch=[25], gloo_ring_at_kernel=[50],
                     gloo_halving_doubling_at_kernel=[100])
        self.assertAlmostEqual(row["openmpi_tcp_same_path_GBps"], 0.05)
        self.assertAlmostEqual(row["gloo_tcp_same_path_GBps"], 0.04)
        self.assertEqual(row["best_peer"], "openmpi_tcp@kernel")
        self.assertEqual(row["ratio"], 2)
        self.assertEqual(row["ratio_by_path"], {"switch": 2.5, "kernel": 2})

    def test_ratios_are_of_pairs_in_one_round_and_above_one_where_ours_is_faster(self):
        # The medians 4 and 8 would give a ratio of 2, which occurs in no round.
        row = row_of(udp=[1, 4, 16], openmpi_tcp_at_kernel=[8, 2, 8])
        self.assertEqual(row["ratio"], 0.5)
        self.assertEqual(row["spread"]["ratio"], [0.5, 4.25])

    def test_paths_that_do_not_belong_to_the_row_do_not_count(self):
        row = row_of(paths=["kernel_offloads"], udp=[10], openmpi_tcp_at_kernel=[1],
                     openmpi_tcp_at_kernel_offloads=[5])
        self.assertEqual(row["best_peer"], "openmpi_tcp@kernel_offloads")
        self.assertEqual(row["ratio"], 0.5)

    def test_what_was_not_measured_is_null(self):
        row = row_of(udp=[10])
        self.assertIsNone(row["best_peer"])
        self.assertIsNone(row["ratio"])
        self.assertIsNone(row["openmpi_tcp_same_path_GBps"])
        self.assertIsNone(row["forwarding_limit_GBps"])
        self.assertEqual(row["ratio_by_path"], {"switch": None, "kernel": None})
        # "ours us" and "best peer" are one column each.
        self.assertEqual(len(report.table_line(row).split()), len(report.HEADER.split()) - 2)

    def test_the_table_lines_up(self):
        row = row_of(udp=[10], forward_udp=[5], openmpi_tcp_at_kernel=[20])
        self.assertEqual(report.table_line(row).index("openmpi_tcp@kernel"),
                         report.HEADER.index("best peer"))


if __name__ == "__main__":
    unittest.main()
