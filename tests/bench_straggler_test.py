"""Tests of the comparisons of scripts/bench_straggler.py and scripts/bench_straggler_sim.py: gains are
against the better baseline."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import bench_straggler  # noqa: E402
import bench_straggler_sim  # noqa: E402


def live(way, pattern, severity, seconds):
    return {"way": way, "pattern": pattern, "severity": severity, "iteration_s": seconds,
            "round_medians_s": [seconds]}


class LiveTest(unittest.TestCase):
    def test_gains_are_against_the_better_baseline(self):
        points = [live("off", "none", 1, 4.0), live("wide", "none", 1, 4.0), live("leader", "none", 1, 4.2),
                  live("again", "none", 1, 4.1),
                  live("off", "slow", 4, 12.0), live("wide", "slow", 4, 5.0), live("wide-a2tp", "slow", 4, 13.0),
                  live("leader", "slow", 4, 4.0)]
        found = bench_straggler.summary(points)
        self.assertAlmostEqual(found["best_iteration_reduction"], 0.2)
        self.assertAlmostEqual(found["best_throughput_gain"], 1.25)
        self.assertAlmostEqual(found["no_straggler_overhead"], 0.05)
        self.assertAlmostEqual(found["no_straggler_noise"], 0.025)
        points = [p | {"iteration_s": 20.0} if (p["way"], p["pattern"]) == ("wide", "slow") else p for p in points]
        self.assertAlmostEqual(bench_straggler.summary(points)["best_iteration_reduction"], 2 / 3)

    def test_links_alone_give_the_same_figures(self):
        rows = [{"pattern": "none", "reduction": {"leader": -0.01, "spill": 0.002}},
                {"pattern": "rotating", "reduction": {"leader": 0.03, "spill": 0.5}},
                {"pattern": "permanent", "reduction": {"leader": -0.1, "spill": 0.0}}]
        self.assertEqual(bench_straggler.links_summary(rows), {
            "best_iteration_reduction": 0.5, "best_throughput_gain": 2, "no_straggler_overhead": 0.01})

    def test_the_quick_run_has_both_baselines(self):
        self.assertLessEqual(set(bench_straggler.BASELINES), set(bench_straggler.QUICK_WAYS))


class SimulationTest(unittest.TestCase):
    def test_gains_are_against_the_better_baseline(self):
        points = {name: {"iteration_s": sum(times) / len(times), "iteration_s_half_interval": 0,
                         "iteration_s_by_seed": times, "window": 512, "aggregator_window": True}
                  for name, times in {"off": [40, 60], "run-ahead": [30, 50], "leader": [15, 25],
                                      "fallback": [30, 50], "spill": [27, 45]}.items()}
        row = bench_straggler_sim.compare(bench_straggler_sim.HEADLINE, points)
        self.assertEqual(row["baseline"], "run-ahead")
        self.assertAlmostEqual(row["reduction"]["leader"], 0.5)
        self.assertAlmostEqual(row["reduction"]["fallback"], 0)
        self.assertAlmostEqual(row["gain"]["spill"], 1 / 0.9)
        self.assertLess(row["against_off"]["spill"], 0)

    def test_charges_are_those_of_the_packets_that_were_measured(self):
        found = bench_straggler_sim.charge(42.3, 176.9)
        for size, ns in ((1024, 42.3), (8192, 176.9)):
            self.assertAlmostEqual(found["host-packet-ns"] + size * found["host-byte-ns"], ns, delta=0.5)
        self.assertAlmostEqual(found["switch-byte-ns"] * bench_straggler_sim.SWITCH_CORES, found["host-byte-ns"],
                               delta=1e-4)


if __name__ == "__main__":
    unittest.main()
