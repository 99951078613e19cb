"""A real switch with metrics over HTTP, and its jobs."""

import contextlib
import os
import signal
import subprocess
import urllib.error
import urllib.request

from ports import free_port
from waiting import DEADLINE_S, wait_until


@contextlib.contextmanager
def running(*command, **options):
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def get(url):
    """Returns the text at a URL; nothing while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return ""


class Switch:
    """`config`: YAML, with {port} in metrics.listen."""

    def __init__(self, program, load_worker, folder, stack, config):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/metrics"
        self.socket = folder / "switch.sock"
        self.load_worker = load_worker
        file = folder / "switchd.yaml"
        file.write_text(config.format(port=self.port))
        self.process = stack.enter_context(running(program, "--config", file, "--socket", self.socket))
        wait_until("the switch's metrics", lambda: get(self.url))

    def job(self, stack, name, times, ranks=2, elements=(4096,)):
        """Starts a job of processes that sum `times` times; -1: until they are stopped."""
        environment = os.environ | {"INA_TIMEOUT_US": "60000000"}
        return [stack.enter_context(running(
            self.load_worker, f"shm:{self.socket}", name, rank, ranks, elements[rank % len(elements)],
            times, 1, stdout=subprocess.DEVNULL, env=environment)) for rank in range(ranks)]
