"""Cases of switches on emulated NICs, and their results.

    cases.py BUILD_FOLDER DRIVER [CASE...]

prints the console of one driver's cases.
"""

import dataclasses
import pathlib
import sys
import tempfile

import guest
from machine import Machine

# QEMU's names.
NICS = {"virtio": "virtio-net-pci,disable-legacy=on,iommu_platform=on",
        "e1000": "e1000", "e1000e": "e1000e", "vmxnet3": "vmxnet3"}
BOOT_S, CASE_S = 120, 100
PROGRAMS = ("switchd/ina-switchd", "programs/inactl/inactl", "bench/ina-perf")


@dataclasses.dataclass(frozen=True)
class Case:
    mtu: int = 1500
    slot_bytes: str = "1KiB"
    vlan: int = 0
    bridged: bool = True
    lanes: int = 1
    event: str = "-"

    def line(self, name):
        return " ".join(map(str, (name, self.mtu, self.slot_bytes, self.vlan, str(self.bridged).lower(), self.lanes,
                                  self.event)))


CASES = {
    "bridged": Case(),
    "alone": Case(bridged=False),
    "large": Case(mtu=9000, slot_bytes="8KiB"),
    "vlan": Case(vlan=10),
    "vlan-alone": Case(vlan=10, bridged=False),
    "lanes": Case(lanes=2),
    "link": Case(event="link"),
    "kill": Case(event="kill"),
}


def kernel(build):
    """The guest's, which lies in the build folder once it has been downloaded."""
    cache = build / "nic-guest"
    cache.mkdir(exist_ok=True)
    return guest.kernel(cache)


def qemu_version():
    return guest.run("qemu-system-x86_64", "--version").split()[3]


@dataclasses.dataclass
class Outcome:
    correct: bool
    tcp_passes: object  # None: the switch forwards nothing
    log: list


def run(build, driver, names=tuple(CASES), show=lambda line: None):
    """Boots once, runs the cases, and returns an Outcome for each that ended."""
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="ina-nic-") as folder:
        folder = pathlib.Path(folder)
        guest.make(folder, kernel(build), [build / program for program in PROGRAMS], build / "client",
                   [CASES[name].line(name) for name in names])
        machine = Machine(folder, NICS[driver])
        try:
            last = None
            for line in machine.lines(BOOT_S + CASE_S * len(names)):
                if line is None:
                    show("no end in time")
                    break
                show(line)
                words = line.split()
                if line.startswith("@ do "):
                    machine.monitor(line[len("@ do "):])
                elif line.startswith("@ case "):
                    said = dict(word.split("=") for word in words[3:])
                    last = Outcome(said["correct"] == "true",
                                   None if said["tcp"] == "-" else said["tcp"] == "true", [])
                    outcomes[words[2]] = last
                elif last:
                    last.log.append(line)
        finally:
            machine.close()
    return outcomes


if __name__ == "__main__":
    run(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:] or tuple(CASES),
        lambda line: print(line, flush=True))
