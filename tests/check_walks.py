#!/usr/bin/env python3
"""Checks that files named in the documents, and symbols named in the walks, exist in this tree.

    check_walks.py [ROOT]
    check_walks.py --self-test

A code span with a folder and the ending of a source file is a file's path. In the walks of
docs/architecture.md a code span right after a path, or with `::`, is a symbol: its last name must
be a word of that file, or of a file that the step has named.
"""

import pathlib
import re
import sys

SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:cc|h|hpp|c|py|sh|proto|lua|yaml|build|map|txt)")
SYMBOL = re.compile(r"(?:\w+::)*\w+")
# Names of a recipe, whose files the reader writes.
EXAMPLES = re.compile(r"NAME|lifo|mirror")
WALKS = ("## A tensor, from the call to packets and back", "## A packet, from the NIC to a result")


def problems_of_paths(root, name, text):
    for span in SPAN.finditer(text):
        path = span[1]
        if PATH.fullmatch(path) and not EXAMPLES.search(path) and not (root / path).is_file():
            yield f"{name}:{text.count(chr(10), 0, span.start()) + 1}: there is no {path}"


def walk(text, heading):
    """Returns the text of the section; empty: there is no such section."""
    if heading not in text:
        return ""
    return re.split(r"^## ", text.split(heading, 1)[1], maxsplit=1, flags=re.M)[0]


def problems_of_step(root, step):
    """Returns the number of symbols in the step, and the problems."""
    files, end, symbols, problems = [], -1, 0, []
    for span in SPAN.finditer(step):
        said = span[1]
        if PATH.fullmatch(said):
            files.append(said)
            end = span.end()
            continue
        follows = end >= 0 and not step[end:span.start()].strip()
        if not SYMBOL.fullmatch(said) or not (follows or "::" in said):
            continue
        symbols += 1
        # A symbol right after a path must be in that file; others must be in any file that the step
        # has named.
        there = [root / file for file in (files[-1:] if follows else files)]
        word = re.compile(rf"\b{said.split('::')[-1]}\b")
        if not any(file.is_file() and word.search(file.read_text()) for file in there):
            problems.append(f"no {said} in {' or '.join(files) or 'a file named before it'}")
    return symbols, problems


def check(root):
    problems = []
    for document in [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/*.md"))]:
        problems += problems_of_paths(root, document.relative_to(root), document.read_text())
    architecture = (root / "docs/architecture.md").read_text()
    for heading in WALKS:
        symbols = 0
        for step in re.split(r"^\d+\. ", walk(architecture, heading), flags=re.M):
            found, wrong = problems_of_step(root, step)
            symbols += found
            problems += [f"docs/architecture.md: '{heading}': {problem}" for problem in wrong]
        if symbols < 10:
            problems.append(f"docs/architecture.md: '{heading}' names {symbols} symbols")
    return problems


def self_test(root):
    steps = {"`fragments/engine.cc` `Engine::submit`": 0, "`fragments/engine.cc` `Engine::no_such`": 1,
             "`fragments/none.cc` `Engine`": 1, "`Engine::submit` of `fragments/engine.cc`": 1,
             "`wire/message.h` `Message`, later `Engine::submit`": 1,
             "`fragments/engine.cc` and `wire/message.h` `Message`, then `Engine::submit`": 0}
    wrong = [step for step, count in steps.items() if len(problems_of_step(root, step)[1]) != count]
    text = "`a/b.cc`, `wire/types.h`, `scheduler/lifo.h`"
    if len(list(problems_of_paths(root, "text", text))) != 1:
        wrong.append("paths")
    return [f"self-test: {step}" for step in wrong]


def main():
    if sys.argv[1:] == ["--self-test"]:
        problems = self_test(pathlib.Path(__file__).parent.parent)
        print("\n".join(problems) or "finds what is gone")
        return 1 if problems else 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    problems = check(root)
    print("\n".join(problems) or "all files and symbols that the documents name are there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
