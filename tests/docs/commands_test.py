#!/usr/bin/env python3
"""Runs the commands of the documents, from their text, in the order in which a reader would.

    commands_test.py --build BUILD [DOCUMENT ...]
    commands_test.py --self-test

A command is a line of an indented block, or of a fenced block without a language or with "sh".
Blocks of another language ("text", "yaml") contain no commands. If lines of a block begin with
"$ ", these lines are the commands, and the other lines are the expected output, in which numbers
may differ. If the expected output begins with "inactl: ", the command must fail. A command in the
background (&) is ended with its document. Paths below /tmp, /run/ina and /etc/ina in the text are
replaced by paths in a temporary folder. Any command that does not have to fail must end with status
0. Comments before a block change this:

    <!-- not run: why -->            the block cannot run here (another machine, a device); the test
                                     lists it
    <!-- prepared: what -->          the block's precondition, a key of PREPARATIONS
    <!-- run with: option -->        what is added to the block's last command, which takes long
    <!-- output varies: why -->      of the output the first line and headings are compared
    <!-- status 0 or 3 -->           the statuses with which the commands may end

The commands of the README run in a clone of their own, whose build folder is empty: `ninja` takes
the requested targets out of BUILD, and nothing else.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENTS = ("README.md", "docs/administration.md", "docs/switch.md", "docs/memif.md",
             "docs/policies.md")
MARK = re.compile(r"<!-- (not run|prepared|run with|output varies|status):? (.+?) -->$")
HEADING = re.compile(r"[A-Z]+ [A-Z ]+")  # of a table's columns
COMMAND_LANGUAGES = ("", "sh")
DOCUMENT_DEADLINE_S = 300
SKIPPED = 77

# The preconditions of each document. $BUILD, $SCRATCH and $SOURCE are set.
SWITCH_FOR_ADMINISTRATORS = """\
cat >$SCRATCH/etc/ina/switchd.yaml <<END
aggregator: {slots: 4096, slot_bytes: 1024}
control: {socket: $SCRATCH/run/ina/switch.sock}
tenants:
  - {name: vision, jobs_max: 4, workers_max: 64, slots_floor: 1024, slots_ceiling: 2048, memory: 64 MiB}
END
export INA_SOCKET=$SCRATCH/run/ina/switch.sock
ina-switchd --config $SCRATCH/etc/ina/switchd.yaml 2>$SCRATCH/switchd.log &
inactl status --timeout 30s >$SCRATCH/status
mkdir conf
sed "s|/run/ina/|$SCRATCH/run/ina/elsewhere-|" $SOURCE/conf/host.yaml >conf/host.yaml
configure() {
  sed "/^aggregator/d" $SCRATCH/etc/ina/switchd.yaml >$SCRATCH/kept.yaml
  { cat $SCRATCH/kept.yaml; printf '%s\n' "$@"; } >$SCRATCH/etc/ina/switchd.yaml
}
load() { $BUILD/tests/switchd/load_worker shm:$INA_SOCKET train "$@" -1 1 & workers="$workers $!"; }
# Returns when packets of the job come.
run_job() {
  workers=
  load 0 2 20000; load 1 2 20000
  for i in $(seq 400); do inactl trace train --packets 1 && return; sleep 0.05; done; false
}
# Rank 1 stops itself as soon as it has joined. Returns when the others wait for it.
stop_a_worker() {
  workers=
  cat >$SCRATCH/few.yaml <<END
aggregator: {policy: static, slots: 64, slot_bytes: 1024}
static: {slots_per_job: 64}
control: {socket: $SCRATCH/few.sock}
END
  rm -f $SCRATCH/few.sock.state
  ina-switchd --config $SCRATCH/few.yaml 2>$SCRATCH/few.log & workers=$!
  export INA_SOCKET=$SCRATCH/few.sock
  inactl status --timeout 30s && load 0 3 200000 && load 2 3 200000 || return
  PYTHONPATH=$SOURCE/tests/support python3 -c "
import libina, os, signal
libina.Library('$BUILD/client/libina.so').join('shm:$INA_SOCKET', 'train', 1, 3)
os.kill(os.getpid(), signal.SIGSTOP)" & workers="$workers $!"
  for i in $(seq 40); do inactl why train | grep "process is stopped" && return; done; false
}
end_job() { kill -KILL $workers; wait $workers; export INA_SOCKET=$SCRATCH/run/ina/switch.sock; }
"""
BRIDGE_WITH_SHM_PORT = """\
ln -s $SOURCE/scripts scripts
ln -s $BUILD build
cat >$SCRATCH/etc/ina/switchd.yaml <<END
control: {socket: $SCRATCH/run/ina/switch.sock}
END
c++ -std=c++20 -I $SOURCE/include $SCRATCH/sum.cc -L $BUILD/client -lina \\
  -Wl,-rpath,$BUILD/client -o train
export INA_RANK=0 INA_WORLD_SIZE=1
"""
# Where the recipe is followed. `./dev build` gives the programs that tests/docs/meson.build makes of it.
POLICY_OF_THE_RECIPE = """\
cp -r $SOURCE/conf conf
cat >dev <<'END'
#!/bin/sh -e
case "$*" in
build)
  mkdir -p build/switchd/config build/sim
  ln -s $BUILD/tests/docs/ina-config-doc build/switchd/config
  ln -s $BUILD/tests/docs/ina-faultsim build/sim ;;
"test --only config") $BUILD/tests/docs/config_test ;;
*) echo "dev: $* is not known here"; exit 1 ;;
esac
END
chmod +x dev
"""
PROLOGUES = {"docs/administration.md": SWITCH_FOR_ADMINISTRATORS,
             "docs/memif.md": BRIDGE_WITH_SHM_PORT,
             "docs/policies.md": POLICY_OF_THE_RECIPE}
# What is run before a block, and after it, by the functions of the document's prologue.
PREPARATIONS = {
    "a job": ("run_job", "end_job"),
    "a job with a stopped worker": ("stop_a_worker", "end_job"),
    "an interface": ("ip link add eth1 type veth peer name far", "ip link del eth1"),
    "an edited file": ("configure 'aggregator: {policy: esa, slots: 4096, slot_bytes: 1024}' "
                       "'jobs: {memory: 2 GiB}'", ":"),
    "an edited file and a job": ("run_job && configure 'aggregator: {policy: esa, slots: 4096, slot_bytes: 1024}' "
                                 "'fallback: {home: spill}'", "end_job"),
    "a file that says static": ("sed -i /^fallback/d $SCRATCH/etc/ina/switchd.yaml && "
                                "configure 'aggregator: {policy: static, slots: 4096, slot_bytes: 1024}' && "
                                "inactl reload", ":"),
}


class TestError(Exception):
    """The text names the document and the error."""


class Block:
    """Consecutive lines of a document. `language`: None for an indented block. `marks`: of the
    comments before it, by kind."""

    def __init__(self, line, language, marks):
        self.line, self.language, self.marks, self.lines = line, language, marks, []

    def is_command(self):
        return self.language is None or self.language in COMMAND_LANGUAGES


def blocks_of(text):
    """Returns all blocks of a Markdown text."""
    blocks, current, before, marks = [], None, "", {}
    for number, line in enumerate(text.splitlines(), 1):
        if current is not None and current.language is not None:
            if line.startswith("```"):
                current, before = None, "```"
            else:
                current.lines.append(line)
            continue
        if line.startswith("```"):
            current, marks = Block(number + 1, line[3:].strip(), marks), {}
            blocks.append(current)
        elif line.startswith("    "):
            if current is None and before not in ("", "paragraph"):
                current, marks = Block(number, None, marks), {}
                blocks.append(current)
            if current is not None:
                current.lines.append(line[4:])
        elif not line.strip():
            # A blank line ends a paragraph. It ends an indented block only if no further indented
            # line follows.
            if before == "paragraph":
                before = "blank"
        else:
            current = None
            mark = MARK.match(line)
            marks = marks | {mark[1]: mark[2]} if mark else {}
            before = "mark" if mark else "paragraph"
    return blocks


class Command:
    """One logical line, its expected output (None: any output) and its expected status. `before`
    and `after`: shell text that is run around it."""

    def __init__(self, place, text, marks):
        self.place, self.text, self.marks, self.expected = place, text, marks, None
        self.before = self.after = ""

    def fails(self):
        return bool(self.expected) and self.expected.startswith("inactl: ")

    def good_statuses(self):
        """Returns a pattern of the shell."""
        if self.fails():
            return "[1-9]*"
        return self.marks.get("status", "0").replace(" or ", "|")

    def matches(self, output, scratch):
        if not self.expected:
            return True
        expected, output = scratch.literal(self.expected), without_numbers(output)
        if "output varies" not in self.marks:
            return without_numbers(expected) in output
        first, *others = expected.splitlines()
        wanted = [first, *(line for line in others if HEADING.fullmatch(line))]
        return all(without_numbers(line) in output for line in wanted)

    def in_background(self):
        return re.sub(r"\s+#.*", "", self.text).rstrip().endswith("&")


def commands_of(name, block):
    """Returns a block's commands. A line that ends with a backslash continues on the next line."""
    with_output = any(line.startswith("$ ") for line in block.lines)
    commands, going_on = [], False
    for offset, line in enumerate(block.lines):
        if with_output and not line.startswith("$ ") and not going_on:
            if commands:
                commands[-1].expected = (commands[-1].expected or "") + line + "\n"
            continue
        line = line.removeprefix("$ ") if with_output else line
        if going_on:
            commands[-1].text += "\n" + line
        elif line.strip():
            commands.append(Command(f"{name}:{block.line + offset}", line, block.marks))
        going_on = line.endswith("\\")
    if added := block.marks.get("run with"):
        commands[-1].text += f" {added}"
    if needed := block.marks.get("prepared"):
        if needed not in PREPARATIONS:
            raise TestError(f"{name}:{block.line}: no test prepares: {needed}")
        commands[0].before, commands[-1].after = PREPARATIONS[needed]
    return commands


def without_numbers(text):
    """Replaces numbers and the host, so that outputs of one command on different days compare
    equal."""
    text = re.sub(r"\bon (node7|%s)\b" % re.escape(socket.gethostname()), "on HOST", text)
    text = re.sub(r"\b[0-9a-f]{32}\b|[0-9][0-9,.]*", "N", text)
    text = re.sub(r"N (B|KiB|MiB|GiB)\b", "N B", text)
    text = re.sub(r"N (us|ms|s|min|h)\b", "N s", text)
    return " ".join(text.split())


class Scratch:
    """The folder in which the commands run."""

    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        for name in ("tmp", "run/ina", "etc/ina", "bin", "ld", "work", "home"):
            (folder / name).mkdir(parents=True)
        samples = [block for block in blocks_of((ROOT / "README.md").read_text())
                   if block.language == "cpp"]
        (folder / "sum.cc").write_text("\n".join(samples[0].lines) + "\n")

    def literal(self, text):
        """Returns the text with the paths of the temporary folder."""
        for place in ("/tmp/", "/run/ina/", "/etc/ina/"):
            text = text.replace(place, f"{self.folder}{place}")
        return text.replace("<this repository>", f"{self.folder}/repository")

    def environment(self, with_programs):
        programs = [self.folder / "bin"]
        if with_programs:
            programs += [self.build / place for place in
                         ("switchd", "programs/inactl", "programs/memif", "programs/psd")]
        path = ":".join(map(str, programs)) + ":" + os.environ["PATH"]
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("INA_", "MESON", "NINJA"))}
        return kept | {"PATH": path, "HOME": str(self.folder / "home"), "SCRATCH": str(self.folder),
                       "BUILD": str(self.build), "SOURCE": str(ROOT),
                       "LD_LIBRARY_PATH": str(self.folder / "ld"), "CCACHE_DISABLE": "1"}

    def make_repository(self):
        """Makes the repository that the README's reader clones: the current tree, with one
        commit."""
        repository = self.folder / "repository"
        listed = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True).stdout.split(b"\0")
        for name in filter(None, (os.fsdecode(name) for name in listed)):
            if (ROOT / name).is_file():
                (repository / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, repository / name)
        git = ["git", "-C", repository, "-c", "user.name=test", "-c", "user.email=test@localhost",
               "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
        for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
            subprocess.run(git + arguments, check=True)

    def make_tools(self):
        """Writes replacements for programs that would build for long, or change this machine."""
        for name in ("meson", "ninja", "pkg-config", "ldconfig", "apt-get", "sudo"):
            real = shutil.which(name) or ""
            path = self.folder / "bin" / name
            path.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} "
                            f"{shlex.quote(str(pathlib.Path(__file__).parent / 'tools.py'))} "
                            f"{name} {shlex.quote(real)} \"$@\"\n")
            path.chmod(0o755)


def script_of(commands, scratch, prologue):
    """Returns a shell script, which writes the output of command N to the file N."""
    lines = [f"cd {scratch.folder}/work", "set -e", prologue, "set +e",
             "fail() { echo \"FAILED: $1\"; exit 1; }",
             "wait_for() { for i in $(seq 400); do [ -S \"$1\" ] && return; sleep 0.05; done; "
             "fail \"$2: no socket $1\"; }"]
    for number, command in enumerate(commands):
        text, output = scratch.literal(command.text), f"{scratch.folder}/output.{number}"
        place = shlex.quote(f"{command.place}: {command.text}")
        if command.before:
            lines.append(f"{{ {command.before}\n}} >{output} 2>&1 || fail {place}' could not be prepared'")
        if "sum.cc" in text:
            lines.append(f"cp {scratch.folder}/sum.cc .")
        if command.in_background():
            stripped = re.sub(r"\s+#.*", "", text).rstrip().removesuffix("&")
            lines.append(f"{{ {stripped}\n}} >{output} 2>&1 &")
            sockets = re.findall(r"\S+\.sock\b", text)
            if "ina-switchd" in text and not sockets:
                sockets = [f"{scratch.folder}/run/ina/switch.sock"]
            lines += [f"wait_for {socket} {place}" for socket in sockets]
        else:
            lines.append(f"{{ {text}\n}} >{output} 2>&1")
            lines.append(f"status=$?; case $status in {command.good_statuses()}) ;; "
                         f"*) fail {place}\" ended with $status\" ;; esac")
        if command.after:
            lines.append(f"{{ {command.after}\n}} >{output}.after 2>&1")
    return "\n".join(lines) + "\n"


def end_group(leader):
    """Ends all processes that the document's shell has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            leader.poll()
            try:
                os.killpg(leader.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)


def run(commands, scratch, prologue, with_programs):
    """Runs the commands in one shell. Raises TestError if one of them gives a wrong result."""
    script = scratch.folder / "script"
    script.write_text(script_of(commands, scratch, prologue))
    shell = ["bash", "--norc", str(script)]
    if os.geteuid() == 0:  # commands get a network namespace, and so interfaces of their own
        shell = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *shell]
    log = scratch.folder / "log"
    with log.open("w") as file:
        leader = subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT, start_new_session=True,
                                  env=scratch.environment(with_programs))
        try:
            status = leader.wait(DOCUMENT_DEADLINE_S)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(leader)
    outputs = [path.read_text(errors="replace") if path.exists() else ""
               for path in (scratch.folder / f"output.{i}" for i in range(len(commands)))]
    if status != 0:
        told = "\n".join(f"-- {command.place}: {command.text}\n{output[-2000:]}"
                         for command, output in zip(commands, outputs) if output)
        ended = "no end in time" if status is None else f"status {status}"
        raise TestError(f"{ended}\n{log.read_text()}{told}")
    for command, output in zip(commands, outputs):
        if not command.matches(output, scratch):
            raise TestError(f"{command.place}: {command.text}\nprints\n{output}\nand not\n"
                            f"{command.expected}")


def check(name, text, build):
    """Runs a document's commands. Returns the number of commands that ran, and the blocks that did
    not, with the reason."""
    commands, not_run = [], []
    for block in blocks_of(text):
        if not block.is_command():
            continue
        if reason := block.marks.get("not run"):
            not_run.append(f"{name}:{block.line}: {reason}")
        else:
            commands += commands_of(name, block)
    if commands:
        with tempfile.TemporaryDirectory(prefix="ina-docs-") as folder:
            scratch = Scratch(pathlib.Path(folder), build)
            is_readme = name == "README.md"
            if is_readme:
                scratch.make_repository()
                scratch.make_tools()
            run(commands, scratch, PROLOGUES.get(name, ""), not is_readme)
    return len(commands), not_run


def self_test():
    """Each made-up error must be found."""
    build = pathlib.Path("/nowhere")
    good = "Text:\n\n    x=1\n    test $x = 1\n\n    echo a \\\n        b >f && test -s f\n\n```text\nfalse\n```\n"
    assert check("good", good, build) == (3, []), check("good", good, build)
    marked = "Text:\n\n<!-- not run: no such machine -->\n    false\n\nText.\n\n```sh\ntrue\n```\n"
    assert check("marked", marked, build) == (1, ["marked:4: no such machine"])
    assert check("list", "- an item\n    of two lines\n", build) == (0, [])
    assert check("added", "T:\n\n<!-- run with: 1 -->\n    test 1 =\n", build) == (1, [])
    assert check("output", "T:\n\n    $ echo 17 of 4\n    12 of 3\n", build) == (1, [])
    assert check("failure", "T:\n\n    $ sh -c 'echo inactl: no; exit 1'\n    inactl: no\n", build)[0] == 1
    varied = "T:\n\n<!-- output varies: so it is -->\n<!-- status 0 or 3 -->\n" \
             "    $ printf 'have 3\\nA  B\\n1  x\\n'; exit_3\n    have 4\n    A  B\n    2  y\n"
    assert check("varied", varied.replace("exit_3", "sh -c 'exit 3'"), build) == (1, [])
    for bad in ("T:\n\n    false\n", "T:\n\n```sh\nfalse\n```\n", "T:\n\n    true\n\n    no-such-command\n",
                "T:\n\n    $ echo drained\n    1 job is left\n",
                "T:\n\n    $ echo inactl: no\n    inactl: no\n",
                "T:\n\n<!-- prepared: an unknown thing -->\n    true\n",
                varied.replace("exit_3", "false"), varied.replace("exit_3", "true").replace("have 4", "had 4"),
                varied.replace("exit_3", "true").replace("A  B\n    2", "A  C\n    2")):
        try:
            check("bad", bad, build)
        except TestError:
            continue
        raise AssertionError(f"passed: {bad}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("documents", nargs="*", default=DOCUMENTS)
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return 0
    if os.geteuid() != 0:
        print("skipped: some of the commands need root")
        return SKIPPED
    failed = 0
    for name in options.documents:
        try:
            ran, not_run = check(name, (ROOT / name).read_text(), options.build.resolve())
            print(f"{name}: {ran} commands run")
            for line in not_run:
                print(f"  not run: {line}")
        except TestError as error:
            failed += 1
            print(f"{name}: FAILED: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
