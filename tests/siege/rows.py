"""The rows of ./dev bench siege: a local user's attacks, and the goals that they must not reach."""

import contextlib
import dataclasses
import subprocess
import time
import typing

import peer
from bed import DEADLINE_S, MIB, NEWCOMER_UID, RESERVED, VICTIM, BedError
from deceived import PORT, deceive

WAYS = ("wrong", "right", "unread", "many")


COME_BACK_S = 10
BUSY_LOOP = "control_busy_loop"
STRANGERS_PORT = PORT + 16


def max_map_count():
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        return int(file.read())


@dataclasses.dataclass
class Row:
    name: str
    what: str  # text for docs/security.md
    # a name of attacker.py, or "ring:..." of ina-siege; empty: `alongside` is the attack
    attack: str = ""
    options: dict = dataclasses.field(default_factory=dict)
    tenants: bool = True  # the attacker has a quota
    bed: dict = dataclasses.field(default_factory=dict)  # more arguments of Bed
    # The load to compare with: "burn" or "work" of ina-siege; empty: the victim runs alone.
    honest: str = "burn"
    control: bool = False  # harmless; shows the cost of sharing the machine with another process
    begin_s: float = 3  # time in which the attacker must be ready
    quick: bool = True  # --quick plays it, too
    # a newcomer may find no room: the full resource is not divided among users
    crowded: bool = False
    pairs: int = 0  # slices of attack, if different from the benchmark's
    # the switch, or the fallback server, is killed and started again in each attack
    restart: bool = False
    # Runs once in each attack, as root; returns the errors that it found.
    alongside: typing.Callable = lambda bed: []


# ---- events beside the attack, by root and other users

def administer(bed):
    """Makes many administrative calls at once, while the attacker connects to the administrators'
    socket."""
    calls = [subprocess.Popen([bed.build / "programs/inactl/inactl", "tenants", "--json", "--admin",
                               f"unix:{bed.socket}.admin"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, cwd="/") for _ in range(32)]
    problems = []
    for call in calls:
        try:
            error = call.communicate(timeout=DEADLINE_S)[1]
        except subprocess.TimeoutExpired:
            call.kill()
            call.communicate()
            error = "no answer"
        if call.returncode != 0:
            problems.append(f"a call of an administrator failed: {error.strip()}")
    return problems


HOSTILE_NAMES = ("x\ntouch {mark}\n", "'; touch {mark}; '", "$(touch {mark})", "`touch {mark}`",
                 '"; touch {mark}; "', "x; touch {mark} #", "\\'; touch {mark} #", "-n\n${{IFS}}")


def create_jobs(bed):
    """Runs eval "$(inactl create NAME)", as administration.md shows it, with hostile names."""
    problems = []
    for number, text in enumerate(HOSTILE_NAMES):
        mark = bed.folder / f"mark-{number}"
        name = text.format(mark=mark)
        done = bed.run_switch_tool("create", "--admin", f"unix:{bed.socket}.admin", "--workers", 1,
                                   "--window", "64KiB", "--ttl", "1s", "--", name)
        if done.returncode != 0:
            continue  # refused: there is no output to evaluate
        told = subprocess.run(["sh", "-c", 'eval "$1"; printf %s "$INA_JOB"', "sh", done.stdout],
                              capture_output=True, text=True, cwd="/", check=False).stdout
        if mark.exists():
            problems.append(f"inactl create {name!r}: eval runs a command that is in the name")
        elif told != name:
            problems.append(f"inactl create {name!r}: eval sets INA_JOB to {told!r}")
    return problems


def come_later(bed):
    """Root, and another user, make a job of the name that the attacker has used first."""
    problems = []
    for uid in (0, NEWCOMER_UID):
        other = bed.attacker("squat", {"name": "default", "rank": 0}, uid=uid)
        other.order("begin")
        other.order("end")
        if not other.did.get("jobs"):
            problems.append(f"uid {uid} cannot make a job 'default' of its own: "
                            f"{other.did.get('jobs_failure')}")
        for text in other.did.get("broken", []):
            problems.append(f"uid {uid}: {text}")
        other.stop()
    return problems


def reserve(bed):
    """Makes a job with a ticket, for attackers to guess."""
    bed.run_switch_tool("create", "--admin", f"unix:{bed.socket}.admin", "--workers", 2, RESERVED)
    return []


def kill_and_start(bed):
    """Restarts the switch with the victims' job in its state file; the victims must come back."""
    first = bed.sums.count()
    if not bed.kill_switch():
        return ["the switch does not go by SIGKILL"]
    try:
        bed.start_switch()
    except Exception as error:  # any failure is an error of the row
        return [f"the switch does not start again: {str(error)[:500]}"]
    with contextlib.suppress(Exception):
        bed.wait("the victim to come back", lambda: bed.sums.count() > first + 20, COME_BACK_S)
        return []
    return ["the victim's job does not come back"]


def join_meanwhile(bed):
    """Root's worker joins while the attacker's memory waits to be mapped."""
    attacker = bed.workers[0]
    if not attacker.waits:
        return []  # a slice of honest work
    attacker.answered()
    asked = attacker.did.get("unanswered", 0)
    # The first answer means that the others wait for their turn.
    until = time.monotonic() + DEADLINE_S
    while attacker.did.get("unanswered") == asked and time.monotonic() < until:
        attacker.order("count")
    one, _ = peer.run_job(bed.socket, "meanwhile", window_bytes=0)
    attacker.order("count")
    peer.leave(one)
    if not asked or attacker.did["unanswered"] < asked / 4:
        return ["a worker's join waited until the memory was mapped that another user registered"]
    return []


def restart_psd(bed):
    """Kills the fallback server and starts it again: the victims' job must go on."""
    first = bed.sums.count()
    bed.kill_psd()
    try:
        bed.start_psd()
        bed.wait("the victim to go on", lambda: bed.sums.count() > first + 20, COME_BACK_S)
        return []
    except BedError as error:
        return [f"the fallback server does not serve again: {str(error)[:500]}"]


def false_switch(kind, what):
    """A row whose attack is a false switch. `kind`: the clients, as deceived.py has them."""
    return Row(f"false_switch_{kind}", what, "false_switch", {"port": PORT}, pairs=3,
               alongside=lambda bed: deceive(bed, kind))


def on_bridge(name, what, attack, bed=None, **options):
    return Row(f"bridge_{name}", what, attack, options, bed={"bridge": True} | (bed or {}))


def on_psd(name, what, attack, bed=None, **more):
    return Row(f"psd_{name}", what, attack, bed={"psd": True} | (bed or {}), **more)


def linger(ways, name, what, **more):
    return Row(name, what, "linger", {"ways": ways}, **more)


ROWS = (
    # Actions that are open to anybody, and that no switch can prevent.
    Row(BUSY_LOOP, "nothing: a process that computes, beside the victim alone",
        "ring:burn", honest="", control=True),
    Row("control_full_rate", "nothing: a worker that sends right entries as fast as they are "
        "taken; before, a process that computes as much", "ring:work", control=True),
    # Descriptors
    linger(["wrong"], "linger_wrong_message", "TCP sockets that linger 30 s with unsent data when "
           "they are closed, in messages that carry no descriptors"),
    linger(["right"], "linger_right_message",
           "the same as a worker region and as registered memory"),
    linger(["unread"], "linger_unread", "the same, left in the queue of a connection that closes"),
    linger(["many"], "linger_253", "253 of them in a message"),
    linger(WAYS, "linger_few_descriptors", "all of these; the switch may have 256 descriptors",
           bed={"nofile": 256}),
    Row("slow_to_close", "descriptors that take the kernel long to close: 256 MiB of memory, epoll "
        "with 2,000 watchers", "slow_to_close", {"ways": ["wrong", "right"]}),
    Row("cycles", "sockets that lie in the queues of each other and in their own", "cycles",
        {"ways": WAYS}),
    Row("own_descriptors", "the switch's own memory, eventfds and sockets, as if they were the "
        "worker's", "own_descriptors"),
    Row("fuse_flush", "files of a FUSE file system that never answers FLUSH, for which closing "
        "waits", "silent", {"ways": WAYS, "silent": "FLUSH"}),
    Row("fuse_getattr", "the same with GETATTR, for which looking at a file waits", "silent",
        {"ways": WAYS, "silent": "GETATTR"}),
    Row("fuse_statfs", "the same with STATFS", "silent", {"ways": WAYS, "silent": "STATFS"}),
    Row("fuse_restart", "FLUSH again; the switch is killed and started again on its state file",
        "silent", {"ways": WAYS, "silent": "FLUSH"}, restart=True, alongside=kill_and_start),
    Row("out_of_descriptors", "all descriptors: connections, jobs, and what lies in queues; the "
        "switch may have 256, and the victim registers memory all the time", "out_of_descriptors",
        bed={"nofile": 256, "register_every": 50}),
    Row("kept_descriptors", "jobs that come and go, and descriptors of each that stay",
        "kept_descriptors", {"jobs": 300}, pairs=2, begin_s=9),
    Row("kept_mappings", "the same with mappings", "kept_mappings", {"jobs": 300}, pairs=2,
        begin_s=9),
    # Memory
    Row("sparse", "63 registered memories of 64 MiB without pages", "sparse"),
    Row("beyond_end", "the same, with as many pages beyond their ends", "beyond_end"),
    Row("sparse_regions", "worker regions without pages", "sparse_regions"),
    Row("full", "memory with pages, more than the quota", "full"),
    Row("punch", "holes punched in ring, payload rows and registered memory while the switch reads "
        "them, pages moved, 4,000 mappings of each page", "ring:punch"),
    Row("mappings", "63 registered memories of as many workers as there may be; no quota, as the "
        "configuration comes", "mappings", {"seconds": 12}, tenants=False, pairs=1, begin_s=15,
        quick=False),
    Row("mappings_reached", "the same while the switch has 400 mappings left of vm.max_map_count",
        "mappings", {"seconds": 2.5}, tenants=False, pairs=1, crowded=True, begin_s=12,
        bed={"mapped": -400, "register_every": 50}),
    Row("register_loop", "registers and unregisters all the time", "register_loop"),
    # Others' windows are so large that their regions are as large as by default, and count little.
    Row("register_queue", "16 workers that register 256 MiB each at once, while others join; policy "
        "`esa`", "register_queue", alongside=join_meanwhile,
        bed={"more": "aggregator: {policy: esa}\njobs: {window_bytes: 1 MiB}\n"}),
    Row("share_results", "result buffers of 24 MiB, made and freed all the time", "share_results",
        {"bytes": 24 * MIB}),
    Row("share_results_no_quota", "the same with 128 MiB; no quota", "share_results",
        {"bytes": 128 * MIB}, tenants=False, bed={"more": "jobs: {memory: 256 MiB}\n"}),
    Row("share_results_bounds", "result buffers of 0, 1, 2^32 and 2^64 - 1 bytes",
        "share_results_bounds"),
    # Connections
    Row("hold_connections", "all connections that there are", "hold_connections", tenants=False),
    Row("hold_places", "all jobs and workers that there may be, then all connections",
        "hold_places"),
    Row("hold_and_restart", "all connections, and the switch is killed and started again",
        "hold_connections", restart=True, tenants=False, alongside=kill_and_start),
    Row("connect_close", "connects and goes", "connect_close"),
    Row("nonsense", "thousands of connections that say nonsense", "nonsense"),
    Row("unread_status", "status answers that nobody reads; the switch may have 256 descriptors",
        "unread_status", bed={"nofile": 256}),
    Row("status_flood", "asks for the status as fast as it goes", "status_flood"),
    Row("trace_flood", "traces of its own job's packets, one after another", "trace_flood"),
    Row("split_flood", "splits of its own jobs, until they are refused", "split_flood"),
    Row("tcp_strangers", "thousands of connections over TCP without a token, silent or with nonsense",
        "tcp_strangers", {"address": ["127.0.0.1", STRANGERS_PORT]},
        bed={"listen": f"127.0.0.1:{STRANGERS_PORT}"}),
    Row("garbage", "each control message with fields of wrong types, deep nesting, huge numbers",
        "garbage"),
    Row("join_die", "workers that die at every stage of joining", "join_die"),
    Row("disagree", "own workers that disagree about world size and rank", "disagree"),
    Row("abort_flood", "own jobs that end with long reasons", "abort_flood"),
    # Names, logs, tickets
    Row("log_flood", "30 KiB refused over and over", "log_flood"),
    Row("log_forgery", "names, reasons and types with newlines, quotes and escapes", "log_forgery"),
    Row("squat", "job `default`, made before root and another user make it", "squat",
        {"name": "default", "rank": 1}, alongside=come_later),
    Row("tickets", "guessed tickets", "tickets", {"reserved": RESERVED}, alongside=reserve),
    Row("forged_rejoin", "others' jobs, by guessed ids and keys", "forged_rejoin",
        {"victim": VICTIM}),
    Row("inactl_create", "job names with shell commands, for administrators who write `eval "
        "\"$(inactl create NAME)\"`", alongside=create_jobs),
    Row("admin_calls", "32 calls of an administrator at once", alongside=administer),
    # Rings
    Row("ring_garbage", "entries of random bytes, and right ones with wrong fields, in the own "
        "ring", "ring:garbage", honest="work"),
    Row("ring_wake", "a sleep flag that has the switch call all the time, calls unread, and the "
        "lane's eventfd rung", "ring:wake", honest="work"),
    Row("ring_empty", "the lane's eventfd rung all the time, with nothing to be sent", "ring:ring"),
    Row("doorbell_waiters", "409,600 waiters on the own doorbell", "ring:doorbell"),
    # The memif bridge; the victim's rank 1 is behind it
    on_bridge("linger", "TCP sockets that linger 30 s, to `ina-memif`: in messages that carry no "
              "descriptors, unread, and 253 in a message", "linger",
              ways=["wrong", "unread", "many"]),
    on_bridge("fuse_flush", "files of a FUSE file system that never answers FLUSH, the same ways",
              "silent", ways=["wrong", "unread", "many"], silent="FLUSH"),
    on_bridge("abandoned", "workers that stop at every stage of joining by `ina-memif`, stay, and "
              "go without a word", "bridge_abandoned"),
    on_bridge("hold", "all connections that `ina-memif` takes, with a question on each; the third "
              "user is behind `ina-memif`, too", "bridge_hold", bed={"newcomer_at_bridge": True}),
    on_bridge("garbage", "each control message with fields of wrong types, to `ina-memif`",
              "garbage"),
    on_bridge("unread", "questions for the status by `ina-memif`, whose answers nobody reads",
              "bridge_unread"),
    # The fallback server, ina-psd, which the victim's sums need, too
    on_psd("groups", "as many jobs and groups of ranks as there may be, all with a part of `ina-psd`, "
           "made and ended all the time; no quota", "split_flood", tenants=False),
    on_psd("join_die", "workers that die at every stage of joining, in jobs that `ina-psd` joins",
           "join_die"),
    on_psd("ask", "8 jobs that ask `ina-psd` for results that it has sent, as fast as they are taken",
           "ring:ask", honest="work"),
    on_psd("garbage", "entries of random bytes, and right ones with wrong fields, in a ring, that "
           "the switch passes on to `ina-psd` as far as they are valid", "ring:garbage",
           honest="work"),
    on_psd("restart", "all connections that there are, in jobs that wait for their workers; "
           "`ina-psd` is killed and started again", "hold_in_jobs", tenants=False, crowded=True,
           bed={"control": "max_connections: 40, max_connections_per_user: 40"},
           restart=True, alongside=restart_psd),
    # A program in the switch's place
    false_switch("inactl", "a false switch for `inactl`: silence, noise, deep nesting, wrong "
                 "types, answers without end, wrong descriptors, lengths without bounds"),
    false_switch("libina", "the same for a worker that joins, and places with absurd windows, "
                 "rings and regions"),
)
assert len({row.name for row in ROWS}) == len(ROWS)
