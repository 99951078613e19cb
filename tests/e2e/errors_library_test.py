#!/usr/bin/env python3
"""Errors of libina's calls that have recipes in docs/operations.md, each caused by ranks of a real
switch (tests/support/error_cases.py).

    errors_library_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import ctypes
import os
import pathlib
import sys
import threading

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import error_cases  # noqa: E402
import libina  # noqa: E402
from waiting import DEADLINE_S  # noqa: E402
from libina import FLOAT32, INT32, NATIVE, REPRODUCIBLE, errors_of, microseconds, on_ranks, size  # noqa: E402

DIMENSION = "{{kind: ina, size: {size}, gbps: {gbps}, step_latency_ns: 100, aggregation_gbps: 10}}"


def topology(gbps=10, ranks=2):
    first, second = DIMENSION.format(size=ranks, gbps=gbps), DIMENSION.format(size=2, gbps=10)
    return f"dimensions: [{first}, {second}]"


class LibraryErrorsTest(error_cases.LibraryCases):
    # ---- groups

    def test_groups_for_which_there_is_no_room(self):
        self.start(switch="{max_groups_per_job: 1}", aggregator="{slots: 256, policy: esa}")
        ranks = self.job_of(2, "full")
        self.groups_of(ranks)
        texts = errors_of(2, lambda rank: ranks[rank].split())
        self.all_said("no group of …", texts, "INA_ERR_REFUSED")
        self.all_said("groups already", texts)

    # ---- leaving

    def test_leaving_too_early(self):
        self.start()
        ranks = self.job_of(2, "runs")
        elements = 4 << 20  # more than a window, so that rank 0 cannot have sent all
        kept = ranks[0].allreduce_async(elements)
        self.fails("left with …", lambda: ranks[0].finalize(0.05), "INA_ERR_TIMEOUT")
        self.fails("left before its operations were complete", lambda: ranks[1].allreduce(elements), "INA_ERR_PEER_LOST")
        del kept
        ranks = self.job_of(2, "alone")
        self.fails("left after waiting …", lambda: ranks[0].finalize(0.05), "INA_ERR_TIMEOUT")

    def test_leaving_a_group_too_early(self):
        self.start()
        ranks = self.job_of(2, "group")
        groups = self.groups_of(ranks)
        elements = 4 << 20  # more than a window, so that rank 0 cannot have sent all
        kept = groups[0].allreduce_async(elements)
        self.fails("left with …", lambda: groups[0].finalize(0.05), "INA_ERR_TIMEOUT")
        self.fails("left before its operations were complete", lambda: groups[1].allreduce(elements), "INA_ERR_PEER_LOST")
        del kept

    def test_waiting_for_a_rank_that_left(self):
        self.start()
        ranks = self.job_of(2, "leaves")
        texts = errors_of(2, lambda rank: ranks[rank].allreduce() if rank else ranks[rank].finalize())
        self.expect("waits in vain", texts[0], "INA_ERR_PEER_LOST")
        self.expect("has called ina_finalize without calling …", texts[1], "INA_ERR_PEER_LOST")

    def test_a_group_whose_job_has_ended(self):
        self.start()

        def grouped(timeout_s):
            ranks = self.job_of(2, f"ends-{timeout_s}", timeout_s=timeout_s)
            return ranks, self.groups_of(ranks)

        ranks, groups = self.in_time(grouped)
        self.assertIn("INA_ERR_TIMEOUT", errors_of(1, lambda rank: ranks[0].allreduce())[0])
        self.stop()
        texts = errors_of(2, lambda rank: groups[rank].allreduce())
        self.all_said("the job of this group has ended", texts, "INA_ERR_SWITCH_LOST")

    # ---- memory

    def test_result_buffers(self):
        self.start()
        native, ordered = self.job_of(2, "native", numeric=NATIVE), self.job_of(2, "ordered", numeric=REPRODUCIBLE)
        results = on_ranks(2, lambda rank: native[rank].memory("alloc_result"))
        send = (ctypes.c_int32 * 64)()
        texts = errors_of(2, lambda rank: native[rank].call("all_to_all", send, results[rank], size(32), INT32, microseconds(0)))
        self.all_said("lies in a result buffer", texts, "INA_ERR_UNSUPPORTED")
        results = on_ranks(2, lambda rank: ordered[rank].memory("alloc_result"))
        texts = errors_of(2, lambda rank: ordered[rank].allreduce(64, FLOAT32, results[rank]))
        self.all_said("reduction of floats is put together by its workers", texts, "INA_ERR_UNSUPPORTED")
        texts = errors_of(2, lambda rank: [native[rank].memory("alloc_result") for _ in range(200)])
        self.all_said("a job may have … result buffers", texts, "INA_ERR_REFUSED")

    def test_registered_memory(self):
        self.start()
        context = self.job_of(1, "many")[0]
        self.fails("memories are registered, more are not possible", lambda: [context.memory("alloc") for _ in range(64)],
                   "INA_ERR_NO_MEMORY")

    # ---- several dimensions

    def test_topologies_that_differ(self):
        self.start(aggregator="{slots: 1024}")
        ranks = self.job_of(4, "unlike")
        texts = errors_of(4, lambda rank: ranks[rank].hierarchy(topology(gbps=10 + rank // 3)))
        self.all_said("the ranks have different topologies", texts, "INA_ERR_MISMATCH")
        texts = errors_of(4, lambda rank: ranks[rank].hierarchy(topology(ranks=2 + rank // 3)))
        self.all_said("gave no topology that fits the job", texts[:3], "INA_ERR_MISMATCH")

    def test_hierarchies(self):
        self.start(aggregator="{slots: 1024, policy: esa}")
        ranks = self.job_of(4, "ordered", numeric=REPRODUCIBLE)
        hierarchies = on_ranks(4, lambda rank: ranks[rank].hierarchy(topology()))
        send = (ctypes.c_int32 * 64)()

        def reduce(rank, dtype):
            request = ctypes.c_void_p()
            hierarchies[rank].call("hierarchical_allreduce_async", send, send, size(64), dtype, libina.SUM, None,
                                   ctypes.byref(request))

        self.all_said("is not made reproducible through several dimensions", errors_of(4, lambda rank: reduce(rank, FLOAT32)),
                      "INA_ERR_UNSUPPORTED")

        left = threading.Event()

        def call(rank):
            if rank == 0:
                reduce(0, INT32)
                try:
                    hierarchies[0].free(0.2)
                finally:
                    left.set()
            else:
                left.wait(DEADLINE_S)
                hierarchies[rank].call("hierarchical_allreduce", send, send, size(64), INT32, libina.SUM, None, microseconds(0))

        texts = errors_of(4, call)
        self.all_said("it left the hierarchy before its operations were complete", texts[1:], "INA_ERR_ABORTED")

    # ---- processes

    def test_a_context_of_the_parent(self):
        self.start()
        context = self.job_of(1, "forks")[0]
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            text = errors_of(1, lambda rank: context.allreduce())[0]
            os.write(writer, text.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            text = told.read()
        os.waitpid(child, 0)
        self.assertTrue(text.startswith("INA_ERR_FORKED "), text)
        error_cases.SEEN_STATUSES.add("INA_ERR_FORKED")


if __name__ == "__main__":
    error_cases.main()
