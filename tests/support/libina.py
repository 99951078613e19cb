"""libina's C interface for tests of its errors: ranks are threads of the test's process."""

import ctypes
import threading

from waiting import DEADLINE_S

OK, INVALID = 0, -1
INT32, FLOAT32, SUM = 2, 4, 1
NATIVE, REPRODUCIBLE = 1, 2


class Config(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("url", ctypes.c_char_p), ("job", ctypes.c_char_p), ("rank", ctypes.c_int32),
                ("world_size", ctypes.c_int32), ("timeout_us", ctypes.c_int64), ("window_bytes", ctypes.c_uint64),
                ("idle", ctypes.c_int), ("copy_threads", ctypes.c_int32), ("rejoin_timeout_us", ctypes.c_int64),
                ("numeric", ctypes.c_int), ("coalesce_bytes", ctypes.c_uint64)]


class HierarchyConfig(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("topology", ctypes.c_char_p), ("topology_file", ctypes.c_char_p),
                ("rails", ctypes.c_void_p), ("rail_count", ctypes.c_size_t)]


class InaError(Exception):
    """`str` gives the name of the status and the text, as tests' programs print them."""


def size(number):
    return ctypes.c_size_t(number)


def microseconds(seconds):
    return ctypes.c_int64(int(seconds * 1e6))


class Library:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.ina_last_error.restype = self.calls.ina_status_name.restype = ctypes.c_char_p

    def check(self, status, context=None):
        if status != OK:
            raise InaError(f"{self.calls.ina_status_name(status).decode()} {self.calls.ina_last_error(context).decode()}")

    def join(self, url, job, rank, world_size, timeout_s=DEADLINE_S / 2, **more):
        config = Config()
        self.calls.ina_config_init_sized(ctypes.byref(config), size(ctypes.sizeof(config)))
        values = {"url": url.encode(), "job": job.encode(), "rank": rank, "world_size": world_size,
                  "timeout_us": int(timeout_s * 1e6), "copy_threads": 1} | more
        for name, value in values.items():
            setattr(config, name, value)
        handle = ctypes.c_void_p()
        self.check(self.calls.ina_init(ctypes.byref(config), ctypes.byref(handle)))
        return Context(self, handle)


class Context:
    """A context or group. `finalize` must be called at the end, also after an error."""

    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def call(self, function, *arguments):
        self.library.check(getattr(self.library.calls, "ina_" + function)(self.handle, *arguments), self.handle)

    def finalize(self, timeout_s=0.0):
        handle, self.handle = self.handle, None
        if handle:
            self.library.check(self.library.calls.ina_finalize(handle, microseconds(timeout_s)))

    def leave(self):
        """Leaves at a test's end, in any state."""
        try:
            self.finalize(0.001)
        except InaError:
            pass

    def allreduce(self, elements=64, dtype=INT32, into=None):
        send = (ctypes.c_int32 * elements)()
        self.call("allreduce", send, into or send, size(elements), dtype, SUM, microseconds(0))

    def allreduce_async(self, elements=64):
        """Starts an all-reduce. The memory and the request must outlive the operation, so the
        caller must keep the returned values."""
        memory, request = (ctypes.c_int32 * elements)(), ctypes.c_void_p()
        self.call("allreduce_async", memory, memory, size(elements), INT32, SUM, ctypes.byref(request))
        return memory, request

    def split(self, colour=0, key=0):
        group = ctypes.c_void_p()
        self.call("split", ctypes.c_int32(colour), ctypes.c_int32(key), ctypes.byref(group))
        return Context(self.library, group)

    def create_group(self, ranks, tag=0):
        group, members = ctypes.c_void_p(), (ctypes.c_int * len(ranks))(*ranks)
        self.call("create_group", members, size(len(ranks)), ctypes.c_uint64(tag), ctypes.byref(group))
        return Context(self.library, group)

    def memory(self, kind, size_bytes=4096):
        """`kind`: alloc or alloc_result."""
        memory = ctypes.c_void_p()
        self.call(kind, size(size_bytes), ctypes.byref(memory))
        return memory

    def hierarchy(self, topology):
        config = HierarchyConfig(ctypes.sizeof(HierarchyConfig), topology.encode())
        handle = ctypes.c_void_p()
        self.call("hierarchy_create", ctypes.byref(config), ctypes.byref(handle))
        return Hierarchy(self, handle)


class Hierarchy:
    def __init__(self, context, handle):
        self.context, self.handle = context, handle

    def call(self, function, *arguments):
        context = self.context
        context.library.check(getattr(context.library.calls, "ina_" + function)(self.handle, *arguments), context.handle)

    def free(self, timeout_s=0):
        library = self.context.library
        library.check(library.calls.ina_hierarchy_free(self.handle, microseconds(timeout_s)))


def on_ranks(world_size, work):
    """Returns the results of `work(rank)` by rank, each of which has a thread. Raises the first
    error."""
    results = outcomes(world_size, work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def errors_of(world_size, work):
    """Returns the text of each rank's error; empty: there was none."""
    results = outcomes(world_size, work)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, InaError):
            raise result
    return [str(result) if isinstance(result, InaError) else "" for result in results]


def outcomes(world_size, work):
    results = [None] * world_size

    def run(rank):
        try:
            results[rank] = work(rank)
        except Exception as error:  # noqa: BLE001
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    if any(thread.is_alive() for thread in threads):
        raise RuntimeError("a rank hangs")
    return results
