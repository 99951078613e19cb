#!/usr/bin/env python3
"""Tests the figures of the documents: no panel is empty, colours have the meaning of
scripts/plot_style.py in all figures, and all together stay small.

    figures_test.py
"""

import pathlib
import re
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))

from plot_style import COLOURS, STYLES  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
REFERENCE_LINE = "#666666"
MOST_BYTES = 1_500_000  # of docs/figures: each new result stays in the history for ever
TIMELINE = 'data-drawn-by="ina-plan"'  # timelines of ina-plan; matplotlib draws all other figures


def groups(element, name):
    """Returns the groups directly below `element` with this name from matplotlib."""
    return [child for child in element.iter(f"{SVG}g")
            if re.fullmatch(rf"{name}_\d+", child.get("id", ""))]


def children(element, name):
    return [child for child in element if re.fullmatch(rf"{name}_\d+", child.get("id", ""))]


def stroke_of(line):
    """Returns the colour of a line, or of its marker if it has one point."""
    for element in line.iter():
        found = re.search(r"stroke: (#\w{6})", element.get("style", ""))
        if found:
            return found[1]
    return None


def points_of(line):
    return sum(len(re.findall(r"[ML] ", path.get("d", ""))) for path in line.findall(f"{SVG}path"))


def legend_entries(legend):
    """Returns (label, colour) of each entry."""
    lines, labels = [], []
    for element in legend.iter(f"{SVG}g"):
        name = element.get("id", "")
        if name.startswith("line2d_"):
            lines.append(stroke_of(element))
        elif name.startswith("text_"):
            labels.append("".join(element.itertext()).strip())
    return list(zip(labels, lines))


class Figures(unittest.TestCase):
    def setUp(self):
        figures = sorted((ROOT / "docs/figures").glob("*.svg"))
        self.timelines = [path for path in figures if TIMELINE in path.read_text("utf-8")]
        self.figures = [path for path in figures if path not in self.timelines]

    def trees(self):
        for path in self.figures:
            with self.subTest(path.name):
                yield xml.etree.ElementTree.parse(path).getroot()

    def test_all_files_together_are_small(self):
        """`./dev bench tables` shortens JSON files, `./dev bench plots` SVG and PNG files."""
        sizes = {path: path.stat().st_size for path in (ROOT / "docs/figures").rglob("*") if path.is_file()}
        largest = [f"{path.name}: {size}" for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:5]]
        self.assertLessEqual(sum(sizes.values()), MOST_BYTES, largest)

    def test_there_are_figures(self):
        self.assertGreaterEqual(len(self.figures), 8)

    def test_every_panel_shows_something(self):
        for root in self.trees():
            panels = groups(root, "axes")
            self.assertTrue(panels)
            for panel in panels:
                most = max(map(points_of, children(panel, "line2d")), default=0)
                self.assertGreaterEqual(most, 2, panel.get("id"))

    def test_colours_are_those_of_the_table(self):
        for root in self.trees():
            for panel in groups(root, "axes"):
                for line in children(panel, "line2d"):
                    self.assertIn(stroke_of(line), COLOURS | {REFERENCE_LINE})

    def test_a_colour_means_what_the_table_says(self):
        for root in self.trees():
            legends = groups(root, "legend")
            self.assertEqual(len(legends), 1)
            entries = legend_entries(legends[0])
            self.assertTrue(entries)
            for label, colour in entries:
                self.assertIn(label, STYLES)
                self.assertEqual(colour, STYLES[label][0], label)
            looks = {STYLES[label] for label, _ in entries}
            self.assertEqual(len(looks), len(entries), "series that look alike")

    def test_timelines_have_labels_legend_and_axis(self):
        self.assertTrue(self.timelines)
        for path in self.timelines:
            with self.subTest(path.name):
                root = xml.etree.ElementTree.parse(path).getroot()
                labels = [element.text for element in root.iter(f"{SVG}text")]
                sizes = [float(element.get("font-size", root.get("font-size")))
                         for element in root.iter(f"{SVG}text")]
                self.assertGreaterEqual(min(sizes), 11)
                self.assertIn("idle", labels)
                self.assertTrue(any(label.startswith("time [") for label in labels))
                self.assertGreaterEqual(sum("Gb/s" in label for label in labels), 2)


if __name__ == "__main__":
    unittest.main()
