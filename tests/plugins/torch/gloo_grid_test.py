"""Every collective of torch.distributed on `gloo` and on `ina`: equal results, and equal errors.

    gloo_grid_test.py BUILD_FOLDER

Each case runs on a group of either backend with the same inputs. If the backends differ,
DIFFERENCES has the reason, which docs/pytorch.md has, too. A difference without a reason fails the
test, and so does a reason without a difference.
"""

import collections
import datetime
import itertools
import unittest
import warnings

from ranks import SwitchTest

import torch
import torch.distributed as dist

OPS = {"SUM": dist.ReduceOp.SUM, "AVG": dist.ReduceOp.AVG, "PRODUCT": dist.ReduceOp.PRODUCT,
       "MIN": dist.ReduceOp.MIN, "MAX": dist.ReduceOp.MAX, "BAND": dist.ReduceOp.BAND,
       "BOR": dist.ReduceOp.BOR, "BXOR": dist.ReduceOp.BXOR}
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.bool, torch.complex64,
          torch.complex128]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (3000,)]
FEW_SHAPES = [((0,), "contiguous"), ((7,), "contiguous"), ((3, 5), "transposed")]

# For three ranks: with the ends of a type, the order of additions would decide.
SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 2.0]
SPECIAL_INTEGERS = [0, 1, 2, 3, 5, 63, 64, 100]

PYTORCH_2 = int(torch.__version__.split(".")[0]) >= 2

Case = collections.namedtuple("Case", "call op dtype shape layout values")


def values_of(case, salt):
    """Returns contiguous numbers that differ between salts: small ones, of which few make exact
    sums and products, those at the ends of the type, or special ones, whose sums do not depend on
    their order either."""
    count = 1
    for extent in case.shape:
        count *= extent
    index = torch.arange(count)
    if case.values in ("small", "few") or case.dtype == torch.bool:
        numbers = (7 * index + 3 * salt) % 5
        if case.dtype == torch.bool:
            numbers = numbers % 2
        return numbers.to(case.dtype).reshape(case.shape)
    if case.dtype.is_complex:
        parts = [values_of(case._replace(dtype=torch.float64), salt + i) for i in range(2)]
        return torch.complex(*parts).to(case.dtype)
    if case.values == "special":
        ends = torch.tensor(SPECIAL if case.dtype.is_floating_point else SPECIAL_INTEGERS).to(case.dtype)
        return ends[index // len(ends) ** (salt % 3) % len(ends)].reshape(case.shape)
    if case.dtype.is_floating_point:
        info = torch.finfo(case.dtype)
        ends = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, info.max, info.min, info.tiny,
                1.0, 1 + info.eps, 1 / 3]
    else:
        info = torch.iinfo(case.dtype)
        ends = [info.max, info.min, 0, 1, info.max // 2 + 1, info.max - 1, 3]
    ends = torch.tensor(ends, dtype=case.dtype)
    # All pairs of two ranks' values occur.
    step = index if salt % 2 == 0 else index // len(ends)
    return ends[(step + salt // 2) % len(ends)].reshape(case.shape)


def laid_out(tensor, layout):
    if layout == "offset":
        space = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype)[3:].view(tensor.shape)
    elif layout == "transposed":
        space = torch.zeros(tensor.shape[::-1], dtype=tensor.dtype)
        space = space.permute(*range(tensor.dim())[::-1])
    elif layout == "strided":
        space = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)[..., ::2]
    else:
        return tensor.clone()
    return space.copy_(tensor)


def layouts_of(shape):
    found = ["contiguous", "offset"]
    if len(shape) >= 2:
        found.append("transposed")
    if shape and shape[-1] > 1:
        found.append("strided")
    return found


class Grid:
    """The calls. Each returns a list of the tensors that this rank has received. `members`: the
    group's ranks in its order; `rank`: this rank's place among them."""

    def __init__(self, rank, members):
        self.rank, self.size, self.members = rank, len(members), members

    def next(self, step):
        return self.members[(self.rank + step) % self.size]

    def own(self, case, salt=0):
        return laid_out(values_of(case, self.rank + salt), case.layout)

    def empty(self, case):
        return laid_out(torch.zeros(case.shape, dtype=case.dtype), case.layout)

    def empties(self, case):
        return [self.empty(case) for _ in range(self.size)]

    def stacked(self, case):
        """Returns a tensor whose first dimension is that of all ranks together."""
        tensors = [values_of(case, self.rank + d) for d in range(self.size)]
        return laid_out(torch.cat([t.reshape(1, *t.shape) for t in tensors]).flatten(0, 1)
                        if case.shape else torch.stack(tensors), case.layout)

    # ---- sums

    def all_reduce(self, case, group):
        tensor = self.own(case)
        dist.all_reduce(tensor, OPS[case.op], group=group)
        return [tensor]

    def all_reduce_of_gradient(self, case, group):
        tensor = self.own(case).requires_grad_()
        dist.all_reduce(tensor, OPS[case.op], group=group)
        return [tensor.detach()]

    def all_reduce_coalesced(self, case, group):
        tensors = [self.own(case), self.own(case, 1)]
        dist.all_reduce_coalesced(tensors, OPS[case.op], group=group)
        return tensors

    def all_reduce_sparse(self, case, group):
        tensor = self.own(case).to_sparse()
        dist.all_reduce(tensor, OPS[case.op], group=group)
        return [tensor.to_dense()]

    def reduce(self, case, group):
        tensor = self.own(case)
        dist.reduce(tensor, self.members[1], OPS[case.op], group=group)
        return [tensor] if self.rank == 1 else []

    def reduce_scatter(self, case, group):
        output = self.empty(case)
        inputs = [self.own(case, d) for d in range(self.size)]
        dist.reduce_scatter(output, inputs, OPS[case.op], group=group)
        return [output]

    def reduce_scatter_tensor(self, case, group):
        output = self.empty(case)
        dist.reduce_scatter_tensor(output, self.stacked(case), OPS[case.op], group=group)
        return [output]

    # ---- moves

    def broadcast(self, case, group):
        tensor = self.own(case)
        dist.broadcast(tensor, self.members[1], group=group)
        return [tensor]

    def all_gather(self, case, group):
        outputs = self.empties(case)
        dist.all_gather(outputs, self.own(case), group=group)
        return outputs

    def all_gather_into_tensor(self, case, group):
        output = torch.zeros_like(self.stacked(case))
        dist.all_gather_into_tensor(output, self.own(case), group=group)
        return [output]

    def all_gather_coalesced(self, case, group):
        outputs = [[self.empty(case), self.empty(case)] for _ in range(self.size)]
        dist.all_gather_coalesced(outputs, [self.own(case), self.own(case, 1)], group=group)
        return [t for pair in outputs for t in pair]

    def gather(self, case, group):
        outputs = self.empties(case) if self.rank == 1 else None
        dist.gather(self.own(case), outputs, self.members[1], group=group)
        return outputs or []

    def scatter(self, case, group):
        output = self.empty(case)
        inputs = [self.own(case, d) for d in range(self.size)] if self.rank == 0 else None
        dist.scatter(output, inputs, self.members[0], group=group)
        return [output]

    def all_to_all(self, case, group):
        outputs = self.empties(case)
        dist.all_to_all(outputs, [self.own(case, d) for d in range(self.size)], group=group)
        return outputs

    def all_to_all_single(self, case, group):
        data = self.stacked(case)
        output = torch.zeros_like(data)
        dist.all_to_all_single(output, data, group=group)
        return [output]

    def all_to_all_single_uneven(self, case, group):
        """Each rank sends nothing to itself, and everything to the next rank."""
        data = self.stacked(case)
        splits = [0] * self.size
        splits[(self.rank + 1) % self.size] = data.size(0)
        from_before = [0] * self.size
        from_before[(self.rank - 1) % self.size] = data.size(0)
        output = torch.zeros_like(data)
        dist.all_to_all_single(output, data, from_before, splits, group=group)
        return [output]

    def isend_irecv(self, case, group):
        found = self.empty(case)
        works = [dist.isend(self.own(case), self.next(1), group=group),
                 dist.irecv(found, self.next(-1), group=group)]
        for work in works:
            work.wait()
        return [found]

    def send_recv(self, case, group):
        """Even ranks send first."""
        found = self.empty(case)
        partner = self.rank ^ 1
        if partner >= self.size:
            return []
        for sends in (self.rank % 2 == 0, self.rank % 2 == 1):
            if sends:
                dist.send(self.own(case), self.members[partner], group=group, tag=3)
            else:
                dist.recv(found, self.members[partner], group=group, tag=3)
        return [found]

    def recv_any(self, case, group):
        found = self.empty(case)
        work = dist.isend(self.own(case), self.next(1), group=group, tag=5)
        source = dist.recv(found, group=group, tag=5)
        work.wait()
        return [found, torch.tensor(source)]


REDUCTIONS = ["all_reduce", "reduce", "all_reduce_coalesced", "reduce_scatter",
              "reduce_scatter_tensor", "all_reduce_of_gradient", "all_reduce_sparse"]
MOVES = ["broadcast", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "gather",
         "scatter", "all_to_all", "all_to_all_single", "all_to_all_single_uneven", "isend_irecv",
         "send_recv", "recv_any"]
MATRIX = (121, 2)  # all pairs of a type's ends
CUBE = (len(SPECIAL) ** 3,)  # all triples of special values


def grid_cases(values, size):
    if values == "special":
        shapes = [(CUBE, "contiguous")]
    elif values == "few":
        shapes = [((7,), "contiguous"), ((3, 5), "transposed")]
    elif values == "small":
        shapes = [(shape, layout) for shape in SHAPES for layout in layouts_of(shape)
                  if size == 2 or layout == "contiguous"]
    else:
        shapes = [(MATRIX[:1], "contiguous")]
    for call, op, dtype, (shape, layout) in itertools.product(REDUCTIONS, OPS, DTYPES, shapes):
        if call == "all_reduce_of_gradient" and not (dtype.is_floating_point or dtype.is_complex):
            continue
        if call == "all_reduce_sparse" and (not shape or op != "SUM" or layout != "contiguous"):
            continue
        # The whole product would take too long: other reductions use only some shapes.
        if op != "SUM" and values in ("small", "few") and (shape, layout) not in FEW_SHAPES:
            continue
        if op not in ("SUM", "MAX", "AVG") and call not in ("all_reduce", "reduce"):
            continue
        yield Case(call, op, dtype, shape, layout, values)
    for call, dtype, (shape, layout) in itertools.product(MOVES, DTYPES, shapes):
        yield Case(call, "", dtype, shape, layout, values)


# ---- arguments that are wrong on all ranks, and calls without tensors

def wrong(function, *arguments, **options):
    def call(rank, size, group):
        function(*[a(rank, size) if callable(a) else a for a in arguments], group=group, **options)
        return []
    return call


def ones(*shape, dtype=torch.float32):
    return lambda rank, size: torch.ones(*shape, dtype=dtype)


def lists(count, *shape, dtype=torch.float32):
    """`count`: more than the number of ranks."""
    return lambda rank, size: [torch.ones(*shape, dtype=dtype) for _ in range(size + count)]


def object_calls(rank, size, group):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * 50 * rank}, group=group)
    shared = ["of", rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(shared, 1, group=group)
    gathered = [None] * size if rank == 0 else None
    dist.gather_object((rank, "y"), gathered, 0, group=group)
    scattered = [None]
    dist.scatter_object_list(scattered, [[r] for r in range(size)] if rank == 0 else None, 0,
                             group=group)
    return [repr((found, shared, gathered, scattered))]


def futures(rank, size, group):
    """Returns the results of handles."""
    def shape_of(value):
        if isinstance(value, torch.Tensor):
            return tuple(value.shape)
        return [shape_of(v) for v in value] if isinstance(value, (list, tuple)) else repr(value)

    t = torch.ones(2, 3)
    outputs = [torch.zeros(2, 3) for _ in range(size)]
    works = [dist.all_reduce(t, group=group, async_op=True),
             dist.broadcast(t, 0, group=group, async_op=True),
             dist.reduce(t, 0, group=group, async_op=True),
             dist.all_gather(outputs, t, group=group, async_op=True),
             dist.gather(t, outputs if rank == 0 else None, 0, group=group, async_op=True),
             dist.scatter(torch.zeros(2, 3), outputs if rank == 0 else None, 0, group=group,
                          async_op=True),
             dist.all_to_all_single(torch.zeros(size, 2), torch.ones(size, 2), group=group,
                                    async_op=True),
             dist.barrier(group=group, async_op=True)]
    found = []
    for work in works:
        waited = work.wait()
        found.append((waited, work.is_completed(), work.is_success(),
                      shape_of(work.get_future().wait())))
    return [repr(found)]


def barriers(rank, size, group):
    dist.barrier(group=group)
    dist.monitored_barrier(group=group, timeout=datetime.timedelta(seconds=30))
    return []


OTHERS = {
    "objects": object_calls,
    "futures": futures,
    "barriers": barriers,
    "all_gather: a list too long": wrong(dist.all_gather, lists(1, 4), ones(4)),
    "all_gather: a list too short": wrong(dist.all_gather, lists(-1, 4), ones(4)),
    "all_gather: no list": wrong(dist.all_gather, [], ones(4)),
    "all_gather: another size": wrong(dist.all_gather, lists(0, 5), ones(4)),
    "all_gather: another shape": wrong(dist.all_gather, lists(0, 2, 2), ones(4)),
    "all_gather: another type": wrong(dist.all_gather, lists(0, 4, dtype=torch.int32), ones(4)),
    "all_reduce: a list": wrong(dist.all_reduce, lists(0, 4)),
    "all_reduce: no reduction": wrong(dist.all_reduce, ones(4), "SUM"),
    "all_reduce: CSR": wrong(dist.all_reduce, lambda r, s: torch.eye(3).to_sparse_csr()),
    "all_reduce: sparse MAX": wrong(dist.all_reduce, lambda r, s: torch.eye(3).to_sparse(),
                                    dist.ReduceOp.MAX),
    "broadcast: sparse": wrong(dist.broadcast, lambda r, s: torch.eye(3).to_sparse(), 0),
    "broadcast: no such rank": wrong(dist.broadcast, ones(4), 77),
    "reduce: no such rank": wrong(dist.reduce, ones(4), 77),
    "all_reduce_coalesced: none": wrong(dist.all_reduce_coalesced, []),
    "all_reduce_coalesced: two types": wrong(
        dist.all_reduce_coalesced, lambda r, s: [torch.ones(2), torch.ones(2, dtype=torch.int32)]),
    "all_gather_coalesced: another size": wrong(
        dist.all_gather_coalesced, lambda r, s: [[torch.ones(3)] for _ in range(s)],
        lambda r, s: [torch.ones(4)]),
    "all_gather_coalesced: a list too short": wrong(
        dist.all_gather_coalesced, lambda r, s: [[torch.ones(4)] for _ in range(s - 1)],
        lambda r, s: [torch.ones(4)]),
    "gather: lists everywhere": wrong(dist.gather, ones(4), lists(0, 4), 0),
    "scatter: lists everywhere": wrong(dist.scatter, ones(4), lists(0, 4), 0),
    "all_to_all_single: rows left over": wrong(
        dist.all_to_all_single, lambda r, s: torch.ones(s + 1), lambda r, s: torch.ones(s + 1)),
    "all_to_all_single: splits too small": wrong(
        dist.all_to_all_single, lambda r, s: torch.ones(2 * s), lambda r, s: torch.ones(2 * s),
        lambda r, s: [1] * s, lambda r, s: [1] * s),
    "all_to_all_single: too few splits": wrong(
        dist.all_to_all_single, lambda r, s: torch.ones(2), lambda r, s: torch.ones(2),
        lambda r, s: [2], lambda r, s: [2]),
    "all_to_all_single: another type": wrong(
        dist.all_to_all_single, lambda r, s: torch.ones(s), lambda r, s: torch.ones(s).int()),
    "send: no such rank": wrong(dist.send, ones(4), 77),
    "send: sparse": wrong(dist.send, lambda r, s: torch.eye(3).to_sparse(),
                          lambda r, s: (r + 1) % s),
    "barrier: devices": wrong(dist.barrier, device_ids=[0]),
}


# ---- comparison

def outcome(call, *arguments):
    """Returns (results, None), or (None, the exception's text)."""
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001
        return None, f"{type(error).__name__}: {error}"


def equal(a, b):
    """Compares bit for bit, except that all NaNs are equal."""
    if isinstance(a, str):
        return a == b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.is_floating_point():
        return torch.equal(a, b)
    a, b = a.double(), b.double()
    same = (a == b) & (torch.signbit(a) == torch.signbit(b)) | (a.isnan() & b.isnan())
    return bool(same.all())


def verdict(gloo, ina):
    (results, error), (own_results, own_error) = gloo, ina
    if error is not None or own_error is not None:
        if error is not None and own_error is not None:
            return None
        return f"gloo refuses: {error}" if error is not None else f"ina refuses: {own_error}"
    if len(results) == len(own_results) and all(map(equal, results, own_results)):
        return None
    found = [(a, b) for a, b in zip(results, own_results) if not equal(a, b)][:1]
    return "values: " + "; ".join(f"gloo {str(a)[:150]}, ina {str(b)[:150]}" for a, b in found)


def gloo_breaks(case):
    """Returns whether the case breaks gloo. An empty gather ends the process (SIGFPE). An empty
    message is refused after the other rank has learned of it, and later messages with its tag
    hang. From PyTorch 2 on a reduce_scatter_tensor to a tensor without dimensions ends the process
    (SIGSEGV)."""
    if PYTORCH_2 and case.call == "reduce_scatter_tensor" and case.shape == ():
        return True
    return 0 in case.shape and case.call in ("all_gather", "all_gather_coalesced", "isend_irecv",
                                             "send_recv", "recv_any")


def named(case):
    return case._replace(dtype=str(case.dtype).removeprefix("torch."))


def compare(rank, size, values, members=None):
    """Returns the cases that differ, with the difference, and the number of cases. `members`: the
    ranks of the group; None: all."""
    warnings.simplefilter("ignore")
    ina, gloo = [dist.new_group(members, backend=backend, timeout=datetime.timedelta(seconds=30))
                 for backend in ("ina", "gloo")]
    members = sorted(members or range(size))  # new_group orders them, too
    if rank not in members:
        return [], 0
    size = len(members)
    grid = Grid(members.index(rank), members)
    assert [dist.get_rank(group) for group in (ina, gloo)] == [grid.rank] * 2
    differ, count = [], 0
    for case in grid_cases(values, size):
        call = getattr(grid, case.call)
        if gloo_breaks(case):
            differ.append((named(case), "gloo breaks", outcome(call, case, ina)[1] or ""))
            continue
        on_gloo, on_ina = outcome(call, case, gloo), outcome(call, case, ina)
        # All ranks make this call, whether there is a difference on this rank or not.
        plain = on_gloo
        if case.layout != "contiguous":
            plain = outcome(call, case._replace(layout="contiguous"), gloo)
        found = verdict(on_gloo, on_ina)
        count += 1
        if found is None:
            continue
        judged = ""
        if found.startswith("values") and case.layout != "contiguous":
            judged = "as gloo's of contiguous tensors" if verdict(plain, on_ina) is None else ""
        differ.append((named(case), found, judged))
    if values == "small":
        for name, call in OTHERS.items():
            found = verdict(outcome(call, rank, size, gloo), outcome(call, rank, size, ina))
            count += 1
            if found is not None:
                differ.append((Case(name, "", "", (), "", ""), found, ""))
    return differ, count


NOT_IN_GLOO = ["all_gather_into_tensor", "all_to_all", "reduce_scatter", "reduce_scatter_tensor"]


FLOATS_OF_GLOO = ["float16", "float32", "float64"] + (["bfloat16"] if PYTORCH_2 else [])


def refused(text):
    return lambda case, found, judged: found.startswith("gloo refuses") and text in found


# (Reason, whether the reason applies to a case that differs.)
DIFFERENCES = [
    ("gloo lacks the collective",
     lambda case, found, judged: case.call in NOT_IN_GLOO and found.startswith("gloo refuses")
     and "not support" in found.replace("no support", "not support")),
    ("gloo lacks the type", refused("Invalid scalar type")),
    ("gloo lacks AVG", refused("Cannot use ReduceOp.AVG")),
    ("gloo adds no sparse float16", refused("cadd_sparse")),
    ("gloo takes contiguous messages only", refused("input tensor has to be contiguous")),
    ("gloo compares shapes in a list, not sizes only",
     lambda case, found, judged: case.call == "all_gather: another shape"
     and "invalid tensor size" in found),
    ("gloo cannot gather or send nothing",
     lambda case, found, judged: found == "gloo breaks" and judged == "" and case.shape != ()),
    ("gloo reads and writes past the elements of tensors with gaps or in another order",
     lambda case, found, judged: case.layout in ("strided", "transposed")
     and found.startswith("values") and judged != ""),
    ("int8 and uint8 saturate, with gloo they wrap",
     lambda case, found, judged: case.values in ("extreme", "special") and found.startswith("values")
     and case.op in ("SUM", "PRODUCT") and case.dtype in ("int8", "uint8")),
    ("MIN and MAX: NaN wins and -0 < +0, with gloo the order of ranks decides",
     lambda case, found, judged: case.values in ("extreme", "special") and found.startswith("values")
     and case.op in ("MIN", "MAX") and case.dtype in FLOATS_OF_GLOO
     and case.call != "reduce_scatter_tensor"),
]
if PYTORCH_2:
    DIFFERENCES += [
        ("gloo's reduce_scatter_tensor adds, whatever the reduction is",
         lambda case, found, judged: case.call == "reduce_scatter_tensor" and case.op != "SUM"
         and (found.startswith("values") or "ina refuses" in found and "is not defined" in found)),
        ("gloo cannot scatter sums to tensors without dimensions",
         lambda case, found, judged: case.call == "reduce_scatter_tensor" and found == "gloo breaks"
         and (judged == "" or "cannot be reduced" in judged)),
        ("gloo cannot gather tensors without dimensions into one",
         lambda case, found, judged: case.call == "all_gather_into_tensor" and case.shape == ()
         and found.startswith("gloo refuses") and "invalid tensor size" in found),
        ("gloo exchanges contiguous tensors only", refused("Tensors must be contiguous")),
        ("gloo adds no sparse bool", refused("can't be cast to the desired output type Bool")),
    ]


class GlooGrid(SwitchTest):
    def compare(self, size, values, members=None):
        unexplained, used = [], collections.Counter()
        cases = []
        # A default group of gloo's makes a group of ina's a job of its own, one of ina's splits it.
        backend = "ina" if members else "gloo"
        for rank, (differ, count) in enumerate(self.run_ranks(size, compare, values, members, backend=backend,
                                                              deadline_s=500)):
            cases.append(count)
            for case, found, judged in differ:
                reasons = [reason for reason, holds in DIFFERENCES if holds(case, found, judged)]
                used.update(reasons)
                if len(reasons) != 1:
                    unexplained.append(f"rank {rank}: {tuple(case)}: {found} {judged} {reasons}")
        print(f"{size} ranks, {values} values, group {members or 'of all'}: {max(cases)} cases; {dict(used)}")
        self.assertFalse(unexplained, "\n".join(unexplained[:100]))
        return set(used)

    def test_same_as_gloo(self):
        used = (self.compare(2, "small") | self.compare(2, "extreme") | self.compare(3, "small")
                | self.compare(3, "special") | self.compare(4, "few", [1, 3])
                | self.compare(4, "special", [3, 0, 2]))
        self.assertEqual([reason for reason, _ in DIFFERENCES if reason not in used], [],
                         "reasons that nothing needs any more")


if __name__ == "__main__":
    unittest.main()
