"""Installs the packages in a small Debian that has booted a real systemd, has jobs run over the
services of ina-switchd while these are reloaded, stopped, killed, restarted and upgraded, over ports
by AF_PACKET, too, and purges the packages. test_debs.py calls check()."""

import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/support"))

from debian_root import check_nothing_left, contents  # noqa: E402
from own_systemd import AF_PACKET, booted, documented_exposures, linked_server, obstacle, wait_for  # noqa: E402

__all__ = ["check", "obstacle"]

DEADLINE_S = 120
RESTARTS = 10
CONFIG = "/etc/ina/switchd.yaml"
SOCKET = "/run/ina/switch.sock"
# CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK and CAP_BPF, which a drop-in may give.
BOUNDING = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39
PACKET_CAPABILITIES = 1 << 12 | 1 << 13  # those of AF_PACKET
DROP_IN = "/etc/systemd/system/ina-switchd.service.d"
SWITCH_IP, FAR_IP = "10.77.0.254", "10.77.0.1"
FAR_MTU = 9000
# Follows the sample, whose last section is `ports`. framesz holds a frame of that MTU; a block is
# whole frames and whole pages. The kernel locks the two rings in memory: 256 frames each stay below
# 8 MiB, for systems whose root may not raise that limit.
PACKET_CONFIG = f"""\
  - name: port0
    type: ethdev
    device: "net_af_packet0,iface=port0,blocksz=36864,framesz=9216,framecnt=256"
    ip: {SWITCH_IP}
    mtu: {FAR_MTU}
eal: {{huge: no, memory: 192 MiB, file_prefix: ina-switch, telemetry: true}}
"""
# Where docs/operations.md has dpdk-telemetry.py look.
TELEMETRY = "/run/ina/dpdk/ina-switch/dpdk_telemetry.v2"
INSTALL = ("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c")
# The root folder itself, so that the packages' files can be looked for in it.
BIND = 'mount --bind "$1" "$1"\ncd "$1"\n'

# Sums all the time and checks each sum, until there is a file NAME.stop. Rank 0 writes the number
# of sums, and those that took long.
WORKER = r"""
import os, sys, time
import ina, numpy

name, rank, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with ina.Context(url, name, rank, 2, timeout=100) as job:
    with open(f"/tmp/{name}-{rank}.count", "w") as counted, open(f"/tmp/{name}-{rank}.pauses", "w", 1) as pauses:
        array, count, stopping = numpy.empty(65536, numpy.float32), 0, False
        while not stopping:
            array[:] = rank + 1
            array[-1] = os.path.exists(f"/tmp/{name}.stop")
            began = time.monotonic()
            total = job.allreduce(array)
            took_s = time.monotonic() - began
            assert (total[:-1] == 3).all(), total
            stopping, count = total[-1] != 0, count + 1
            os.pwrite(counted.fileno(), str(count).encode(), 0)
            if took_s > 0.01:
                print(took_s, file=pauses)
"""

# Asks DPDK's telemetry as dpdk-telemetry.py does, which is not installed here.
ASK = r"""
import json, socket, sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as telemetry:
    telemetry.connect(sys.argv[1])
    most_bytes = json.loads(telemetry.recv(1024))["max_output_len"]
    telemetry.send(sys.argv[2].encode())
    print(telemetry.recv(most_bytes).decode())
"""


class Job:
    """Two workers of a user in the group ina. `host`: as far_host() gives it."""

    def __init__(self, system, name, urls=(f"shm:{SOCKET}",) * 2, host=()):
        self.system, self.name = system, name
        self.workers = [subprocess.Popen(as_user(system, "alice", "python3", "/packages/worker.py", name, rank, url, host=host),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                        for rank, url in enumerate(urls)]

    def count(self):
        with contextlib.suppress(FileNotFoundError):
            return int(self.system.path(f"/tmp/{self.name}-0.count").read_text() or 0)
        return 0

    def pauses(self):
        return [float(line) for line in self.system.path(f"/tmp/{self.name}-0.pauses").read_text().splitlines()]

    def check_goes_on(self):
        # The first of them may have been under way before.
        enough = self.count() + 3
        wait_for(f"sums of job {self.name}", lambda: self.count() >= enough or self.ended())
        assert not self.ended(), self.output()

    def ended(self):
        return any(worker.poll() is not None for worker in self.workers)

    def output(self):
        return [worker.communicate(timeout=DEADLINE_S)[0] for worker in self.workers]

    def stop(self):
        self.system.path(f"/tmp/{self.name}.stop").touch()
        said = self.output()
        assert all(worker.returncode == 0 for worker in self.workers), said

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for worker in self.workers:
            worker.kill()
            worker.wait()


def as_user(system, user, *command, host=()):
    return system.command(*host, "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *command)


def as_worker(system, user, url):
    """Has one rank try to join."""
    return subprocess.run(as_user(system, user, "python3", "/packages/worker.py", "alone", 0, url),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def journal(system, unit, *matches):
    """Returns the records of the unit, the systemd's of it left out."""
    lines = system.run("journalctl", "--no-pager", "-o", "json", f"_SYSTEMD_UNIT={unit}.service", *matches).stdout
    return [json.loads(line) for line in lines.splitlines()]


def said(system, unit, text):
    return any(text in record["MESSAGE"] for record in journal(system, unit))


def set_config(system, text):
    system.path(CONFIG).write_text(text)


def restarted(system, before, unit="ina-switchd"):
    """Waits until the unit runs in another process than before."""
    wait_for(f"another {unit}", lambda: system.show("MainPID", unit) not in (before, "0")
             and system.show("ActiveState", unit) == "active")


def check_state(system):
    """The switch runs, and starts with the machine; the other programs do so on demand."""
    for unit, active, enabled in (("ina-switchd", "active", "enabled"), ("ina-psd", "inactive", "disabled"),
                                  ("ina-memif", "inactive", "disabled")):
        state = (system.show("ActiveState", unit), system.show("UnitFileState", unit))
        assert state == (active, enabled), (unit, state)
    assert system.show("Type") == "notify"


def check_first_sum(system):
    with Job(system, "first") as job:
        job.check_goes_on()
        job.stop()


def check_process(system, capabilities=0):
    """The switch is a user of its own with these capabilities alone, and sees no more than it
    needs."""
    pid = system.show("MainPID")
    status = dict(line.split(":\t", 1) for line in system.run("cat", f"/proc/{pid}/status").stdout.splitlines() if ":\t" in line)
    uid, gid = (system.run("id", option, "ina").stdout.strip() for option in ("-u", "-g"))
    assert status["Uid"].split() == [uid] * 4 and status["Gid"].split() == [gid] * 4, status
    assert status["Groups"].split() == [gid], status
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) == capabilities, status
    assert int(status["CapBnd"], 16) == BOUNDING, status
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    for path, reason in (("/usr/was-here", "Read-only"), ("/etc/ina/was-here", "Read-only"), ("/home/was-here", "")):
        touched = system.run("nsenter", "-t", pid, "-m", "touch", path, check=False)
        assert touched.returncode != 0 and reason in touched.stderr, (path, touched)


def check_outsider(system):
    """Who is not in the group may not join."""
    refused = as_worker(system, "bob", f"shm:{SOCKET}")
    assert refused.returncode != 0 and "Permission denied" in refused.stderr, refused


def check_exposure(system):
    for unit, most in documented_exposures().items():
        found = system.run("systemd-analyze", "security", "--no-pager", unit).stdout
        exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", found).group(1))
        print(f"systemd-analyze security {unit}: {exposure}", flush=True)
        assert exposure <= most, found


def check_reload(system, job, config):
    """Another configuration in the same process; a wrong one changes nothing."""
    pid = system.show("MainPID")
    set_config(system, config + "log: {format: journal}\n")
    system.run("systemctl", "reload", "ina-switchd")
    wait_for("records with fields", lambda: journal(system, "ina-switchd", "INA_RECORD=serving"))
    record = journal(system, "ina-switchd", "INA_RECORD=serving")[-1]
    assert record["INA_POLICY"] == "esa" and record["PRIORITY"] == "6", record
    assert record["MESSAGE"].startswith('serving version="') and record["_UID"] != "0", record
    job.check_goes_on()
    wait_for("records of the job", lambda: journal(system, "ina-switchd", "INA_JOB=" + job.name))
    set_config(system, config + "no_such_key: 1\n")
    system.run("systemctl", "reload", "ina-switchd")
    wait_for("the refusal", lambda: said(system, "ina-switchd", "no_such_key: unknown key"))
    assert journal(system, "ina-switchd", "PRIORITY=4"), "the refusal is a warning"
    job.check_goes_on()
    set_config(system, config)
    system.run("systemctl", "reload", "ina-switchd")
    job.check_goes_on()
    assert system.show("MainPID") == pid


def check_kill(system, job):
    for signal in ("KILL", "STOP"):
        pid = system.show("MainPID")
        began = time.monotonic()
        system.run("systemctl", "kill", f"--signal={signal}", "--kill-whom=main", "ina-switchd")
        restarted(system, pid)
        print(f"SIG{signal}: the next switch serves after {time.monotonic() - began:.1f} s", flush=True)
        job.check_goes_on()
    told = system.run("journalctl", "--no-pager", "-o", "cat", "UNIT=ina-switchd.service").stdout
    assert "Watchdog timeout" in told, told
    assert system.show("NRestarts") == "2", system.show("NRestarts")


def check_restarts(system, job):
    pauses = []
    for _ in range(RESTARTS):
        before = len(job.pauses())
        system.run("systemctl", "reset-failed", "ina-switchd")  # or it were too many starts a minute
        system.run("systemctl", "restart", "ina-switchd")
        job.check_goes_on()
        pauses.append(max(job.pauses()[before:], default=0))
    print(f"systemctl restart under a job, {RESTARTS} times: pause {statistics.median(pauses) * 1000:.0f} ms at the median, "
          f"{max(pauses) * 1000:.0f} ms at most", flush=True)


def check_upgrade(system, job):
    """The packages once more, as an upgrade: the job goes on."""
    pid, before = system.show("MainPID"), len(job.pauses())
    system.run(*INSTALL, "dpkg -i /packages/*.deb")
    restarted(system, pid)
    job.check_goes_on()
    print(f"upgrade under a job: pause {max(job.pauses()[before:], default=0) * 1000:.0f} ms", flush=True)


def check_wrong_configuration(system, job, config):
    """Keeps the next switch from starting; the journal says why. The job waits for a better one."""
    set_config(system, config + "not_a_key: 1\n")
    failed = system.run("systemctl", "restart", "ina-switchd", check=False)
    assert failed.returncode != 0, failed
    wait_for("the end of tries", lambda: system.show("ActiveState") == "failed")
    assert said(system, "ina-switchd", f"{CONFIG}:{len(config.splitlines()) + 1}:1: not_a_key: unknown key")
    set_config(system, config)
    system.run("systemctl", "reset-failed", "ina-switchd")
    system.run("systemctl", "start", "ina-switchd")
    job.check_goes_on()


def check_fallback_server(system, config):
    set_config(system, config + "fallback: {home: dedicated}\n")
    system.run("systemctl", "restart", "ina-switchd")
    system.run("systemctl", "start", "ina-psd")
    with Job(system, "helped") as job:
        wait_for("the fallback server to serve the job", lambda: said(system, "ina-psd", "job served"))
        job.check_goes_on()
        pid = system.show("MainPID", "ina-psd")
        system.run("systemctl", "restart", "ina-switchd")
        job.check_goes_on()
        assert system.show("MainPID", "ina-psd") == pid, "it waits for the next switch"
        system.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "ina-psd")
        restarted(system, pid, "ina-psd")
        job.check_goes_on()
        job.stop()
    system.run("systemctl", "stop", "ina-psd")
    assert system.show("Result", "ina-psd") == "success"
    set_config(system, config)
    system.run("systemctl", "restart", "ina-switchd")


@contextlib.contextmanager
def far_host(system):
    """Makes a network namespace, the host at the other end of the system's interface port0. Returns
    the words before a command that runs there. Both go at the end."""
    def ip(pid, *words):
        # This machine's program: the small Debian has none.
        subprocess.run(["nsenter", "-t", pid, "-n", "ip", *map(str, words)], check=True, stdin=subprocess.DEVNULL,
                       timeout=DEADLINE_S)

    # Holds the namespace, until its input ends.
    with subprocess.Popen(system.command("unshare", "--net", "sh", "-c", "echo $$; exec cat"), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as holder:
        pid_inside = holder.stdout.readline().strip()
        pid = pathlib.Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().strip()
        ip(system.pid, "link", "add", "port0", "mtu", FAR_MTU, "type", "veth", "peer", "name", "eth0", "mtu", FAR_MTU,
           "netns", pid)
        ip(system.pid, "link", "set", "port0", "up")
        ip(pid, "address", "add", f"{FAR_IP}/24", "dev", "eth0")
        ip(pid, "link", "set", "eth0", "up")
        yield ("nsenter", "-t", pid_inside, "-n")


def check_telemetry(system):
    """Root may ask at the place that docs/operations.md names."""
    info = wait_for("the switch's figures", lambda: json.loads(
        system.run("python3", "-c", ASK, TELEMETRY, "/ina/info").stdout)["/ina/info"])
    assert info["version"] in system.run("ina-switchd", "--version").stdout, info


def check_packet_port(system, config):
    """A port by AF_PACKET works under the unit, with the capabilities that it takes and no others,
    beside shm."""
    drop_in = system.path(DROP_IN)
    drop_in.mkdir()
    (drop_in / "override.conf").write_text(f"[Service]\nAmbientCapabilities={AF_PACKET.capabilities}\n")
    with far_host(system) as host:
        set_config(system, config + PACKET_CONFIG)
        system.run("systemctl", "daemon-reload")
        system.run("systemctl", "restart", "ina-switchd")
        assert system.show("ActiveState") == "active"
        check_process(system, PACKET_CAPABILITIES)
        far = f"udp:{SWITCH_IP}?control={SOCKET}&port=port0"
        with Job(system, "near") as near, Job(system, "far", (far, far), host) as job:
            near.check_goes_on()
            job.check_goes_on()
            check_telemetry(system)
            near.stop()
            job.stop()
        check_linked_server(system, config)
        (drop_in / "override.conf").unlink()
        drop_in.rmdir()
        set_config(system, config)
        system.run("systemctl", "daemon-reload")
        system.run("systemctl", "restart", "ina-switchd")
    check_process(system)
    assert not system.path(TELEMETRY).parent.exists(), "a switch leaves no folder of DPDK's"


def check_linked_server(system, config):
    """ina-psd serves over UDP, at such a port, with the rights that its unit leaves. Its arguments
    stay, so that a purge must remove them."""
    with linked_server(system, SOCKET, AF_PACKET) as server:
        set_config(system, config + server.config)
        system.path("/etc/default/ina-psd").write_text(server.arguments)
        system.run("systemctl", "reset-failed", "ina-switchd")  # or it were too many starts a minute
        system.run("systemctl", "restart", "ina-switchd")
        system.run("systemctl", "start", "ina-psd")
        with Job(system, "linked") as job:
            # Without the server no job begins.
            job.check_goes_on()
            job.stop()
        assert system.show("NRestarts", "ina-psd") == "0", "the server started again"
        # Both, before their link goes.
        system.run("systemctl", "stop", "ina-psd", "ina-switchd")
        assert system.show("Result", "ina-psd") == "success"


def check_memif(system):
    system.path("/etc/default/ina-memif").write_text('INA_MEMIF_ARGS="--workers 2 --mode 0660"\n')
    system.run("systemctl", "start", "ina-memif")
    wait_for("ina-memif", lambda: said(system, "ina-memif", "serving"))
    urls = [f"memif:/run/ina-memif/memif.sock?id={rank}&ip=10.0.0.{rank + 2}&mtu=9000&control=/run/ina-memif/control.sock"
            for rank in (0, 1)]
    with Job(system, "frames", urls) as job:
        job.check_goes_on()
        job.stop()
    # A socket in a folder that this user may not write to.
    refused = as_worker(system, "alice", "memif:/etc/none.sock?ip=10.0.0.9&mtu=9000&control=/run/ina-memif/control.sock")
    assert "may not read and write the folder /etc" in refused.stderr, refused
    errors = [record["MESSAGE"] for record in journal(system, "ina-memif") if re.search(r" (error|critical) ", record["MESSAGE"])]
    assert not errors, errors
    system.run("systemctl", "stop", "ina-memif")
    assert system.show("Result", "ina-memif") == "success"


def check_stop(system):
    system.run("systemctl", "stop", "ina-switchd")
    assert (system.show("ActiveState"), system.show("Result")) == ("inactive", "success")
    assert not system.path(SOCKET).exists()
    assert system.path(f"{SOCKET}.state").exists(), "the state outlives a stop"
    system.run("systemctl", "start", "ina-switchd")


def check_purged(system):
    """Neither processes nor files in memory are left; test_debs.py looks for those on disk."""
    left = [str(path) for folder in ("/run", "/tmp", "/dev/shm") for path in system.path(folder).rglob("*ina*")
            if re.search(r"\bina\b", path.name)]
    assert not left, left
    listed = system.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "ina*").stdout
    assert not listed.strip(), listed
    running = system.run("sh", "-c", "cat /proc/[0-9]*/comm").stdout.split()
    assert not [name for name in running if name.startswith("ina")], running


def check_services(system, root, names):
    for user in ("alice", "bob"):
        system.run("useradd", user)
    before = contents(root)
    began = time.monotonic()
    system.run(*INSTALL, "apt-get install -qy --no-install-recommends /packages/*.deb")
    check_state(system)
    system.run("usermod", "-aG", "ina", "alice")
    check_first_sum(system)
    print(f"from apt-get install to the first sum over the service: {time.monotonic() - began:.1f} s", flush=True)
    check_process(system)
    check_outsider(system)
    check_exposure(system)
    config = system.path(CONFIG).read_text()
    with Job(system, "train") as job:
        job.check_goes_on()
        check_reload(system, job, config)
        check_kill(system, job)
        check_restarts(system, job)
        check_upgrade(system, job)
        check_wrong_configuration(system, job, config)
        job.stop()
        print(f"job train: {job.count()} sums, none failed", flush=True)
    check_fallback_server(system, config)
    check_packet_port(system, config)
    check_memif(system)
    check_stop(system)
    system.run(*INSTALL, f"apt-get purge -qy {' '.join(names)}")
    system.run("sh", "-c", "rm -f /tmp/*.count /tmp/*.pauses /tmp/*.stop")
    check_purged(system)
    check_nothing_left(root, before)


def check(root, names):
    """`root`: has systemd, and folder /packages with the packages, of which none is installed but
    what they depend on. `names`: those of the packages."""
    (root / "packages/worker.py").write_text(WORKER)
    log = root.parent / "systemd.log"
    try:
        with booted(BIND, (root,), log, "multi-user.target", "journal-or-kmsg") as system:
            try:
                check_services(system, root, names)
            except BaseException:
                print(system.run("journalctl", "--no-pager", "-n", "60", check=False).stdout, file=sys.stderr)
                raise
    except BaseException:
        print(log.read_text(errors="replace")[-4000:] if log.exists() else "no output of systemd", file=sys.stderr)
        raise
