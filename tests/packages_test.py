#!/usr/bin/env python3
"""Every file that meson installs is in one Debian package; every pattern of a package matches some
file; and the options that debian/rules passes exist, and keep meson's optimisation. `./dev deb
--test` builds and installs the packages.

    packages_test.py BUILD_DIR
"""

import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Files of plugins and benchmarks, which debian/rules leaves out.
LEFT_OUT = ("usr/bin/ina-perf", "*/libina_mpi_*.so", "*/ina/_torch*")
# Files that other steps of debian/rules make.
MADE = {"etc/ina/switchd.yaml"}


def installed(build):
    """Returns the paths, as below / in a package, of files and folders that meson installs."""
    options = {option["name"]: option["value"]
               for option in json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())}
    plan = json.loads((build / "meson-info" / "intro-installed.json").read_text())
    for path in plan.values():
        path = re.sub(r"^usr/lib/python3[^/]*/", "usr/lib/python3/",
                      "usr/" + str(pathlib.PurePosixPath(path).relative_to(options["prefix"])))
        if "/bash-completion/" not in path:
            yield path
    # Meson names the completion file of one program; the file serves all programs.
    completion = (ROOT / "conf" / "completion" / "ina.bash").read_text()
    for program in completion.rsplit("-F _ina ", 1)[1].split():
        yield f"usr/share/bash-completion/completions/{program}"


def patterns():
    """Returns, for each package, the patterns of its .install file that are not files of the
    source."""
    for file in sorted((ROOT / "debian").glob("*.install")):
        for line in file.read_text().splitlines():
            pattern = line.split()[0]
            if (ROOT / pattern).exists() or pattern in MADE:
                continue
            yield file.stem, pattern


def owns(pattern, path):
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, pattern + "/*")


def check_optimisation():
    """Debian's flags come behind meson's -O3, and must not say another level."""
    if not shutil.which("dpkg-buildflags"):
        return
    exported = re.findall(r"^export (DEB_\w+) = (.*)$", (ROOT / "debian" / "rules").read_text(), re.MULTILINE)
    for name in ("CFLAGS", "CXXFLAGS"):
        flags = subprocess.run(["dpkg-buildflags", "--get", name], env=os.environ | dict(exported), check=True,
                               capture_output=True, text=True).stdout
        assert not re.search(r"(^| )-O", flags), f"{name}: {flags}"


def main(build):
    paths = {path for path in installed(pathlib.Path(build))
             if not any(fnmatch.fnmatchcase(path, left_out) for left_out in LEFT_OUT)}
    found = list(patterns())
    for path in sorted(paths):
        owners = {package for package, pattern in found if owns(pattern, path)}
        assert len(owners) == 1, f"{path} is in {len(owners)} packages: {sorted(owners)}"
    for package, pattern in found:
        assert any(owns(pattern, path) for path in paths), f"debian/{package}.install: {pattern} is no file"
    known = set(re.findall(r"option\('(\w+)'", (ROOT / "meson_options.txt").read_text()))
    known |= {"optimization", "b_ndebug", "b_lundef", "b_sanitize"}
    given = set(re.findall(r"-D(\w+)=", (ROOT / "debian" / "rules").read_text()))
    assert known == given, known ^ given
    check_optimisation()
    packages = set(re.findall(r"^Package: (\S+)", (ROOT / "debian" / "control").read_text(), re.MULTILINE))
    assert packages == {file.stem for file in (ROOT / "debian").glob("*.install")}, packages


if __name__ == "__main__":
    main(*sys.argv[1:])
