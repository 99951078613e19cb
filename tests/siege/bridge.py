"""Attacks on ina-memif over its control socket."""

import time

import peer
from attack import Holder

MOST_HELD = 24
FIRST_INTERFACE = 1  # the victim has 0


def join_request(job, interface, rank=0, world=1, **more):
    """Returns the `join` of a worker with frames. The bridge needs no memif for it."""
    address = {"mac": [2, 0, 0, 0, 1, interface], "ip": 0x0A000100 + interface, "udp_port": 9000}
    return peer.join_request(job, rank, world, transport="frame", interface=interface,
                             address=address, **more)


def run_job(path, job, interface, **more):
    """Returns a connection to the bridge at `path` whose job of one worker runs."""
    one = peer.Peer(path)
    try:
        one.send(join_request(job, interface, **more))
        one.hear("joined")
        one.send({"type": "attach"})
        one.hear("ready")
        return one
    except BaseException:
        one.close()
        raise


class Abandoned(Holder):
    """Workers that stop at each stage of joining by the bridge, stay for a while, and go without a
    word."""

    def join(self, number, world):
        one = self.connect()
        if one is None:
            raise OSError("no room for a connection")
        one.send(join_request(self.name(), FIRST_INTERFACE + number % 3, 0, world))
        one.hear("joined")
        return one

    def step(self):
        for stage in range(4):
            with self.trying("joins"):
                if stage == 0:
                    self.connect()
                    continue
                one = self.join(stage, 1 + stage % 2)
                if stage > 1:
                    one.send({"type": "attach"})
                if stage == 3:
                    one.hear("waiting")
        if len(self.held) > MOST_HELD:
            super().end()


class HoldBridge(Holder):
    """Takes all connections that the bridge lets a user have, and asks a question on each."""

    BEGIN_S = 2.5

    def begin(self):
        until = time.monotonic() + self.BEGIN_S
        while self.take() and time.monotonic() < until:
            pass

    def step(self):
        self.take()
        super().step()

    def take(self):
        """Returns whether there may be more of them."""
        one = self.connect()
        if one is None:
            return True
        with self.trying("questions"):
            said = one.ask({"type": "explain"})
            if said["type"] != "refused":
                self.most("places", len(self.held))
                return True
            self.drop(one)
            return "already" not in said["text"]
        self.drop(one)
        return True


class UnreadThroughBridge(Holder):
    """Status questions that the bridge passes on, whose answers nobody reads."""

    def begin(self):
        for _ in range(32):
            self.connect(0.05)

    def step(self):
        for one in list(self.held):
            one.socket.settimeout(0)
            with self.trying("asked"):
                one.send({"type": "status"})
        if self.did.get("asked_failed", 0) > self.did.get("replaced", 0):
            self.most("replaced", self.did["asked_failed"])
            self.end()
            self.begin()


ATTACKS = {"bridge_abandoned": Abandoned, "bridge_hold": HoldBridge,
           "bridge_unread": UnreadThroughBridge}
