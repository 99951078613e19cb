"""Waiting for events in other processes."""

import pathlib
import time

DEADLINE_S = 600  # ends what hangs; nothing that works takes a tenth of it, even on a loaded machine


def wait_until(what, condition):
    """Returns the result of `condition` once it is true; `what` is for the error."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise RuntimeError(f"waited {DEADLINE_S} s in vain for {what}")


def has_ended(pid):
    """A process without a parent may stay a zombie."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(") ")[2].startswith("Z")
