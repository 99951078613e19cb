"""Attacks on ina-memif over its control socket."""

import peer
from attack import Holder

MOST_HELD = 24
FIRST_INTERFACE = 1  # the victim has 0


class Abandoned(Holder):
    """Workers that stop at each stage of joining by the bridge, stay for a while, and go without a
    word."""

    def join(self, number, world):
        one = self.connect()
        if one is None:
            raise OSError("no room for a connection")
        interface = FIRST_INTERFACE + number % 3
        address = {"mac": [2, 0, 0, 0, 1, interface], "ip": 0x0A000100 + interface,
                   "udp_port": 9000}
        one.send(peer.join_request(self.name(), 0, world, transport="frame", interface=interface,
                                   address=address))
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


ATTACKS = {"bridge_abandoned": Abandoned, "bridge_unread": UnreadThroughBridge}
