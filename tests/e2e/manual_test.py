#!/usr/bin/env python3
"""Tests manual pages and shell completion: mandoc accepts the pages, the pages have every option of
the programs, and bash completes the programs' arguments.

    manual_test.py PROGRAM... -- PAGE...

A page is that of the program of its name; that of the configuration has none.
"""

import functools
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


@functools.cache
def help_of(command):
    return subprocess.run([*command, "--help"], text=True, capture_output=True, check=True).stdout


def commands_of(program):
    """Returns the words before --help of the program and of all its subcommands, each as a tuple."""
    found = [(program,)]
    for command in found:
        listed = help_of(command).split("\nSubcommands:\n")
        if len(listed) > 1:
            found += [(*command, word) for word in re.findall(r"^  (\w[\w-]*)", listed[1], re.MULTILINE)]
    return found


def options_of(command):
    """Returns the long options of a help text, whose lines begin with `-h,--help`, `-n N, --np N` or
    `--timeout TIME`, and then have two spaces and the text."""
    entries = re.findall(r"^  (-.*)", help_of(command), re.MULTILINE)
    return {option for entry in entries for option in re.findall(r"(?:^|,\s*|\s)(--[a-z][\w-]*)", entry.split("  ")[0])[:1]}


def check_options(program, page):
    """The page has every option of the program and of its subcommands."""
    shown = subprocess.run(["mandoc", "-T", "ascii", page], text=True, capture_output=True, check=True).stdout
    shown = re.sub(".\b", "", shown)
    for command in commands_of(program):
        options = options_of(command)
        assert options, command
        # Every subcommand has --help, and the page says so once.
        missing = {option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", shown)}
        assert not missing, (page.name, command, missing)
    headings = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"]
    if program.name == "inactl":
        headings += ["COMMANDS", "EXIT STATUS"]
    for heading in headings:
        assert re.search(f"^{heading}$", shown, re.MULTILINE), (page.name, heading)


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


def check_completion(programs):
    """All options of each program and command are completed, and some commands and values."""
    with tempfile.TemporaryDirectory(prefix="ina-completion-") as name:
        folder = pathlib.Path(name)
        for program in programs:
            (folder / program.name).symlink_to(program.resolve())
        for program in programs:
            for command in commands_of(program):
                words = [program.name, *command[1:]]
                offered, options = completed(folder, *words, "--"), options_of(command)
                assert options <= offered, (words, options - offered)
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


def main(*arguments):
    if not shutil.which("mandoc"):
        sys.exit("mandoc is missing: ./dev setup installs it (packages-tests.txt)")
    between = arguments.index("--")
    programs, pages = (list(map(pathlib.Path, words)) for words in (arguments[:between], arguments[between + 1:]))
    by_program = {page.stem: page for page in pages if page.suffix != ".5"}
    assert sorted(by_program) == sorted(program.name for program in programs), (programs, pages)
    assert len(pages) == len(programs) + 1, pages
    for page in pages:
        check_page(page)
    for program in programs:
        check_options(program, by_program[program.name])
    check_completion(programs)


if __name__ == "__main__":
    main(*sys.argv[1:])
