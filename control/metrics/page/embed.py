#!/usr/bin/env python3
"""Writes the C++ source of page_files(), which contains the given files for the program to serve.

    embed.py OUTPUT FILE...
"""

import pathlib
import sys

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
DELIMITER = "ina_page"
MOST_BYTES = 65536  # of a literal, the C++ standard's minimum


def entry(path):
    text = path.read_text(encoding="utf-8")
    if f'){DELIMITER}"' in text or len(text.encode()) > MOST_BYTES:
        sys.exit(f"{path} does not fit a literal")
    url = "/" if path.name == "index.html" else f"/{path.name}"
    return (f'    {{"{url}", "{TYPES[path.suffix]}; charset=utf-8",\n'
            f'     R"{DELIMITER}({text}){DELIMITER}"}},\n')


def main(output, *files):
    entries = "".join(entry(pathlib.Path(file)) for file in files)
    pathlib.Path(output).write_text(
        '#include "control/metrics/page_files.h"\n\nnamespace ina::metrics {\n\n'
        "std::span<const PageFile> page_files() {\n  static constexpr PageFile kFiles[] = {\n"
        f"{entries}  }};\n  return kFiles;\n}}\n\n}}  // namespace ina::metrics\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
