#!/usr/bin/env python3
"""A user who asks ina-switchd for a job every now and then, and measures the time.

    newcomer.py UID SOCKET FILE [INTERFACE]

Every ASK_S the program asks for the state of its job, and the conductor answers. Every JOIN_S it
makes a job of one worker with the window that the switch gives to those who name none, waits until
that job runs, and leaves. With INTERFACE, SOCKET is that of an ina-memif, and the worker is on this
interface of it. FILE gets one line for each: kind ("answer", "join", "failed"), beginning and end
(CLOCK_MONOTONIC, ns), and for "failed" the error. The program ends at the end of its input.
"""

import os
import select
import sys
import time

import attack
import bridge
import peer
from attacker import become

ASK_S = 0.02
JOIN_S = 0.12
DEADLINE_S = 10


def connected(path):
    """Returns a connection on which the switch has answered once; it is in no job."""
    one = peer.Peer(path, DEADLINE_S)
    one.ask({"type": "explain"})
    return one


def run_job(path, name, interface):
    if interface:
        return bridge.run_job(path, name, int(interface[0]), window_bytes=0)
    return peer.run_job(path, name, window_bytes=0)[0]


def main():
    uid, path, file, *interface = sys.argv[1:]
    become(int(uid))
    asker = None
    number = 0
    join_at = time.monotonic()
    with open(file, "a", buffering=1, encoding="utf-8") as log:
        while not select.select([0], [], [], ASK_S)[0]:
            joining = time.monotonic() >= join_at
            start = time.monotonic_ns()
            try:
                if joining:
                    number += 1
                    one = peer.patiently(
                        lambda: run_job(path, f"newcomer-{os.getpid()}-{number}", interface),
                        DEADLINE_S)
                    end = time.monotonic_ns()
                    peer.leave(one)
                    join_at = time.monotonic() + JOIN_S
                elif asker is None:
                    asker = peer.patiently(lambda: connected(path), DEADLINE_S)
                    continue
                else:
                    asker.ask({"type": "explain"})
                    end = time.monotonic_ns()
                print("join" if joining else "answer", start, end, file=log)
            except attack.FAILURES as error:
                # The switch may close a connection that is silent for long; that is no failure.
                if asker is None or joining:
                    print("failed", start, time.monotonic_ns(), repr(error)[:200], file=log)
                    join_at = time.monotonic() + JOIN_S
                asker = None


if __name__ == "__main__":
    main()
