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
sys.path.insert(0, str(SOURCE / "tests/plugins"))

import snippets  # noqa: E402

DEADLINE_S = 600


def blocks(kind):
    return snippets.blocks("tutorial", kind)


class TutorialTest(unittest.TestCase):
    def run_script(self, script, folder):
        """Returns what the commands print."""
        # To files, which a process that a failed script leaves behind does not keep open.
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            shell = subprocess.Popen(["bash", "-euxc", script], cwd=folder, stdout=out, stderr=err,
                                     start_new_session=True, env={**os.environ, "HOME": str(folder)})
            try:
                status = shell.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                status = f"none after {DEADLINE_S} s"
            snippets.end_group(shell)
        said = (folder / "out").read_text()
        self.assertEqual(status, 0, said + (folder / "err").read_text())
        return said

    def test_commands(self):
        with tempfile.TemporaryDirectory(prefix="ina-tutorial-") as folder:
            work = pathlib.Path(folder)
            for name in ("conf", "examples", "programs"):
                (work / name).symlink_to(SOURCE / name)
            (work / "build").symlink_to(BUILD)
            # Use python3 of the plugins' build, independently of PATH.
            (work / "bin").mkdir()
            (work / "bin/python3").symlink_to(sys.executable)
            script = 'export PATH="$PWD/bin:$PATH"\n' + "".join(blocks("sh"))
            script = script.replace("/tmp/", f"{folder}/")
            said = self.run_script(script, work)
            for rank in range(4):
                self.assertIn(f"[{rank}] rank {rank} of 4: 100000 elements, each 1.5", said)
            recognised = re.findall(r"(\w+): loss [\d.]+, ([\d.]+)% of the test", said)
            self.assertEqual([backend for backend, _ in recognised], ["ina", "gloo"], said)
            for _, share in recognised:
                self.assertGreater(float(share), 90)
            # For two ranks the order of a sum does not matter.
            self.assertEqual((work / "ina.txt").read_text(), (work / "gloo.txt").read_text())
            self.assertIn("<svg", (work / "losses.svg").read_text("utf-8"))
            waiting, = (line for block in blocks("text") for line in block.splitlines() if "waiting" in line)
            self.assertRegex(said, "(?m)^" + re.sub(r"uid:\d+", r"uid:\\d+", waiting) + "$")
            for rank in range(2):
                self.assertIn(f"rank {rank} of 2: 100000 elements, each 0.5", said)

    def test_programs(self):
        programs = "\n".join((SOURCE / "examples" / name).read_text("utf-8")
                             for name in ("python/average.py", "pytorch/digits.py"))
        for block in blocks("python"):
            for line in filter(None, map(str.strip, block.splitlines())):
                wanted = line.replace('"ina"', "arguments.backend")
                self.assertIn(wanted, programs)


if __name__ == "__main__":
    unittest.main()
