#!/usr/bin/env python3
"""Tests the unit files as systemd reads them; the switch's messages to a service manager, that it
serves and that all its packet loops live; and the fields of its records in the journal.

    systemd_test.py UNITS INA_SWITCHD INA_PSD INA_MEMIF

UNITS is the folder of the unit files as they are installed.
"""

import contextlib
import ctypes
import json
import operator
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from own_systemd import documented_exposures  # noqa: E402

DEADLINE_S = 600
WATCHDOG_S = 1
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
SCORED_BY = "systemd 252 "  # the version of the scores in docs/operations.md


def analyze(*arguments, **options):
    return subprocess.run(["systemd-analyze", *arguments], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=False, **options)


def check_units(units, folder):
    """systemd must know every setting, and find the exposure that docs/operations.md states."""
    documented = documented_exposures()
    found = sorted(unit.stem for unit in units.glob("*.service"))
    assert found == sorted(documented), found
    for name, stated in documented.items():
        text = (units / f"{name}.service").read_text()
        assert "@" not in re.sub(r"@(system-service|keyring|privileged)\b", "", text), text
        # Before the installation, programs and manual pages are elsewhere.
        text = re.sub(r"^(ExecStart(?:Pre)?=)\S+", r"\1/bin/true", text, flags=re.MULTILINE)
        text = re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE)
        unit = folder / f"{name}.service"
        unit.write_text(text)
        verified = analyze("verify", "--recursive-errors=no", "--man=no", unit)
        said = [line for line in verified.stderr.splitlines() if name in line]
        assert not said and verified.returncode == 0, verified
        security = analyze("security", "--offline=yes", "--no-pager", unit)
        exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", security.stdout)
        assert exposure, security
        # Later versions of systemd look at more.
        fits = operator.eq if SCORED_BY in analyze("--version").stdout else operator.le
        assert fits(float(exposure.group(1)), stated), (name, stated, security.stdout)


class Manager:
    """The socket through which a service notifies its manager."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))

    def hear(self, seconds):
        """Returns the next message, as a set of its lines. Empty: there was none."""
        if not select.select([self.socket], [], [], seconds)[0]:
            return set()
        return set(self.socket.recv(4096).decode().split("\n"))

    def hear_until(self, line):
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if line in (heard := self.hear(1)):
                return heard
        raise RuntimeError(f"no {line}")

    def forget(self):
        while self.hear(0):
            pass


@contextlib.contextmanager
def frozen(thread):
    """Stops a single thread of a process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request):
        if libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")

    ptrace(PTRACE_SEIZE)
    ptrace(PTRACE_INTERRUPT)
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH)


def lanes_of(process):
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    return [int(task.name) for task in tasks.iterdir()
            if (task / "comm").read_text().startswith("ina-lane-")]


def check_watchdog(program, folder):
    manager = Manager(folder)
    config = folder / "switchd.yaml"
    config.write_text("eal: {huge: no}\nswitch: {lcores: 2}\nlog: {level: warning}\n")
    environment = os.environ | {"NOTIFY_SOCKET": str(manager.path),
                                "WATCHDOG_USEC": str(WATCHDOG_S * 1_000_000)}
    command = [program, "--config", config, "--socket", folder / "switch.sock"]
    # ExecStartPre must not notify the watchdog.
    subprocess.run([*command, "--check"], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert not manager.hear(0)
    process = subprocess.Popen([str(word) for word in command], env=environment)
    try:
        manager.hear_until("READY=1")
        assert (folder / "switch.sock").exists()
        for _ in range(4):
            assert "WATCHDOG=1" in manager.hear(WATCHDOG_S)
        lanes = lanes_of(process)
        assert len(lanes) == 2, lanes
        with frozen(lanes[1]):
            time.sleep(WATCHDOG_S)
            manager.forget()
            assert not manager.hear(3 * WATCHDOG_S), "fed although a packet loop stands"
        manager.hear_until("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        manager.hear_until("STOPPING=1")
        assert process.wait(DEADLINE_S) == 0
        # Without a manager the switch behaves the same.
        environment.pop("NOTIFY_SOCKET")
        process = subprocess.Popen([str(word) for word in command], env=environment)
        deadline = time.monotonic() + DEADLINE_S
        while not (folder / "switch.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
        assert not manager.hear(0)
    finally:
        process.kill()
        process.wait()


def check_journal(command, folder, record, fields, ends_with=0):
    """Runs a program in a mount namespace, in which a socket of this test replaces journald's, until
    the program has written `record`. `fields`: some of those of the record, the line among them."""
    journal = folder / "journal"
    journal.mkdir(exist_ok=True)
    (journal / "socket").unlink(missing_ok=True)
    inside = ('mount -t tmpfs none /run/systemd && mkdir -p /run/systemd/journal && '
              'mount --bind "$0" /run/systemd/journal && exec "$@"')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as records:
        records.bind(str(journal / "socket"))
        records.settimeout(DEADLINE_S)
        pathlib.Path("/run/systemd").mkdir(exist_ok=True)
        process = subprocess.Popen(["unshare", "-m", "sh", "-c", inside, str(journal), *command])
        try:
            while f"\nINA_RECORD={record}\n" not in (heard := "\n" + records.recv(1 << 16).decode()):
                pass
            for field in fields:
                assert "\n" + field in heard, heard
        finally:
            if ends_with == 0:  # otherwise it ends by itself
                process.terminate()
            assert process.wait(DEADLINE_S) == ends_with


def check_journals(program, psd, memif, folder):
    if os.getuid() != 0:
        print("the journal was not looked at: that needs root")
        return
    config = folder / "journal.yaml"
    config.write_text("eal: {huge: no}\nlog: {format: journal}\n")
    serve = [program, "--config", str(config), "--socket", str(folder / "journal.sock")]
    if not pathlib.Path("/run/systemd/journal/socket").exists():
        for command in ([*serve, "--check"], [psd, "--log-format", "journal"],
                        [memif, "--log-format", "journal"]):
            refused = subprocess.run(command, text=True, capture_output=True, check=False,
                                     timeout=DEADLINE_S)
            assert refused.returncode == 1 and "needs journald" in refused.stderr, refused
    check_journal(serve, folder, "serving", ("PRIORITY=6\n", "INA_LCORES=1\n", "INA_POLICY=static\n",
                                             'MESSAGE=serving version="'))
    check_journal([*without_switch(psd, folder), "journal"], folder, "trying again",
                  ("PRIORITY=4\n", "INA_TEXT=no switch at socket", 'MESSAGE=trying again text="'))
    check_journal([*wrong_address(memif), "journal"], folder, "cannot start",
                  ("PRIORITY=2\n", "INA_TEXT=--ip: ", 'MESSAGE=cannot start text="'), ends_with=2)


def without_switch(psd, folder):
    return [psd, "--socket", str(folder / "none.sock"), "--log-format"]


def wrong_address(memif):
    return [memif, "--ip", "nowhere", "--log-format"]


def check_json(psd, memif, folder):
    """Programs without a configuration write their log as JSON if an option says so."""
    with subprocess.Popen([*without_switch(psd, folder), "json"], stderr=subprocess.PIPE,
                          text=True) as process:
        line = process.stderr.readline()
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    done = subprocess.run([*wrong_address(memif), "json"], text=True, capture_output=True,
                          check=False, timeout=DEADLINE_S)
    for said, level, message in ((line, "warning", "trying again"),
                                 (done.stderr, "critical", "cannot start")):
        record = json.loads(said)
        assert (record["level"], record["message"]) == (level, message), said
        assert record["text"] and record["time"], said


def main(units, program, psd, memif):
    if not shutil.which("systemd-analyze"):
        sys.exit("systemd-analyze is missing: ./dev setup installs it (packages-tests.txt)")
    with tempfile.TemporaryDirectory(prefix="ina-systemd-") as name:
        check_units(pathlib.Path(units), pathlib.Path(name))
        check_watchdog(program, pathlib.Path(name))
        check_journals(program, psd, memif, pathlib.Path(name))
        check_json(psd, memif, pathlib.Path(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
