#!/usr/bin/env python3
"""Checks that the pure layers stay pure.

The protocol's objects run unchanged under DPDK, in unit tests and in simulations. That works only
while they include nothing that does I/O, reads a clock or a random source, logs, parses YAML, or
starts or locks threads: those come in as parameters. Includes are followed through the project's
own headers, so that nothing forbidden comes in by a detour either.

    check_layers.py ROOT         exit status 1 if a rule is broken
    check_layers.py --self-test  proves on made-up trees that it notices
"""

import pathlib
import re
import sys
import tempfile

PURE = ("wire/**/*.h", "wire/**/*.cc", "aggregator/**/*.h", "aggregator/**/*.cc", "scheduler/**/*.h",
        "scheduler/**/*.cc", "bridge/**/*.h", "bridge/**/*.cc", "client/src/engine*.h", "client/src/engine*.cc",
        "client/src/parker.h", "client/src/parker.cc",
        "client/src/executor.h", "client/src/executor.cc", "client/src/fused.h",
        "client/src/fused.cc",
        "client/src/fixed_point.h", "client/src/fixed_point.cc", "client/src/reproducible.h",
        "client/src/reproducible.cc")

# Below these a project header is looked up, as the compiler does.
INCLUDE_ROOTS = (".", "client/include")

# What a pure layer must not include, and why.
FORBIDDEN = (
    (r"rte_.*|.*/rte_.*", "DPDK"),
    (r"chrono|ctime|time\.h|sys/time\.h|common/clock\.h", "clock"),
    (r"random|sys/random\.h", "randomness"),
    (r"thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token"
     r"|pthread\.h|threads\.h|semaphore\.h|tbb/.*|oneapi/.*", "threads"),
    (r"spdlog/.*|syslog\.h|iostream|ostream|fstream|cstdio|stdio\.h|print", "logging and output"),
    (r"yaml-cpp/.*|nlohmann/.*|CLI/.*", "configuration"),
    (r"sys/.*|linux/.*|net/.*|netinet/.*|arpa/.*|unistd\.h|fcntl\.h|poll\.h|sched\.h|filesystem"
     r"|signal\.h|csignal", "system calls"),
)

# Forbidden even without an include of its own.
FORBIDDEN_CALLS = re.compile(
    r"\b(std::rand|rand|srand|random|getrandom|clock_gettime|gettimeofday|__rdtsc|getenv|printf|"
    r"fprintf)\s*\(")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
COMMENT = re.compile(r"//.*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"")


def reason_against(header):
    for pattern, reason in FORBIDDEN:
        if re.fullmatch(pattern, header):
            return reason
    return None


def find(root, includer, header):
    for base in (*INCLUDE_ROOTS, includer.parent.relative_to(root)):
        candidate = root / base / header
        if candidate.is_file():
            return candidate
    return None


def violations(root):
    root = pathlib.Path(root)
    found = []
    visited = set()

    def visit(file, chain):
        if file in visited:
            return
        visited.add(file)
        text = file.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{file.relative_to(root)}:{number}"
            match = INCLUDE.match(line)
            if not match:
                call = FORBIDDEN_CALLS.search(COMMENT.sub("", line))
                if call:
                    found.append(f"{place}: calls {call.group(1)}{via(chain)}")
                continue
            header = match.group(1)
            reason = reason_against(header)
            if reason:
                found.append(f"{place}: includes {header} ({reason}){via(chain)}")
                continue
            project_header = find(root, file, header)
            if project_header:
                visit(project_header, (*chain, str(file.relative_to(root))))

    files = sorted({file for pattern in PURE for file in root.glob(pattern)})
    for file in files:
        visit(file, ())
    return files, found


def via(chain):
    return f", included by {' <- '.join(reversed(chain))}" if chain else ""


def self_test():
    """Each bad tree must be found out, the good one must pass."""
    bad = {
        "a clock": {"wire/a.cc": "#include <chrono>\n"},
        "DPDK": {"aggregator/a.h": "#  include <rte_mbuf.h>\n"},
        "a clock in the bridge": {"bridge/a.h": "#include <ctime>\n"},
        "randomness": {"scheduler/a.cc": "#include <random>\n"},
        "threads": {"client/src/engine_window.h": "#include <mutex>\n"},
        "logging": {"wire/a.h": "#include <spdlog/spdlog.h>\n"},
        "YAML": {"scheduler/a.h": "#include <yaml-cpp/yaml.h>\n"},
        "a detour": {"wire/a.cc": '#include "common/b.h"\n', "common/b.h": "#include <unistd.h>\n"},
        "a relative detour": {"wire/a.cc": '#include "b.h"\n', "wire/b.h": "#include <ctime>\n"},
        "a call": {"wire/a.cc": "int x = rand();\n"},
    }
    good = {
        "wire/a.cc": '#include <vector>\n#include "common/b.h"\n// rand() and <chrono>: not here\n',
        "common/b.h": "#include <cstdint>\nint operand(int);\n",
        "client/src/context.cc": "#include <thread>\n",
        "switchd/main.cc": "#include <rte_eal.h>\n",
    }
    for name, tree in {**bad, "nothing": good}.items():
        with tempfile.TemporaryDirectory() as folder:
            for path, text in tree.items():
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            _, found = violations(folder)
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
    files, found = violations(pathlib.Path(arguments[0]).resolve())
    for line in found:
        print(line)
    if not files:
        print("no source of a pure layer found")
        return 1
    print(f"{len(files)} files of pure layers checked, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
