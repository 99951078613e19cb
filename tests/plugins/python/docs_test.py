"""Runs the Python blocks of docs/python.md, as one program on two ranks. Checks that other documents
about plugins have no commands that nothing runs.

    docs_test.py BUILD_FOLDER
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/plugins"))

import plugin_switch  # noqa: E402
import snippets  # noqa: E402

RANKS = 2
COMMANDS = ("./dev", "apt-get", "export", "ina-", "inactl", "meson", "mpirun", "ninja", "python3", "import", "from")


class DocsTest(unittest.TestCase):
    def test_program(self):
        blocks = snippets.blocks("python", "python")
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
                output, _ = rank.communicate(timeout=600)
                self.assertEqual(rank.returncode, 0, output)
                self.assertIn("bytes of sums that the switch made", output)

    def test_blocks_that_are_not_run_are_output_or_say_why(self):
        for document in snippets.DOCUMENTS:
            for block in snippets.blocks_of(snippets.text_of(document)):
                with self.subTest(document, line=block.line):
                    self.assertIn(block.language, ("python", "sh", "text"))
                    if block.language == "text":
                        for line in block.lines:
                            self.assertFalse(line.startswith(COMMANDS), line)


if __name__ == "__main__":
    unittest.main()
