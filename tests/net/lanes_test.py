"""Ethernet ports with several packet loops: every loop has a queue of its own, or one loop receives
for the others. A device that hashes frames to queues does not know lanes, so loops hand over
frames.

    lanes_test.py INA_SWITCHD INACTL LOAD_WORKER [VETH_CHANNELS]

VETH_CHANNELS: a library that is preloaded into the switch (veth_channels.cc); without it nothing is
tested with AF_XDP.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import namespaces
from namespaces import DEADLINE_S, NetworkTestBed

INA_SWITCHD, INACTL, LOAD_WORKER = sys.argv[1:4]
VETH_CHANNELS = sys.argv[4] if len(sys.argv) > 4 else None
SECOND_WORKER = pathlib.Path(__file__).with_name("second_worker.py")
HOSTS = 3
FLOWS = 64
UDP_PORT = 7584  # the port of lane 0

RECEIVE = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.bind(("", 5000))
    udp.settimeout(50)
    print("ready", flush=True)
    senders = set()
    while len(senders) < {FLOWS}:
        senders.add(udp.recvfrom(2000)[1])
print("all", flush=True)
"""

# All sockets are open at once, so that their ports differ.
SEND = f"""
import socket, sys
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range({FLOWS})]
for udp in sockets:
    udp.sendto(b"hello", (sys.argv[1], 5000))
"""

# Frames from one source port to a lane's port; no other sender sends as many meanwhile.
PROBES = 16
PROBE = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.bind(("", int(sys.argv[1])))
    for _ in range({PROBES}):
        udp.sendto(b"probe", (sys.argv[2], int(sys.argv[3])))
"""


class LanesTest(unittest.TestCase):
    def bed(self, lcores, queues, more="", driver="af_packet", preload=None):
        folder = tempfile.TemporaryDirectory(prefix="ina-lanes-")
        self.addCleanup(folder.cleanup)
        bed = NetworkTestBed(HOSTS, queues=queues, driver=driver)
        bed.preload = preload
        self.addCleanup(bed.close)
        bed.start_switch(INA_SWITCHD, folder.name, f"switch: {{lcores: {lcores}}}\n{more}")
        steering = f'queues="{queues}" steering="software"'
        self.assertEqual(bed.log().count(steering), HOSTS, bed.log())
        return bed

    def counters(self, bed, number):
        """Returns, for a host's port, the number of frames received, and of those received by
        another lane."""
        port = next(p for p in bed.status(INACTL)["ports"] if p["name"] == bed.port(number))
        return port["rx_packets"], port["handed_over"]

    def find_crossing_port(self, bed, host):
        """Returns a source port whose frames for lane 1 arrive in another lane's queue. The
        kernel's hash of addresses and ports decides that, with a random seed."""
        for source_port in range(20_000, 20_100):
            received, handed_over = self.counters(bed, host.number)
            host.run(sys.executable, "-c", PROBE, source_port, bed.switch_ip, UDP_PORT + 1)
            namespaces.wait_until("probes to arrive", lambda: self.counters(
                bed, host.number)[0] >= received + PROBES)
            if self.counters(bed, host.number)[1] >= handed_over + PROBES:
                return source_port
        self.fail("the kernel's hash sends whatever is for lane 1 to its queue")

    def cross(self, bed):
        """Makes the hosts' next UDP sockets send frames that arrive in the wrong queue."""
        for host in bed.hosts:
            host.ping(bed.switch_ip)
            port = self.find_crossing_port(bed, host)
            host.run("sh", "-c", f"echo {port} {port} >/proc/sys/net/ipv4/ip_local_port_range")

    def worker(self, bed, rank, elements, times):
        url = f"udp:{bed.switch_ip}?control={bed.socket}&port={bed.port(rank)}"
        return bed.hosts[rank].start(LOAD_WORKER, url, "lanes", rank, HOSTS, elements, times,
                                     stdout=subprocess.PIPE, text=True)

    def second_worker(self, bed, rank, dtype, elements, times):
        host = bed.hosts[rank]
        return host.start(sys.executable, SECOND_WORKER, bed.socket, bed.port(rank), "lanes", rank,
                          HOSTS, host.ip, host.mac, dtype, elements, times, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)

    def expect(self, process, beginning):
        text = process.communicate(timeout=DEADLINE_S)[0]
        self.assertTrue(text.startswith(beginning), text)

    def wait_for_links(self, bed):
        namespaces.wait_until("all links to be up", lambda: all(
            port["link"] == "up" for port in bed.status(INACTL)["ports"] if port["type"] == "ethdev"))

    def check(self, bed, lcores, queues):
        """Checks the counters after all workers have left."""
        status = bed.status(INACTL)
        self.assertEqual(status["aggregator"]["slots_used"], 0)
        self.assertTrue(all(lane["packets"] > 0 for lane in status["lcores"]), status["lcores"])
        for port in namespaces.check_books(status).values():
            self.assertGreater(port["handed_over"], 0, port)
            self.assertEqual(port["tx_handed_over"] > 0, queues < lcores, port)
        self.wait_for_links(bed)

    def sum_and_stop(self, bed, lcores, queues):
        workers = [self.worker(bed, rank, 20_000, 5) for rank in range(HOSTS)]
        for worker in workers:
            self.expect(worker, "INA_OK")
        self.check(bed, lcores, queues)
        self.assertEqual(bed.stop_switch(), 0)

    def test_every_policy_sums(self):
        for lcores, queues in ((2, 1), (2, 2), (4, 1), (4, 2)):
            # With few slots, fragments go to the workers, where the fallback is.
            for policy, slots in (("static", 4096), ("fcfs", 64), ("esa", 64)):
                with self.subTest(lcores=lcores, queues=queues, policy=policy):
                    bed = self.bed(lcores, queues,
                                   f"aggregator: {{policy: {policy}, slots: {slots}}}\n")
                    if lcores == queues:
                        # With fewer queues, lanes without a queue get all of their frames from
                        # other lanes.
                        self.cross(bed)
                    self.sum_and_stop(bed, lcores, queues)
                    bed.close()

    @unittest.skipUnless(VETH_CHANNELS, "a sanitizer goes with no preloaded library")
    def test_queues_of_af_xdp(self):
        for lcores, queues in ((2, 2), (4, 2)):
            with self.subTest(lcores=lcores, queues=queues):
                esa = "aggregator: {policy: esa, slots: 64}\n"
                bed = self.bed(lcores, queues, esa, driver="af_xdp", preload=VETH_CHANNELS)
                self.cross(bed)
                self.sum_and_stop(bed, lcores, queues)
                # The next switch gets the queues of the last.
                bed.start_switch(INA_SWITCHD, bed.socket.parent,
                                 f"switch: {{lcores: {lcores}}}\n{esa}")
                self.cross(bed)
                self.sum_and_stop(bed, lcores, queues)
                bed.close()

    def test_a_second_implementation_gets_the_right_sums(self):
        for lcores, queues, policy, dtype in ((2, 1, "static", "int32"), (4, 2, "esa", "float32")):
            with self.subTest(lcores=lcores, queues=queues, policy=policy):
                bed = self.bed(lcores, queues, f"aggregator: {{policy: {policy}, slots: 1024}}\n"
                                               "fallback: {home: spill}\n"
                                               "jobs: {window_bytes: 64KiB}\n")
                for worker in [self.second_worker(bed, rank, dtype, 5_000, 3)
                               for rank in range(HOSTS)]:
                    self.expect(worker, "ok")
                self.check(bed, lcores, queues)
                bed.close()

    def test_hosts_reach_each_other_whichever_loop_receives(self):
        bed = self.bed(2, 2)
        self.wait_for_links(bed)
        for host in bed.hosts:
            for other in bed.hosts:
                if host is not other:
                    host.ping(other.ip)
            host.ping(bed.switch_ip)
        # There are many flows, so that some arrive in each queue.
        receiver = bed.hosts[1].python(RECEIVE)
        self.assertEqual(receiver.stdout.readline(), "ready\n")
        bed.hosts[0].run(sys.executable, "-c", SEND, bed.hosts[1].ip)
        self.assertEqual(receiver.communicate(timeout=DEADLINE_S)[0], "all\n")
        ports = namespaces.check_books(bed.status(INACTL))
        self.assertGreaterEqual(ports["port0"]["forwarded"], FLOWS)
        self.assertGreater(ports["port0"]["handed_over"], 0)

    def test_queue_pairs_that_nobody_would_poll_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, r"qpairs=2, but only 1 packet loops"):
            self.bed(1, 2)
        with self.assertRaisesRegex(RuntimeError, r"queue_count=2, but only 1 packet loops"):
            self.bed(1, 2, driver="af_xdp")


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
