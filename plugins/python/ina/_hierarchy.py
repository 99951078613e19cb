"""Hierarchy: collectives through the dimensions of a network."""

from ina import _ina
from ina._context import Context, _bits, _close_at_exit, _elements, _enter, _like, _plain
from ina._types import Op


class HierarchicalCall:
    """One collective of Hierarchy.group(), with the arguments of the Hierarchy's method of the same
    name."""

    def __init__(self, collective, send, recv=None, op=Op.SUM, dtype=None):
        self.collective, self.send, self.recv, self.op, self.dtype = collective, send, recv, op, dtype

    @classmethod
    def allreduce(cls, send, recv=None, op=Op.SUM, *, dtype=None):
        return cls("allreduce", send, recv, op, dtype)

    @classmethod
    def reduce_scatter(cls, send, recv=None, op=Op.SUM, *, dtype=None):
        return cls("reduce_scatter", send, recv, op, dtype)

    @classmethod
    def all_gather(cls, send, recv=None):
        return cls("all_gather", send, recv)

    @classmethod
    def all_to_all(cls, send, recv=None):
        return cls("all_to_all", send, recv)

    def _prepared(self, ranks):
        """Returns the arguments for the library, and the array for the result."""
        recv = self.recv
        if recv is None and self.collective == "reduce_scatter":
            recv = _like(self.send, (_elements(self.send) // ranks,))
        elif recv is None and self.collective == "all_gather":
            recv = _like(self.send, (_elements(self.send) * ranks,))
        elif recv is None:
            recv = _like(self.send)
        is_sum = self.collective in ("allreduce", "reduce_scatter")
        plain, own = _plain(self.send) if is_sum else (_bits(self.send), None)
        return (self.collective, plain, _bits(recv), int(self.op), self.dtype or own), recv


class Hierarchy:
    """Collectives of all ranks of `context` through the dimensions of a network (docs/themis.md).
    All ranks make the hierarchy.

    `topology`: YAML text with the dimensions, or `topology_file`: a file with that text. The
    product of the dimensions' sizes is the number of ranks. `rails`: for each dimension a Context
    of the same ranks, which may be of another switch; without rails all dimensions use `context`.
    A `with` block leaves at its end, as close() does, which all ranks must do.

    The calls are those of a Context, with the same arrays. `scheduler`: "baseline", "themis" or
    "search"; `chunks`: the number of chunks that the data is cut into. None and 0 select the
    library's defaults. When a `timeout` passes, the job of `context` ends for all ranks.
    """

    def __init__(self, context, topology=None, *, topology_file=None, rails=()):
        self._context = context
        file = None if topology_file is None else str(topology_file)
        self._raw = _ina.Hierarchy(context._raw, topology, file, [rail._raw for rail in rails])

    def close(self, timeout=None):
        """Leaves the groups that the hierarchy has made, and waits at most `timeout` seconds until
        all ranks do."""
        self._raw.close(timeout or 0)
        self._context._completions.settle()

    @property
    def closed(self):
        return self._raw.closed()

    __enter__, __exit__ = _enter, _close_at_exit

    def _begin(self, calls, scheduler, chunks, join=list):
        """`join`: makes the call's result from the collectives' results."""
        prepared = [call._prepared(self._context.world_size) for call in calls]
        return self._context._started(self._raw.start([raw for raw, _ in prepared], scheduler, chunks),
                                      join(recv for _, recv in prepared))

    def allreduce_async(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0):
        return self._begin([HierarchicalCall.allreduce(send, recv, op, dtype=dtype)], scheduler, chunks, next)

    def allreduce(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0, timeout=None):
        """Reduces elementwise by `op` over all ranks. `recv` may be `send`."""
        return Context._finished(self.allreduce_async(send, recv, op, dtype=dtype, scheduler=scheduler, chunks=chunks),
                                 timeout)

    def reduce_scatter_async(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0):
        return self._begin([HierarchicalCall.reduce_scatter(send, recv, op, dtype=dtype)], scheduler, chunks, next)

    def reduce_scatter(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0, timeout=None):
        """Reduces over all ranks, and returns this rank's share; shares are equal."""
        return Context._finished(self.reduce_scatter_async(send, recv, op, dtype=dtype, scheduler=scheduler,
                                                           chunks=chunks), timeout)

    def all_gather_async(self, send, recv=None, *, scheduler=None, chunks=0):
        return self._begin([HierarchicalCall.all_gather(send, recv)], scheduler, chunks, next)

    def all_gather(self, send, recv=None, *, scheduler=None, chunks=0, timeout=None):
        """Returns the arrays of all ranks, in the order of ranks."""
        return Context._finished(self.all_gather_async(send, recv, scheduler=scheduler, chunks=chunks), timeout)

    def all_to_all_async(self, send, recv=None, *, scheduler=None, chunks=0):
        return self._begin([HierarchicalCall.all_to_all(send, recv)], scheduler, chunks, next)

    def all_to_all(self, send, recv=None, *, scheduler=None, chunks=0, timeout=None):
        """Exchanges blocks: each rank sends one block to every rank, all of one size. Returns the
        blocks for this rank."""
        return Context._finished(self.all_to_all_async(send, recv, scheduler=scheduler, chunks=chunks), timeout)

    def group_async(self, calls, *, scheduler=None, chunks=0):
        return self._begin(list(calls), scheduler, chunks)

    def group(self, calls, *, scheduler=None, chunks=0, timeout=None):
        """Starts several HierarchicalCall together, by one plan: each is planned with the load of
        the earlier ones. All ranks give the same calls in the same order. Returns a list of the
        results."""
        return Context._finished(self.group_async(calls, scheduler=scheduler, chunks=chunks), timeout)

    def calibrate(self):
        """Returns the topology with measured rates and latencies, as YAML, the same on all ranks:
        for another Hierarchy, and for ina-plan. All ranks call it, while no collective of the
        hierarchy is under way."""
        return self._raw.calibrate()


__all__ = ["HierarchicalCall", "Hierarchy"]
