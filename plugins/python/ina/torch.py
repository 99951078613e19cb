"""The backend "ina" of torch.distributed, over libina.

    import ina.torch
    torch.distributed.init_process_group("ina")

All ranks use the settings of rank 0: rank 0 puts the switch's URL, the job's name and, if there is
one, the ticket into the store that PyTorch uses for the rendezvous. A rank's own INA_URL takes
precedence over rank 0's, because ranks on different hosts may reach the switch in different ways.
"""

import atexit
import contextlib
import functools
import inspect
import json
import os
import sys
import time
import uuid
import weakref

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def _load():
    """Imports ina._torch. The module fits a single version of PyTorch, and only a build with
    PyTorch has it."""
    how = "Build the package where this PyTorch is installed (docs/pytorch.md)"
    here = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    try:
        from ina._torch_version import VERSION
    except ImportError:
        raise ImportError(f"this build of the package ina has no ina.torch. {how}") from None
    if VERSION != here:
        raise ImportError(f"ina.torch was built for PyTorch {VERSION}, and this is {torch.__version__}. {how}")
    from ina import _torch
    return _torch


_torch = _load()

DEFAULT_URL = "shm:/run/ina/switch.sock"
KEY = "ina/job"
ARRIVED_KEY, ALL_ARRIVED_KEY, LEAVING_KEY = "ina/arrived", "ina/all_arrived", "ina/leaving"

# Since PyTorch 2 a process group has backends, one for each type of device. Before, it was a backend.
_HAS_BACKENDS = int(torch.__version__.split(".")[0]) >= 2

# At the end of a process the other ranks may still need this rank for their last results.
LEAVE_TIMEOUT_S = 5.0

HOW_TO_START = (
    "Start one with `ina-switchd --config FILE` (as `./dev demo` does for itself), or set INA_URL "
    "to that of a switch that runs, e.g. INA_URL=shm:/run/ina/switch.sock")


def _own_ticket():
    """Returns the ticket in this rank's environment; "" if there is none."""
    ticket, path = os.environ.get("INA_TICKET", ""), os.environ.get("INA_TICKET_FILE")
    if ticket or not path:
        return ticket
    with open(path, encoding="utf-8") as file:
        return file.readline().strip()


def _settings(store, rank, is_world):
    """Returns the settings that rank 0 of the group has put into the store: {"job":, "url":,
    "ticket":}. A ticket opens the job INA_JOB alone, which is that of the group of all ranks."""
    if rank == 0:
        ticket = _own_ticket() if is_world else ""
        name = ticket and os.environ.get("INA_JOB") or f"torch-{uuid.uuid4().hex}"
        settings = {"job": name, "url": os.environ.get("INA_URL", DEFAULT_URL), "ticket": ticket}
        store.set(KEY, json.dumps(settings))
        return settings
    return json.loads(store.get(KEY))


def _url_of(settings):
    return os.environ.get("INA_URL") or settings["url"]


def _await_all(store, size, timeout, what, judge=str):
    """Returns when all ranks have called it. From then on joining takes no longer than the switch
    needs. The last rank calls `judge`: if it returns a text, all ranks raise it."""
    if store.add(ARRIVED_KEY, 1) == size:
        store.set(ALL_ARRIVED_KEY, judge())
    if not _torch.await_key(store, ALL_ARRIVED_KEY, timeout.total_seconds()):
        raise RuntimeError(f"ina: {what}: only {store.add(ARRIVED_KEY, 0)} of {size} ranks have called it within "
                           f"{timeout.total_seconds():g} s")
    complaint = store.get(ALL_ARRIVED_KEY).decode()
    if complaint:
        raise RuntimeError(f"ina: {what}: {complaint}")


_splits = 0       # calls of _agree since the group of all ranks was made
_members = None   # of the group that PyTorch makes now, if all ranks make it (_with_bystanders)


def _agree(members, timeout):
    """Waits until all ranks have called it: the library's own wait for the slowest rank is as short
    as its wait for a switch, which is not enough here. Raises on all of them unless the members of
    each group name the same ones. Several groups may be made at a time."""
    global _splits
    _splits += 1
    world = c10d._get_default_group()
    store = dist.PrefixStore(f"ina/split/{_splits}", c10d._get_default_store())
    store.set(f"members/{world.rank()}", json.dumps(list(members)))
    _await_all(store, world.size(), timeout, "new_group", lambda: _disagreement(
        [json.loads(store.get(f"members/{rank}")) for rank in range(world.size())]))


def _disagreement(lists):
    """Returns what is wrong with the members that each rank names; "" for nothing. Those that a rank
    names of which it is none do not matter."""
    for rank, members in enumerate(lists):
        for other in members if rank in members else ():
            if lists[other] != members:
                return (f"rank {rank} names the ranks {members}, and rank {other} names {lists[other]}. All members of "
                        "a group must name the same ranks, and make their groups in the same order")
    return ""


def _backend_of(group):
    """Returns the process group of backend "ina" inside `group`, as torch.distributed shows it.
    None: the default group."""
    group = group or c10d._get_default_group()
    if _HAS_BACKENDS:
        group = group._get_backend(torch.device("cpu"))
    return getattr(group, "wrapped_pg", group)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it


def _name_for_cpu(backend):
    """Returns the name of the backend for tensors on the CPU. `backend`: as init_process_group takes
    it, such as "ina" or "cpu:ina,cuda:nccl"."""
    if _HAS_BACKENDS:
        return c10d.BackendConfig(backend).get_device_backend_map().get("cpu")
    return str(backend).lower()


def _is_ina(group):
    """Whether `group` gives tensors on the CPU to this backend. None: the default group."""
    if _HAS_BACKENDS and torch.device("cpu") not in (group or c10d._get_default_group())._device_types:
        return False
    return _torch.is_ina(_backend_of(group))


def _make_world(store, rank, size, url, settings, timeout):
    global _splits
    if settings["ticket"]:
        os.environ["INA_TICKET"] = settings["ticket"]
    _await_all(store, size, timeout, "init_process_group")
    group = _torch.make_group(url, settings["job"], rank, size, store, timeout.total_seconds(), True)
    if settings["ticket"]:
        # The job is joined. A rank that still shows the ticket may join no other job, as those of
        # messages.
        for variable in ("INA_TICKET", "INA_TICKET_FILE"):
            os.environ.pop(variable, None)
    _splits = 0
    return group


def _make_subgroup(store, rank, size, url, settings, timeout):
    if _members is None:
        return _torch.make_group(url, settings["job"], rank, size, store, timeout.total_seconds(),
                                 False)
    return _torch.split_group(_backend_of(None), _members[0], rank, url, settings["job"], store,
                              timeout.total_seconds())


def _create(options, _backend_options=None):
    """Makes a process group, when torch.distributed asks for one.

    The group of all ranks joins its job at once, so that a missing switch is noticed here. Other
    groups are groups of its job (ina_split). Where the default group has another backend, or
    PyTorch asks the members alone, each group is a job of its own, which its ranks join before
    their first operation.
    """
    store, rank, size = options.store, options.group_rank, options.group_size
    is_world = not dist.is_initialized()
    if not is_world:
        # Groups of other ranks may have the same name.
        store = dist.PrefixStore("-".join(map(str, options.global_ranks_in_group)), store)
    settings = _settings(store, rank, is_world)
    make = _make_world if is_world else _make_subgroup
    try:
        return make(store, rank, size, _url_of(settings), settings, options.timeout)
    except RuntimeError as error:
        if str(error).startswith("INA_ERR_NO_SWITCH"):
            raise RuntimeError(f"{error}. {HOW_TO_START}") from None
        raise


def _is_split(call):
    """Whether all ranks make `call` of _new_process_group_helper. They do not with
    use_local_synchronization, by which PyTorch names a group by a hash instead of a number. Of
    groups with tags, members may have one already, of which the other ranks know nothing."""
    if not call["global_ranks_in_group"] or _name_for_cpu(call["backend"]) != "ina":
        return False
    name = call.get("group_name")
    everybody = (not name or str(name).isdigit()) and not call.get("pg_tag")
    return everybody and _is_ina(None)


def _with_bystanders(make_group):
    """Has all ranks take part in a new group. PyTorch asks only the group's members for it, but
    ina_split is a call of all ranks."""
    signature = inspect.signature(make_group)

    @functools.wraps(make_group)
    def make(*arguments, **options):
        global _members
        call = signature.bind(*arguments, **options).arguments
        if not _is_split(call):
            return make_group(*arguments, **options)
        _members = list(call["global_ranks_in_group"])
        try:
            _agree(_members, call.get("timeout") or c10d.default_pg_timeout)
            if c10d._get_default_group().rank() not in _members:
                _torch.stand_by(_backend_of(None))
            return make_group(*arguments, **options)
        finally:
            _members = None
    return make


def _with_ina(monitored_barrier):
    """Enables monitored_barrier, which PyTorch allows for Gloo only."""
    @functools.wraps(monitored_barrier)
    def monitor(group=None, timeout=None, wait_all_ranks=False):
        if c10d._rank_not_in_group(group) or not _is_ina(group):
            return monitored_barrier(group, timeout, wait_all_ranks)
        group = group or c10d._get_default_group()
        return group.monitored_barrier(c10d.default_pg_timeout if timeout is None else timeout,
                                       wait_all_ranks=wait_all_ranks)
    return monitor


def _leave(backends, forget=None):
    """Process groups of this backend wait for what they do, and leave their jobs. `forget` is called
    in between."""
    leave = _torch.abort
    try:
        for backend in backends:
            _torch.drain(backend)  # Ctrl-C ends it
        leave = _torch.shutdown
    finally:
        if forget is not None:
            forget()
        for backend in backends:
            leave(backend)


def _drop_store(world):
    """Drops the rendezvous's store, which rank 0 serves as a rule: when all ranks have come to the end
    of their groups, but before they leave the job. Then ranks that have left may use its port again.
    `world`: the group of all ranks, or None if it has another backend."""
    stores = [store for _, store in c10d._pg_map.values()]
    c10d._pg_map.clear()
    if world is None or _torch.failed(world):
        return
    with contextlib.suppress(RuntimeError):  # the store is gone
        stores[0].add(LEAVING_KEY, 1)
        end = time.monotonic() + LEAVE_TIMEOUT_S
        while world.rank() == 0 and stores[0].add(LEAVING_KEY, 0) < world.size() and time.monotonic() < end:
            time.sleep(0.005)


def _backends_of(groups):
    return [_backend_of(group) for group in groups if _is_ina(group)]


def _with_leaving(update_default_group):
    """Has all groups leave their jobs when the default group goes, whether or not the program still
    has references to them."""
    @functools.wraps(update_default_group)
    def update(group):
        if group is not None:
            return update_default_group(group)
        backends = _backends_of(reversed(list(c10d._pg_map)))  # the same order on all ranks
        world = _backend_of(None) if dist.is_initialized() and _is_ina(None) else None

        def forget():
            update_default_group(None)
            _drop_store(world)
        _leave(backends, forget)
        return None
    return update


def _with_leaving_of_one(destroy_process_group):
    """Has a group that is not the default one leave its jobs when it is destroyed."""
    @functools.wraps(destroy_process_group)
    def destroy(group=None):
        if group in c10d._pg_map and group is not c10d.GroupMember.WORLD:
            _leave(_backends_of([group]))
        return destroy_process_group(group)
    return destroy


def _with_shutdown(shutdown_backend):
    """Has destroy_process_group leave the jobs, as newer versions of PyTorch have it do by themselves.
    PyTorch 2.6 keeps references to a group that DistributedDataParallel has used, so that the group
    would stay in them until the process ends."""
    @functools.wraps(shutdown_backend)
    def shut_down(group):
        shutdown_backend(group)
        _leave(_backends_of([group]))
    return shut_down


_continuations = weakref.WeakKeyDictionary()   # by future: where its continuations wait for their turn


def _with_continuations(get_future):
    """Notes to which operations futures belong."""
    @functools.wraps(get_future)
    def get(work):
        future = get_future(work)
        continuations = _torch.continuations_of(work)
        if continuations is not None:
            _continuations[future] = continuations
        return future
    return get


def _in_turn(ask):
    """Has a continuation of this backend's operations wait for its turn. PyTorch would run it at once
    on those ranks where the operation has ended already, and what it starts would meet other
    operations there than on the other ranks."""
    @functools.wraps(ask)
    def ask_for_turn(future, callback):
        continuations = _continuations.get(future)
        turn = None if continuations is None else continuations.make_turn(future)
        if turn is None:
            return ask(future, callback)
        after = ask(turn, callback)
        if after is not None:
            _continuations[after] = continuations
        continuations.take_turn(future, turn)
        return after
    return ask_for_turn


def stats(group=None):
    """Returns this rank's counters for the collectives of a group of backend "ina", as a dict.

    The names are those of ina_stats (include/ina/ina.h), e.g. bytes_copied, bytes_by_switch,
    priority.
    """
    return _torch.stats(_backend_of(group))


class DDPState:
    """State of the hook of ddp_hook(): facts about the training, and the hook's counters."""

    def __init__(self, group=None, iterations=0, result_buffers=True):
        self.group = group
        self.iterations = iterations   # in the whole training; 0: unknown
        self.iteration = 0             # completed iterations
        self.layers = 0                # buckets in an iteration; 0 until the first is over
        self.registered = 0            # buckets that were moved to registered memory
        self.refused = None            # the error that ended registration
        self.result_buffers = result_buffers
        self.results_refused = None    # the error that ended the use of result buffers
        self._results = {}             # by bucket: memory that the switch writes

    def hints(self, index):
        """Returns (layer, layers, remaining iterations) of the bucket `index`. Zeros are unknown.

        Buckets come in the order in which gradients are ready: the last layers have index 0.
        """
        remaining = max(0, self.iterations - self.iteration)
        if index >= self.layers:
            return 0, 0, remaining
        return self.layers - index, self.layers, remaining

    def register(self, backend, buffer):
        """Registers a bucket once. A bucket keeps its memory from iteration to iteration."""
        if self.refused is not None:
            return
        try:
            self.registered += _torch.register_storage(backend, buffer)
        except RuntimeError as error:
            self.refused = str(error)

    def sum_up(self, backend, index, buffer, operation):
        """Starts the sum of a bucket over the ranks. The Work's result is the tensor that gets the
        sum."""
        options = dist.AllreduceOptions()
        options.reduceOp = operation
        if self.result_buffers:
            # All ranks have the same buckets in the same order, and get the same refusals.
            try:
                return _torch.allreduce_into(backend, buffer, self._result(backend, index, buffer), options)
            except RuntimeError as error:
                self.result_buffers, self.results_refused = False, str(error)
                self._results.clear()
        return backend.allreduce([buffer], options)

    def _result(self, backend, index, buffer):
        """Returns a result buffer, the same in each iteration. A rank has used its sums before it
        contributes to the next ones."""
        kept = self._results.get(index)
        if kept is None or kept.dtype != buffer.dtype or kept.numel() != buffer.numel():
            self._results.pop(index, None)  # DDP has made its buckets again
            kept = self._results[index] = _torch.make_result(backend, buffer)
        return kept

    def bucket_done(self, bucket):
        """Counts iterations, and the buckets in an iteration."""
        if bucket.is_last():
            self.iteration += 1
            self.layers = bucket.index() + 1


def _average_bucket(state, bucket):
    group = state.group or c10d._get_default_group()
    backend = _backend_of(group)
    buffer = bucket.buffer()
    state.register(backend, buffer)
    _torch.hint(backend, *state.hints(bucket.index()))
    state.bucket_done(bucket)
    # As without a hook, each rank's gradients are divided before they are added. Division by a power
    # of two commutes with rounding, and is left to the switch's average.
    size = group.size()
    average = dist.ReduceOp.AVG
    if size & (size - 1) or buffer.dtype not in (torch.float32, torch.float64):
        buffer.mul_(1 / size)
        average = dist.ReduceOp.SUM
    work = state.sum_up(backend, bucket.index(), buffer, average)
    return work.get_future().then(lambda done: done.value()[0])


def ddp_hook(group=None, iterations=0, result_buffers=True):
    """Returns state and hook for DistributedDataParallel.register_comm_hook:

        model.register_comm_hook(*ina.torch.ddp_hook(iterations=1000))

    Gradients are averaged as without a hook. The switch reads the buckets in place, and writes the
    sums once for all ranks of the host. Policy `esa` learns the buckets' layers and the number of
    iterations to come (ina_set_hints). `group`: DDP's process_group, of backend "ina"; None: the
    default group. `iterations`: the number of backward passes with synchronisation in the training;
    0: unknown. `result_buffers`: must be False where DDP has gradient_as_bucket_view=True, because
    sums must then come to the buckets. The state is a DDPState.
    """
    return DDPState(group, iterations, result_buffers), _average_bucket


@atexit.register
def _finish():
    """At the end of the process: waits for the operations that run. The jobs are left behind the last
    handler of atexit, as handlers of the program may call collectives. A rank that failed leaves at
    once, so that the others learn of it."""
    _torch.leave_at_exit(0.0)
    if getattr(sys, "last_value", None) is None:
        _torch.drain_all(LEAVE_TIMEOUT_S)  # Ctrl-C ends it
        _torch.leave_at_exit(LEAVE_TIMEOUT_S)
        return
    for backend in _backends_of(c10d._pg_map):
        _torch.abort(backend)


def _with_one_backend(new):
    """Explains a name with types of devices to users of PyTorch 1."""
    @functools.wraps(new)
    def make(cls, name):
        if isinstance(name, str) and ":" in name:
            raise ValueError(f"Invalid backend: '{name}'. PyTorch {torch.__version__} takes one backend for a group, "
                             "such as \"ina\"; since PyTorch 2 a group may name one for each type of device")
        return new(cls, name)
    return make


dist.Backend.register_backend("ina", _create, extended_api=True, **({"devices": ["cpu"]} if _HAS_BACKENDS else {}))
c10d._new_process_group_helper = _with_bystanders(c10d._new_process_group_helper)
if not _HAS_BACKENDS:
    dist.Backend.__new__ = _with_one_backend(dist.Backend.__new__)
if hasattr(c10d, "_shutdown_backend"):
    c10d._shutdown_backend = _with_shutdown(c10d._shutdown_backend)
else:
    c10d._update_default_pg = _with_leaving(c10d._update_default_pg)
    dist.destroy_process_group = c10d.destroy_process_group = _with_leaving_of_one(c10d.destroy_process_group)
c10d.Work.get_future = _with_continuations(c10d.Work.get_future)
for _name in ("then", "add_done_callback"):
    setattr(torch._C.Future, _name, _in_turn(getattr(torch._C.Future, _name)))
dist.monitored_barrier = c10d.monitored_barrier = _with_ina(c10d.monitored_barrier)
