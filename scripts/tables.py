#!/usr/bin/env python3
"""Writes tables of docs/*.md from the benchmarks' JSON files in docs/figures.

    tables.py [--check]

A table is the text between a line `<!-- table: NAME -->` and the next empty line. The modules of doctables
make them, one for each document. --check writes nothing and fails where a table differs from its file.
"""

import argparse
import pathlib
import re
import sys

from doctables import (evaluation, operations, performance, plugins, redistribution, reliability, security,
                       sixteen_cores, themis)

DOCUMENTS = pathlib.Path(__file__).resolve().parent.parent / "docs"
TABLES = {"evaluation": evaluation.tables, "mpi": plugins.mpi_tables, "operations": operations.tables,
          "performance": performance.tables, "pytorch": plugins.pytorch_tables,
          "redistribution": redistribution.tables, "reliability": reliability.tables, "security": security.tables,
          "sixteen-cores": sixteen_cores.tables, "themis": themis.tables}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for document, tables in TABLES.items():
        path = DOCUMENTS / f"{document}.md"
        old = path.read_text("utf-8")
        new = old
        for name, text in tables().items():
            block = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(?=\n\n)", re.DOTALL)
            new, found = block.subn(lambda match, text=text: match[1] + text, new)
            if found != 1:
                sys.exit(f"tables: {path} has {found} places for '{name}', not one")
        if not check:
            path.write_text(new, "utf-8")
        elif new != old:
            sys.exit(f"tables: {path} is not what docs/figures says; ./dev bench tables writes it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
