"""A process between workers and their switch that changes their messages, and so breaks rules."""

import array
import json
import os
import select
import socket
import threading

CLOSE = object()
MOST_BYTES = 1 << 16
MOST_DESCRIPTORS = 64


class Meddler:
    """Serves the socket `path` for the switch at `switch`. `change(message, descriptors)` gets
    every message, of both directions, and returns the message to pass on. None drops the message;
    after CLOSE both sides find the connection closed. A message with a key `then_close` is passed
    on, and the next message of its receiver fails. Descriptors may be replaced in their list."""

    def __init__(self, path, switch, change):
        self.path, self.switch, self.change = str(path), str(switch), change
        self.heard = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.threads = [threading.Thread(target=self.serve, daemon=True)]
        self.threads[0].start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)

    def serve(self):
        while True:
            try:
                worker, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.relay, args=(worker,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def relay(self, worker):
        with worker, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as switch:
            try:
                switch.connect(self.switch)
                while self.pass_on(worker, switch):
                    pass
            except OSError:
                pass

    def pass_on(self, worker, switch):
        for source in select.select([worker, switch], [], [])[0]:
            data, descriptors, _, _ = socket.recv_fds(source, MOST_BYTES, MOST_DESCRIPTORS)
            try:
                if not data or not self.send(worker if source is switch else switch, json.loads(data), descriptors):
                    return False
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        return True

    def send(self, target, message, descriptors):
        self.heard.append(message)
        passed = list(descriptors)
        changed = self.change(message, passed)
        if changed is None or changed is CLOSE:
            return changed is None
        last = changed.pop("then_close", False)
        if last:
            target.shutdown(socket.SHUT_RD)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))] if passed else []
        target.sendmsg([json.dumps(changed).encode()], rights)
        return not last
