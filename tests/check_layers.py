#!/usr/bin/env python3
"""Checks that the layers agree with docs/architecture.md.

The document's table is the single source: all folders, the layers that each uses, and the pure
ones.

Direction: a file includes headers of its own layer, and of the layers that this layer uses. A layer
uses only layers above it in the table, so that there are no cycles, and lists no layer without
need. Tests may use everything, and only tests may use tests. Files that the text names must exist.

Purity: the protocol's objects run unchanged under DPDK, in unit tests and in simulations. So they
must include nothing that does I/O, reads a clock or a random source, logs, parses YAML, or starts
or locks threads; time and I/O reach them as parameters. This holds for files of the pure layers,
and for any other file whose first comment calls it pure. Includes are followed through the
project's own headers, so that nothing forbidden is included indirectly either.

Threads: tests without ThreadSanitizer, and the code that they test, have no threads.

    check_layers.py ROOT         exit status 1 if a rule is broken
    check_layers.py --self-test  proves on made-up trees that the check finds errors
"""

import os
import pathlib
import re
import sys
import tempfile

from check_walks import EXAMPLES

DOCUMENT = "docs/architecture.md"
HEAD = "| Folder | Contents | Uses | Pure |"
SOURCES = (".h", ".hpp", ".cc", ".c")
TESTS = "tests"

# A project header is looked up below these folders, as the compiler does.
INCLUDE_ROOTS = (".", "include")

# Includes that a pure layer must not have, and the reasons.
FORBIDDEN = (
    (r"rte_.*|.*/rte_.*", "DPDK"),
    (r"chrono|ctime|time\.h|sys/time\.h|common/clock\.h", "clock"),
    (r"random|sys/random\.h", "randomness"),
    (r"thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token"
     r"|pthread\.h|threads\.h|semaphore\.h|tbb/.*|oneapi/.*", "threads"),
    (r"spdlog/.*|syslog\.h|iostream|ostream|fstream|cstdio|stdio\.h|print", "logging and output"),
    (r"yaml-cpp/.*|nlohmann/.*|common/json/.*|CLI/.*", "configuration"),
    (r"sys/.*|linux/.*|net/.*|netinet/.*|arpa/.*|unistd\.h|fcntl\.h|poll\.h|sched\.h|filesystem"
     r"|signal\.h|csignal", "system calls"),
)

# Folders that are tested without ThreadSanitizer because nothing in them starts a thread: tests,
# and the tested layers that are not pure.
ONE_THREAD = (*(f"{TESTS}/{suite}" for suite in ("wire", "aggregator", "scheduler", "plans", "fragments", "operations", "bridge", "config", "io")),
              "io", "io/shm", "switchd/config")

# Calls that are forbidden even without an include of their own.
FORBIDDEN_CALLS = re.compile(
    r"\b(std::rand|rand|srand|random|getrandom|clock_gettime|gettimeofday|__rdtsc|getenv|printf|"
    r"fprintf)\s*\(")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
COMMENT = re.compile(r"//.*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"")
FIRST_COMMENT = re.compile(r"(?:[ \t]*//[^\n]*\n)+")
CALLS_ITSELF_PURE = re.compile(r"\bpure\b(?! code)", re.IGNORECASE)


NAMED_FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.\w+)`")


class Layer:
    """A row of the table. `uses`: names of layers."""

    def __init__(self, name, uses, pure):
        self.name, self.uses, self.pure = name, uses, pure
        self.used = set()
        self.includes = 0


class Tree:
    """The sources below `root`, and the layers that its document states."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.layers = {layer.name: layer for layer in self.read_layers()}
        self.files = sorted(self.find_files())

    def read_layers(self):
        lines = iter((self.root / DOCUMENT).read_text().splitlines())
        for line in lines:
            if line.strip() == HEAD:
                break
        next(lines, None)  # the separator below the table's heading
        for line in lines:
            if not line.startswith("|"):
                break
            folder, _, uses, pure = (cell.strip() for cell in line.strip("|").split("|"))
            yield Layer(folder.strip("`").rstrip("/"),
                        [name.strip("` ") for name in uses.split(",") if name.strip()],
                        pure == "yes")

    def find_files(self):
        for folder, folders, names in os.walk(self.root):
            at_root = pathlib.Path(folder) == self.root
            folders[:] = [f for f in folders
                          if not f.startswith(".") and not (at_root and f.startswith("build"))]
            yield from (pathlib.Path(folder) / name for name in names if name.endswith(SOURCES))

    def name_of(self, file):
        return str(file.relative_to(self.root))

    def layer_of(self, file):
        """Returns the layer whose folder is nearest; None: the file is in no layer."""
        for parent in file.relative_to(self.root).parents:
            if str(parent) in self.layers:
                return self.layers[str(parent)]
        return None

    def find(self, includer, header):
        """Returns the project's file that an include names; None: the file is not in the
        project."""
        for base in (*INCLUDE_ROOTS, includer.parent.relative_to(self.root)):
            candidate = pathlib.Path(os.path.normpath(self.root / base / header))
            if candidate.is_file():
                return candidate
        return None

    def is_test(self, file):
        return self.name_of(file).startswith(TESTS + "/") or file.stem.endswith("_test")


def wrong_order(tree):
    """Yields the errors of the table itself."""
    above = set()
    for layer in tree.layers.values():
        for name in layer.uses:
            if name not in above:
                yield f"{DOCUMENT}: {layer.name} uses {name}, which is not above it in the table"
        above.add(layer.name)


def wrong_directions(tree):
    for file in tree.files:
        layer = tree.layer_of(file)
        if tree.is_test(file):
            continue
        if not layer:
            yield f"{tree.name_of(file)}: lies in no layer of {DOCUMENT}"
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            target = match and tree.find(file, match.group(1))
            if not target:
                continue
            place = f"{tree.name_of(file)}:{number}: includes {match.group(1)}"
            if tree.is_test(target):
                yield f"{place}, which belongs to the tests"
                continue
            other = tree.layer_of(target)
            if other is layer or not other:
                continue
            layer.used.add(other.name)
            layer.includes += 1
            if other.name not in layer.uses:
                yield f"{place}: {layer.name} does not use {other.name} ({DOCUMENT})"
    for layer in tree.layers.values():
        for name in layer.uses:
            if name not in layer.used:
                yield f"{DOCUMENT}: {layer.name} needs {name} no more"


def missing_files(tree):
    """Yields files that the document names but that do not exist."""
    for number, line in enumerate((tree.root / DOCUMENT).read_text().splitlines(), 1):
        for path in NAMED_FILE.findall(line):
            if not EXAMPLES.search(path) and not (tree.root / path).is_file():
                yield f"{DOCUMENT}:{number}: there is no {path}"


def reason_against(header):
    for pattern, reason in FORBIDDEN:
        if re.fullmatch(pattern, header):
            return reason
    return None


def calls_itself_pure(file):
    first = FIRST_COMMENT.match(file.read_text())
    return bool(first) and bool(CALLS_ITSELF_PURE.search(first.group(0)))


def pure_files(tree):
    return [file for file in tree.files
            if not tree.is_test(file) and ((tree.layer_of(file) and tree.layer_of(file).pure)
                                           or calls_itself_pure(file))]


def impurities(tree, files):
    visited = set()

    def visit(file, chain):
        if file in visited:
            return
        visited.add(file)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            place = f"{tree.name_of(file)}:{number}"
            match = INCLUDE.match(line)
            if not match:
                call = FORBIDDEN_CALLS.search(COMMENT.sub("", line))
                if call:
                    yield f"{place}: calls {call.group(1)}{via(chain)}"
                continue
            header = match.group(1)
            reason = reason_against(header)
            if reason:
                yield f"{place}: includes {header} ({reason}){via(chain)}"
                continue
            project_header = tree.find(file, header)
            if project_header:
                yield from visit(project_header, (*chain, tree.name_of(file)))

    for file in files:
        yield from visit(file, ())


def via(chain):
    return f", included by {' <- '.join(reversed(chain))}" if chain else ""


def threads_of_one(tree):
    """Yields includes of threads in folders without ThreadSanitizer."""
    threads = next(re.compile(pattern) for pattern, reason in FORBIDDEN if reason == "threads")
    visited = set()

    def visit(file, chain):
        if file in visited:
            return
        visited.add(file)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and threads.fullmatch(match[1]):
                yield (f"{tree.name_of(file)}:{number}: includes {match[1]}{via(chain)}, in what ThreadSanitizer "
                       f"does not run since it has one thread (tsan_suites of ./dev, ONE_THREAD here)")
            elif match and (project_header := tree.find(file, match[1])):
                yield from visit(project_header, (*chain, tree.name_of(file)))

    for file in tree.files:
        if str(file.parent.relative_to(tree.root)) in ONE_THREAD:
            yield from visit(file, ())


def violations(tree):
    return [*wrong_order(tree), *wrong_directions(tree), *impurities(tree, pure_files(tree)),
            *missing_files(tree), *threads_of_one(tree)]


SELF_TEST_TABLE = f"""# Architecture

{HEAD}
|---|---|---|---|
| `include/` | the public interface | | |
| `wire/` | messages | | yes |
| `aggregator/` | slots | wire | yes |
| `common/` | clocks | include, wire | |
| `client/` | libina | common | |
| `client/fast/` | more of it | client | |

The way of a packet begins in `wire/a.h`.
"""


def self_test():
    """Each bad tree must give an error, and the good one must pass."""
    good = {
        DOCUMENT: SELF_TEST_TABLE,
        "include/ina/ina.h": "",
        "wire/a.h": "#include <vector>\n// rand() and <chrono>: not here\n",
        "aggregator/a.cc": '#include "wire/a.h"\nint operand(int);\n',
        "common/clock.h": '// For pure code.\n#include <ctime>\n#include "wire/a.h"\n#include "ina/ina.h"\n',
        "client/a.h": '#include <thread>\n#include "common/clock.h"\n',
        "client/a_test.cc": '#include "tests/b.h"\n#include "wire/a.h"\n',
        "client/fast/a.cc": '#include "client/a.h"\n',
        "tests/b.h": '#include "client/a.h"\n',
        "build/generated.cc": '#include "tests/b.h"\n',
    }
    bad = {
        "a clock": {"wire/b.cc": "#include <chrono>\n"},
        "DPDK": {"aggregator/b.h": "#  include <rte_mbuf.h>\n"},
        "randomness": {"wire/b.cc": "#include <random>\n"},
        "threads": {"aggregator/b.h": "#include <mutex>\n"},
        "logging": {"wire/b.h": "#include <spdlog/spdlog.h>\n"},
        "YAML": {"wire/b.h": "#include <yaml-cpp/yaml.h>\n"},
        "a relative detour": {"wire/b.cc": '#include "b.h"\n', "wire/b.h": "#include <ctime>\n"},
        "a call": {"wire/b.cc": "int x = rand();\n"},
        "a file that calls itself pure": {"client/b.h": "// Numbers. Pure; no locks.\n#include <mutex>\n"},
        "a detour of such a file":
            {"client/b.h": '// As pure as can be.\n#include "common/clock.h"\n'},
        "an include upwards": {"aggregator/b.h": '#include "common/b.h"\n', "common/b.h": ""},
        "an include that the table does not have": {"client/b.h": '#include "wire/a.h"\n'},
        "an include from a folder within": {"client/b.h": '#include "client/fast/b.h"\n',
                                            "client/fast/b.h": ""},
        "an include of a test's": {"client/b.h": '#include "tests/b.h"\n'},
        "a file outside": {"elsewhere/a.cc": ""},
        "a circle": {DOCUMENT: SELF_TEST_TABLE.replace("messages | |", "messages | aggregator |"),
                     "wire/b.h": '#include "aggregator/b.h"\n', "aggregator/b.h": ""},
        "a file that is not where the text has it":
            {DOCUMENT: SELF_TEST_TABLE.replace("`wire/a.h`", "`wire/b.h`")},
        "threads in what ThreadSanitizer does not run": {"tests/fragments/a_test.cc": "#include <thread>\n"},
        "such threads by a detour": {"tests/fragments/a_test.cc": '#include "client/a.h"\n'},
        "a use that is none": {DOCUMENT: SELF_TEST_TABLE.replace("libina | common",
                                                                 "libina | common, wire")},
    }
    for name, change in {**bad, "nothing": {}}.items():
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**good, **change}.items():
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            found = violations(Tree(folder))
        if bool(found) != (name in bad):
            print(f"self-test: a tree with {name}: found {found}")
            return 1
    print(f"self-test: {len(bad)} bad trees found out, 1 good tree passed")
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1:
        print(__doc__)
        return 2
    tree = Tree(pathlib.Path(arguments[0]).resolve())
    found = violations(tree)
    for line in found:
        print(line)
    pure = pure_files(tree)
    if not tree.layers or not pure:
        print(f"no layers found in {DOCUMENT}, or no pure file")
        return 1
    print(f"{len(tree.files)} files, {len(tree.layers)} layers with "
          f"{sum(layer.includes for layer in tree.layers.values())} includes of others along "
          f"{sum(len(layer.used) for layer in tree.layers.values())} arrows, {len(pure)} pure files; "
          f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
