"""The switch on emulated NICs behind an IOMMU, by DPDK's drivers for them.

    nic_test.py BUILD_FOLDER DRIVER
"""

import pathlib
import sys
import unittest

import cases
import machine
from guest import NoKernel

SKIPPED = 77  # meson's status for a skipped test
BUILD, DRIVER = pathlib.Path(sys.argv[1]), sys.argv[2]


class NicTest(unittest.TestCase):
    def test_every_case(self):
        outcomes = cases.run(BUILD, DRIVER, show=lambda line: print(line, flush=True))
        for name in cases.CASES:
            with self.subTest(case=name):
                self.assertIn(name, outcomes, "it did not end")
                self.assertTrue(outcomes[name].correct, "sums are wrong, or did not come")
                self.assertIsNot(outcomes[name].tcp_passes, False, "no TCP between the hosts")


if __name__ == "__main__":
    if lacks := machine.missing():
        print(f"skipped: {lacks}")
        sys.exit(SKIPPED)
    try:
        cases.kernel(BUILD)
    except NoKernel as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
