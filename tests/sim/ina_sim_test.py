#!/usr/bin/env python3
"""Tests ina-sim as a program: its output and its errors.

    ina_sim_test.py PROGRAM
"""

import contextlib
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()
SMALL = ["--plain-mb", "1", "--iterations", "2", "--workers", "4"]
CONF = pathlib.Path(__file__).parents[2] / "conf"
MESH = ["plan", "--topology", str(CONF / "topologies/2d-sw-sw.yaml"), "--bytes", "1MiB", "--chunks", "4",
        "--rate-factor", "0.1"]
PLAN = [*MESH, "--sizes", "2,4"]


@contextlib.contextmanager
def written(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "given.yaml"
        path.write_text(text)
        yield path


def answer(*arguments):
    done = run(*map(str, arguments), "--quiet", "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=600)


class InaSim(unittest.TestCase):
    def test_json(self):
        done = run(*SMALL, "--quiet", "--json", "-", "--sample-us", "10")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertTrue(result["correct"])
        self.assertEqual(result["sums_checked"], 8)
        self.assertEqual(len(result["jobs"]), 1)
        self.assertAlmostEqual(result["avg_jct_s"], 2 * 8e6 / 100e9, delta=0.2e-4)
        self.assertGreater(len(result["slot_samples"]), 10)

    def test_csv(self):
        done = run(*SMALL, "--jobs", "3", "--quiet", "--csv", "-")
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([row["model"] for row in rows], ["plain"] * 3)
        self.assertTrue(all(float(row["jct_s"]) > 0 for row in rows))

    def test_same_seed_same_answer(self):
        def answer(seed):
            options = ["--models", "vgg16,dlrm", "--jobs", "3", "--arrival-ms", "0.2", "--scale",
                       "512", "--slots", "16", "--workers", "4", "--iterations", "2"]
            result = json.loads(run(*options, "--seed", seed, "--quiet", "--json", "-").stdout)
            del result["simulator"]
            return result
        self.assertEqual(answer("5"), answer("5"))
        self.assertNotEqual(answer("5")["jobs"], answer("6")["jobs"])

    def test_a_worker_may_be_farther_away(self):
        # A fragment, and its result: each way the farthest worker's link.
        one = ["--plain-mb", "0.008", "--iterations", "10", "--jitter", "0", "--workers", "4"]
        self.assertAlmostEqual(answer(*one, "--farther-us", "30")["jobs"][0]["iteration_s"] -
                               answer(*one)["jobs"][0]["iteration_s"], 60e-6, delta=3e-6)

    def test_jobs_may_come_in_bursts(self):
        def waits(*more):
            jobs = answer(*SMALL[:2], "--iterations", 1, "--workers", 2, "--jobs", 60, "--arrival-ms", 1, *more)["jobs"]
            times = [job["arrival_s"] for job in jobs]
            return sorted(later - earlier for earlier, later in zip(times, times[1:]))
        bursts, poisson = waits("--arrival-tail", 1.5), waits()
        self.assertGreater(bursts[0], 0.3e-3, "the least of this shape is a third of the mean")
        self.assertLess(poisson[0], 0.1e-3)
        self.assertNotEqual(run("--arrival-tail", "0.5").returncode, 0)

    def test_a_model_of_ones_own(self):
        table = ("name: own\niteration_ms: 3\nlayers:\n"
                 "  - {name: a, parameters: 1000, flops: 1}\n"
                 "  - {name: b, parameters: 500, flops: 2, repeat: 2}\n")
        with written(table) as path:
            result = answer("--models", path, "--scale", "1", "--iterations", "2", "--jitter", "0")
        job = result["jobs"][0]
        self.assertEqual(job["model"], "own")
        # The next forward pass waits for the sums of the first layers, which are a few packets.
        self.assertAlmostEqual(job["iteration_s"], 3e-3, delta=0.1e-3)
        self.assertEqual(result["sums_checked"], 8 * 2 * 3)

    def test_times_may_stand_with_the_layers(self):
        with written("name: own\nlayers: [{name: a, parameters: 8, forward_ms: 1, "
                     "backward_ms: 4}]") as path:
            result = answer("--models", path, "--scale", "1", "--jitter", "0")
        self.assertAlmostEqual(result["jobs"][0]["iteration_s"], 5e-3, delta=0.1e-3)

    def test_a_trace_says_who_comes_when(self):
        with written("- {model: dlrm, workers: 4, iterations: 2, arrival_ms: 6.4}\n"
                     "- {model: resnet50, workers: 2}\n") as path:
            result = answer("--trace", path, "--scale", "64")
        self.assertEqual([job["model"] for job in result["jobs"]], ["dlrm", "resnet50"])
        self.assertEqual([job["iterations"] for job in result["jobs"]], [2, 1])
        self.assertAlmostEqual(result["jobs"][0]["arrival_s"], 1e-4, delta=1e-9)

    def test_a_topology_says_where(self):
        def seconds(topology, *more):
            with written(topology) as path:
                return answer("--topology", path, *SMALL, *more)["avg_jct_s"]
        even = seconds("racks: [{}, {uplink_gbps: 400}]")
        self.assertAlmostEqual(seconds("racks: [{}, {rate_gbps: 25, uplink_gbps: 400}]") / even, 4,
                               delta=0.4)
        self.assertAlmostEqual(seconds("racks: [{}, {uplink_gbps: 50}]") / even, 4, delta=0.4)
        # No worker is in the slow rack.
        self.assertAlmostEqual(seconds("racks: [{}, {rate_gbps: 1, share: 0}]") / even, 1,
                               delta=0.1)

    def test_leaves_add(self):
        one = ["--plain-mb", "1", "--iterations", "1", "--leaves", "2", "--workers-per-leaf", "4"]
        tree = answer(*one, "--oversubscription", "4")
        self.assertEqual(tree["sums_checked"], 8)
        self.assertEqual([leaf["uplink_frames"] for leaf in tree["leaves"]], [tree["fragments"]] * 2)
        flat, leaders = (answer(*one, "--oversubscription", "4", "--sums", sums)["avg_jct_s"]
                         for sums in ("flat", "leaders"))
        self.assertGreater(flat / tree["avg_jct_s"], 3.5)
        self.assertGreater(leaders / tree["avg_jct_s"], 2)

    def test_the_examples_run(self):
        examples = pathlib.Path(__file__).parents[2] / "conf" / "sim"
        result = answer("--trace", examples / "trace.yaml", "--topology",
                        examples / "topology.yaml", "--scale", "1024")
        self.assertEqual([job["model"] for job in result["jobs"]],
                         ["gpt2", "resnet50", "gpt2", "vgg16"])

    def test_complaints_about_files(self):
        layer = "{name: a, parameters: 1, flops: 1}"
        for option, text, words in (
                ("--models", "name: x", ":1:1: a model has no 'layers'"),
                ("--models", f"name: x\nlayers: [{layer}]", ":2:10: a layer has no 'forward_ms'"),
                ("--models", f"name: x\niteration_ms: -1\nlayers: [{layer}]",
                 ":2:15: iteration_ms must be a number from 0"),
                ("--models", "name: x\nname: y\nlayers: []", ":2:1: name comes twice"),
                ("--models", "name: x\nlayers: []", ":2:9: there must be a list of layers"),
                ("--models", "name: x\niteration_ms: 1\nlayers: [{name: a, parameters: 1, "
                 "flops: 0}]", ":2:15: no layer has any flops"),
                ("--models", "name: [x", ":1:"),
                ("--trace", "- {model: alexnet}", ":1:11: there is no model 'alexnet'"),
                ("--trace", "- {model: gone.yaml}", "cannot read"),
                ("--trace", "- {model: dlrm, workers: 2.5}", "workers must be a whole number"),
                ("--trace", "- {model: dlrm, rack: 1}", "there is no rack 1, but 1 of them"),
                ("--topology", "racks: [{uplink_gbps: 1}]", "a rack has no key 'uplink_gbps'"),
                ("--topology", "racks: [{share: 0}]", "no rack has a share of the workers")):
            with self.subTest(text), written(text) as path:
                done = run(option, path, "--scale", "1024")
                self.assertEqual(done.returncode, 2)
                self.assertIn(words, done.stderr)
                if option != "--topology" and "rack" not in words:
                    self.assertIn(str(path.parent), done.stderr)
        done = run("--trace", "/nonexistent/trace.yaml")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot read /nonexistent/trace.yaml", done.stderr)

    def test_a_plan_is_carried_out(self):
        result = answer(*PLAN, "--rounds", "3")
        self.assertTrue(result["correct"])
        self.assertEqual(result["ranks"], 8)
        self.assertEqual(len(result["rounds"]), 3)
        # One of 16 values is simulated.
        self.assertEqual(result["elements_checked"], 3 * 8 * (1 << 20) // 4 // 16)
        self.assertEqual([dimension["gbps"] for dimension in result["dimensions"]], [120, 80])
        self.assertEqual([dimension["step_latency_ns"] for dimension in result["dimensions"]],
                         [700, 1700])
        self.assertGreater(result["measured_us"], 0)
        self.assertIn("measured", run(*PLAN).stdout)

    def test_planned_for_switches_or_not_switches_carry_it_out(self):
        kinds, switches = answer(*PLAN), answer(*PLAN, "--for-switches")
        self.assertNotEqual(kinds["predicted_by_kind_us"], kinds["predicted_us"])
        self.assertEqual(switches["predicted_by_kind_us"], switches["predicted_us"])

    def test_complaints_about_plans(self):
        for arguments, words in (
                (["plan", "--bytes", "1"], "--topology is required"),
                (["plan", "--topology", "/nonexistent/x.yaml", "--bytes", "1"], "/nonexistent/x.yaml"),
                ([*MESH, "--sizes", "2"], "--sizes has 1 numbers, and the topology 2 dimensions"),
                ([*MESH, "--sizes", "2,3"], "halving-doubling needs a power of two, not 3"),
                ([*MESH, "--sizes", "16,8"], "the topology has 128 participants"),
                ([*PLAN, "--latency-factor", "-1"], "--latency-factor"),
                ([*PLAN, "--value-bytes", "100"], "100 bytes of values are no multiple of 64"),
                ([*PLAN, "--json", "/nonexistent/x"], "cannot write /nonexistent/x"),
                (["--jobs", "2", *PLAN], "--jobs before 'plan' has no effect")):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)

    def test_complaints(self):
        for arguments, words in (
                (["--models", "alexnet"], "'alexnet' is none of resnet50"),
                (["--policy", "lifo"], "lifo"),
                (["--workers", "65"], "a job has 1 to 64 workers, not 65"),
                (["--racks", "65"], "--racks"),
                (["--loss", "2"], "--loss"),
                (["--in-switch", "600"], "no more can be in the switch than in the window"),
                (["--policy", "static", "--help-straggler", "leader"],
                 "straggler help does not go with the policy static"),
                (["--leaves", "2", "--workers", "4"], "--workers"),
                (["--oversubscription", "2"], "--leaves"),
                (["--leaves", "2", "--policy", "static"], "jobs in trees do not go with the policy static"),
                (["--leaves", "2", "--sums", "leaders"], "leaders carry out plain all-reduces only"),
                (["--nonsense"], "--nonsense"),
                (["--json", "/nonexistent/x", *SMALL], "cannot write /nonexistent/x")):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
