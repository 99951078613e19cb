#!/usr/bin/env python3
"""Writes the reference of the APIs of C, C++ and Python from the comments in headers and modules, and
that of the counters from their tables.

    make_reference.py [--check] [FOLDER]

Writes c.md, cpp.md, python.md and counters.md into FOLDER (docs/reference). --check: compares these files
instead, and fails where one of them differs from the output.
"""

import argparse
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = "scripts/make_reference.py"
C_HEADER, CPP_HEADER = ROOT / "include/ina/ina.h", ROOT / "include/ina/ina.hpp"
PYTHON_MODULES = ["_context.py", "_hierarchy.py", "_errors.py", "_types.py", "torch.py"]
INDENTED = re.compile(r"^ {2,}\S")


class Undocumented(Exception):
    """A declaration has no comment, or cannot be read; the text says which, and where."""


def paragraphs(text):
    """Returns comment text as Markdown. Indented lines are a list, whose items end with
    punctuation."""
    lines, ended = [], True
    for line in text.splitlines():
        item = INDENTED.match(line)
        line = line.strip().removeprefix("- ")
        in_list = bool(lines) and lines[-1].startswith(("- ", "  "))
        if line and lines and lines[-1] and bool(item) != in_list:
            lines.append("")
        lines.append(("- " if ended else "  ") + line if item else line)
        ended = not item or line.endswith((";", ".", ":"))
    return escaped("\n".join(lines).strip())


def escaped(text):
    """Escapes Markdown's markup outside of `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<])", r"\\\1", part) for part in parts)


def section(level, names, text, code, language):
    """Returns one entry of a page."""
    title = ", ".join(f"`{name}`" for name in names)
    parts = [f"{'#' * level} {title}"] if names else []
    if text:
        parts.append(paragraphs(text))
    if code:
        parts.append(f"```{language}\n{code}\n```")
    return "\n\n".join(parts) + "\n"


# ---- C

C_NAME = re.compile(r"^(?:typedef (?:enum|struct) (\w+)|#define (\w+)|INA_API [^(]*?(\w+)\(|typedef .*?\(\*(\w+)\)|enum (\w+))")


def c_names(code):
    """Returns the names that a piece of the header declares."""
    names = []
    for line in code.splitlines():
        found = C_NAME.match(line)
        name = found and next(filter(None, found.groups()))
        if name and name not in names:
            names.append(name)
    return names


def c_pieces(text):
    """Yields (comment, code) of a C header, in order. A comment precedes its declarations."""
    comment, code, inside, depth = [], [], False, 0

    def flush():
        nonlocal comment, code
        piece = ("\n".join(comment).strip(), "\n".join(code).strip())
        comment, code = [], []
        return [piece] if any(piece) else []

    for line in text.splitlines():
        if not inside and depth == 0 and line.startswith("/*"):
            yield from flush()
            inside = True
        if inside:
            comment.append(re.sub(r"^(/\*| \*/?) ?|\s*\*/$", "", line))
            inside = not line.rstrip().endswith("*/")
            continue
        depth += line.count("{") - line.count("}")
        if line.strip() or depth:
            code.append(line)
        elif code or comment:
            yield from flush()
    yield from flush()


# Lines that only the compiler needs.
C_NOISE = re.compile(r"^#(ifdef __cplusplus|if defined\(__GNUC__\))\n.*?^#endif\n|^#(ifndef|endif|include|define INA_INA_H_)[^\n]*\n",
                     re.DOTALL | re.MULTILINE)


def c_page(text):
    intro, *pieces = c_pieces(C_NOISE.sub("", text))
    page = [f"# C: `ina/ina.h`\n\n{paragraphs(intro[0])}\n"]
    for comment, code in pieces:
        page.append(section(2, c_names(code), comment, code, "c"))
    return "\n".join(page)


# ---- C++

INITIALISERS = re.compile(r"(\)(?: noexcept)?)\s+: \w.*?;$", re.DOTALL | re.MULTILINE)


def without_bodies(code):
    """Returns declarations in place of inline definitions."""
    out, at = "", 0
    while at < len(code):
        if code[at] != "{" or not re.search(r"(\)|const|noexcept|override|\})$", out[-20:].rstrip()):
            out += code[at]
            at += 1
            continue
        depth = 0
        while True:
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
            if depth == 0:
                break
        out = out.rstrip() + ";"
    return INITIALISERS.sub(r"\1;", out)


def public_part(code):
    """Returns the code without private members."""
    return re.sub(r"\n+ private:\n.*?(?=\n};)", "", code, flags=re.DOTALL)


def cpp_pieces(text):
    """Yields (comment, code) for each declaration of the namespace with a comment before it."""
    body = text[text.index("namespace ina {"):]
    body = re.sub(r"\nnamespace detail \{.*?\n}  // namespace detail\n", "\n", body, flags=re.DOTALL)
    pattern = re.compile(r"^((?:///.*\n)+)((?:.*\n)*?)(?=^///|^}  // namespace|\n\n(?=///|[a-z}]))", re.MULTILINE)
    for comment, code in pattern.findall(body):
        text = "\n".join(line[3:].removeprefix(" ") for line in comment.splitlines())
        yield text, code.rstrip()


def cpp_page(text):
    intro = re.match(r"((?://.*\n)+)", text).group(1)
    page = ["# C++: `ina/ina.hpp`\n", paragraphs(re.sub(r"^// ?", "", intro, flags=re.MULTILINE)) + "\n"]
    for comment, code in cpp_pieces(text):
        names = re.findall(r"^(?:enum class|class|struct|using) (\w+)", code, re.MULTILINE)
        names = names or re.findall(r"(\w+)\(\)", code)[:1]
        page.append(section(2, names, comment, without_bodies(public_part(code)).strip(), "cpp"))
    return "\n".join(page)


# ---- Python

def signature(function):
    return f"{function.name}({ast.unparse(function.args)})".replace("(self, ", "(").replace("(self)", "()").replace(
        "(cls, ", "(")


def python_class(module, node):
    bases = [ast.unparse(base) for base in node.bases]
    doc = ast.get_docstring(node)
    if doc is None:
        if not any(base.endswith("Enum") for base in bases):
            raise Undocumented(f"{module}: class {node.name} has no docstring")
        doc = "Numbers of ina.h: " + ", ".join(t.targets[0].id for t in node.body if isinstance(t, ast.Assign)) + "."
    made = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
    head = f"{node.name}({ast.unparse(made.args).removeprefix('self').removeprefix(', ')})" if made else node.name
    if bases and not made:
        head += f"({', '.join(bases)})"
    parts = [section(2, [node.name], doc, f"class {head}", "python")]
    for function in node.body:
        if not isinstance(function, ast.FunctionDef) or function.name.startswith("_"):
            continue
        about = ast.get_docstring(function) or ""
        is_property = any(ast.unparse(d) == "property" for d in function.decorator_list)
        shown = function.name if is_property else signature(function)
        text = re.sub(r"\n+", " ", paragraphs(about))
        parts.append(f"- `{shown}`" + (f": {text}" if text else ""))
    return parts


def python_page(folder):
    page = ["# Python: `ina`, `ina.torch`\n", "Forms that end with `_async` start the operation, and give a Handle of the "
            "result ([python.md](../python.md), [pytorch.md](../pytorch.md)).\n"]
    for name in PYTHON_MODULES:
        tree = ast.parse((folder / name).read_text("utf-8"))
        for node in tree.body:
            if getattr(node, "name", "_").startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                page += python_class(name, node) + [""]
            elif isinstance(node, ast.FunctionDef) and name == "torch.py":
                page.append(section(2, [f"ina.torch.{node.name}"], ast.get_docstring(node), f"def {signature(node)}", "python"))
    return "\n".join(page)


# ---- Counters (wire/counter_field.h)

# By member of the status: what has the counters of a table, the table, and its header.
COUNTER_TABLES = {
    "aggregator": [("Of the aggregator", "kCounterFields", "aggregator/counters.h"),
                   ("Of all packet loops together", "kLaneTotalFields", "switchd/lanes/lane_counters.h")],
    "jobs": [("Of each job and group", "kJobCounterFields", "aggregator/counters.h"),
             ("Of jobs with `straggler.help`", "kJobParkingFields", "aggregator/counters.h")],
    "ports": [("Of each port", "kPortCounterFields", "io/port_counters.h"),
              ("Of Ethernet ports", "kEthdevCounterFields", "io/ethdev/ethdev_counters.h"),
              ("MAC addresses at Ethernet ports", "kPortAddressFields", "io/bridge/mac_counters.h"),
              ("Loops at Ethernet ports", "kPortBlockFields", "io/bridge/loop_guard.h")],
    "bridge": [("Of the bridge", "kMacTableFields", "io/bridge/mac_counters.h")],
    "lcores": [("Of each packet loop", "kLaneCounterFields", "switchd/lanes/lane_counters.h"),
               ("Times", "kLaneTimeFields", "switchd/lanes/lane_counters.h")],
}
TEXT = r'((?:"[^"]*"\s*)+)'
METRIC = re.compile(rf'CounterMetric (k\w+)\{{\s*"(\w+)",\s*"(\w+)",\s*{TEXT}\}};')
ROW = re.compile(rf'\{{&\w+::\w+,\s*\{{"(\w+)",\s*{TEXT},\s*{TEXT}'
                 r'(?:,\s*(?:\{(?:"(\w+)")?\}|(k\w+)\.of\("(\w+)"\)))?(?:,\s*CounterKind::(\w+))?\}\}')


def joined(literals):
    return "".join(re.findall(r'"([^"]*)"', literals))


def counter_rows(text, table):
    """Yields (name, unit, help, metric, label and value, kind) for each row of a table in a header."""
    metrics = {name: (metric, label) for name, metric, label, _ in METRIC.findall(text)}
    found = re.search(rf"CounterField<[^>]*> {table}\[\] = \{{\n(.*?)\n\}};", text, re.DOTALL)
    if not found:
        raise Undocumented(f"there is no table {table}")
    rows = ROW.findall(found.group(1))
    if not rows or len(rows) != found.group(1).count("{&"):
        raise Undocumented(f"a row of {table} is not as others are")
    for name, unit, words, metric, shared, value, kind in rows:
        label = ""
        if shared:
            metric, label = metrics[shared][0], f'{metrics[shared][1]}="{value}"'
        yield name, joined(unit), joined(words), metric, label, kind or "kTotal"


def counters():
    """Returns the rows of all tables, by member of the status and by what has these counters."""
    return {member: {title: list(counter_rows((ROOT / header).read_text("utf-8"), table)) for title, table, header in tables}
            for member, tables in COUNTER_TABLES.items()}


def counter_names():
    """Returns the names of the counters, by member of the status."""
    return {member: {row[0] for rows in tables.values() for row in rows} for member, tables in counters().items()}


def counter_metrics():
    """Returns the names of the metrics that counters have."""
    return {row[3] for tables in counters().values() for rows in tables.values() for row in rows if row[3]}


def counters_page():
    page = ["# Counters\n", "The counters that `inactl status --json` has, by its [members](../administration.md#members-of-status), "
            "and their\n[metrics](../operations.md#prometheus). They begin with 0 at the start of the switch, or of the job, and "
            "only grow, except\n*levels*: what there is now, or was at most. Bytes are payload unless called whole.\n"]
    for member, tables in counters().items():
        page.append(f"## {member}\n")
        for title, rows in tables.items():
            page += [f"{title}:\n", "| Counter | Unit | Metric | Meaning |\n|---|---|---|---|"]
            for name, unit, words, metric, label, kind in rows:
                shown = f"`{metric}`" + (f" `{label}`" if label else "") if metric else ""
                page.append(f"| `{name}` | {unit} | {shown} | {escaped(words)}{' *Level.*' if kind == 'kLevel' else ''} |")
            page.append("")
    return "\n".join(page)


def pages():
    """Returns the texts by file name."""
    def note(name):
        return f"<!-- By {COMMAND}: change the {'tables' if name == 'counters.md' else 'comments'} that it is made of. -->\n\n"

    found = {"c.md": c_page(C_HEADER.read_text("utf-8")), "cpp.md": cpp_page(CPP_HEADER.read_text("utf-8")),
             "python.md": python_page(ROOT / "plugins/python/ina"), "counters.md": counters_page()}
    return {name: note(name) + re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n" for name, text in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "docs/reference")
    arguments = parser.parse_args()
    stale = []
    for name, text in pages().items():
        path = arguments.folder / name
        if arguments.check:
            if not path.exists() or path.read_text("utf-8") != text:
                stale.append(str(path))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"{', '.join(stale)}: not what the sources say. {COMMAND} writes them anew.")


if __name__ == "__main__":
    main()
