#!/usr/bin/env python3
"""Tests a change of the switch's configuration while jobs run: `inactl reload` and SIGHUP.

    reload_test.py INA_SWITCHD INACTL LOAD_WORKER INA_PSD [--seed N] [unittest's arguments]

The jobs check every element of every sum, and must end with INA_OK: none of their operations may
fail.
"""

import itertools
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from ports import free_port  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

SWITCHD, INACTL, LOAD_WORKER, PSD = (str(pathlib.Path(arg).resolve()) for arg in sys.argv[1:5])
SEED = int(sys.argv.pop(sys.argv.index("--seed") + 1)) if "--seed" in sys.argv else 20
if "--seed" in sys.argv:
    sys.argv.remove("--seed")
del sys.argv[1:5]

POLICIES = ("static", "fcfs", "esa")
HOMES = ("workers", "dedicated", "spill")
HELPS = ("off", "leader", "fallback")
ELEMENTS = 20_000
SUMS_BETWEEN = 20


def settings(**changed):
    """Returns the configuration of a switch on which two jobs fit under every policy, and nothing
    is too large."""
    values = {"policy": "esa", "slots": 1024, "home": "workers", "help": "off", "window": "128KiB",
              "level": "info", "memory": "1GiB", "tenants": "[]", "metrics": '""', "lcores": 1,
              "memif": None, "listen": '""', "rto": "20ms", "slot_bytes": 1024, "log": '""'} | changed
    ports = "{name: shm0, type: shm}"
    if values["memif"]:
        ports += (", {name: memif0, type: ethdev, ip: 10.0.0.1, device: "
                  f"\"net_memif0,role=server,id=0,socket={values['memif']},socket-abstract=no,rsize=7,bsize=2048\"}}")
    return (f"aggregator: {{policy: {values['policy']}, slots: {values['slots']}, slot_bytes: {values['slot_bytes']}}}\n"
            f"static: {{slots_per_job: 256}}\n"
            f"fallback: {{home: {values['home']}}}\n"
            f"recovery: {{rto_min: {values['rto']}}}\n"
            f"straggler: {{help: {values['help']}, run_ahead: 256KiB, park_memory: 128KiB}}\n"
            f"jobs: {{window_bytes: {values['window']}, memory: {values['memory']}}}\n"
            f"switch: {{lcores: {values['lcores']}, idle: auto}}\n"
            f"tenants: {values['tenants']}\n"
            f"metrics: {{listen: {values['metrics']}}}\n"
            f"eal: {{huge: no}}\n"
            f"control: {{rejoin_timeout: 60s, listen: {values['listen']}, allow_anonymous: true}}\n"
            f"log: {{level: {values['level']}, file: {values['log']}}}\n"
            f"ports: [{ports}]\n")


class Job:
    """Workers that sum until they are told to stop, and check their results."""

    def __init__(self, socket_path, name, workers=2, start=True, timeout_s=DEADLINE_S):
        self.socket, self.name, self.size, self.timeout_s = socket_path, name, workers, timeout_s
        self.workers = []
        if start:
            for _ in range(workers):
                self.add()

    def add(self):
        rank = len(self.workers)
        environment = os.environ | {"INA_TIMEOUT_US": str(self.timeout_s * 1_000_000)}
        self.workers.append(subprocess.Popen(
            [LOAD_WORKER, f"shm:{self.socket}", self.name, str(rank), str(self.size), str(ELEMENTS), "-1", "1"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))

    def end(self):
        """Returns each worker's last output."""
        self.workers[0].terminate()
        return self.said()

    def said(self):
        return [worker.communicate(timeout=DEADLINE_S)[0].strip() for worker in self.workers]

    def close(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.communicate()


class ReloadTest(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(f"{SEED} {self.id()}")
        folder = tempfile.TemporaryDirectory(prefix="ina-reload-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.socket = self.folder / "switch.sock"
        self.config = self.folder / "switch.yaml"
        self.switch = None

    def start(self, environment=None, **changed):
        self.config.write_text(settings(**changed))
        self.log = open(self.folder / "log", "w+")  # noqa: SIM115
        self.addCleanup(self.log.close)
        self.switch = subprocess.Popen(
            [SWITCHD, "--config", str(self.config), "--socket", str(self.socket)], stderr=self.log,
            env=os.environ | (environment or {}))
        self.addCleanup(self.stop)
        wait_until("the switch", lambda: self.status().get("boots"))

    def stop(self):
        if self.switch.poll() is None:
            self.switch.terminate()
            try:
                self.switch.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.switch.kill()
                self.switch.wait()

    def job(self, name, **options):
        job = Job(self.socket, name, **options)
        self.addCleanup(job.close)
        return job

    def inactl(self, *arguments):
        return subprocess.run([INACTL, *arguments, "--socket", str(self.socket), "--timeout", "30s"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def status(self):
        asked = self.inactl("status", "--json")
        return json.loads(asked.stdout) if asked.returncode == 0 else {}

    def results(self, job):
        # Under fcfs the fallback decides all sums.
        return sum(entry.get(kind, 0) for entry in self.status().get("jobs", []) if entry["name"] == job.name
                   for kind in ("results", "fallback_results", "parker_results"))

    def runs(self, job):
        """Waits until the job has made more sums."""
        before = self.results(job)
        wait_until(f"sums of {job.name}: {self.said()}", lambda: self.results(job) > before + SUMS_BETWEEN)

    def said(self):
        return (self.folder / "log").read_text()[-2000:]

    def reload(self, *arguments, **changed):
        self.config.write_text(settings(**changed))
        return self.inactl("reload", *arguments)

    def reloaded(self, *arguments, **changed):
        """Reloads with success, and returns the answer."""
        done = self.reload("--json", *arguments, **changed)
        self.assertEqual(done.returncode, 0, f"{done} {self.said()}")
        return json.loads(done.stdout)

    def assert_refused(self, done, pattern, status=1):
        self.assertEqual(done.returncode, status, done)
        self.assertRegex(done.stderr, pattern)

    def assert_all_good(self, *jobs):
        for job in jobs:
            self.assertEqual(job.end(), ["INA_OK"] * job.size, f"{job.name}, seed {SEED}: {self.said()}")

    # ---- in place

    def test_quotas_and_defaults_change_in_place(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        answer = self.reloaded(tenants="[{name: \"uid:%d\", jobs_max: 1}]" % os.getuid(), level="warning",
                               memory="512MiB", help="leader")
        self.assertFalse(answer["restart"])
        self.assertEqual({change["key"] for change in answer["changes"]},
                         {f"tenants.uid:{os.getuid()}", "log.level", "jobs.memory", "straggler.help"})
        self.assertTrue(all(change["in_place"] for change in answer["changes"]))
        status = self.status()
        self.assertEqual(status["boots"], 1)
        self.assertEqual(status["aggregator"]["memory_bytes"], 512 << 20)
        self.assertEqual(status["tenants"][0]["quota"]["jobs_max"], 1)
        refused = self.job("too-many").said()
        self.assertIn("has 1 of 1 jobs", refused[0])
        # Back to no limit.
        self.reloaded(level="warning", memory="512MiB", help="leader")
        other = self.job("fits")
        self.runs(other)
        self.runs(job)
        self.assert_all_good(job, other)
        self.assertEqual(self.status()["boots"], 1)

    def test_what_is_the_same_changes_nothing(self):
        self.start()
        answer = self.reloaded()
        self.assertEqual((answer["changes"], answer["restart"]), ([], False))
        self.assertEqual(self.inactl("reload").stdout, "the configuration is as it was\n0 tokens\n")

    def test_check_says_what_would_happen(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        done = self.reload("--check", policy="fcfs", home="spill", memory="512MiB")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("aggregator.policy: esa -> fcfs (by a restart)\n", done.stdout)
        self.assertIn("jobs.memory: 1 GiB -> 512 MiB\n", done.stdout)
        self.assertRegex(done.stdout, r"would end: job uid:\d+/stays: its workers look for the fallback where")
        self.assertIn("nothing was done", done.stdout)
        self.assertEqual(self.status()["boots"], 1)
        self.assert_all_good(job)

    # ---- by a restart

    def test_every_policy_follows_every_other(self):
        steps = [pair for pair in itertools.permutations(POLICIES, 2)]
        self.random.shuffle(steps)
        self.start(policy=steps[0][0])
        pid = self.switch.pid
        jobs = [self.job("one"), self.job("two", workers=3)]
        for job in jobs:
            self.runs(job)
        for step in steps:
            for policy in step:
                self.reloaded(policy=policy, help=self.random.choice(HELPS[:1]),
                              rto=self.random.choice(("20ms", "30ms")), slots=self.random.choice((1024, 2048)))
                status = self.status()
                self.assertEqual(status["aggregator"]["policy"], policy)
                self.assertEqual(status["configuration"]["failure"], "")
                for job in jobs:
                    self.runs(job)
        self.assertIsNone(self.switch.poll())
        self.assertEqual(self.switch.pid, pid)
        self.assert_all_good(*jobs)

    def test_straggler_help_and_policies_of_shared_slots(self):
        self.start(policy="esa", help="leader")
        steps = [(policy, help) for policy in ("esa", "fcfs") for help in HELPS]
        self.random.shuffle(steps)
        jobs = []
        for number, (policy, help) in enumerate(steps):
            jobs.append(self.job(f"job-{number}"))
            self.runs(jobs[-1])
            self.reloaded(policy=policy, help=help, slots=4096)
            for job in self.random.sample(jobs, min(3, len(jobs))):
                self.runs(job)
        self.assert_all_good(*jobs)

    def test_ports_come_and_go(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        metrics = free_port()
        for changed in ({"memif": self.folder / "a.sock"}, {"memif": self.folder / "b.sock", "metrics": f'"127.0.0.1:{metrics}"'},
                        {}, {"listen": f'"127.0.0.1:{free_port()}"'}, {"metrics": f'"127.0.0.1:{metrics}"'}, {}):
            answer = self.reloaded(**changed)
            self.assertTrue(answer["restart"], answer)
            ports = {port["name"] for port in self.status()["ports"]}
            self.assertEqual(ports, {"shm0", "memif0"} if "memif" in changed else {"shm0"})
            self.runs(job)
        self.assert_all_good(job)

    def test_another_home_ends_jobs_only_by_force(self):
        self.start(home=HOMES[0])
        # A switch with another home refuses a fallback server, which then ends.
        def serve_as_fallback():
            psd = subprocess.Popen([PSD, "--socket", str(self.socket)], stderr=subprocess.DEVNULL)
            self.addCleanup(psd.wait)
            self.addCleanup(psd.kill)

        steps = [pair for pair in itertools.permutations(HOMES, 2)]
        self.random.shuffle(steps)
        home = HOMES[0]
        for number, step in enumerate(steps):
            for after in step:
                if after == home:
                    continue
                job = self.job(f"{home}-{after}-{number}")
                self.runs(job)
                self.assert_refused(self.reload(home=after), rf"(?s)nothing was changed.*fallback.home: {home}.*{after}")
                self.runs(job)
                self.assertEqual(self.status()["aggregator"]["home"], home)
                answer = self.reloaded("--force", home=after)
                self.assertEqual([lost["name"] for lost in answer["lost"]], [job.name])
                for said in job.said():
                    self.assertRegex(said, rf"^INA_ERR_ABORTED .*another configuration.*{job.name}.*fallback.home: {home}")
                home = after
                self.assertEqual(self.status()["aggregator"]["home"], home)
                if home == "dedicated":
                    serve_as_fallback()
                job = self.job(f"after-{number}-{after}")
                self.runs(job)
                self.assert_all_good(job)

    def test_jobs_that_would_not_fit_are_foretold(self):
        self.start(policy="static", slots=1024)
        jobs = []
        for name in ("one", "two", "three"):
            jobs.append(self.job(name))
            self.runs(jobs[-1])
        self.assert_refused(self.reload(policy="static", slots=512), r"(?s)nothing was changed.*three: its slots are not there")
        self.assert_refused(self.reload(policy="static", slots=1024, slot_bytes=2048),
                            r"(?s)one: it ran with switch.lcores 1 and aggregator.slot_bytes 1024")
        self.assert_refused(self.reload(policy="static", lcores=2), "(?s)two: it ran with switch.lcores 1")
        for job in jobs:
            self.runs(job)
        answer = self.reloaded("--force", policy="static", slots=512)
        self.assertEqual([lost["name"] for lost in answer["lost"]], ["three"])
        self.assertIn("INA_ERR_ABORTED", jobs[2].said()[0])
        self.assert_all_good(*jobs[:2])

    # ---- another policy, without the file

    def test_another_policy_leaves_the_file_as_it_is(self):
        self.start(policy="static")
        pid, text = self.switch.pid, self.config.read_text()
        jobs = [self.job("one"), self.job("two", workers=3)]
        for job in jobs:
            self.runs(job)
        done = self.inactl("policy", "set", "esa", "--ways", "2", "--set", "esa.decay=time")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "aggregator.policy: static -> esa (by a restart)\n"
                                      "aggregator.ways: 4 -> 2 (by a restart)\n"
                                      "esa.decay: preemption -> time (by a restart)\n"
                                      "the switch has started again, with its jobs\n"
                                      f"{self.config} still says aggregator.policy: static, aggregator.ways: 4, "
                                      "esa.decay: preemption: the next reload or start of the switch reads it\n")
        self.assertEqual(self.config.read_text(), text)
        self.assertEqual(self.switch.pid, pid)
        status = self.status()
        self.assertEqual(status["aggregator"]["policy"], "esa")
        self.assertEqual(status["configuration"]["overrides"],
                         {"aggregator.policy": "esa", "aggregator.ways": "2", "esa.decay": "time"})
        for job in jobs:
            self.runs(job)
        # A change of the policy does not read the file again, and keeps earlier changes.
        self.config.write_text(settings(policy="static", memory="512MiB"))
        answer = json.loads(self.inactl("policy", "set", "fcfs", "--json").stdout)
        self.assertEqual([change["text"] for change in answer["changes"]], ["aggregator.policy: esa -> fcfs"])
        self.assertEqual((answer["applied"], answer["restart"], answer["lost"]), (True, True, []))
        self.assertEqual(answer["file"], str(self.config))
        self.assertEqual({key["key"]: (key["value"], key["in_file"]) for key in answer["keys"]}["aggregator.policy"],
                         ("fcfs", "static"))
        for job in jobs:
            self.runs(job)
        shown = self.inactl("policy", "show")
        self.assertRegex(shown.stdout, r"^policy fcfs\n(?s:.*)  aggregator.ways: 2\n(?s:.*)there are\n"
                                       r"  static: .*\n  fcfs: .*\n  esa: .*\n\n.* still says aggregator.policy: static")
        # The next reload reads the file and takes its settings.
        done = self.inactl("reload")
        self.assertIn("aggregator.policy: fcfs -> static (by a restart)\naggregator.ways: 2 -> 4", done.stdout)
        self.assertIn("jobs.memory: 1 GiB -> 512 MiB", done.stdout)
        status = self.status()
        self.assertEqual((status["aggregator"]["policy"], status["configuration"]["overrides"]), ("static", {}))
        self.assertIn("says the same\n", self.inactl("policy", "show").stdout)
        for job in jobs:
            self.runs(job)
        self.assert_all_good(*jobs)

    def test_a_policy_that_is_wrong_or_in_force_changes_nothing(self):
        self.start(policy="fcfs", help="leader")
        for arguments, pattern in (
                (("best",), r"^inactl: aggregator\.policy: best is unknown \(known: static, fcfs, esa\)$"),
                (("esa", "--ways", "3"), r"^inactl: aggregator\.ways: 3 is not 1, 2, 4 or 8$"),
                (("esa", "--set", "jobs.memory=1"), "'jobs.memory' is no key of the policy; these are: aggregator.policy, "),
                (("static",), rf"{self.config}:\d+:\d+: straggler.help: leader does not go with aggregator.policy: static")):
            self.assert_refused(self.inactl("policy", "set", *arguments), pattern)
        self.assert_refused(self.inactl("policy", "set", "esa", "--set", "esa.decay"), "'esa.decay' is not KEY=VALUE", 2)
        done = self.inactl("policy", "set", "fcfs")
        self.assertEqual((done.returncode, done.stdout), (0, f"the policy is as it was\n{self.config} says the same\n"))
        done = self.inactl("policy", "set", "esa", "--check")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "aggregator.policy: fcfs -> esa (by a restart)\nnothing was done (--check)\n"))
        self.assertEqual(self.status()["boots"], 1)

    def test_a_policy_that_costs_jobs_takes_force(self):
        # Three pools fit under esa, but only two under static.
        self.start(policy="esa", slots=512)
        jobs = []
        for name in ("one", "two", "three"):  # the last job has no room
            jobs.append(self.job(name))
            self.runs(jobs[-1])
        self.assert_refused(self.inactl("policy", "set", "static"),
                            r"(?s)nothing was changed; --force \(inactl policy set\) ends them:.*/three: ")
        self.assertEqual(self.status()["boots"], 1)
        for job in jobs:
            self.runs(job)
        done = self.inactl("policy", "set", "static", "--force")
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"ended: job uid:\d+/three: ")
        self.assertIn("INA_ERR_ABORTED", jobs[2].said()[0])
        self.assertEqual(self.status()["aggregator"]["policy"], "static")
        self.assert_all_good(*jobs[:2])

    def test_a_start_that_fails_goes_back_to_the_policy_that_was_set(self):
        self.start(policy="static")
        job = self.job("stays")
        self.runs(job)
        self.assertEqual(self.inactl("policy", "set", "fcfs").returncode, 0)
        done = self.reload(policy="esa", memif=f"{self.folder / 'memif.sock'},rsize=99")
        self.assertEqual(done.returncode, 1, done)
        status = self.status()
        self.assertEqual(status["aggregator"]["policy"], "fcfs")
        self.assertIn("memif0", status["configuration"]["failure"])
        self.runs(job)
        self.assert_all_good(job)

    # ---- wrong configurations

    def test_a_wrong_file_changes_nothing(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        self.config.write_text("aggregator:\n  policy: best\n  slots: many\n")
        self.assert_refused(self.inactl("reload"),
                            rf"(?s){self.config}:2:11: aggregator.policy.*best.*{self.config}:3:10: aggregator.slots")
        self.config.unlink()
        self.assert_refused(self.inactl("reload"), f"{self.config}: cannot be read")
        self.assertEqual(self.status()["boots"], 1)
        self.runs(job)
        self.assert_all_good(job)

    def test_what_stands_in_the_way_is_found_before(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.assert_refused(self.reload(listen='"127.0.0.1:%d"' % taken.getsockname()[1]), "another program listens there")
        self.assert_refused(self.reload(log=str(self.folder / "no" / "log")), "log.file")
        self.assertEqual(self.status()["boots"], 1)
        self.runs(job)
        self.assert_all_good(job)

    def test_a_start_that_fails_goes_back(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        # The switch cannot know beforehand that the device does not take this value.
        done = self.reload(memif=f"{self.folder / 'memif.sock'},rsize=99")
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, "did not start with it, and goes on with the configuration before: .*memif0")
        status = self.status()
        self.assertEqual([port["name"] for port in status["ports"]], ["shm0"])
        self.assertIn("memif0", status["configuration"]["failure"])
        self.runs(job)
        self.reloaded(policy="fcfs")
        self.assertEqual(self.status()["configuration"]["failure"], "")
        self.runs(job)
        self.assert_all_good(job)

    # ---- joins, signals, leaks

    def test_jobs_that_gather_go_on_gathering(self):
        self.start()
        for number in range(6):
            job = self.job(f"gathers-{number}", workers=3, start=False)
            late = self.random.randrange(1, 3)
            for _ in range(3 - late):
                job.add()
            if self.random.random() < 0.5:
                wait_until("a gathering job", lambda: any(entry["state"] == "joining" and entry["joined"]
                                                          for entry in self.status().get("jobs", [])))
            self.reloaded(policy=POLICIES[number % 2 + 1], slots=2048)
            for _ in range(late):
                job.add()
            self.runs(job)
            self.assert_all_good(job)

    def test_tickets_survive(self):
        self.start(policy="esa")
        made = self.inactl("create", "ticketed", "--workers", "2", "--slots-floor", "128")
        self.assertEqual(made.returncode, 0, made)
        ticket = re.search(r"INA_TICKET=(\w+)", made.stdout).group(1)
        self.reloaded(policy="static")
        os.environ["INA_TICKET"] = ticket
        try:
            job = self.job("ticketed")
        finally:
            del os.environ["INA_TICKET"]
        self.runs(job)
        self.assert_all_good(job)

    def test_sighup_does_the_same(self):
        self.start()
        job = self.job("stays")
        self.runs(job)
        self.config.write_text(settings(policy="fcfs"))
        self.switch.send_signal(signal.SIGHUP)
        wait_until("the new policy", lambda: self.status().get("aggregator", {}).get("policy") == "fcfs")
        self.runs(job)
        # The switch survives any number of signals while it starts again.
        for number in range(10):
            self.config.write_text(settings(policy=POLICIES[1 + number % 2]))
            self.switch.send_signal(signal.SIGHUP)
            time.sleep(self.random.uniform(0, 0.05))
        wait_until("the last policy", lambda: self.status().get("aggregator", {}).get("policy") == "esa")
        self.assertIsNone(self.switch.poll())
        self.runs(job)
        self.assert_all_good(job)

    def test_a_signal_that_comes_meanwhile_counts(self):
        self.start(policy="static")
        job = self.job("stays")
        self.runs(job)
        for number in range(40):
            last = POLICIES[1 + number % 2]
            self.config.write_text(settings(policy=POLICIES[2 - number % 2]))
            self.switch.send_signal(signal.SIGHUP)
            time.sleep(self.random.choice((0.005, 0.1)) * self.random.random())
            self.config.write_text(settings(policy=last))
            self.switch.send_signal(signal.SIGHUP)
            wait_until(f"the policy of signal {number}",
                       lambda last=last: self.status().get("aggregator", {}).get("policy") == last)
        self.runs(job)
        self.assert_all_good(job)

    def test_a_stop_meanwhile_is_a_stop(self):
        for _ in range(5):
            self.start()
            self.config.write_text(settings(policy="fcfs"))
            self.switch.send_signal(signal.SIGHUP)
            time.sleep(self.random.uniform(0, 0.1))
            self.switch.send_signal(signal.SIGTERM)
            self.assertEqual(self.switch.wait(DEADLINE_S), 0, self.said())

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.switch.pid}/fd").iterdir()))

    def test_nothing_piles_up(self):
        self.start(memif=self.folder / "m.sock")
        job = self.job("stays")
        self.runs(job)
        most = None
        for number in range(8):
            self.reloaded(policy=POLICIES[1 + number % 2 if number else 1], memif=self.folder / "m.sock")
            self.runs(job)
            if number == 1:
                most = self.descriptors()
            elif number > 1:
                # The connections of earlier calls may still be open, as they may have been then. One
                # that stays for each reload would be more than those.
                wait_until(f"no more than {most} descriptors", lambda most=most: self.descriptors() <= most)
        children = pathlib.Path(f"/proc/{self.switch.pid}/task/{self.switch.pid}/children").read_text()
        self.assertEqual(children, "")
        self.assertEqual([path.name for path in self.folder.iterdir() if ".new" in path.name], [])
        self.assert_all_good(job)

    def test_the_service_manager_hears_of_it(self):
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(str(self.folder / "notify"))
        manager.settimeout(DEADLINE_S)

        def hear():
            return [line for line in manager.recv(4096).decode().split("\n") if line != "WATCHDOG=1"]

        self.start(environment={"NOTIFY_SOCKET": str(self.folder / "notify")})
        self.assertEqual(hear(), ["READY=1"])
        for changed in ({"memory": "512MiB"}, {"policy": "fcfs"}):
            before_us = time.monotonic_ns() // 1000
            self.reloaded(**changed)
            first, second = hear()
            self.assertEqual(first, "RELOADING=1")
            self.assertGreaterEqual(int(second.removeprefix("MONOTONIC_USEC=")), before_us)
            self.assertEqual(hear(), ["READY=1"])
        self.stop()
        self.assertEqual(hear(), ["STOPPING=1"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
