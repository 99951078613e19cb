#!/usr/bin/env python3
"""Tests the statistics of the comparison with other libraries. An inverted ratio, or a ratio of
samples from different rounds, would go unnoticed otherwise."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import bench_peers  # noqa: E402
import bench_peers_report as report  # noqa: E402
from benchlib.rounds import mode_of, paired_ratios, times_us  # noqa: E402
from benchlib.teams import payload_up  # noqa: E402

NEAR, FAR = [100, 120], [500, 520]


def sample(us, trips=NEAR):
    return {"us": us, "core_round_trip_ns": trips}


def rounds_of(**series):
    """Returns one round for each place in the lists; None: not measured in that round."""
    count = len(next(iter(series.values())))
    return [{name: sample(*values[i]) if isinstance(values[i], tuple) else sample(values[i])
             for name, values in series.items() if values[i] is not None} for i in range(count)]


def row_of(*arguments, cpus=2):
    return report.make_row(*arguments, cpus=cpus)


class ModeTest(unittest.TestCase):
    def test_both_round_trips_decide(self):
        self.assertEqual(mode_of(sample(1, [299, 100])), "near")
        self.assertEqual(mode_of(sample(1, [300, 900])), "far")
        self.assertIsNone(mode_of(sample(1, [100, 500])), "changed meanwhile")
        self.assertIsNone(mode_of(sample(1, [0, 100])), "not measured")

    def test_times_of_a_mode(self):
        rounds = rounds_of(ina_plain=[(1, NEAR), (5, FAR), (2, [100, 500])])
        self.assertEqual(times_us(rounds, "ina_plain", "near"), [1])
        self.assertEqual(times_us(rounds, "ina_plain", "far"), [5])
        self.assertEqual(times_us(rounds, "ina_plain"), [1, 5, 2])


class RatioTest(unittest.TestCase):
    def test_above_one_where_ours_is_faster(self):
        rounds = rounds_of(ina_plain=[10], openmpi_shm=[20])
        self.assertEqual(paired_ratios(rounds, "ina_plain", "openmpi_shm"), [2])

    def test_pairs_are_of_one_round(self):
        # The medians 4 and 8 would give a ratio of 2, which occurs in no round.
        rounds = rounds_of(ina_plain=[1, 4, 16], openmpi_shm=[8, 2, 8])
        self.assertEqual(paired_ratios(rounds, "ina_plain", "openmpi_shm"), [8, 0.5, 0.5])
        row = report.figures(rounds, "ina_plain")
        self.assertEqual(row["ratio_vs_openmpi_shm"], 0.5)
        self.assertEqual(row["ours_us"], 4)

    def test_a_round_without_one_of_both_is_no_pair(self):
        rounds = rounds_of(ina_plain=[10, None, 10], openmpi_shm=[None, 20, 30])
        self.assertEqual(paired_ratios(rounds, "ina_plain", "openmpi_shm"), [3])

    def test_pairs_of_a_mode_are_both_in_it(self):
        rounds = rounds_of(ina_plain=[(10, NEAR), (10, FAR), (10, FAR)],
                           openmpi_shm=[(20, FAR), (30, FAR), (40, NEAR)])
        self.assertEqual(paired_ratios(rounds, "ina_plain", "openmpi_shm", "far"), [3])
        self.assertEqual(paired_ratios(rounds, "ina_plain", "openmpi_shm", "near"), [])


class PayloadTest(unittest.TestCase):
    def test_all_ranks_contributions(self):
        self.assertEqual(payload_up("allreduce", 4096, 4), 4 * 4096)
        self.assertEqual(payload_up("send-receive", 4096, 4), 4 * (4096 + 32))
        self.assertEqual(payload_up("broadcast", 4096, 4), 4096)
        self.assertEqual(payload_up("scatter", 4096, 4), 3 * 1024)
        self.assertEqual(payload_up("all-to-all", 4096, 4), 4 * 3 * 1024)


class ContestantsTest(unittest.TestCase):
    def contestants(self, name, modes):
        team = types.SimpleNamespace(name=name, ours=name == "ina")
        found = bench_peers.Comparison.contestants_of(types.SimpleNamespace(collective="reduce"), team, modes)
        return [(c.name, c.modes) for c in found]

    def test_openmpi_has_its_best_and_its_default_setting(self):
        modes = ["plain", "tuned_ring"]
        self.assertEqual(self.contestants("openmpi_shm", modes), [("openmpi_shm", modes)])
        self.assertEqual(self.contestants("openmpi_default", modes), [("openmpi_default", ["plain"])])
        self.assertEqual(self.contestants("ina", ["plain", "registered"]),
                         [("ina_plain", ["plain"]), ("ina_registered", ["registered"])])

    def test_the_default_has_no_settings(self):
        best, default = (bench_peers.TEAMS[name] for name in ("openmpi_shm", "openmpi_default"))
        self.assertIn("btl", best["launcher"])
        self.assertNotIn("btl", default["launcher"])
        self.assertLessEqual(bench_peers.ALLOCATOR_ENVIRONMENT.items(), best["environment"].items())
        self.assertFalse(bench_peers.ALLOCATOR_ENVIRONMENT.keys() & default["environment"].keys())


class RowTest(unittest.TestCase):
    def test_the_better_algorithm_of_gloo_counts(self):
        rounds = rounds_of(ina_plain=[10, 10], gloo_ring=[40, 40], gloo_halving_doubling=[30, 30])
        row = row_of(2, 4096, "plain", rounds, {})
        self.assertEqual(row["peers"]["gloo_us"], 30)
        self.assertEqual(row["gloo_algorithm"], "halving_doubling")
        self.assertEqual(row["gloo_us"], {"ring": 40, "halving_doubling": 30})
        self.assertEqual(row["ratio_vs_best_network_peer"], 3)

    def test_the_best_network_peer_is_not_one_of_shared_memory(self):
        rounds = rounds_of(ina_plain=[10], openmpi_shm=[5], mpich=[6], openmpi_tcp=[20],
                           gloo_ring=[40])
        row = row_of(2, 4096, "plain", rounds, {})
        self.assertEqual(row["best_network_peer"], "openmpi_tcp")
        self.assertEqual(row["ratio_vs_best_network_peer"], 2)
        self.assertEqual(row["ratio_vs_openmpi_shm"], 0.5)

    def test_what_was_not_measured_is_null_and_said(self):
        rounds = rounds_of(ina_plain=[10], openmpi_tcp=[20])
        row = row_of(8, 4096, "plain", rounds, {"gloo": "not installed"})
        self.assertIsNone(row["peers"]["gloo_us"])
        self.assertIsNone(row["ratio_vs_openmpi_shm"])
        self.assertIsNone(row["raw"]["modes"]["far"]["ours_us"])
        self.assertEqual(row["missing"], {"gloo": "not installed"})
        self.assertEqual(row["best_network_peer"], "openmpi_tcp")
        cells = report.table_line(row).split()
        self.assertEqual(cells[4:11], ["10.0", "-", "-", "20.0", "-", "-", "2.00"])

    def test_spread_is_quartiles(self):
        rounds = rounds_of(ina_plain=[1, 2, 3, 4, 100], openmpi_shm=[2, 4, 6, 8, 200])
        spread = report.figures(rounds, "ina_plain")["spread"]
        self.assertEqual(spread["ours_us"], [2, 4])
        self.assertEqual(spread["ratios"]["openmpi_shm"], [2, 2])
        self.assertIsNone(spread["ratios"]["gloo"])

    def test_registered_buffers_have_a_row_of_their_own(self):
        rounds = rounds_of(ina_plain=[10], ina_registered=[5], openmpi_shm=[20])
        self.assertEqual(row_of(2, 4096, "plain", rounds, {})["ratio_vs_openmpi_shm"], 2)
        row = row_of(2, 4096, "registered", rounds, {})
        self.assertEqual((row["ours_us"], row["ratio_vs_openmpi_shm"]), (5, 4))

    def test_other_collectives_have_rows_of_the_same_form(self):
        rounds = rounds_of(ina_plain=[10], openmpi_tcp=[40], gloo=[20])
        row = row_of(4, 65536, "plain", rounds, {}, "all-gather",
                              {"openmpi_tcp": "tuned_ring"})
        self.assertEqual((row["collective"], row["best_network_peer"], row["best_network_peer_us"]),
                         ("all-gather", "gloo", 20))
        self.assertEqual(row["ratio_vs_best_network_peer"], 2)
        self.assertEqual(row["algorithms"], {"openmpi_tcp": "tuned_ring"})
        self.assertEqual(row_of(4, 65536, "plain", rounds, {})["collective"], "allreduce")

    def test_the_default_of_openmpi_stands_beside_its_best_setting(self):
        rounds = rounds_of(ina_plain=[10], openmpi_shm=[20], openmpi_default=[50])
        row = row_of(4, 4096, "plain", rounds, {})
        self.assertEqual((row["ratio_vs_openmpi_shm"], row["ratio_vs_openmpi_default"]), (2, 5))
        self.assertEqual((row["peers"]["openmpi_shm_us"], row["peers"]["openmpi_default_us"]), (20, 50))
        self.assertIsNone(row["best_network_peer"], "both use shared memory")

    def test_what_spins_is_in_the_ratios_where_each_rank_has_a_core(self):
        rounds = rounds_of(ina_plain=[10, 10], mpich=[20, 20])
        for ranks, cpus, ratio in ((2, 2, 2), (4, 4, 2), (4, 2, None)):
            row = row_of(ranks, 4096, "plain", rounds, {}, cpus=cpus)
            self.assertEqual(row["ratio_vs_mpich"], ratio)
            self.assertEqual(row["raw"]["modes"]["near"]["ratio_vs_mpich"], ratio)
            self.assertEqual(row["spread"]["ratios"]["mpich"], ratio and [ratio, ratio])
            self.assertEqual(row["peers"]["mpich_us"], 20)

    def test_table_is_aligned(self):
        rounds = rounds_of(ina_plain=[10], openmpi_tcp=[20])
        for size in (4096, 256 << 20):
            line = report.table_line(row_of(8, size, "registered", rounds, {}))
            self.assertEqual(len(line), len(report.HEADER))


if __name__ == "__main__":
    unittest.main()
