#!/usr/bin/env python3
"""Prints the failed tests of the last `meson test` that are worth another run alone, one a line.

    doubtful_tests.py FOLDER

A test that reports a failure may have run while the machine was busy with the next build. A crash,
a time-out and a sanitizer's report are defects in any case, and so are failures of more than a few
tests; nothing is printed then.
"""

import json
import pathlib
import re
import sys

MOST = 3
# Output that only a defect causes.
DEFECT = re.compile(r"Sanitizer|runtime error:|Assertion .* failed|terminate called")


def said_to_fail(run):
    output = (run.get("stdout") or "") + (run.get("stderr") or "")
    return run["result"] == "FAIL" and 0 < run.get("returncode", 0) < 128 and \
        not DEFECT.search(output)


def doubtful(runs):
    failed = [run for run in runs if run["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]
    if len(failed) > MOST or not all(map(said_to_fail, failed)):
        return []
    return [run["name"].rpartition(" / ")[2] for run in failed]


def main(arguments):
    log = pathlib.Path(arguments[0]) / "meson-logs/testlog.json"
    if log.exists():
        for name in doubtful(json.loads(line) for line in log.read_text().splitlines()):
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
