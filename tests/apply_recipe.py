#!/usr/bin/env python3
"""Follows a recipe in a document, from its text.

    apply_recipe.py DOCUMENT HEADING ROOT OUT    applies the steps below the heading to the tree at
                                                 ROOT, with results below OUT/recipe; copies each
                                                 source to OUT, as wire-message.cc for
                                                 wire/message.cc, and writes a stamp there

A step names its file in backticks before its blocks. A `cpp` block is the whole file. A `diff`
block shows consecutive existing lines of the file, and the lines to add and to remove. A step that does not fit
the tree is an error in the document.
"""

import pathlib
import re
import shutil
import sys

MOST_FILES = 12
STAMP = "recipe_is_applied.h"
STEP = re.compile(r"^\d+\. .*?(?=^\d+\. |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([\w/]+\.(?:h|cc|build|lua))`")


def edits(document, heading):
    """Yields (file, language, text) of each block of the recipe's steps."""
    text = document.read_text()
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for step in STEP.finditer(section):
        file, end = None, 0
        for block in BLOCK.finditer(step.group(0)):
            names = NAME.findall(step.group(0)[end:block.start()])
            # The first name counts in "Write `scheduler/lifo.h`. The traits (...
            # `scheduler/policy.h`)".
            file, end = names[0] if names else file, block.end()
            if block.group(1) in ("cpp", "diff"):
                yield file, block.group(1), block.group(2)


def patched(text, diff):
    """Returns `text` with the lines added that have a plus in `diff`, and without those that have a minus."""
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+")) + "\n"
    after = "\n".join(line[1:] for line in lines if not line.startswith("-")) + "\n"
    if text.count(before) != 1:
        raise ValueError(f"{text.count(before)} places in it are\n{before}")
    return text.replace(before, after)


def apply(document, heading, root, recipe):
    """Returns the files that the recipe makes or changes, below `recipe`."""
    changed = []
    for file, language, text in edits(document, heading):
        target = recipe / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if language == "cpp":
            if (root / file).exists():
                raise ValueError(f"{file} exists already")
            target.write_text(text)
        else:
            source = target if target.exists() else root / file
            try:
                target.write_text(patched(source.read_text(), text))
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from error
        if file not in changed:
            changed.append(file)
    if len(changed) > MOST_FILES:
        raise ValueError(f"it touches {len(changed)} files, more than {MOST_FILES}: {', '.join(changed)}")
    return changed


def main(arguments):
    if len(arguments) != 4:
        print(__doc__)
        return 2
    heading = arguments.pop(1)
    document, root, out = map(pathlib.Path, arguments)
    recipe = out / "recipe"
    shutil.rmtree(recipe, ignore_errors=True)
    try:
        changed = apply(document, heading, root, recipe)
    except ValueError as error:
        print(f"{document}: the recipe cannot be followed: {error}", file=sys.stderr)
        return 1
    for file in changed:
        if file.endswith(".cc"):
            shutil.copy(recipe / file, out / file.replace("/", "-"))
    (out / STAMP).write_text("".join(f"// {file}\n" for file in changed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
