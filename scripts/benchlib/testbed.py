"""Hosts in network namespaces, which tests and benchmarks share: tests/net/namespaces.py.

After an import of this module the other modules of tests/net can be imported, too.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def use_folder(name):
    """Makes the modules of this folder of the tree importable."""
    sys.path.insert(0, str(ROOT / name))


use_folder("tests/net")

from namespaces import NetworkTestBed, require_root, wait_until  # noqa: E402

__all__ = ["ERRORS", "NetworkTestBed", "ROOT", "require_root", "use_folder", "wait_until"]

# Exceptions of a bed that does not work, or of a program on its hosts that does not end.
ERRORS = (RuntimeError, subprocess.TimeoutExpired)
