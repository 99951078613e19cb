"""The sample configuration conf/xdp.yaml serves a job. Its interfaces are veth pairs to two hosts, whose
workers join over a network of their own, with a token.

    sample_test.py INA_SWITCHD LOAD_WORKER
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from namespaces import DEADLINE_S, NetworkTestBed, require_root, run, wait_until

SAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "conf/xdp.yaml"
TOKENS = "/etc/ina/tokens"
TOKEN = "open-sesame-open-sesame"
MTU = 3498
ELEMENTS, SUMS = 20_000, 20


class Rack(NetworkTestBed):
    """Interfaces and addresses are those of the sample."""

    switch_ip, kernel_ip = "10.0.0.254", "10.0.0.253"

    @staticmethod
    def port(number):
        return f"eth{number + 1}"

    def prepare(self, host):
        """Does what the sample's comments ask for. (A veth pair has one queue.)"""
        self.switch.run("ethtool", "-K", self.port(host.number), "gro", "off", "lro", "off")
        own = f"10.0.0.{host.number + 1}"
        host.run("ip", "address", "add", f"{own}/24", "dev", host.interface)
        near = f"control{host.number}"
        run("ip", "link", "add", "control", "netns", host.name, "type", "veth", "peer", "name", near, "netns",
            self.switch.name)
        self.switch.run("ip", "address", "add", f"{self.kernel_ip}/32", "dev", near)
        for namespace, interface in ((host, "control"), (self.switch, near)):
            namespace.run("ip", "link", "set", interface, "up")
        host.run("ip", "route", "add", self.kernel_ip, "dev", "control", "src", own)
        self.switch.run("ip", "route", "add", own, "dev", near)

    def start_sample(self, program, folder):
        """Starts a switch with the sample, in which only the path of the tokens differs."""
        tokens = folder / "tokens"
        tokens.write_text(f"red {TOKEN}\n", encoding="utf-8")
        tokens.chmod(0o600)
        text = SAMPLE.read_text(encoding="utf-8")
        assert text.count(TOKENS) == 1, text
        config = folder / SAMPLE.name
        config.write_text(text.replace(TOKENS, str(tokens)), encoding="utf-8")
        log = folder / "log"
        with open(log, "wb") as file:
            switch = self.switch.start(program, "--config", config, "--socket", folder / "switch.sock", stdout=file,
                                       stderr=file)

        def serves():
            said = log.read_text(encoding="utf-8")
            assert switch.poll() is None, f"the switch ended with {switch.returncode}:\n{said}"
            return " serving " in said

        wait_until("the switch to serve", serves)

    def has_program(self, number):
        """Whether AF_XDP takes the frames of the port."""
        return "xdp" in self.switch.run("ip", "link", "show", self.port(number))


def main(program, load_worker):
    require_root()
    with tempfile.TemporaryDirectory(prefix="ina-sample-") as folder, Rack(2, mtu=MTU) as bed:
        for host in bed.hosts:
            bed.prepare(host)
        bed.start_sample(program, pathlib.Path(folder))
        for host in bed.hosts:
            host.ping(bed.switch_ip)
        workers = [host.start(load_worker,
                              f"udp:{bed.switch_ip}?control=tcp:{bed.kernel_ip}:7583&port=rack{host.number + 1}",
                              "sample", host.number, 2, ELEMENTS, SUMS, env=os.environ | {"INA_TOKEN": TOKEN},
                              text=True, stdout=subprocess.PIPE) for host in bed.hosts]
        for worker in workers:
            said = worker.communicate(timeout=DEADLINE_S)[0]
            assert said.startswith("INA_OK"), said
        assert all(bed.has_program(host.number) for host in bed.hosts)


if __name__ == "__main__":
    main(*sys.argv[1:])
