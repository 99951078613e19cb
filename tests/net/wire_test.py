"""Workers on hosts of their own sum over a real network: ina-switchd between network namespaces,
libina's udp: transport, and workers written from the specification alone (second_worker.py).

    wire_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import namespaces
from namespaces import NetworkTestBed

INA_SWITCHD, INACTL, LOAD_WORKER = sys.argv[1:4]
SECOND_WORKER = pathlib.Path(__file__).with_name("second_worker.py")
DEADLINE_S = 60


class WireTest(unittest.TestCase):
    def bed(self, hosts, more="", **options):
        folder = tempfile.TemporaryDirectory(prefix="ina-wire-")
        self.addCleanup(folder.cleanup)
        bed = NetworkTestBed(hosts, **options)
        self.addCleanup(bed.close)
        bed.start_switch(INA_SWITCHD, folder.name, more)
        self.folder = pathlib.Path(folder.name)
        return bed

    def url(self, bed, number):
        return f"udp:{bed.switch_ip}?control={bed.socket}&port={bed.port(number)}"

    def worker(self, bed, rank, world, elements, times, job="wire"):
        host = bed.hosts[rank]
        return host.start(LOAD_WORKER, self.url(bed, rank), job, rank, world, elements, times,
                          stdout=subprocess.PIPE, text=True)

    def second_worker(self, bed, rank, world, dtype, elements, times, job="wire"):
        host = bed.hosts[rank]
        return host.start(sys.executable, SECOND_WORKER, bed.socket, bed.port(rank), job, rank, world,
                          host.ip, host.mac, dtype, elements, times, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)

    def expect(self, process, beginning):
        text = process.communicate(timeout=DEADLINE_S)[0]
        self.assertTrue(text.startswith(beginning), text)
        return text

    def test_every_policy_sums(self):
        for policy in ("static", "fcfs", "esa"):
            for slots in (4096, 16):
                if policy == "static" and slots == 16:
                    continue
                with self.subTest(policy=policy, slots=slots):
                    bed = self.bed(3, f"aggregator: {{policy: {policy}, slots: {slots}}}\n"
                                      "static: {slots_per_job: 1024}\n")
                    workers = [self.worker(bed, rank, 3, 20_000, 5) for rank in range(3)]
                    for worker in workers:
                        self.expect(worker, "INA_OK")
                    status = bed.status(INACTL)
                    self.assertEqual(status["aggregator"]["slots_used"], 0)
                    bed.close()

    def test_workers_join_over_tcp_through_the_switch_itself(self):
        with tempfile.TemporaryDirectory(prefix="ina-wire-") as folder:
            tokens = pathlib.Path(folder) / "tokens"
            tokens.write_text("rack open-sesame-open-sesame\n", encoding="utf-8")
            tokens.chmod(0o600)
            bed = NetworkTestBed(2)
            self.addCleanup(bed.close)
            bed.join_own_kernel()
            bed.start_switch(INA_SWITCHD, folder,
                             control=f"listen: 0.0.0.0:7583, token_file: {tokens}")
            workers = []
            for rank, host in enumerate(bed.hosts):
                url = (f"udp:{bed.switch_ip}?control=tcp:{bed.kernel_ip}:7583"
                       f"&port={bed.port(rank)}")
                workers.append(host.start(LOAD_WORKER, url, "tcp", rank, 2, 20_000, 5,
                                          env=os.environ | {"INA_TOKEN": "open-sesame-open-sesame"},
                                          stdout=subprocess.PIPE, text=True))
            for worker in workers:
                self.expect(worker, "INA_OK")

    def test_frames_with_tags(self):
        for policy in ("static", "esa"):
            for slots in (4096, 16):
                if policy == "static" and slots == 16:
                    continue
                with self.subTest(policy=policy, slots=slots):
                    bed = self.bed(3, f"aggregator: {{policy: {policy}, slots: {slots}}}\n"
                                      "security: {tag: siphash}\n")
                    for worker in [self.worker(bed, rank, 3, 20_000, 5) for rank in range(3)]:
                        self.expect(worker, "INA_OK")
                    drops = [port["drops"] for port in bed.status(INACTL)["ports"]]
                    self.assertFalse(any("bad_tag" in reasons for reasons in drops), drops)
                    bed.close()

    def test_a_second_implementation_with_tags(self):
        bed = self.bed(2, "aggregator: {policy: esa, slots: 1024}\nfallback: {home: spill}\n"
                          "jobs: {window_bytes: 64KiB}\nsecurity: {tag: siphash}\n")
        for worker in [self.second_worker(bed, rank, 2, "int32", 2_000, 2) for rank in range(2)]:
            text = self.expect(worker, "ok")
            self.assertIn("'tagged':", text)
            self.assertNotIn("bad tag", text)

    def test_the_switch_comes_back_with_other_keys(self):
        bed = self.bed(2, "security: {tag: siphash}\n")
        self.comes_back(bed, "security: {tag: siphash}\n")

    def test_jumbo_frames(self):
        bed = self.bed(2, "aggregator: {slots: 512, slot_bytes: 8192}\n", mtu=9000)
        for worker in [self.worker(bed, rank, 2, 300_000, 5) for rank in range(2)]:
            self.expect(worker, "INA_OK")

    def test_slots_that_do_not_fit_the_mtu_are_refused(self):
        bed = self.bed(2, "aggregator: {slots: 512, slot_bytes: 1024}\n")
        bed.hosts[0].run("ip", "link", "set", "eth0", "mtu", "1000")
        text = self.expect(self.worker(bed, 0, 2, 10, 1), "INA_ERR_INVALID")
        self.assertIn("1024", text)

    def test_a_killed_worker_is_told_to_the_others(self):
        bed = self.bed(3)
        workers = [self.worker(bed, rank, 3, 1000, -1) for rank in range(3)]
        namespaces.wait_until("sums", lambda: bed.status(INACTL)["aggregator"]["results"] > 20)
        workers[1].send_signal(signal.SIGKILL)
        for rank in (0, 2):
            text = self.expect(workers[rank], "INA_ERR_PEER_LOST")
            self.assertIn("rank 1", text)

    def test_the_switch_comes_back(self):
        self.comes_back(self.bed(2))

    def comes_back(self, bed, more=""):
        workers = [self.worker(bed, rank, 2, 5_000, -1) for rank in range(2)]
        namespaces.wait_until("sums", lambda: bed.status(INACTL)["aggregator"]["results"] > 100)
        bed.daemon.kill()
        bed.daemon.wait(DEADLINE_S)
        (self.folder / "log").unlink()
        bed.start_switch(INA_SWITCHD, self.folder, more)
        namespaces.wait_until("sums", lambda: bed.status(INACTL)["aggregator"]["results"] > 100)
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")

    def test_a_second_implementation_gets_the_right_sums(self):
        for policy in ("static", "esa"):
            for dtype in ("int32", "float32"):
                with self.subTest(policy=policy, dtype=dtype):
                    bed = self.bed(3, f"aggregator: {{policy: {policy}, slots: 1024}}\n"
                                      "fallback: {home: spill}\n"
                                      "jobs: {window_bytes: 64KiB}\n")
                    for worker in [self.second_worker(bed, rank, 3, dtype, 5_000, 3)
                                   for rank in range(3)]:
                        self.expect(worker, "ok")
                    bed.close()


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
