#!/usr/bin/env python3
"""A local user who attacks ina-switchd over its control socket.

    attacker.py UID ATTACK SOCKET JOB OPTIONS

ATTACK is a name from descriptors.py, memory.py, control.py, bridge.py, fallback.py or
false_switch.py; OPTIONS are the attack's own, as JSON. The program starts as root and becomes UID. It takes the same orders
as ina-siege (ina_siege.cc), "begin" and "end", one a line. The answer to each is the work done so
far, as JSON.
"""

import contextlib
import json
import os
import select
import sys

import bridge
import control
import descriptors
import fallback
import false_switch
import memory
from attack import FAILURES

ATTACKS = (descriptors.ATTACKS | memory.ATTACKS | control.ATTACKS | bridge.ATTACKS |
           fallback.ATTACKS | false_switch.ATTACKS)


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


class Orders:
    """Lines of standard input, read without blocking."""

    def __init__(self):
        self.rest = b""

    def next(self, wait):
        """Returns the next order. Empty: none yet; None: end of input."""
        while b"\n" not in self.rest:
            if not wait and not select.select([0], [], [], 0)[0]:
                return ""
            data = os.read(0, 4096)
            if not data:
                return None
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


def attack_until_the_end(attack):
    orders = Orders()
    attacking = False
    while (order := orders.next(wait=not attacking)) is not None:
        if order == "begin":
            attacking = True
            with contextlib.suppress(*FAILURES):
                attack.begin()
        elif order == "end" and attacking:
            attacking = False
            with contextlib.suppress(*FAILURES):
                attack.end()
        if order:
            print(json.dumps(attack.did | {"broken": attack.broken[:3]}), flush=True)
        elif attacking:
            with contextlib.suppress(*FAILURES):
                attack.step()


def main():
    uid, name, path, job, options = sys.argv[1:]
    attack = ATTACKS[name](path, job, json.loads(options))
    if not attack.needs_root_to_begin:
        become(int(uid))
    attack.prepare()
    if attack.needs_root_to_begin:
        become(int(uid))
    try:
        attack_until_the_end(attack)
    finally:
        if hasattr(attack, "stop"):
            attack.stop()


if __name__ == "__main__":
    main()
