#!/usr/bin/env python3
"""Third-party MPI programs, with the interposer and without: mpi4py's test suite, HPCC, MPICH's tests, ScaLAPACK's and MUMPS's.

    bench_mpi_suites.py --build FOLDER [--mpi4py SOURCE] [--hpcc SOURCE] [--mpich SOURCE] [--packaged NAMES]
                        [--mpi openmpi|mpich] [--only MODULES] [--ranks N] [--most-ranks N] [--deadline SECONDS]
                        [--run all|missing] [--quick] [--json FILE]

SOURCE is a folder with the program's source: mpi4py of the version of Debian's package (3.1.4),
HPCC 1.5.0, MPICH 4.0.2 (`apt-get source mpich`). Each is built once against each MPI in
BUILD/foreign. Every module of mpi4py's suite runs on two ranks (--ranks), once plain and once with
the interposer. HPCC and ScaLAPACK's programs run in the same way on four ranks (two where the MPI
spins; ScaLAPACK's on --most-ranks at most), MUMPS's on two, and MPICH's tests of collectives, communicators, messages
and threads on the ranks that their lists have, four (--most-ranks) at most. --deadline: of each of these programs and of the packages'. --packaged scalapack,mumps: the programs of Debian's packages
scalapack-mpi-test and mumps-test. The benchmark fails if a test fails with the interposer alone, or a program does not
end in time with it alone. --only: the modules of mpi4py, folders of MPICH's tests, MUMPS or "ScaLAPACK xs" (xd, xc, xz)
whose names contain one of these words (commas between them); --quick is --only cco, the collectives.

--json writes {"meta", "rows": [{"suite", "module", "mpi", "ranks", "tests", "skipped", "failed",
"failed_plain", "new", "unfinished", "unfinished_plain", "calls", "taken", "left": {reason:
calls}, "commit", "time", "command", "cpu"}]}, a row for each module of mpi4py, each folder of MPICH's tests, MUMPS, each type of ScaLAPACK's numbers and each run of HPCC,
and writes it after each. calls: collective calls of rank 0; failed: tests that fail with the
interposer; new: tests that fail with the interposer alone, which decide the result.

Rows that the file already has stay, and a program's new row replaces its old one. So a run may be
interrupted and continued: --run missing leaves out programs that have a row without new failures.
The table that is printed, and the result, are those of all rows.
"""

import collections
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time

from benchlib import command_line, kept, metadata, mpi_programs, results, table
from benchlib.errors import BenchError
from benchlib.mpi import AS_ROOT, MPIRUN, SPINS
from benchlib.processes import temporary_folder
from benchlib.suites import summed
from benchlib.switch import Switch

PYTHON = "/usr/bin/python3"  # Debian's Python, which matches Debian's MPI
BUILD_DEADLINE_S = 1800
MODULE_DEADLINE_S, HPCC_DEADLINE_S = 180, 600
MPI4PY_RANKS = 2
QUICK_WORDS = ["cco"]
WAYS = ("plain", "ina")
# A configuration for many communicators: each is a job of its own.
CONFIG = """\
aggregator: {{slots: 4096, slot_bytes: 4 KiB, policy: esa}}
control: {{socket: "{socket}"}}
ports: [{{name: shm0, type: shm}}]
log: {{level: error}}
"""
COLUMNS = [("suite", "suite", "s"), ("MPI", "mpi", "s"), ("ranks", "ranks", "d"), ("tests", "tests", "d"), ("failed", "failures", "d"),
           ("plain", "failures_plain", "d"), ("new", "news", "d"), ("calls", "calls", "d"), ("taken over", "share", ".1%")]
# HPL's grid of ranks has two columns.
HPCC_INPUT = {3: "1", 5: "1", 6: "400", 7: "1", 8: "80", 10: "1"}
MAKE_HPCC = """\
SHELL=/bin/sh
CD=cd
CP=cp
LN_S=ln -s
MKDIR=mkdir -p
RM=/bin/rm -f
TOUCH=touch
ARCH=$(arch)
TOPdir=../../..
INCdir=$(TOPdir)/include
BINdir=$(TOPdir)/bin/$(ARCH)
LIBdir=$(TOPdir)/lib/$(ARCH)
HPLlib=$(LIBdir)/libhpl.a
F2CDEFS=-DAdd_ -DF77_INTEGER=int -DStringSunStyle
HPL_INCLUDES=-I$(INCdir) -I$(INCdir)/$(ARCH)
HPL_LIBS=$(HPLlib) -lblas -lm
HPL_DEFS=$(F2CDEFS) $(HPL_INCLUDES)
CC=mpicc.{mpi}
CCNOOPT=$(HPL_DEFS)
CCFLAGS=$(HPL_DEFS) -O2 -w -include {names}
LINKER=$(CC)
ARCHIVER=ar
ARFLAGS=r
RANLIB=ranlib
"""

# HPL 2.0 calls functions by their names of MPI 1, which Open MPI no longer declares.
MPI_1_NAMES = """\
#include <mpi.h>
#undef MPI_Address
#undef MPI_Type_struct
#define MPI_Address MPI_Get_address
#define MPI_Type_struct MPI_Type_create_struct
"""

REPORT = re.compile(r"^ina: (MPI_\w+) +(\d+) +(?:\d+ )? *(the switch|MPI: .*)$", re.MULTILINE)


class Outcome:
    """The results of one run of a program."""

    def __init__(self):
        self.tests = self.skipped = 0
        self.failed, self.unfinished = set(), set()
        self.through = collections.Counter()

    def add(self, other):
        self.tests += other.tests
        self.skipped += other.skipped
        self.failed |= other.failed
        self.unfinished |= other.unfinished
        self.through += other.through

    def add_report(self, text):
        """Adds the interposer's report of rank 0."""
        for _, calls, through in REPORT.findall(text):
            self.through[through] += int(calls)

    def add_unittest(self, module, text):
        """Adds one rank's output from a run of a module."""
        ran = re.search(r"^Ran (\d+) tests?", text, re.MULTILINE)
        if not ran:
            self.unfinished.add(module)
            return
        self.tests += int(ran[1])
        skipped = re.search(r"skipped=(\d+)", text)
        self.skipped += int(skipped[1]) if skipped else 0
        self.failed |= {f"{module}: {name}" for name in re.findall(r"^(?:FAIL|ERROR): (.*)$", text, re.MULTILINE)}


def new_failures(outcomes):
    """Returns the failures that only occur with the interposer."""
    plain, ina = (outcomes[way] for way in WAYS)
    return sorted((ina.failed - plain.failed) | (ina.unfinished - plain.unfinished))


def built(source, target, command):
    """Returns `target`, a copy of the source in which `command` was run."""
    stamp = target / ".built"
    if not stamp.exists():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"))
        with open(target / "build.log", "wb") as log:
            done = subprocess.run(command, cwd=target, stdout=log, stderr=subprocess.STDOUT, timeout=BUILD_DEADLINE_S,
                                  check=False)
        if done.returncode != 0:
            raise BenchError(f"{shlex.join(map(str, command))} failed; see {target}/build.log")
        stamp.touch()
    return target


# What a program has written: each rank's standard error, and all ranks' standard output.
Finished = collections.namedtuple("Finished", "status said errors")


def ends_in_time(running, deadline_s):
    """Waits in steps, of which one alone ends where a virtual machine is stopped for minutes: its clock goes on."""
    for _ in range(math.ceil(deadline_s)):
        try:
            running.wait(1)
            return True
        except subprocess.TimeoutExpired:
            pass
    return False


def mpirun(build, mpi, way, ranks, command, folder, deadline_s, program=None):
    """Runs a command on ranks, for `program` where and as that says. None: it did not end in time."""
    for old in folder.glob("err.*"):
        old.unlink()
    preload = [f"LD_PRELOAD={build / f'plugins/mpi/libina_mpi_{mpi}.so'}", "INA_MPI_REPORT=1"] if way == "ina" else []
    environment = program.environment if program else []
    shell = f'exec "$@" 2>{folder}/err.${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}'
    command = [*MPIRUN[mpi], "-n", str(ranks), "sh", "-c", shell, "sh", "env", *preload, *environment, *map(str, command)]
    with open(program.input if program and program.input else os.devnull, "rb") as given, open(folder / "out", "wb") as said, \
            subprocess.Popen(command, cwd=(program and program.folder) or folder, stdin=given, stdout=said,
                             stderr=subprocess.DEVNULL, start_new_session=True) as running:
        ended = ends_in_time(running, deadline_s)
        if not ended:
            os.killpg(running.pid, signal.SIGTERM)
            if not ends_in_time(running, 10):
                os.killpg(running.pid, signal.SIGKILL)
    if not ended:
        return None
    texts = [(folder / f"err.{rank}") for rank in range(ranks)]
    return Finished(running.returncode, (folder / "out").read_text(errors="replace"),
                    [t.read_text(errors="replace") if t.exists() else "" for t in texts])


def run_module(build, target, mpi, module, ranks, folder):
    """Returns the outcomes of one of mpi4py's modules, by way. `target`: the folder of the built
    mpi4py."""
    outcomes = {way: Outcome() for way in WAYS}
    library = next(target.glob("build/lib*"))  # setuptools and runtests.py disagree about its name
    command = [PYTHON, target / "test/runtests.py", "-q", "--path", library, "-i", f"^{module}$"]
    for way, outcome in outcomes.items():
        finished = mpirun(build, mpi, way, ranks, command, folder, MODULE_DEADLINE_S)
        if finished is None:
            outcome.unfinished.add(module)
            continue
        for text in finished.errors:
            outcome.add_unittest(module, text)
        outcome.tests //= ranks  # all ranks run the same tests
        outcome.skipped //= ranks
        outcome.add_report(finished.errors[0])
    return outcomes


def run_mpi4py(build, source, mpi, words, ranks, rows):
    """Runs the modules that `rows` wants, and adds a row for each."""
    target = built(source, build / f"foreign/mpi4py-{mpi}",
                   [PYTHON, "setup.py", "-q", "build", f"--mpicc={shutil.which('mpicc.' + mpi)}"])
    modules = [path.stem for path in sorted((target / "test").glob("test_*.py"))
               if not words or any(word in path.stem for word in words)]
    any_tests = any(row["tests"] for row in rows.rows if (row["suite"], row["mpi"]) == ("mpi4py", mpi))
    for module in modules:
        if not rows.wants("mpi4py", module, mpi, ranks):
            continue
        with temporary_folder() as folder:
            outcomes = run_module(build, target, mpi, module, ranks, folder)
        any_tests |= outcomes["plain"].tests > 0
        if not any_tests:  # the suite does not start; one that hangs has no end in time
            raise BenchError(f"{mpi}: no test of {module} has run without the interposer")
        rows.add(row_of("mpi4py", module, mpi, ranks, outcomes))
        print(f"{mpi} {module}: {outcomes['ina'].tests} tests, new failures {new_failures(outcomes)}", flush=True)


def hpcc_input(text, ranks):
    """Returns Debian's example input, changed for a small matrix."""
    lines = text.splitlines()
    for number, value in {**HPCC_INPUT, 11: str(ranks // 2), 12: "2"}.items():
        lines[number - 1] = f"{value}    " + lines[number - 1].split(maxsplit=1)[1]
    return "\n".join(lines) + "\n"


def run_hpcc(build, source, mpi, ranks):
    """Returns the outcomes by way; tests: residuals that HPCC has checked, and its own verdict."""
    target = build / f"foreign/hpcc-{mpi}"
    names = target / "mpi1_names.h"
    make = MAKE_HPCC.replace("{mpi}", mpi).replace("{names}", str(names))
    script = f"cat >{names} <<'END'\n{MPI_1_NAMES}END\ncat >hpl/Make.ina <<'END'\n{make}END\nmake arch=ina"
    built(source, target, ["sh", "-c", script])
    outcomes = {way: Outcome() for way in WAYS}
    for way, outcome in outcomes.items():
        with temporary_folder() as folder:
            (folder / "hpccinf.txt").write_text(hpcc_input((source / "_hpccinf.txt").read_text(), ranks))
            finished = mpirun(build, mpi, way, ranks, [target / "hpcc"], folder, HPCC_DEADLINE_S)
            if finished is None:
                outcome.unfinished.add("hpcc")
                continue
            outcome.add_report(finished.errors[0])
            found = (folder / "hpccoutf.txt").read_text() if (folder / "hpccoutf.txt").exists() else ""
            checks = re.findall(r"^(.*?)\s*\.* *(PASSED|FAILED)\b", found, re.MULTILINE)
            outcome.tests = len(checks) + 1
            outcome.failed = {name for name, verdict in checks if verdict == "FAILED"}
            if "Success=1" not in found:
                outcome.failed.add("Success=1 is missing")
    return outcomes


def run_programs(build, mpi, programs, passed, deadline_s):
    """Returns the outcomes by way of programs that say themselves whether they have passed."""
    outcomes = {way: Outcome() for way in WAYS}
    for program in programs:
        took = []
        for way, outcome in outcomes.items():
            # What ended plain beside other work in just that time may need more beside some more. Where ranks outnumber processors,
            # a collective call waits for the switch's turn, a few ms: programs with 10,000 calls of 8 bytes take 20 times as long.
            times = 10 if way == "ina" and program.name not in outcomes["plain"].unfinished else 1
            begun = time.monotonic()
            with temporary_folder() as folder:
                finished = mpirun(build, mpi, way, program.ranks, program.command, folder, times * deadline_s, program)
            took.append(f"{time.monotonic() - begun:.1f} s{' without an end' if finished is None else ''}")
            outcome.tests += 1
            if finished is None:
                outcome.unfinished.add(program.name)
                continue
            outcome.add_report(finished.errors[0])
            if finished.status != 0 or not passed(finished.said):
                outcome.failed.add(program.name)
        new = {program.name} & set(new_failures(outcomes))
        print(f"{mpi} {program.name}:{' fails with the interposer alone' if new else ' the same'} ({', '.join(took)})", flush=True)
    return outcomes


def run_mpich(build, source, mpi, options, rows):
    """Runs the folders of MPICH's tests that `rows` wants, and adds a row for each."""
    target = built(source / "test/mpi", build / f"foreign/mpich-tests-{mpi}", mpi_programs.mpich_build(mpi))
    for part in mpi_programs.MPICH_FOLDERS:
        if options.wants(part) and rows.wants("MPICH's tests", part, mpi, options.most_ranks):
            programs = mpi_programs.mpich_programs(target, part, options.most_ranks)
            outcomes = run_programs(build, mpi, programs, mpi_programs.mpich_passed, options.deadline)
            rows.add(row_of("MPICH's tests", part, mpi, options.most_ranks, outcomes))


def run_packaged(build, mpi, most_ranks, options, rows):
    """Runs the packages' programs that `rows` wants, and adds a row for MUMPS, and for each type of ScaLAPACK's numbers."""
    with temporary_folder() as folder:
        solved = mpi_programs.scalapack_programs(mpi, most_ranks, folder)
        for suite, part, ranks, programs, passed in (
                *(("ScaLAPACK", part, most_ranks, [program for program in solved if program.name.startswith(part)],
                   mpi_programs.scalapack_passed) for part in mpi_programs.SCALAPACK_PARTS),
                ("MUMPS", "", 2, mpi_programs.mumps_programs(mpi), mpi_programs.mumps_passed)):
            if suite.lower() not in options.packaged.split(","):
                continue
            if not programs:
                print(f"{mpi} {suite}: there are no programs; apt-get install scalapack-mpi-test mumps-test (MUMPS: Open MPI alone)")
            elif options.wants(f"{suite} {part}") and rows.wants(suite, part, mpi, ranks):
                rows.add(row_of(suite, part, mpi, ranks, run_programs(build, mpi, programs, passed, options.deadline)))


def row_of(suite, module, mpi, ranks, outcomes):
    """`module`: of mpi4py, a folder of MPICH's tests, or the beginning of the names of ScaLAPACK's programs; "" for the others."""
    plain, ina = (outcomes[way] for way in WAYS)
    calls, taken = sum(ina.through.values()), ina.through["the switch"]
    return {"suite": suite, "module": module, "mpi": mpi, "ranks": ranks, "tests": ina.tests, "skipped": ina.skipped,
            "failed": sorted(ina.failed), "failed_plain": sorted(plain.failed), "new": new_failures(outcomes),
            "unfinished": sorted(ina.unfinished), "unfinished_plain": sorted(plain.unfinished), "calls": calls,
            "taken": taken, "left": {why: n for why, n in sorted(ina.through.items()) if why != "the switch"}}


class Rows:
    """The rows of the result's file, of this run and of earlier ones."""

    KEY = ("suite", "module", "mpi", "ranks")

    def __init__(self, options):
        self.options, self.missing_only = options, options.run == "missing"
        self.meta = metadata.measured("mpi-suites")
        # Where a row is from: the rows of a file may be from several runs.
        self.origin = {key: self.meta[key] for key in ("commit", "time", "command")} | {
            "cpu": self.meta["machine"].get("cpu")}
        path = options.json
        self.rows = kept.read(path)["rows"] if path and path.exists() else []

    def _place(self, *key):
        return next((i for i, row in enumerate(self.rows) if key == tuple(row.get(k) for k in self.KEY)), None)

    def wants(self, *key):
        """Returns whether the program has to run."""
        place = self._place(*key)
        return not self.missing_only or place is None or bool(self.rows[place]["new"])

    def add(self, row):
        """Replaces the row of the same program, and writes the file. A row of a whole suite gives
        way to those of its modules."""
        row = row | self.origin
        self.rows = [old for old in self.rows if "module" in old
                     or any(old[key] != row[key] for key in ("suite", "mpi", "ranks"))]
        place = self._place(*(row[key] for key in self.KEY))
        if place is None:
            self.rows.append(row)
        else:
            self.rows[place] = row
        self.rows.sort(key=lambda r: (r["suite"], r["mpi"], r["ranks"], r.get("module", "")))
        results.write(self.options, {"meta": self.meta, "rows": self.rows})


def print_rows(rows):
    """Prints a line for each suite, and the failures that decide the result."""
    table.print_table(COLUMNS, [{**row, "failures": len(row["failed"]), "failures_plain": len(row["failed_plain"]),
                                 "news": len(row["new"]), "share": row["taken"] / max(1, row["calls"])} for row in summed(rows)])
    for row in rows:
        for name in row["new"]:
            print(f"{row['suite']}, {row['mpi']}: fails with the interposer alone: {name}")


def parse_options():
    parser = command_line.parser_of(__doc__)
    for name in ("mpi4py", "hpcc", "mpich"):
        parser.add_argument(f"--{name}", type=pathlib.Path, help=f"folder with the source of {name}")
    parser.add_argument("--packaged", default="", help="scalapack, mumps or both, with a comma: the programs of scalapack-mpi-test, mumps-test")
    parser.add_argument("--mpi", choices=sorted(MPIRUN), help="one alone")
    parser.add_argument("--only", help="modules, folders or packages whose names contain one of these words")
    parser.add_argument("--ranks", type=int, default=MPI4PY_RANKS, help="of mpi4py's suite")
    parser.add_argument("--most-ranks", type=int, default=4, help="of MPICH's tests and ScaLAPACK's programs")
    parser.add_argument("--deadline", type=float, default=300, help="in s, of each of MPICH's tests and of the packages' programs")
    parser.add_argument("--run", choices=("all", "missing"), default="all", help="missing: what has no row in the file yet")
    parser.add_argument("--quick", action="store_true", help=f"as --only {','.join(QUICK_WORDS)}")
    options = command_line.parse(parser)
    if not (options.mpi4py or options.hpcc or options.mpich or options.packaged):
        raise BenchError("--mpi4py, --hpcc or --mpich says where the source of the program is, --packaged runs what is installed")
    options.words = options.only.split(",") if options.only else QUICK_WORDS if options.quick else []
    options.wants = lambda name: not options.words or any(word.lower() in name.lower() for word in options.words)
    return options


def main():
    options = parse_options()
    build = options.build.resolve()
    os.environ.update(AS_ROOT)
    measured = [mpi for mpi, command in MPIRUN.items() if options.mpi in (None, mpi) and shutil.which(command[0])
                and (build / f"plugins/mpi/libina_mpi_{mpi}.so").exists()]
    if not measured:
        raise BenchError("neither Open MPI nor MPICH is here (packages-plugins.txt), or the build has no interposer")
    rows = Rows(options)
    with temporary_folder() as folder, Switch(build, folder, CONFIG) as switch:
        os.environ["INA_URL"] = f"shm:{switch.socket}"
        for mpi in measured:
            ranks = 2 if mpi == SPINS and (os.cpu_count() or 1) < 4 else 4
            if options.hpcc and rows.wants("HPCC", "", mpi, ranks):
                rows.add(row_of("HPCC", "", mpi, ranks, run_hpcc(build, options.hpcc.resolve(), mpi, ranks)))
            if options.mpi4py:
                run_mpi4py(build, options.mpi4py.resolve(), mpi, options.words, options.ranks, rows)
            if options.mpich:
                run_mpich(build, options.mpich.resolve(), mpi, options, rows)
            if options.packaged:
                run_packaged(build, mpi, min(ranks, options.most_ranks), options, rows)
    print_rows(rows.rows)
    return 1 if any(row["new"] for row in rows.rows) else 0


if __name__ == "__main__":
    command_line.run(main, "bench_mpi_suites")
