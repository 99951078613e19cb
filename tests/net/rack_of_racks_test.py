"""docs/switch.md, "A rack of racks", as it stands there: its configurations and its workers' URLs, in
network namespaces. PCI devices become veth pairs, and /etc/ina a temporary folder.

    rack_of_racks_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import namespaces
from namespaces import OFFLOADS_OFF, Namespace, run
from waiting import DEADLINE_S, wait_until

INA_SWITCHD, INACTL, LOAD_WORKER = sys.argv[1:4]
DOCUMENT = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/switch.md"
MTU = 9000
DEVICE = "net_af_packet{},iface={},qpairs=1,blocksz=65536,framesz=16384,framecnt=512"
HOSTS = ("host1", "host2")  # ports of a leaf, and the hosts behind them


def section():
    text = DOCUMENT.read_text(encoding="utf-8")
    return text.split("## A rack of racks\n")[1].split("\n## ")[0]


def for_rack(text, rack):
    """The text, which is about rack 1, for another rack."""
    return text.replace("10.0.1.", f"10.0.{rack}.").replace("port_above: rack1", f"port_above: rack{rack}")


class Machine:
    """A switch's machine."""

    def __init__(self, bed, name, config):
        self.name, self.folder = name, bed.folder / name
        self.folder.mkdir()
        self.namespace = bed.namespace(name)
        self.socket = self.folder / "switch.sock"
        ports = iter(range(100))
        config = re.sub(r'name: (\w+), ([^}]*device: )"[^"]*"',
                        lambda port: f'name: {port[1]}, {port[2]}"{DEVICE.format(next(ports), port[1])}"', config)
        config = config.replace("/etc/ina", str(self.folder)).replace("control:\n", f"control:\n  socket: {self.socket}\n")
        self.config = self.folder / "switchd.yaml"
        self.config.write_text(config + f"log: {{file: {self.folder / 'log'}}}\n", encoding="utf-8")

    def token(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)

    def start(self):
        with open(self.folder / "stderr", "w", encoding="utf-8") as stderr:
            daemon = self.namespace.start(INA_SWITCHD, "--config", self.config, stderr=stderr)

        def serves():
            if daemon.poll() is not None:
                said = (self.folder / "stderr").read_text(encoding="utf-8")
                raise RuntimeError(f"{self.name}: {said}{self.log()}")
            return " serving " in self.log()
        wait_until(f"{self.name} to serve", serves)

    def log(self):
        path = self.folder / "log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def status(self):
        return json.loads(run(INACTL, "status", "--json", "--socket", self.socket))


class Bed:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.prefix = f"inar-{os.getpid()}"
        self.namespaces = []
        self.control = self.namespace("control")
        self.control.run("ip", "link", "add", "net", "type", "bridge")
        self.control.run("ip", "link", "set", "net", "up")

    def namespace(self, name):
        self.namespaces.append(Namespace(f"{self.prefix}-{name}"))
        return self.namespaces[-1]

    def link(self, one, one_end, other, other_end, mtu=MTU):
        run("ip", "link", "add", "name", one_end, "mtu", mtu, "netns", one.name, "type", "veth", "peer", "name", other_end,
            "mtu", mtu, "netns", other.name)
        for namespace, end in ((one, one_end), (other, other_end)):
            namespace.run("ethtool", "-K", end, *OFFLOADS_OFF)
            namespace.run("ip", "link", "set", "dev", end, "up")

    def join_control(self, namespace, address):
        port = f"c{len(self.namespaces)}-{address.rsplit('.', 1)[1]}"
        self.link(namespace, "control", self.control, port, 1500)
        self.control.run("ip", "link", "set", port, "master", "net")
        namespace.run("ip", "address", "add", f"{address}/24", "dev", "control")

    def close(self):
        for namespace in self.namespaces:
            namespace.close()


class RackOfRacksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ina-racks-")
        self.addCleanup(folder.cleanup)
        self.bed = Bed(folder.name)
        self.addCleanup(self.bed.close)

    def add_rack(self, number, config, commands, root):
        leaf = Machine(self.bed, f"leaf{number}", for_rack(config, number))
        leaf.token("uplink-token", f"a-secret-token-of-leaf{number}\n")
        leaf.token("tokens", "team token-of-the-team\n")
        self.bed.link(leaf.namespace, "up", root.namespace, f"rack{number}")
        self.bed.join_control(leaf.namespace, f"192.168.0.{number}")
        leaf.namespace.run("sh", "-ec", for_rack(commands, number))
        hosts = []
        for i, port in enumerate(HOSTS):
            host = self.bed.namespace(f"rack{number}-{port}")
            self.bed.link(host, "eth0", leaf.namespace, port)
            host.run("ip", "address", "add", f"10.0.{number}.{i + 1}/24", "dev", "eth0")
            hosts.append(host)
        return leaf, hosts

    def test_the_document(self):
        text = section()
        root_config, leaf_config = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        commands = re.search(r"<!-- not run: on the machine of the leaf -->\n((?: {4}.*\n)+)", text)[1]
        urls = re.findall(r"INA_URL='([^']+)'", text)
        self.assertEqual([for_rack(urls[0], 2)], urls[1:])
        root = Machine(self.bed, "root", root_config)
        root.token("tokens", "leaf1 a-secret-token-of-leaf1\nleaf2 a-secret-token-of-leaf2\n")
        self.bed.join_control(root.namespace, "192.168.0.254")
        racks = [self.add_rack(number, leaf_config, commands, root) for number in (1, 2)]
        for machine in (root, *(leaf for leaf, _ in racks)):
            machine.start()
        workers = []
        for number, (_, hosts) in enumerate(racks):
            for host, port in zip(hosts, HOSTS):
                url = urls[number].replace("port=host1", f"port={port}")
                workers.append(host.start(
                    LOAD_WORKER, url, "train", len(workers), 4, 500_000, -1, env=os.environ | {"INA_TOKEN": "token-of-the-team"},
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        wait_until("the tree", lambda: [below["ranks"] for job in root.status()["jobs"] for below in job["tree"]["below"]
                                        if below["state"] == "running"] in ([[0, 1], [2, 3]], [[2, 3], [0, 1]]))
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.assertEqual(worker.communicate(timeout=DEADLINE_S)[0], "INA_OK \n")


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
