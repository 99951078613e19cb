"""Hosts and the switch in VLANs: they reach only hosts of their own VLAN, and sum there.

    vlan_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import subprocess
import sys
import tempfile
import unittest

import namespaces
from namespaces import DEADLINE_S, NetworkTestBed

INA_SWITCHD, INACTL, LOAD_WORKER = sys.argv[1:4]
SWITCH_IP = {10: "10.78.0.254", 20: "10.79.0.254"}


class VlanTest(unittest.TestCase):
    def bed(self, hosts, port_keys, more=""):
        folder = tempfile.TemporaryDirectory(prefix="ina-vlan-")
        self.addCleanup(folder.cleanup)
        bed = NetworkTestBed(hosts)
        self.addCleanup(bed.close)
        bed.port_keys = port_keys
        bed.start_switch(INA_SWITCHD, folder.name, more)
        if hosts > 1:
            namespaces.wait_until("all links to be up", lambda: all(
                port["link"] == "up" for port in bed.status(INACTL)["ports"]
                if port["type"] == "ethdev"))
        return bed

    def rack(self, members=("", "", ""), more=""):
        """Starts a bed with hosts 0 and 1 in VLAN 10, and hosts 1 and 2 in VLAN 20, each at
        10.78.0.<1 + number> in VLAN 10 and at 10.79.0.<1 + number> in VLAN 20."""
        vlans = (10, 10, 20)
        bed = self.bed(3, {number: f"ip: {SWITCH_IP[vlan]}, vlan: {vlan}{members[number]}"
                           for number, vlan in enumerate(vlans)}, more)
        bed.hosts[0].join_vlan(10, "10.78.0.1")
        bed.hosts[1].join_vlan(10, "10.78.0.2")
        bed.hosts[1].join_vlan(20, "10.79.0.2")
        bed.hosts[2].join_vlan(20, "10.79.0.3")
        return bed

    def expect_no_answer(self, host, address):
        with self.assertRaises(RuntimeError):
            host.run("ping", "-n", "-c", "1", "-w", "1", address)

    def work(self, bed, places, elements=20_000, times=5):
        """Workers at `places` (host, port) sum arrays."""
        workers = [host.start(LOAD_WORKER,
                              f"udp:{SWITCH_IP[10]}?control={bed.socket}&port={bed.port(port)}",
                              "vlan", rank, len(places), elements, times, stdout=subprocess.PIPE,
                              text=True)
                   for rank, (host, port) in enumerate(places)]
        for worker in workers:
            text = worker.communicate(timeout=DEADLINE_S)[0]
            self.assertTrue(text.startswith("INA_OK"), text)
        status = bed.status(INACTL)
        self.assertEqual(status["aggregator"]["slots_used"], 0)
        self.assertGreater(status["aggregator"]["results"], 0)
        namespaces.check_books(status)

    def test_hosts_reach_those_of_their_vlan(self):
        bed = self.rack()
        a, b, c = bed.hosts
        a.ping("10.78.0.2")
        b.ping("10.79.0.3")
        a.ping(b.ip)  # without tags, too
        # Addresses of the same network in another VLAN, or without a VLAN, are not reachable.
        c.run("ip", "address", "add", "10.78.0.3/24", "dev", "eth0.20")
        self.expect_no_answer(a, "10.78.0.3")
        self.expect_no_answer(c, "10.78.0.1")
        self.expect_no_answer(c, SWITCH_IP[10])
        c.run("ip", "address", "del", "10.78.0.3/24", "dev", "eth0.20")
        c.run("ip", "address", "add", "10.78.0.3/24", "dev", "eth0")
        self.expect_no_answer(c, "10.78.0.1")
        self.expect_no_answer(c, SWITCH_IP[10])
        namespaces.check_books(bed.status(INACTL))

    def test_the_switch_answers_in_its_vlans(self):
        bed = self.rack()
        bed.hosts[0].ping(SWITCH_IP[10])
        bed.hosts[1].ping(SWITCH_IP[10])
        bed.hosts[1].ping(SWITCH_IP[20])  # another port's address
        bed.hosts[2].ping(SWITCH_IP[20])
        namespaces.check_books(bed.status(INACTL))

    def test_ports_let_their_vlans_pass_alone(self):
        bed = self.rack((", vlans: [10]", ", vlans: [10, 20]", ", vlans: [20]"))
        a, b, c = bed.hosts
        a.ping("10.78.0.2")
        b.ping("10.79.0.3")
        before = bed.status(INACTL)["ports"]
        # Host 0 sends with the tag of VLAN 20, and neither hosts nor the switch receive its frames.
        a.join_vlan(20, "10.79.0.1")
        self.expect_no_answer(a, "10.79.0.3")
        self.expect_no_answer(a, SWITCH_IP[20])
        self.expect_no_answer(a, c.ip)
        ports = namespaces.check_books(bed.status(INACTL))
        self.assertGreaterEqual(ports["port0"]["drops"]["vlan"], 3)
        sent = {port["name"]: port.get("bridged_sent") for port in before}
        self.assertEqual(ports["port2"]["bridged_sent"], sent["port2"])
        self.assertEqual(ports["port1"]["drops"].get("vlan", 0), 0)

    def test_workers_sum_in_a_vlan(self):
        for lcores in (1, 2):
            with self.subTest(lcores=lcores):
                bed = self.rack(more=f"switch: {{lcores: {lcores}}}\n")
                self.work(bed, [(bed.hosts[0], 0), (bed.hosts[1], 1)])
                bed.close()

    def test_a_port_without_neighbours_leaves_tags_to_the_device(self):
        """Nothing is forwarded, so the device may remove tags, too."""
        bed = self.bed(1, {0: f"ip: {SWITCH_IP[10]}, vlan: 10"})
        host = bed.hosts[0]
        host.join_vlan(10, "10.78.0.1")
        host.ping(SWITCH_IP[10])
        self.work(bed, [(host, 0), (host, 0)])
        host.run("ip", "address", "add", "10.78.0.9/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0.10", "down")
        self.expect_no_answer(host, SWITCH_IP[10])


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
