#!/usr/bin/env python3
"""Each rank has a gradient; all get their mean.

    ina-run -n 4 python3 average.py
"""

import numpy

import ina

with ina.Context() as job:
    gradient = numpy.full(100_000, float(job.rank), numpy.float32)
    mean = job.allreduce(gradient, op=ina.Op.AVG)
    assert (mean == (job.world_size - 1) / 2).all()
    print(f"rank {job.rank} of {job.world_size}: {len(mean)} elements, each {mean[0]:g}")
