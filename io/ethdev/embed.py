"""Writes a file's bytes as a C++ array: embed.py FILE HEADER NAME"""

import pathlib
import sys

source, header, name = sys.argv[1:]
data = pathlib.Path(source).read_bytes()
lines = (", ".join(f"{byte:#04x}" for byte in data[at:at + 16]) for at in range(0, len(data), 16))
pathlib.Path(header).write_text(
    f"#pragma once\n\ninline constexpr unsigned char {name}[] = {{\n    " + ",\n    ".join(lines) +
    "};\n", encoding="utf-8")
