#!/usr/bin/env python3
"""The number of injected faults that `inactl why` and the workers' errors name.

    bench_why.py --build FOLDER [--quick] [--only NAME,...] [--json FILE]

Each fault is a job of three ranks (some have two) with an injected problem: calls that do not
agree, processes that stop or end, hosts in network namespaces whose frames get lost, a switch
without room. Faults are named in two ways, which are counted apart:

- `inactl why JOB` is asked (`why_asked`). It names the fault (`why_named_by_inactl`) if it has a
  reason with the expected cause and exactly the expected ranks, each with its process and host or
  its address, and, if it waits for a call of theirs, with that call, its number and its size.
- The job ends at once, and nobody is asked (`error_expected`). The error names the fault
  (`named_by_error`) if it has the expected words, and names exactly the expected ranks. Where calls
  do not agree, it must say which ranks made which call.

`why_named` is the sum of both, out of `why_injected`.

Where `inactl why` is asked and ranks wait until their timeout, their errors must name the same
ranks: `in_errors` counts these faults, out of `in_errors_of`. Each rank that is not at fault must
get an error, unless its calls are complete, and each error must name exactly the ranks at fault. A
rank that an error says is waiting itself is not named.

An innocent rank is blamed if it is in the `ranks` of any reason, or if an error names it.

--quick: the faults that need no namespaces and end soon. Faults in namespaces need root; without
root they count as not injected.

Prints a table; exit status 1 if fewer than 96 % were named, or an innocent was blamed. --json
writes {"meta", "why_named", "why_injected", "why_asked", "why_named_by_inactl", "error_expected",
"named_by_error", "why_innocent_blamed", "in_errors", "in_errors_of", "why_s_max",
"faults": [{"fault", "named", "blamed", "in_error", "found", "why_s"}]}; `why_s` is null where
`inactl why` was not asked.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import time

from benchlib import command_line, metadata, processes, progress, results, testbed
from benchlib.switch import Switch
from benchlib.table import print_table

CONFIG = """\
aggregator: {{policy: {policy}, slots: {slots}, slot_bytes: 1024}}
control: {{socket: "{socket}"}}
ports: [{{name: shm0, type: shm}}]
log: {{level: warning}}
{more}
"""
TIMEOUT_S = 2.0
SETTLE_S = 0.3
DEADLINE_S = 6  # beyond the timeout of a rank that waits
NAMED_AT_LEAST = 0.96
WHY_S = 1.0


@dataclasses.dataclass
class Fault:
    """`steps`: by rank. `cause`, `ranks`: those of the reason that `why` must give. Without a cause
    `why` is not asked; `words`: words in the error of at least one rank; `ranks`: those that such
    errors must name."""
    name: str
    steps: list
    cause: str = ""
    ranks: tuple = ()
    words: tuple = ()
    bed: str = "shared"
    inject: object = None  # called with the running case once all have joined and settled
    before: object = None  # a context manager, entered with the bed before the ranks start
    group: bool = False  # the reason is about a group of the job
    guilty: tuple = ()  # ranks of the job, besides `ranks`, that may be blamed
    call: str = ""  # in the reason (an expression): the call that is waited for, or another place
    other_call: str = ""  # in the errors: the call of `ranks`, which does not agree with the others'
    world: int = 3
    quick: bool = False
    environment: dict = dataclasses.field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    absent: tuple = ()  # ranks that are not started
    settle_s: float = SETTLE_S


class Case:
    """The ranks of one fault."""

    def __init__(self, fault, bed):
        self.fault, self.bed = fault, bed
        self.job = fault.name
        self.workers = {rank: self._start(rank) for rank in range(fault.world)
                        if rank not in fault.absent}

    def _start(self, rank):
        log = self.bed.folder / f"{self.job}-{rank}.out"
        command = [self.bed.build / "bench/ina-why-worker", self.bed.url(rank), self.job, rank,
                   self.fault.world, *self.fault.steps[rank]]
        environment = os.environ | {"INA_TIMEOUT_US": str(int(self.fault.timeout_s * 1e6))}
        environment |= {key: str(text) for key, text in self.fault.environment.get(rank, {}).items()}
        with open(log, "wb") as file:
            return subprocess.Popen([str(word) for word in self.bed.command(rank, command)],
                                    env=environment, stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=subprocess.STDOUT,
                                    preexec_fn=processes.ended_with_parent())

    def said(self, rank):
        path = self.bed.folder / f"{self.job}-{rank}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def all_said(self):
        return [self.said(rank) for rank in self.workers]

    def error(self, rank):
        """Returns the status and the text of the rank's error; None without one."""
        return error_of(self.said(rank))

    def is_over(self, rank):
        """Whether the rank has carried out its steps, or got an error."""
        return (self.error(rank) is not None
                or len(OUTCOME.findall(self.said(rank))) == len(self.fault.steps[rank]))

    def await_(self, holds, most_s=DEADLINE_S):
        deadline = time.monotonic() + most_s
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.01)
        return False

    def signal(self, rank, number):
        self.workers[rank].send_signal(number)

    def close(self):
        for worker in self.workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()


def local_peer(_rank, pid):
    return f"pid {pid} on {socket.gethostname()}"


class SharedBed:
    """A switch that workers of this host reach over shared memory."""

    def __init__(self, build, folder, policy="esa", slots=4096, more=""):
        self.build, self.folder = build, folder
        folder.mkdir()
        self.values = {"policy": policy, "slots": slots, "more": more}
        self.switch = None
        self.start()

    def start(self):
        self.switch = Switch(self.build, self.folder, CONFIG, **self.values)
        self.switch.wait_until_ready()

    @property
    def socket(self):
        return self.switch.socket

    def url(self, _rank):
        return f"shm:{self.socket}"

    def peer(self, rank, pid):
        return local_peer(rank, pid)

    def command(self, _rank, command):
        return command

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            self.switch.process.send_signal(signal.SIGCONT)
        self.switch.stop()


class NetBed:
    """Three hosts behind the switch's Ethernet ports, one for each rank."""

    MORE = "aggregator: {policy: esa, slots: 4096, slot_bytes: 1024}\n"

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        folder.mkdir()
        self.net = testbed.NetworkTestBed(3)
        self.start()

    def start(self):
        self.net.start_switch(self.build / "switchd/ina-switchd", self.folder, self.MORE)

    def peer(self, rank, pid):
        """Returns the words by which the switch names a worker."""
        return local_peer(rank, pid)

    @property
    def socket(self):
        return self.net.socket

    def url(self, rank):
        return self.net.url("udp", rank)

    def command(self, rank, command):
        return self.net.hosts[rank].command(*command)

    def host(self, rank, *command):
        self.net.hosts[rank].run(*command)

    def close(self):
        self.net.close()


class ShortQueuesBed(NetBed):
    """The same with ports that hold few frames, which the kernel queues before the link."""

    def start(self):
        device = self.net.device
        self.net.device = lambda number: device(number, frames=64) + ",qdisc_bypass=0"
        super().start()


class RemoteBed(NetBed):
    """The same, and the workers' control connections come by these ports, too: what happens on a
    host is seen as from another machine."""

    def start(self):
        self.net.join_own_kernel()
        self.listens = f"{self.net.kernel_ip}:7583"
        self.net.start_switch(self.build / "switchd/ina-switchd", self.folder, self.MORE,
                              control=f"listen: {self.listens}, allow_anonymous: true")

    def url(self, rank):
        return self.net.url("udp", rank, control=f"tcp:{self.listens}")

    def peer(self, rank, _pid):
        return f"{self.net.hosts[rank].ip}:"


# ---- the injected faults

def stop(*ranks):
    def inject(case):
        for rank in ranks:
            case.signal(rank, signal.SIGSTOP)
    return inject


def kill(rank):
    return lambda case: case.signal(rank, signal.SIGKILL)


def on_host(rank, *command):
    return lambda case: case.bed.host(rank, *command)


def die(rank):
    """Ends a host with all that runs there: nothing says goodbye."""
    def inject(case):
        case.bed.host(rank, "ip", "link", "set", "eth0", "down")
        case.signal(rank, signal.SIGKILL)
    return inject


def congest(rank):
    """Makes the link from the switch to a host slow, with a long queue before it."""
    def inject(case):
        case.bed.net.switch.run("tc", "qdisc", "add", "dev", case.bed.net.port(rank), "root", "tbf",
                                "rate", "2mbit", "burst", "4000", "limit", "4000000")
    return inject


def nft(rule):
    """Returns a rule for frames that leave a host (output) or arrive at it (input)."""
    chain, *words = rule.split()
    script = (f"add table inet f; add chain inet f c {{ type filter hook {chain} priority 0; }}; "
              f"add rule inet f c {' '.join(words)}")
    return ("nft", script)


def inactl(bed, *words):
    subprocess.run([str(bed.build / "programs/inactl/inactl"), *map(str, words), "--socket",
                    str(bed.socket)], capture_output=True, timeout=DEADLINE_S, check=False)


ELEMENTS = 1000  # of a step that does not say it
SUM = ["allreduce"]
LOOP = ["loop:20000:1"]
LATE = ["allreduce", "sleep:60000"]


# The elements of a call of three ranks are those of all its blocks. A block that a rank would send
# itself is none.
BLOCKS = {"all_gather": 3, "all_to_all": 6, "reduce_scatter_block": 3, "reduce_scatter": 3}


def late(call, rank=1, warm="allreduce", **more):
    """Returns a fault in which a rank does not come to its second call."""
    steps = [[warm, call] for _ in range(3)]
    steps[rank] = [warm, "sleep:60000"]
    name, *numbers = call.split(":")
    elements = int(numbers[0] if numbers else ELEMENTS) * BLOCKS.get(name, 1)
    said = name.replace("_", "-").removesuffix("-block")
    if name != "barrier":
        said += f" of {elements} float32"
    # Of these the switch holds no sum in a slot, and knows no call.
    known = name not in ("broadcast", "gather", "scatter")
    return Fault(f"late-{name}-{rank}", steps, "rank_waited_for", (rank,),
                 call=rf"\(operation 1: {said}\b" if known else "", **more)


def disagreement(name, call, other, said, other_said, warm="allreduce", **more):
    """Returns a fault in which rank 1 makes a different call. `said`, `other_said`: the beginnings
    of what the errors say of the calls."""
    said, other_said = f"operation 1: {said}", f"operation 1: {other_said}"
    return Fault(f"mismatch-{name}", [[warm, call], [warm, other], [warm, call]], ranks=(1,),
                 words=("disagree", said, other_said), other_call=other_said, **more)


def shared_faults():
    looping = [LOOP, LOOP, LOOP]
    return [
        late("allreduce", quick=True),
        late("allreduce:1000000", 0),
        late("reduce"), late("broadcast:1000:1"), late("gather"), late("scatter:1000:1"),
        late("all_gather", 2), late("all_to_all"), late("reduce_scatter_block"),
        late("reduce_scatter", 2), late("barrier", quick=True),
        Fault("late-two", [["allreduce", "allreduce"], LATE, LATE], "rank_waited_for", (1, 2)),
        Fault("busy", [["allreduce", "allreduce"], ["allreduce", "spin:9000"], ["allreduce"] * 2],
              "rank_waited_for", (1,)),
        Fault("stopped-1", looping, "process_stopped", (1,), inject=stop(1), quick=True),
        Fault("stopped-0", looping, "process_stopped", (0,), inject=stop(0)),
        Fault("stopped-two", looping, "process_stopped", (1, 2), inject=stop(1, 2)),
        Fault("stopped-large", [["loop:2000000:0"]] * 3, "process_stopped", (2,), inject=stop(2)),
        Fault("stopped-itself", [["allreduce"] * 2, ["allreduce", "stop"], ["allreduce"] * 2],
              "process_stopped", (1,)),
        Fault("stopped-in-group", [["allreduce", "split:0", *LOOP]] * 3, "process_stopped", (2,),
              inject=stop(2), group=True),
        Fault("waits-in-group",
              [["split:0", "root", "allreduce", "allreduce"],
               # Gives up after rank 0, which says that rank 1 is waiting itself.
               ["split:1", "allreduce", "sleep:50", "allreduce"],
               ["split:1", "allreduce", "sleep:60000"]], "rank_waited_for", (1,), group=True,
              guilty=(2,)),  # rank 1 of the group is rank 2 of the job
        Fault("split-missing", [["allreduce", "split:0"], LATE, ["allreduce", "split:0"]],
              "split_missing", (1,), quick=True),
        Fault("killed", looping, ranks=(1,), inject=kill(1),
              words=("PEER_LOST", "died or left without ina_finalize"), quick=True),
        Fault("exited", [LOOP, ["allreduce:20000", "exit"], LOOP], ranks=(1,),
              words=("PEER_LOST", "died or left without ina_finalize")),
        Fault("finalized-early", [LOOP, ["allreduce:20000", "finalize"], LOOP], ranks=(1,),
              words=("PEER_LOST", "rank 1 has called ina_finalize without calling")),
        disagreement("order", "reduce", "broadcast", "reduce of 1000 float32 sum, root 0",
                     "broadcast of 1000 float32, root 0", quick=True),
        disagreement("shape", "allreduce:1000", "allreduce:999", "allreduce of 1000 float32 sum",
                     "allreduce of 999 float32 sum", quick=True),
        disagreement("dtype", "allreduce:1000:0:float32", "allreduce:1000:0:int32",
                     "allreduce of 1000 float32 sum", "allreduce of 1000 int32 sum"),
        disagreement("op", "allreduce:1000:0:float32:sum", "allreduce:1000:0:float32:max",
                     "allreduce of 1000 float32 sum", "allreduce of 1000 float32 max"),
        disagreement("root-reduce", "reduce:1000:0", "reduce:1000:2",
                     "reduce of 1000 float32 sum, root 0", "reduce of 1000 float32 sum, root 2"),
        disagreement("root-broadcast", "broadcast:1000:0", "broadcast:1000:2",
                     "broadcast of 1000 float32, root 0", "broadcast of 1000 float32, root 2"),
        disagreement("counts", "all_gatherv:100:0", "all_gatherv:100:7",
                     "all-gather of 300 float32, counts ", "all-gather of 307 float32, counts "),
        disagreement("split-sizes", "reduce_scatter:100:0", "reduce_scatter:100:7",
                     "reduce-scatter of 300 float32 sum, counts ",
                     "reduce-scatter of 307 float32 sum, counts "),
        Fault("not-started", [SUM] * 3, "ranks_missing", (2,), absent=(2,), timeout_s=4, quick=True),
        Fault("two-not-started", [SUM] * 3, "ranks_missing", (0, 2), absent=(0, 2), timeout_s=4),
        Fault("no-such-ticket", [SUM] * 3, environment={1: {"INA_TICKET": "0123456789abcdef"}},
              words=("REFUSED", "ticket"), timeout_s=4),
        Fault("straggler", [["loop:20000:0"], ["loop:20000:40"], ["loop:20000:0"]], "straggler", (1,),
              timeout_s=20),
        Fault("switch-stopped", looping, words=("TIMEOUT", "the switch did not answer"),
              bed="own", inject=lambda case: case.bed.switch.process.send_signal(signal.SIGSTOP)),
        Fault("switch-killed", looping, words=("TIMEOUT", "has been gone for"), bed="own",
              inject=lambda case: case.bed.switch.process.kill()),
    ]


def rank_stays_away(case):
    """Restarts the switch while rank 1 cannot come back."""
    case.signal(1, signal.SIGSTOP)
    case.bed.switch.process.send_signal(signal.SIGTERM)
    case.bed.switch.process.wait(DEADLINE_S)
    case.bed.start()


@contextlib.contextmanager
def crowd(bed):
    """Runs another job, which fills the slots with an operation that does not complete."""
    other = Fault("crowd", [["allreduce", "allreduce:4000000"], LATE], world=2, timeout_s=60)
    case = Case(other, bed)
    try:
        case.await_(lambda: all("allreduce INA_OK" in text for text in case.all_said()))
        time.sleep(SETTLE_S)
        yield
    finally:
        case.close()


@contextlib.contextmanager
def drained(bed):
    inactl(bed, "drain")
    yield


def own_bed_faults():
    looping = [["loop:200000:0"]] * 3
    # One rank is slow, so that the other ranks' contributions stay in the slots.
    uneven = {"steps": [["loop:200000:0"], ["loop:200000:30"], ["loop:200000:0"]], "guilty": (1,),
              "timeout_s": 20}
    # The small operations of ranks 0 and 2 find few slots while rank 1 computes.
    small = uneven | {"steps": [["loop:8000:0"], ["loop:8000:5"], ["loop:8000:0"]]}
    return [
        Fault("rank-does-not-come-back", [LOOP] * 3, "ranks_missing", (1,), bed="own",
              inject=rank_stays_away, timeout_s=20, settle_s=1.0),
        Fault("slots-full", cause="array_full", bed="small", before=crowd, **uneven),
        Fault("quota", cause="quota", bed="quota", **small),
        Fault("slots-ceiling", cause="slots_ceiling", bed="ceiling", **small),
        Fault("workers-quota", [SUM] * 3, words=("REFUSED", "workers"), bed="workers", timeout_s=4),
        Fault("drained", [SUM] * 3, words=("REFUSED", "drain"), bed="own", before=drained,
              timeout_s=4),
        Fault("fallback-server-killed", looping, "fallback_missing", (), bed="psd", timeout_s=20,
              before=fallback_server, inject=lambda case: case.bed.server.kill()),
        Fault("no-fallback-server", [SUM] * 3, "fallback_missing", (), bed="psd", timeout_s=4),
    ]


def net_faults():
    looping = [LOOP, LOOP, LOOP]
    late_cut = {"cause": "rank_waited_for", "ranks": (1,), "bed": "net"}
    return [
        Fault("net-late", [["allreduce"] * 2, LATE, ["allreduce"] * 2], **late_cut),
        Fault("net-stopped", looping, "process_stopped", (1,), bed="net", inject=stop(1)),
        Fault("net-link-down", looping, "link_down", (1,), bed="net",
              inject=on_host(1, "ip", "link", "set", "eth0", "down")),
        Fault("net-loss-to-switch", looping, inject=on_host(1, *nft("output udp dport > 0 drop")),
              **late_cut),
        Fault("net-loss-to-host", looping, inject=on_host(1, *nft("input udp dport > 0 drop")),
              **late_cut),
        Fault("net-mtu-shrunk", looping, inject=on_host(1, "ip", "link", "set", "eth0", "mtu", "600"),
              **late_cut),
        Fault("net-never-heard", looping, "rank_not_heard", (1,), bed="net",
              before=lambda bed: cut(bed, nft("output udp dport > 0 drop"))),
        Fault("net-wrong-mac", looping, "frames_dropped", (1,), bed="net",
              inject=on_host(1, "ip", "link", "set", "eth0", "address", "02:77:00:00:00:99")),
        Fault("net-slow-link", looping, "straggler", (1,), bed="net", timeout_s=30,
              inject=on_host(1, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "2mbit",
                             "burst", "4000", "latency", "400ms")),
        Fault("net-dead-host", looping, "link_down", (1,), bed="remote", inject=die(1),
              call=r"\(operation \d+: allreduce of 20000 float32 sum\)"),
        Fault("net-congested-port", [["loop:200000:0"]] * 3, "drops", (), bed="short-queues", timeout_s=30,
              inject=congest(1), guilty=(1,), call="port port1 meanwhile: tx_full", settle_s=1.0),
    ]


@contextlib.contextmanager
def cut(bed, command):
    bed.host(1, *command)
    yield


@contextlib.contextmanager
def fallback_server(bed):
    bed.server = subprocess.Popen([str(bed.build / "programs/psd/ina-psd"), "--url", bed.url(0)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL,
                                  preexec_fn=processes.ended_with_parent())
    try:
        yield
    finally:
        bed.server.kill()
        bed.server.wait()


BEDS = {
    "own": {},
    "small": {"policy": "fcfs", "slots": 256},
    # Fewer than the 16 that a worker always has under way.
    "quota": {"slots": 4096, "more": 'tenants: [{name: "*", slots_ceiling: 4}]'},
    "ceiling": {"slots": 4096, "more": "jobs: {slots_ceiling: 4}"},
    "workers": {"more": 'tenants: [{name: "*", workers_max: 2}]'},
    "psd": {"more": "fallback: {home: dedicated}"},
}

NET_BEDS = {"net": NetBed, "remote": RemoteBed, "short-queues": ShortQueuesBed}


# ---- what the ranks' errors say

# "rank 1 (pid 7 on node1)", "ranks 0, 2"; of a group "rank 1 (rank 2 of the job, pid 7 on node1)".
RANK = r"\d+(?: \([^()]*\))?"
RANKS = rf"ranks? ({RANK}(?:, {RANK})*)"
# The sentences that name ranks at fault (control/diagnosis/why.cc, switchd/dropped_frames.cc,
# switchd/departures.cc, client/context.cc).
NAMES = [re.compile(pattern) for pattern in (
    rf"(?:is that|are those) of {RANKS}, which (?:has|have) contributed",
    rf"the process(?:es)? of {RANKS} (?:is|are) stopped",
    rf"called ina_split, and {RANKS} (?:has|have) not",
    rf"frames of {RANKS} on port",
    rf"no frame of {RANKS} has come in",
    rf"{RANKS} of job '[^']*' died or left",
    rf"{RANKS} has called ina_finalize without calling")]
WAITS_FOR = re.compile(rf"waits for {RANKS}(, and ranks? [\d, ]*(?:has|have) contributed: "
                       r"(?:it waits itself|they wait themselves) in )?")
SIDES = re.compile(r"ranks? (\d+(?:, \d+)*) started (.*?)(?=, ranks? \d+(?:, \d+)* started |$)")
OUTCOME = re.compile(r"^\S+ (INA_\w+) (.*)\n", re.MULTILINE)
WAITED = ("INA_ERR_TIMEOUT", "INA_ERR_ABORTED")  # of the rank that gives up first, and of others


def error_of(said):
    """Returns the status and the text of the error in a rank's output, which ends with it."""
    errors = [found for found in OUTCOME.findall(said) if found[0] != "INA_OK"]
    return errors[-1] if errors else None


def numbers_of(listed):
    """Returns the ranks of a list. A rank of a group is that of the job."""
    return {int(of_job or own) for own, of_job in
            re.findall(r"(\d+)(?: \((?:rank (\d+) of the job)?[^()]*\))?", listed)}


def ranks_named(fault, text):
    """Returns the ranks that an error says are at fault."""
    if fault.other_call:
        sides = [(numbers_of(listed), call) for listed, call in SIDES.findall(text)]
        return set().union(*(ranks for ranks, call in sides if call.startswith(fault.other_call)))
    named = set()
    for listed, waits_itself in WAITS_FOR.findall(text):
        if not waits_itself:
            named |= numbers_of(listed)
    for sentence in NAMES:
        for found in sentence.finditer(text):
            named |= numbers_of(found.group(1))
    return named


def members_at_fault(fault):
    """Returns the ranks at fault, as ranks of the job."""
    return fault.guilty if fault.group and fault.guilty else fault.ranks


def judge_wait(case):
    """Waits for the errors of the ranks that wait. Returns whether each names exactly the ranks at
    fault, and which innocent ranks they blame."""
    fault = case.fault
    at_fault = set(members_at_fault(fault))
    waiting = [rank for rank in case.workers if rank not in at_fault]
    complete = case.await_(lambda: all(case.is_over(rank) for rank in waiting))
    words = {"process_stopped": "stopped", "split_missing": "ina_split"}.get(fault.cause, "")
    waited, blamed = set(), set()
    for rank in case.workers:
        error = case.error(rank)
        if error is None:
            continue
        status, text = error
        if status not in WAITED:
            # The rank that gives up first in a group ends, and the group's job with it.
            ended = fault.group and status == "INA_ERR_PEER_LOST"
            complete = complete and (ended or rank in at_fault)
            continue
        waited.add(status)
        named = ranks_named(fault, text)
        blamed |= named - at_fault
        complete = complete and named == at_fault and words in text
    return complete and "INA_ERR_TIMEOUT" in waited, blamed


def judge_end(case):
    """Waits for the errors of a job that ends at once. Returns whether those with the fault's words
    name exactly the ranks at fault, and which innocent ranks any error blames."""
    fault = case.fault

    def errors():
        return [error for error in map(case.error, case.workers) if error is not None]

    def with_words():
        return [text for status, text in errors()
                if all(word in f"{status} {text}" for word in fault.words)]

    case.await_(with_words)
    case.await_(lambda: all(map(case.is_over, case.workers)), SETTLE_S)
    texts = with_words()
    named = bool(texts) and all(ranks_named(fault, text) == set(fault.ranks) for text in texts)
    blamed = set().union(*(ranks_named(fault, text) for _, text in errors())) - set(fault.ranks)
    return named, blamed


# ---- results

def ask_why(case):
    """Returns the verdict on the job, and the time it took. None instead of a verdict: there is no
    such job."""
    began = time.monotonic()
    done = subprocess.run([str(case.bed.build / "programs/inactl/inactl"), "why", case.job, "--json",
                           "--socket", str(case.bed.socket)],
                          capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    took = time.monotonic() - began
    return (json.loads(done.stdout) if done.returncode == 0 else None), took


def is_told(fault, reason, peers):
    """Returns whether the reason has all that is known. `peers`: beginnings of the words for the
    ranks' processes and hosts."""
    places = (len(reason["peers"]) == len(peers)
              and all(place.startswith(peer) and place in reason["text"]
                      for place, peer in zip(reason["peers"], peers)))
    return places and re.search(fault.call, reason["text"]) is not None


def judge(fault, verdict, peers):
    """Returns whether the fault was named, which innocent ranks were blamed, and the reasons
    found."""
    jobs = verdict["jobs"] if verdict else []
    found, blamed = [], set()
    named = False
    for job in jobs:
        is_group = job["job"].count("/") > 1
        for reason in job["reasons"]:
            found.append((reason["cause"], tuple(reason["ranks"]), reason["peers"]))
            if found[-1][:2] == (fault.cause, fault.ranks) and is_group == fault.group:
                named = named or is_told(fault, reason, peers)
            at_fault = fault.ranks if is_group == fault.group else ()
            blamed |= set(reason["ranks"]) - {*at_fault, *(() if is_group else fault.guilty)}
    return named, sorted(blamed), "; ".join(
        f"{cause} {list(ranks)}" + (f" ({', '.join(places)})" if any(places) else "")
        for cause, ranks, places in found)


def peers_of(case):
    """Returns what the switch is to call the processes and hosts of the fault's ranks."""
    fault = case.fault
    if fault.cause == "ranks_missing":  # nobody knows where they would be
        return ["" for _ in fault.ranks]
    return [case.bed.peer(rank, case.workers[rank].pid) for rank in members_at_fault(fault)]


def last_words(case):
    return " | ".join(text.strip().splitlines()[-1][:500] for text in case.all_said() if text.strip())


def watch(fault, case):
    """Injects the fault into the running case, and returns the result: a row of "faults"."""
    joins = fault.cause in ("ranks_missing", "fallback_missing") and not fault.inject
    if not joins and not fault.words:
        case.await_(lambda: all("joined" in text for text in case.all_said()))
    time.sleep(fault.settle_s)
    if fault.inject:
        fault.inject(case)
        time.sleep(fault.settle_s)
    row = {"fault": fault.name, "named": False, "blamed": [], "in_error": None, "found": "",
           "why_s": None}
    if fault.cause:
        verdict, row["why_s"] = ask_why(case)
        row["named"], row["blamed"], row["found"] = judge(fault, verdict, peers_of(case))
        row["named"] = row["named"] and row["why_s"] < WHY_S
        if fault.timeout_s == TIMEOUT_S and not joins:
            row["in_error"], blamed = judge_wait(case)
            row["blamed"] = sorted(blamed.union(row["blamed"]))
            if not row["in_error"] or blamed:
                row["found"] += " || " + last_words(case)
        return row
    row["named"], blamed = judge_end(case)
    row["blamed"] = sorted(blamed)
    row["found"] = last_words(case)
    return row


def run_fault(fault, bed):
    with contextlib.ExitStack() as stack:
        if fault.before:
            stack.enter_context(fault.before(bed))
        case = Case(fault, bed)
        stack.callback(case.close)
        return watch(fault, case)


def run_all(build, folder, faults):
    rows = []
    with contextlib.ExitStack() as stack:
        shared = SharedBed(build, folder / "shared")
        stack.callback(shared.close)
        for number, fault in enumerate(faults):
            progress.show(f"{number + 1} of {len(faults)}: {fault.name}")
            if fault.bed == "shared":
                rows.append(run_fault(fault, shared))
                shared.switch.require_running()
                continue
            place = folder / fault.name
            bed = (NET_BEDS[fault.bed](build, place) if fault.bed in NET_BEDS
                   else SharedBed(build, place, **BEDS[fault.bed]))
            try:
                rows.append(run_fault(fault, bed))
            finally:
                bed.close()
    progress.clear()
    return rows


def choose(options):
    faults = shared_faults() + own_bed_faults()
    if os.geteuid() == 0:
        faults += net_faults()
    if options.quick:
        faults = [fault for fault in faults if fault.quick]
    if options.only:
        faults = [fault for fault in faults if fault.name in options.only.split(",")]
    return faults


def figures_of(rows):
    """Returns the counts of all rows."""
    asked = [row for row in rows if row["why_s"] is not None]
    ended = [row for row in rows if row["why_s"] is None]
    waits = [row["in_error"] for row in rows if row["in_error"] is not None]
    return {"why_named": sum(row["named"] for row in rows), "why_injected": len(rows),
            "why_asked": len(asked), "why_named_by_inactl": sum(row["named"] for row in asked),
            "error_expected": len(ended), "named_by_error": sum(row["named"] for row in ended),
            "why_innocent_blamed": sum(len(row["blamed"]) for row in rows),
            "in_errors": sum(waits), "in_errors_of": len(waits),
            "why_s_max": max((row["why_s"] for row in asked), default=None)}


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    options = command_line.parse(parser)
    meta = metadata.measured("why")
    with processes.temporary_folder("ina-why-") as folder:
        rows = run_all(options.build.resolve(), folder, choose(options))
    print_table([("fault", "fault", ""), ("named", "named", ""), ("blamed", "innocents", ""),
                 ("in errors", "error", ""), ("found", "text", "")],
                [row | {"innocents": ", ".join(map(str, row["blamed"])) or "-",
                        "error": "-" if row["in_error"] is None else row["in_error"],
                        "text": row["found"][:120]} for row in rows])
    figures = figures_of(rows)
    print("{why_named} of {why_injected} faults named: {why_named_by_inactl} of {why_asked} by inactl "
          "why, {named_by_error} of {error_expected} by the errors of jobs that ended; "
          "{why_innocent_blamed} innocent ranks blamed; {in_errors} of {in_errors_of} waits named in "
          "the ranks' errors".format(**figures))
    results.write(options.json, {"meta": meta, **figures, "faults": rows})
    enough = figures["why_named"] >= NAMED_AT_LEAST * len(rows)
    return 0 if rows and enough and figures["why_innocent_blamed"] == 0 else 1


if __name__ == "__main__":
    command_line.run(main, "bench_why", *testbed.ERRORS)
