"""Whether `inactl why`, and the errors of the ranks, name a fault."""

import json
import re
import subprocess
import time

from case import DEADLINE_S
from errors import ranks_named
from faults import SETTLE_S

WAITED = ("INA_ERR_TIMEOUT", "INA_ERR_ABORTED")  # of the rank that gives up first, and of others


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
