#!/usr/bin/env python3
"""Tests the unit of the switch under a real systemd, which is process 1 of its own namespaces. The
test covers start, the process's rights, a reload, a restart after a kill, the watchdog, an upgrade,
a wrong configuration, and a stop, all while a job runs. With af_packet or af_xdp instead: a port of this
kind, with the unit of the fallback server at its other end.

    service_test.py BUILD PREFIX [af_packet | af_xdp]

The root folder of the namespaces is this machine's with a memory file system over it, so that no files of the test
remain. Programs of the folder BUILD are copied below PREFIX: BUILD may lie where the units see nothing, such as below
/tmp or /home. Needs root, a cgroup2 mount and overlayfs; ends with 77 without them.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from own_systemd import AF_PACKET, AF_XDP, booted, linked_server, obstacle, wait_for  # noqa: E402

SKIPPED = 77
PROGRAMS = ("switchd/ina-switchd", "programs/inactl/inactl", "programs/psd/ina-psd", "tests/switchd/load_worker")
LIBRARIES = ("client/libina.so.0", "control/libina-tls.so")
DEADLINE_S = 600
SOCKET = "/run/ina/switch.sock"
# Shorter than in the unit, whose timeout allows for busy machines.
DROP_IN = "[Service]\nWatchdogSec=4\n"

# Makes the new root. $1: folder for the memory file system, $2: files to lay over the root.
OVERLAY = r"""
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
cp -a "$2/." "$1/upper/"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cd "$1/root"
"""


def copy_programs(build, prefix, over):
    """Puts programs into `prefix`/bin. They find their libraries by paths within the build, so links lead to copies
    that lie as in the build."""
    copies = prefix / "lib/ina-build"
    (over / prefix.relative_to("/") / "bin").mkdir(parents=True)
    for name in PROGRAMS + LIBRARIES:
        place = over / (copies / name).relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build / name, place)
        if name in PROGRAMS:
            (over / prefix.relative_to("/") / "bin" / place.name).symlink_to(copies / name)


def lay_out(over, build, prefix):
    """Writes the files that are laid over this machine's: the installation, and the necessary part
    of systemd's own files."""
    system = over / "etc/systemd/system"
    system.mkdir(parents=True)
    # Opaque: hides all units that this machine has enabled.
    os.setxattr(system, "trusted.overlay.opaque", b"y")
    (system / "ina-test.target").write_text("[Unit]\nDescription=INA test\n")
    for unit in (build / "conf/systemd").glob("*.service"):
        shutil.copy(unit, system / unit.name)
    drop_in = system / "ina-switchd.service.d"
    drop_in.mkdir()
    (drop_in / "test.conf").write_text(DROP_IN)
    copy_programs(build, prefix, over)
    config = over / prefix.relative_to("/") / "etc" if prefix != pathlib.Path("/usr") else over / "etc"
    (config / "ina").mkdir(parents=True)
    (config / "default").mkdir()
    shutil.copy(ROOT / "conf/host.yaml", config / "ina/switchd.yaml")
    (over / "etc/sysusers.d").mkdir()
    shutil.copy(ROOT / "conf/systemd/ina.sysusers", over / "etc/sysusers.d/ina.conf")
    return "/" + str((config / "ina/switchd.yaml").relative_to(over))


def sums(system):
    """Returns the number of the job's results so far, as counted by the running switch. -1: there
    is no such job."""
    found = system.run("inactl", "job", "show", "train", "--json", "--timeout", "20s", check=False).stdout
    marker = '"results": '
    return int(found.split(marker)[1].split(",")[0].split("\n")[0]) if marker in found else -1


def check_job_goes_on(system, workers):
    wait_for("the job's results", lambda: sums(system) > 0)
    before = sums(system)
    wait_for("more results", lambda: sums(system) > before)
    assert all(worker.poll() is None for worker in workers)


def check_confinement(system):
    pid = system.show("MainPID")
    status = dict(line.split(":\t", 1) for line in system.run("cat", f"/proc/{pid}/status").stdout.splitlines() if ":\t" in line)
    assert status["CapEff"].strip("0") == "" and status["CapPrm"].strip("0") == "", status
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    uid = int(status["Uid"].split()[0])
    assert uid == int(system.run("id", "-u", "ina").stdout), status
    # ProtectSystem must be in effect inside of the service.
    touched = system.run("nsenter", "-t", pid, "-m", "touch", "/usr/ina-was-here", check=False)
    assert touched.returncode != 0 and "Read-only" in touched.stderr, touched


def check(system, config):
    systemctl = lambda *words, **options: system.run("systemctl", *words, **options)  # noqa: E731
    system.run("systemd-sysusers")
    systemctl("start", "ina-switchd")
    assert system.show("ActiveState") == "active" and system.show("Type") == "notify"
    check_confinement(system)
    workers = [subprocess.Popen(system.command("load_worker", f"shm:{SOCKET}", "train", rank, "2", "20000", "-1", "1"),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        check_job_goes_on(system, workers)

        first = system.show("MainPID")
        systemctl("reload", "ina-switchd")
        assert system.show("MainPID") == first
        check_job_goes_on(system, workers)

        systemctl("kill", "--signal=KILL", "--kill-whom=main", "ina-switchd")
        wait_for("a restart", lambda: system.show("MainPID") not in (first, "0"))
        check_job_goes_on(system, workers)

        second = system.show("MainPID")
        systemctl("kill", "--signal=STOP", "--kill-whom=main", "ina-switchd")
        wait_for("the watchdog", lambda: system.show("MainPID") not in (second, "0"))
        assert system.show("NRestarts") == "2", system.show("NRestarts")
        check_job_goes_on(system, workers)

        third = system.show("MainPID")
        systemctl("restart", "ina-switchd")
        assert system.show("MainPID") != third and system.show("ActiveState") == "active"
        check_job_goes_on(system, workers)

        # A wrong configuration keeps the next switch from starting, with an immediate error.
        system.run("cp", config, "/tmp/kept")
        system.run("sh", "-c", f"echo 'no_such_key: 1' >>{config}")
        systemctl("stop", "ina-switchd")
        started = systemctl("start", "ina-switchd", check=False)
        assert started.returncode != 0, started
        wait_for("the failed check", lambda: system.show("ExecMainStatus") != "" and "status=2" in
                 systemctl("status", "ina-switchd", "--no-pager", check=False).stdout)
        system.run("cp", "/tmp/kept", config)
        systemctl("reset-failed", "ina-switchd")
        systemctl("start", "ina-switchd")
        check_job_goes_on(system, workers)

        for worker in workers:
            worker.kill()
        systemctl("stop", "ina-switchd")
        assert system.show("ActiveState") == "inactive" and system.show("Result") == "success"
        assert system.run("ls", SOCKET, check=False).returncode != 0
        assert system.run("ls", f"{SOCKET}.state").returncode == 0, "the state outlives a stop"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def check_port(system, config, kind):
    """The unit, with the documented capabilities, lets the switch have such a port. That of ina-psd lets it
    serve there over UDP, which takes a list of the host's addresses."""
    text = system.path(config).read_text()
    assert "slot_bytes: 8 KiB" in text, text
    drop_in = system.path("/etc/systemd/system/ina-switchd.service.d/port.conf")
    drop_in.write_text(kind.drop_in)
    with linked_server(system, SOCKET, kind) as server:
        fits = text.replace("slot_bytes: 8 KiB", f"slot_bytes: {(kind.mtu - 100) // 64 * 64}")
        system.path(config).write_text(fits + server.config)
        system.path(config).parent.parent.joinpath("default/ina-psd").write_text(server.arguments)
        system.run("systemctl", "daemon-reload")
        system.run("systemctl", "start", "ina-switchd", "ina-psd")
        workers = [subprocess.Popen(system.command("load_worker", f"shm:{SOCKET}", "train", rank, "2", "20000", "100", "1"),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
        try:
            # Without the server no job of the switch begins.
            said = [worker.communicate(timeout=DEADLINE_S)[0] for worker in workers]
            assert all(line.startswith("INA_OK") for line in said), said
            assert system.show("NRestarts", "ina-psd") == "0", "the server started again"
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        system.run("systemctl", "stop", "ina-psd", "ina-switchd")
        assert system.show("Result", "ina-psd") == "success"


def main(build, prefix, kind=None):
    port = {None: None, "af_packet": AF_PACKET, "af_xdp": AF_XDP}[kind]
    why_not = obstacle() or (port and port.obstacle())
    if not why_not and not pathlib.Path("/lib/systemd/systemd").exists():
        why_not = "there is no /lib/systemd/systemd"
    if why_not:
        print(f"no systemd of its own: {why_not}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="ina-service-") as name:
        folder = pathlib.Path(name)
        over, memory, log = folder / "over", folder / "memory", folder / "log"
        over.mkdir()
        memory.mkdir()
        config = lay_out(over, *map(pathlib.Path, (build, prefix)))
        try:
            with booted(OVERLAY, (memory, over), log, "ina-test.target", "console") as system:
                if port:
                    check_port(system, config, port)
                else:
                    check(system, config)
        except BaseException:
            print(log.read_text(errors="replace")[-4000:] if log.exists() else "no log of systemd", file=sys.stderr)
            raise


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(*sys.argv[1:])
