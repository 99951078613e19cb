#!/usr/bin/env python3
"""ina.h compiles without a warning in each standard of C and C++ that the compilers know.

    header_standards_test.py INCLUDE_FOLDER
"""

import shutil
import subprocess
import sys
import unittest

INCLUDE = sys.argv.pop(1)
PROGRAM = """
#include "ina/ina.h"
int use(ina_context* context, const float* send, float* recv);
int use(ina_context* context, const float* send, float* recv) {
  ina_config config;
  ina_config_init(&config);
  return ina_allreduce(context, send, recv, config.struct_size, INA_FLOAT32, INA_SUM, 0);
}
"""
STANDARDS = {
    "c": ("c90", "iso9899:199409", "c99", "c11", "c17", "gnu90", "gnu17"),
    "c++": ("c++98", "c++11", "c++14", "c++17", "c++20", "gnu++20"),
}
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-Wstrict-prototypes")


class HeaderStandardsTest(unittest.TestCase):
    def test_every_standard(self):
        compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
        self.assertTrue(compilers)
        for compiler in compilers:
            for language, standards in STANDARDS.items():
                for standard in standards:
                    with self.subTest(compiler=compiler, standard=standard):
                        warnings = WARNINGS[:-1] if language == "c++" else WARNINGS
                        done = subprocess.run([compiler, f"-std={standard}", *warnings, "-fsyntax-only", f"-I{INCLUDE}",
                                               "-x", language, "-"], input=PROGRAM, capture_output=True, text=True, check=False)
                        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
