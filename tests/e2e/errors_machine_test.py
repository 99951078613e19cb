#!/usr/bin/env python3
"""Errors about missing parts of a machine that have recipes in docs/operations.md, each caused on
purpose: limits of resources, missing libraries, missing helper processes
(tests/support/error_cases.py).

    errors_machine_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import error_cases  # noqa: E402
from error_cases import INACTL, LIBINA, SWITCHD, as_user  # noqa: E402
from libina import errors_of  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

# A user id for one test, so that limits on a user's processes affect this test alone.
OWN_USER = 60000 + os.getpid() % 5000


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class MachineErrorsTest(error_cases.LibraryCases):
    def limit(self, number, most):
        resource.prlimit(self.switch.pid, number, (most, most))

    # ---- libraries

    def test_libraries_that_are_missing(self):
        shutil.copy(LIBINA, self.folder / "libina.so")

        def joins():
            """Joins in another process, whose LD_LIBRARY_PATH does not lead to the libraries of the
            build."""
            code = "import sys, libina; libina.Library(sys.argv[1]).join(sys.argv[2], 'job', 0, 1, timeout_s=0.1)"
            environment = os.environ | {"LD_LIBRARY_PATH": "", "PYTHONPATH": str(error_cases.TESTS / "support")}
            done = subprocess.run([sys.executable, "-B", "-c", code, self.folder / "libina.so",
                                   f"memif:{self.folder}/memif.sock?ip=10.0.0.2"], capture_output=True, text=True, check=False,
                                  timeout=DEADLINE_S, env=environment)
            return done.stderr.partition("libina.InaError: ")[2]

        self.expect("cannot be loaded", joins(), "INA_ERR_UNSUPPORTED")
        shutil.copy(LIBINA, self.folder / "libina-dpdk.so")
        self.expect("does not export …", joins(), "INA_ERR_VERSION")

    # ---- descriptors

    def test_a_switch_without_descriptors(self):
        self.start()
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(line.close)
        line.connect(str(self.socket))
        self.say(line, {"type": "trace"})  # an answer shows that the connection is accepted
        self.limit(resource.RLIMIT_NOFILE, 4)
        self.expect("cannot make", json.loads(self.say(line, {"type": "status"}))["text"])
        self.background([INACTL, "status", "--socket", str(self.socket)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.logs("cannot accept")

    @staticmethod
    def say(line, message):
        line.sendall(json.dumps(message).encode())
        return line.recv(1 << 16)

    def few(self, recipe, call, status=None):
        """Checks the error of a call in this process while it has no descriptor left."""
        most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            text = errors_of(1, lambda rank: call())[0]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        self.expect(recipe, text, status)

    def test_programs_without_descriptors(self):
        self.start()
        # One is left, for the loader.
        taken = "for n in {3..14}; do eval \"exec $n</dev/null\"; done; exec \"$@\""
        done = subprocess.run(["prlimit", "--nofile=16", "bash", "-c", taken, "bash", INACTL, "status", "--socket", str(self.socket)],
                              capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        self.expect("no descriptor left", done.stderr)
        context = self.job_of(1, "job")[0]
        self.few("no descriptor is left", lambda: context.call("completion_fd", ctypes.byref(ctypes.c_int())), "INA_ERR_NO_MEMORY")
        self.few("cannot create", lambda: self.job_of(1, "other"), "INA_ERR_NO_MEMORY")

    def test_a_switch_without_memory(self):
        self.start(jobs="{window_bytes: 4MiB}")
        pages = int(pathlib.Path(f"/proc/{self.switch.pid}/statm").read_text().split()[0])
        self.limit(resource.RLIMIT_AS, pages * resource.getpagesize())
        self.fails("cannot map", lambda: self.job_of(1, "large"), "INA_ERR_NO_MEMORY")

    # ---- starts

    def ends(self, recipe, *command, uid=0, **sections):
        """Checks the error with which a switch does not start. `command`: the prefix of its command
        line."""
        self.write(**sections)
        fresh = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        os.chown(fresh, uid, uid)
        done = subprocess.run([*as_user(uid), *command, SWITCHD, "--config", str(self.config), "--socket", str(fresh / "switch.sock")],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 1, done)
        self.expect(recipe, done.stderr)
        return done.stderr

    def test_starts(self):
        # The limits stop the first process that the switch starts, and the process that this one
        # starts.
        for most in (1, 2):
            said = self.ends("takes descriptors from workers", "prlimit", f"--nproc={most}", uid=OWN_USER)
            self.assertIn(os.strerror(errno.EAGAIN), said)
        self.expect("cannot start", said)
        self.ends("DPDK could not start", eal='{huge: no, telemetry: true, extra_args: ["--nonsense"]}')
        self.ends("Device …", ports='[{name: shm0, type: shm}, {name: null0, type: ethdev, ip: 10.0.0.1, device: "net_null0,size=0xffffffff"}]')
        two_queues = "ip link add two numrxqueues 2 numtxqueues 2 type veth peer name peer && exec \"$@\""
        self.ends("receive queues, and its device takes", "unshare", "-n", "sh", "-c", two_queues, "sh",
                  ports='[{name: shm0, type: shm}, {name: xdp0, type: ethdev, ip: 10.0.0.1, device: "net_af_xdp0,iface=two"}]')

    # ---- the doorman

    def doorman(self):
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.switch.pid:
                try:
                    if os.getpgid(int(entry.name)) == self.switch.pid:
                        return int(entry.name)
                except ProcessLookupError:
                    pass
        return None

    def test_a_switch_whose_doorman_is_gone(self):
        self.start()
        os.kill(self.doorman(), signal.SIGKILL)
        self.fails("ina-doorman", lambda: self.job_of(1, "job"))

    def test_a_switch_whose_doorman_stands_still(self):
        self.start()
        doorman = self.doorman()
        os.kill(doorman, signal.SIGSTOP)
        self.addCleanup(os.kill, doorman, signal.SIGCONT)
        file = os.memfd_create("file")
        self.addCleanup(os.close, file)

        def connects():
            """Leaves descriptors behind that nobody closes. Finally the switch accepts no
            connection."""
            for _ in range(100):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
                    line.settimeout(0.01)
                    with contextlib.suppress(OSError):
                        line.connect(str(self.socket))
                        socket.send_fds(line, [b'{"type":"attach"}'], [file])
            return "too many connections wait to be closed" in self.log()

        wait_until("a switch that accepts no more", connects)
        self.logs("too many connections wait to be closed")


if __name__ == "__main__":
    error_cases.main()
