"""A switch for the tests of plugins."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from benchlib.switch import Switch  # noqa: E402

# esa: all jobs share the slots.
CONFIG = """\
aggregator:
  slot_bytes: 4 KiB
  slots: 1024
  policy: esa
control:
  socket: "{socket}"
ports:
  - name: shm0
    type: shm
log:
  level: warning
"""


def start(build, folder, config=CONFIG):
    """Returns a switch that runs and answers. The caller stops it."""
    switch = Switch(build, folder, config)
    try:
        switch.wait_until_ready()
    except BaseException:
        switch.stop()
        raise
    switch.url = f"shm:{switch.socket}"
    return switch
