"""Trees of switches: workers join the switch that they know, and have sums with those of others.

    trees_test.py INA_SWITCHD INACTL GRID_WORKER LOAD_WORKER GROUP_WORKER [TEST...]
"""

import signal
import subprocess
import sys
import tempfile
import time
import unittest

import namespaces
from namespaces import run
from tree_beds import TreeTestBed
from waiting import DEADLINE_S, wait_until

INA_SWITCHD, INACTL, GRID_WORKER, LOAD_WORKER, GROUP_WORKER = sys.argv[1:6]


class Workers:
    """Processes of a job's ranks, by rank."""

    def __init__(self, program, urls, *arguments, job="job", ranks=None, env=None):
        self.processes = [
            subprocess.Popen([program, url, job, str(rank), str(len(urls)), *map(str, arguments)],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
            if ranks is None or rank in ranks else None for rank, url in enumerate(urls)]

    def said(self):
        """Returns what each says when it ends."""
        return [process.communicate(timeout=DEADLINE_S)[0] for process in self.processes if process]

    def kill(self):
        for process in self.processes:
            if process and process.poll() is None:
                process.kill()
                process.wait()


class TreesTest(unittest.TestCase):
    def bed(self, **options):
        folder = tempfile.TemporaryDirectory(prefix="ina-trees-")
        self.addCleanup(folder.cleanup)
        bed = TreeTestBed(INA_SWITCHD, folder.name, **options)
        self.addCleanup(bed.close)
        return bed

    def two_levels(self, leaves, more=""):
        bed = self.bed()
        root = bed.add("root", below=True, more=more)
        below = [bed.add(f"leaf{number}", above=root, more=more) for number in range(leaves)]
        bed.start()
        return root, below

    def workers(self, program, switches, *arguments, each=1, **options):
        workers = Workers(program, [switch.url for switch in switches for _ in range(each)],
                          *arguments, **options)
        self.addCleanup(workers.kill)
        return workers

    def job(self, switch):
        jobs = switch.status(INACTL)["jobs"]
        return jobs[0] if jobs else {}

    def await_state(self, state, *switches):
        for switch in switches:
            wait_until(f"the job to be {state} at {switch.name}",
                       lambda switch=switch: self.job(switch).get("state") == state)

    def assert_all_say(self, text, workers):
        for rank, said in enumerate(workers.said()):
            self.assertTrue(said.startswith(text), f"rank {rank}: {said}")

    def test_every_collective_is_as_the_model_says(self):
        root, leaves = self.two_levels(2)
        for which in ([], ["uneven"]):
            self.assert_all_say("ok ", self.workers(GRID_WORKER, [root, *leaves], *which))
        for switch in (root, *leaves):
            self.assertEqual(switch.status(INACTL)["jobs"], [])

    def three_levels(self):
        bed = self.bed()
        root = bed.add("root", below=True)
        middle = bed.add("middle", above=root, below=True)
        low = [bed.add(f"low{number}", above=middle) for number in range(2)]
        bed.add("leaf", above=root)
        bed.start()
        return root, middle, low, bed.switches

    def test_three_levels(self):
        *_, switches = self.three_levels()
        self.assert_all_say("ok ", self.workers(GRID_WORKER, switches, 20000, each=2))

    def test_groups_of_workers_of_several_switches(self):
        *_, switches = self.three_levels()
        self.assert_all_say("ok ", self.workers(GROUP_WORKER, switches, 3, 5, each=2))
        for switch in switches:
            self.assertEqual(switch.status(INACTL)["jobs"], [], switch.name)

    def test_groups_come_back(self):
        root, middle, low, switches = self.three_levels()
        workers = self.workers(GROUP_WORKER, switches, 2, 1000)
        # Groups that are being made when a switch goes are lost, so all are to be there before.
        wait_until("groups", lambda: len(low[0].status(INACTL)["jobs"]) > 2)
        time.sleep(1)
        for down in (low[0], middle, root):
            down.stop(signal.SIGKILL)
            time.sleep(0.1)
            down.start()
            wait_until("all to run", lambda: all(
                job["state"] != "rejoining" for job in down.status(INACTL)["jobs"]))
            time.sleep(0.3)
        self.assertIsNone(workers.processes[0].poll(), "ended before all was tried")
        self.assert_all_say("ok ", workers)

    def test_128_ranks_at_four_leaves(self):
        _, leaves = self.two_levels(4)
        self.assert_all_say("ok ", self.workers(GRID_WORKER, leaves, 20000, each=32))

    def test_more_than_64_members_at_each_of_two_switches(self):
        root, leaves = self.two_levels(1)
        self.assert_all_say("ok ", self.workers(GRID_WORKER, [root, *leaves], 20000, each=66))
        workers = self.workers(LOAD_WORKER, [root, *leaves], 3000, -1, each=66)
        for down in (leaves[0], root):
            self.await_state("running", root, *leaves)
            time.sleep(0.3)
            down.stop(signal.SIGKILL)
            down.start()
        self.await_state("running", root, *leaves)
        time.sleep(0.3)
        workers.processes[0].send_signal(signal.SIGTERM)
        self.assert_all_say("INA_OK", workers)
        for switch in (root, *leaves):
            wait_until("the job to end", lambda switch=switch: not self.job(switch))

    def test_others_run_ahead_of_a_slow_worker(self):
        _, leaves = self.two_levels(2, more="straggler: {help: leader, run_ahead: 4 MiB, patience: 1 ms}")
        self.assert_all_say("ok ", self.workers(GRID_WORKER, leaves, 20000, each=2))
        workers = self.workers(LOAD_WORKER, leaves, 2_000_000, -1, each=2)
        self.await_state("running", *leaves)
        slow = workers.processes[0]
        # Its neighbour runs ahead, and so do the workers of the other leaf. Without help they have
        # 128 fragments. Once more if it stopped where little was left to send.
        for _ in range(40):
            slow.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            parked = [self.job(switch).get("parked_now", 0) for switch in (leaves[0], leaves[0].above)]
            slow.send_signal(signal.SIGCONT)
            if min(parked) > 1000:
                break
            time.sleep(0.1)
        self.assertGreater(min(parked), 1000)
        slow.send_signal(signal.SIGTERM)
        self.assert_all_say("INA_OK", workers)

    def test_over_tcp_with_a_token(self):
        bed = self.bed(tcp=True)
        root = bed.add("root", below=True)
        leaves = [bed.add(f"leaf{number}", above=root) for number in range(2)]
        bed.start()
        self.assert_all_say("ok ", self.workers(GRID_WORKER, [root, *leaves], 20000))
        bed.token.write_text("another-token-of-nobody\n", encoding="utf-8")
        for said in self.workers(LOAD_WORKER, [leaves[0], leaves[1]], 1000, 5, ranks={0}).said():
            self.assertIn("INA_ERR_REFUSED", said)

    def test_uplinks_carry_each_sum_once_each_way(self):
        root, leaves = self.two_levels(2)
        # 1,000 sums of 1,000 elements are 4,000 fragments of 250 elements.
        self.assert_all_say("INA_OK", self.workers(LOAD_WORKER, leaves, 1000, 100, each=4))
        for leaf in leaves:
            port = next(port for port in leaf.status(INACTL)["ports"] if port["type"] == "ethdev")
            # Each fragment at least; again where an answer was late.
            self.assertGreaterEqual(port["tx_packets"], 400)
            self.assertLess(port["tx_packets"], 1000)
            self.assertLess(port["rx_packets"], 1000)

    def test_a_job_that_one_switch_has_stays_there(self):
        root, leaves = self.two_levels(1)
        self.assert_all_say("INA_OK", self.workers(LOAD_WORKER, leaves, 1000, 10, each=3))
        self.assertNotIn("job running", root.log())

    def test_a_switch_that_restarts(self):
        root, leaves = self.two_levels(2)
        for down in (leaves[0], root, leaves[1], root):
            with self.subTest(down.name):
                workers = self.workers(LOAD_WORKER, [root, *leaves], 3000, -1, each=2)
                self.await_state("running", root, *leaves)
                time.sleep(0.3)
                down.stop(signal.SIGKILL)
                time.sleep(0.2)
                down.start()
                self.await_state("running", root, *leaves)
                time.sleep(0.3)
                workers.processes[0].send_signal(signal.SIGTERM)
                self.assert_all_say("INA_OK", workers)

    def test_a_link_that_is_down_for_a_while(self):
        root, leaves = self.two_levels(2)
        workers = self.workers(LOAD_WORKER, leaves, 3000, -1, each=2)
        self.await_state("running", root, *leaves)
        leaves[0].namespace.run("ip", "link", "set", "up0", "down")
        time.sleep(1)
        leaves[0].namespace.run("ip", "link", "set", "up0", "up")
        time.sleep(1)
        workers.processes[0].send_signal(signal.SIGTERM)
        self.assert_all_say("INA_OK", workers)

    def test_the_death_of_a_worker_ends_the_job_everywhere(self):
        root, leaves = self.two_levels(2)
        workers = self.workers(LOAD_WORKER, [root, *leaves], 3000, -1, each=2)
        self.await_state("running", root, *leaves)
        workers.processes[4].kill()
        for rank, said in enumerate(workers.said()):
            if rank != 4:
                self.assertIn("INA_ERR_PEER_LOST", said, rank)
                self.assertIn("rank 4 ", said, rank)
        for switch in (root, *leaves):
            wait_until("the job to end", lambda switch=switch: not self.job(switch))

    def test_a_switch_that_does_not_come_back_ends_the_job(self):
        bed = self.bed()
        root = bed.add("root", below=True)
        leaves = [bed.add(f"leaf{number}", above=root) for number in range(2)]
        for switch in bed.switches:
            switch.rejoin_timeout_s = 2
        bed.start()
        workers = self.workers(LOAD_WORKER, [root, *leaves], 3000, -1)
        self.await_state("running", root, *leaves)
        leaves[1].stop(signal.SIGKILL)
        for rank in (0, 1):
            said = workers.processes[rank].communicate(timeout=DEADLINE_S)[0]
            self.assertIn("INA_ERR_PEER_LOST", said, rank)
            self.assertIn("the switch below with rank 2 ", said, rank)

    def test_a_switch_above_that_does_not_come_back_ends_the_job(self):
        bed = self.bed()
        root = bed.add("root", below=True)
        leaves = [bed.add(f"leaf{number}", above=root) for number in range(2)]
        for switch in bed.switches:
            switch.rejoin_timeout_s = 2
        bed.start()
        workers = self.workers(LOAD_WORKER, leaves, 3000, -1)
        self.await_state("running", root, *leaves)
        root.stop(signal.SIGKILL)
        for rank, said in enumerate(workers.said()):
            self.assertIn("INA_ERR_SWITCH_LOST", said, rank)
            self.assertIn("is lost to job", said, rank)

    def test_workers_that_disagree_are_told_everywhere(self):
        root, leaves = self.two_levels(2)
        urls = [switch.url for switch in (root, *leaves)]
        one = Workers(LOAD_WORKER, urls, 1000, 5, ranks={0, 1})
        other = Workers(LOAD_WORKER, urls, 1001, 5, ranks={2})
        for workers in (one, other):
            self.addCleanup(workers.kill)
            for said in workers.said():
                self.assertIn("INA_ERR_MISMATCH", said)
                self.assertIn("1001 int32", said)

    def test_settings_and_sizes_must_be_the_same(self):
        bed = self.bed()
        root = bed.add("root", below=True)
        leaf = bed.add("leaf", above=root)
        leaf.slot_bytes = 2048
        bed.start()
        # The worker above is there before the switches find out that they differ.
        first = self.workers(LOAD_WORKER, [root, leaf], 1000, 5, ranks={0})
        wait_until("rank 1 to be missed", lambda: self.job(root).get("missing") == [1])
        second = self.workers(LOAD_WORKER, [root, leaf], 1000, 5, ranks={1})
        for said in first.said() + second.said():
            self.assertIn("aggregator.slot_bytes", said)

    def test_missing_workers_and_switches_are_named(self):
        root, leaves = self.two_levels(2)
        urls = [switch.url for switch in (root, *leaves)]
        some = Workers(LOAD_WORKER, urls, 1000, 5, ranks={0, 1})
        self.addCleanup(some.kill)
        for switch in (root, leaves[0]):
            wait_until("rank 2 to be missed at " + switch.name,
                       lambda switch=switch: self.job(switch).get("missing") == [2])
        said = run(INACTL, "why", "--socket", leaves[0].socket)
        self.assertIn("2", said)
        rest = Workers(LOAD_WORKER, urls, 1000, 5, ranks={2})
        self.addCleanup(rest.kill)
        for workers in (some, rest):
            self.assert_all_say("INA_OK", workers)

    def test_a_rank_at_two_switches(self):
        root, leaves = self.two_levels(1)
        some = Workers(LOAD_WORKER, [root.url] * 3, 1000, 5, ranks={0, 1})
        self.addCleanup(some.kill)
        wait_until("rank 2 to be missed", lambda: self.job(root).get("missing") == [2])
        again = Workers(LOAD_WORKER, [leaves[0].url] * 3, 1000, 5, ranks={0})
        self.addCleanup(again.kill)
        self.assertIn("joined at two switches", again.said()[0])

    def test_a_token_that_cannot_be_read_is_told(self):
        bed = self.bed()
        leaf = bed.add("leaf", above=bed.add("root", below=True))
        config = leaf.config()
        leaf.config = lambda: config.replace("uplink: {", "uplink: {token_file: /nowhere, ")
        bed.start()
        workers = self.workers(LOAD_WORKER, [leaf, leaf], 1000, 5, ranks={0})
        self.assertIn("uplink.token_file: ", workers.said()[0])

    def test_a_large_job_needs_a_place_for_each_64_workers(self):
        bed = self.bed()
        switch = bed.add("alone", more="switch: {max_jobs: 1, max_groups: 1}")
        bed.start()
        for said in self.workers(LOAD_WORKER, [switch] * 65, 1000, 5, ranks={0}).said():
            self.assertIn("places for jobs and groups", said)

    def test_a_switch_above_that_is_not_there_is_named(self):
        bed = self.bed()
        leaf = bed.add("leaf", above=bed.add("root", below=True))
        leaf.start()
        workers = self.workers(LOAD_WORKER, [leaf, leaf], 1000, 5, ranks={0})
        wait_until("the reason", lambda: "has not answered" in run(INACTL, "why", "--socket", leaf.socket))
        bed.switches[0].start()
        rest = self.workers(LOAD_WORKER, [bed.switches[0], bed.switches[0]], 1000, 5, ranks={1})
        for some in (workers, rest):
            self.assert_all_say("INA_OK", some)

    def test_a_stranger_may_not_join_as_a_switch(self):
        bed = self.bed()
        root = bed.add("root")
        leaf = bed.add("leaf", above=root)
        bed.start()
        workers = self.workers(LOAD_WORKER, [leaf, leaf], 1000, 5, ranks={0})
        for said in workers.said():
            self.assertIn("control.switches_below", said)


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1] + sys.argv[6:], verbosity=2)
