"""Ports of this machine for a test: other switches and other tests run beside it."""

import socket


def free_port():
    """Returns a TCP port of 127.0.0.1 at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
