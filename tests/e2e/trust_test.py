#!/usr/bin/env python3
"""Whom the clients of a unix socket take for a switch: each client meets a server of another user, to
which it must say nothing.

    trust_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import error_cases  # noqa: E402
from error_cases import INACTL, LOAD_WORKER, MEMIF, NOBODY, PSD, SWITCHD, as_user  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

REFUSED = "… is served by user …, who is neither root nor this user"
OTHER = 4711  # a user that the machine does not know

# Serves a socket, and prints for each connection how many bytes came.
FALSE_SWITCH = """
import socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
server.listen(8)
print("listens", flush=True)
while True:
    there, _ = server.accept()
    there.settimeout(2)
    try:
        print(len(there.recv(1 << 16)), flush=True)
    except TimeoutError:
        print("timed out", flush=True)
"""

# Has the rest of the script run with a /run of its own, and a switch of the user in /run/SERVICE.
IN_OWN_RUN = """
set -e
mount -t tmpfs -o mode=755 none /run
mkdir -p "$(dirname "$1")"
chown {user} "$(dirname "$1")"
setpriv --reuid={user} --regid={user} --clear-groups {switchd} --config {config} --socket "$1" 2>/run/log &
switch=$!
{inactl} status --socket "$1" --timeout 20s >/run/status || status=$?
kill $switch && wait $switch || true
exit ${{status:-0}}
"""


class TrustTest(error_cases.Cases):
    def setUp(self):
        super().setUp()
        self.folder.chmod(0o1777)

    @contextlib.contextmanager
    def false_switch(self, path, uid=NOBODY):
        """Yields a function that returns what came over each connection, once `count` were made."""
        server = self.background([*as_user(uid), sys.executable, "-c", FALSE_SWITCH, str(path)],
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(server.stdout.readline(), "listens\n")
        yield lambda count: [server.stdout.readline().strip() for _ in range(count)]
        server.kill()
        server.wait()
        path.unlink()

    def names(self, text, path, uid=NOBODY):
        self.expect(REFUSED, text)
        self.assertIn(str(path), text)
        self.assertIn(f"INA_SWITCH_USER={uid}", text)

    def start_as(self, uid):
        self.write()
        self.switch = self.logged([*as_user(uid), SWITCHD, "--config", str(self.config), "--socket", str(self.socket)])
        wait_until("the switch", self.socket.exists)

    # ---- a false switch

    def test_workers_say_nothing(self):
        for user in (NOBODY, OTHER):
            for url in ("shm:{}", "udp:127.0.0.1?control={}"):
                with self.false_switch(self.socket, uid=user) as heard:
                    said = self.said(self.rank("job", 0, url=url.format(self.socket)))
                    self.names(said, self.socket, user)
                    self.assertTrue(said.startswith("INA_ERR_REFUSED "), said)
                    self.assertEqual(heard(1), ["0"])

    def test_workers_do_not_even_connect_to_a_false_memif(self):
        path = self.folder / "memif.sock"
        with self.false_switch(path):
            said = self.said(self.rank("job", 0, url=f"memif:{path}?ip=10.0.0.2&control={self.socket}"))
            self.names(said, path)

    def test_inactl_says_nothing(self):
        admin = pathlib.Path(f"{self.socket}.admin")
        for command in (["status"], ["top", "--once"], ["why"], ["job", "show", "job"], ["port", "show"]):
            with self.false_switch(self.socket) as heard:
                done = self.inactl(*command)
                self.assertEqual(done.returncode, 3, done)
                self.names(done.stderr, self.socket)
                self.assertEqual(heard(1), ["0"])
        for command in (["create", "job", "--workers", "2"], ["undrain"], ["abort", "job"], ["tenants"], ["reload"],
                        ["trace", "job"]):
            with self.false_switch(admin) as heard:
                done = self.inactl(*command)
                self.assertEqual(done.returncode, 3, done)
                self.names(done.stderr, admin)
                self.assertEqual(heard(1), ["0"])

    def test_the_fallback_server_says_nothing(self):
        with self.false_switch(self.socket) as heard:
            done = subprocess.run([PSD, "--socket", str(self.socket)], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, 1, done)
            self.names(done.stderr, self.socket)
            self.assertEqual(heard(1), ["0"])

    def test_the_bridge_says_nothing(self):
        own = self.folder / "bridge.sock"
        with self.false_switch(self.socket) as heard:
            self.logged([MEMIF, "--switch", str(self.socket), "--socket", str(own), "--memif", str(self.folder / "memif.sock"),
                         "--workers", "1"])
            wait_until("ina-memif", own.exists)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
                worker.settimeout(DEADLINE_S)
                worker.connect(str(own))
                worker.sendall(json.dumps({"type": "status"}).encode())
                self.names(json.loads(worker.recv(1 << 16))["text"], self.socket)
            self.assertEqual(heard(1), ["0"])

    def test_a_switch_that_comes_back_as_another_is_refused(self):
        self.start()
        ranks = self.run_job("job", INA_REJOIN_TIMEOUT_US="2000000")
        self.stop(signal.SIGKILL)
        self.socket.unlink()
        with self.false_switch(self.socket) as heard:
            for rank in ranks:
                self.names(self.said(rank), self.socket)
            self.assertEqual(set(heard(2)), {"0"})

    # ---- one that is trusted

    def test_a_user_that_is_named_is_trusted(self):
        self.start_as(NOBODY)
        for user in ("nobody", str(NOBODY)):
            ranks = [self.rank("job", number, times=10, INA_SWITCH_USER=user) for number in range(2)]
            for rank in ranks:
                self.assertTrue(self.said(rank).startswith("INA_OK"))
        for command in (["status"], ["undrain"]):
            done = subprocess.run([INACTL, *command, "--socket", str(self.socket)], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False, timeout=DEADLINE_S,
                                  env=os.environ | {"INA_SWITCH_USER": "nobody"})
            self.assertEqual(done.returncode, 0, done)
        for user in ("no-such-user", "-1", "99999999999"):
            said = self.said(self.rank("job", 0, INA_SWITCH_USER=user))
            self.assertTrue(said.startswith("INA_ERR_INVALID "), said)
            self.assertIn(f"INA_SWITCH_USER='{user}'", said)
        self.names(self.said(self.rank("job", 0, INA_SWITCH_USER="daemon")), self.socket)

    def test_root_and_the_own_user_are_trusted(self):
        self.start_as(NOBODY)
        own = subprocess.run([*as_user(NOBODY), LOAD_WORKER, f"shm:{self.socket}", "job", "0", "1", "1000", "10", "1"],
                             capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        self.assertTrue(own.stdout.startswith("INA_OK"), own)
        self.stop()
        pathlib.Path(f"{self.socket}.state").unlink()
        self.start(control="{mode: 0666}")
        for uid in (NOBODY, OTHER):
            done = subprocess.run([*as_user(uid), LOAD_WORKER, f"shm:{self.socket}", "job", "0", "1", "1000", "10", "1"],
                                  capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            self.assertTrue(done.stdout.startswith("INA_OK"), done)

    def test_services_have_folders_in_run(self):
        self.write()
        script = IN_OWN_RUN.format(user=NOBODY, switchd=SWITCHD, inactl=INACTL, config=self.config)
        for path, status in (("/run/service/switch.sock", 0), ("/run/../run/service/./switch.sock", 0),
                             ("/run/user/65534/switch.sock", 3), ("/run/service/deeper/switch.sock", 3)):
            done = subprocess.run(["unshare", "--mount", "bash", "-c", script, "bash", path], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, status, (path, done))
            if status:
                self.names(done.stderr, path)


if __name__ == "__main__":
    error_cases.main()
