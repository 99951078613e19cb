#!/usr/bin/env python3
"""Compiles each header alone: a file that includes it must need no other include before it. Tests' headers are left out.

    check_headers.py             exit status 1 if a header needs another before it
    check_headers.py --list      prints the compilations, one a line
    check_headers.py --self-test proves on made-up trees that the check finds errors

The build itself shows that x.h compiles alone where x.cc, compiled alone, includes x.h before
anything else. The other headers are compiled here. One compilation may show several headers: after
the headers that it includes itself, a header sees nothing that it would not see alone. So a chain,
in which each header includes the one before, takes one compilation.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("libdpdk", "libhwy", "fmt", "spdlog", "yaml-cpp", "nlohmann_json", "eigen3", "python3")
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
CONDITION = re.compile(r"\s*#\s*(if|endif)")
# With unity builds several files are compiled at a time, so only a file's own text is sure to
# follow its header.
MANY_AT_A_TIME = re.compile(r"unity=on")


def flags_of(library):
    asked = subprocess.run(["pkg-config", "--cflags", library], capture_output=True, text=True)
    return shlex.split(asked.stdout) if asked.returncode == 0 else []


class Headers:
    """The headers below `root`, and their includes."""

    def __init__(self, root):
        self.root = root
        self.elsewhere = ["plugins/mpi"]  # the build compiles these with each installed MPI
        if subprocess.run(["pkg-config", "--exists", "python3"]).returncode != 0:
            self.elsewhere.append("plugins")
        self.names = sorted(self.find())
        self.direct = {name: self.includes(name) for name in self.names}
        self.known = {}

    def find(self):
        for folder, folders, files in os.walk(self.root):
            at = pathlib.Path(folder).relative_to(self.root)
            # Tests' headers have GoogleTest before them in any case. The build compiles a precompiled header (pch) alone.
            folders[:] = [f for f in folders if f not in (".git", "tests", "pch") and not f.startswith("build")
                          and str(at / f) not in self.elsewhere]
            for file in files:
                # Highway's per-target code is included several times on purpose.
                if file.endswith((".h", ".hpp")) and not file.endswith("-inl.h"):
                    yield str(at / file)

    def includes(self, name):
        """Returns headers of the project that this header includes in any case, outside of
        conditions."""
        found, depth = [], 0
        for line in (self.root / name).read_text().splitlines():
            if condition := CONDITION.match(line):
                depth += 1 if condition[1] == "if" else -1
            elif depth == 0 and (match := INCLUDE.match(line)):
                for base in ("", "include", os.path.dirname(name)):
                    path = os.path.normpath(os.path.join(base, match[1]))
                    if (self.root / path).is_file():
                        found.append(path)
                        break
        return found

    def all_included(self, name):
        """Returns the headers that this header includes, also indirectly."""
        if name not in self.known:
            self.known[name] = set()  # ends a circle of includes
            self.known[name] = set(self.direct.get(name, ())).union(
                *(self.all_included(other) for other in self.direct.get(name, ())))
        return self.known[name]

    def shown_by_build(self, name):
        """Returns whether the build compiles this header before anything else."""
        source = (self.root / name).with_suffix(".cc")
        if not source.is_file():
            return False
        described = source.parent / "meson.build"
        if described.is_file() and MANY_AT_A_TIME.search(described.read_text()):
            return False
        first = next((line for line in source.read_text().splitlines() if line.startswith("#include")), "")
        return first == f'#include "{name}"'

    def chains(self):
        """Returns the smallest number of lists of headers (by matching), in each of which a header
        includes the one before."""
        to_show = [name for name in self.names if not self.shown_by_build(name)]
        # Headers with the most includes come last, and take the longest free chain.
        before, after = {}, {}

        def attach(name, tried):
            for other in sorted(self.all_included(name), key=lambda n: -len(self.all_included(n))):
                if other not in wanted or other in tried or other == name:
                    continue
                tried.add(other)
                if other not in after or attach(after[other], tried):
                    before[name], after[other] = other, name
                    return True
            return False

        wanted = set(to_show)
        for name in sorted(to_show, key=lambda n: len(self.all_included(n))):
            attach(name, set())
        result = []
        for name in to_show:
            if name in after:
                continue
            chain = [name]
            while chain[-1] in before:
                chain.append(before[chain[-1]])
            result.append(chain[::-1])
        return sorted(result, key=lambda chain: -len(self.all_included(chain[-1])))

    def failures(self, compiler, flags):
        """Returns (chain, error of the compiler) of each chain that fails."""

        def compile_chain(chain):
            text = "".join(f'#include "{name}"\n' for name in chain)
            ran = subprocess.run([*compiler, *flags, "-x", "c++", "-"], input=text, text=True, cwd=self.root,
                                 capture_output=True)
            return chain, ran.stderr if ran.returncode else None

        jobs = int(os.environ.get("INA_JOBS") or os.cpu_count() or 1)
        with ThreadPoolExecutor(jobs) as pool:
            return [(chain, said) for chain, said in pool.map(compile_chain, self.chains()) if said is not None]


def check():
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    flags = ["-std=c++20", "-fsyntax-only", "-w", "-I.", "-Iinclude"]
    for library in LIBRARIES:
        flags += flags_of(library)
    failed = Headers(ROOT).failures(compiler, flags)
    for chain, said in failed:
        print(f"{' '.join(chain)}: one of these needs another include before it:\n{said}", file=sys.stderr)
    # The C ABI is C.
    plain = subprocess.run([*shlex.split(os.environ.get("CC", "gcc")), "-std=c99", "-pedantic", "-Wall", "-Werror",
                            "-fsyntax-only", "-x", "c", "include/ina/ina.h"], cwd=ROOT)
    return 1 if failed or plain.returncode else 0


def self_test():
    cases = {
        # The texts of headers, and the headers that must fail.
        "alone": ({"a.h": "int a();", "b.h": '#include "a.h"\nint b = a();'}, ()),
        "needs another": ({"a.h": "struct A {};", "b.h": "A b();"}, ("b.h",)),
        "needs what a neighbour has": (
            {"a.h": "#pragma once\nstruct A {};", "b.h": '#pragma once\n#include "a.h"', "c.h": "A c();"}, ("c.h",)),
        "the first of a chain needs what a later one includes": (
            {"a.h": "A a();", "b.h": "#pragma once\nstruct A {};", "c.h": '#include "b.h"\n#include "a.h"'}, ("a.h",)),
        "includes on a condition": (
            {"a.h": "#pragma once\nstruct A {};", "b.h": '#ifdef NEVER\n#include "a.h"\n#endif\nA b();'}, ("b.h",)),
        "shown by the build": ({"a.h": "A a();", "a.cc": '#include "a.h"'}, ()),
        "many at a time": (
            {"a.h": "A a();", "a.cc": '#include "a.h"', "meson.build": "'unity=on'"}, ("a.h",)),
        "precompiled": ({"pch/a.h": "A a();"}, ()),
        "a test's": ({"tests/a.h": "A a();"}, ()),
    }
    for name, (texts, wanted) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file, text in texts.items():
                (root / file).parent.mkdir(exist_ok=True)
                (root / file).write_text(text + "\n")
            failed = Headers(root).failures(["g++"], ["-fsyntax-only", "-I."])
            found = [chain for chain, _ in failed]
            assert bool(found) == bool(wanted), f"{name}: {found}"
            assert all(any(file in chain for chain in found) for file in wanted), f"{name}: {found}"
    print("check_headers: notices all")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if sys.argv[1:] == ["--list"]:
        for one in Headers(ROOT).chains():
            print(*one)
        sys.exit(0)
    sys.exit(check())
