"""Context, Handle, Plan, Registration: the library's calls on objects with Python's buffer protocol."""

import asyncio
import math
import os
import threading
from collections.abc import Iterable

from ina import _ina
from ina._errors import Error
from ina._types import RESULT_ALIGNMENT, DType, Op


def _plain(array):
    """Returns (memory, dtype) of an array. NumPy arrays of bfloat16 (ml_dtypes) have no buffer, so
    their bits are taken as uint16."""
    if getattr(getattr(array, "dtype", None), "name", None) == "bfloat16":
        return array.view("uint16"), DType.BFLOAT16
    return array, None


def _bits(array):
    return _plain(array)[0]


def _like(array, shape=None):
    """Returns new memory for a result, with the array's type, and with its shape unless `shape`
    gives another one."""
    import numpy
    array = array if isinstance(array, numpy.ndarray) else numpy.asarray(array)
    return numpy.empty(array.shape if shape is None else shape, array.dtype)


def _array_in(alloc, shape, dtype):
    """Returns an array in memory of `alloc`, a function of the number of bytes."""
    import numpy
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"{dtype} holds references to objects, not values")
    shape = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {shape} has a negative number")
    return numpy.ndarray(shape, dtype, buffer=alloc(max(1, math.prod(shape) * dtype.itemsize)))


def _elements(array):
    return memoryview(_bits(array)).nbytes // memoryview(_bits(array)).itemsize


class Handle:
    """An operation that was started. Its arrays must not be touched until it has ended.

    `await handle` gives its result, as wait() without `timeout` does. A handle may be dropped; the
    operation continues.
    """

    def __init__(self, context, request, result):
        self._context, self._request, self._result = context, request, result

    def done(self):
        """Returns True once the operation has ended. Raises the operation's error."""
        return self._request.test()

    def wait(self, timeout=None):
        """Returns the operation's result, or raises its error. Raises TimeoutError when `timeout`
        (seconds) has passed; the operation continues then, and wait() may be called again. Without
        `timeout` the context's timeout applies, after which the job ends for all ranks
        (Timeout)."""
        if timeout is None:
            self._request.finish(None)
        elif not self._request.wait(timeout):
            raise TimeoutError(f"the operation still runs after {timeout} s")
        return self._result

    def __await__(self):
        if not self._request.test():
            future = asyncio.get_running_loop().create_future()
            self._context._completions.add(self._request, future)
            limit_s = self._request.timeout_s()
            ended, _ = yield from asyncio.wait([future], timeout=limit_s).__await__()
            if not ended:
                self._request.expire(limit_s)
            self._request.test()
        return self._result


class _Completions:
    """Futures of event loops that wait for operations of a context. The context's eventfd wakes the
    loops."""

    def __init__(self, raw):
        self._raw = raw
        self._lock = threading.Lock()
        self._waiting = []  # (request, future)

    def add(self, request, future):
        loop = future.get_loop()
        fd = self._raw.completion_fd()
        with self._lock:
            self._waiting.append((request, future))
        loop.add_reader(fd, self._ready, fd)
        self._ready(fd)  # the operation may have ended meanwhile

    def _ready(self, fd):
        try:
            os.read(fd, 8)
        except BlockingIOError:
            pass
        self.settle()

    def settle(self):
        """Any thread may call it. Each future is completed on its own loop."""
        with self._lock:
            ended = [(r, f) for r, f in self._waiting if f.cancelled() or self._has_ended(r)]
            self._waiting = [entry for entry in self._waiting if entry not in ended]
            idle = {f.get_loop() for _, f in ended} - {f.get_loop() for _, f in self._waiting}
        for _, future in ended:
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._finish, future, loop if loop in idle else None)

    @staticmethod
    def _has_ended(request):
        try:
            return request.test()
        except Error:
            return True

    def _finish(self, future, idle_loop):
        if not future.done():
            future.set_result(None)
        with self._lock:
            if idle_loop and all(f.get_loop() is not idle_loop for _, f in self._waiting):
                idle_loop.remove_reader(self._raw.completion_fd())


def _enter(self):
    return self


def _close_at_exit(self, kind, error, trace):
    """Ends a `with` block of something with close(). An error of the block comes before one of close()."""
    try:
        self.close()
    except Error:
        if error is None:
            raise


class Registration:
    """An array that the switch reads in place (Context.register), which is kept as long as it is
    registered. A `with` block ends the registration."""

    def __init__(self, context, array, memfd):
        self._raw = _ina.Registration(context._raw, _bits(array), memfd)
        self.array = array

    def close(self):
        """Ends the registration, before the memory is unmapped. Raises Error (Status.INVALID) while
        an operation uses the array, which stays registered then."""
        self._raw.close()

    @property
    def closed(self):
        """True after close(), and after that of the context."""
        return self._raw.closed()

    __enter__, __exit__ = _enter, _close_at_exit


_COSTS = ("alpha_us", "message_us", "gbps", "copy_gbps")


class Plan:
    """The steps that give an array, spread over ranks, another layout (docs/redistribution.md).

    `mesh`: "x=4,y=2"; `source`, `target`: the layouts, as "y,-,x"; `dtype`: a DType. `costs`: the
    result of Context.measure_costs(), the same on all ranks. Without "copy_gbps" copies take no
    time. None: 20 us, 1 us, 10 Gb/s.
    """

    def __init__(self, mesh, shape, source, target, dtype, limit_bytes=0, method=None, costs=None):
        self._raw = _ina.Plan(mesh, list(shape), source, target, int(dtype), limit_bytes, method,
                              None if costs is None else [{"copy_gbps": 0, **costs}[name] for name in _COSTS])

    @classmethod
    def parse(cls, json):
        """Returns the plan from the output of json(), or of `ina-plan redistribute --json`."""
        plan = cls.__new__(cls)
        plan._raw = _ina.Plan.parse(json)
        return plan

    @property
    def facts(self):
        """{"buffer_bytes":, "source_bytes":, "target_bytes":, "sent_bytes":, "hash":, "predicted_us":, "steps":,
        "pieces":}"""
        return self._raw.facts()

    def json(self):
        return self._raw.json()

    def __str__(self):
        return self._raw.text()


class Context:
    """Membership in a job of the switch, or in a group of its ranks.

    Omitted arguments come from the environment, as include/ina/ina.h describes at ina_config. The
    constructor waits until all ranks have joined. A `with` block leaves the job at its end. Any
    thread may use a context; a call that waits lets other threads run.

    Each collective has a form that waits, and a form that starts the operation (..._async) and
    returns a Handle. Arrays are any contiguous objects with Python's buffer protocol; a result
    array that is not given is made with NumPy. `timeout`: seconds; when it passes, the job ends for
    all ranks.
    """

    def __init__(self, url=None, job=None, rank=None, world_size=None, *, timeout=None,
                 reproducible=False, window_bytes=0, idle="auto"):
        self._use(_ina.Context.join(url or "", job or "", -1 if rank is None else rank,
                                    -1 if world_size is None else world_size, timeout or 0,
                                    reproducible, window_bytes, idle))

    def _use(self, raw):
        self._raw = raw
        self._completions = _Completions(raw)
        self.rank, self.world_size = raw.rank(), raw.world_size()

    def split(self, colour, key=0):
        """Returns a Context of the ranks that give the same `colour`, ordered by `key` (ina_split).
        With a negative `colour` it returns None. All ranks call it."""
        raw = self._raw.split(colour, key)
        if raw is None:
            return None
        group = Context.__new__(Context)
        group._use(raw)
        return group

    def close(self, timeout=None):
        """Leaves the job, and waits at most `timeout` seconds until all ranks leave. Running
        operations are waited for first, within that time."""
        self._raw.close(timeout or 0)
        self._completions.settle()

    @property
    def closed(self):
        return self._raw.closed()

    __enter__, __exit__ = _enter, _close_at_exit

    def _started(self, request, result=None):
        return Handle(self, request, result)

    @staticmethod
    def _finished(handle, timeout):
        handle._request.finish(timeout)
        return handle._result

    # ---- sums

    def allreduce_async(self, send, recv=None, op=Op.SUM, *, dtype=None):
        recv = _like(send) if recv is None else recv
        plain, own = _plain(send)
        return self._started(self._raw.allreduce(plain, _bits(recv), int(op), dtype or own), recv)

    def allreduce(self, send, recv=None, op=Op.SUM, *, dtype=None, timeout=None):
        """Reduces elementwise by `op` over all ranks. `recv` may be `send`. `dtype`: DType.BFLOAT16
        where arrays of uint16 contain bfloat16."""
        return self._finished(self.allreduce_async(send, recv, op, dtype=dtype), timeout)

    def reduce_async(self, send, recv=None, root=0, op=Op.SUM, *, dtype=None):
        if self.rank != root:
            recv = None
        elif recv is None:
            recv = _like(send)
        plain, own = _plain(send)
        return self._started(self._raw.reduce(plain, _bits(recv), root, int(op), dtype or own), recv)

    def reduce(self, send, recv=None, root=0, op=Op.SUM, *, dtype=None, timeout=None):
        """Like allreduce, with the result at `root` only. Returns None on the other ranks."""
        return self._finished(self.reduce_async(send, recv, root, op, dtype=dtype), timeout)

    def reduce_scatter_async(self, send, recv=None, counts=None, op=Op.SUM, *, dtype=None):
        if recv is None:
            share = _elements(send) // self.world_size if counts is None else counts[self.rank]
            recv = _like(send, (share,))
        plain, own = _plain(send)
        return self._started(self._raw.reduce_scatter(plain, _bits(recv), counts, int(op),
                                                      dtype or own), recv)

    def reduce_scatter(self, send, recv=None, counts=None, op=Op.SUM, *, dtype=None, timeout=None):
        """Reduces over all ranks, and returns this rank's share: shares are equal, or have `counts`
        elements by rank."""
        return self._finished(self.reduce_scatter_async(send, recv, counts, op, dtype=dtype), timeout)

    # ---- moves

    def broadcast_async(self, buffer, root=0, *, recv=None):
        buffer = buffer if recv is None or self.rank == root else None
        return self._started(self._raw.broadcast(_bits(buffer), _bits(recv), root),
                             buffer if recv is None else recv)

    def broadcast(self, buffer, root=0, *, recv=None, timeout=None):
        """Copies `buffer` of rank `root` to all ranks: to their `buffer`, or to `recv` on all ranks,
        such as a result buffer. With `recv`, `buffer` is used at `root` only."""
        return self._finished(self.broadcast_async(buffer, root, recv=recv), timeout)

    def all_gather_async(self, send, recv=None, counts=None, displacements=None):
        if recv is None:
            recv = _like(send, (self.world_size * _elements(send) if counts is None else sum(counts),))
        return self._started(self._raw.all_gather(_bits(send), _bits(recv), counts, displacements),
                             recv)

    def all_gather(self, send, recv=None, counts=None, displacements=None, *, timeout=None):
        """Returns the arrays of all ranks, in the order of ranks."""
        return self._finished(self.all_gather_async(send, recv, counts, displacements), timeout)

    def gather_async(self, send, recv=None, root=0, counts=None, displacements=None):
        if self.rank != root:
            recv = None
        elif recv is None:
            recv = _like(send, (self.world_size * _elements(send) if counts is None else sum(counts),))
        return self._started(self._raw.gather(_bits(send), _bits(recv), root, counts, displacements),
                             recv)

    def gather(self, send, recv=None, root=0, counts=None, displacements=None, *, timeout=None):
        """Like all_gather, with the result at `root` only. Returns None on the other ranks."""
        return self._finished(self.gather_async(send, recv, root, counts, displacements), timeout)

    def scatter_async(self, send, recv, root=0, counts=None, displacements=None):
        send = _bits(send) if self.rank == root else None
        return self._started(self._raw.scatter(send, _bits(recv), root, counts, displacements), recv)

    def scatter(self, send, recv, root=0, counts=None, displacements=None, *, timeout=None):
        """Returns this rank's share of `send` at `root`."""
        return self._finished(self.scatter_async(send, recv, root, counts, displacements), timeout)

    def all_to_all_async(self, send, recv=None, send_counts=None, recv_counts=None,
                         send_displacements=None, recv_displacements=None):
        if recv is None:
            recv = _like(send, None if recv_counts is None else (sum(recv_counts),))
        return self._started(self._raw.all_to_all(_bits(send), _bits(recv), send_counts, recv_counts,
                                                  send_displacements, recv_displacements), recv)

    def all_to_all(self, send, recv=None, send_counts=None, recv_counts=None,
                   send_displacements=None, recv_displacements=None, *, timeout=None):
        """Exchanges blocks: each rank sends one block to every rank. Returns the blocks for this
        rank."""
        return self._finished(self.all_to_all_async(send, recv, send_counts, recv_counts,
                                                    send_displacements, recv_displacements), timeout)

    def permute_async(self, send, recv, destinations):
        return self._started(self._raw.permute(_bits(send), _bits(recv), list(destinations)), recv)

    def permute(self, send, recv, destinations, *, timeout=None):
        """Sends from each rank r to rank destinations[r], or to no rank if that is NOBODY."""
        return self._finished(self.permute_async(send, recv, destinations), timeout)

    def send_receive_async(self, send, destination, recv, source):
        return self._started(self._raw.send_receive(_bits(send), destination, _bits(recv), source), recv)

    def send_receive(self, send, destination, recv, source, *, timeout=None):
        """Sends to one rank and receives from one rank. Either may be NOBODY. Only the two partners
        need to know of a transfer, but all ranks call it."""
        return self._finished(self.send_receive_async(send, destination, recv, source), timeout)

    def barrier_async(self):
        return self._started(self._raw.barrier())

    def barrier(self, *, timeout=None):
        """Returns when all ranks have called it."""
        self._finished(self.barrier_async(), timeout)

    def measure_costs(self):
        """Measures the costs of a redistribution's operations among these ranks, for Plan:
        {"alpha_us":, "message_us":, "gbps":, "copy_gbps":}, with the same numbers on all ranks. All
        ranks call it. It takes some hundred milliseconds."""
        return dict(zip(_COSTS, self._raw.measure_costs()))

    def redistribute_async(self, plan, buffer):
        return self._started(self._raw.redistribute(plan._raw, buffer), buffer)

    def redistribute(self, plan, buffer, *, timeout=None):
        """Executes `plan`. `buffer` has plan.facts["buffer_bytes"] bytes, and begins with this
        rank's tile, before and after."""
        return self._finished(self.redistribute_async(plan, buffer), timeout)

    # ---- memory

    def alloc(self, shape, dtype):
        """Returns a NumPy array of zeros, in memory that the switch reads without a copy in between
        (shm port; elsewhere it is ordinary memory). It can be used as any other array.

        `shape` in elements, `dtype`: a type of NumPy's. The memory is given back with the last
        array that shows it, and stays after close(). A forked child shares it with its parent.
        Raises Error: Status.NO_MEMORY where the system or the switch has no more of it (a context
        registers 63 memories at most).
        """
        return _array_in(self._raw.alloc, shape, dtype)

    def alloc_result(self, shape, dtype):
        """Returns a NumPy array that the switch writes once for all ranks on its host: give it as
        `recv` of allreduce, all_gather or broadcast, and the result is not copied. It is READ-ONLY
        in Python. All ranks call it with the same number of bytes, in the same order, and give the
        same part of it as `recv`, at a multiple of 256 bytes (RESULT_ALIGNMENT).

        `shape` in elements, `dtype`: a type of NumPy's. A job has up to 32 result buffers; one is
        given back when all ranks have dropped the last array that shows it. After close() the
        array keeps its contents. Where a rank is on another host, or the switch's slots are no
        multiple of 1024 bytes, it is ordinary memory, and results are copied to it. Raises Error,
        and ValueError where another collective is to write to it.
        """
        return _array_in(self._raw.alloc_result, shape, dtype)

    def register(self, array, memfd):
        """Has the switch read `array` without a copy in between, as that of alloc(), until the
        Registration that it returns is closed. `array` is the whole of a memory file, which
        `memfd` is a descriptor of (os.memfd_create with MFD_ALLOW_SEALING), and mapped by it. The
        file is sealed: from then on it cannot be resized, written to, or mapped for writing;
        existing mappings stay writable. The descriptor may be closed. Raises Error: Status.INVALID where the file is no memory file,
        is not of the array's size, or is registered already; Status.NO_MEMORY as alloc().
        """
        return Registration(self, array, memfd)

    # ---- reports

    @property
    def stats(self):
        """The counters of ina_stats, as a dict."""
        return self._raw.stats()

    def overflowed(self, clear=False):
        """Returns whether a result saturated or became infinite (ina_overflowed)."""
        return self._raw.overflowed(clear)

    def set_hints(self, layer=0, layers=0, remaining_iterations=0):
        """Passes the values from which the policy `esa` derives priorities (ina_set_hints); 0:
        unknown."""
        self._raw.set_hints(layer, layers, remaining_iterations)

    def reset_hints(self):
        self._raw.reset_hints()


__all__ = ["RESULT_ALIGNMENT", "Context", "Handle", "Plan", "Registration"]
