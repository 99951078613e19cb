"""ina-switchd under siege. The bed consists of the switch, in a memory cgroup and as a user of its
own; a job of another user, whose sums are checked and timed; a newcomer, who joins now and then;
and the attackers. scripts/bench_siege.py and tests/e2e/siege_test.py share it.

Every party has a user of its own. `resources()` reports the memory and descriptors of the switch
and its children.
"""

import array
import contextlib
import json
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from benchlib.processes import ended_with_parent

SWITCH_UID, NEWCOMER_UID, VICTIM_UID, ATTACKER_UID = 64530, 64531, 64532, 64533
# For all that connect to it: another user's switch may be a false one.
os.environ["INA_SWITCH_USER"] = str(SWITCH_UID)
HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
MEMORY_MAX = 768 * MIB
QUOTA = 32 * MIB
DEADLINE_S = 30
STUCK_S = 5
PSD_S = 10
VICTIM = "victim"
RESERVED = "reserved"
SUM_ELEMENTS = 16384
NEWCOMER_INTERFACE = 3  # of the bridge; the victim has 0

CONFIG = """\
log: {{file: "{log}"}}
control: {{socket: "{socket}", mode: 0666, rejoin_timeout: 20 s{control}}}
{tenants}{more}"""
TENANTS = ('tenants:\n  - {{name: "uid:{uid}", jobs_max: 8, workers_max: 16, slots_ceiling: 2048, '
           'memory: {quota} MiB}}\n').format(uid=ATTACKER_UID, quota=QUOTA // MIB)
# So few slots that the victim's sums need the fallback, too.
FALLBACK_CONFIG = ("fallback: {home: dedicated}\naggregator: {policy: esa, slots: 4}\n"
                   "jobs: {window_bytes: 256 KiB}\n")

# A record of the log: time, level, text. Values of foreign origin are in quotes.
RECORD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d [a-z]+ \S")
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')


class BedError(Exception):
    """The bed itself does not work; the text says why."""


class Cgroup:
    """A cgroup for the switch, with a memory limit: version 1 or 2, whichever has the memory
    controller. If `path` is None, no cgroup can be made, and `reason` says why."""

    def __init__(self):
        self.path = None
        self.reason = ""
        name = f"ina-siege-{os.getpid()}"
        for root, limit, usage in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                    "memory.usage_in_bytes"),
                                   ("/sys/fs/cgroup", "memory.max", "memory.current")):
            path = pathlib.Path(root) / name
            try:
                path.mkdir()
                (path / limit).write_text(str(MEMORY_MAX))
                self.path, self.usage_file = path, path / usage
                return
            except OSError as error:
                self.reason = f"no memory cgroup: {error}"
                with contextlib.suppress(OSError):
                    path.rmdir()

    def usage(self):
        """Returns the memory in use without the page cache, such as the log's, which the kernel can
        reclaim."""
        if not self.path:
            return None
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        cache = int(stat["cache"] if "cache" in stat else stat["file"]) - int(stat["shmem"])
        return int(self.usage_file.read_text()) - cache

    def remove(self):
        if not self.path:
            return
        deadline = time.monotonic() + 5
        while self.path.exists() and time.monotonic() < deadline:
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.05)


def children_of(pid):
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def field_of(pid, name):
    match = re.search(rf"^{name}:\s+(\S+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return match[1] if match else "0"


def cpu_seconds(pid):
    """Returns the processor time of a process and its live children."""
    total = 0
    for one in children_of(pid):
        with contextlib.suppress(OSError, IndexError):
            text = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(text[11]) + int(text[12])
    return total / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that takes orders: ina-siege or attacker.py."""

    def __init__(self, command, folder, name, **options):
        self.log = open(folder / f"{name}.err", "ab")
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, cwd="/",
                                        stdout=subprocess.PIPE, stderr=self.log,
                                        start_new_session=True, **options)
        self.did = {}
        self.lost = False
        self.waits = 0

    def order(self, text, wait_s=DEADLINE_S):
        """Sends an order and waits for the answer. False: there is no answer any more, which may be
        the switch's fault."""
        if self.lost:
            return False
        try:
            self.process.stdin.write(f"{text}\n".encode())
            self.process.stdin.flush()
        except OSError:
            self.lost = True
            return False
        self.waits += 1
        return wait_s == 0 or self.answered(wait_s)

    def answered(self, wait_s=DEADLINE_S):
        """Reads all outstanding answers."""
        deadline = time.monotonic() + wait_s
        while self.waits:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return False
            line = self.process.stdout.readline()
            if not line:
                self.lost = True
                return False
            self.did = json.loads(line)
            self.waits -= 1
        return True

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(3)
        # Also kill its children: a file system's server must end before the processes that wait for
        # that file system.
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Sums:
    """The log of a victim (victim.cc)."""

    def __init__(self, path):
        self.path = path

    def count(self):
        with open(self.path, "rb") as file:
            head = file.read(8)
        return int.from_bytes(head, sys.byteorder) if len(head) == 8 else 0

    def since(self, first):
        """Returns (start, end) of each sum from number `first` on."""
        count = self.count()
        with open(self.path, "rb") as file:
            file.seek(8 + 16 * first)
            data = array.array("q", file.read(16 * max(0, count - first)))
        return list(zip(data[::2], data[1::2]))


class Bed:
    def __init__(self, build, *, tenants=True, nofile=None, control="", more="", mapped=0,
                 register_every=0, bridge=False, newcomer_at_bridge=False, listen="", psd=False):
        """`nofile`: the switch's RLIMIT_NOFILE. `mapped`: memory mappings that the switch gets
        besides its own. `register_every`: the victim registers memory each time after this number
        of sums. `bridge`: rank 1 of the victim is behind an ina-memif, which is attacked;
        `newcomer_at_bridge`: so are the newcomer's workers. `listen`: control.listen, for those who
        have a token that nobody else knows. `psd`: all jobs have their fallback in an ina-psd, which
        shares the switch's user and cgroup."""
        self.build = pathlib.Path(build)
        self.nofile = nofile
        self.mapped = mapped
        self.register_every = register_every
        self.switch = None
        self.bridge = None
        self.has_bridge = bridge
        self.psd = None
        self.has_psd = psd
        self.newcomer_at_bridge = newcomer_at_bridge
        self.newcomer = None
        self.figures = {}  # more of the row's results
        self.trouble = ""
        self.victims = []
        self.workers = []
        self.pid_before = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ina-siege-"))
        self.folder.chmod(0o755)
        os.chown(self.folder, SWITCH_UID, SWITCH_UID)
        self.socket = self.folder / "switch.sock"
        self.bridge_folder = self.folder / "bridge"
        # Where attackers connect to.
        self.attacked = self.bridge_folder / "control.sock" if bridge else self.socket
        self.log_path = self.folder / "log"
        self.config = self.folder / "switchd.yaml"
        if psd:
            more += FALLBACK_CONFIG
        if listen:
            control = f'listen: "{listen}", token_file: "{self.token_file()}"'
        self.config.write_text(CONFIG.format(log=self.log_path, socket=self.socket, more=more,
                                             control=control and f", {control}",
                                             tenants=TENANTS if tenants else ""))
        self.cgroup = Cgroup()

    def token_file(self):
        path = self.folder / "tokens"
        path.touch(0o600)
        path.write_text(f"somebody {os.urandom(16).hex()}\n")
        os.chown(path, SWITCH_UID, SWITCH_UID)
        return path

    # The switch

    def as_switch(self, command):
        """Returns a shell command that runs `command` as the switch's user in the switch's cgroup."""
        join = f"echo $$ >{self.cgroup.path}/cgroup.procs && " if self.cgroup.path else ""
        # Killed with this process: a change of the user undoes what Popen could ask for.
        return (f"{join}exec setpriv --reuid {SWITCH_UID} --regid {SWITCH_UID} --clear-groups "
                f"--pdeathsig KILL {command}")

    def start_switch(self):
        load = ""
        if self.mapped:
            load = (f"env LD_PRELOAD={self.build}/tests/siege/libina-siege-mapped.so "
                    f"INA_SIEGE_MAPPED={self.mapped} ")
        command = self.as_switch(f"{load}{self.build}/switchd/ina-switchd --config {self.config}")

        def limit():
            if self.nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.nofile, self.nofile))
        self.log_start = self.log_bytes()
        with open(self.folder / "switch.err", "ab") as errors:
            self.switch = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL,
                                           stdout=errors, stderr=errors, cwd="/",
                                           preexec_fn=limit, start_new_session=True)
        self.wait("ina-switchd to serve", lambda: " serving" in self.log_text(self.log_start))
        if self.has_psd and not self.psd:
            self.start_psd()

    def start_psd(self):
        """Starts the fallback server; returns when the switch knows it."""
        log_start = self.log_bytes()
        with open(self.folder / "psd.err", "ab") as errors:
            self.psd = subprocess.Popen(
                ["sh", "-c", self.as_switch(f"{self.build}/programs/psd/ina-psd --socket "
                                            f"{self.socket}")],
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd="/",
                start_new_session=True)
        self.wait("ina-psd to serve",
                  lambda: "fallback server connected" in self.log_text(log_start), PSD_S)

    def kill_psd(self):
        self.psd.kill()
        self.psd.wait()

    def psd_problem(self):
        """Returns why the fallback server does not serve any more; empty: it does, or there is
        none."""
        if not self.psd or self.psd.poll() is None:
            return ""
        return (f"ina-psd has ended with {self.psd.returncode}: " +
                (self.folder / "psd.err").read_text(errors="replace")[-300:])

    def wait(self, what, condition, wait_s=DEADLINE_S):
        deadline = time.monotonic() + wait_s
        while not condition():
            if self.switch.poll() is not None:
                raise BedError(f"ina-switchd ended with {self.switch.returncode} while the bed "
                               f"waited for {what}:\n{self.switch_errors()}")
            if time.monotonic() > deadline:
                raise BedError(f"waited {wait_s} s in vain for {what}")
            time.sleep(0.01)

    def switch_errors(self):
        return ((self.folder / "switch.err").read_text(errors="replace") +
                self.log_text(max(0, self.log_bytes() - 3000)))

    def kill_switch(self):
        """Sends SIGKILL. False: the switch does not end."""
        self.switch.kill()
        try:
            self.switch.wait(5)
        except subprocess.TimeoutExpired:
            return False
        return True

    def restart_switch(self):
        """Kills the switch and starts it again. False: one of the two failed."""
        if not self.kill_switch():
            return False
        try:
            self.start_switch()
        except BedError as error:
            print(error, file=sys.stderr)
            return False
        return True

    def run_switch_tool(self, *arguments, timeout_s=DEADLINE_S, server=SWITCH_UID):
        """Runs inactl as root, for a socket that the user `server` serves."""
        return subprocess.run([self.build / "programs/inactl/inactl", *map(str, arguments)], cwd="/",
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
                              check=False, env=os.environ | {"INA_SWITCH_USER": str(server)})

    def status(self):
        """Returns the switch's status. None: there is no answer, and `trouble` has the error of
        inactl."""
        try:
            done = self.run_switch_tool("status", "--json", "--socket", self.socket, timeout_s=10)
        except subprocess.TimeoutExpired:
            self.trouble = "inactl status has no answer within 10 s"
            return None
        self.trouble = done.stderr.strip()
        return json.loads(done.stdout) if done.returncode == 0 else None

    def alive(self):
        """Returns whether the switch runs, is not stuck in the kernel, and answers."""
        until = time.monotonic() + STUCK_S
        while self.switch.poll() is None and field_of(self.switch.pid, "State") == "D":
            if time.monotonic() > until:
                self.trouble = "it is stuck in the kernel"
                return False
            time.sleep(0.01)
        return self.switch.poll() is None and self.status() is not None

    def resources(self):
        """Returns the resources of the switch and its children."""
        rss = shared = fds = 0
        for pid in children_of(self.switch.pid):
            with contextlib.suppress(OSError):
                # Children are copies of the switch; the cgroup accounts for their own memory.
                if pid == self.switch.pid:
                    # Shared pages may belong to peers. The cgroup accounts for those that the
                    # switch allocated; without a cgroup all count.
                    shared = int(field_of(pid, "RssShmem")) << 10
                    rss = (int(field_of(pid, "VmRSS")) << 10) - (shared if self.cgroup.path else 0)
                fds += len(os.listdir(f"/proc/{pid}/fd"))
        found = {"rss": rss, "shared": shared, "cgroup": self.cgroup.usage(), "fds": fds,
                 "log": self.log_bytes()}
        if self.bridge:
            found["bridge_rss"] = int(field_of(self.bridge.pid, "VmRSS")) << 10
            found["bridge_fds"] = sum(len(os.listdir(f"/proc/{pid}/fd"))
                                      for pid in children_of(self.bridge.pid))
        if self.psd and self.psd.poll() is None:
            with contextlib.suppress(OSError):
                found["psd_rss"] = int(field_of(self.psd.pid, "VmRSS")) << 10
                found["psd_threads"] = int(field_of(self.psd.pid, "Threads"))
        return found

    def switch_cpu_seconds(self):
        return cpu_seconds(self.switch.pid)

    def psd_cpu_seconds(self):
        return cpu_seconds(self.psd.pid) if self.psd else 0

    def mappings(self):
        try:
            with open(f"/proc/{self.switch.pid}/maps", "rb") as maps:
                return sum(1 for _ in maps)
        except OSError:
            return 0

    # The switch's log

    def log_bytes(self):
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_text(self, start=0):
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as file:
            file.seek(start)
            return file.read().decode("utf-8", "replace")

    def log_problem(self, forged):
        """Returns the first defect of the log as text; empty: there is none. `forged`: the key that
        attackers try to put into the log."""
        for line in self.log_text().split("\n")[:-1]:
            if not RECORD.match(line):
                return f"no record: {line[:200]!r}"
            if CONTROL_CHARACTERS.search(line):
                return f"a control character: {line[:200]!r}"
            if forged in QUOTED.sub("", line):
                return f"forged: {line[:200]!r}"
        return ""

    # The other parties

    def start_bridge(self):
        """Starts an ina-memif that its user, the victim, has opened to others."""
        self.bridge_folder.mkdir()
        os.chown(self.bridge_folder, VICTIM_UID, VICTIM_UID)
        self.bridge_folder.chmod(0o777)
        log = self.folder / "bridge.err"
        with open(log, "ab") as errors:
            self.bridge = subprocess.Popen(
                [self.build / "programs/memif/ina-memif", "--switch", self.socket, "--socket",
                 self.attacked, "--memif", self.bridge_folder / "memif.sock", "--workers", "4",
                 "--mode", "0666"], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd="/",
                start_new_session=True, user=VICTIM_UID, group=VICTIM_UID, extra_groups=[],
                preexec_fn=ended_with_parent())
        self.wait("ina-memif to serve", lambda: " serving" in log.read_text())

    def bridge_problem(self):
        """Returns why the bridge does not serve any more; empty: it does, or there is none."""
        if not self.bridge:
            return ""
        if self.bridge.poll() is not None:
            return (f"ina-memif has ended with {self.bridge.returncode}: " +
                    (self.folder / "bridge.err").read_text(errors="replace")[-300:])
        done = self.run_switch_tool("status", "--json", "--socket", self.attacked, server=VICTIM_UID)
        return "" if done.returncode == 0 else f"ina-memif does not answer: {done.stderr.strip()}"

    def url_of(self, rank):
        if not self.has_bridge or rank == 0:
            return f"shm:{self.socket}"
        return (f"memif:{self.bridge_folder}/memif.sock?id=0&ip=10.0.0.2&mtu=9000"
                f"&control={self.attacked}")

    def start_victims(self):
        if self.has_bridge:
            self.start_bridge()
        self.sums = Sums(self.folder / "sums-0")
        for rank in range(2):
            log = self.folder / f"sums-{rank}"
            log.touch()
            os.chown(log, VICTIM_UID, VICTIM_UID)
            self.victims.append(subprocess.Popen(
                [self.build / "tests/siege/ina-siege-victim", self.url_of(rank), VICTIM, str(rank),
                 "2", str(SUM_ELEMENTS), log, str(self.register_every)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
                user=VICTIM_UID, group=VICTIM_UID, extra_groups=[],
                preexec_fn=ended_with_parent()))
        self.wait("the victim's sums", lambda: self.sums.count() > 50)

    def start_newcomer(self):
        self.newcomer_log = self.folder / "newcomer"
        self.newcomer_log.touch()
        os.chown(self.newcomer_log, NEWCOMER_UID, NEWCOMER_UID)
        where = ([self.attacked, self.newcomer_log, NEWCOMER_INTERFACE] if self.newcomer_at_bridge
                 else [self.socket, self.newcomer_log])
        self.newcomer = Worker([sys.executable, HERE / "newcomer.py", NEWCOMER_UID, *where],
                               self.folder, "newcomer")
        self.wait("the newcomer", lambda: "join" in self.newcomer_log.read_text())

    def newcomer_joined_after(self, time_ns):
        return any(kind == "join" and start > time_ns
                   for kind, start, _, _ in self.newcomer_lines())

    def newcomer_lines(self):
        """Returns (kind, start, end, text) of each line."""
        lines = []
        for line in self.newcomer_log.read_text("utf-8").split("\n")[:-1]:
            kind, start, end, *text = line.split(" ", 3)
            lines.append((kind, int(start), int(end), " ".join(text)))
        return lines

    def attacker(self, name, options, job="attack", uid=ATTACKER_UID):
        """Starts an attacker. `name`: an attack of attacker.py, or "ring:" and an attack of
        ina-siege."""
        if name.startswith("ring:"):
            ids = {"user": uid, "group": uid, "extra_groups": []}
            command = [self.build / "tests/siege/ina-siege", name.removeprefix("ring:"), self.socket, job]
        else:
            ids = {}
            command = [sys.executable, HERE / "attacker.py", uid, name, self.attacked, job,
                       json.dumps(options)]
        worker = Worker(command, self.folder, f"attacker-{len(self.workers)}", **ids)
        self.workers.append(worker)
        return worker

    def attackers_end(self):
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def attacker_errors(self):
        return "".join(path.read_text(errors="replace")[-2000:]
                       for path in sorted(self.folder.glob("*.err")) if "attacker" in path.name)

    def victims_end(self):
        """Ends the victim's job. Returns its error as text; empty: there is none."""
        problem = ""
        self.victims[0].terminate()
        for victim in self.victims:
            try:
                text = victim.communicate(timeout=DEADLINE_S)[0]
            except subprocess.TimeoutExpired:
                victim.kill()
                text = "no end: " + victim.communicate()[0]
            if victim.returncode != 0 or not text.startswith("INA_OK"):
                problem = problem or text.strip()
        return problem

    def close(self):
        for victim in self.victims:
            if victim.poll() is None:
                victim.kill()
                victim.communicate()
        self.attackers_end()
        if self.newcomer:
            self.newcomer.stop()
        if self.bridge:
            with contextlib.suppress(OSError):
                os.killpg(self.bridge.pid, signal.SIGKILL)
            self.bridge.wait()
        if self.psd and self.psd.poll() is None:
            self.kill_psd()
        if self.switch and self.switch.poll() is None:
            self.switch.terminate()
            try:
                self.switch.wait(5)
            except subprocess.TimeoutExpired:
                self.kill_switch()
        # Kill children that a killed switch has left behind.
        if self.switch:
            with contextlib.suppress(OSError):
                os.killpg(self.switch.pid, signal.SIGKILL)
        self.cgroup.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
