"""An emulated machine with two NICs for DPDK, each on a link with a NIC of the guest's kernel.

The links are TAP interfaces on bridges of a network namespace of their own, so that NICs get what
hosts behind a switch send them: unfinished checksums where they asked for these.
"""

import contextlib
import os
import select
import shutil
import socket
import subprocess
import time

# `unshare` gives a user without rights a namespace of networks to make these in.
LINKS = """
set -e
for link in 1 2; do
  ip link add br$link type bridge
  for tap in n h; do
    ip tuntap add $tap$link mode tap
    ip link set $tap$link mtu 9500 master br$link up
  done
  ip link set br$link mtu 9500 up
done
exec "$@"
"""
WORKER_NIC = "virtio-net-pci"


def in_own_network(*command):
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), *command]


def missing():
    """What this machine lacks; empty: nothing."""
    if not shutil.which("qemu-system-x86_64"):
        return "qemu-system-x86 is not installed"
    tried = subprocess.run(in_own_network("ip", "tuntap", "add", "ina0", "mode", "tap"), capture_output=True,
                           text=True, check=False, timeout=30)
    return f"no TAP interface can be made: {tried.stderr.strip()}" if tried.returncode != 0 else ""


def command(folder, nic, memory_mib):
    words = [*in_own_network("sh", "-c", LINKS, "sh"),
             "qemu-system-x86_64", "-M", "q35,kernel-irqchip=split", "-m", str(memory_mib), "-smp", "1",
             "-accel", "tcg,thread=single", "-cpu", "max",
             "-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio",
             "-monitor", f"unix:{folder}/monitor,server,nowait",
             "-kernel", f"{folder}/vmlinuz", "-initrd", f"{folder}/initrd",
             "-append", "console=ttyS0 quiet panic=-1 intel_iommu=on iommu=pt hugepages=96 mitigations=off"
             " tsc=unstable clocksource=hpet", "-device", "intel-iommu,intremap=on"]
    for name, kind, slot in (("n1", nic, 5), ("n2", nic, 6), ("h1", WORKER_NIC, 7), ("h2", WORKER_NIC, 8)):
        words += ["-netdev", f"tap,id={name},ifname={name},script=no,downscript=no",
                  "-device", f"{kind},netdev={name},mac=52:54:00:00:00:0{slot},addr={slot}"]
    return words


class Machine:
    """Starts with the kernel and initrd of `folder`. lines() gives the lines of its console."""

    def __init__(self, folder, nic, memory_mib=768):
        self.folder = folder
        self.process = subprocess.Popen(command(folder, nic, memory_mib), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.console = b""

    def lines(self, deadline_s):
        """Gives each line, until the machine ends; None: there was none in time."""
        end = time.monotonic() + deadline_s
        while True:
            while b"\n" in self.console:
                line, self.console = self.console.split(b"\n", 1)
                yield line.decode(errors="replace").rstrip()
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                yield None
                return
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                return
            self.console += part

    def monitor(self, text):
        """Has QEMU do something, and the guest go on."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(30)
            monitor.connect(f"{self.folder}/monitor")
            said = b""
            while said.count(b"(qemu) ") < 1:
                said += monitor.recv(4096)
            monitor.sendall(text.encode() + b"\n")
            while said.count(b"(qemu) ") < 2:
                said += monitor.recv(4096)
        self.process.stdin.write(b"done\n")
        self.process.stdin.flush()

    def close(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
