#!/usr/bin/env python3
"""Prints the ninja targets that the tests of some suites need, one a line.

    test_targets.py FOLDER [--suite SUITE]... [--no-suite SUITE]...

FOLDER is a configured build folder. The options select tests as those of `meson test` do.
"""

import argparse
import json
import pathlib
import sys


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--no-suite", action="append", default=[])
    options = parser.parse_args(arguments)

    folder = options.folder.resolve()
    info = folder / "meson-info"
    files = {target["id"]: target["filename"]
             for target in json.loads((info / "intro-targets.json").read_text())}
    needed = set()
    for test in json.loads((info / "intro-tests.json").read_text()):
        suites = {suite.partition(":")[2] or suite for suite in test["suite"]}
        if (options.suite and suites.isdisjoint(options.suite)) or \
                not suites.isdisjoint(options.no_suite):
            continue
        for target in test["depends"]:
            needed.update(str(pathlib.Path(name).relative_to(folder)) for name in files[target])
    if needed:
        print("\n".join(sorted(needed)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
