"""Results by multicast: one frame for all workers of a job behind a port, on any number of hosts.

    multicast_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import namespaces
from namespaces import DEADLINE_S, Host, NetworkTestBed

INA_SWITCHD, INACTL, LOAD_WORKER = sys.argv[1:4]
SECOND_WORKER = pathlib.Path(__file__).with_name("second_worker.py")
ELEMENTS, TIMES = 20_000, 5
ATTEMPTS = 5
# On a busy machine a worker may pause for long; requests for its results would disturb the counts.
PATIENT = "recovery: {rto_min: 5 s, rto_max: 10 s}\n"


class MulticastTest(unittest.TestCase):
    def bed(self, hosts, results, more=""):
        """`results`: the keyword of each port."""
        self.folder = tempfile.TemporaryDirectory(prefix="ina-multicast-")
        self.addCleanup(self.folder.cleanup)
        bed = NetworkTestBed(hosts)
        self.addCleanup(bed.close)
        bed.port_keys = {number: f"ip: {bed.switch_ip}, results: {kind}"
                         for number, kind in enumerate(results)}
        bed.start_switch(INA_SWITCHD, self.folder.name, PATIENT + more)
        return bed

    def start(self, bed, places, times=TIMES):
        """Starts workers of one job at `places` (host, number of the port)."""
        return [host.start(LOAD_WORKER,
                           f"udp:{bed.switch_ip}?control={bed.socket}&port={bed.port(port)}",
                           "multicast", rank, len(places), ELEMENTS, times, stdout=subprocess.PIPE,
                           text=True)
                for rank, (host, port) in enumerate(places)]

    def finish(self, bed, workers, **frames):
        """`frames`: the frames of each result, by port. Returns the number of results, and of those
        that were given again."""
        for worker in workers:
            text = worker.communicate(timeout=DEADLINE_S)[0]
            self.assertTrue(text.startswith(("INA_OK", "ok")), text)
        status = bed.status(INACTL)
        self.assertEqual(status["aggregator"]["slots_used"], 0)
        ports = namespaces.check_books(status)
        results, again = (status["aggregator"][key] for key in ("results", "results_again"))
        for name, each in frames.items():
            lost = ports[name]["drops"].get("tx_full", 0)
            self.assertGreaterEqual(ports[name]["tx_packets"] + lost, each * results)
            self.assertLessEqual(ports[name]["tx_packets"] + lost, each * results + again)
        return results, again

    def run_job(self, bed, start, **frames):
        """Has the workers that `start` starts finish, and others after them while so much is lost
        that the numbers cannot tell: a frame for each worker gives at least twice as many."""
        for _ in range(ATTEMPTS):
            results, again = self.finish(bed, start(), **frames)
            if again < results:
                return results
        return self.fail("this machine loses too much to tell")

    def segment(self, bed, hosts):
        """Makes host 0 of the bed a kernel bridge with `hosts` hosts of its own."""
        middle = bed.hosts[0]
        middle.run("ip", "address", "flush", "dev", "eth0")
        middle.run("ip", "link", "add", "br0", "type", "bridge")
        middle.run("ip", "link", "set", "eth0", "master", "br0")
        middle.run("ip", "link", "set", "br0", "up")
        made = []
        for number in range(10, 10 + hosts):
            host = Host(f"{middle.name}-{number}", number, bed.mtu)
            self.addCleanup(host.close)
            middle.run("ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0",
                       "address", host.mac, "netns", host.name)
            host.run("ip", "address", "add", f"{host.ip}/24", "dev", "eth0")
            for namespace, interface in ((host, "eth0"), (middle, f"to{number}")):
                namespace.run("ethtool", "-K", interface, "tx", "off", "gso", "off", "tso", "off",
                              "gro", "off")
                namespace.run("ip", "link", "set", interface, "up")
            middle.run("ip", "link", "set", f"to{number}", "master", "br0")
            made.append(host)
        for host in made:
            host.ping(bed.switch_ip)
        return made

    def test_one_frame_a_result_and_port(self):
        for lcores in (1, 2):
            with self.subTest(lcores=lcores):
                self.check_two_ports(f"switch: {{lcores: {lcores}}}\n")

    def check_two_ports(self, more):
        bed = self.bed(2, ("multicast", "unicast"), more)
        near, far = bed.hosts
        places = [(near, 0), (near, 0), (far, 1), (near, 0), (far, 1)]
        results = self.run_job(bed, lambda: self.start(bed, places), port0=1, port1=2)
        self.assertGreaterEqual(results, TIMES * ELEMENTS / 256)
        bed.close()

    def test_the_network_replicates(self):
        bed = self.bed(1, ("multicast",))
        hosts = self.segment(bed, 3)
        self.run_job(bed, lambda: self.start(bed, [(host, 0) for host in hosts]), port0=1)

    def test_who_does_not_say_that_it_takes_groups_gets_its_own(self):
        bed = self.bed(1, ("multicast",), "fallback: {home: spill}\n"
                                          "jobs: {window_bytes: 64KiB}\n")
        host = bed.hosts[0]

        def start():
            return [host.start(sys.executable, SECOND_WORKER, bed.socket, "port0", "multicast", rank,
                               2, host.ip, host.mac, "int32", 5_000, 2, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True) for rank in range(2)]

        self.run_job(bed, start, port0=2)

    def test_fallbacks_results_and_restarts(self):
        """Few slots, so that the workers decide some fragments, too; then a restart of the
        switch."""
        bed = self.bed(1, ("multicast",), "aggregator: {policy: esa, slots: 64}\n")
        host = bed.hosts[0]
        workers = self.start(bed, [(host, 0)] * 3, -1)
        for _ in range(2):
            namespaces.wait_until("sums", lambda: bed.status(INACTL)["aggregator"]["results"] > 500)
            bed.daemon.kill()
            bed.daemon.wait(DEADLINE_S)
            bed.start_switch(INA_SWITCHD, self.folder.name,
                             "aggregator: {policy: esa, slots: 64}\n")
        namespaces.wait_until("sums", lambda: bed.status(INACTL)["aggregator"]["results"] > 500)
        workers[0].terminate()
        for worker in workers:
            text = worker.communicate(timeout=DEADLINE_S)[0]
            self.assertTrue(text.startswith("INA_OK"), text)
        status = bed.status(INACTL)
        self.assertEqual(status["aggregator"]["slots_used"], 0)
        self.assertGreater(status["aggregator"]["fallback_results"], 0)


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
