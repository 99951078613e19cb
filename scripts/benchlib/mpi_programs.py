"""Test programs of MPI libraries: MPICH's own tests, which run with any MPI, and those of ScaLAPACK and MUMPS as Debian packages them."""

import collections
import pathlib
import re
import shutil

MPICH_FOLDERS = ("coll", "comm", "errors/coll", "pt2pt", "threads/coll", "threads/comm", "threads/pt2pt")
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/{mpi}-tests"
SCALAPACK_PARTS = ("xs", "xd", "xc", "xz")  # single, double, and their complex ones
SCALAPACK_DATA = pathlib.Path("/usr/share/scalapack")
MUMPS = pathlib.Path("/usr/lib/mumps")

# A program's run. folder: where it runs (None: in an empty one), environment: NAME=VALUE; input: a file or None.
Program = collections.namedtuple("Program", "name command ranks environment folder input")


def mpich_build(mpi):
    """Returns the command that builds MPICH's tests, in a copy of the source of test/mpi. What an MPI lacks is left out.
    Two calls have names of MPI 1 there, which Open MPI no longer declares."""
    options = ["--disable-fortran", "--disable-cxx", "--disable-romio", "--disable-spawn", "--enable-threads=multiple",
               *(["--enable-strictmpi"] if mpi != "mpich" else [])]
    folders = ["util", "dtpools", *sorted({folder.split("/")[0] for folder in MPICH_FOLDERS})]
    make = "; ".join(f"make -k -j2 -C {folder}" for folder in folders)
    rename = r"sed -i 's/MPI_Type_\(hvector\|hindexed\)(/MPI_Type_create_\1(/' dtpools/src/dtpools_custom.c"
    return ["sh", "-c", f"{rename} && ./configure MPICC=mpicc.{mpi} CC=gcc {' '.join(options)} && {{ {make}; true; }}"]


def mpich_listed(line, folder):
    """Returns the program of a line of a testlist, or None: `name ranks [arg=ARGUMENT] [env=NAME=VALUE] ...`."""
    words = line.split("#")[0].split()
    if len(words) < 2 or not words[1].isdigit():
        return None
    given = collections.defaultdict(list)
    for word in words[2:]:
        key, _, value = word.partition("=")
        given[key].append(value)
    # What is expected to fail, or needs more memory than others.
    if given["xfail"] or given["mem"]:
        return None
    name = " ".join([f"{folder.name}/{words[0]}", *given["arg"], *given["env"]])
    return Program(name, [folder / words[0], *given["arg"]], int(words[1]), given["env"], folder, None)


def mpich_programs(tests, part, most_ranks):
    """Returns the programs of a folder of the built tests, each once, on `most_ranks` at most."""
    folder = tests / part
    listed = (mpich_listed(line, folder) for line in (folder / "testlist").read_text("utf-8").splitlines())
    once = {}
    for program in listed:
        if program and program.command[0].exists():
            ranks = min(program.ranks, most_ranks)
            name = f"{program.name}, {ranks} ranks"
            once[name] = program._replace(name=name, ranks=ranks)
    return list(once.values())


def fitting_grids(text, ranks):
    """Returns ScaLAPACK's input with grids of all ranks, in a column or a row, for those that need more. Its programs leave those out,
    which are most: two ranks would solve nothing together."""
    lines = text.splitlines(keepends=True)
    for at in range(len(lines) - 1):
        found = [re.match(rf"((?:\d+\s+)+)values of {name}", line) for name, line in zip("PQ", lines[at:at + 2])]
        if not all(found):
            continue
        grids = [(int(p), int(q)) for p, q in zip(*(match[1].split() for match in found))]
        grids = [(p, q) if p * q <= ranks else (ranks, 1) if p >= q else (1, ranks) for p, q in grids]
        for side, match in enumerate(found):
            numbers = " ".join(str(grid[side]) for grid in grids)
            lines[at + side] = f"{numbers} {lines[at + side][match.end(1):]}"
    return "".join(lines)


def scalapack_programs(mpi, ranks, folder):
    """Returns ScaLAPACK's programs, which read their input in `folder`. None if the package is not there."""
    tests = pathlib.Path(SCALAPACK.format(mpi=mpi))
    if not tests.exists() or not SCALAPACK_DATA.exists():
        return []
    shutil.copytree(SCALAPACK_DATA, folder, dirs_exist_ok=True)
    for path in folder.glob("*.dat"):
        path.write_text(fitting_grids(path.read_text("utf-8"), ranks), "utf-8")
    return [Program(path.name, [path], ranks, [], folder, None) for path in sorted(tests.glob("x[sdcz]*"))]


def mumps_programs(mpi):
    """Returns the package's programs, which are built with Open MPI."""
    if mpi != "openmpi":
        return []
    return [Program(path.name, [path], 2, [], MUMPS, MUMPS / f"input_simpletest_{'cmplx' if path.name[0] in 'cz' else 'real'}")
            for path in sorted(MUMPS.glob("*simpletest"))]


def mpich_passed(said):
    return re.search(r"^ *No [Ee]rrors *$", said, re.MULTILINE) is not None


def scalapack_passed(said):
    """All residuals are small. Their number depends on no other process."""
    failed = re.findall(r"^ *(\d+) tests completed and failed", said, re.MULTILINE)
    if re.search(r"Test for P[DS]HSEQR|^(?:Passed|Failed) ", said, re.MULTILINE):  # xdhseqr and xdsvd, which count nothing
        verdicts = re.findall(r"\b(PASSED|FAILED)\b|^(?:(Passed)|(Failed)) ", said, re.MULTILINE)
        return all(passed.upper() == "PASSED" for found in verdicts for passed in found if passed) and bool(verdicts)
    return "END OF TESTS" in said and bool(failed) and all(int(number) == 0 for number in failed)


def mumps_passed(said):
    """The solution of the example is 1 to 5 (complex: with nothing behind)."""
    after = said.partition("Solution is")[2].partition("\n")[0]
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+(?:E[+-]\d+)?", after)]
    real = numbers[::2] if "(" in after else numbers
    return len(real) >= 5 and all(abs(real[at] - at - 1) < 1e-3 for at in range(5))
