"""Runs the Python blocks of docs/python.md, as one program on two ranks.

    docs_test.py BUILD_FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/plugins"))

import plugin_switch  # noqa: E402

RANKS = 2


class DocsTest(unittest.TestCase):
    def test_program(self):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text("utf-8"),
                            re.DOTALL | re.MULTILINE)
        self.assertGreater(len(blocks), 4)
        with tempfile.TemporaryDirectory(prefix="ina-python-") as folder:
            program = pathlib.Path(folder) / "program.py"
            program.write_text("".join(blocks), "utf-8")
            switch = plugin_switch.start(BUILD, pathlib.Path(folder))
            self.addCleanup(switch.stop)
            environment = dict(os.environ, INA_URL=switch.url, INA_WORLD_SIZE=str(RANKS),
                               PYTHONPATH=str(BUILD / "plugins/python"))
            ranks = [subprocess.Popen([sys.executable, program], env=dict(environment, INA_RANK=str(r)),
                                      stdout=subprocess.PIPE, text=True) for r in range(RANKS)]
            for rank in ranks:
                output, _ = rank.communicate(timeout=60)
                self.assertEqual(rank.returncode, 0, output)
                self.assertIn("bytes of sums that the switch made", output)


if __name__ == "__main__":
    unittest.main()
