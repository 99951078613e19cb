"""The machine that a benchmark runs on."""

import ctypes
import os
import pathlib
import platform
import subprocess
import sys


def cpu_model():
    """The processor's name, or its architecture where the kernel gives no name."""
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def cpus():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cpu_times():
    """Returns idle time and all time of all cores, in ticks since the start of the machine."""
    line = pathlib.Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    fields = list(map(int, line.split()[1:9]))
    return fields[3] + fields[4], sum(fields)


def description():
    """Returns properties that do not change while the machine runs."""
    return {"cpu": cpu_model(), "cpus": cpus(), "memory_bytes": memory_bytes(),
            "kernel": platform.release()}


def state():
    """Returns other properties that affect the speed of processes."""
    return {
        "load_before": os.getloadavg()[0],
        # Whether processes yield only to others of their session.
        "autogroups": _read_or_none("/proc/sys/kernel/sched_autogroup_enabled"),
    }


# Prints the address of a text and waits; the caller reads that text from another process.
_OWNER = """
import ctypes, sys
text = ctypes.create_string_buffer(b"seen")
print(ctypes.addressof(text), flush=True)
sys.stdin.read()
"""


class _Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def read_process(pid, address, length):
    """Returns memory of another process, by process_vm_readv(). None: that is not allowed."""
    text = ctypes.create_string_buffer(length)
    here, there = _Piece(ctypes.addressof(text), length), _Piece(address, length)
    call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    count = call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return text.raw if count == length else None


def cma_works():
    """Returns whether a process may read the memory of a process that is not its child: MPI
    libraries copy in this way, without an intermediate buffer (cross-memory attach)."""
    reader_code = ("import sys\nfrom benchlib import machine\n"
                   "print(machine.read_process(int(sys.argv[1]), int(sys.argv[2]), 4) == b'seen')\n")
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as owner:
        address = owner.stdout.readline().strip()
        reader = subprocess.run([sys.executable, "-c", reader_code, str(owner.pid), address],
                                cwd=pathlib.Path(__file__).resolve().parent.parent,
                                capture_output=True, text=True, check=False)
        owner.stdin.close()
    return reader.stdout.strip() == "True"


def _read_or_none(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
