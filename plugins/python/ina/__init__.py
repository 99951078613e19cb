"""In-network aggregation: collectives that a switch sums (docs/python.md).

    with ina.Context(url="shm:/run/ina/switch.sock", job="example", rank=0, world_size=2) as job:
        total = job.allreduce(numpy.ones(1000, numpy.float32))

`import ina.torch` makes the backend "ina" of torch.distributed (docs/pytorch.md).
"""

from ina._context import Context, Handle, Plan, Registration
from ina._errors import Error, Mismatch, PeerLost, Status, Timeout
from ina._hierarchy import HierarchicalCall, Hierarchy
from ina._ina import version
from ina._types import NOBODY, RESULT_ALIGNMENT, DType, Op

__all__ = ["NOBODY", "RESULT_ALIGNMENT", "Context", "DType", "Error", "Handle", "HierarchicalCall", "Hierarchy", "Mismatch",
           "Op", "PeerLost", "Plan", "Registration", "Status", "Timeout", "version"]
