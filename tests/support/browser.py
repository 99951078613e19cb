"""A headless Chromium, driven over a pipe (Chrome DevTools Protocol)."""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import time

from waiting import DEADLINE_S, wait_until

PROGRAM = "chromium"


def high_pipe():
    """Returns a pipe whose descriptors do not collide with 3 and 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends


class Browser:
    """One tab. `folder`: for its profile."""

    @staticmethod
    def is_here():
        return shutil.which(PROGRAM) is not None

    def __init__(self, folder):
        commands, self.to_browser = high_pipe()
        self.from_browser, answers = high_pipe()
        # Chromium reads from descriptor 3 and writes to 4. It has no sandbox as root; the page is
        # trusted.
        self.log = pathlib.Path(folder) / "browser.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers} {commands}<&- {answers}>&-',
                 "bash", PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-breakpad", "--remote-debugging-pipe",
                 f"--user-data-dir={pathlib.Path(folder) / 'profile'}", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(commands, answers),
                start_new_session=True, env=os.environ | {"HOME": str(folder), "TMPDIR": str(folder)})
        os.close(commands)
        os.close(answers)
        self.unread = b""
        self.number = 0
        self.exceptions = []  # of the pages' own scripts, which nothing caught
        self.session = None
        self.session = self.attach()
        self.call("Runtime.enable")  # reports exceptions

    def __enter__(self):
        return self

    def __exit__(self, *error):
        try:
            self.session = None
            self.send("Browser.close")
            self.process.wait(DEADLINE_S)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            # processes that remain must not write any more
            os.killpg(self.process.pid, signal.SIGKILL)
        os.close(self.to_browser)
        os.close(self.from_browser)

    def attach(self):
        tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        return self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data):]
        return self.number

    def receive(self, deadline, what):
        """Returns the next message."""
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.from_browser], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self.from_browser, 1 << 16) if ready else b""
            if not more:
                raise RuntimeError(f"{PROGRAM} {'ended' if ready else 'did not answer'}: {what}\n"
                                   f"{self.log.read_text(errors='replace')[-2000:]}")
            self.unread += more
        message, self.unread = self.unread.split(b"\0", 1)
        received = json.loads(message)
        if received.get("method") == "Runtime.exceptionThrown":
            details = received["params"]["exceptionDetails"]
            self.exceptions.append(details.get("exception", {}).get("description") or details["text"])
        return received

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            message = self.receive(deadline, method)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def screen(self, width, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        wait_until(url, lambda: self.ask("document.readyState") == "complete"
                   and self.ask("location.href") == url)

    def ask(self, expression):
        """Returns the value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def shoot(self, path):
        """Saves a picture of the whole page, as PNG."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(taken["data"]))
