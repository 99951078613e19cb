"""PyTorch's own DistributedTest (torch.testing._internal), on ranks that are forked from here.

    pytorch_suite.py BUILD_FOLDER [--backend gloo] [--full] [--ranks 3] [CASE...]

Without names it runs the cases of pytorch_suite.txt (with PyTorch 2.x: pytorch_suite_2.txt), which
must pass; with --full, all cases. Prints a line for each case: result, duration, name, and the last
line of the case's text. Ends with 1 if a case of the list did not pass.
"""

import argparse
import contextlib
import io
import logging
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
import warnings

HERE = pathlib.Path(__file__).resolve().parent
LISTS = {"1": HERE / "pytorch_suite.txt", "2": HERE / "pytorch_suite_2.txt"}  # by PyTorch's first number
CASE_TIMEOUT_S = 100

# Skipped unless BACKEND is "mpi" when the module is imported, because Gloo lacks the operation.
MPI_ONLY = ("Only MPI supports all_to_all", "Only MPI supports CPU all_to_all_single")
# The model of these cases is made if BACKEND is one of three names, whatever backend is in use.
NAMES_OF_BACKENDS = "test_accumulate_gradients_no_sync"


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--backend", default="ina")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--ranks", type=int, default=3)
    return parser.parse_intermixed_args()


def import_suite(backend, ranks):
    """Returns PyTorch's module. At import it decides which cases to skip, and does so as for Gloo.
    Later it asks for `backend`."""
    # Debian has no such package; the module needs only a base class of it.
    sys.modules.setdefault("expecttest",
                           types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False))
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), INIT_METHOD="file:///tmp/unused",
                      MASTER_ADDR="127.0.0.1")
    import torch.testing._internal.distributed.distributed_test as suite
    suite.torch.set_num_threads(1)
    logging.getLogger().setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    suite.BACKEND = backend
    if backend != "gloo":
        # The module expects profiler events of the backends in these lists.
        for supported in (suite.PROFILING_SUPPORTED_BACKENDS,
                          suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
            supported.append(backend)
    if suite.torch.__version__.startswith("1."):
        # With this module, DDP imports another one that Python 3.11 refuses (a mutable default of a
        # dataclass).
        import torch.nn.parallel._replicated_tensor_ddp_utils as replicated
        replicated._set_ddp_with_replicated_tensor = lambda _: None
    return suite


def make_case_class(suite):
    """Returns the class, as in PyTorch's test/distributed/test_distributed_fork.py."""
    base = suite.DistributedTest._DistTestBase
    if suite.BACKEND != "gloo":
        for function in vars(base).values():
            if getattr(function, "__unittest_skip_why__", None) in MPI_ONLY:
                function.__unittest_skip__ = False

    class TestDistributed(suite.TestDistBackend, base):
        def setUp(self):
            super().setUp()
            self._start_processes(suite.torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, test_name, file_name, pipe, **options):
            suite.INIT_METHOD = os.environ["INIT_METHOD"]
            return super()._run(rank, test_name, file_name, pipe, **options)

        def run_test(self, test_name, pipe):
            if test_name.startswith(NAMES_OF_BACKENDS):
                assert suite.dist.get_backend() == suite.BACKEND
                suite.BACKEND = "gloo"
            super().run_test(test_name, pipe)

    import torch.testing._internal.common_distributed as common
    common.get_timeout = lambda name: CASE_TIMEOUT_S
    return TestDistributed


def run_case(case_class, name):
    """Runs a case. Returns its result, and its text."""
    result = unittest.TestResult()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        case_class(name).run(result)
    for how, found in (("failed", result.failures), ("failed", result.errors),
                       ("skipped", result.skipped)):
        if found:
            return how, found[0][1].strip() + " " + said.getvalue().strip()
    return "passed", ""


def run_cases(case_class, names):
    """Returns the result of each case, by name."""
    ends = {}
    for name in names:
        begin = time.monotonic()
        ends[name], text = run_case(case_class, name)
        last = text.splitlines()[-1] if text else ""
        print(f"{ends[name]:7} {time.monotonic() - begin:5.1f} s {name}  {last}", flush=True)
    return ends


@contextlib.contextmanager
def switch_and_backend(build):
    sys.path[:0] = [str(build / "plugins/python"), str(HERE.parent)]
    import ina.torch  # noqa: F401
    import plugin_switch
    with tempfile.TemporaryDirectory(prefix="ina-torch-") as folder:
        switch = plugin_switch.start(build, pathlib.Path(folder))
        os.environ["INA_URL"] = switch.url
        try:
            yield
        finally:
            switch.stop()


def main():
    arguments = parse()
    suite = import_suite(arguments.backend, arguments.ranks)
    case_class = make_case_class(suite)
    path = LISTS[suite.torch.__version__.split(".")[0]]
    listed = path.read_text(encoding="utf-8").split()
    names = arguments.cases or listed
    if arguments.full:
        names = unittest.TestLoader().getTestCaseNames(case_class)
    with contextlib.ExitStack() as stack:
        if arguments.backend == "ina":
            stack.enter_context(switch_and_backend(arguments.build.resolve()))
        ends = run_cases(case_class, names)
    print({how: list(ends.values()).count(how) for how in ("passed", "failed", "skipped")})
    broken = [name for name in names if name in listed and ends[name] != "passed"]
    if broken:
        print(f"listed in {path.name}, and did not pass: {' '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
