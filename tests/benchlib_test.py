#!/usr/bin/env python3
"""Tests the benchmarks' shared modules, whose errors would affect all benchmarks.

    benchlib_test.py
"""

import argparse
import ast
import concurrent.futures
import contextlib
import ctypes
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"
sys.dont_write_bytecode = True
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS.parent / "tests/support")]

from benchlib import (command_line, kept, machine, metadata, parallel, processes, results,  # noqa: E402
                      simulations, stats, switch, table)
from benchlib.errors import BenchError, Unavailable  # noqa: E402
from waiting import has_ended, wait_until  # noqa: E402

SH = ["/bin/sh", "-c"]


def imports_of(path):
    """Returns the names of the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


class Structure(unittest.TestCase):
    def test_a_benchmark_imports_no_other(self):
        for path in sorted(SCRIPTS.glob("bench_*.py")):
            others = {name for name in imports_of(path) if name.startswith("bench_")}
            self.assertLessEqual(others, {f"{path.stem}_report"}, path.name)

    def test_benchlib_imports_no_benchmark(self):
        for path in sorted((SCRIPTS / "benchlib").glob("*.py")):
            found = [name for name in imports_of(path) if name.startswith("bench_")]
            self.assertEqual(found, [], path.name)

    def test_its_description_names_every_module(self):
        text = (SCRIPTS / "benchlib/__init__.py").read_text(encoding="utf-8")
        named = [line.split()[0] for line in text.splitlines() if line.startswith("    ")]
        there = [path.stem for path in (SCRIPTS / "benchlib").glob("*.py")
                 if path.stem != "__init__"]
        self.assertEqual(sorted(named), sorted(there))

    def test_every_benchmark_has_a_description_of_its_options(self):
        for path in sorted(SCRIPTS.glob("bench_*.py")):
            if path.stem.endswith("_report"):
                continue
            with self.subTest(path.name):
                done = subprocess.run([sys.executable, "-B", path, "--help"], capture_output=True,
                                      text=True, timeout=600, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                for option in ("--build", "--quick", "--json"):
                    self.assertIn(option, done.stdout)


class Stats(unittest.TestCase):
    def test_of_too_few_values_there_is_nothing(self):
        self.assertIsNone(stats.median([]))
        self.assertIsNone(stats.quartiles([1]))
        self.assertEqual(stats.mean_interval([3]), (3, 0.0))

    def test_quartiles_are_of_the_method(self):
        self.assertEqual(stats.quartiles([1, 2, 3, 4, 5]), [2, 4])
        self.assertEqual(stats.quartiles([1, 2, 3, 4, 5], "exclusive"), [1.5, 4.5])

    def test_percentile_is_one_of_the_values(self):
        values = list(range(100, 0, -1))
        self.assertEqual(stats.percentile(values, 0.5), 51)
        self.assertEqual(stats.percentile(values, 0.99), 100)
        self.assertEqual(stats.percentile([7], 1), 7)

    def test_an_operation_takes_as_long_as_its_slowest_rank(self):
        self.assertEqual(stats.slowest([[1, 9, 3], [2, 4, 8]]), [2, 9, 8])

    def test_medians_are_of_each_key(self):
        samples = [{"a": 1, "b": [1]}, {"a": 5, "b": [2]}, {"a": 2, "b": [3]}]
        self.assertEqual(stats.medians(samples, leave_out=("b",)), {"a": 2})

    def test_interval_of_a_mean_is_student_s(self):
        mean, half = stats.mean_interval([1, 2, 3])
        self.assertEqual(mean, 2)
        self.assertAlmostEqual(half, 4.30 / 3 ** 0.5)

    def test_interval_of_a_median_holds_it_and_is_the_same_each_time(self):
        values = [1, 2, 3, 4, 100]
        low, high = stats.median_interval(values)
        self.assertLess(low, 3)
        self.assertEqual(high, 100)
        self.assertEqual(stats.median_interval(values), [low, high])


class Table(unittest.TestCase):
    def test_a_cell_without_a_value_is_as_wide(self):
        self.assertEqual(table.cell(1.25, "8.2f"), "    1.25")
        self.assertEqual(table.cell(None, "8.2f"), "       -")
        self.assertEqual(table.cell(None, ".2f"), "-")

    def test_columns_are_as_wide_as_they_need_to_be(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            table.print_table([("x", "x", "d"), ("long title", "y", ".1f"), ("is", "z", "s")],
                              [{"x": 1000, "y": 1, "z": True}, {"x": 1, "y": None, "z": "no"}])
        self.assertEqual(output.getvalue(), "   x  long title   is\n"
                                            "1000         1.0  yes\n"
                                            "   1           -   no\n")


class Processes(unittest.TestCase):
    def test_what_a_program_printed(self):
        self.assertEqual(processes.run([*SH, "echo yes; exit 1"], accepted=(0, 1)), "yes\n")

    def test_an_error_has_the_command_its_status_and_its_words(self):
        with self.assertRaisesRegex(BenchError, "exit 3' ended with status 3:\nit said why"):
            processes.run([*SH, "echo it said why >&2; exit 3"])
        with self.assertRaisesRegex(BenchError, "no such file|No such file"):
            processes.run(["/no/such/program"])
        with self.assertRaisesRegex(BenchError, "no end within 0.1 s: sleep 60"):
            processes.run(["sleep", 60], 0.1)

    def test_a_process_that_does_not_heed_sigterm_is_killed(self):
        with processes.temporary_folder() as folder:
            log = folder / "log"
            process = processes.start_logged([*SH, "trap '' TERM; echo up; exec sleep 60"], log)
            while "up" not in log.read_text():
                time.sleep(0.01)
            with mock.patch.object(processes, "STOP_DEADLINE_S", 0.1):
                processes.stop(process)
            self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertFalse(folder.exists())

    def test_nothing_outlives_a_benchmark_that_is_killed(self):
        program = ("from benchlib import processes; import signal\n"
                   "log = processes.start_logged(['sleep', '60'], '/dev/null')\n"
                   "with processes.Ranks([['sleep', '60']]) as ranks:\n"
                   "    print(log.pid, ranks.processes[0].pid, flush=True)\n"
                   "    signal.pause()\n")
        with subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.PIPE,
                              text=True, cwd=SCRIPTS) as benchmark:
            pids = benchmark.stdout.readline().split()
            benchmark.kill()
        self.assertEqual(len(pids), 2)
        for pid in pids:
            wait_until("the benchmark's processes to end", lambda pid=pid: has_ended(pid))

    def test_only_the_main_thread_may_start_what_ends_with_it(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            begun = pool.submit(processes.start_logged, ["sleep", 60], "/dev/null")
            with self.assertRaisesRegex(RuntimeError, "by the main thread"):
                begun.result()

    def test_reports_come_by_rank(self):
        with processes.Ranks([[*SH, "sleep 0.1; echo [0]"], [*SH, "echo [1]"]]) as ranks:
            self.assertEqual(ranks.reports(60), [[0], [1]])
            self.assertFalse(ranks.all_run())

    def test_ranks_do_not_outlive_a_failure(self):
        with self.assertRaisesRegex(BenchError, "^esa: broken$"):
            with processes.Ranks([[*SH, "echo broken >&2; exit 1"], ["sleep", "60"]], "esa") as ranks:
                ranks.reports(60)
        self.assertEqual(ranks.processes[1].returncode, -signal.SIGKILL)
        with self.assertRaisesRegex(BenchError, "no result within 0.1 s"):
            with processes.Ranks([["sleep", "60"]]) as ranks:
                ranks.reports(0.1)
        self.assertEqual(ranks.processes[0].returncode, -signal.SIGKILL)

    def test_sigterm_ends_a_program_in_order(self):
        program = ("from benchlib import processes; import os, signal\n"
                   "processes.exit_on_sigterm()\n"
                   "with processes.temporary_folder() as folder:\n"
                   "    print(folder, flush=True)\n"
                   "    os.kill(os.getpid(), signal.SIGTERM)\n")
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True,
                              timeout=600, cwd=SCRIPTS, check=False)
        self.assertEqual(done.returncode, 128 + signal.SIGTERM, done.stderr)
        self.assertFalse(pathlib.Path(done.stdout.strip()).exists())


class Machine(unittest.TestCase):
    def test_memory_of_another_process_is_read_or_it_is_said_that_it_cannot(self):
        text = ctypes.create_string_buffer(b"seen")
        self.assertIn(machine.read_process(os.getpid(), ctypes.addressof(text), 4), (b"seen", None))
        self.assertIsNone(machine.read_process(os.getpid(), 8, 4), "there is nothing")
        self.assertIn(machine.cma_works(), (True, False))


class SwitchTest(unittest.TestCase):
    def test_what_the_switch_did_not_add_up_is_an_error(self):
        switch.check_absorbed("4 ranks", 100, 100)
        switch.check_absorbed("4 ranks", 99, 100, most_lost=0.01)
        for absorbed, most_lost in ((99, 0), (101, 0), (98, 0.01), (101, 0.01)):
            with self.assertRaisesRegex(BenchError, f"^4 ranks: the switch absorbed {absorbed} "
                                                    "bytes, but .* is 100$"):
                switch.check_absorbed("4 ranks", absorbed, 100, most_lost)

    def test_a_switch_that_ends_at_once_says_why(self):
        with processes.temporary_folder() as build, processes.temporary_folder() as folder:
            for name, text in (("switchd/ina-switchd", "echo no hugepages; exit 2"),
                               ("programs/inactl/inactl", "exit 1")):
                program = build / name
                program.parent.mkdir(parents=True)
                program.write_text(f"#!/bin/sh\n{text}\n")
                program.chmod(0o755)
            with self.assertRaisesRegex(Unavailable, r"(?s)status 2\):\nno hugepages"):
                with switch.plain_switch(build, folder):
                    self.fail("it does not run")
            config = (folder / "switch.yaml").read_text()
            self.assertIn(f'socket: "{folder}/switch.sock"', config)
            self.assertIn("ports:\n  - name: shm0\n    type: shm\nswitch:\n", config)


class Results(unittest.TestCase):
    def test_metadata_of_what_was_measured(self):
        with mock.patch.object(sys, "argv", ["/anywhere/bench_x.py", "--json", "a b"]):
            meta = metadata.measured("x", slots=3)
        with mock.patch.object(sys, "argv", ["/anywhere/kill_loop.py", "--json", "a b"]):
            own = metadata.measured("kills", machine.description())
        self.assertEqual(list(meta), ["benchmark", "commit", "time", "machine", "command", "slots"])
        self.assertEqual(meta["command"], "scripts/bench_x.py --json 'a b'")
        self.assertEqual(list(meta["machine"]), ["cpu", "cpus", "memory_bytes", "kernel",
                                                 "load_before", "autogroups"])
        self.assertEqual(own["command"], "scripts/kill_loop.py --json 'a b'")
        self.assertEqual(list(own["machine"]), ["cpu", "cpus", "memory_bytes", "kernel"])

    def test_metadata_names_no_folder_of_this_machine(self):
        arguments = ["--build", "build", "--json", "/home/me/x.json"]
        with mock.patch.object(sys, "argv", ["/home/me/scripts/bench_x.py", *arguments]):
            for meta in (metadata.measured("x"), metadata.predicted(time.monotonic())):
                self.assertEqual(meta["command"], "scripts/bench_x.py --build build --json x.json")

    def test_metadata_of_what_was_predicted(self):
        self.assertEqual(list(metadata.predicted(time.monotonic(), simulator={})),
                         ["commit", "date", "machine", "command", "wall_s", "simulator"])

    def test_outside_of_a_checkout_the_commit_is_unknown(self):
        with processes.temporary_folder() as folder, mock.patch.dict(
                os.environ, {"GIT_DIR": str(folder)}):
            self.assertEqual(metadata.commit(), "unknown")

    def test_figures_of_another_benchmark_leave_the_commit_clean(self):
        with processes.temporary_folder() as folder, contextlib.chdir(folder):
            figures = pathlib.Path("docs/figures")
            figures.mkdir(parents=True)
            for path in (figures / "a.json", pathlib.Path("code.cc")):
                path.write_text("1", encoding="utf-8")
            git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
            for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
                subprocess.run([*git, *command], check=True)
            (figures / "a.json").write_text("2", encoding="utf-8")
            self.assertNotIn("-dirty", metadata.commit())
            pathlib.Path("code.cc").write_text("2", encoding="utf-8")
            self.assertRegex(metadata.commit(), "^[0-9a-f]+-dirty$")

    def test_results(self):
        result = {"meta": {"n": 1}, "rows": [{"us": 1.23456789, "raw": [1.5]}, {"us": 2}], "raw": [0.123456789]}
        results.write(argparse.Namespace(json=None, raw=None), result)
        with processes.temporary_folder() as folder:
            results.write(argparse.Namespace(json=folder / "x.json", raw=folder / "y.json"), result)
            self.assertEqual((folder / "x.json").read_text(),
                             '{\n "meta": {"n": 1},\n "rows": [\n  {"us": 1.23457},\n  {"us": 2}\n ]\n}\n')
            self.assertEqual(json.loads((folder / "y.json").read_text()), result)

    def test_kept_results_have_a_line_for_each_row(self):
        result = {"meta": {"n": 1}, "rows": [{"size": 4, "us": {"ina": 1.5, "gloo": 2}, "buffers": "plain"},
                                             {"size": 8, "us": {"ina": 2.5}, "buffers": "plain"}]}
        self.assertEqual(kept.text_of(result), """{
"meta":{"n":1},
"rows":{"same":{"buffers":"plain"},
"columns":["size","us.ina","us.gloo"],
"rows":[
[4,1.5,2],
[8,2.5,"-"]
]}
}
""")

    def test_kept_results_lose_nothing(self):
        one = {"n": 1, "of": {"a": {"x": 0, "y": None}}, "list": [{"k": True}, {"k": 1}, {}], "empty": {}}
        other = {"of": {"b": [], "a": {"x": 0.0}}, "list": [{"k": 2}, 3], "empty": {"now": False}}
        for result in ({}, {"rows": []}, {"rows": [one]}, {"rows": [one, one]}, {"rows": [one, other, one]},
                       {"of": {"deep": [other, one]}}):
            with self.subTest(result), processes.temporary_folder() as folder:
                path = folder / "x.json"
                path.write_text(kept.text_of(result), encoding="utf-8")
                self.assertEqual(json.dumps(kept.read(path), sort_keys=True), json.dumps(result, sort_keys=True))
                self.assertEqual(kept.text_of(kept.read(path)), path.read_text())
                results.write(argparse.Namespace(json=path, raw=None), result)
                self.assertEqual(kept.read(path), result)

    def test_what_could_not_be_read_again_is_not_kept(self):
        for row in ({"a": "-"}, {"a.b": 1}):
            with self.assertRaisesRegex(ValueError, "may be"):
                kept.text_of({"rows": [row, {"c": 1}]})

    def test_an_error_is_one_line_and_exit_status_1(self):
        def fail():
            raise BenchError("it broke")
        with self.assertRaises(SystemExit) as caught:
            command_line.run(fail, "bench_x")
        self.assertEqual(caught.exception.code, "bench_x: it broke")
        with self.assertRaises(SystemExit) as caught:
            command_line.run(lambda: 3, "bench_x")
        self.assertEqual(caught.exception.code, 3)


class Simulations(unittest.TestCase):
    PROGRAM = '''#!/bin/sh
echo run >>"$(dirname "$0")/runs"
echo '{"correct": true, "arguments": "'"$*"'"}'
'''

    def test_what_has_run_is_not_run_again(self):
        with processes.temporary_folder() as folder:
            program = folder / "ina-sim"
            program.write_text(self.PROGRAM)
            program.chmod(0o755)
            runs = simulations.Runs(program)
            runs.run([{"slots": 4, "seed": 1, "devices": True, "no-cap": False}])
            runs.run([{"slots": 4, "seed": seed, "devices": True, "no-cap": False}
                      for seed in (1, 2)])
            self.assertEqual((folder / "runs").read_text(), "run\nrun\n")
            found = runs.of({"slots": 4, "devices": True, "no-cap": False}, (2, 1))
            self.assertEqual([one["arguments"] for one in found],
                             [f"--quiet --json - --slots 4 --seed {seed} --devices"
                              for seed in (2, 1)])

    def test_a_subcommand_comes_before_its_options(self):
        with processes.temporary_folder() as folder:
            program = folder / "ina-sim"
            program.write_text(self.PROGRAM)
            program.chmod(0o755)
            found = simulations.run_all(program, [{"chunks": 4}], ("plan",))
            self.assertEqual(found[0]["arguments"], "plan --quiet --json - --chunks 4")

    def test_wrong_sums_are_an_error(self):
        with processes.temporary_folder() as folder:
            program = folder / "ina-sim"
            program.write_text("#!/bin/sh\necho '{\"correct\": false}'\n")
            program.chmod(0o755)
            with self.assertRaisesRegex(BenchError, "^wrong: "):
                simulations.run_all(program, [{"seed": 1}])

    def test_results_are_in_order(self):
        jobs = [lambda delay=delay: time.sleep(delay) or delay for delay in (0.05, 0, 0.02)]
        self.assertEqual(parallel.side_by_side(jobs, 3), [0.05, 0, 0.02])


if __name__ == "__main__":
    unittest.main()
