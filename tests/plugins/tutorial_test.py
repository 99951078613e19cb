"""Runs every command of docs/tutorial.md in order, and compares its programs with the examples.

    tutorial_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
TUTORIAL = (SOURCE / "docs/tutorial.md").read_text("utf-8")
DEADLINE_S = 240


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", TUTORIAL, re.DOTALL | re.MULTILINE)


class TutorialTest(unittest.TestCase):
    def test_commands(self):
        with tempfile.TemporaryDirectory(prefix="ina-tutorial-") as folder:
            work = pathlib.Path(folder)
            for name in ("examples", "programs"):
                (work / name).symlink_to(SOURCE / name)
            (work / "build").symlink_to(BUILD)
            # Use python3 of the plugins' build, independently of PATH.
            (work / "bin").mkdir()
            (work / "bin/python3").symlink_to(sys.executable)
            script = 'export PATH="$PWD/bin:$PATH"\n' + "".join(blocks("sh"))
            try:
                done = subprocess.run(["bash", "-euxc", script], cwd=work, capture_output=True,
                                      text=True, timeout=DEADLINE_S, check=False,
                                      env={**os.environ, "HOME": folder})
            except subprocess.TimeoutExpired as late:
                self.fail(f"not done after {DEADLINE_S} s:\n{late.stdout}\n{late.stderr}")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for rank in range(4):
                self.assertIn(f"[{rank}] rank {rank} of 4: 100000 elements, each 1.5", done.stdout)
            recognised = re.findall(r"(\w+): loss [\d.]+, ([\d.]+)% of the test", done.stdout)
            self.assertEqual([backend for backend, _ in recognised], ["ina", "gloo"], done.stdout)
            for _, share in recognised:
                self.assertGreater(float(share), 90)
            # For two ranks the order of a sum does not matter.
            self.assertEqual((work / "ina.txt").read_text(), (work / "gloo.txt").read_text())
            self.assertIn("<svg", (work / "losses.svg").read_text("utf-8"))

    def test_programs(self):
        programs = "\n".join((SOURCE / "examples" / name).read_text("utf-8")
                             for name in ("python/average.py", "pytorch/digits.py"))
        for block in blocks("python"):
            for line in filter(None, map(str.strip, block.splitlines())):
                wanted = line.replace('"ina"', "arguments.backend")
                self.assertIn(wanted, programs)


if __name__ == "__main__":
    unittest.main()
