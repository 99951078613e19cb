"""The faults that ./dev bench why injects."""

import contextlib
import dataclasses
import signal
import subprocess
import time

from benchlib import processes
from case import DEADLINE_S, Case

TIMEOUT_S = 2.0
SETTLE_S = 0.3


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
