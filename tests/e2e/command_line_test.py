#!/usr/bin/env python3
"""Tests every option of every program. The help must be readable text. A wrong value must give an
error of one sentence and status 2, before the program does anything.

    command_line_test.py PROGRAM [ARGUMENT ...] [-- PROGRAM [ARGUMENT ...]]...

ARGUMENTs are arguments that the program always needs, such as a subcommand of inactl.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

USAGE = 2
LONGEST_LINE = 140
LONGEST_NUMBER = 12
# Values that cannot be wrong by themselves: names and paths are checked later, if at all.
FREE_TEXT = ("TEXT",)
OPTION = re.compile(r"^  (?:-\w,)?(--[\w-]+)(?: ([A-Z]{3}[A-Z]*(?::.*?)?)(?: REQUIRED|=|\s\s|$| \(Env))?")
BOUNDS = re.compile(r":(-?\d[\d.e+]*?)\.\.(\d[\d.e+]*)")


class Test:
    def __init__(self):
        self.checks, self.problems = 0, []

    def expect(self, right, what):
        self.checks += 1
        if not right:
            self.problems.append(what)

    def run(self, command):
        """Returns exit status, stdout, stderr. The latter two are bytes, because they may not be
        UTF-8."""
        done = subprocess.run(command, capture_output=True, timeout=600, stdin=subprocess.DEVNULL,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def text_of(self, output, command):
        """Returns the output as text, which must be fit for a terminal. It may repeat its own
        argument."""
        try:
            text = output.decode()
        except UnicodeDecodeError as error:
            self.expect(False, f"{command}: {error}")
            return output.decode(errors="replace")
        odd = [c for c in text if (ord(c) < 0x20 and c != "\n") or 0x7f <= ord(c) < 0xa0]
        self.expect(not odd, f"{command}: prints control characters {odd}")
        long = [line for line in text.split("\n") if len(line) > LONGEST_LINE]
        self.expect(not long, f"{command}: prints long lines: {long}")
        own = command[-1].rpartition("=")[2]
        digits = re.findall(rf"\d{{{LONGEST_NUMBER + 1},}}", text.replace(own, "") if own else text)
        self.expect(not digits, f"{command}: prints {digits}")
        return text

    def expect_usage_error(self, command, names):
        status, stdout, stderr = self.run(command)
        self.expect(status == USAGE, f"{command}: status {status}: {stderr!r}")
        self.expect(not stdout, f"{command}: prints {stdout!r}")
        text = self.text_of(stderr, command)
        self.expect(text.count("\n") == 1 and text.endswith("\n"), f"{command}: no one line: {text}")
        self.expect(names in text, f"{command}: does not name {names}: {text}")

    def check_option(self, command, name, kind):
        wrong = ["no\x01such\x1b[2J", ""]
        if kind.startswith(("UINT", "INT", "FLOAT")):
            wrong.append("1e999" if kind.startswith("FLOAT") else "9" * 30)
        if kind.startswith("UINT"):
            wrong.append("-1")
        if bounds := BOUNDS.search(kind):
            wrong += [str(float(bounds[2]) * 2 + 1), "-1" if float(bounds[1]) >= 0 else "x"]
        for value in wrong:
            self.expect_usage_error([*command, f"{name}={value}"], name)

    def check(self, command):
        status, stdout, stderr = self.run([*command, "--help"])
        self.expect(status == 0 and not stderr, f"{command} --help: {status} {stderr!r}")
        text = self.text_of(stdout, [*command, "--help"])
        options = [match for match in map(OPTION.match, text.split("\n")) if match]
        self.expect(bool(options), f"{command} --help: no options: {text}")
        for match in options:
            name, kind = match[1], match[2] or ""
            if kind and not kind.split(":")[0] in FREE_TEXT:
                self.check_option(command, name, kind)
            if "file" in match.string or "write" in match.string:
                if name in ("--json", "--csv"):
                    self.expect_usage_error([*command, name, "/no/such/folder/x"], "/no/such/folder/x")
                    with tempfile.TemporaryDirectory() as folder:
                        self.run([*command, name, f"{folder}/x", "--no-such-option"])
                        left = list(pathlib.Path(folder).iterdir())
                        self.expect(not left, f"{command}: leaves {left}")
        # A missing argument is reported before a wrong value.
        missing = "REQUIRED" in text or "SUBCOMMAND" in text
        self.expect_usage_error([*command, "--no-such-option"], "" if missing else "--no-such-option")


def main(arguments):
    commands, command = [], []
    for argument in [*arguments, "--"]:
        if argument != "--":
            command.append(argument)
        elif command:
            commands.append(command)
            command = []
    if not commands:
        sys.exit(__doc__)
    test = Test()
    for command in commands:
        before = test.checks
        test.check(command)
        print(f"{pathlib.Path(command[0]).name} {' '.join(command[1:])}: {test.checks - before} checks")
    for problem in test.problems:
        print(f"FAILED: {problem}")
    return 1 if test.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
