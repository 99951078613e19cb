#!/usr/bin/env python3
"""Writes a compile_commands.json with a command for each source, for clang-tidy and editors.

    single_commands.py FOLDER TO   from FOLDER/compile_commands.json to TO/compile_commands.json
    single_commands.py --self-test

Some targets are compiled several sources at a time: Meson writes files that include the sources,
and names only those files.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

MANY = re.compile(r"-unity\d+\.\w+$")
INCLUDED = re.compile(r'^#include\s*[<"](.+)[>"]', re.MULTILINE)


def single(entries):
    """Returns `entries`, with an entry of several sources replaced by one for each source. Files
    have absolute paths."""
    for entry in entries:
        folder = pathlib.Path(entry["directory"])
        file = os.path.normpath(folder / entry["file"])
        sources = INCLUDED.findall(pathlib.Path(file).read_text()) if MANY.search(file) else [file]
        for source in sources:
            source = os.path.normpath(folder / source)
            yield {**entry, "file": source, "command": entry["command"].replace(entry["file"], source)}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        many = pathlib.Path(folder) / "lib-unity0.cc"
        many.write_text('#include "/x/a.cc"\n#include "../b.cc"\n')
        found = list(single([
            {"directory": folder, "file": "../c.cc", "command": "cc -c ../c.cc"},
            {"directory": folder, "file": many.name, "command": f"cc -o {many.name}.o -c {many.name}"}]))
    parent = os.path.dirname(folder)
    assert [entry["file"] for entry in found] == [f"{parent}/c.cc", "/x/a.cc", f"{parent}/b.cc"], found
    assert found[0]["command"] == f"cc -c {parent}/c.cc", found
    assert found[1]["command"].endswith("-c /x/a.cc"), found
    print("single_commands: all as wanted")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit(0)
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    to = pathlib.Path(sys.argv[2])
    to.mkdir(exist_ok=True)
    entries = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    (to / "compile_commands.json").write_text(json.dumps(list(single(entries)), indent=1))
