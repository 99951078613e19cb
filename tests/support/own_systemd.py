"""A real systemd that is process 1 of its own namespaces, and commands beside it.

Whoever boots it gives the root folder; nothing of this machine but that folder, some devices and
the time can be reached from inside, and all ends with process 1.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import time

DEADLINE_S = 600
OPERATIONS_MD = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/operations.md"

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_BPF": 39}
AF_XDP_FAMILY = 44  # linux/socket.h
SWITCH_IP, SERVER_IP = "10.78.0.254", "10.78.0.1"


@dataclasses.dataclass
class PortKind:
    """`capabilities`: those that docs/operations.md gives the switch for such ports."""
    device: str
    mtu: int
    capabilities: str

    def obstacle(self):
        """Returns why such a port cannot be made here; none: it can."""
        if self is AF_XDP:
            try:
                socket.socket(AF_XDP_FAMILY, socket.SOCK_RAW).close()
            except OSError as error:
                return f"AF_XDP: {error}"
        held = int(re.search(r"CapBnd:\s*(\w+)", pathlib.Path("/proc/self/status").read_text()).group(1), 16)
        missing = [name for name, bit in CAPABILITIES.items() if name in self.drop_in and not held >> bit & 1]
        return f"no {' '.join(missing)} here" if missing else ""

    @property
    def drop_in(self):
        # The kernel locks memory for such ports. Where root itself has a limit for that, so has the unit.
        unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
        return f"[Service]\nAmbientCapabilities={self.capabilities}{'' if unlimited else ' CAP_IPC_LOCK'}\n"


# framesz holds a frame of that MTU; a block is whole frames and whole pages. The two rings of 256 frames
# each stay below 8 MiB.
AF_PACKET = PortKind("net_af_packet0,iface=server,blocksz=36864,framesz=9216,framecnt=256", 9000,
                     "CAP_NET_ADMIN CAP_NET_RAW")
AF_XDP = PortKind("net_af_xdp0,iface=server", 3498, "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF")

ENTER = "set -e; mount --make-rprivate /\n"
# Becomes process 1. $1: unit to start, $2: where systemd logs, $3: file of its output. The working
# folder is the new root, a mount. Devices as systemd expects them in a container; the kernel's
# variables are for reading, so that systemd-sysctl changes none of this machine.
INIT = r"""
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ip link set lo up
exec >"$3" 2>&1 </dev/null
# No way back to the machine's own root, for services neither.
pivot_root . mnt
exec chroot . /bin/sh -c 'umount -l /mnt && exec env -i container=ina-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  SYSTEMD_LOG_TARGET="$2" /lib/systemd/systemd --system --unit="$1" --show-status=no' sh "$1" "$2"
"""
NAMESPACES = ("--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "--kill-child")


def documented_exposures():
    """Returns by unit the score of `systemd-analyze security` that docs/operations.md has."""
    text = " ".join(OPERATIONS_MD.read_text().split("`systemd-analyze security` finds an exposure of")[1].split("(0 is best")[0].split())
    found = {unit: float(score) for score, unit in re.findall(r"([\d.]+) for `([\w-]+)`", text)}
    assert len(found) == 3, found
    return found


def cgroup2_mount():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if "cgroup2" in fields[fields.index("-"):]:
            return pathlib.Path(fields[4])
    return None


def obstacle():
    """Returns why this machine cannot boot a systemd so; empty: it can."""
    if os.getuid() != 0:
        return "that needs root"
    if not cgroup2_mount():
        return "no cgroup2 is mounted"
    if not os.access(cgroup2_mount(), os.W_OK):
        return f"{cgroup2_mount()} cannot be written to"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", "mount --make-rprivate / && mount -t proc proc /proc"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"namespaces of its own: {tried.stderr.strip()}"
    return ""


def wait_for(what, is_so, deadline_s=DEADLINE_S):
    """Returns what `is_so` returns, once that is true."""
    deadline = time.monotonic() + deadline_s
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited {deadline_s} s in vain for {what}"
        time.sleep(0.1)
    return found


class System:
    """A systemd of its own, and commands inside of its namespaces."""

    def __init__(self, process):
        self.process = process
        self.pid = None

    def wait_up(self):
        wait_for("systemd to come up", self._is_up)

    def _is_up(self):
        if self.process.poll() is not None:
            raise RuntimeError("systemd has ended")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children:
            return False
        self.pid = children[0]
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def command(self, *words):
        return ["nsenter", "-t", self.pid, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", *map(str, words)]

    def run(self, *words, check=True):
        done = subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def show(self, what, unit="ina-switchd"):
        return self.run("systemctl", "show", "--value", "-p", what, unit).stdout.strip()

    def path(self, inside):
        """The path, from outside, of a file that is there inside."""
        return pathlib.Path(f"/proc/{self.pid}/root{inside}")


@contextlib.contextmanager
def booted(prepare, arguments, log, unit, log_target):
    """Boots systemd, with the output into the file `log`. `prepare` is a script that makes the new
    root, a mount, its working folder; `arguments` are its $1 and so on."""
    cgroup = cgroup2_mount() / f"ina-test-{os.getpid()}"
    cgroup.mkdir()
    script = f'{ENTER}{prepare}\nset -- {unit} {log_target} "$0"\n{INIT}'

    def enter():
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen(["unshare", *NAMESPACES, "sh", "-c", script, log, *arguments],
                               preexec_fn=enter, stdin=subprocess.DEVNULL)
    system = System(process)
    try:
        system.wait_up()
        yield system
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        # Below this cgroup are those that systemd made; their processes end with process 1.
        for _ in range(100):
            with contextlib.suppress(OSError):
                for below in sorted(cgroup.rglob("*"), key=lambda path: -len(path.parts)):
                    if below.is_dir():
                        below.rmdir()
                cgroup.rmdir()
                break
            time.sleep(0.1)


@dataclasses.dataclass
class LinkedServer:
    """What makes ina-psd serve over a link: the switch's configuration, to append to one whose last
    section is `ports`, and the text of /etc/default/ina-psd."""
    config: str
    arguments: str


@contextlib.contextmanager
def linked_server(system, control, kind):
    """Connects two interfaces of the system, one for a port of the switch, of this kind, and one for
    its fallback server. `control`: the switch's control socket."""
    def ip(*words):
        # This machine's program: a small Debian has none.
        subprocess.run(["nsenter", "-t", system.pid, "-n", "ip", *map(str, words)], check=True, stdin=subprocess.DEVNULL,
                       timeout=DEADLINE_S)

    ip("link", "add", "server", "mtu", kind.mtu, "type", "veth", "peer", "name", "psd0", "mtu", kind.mtu)
    try:
        ip("link", "set", "server", "up")
        ip("address", "add", f"{SERVER_IP}/24", "dev", "psd0")
        ip("link", "set", "psd0", "up")
        yield LinkedServer(f"""\
  - name: server
    type: ethdev
    device: "{kind.device}"
    ip: {SWITCH_IP}
    mtu: {kind.mtu}
eal: {{huge: no, memory: 192 MiB, file_prefix: ina-server}}
fallback: {{home: dedicated}}
""", f'INA_PSD_ARGS="--url udp:{SWITCH_IP}?control={control}&port=server"\n')
    finally:
        ip("link", "delete", "server")
