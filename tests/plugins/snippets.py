"""Blocks of the documents about plugins. Tests run those of "python" and "sh"; a block that they do
not run has a comment before it, `<!-- not run: why -->`, as tests/docs/commands_test.py has it.
Blocks of "text" are output."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/docs"))

from commands_test import blocks_of, end_group  # noqa: E402,F401

DOCUMENTS = ("tutorial", "python", "pytorch", "mpi")


def text_of(document):
    return (ROOT / f"docs/{document}.md").read_text("utf-8")


def blocks(document, language):
    """Returns the texts of all blocks of a language that are to be run."""
    return ["\n".join(block.lines) + "\n" for block in blocks_of(text_of(document))
            if block.language == language and "not run" not in block.marks]
