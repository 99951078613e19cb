#!/usr/bin/env python3
"""Writes tables of docs/*.md from the benchmarks' JSON files in docs/figures.

    tables.py [--check]

A table is the text between a line `<!-- table: NAME -->` and the next empty line. The modules of doctables
make them, one for each document. The files in docs/figures are brought into the form of benchlib/kept.py.
--check writes nothing and fails where a table differs from its file, or a file has another form.
"""

import argparse
import pathlib
import re
import sys

from benchlib import kept
from doctables import (evaluation, operations, performance, plugins, redistribution, reliability, security,
                       sixteen_cores, switch, themis)
from doctables.form import FIGURES

DOCUMENTS = pathlib.Path(__file__).resolve().parent.parent / "docs"
TABLES = {"evaluation": evaluation.tables, "mpi": plugins.mpi_tables, "operations": operations.tables,
          "performance": performance.tables, "pytorch": plugins.pytorch_tables,
          "redistribution": redistribution.tables, "reliability": reliability.tables, "security": security.tables,
          "sixteen-cores": sixteen_cores.tables, "switch": switch.tables, "themis": themis.tables}


def update(path, old, new, check):
    if new == old:
        return
    if check:
        sys.exit(f"tables: ./dev bench tables would change {path}")
    path.write_text(new, "utf-8")


def pack_figures(check):
    for path in sorted(FIGURES.rglob("*.json")):
        try:
            text = kept.text_of(kept.read(path))
        except ValueError as error:
            sys.exit(f"tables: {path}: {error}")
        update(path, path.read_text("utf-8"), text, check)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    pack_figures(check)
    for document, tables in TABLES.items():
        path = DOCUMENTS / f"{document}.md"
        old = path.read_text("utf-8")
        new = old
        for name, text in tables().items():
            block = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(?=\n\n)", re.DOTALL)
            new, found = block.subn(lambda match, text=text: match[1] + text, new)
            if found != 1:
                sys.exit(f"tables: {path} has {found} places for '{name}', not one")
        update(path, old, new, check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
