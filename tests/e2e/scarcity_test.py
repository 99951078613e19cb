#!/usr/bin/env python3
"""Tests programs where the disk is full or a limit of the process is too low: they say so, and what to
do, on standard error; what was saved stays; and nothing is written to a log of another switch.

    scarcity_test.py INA_SWITCHD INACTL INA_PSD INA_MEMIF

As root, for a small file system of its own; without, these cases are skipped.
"""

import contextlib
import ctypes
import json
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from waiting import DEADLINE_S, wait_until  # noqa: E402

CONFIG = ("aggregator: {{slots: 4096, slot_bytes: 1024, policy: esa}}\njobs: {{window_bytes: 64 KiB}}\n"
          "eal: {{huge: no}}\ncontrol: {{socket: {socket}}}\n")
SWITCHD, INACTL, PSD, MEMIF = sys.argv[1:5]


def run(*command, limits=(), **options):
    """Runs a program to its end. `limits`: pairs of a resource and its limit."""
    def lower():
        for kind, most in limits:
            resource.setrlimit(kind, (most, most))
    return subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=DEADLINE_S,
                          preexec_fn=lower, **options)


@contextlib.contextmanager
def switch(config, socket):
    process = subprocess.Popen([SWITCHD, "--config", config], stderr=subprocess.PIPE, text=True)
    try:
        wait_until("the switch", lambda: run(INACTL, "status", "--socket", socket).returncode == 0)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def write_config(folder, **more):
    socket = folder / "switch.sock"
    config = folder / "switchd.yaml"
    config.write_text(CONFIG.format(socket=socket) + "".join(f"{key}: {value}\n" for key, value in more.items()))
    return config, socket


# ---- limits


def check_limits(folder):
    config, socket = write_config(folder)
    cases = (("ulimit -n", resource.RLIMIT_NOFILE, 20), ("ulimit -f", resource.RLIMIT_FSIZE, 0),
             ("ulimit -s", resource.RLIMIT_STACK, 128 << 10), ("ulimit -v", resource.RLIMIT_AS, 240 << 20))
    for text, kind, most in cases:
        for more in ((), ("--check",)):
            ended = run(SWITCHD, "--config", config, *more, limits=[(kind, most)])
            assert ended.returncode == 1 and text in ended.stderr, (text, more, ended)
    for program in ([PSD, "--url", f"shm:{socket}"], [MEMIF, "--switch", socket, "--workers", "1"]):
        for text, kind, most in cases[:2]:
            ended = run(*program, limits=[(kind, most)])
            assert ended.returncode in (1, 2) and text in ended.stderr, (program, text, ended)
    ended = run(INACTL, "tenants", "--socket", socket, limits=[(resource.RLIMIT_NOFILE, 6)])
    assert ended.returncode == 1 and "ulimit -n" in ended.stderr, ended


# ---- the log


def check_log(folder):
    """A second start fails, says why on standard error, and leaves the first one's log alone."""
    log = folder / "log"
    config, socket = write_config(folder, log=f"{{file: {log}}}")
    with switch(config, socket):
        wait_until("its log", lambda: "serving" in log.read_text())
        before = log.read_text()
        ended = run(SWITCHD, "--config", config)
        assert ended.returncode == 1 and "another switch" in ended.stderr, ended
        assert log.read_text() == before
    config.write_text(config.read_text() + "admin: {socket: /proc/none/admin}\n")
    ended = run(SWITCHD, "--config", config)
    assert ended.returncode == 1 and "/proc/none/admin" in ended.stderr, ended
    assert log.read_text() == before


# ---- the disk


@contextlib.contextmanager
def own_disk(folder):
    """Mounts a small file system there, for this process and its children alone. Tells whether it may."""
    libc = ctypes.CDLL(None, use_errno=True)
    CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        yield False
        return
    MNT_DETACH = 2
    try:
        yield libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, b"size=512k") == 0
    finally:
        libc.umount2(str(folder).encode(), MNT_DETACH)


def fill(folder):
    file = folder / "full"
    with file.open("wb", buffering=0) as out:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(b"x" * size)
    return file


def create(socket, name):
    return run(INACTL, "create", name, "--workers", "2", "--socket", socket)


def jobs(socket):
    status = json.loads(run(INACTL, "status", "--json", "--socket", socket).stdout)
    return sorted(job["name"] for job in status["jobs"])


def check_disk(folder):
    disk = folder / "disk"
    disk.mkdir()
    with own_disk(disk) as mounted:
        if mounted:
            check_full(folder, disk)
        else:
            print("no file system of its own: cases of a full disk are left out")


def check_full(folder, disk):
    config, socket = write_config(folder, log=f"{{file: {disk / 'log'}}}")
    config.write_text(config.read_text().replace(f"socket: {socket}", f"socket: {socket}, state: {disk / 'state'}"))
    with switch(config, socket) as process:
        assert create(socket, "kept").returncode == 0
        full = fill(disk)
        # A few more jobs have room in the file's own steps; then none is made that would be forgotten.
        made = ["kept"]
        while (ended := create(socket, f"job{len(made)}")).returncode == 0:
            made.append(f"job{len(made)}")
            assert len(made) < 60, "the file grows without room"
        assert ended.returncode == 1 and "INA_TICKET" not in ended.stdout, ended
        assert "the job was not made: " in ended.stderr and "No space left" in ended.stderr, ended
        assert jobs(socket) == sorted(made)
        process.send_signal(signal.SIGKILL)
        process.wait()
    ended = run(SWITCHD, "--check", "--config", config)
    assert ended.returncode == 0, ended
    with switch(config, socket):
        assert jobs(socket) == sorted(made), "after a kill with a full disk"
        full.unlink()
        assert create(socket, "later").returncode == 0
    # What cannot be read says what to do.
    text = (disk / "state").read_text()
    for broken in (text[:len(text) // 3], "{}", "\0" * 100, text.replace('"boots"', '"boot"')):
        (disk / "state").write_text(broken)
        ended = run(SWITCHD, "--config", config)
        assert ended.returncode == 1 and "is damaged" in ended.stderr and "remove it" in ended.stderr, ended
    (disk / "state").unlink()
    (disk / "state.spare").unlink()
    fill(disk)
    for more in ((), ("--check",)):
        ended = run(SWITCHD, "--config", config, *more)
        assert ended.returncode == 1 and "free some space" in ended.stderr, (more, ended)


def main():
    for check in (check_limits, check_log, check_disk):
        with tempfile.TemporaryDirectory(prefix="ina-scarcity-") as folder:
            check(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
