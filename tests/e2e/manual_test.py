#!/usr/bin/env python3
"""Tests manual pages and shell completion: mandoc accepts the pages, the pages have every option of
the programs, and bash completes the programs' arguments.

    manual_test.py INACTL PAGE...
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def check_page(page):
    # The configuration's page has no date: it is the same in every build.
    level = "error" if page.suffix == ".5" else "warning"
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", level, page], text=True, capture_output=True, check=False)
    assert lint.returncode == 0 and not lint.stdout, lint


def check_options(inactl, page):
    shown = subprocess.run(["mandoc", "-T", "ascii", page], text=True, capture_output=True, check=True).stdout
    shown = re.sub(".\b", "", shown)
    said = "".join(subprocess.run([inactl, *command, "--help"], text=True, capture_output=True, check=True).stdout
                   for command in ([], ["create"], ["abort"], ["policy", "set"]))
    options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", said, re.MULTILINE))
    assert len(options) > 12, options
    missing = {option for option in options if option not in shown}
    assert not missing, missing
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "SEE ALSO"):
        assert re.search(f"^{heading}$", shown, re.MULTILINE), heading


def completed(folder, *words):
    """Returns bash's completions of the last word."""
    script = f"""
source {ROOT / 'conf' / 'completion' / 'ina.bash'}
COMP_WORDS=({' '.join(repr(word) for word in words)})
COMP_CWORD={len(words) - 1}
_ina
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-eu", "-c", script], text=True, capture_output=True, check=True,
                          env={"PATH": f"{folder}:/usr/bin:/bin"})
    return set(done.stdout.split())


def check_completion(inactl):
    with tempfile.TemporaryDirectory(prefix="ina-completion-") as name:
        folder = pathlib.Path(name)
        (folder / "inactl").symlink_to(pathlib.Path(inactl).resolve())
        (folder / "ina-run").symlink_to(ROOT / "programs" / "run" / "ina-run")
        (folder / "other").write_text('#!/bin/sh\necho "  --idle NAME=auto            What: auto, spin"\n')
        (folder / "other").chmod(0o755)
        assert {"status", "create", "reload", "--json", "--socket"} <= completed(folder, "inactl", "")
        assert completed(folder, "inactl", "st") == {"status"}
        assert completed(folder, "inactl", "--so") == {"--socket"}
        assert completed(folder, "inactl", "create", "--slots-") == {"--slots-floor", "--slots-ceiling"}
        assert completed(folder, "inactl", "-j", "create", "--wo") == {"--workers"}
        assert {"show", "set"} <= completed(folder, "inactl", "policy", "")
        assert completed(folder, "inactl", "policy", "set", "esa", "--wa") == {"--ways"}
        assert completed(folder, "ina-run", "--sw") == {"--switchd"}
        assert completed(folder, "other", "--idle", "s") == {"spin"}
        assert str(folder / "inactl") in completed(folder, "inactl", "--ca", f"{folder}/ina")
        assert completed(folder, "none-such", "") == set()


def main(inactl, *pages):
    if not shutil.which("mandoc"):
        sys.exit("mandoc is missing: ./dev setup installs it (packages.txt)")
    assert len(pages) == 7, pages
    for page in map(pathlib.Path, pages):
        check_page(page)
    check_options(inactl, next(page for page in pages if page.endswith("inactl.1")))
    check_completion(inactl)


if __name__ == "__main__":
    main(*sys.argv[1:])
