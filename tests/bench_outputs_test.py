#!/usr/bin/env python3
"""Every benchmark that writes its result at the end reports before its work if it cannot write.

    bench_outputs_test.py
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"


def run(script, *arguments):
    return subprocess.run([sys.executable, "-B", script, "--build", "/no/such/build", *arguments],
                          capture_output=True, text=True, timeout=600, check=False)


def writers():
    """Returns the scripts that take --json: those with benchlib's command line, or that of its
    simulations."""
    return [path for path in sorted(SCRIPTS.glob("*.py"))
            if any(text in path.read_text(encoding="utf-8")
                   for text in ("command_line.parse(", "simulations.parse_arguments("))]


class Outputs(unittest.TestCase):
    def test_there_are_such_scripts(self):
        self.assertGreaterEqual(len(writers()), 17)

    def test_a_place_that_cannot_be_written_is_an_error_of_the_command_line(self):
        for script in writers():
            with self.subTest(script.name):
                done = run(script, "--json", "/no/such/folder/x.json")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("cannot write /no/such/folder/x.json: No such file", done.stderr)
                self.assertEqual(done.stdout, "")

    def test_without_a_result_nothing_is_left_and_nothing_is_lost(self):
        for script in writers()[:1]:  # all have the same type of path, so one script is enough
            with self.subTest(script.name), tempfile.TemporaryDirectory() as folder:
                old = pathlib.Path(folder) / "old.json"
                old.write_text("before", encoding="utf-8")
                for path in (old, pathlib.Path(folder) / "new.json"):
                    self.assertEqual(run(script, "--json", path, "--no-such").returncode, 2)
                self.assertEqual(old.read_text(encoding="utf-8"), "before")
                self.assertEqual(list(pathlib.Path(folder).iterdir()), [old])


if __name__ == "__main__":
    unittest.main()
