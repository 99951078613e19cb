#!/usr/bin/env python3
"""Tests `inactl top` and the map of `inactl aggregator --heat` in a real terminal, that of tmux.
The tables fit the terminal and are redrawn, and the map has colours.

    terminal_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 600
COLUMNS, LINES = 100, 40


class Terminal:
    def __init__(self, folder, command):
        # A server of its own: an earlier server may not have ended yet.
        self.tmux = ["tmux", "-S", tempfile.mktemp(prefix="tmux-", dir=folder), "-f", "/dev/null"]
        environment = {key: value for key, value in os.environ.items() if key not in ("TMUX", "NO_COLOR")}
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), command], check=True,
                       env=environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}, stdin=subprocess.DEVNULL)

    def screen(self, *options):
        return subprocess.run([*self.tmux, "capture-pane", "-p", *options], text=True, capture_output=True,
                              check=True).stdout

    def wait_for(self, pattern, *options):
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, shown := self.screen(*options)):
            assert time.monotonic() < deadline, f"no {pattern} in:\n{shown}"
            time.sleep(0.1)
        return shown

    def end(self):
        subprocess.run([*self.tmux, "kill-server"], check=False, capture_output=True)


def check_top(folder, inactl, socket):
    terminal = Terminal(folder, f"{inactl} top --socket {socket}")
    try:
        shown = terminal.wait_for(r"uid:\d+/train +running")
        assert shown.startswith("policy "), shown
        assert shown.count("PORT") == 1, "the table before is still there"
        rate = re.search(r"/train.*", shown).group(0)
        terminal.wait_for(f"/train(?!{re.escape(rate.split('/train', 1)[1])})")  # redrawn
        assert all(len(line) <= COLUMNS for line in shown.splitlines()), shown
    finally:
        terminal.end()


def check_heat(folder, inactl, socket):
    terminal = Terminal(folder, f"{inactl} aggregator --heat --by job --socket {socket}; sleep 1000")
    try:
        shown = terminal.wait_for(r"STATE +SLOTS", "-e")
        assert "\x1b[38;5;" in shown, "no colours"
        plain = terminal.screen()
        lines = plain.splitlines()
        first = next(i for i, line in enumerate(lines) if re.fullmatch(r"[A*.]+", line))
        assert len(lines[first]) == COLUMNS, "a line of the map is as long as the terminal is wide"
        cells = 0
        for line in lines[first:]:
            if not re.fullmatch(r"[A*.]+", line):
                break
            cells += len(line)
        assert cells == 512, plain
    finally:
        terminal.end()


def main(switchd, inactl, load_worker):
    if not shutil.which("tmux"):
        sys.exit("tmux is missing: ./dev setup installs it (packages-tests.txt)")
    with tempfile.TemporaryDirectory(prefix="ina-terminal-") as name:
        folder = pathlib.Path(name)
        socket = folder / "switch.sock"
        config = folder / "switchd.yaml"
        config.write_text(f"aggregator: {{slots: 512, slot_bytes: 1024}}\neal: {{huge: no}}\ncontrol: {{socket: {socket}}}\n"
                          "log: {level: warning}\n")
        processes = [subprocess.Popen([switchd, "--config", config])]
        try:
            for rank in (0, 1):
                processes.append(subprocess.Popen([load_worker, f"shm:{socket}", "train", str(rank), "2", "20000", "-1", "1"],
                                                  stdout=subprocess.DEVNULL))
            check_top(folder, inactl, socket)
            check_heat(folder, inactl, socket)
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
