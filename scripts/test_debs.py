#!/usr/bin/env python3
"""Installs the packages of a folder in a small Debian system of its own, has two ranks sum an array
over the installed switch, and purges all packages: no files or users may remain. First in a chroot,
in which nothing starts services, where autopkgtest runs the packages' own tests, too; these compile
programs against libina-dev. Then with a systemd that has booted (deb_services.py).

    test_debs.py FOLDER

Needs root, mmdebstrap and the package sources of this machine. The second part says why it is left
out where namespaces of its own are not to be had.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import deb_services
from debian_root import accounts_of, check_nothing_left, contents, entering, mounting

DEADLINE_S = 600
LONGEST_INSTALL_S = 60
TREE = pathlib.Path(__file__).resolve().parent.parent


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL, text=True,
                          timeout=DEADLINE_S, **options)


def inside(root, *command, **options):
    print("+", *command, flush=True)
    return run(*entering(root, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", *command), **options)


def check_use(root):
    """Starts the installed switch as its unit does, and runs the package's own test with two
    ranks."""
    config = "/etc/ina/switchd.yaml"
    inside(root, "ina-switchd", "--version")
    inside(root, "install", "-d", "-o", "ina", "-g", "ina", "-m", "750", "/run/ina")
    inside(root, "setpriv", "--reuid=ina", "--regid=ina", "--clear-groups", "ina-switchd", "--check", "--config", config)
    inside(root, "env", "AUTOPKGTEST_TMP=/tmp", "/packages/first-allreduce")
    pages = inside(root, "find", "/usr/share/man", "-name", "ina*", stdout=subprocess.PIPE).stdout
    assert pages.count(".gz") == 7, pages


def check_autopkgtest(packages, root):
    """Runs the packages' tests with Debian's tool for it, which installs the packages and what the
    tests depend on."""
    source = root.parent / "source"
    source.mkdir()
    run("cp", "-r", TREE / "debian", source)  # the tests, without what was built
    print("+ autopkgtest", flush=True)
    run("unshare", "--mount", "sh", "-c", f'{mounting(root)} && exec autopkgtest "$@"', "autopkgtest",
        "--no-built-binaries", *packages, f"{source}/", "--", "chroot", root)


def check(folder, root):
    source = TREE / "debian" / "tests" / "first-allreduce"
    run("mmdebstrap", "--variant=minbase", "--include=dbus,python3-numpy,systemd,systemd-sysv", "bookworm", root)
    (root / "packages").mkdir()
    packages = sorted(path for path in folder.glob("*.deb") if "-dbgsym" not in path.name)
    assert len(packages) == 6, packages
    for path in (*packages, source):
        run("cp", path, root / "packages")
    # As in every chroot no service is started.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    inside(root, "apt-get", "update", "-q", stdout=subprocess.DEVNULL)
    # The dependencies are installed beforehand, so that files left by the packages themselves show.
    names = [path.name.split("_")[0] for path in packages]
    needed = inside(root, "sh", "-c", "apt-get install -qsy --no-install-recommends /packages/*.deb",
                    stdout=subprocess.PIPE).stdout
    others = [line.split()[1] for line in needed.splitlines() if line.startswith("Inst ")
              and line.split()[1] not in names]
    inside(root, "apt-get", "install", "-qy", "--no-install-recommends", *others, stdout=subprocess.DEVNULL)
    before = contents(root)
    began = time.monotonic()
    inside(root, "sh", "-c", "apt-get install -qy --no-install-recommends /packages/*.deb")
    assert {"passwd: ina", "passwd: ina-memif", "group: ina"} <= accounts_of(root) - before[1]
    check_use(root)
    took_s = time.monotonic() - began
    print(f"from apt-get install to the first all-reduce, dependencies left out: {took_s:.1f} s", flush=True)
    assert took_s < LONGEST_INSTALL_S, took_s
    (folder / "installed.json").write_text(json.dumps({"install_to_first_allreduce_s": took_s}) + "\n")
    inside(root, "apt-get", "purge", "-qy", *names)
    check_nothing_left(root, before)
    check_autopkgtest(packages, root)
    inside(root, "dpkg", "--purge", *names)  # apt knows only those that the tests had it install
    policy.unlink()
    if why_not := deb_services.obstacle():
        print(f"services not tested under systemd: {why_not}", flush=True)
    else:
        deb_services.check(root, names)


def main(folder):
    with tempfile.TemporaryDirectory(prefix="ina-debs-") as name:
        check(pathlib.Path(folder), pathlib.Path(name) / "root")
    print("installed, used and purged")


if __name__ == "__main__":
    main(*sys.argv[1:])
