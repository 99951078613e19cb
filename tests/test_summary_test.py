#!/usr/bin/env python3
"""Continuous integration relies on the summary, so the summary must not miss a failure."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import doubtful_tests  # noqa: E402
import test_summary  # noqa: E402


def gtest_suite(pretty_name, suite, cases):
    body = "".join(f'<testcase name="{name}" status="run">{inner}</testcase>'
                   for name, inner in cases)
    return f'<testsuite name="ina.{pretty_name}.{suite}">{body}</testsuite>'


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / "meson-info").mkdir()
        (self.root / "meson-logs").mkdir()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, tests, runs, junit=""):
        described = [{"name": name, "suite": [f"ina:{suite}"], "protocol": protocol}
                     for name, suite, protocol in tests]
        (self.root / "meson-info/intro-tests.json").write_text(json.dumps(described))
        self.write_log("testlog", runs, junit)

    def write_log(self, log, runs, junit=""):
        (self.root / f"meson-logs/{log}.json").write_text(
            "".join(json.dumps({"name": name, "result": result, "stdout": "".join(said)}) + "\n"
                    for name, result, *said in runs))
        (self.root / f"meson-logs/{log}.junit.xml").write_text(f"<testsuites>{junit}</testsuites>")

    def summarise(self, *options, status=0):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = test_summary.main([*options, f"release={self.root}:{status}"])
        lines = output.getvalue().splitlines()
        return code, lines[-1], lines

    def test_counts_cases_and_programs(self):
        self.write([("a_test", "wire", "gtest"), ("layers", "lint", "exitcode")],
                   [("ina:wire / a_test", "OK"), ("ina:lint / layers", "OK")],
                   gtest_suite("ina:wire / a_test", "A", [("x", ""), ("y", "")]))
        self.assertEqual(self.summarise()[:2], (0, "3 passed, 0 failed"))

    def test_name_without_suite(self):
        self.write([("a_test", "wire", "gtest")], [("a_test", "OK")],
                   gtest_suite("a_test", "A", [("x", "")]))
        self.assertEqual(self.summarise()[:2], (0, "1 passed, 0 failed"))

    def test_failed_case(self):
        self.write([("a_test", "wire", "gtest")], [("ina:wire / a_test", "FAIL")],
                   gtest_suite("ina:wire / a_test", "A", [("x", "<failure/>"), ("y", "")]))
        self.assertEqual(self.summarise(status=1)[:2], (1, "1 passed, 1 failed"))

    def test_what_a_failed_test_said_is_at_the_end(self):
        self.write([("a_test", "wire", "gtest"), ("layers", "lint", "exitcode")],
                   [("ina:wire / a_test", "FAIL"),
                    ("ina:lint / layers", "FAIL", "".join(f"line {n}\n" for n in range(100)))],
                   gtest_suite("ina:wire / a_test", "A",
                               [("x", '<failure message="1 is not 2"/>'), ("y", "")]))
        lines = self.summarise(status=1)[2]
        self.assertIn("      1 is not 2", lines)
        self.assertIn("      line 99", lines)
        self.assertNotIn("      line 80", lines)

    def write_run_again(self, result, case):
        self.write([("a_test", "wire", "gtest")], [("ina:wire / a_test", "FAIL")],
                   gtest_suite("ina:wire / a_test", "A",
                               [("x", '<failure message="1 is not 2"/>'), ("y", "")]))
        self.write_log("again", [("ina:wire / a_test", result)],
                       gtest_suite("ina:wire / a_test", "A", [("x", case), ("y", "")]))

    def test_passed_when_run_again_counts_and_is_named(self):
        self.write_run_again("OK", "")
        code, last, lines = self.summarise(status=1)
        self.assertEqual((code, last), (0, "2 passed, 0 failed"))
        self.assertIn("failed beside other work, passed when run again alone: to be mended:", lines)
        self.assertIn("      1 is not 2", lines)

    def test_failed_when_run_again_is_a_failure(self):
        self.write_run_again("FAIL", "<failure/>")
        self.assertEqual(self.summarise(status=1)[:2], (1, "1 passed, 1 failed"))

    def test_crash_when_run_again_is_a_failure(self):
        self.write_run_again("FAIL", "")
        self.assertEqual(self.summarise(status=1)[0], 1)

    def test_crash_without_report(self):
        self.write([("a_test", "wire", "gtest")], [("ina:wire / a_test", "FAIL")])
        self.assertEqual(self.summarise(status=1)[:2], (1, "0 passed, 1 failed"))

    def test_sanitizer_speaks_after_the_last_case(self):
        self.write([("a_test", "wire", "gtest")], [("ina:wire / a_test", "FAIL")],
                   gtest_suite("ina:wire / a_test", "A", [("x", "")]))
        self.assertEqual(self.summarise(status=1)[:2], (1, "1 passed, 1 failed"))

    def test_success_without_report_is_a_failure(self):
        self.write([("a_test", "wire", "gtest")], [("ina:wire / a_test", "OK")])
        self.assertEqual(self.summarise()[:2], (1, "0 passed, 1 failed"))

    def test_timeout_of_a_program(self):
        self.write([("e2e", "e2e", "exitcode")], [("ina:e2e / e2e", "TIMEOUT")])
        self.assertEqual(self.summarise(status=1)[:2], (1, "0 passed, 1 failed"))

    def test_status_without_failure(self):
        self.write([("layers", "lint", "exitcode")], [("ina:lint / layers", "OK")])
        self.assertEqual(self.summarise(status=124)[:2], (1, "1 passed, 1 failed"))

    def test_two_tests_of_one_name(self):
        self.write([("a", "wire", "exitcode"), ("a", "io", "exitcode")],
                   [("ina:wire / a", "OK"), ("ina:io / a", "OK")])
        self.assertEqual(self.summarise()[0], 1)

    def test_nothing_ran(self):
        self.write([], [])
        self.assertEqual(self.summarise()[:2], (1, "0 passed, 0 failed"))

    def test_build_without_tests(self):
        self.write([], [])
        self.assertEqual(self.summarise("--all")[:2], (1, "0 passed, 1 failed"))

    def test_skips(self):
        self.write([("a_test", "wire", "gtest")], [("ina:wire / a_test", "OK")],
                   gtest_suite("ina:wire / a_test", "A", [("x", ""), ("y", "<skipped/>")]))
        line = "1 passed, 0 failed, 1 skipped"
        self.assertEqual(self.summarise()[:2], (0, line))
        self.assertIn("  release: a_test.A.y", self.summarise()[2])
        self.assertEqual(self.summarise("--ci")[:2], (1, line))
        allowed = self.root / "allowed.txt"
        allowed.write_text("# reason\na_test.A.*  # why\n")
        self.assertEqual(self.summarise("--ci", "--allowed-skips", str(allowed))[:2], (0, line))
        allowed.write_text("b_test.*\n")
        self.assertEqual(self.summarise("--ci", "--allowed-skips", str(allowed))[:2], (1, line))


class DoubtfulTest(unittest.TestCase):
    FAILED = {"name": "ina:wire / a_test", "result": "FAIL", "returncode": 1, "stdout": "1 is not 2"}

    def names(self, *changes):
        return doubtful_tests.doubtful([{**self.FAILED, **change} for change in changes])

    def test_said_to_fail(self):
        self.assertEqual(self.names({}, {"result": "OK", "returncode": 0}), ["a_test"])

    def test_defects(self):
        for defect in ({"returncode": -11}, {"returncode": 139}, {"result": "TIMEOUT"},
                       {"stdout": "WARNING: ThreadSanitizer: data race"},
                       {"stderr": "x.cc:1:2: runtime error: shift"}):
            self.assertEqual(self.names({}, defect), [], defect)

    def test_many_failures_are_no_accident(self):
        self.assertEqual(len(self.names(*[{}] * doubtful_tests.MOST)), doubtful_tests.MOST)
        self.assertEqual(self.names(*[{}] * (doubtful_tests.MOST + 1)), [])


if __name__ == "__main__":
    unittest.main()
