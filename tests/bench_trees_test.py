"""Tests of the comparisons of scripts/bench_trees.py: trees against the best flat setting, and the aims."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import bench_trees  # noqa: E402


class Runs:
    """Times by what is run, in place of the simulator."""

    @staticmethod
    def of(options, _seeds):
        ms = {"flat": 8 + abs(options["window"] - 8) / 8, "leaders": 3}.get(options.get("sums"), 1)
        if options["slots"] == bench_trees.AMPLE_SLOTS:
            ms = 0.98
        leaf = {"bypassed": 10, "preemptions": 5, "slots_used_peak": 70}
        return [{"avg_jct_s": ms * 1e-3, "queue_drops": 0, "bypassed": 20, "preemptions": 0, "slots_used_peak": 9,
                 "contributions": 200, "leaves": [leaf, leaf]}]


class TreesTest(unittest.TestCase):
    def test_rows_have_the_best_flat_setting(self):
        point = bench_trees.Point({"plain-mb": 4}, "8x16", 8, 64, True)
        esa, fcfs = point.rows(Runs)
        self.assertEqual((esa["policy"], fcfs["policy"]), ("esa", "fcfs"))
        self.assertEqual((esa["leaves"], esa["workers"], esa["flat_window"]), (8, 16, 8))
        self.assertAlmostEqual(esa["flat_vs_tree"], 8)
        self.assertAlmostEqual(esa["leaders_vs_tree"], 3)
        self.assertAlmostEqual(esa["in_memory"], 0.25)
        self.assertEqual(esa["slots_used_peak_never_full"], 70)
        # The uplinks take eight times as long as a worker's link.
        self.assertAlmostEqual(esa["flat_bound_ms"], 4 * 8 / 100 * 8330 / 8192 * 8)

    def test_training_has_no_leaders_and_no_bound(self):
        row = next(bench_trees.Point(bench_trees.TRAINING, "2x16", 8, 16, False).rows(Runs))
        self.assertIsNone(row["leaders_ms"])
        self.assertIsNone(row["flat_bound_ms"])

    def test_aims_are_judged_by_the_worst_row(self):
        rows = [row for oversubscription in (1, 8)
                for row in bench_trees.Point({"plain-mb": 4}, "8x16", oversubscription, 64, True).rows(Runs)]
        aims = {aim["aim"]: aim for aim in bench_trees.aims_of(rows)}
        self.assertLess(aims["never full / esa"]["worst"], aims["never full / esa"]["least"])
        self.assertAlmostEqual(aims["flat / esa at 8:1"]["worst"], 8)
        self.assertAlmostEqual(aims["leaders / esa"]["worst"], 3)


if __name__ == "__main__":
    unittest.main()
