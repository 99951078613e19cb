#!/usr/bin/env python3
"""Adds up the test cases of several meson builds and says whether they passed.

    test_summary.py [--all] [--ci] [--allowed-skips FILE] NAME=FOLDER:STATUS...

NAME is the build's name in the table, FOLDER its build folder after `meson test`, STATUS the exit
status of `meson test`. Each case of a GoogleTest program counts as one; any other test counts as
one by its exit status. A failed test that passed when `dev` ran it again counts as passed, and is
listed with its output. The last line reads `N passed, N failed[, N skipped]`.

Exit status: 1 on a failure, when nothing ran (with --all: in any of the builds), and with --ci on a
skip that FILE does not list.
"""

import argparse
import collections
import fnmatch
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# Meson's names for results; anything else (FAIL, TIMEOUT, ERROR, INTERRUPT, ...) is a failure.
MESON_RESULTS = {"OK": PASSED, "EXPECTEDFAIL": PASSED, "SKIP": SKIPPED}

# The number of lines of a failed test's output that are repeated at the end of a long log.
MOST_LINES = 15

Case = collections.namedtuple("Case", "build suite name result said", defaults=[""])


def case_result(element):
    if element.find("failure") is not None or element.find("error") is not None:
        return FAILED
    if element.find("skipped") is not None or element.get("status") == "notrun":
        return SKIPPED
    return PASSED


def failure_text(element):
    return "\n".join(problem.get("message") or problem.text or ""
                     for problem in (*element.findall("failure"), *element.findall("error")))


def gtest_cases(junit, pretty_name):
    """Returns (name, result, output if it failed) of each case in the report of one program."""
    # meson names a suite <project>.<pretty name>.<suite>.
    marker = f".{pretty_name}."
    for suite in junit.iter("testsuite"):
        project, found, suite_name = suite.get("name", "").partition(marker)
        if not found or "." in project:
            continue
        for case in suite.iter("testcase"):
            yield f"{suite_name}.{case.get('name')}", case_result(case), failure_text(case)


class Log:
    """The files that `meson test --logbase NAME` wrote."""

    def __init__(self, folder, name):
        log = folder / f"meson-logs/{name}.json"
        self.runs = [json.loads(line) for line in log.read_text().splitlines()] \
            if log.exists() else []
        junit = folder / f"meson-logs/{name}.junit.xml"
        self.junit = ElementTree.parse(junit).getroot() if junit.exists() else None


def read_run(build, run, tests, junit):
    """Returns the cases of one test. Contradictory reports become a failure."""
    name = run["name"].rpartition(" / ")[2]
    test = tests.get(name, {"suite": [], "protocol": "exitcode"})
    suite = "+".join(s.partition(":")[2] or s for s in test["suite"]) or "-"
    result = MESON_RESULTS.get(run["result"], FAILED)
    said = (run.get("stdout") or "") + (run.get("stderr") or "") if result == FAILED else ""
    if test["protocol"] != "gtest":
        return [Case(build, suite, name, result, said)]
    found = list(gtest_cases(junit, run["name"])) if junit is not None else []
    cases = [Case(build, suite, f"{name}.{case}", r, text) for case, r, text in found]
    if result == FAILED and not any(r == FAILED for _, r, _ in found):
        # The test crashed or timed out, or a sanitizer reported after the last case.
        cases.append(Case(build, suite, f"{name} ({run['result']})", FAILED, said))
    elif not found:
        cases.append(Case(build, suite, f"{name} (no case reported)", FAILED))
    return cases


def read_build(build, folder, status):
    """Returns all cases of one build. Contradictory reports become a failure."""
    folder = pathlib.Path(folder)
    cases = []
    tests = {}
    for test in json.loads((folder / "meson-info/intro-tests.json").read_text()):
        if test["name"] in tests:
            # Both tests write <name>.xml into the build folder, so one of them would not be
            # counted.
            cases.append(Case(build, "-", f"{test['name']} (two tests have this name)", FAILED))
        tests[test["name"]] = test

    log, again = Log(folder, "testlog"), Log(folder, "again")
    second_runs = {run["name"]: run for run in again.runs}
    for run in log.runs:
        found = read_run(build, run, tests, log.junit)
        second = []
        if run["name"] in second_runs and any(case.result == FAILED for case in found):
            second = read_run(build, second_runs[run["name"]], tests, again.junit)
        if second and all(case.result != FAILED for case in second):
            said = "\n".join(case.said for case in found if case.result == FAILED)
            found = [second[0]._replace(said=said or run["result"]), *second[1:]]
        cases += found

    if status != 0 and not any(case.result == FAILED or unsteady(case) for case in cases):
        cases.append(Case(build, "-", f"meson test (exit status {status})", FAILED))
    return cases


def unsteady(case):
    """Returns whether the test passed only when it ran again (doubtful_tests.py)."""
    return case.result != FAILED and bool(case.said)


def read_patterns(path):
    if path is None:
        return []
    lines = (line.partition("#")[0].strip() for line in pathlib.Path(path).read_text().splitlines())
    return [line for line in lines if line]


def print_table(cases):
    rows = collections.OrderedDict()
    for case in cases:
        rows.setdefault((case.build, case.suite), collections.Counter())[case.result] += 1
    heading = ("build", "suite", PASSED, FAILED, SKIPPED)
    cells = [heading]
    for (build, suite), counts in rows.items():
        cells.append((build, suite, *(str(counts[r]) for r in (PASSED, FAILED, SKIPPED))))
    widths = [max(len(row[i]) for row in cells) for i in range(len(heading))]
    for row in cells:
        left = [row[i].ljust(widths[i]) for i in range(2)]
        right = [row[i].rjust(widths[i]) for i in range(2, 5)]
        print("  ".join(left + right))


def print_names(heading, cases):
    if cases:
        print(f"\n{heading}:")
        for case in cases:
            print(f"  {case.build}: {case.name}")
            for line in case.said.splitlines()[-MOST_LINES:]:
                print(f"      {line}")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every build must have tests")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--allowed-skips")
    parser.add_argument("builds", nargs="*", metavar="NAME=FOLDER:STATUS")
    options = parser.parse_args(arguments)

    cases = []
    for build in options.builds:
        name, _, rest = build.partition("=")
        folder, _, status = rest.rpartition(":")
        found = read_build(name, folder, int(status))
        if options.all and not found:
            # A renamed suite must not leave a build untested without a message.
            found = [Case(name, "-", "no test ran", FAILED)]
        cases += found

    allowed = read_patterns(options.allowed_skips)
    failed = [case for case in cases if case.result == FAILED]
    skipped = [case for case in cases if case.result == SKIPPED]
    unlisted = [case for case in skipped
                if not any(fnmatch.fnmatchcase(case.name, pattern) for pattern in allowed)]

    print()
    print_table(cases)
    print_names("skipped", skipped)
    print_names("failed beside other work, passed when run again alone: to be mended",
                [case for case in cases if unsteady(case)])
    print_names("failed", failed)
    if options.ci:
        print_names(f"skipped, but not listed in {options.allowed_skips}", unlisted)
    if not cases:
        print("no test ran")
    passed = len(cases) - len(failed) - len(skipped)
    print()
    print(f"{passed} passed, {len(failed)} failed" +
          (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or not passed or (options.ci and unlisted) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
