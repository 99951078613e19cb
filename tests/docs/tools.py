#!/usr/bin/env python3
"""Replaces programs that a document's commands call (commands_test.py).

    tools.py NAME REAL_PROGRAM ARGUMENT...

`meson setup` makes an empty build folder. `ninja` puts the requested targets, and their
dependencies, into it, out of the folder $BUILD, in which everything is built; it installs below
$SCRATCH/root, where `pkg-config` looks. `ldconfig` makes the installed libraries known to the
loader. `apt-get` and `sudo` fail.
"""

import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(os.environ["BUILD"])
SCRATCH = pathlib.Path(os.environ["SCRATCH"])


def meson(_real, arguments):
    if arguments[:1] != ["setup"]:
        sys.exit(f"meson: not known here: {arguments}")
    folder = pathlib.Path(next(a for a in arguments[1:] if not a.startswith("-")))
    folder.mkdir(exist_ok=True)
    (folder / "build.ninja").touch()


def bring(folder, name):
    """Makes a file of BUILD, and the links to it beside it, available in the build folder."""
    made = BUILD / name
    if not made.is_file():
        return
    for path in [made, *made.parent.glob(made.name.split(".so")[0] + ".so*")]:
        place = folder / path.relative_to(BUILD)
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path)


def ninja(real, arguments):
    folder, targets, rest = pathlib.Path("."), [], list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-C":
            folder = pathlib.Path(rest.pop(0))
        elif argument == "-j":
            rest.pop(0)
        else:
            targets.append(argument)
    if targets == ["install"]:
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir",
                        SCRATCH / "root"], check=True, env=os.environ | {"PATH": without_stand_ins()})
        return
    for target in targets:
        if not (BUILD / target).is_file():
            sys.exit(f"ninja: {target} is not in {BUILD}")
        needed = subprocess.run([real, "-C", BUILD, "-t", "inputs", target], check=True, text=True,
                                capture_output=True).stdout.split("\n")
        for name in [target, *needed]:
            if name and not name.startswith(("/", "..")):
                bring(folder, name)


def without_stand_ins():
    return ":".join(p for p in os.environ["PATH"].split(":") if p != str(SCRATCH / "bin"))


def pkg_config(real, arguments):
    found = list((SCRATCH / "root").rglob("ina.pc"))
    environment = dict(os.environ)
    if found:
        environment |= {"PKG_CONFIG_PATH": str(found[0].parent), "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1",
                        "PKG_CONFIG_SYSROOT_DIR": str(SCRATCH / "root"),
                        "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1"}
    os.execve(real, [real, *arguments], environment)


def ldconfig(_real, _arguments):
    for library in (SCRATCH / "root").rglob("lib*.so*"):
        place = SCRATCH / "ld" / library.name
        if not place.exists():
            place.symlink_to(library)


def main():
    name, real, *arguments = sys.argv[1:]
    tools = {"meson": meson, "ninja": ninja, "pkg-config": pkg_config, "ldconfig": ldconfig}
    if name not in tools:
        sys.exit(f"{name}: a document's commands may not change this machine: {arguments}")
    tools[name](real, arguments)


if __name__ == "__main__":
    main()
