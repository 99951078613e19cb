"""The exceptions that calls raise."""

import enum


class Status(enum.IntEnum):
    """ina_status of include/ina/ina.h."""

    INVALID = -1
    TIMEOUT = -2
    NO_SWITCH = -3
    VERSION = -4
    REFUSED = -5
    RANK_TAKEN = -6
    MISMATCH = -7
    PEER_LOST = -8
    SWITCH_LOST = -9
    ABORTED = -10
    NO_MEMORY = -11
    UNSUPPORTED = -12
    FORKED = -13
    INTERNAL = -14


class Error(RuntimeError):
    """A call of the library failed. `status`: a Status; `text`: the library's error text."""

    status: Status
    text: str

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status)
        self.text = text

    def __reduce__(self) -> tuple[type["Error"], tuple[Status, str]]:
        return type(self), (self.status, self.text)


class Timeout(Error, TimeoutError):
    """INA_ERR_TIMEOUT."""


class PeerLost(Error, ConnectionError):
    """INA_ERR_PEER_LOST: a rank of the job died or left; the text names it."""


class Mismatch(Error):
    """INA_ERR_MISMATCH: ranks disagree about an operation; the text names both sides."""


_KINDS = {Status.TIMEOUT: Timeout, Status.PEER_LOST: PeerLost, Status.MISMATCH: Mismatch}


def make(status: int, _name: str, text: str) -> Error:
    """Returns the exception for a status."""
    return _KINDS.get(Status(status), Error)(status, text)
