#!/usr/bin/env python3
"""Builds the switch and the PyTorch backend in a Debian 13 of its own, whose PyTorch is 2.6, and runs
the backend's tests there.

    test_torch2.py FOLDER [TEST...]

FOLDER keeps the system (2 GB), its ccache and the build for the next time. TEST: names such as
`pairs` (tests/plugins/torch/pairs_test.py) and `pytorch_suite`; all without. Needs root, mmdebstrap
and the package sources of this machine.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

from debian_root import entering

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TESTS = SOURCE / "tests/plugins/torch"
NAMES = ["collectives", "pairs", "errors", "training", "ddp_hook", "elastic", "pytorch2", "gloo_grid", "docs",
         "pytorch_suite", "tickets"]
OPTIONS = ["-Dbuildtype=release", "-Db_ndebug=if-release", "-Dplugins=enabled", "-Ddpdk=enabled",
           *(f"-D{feature}=disabled" for feature in ("tests", "bench", "demo", "metrics", "systemd", "sim", "mpi"))]
TARGETS = ["plugins", "switchd/ina-switchd", "programs/inactl/inactl"]
TEST_DEADLINE_S = 1800


def packages():
    lines = (SOURCE / "packages-torch2.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class System:
    """The Debian 13 in a folder."""

    def __init__(self, folder):
        self.root, self.build, self.ccache = folder / "root", folder / "build", folder / "ccache"
        self.folder = folder

    def make(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.root / "etc").exists():
            subprocess.run(["mmdebstrap", "--variant=apt", "trixie", self.root], check=True)
        name = os.uname().nodename
        # Gloo and torchrun look their host's name up.
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {name}\n", "utf-8")
        self.run("sh", "-c", "apt-get update -q && apt-get install -qy --no-install-recommends " + " ".join(packages()),
                 stdout=subprocess.DEVNULL)

    def run(self, *command, check=True, **options):
        inside = ["env", "-i", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "HOME=/root",
                  "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"CCACHE_DIR={self.ccache}", "PYTHONWARNINGS=ignore",
                  "USE_LIBUV=0",  # PyTorch's default, which Debian's PyTorch does not have
                  *map(str, command)]
        return subprocess.run(entering(self.root, *inside, folders=(SOURCE, self.folder)), check=check,
                              stdin=subprocess.DEVNULL, text=True, **options)

    def compile(self):
        if not (self.build / "build.ninja").exists():
            self.run("meson", "setup", self.build, SOURCE, *OPTIONS)
        jobs = os.environ.get("INA_JOBS")
        self.run("ninja", "-C", self.build, *(["-j", jobs] if jobs else []), *TARGETS)

    def test(self, name):
        """Returns (passed, failed, skipped). The output is in FOLDER/NAME.log."""
        path = TESTS / (name + ("" if name == "pytorch_suite" else "_test") + ".py")
        log = self.folder / f"{name}.log"
        with log.open("w", encoding="utf-8") as file:
            done = self.run("timeout", TEST_DEADLINE_S, "python3", path, self.build, check=False, stdout=file,
                            stderr=subprocess.STDOUT)
        return counts(log.read_text("utf-8", errors="replace"), done.returncode)


def counts(text, status):
    """Returns (passed, failed, skipped) of a test's output."""
    suite = re.findall(r"^\{'passed': (\d+), 'failed': (\d+), 'skipped': (\d+)\}", text, re.MULTILINE)
    if suite:
        return tuple(map(int, suite[-1]))
    ran = re.findall(r"^Ran (\d+) tests?", text, re.MULTILINE)
    if not ran:
        return 0, 1, 0
    found = {kind: int(number) for kind, number in re.findall(r"(failures|errors|skipped)=(\d+)", text)}
    failed, skipped = found.get("failures", 0) + found.get("errors", 0), found.get("skipped", 0)
    failed = failed or int(status != 0)
    return int(ran[-1]) - failed - skipped, failed, skipped


def main(folder, *names):
    system = System(pathlib.Path(folder).resolve())
    system.make()
    system.compile()
    totals = [0, 0, 0]
    for name in names or NAMES:
        begin = time.monotonic()
        found = system.test(name)
        totals = [total + more for total, more in zip(totals, found)]
        print(f"{name}: {found[0]} passed, {found[1]} failed, {found[2]} skipped, {time.monotonic() - begin:.0f} s"
              + (f"; see {system.folder}/{name}.log" if found[1] else ""), flush=True)
    version = system.run("python3", "-c", "import torch; print(torch.__version__)", stdout=subprocess.PIPE).stdout.strip()
    print(f"torch2: PyTorch {version}: {totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return int(totals[1] != 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
