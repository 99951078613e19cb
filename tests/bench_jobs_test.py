"""Tests of the comparisons of scripts/bench_jct.py and scripts/bench_contention.py, esa as shipped
against the other policies at their best, and of their tables."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import bench_contention  # noqa: E402
import bench_jct  # noqa: E402
from doctables import evaluation  # noqa: E402


def simulated(by_seed, ways=4, window=512, **more):
    return {"experiment": "slots", "home": "workers", "slots": 16, "jobs": 8, "workers": 8, "rate_gbps": 100,
            "delay_us": 1, "mix": "mixed", "racks": 1, "ways": ways, "window": window,
            "avg_jct_s": sum(by_seed) / len(by_seed), "avg_jct_s_by_seed": by_seed} | more


POINTS = {"esa": simulated([2.0, 4.0]), "bound": simulated([2.0, 2.5]),
          "static": simulated([2.4, 3.0], ways=None, window=8),
          "fcfs": simulated([5.0, 4.0], ways=1, window=4), "fcfs+window": simulated([3.0, 5.4], ways=8, window=32)}


class SimulatedTest(unittest.TestCase):
    def test_ratios_are_to_the_best_of_the_others(self):
        row = bench_jct.ratios(POINTS)
        self.assertEqual((row["fcfs"], row["fcfs_ways"], row["fcfs_window"]), ("fcfs+window", 8, 32))
        self.assertAlmostEqual(row["esa_vs_fcfs_best"], 4.2 / 3)
        # The ratios of the seeds are 1.5 and 1.35.
        self.assertAlmostEqual(row["esa_vs_fcfs_best_half_interval"], 12.71 * 0.075, places=6)
        self.assertEqual(row["other"], "static")
        self.assertAlmostEqual(row["vs_best_other"], 3 / 2.7)
        self.assertAlmostEqual(row["esa_vs_bound"], 2.25 / 3)
        self.assertAlmostEqual(row["esa_vs_static"], 2.7 / 3)

    def test_a_point_may_have_no_room_for_static(self):
        row = bench_jct.ratios({name: point for name, point in POINTS.items() if name != "static"})
        self.assertIsNone(row["esa_vs_static"])
        self.assertEqual(row["other"], "fcfs+window")
        self.assertAlmostEqual(row["vs_best_other"], 3 / 4.2)

    def test_the_summary_counts_the_points_where_esa_is_slower(self):
        rows = [{"home": home, "esa_vs_fcfs_best": gain, "vs_best_other": loss, "esa_vs_bound": bound}
                for home, gain, loss, bound in (("workers", 1.2, 0.9, 0.98), ("dedicated", 2.0, 1.02, 1.0),
                                                ("workers", 0.9, 1.11, 0.9))]
        found = bench_jct.summary(rows)
        self.assertEqual(found["best_speedup_vs_fcfs_best"], 2.0)
        self.assertEqual(found["median_speedup_vs_fcfs_best"], 1.2)
        self.assertEqual(found["worst_speedup_vs_fcfs_best"], 0.9)
        self.assertEqual(found["worst_vs_best_other"], 1.11)
        self.assertEqual(found["points_worse_than_1_02"], 1)
        self.assertEqual(found["best_speedup_vs_fcfs_home_workers"], 1.2)
        self.assertEqual(found["median_esa_vs_bound"], 0.98)

    def test_fcfs_is_tried_over_windows_and_ways(self):
        comparison = bench_jct.Comparison("slots", {"slots": 16}, bench_jct.BASE, False)

        class Runs:
            """The best window is 8, and more ways are better."""
            @staticmethod
            def avg_jct_s(options, _):
                return abs(options["window"] - 8) + 1 / options.get("ways", 1)
        new = comparison.try_more_ways(Runs, 1)
        self.assertEqual({(options["ways"], options["window"]) for options in new}, {(2, 8), (8, 8)})
        best = [options for options in comparison.finalists(Runs, 1) if options["policy"] == "fcfs"]
        self.assertEqual({(bench_jct.kind(options), options["ways"], options["window"]) for options in best},
                         {(name, ways, 8) for ways in (1, 2, 4, 8) for name in ("fcfs", "fcfs+window")})

    def test_few_slots_are_tried_with_windows_of_one_and_two(self):
        def windows(slots):
            options = bench_jct.BASE | {"slots": slots}
            return {name: {own["window"] for own in bench_jct.fcfs_settings(options, False)
                           if bench_jct.kind(own) == name} for name in ("fcfs", "fcfs+window")}
        self.assertEqual({name: min(found) for name, found in windows(16).items()}, {"fcfs": 1, "fcfs+window": 1})
        self.assertEqual({name: min(found) for name, found in windows(64).items()}, {"fcfs": 4, "fcfs+window": 4})


class DrawnPointsTest(unittest.TestCase):
    def test_a_seed_draws_the_same_points_and_others_draw_others(self):
        first = bench_jct.drawn_experiments(11, 40)
        self.assertEqual(first, bench_jct.drawn_experiments(11, 40))
        self.assertEqual(first[:5], bench_jct.drawn_experiments(11, 5))
        self.assertNotEqual(first, bench_jct.drawn_experiments(12, 40))

    def test_points_reach_all_axes_and_make_sense(self):
        drawn = bench_jct.drawn_experiments(3, 200)
        self.assertEqual({axis for axis, _ in drawn}, {"farther", "racks", "loss", "bursts", "mix", "none"})
        self.assertEqual({point["home"] for _, point in drawn}, {"workers", "dedicated", "spill"})
        self.assertEqual({point["workers"] for _, point in drawn}, set(bench_jct.DRAWN_WORKERS))
        for _, point in drawn:
            self.assertGreaterEqual(point["slots"], 2 * point["jobs"])
            self.assertTrue(bench_jct.static_settings(bench_jct.DRAWN_BASE | point))
            self.assertTrue(1 <= point.get("farther-us", 1) <= 50)

    def test_esa_without_its_window_is_another_of_the_others(self):
        self.assertEqual(bench_jct.kind({"policy": "esa"} | bench_jct.PLAIN), "esa, no window")
        row = bench_jct.ratios(POINTS | {"esa, no window": simulated([1.0, 2.0])})
        self.assertEqual(row["other"], "esa, no window")
        self.assertAlmostEqual(row["vs_best_other"], 2)


class TablesTest(unittest.TestCase):
    def test_a_99th_percentile_is_of_a_hundred_jobs_at_least(self):
        def by(jobs):
            return {name: {"avg_jct_s": 0.001, "p99_jct_s": 0.003, "jobs": jobs} for name in ("esa", "fcfs")}
        found = evaluation.jct_headlines({"headlines": [
            {"slots": 16, "by": {"p99": by(200), "devices": by(40)}}]}).splitlines()[2:]
        self.assertEqual([line.count("3.00") for line in found], [2, 0])

    def test_the_summary_has_each_point_once(self):
        found = [{"home": home, "slots": slots, "esa_vs_fcfs_best": gain, "vs_best_other": 0.9, "esa_vs_bound": 0.95}
                 for home, slots, gain in (("workers", 16, 1.3), ("workers", 64, 1.2), ("workers", 32, 1.1),
                                           ("dedicated", 128, 1.0), ("spill", 4096, 1.05))]
        rows = [[cell.strip() for cell in line.strip("| ").split("|")]
                for line in evaluation.jct_summary({"speedups": found}).splitlines()[2:]]
        self.assertEqual([row[2] for row in rows], ["1", "2", "1", "1", "5"])
        self.assertEqual(rows[1][3:6], ["1.10", "1.15", "1.20"])
        self.assertEqual(rows[-1][3:6], ["1.00", "1.10", "1.30"])


def measured(setting, policy, by_round):
    return {"home": "workers", "slots": 10, "setting": setting, "policy": policy, "avg_jct_s_by_round": by_round}


class MeasuredTest(unittest.TestCase):
    def test_ratios_are_those_of_the_same_round(self):
        points = [measured("esa", "esa", [1.0, 2.0, 4.0]), measured("fcfs", "fcfs", [3.0, 3.0, 8.0]),
                  measured("fcfs, as esa", "fcfs", [1.1, 2.4, 6.0]), measured("static", "static", [0.9, 2.0, 3.0])]
        row = bench_contention.speedup(points)
        self.assertEqual((row["home"], row["slots"], row["fcfs_setting"]), ("workers", 10, "fcfs, as esa"))
        self.assertAlmostEqual(row["esa_vs_fcfs_best"], 1.2)
        self.assertAlmostEqual(row["least"], 1.1)
        self.assertAlmostEqual(row["most"], 1.5)
        self.assertAlmostEqual(row["esa_vs_static"], 0.9)

    def test_a_small_array_has_no_room_for_static(self):
        row = bench_contention.speedup([measured("esa", "esa", [2.0]), measured("fcfs", "fcfs", [3.0])])
        self.assertAlmostEqual(row["esa_vs_fcfs_best"], 1.5)
        self.assertIsNone(row["esa_vs_static"])

    def test_the_smallest_window_is_what_a_configuration_may_have(self):
        small = next(setting for setting in bench_contention.SETTINGS if setting[4] == "small")
        config = bench_contention.config_of(small, 2, 3, 2.4, "workers")
        self.assertIn(f"window_bytes: {bench_contention.LEAST_WINDOW * bench_contention.SLOT_BYTES}}}", config)
        self.assertGreaterEqual(bench_contention.LEAST_WINDOW * bench_contention.SLOT_BYTES, 64 << 10)
        self.assertIn("ways: 1,", config)


if __name__ == "__main__":
    unittest.main()
