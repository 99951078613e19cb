"""Hierarchy: collectives through the dimensions of a network."""

from ina import _ina
from ina._context import Context, _bits, _elements, _like, _plain
from ina._errors import Error
from ina._types import Op


class Hierarchy:
    """Collectives of all ranks of `context` through the dimensions of a network (docs/themis.md). All ranks make it.

    `topology`: YAML text with the dimensions, or `topology_file`: a file with it; their sizes' product is the number of
    ranks. `rails`: for each dimension a Context of the same ranks, maybe of another switch; none: all use `context`.
    A `with` block leaves at its end, as close() does, which all ranks must do.

    Its calls are those of a Context, with the same arrays. `scheduler`: "baseline", "themis" or "search"; `chunks`: that
    the data is cut into; None and 0: the library's. When a `timeout` passes, the job of `context` ends for all ranks.
    """

    def __init__(self, context, topology=None, *, topology_file=None, rails=()):
        self._context = context
        file = None if topology_file is None else str(topology_file)
        self._raw = _ina.Hierarchy(context._raw, topology, file, [rail._raw for rail in rails])

    def close(self, timeout=None):
        """Leaves the groups that it has made, and waits until all ranks do, at most `timeout` seconds."""
        self._raw.close(timeout or 0)
        self._context._completions.settle()

    @property
    def closed(self):
        return self._raw.closed()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.close()
        except Error:
            if error is None:
                raise

    def allreduce_async(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0):
        recv = _like(send) if recv is None else recv
        plain, own = _plain(send)
        return self._context._started(self._raw.allreduce(plain, _bits(recv), int(op), dtype or own, scheduler, chunks),
                                      recv)

    def allreduce(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0, timeout=None):
        """`op` over all ranks, elementwise. `recv` may be `send`."""
        return Context._finished(self.allreduce_async(send, recv, op, dtype=dtype, scheduler=scheduler, chunks=chunks),
                                 timeout)

    def reduce_scatter_async(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0):
        recv = _like(send, (_elements(send) // self._context.world_size,)) if recv is None else recv
        plain, own = _plain(send)
        return self._context._started(self._raw.reduce_scatter(plain, _bits(recv), int(op), dtype or own, scheduler,
                                                               chunks), recv)

    def reduce_scatter(self, send, recv=None, op=Op.SUM, *, dtype=None, scheduler=None, chunks=0, timeout=None):
        """This rank's share of the sums, of equal ones."""
        return Context._finished(self.reduce_scatter_async(send, recv, op, dtype=dtype, scheduler=scheduler,
                                                           chunks=chunks), timeout)

    def all_gather_async(self, send, recv=None, *, scheduler=None, chunks=0):
        recv = _like(send, (self._context.world_size * _elements(send),)) if recv is None else recv
        return self._context._started(self._raw.all_gather(_bits(send), _bits(recv), scheduler, chunks), recv)

    def all_gather(self, send, recv=None, *, scheduler=None, chunks=0, timeout=None):
        """What all ranks send, by rank."""
        return Context._finished(self.all_gather_async(send, recv, scheduler=scheduler, chunks=chunks), timeout)

    def all_to_all_async(self, send, recv=None, *, scheduler=None, chunks=0):
        recv = _like(send) if recv is None else recv
        return self._context._started(self._raw.all_to_all(_bits(send), _bits(recv), scheduler, chunks), recv)

    def all_to_all(self, send, recv=None, *, scheduler=None, chunks=0, timeout=None):
        """The blocks that all ranks have for this one, all of one size."""
        return Context._finished(self.all_to_all_async(send, recv, scheduler=scheduler, chunks=chunks), timeout)


__all__ = ["Hierarchy"]
